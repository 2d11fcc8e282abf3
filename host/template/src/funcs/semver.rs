//! Versions and constraints as the Masterminds library reads them, which is not as Cargo reads them.

use std::{cmp::Ordering, fmt};

use super::{Answer, Call, Entry, s};
use crate::{exec::Fault, object::Object, value::Value};

pub(super) const FUNCTIONS: &[Entry] = &[
    ("semver", "s", |_, args| match Version::parse(s(args, 0)) {
        Some(version) => Ok(Value::object(Object::Version(version))),
        None => Err(Fault::message("invalid semantic version")),
    }),
    ("semverCompare", "ss", compare),
];

fn compare(_: &mut Call<'_, '_>, args: &[Value]) -> Answer {
    let Some(constraints) = Constraints::parse(s(args, 0)) else {
        return Err(Fault::message(format!("improper constraint: {}", crate::gofmt::quote(s(args, 0)))));
    };
    let Some(version) = Version::parse(s(args, 1)) else { return Err(Fault::message("invalid semantic version")) };
    Ok(Value::Bool(constraints.allow(&version)))
}

/// Longer texts are no versions, as in Helm.
const VERSION_BYTES_MAX: usize = 256;

#[derive(Clone, Debug)]
pub(crate) struct Version {
    major: u64,
    minor: u64,
    patch: u64,
    pre: String,
    metadata: String,
    pub(crate) original: String,
}

/// Up to three numbers, and whether the second and third were written (`x` and `*` are not).
struct Parts<'a> {
    numbers: [Option<u64>; 3],
    pre: &'a str,
    metadata: &'a str,
}

fn parts(text: &str, wildcards: bool) -> Option<Parts<'_>> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let (text, metadata) = match text.split_once('+') {
        Some((_, metadata)) if metadata.split('.').any(str::is_empty) => return None,
        Some(split) => split,
        None => (text, ""),
    };
    let (core, pre) = text.split_once('-').unwrap_or((text, ""));
    let mut numbers = [None; 3];
    let mut wild = false;
    let fields: Vec<&str> = core.split('.').collect();
    if fields.len() > 3 {
        return None;
    }
    for (slot, field) in numbers.iter_mut().zip(&fields) {
        if wildcards && matches!(*field, "x" | "X" | "*") {
            wild = true;
        } else if field.is_empty() || !field.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        } else if !wild {
            *slot = Some(field.parse().ok()?);
        }
    }
    let identifier = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
    if !pre.chars().all(identifier) || !metadata.chars().all(identifier) {
        return None;
    }
    if (text.contains('-') && pre.split('.').any(str::is_empty))
        || pre.split('.').any(|p| p.len() > 1 && p.starts_with('0') && p.bytes().all(|b| b.is_ascii_digit()))
    {
        return None;
    }
    Some(Parts { numbers, pre, metadata })
}

impl Version {
    /// Lenient: a `v` in front and missing numbers are fine.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text.len() > VERSION_BYTES_MAX {
            return None;
        }
        let parts = parts(text, false)?;
        Some(Self {
            major: parts.numbers[0]?,
            minor: parts.numbers[1].unwrap_or(0),
            patch: parts.numbers[2].unwrap_or(0),
            pre: parts.pre.to_string(),
            metadata: parts.metadata.to_string(),
            original: text.to_string(),
        })
    }

    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        (self.major, self.minor, self.patch)
            .cmp(&(other.major, other.minor, other.patch))
            .then_with(|| compare_pre(&self.pre, &other.pre))
    }

    fn next(&self, (major, minor, patch): (u64, u64, u64)) -> Value {
        let v = if self.original.starts_with('v') { "v" } else { "" };
        let original = format!("{v}{major}.{minor}.{patch}");
        Value::object(Object::Version(Self {
            major,
            minor,
            patch,
            pre: String::new(),
            metadata: String::new(),
            original,
        }))
    }

    pub(crate) fn call(&self, name: &str, arg: &Value) -> Option<Value> {
        let other = || match arg {
            Value::Object(object) => match &**object {
                Object::Version(version) => Some(version.clone()),
                _ => None,
            },
            _ => None,
        };
        Some(match name {
            "Major" => Value::Int64(i64::try_from(self.major).unwrap_or(i64::MAX)),
            "Minor" => Value::Int64(i64::try_from(self.minor).unwrap_or(i64::MAX)),
            "Patch" => Value::Int64(i64::try_from(self.patch).unwrap_or(i64::MAX)),
            "Prerelease" => Value::str(self.pre.as_str()),
            "Metadata" => Value::str(self.metadata.as_str()),
            "Original" => Value::str(self.original.as_str()),
            "String" => Value::str(self.to_string()),
            "Compare" => Value::Int(self.compare(&other()?) as i64),
            "Equal" => Value::Bool(self.compare(&other()?) == Ordering::Equal),
            "LessThan" => Value::Bool(self.compare(&other()?) == Ordering::Less),
            "IncMajor" => self.next((self.major.saturating_add(1), 0, 0)),
            "IncMinor" => self.next((self.major, self.minor.saturating_add(1), 0)),
            // What comes behind a pre-release is its release.
            "IncPatch" if !self.pre.is_empty() => self.next((self.major, self.minor, self.patch)),
            "IncPatch" => self.next((self.major, self.minor, self.patch.saturating_add(1))),
            "GreaterThan" => Value::Bool(self.compare(&other()?) == Ordering::Greater),
            _ => return None,
        })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)?;
        if !self.pre.is_empty() {
            write!(f, "-{}", self.pre)?;
        }
        if !self.metadata.is_empty() {
            write!(f, "+{}", self.metadata)?;
        }
        Ok(())
    }
}

