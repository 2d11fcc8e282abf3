//! The forms of names, labels and keys, and what the API says of text that has another form.
//!
//! Each function answers with every rule that the text breaks, in the words of the real server.

const LABEL_KEY: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const DNS_LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";

type Problems = Vec<String>;

fn regex(what: &str, examples: &[&str], form: &str) -> String {
    // Two spaces before "or": the server writes them.
    let examples = examples.iter().map(|example| format!("'{example}', ")).collect::<Vec<_>>().join(" or ");
    format!("{what} (e.g. {examples}regex used for validation is '{form}')")
}

/// Text whose bytes all pass, with edges that pass a stricter rule; not empty.
fn edged(text: &str, inner: fn(u8) -> bool, edge: fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    bytes.iter().all(|byte| inner(*byte))
        && bytes.first().is_some_and(|byte| edge(*byte))
        && bytes.last().is_some_and(|byte| edge(*byte))
}

fn is_label_name(text: &str) -> bool {
    edged(text, |b| b.is_ascii_alphanumeric() || b"-_.".contains(&b), |b| b.is_ascii_alphanumeric())
}

fn is_dns_part(text: &str) -> bool {
    let edge = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    edged(text, |b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-', edge)
}

fn is_dns_name(text: &str) -> bool {
    text.split('.').all(is_dns_part)
}

fn too_long(text: &str, bytes_max: usize) -> Option<String> {
    (text.len() > bytes_max).then(|| format!("must be no more than {bytes_max} bytes"))
}

/// A key of labels, annotations and selectors: a name with an optional domain before it.
pub(crate) fn label_key(key: &str) -> Problems {
    let form = |what: &str| {
        let rule = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                    alphanumeric character";
        regex(&format!("{what} {rule}"), &["MyName", "my.name", "123-abc"], LABEL_KEY)
    };
    let mut problems = Problems::new();
    let name = match key.split('/').collect::<Vec<_>>().as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".to_owned());
            } else {
                problems.extend(dns_name(prefix).into_iter().map(|problem| format!("prefix part {problem}")));
            }
            *name
        }
        _ => {
            let tail = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("{} {tail}", form("a valid label key"))];
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    }
    problems.extend(too_long(name, 63).map(|problem| format!("name part {problem}")));
    if !is_label_name(name) {
        problems.push(form("name part"));
    }
    problems
}

/// A value of a label.
pub(crate) fn label_value(value: &str) -> Problems {
    let mut problems: Problems = too_long(value, 63).into_iter().collect();
    if !value.is_empty() && !is_label_name(value) {
        let what = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
                    must start and end with an alphanumeric character";
        problems.push(regex(what, &["MyValue", "my_value", "12345"], &format!("({LABEL_KEY})?")));
    }
    problems
}

/// A name of parts with dots between them, as most objects have.
pub(crate) fn dns_name(name: &str) -> Problems {
    let mut problems: Problems = too_long(name, 253).into_iter().collect();
    if !is_dns_name(name) {
        let what = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
                    must start and end with an alphanumeric character";
        problems.push(regex(what, &["example.com"], &format!("{DNS_LABEL}(\\.{DNS_LABEL})*")));
    }
    problems
}

/// A name without dots.
pub(crate) fn dns_label(name: &str) -> Problems {
    let mut problems: Problems = too_long(name, 63).into_iter().collect();
    if !is_dns_part(name) {
        if is_dns_name(name) {
            problems.push("must not contain dots".to_owned());
        } else {
            let what = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
                        start and end with an alphanumeric character";
            problems.push(regex(what, &["my-name", "123-abc"], DNS_LABEL));
        }
    }
    problems
}

/// A name that can stand in a path; all that roles and their bindings ask for.
pub(crate) fn path_segment(name: &str) -> Problems {
    match name {
        "." => vec!["may not be '.'".to_owned()],
        ".." => vec!["may not be '..'".to_owned()],
        _ => ["/", "%"]
            .into_iter()
            .filter(|part| name.contains(part))
            .map(|part| format!("may not contain '{part}'"))
            .collect(),
    }
}

/// A key of a ConfigMap or a Secret.
pub(crate) fn data_key(key: &str) -> Problems {
    let mut problems: Problems = too_long(key, 253).into_iter().collect();
    if key.is_empty() || !key.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)) {
        let what = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'";
        problems.push(regex(what, &["key.name", "KEY_NAME", "key-name"], "[-._a-zA-Z0-9]+"));
    }
    match key {
        "." => problems.push("must not be '.'".to_owned()),
        ".." => problems.push("must not be '..'".to_owned()),
        _ if key.starts_with("..") => problems.push("must not start with '..'".to_owned()),
        _ => {}
    }
    problems
}

/// The number of a port.
pub(crate) fn port_number(number: i64) -> Problems {
    match number {
        1..=65535 => Problems::new(),
        _ => vec!["must be between 1 and 65535, inclusive".to_owned()],
    }
}

/// The name of a port of a container.
pub(crate) fn port_name(name: &str) -> Problems {
    let mut problems: Problems = too_long(name, 15).into_iter().collect();
    let mut check = |good: bool, problem: &str| {
        if !good {
            problems.push(problem.to_owned());
        }
    };
    let inner = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    check(!name.is_empty() && inner, "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)");
    check(name.bytes().any(|b| b.is_ascii_lowercase()), "must contain at least one letter (a-z)");
    check(!name.contains("--"), "must not contain consecutive hyphens");
    check(!name.starts_with('-') && !name.ends_with('-'), "must not begin or end with a hyphen");
    problems
}
