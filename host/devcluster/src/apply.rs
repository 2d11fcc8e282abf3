//! Field ownership: server-side apply and the tracking of every other write.
//!
//! The semantics are those of structured-merge-diff as Kubernetes 1.37 uses it. [`Set`] is a tree of owned paths,
//! [`typed`] walks objects along their schema, [`managed`] keeps the managers of one object.

mod last_applied;
pub(crate) mod managed;
mod set;
pub(crate) mod typed;

pub(crate) use set::Set;

#[cfg(test)]
mod tests;
