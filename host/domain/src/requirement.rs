//! What a package requires of the platform, and whether the platform has it.
//!
//! Constraints are those of Go's Masterminds/semver v3, because manifests are written for it: `>= 1.70`, `~1.2`, `^1`,
//! `1.x`, `1.2 - 1.4`, comma or space for "and", `||` for "or". Cargo's own requirement syntax has no `!=` and no `||`
//! and treats partial versions otherwise, so the comparisons are our own; parsing of versions is the `semver` crate's.
//! The pre-release rule is that of v3.4: a version with a pre-release matches only if some constraint of its
//! "and"-group mentions one.
//!
//! All requirements are evaluated, and every unmet one is reported.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;

use semver::{BuildMetadata, Prerelease, Version};
use serde::{Deserialize, Serialize};

/// Characters of one constraint.
const CONSTRAINT_CHARACTERS: usize = 256;

/// A semantic-version constraint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Constraint {
    text: String,
    /// Any of these groups must hold; of each group, all.
    any: Vec<Vec<Comparator>>,
}

/// Why a constraint is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("constraint {text:?} is not valid: {why}")]
pub struct BadConstraint {
    /// The constraint.
    pub text: String,
    /// What is wrong with it.
    pub why: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Greater,
    Less,
    GreaterOrEqual,
    LessOrEqual,
    Tilde,
    Caret,
}

/// How much of a version was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Written {
    Nothing,
    Major,
    Minor,
    All,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Comparator {
    operator: Operator,
    written: Written,
    version: Version,
}

impl Constraint {
    /// Parses a constraint.
    ///
    /// # Errors
    /// [`BadConstraint`] with the part that is not understood.
    pub fn parse(text: &str) -> Result<Self, BadConstraint> {
        let bad = |why: String| BadConstraint { text: text.to_owned(), why };
        if text.len() > CONSTRAINT_CHARACTERS {
            return Err(bad(format!("it is longer than {CONSTRAINT_CHARACTERS} characters")));
        }
        let any = text.split("||").map(group).collect::<Result<Vec<_>, _>>().map_err(bad)?;
        Ok(Self { text: text.trim().to_owned(), any })
    }

    /// Whether a version satisfies it.
    #[must_use]
    pub fn matches(&self, version: &Version) -> bool {
        self.any.iter().any(|all| {
            let mentions_pre = all.iter().any(|comparator| !comparator.version.pre.is_empty());
            (version.pre.is_empty() || mentions_pre) && all.iter().all(|comparator| comparator.matches(version))
        })
    }

