//! The values that templates compute with.
//!
//! Maps are references, as in Go: `set` in one template is seen in the next. Lists are immutable. The difference between
//! `int`, `int64` and `float64` is kept, because printing and comparison show it. Values are freed without recursion, so
//! that a template which nests a list a million times cannot overflow the stack.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use crate::object::Object;

/// Deepest nesting that printing, encoding, copying and comparing follow; deeper values end in an error.
///
/// Kubernetes objects nest some ten to thirty levels (a CRD schema is the deepest); Go's JSON decoder stops at 10 000.
pub(crate) const VALUE_DEPTH_MAX: usize = 256;

/// Most bytes that one printed value, and most nodes that one walk over values, may have. Lists can share their parts, so
/// that forty steps of a template build a value of 2^40 nodes; whoever walks a value counts.
pub(crate) const VALUE_TEXT_MAX: usize = 16 << 20;
pub(crate) const VALUE_NODES_MAX: usize = 1 << 20;

#[derive(Clone)]
pub(crate) enum Value {
    Nil,
    Bool(bool),
    Int(i64),
    Int64(i64),
    Float(f64),
    Str(Rc<str>),
    Bytes(Rc<[u8]>),
    List(Rc<List>),
    Map(Rc<Map>),
    Object(Rc<Object>),
}

/// The static type of a list's elements in Go; it is visible in `typeOf` and in messages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Elem {
    Any,
    Str,
    /// Empty, and `null` in JSON: what Go's functions return when they find nothing.
    NilStr,
    /// The same for lists of anything.
    NilAny,
    Int,
    /// Lists of anything: what `chunk` returns.
    Lists,
}

pub(crate) struct List {
    pub(crate) elem: Elem,
    pub(crate) items: Vec<Value>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum MapKind {
    Any,
    Values,
    Str,
}

pub(crate) struct Map {
    pub(crate) kind: MapKind,
    pub(crate) entries: RefCell<BTreeMap<Rc<str>, Value>>,
}

impl Drop for List {
    fn drop(&mut self) {
        free(std::mem::take(&mut self.items));
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        free(std::mem::take(self.entries.get_mut()).into_values().collect());
    }
}

/// Drops values breadth-first: the children of a container whose last reference this is join the work list.
fn free(mut work: Vec<Value>) {
    while let Some(value) = work.pop() {
        match value {
            Value::List(list) => {
                if let Ok(mut list) = Rc::try_unwrap(list) {
                    work.append(&mut list.items);
                }
            }
            Value::Map(map) => {
                if let Ok(mut map) = Rc::try_unwrap(map) {
                    work.extend(std::mem::take(map.entries.get_mut()).into_values());
                }
            }
            _ => {}
        }
    }
}

impl Map {
    pub(crate) fn get(&self, key: &str) -> Option<Value> {
        self.entries.borrow().get(key).cloned()
    }

    pub(crate) fn contains(&self, key: &str) -> bool {
        self.entries.borrow().contains_key(key)
    }

    pub(crate) fn set(&self, key: &str, value: Value) {
        self.entries.borrow_mut().insert(Rc::from(key), value);
    }

    pub(crate) fn remove(&self, key: &str) {
        self.entries.borrow_mut().remove(key);
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.borrow().len()
    }

    /// A copy of the entries; values are shared.
    pub(crate) fn pairs(&self) -> Vec<(Rc<str>, Value)> {
        self.entries.borrow().iter().map(|(k, v)| (k.clone(), v.clone())).collect()
    }
}

impl Value {
    pub(crate) fn str(text: impl Into<Rc<str>>) -> Self {
        Self::Str(text.into())
    }

    pub(crate) fn list(items: Vec<Self>) -> Self {
        Self::List(Rc::new(List { elem: Elem::Any, items }))
    }

    pub(crate) fn strings<S: Into<Rc<str>>>(items: impl IntoIterator<Item = S>) -> Self {
        let items = items.into_iter().map(|s| Self::Str(s.into())).collect();
        Self::List(Rc::new(List { elem: Elem::Str, items }))
    }

    pub(crate) fn no_items() -> Self {
        Self::List(Rc::new(List { elem: Elem::NilAny, items: Vec::new() }))
    }

    pub(crate) fn no_strings() -> Self {
        Self::List(Rc::new(List { elem: Elem::NilStr, items: Vec::new() }))
    }

    pub(crate) fn ints(items: impl IntoIterator<Item = i64>) -> Self {
        Self::List(Rc::new(List { elem: Elem::Int, items: items.into_iter().map(Self::Int).collect() }))
    }

    pub(crate) fn map(entries: BTreeMap<Rc<str>, Self>) -> Self {
        Self::map_of(MapKind::Any, entries)
    }

    pub(crate) fn map_of(kind: MapKind, entries: BTreeMap<Rc<str>, Self>) -> Self {
        Self::Map(Rc::new(Map { kind, entries: RefCell::new(entries) }))
    }

    pub(crate) fn object(object: Object) -> Self {
        Self::Object(Rc::new(object))
    }

