//! One health of many objects: the worst wins.
//!
//! Only the objects themselves count, never their children. Hooks do not belong to the application, an object without a
//! check says nothing, and [`IGNORE_HEALTHCHECK_ANNOTATION`] takes an object out.

use serde_json::Value;

use crate::assess::{Compatibility, assess_as};
use crate::object::{IGNORE_HEALTHCHECK_ANNOTATION, Kind, annotation, is_hook, metadata_text};
use crate::verdict::{Health, Verdict};

/// How many objects a message names before it only counts.
const CAUSES_NAMED: usize = 3;

/// One object that belongs to an application.
#[derive(Clone, Debug)]
pub enum Member<'a> {
    /// It is in the cluster, and the built-in checks judge it.
    Live(&'a Value),
    /// It is in the cluster, and a custom check has judged it already; None if the check says that it does not count.
    Judged(&'a Value, Option<Health>),
    /// It was rendered and is not in the cluster.
    Absent(&'a Value),
}

impl<'a> Member<'a> {
    fn object(&self) -> &'a Value {
        match self {
            Self::Live(object) | Self::Judged(object, _) | Self::Absent(object) => object,
        }
    }
}

impl<'a> From<&'a Value> for Member<'a> {
    fn from(object: &'a Value) -> Self {
        Self::Live(object)
    }
}

/// The health of an application by [`Compatibility::Documented`]: that of its worst object, Healthy if there is none.
///
/// The message is empty, or names the objects that have the worst verdict: `Caused by apps/Deployment:shop/web`, at most
/// three of them in the order given, then `and 2 more`.
pub fn aggregate<'a, M: Into<Member<'a>>>(members: impl IntoIterator<Item = M>) -> Health {
    aggregate_as(members, Compatibility::default())
}

/// The health of an application: that of its worst object, Healthy if there is none. See [`aggregate`].
///
/// With [`Compatibility::ArgoCd`] an absent object does not count by itself; only an application of which no object is
/// there is Missing, with an empty message.
pub fn aggregate_as<'a, M: Into<Member<'a>>>(
    members: impl IntoIterator<Item = M>,
    compatibility: Compatibility,
) -> Health {
    let mut worst = Verdict::Healthy;
    let mut causes = Vec::new();
    let mut total = 0_usize;
    let mut has_members = false;
    let mut has_live = false;

    for member in members {
        let member = member.into();
        let object = member.object();
        if is_hook(object) {
            continue;
        }
        has_members = true;
        has_live |= !matches!(member, Member::Absent(_));
        if is_ignored(&member, compatibility) {
            continue;
        }
        let verdict = match &member {
            Member::Live(_) => assess_as(object, compatibility).map(|health| health.status),
            Member::Judged(_, health) => health.as_ref().map(|health| health.status),
            Member::Absent(_) => match compatibility {
                Compatibility::Documented => Some(Verdict::Missing),
                Compatibility::ArgoCd => None,
            },
        };
        let Some(verdict) = verdict else { continue };
        // An application within an application that is about to be made, or of another version, is not to blame.
        if is_application(object)
            && !matches!(member, Member::Absent(_))
            && matches!(verdict, Verdict::Missing | Verdict::Unknown)
        {
            continue;
        }
        if verdict > worst {
            worst = verdict;
            causes.clear();
            total = 0;
        }
        if verdict == worst && verdict != Verdict::Healthy {
            total += 1;
            if causes.len() < CAUSES_NAMED {
                causes.push(name_of(object));
            }
        }
    }

    if compatibility == Compatibility::ArgoCd && has_members && !has_live && worst < Verdict::Missing {
        return Health::new(Verdict::Missing, "");
    }
    let mut message = String::new();
    if !causes.is_empty() {
        message = format!("Caused by {}", causes.join(", "));
        let more = total.saturating_sub(causes.len());
        if more > 0 {
            message.push_str(&format!(" and {more} more"));
        }
    }
    Health::new(worst, message)
}

/// An absent object has no annotations in the cluster. The manual does not ask where the annotation stands, so there the
/// one that was rendered counts.
fn is_ignored(member: &Member<'_>, compatibility: Compatibility) -> bool {
    let can_be = compatibility == Compatibility::Documented || !matches!(member, Member::Absent(_));
    can_be && annotation(member.object(), IGNORE_HEALTHCHECK_ANNOTATION) == Some("true")
}

fn is_application(object: &Value) -> bool {
    Kind::of(object).is_some_and(|kind| kind.group == "argoproj.io" && kind.kind == "Application")
}

/// `{group/}{Kind}:{namespace/}{name}`.
fn name_of(object: &Value) -> String {
    let with_slash = |text: &str| if text.is_empty() { String::new() } else { format!("{text}/") };
    let (group, kind) = Kind::of(object).map_or(("", ""), |kind| (kind.group, kind.kind));
    let namespace = metadata_text(object, "namespace");
    let name = metadata_text(object, "name");
    format!("{}{kind}:{}{name}", with_slash(group), with_slash(namespace))
}

#[cfg(test)]
mod tests;
