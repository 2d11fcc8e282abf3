//! The types of an expression, and what does not fit: undeclared names, fields that a schema does not have, operators and
//! functions on values of other types. What the checker does not know it takes for fitting, so it never refuses what a
//! real server takes.

use std::collections::BTreeMap;

use kube_cel::cel::{
    IdedExpr,
    common::ast::{CallExpr, ComprehensionExpr, Expr, LiteralValue, SelectExpr},
};
use serde_json::Value;

use super::{
    Expression, escape,
    place::{self, What},
};

/// Errors of one expression; more would only fill the answer.
const ERRORS_MAX: usize = 20;

/// The type of a value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Type<'s> {
    /// Anything.
    Dyn,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    Text,
    Bytes,
    Timestamp,
    Duration,
    List(Box<Self>),
    Map(Box<Self>, Box<Self>),
    /// An object with these properties; the name is for messages. True for a whole object with kind and metadata.
    Object(&'s Value, String, bool),
    /// Metadata, of which only the names can be seen.
    Metadata,
    Optional(Box<Self>),
    /// An opaque type of a library.
    Opaque(&'static str),
}

impl Type<'_> {
    pub(crate) fn show(&self) -> String {
        match self {
            Type::Dyn => "dyn".to_owned(),
            Type::Null => "null".to_owned(),
            Type::Bool => "bool".to_owned(),
            Type::Int => "int".to_owned(),
            Type::Uint => "uint".to_owned(),
            Type::Double => "double".to_owned(),
            Type::Text => "string".to_owned(),
            Type::Bytes => "bytes".to_owned(),
            Type::Timestamp => "timestamp".to_owned(),
            Type::Duration => "duration".to_owned(),
            Type::List(item) => format!("list({})", item.show()),
            Type::Map(key, value) => format!("map({}, {})", key.show(), value.show()),
            Type::Object(_, name, _) => name.clone(),
            Type::Metadata => "selfType.metadata".to_owned(),
            Type::Optional(inner) => format!("optional_type({})", inner.show()),
            Type::Opaque(name) => (*name).to_owned(),
        }
    }

    /// Whether a value may be of both types.
    fn fits(&self, other: &Self) -> bool {
        match (self, other) {
            (Type::Dyn, _) | (_, Type::Dyn) => true,
            (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => a.fits(b),
            (Type::Map(a, x), Type::Map(b, y)) => a.fits(b) && x.fits(y),
            // An object can be absent, and null stands for that.
            (Type::Object(..) | Type::Metadata | Type::Timestamp | Type::Duration | Type::Optional(_), Type::Null)
            | (Type::Null, Type::Object(..) | Type::Metadata | Type::Timestamp | Type::Duration | Type::Optional(_)) => {
                true
            }
            (Type::Object(a, ..), Type::Object(b, ..)) => std::ptr::eq(*a, *b) || a == b,
            _ => self == other,
        }
    }

    fn is(&self, allowed: &[Type<'_>]) -> bool {
        *self == Type::Dyn || allowed.iter().any(|one| self.fits(one))
    }
}

/// The type that a schema gives.
pub(crate) fn of_schema<'s>(schema: &'s Value, name: &str, root: bool) -> Type<'s> {
    let flag = |key: &str| schema.get(key) == Some(&Value::Bool(true));
    let text = |key: &str| schema.get(key).and_then(Value::as_str).unwrap_or_default();
    if flag("x-kubernetes-int-or-string") {
        return Type::Dyn;
    }
    let whole = root || flag("x-kubernetes-embedded-resource");
    match text("type") {
        "boolean" => Type::Bool,
        "integer" => Type::Int,
        "number" => Type::Double,
        "string" => match text("format") {
            "date-time" | "date" => Type::Timestamp,
            "duration" => Type::Duration,
            "byte" => Type::Bytes,
            _ => Type::Text,
        },
        "array" => match schema.get("items") {
            Some(items) => Type::List(Box::new(of_schema(items, &format!("{name}.@idx"), false))),
            None => Type::Dyn,
        },
        "object" => match schema.get("additionalProperties") {
            Some(additional) if additional.is_object() => {
                Type::Map(Box::new(Type::Text), Box::new(of_schema(additional, &format!("{name}.@elem"), false)))
            }
            _ if whole || schema.get("properties").is_some() => Type::Object(schema, name.to_owned(), whole),
            _ => Type::Dyn,
        },
        _ => Type::Dyn,
    }
}

