//! Maps, defaults and types. `set`, `unset` and the merge family change the map that they are given.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use super::{Answer, Call, Entry, any, s};
use crate::{
    exec::Fault,
    limits::Limit,
    value::{Map, MapKind, VALUE_DEPTH_MAX, VALUE_NODES_MAX, Value, deep_copy},
};

pub(super) const FUNCTIONS: &[Entry] = &[
    ("dict", "*a", dict),
    ("get", "ms", |_, args| Ok(map(args, 0).and_then(|map| map.get(s(args, 1))).unwrap_or_else(|| Value::str("")))),
    ("set", "msa", set),
    ("unset", "ms", |_, args| {
        if let Some(map) = map(args, 0) {
            map.remove(s(args, 1));
        }
        Ok(any(args, 0).clone())
    }),
    ("hasKey", "ms", |_, args| Ok(Value::Bool(map(args, 0).is_some_and(|map| map.contains(s(args, 1)))))),
    ("keys", "*m", |call, args| {
        let keys = (0..args.len()).flat_map(|i| map(args, i).map(|m| m.pairs()).unwrap_or_default());
        let keys = keys.map(|(key, _)| key.to_string()).collect();
        call.strings(keys)
    }),
    ("values", "m", |call, args| {
        let values = map(args, 0).map(|m| m.pairs()).unwrap_or_default().into_iter().map(|(_, value)| value).collect();
        call.list(values)
    }),
    ("pick", "m*s", |call, args| {
        let keys = args.get(1..).unwrap_or_default();
        filtered(call, args, |key| keys.iter().any(|k| matches!(k, Value::Str(k) if **k == *key)))
    }),
    ("omit", "m*s", |call, args| {
        let keys = args.get(1..).unwrap_or_default();
        filtered(call, args, |key| !keys.iter().any(|k| matches!(k, Value::Str(k) if **k == *key)))
    }),
    ("pluck", "s*m", |call, args| {
        let found = (1..args.len()).filter_map(|i| map(args, i)?.get(s(args, 0))).collect();
        call.list(found)
    }),
    ("dig", "*a", dig),
    ("merge", "m*m", |call, args| merge_all(call, args, false)),
    ("mustMerge", "m*m", |call, args| merge_all(call, args, false)),
    ("mergeOverwrite", "m*m", |call, args| merge_all(call, args, true)),
    ("mustMergeOverwrite", "m*m", |call, args| merge_all(call, args, true)),
    ("deepCopy", "a", copy),
    ("mustDeepCopy", "a", copy),
    ("deepEqual", "aa", |call, args| Ok(Value::Bool(call.equal(any(args, 0), any(args, 1))?))),
    ("default", "a*a", |_, args| Ok(if is_empty(any(args, 1)) { any(args, 0) } else { any(args, 1) }.clone())),
    ("empty", "a", |_, args| Ok(Value::Bool(is_empty(any(args, 0))))),
    ("coalesce", "*a", |_, args| Ok(args.iter().find(|v| !is_empty(v)).cloned().unwrap_or(Value::Nil))),
    ("all", "*a", |_, args| Ok(Value::Bool(!args.iter().any(is_empty)))),
    ("any", "*a", |_, args| Ok(Value::Bool(args.iter().any(|v| !is_empty(v))))),
    ("ternary", "aab", |_, args| Ok(any(args, usize::from(!any(args, 2).truth())).clone())),
    ("kindOf", "a", |_, args| Ok(Value::str(any(args, 0).kind_name()))),
    ("kindIs", "sa", |_, args| Ok(Value::Bool(any(args, 1).kind_name() == s(args, 0)))),
    ("typeOf", "a", |_, args| Ok(Value::str(any(args, 0).type_name()))),
    ("typeIs", "sa", |_, args| Ok(Value::Bool(any(args, 1).type_name() == s(args, 0)))),
    ("typeIsLike", "sa", |_, args| {
        let name = any(args, 1).type_name();
        Ok(Value::Bool(name == s(args, 0) || name.strip_prefix('*') == Some(s(args, 0))))
    }),
];

fn map(args: &[Value], i: usize) -> Option<&Rc<Map>> {
    if let Some(Value::Map(map)) = args.get(i) { Some(map) } else { None }
}

/// sprig's idea of empty: like falsehood, but structs are never empty.
pub(super) fn is_empty(value: &Value) -> bool {
    !value.truth()
}

fn dict(call: &mut Call<'_, '_>, args: &[Value]) -> Answer {
    call.run.items(args.len())?;
    let mut entries: BTreeMap<Rc<str>, Value> = BTreeMap::new();
    for pair in args.chunks(2) {
        let key = match &pair[0] {
            Value::Str(key) => key.clone(),
            other => call.strval(other)?.into(),
        };
        entries.insert(key, pair.get(1).cloned().unwrap_or_else(|| Value::str("")));
    }
    Ok(Value::map(entries))
}

