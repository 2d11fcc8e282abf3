"""Random charts: a tree of values and a template made by a grammar of expressions. The same source of randomness gives the
same chart. Functions whose answer differs from run to run (`now`, `rand…`, `keys` without sorting) are left out."""

import json
import random

WORDS = ["a", "b", "name", "port", "x1", "Camel", "with-dash", "env", "on", "y", "deep"]
TEXTS = [
    "", "text", "two words", "yes", "no", "null", "~", "1", "1e3", "0x1f", "08", "1.20", "true", "a: b", "- dash", "# hash",
    "a #b", " lead", "trail ", "multi\nline", "multi\nline\n", "tab\there", "quote\"s", "it's", "back\\slash", "é☺", "<&>",
    "{{ .x }}", "%d%%", "2020-01-01", "12:30", "@at", "*star", "&amp", "!bang", "|pipe", "[1]", "{a}", "a,b,c", "foo-bar_baz",
    "CamelCaseText", "v1.2.3", "1.2.3-rc.1+b", "nginx:1.25", "http://u@h:80/p?q=1#f", "x" * 90, "w " * 50, "=", "<<", "\n", "a\n\n b ",
]
NUMBERS = [0, 1, 2, 3, 7, 10, 80, 8080, -1, -5, 1.5, 0.1, 2.0, -3.25, 999999, 1000000, 1234567, 1e-5, 1e10, 123456789012, 1e20, 1e21]
PATTERNS = ["[a-z]+", "^.", "\\\\d+", "(a)(b)?", "[^x]", "o*", "\\\\s", "(?i)TEXT", "b$", "\\\\w+-\\\\w+", "."]
RANGES = ["^1.2", "~1.2.0", ">=1.0-0", "1.x", ">1 <3", "=1.2.3", "*", "<1.0 || >1.2.0-0", "!=1.2.3", "1.2 - 2.0"]