    /// A map of the given pairs.
    pub(crate) fn dict<'a>(pairs: impl IntoIterator<Item = (&'a str, Self)>) -> Self {
        Self::map(pairs.into_iter().map(|(k, v)| (Rc::from(k), v)).collect())
    }

    /// Values from JSON, where every number is a float64, as `encoding/json` reads them.
    pub(crate) fn from_json(json: &serde_json::Value) -> Self {
        Self::from_json_with(json, Self::float64)
    }

    /// A number of YAML or JSON.
    pub(crate) fn float64(number: &serde_json::Number) -> Self {
        Self::Float(number.as_f64().unwrap_or(0.0))
    }

    /// A number that keeps the type it was written with.
    pub(crate) fn typed(number: &serde_json::Number) -> Self {
        number.as_i64().map_or_else(|| Self::float64(number), Self::Int64)
    }

    pub(crate) fn from_json_with(json: &serde_json::Value, number: fn(&serde_json::Number) -> Self) -> Self {
        match json {
            serde_json::Value::Null => Self::Nil,
            serde_json::Value::Bool(b) => Self::Bool(*b),
            serde_json::Value::Number(n) => number(n),
            serde_json::Value::String(s) => Self::str(s.as_str()),
            serde_json::Value::Array(items) => {
                Self::list(items.iter().map(|item| Self::from_json_with(item, number)).collect())
            }
            serde_json::Value::Object(map) => {
                Self::map(map.iter().map(|(k, v)| (Rc::from(k.as_str()), Self::from_json_with(v, number))).collect())
            }
        }
    }

    /// The name of the Go type, as in `%T`.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Nil => "<nil>",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Int64(_) => "int64",
            Self::Float(_) => "float64",
            Self::Str(_) => "string",
            Self::Bytes(_) => "[]uint8",
            Self::List(list) => match list.elem {
                Elem::Any | Elem::NilAny => "[]interface {}",
                Elem::Str | Elem::NilStr => "[]string",
                Elem::Int => "[]int",
                Elem::Lists => "[][]interface {}",
            },
            Self::Map(map) => match map.kind {
                MapKind::Any => "map[string]interface {}",
                MapKind::Values => "common.Values",
                MapKind::Str => "map[string]string",
            },
            Self::Object(object) => object.type_name(),
        }
    }

    /// The name of the Go kind, as in `kindOf`.
    pub(crate) fn kind_name(&self) -> &'static str {
        match self {
            Self::Nil => "invalid",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Int64(_) => "int64",
            Self::Float(_) => "float64",
            Self::Str(_) => "string",
            Self::Bytes(_) | Self::List(_) => "slice",
            Self::Map(_) => "map",
            Self::Object(object) => object.kind_name(),
        }
    }

    /// Whether `if` takes the branch: the value is not the zero value of its type.
    pub(crate) fn truth(&self) -> bool {
        match self {
            Self::Nil => false,
            Self::Bool(b) => *b,
            Self::Int(i) | Self::Int64(i) => *i != 0,
            Self::Float(f) => *f != 0.0,
            Self::Str(s) => !s.is_empty(),
            Self::Bytes(b) => !b.is_empty(),
            Self::List(list) => !list.items.is_empty(),
            Self::Map(map) => map.len() > 0,
            Self::Object(object) => object.truth(),
        }
    }

    pub(crate) fn is_nil(&self) -> bool {
        matches!(self, Self::Nil)
    }
}

/// Whether two values are deeply equal as `reflect.DeepEqual` says, and how many nodes were looked at; `None` when they
/// are too deep or too large to tell.
pub(crate) fn deep_equal(a: &Value, b: &Value) -> Option<(bool, usize)> {
    let mut fuel = VALUE_NODES_MAX;
    let answer = equal(a, b, 0, &mut fuel)?;
    Some((answer, VALUE_NODES_MAX - fuel))
}

fn equal(a: &Value, b: &Value, depth: usize, fuel: &mut usize) -> Option<bool> {
    if depth > VALUE_DEPTH_MAX {
        return None;
    }
    *fuel = fuel.checked_sub(1)?;
    Some(match (a, b) {
        (Value::Nil, Value::Nil) => true,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::Int(a), Value::Int(b)) | (Value::Int64(a), Value::Int64(b)) => a == b,
        (Value::Float(a), Value::Float(b)) => a == b,
        (Value::Str(a), Value::Str(b)) => a == b,
        (Value::Bytes(a), Value::Bytes(b)) => a == b,
        (Value::List(a), Value::List(b)) => {
            if a.elem != b.elem || a.items.len() != b.items.len() {
                return Some(false);
            }
            for (x, y) in a.items.iter().zip(&b.items) {
                if !equal(x, y, depth + 1, fuel)? {
                    return Some(false);
                }
            }
            true
        }
        (Value::Map(a), Value::Map(b)) => {
            if Rc::ptr_eq(a, b) {
                return Some(true);
            }
            let (a, b) = (a.pairs(), b.pairs());
            if a.len() != b.len() {
                return Some(false);
            }
            for ((ka, va), (kb, vb)) in a.iter().zip(&b) {
                if ka != kb || !equal(va, vb, depth + 1, fuel)? {
                    return Some(false);
                }
            }
            true
        }
        (Value::Object(a), Value::Object(b)) => Rc::ptr_eq(a, b) || a.same(b),
        _ => false,
    })
}

/// A copy that shares no map with the original; `None` when it is too deep or too large.
pub(crate) fn deep_copy(value: &Value) -> Option<Value> {
    copy(value, 0, &mut VALUE_NODES_MAX.clone())
}

fn copy(value: &Value, depth: usize, fuel: &mut usize) -> Option<Value> {
    if depth > VALUE_DEPTH_MAX {
        return None;
    }
    *fuel = fuel.checked_sub(1)?;
    Some(match value {
        Value::List(list) => {
            let items = list.items.iter().map(|item| copy(item, depth + 1, fuel)).collect::<Option<Vec<_>>>()?;
            Value::List(Rc::new(List { elem: list.elem, items }))
        }
        Value::Map(map) => {
            let mut entries = BTreeMap::new();
            for (key, item) in map.pairs() {
                let item = copy(&item, depth + 1, fuel)?;
                entries.insert(key, item);
            }
            Value::map_of(map.kind, entries)
        }
        other => other.clone(),
    })
}