fn set(call: &mut Call<'_, '_>, args: &[Value]) -> Answer {
    let Some(map) = map(args, 0) else { return Err(Fault::message("assignment to entry in nil map")) };
    call.run.allocate(s(args, 1).len() + 128)?;
    if map.len() >= call.run.limits.collection_items {
        return Err(Limit::Collection.into());
    }
    if matches!(any(args, 2), Value::List(_) | Value::Map(_)) {
        call.run.changed(map);
    }
    map.set(s(args, 1), any(args, 2).clone());
    Ok(any(args, 0).clone())
}

fn filtered(call: &mut Call<'_, '_>, args: &[Value], keep: impl Fn(&str) -> bool) -> Answer {
    let pairs = map(args, 0).map(|map| map.pairs()).unwrap_or_default();
    call.run.items(pairs.len())?;
    call.run.charge((pairs.len() as u64 * args.len() as u64) / 16)?;
    Ok(Value::map(pairs.into_iter().filter(|(key, _)| keep(key)).collect()))
}

fn dig(_: &mut Call<'_, '_>, args: &[Value]) -> Answer {
    let [path @ .., default, last] = args else { return Err(Fault::message("dig needs at least three arguments")) };
    if path.is_empty() {
        return Err(Fault::message("dig needs at least three arguments"));
    }
    let mut current = last.clone();
    for key in path {
        let Value::Str(key) = key else {
            return Err(Fault::message(format!(
                "interface conversion: interface {{}} is {}, not string",
                key.type_name()
            )));
        };
        let map = match &current {
            Value::Map(map) if current.type_name() == "map[string]interface {}" => map,
            _ => {
                return Err(Fault::message(format!(
                    "interface conversion: interface {{}} is {}, not map[string]interface {{}}",
                    if current.is_nil() { "nil" } else { current.type_name() }
                )));
            }
        };
        match map.get(key) {
            Some(value) => current = value,
            None => return Ok(default.clone()),
        }
    }
    Ok(current)
}

fn merge_all(call: &mut Call<'_, '_>, args: &[Value], overwrite: bool) -> Answer {
    let made;
    let (target, answer) = match map(args, 0) {
        Some(map) => (map, any(args, 0).clone()),
        None => {
            made = Rc::new(Map { kind: MapKind::Any, entries: RefCell::default() });
            (&made, Value::Map(made.clone()))
        }
    };
    let mut fuel = VALUE_NODES_MAX;
    for i in 1..args.len() {
        if let Some(source) = map(args, i) {
            merge(call, target, source, overwrite, 0, &mut fuel)?;
        }
    }
    Ok(answer)
}

/// The merge of the mergo library: deep for maps; without `overwrite` only empty entries are filled.
fn merge(
    call: &mut Call<'_, '_>,
    target: &Rc<Map>,
    source: &Rc<Map>,
    overwrite: bool,
    depth: usize,
    fuel: &mut usize,
) -> Result<(), Fault> {
    if Rc::ptr_eq(target, source) {
        return Ok(());
    }
    let pairs = source.pairs();
    if depth > VALUE_DEPTH_MAX || pairs.len() >= *fuel {
        return Err(Limit::Collection.into());
    }
    *fuel -= pairs.len() + 1;
    call.run.items(pairs.len())?;
    call.run.allocate(128)?;
    call.run.changed(target);
    for (key, value) in pairs {
        match (target.get(&key), &value) {
            (Some(Value::Map(inner)), Value::Map(source)) if inner.kind != MapKind::Str => {
                merge(call, &inner, source, overwrite, depth + 1, fuel)?;
            }
            (Some(_), _) if overwrite => target.set(&key, value),
            (_, Value::Nil) if !overwrite => {}
            (Some(old), _) if !is_empty(&old) => {}
            _ => target.set(&key, value),
        }
    }
    Ok(())
}

fn copy(call: &mut Call<'_, '_>, args: &[Value]) -> Answer {
    if any(args, 0).is_nil() {
        return Err(Fault::message("cannot copy a nil value"));
    }
    let copy = deep_copy(any(args, 0)).ok_or(Limit::Collection)?;
    call.run.items(nodes(&copy))?;
    Ok(copy)
}

/// How many values a copy holds; a copy shares nothing, so this is linear.
fn nodes(value: &Value) -> usize {
    match value {
        Value::List(list) => 1 + list.items.iter().map(nodes).sum::<usize>(),
        Value::Map(map) => 1 + map.pairs().iter().map(|(_, value)| nodes(value)).sum::<usize>(),
        _ => 1,
    }
}
