//! How the values of the user, of a chart and of its subcharts become one document, as in Helm 4.2.
//!
//! The user wins over a chart, a chart over its subcharts. Maps merge, everything else is replaced. A null of the user
//! removes what a chart says; a null of a chart itself says nothing. A chart's nulls for a subchart are dropped too (Helm
//! 3 let them remove the subchart's default).

use serde_json::{Map, Value as Json};

use super::Chart;
use crate::error::Error;

type Table = Map<String, Json>;

pub(super) const GLOBAL: &str = "global";

/// Nulls do their work and disappear.
pub(super) fn coalesce_values(chart: &Chart, values: Table, warnings: &mut Vec<String>) -> Result<Table, Error> {
    let mut values = values;
    coalesce(chart, &mut values, chart.name(), false, warnings)?;
    Ok(values)
}

/// Nulls are kept, for a later [`coalesce_values`].
pub(super) fn merge_values(chart: &Chart, values: Table, warnings: &mut Vec<String>) -> Result<Table, Error> {
    let mut values = values;
    coalesce(chart, &mut values, chart.name(), true, warnings)?;
    Ok(values)
}

fn coalesce(
    chart: &Chart,
    target: &mut Table,
    prefix: &str,
    merge: bool,
    warnings: &mut Vec<String>,
) -> Result<(), Error> {
    own_values(chart, target, prefix, merge, warnings);
    for child in &chart.children {
        let globals = target.get(GLOBAL).cloned();
        let entry = target.entry(child.name()).or_insert_with(|| Json::Object(Table::new()));
        let Json::Object(table) = entry else {
            let shown = match entry {
                Json::Bool(b) => b.to_string(),
                Json::Null => "%!t(<nil>)".to_string(),
                Json::Number(n) => format!("%!t(float64={})", crate::gofmt::float(n.as_f64().unwrap_or(0.0))),
                Json::String(text) => format!("%!t(string={text})"),
                other => other.to_string(),
            };
            return Err(Error::chart("values.yaml", format!("type mismatch on {}: {shown}", child.name()))
                .with_hint(format!("`{}` holds the values of the subchart and must be a map", child.name())));
        };
        share_globals(table, globals.as_ref(), prefix, warnings);
        coalesce(child, table, &format!("{prefix}.{}", child.name()), merge, warnings)?;
    }
    Ok(())
}

/// Fills `target` with what the chart's own values say.
fn own_values(chart: &Chart, target: &mut Table, prefix: &str, merge: bool, warnings: &mut Vec<String>) {
    for (key, value) in &chart.values {
        let mut value = value.clone();
        match target.get_mut(key) {
            Some(Json::Null) if !merge => {
                target.remove(key);
            }
            Some(Json::Object(table)) => match value {
                Json::Object(mut source) => {
                    // What a parent says about a child is settled when the child's turn comes.
                    let merge = merge || chart.children.iter().any(|child| child.name() == key);
                    if !merge {
                        drop_nulls(&mut source);
                    }
                    tables(table, source, &format!("{prefix}.{key}"), merge, warnings);
                }
                Json::Null => {}
                _ => warnings.push(format!("skipped value for {prefix}.{key}: not a table")),
            },
            Some(_) => {}
            None => {
                if !merge {
                    if value.is_null() {
                        continue;
                    }
                    if let Json::Object(table) = &mut value {
                        drop_nulls(table);
                    }
                }
                target.insert(key.clone(), value);
            }
        }
    }
}

fn drop_nulls(table: &mut Table) {
    table.retain(|_, value| {
        if let Json::Object(inner) = value {
            drop_nulls(inner);
        }
        !value.is_null()
    });
}

/// Merges `source` below `target`, which wins.
pub(super) fn tables(target: &mut Table, source: Table, prefix: &str, merge: bool, warnings: &mut Vec<String>) {
    for (key, value) in source {
        match target.get_mut(&key) {
            None => {
                target.insert(key, value);
            }
            // The user takes away what the chart says; where the chart says nothing, the null stays.
            Some(Json::Null) if !merge && !value.is_null() => {
                target.remove(&key);
            }
            Some(Json::Object(inner)) => match value {
                Json::Object(source) => tables(inner, source, &format!("{prefix}.{key}"), merge, warnings),
                Json::Null => {}
                _ => warnings.push(format!("destination for {prefix}.{key} is a table; the default is ignored")),
            },
            Some(_) if value.is_object() => {
                warnings.push(format!("cannot overwrite table with non table for {prefix}.{key}"));
            }
            Some(_) => {}
        }
    }
}

/// Copies the globals of a parent into the values of a child; the parent wins.
fn share_globals(target: &mut Table, globals: Option<&Json>, prefix: &str, warnings: &mut Vec<String>) {
    let empty = Table::new();
    let source = match globals {
        None => &empty,
        Some(Json::Object(table)) => table,
        Some(_) => {
            warnings.push(format!("skipping globals of {prefix}: `global` is not a table"));
            return;
        }
    };
    let own = target.entry(GLOBAL).or_insert_with(|| Json::Object(Table::new()));
    let Json::Object(own) = own else {
        warnings.push(format!("skipping globals of {prefix}: `global` of a subchart is not a table"));
        return;
    };
    for (key, value) in source {
        match (own.get_mut(key), value) {
            (Some(Json::Object(old)), Json::Object(new)) => {
                let mut merged = new.clone();
                tables(&mut merged, std::mem::take(old), &format!("{prefix}.{key}"), true, warnings);
                *old = merged;
            }
            (Some(Json::Object(_)), _) => {}
            (Some(_), Json::Object(_)) => warnings.push(format!("conflict: cannot merge map onto non-map for {key}")),
            (_, value) => {
                own.insert(key.clone(), value.clone());
            }
        }
    }
}
