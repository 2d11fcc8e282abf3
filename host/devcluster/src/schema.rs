//! What the server knows of the shape of objects: field types, list keys and atomic parts.
//!
//! Built from the condensed API description of Kubernetes (`data/`) for built-in kinds and from the manifest for custom
//! ones. Server-side apply, strategic merge, unknown-field detection and type checks all walk the same nodes.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, LazyLock},
};

use serde_json::{Map, Value, json};

/// The condensed API description, see `data/condense.py`.
static DESCRIPTION: LazyLock<Value> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../data/kubernetes-1.37.json")).unwrap_or_else(|error| {
        tracing::error!(%error, "the embedded API description is not JSON");
        Value::Null
    })
});

/// All built-in types, resolved once for the process.
static BUILTIN: LazyLock<Arc<Schema>> = LazyLock::new(|| {
    let mut builder = Builder::default();
    for name in types().keys() {
        builder.named(name);
    }
    Arc::new(builder.finish())
});

const REF_PREFIX: &str = "#/components/schemas/";
pub(crate) const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// The resource table of the description.
pub(crate) fn resources() -> &'static [Value] {
    DESCRIPTION.get("resources").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The raw types of the description, in OpenAPI form without descriptions.
pub(crate) fn types() -> &'static Map<String, Value> {
    static EMPTY: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);
    DESCRIPTION.get("types").and_then(Value::as_object).unwrap_or(&EMPTY)
}

/// Protobuf field numbers by type, see `data/condense.py`.
pub(crate) fn wire() -> &'static Value {
    DESCRIPTION.get("wire").unwrap_or(&Value::Null)
}

/// Fields of a type that are left out when they are zero.
fn omitted(name: &str) -> Vec<String> {
    let listed = DESCRIPTION.get("omit").and_then(|omit| omit.get(name)).and_then(Value::as_array);
    listed.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The built-in types.
pub(crate) fn builtin() -> &'static Arc<Schema> {
    &BUILTIN
}

/// A closed set of nodes that refer to each other by number (types may be recursive).
#[derive(Debug, Default)]
pub(crate) struct Schema {
    nodes: Vec<Node>,
    names: HashMap<String, usize>,
}

/// One type.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) kind: Kind,
    pub(crate) required: Vec<String>,
    pub(crate) allowed: Vec<Value>,
    pub(crate) default: Option<Value>,
    pub(crate) strategy: Strategy,
    /// Fields that are not there when they are zero: false, 0 or empty text.
    pub(crate) omit: Vec<String>,
}

/// How strategic merge patch treats the field that has this type.
#[derive(Debug, Clone, Default)]
pub(crate) struct Strategy {
    pub(crate) merge: bool,
    pub(crate) merge_key: Option<String>,
    pub(crate) replace: bool,
}

#[derive(Debug, Clone)]
pub(crate) enum Kind {
    /// Nothing is known: maps merge, lists are atomic.
    Any,
    Scalar(Scalar),
    List {
        element: usize,
        relation: ListRelation,
    },
    Map {
        fields: BTreeMap<String, usize>,
        /// The type of keys that are not fields; `None` means that there can be none.
        element: Option<usize>,
        atomic: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scalar {
    Text,
    Integer,
    Number,
    Boolean,
    IntOrString,
    Quantity,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ListRelation {
    Atomic,
    Set,
    Map(Vec<String>),
}

/// A node together with the schema that it lives in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Type<'a> {
    schema: &'a Schema,
    index: usize,
}

static ANY: Node = Node {
    kind: Kind::Any,
    required: Vec::new(),
    allowed: Vec::new(),
    default: None,
    strategy: Strategy { merge: false, merge_key: None, replace: false },
    omit: Vec::new(),
};

impl Schema {
    pub(crate) fn named(&self, name: &str) -> Option<Type<'_>> {
        self.names.get(name).map(|index| Type { schema: self, index: *index })
    }

    /// A type of which nothing is known.
    pub(crate) fn any(&self) -> Type<'_> {
        Type { schema: self, index: usize::MAX }
    }
}

