//! Lists. They are immutable: every function returns a new one.

use std::rc::Rc;

use super::{Answer, Call, Entry, any, int};
use crate::{
    exec::Fault,
    value::{Elem, List, Value},
};

pub(super) const FUNCTIONS: &[Entry] = &[
    ("list", "*a", |call, args| call.list(args.to_vec())),
    ("tuple", "*a", |call, args| call.list(args.to_vec())),
    ("append", "aa", append),
    ("push", "aa", append),
    ("mustAppend", "aa", append),
    ("mustPush", "aa", append),
    ("prepend", "aa", prepend),
    ("mustPrepend", "aa", prepend),
    ("first", "a", first),
    ("mustFirst", "a", first),
    ("last", "a", last),
    ("mustLast", "a", last),
    ("rest", "a", rest),
    ("mustRest", "a", rest),
    ("initial", "a", initial),
    ("mustInitial", "a", initial),
    ("reverse", "a", reverse),
    ("mustReverse", "a", reverse),
    ("compact", "a", compact),
    ("mustCompact", "a", compact),
    ("uniq", "a", uniq),
    ("mustUniq", "a", uniq),
    ("without", "a*a", without),
    ("mustWithout", "a*a", without),
    ("has", "aa", has),
    ("mustHas", "aa", has),
    ("slice", "a*a", slice),
    ("mustSlice", "a*a", slice),
    ("concat", "*a", concat),
    ("chunk", "ia", chunk),
    ("mustChunk", "ia", chunk),
    ("until", "i", |call, args| {
        let count = int(args, 0);
        steps(call, 0, count, if count < 0 { -1 } else { 1 })
    }),
    ("untilStep", "iii", |call, args| steps(call, int(args, 0), int(args, 1), int(args, 2))),
];

/// The items of a list-like value; anything else is an error in sprig's words.
pub(super) fn items(function: &str, value: &Value) -> Result<Rc<[Value]>, Fault> {
    match value {
        Value::List(list) => Ok(list.items.as_slice().into()),
        Value::Bytes(bytes) => Ok(bytes.iter().map(|b| Value::Int((*b).into())).collect()),
        Value::Nil => Err(nil_list()),
        other => Err(Fault::message(format!("Cannot {function} on type {}", other.kind_name()))),
    }
}

/// Sprig asks what is nil for its type.
fn nil_list() -> Fault {
    Fault::message("runtime error: invalid memory address or nil pointer dereference")
}

fn append(call: &mut Call<'_, '_>, args: &[Value]) -> Answer {
    let mut list = items("push", any(args, 0))?.to_vec();
    list.push(any(args, 1).clone());
    call.list(list)
}

fn prepend(call: &mut Call<'_, '_>, args: &[Value]) -> Answer {
    let mut list = vec![any(args, 1).clone()];
    list.extend_from_slice(&items("prepend", any(args, 0))?);
    call.list(list)
}

fn first(_: &mut Call<'_, '_>, args: &[Value]) -> Answer {
    Ok(items("find first", any(args, 0))?.first().cloned().unwrap_or(Value::Nil))
}

fn last(_: &mut Call<'_, '_>, args: &[Value]) -> Answer {
    Ok(items("find last", any(args, 0))?.last().cloned().unwrap_or(Value::Nil))
}

fn rest(call: &mut Call<'_, '_>, args: &[Value]) -> Answer {
    let list = items("find rest", any(args, 0))?;
    if list.is_empty() {
        return Ok(Value::no_items());
    }
    call.list(list.get(1..).unwrap_or_default().to_vec())
}

fn initial(call: &mut Call<'_, '_>, args: &[Value]) -> Answer {
    let list = items("find initial", any(args, 0))?;
    if list.is_empty() {
        return Ok(Value::no_items());
    }
    call.list(list[..list.len().saturating_sub(1)].to_vec())
}

fn reverse(call: &mut Call<'_, '_>, args: &[Value]) -> Answer {
    let mut list = items("find reverse", any(args, 0))?.to_vec();
    list.reverse();
    call.list(list)
}