/// What is wrong with an expression whose free names have these types, and the type that it has.
pub(crate) fn check<'s>(expression: &Expression, names: &BTreeMap<&str, Type<'s>>) -> (Type<'s>, Vec<String>) {
    let mut order = Order::default();
    order.walk(&expression.tree);
    let mut checker = Checker { source: &expression.source, names, scopes: Vec::new(), order, errors: Vec::new() };
    let given = checker.expression(&expression.tree);
    let mut errors = checker.errors;
    errors.sort_by_key(|(place, _)| *place);
    errors.dedup();
    let shown = errors.into_iter().take(ERRORS_MAX);
    (given, shown.map(|((line, column), why)| place::error(&expression.source, line, column, &why)).collect())
}

/// Which nodes are of the same look, in the order of the text: the parser numbers them so.
#[derive(Default)]
struct Order {
    looks: BTreeMap<String, Vec<u64>>,
}

impl Order {
    fn walk(&mut self, node: &IdedExpr) {
        let look = match &node.expr {
            Expr::Select(select) if select.test => Some("(has".to_owned()),
            Expr::Select(select) => Some(format!(".{}", select.field)),
            Expr::Call(call) => Some(format!("({}", call.func_name)),
            Expr::Ident(name) => Some(name.clone()),
            _ => None,
        };
        if let Some(look) = look {
            let ids = self.looks.entry(look).or_default();
            let place = ids.partition_point(|id| *id < node.id);
            if ids.get(place) != Some(&node.id) {
                ids.insert(place, node.id);
            }
        }
        if let Expr::Comprehension(loops) = &node.expr {
            for part in [&loops.iter_range, &loops.accu_init, &loops.loop_cond, &loops.loop_step, &loops.result] {
                self.walk(part);
            }
        }
        super::children(&node.expr).into_iter().for_each(|child| self.walk(child));
    }

    fn nth(&self, look: &str, id: u64) -> usize {
        self.looks.get(look).and_then(|ids| ids.iter().position(|known| *known == id)).unwrap_or_default()
    }
}

struct Checker<'c, 's> {
    source: &'c str,
    names: &'c BTreeMap<&'c str, Type<'s>>,
    scopes: Vec<(String, Type<'s>)>,
    order: Order,
    errors: Vec<((usize, usize), String)>,
}

impl<'s> Checker<'_, 's> {
    fn report(&mut self, what: What<'_>, nth: usize, why: String) {
        self.errors.push((place::find(self.source, what, nth), why));
    }

