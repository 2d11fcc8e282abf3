//! `values.schema.json`: every chart checks its own part of the merged values.
//!
//! A schema is as untrusted as a template. It is read, measured ([`cost`]) and only then compiled: references cannot leave
//! the file, patterns are matched in linear time, and the number of checks is known before the first one is made.
//! What is wrong is told in Helm's words ([`words`]), and once more without the values that are wrong, for logs.

mod cost;
#[cfg(test)]
mod tests;
mod words;

use jsonschema::{Draft, PatternOptions};
use serde_json::{Map, Value as Json};

use super::Chart;
use crate::{
    error::{Error, Kind},
    limits::{Limit, Limits},
};

/// The file, as Helm names it in messages about the schema itself.
const FILE: &str = "file:///values.schema.json";
/// Violations of one schema that are told; whoever has more has the same one many times.
const VIOLATIONS_MAX: usize = 1_000;

/// What is wrong, in Helm's words and in words that hold nothing of the values.
#[derive(Default)]
struct Told {
    helm: String,
    ours: String,
}

/// Checks the values of a chart and of all charts below it.
///
/// # Errors
/// All violations of all charts in one error, or the limit that was exceeded.
pub(super) fn check(root: &Chart, values: &Map<String, Json>, limits: &Limits) -> Result<(), Error> {
    let mut told = Told::default();
    let mut checks_left = limits.schema_checks;
    collect(root, "", &whole(&Json::Object(values.clone())), limits, &mut checks_left, &mut told)?;
    if told.helm.is_empty() {
        return Ok(());
    }
    let text = |of: &str| {
        let head = "values don't meet the specifications of the schema(s) in the following chart(s):\n";
        format!("{head}{of}")
    };
    let mut error = Error::chart("", text(told.ours.trim_end()))
        .with_hint("correct the values; to render all the same, skip the validation of schemas");
    error.kind = Kind::Schema;
    error.detail.helm = text(&told.helm);
    Err(error)
}

fn collect(
    chart: &Chart,
    prefix: &str,
    values: &Json,
    limits: &Limits,
    checks_left: &mut u64,
    told: &mut Told,
) -> Result<(), Error> {
    if let Some(schema) = &chart.schema {
        match check_one(schema, values, limits, checks_left) {
            Ok(()) => {}
            Err(Failure::Limit(limit)) => return Err(Error::limit(&format!("{prefix}values.schema.json"), limit)),
            Err(Failure::Told(wrong)) => {
                told.helm.push_str(&format!("{}:\n{}", chart.name(), wrong.helm));
                told.ours.push_str(&format!("{}:\n{}\n", chart.name(), wrong.ours));
            }
        }
    }
    for child in &chart.children {
        if let Some(table @ Json::Object(_)) = values.get(child.name()) {
            let prefix = format!("{prefix}charts/{}/", child.name());
            collect(child, &prefix, table, limits, checks_left, told)?;
        }
    }
    Ok(())
}

/// The same value with whole numbers as integers: for some drafts a number with a fraction of zero is none.
fn whole(value: &Json) -> Json {
    /// Below, every whole number has a float of its own.
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    match value {
        Json::Number(number) => match number.as_f64() {
            Some(float) if float.fract() == 0.0 && float.abs() <= EXACT_MAX => {
                #[expect(clippy::cast_possible_truncation, reason = "it is whole and within the bound")]
                let int = float as i64;
                Json::from(int)
            }
            _ => value.clone(),
        },
        Json::Array(items) => Json::Array(items.iter().map(whole).collect()),
        Json::Object(entries) => Json::Object(entries.iter().map(|(key, item)| (key.clone(), whole(item))).collect()),
        other => other.clone(),
    }
}

enum Failure {
    Limit(Limit),
    Told(Told),
}

impl Failure {
    /// Something about the schema itself, which is no secret.
    fn schema(text: String) -> Self {
        Self::Told(Told { ours: format!("values.schema.json: {text}"), helm: text })
    }
}