    /// The constraint as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for Constraint {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Constraint {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// Parses a version as Kubernetes and Deckhouse write it: `v1.30.2`, `1.30`, `v1.30.2-rc.1+build`.
///
/// # Errors
/// The text and what is wrong with it.
pub fn parse_version(text: &str) -> Result<Version, BadConstraint> {
    let bad = |why: String| BadConstraint { text: text.to_owned(), why };
    let (written, version) = partial(text.trim()).map_err(bad)?;
    if written == Written::Nothing {
        return Err(bad("it has no number".to_owned()));
    }
    Ok(version)
}

/// Splits one "and"-group.
fn group(text: &str) -> Result<Vec<Comparator>, String> {
    let mut comparators = Vec::new();
    // Commas are blanks; a blank after an operator is none.
    let spaced = text.replace(',', " , ");
    let mut words = spaced.split_whitespace().peekable();
    let mut separated = true;
    while let Some(word) = words.next() {
        if word == "," {
            if separated {
                return Err("a comma has nothing before it".to_owned());
            }
            separated = true;
            continue;
        }
        separated = false;
        let (operator, mut rest) = operator(word);
        if rest.is_empty() {
            rest =
                words.next().filter(|next| *next != ",").ok_or_else(|| format!("'{word}' has no version after it"))?;
        }
        if operator.is_none() && words.peek() == Some(&"-") {
            words.next();
            let last = words.next().filter(|next| *next != ",").ok_or("a range has no end after '-'".to_owned())?;
            comparators.push(comparator(Operator::GreaterOrEqual, rest)?);
            comparators.push(comparator(Operator::LessOrEqual, last)?);
            continue;
        }
        // `>=1.2<2` without a blank is valid.
        let mut operator = operator.unwrap_or(Operator::Equal);
        while let Some(at) = rest.find(['<', '>', '=', '!', '~', '^']) {
            let (version, tail) = rest.split_at(at);
            comparators.push(comparator(operator, version)?);
            let (next, after) = self::operator(tail);
            operator = next.ok_or_else(|| format!("'{tail}' is not understood"))?;
            rest = after;
            if rest.is_empty() {
                rest = words.next().ok_or_else(|| format!("'{tail}' has no version after it"))?;
            }
        }
        comparators.push(comparator(operator, rest)?);
    }
    match (comparators.is_empty(), separated) {
        (true, _) => Err("it is empty".to_owned()),
        (false, true) => Err("a comma has nothing after it".to_owned()),
        (false, false) => Ok(comparators),
    }
}

fn operator(word: &str) -> (Option<Operator>, &str) {
    // Longest first.
    const OPERATORS: [(&str, Operator); 12] = [
        ("!=", Operator::NotEqual),
        (">=", Operator::GreaterOrEqual),
        ("=>", Operator::GreaterOrEqual),
        ("<=", Operator::LessOrEqual),
        ("=<", Operator::LessOrEqual),
        ("~>", Operator::Tilde),
        ("==", Operator::Equal),
        ("=", Operator::Equal),
        (">", Operator::Greater),
        ("<", Operator::Less),
        ("~", Operator::Tilde),
        ("^", Operator::Caret),
    ];
    OPERATORS
        .iter()
        .find_map(|(text, operator)| word.strip_prefix(text).map(|rest| (Some(*operator), rest)))
        .unwrap_or((None, word))
}

fn comparator(operator: Operator, text: &str) -> Result<Comparator, String> {
    let (written, version) = partial(text)?;
    Ok(Comparator { operator, written, version })
}

/// A version of which parts may be missing or `x`, `X`, `*`.
fn partial(text: &str) -> Result<(Written, Version), String> {
    let plain = text.strip_prefix('v').unwrap_or(text);
    let end = plain.find(['-', '+']).unwrap_or(plain.len());
    let (numbers, suffix) = plain.split_at(end);
    let (pre, build) = match suffix.split_once('+') {
        Some((pre, build)) => (pre, build),
        None => (suffix, ""),
    };
    let mut parts = [0_u64; 3];
    let mut written = 0;
    let mut wild = false;
    for (index, part) in numbers.split('.').enumerate() {
        let Some(slot) = parts.get_mut(index) else { return Err(format!("'{text}' has more than three numbers")) };
        if matches!(part, "x" | "X" | "*") {
            wild = true;
        } else if part.is_empty() || !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(format!("'{text}' is no version"));
        } else if !wild {
            *slot = part.parse().map_err(|_| format!("a number in '{text}' is too large"))?;
            written = index + 1;
        }
    }
    let mut version = Version::new(parts[0], parts[1], parts[2]);
    if let Some(pre) = pre.strip_prefix('-') {
        if pre.is_empty() {
            return Err(format!("the pre-release of '{text}' is empty"));
        }
        version.pre = Prerelease::new(pre).map_err(|_| format!("the pre-release of '{text}' is not valid"))?;
    }
    version.build = BuildMetadata::new(build).map_err(|_| format!("the build of '{text}' is not valid"))?;
    let written = match written {
        0 => Written::Nothing,
        1 => Written::Major,
        2 => Written::Minor,
        _ => Written::All,
    };
    Ok((written, version))
}

