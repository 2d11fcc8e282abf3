//! Hooks for Kubernetes packages, as WebAssembly components.
//!
//! A hook is a function. It sees what the host hands it, and all that it can do to the cluster is *ask*, through
//! [`Context::patches`]; the host checks each request against what the operator granted and carries it out after the
//! hook has returned well.
//!
//! ```
//! use barbless_sdk::prelude::*;
//!
//! /// Counts the feeds that users give in ConfigMaps.
//! #[hook(kubernetes(
//!     name = "feeds", api_version = "v1", kind = "ConfigMap",
//!     labels("example.com/feeds" = "true"), fields("/metadata/name", "/data"),
//! ))]
//! fn feeds(ctx: &mut Context) -> Result<()> {
//!     let feeds = ctx.snapshot("feeds")?;
//!     log::info!(count = feeds.len(), "feeds changed");
//!     ctx.values().set("/internal/feeds", &feeds.len())
//! }
//!
//! // At the end of a component: `barbless_sdk::component!();`
//!
//! # fn main() {
//! // And the same function in a unit test, without a cluster and without WebAssembly:
//! let outcome = TestContext::builder()
//!     .snapshot("feeds", vec![json!({"/metadata/name": "news", "/data": {"url": "https://example.com/feed"}})])
//!     .run(feeds);
//! assert_eq!(outcome.result(), &Ok(()));
//! assert_eq!(outcome.values()["internal"]["feeds"], 1);
//! # }
//! ```
//!
//! A component is a `cdylib` crate that is built for `wasm32-unknown-unknown` (`crate-type = ["cdylib", "rlib"]`, so that
//! its tests run as well) and put into the `hooks/` folder of a package by `barbless build`. Types of your own that are
//! read from snapshots or settings derive `Deserialize`, for which the crate needs `serde` as a dependency.
//!
//! Beside hooks, a component can judge settings ([`check_settings`]), project objects before they are kept ([`filter`])
//! and judge the health of objects ([`assess_health`]):
//!
//! ```
//! use barbless_sdk::prelude::*;
//!
//! #[derive(Deserialize)]
//! struct Settings { replicas: u32 }
//!
//! #[check_settings]
//! fn check(settings: Settings) -> Verdict {
//!     if settings.replicas % 2 == 1 { Verdict::allow() } else { Verdict::reject("replicas must be odd") }
//! }
//!
//! /// Keeps the phase of a Pod, so that nothing runs when something else changes.
//! #[filter]
//! fn phase(_selection: Selection<'_>, pod: Value) -> Result<Value> {
//!     Ok(pod["status"]["phase"].clone())
//! }
//!
//! #[assess_health]
//! fn health(object: Value) -> Option<Health> {
//!     (object["kind"] == "Database").then(|| match object["status"]["ready"].as_bool() {
//!         Some(true) => Health::new(Status::Healthy, "ready"),
//!         _ => Health::new(Status::Progressing, "not ready yet"),
//!     })
//! }
//!
//! # fn main() {
//! assert_eq!(check(Settings { replicas: 2 }), Verdict::reject("replicas must be odd"));
//! assert_eq!(health(json!({"kind": "Pod"})), None);
//! # }
//! ```

#![warn(missing_docs)]
// The examples in the documentation show hooks, which are functions that nobody else calls.
#![doc(test(attr(allow(dead_code))))]

// Lets the macros be used in the tests of this crate.
#[cfg(test)]
#[allow(unused_extern_crates, reason = "the lint does not see paths that macros write")]
extern crate self as barbless_sdk;

pub mod clock;
mod context;
pub mod declaration;
mod error;
pub mod log;
pub mod metrics;
pub mod object;
pub mod optional;
pub mod patches;
pub mod pointer;
pub mod random;
pub mod snapshot;
#[cfg(not(target_arch = "wasm32"))]
pub mod testing;
pub mod values;

#[doc(hidden)]
#[path = "private.rs"]
pub mod __private;
#[cfg(any(test, all(target_arch = "wasm32", feature = "arena")))]
mod arena;
#[doc(hidden)]
pub mod bindings;
mod host;

pub use barbless_sdk_macros::{assess_health, check_settings, filter, hook};
pub use context::{Change, Context, Identity, Trigger, WatchEventType};
pub use declaration::Hook;
pub use error::{Error, Result};

pub use serde;
pub use serde_json;

/// What a file with hooks needs.
pub mod prelude {
    pub use crate::declaration::Hook;
    pub use crate::optional::{Health, Selection, Status, Verdict};
    pub use crate::patches::{ObjectRef, Propagation, Subresource};
    #[cfg(not(target_arch = "wasm32"))]
    pub use crate::testing::TestContext;
    pub use crate::{Change, Context, Error, Result, Trigger, WatchEventType, log};
    pub use crate::{assess_health, check_settings, filter, hook};
    pub use serde::{Deserialize, Serialize};
    pub use serde_json::{Value, json};
}

/// Makes the crate a component: exports all its hooks. To be written once, at the top level of the crate; every
/// function with `#[hook]` in the crate registers itself.
#[macro_export]
macro_rules! component {
    () => {
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            use $crate::__private::Component;
    $crate::bindings::hooks::export_hooks!(Component with_types_in $crate::bindings::hooks);
        };
    };
}
