//! Values that the user gives: files, then the `--set` family, in Helm's order.

use std::cell::Cell;
use std::io::Read as _;
use std::path::Path;

use barbless_template::{self as template, Assigned};
use serde_json::{Map, Value};

use crate::app;
use crate::bundle;
use crate::cli::Render;
use crate::report::{Exit, Report};

/// Bytes of one file of values.
const FILE_BYTES: u64 = 4 * 1024 * 1024;

/// Values of a chart: YAML as Helm reads it.
pub(super) fn values(args: &Render) -> Result<Map<String, Value>, Report> {
    let mut given = Map::new();
    for path in &args.values {
        let place = path.display().to_string();
        let text = text_of(path)?;
        let more = template::read_values(&place, &text, &template::Limits::default())
            .map_err(|error| super::report(&error).exit(Exit::Usage))?;
        template::merge(&mut given, more);
    }
    assign(args, &mut given)?;
    Ok(given)
}

/// Settings of a package: YAML as Kubernetes reads it.
pub(super) fn settings(args: &Render) -> Result<Map<String, Value>, Report> {
    let mut given = Map::new();
    for path in &args.values {
        match app::read_argument(path)? {
            Value::Object(more) => template::merge(&mut given, more),
            Value::Null => {}
            _ => {
                let report = Report::new("BadSettings", "settings must be a map");
                return Err(report.at(path.display().to_string()).exit(Exit::Usage));
            }
        }
    }
    assign(args, &mut given)?;
    Ok(given)
}

fn assign(args: &Render, given: &mut Map<String, Value>) -> Result<(), Report> {
    // The template library passes on words only, so how it ends is kept beside them.
    let missing = Cell::new(false);
    let read = |name: &str| {
        text_of(Path::new(name)).map_err(|report| {
            missing.set(report.exit == Exit::NotFound);
            format!("{name}: {}", report.message)
        })
    };
    let family: [(&str, &[String], Assigned<'_>); 5] = [
        ("--set-json", &args.set_json, Assigned::Json),
        ("--set", &args.set, Assigned::Typed),
        ("--set-string", &args.set_string, Assigned::Text),
        ("--set-file", &args.set_file, Assigned::File(&read)),
        ("--set-literal", &args.set_literal, Assigned::Literal),
    ];
    for (flag, lines, how) in family {
        for line in lines {
            template::assign(given, line, how).map_err(|message| {
                // The line itself may hold a secret.
                let exit = if missing.get() { Exit::NotFound } else { Exit::Usage };
                Report::new("BadSet", format!("failed parsing {flag} data: {message}")).exit(exit)
            })?;
        }
    }
    Ok(())
}

/// The text of a file, or of standard input for `-`.
fn text_of(path: &Path) -> Result<String, Report> {
    let place = path.display().to_string();
    let bytes = if path == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::stdin()
            .lock()
            .take(FILE_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| Report::new("FileUnreadable", error.to_string()).at("standard input"))?;
        if bytes.len() as u64 > FILE_BYTES {
            return Err(Report::new("FileTooLarge", format!("larger than {FILE_BYTES} bytes")).at("standard input"));
        }
        bytes
    } else {
        bundle::read_bounded(path, FILE_BYTES).map_err(|report| report.at(place.clone()))?
    };
    String::from_utf8(bytes).map_err(|error| Report::new("NotUtf8", error.to_string()).at(place).exit(Exit::Usage))
}
