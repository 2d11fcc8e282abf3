//! Violations of a schema in Helm's words.
//!
//! Helm's validator tells what is wrong as a tree: a schema that fails in several ways, `allOf`, `anyOf` and `oneOf` have
//! what failed below them. Ours gives a list in which each entry knows its way through the schema, so the tree is put
//! together from the ways. Not told are the items that `contains` did not find.

use std::collections::{BTreeMap, HashMap};

use jsonschema::{
    ValidationError,
    error::{TypeKind, ValidationErrorKind as Violation},
};
use serde_json::Value as Json;

/// Writes the violations as lines, each after a line break but the first. `show` tells whether values are quoted.
pub(super) fn tell(schema: &Json, errors: &[ValidationError<'_>], show: bool, out: &mut String) {
    let told = Teller { schema, show };
    let ways: Vec<Way<'_>> = errors.iter().map(Way::new).collect();
    let mut lines = Vec::new();
    let mut nodes = told.schema_at(&ways, 0, 0);
    if let [only] = &mut nodes[..]
        && only.is_group
    {
        nodes = std::mem::take(&mut only.causes);
    }
    for node in nodes {
        node.write(0, &mut lines);
    }
    out.push_str(&lines.join("\n"));
}

/// One thing that is wrong, and why.
struct Node {
    /// Pointer into the values.
    at: String,
    text: String,
    causes: Vec<Self>,
    /// Several things that are wrong with one schema, without a keyword that holds them together.
    is_group: bool,
}

impl Node {
    fn new(at: String, text: impl Into<String>, causes: Vec<Self>) -> Self {
        Self { at, text: text.into(), causes, is_group: false }
    }

    fn write(&self, depth: usize, lines: &mut Vec<String>) {
        lines.push(format!("{}- at {}: {}", "  ".repeat(depth), quote(&self.at), self.text));
        for cause in &self.causes {
            cause.write(depth + 1, lines);
        }
    }
}

/// A violation with its ways through the schema and through the values.
struct Way<'e> {
    schema: Vec<String>,
    values: Vec<String>,
    error: &'e ValidationError<'e>,
}

impl<'e> Way<'e> {
    fn new(error: &'e ValidationError<'_>) -> Self {
        let parts = |pointer: &str| pointer.split('/').skip(1).map(str::to_owned).collect();
        Self { schema: parts(error.evaluation_path().as_str()), values: parts(error.instance_path().as_str()), error }
    }

    fn at(&self, depth: usize) -> String {
        self.values.iter().take(depth).fold(String::new(), |path, part| path + "/" + part)
    }
}

/// Where a keyword leads: how many parts of the way it takes, and whether it goes into the values.
struct Lead {
    parts: usize,
    deeper: bool,
}

fn lead(keyword: &str, next: Option<&String>) -> Lead {
    let numbered = next.is_some_and(|next| next.bytes().all(|byte| byte.is_ascii_digit()));
    match keyword {
        "properties" | "patternProperties" | "prefixItems" => Lead { parts: 2, deeper: true },
        "items" => Lead { parts: if numbered { 2 } else { 1 }, deeper: true },
        "additionalProperties" | "unevaluatedProperties" | "additionalItems" | "unevaluatedItems" | "contains" => {
            Lead { parts: 1, deeper: true }
        }
        "allOf" | "anyOf" | "oneOf" | "dependentSchemas" | "dependencies" => Lead { parts: 2, deeper: false },
        _ => Lead { parts: 1, deeper: false },
    }
}

/// The place of a keyword among what is wrong with one schema.
fn rank(keyword: &str) -> u8 {
    match keyword {
        "$ref" => 0,
        "minProperties" | "minItems" | "minLength" | "minimum" => 1,
        "maxProperties" | "maxItems" | "maxLength" | "maximum" => 2,
        "required" | "uniqueItems" | "pattern" | "exclusiveMinimum" => 3,
        "dependencies" | "exclusiveMaximum" => 4,
        "multipleOf" => 5,
        "properties" | "patternProperties" | "prefixItems" | "items" => 6,
        "additionalProperties" | "additionalItems" => 7,
        "propertyNames" | "contains" | "minContains" | "maxContains" => 8,
        "dependentSchemas" => 9,
        "dependentRequired" => 10,
        "$dynamicRef" | "$recursiveRef" => 11,
        "not" => 12,
        "allOf" => 13,
        "anyOf" => 14,
        "oneOf" => 15,
        "then" | "else" => 16,
        _ => 17,
    }
}

struct Teller<'s> {
    schema: &'s Json,
    show: bool,
}