fn check_one(text: &str, values: &Json, limits: &Limits, checks_left: &mut u64) -> Result<(), Failure> {
    if text.len() > limits.template_bytes {
        return Err(Failure::Limit(Limit::TemplateSize));
    }
    if text.trim().is_empty() {
        return Err(Failure::schema("EOF".into()));
    }
    let mut schema = crate::json::decode(text).map_err(Failure::schema)?;
    let (draft, name) = draft(&mut schema);
    well_formed(&schema, draft, name)?;
    cost::localize(&mut schema);
    let checks = cost::count(&schema, draft, values, *checks_left).map_err(|problem| match problem {
        cost::Problem::TooMuch => Failure::Limit(Limit::Schema),
        cost::Problem::Schema(text) => Failure::schema(text),
    })?;
    *checks_left = checks_left.saturating_sub(checks);
    let validator = jsonschema::options()
        .with_draft(draft)
        .offline()
        .should_validate_formats(asserts_formats(draft))
        .should_ignore_unknown_formats(true)
        .with_pattern_options(PatternOptions::regex().size_limit(limits.regex_bytes).dfa_size_limit(limits.regex_bytes))
        .build(&schema)
        .map_err(|error| Failure::schema(format!("at '{}': {error}", error.instance_path())))?;
    let errors: Vec<_> = validator.iter_errors(values).take(VIOLATIONS_MAX).collect();
    if errors.is_empty() {
        return Ok(());
    }
    let mut told = Told::default();
    words::tell(&schema, &errors, true, &mut told.helm);
    words::tell(&schema, &errors, false, &mut told.ours);
    told.helm.push('\n');
    Err(Failure::Told(told))
}

/// Newer drafts only annotate formats.
fn asserts_formats(draft: Draft) -> bool {
    matches!(draft, Draft::Draft4 | Draft::Draft6 | Draft::Draft7)
}

/// The draft that the schema names, and its address. One that nobody knows is read as the newest: Helm would fetch it.
fn draft(schema: &mut Json) -> (Draft, &'static str) {
    let named = schema.as_object_mut().and_then(|schema| schema.remove("$schema"));
    let named = named.as_ref().and_then(Json::as_str).unwrap_or_default();
    let address = named.trim_end_matches('#').split_once("://").map_or("", |(_, rest)| rest);
    match address {
        "json-schema.org/draft-04/schema" => (Draft::Draft4, "http://json-schema.org/draft-04/schema#"),
        "json-schema.org/draft-06/schema" => (Draft::Draft6, "http://json-schema.org/draft-06/schema#"),
        "json-schema.org/draft-07/schema" => (Draft::Draft7, "http://json-schema.org/draft-07/schema#"),
        "json-schema.org/draft/2019-09/schema" => (Draft::Draft201909, "https://json-schema.org/draft/2019-09/schema#"),
        _ => (Draft::Draft202012, "https://json-schema.org/draft/2020-12/schema#"),
    }
}

/// Whether the schema is one, as the schema of schemas says.
fn well_formed(schema: &Json, draft: Draft, name: &str) -> Result<(), Failure> {
    let meta = match draft {
        Draft::Draft4 => jsonschema::draft4::meta::validator(),
        Draft::Draft6 => jsonschema::draft6::meta::validator(),
        Draft::Draft7 => jsonschema::draft7::meta::validator(),
        Draft::Draft201909 => jsonschema::draft201909::meta::validator(),
        _ => jsonschema::draft202012::meta::validator(),
    };
    let errors: Vec<_> = meta.iter_errors(schema).take(VIOLATIONS_MAX).collect();
    if errors.is_empty() {
        return Ok(());
    }
    let mut text = String::new();
    words::tell(&Json::Null, &errors, true, &mut text);
    Err(Failure::schema(format!(
        "\"{FILE}#\" is not valid against metaschema: jsonschema validation failed with '{name}'\n{text}"
    )))
}