    fn expression(&mut self, node: &IdedExpr) -> Type<'s> {
        match &node.expr {
            Expr::Unspecified | Expr::Struct(_) => Type::Dyn,
            Expr::Literal(literal) => match literal {
                LiteralValue::Boolean(_) => Type::Bool,
                LiteralValue::Bytes(_) => Type::Bytes,
                LiteralValue::Double(_) => Type::Double,
                LiteralValue::Int(_) => Type::Int,
                LiteralValue::Null => Type::Null,
                LiteralValue::String(_) => Type::Text,
                LiteralValue::UInt(_) => Type::Uint,
            },
            Expr::Ident(name) => self.name(name, node.id),
            Expr::Select(select) => self.select(select, node.id),
            Expr::List(list) => {
                let items = list.elements.iter().map(|item| self.expression(item)).collect::<Vec<_>>();
                Type::List(Box::new(common(items)))
            }
            Expr::Map(map) => {
                let (mut keys, mut values) = (Vec::new(), Vec::new());
                for entry in &map.entries {
                    if let kube_cel::cel::common::ast::EntryExpr::MapEntry(entry) = &entry.expr {
                        keys.push(self.expression(&entry.key));
                        values.push(self.expression(&entry.value));
                    }
                }
                Type::Map(Box::new(common(keys)), Box::new(common(values)))
            }
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            Expr::Call(call) => self.call(call, node.id),
        }
    }

    fn name(&mut self, name: &str, id: u64) -> Type<'s> {
        if let Some((_, known)) = self.scopes.iter().rev().find(|(scope, _)| scope == name) {
            return known.clone();
        }
        if let Some(known) = self.names.get(name) {
            return known.clone();
        }
        if !TYPES.contains(&name) {
            let nth = self.order.nth(name, id);
            self.report(What::Name(name), nth, format!("undeclared reference to '{name}' (in container '')"));
        }
        Type::Dyn
    }

    fn select(&mut self, select: &SelectExpr, id: u64) -> Type<'s> {
        let operand = self.expression(&select.operand);
        let before = self.errors.len();
        let found = self.field(operand, &select.field, id);
        if !select.test {
            return found;
        }
        // What is wrong with the field is told at `has`.
        let place = place::find(self.source, What::Call("has"), self.order.nth("(has", id));
        self.errors.iter_mut().skip(before).for_each(|(at, _)| *at = place);
        Type::Bool
    }

    fn field(&mut self, operand: Type<'s>, field: &str, id: u64) -> Type<'s> {
        match operand {
            Type::Object(schema, name, whole) => {
                if whole {
                    match field {
                        "apiVersion" | "kind" => return Type::Text,
                        "metadata" => return Type::Metadata,
                        _ => {}
                    }
                }
                let properties = schema.get("properties").and_then(Value::as_object);
                let found = properties.into_iter().flatten().find(|(key, _)| escape(key).as_deref() == Some(field));
                match found {
                    Some((_, schema)) => of_schema(schema, &format!("{name}.{field}"), false),
                    None => self.undefined(field, id),
                }
            }
            Type::Metadata => match field {
                "name" | "generateName" => Type::Text,
                _ => self.undefined(field, id),
            },
            Type::Map(_, value) => *value,
            Type::Optional(inner) => match self.field(*inner, field, id) {
                already @ Type::Optional(_) => already,
                found => Type::Optional(Box::new(found)),
            },
            Type::Dyn | Type::Opaque(_) => Type::Dyn,
            other => {
                let nth = self.order.nth(&format!(".{field}"), id);
                let why = format!("type '{}' does not support field selection", other.show());
                self.report(What::Field(field), nth, why);
                Type::Dyn
            }
        }
    }

    fn undefined(&mut self, field: &str, id: u64) -> Type<'s> {
        let nth = self.order.nth(&format!(".{field}"), id);
        self.report(What::Field(field), nth, format!("undefined field '{field}'"));
        Type::Dyn
    }

    fn comprehension(&mut self, comprehension: &ComprehensionExpr) -> Type<'s> {
        let range = self.expression(&comprehension.iter_range);
        let accumulator = self.expression(&comprehension.accu_init);
        let (key, value) = match &range {
            Type::List(item) => (Type::Int, (**item).clone()),
            Type::Map(key, value) => ((**key).clone(), (**value).clone()),
            _ => (Type::Dyn, Type::Dyn),
        };
        let depth = self.scopes.len();
        match (&comprehension.iter_var2, &range) {
            (Some(second), _) => {
                self.scopes.push((comprehension.iter_var.clone(), key));
                self.scopes.push((second.clone(), value));
            }
            (None, Type::List(_)) => self.scopes.push((comprehension.iter_var.clone(), value)),
            (None, _) => self.scopes.push((comprehension.iter_var.clone(), key)),
        }
        self.scopes.push((comprehension.accu_var.clone(), accumulator.clone()));
        self.expression(&comprehension.loop_cond);
        let step = self.expression(&comprehension.loop_step);
        // `map` and `filter` begin with an empty list, whose items the step tells.
        let joined = match (&accumulator, step) {
            (Type::List(item), step @ Type::List(_)) if **item == Type::Dyn => step,
            _ => accumulator,
        };
        if let Some(place) = self.scopes.last_mut() {
            place.1 = joined;
        }
        let given = self.expression(&comprehension.result);
        self.scopes.truncate(depth);
        given
    }

    fn mismatch(&mut self, call: &CallExpr, id: u64, target: Option<&Type<'s>>, arguments: &[Type<'s>]) {
        let function = call.func_name.as_str();
        let shown = arguments.iter().map(Type::show).collect::<Vec<_>>().join(", ");
        let applied = target.map_or_else(|| format!("({shown})"), |target| format!("{}.({shown})", target.show()));
        let why = format!("found no matching overload for '{function}' applied to '{applied}'");
        let sign = function.trim_matches('_').trim_start_matches('@');
        let nth = self.order.nth(&format!("({function}"), id);
        match function {
            "_?_:_" => self.report(What::Operator("?"), nth, why),
            "_[_]" | "_[?_]" => self.report(What::Operator("["), nth, why),
            _ if function.contains('_') || function == "@in" => self.report(What::Operator(sign), nth, why),
            _ => self.report(What::Call(function), nth, why),
        }
    }

    fn call(&mut self, call: &CallExpr, id: u64) -> Type<'s> {
        // Functions of a namespace, such as `sets.contains`, look like methods of a name.
        if let Some(target) = call.target.as_deref()
            && let Expr::Ident(space) = &target.expr
            && NAMESPACES.contains(&space.as_str())
            && !self.scopes.iter().any(|(name, _)| name == space)
        {
            let arguments = call.args.iter().map(|argument| self.expression(argument)).collect::<Vec<_>>();
            return namespaced(space, &call.func_name, &arguments);
        }
        let target = call.target.as_deref().map(|target| self.expression(target));
        let arguments = call.args.iter().map(|argument| self.expression(argument)).collect::<Vec<_>>();
        let all = target.iter().chain(&arguments).collect::<Vec<_>>();
        match overload(&call.func_name, target.is_some(), &all) {
            Overload::Gives(given) => given,
            Overload::Mismatch => {
                self.mismatch(call, id, target.as_ref(), &arguments);
                // So that one mistake is told once.
                Type::Dyn
            }
            Overload::Unknown => {
                let name = &call.func_name;
                let nth = self.order.nth(&format!("({name}"), id);
                self.report(What::Call(name), nth, format!("undeclared reference to '{name}' (in container '')"));
                Type::Dyn
            }
        }
    }
}