impl Teller<'_> {
    /// What is wrong with the schema that the first `i` parts of all ways lead to.
    fn schema_at(&self, ways: &[Way<'_>], i: usize, depth: usize) -> Vec<Node> {
        if let Some(way) = ways.iter().find(|way| way.schema.len() <= i) {
            return vec![self.leaf(way)];
        }
        // These end the validation of a schema.
        for keyword in ["type", "const", "enum", "format"] {
            if let Some(way) = ways.iter().find(|way| way.schema.len() == i + 1 && way.schema[i] == keyword) {
                return vec![self.leaf(way)];
            }
        }
        let mut found: Vec<((u8, String), Node)> = Vec::new();
        // By keyword, what it names, and the child of the values.
        let mut below: BTreeMap<(&str, &str, &str), Vec<&Way<'_>>> = BTreeMap::new();
        let mut missing: HashMap<&str, Vec<&Way<'_>>> = HashMap::new();
        for way in ways {
            let keyword = way.schema[i].as_str();
            match way.error.kind() {
                Violation::PropertyNames { .. } if keyword == "propertyNames" => {
                    below.entry((keyword, "", "")).or_default().push(way);
                }
                Violation::Required { .. } if way.schema.len() == i + 1 => {
                    missing.entry(keyword).or_default().push(way)
                }
                Violation::UnevaluatedProperties { unexpected } | Violation::UnevaluatedItems { unexpected }
                    if way.schema.len() == i + 1 =>
                {
                    for name in unexpected {
                        let at = format!("{}/{}", way.at(depth), escape(name));
                        let node = Node::new(at, "false schema", Vec::new());
                        found.push(((rank(keyword), name.clone()), node));
                    }
                }
                _ if way.schema.len() == i + 1 && !lead(keyword, None).deeper => {
                    found.push(((rank(keyword), String::new()), self.leaf(way)));
                }
                Violation::AdditionalProperties { .. } | Violation::AdditionalItems { .. } | Violation::Contains
                    if way.schema.len() == i + 1 =>
                {
                    found.push(((rank(keyword), String::new()), self.leaf(way)));
                }
                _ => {
                    let Lead { parts, deeper } = lead(keyword, way.schema.get(i + 1));
                    let named = way.schema.get(i + 1).filter(|_| parts == 2).map_or("", String::as_str);
                    let child = way.values.get(depth).filter(|_| deeper).map_or("", String::as_str);
                    below.entry((keyword, named, child)).or_default().push(way);
                }
            }
        }
        for (keyword, ways) in missing {
            let nodes = if keyword == "required" { self.required(&ways) } else { self.dependent(&ways) };
            found.extend(nodes.into_iter().map(|node| ((rank(keyword), node.text.clone()), node)));
        }
        let mut all_of = Vec::new();
        let mut parts: Vec<_> = below.into_iter().collect();
        // By number, where parts have one.
        parts.sort_by_key(|((_, named, child), _)| (named.len(), child.len()));
        for ((keyword, _, child), ways) in parts {
            let inner: Vec<Way<'_>> = ways.iter().map(|way| Way::new(way.error)).collect();
            if keyword == "propertyNames" {
                found
                    .extend(self.names(&inner, i + 1, depth).into_iter().map(|n| ((rank(keyword), n.text.clone()), n)));
                continue;
            }
            let Lead { parts, deeper } = lead(keyword, inner.first().and_then(|way| way.schema.get(i + 1)));
            let mut node = self.one(&inner, i + parts, depth + usize::from(deeper));
            if let Some(group) = node.as_mut().filter(|node| node.is_group && keyword.starts_with('$')) {
                // What a reference leads to is told in place of the reference.
                group.is_group = false;
                group.at = inner.first().map(|way| way.at(depth)).unwrap_or_default();
            }
            match node {
                Some(node) if keyword == "allOf" => all_of.push(node),
                // The order of children is that of nobody; ours is that of their names.
                Some(node) => found.push(((rank(keyword), child.to_owned()), node)),
                None => {}
            }
        }
        if !all_of.is_empty() {
            let at = ways.first().map(|way| way.at(depth)).unwrap_or_default();
            found.push(((rank("allOf"), String::new()), Node::new(at, "'allOf' failed", all_of)));
        }
        found.sort_by(|(a, _), (b, _)| a.cmp(b));
        found.into_iter().map(|(_, node)| node).collect()
    }

    /// The same as one thing.
    fn one(&self, ways: &[Way<'_>], i: usize, depth: usize) -> Option<Node> {
        let mut nodes = self.schema_at(ways, i, depth);
        if nodes.len() <= 1 {
            return nodes.pop();
        }
        let at = ways.first().map(|way| way.at(depth)).unwrap_or_default();
        Some(Node { is_group: true, ..Node::new(at, "validation failed", nodes) })
    }

    fn required(&self, ways: &[&Way<'_>]) -> Vec<Node> {
        let names: Vec<String> = ways.iter().filter_map(|way| missing(way)).map(|name| quote(&name)).collect();
        let word = if names.len() == 1 { "property" } else { "properties" };
        let Some(way) = ways.first() else { return Vec::new() };
        vec![Node::new(way.at(usize::MAX), format!("missing {word} {}", names.join(", ")), Vec::new())]
    }

    /// `dependentRequired` and the older `dependencies`: what is missing because something else is there.
    fn dependent(&self, ways: &[&Way<'_>]) -> Vec<Node> {
        let Some(way) = ways.first() else { return Vec::new() };
        let Some(rules) = self.schema.pointer(way.error.schema_path().as_str()).and_then(Json::as_object) else {
            return self.required(ways);
        };
        let document = way.error.instance();
        let rules = rules.iter().filter(|(name, _)| document.get(name.as_str()).is_some());
        rules
            .filter_map(|(name, wanted)| {
                let wanted = wanted.as_array()?.iter().filter_map(Json::as_str);
                let missing: Vec<String> = wanted.filter(|key| document.get(*key).is_none()).map(quote).collect();
                (!missing.is_empty()).then(|| {
                    let text = format!("properties {} required, if {} exists", missing.join(", "), quote(name));
                    Node::new(way.at(usize::MAX), text, Vec::new())
                })
            })
            .collect()
    }

    /// Names of properties that are not as they must be.
    fn names(&self, ways: &[Way<'_>], i: usize, depth: usize) -> Vec<Node> {
        let mut by_name: BTreeMap<String, Vec<Way<'_>>> = BTreeMap::new();
        for way in ways {
            if let Violation::PropertyNames { error } = way.error.kind() {
                let name = error.instance().as_str().unwrap_or_default().to_owned();
                let mut inner = Way::new(error);
                inner.values.clear();
                by_name.entry(name).or_default().push(inner);
            }
        }
        let at = ways.first().map(|way| way.at(depth)).unwrap_or_default();
        by_name
            .into_iter()
            .map(|(name, inner)| {
                let text = format!("invalid propertyName {}", quote(&name));
                Node::new(at.clone(), text, self.schema_at(&inner, i, 0))
            })
            .collect()
    }

    fn leaf(&self, way: &Way<'_>) -> Node {
        let error = way.error;
        let document = error.instance();
        let causes = match error.kind() {
            Violation::AnyOf { context } | Violation::OneOfNotValid { context } => {
                // The way of a branch goes on with its number.
                let branches = context.iter().map(|branch| branch.iter().map(Way::new).collect::<Vec<_>>());
                let start = way.schema.len() + 1;
                branches.filter_map(|branch| self.one(&branch, start, way.values.len())).collect()
            }
            _ => Vec::new(),
        };
        Node::new(way.at(usize::MAX), self.text(error, document, way), causes)
    }

    fn text(&self, error: &ValidationError<'_>, document: &Json, way: &Way<'_>) -> String {
        let compare = |keyword: &str, got: f64, want: f64| {
            let want = number(want);
            if self.show {
                format!("{keyword}: got {}, want {want}", number(got))
            } else {
                format!("{keyword}: want {want}")
            }
        };
        let bound = |keyword: &str, limit: &Json| {
            compare(keyword, document.as_f64().unwrap_or_default(), limit.as_f64().unwrap_or_default())
        };
        let size = |keyword: &str, got: usize, want: u64| {
            format!("{keyword}: got {}, want {}", grouped(&got.to_string()), grouped(&want.to_string()))
        };
        let length = || document.as_str().map_or(0, |text| text.chars().count());
        let items = || document.as_array().map_or(0, Vec::len);
        let fields = || document.as_object().map_or(0, serde_json::Map::len);
        match error.kind() {
            Violation::AdditionalItems { limit } => {
                format!("last {} additionalItem(s) not allowed", items().saturating_sub(*limit))
            }
            Violation::AdditionalProperties { unexpected } => {
                let names: Vec<String> = unexpected.iter().map(|name| quote(name)).collect();
                format!("additional properties {} not allowed", names.join(", "))
            }
            Violation::AnyOf { .. } => "'anyOf' failed".into(),
            Violation::OneOfNotValid { .. } => "'oneOf' failed, none matched".into(),
            Violation::OneOfMultipleValid { context } => {
                let mut valid = context.iter().enumerate().filter(|(_, errors)| errors.is_empty()).map(|(i, _)| i);
                match (valid.next(), valid.next()) {
                    (Some(a), Some(b)) => format!("'oneOf' failed, subschemas {a}, {b} matched"),
                    _ => "'oneOf' failed, several matched".into(),
                }
            }
            Violation::Not { .. } => "'not' failed".into(),
            Violation::Constant { expected_value } => match &**expected_value {
                Json::Array(_) | Json::Object(_) => "'const' failed".into(),
                wanted => format!("value must be {}", display(wanted)),
            },
            Violation::Enum { options } => match options.as_array().map(Vec::as_slice) {
                Some(options) if options.iter().any(|option| option.is_array() || option.is_object()) => {
                    "'enum' failed".into()
                }
                Some([only]) => format!("value must be {}", display(only)),
                Some(options) => {
                    let options: Vec<String> = options.iter().map(display).collect();
                    format!("value must be one of {}", options.join(", "))
                }
                None => "'enum' failed".into(),
            },
            Violation::Contains => match way.schema.last().map(String::as_str) {
                Some("minContains") => "too few items match contains schema".into(),
                Some("maxContains") => "too many items match contains schema".into(),
                _ => "no items match contains schema".into(),
            },
            Violation::FalseSchema => "false schema".into(),
            Violation::Format { format } if self.show => {
                format!("{} is not valid {format}", display(document))
            }
            Violation::Format { format } => format!("the value is not valid {format}"),
            Violation::Minimum { limit } => bound("minimum", limit),
            Violation::Maximum { limit } => bound("maximum", limit),
            Violation::ExclusiveMinimum { limit } => bound("exclusiveMinimum", limit),
            Violation::ExclusiveMaximum { limit } => bound("exclusiveMaximum", limit),
            Violation::MultipleOf { multiple_of } => {
                compare("multipleOf", document.as_f64().unwrap_or_default(), *multiple_of)
            }
            Violation::MinLength { limit } => size("minLength", length(), *limit),
            Violation::MaxLength { limit } => size("maxLength", length(), *limit),
            Violation::MinItems { limit } => size("minItems", items(), *limit),
            Violation::MaxItems { limit } => size("maxItems", items(), *limit),
            Violation::MinProperties { limit } => size("minProperties", fields(), *limit),
            Violation::MaxProperties { limit } => size("maxProperties", fields(), *limit),
            Violation::Pattern { pattern } if self.show => {
                format!("{} does not match pattern {}", display(document), quote(pattern))
            }
            Violation::Pattern { pattern } => format!("the value does not match pattern {}", quote(pattern)),
            Violation::Required { property } => format!("missing property {}", display(property)),
            Violation::Type { kind } => {
                format!("got {}, want {}", crate::json::kind_of_schema(document), wanted(kind))
            }
            Violation::UniqueItems => match duplicates(document) {
                Some((a, b)) => format!("items at {a} and {b} are equal"),
                None => "items are equal".into(),
            },
            other => format!("'{}' failed", other.keyword()),
        }
    }
}

fn missing(way: &Way<'_>) -> Option<String> {
    match way.error.kind() {
        Violation::Required { property } => property.as_str().map(str::to_owned),
        _ => None,
    }
}

fn wanted(kind: &TypeKind) -> String {
    const ORDER: [&str; 7] = ["null", "boolean", "number", "integer", "string", "array", "object"];
    let mut names: Vec<String> = match kind {
        TypeKind::Single(one) => vec![one.to_string()],
        TypeKind::Multiple(several) => several.iter().map(|kind| kind.to_string()).collect(),
    };
    names.sort_by_key(|name| ORDER.iter().position(|known| known == name));
    names.join(" or ")
}

/// The first item that was there before, with the one it equals.
fn duplicates(document: &Json) -> Option<(usize, usize)> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    document.as_array()?.iter().enumerate().find_map(|(i, item)| {
        let text = match item.as_f64() {
            Some(number) => number.to_string(),
            None => item.to_string(),
        };
        let first = *seen.entry(text).or_insert(i);
        (first != i).then_some((first, i))
    })
}

/// A part of a pointer.
fn escape(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

fn quote(text: &str) -> String {
    let quoted = crate::gofmt::quote(text);
    let inner = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(&quoted);
    format!("'{}'", inner.replace("\\\"", "\"").replace('\'', "\\'"))
}

fn display(value: &Json) -> String {
    match value {
        Json::String(text) => quote(text),
        Json::Null => "<nil>".into(),
        Json::Array(_) | Json::Object(_) => "value".into(),
        other => other.to_string(),
    }
}

/// A number as English text: groups of three digits, and from a million on a power of ten.
fn number(number: f64) -> String {
    let text = crate::gofmt::float(number);
    let Some((mantissa, exponent)) = text.split_once('e') else { return grouped(&text) };
    const HIGH: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    let exponent: String = exponent
        .chars()
        .filter_map(|c| match c {
            '-' => Some('⁻'),
            c => c.to_digit(10).and_then(|digit| HIGH.get(digit as usize).copied()),
        })
        .collect();
    format!("{mantissa}×10{exponent}")
}

fn grouped(text: &str) -> String {
    let (sign, rest) = text.strip_prefix('-').map_or(("", text), |rest| ("-", rest));
    let (whole, fraction) = rest.find('.').map_or((rest, ""), |dot| rest.split_at(dot));
    let mut out = String::from(sign);
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out + fraction
}
