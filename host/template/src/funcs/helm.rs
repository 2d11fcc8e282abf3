//! The functions that Helm adds: templates in templates, required values, the cluster.

use std::rc::Rc;

use super::{Answer, Call, Entry, any, s};
use crate::{
    exec::{self, Fault, NO_VALUE, Templates},
    gofmt,
    limits::Limit,
    parse,
    value::Value,
};

/// Nested includes of one name, as in Helm.
const INCLUDES_MAX: u32 = 1000;
/// How much of a template's text an error about it quotes.
const QUOTED_MAX: usize = 4096;

pub(super) const FUNCTIONS: &[Entry] = &[
    ("include", "sa", include),
    ("tpl", "sa", tpl),
    ("required", "sa", |_, args| match any(args, 1) {
        Value::Nil => Err(Fault::Fail(s(args, 0).to_string())),
        Value::Str(text) if text.is_empty() => Err(Fault::Fail(s(args, 0).to_string())),
        value => Ok(value.clone()),
    }),
    ("fail", "s", |_, args| Err(Fault::Fail(s(args, 0).to_string()))),
    ("lookup", "ssss", |call, args| {
        let answer = call.run.look_up([s(args, 0), s(args, 1), s(args, 2), s(args, 3)])?;
        // A value of its own for each call: what one template sets in it is no answer for another.
        Ok(Value::from_json(&answer))
    }),
    ("getHostByName", "s", |_, _| Ok(Value::str(""))),
    ("hello", "", |_, _| Ok(Value::str("Hello!"))),
];

fn include(call: &mut Call<'_, '_>, args: &[Value]) -> Answer {
    let name = s(args, 0);
    let Some(tree) = call.set.get(name) else { return Err(Fault::NoTemplate(name.to_string())) };
    let count = call.run.included.entry(tree.name.clone()).or_insert(0);
    if *count > INCLUDES_MAX {
        return Err(Fault::message(format!(
            "rendering template has a nested reference name: {name}: unable to execute template"
        )));
    }
    *count += 1;
    let mut out = String::new();
    let result = exec::execute(call.run, call.set, tree, any(args, 1).clone(), &mut out);
    if let Some(count) = call.run.included.get_mut(&tree.name) {
        *count -= 1;
    }
    result.map_err(Fault::Exec)?;
    Ok(Value::str(out))
}

fn tpl(call: &mut Call<'_, '_>, args: &[Value]) -> Answer {
    let text = s(args, 0);
    if text.len() > call.run.limits.template_bytes {
        return Err(Limit::TemplateSize.into());
    }
    call.run.charge(text.len() as u64 / 16)?;
    call.run.allocate(text.len().saturating_mul(16))?;
    let quoted = || {
        let start: String = text.chars().take(QUOTED_MAX).collect();
        gofmt::quote(&start)
    };
    if !text.contains("{{") {
        return Ok(any(args, 0).clone()).map(|value| match value {
            Value::Str(text) if text.contains(NO_VALUE) => Value::str(text.replace(NO_VALUE, "")),
            value => value,
        });
    }
    let name: Rc<str> = "gotpl".into();
    let trees = match parse::parse(&name, &text.into(), call.run.limits.nesting, &super::exists) {
        Ok(trees) => trees,
        Err(error) if error.too_deep => return Err(Limit::Nesting.into()),
        Err(error) => {
            return Err(Fault::Context(
                format!("cannot parse template {}", quoted()),
                Box::new(Fault::message(format!("template: gotpl:{}: {}", error.line, error.message))),
            ));
        }
    };
    let Some((main, definitions)) = trees.split_first() else { return Ok(Value::str("")) };
    let mut out = String::new();
    let own;
    let set = if definitions.is_empty() {
        call.set
    } else {
        let mut set: Templates = call.set.clone();
        definitions.iter().for_each(|tree| set.add(tree.clone()));
        own = set;
        &own
    };
    exec::execute(call.run, set, main, any(args, 1).clone(), &mut out).map_err(|error| match error.limit() {
        Some(limit) if error.fail().is_none() => Fault::Limit(limit),
        _ => Fault::Context(
            format!("error during tpl function execution for {}", quoted()),
            Box::new(Fault::Exec(error)),
        ),
    })?;
    Ok(Value::str(if out.contains(NO_VALUE) { out.replace(NO_VALUE, "") } else { out }))
}