impl<'a> Type<'a> {
    pub(crate) fn node(self) -> &'a Node {
        self.schema.nodes.get(self.index).unwrap_or(&ANY)
    }

    pub(crate) fn kind(self) -> &'a Kind {
        &self.node().kind
    }

    fn go(self, index: usize) -> Self {
        Self { schema: self.schema, index }
    }

    /// A declared field.
    pub(crate) fn field(self, name: &str) -> Option<Self> {
        match self.kind() {
            Kind::Map { fields, .. } => fields.get(name).map(|index| self.go(*index)),
            _ => None,
        }
    }

    /// The type below a key: a declared field, or the type of all other keys.
    pub(crate) fn child(self, name: &str) -> Option<Self> {
        match self.kind() {
            Kind::Map { fields, element, .. } => fields.get(name).or(element.as_ref()).map(|index| self.go(*index)),
            Kind::Any => Some(self),
            _ => None,
        }
    }

    /// The type of list items.
    pub(crate) fn element(self) -> Self {
        match self.kind() {
            Kind::List { element, .. } => self.go(*element),
            _ => self.go(usize::MAX),
        }
    }
}

/// Resolves OpenAPI types into nodes.
#[derive(Default)]
struct Builder {
    nodes: Vec<Option<Node>>,
    names: HashMap<String, usize>,
}

impl Builder {
    fn finish(self) -> Schema {
        Schema {
            nodes: self.nodes.into_iter().map(|node| node.unwrap_or_else(|| ANY.clone())).collect(),
            names: self.names,
        }
    }

    fn slot(&mut self) -> usize {
        self.nodes.push(None);
        self.nodes.len() - 1
    }

    fn named(&mut self, name: &str) -> usize {
        if let Some(index) = self.names.get(name) {
            return *index;
        }
        let index = self.slot();
        self.names.insert(name.to_owned(), index);
        let mut node = match name.rsplit('.').next() {
            Some("Quantity") => scalar(Scalar::Quantity),
            Some("IntOrString") => scalar(Scalar::IntOrString),
            _ => types().get(name).map_or_else(|| ANY.clone(), |raw| self.node(raw)),
        };
        node.omit = omitted(name);
        if let Some(place) = self.nodes.get_mut(index) {
            *place = Some(node);
        }
        index
    }

    fn add(&mut self, raw: &Value) -> usize {
        if let (Some(target), Some(1)) = (reference(raw), raw.as_object().map(Map::len)) {
            return self.named(target);
        }
        let index = self.slot();
        let node = self.node(raw);
        if let Some(place) = self.nodes.get_mut(index) {
            *place = Some(node);
        }
        index
    }

    fn node(&mut self, raw: &Value) -> Node {
        let mut node = match reference(raw) {
            // A reference with siblings: a copy of the target that differs in what the siblings say.
            Some(target) => {
                let index = self.named(target);
                match self.nodes.get(index).cloned().flatten() {
                    Some(node) => node,
                    // The target is being built (recursion): read it anew.
                    None => types().get(target).map_or_else(|| ANY.clone(), |raw| self.plain(raw)),
                }
            }
            None => self.plain(raw),
        };
        let strategies = raw.get("x-kubernetes-patch-strategy").and_then(Value::as_str).unwrap_or_default();
        node.strategy = Strategy {
            merge: strategies.split(',').any(|s| s == "merge"),
            replace: strategies.split(',').any(|s| s == "replace"),
            merge_key: raw.get("x-kubernetes-patch-merge-key").and_then(Value::as_str).map(str::to_owned),
        };
        if let Kind::Map { atomic, .. } = &mut node.kind
            && raw.get("x-kubernetes-map-type").and_then(Value::as_str) == Some("atomic")
        {
            *atomic = true;
        }
        if let Some(default) = raw.get("default") {
            node.default = Some(default.clone());
        }
        node
    }

