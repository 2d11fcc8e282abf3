//! The conformance rows of releases: what Helm 4.2.3 was seen to do with Helm hooks (H1-H34) and with order, ownership
//! and revisions (O1-O36), each row a test of its number. Where our decision differs from Helm's, the test has ours, and
//! says so (`docs/decisions/0005-release-plan.md`).
//!
//! What Helm did is in `tests/data/helm`, recorded from Helm itself; a row that is as Helm's is compared with that.
//!
//! | row | not as a row of its own |
//! |---|---|
//! | N1, N2 | nelm runs hooks of one weight at once, and deletes those that succeeded in a later stage; ours is H2 and H9 |

mod chart;
mod helm;
mod hooks;
mod host;
mod life;
mod load;
mod order;
mod recovery;
mod site;
mod tap;
mod tracking;

pub(crate) use site::helm_secret;
