//! Go templates, the functions of Helm, packages and charts: text and values in, manifests out.
//!
//! The crate is pure. It reads no disk, network, clock or environment: files, values, the time, a seed for randomness and
//! the answers of `lookup` are passed in, so that the same [`Input`] always gives the same [`Rendered`]. It knows nothing
//! about clusters or packages beyond their files.
//!
//! Templates are not trusted. Every render has a budget ([`Limits`]); exceeding it is an [`Error`] with a code, never a
//! panic, an abort or an endless loop. Where Helm and this crate differ, it is written at the place that differs.

mod chart;
mod error;
mod exec;
mod funcs;
mod gofmt;
mod json;
mod limits;
mod manifest;
mod object;
mod parse;
mod render;
mod set;
mod template_output;
#[cfg(test)]
mod tests;
mod value;
mod yaml;

pub use chart::{IgnoreRules, read_values, unpack};
pub use error::{Error, Frame, Kind};
pub use limits::{Limit, Limits};
pub use manifest::{
    Manifest, install_order, install_rank, sort_for_install, sort_for_uninstall, uninstall_order, uninstall_rank,
};
pub use render::{
    Capabilities, Files, Input, Lookup, NoLookup, Release, Rendered, RenderedFile, is_release_name, kube_version,
    render, render_files, unknown_kind,
};
pub use set::{Assigned, assign, merge};
pub use template_output::Shown;