    fn plain(&mut self, raw: &Value) -> Node {
        let flag = |key: &str| raw.get(key).and_then(Value::as_bool).unwrap_or_default();
        let kind = if flag("x-kubernetes-int-or-string") {
            Kind::Scalar(Scalar::IntOrString)
        } else {
            match raw.get("type").and_then(Value::as_str) {
                Some("string") => Kind::Scalar(Scalar::Text),
                Some("integer") => Kind::Scalar(Scalar::Integer),
                Some("number") => Kind::Scalar(Scalar::Number),
                Some("boolean") => Kind::Scalar(Scalar::Boolean),
                Some("array") => self.list(raw),
                Some("object") => self.map(raw, flag("x-kubernetes-preserve-unknown-fields")),
                _ if raw.get("properties").is_some() => self.map(raw, flag("x-kubernetes-preserve-unknown-fields")),
                _ => Kind::Any,
            }
        };
        let strings = |key: &str| {
            let list = raw.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let allowed = raw.get("enum").and_then(Value::as_array).cloned().unwrap_or_default();
        let (required, strategy) = (strings("required"), Strategy::default());
        Node { kind, required, allowed, default: None, strategy, omit: Vec::new() }
    }

    fn list(&mut self, raw: &Value) -> Kind {
        let element = raw.get("items").map_or(usize::MAX, |items| self.add(items));
        let text = |key: &str| raw.get(key).and_then(Value::as_str);
        let relation = match text("x-kubernetes-list-type") {
            Some("set") => ListRelation::Set,
            Some("map") => {
                let keys = raw.get("x-kubernetes-list-map-keys").and_then(Value::as_array).cloned().unwrap_or_default();
                ListRelation::Map(keys.iter().filter_map(Value::as_str).map(str::to_owned).collect())
            }
            Some(_) => ListRelation::Atomic,
            None if text("x-kubernetes-patch-strategy").is_some_and(|s| s.split(',').any(|s| s == "merge")) => {
                match text("x-kubernetes-patch-merge-key") {
                    Some(key) => ListRelation::Map(vec![key.to_owned()]),
                    None => ListRelation::Set,
                }
            }
            None => ListRelation::Atomic,
        };
        Kind::List { element, relation }
    }

    fn map(&mut self, raw: &Value, preserve_unknown: bool) -> Kind {
        let mut fields = BTreeMap::new();
        let properties = raw.get("properties").and_then(Value::as_object);
        for (name, property) in properties.into_iter().flatten() {
            fields.insert(name.clone(), self.add(property));
        }
        let embedded = raw.get("x-kubernetes-embedded-resource").and_then(Value::as_bool).unwrap_or_default();
        if embedded {
            for name in ["apiVersion", "kind"] {
                let index = self.add(&json!({"type": "string"}));
                fields.entry(name.to_owned()).or_insert(index);
            }
            let index = self.named(OBJECT_META);
            fields.entry("metadata".to_owned()).or_insert(index);
        }
        let additional = raw.get("additionalProperties");
        let element = match additional {
            Some(schema @ Value::Object(_)) => Some(self.add(schema)),
            Some(Value::Bool(true)) => Some(usize::MAX),
            _ if preserve_unknown => Some(usize::MAX),
            _ => None,
        };
        if fields.is_empty() && element.is_none() {
            return Kind::Any;
        }
        let atomic = raw.get("x-kubernetes-map-type").and_then(Value::as_str) == Some("atomic");
        Kind::Map { fields, element, atomic }
    }
}

fn reference(raw: &Value) -> Option<&str> {
    raw.get("$ref").and_then(Value::as_str).and_then(|target| target.strip_prefix(REF_PREFIX))
}

fn scalar(scalar: Scalar) -> Node {
    Node { kind: Kind::Scalar(scalar), ..ANY.clone() }
}

/// The name under which the root of a custom kind is found.
pub(crate) const ROOT: &str = "root";

/// The schema of a custom kind from the `openAPIV3Schema` of its manifest, with the parts that the server owns put in.
pub(crate) fn custom(open_api: Option<&Value>) -> Schema {
    let mut builder = Builder::default();
    let mut raw =
        open_api.cloned().unwrap_or_else(|| json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}));
    if let Some(root) = raw.as_object_mut() {
        let properties = root.entry("properties").or_insert_with(|| json!({}));
        if let Some(properties) = properties.as_object_mut() {
            properties.insert("apiVersion".to_owned(), json!({"type": "string"}));
            properties.insert("kind".to_owned(), json!({"type": "string"}));
            properties.insert("metadata".to_owned(), json!({"$ref": format!("{REF_PREFIX}{OBJECT_META}")}));
        }
    }
    let index = builder.add(&raw);
    builder.names.insert(ROOT.to_owned(), index);
    builder.finish()
}
