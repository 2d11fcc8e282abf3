# What gojq has and jaq lacks or does otherwise. Later definitions are seen by programs only, and by those below them.

def toboolean:
  if isboolean then . elif . == "true" then true elif . == "false" then false
  else error("\(tojson) cannot be parsed as a boolean") end;
def toarray: if isarray then . else [.] end;
def trimstr($x): ltrimstr($x) | rtrimstr($x);
def have_literal_numbers: true;
def have_decnum: false;
def abs: if isnumber then (if . < 0 then -. else . end) else error("\(tojson) has no absolute value") end;

# Arrays and objects
def in(xs): . as $x | xs | has($x);
def inside(xs): . as $x | xs | contains($x);
def index($i): indices($i) | if . == null then null else .[0] end;
def rindex($i): indices($i) | if . == null then null else .[-1:][0] end;
def transpose: if . == [] then [] else . as $in | (map(length) | max) as $max
  | [range(0; $max) as $j | [range(0; $in | length) as $i | $in[$i][$j]]] end;
def join($x): reduce .[] as $i (null;
  (if . == null then "" else . + $x end)
  + ($i | if . == null then "" elif isboolean or isnumber then tojson else . end)) // "";
def flatten($d): if $d < 0 then error("flatten depth must not be negative") else
  reduce .[] as $i ([]; if $i | isarray and $d > 0 then . + ($i | flatten($d - 1)) else . + [$i] end) end;
def flatten: flatten(1e9);
def to_entries: [keys[] as $key | {$key, value: .[$key]}];
def from_entries: reduce .[] as $x ({}; . + {
  ($x | if .key == null then .k // .name // .Name // .K // .Key else .key end
    | if isstring then . else tojson end):
  ($x | if has("value") then .value elif has("v") then .v else .Value end)});
def with_entries(f): to_entries | map(f) | from_entries;
def del(f): delpaths([path(f)]);
def setpath($path; $x): if $path | isarray then getpath($path) = $x else error("Path must be specified as an array") end;
def leaf_paths: paths(scalars);
def combinations($n): . as $dot | [range($n)] | map($dot) | combinations;
def pick(f): . as $top | reduce path(f) as $p (null; setpath($p; $top | getpath($p)));
def walk(f): def rec: if isobject or isarray then map_values(rec) else . end | f; rec;

# Generators
def recurse_down: recurse;
def isvalid(f): try (f | true) catch false;
def IN(s): any(s == .; .);
def IN(src; s): any(src == s; .);
def INDEX(stream; f): reduce stream as $row ({}; .[$row | f | tostring] |= $row);
def INDEX(f): INDEX(.[]; f);

# Streams
def tostream: path(def r: (.[]? | r), .; r) as $p | getpath($p) | reduce path(.[]?) as $q ([$p, .]; [$p + $q]);
def fromstream(f): {x: null, e: false} as $init
  | foreach f as $i ($init;
      if .e then $init else . end
      | if $i | length == 2
        then setpath(["e"]; $i[0] | length == 0) | setpath(["x"] + $i[0]; $i[1])
        else setpath(["e"]; $i[0] | length == 1) end;
      if .e then .x else empty end);
def truncate_stream(stream): . as $n | null | stream | . as $input
  | if (.[0] | length) > $n then setpath([0]; .[0][$n:]) else empty end;

# Regular expressions: flags may be null, and expression and flags may come as an array.
def match($re; $flags): matches($re; $flags // "")[]
  | .[0] + {captures: .[1:] | map({name: null} + .)};
def match($re): if $re | isarray then match($re[0]; $re[1]) else match($re; null) end;
def test($re; $flags): matches($re; $flags // "") | any;
def test($re): if $re | isarray then test($re[0]; $re[1]) else test($re; null) end;
def capture($re; $flags): matches($re; $flags // "")[] | map(select(.name) | {(.name): .string}) | add + {};
def capture($re): if $re | isarray then capture($re[0]; $re[1]) else capture($re; null) end;
def scan($re; $flags): matches($re; "g" + ($flags // ""))[] | [.[].string] | if length > 1 then .[1:] else .[0] end;
def scan($re): if $re | isarray then scan($re[0]; $re[1]) else scan($re; null) end;
def split($re; $flags): split_($re; "g" + ($flags // ""));
def splits($re; $flags): split($re; $flags)[];
def splits($re): splits($re; null);

# Formats
def @base64d: tostring | (utf8bytelength % 4) as $rest
  | (if $rest == 0 then . else . + "=" * (4 - $rest) end) | decode_base64;

# Dates
def date: todate;
def dateadd(unit; n): . + n;
def datesub(unit; n): . - n;