pub(super) const TYPES: [&str; 12] =
    ["int", "uint", "double", "string", "bool", "bytes", "list", "map", "null_type", "type", "optional_type", "dyn"];
const NAMESPACES: [&str; 9] = ["sets", "math", "strings", "base64", "lists", "format", "jsonpatch", "optional", "ip"];

fn common(types: Vec<Type<'_>>) -> Type<'_> {
    let mut types = types.into_iter();
    let first = types.next().unwrap_or(Type::Dyn);
    if types.all(|one| one == first) { first } else { Type::Dyn }
}

enum Overload<'s> {
    Gives(Type<'s>),
    Mismatch,
    Unknown,
}

fn namespaced<'s>(space: &str, function: &str, arguments: &[Type<'s>]) -> Type<'s> {
    match (space, function) {
        ("optional", "of" | "ofNonZeroValue") => {
            Type::Optional(Box::new(arguments.first().cloned().unwrap_or(Type::Dyn)))
        }
        ("optional", _) => Type::Optional(Box::new(Type::Dyn)),
        ("sets", _) | ("math", "isInf" | "isNaN" | "isFinite") | ("ip", _) => Type::Bool,
        ("strings" | "jsonpatch", _) | ("base64", "encode") => Type::Text,
        ("base64", _) => Type::Bytes,
        ("lists", _) => Type::List(Box::new(Type::Int)),
        _ => Type::Dyn,
    }
}