class Maker:
    def __init__(self, source: random.Random):
        self.r = source
        self.variables: list[str] = []
        self.counter = 0

    def pick(self, *items):
        return self.r.choice(items)

    # --- values ---

    def value(self, depth: int):
        kind = self.r.random()
        if depth > 0 and kind < 0.25:
            return {self.r.choice(WORDS): self.value(depth - 1) for _ in range(self.r.randrange(4))}
        if depth > 0 and kind < 0.45:
            return [self.value(depth - 1) for _ in range(self.r.randrange(4))]
        if kind < 0.7:
            return self.r.choice(TEXTS)
        if kind < 0.9:
            return self.r.choice(NUMBERS)
        return self.pick(True, False, None)

    def values(self) -> dict:
        return {
            "m": {self.r.choice(WORDS): self.value(2) for _ in range(3)},
            "d": {"a": self.value(1), "b": self.r.choice(TEXTS), "c": {"d": self.r.choice(NUMBERS)}},
            "l": [self.value(1) for _ in range(self.r.randrange(5))],
            "ts": [self.r.choice(TEXTS) for _ in range(self.r.randrange(1, 5))],
            "s": self.r.choice(TEXTS),
            "t": self.r.choice(TEXTS),
            "n": self.r.choice(NUMBERS),
            "k": self.r.choice(NUMBERS),
            "z": self.pick(True, False),
            "any": self.value(2),
        }

    # --- expressions: each gives a text that can stand between parentheses ---

    def text(self, depth: int) -> str:
        r = self.r
        if depth <= 0:
            return self.pick(
                ".Values.s", ".Values.t", ".Values.d.b", json.dumps(r.choice(TEXTS)), "$.Release.Name", "$.Chart.Name",
                '(index $.Values.ts 0)', "$.Values.s",
            ).replace(".Values", "$.Values").replace("$$", "$")
        a, b, i = (lambda: f"({self.text(depth - 1)})"), (lambda: f"({self.any(depth - 1)})"), (lambda: f"({self.int(depth - 1)})")
        small = str(r.randrange(0, 12))
        return r.choice([
            lambda: f"upper {a()}", lambda: f"lower {a()}", lambda: f"title {a()}", lambda: f"trim {a()}",
            lambda: f"trunc {self.pick(small, '-' + small)} {a()}", lambda: f"replace {a()} {a()} {a()}",
            lambda: f"quote {b()}", lambda: f"squote {b()}", lambda: f"indent {small} {a()}", lambda: f"nindent {small} {a()}",
            lambda: f"print {b()} {b()}", lambda: f"printf {json.dumps(self.format(2))} {b()} {b()}",
            lambda: f"printf {json.dumps(self.format(1))} {i()}", lambda: f"toYaml {b()}", lambda: f"toJson {b()}",
            lambda: f"toString {b()}", lambda: f"join {a()} {self.pick('$.Values.ts', '$.Values.l')}",
            lambda: f"trimSuffix {a()} {a()}", lambda: f"trimPrefix {a()} {a()}", lambda: f"trimAll {a()} {a()}",
            lambda: f"repeat {r.randrange(4)} {a()}", lambda: f"b64enc {a()}", lambda: f"b64dec (b64enc {a()})",
            lambda: f"sha256sum {a()}", lambda: f"snakecase {a()}", lambda: f"camelcase {a()}", lambda: f"kebabcase {a()}",
            lambda: f"default {a()} {b()}", lambda: f"ternary {a()} {a()} ({self.bool(depth - 1)})",
            lambda: f"coalesce {b()} {a()} \"end\"", lambda: f"cat {b()} {b()}", lambda: f"nospace {a()}",
            lambda: f"initials {a()}", lambda: f"wrap {r.randrange(3, 20)} {a()}", lambda: f"abbrev {r.randrange(4, 20)} {a()}",
            lambda: f"regexReplaceAll \"{r.choice(PATTERNS)}\" {a()} {self.pick('`<$0>`', '`${1}x`', '`-`')}",
            lambda: f"regexFind \"{r.choice(PATTERNS)}\" {a()}", lambda: f"regexQuoteMeta {a()}",
            lambda: f"include \"{self.pick('part', 'shape')}\" {b()}", lambda: f"tpl {a()} $",
            lambda: f"substr 0 {r.randrange(1, 6)} {a()}", lambda: f"swapcase {a()}", lambda: f"untitle {a()}",
            lambda: f"kindOf {b()}", lambda: f"typeOf {b()}", lambda: f"urlquery {a()}", lambda: f"html {b()}",
            lambda: f"base {a()}", lambda: f"dir {a()}", lambda: f"ext {a()}", lambda: f"clean {a()}",
            lambda: f"toPrettyJson {b()}", lambda: f"toRawJson {b()}", lambda: f"plural \"one\" \"many\" {i()}",
            lambda: f"required {a()} {b()}", lambda: f"{a()} | {self.filter(depth - 1)}",
        ])()

    def filter(self, depth: int) -> str:
        return self.pick(
            "upper", "trim", "quote", "squote", "toYaml", "toJson", "trunc 5", "default \"d\"", "nindent 2", "indent 4", "toString",
            "replace \"a\" \"b\"", "b64enc", "title", "splitList \",\" | toJson", "printf \"%v\"", "lower | title", "trimSuffix \"-\"",
        )

    def format(self, count: int) -> str:
        verbs = ["%s", "%v", "%d", "%q", "%5v", "%-6s", "%05d", "%.2f", "%x", "%t", "%+v", "%T", "%6.1f", "%g", "%e", "%c", "%o", "%%"]
        return self.pick("", "a-", "[") .join(self.r.choice(verbs) for _ in range(count))

    def int(self, depth: int) -> str:
        r = self.r
        if depth <= 0:
            return self.pick("1", "2", "5", "0", "int $.Values.n", "len $.Values.ts", "int64 $.Values.k", "$.Values.n", "-3")
        a, b = (lambda: f"({self.int(depth - 1)})"), (lambda: f"({self.any(depth - 1)})")
        return r.choice([
            lambda: f"add {a()} {a()}", lambda: f"sub {a()} {a()}", lambda: f"mul {a()} {a()}", lambda: f"div {a()} {self.pick('3', '2', a())}",
            lambda: f"mod {a()} {self.pick('3', '7', a())}", lambda: f"max {a()} {a()}", lambda: f"min {a()} {a()}", lambda: f"int {b()}",
            lambda: f"int64 {b()}", lambda: f"len {b()}", lambda: f"floor {b()}", lambda: f"ceil {b()}", lambda: f"round {b()} {r.randrange(4)}",
            lambda: f"add1 {a()}", lambda: f"float64 {b()}", lambda: f"addf {a()} {b()}", lambda: f"mulf {a()} {b()}", lambda: f"toDecimal {b()}",
            lambda: f"atoi ({self.text(depth - 1)})",
        ])()

    def bool(self, depth: int) -> str:
        r = self.r
        if depth <= 0:
            return self.pick("$.Values.z", "true", "false", "not $.Values.z", "empty $.Values.s")
        a, b, t = (lambda: f"({self.bool(depth - 1)})"), (lambda: f"({self.any(depth - 1)})"), (lambda: f"({self.text(depth - 1)})")
        return r.choice([
            lambda: f"and {a()} {a()}", lambda: f"or {a()} {a()}", lambda: f"not {b()}", lambda: f"empty {b()}",
            lambda: f"{self.pick('eq', 'ne', 'lt', 'le', 'gt', 'ge')} {t()} {t()}", lambda: f"{self.pick('eq', 'ne', 'lt', 'gt')} ({self.int(depth - 1)}) ({self.int(depth - 1)})",
            lambda: f"{self.pick('eq', 'ne')} {b()} {b()}", lambda: f"contains {t()} {t()}", lambda: f"hasPrefix {t()} {t()}", lambda: f"hasSuffix {t()} {t()}",
            lambda: f"hasKey $.Values.m \"{r.choice(WORDS)}\"", lambda: f"has {b()} ({self.list(depth - 1)})", lambda: f"kindIs \"{self.pick('string', 'map', 'slice', 'float64', 'bool', 'invalid', 'int')}\" {b()}",
            lambda: f"regexMatch \"{r.choice(PATTERNS)}\" {t()}", lambda: f"semverCompare \"{r.choice(RANGES)}\" \"{self.pick('1.2.3', 'v1.2.0-rc.1', '2.0.0', '1.2', '0.9.9+b')}\"",
            lambda: f"deepEqual {b()} {b()}", lambda: f"all {b()} {b()}", lambda: f"any {b()} {b()}",
        ])()

    def list(self, depth: int) -> str:
        r = self.r
        if depth <= 0:
            return self.pick("$.Values.l", "$.Values.ts", "list 1 2 3", "list", "until 3", "list \"b\" \"a\" \"b\"")
        a, b, t = (lambda: f"({self.list(depth - 1)})"), (lambda: f"({self.any(depth - 1)})"), (lambda: f"({self.text(depth - 1)})")
        return r.choice([
            lambda: f"list {b()} {b()}", lambda: f"append {a()} {b()}", lambda: f"prepend {a()} {b()}", lambda: f"concat {a()} {a()}",
            lambda: f"reverse {a()}", lambda: f"uniq {a()}", lambda: f"without {a()} {b()}", lambda: f"compact {a()}", lambda: f"rest {a()}",
            lambda: f"initial {a()}", lambda: f"sortAlpha {a()}", lambda: f"slice {a()} {r.randrange(3)}", lambda: f"splitList {t()} {t()}",
            lambda: f"until {r.randrange(6)}", lambda: f"untilStep {r.randrange(5)} {r.randrange(9)} {self.pick(1, 2, -1)}", lambda: f"chunk {r.randrange(1, 4)} {a()}",
            lambda: f"toStrings {a()}", lambda: f"keys ({self.dict(depth - 1)}) | sortAlpha", lambda: f"regexFindAll \"{r.choice(PATTERNS)}\" {t()} {self.pick(-1, 1, 2)}",
            lambda: f"regexSplit \"{r.choice(PATTERNS)}\" {t()} {self.pick(-1, 2)}", lambda: f"pluck \"a\" ({self.dict(depth - 1)}) $.Values.d",
            lambda: f"fromYamlArray (toYaml {a()})", lambda: f"fromJsonArray (toJson {a()})",
        ])()

    def dict(self, depth: int) -> str:
        r = self.r
        if depth <= 0:
            return self.pick("$.Values.m", "$.Values.d", "dict", "dict \"a\" 1 \"b\" \"x\"", "$.Values.d.c")
        a, b, t = (lambda: f"({self.dict(depth - 1)})"), (lambda: f"({self.any(depth - 1)})"), (lambda: f"({self.text(depth - 1)})")
        copy = lambda: f"(deepCopy {a()})"  # noqa: E731
        return r.choice([
            lambda: f"dict \"{r.choice(WORDS)}\" {b()} \"{r.choice(WORDS)}\" {b()}", lambda: f"merge {copy()} {a()}", lambda: f"mergeOverwrite {copy()} {a()}",
            lambda: f"omit {a()} \"{r.choice(WORDS)}\"", lambda: f"pick {a()} \"{r.choice(WORDS)}\" \"a\"", lambda: f"set {copy()} \"{r.choice(WORDS)}\" {b()}",
            lambda: f"unset {copy()} \"a\"", lambda: f"fromYaml (toYaml {a()})", lambda: f"fromJson (toJson {a()})", lambda: f"split \"{self.pick(',', '-', ' ', 'a')}\" {t()}",
            lambda: f"fromYaml {t()}", lambda: f"merge (dict) {a()} {a()}", lambda: f"mustMerge {copy()} {a()}",
        ])()

    def any(self, depth: int) -> str:
        r = self.r
        if self.variables and r.random() < 0.1:
            return r.choice(self.variables)
        if depth <= 0 and r.random() < 0.5:
            return self.pick("$.Values.any", "$.Values.l", "$.Values.m", "$.Values.n", "$.Values.nope", "$.Values.d.a", "$.Values.z", f"$.Values.m.{self.pick('a', 'b', 'name', 'deep')}", f"{r.choice(NUMBERS)!r}")
        return r.choice([
            lambda: self.text(depth), lambda: self.text(depth), lambda: self.int(depth), lambda: self.bool(depth), lambda: self.list(depth), lambda: self.dict(depth),
            lambda: f"get ({self.dict(depth - 1)}) \"a\"", lambda: f"dig \"a\" \"b\" \"none\" ({self.dict(depth - 1)})", lambda: f"first ({self.list(depth - 1)})", lambda: f"last ({self.list(depth - 1)})",
            lambda: f"index ({self.list(depth - 1)}) {r.randrange(2)}", lambda: f"index ({self.dict(depth - 1)}) \"a\"", lambda: f"default ({self.any(depth - 1)}) ({self.any(depth - 1)})",
        ])()

    # --- text with actions ---

    def open(self) -> str:
        return self.pick("{{ ", "{{ ", "{{- ", "{{")

    def close(self) -> str:
        return self.pick(" }}", " }}", " -}}", "}}")

    def name(self) -> str:
        self.counter += 1
        return f"$v{self.counter}"

    def block(self, depth: int, dot: str = "any") -> str:
        r = self.r
        kept = len(self.variables)
        parts = []
        for _ in range(r.randrange(1, 4)):
            parts.append(self.pick("", " ", "\n", "  x: ", "\n  - ", "# c\n"))
            parts.append(self.node(depth, dot))
        del self.variables[kept:]
        return "".join(parts)

    def node(self, depth: int, dot: str) -> str:
        r, o, c = self.r, self.open, self.close
        if depth <= 0 or r.random() < 0.45:
            return f"{o()}{self.any(r.randrange(1, 4))}{c()}"
        kind = r.randrange(11)
        inner = depth - 1
        if kind < 2:
            other = self.pick("", f"{o()}else{c()}{self.block(inner)}", f"{o()}else if {self.bool(1)}{c()}{self.block(inner)}{o()}else{c()}e")
            return f"{o()}if {self.bool(2)}{c()}{self.block(inner)}{other}{o()}end{c()}"
        if kind < 4:
            k, v = self.name(), self.name()
            over = self.pick(self.list(1), self.dict(1))
            if r.random() < 0.5:
                body = f"{o()}.{c()}{self.pick('', '{{ if eq (len (toString .)) 3 }}{{ break }}{{ end }}', '{{ if not . }}{{ continue }}{{ end }}')}|"
                return f"{o()}range {over}{c()}{body}{self.pick('', '{{ else }}none')}{o()}end{c()}"
            self.variables += [k, v]
            return f"{o()}range {k}, {v} := {over}{c()}{k}={o()}{k}{c()} {self.block(inner)}{o()}end{c()}" if not self.forget(k, v) else ""
        if kind == 4:
            return f"{o()}with {self.any(1)}{c()}{o()}toJson .{c()}{self.block(inner)}{self.pick('', '{{ else }}nothing')}{o()}end{c()}"
        if kind == 5:
            v = self.name()
            text = f"{o()}{v} := {self.any(2)}{c()}"
            self.variables.append(v)
            return text
        if kind == 6 and self.variables:
            return f"{o()}{r.choice(self.variables)} = {self.any(1)}{c()}"
        if kind == 7:
            return f"{o()}template \"{self.pick('part', 'shape')}\" {self.pick('$.Values', '$.Values.d', '$.Values.any', '1')}{c()}"
        if kind == 8:
            return self.pick("{{/* comment */}}", "{{- /* comment */ -}}", "{{ \"{{\" }}", "{{ `raw` }}", "}}")
        if kind == 9:
            # One in some is broken on purpose: errors must be the same, too.
            return self.pick(*["", "text", "\n"] * 6, "{{ if true }}", "{{ end }}", "{{ nosuch }}", "{{ .Values.s.x }}", "{{ $nope }}", "{{ (1 }}", "{{ fail \"f\" }}")
        return f"{o()}{self.text(2)} | {self.filter(1)}{c()}"

    def forget(self, *names: str) -> bool:
        """Variables of `range` end with it; what has been generated from them stays inside."""
        self.variables = [v for v in self.variables if v not in names]
        return False

    def helpers(self) -> str:
        return (
            '{{- define "part" -}}<{{ . | toString | trunc 20 }}>{{- end -}}\n'
            '{{- define "shape" }}{{ kindOf . }}{{ if kindIs "map" . }}{{ range $k, $v := . }}{{ $k }}:{{ kindOf $v }};{{ end }}{{ end }}{{ end -}}\n'
        )

    def manifest(self) -> str:
        """A template that writes YAML, most of the time."""
        lines = ["kind: ConfigMap", "metadata:", f"  name: {self.pick('a', '{{ .Release.Name }}', '{{ .Chart.Name | quote }}')}", "data:"]
        for number in range(self.r.randrange(2, 6)):
            key = f"  k{number}:"
            lines.append(self.r.choice([
                lambda: f"{key} {{{{ {self.any(2)} | toString | quote }}}}",
                lambda: f"{key} {{{{ {self.any(2)} | toJson }}}}",
                lambda: f"{key} {{{{- {self.any(2)} | toYaml | nindent 4 }}}}",
                lambda: f"{key}\n    {{{{- toYaml ({self.any(2)}) | nindent 4 }}}}",
                lambda: f"  {{{{- range $k, $v := {self.dict(1)} }}}}\n  r{{{{ $k }}}}: {{{{ $v | toJson }}}}\n  {{{{- end }}}}",
                lambda: f"  {{{{- if {self.bool(2)} }}}}\n{key} yes it is\n  {{{{- else }}}}\n{key} 'no'\n  {{{{- end }}}}",
                lambda: f"  {{{{- with {self.any(1)} }}}}\n{key} {{{{ toJson . | squote }}}}\n  {{{{- end }}}}",
                lambda: f"{key} |\n    {{{{- {self.text(2)} | nindent 4 }}}}",
                lambda: f"{key} {{{{ {self.text(2)} | b64enc }}}}",
            ])())
        return "\n".join(lines) + "\n"