fn compare_pre(a: &str, b: &str) -> Ordering {
    match (a.is_empty(), b.is_empty()) {
        (true, true) => return Ordering::Equal,
        (true, false) => return Ordering::Greater,
        (false, true) => return Ordering::Less,
        _ => {}
    }
    let (mut left, mut right) = (a.split('.'), b.split('.'));
    loop {
        return match (left.next(), right.next()) {
            (None, None) => Ordering::Equal,
            (None, Some(_)) => Ordering::Less,
            (Some(_), None) => Ordering::Greater,
            (Some(x), Some(y)) => {
                let order = match (x.parse::<u64>(), y.parse::<u64>()) {
                    (Ok(x), Ok(y)) => x.cmp(&y),
                    (Ok(_), Err(_)) => Ordering::Less,
                    (Err(_), Ok(_)) => Ordering::Greater,
                    _ => x.cmp(y),
                };
                if order == Ordering::Equal {
                    continue;
                }
                order
            }
        };
    }
}

/// Alternatives (`||`) of conjunctions.
pub(crate) struct Constraints(Vec<Vec<Constraint>>);

struct Constraint {
    op: &'static str,
    numbers: [Option<u64>; 3],
    version: Version,
}

const OPERATORS: &[&str] = &["=>", ">=", "=<", "<=", "!=", "~>", "=", ">", "<", "~", "^"];

impl Constraints {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut any = Vec::new();
        for part in text.split("||") {
            let mut all = Vec::new();
            for part in part.split(',') {
                conjunction(part.trim(), &mut all)?;
            }
            any.push(all);
        }
        Some(Self(any))
    }

    pub(crate) fn allow(&self, version: &Version) -> bool {
        self.0.iter().any(|all| all.iter().all(|constraint| constraint.allows(version)))
    }
}

/// Constraints separated by spaces; `1.2 - 1.4` is a range.
fn conjunction(text: &str, all: &mut Vec<Constraint>) -> Option<()> {
    if text.is_empty() {
        return None;
    }
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut i = 0;
    while i < words.len() {
        if words.get(i + 1) == Some(&"-") {
            all.push(Constraint::new(">=", words[i])?);
            all.push(Constraint::new("<=", words.get(i + 2)?)?);
            i += 3;
            continue;
        }
        let mut rest = words[i];
        i += 1;
        while !rest.is_empty() {
            let op = OPERATORS.iter().find(|op| rest.starts_with(**op)).copied();
            rest = rest.strip_prefix(op.unwrap_or("")).unwrap_or(rest);
            if rest.is_empty() {
                rest = words.get(i)?;
                i += 1;
            }
            // Another operator may follow without a space: `>=1.2<2`.
            let end = rest.find(['=', '>', '<', '!', '~', '^']).unwrap_or(rest.len());
            if end == 0 {
                return None;
            }
            all.push(Constraint::new(op.unwrap_or("="), &rest[..end])?);
            rest = &rest[end..];
        }
    }
    Some(())
}

impl Constraint {
    fn new(op: &str, text: &str) -> Option<Self> {
        let op = match op {
            "" | "=" => "=",
            "=>" | ">=" => ">=",
            "=<" | "<=" => "<=",
            "~>" | "~" => "~",
            "!=" => "!=",
            ">" => ">",
            "<" => "<",
            _ => "^",
        };
        let parts = parts(text, true)?;
        let number = |i: usize| parts.numbers.get(i).copied().flatten().unwrap_or(0);
        let version = Version {
            major: number(0),
            minor: number(1),
            patch: number(2),
            pre: parts.pre.to_string(),
            metadata: String::new(),
            original: text.to_string(),
        };
        Some(Self { op, numbers: parts.numbers, version })
    }

    /// The same version with the part behind the last written number raised: the first version above `1.2.x`.
    fn ceiling(&self) -> Option<(u64, u64, u64)> {
        match self.numbers {
            [None, ..] => None,
            [Some(major), None, _] => Some((major.saturating_add(1), 0, 0)),
            [Some(major), Some(minor), _] => Some((major, minor.saturating_add(1), 0)),
        }
    }

    fn allows(&self, v: &Version) -> bool {
        // A pre-release only satisfies a constraint that has a pre-release itself.
        if !v.pre.is_empty() && self.version.pre.is_empty() {
            return false;
        }
        let order = v.compare(&self.version);
        let core = (v.major, v.minor, v.patch);
        let dirty = self.numbers.iter().any(Option::is_none);
        let below_ceiling = || self.ceiling().is_none_or(|ceiling| core < ceiling);
        match self.op {
            "=" if dirty => order.is_ge() && below_ceiling(),
            "=" => order.is_eq(),
            "!=" if dirty => !(order.is_ge() && below_ceiling()),
            "!=" => order.is_ne(),
            ">" if dirty => self.ceiling().is_some_and(|ceiling| core >= ceiling),
            ">" => order.is_gt(),
            ">=" => order.is_ge(),
            "<" => order.is_lt(),
            "<=" if dirty => self.numbers[0].is_none() || below_ceiling(),
            "<=" => order.is_le(),
            "~" => order.is_ge() && below_ceiling(),
            _ => order.is_ge() && self.caret(v),
        }
    }

    /// `^`: the left-most number that is not zero stays.
    fn caret(&self, v: &Version) -> bool {
        let [major, minor, patch] = self.numbers;
        if major.is_none() {
            return true;
        }
        if self.version.major > 0 || minor.is_none() {
            return v.major == self.version.major;
        }
        if v.major != 0 {
            return false;
        }
        if self.version.minor > 0 || patch.is_none() {
            return v.minor == self.version.minor;
        }
        v.minor == 0 && v.patch == self.version.patch
    }
}