/// What a function or an operator makes of values of these types (the target first).
fn overload<'s>(function: &str, method: bool, all: &[&Type<'s>]) -> Overload<'s> {
    use Type::{Bool, Bytes, Double, Duration, Dyn, Int, Text, Timestamp, Uint};
    let list = || Type::List(Box::new(Dyn));
    let map = || Type::Map(Box::new(Dyn), Box::new(Dyn));
    let when = |fits: bool, given: Type<'s>| if fits { Overload::Gives(given) } else { Overload::Mismatch };
    let first = all.first().map_or(Dyn, |one| (*one).clone());
    let second = all.get(1).map_or(Dyn, |one| (*one).clone());
    let numbers = [Int, Uint, Double];
    let texts = |count: usize| all.len() == count && all.iter().all(|one| one.is(&[Text]));
    match function {
        "_&&_" | "_||_" => when(first.is(&[Bool]) && second.is(&[Bool]), Bool),
        "!_" => when(first.is(&[Bool]), Bool),
        "@not_strictly_false" => Overload::Gives(Bool),
        "-_" => when(first.is(&[Int, Double]), first),
        "_==_" | "_!=_" => when(first.fits(&second), Bool),
        "_<_" | "_<=_" | "_>_" | "_>=_" => {
            let ordered = [Bool, Int, Uint, Double, Text, Bytes, Timestamp, Duration];
            let alike = first.fits(&second) || (first.is(&numbers) && second.is(&numbers));
            when(alike && first.is(&ordered) && second.is(&ordered), Bool)
        }
        "_?_:_" => {
            let third = all.get(2).map_or(Dyn, |one| (*one).clone());
            let given = if second == Dyn { third.clone() } else { second.clone() };
            when(first.is(&[Bool]) && second.fits(&third), given)
        }
        "_+_" => match (&first, &second) {
            (Dyn, _) | (_, Dyn) => Overload::Gives(if first == Dyn { second } else { first }),
            (Timestamp, Duration) | (Duration, Timestamp) => Overload::Gives(Timestamp),
            _ => when(first.fits(&second) && first.is(&[Int, Uint, Double, Text, Bytes, Duration, list()]), first),
        },
        "_-_" => match (&first, &second) {
            (Dyn, _) | (_, Dyn) => Overload::Gives(Dyn),
            (Timestamp, Timestamp) => Overload::Gives(Duration),
            (Timestamp, Duration) => Overload::Gives(Timestamp),
            _ => when(first.fits(&second) && first.is(&[Int, Uint, Double, Duration]), first),
        },
        "_*_" | "_/_" => when(first.fits(&second) && first.is(&numbers), if first == Dyn { second } else { first }),
        "_%_" => when(first.fits(&second) && first.is(&[Int, Uint]), if first == Dyn { second } else { first }),
        "@in" => match &second {
            Type::List(item) => when(first.fits(item), Bool),
            Type::Map(key, _) => when(first.fits(key), Bool),
            other => when(*other == Dyn, Bool),
        },
        "_[_]" => index(&first, &second),
        "_[?_]" | "_?._" => {
            let inner = match &first {
                Type::Optional(inner) => (**inner).clone(),
                other => other.clone(),
            };
            match index(&inner, &second) {
                Overload::Gives(given) => Overload::Gives(Type::Optional(Box::new(given))),
                // A field of an object; whether it is declared is not looked up here.
                _ => Overload::Gives(Type::Optional(Box::new(Dyn))),
            }
        }
        "size" => when(all.len() == 1 && first.is(&[Text, Bytes, list(), map()]), Int),
        "startsWith" | "endsWith" | "matches" => when(texts(2) && (method || function == "matches"), Bool),
        "contains" if matches!(first, Text) => when(texts(2), Bool),
        "int" => when(first.is(&[Int, Uint, Double, Text, Timestamp, Duration]), Int),
        "uint" => when(first.is(&[Int, Uint, Double, Text]), Uint),
        "double" => when(first.is(&[Int, Uint, Double, Text]), Double),
        "bool" => when(first.is(&[Bool, Text]), Bool),
        "bytes" => when(first.is(&[Bytes, Text]), Bytes),
        "timestamp" => when(first.is(&[Text, Int, Timestamp]), Timestamp),
        "duration" => when(first.is(&[Text, Int, Duration]), Duration),
        "type" | "dyn" => Overload::Gives(Dyn),
        "charAt" | "substring" | "replace" | "lowerAscii" | "upperAscii" | "trim" | "quote" | "format" => {
            when(first.is(&[Text]) && method, Text)
        }
        "join" => when(first.is(&[Type::List(Box::new(Text))]), Text),
        "split" => when(first.is(&[Text]), Type::List(Box::new(Text))),
        "find" => when(texts(2), Text),
        "findAll" => when(first.is(&[Text]), Type::List(Box::new(Text))),
        "quantity" => when(texts(1), Type::Opaque("kubernetes.Quantity")),
        "semver" => when(first.is(&[Text]), Type::Opaque("kubernetes.Semver")),
        "url" => when(texts(1), Type::Opaque("kubernetes.URL")),
        "ip" => Overload::Gives(Type::Opaque("net.IP")),
        "cidr" => when(texts(1), Type::Opaque("net.CIDR")),
        "isQuantity" | "isURL" | "isIP" | "isCIDR" | "isSemver" => when(first.is(&[Text]), Bool),
        "isSorted" => when(first.is(&[list()]), Bool),
        "hasValue" => when(first.is(&[Type::Optional(Box::new(Dyn))]), Bool),
        "orValue" | "value" => match first {
            Type::Optional(inner) => Overload::Gives(if *inner == Dyn { second } else { *inner }),
            other => when(other == Dyn, Dyn),
        },
        "or" => when(first.is(&[Type::Optional(Box::new(Dyn))]), first),
        "isGreaterThan"
        | "isLessThan"
        | "containsIP"
        | "containsCIDR"
        | "isInteger"
        | "isCanonical"
        | "isLoopback"
        | "isUnspecified"
        | "isLinkLocalMulticast"
        | "isLinkLocalUnicast"
        | "isGlobalUnicast"
        | "isIPv4"
        | "isIPv6"
        | "isCIDRv4"
        | "isCIDRv6"
        | "contains"
        | "allowed"
        | "errored" => Overload::Gives(Bool),
        "string" | "getScheme" | "getHost" | "getHostname" | "getPort" | "getEscapedPath" | "error" | "reason" => {
            Overload::Gives(Text)
        }
        "indexOf" | "lastIndexOf" | "compareTo" | "sign" | "asInteger" | "family" | "prefixLength" | "major"
        | "minor" | "patch" | "getFullYear" | "getMonth" | "getDayOfYear" | "getDayOfMonth" | "getDate"
        | "getDayOfWeek" | "getHours" | "getMinutes" | "getSeconds" | "getMilliseconds" => Overload::Gives(Int),
        "asApproximateFloat" => Overload::Gives(Double),
        "sum" | "min" | "max" | "first" | "last" => match &first {
            Type::List(item) => Overload::Gives((**item).clone()),
            _ => Overload::Gives(Dyn),
        },
        "sort" | "slice" | "distinct" | "reverse" | "flatten" | "masked" | "add" | "sub" | "getQuery" | "validate"
        | "sortBy" | "optMap" | "optFlatMap" | "optional.of" | "optional.none" | "group" | "resource"
        | "subresource" | "namespace" | "name" | "check" | "path" | "serviceAccount" | "fieldSelector"
        | "labelSelector" => Overload::Gives(Dyn),
        _ if function.contains('.') => Overload::Gives(Dyn),
        _ => Overload::Unknown,
    }
}

fn index<'s>(of: &Type<'s>, by: &Type<'s>) -> Overload<'s> {
    match of {
        Type::List(item) if by.is(&[Type::Int]) => Overload::Gives((**item).clone()),
        Type::Map(key, value) if by.fits(key) => Overload::Gives((**value).clone()),
        Type::Optional(inner) => match index(inner, by) {
            Overload::Gives(given) => Overload::Gives(Type::Optional(Box::new(given))),
            other => other,
        },
        Type::Dyn => Overload::Gives(Type::Dyn),
        _ => Overload::Mismatch,
    }
}