def yaml_of(value, indent: int = 0) -> str:
    """Block style, with texts in JSON's quotes or, where they are simple, as they are."""
    pad = "  " * indent
    if isinstance(value, dict) and value:
        return "".join(
            f"{pad}{json.dumps(k)}:" + (f"\n{yaml_of(v, indent + 1)}" if v and isinstance(v, (dict, list)) else f" {yaml_of(v)}\n")
            for k, v in value.items()
        )
    if isinstance(value, list) and value:
        return "".join(
            f"{pad}-" + (f"\n{yaml_of(v, indent + 1)}" if v and isinstance(v, (dict, list)) else f" {yaml_of(v)}\n") for v in value
        )
    if isinstance(value, str) and value.replace(".", "").replace("-", "").isalnum() and value.isascii():
        return value
    return json.dumps(value, ensure_ascii=False)


def pair(source: random.Random) -> dict:
    """One chart, the values that a user gives, and whether the template writes plain text."""
    maker = Maker(source)
    values = maker.values()
    texts = source.random() < 0.6
    template = maker.block(3) if texts else maker.manifest()
    given = {}
    # What the chart has itself, the user sometimes overrides.
    if source.random() < 0.5:
        given = {"m": {source.choice(WORDS): maker.value(1)}, "any": maker.value(1)}
    if source.random() < 0.2:
        given["d"] = {"a": None}
    return {
        "files": {
            "Chart.yaml": "apiVersion: v2\nname: pair\nversion: 0.1.0\n",
            "values.yaml": yaml_of(values),
            "templates/_helpers.tpl": maker.helpers(),
            "templates/a.yaml": template,
        },
        "values": given,
        "texts": texts,
    }