impl Comparator {
    fn matches(&self, version: &Version) -> bool {
        let wanted = &self.version;
        let order = version.cmp_precedence(wanted);
        let major = version.major.cmp(&wanted.major);
        let minor = version.minor.cmp(&wanted.minor);
        match self.operator {
            Operator::Equal if self.written == Written::All => order == Ordering::Equal,
            Operator::Equal => self.tilde(version),
            Operator::NotEqual if self.written == Written::All => order != Ordering::Equal,
            Operator::NotEqual => !self.tilde(version),
            Operator::Less => order == Ordering::Less,
            Operator::GreaterOrEqual => order != Ordering::Less,
            // `> 11` means 12 or later, `> 11.1` means 11.2 or later.
            Operator::Greater => match self.written {
                Written::Nothing => false,
                Written::Major => major == Ordering::Greater,
                Written::Minor => major.then(minor) == Ordering::Greater,
                Written::All => order == Ordering::Greater,
            },
            // `<= 11` means all of 11.
            Operator::LessOrEqual => match self.written {
                Written::Nothing => true,
                Written::Major => major != Ordering::Greater,
                Written::Minor => major.then(minor) != Ordering::Greater,
                Written::All => order != Ordering::Greater,
            },
            Operator::Tilde => self.tilde(version),
            Operator::Caret => self.caret(version),
        }
    }

    /// The last written number may grow: `~1.2.3` is below 1.3, `~1` below 2.
    fn tilde(&self, version: &Version) -> bool {
        let wanted = &self.version;
        version.cmp_precedence(wanted) != Ordering::Less
            && match self.written {
                Written::Nothing => true,
                Written::Major => version.major == wanted.major,
                Written::Minor | Written::All => version.major == wanted.major && version.minor == wanted.minor,
            }
    }

    /// The first number that is not zero must stay.
    fn caret(&self, version: &Version) -> bool {
        let wanted = &self.version;
        if version.cmp_precedence(wanted) == Ordering::Less {
            return false;
        }
        match self.written {
            Written::Nothing => true,
            Written::Major => version.major == wanted.major,
            _ if wanted.major > 0 => version.major == wanted.major,
            Written::Minor => version.major == 0 && version.minor == wanted.minor,
            Written::All if wanted.minor > 0 => version.major == 0 && version.minor == wanted.minor,
            Written::All => version.major == 0 && version.minor == 0 && version.patch == wanted.patch,
        }
    }
}

/// `requirements` of a manifest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Requirements {
    /// Version of Kubernetes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<Constraint>,
    /// Version of the platform.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deckhouse: Option<Constraint>,
    /// Modules of the platform.
    pub modules: ModuleRequirements,
}

/// What must hold of the modules of the platform.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ModuleRequirements {
    /// Must be there and match.
    pub mandatory: Vec<ModuleRequirement>,
    /// Must match if they are there; all have a constraint.
    pub conditional: Vec<ModuleRequirement>,
    /// Of each group, at least one must be there and match.
    pub any_of: Vec<ModuleGroup>,
    /// Of no group may one be there and match.
    pub none_of: Vec<ModuleGroup>,
}

/// One module and its version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleRequirement {
    /// Name of the module.
    pub name: String,
    /// Its version; any if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constraint: Option<Constraint>,
}

impl ModuleRequirement {
    fn matches(&self, version: &Version) -> bool {
        self.constraint.as_ref().is_none_or(|constraint| constraint.matches(&release(version)))
    }
}

impl fmt::Display for ModuleRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.constraint {
            Some(constraint) => write!(f, "{} {constraint}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// A named group of modules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleGroup {
    /// Name of the group.
    pub name: String,
    /// What it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its members.
    pub modules: Vec<ModuleRequirement>,
}

/// What the platform has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Platform {
    /// Version of Kubernetes, if known.
    pub kubernetes_version: Option<Version>,
    /// Version of the Deckhouse platform; absent elsewhere.
    pub deckhouse_version: Option<Version>,
    /// Enabled modules and their versions.
    pub modules: BTreeMap<String, Version>,
}

impl Platform {
    /// Reads a version of the platform, where `dev` stands for a version newer than all.
    ///
    /// # Errors
    /// As [`parse_version`].
    pub fn parse_platform_version(text: &str) -> Result<Version, BadConstraint> {
        if text == "dev" { Ok(Version::new(2, 0, 0)) } else { parse_version(text) }
    }
}

/// One requirement that the platform does not meet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unmet {
    /// Stable reason in PascalCase.
    pub reason: String,
    /// What is required, for example `Kubernetes` or `module prometheus`.
    pub subject: String,
    /// Which of it.
    pub required: String,
    /// What is there.
    pub actual: String,
}

impl fmt::Display for Unmet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: required {}, found {}", self.subject, self.required, self.actual)
    }
}