fn compact(call: &mut Call<'_, '_>, args: &[Value]) -> Answer {
    let list = items("compact", any(args, 0))?;
    call.list(list.iter().filter(|v| !super::dict::is_empty(v)).cloned().collect())
}

/// Whether a list holds a value, counting every comparison.
fn contains(call: &mut Call<'_, '_>, list: &[Value], value: &Value) -> Result<bool, Fault> {
    call.run.charge(list.len() as u64 / 8)?;
    for item in list {
        if call.equal(item, value)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn uniq(call: &mut Call<'_, '_>, args: &[Value]) -> Answer {
    let mut seen: Vec<Value> = Vec::new();
    for item in items("uniq", any(args, 0))?.iter() {
        if !contains(call, &seen, item)? {
            seen.push(item.clone());
        }
    }
    call.list(seen)
}

fn without(call: &mut Call<'_, '_>, args: &[Value]) -> Answer {
    let mut kept = Vec::new();
    for item in items("find without", any(args, 0))?.iter() {
        if !contains(call, args.get(1..).unwrap_or_default(), item)? {
            kept.push(item.clone());
        }
    }
    call.list(kept)
}

fn has(call: &mut Call<'_, '_>, args: &[Value]) -> Answer {
    if any(args, 1).is_nil() {
        return Ok(Value::Bool(false));
    }
    let list = items("find has", any(args, 1))?;
    Ok(Value::Bool(contains(call, &list, any(args, 0))?))
}

fn slice(call: &mut Call<'_, '_>, args: &[Value]) -> Answer {
    let Ok(list) = items("slice", any(args, 0)) else {
        if any(args, 0).is_nil() {
            return Err(nil_list());
        }
        let kind = any(args, 0).kind_name();
        return Err(Fault::message(format!("list should be type of slice or array but {kind}")));
    };
    if list.is_empty() {
        return Ok(Value::Nil);
    }
    let bound = |i: usize, default: usize| match args.get(i) {
        Some(value) => usize::try_from(super::math::to_int(value)).unwrap_or(usize::MAX),
        None => default,
    };
    let (from, to) = (bound(1, 0), bound(2, list.len()));
    match list.get(from..to) {
        Some(part) => call.list(part.to_vec()),
        None => Err(Fault::message("reflect.Value.Slice: slice index out of bounds")),
    }
}

fn concat(call: &mut Call<'_, '_>, args: &[Value]) -> Answer {
    let mut all = Vec::new();
    for value in args {
        let list = items("concat", value).map_err(|fault| {
            if value.is_nil() {
                fault
            } else {
                Fault::message(format!("Cannot concat type {} as list", value.kind_name()))
            }
        })?;
        call.run.items(all.len() + list.len())?;
        all.extend_from_slice(&list);
    }
    if all.is_empty() {
        return Ok(Value::no_items());
    }
    call.list(all)
}

fn chunk(call: &mut Call<'_, '_>, args: &[Value]) -> Answer {
    let list = items("chunk", any(args, 1))?;
    let size = usize::try_from(int(args, 0)).unwrap_or(0);
    if size == 0 {
        return Err(Fault::message("runtime error: integer divide by zero"));
    }
    let mut chunks = Vec::new();
    for part in list.chunks(size) {
        chunks.push(call.list(part.to_vec())?);
    }
    call.run.items(chunks.len())?;
    Ok(Value::List(Rc::new(List { elem: Elem::Lists, items: chunks })))
}

/// The numbers of `until` and `untilStep`.
pub(super) fn steps(call: &mut Call<'_, '_>, start: i64, stop: i64, step: i64) -> Answer {
    let count = if step == 0 {
        0
    } else {
        let span = i128::from(stop) - i128::from(start);
        let step = i128::from(step);
        if (span > 0) == (step > 0) { ((span.abs() + step.abs() - 1) / step.abs()).max(0) } else { 0 }
    };
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    call.run.items(count)?;
    Ok(Value::ints((0..count as i64).map(|i| start + i * step)))
}
