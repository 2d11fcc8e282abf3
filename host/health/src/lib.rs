//! Judges the health of a Kubernetes object from the object alone.
//!
//! Two questions have two answers here. [`assess`] says how well an object does, as Argo CD does it, and [`aggregate`]
//! makes one [`Health`] of many objects. [`readiness`] says whether an apply may stop waiting for an object, as Helm and
//! kstatus do it.
//!
//! Everything is a pure function of its arguments: no clock, no cluster, no other object. No object makes a function of
//! this crate panic; one that is malformed gets a verdict that says so.

mod aggregate;
mod assess;
mod container;
mod object;
mod readiness;
mod verdict;

pub use aggregate::{Member, aggregate, aggregate_as};
pub use assess::{Compatibility, assess, assess_as};
pub use container::container_problem;
pub use object::{HOOK_ANNOTATION, IGNORE_HEALTHCHECK_ANNOTATION};
pub use readiness::{Readiness, readiness};
pub use verdict::{Health, UnknownVerdict, Verdict};