impl Requirements {
    /// Every requirement that the platform does not meet, in the order of the manifest.
    #[must_use]
    pub fn unmet(&self, platform: &Platform) -> Vec<Unmet> {
        let Self { kubernetes, deckhouse, modules } = self;
        let mut unmet = Vec::new();
        let versions = [
            ("KubernetesVersion", "Kubernetes", kubernetes, &platform.kubernetes_version, "an unknown version"),
            ("PlatformVersion", "Deckhouse", deckhouse, &platform.deckhouse_version, "no Deckhouse platform"),
        ];
        for (reason, subject, constraint, version, nothing) in versions {
            let Some(constraint) = constraint else { continue };
            if version.as_ref().is_some_and(|version| constraint.matches(version)) {
                continue;
            }
            unmet.push(Unmet {
                reason: format!("{reason}Unmet"),
                subject: subject.to_owned(),
                required: constraint.to_string(),
                actual: version.as_ref().map_or_else(|| nothing.to_owned(), |version| describe(constraint, version)),
            });
        }
        modules.unmet(platform, &mut unmet);
        unmet
    }
}

/// A version that fails only because of its pre-release says so: nobody sees that otherwise.
fn describe(constraint: &Constraint, version: &Version) -> String {
    if !version.pre.is_empty() && constraint.matches(&release(version)) {
        format!("{version} (a pre-release matches only a constraint that mentions one, for example >= 1.2.3-0)")
    } else {
        version.to_string()
    }
}

/// A version without its pre-release and build.
fn release(version: &Version) -> Version {
    Version::new(version.major, version.minor, version.patch)
}

impl ModuleRequirements {
    fn unmet(&self, platform: &Platform, unmet: &mut Vec<Unmet>) {
        let Self { mandatory, conditional, any_of, none_of } = self;
        let found = |name: &str| match platform.modules.get(name) {
            Some(version) => version.to_string(),
            None => "not enabled".to_owned(),
        };
        let required = |requirement: &ModuleRequirement| match &requirement.constraint {
            Some(constraint) => constraint.to_string(),
            None => "enabled".to_owned(),
        };
        for requirement in mandatory {
            let version = platform.modules.get(&requirement.name);
            if !version.is_some_and(|version| requirement.matches(version)) {
                let reason = if version.is_some() { "ModuleVersionUnmet" } else { "ModuleNotEnabled" };
                unmet.push(Unmet {
                    reason: reason.to_owned(),
                    subject: format!("module {}", requirement.name),
                    required: required(requirement),
                    actual: found(&requirement.name),
                });
            }
        }
        for requirement in conditional {
            if platform.modules.get(&requirement.name).is_some_and(|version| !requirement.matches(version)) {
                unmet.push(Unmet {
                    reason: "ModuleVersionUnmet".to_owned(),
                    subject: format!("module {} (only if enabled)", requirement.name),
                    required: required(requirement),
                    actual: found(&requirement.name),
                });
            }
        }
        let list = |items: Vec<String>| items.join(", ");
        let holds = |requirement: &&ModuleRequirement| {
            platform.modules.get(&requirement.name).is_some_and(|version| requirement.matches(version))
        };
        for group in any_of {
            if !group.modules.iter().any(|requirement| holds(&requirement)) {
                unmet.push(Unmet {
                    reason: "AnyOfUnmet".to_owned(),
                    subject: format!("anyOf group {}", group.name),
                    required: format!("one of {}", list(group.modules.iter().map(ToString::to_string).collect())),
                    actual: list(
                        group.modules.iter().map(|member| format!("{} {}", member.name, found(&member.name))).collect(),
                    ),
                });
            }
        }
        for group in none_of {
            let present: Vec<&ModuleRequirement> = group.modules.iter().filter(holds).collect();
            if !present.is_empty() {
                unmet.push(Unmet {
                    reason: "NoneOfPresent".to_owned(),
                    subject: format!("noneOf group {}", group.name),
                    required: format!("none of {}", list(group.modules.iter().map(ToString::to_string).collect())),
                    actual: list(
                        present.iter().map(|member| format!("{} {}", member.name, found(&member.name))).collect(),
                    ),
                });
            }
        }
    }
}

#[cfg(test)]
mod tests;
