//! Attribute macros of `barbless-sdk`, which re-exports and explains them.
//!
//! Each attribute is parsed into a model (`declaration`), which is checked while it is parsed, so that a mistake is an
//! error at its place in the source. The model is then written twice: as Rust that builds the declaration at run time,
//! and as a line of JSON in the custom section `barbless-hooks` of the module, which tools read without running it.

mod attribute;
mod declaration;
mod expand;

use proc_macro::TokenStream;

/// Makes a function a hook.
///
/// The function is `fn(ctx: &mut Context) -> Result<()>`. The attribute has at least one binding; several are allowed:
///
/// | binding | when |
/// |---|---|
/// | `on_startup`, `before_helm`, `after_helm`, `before_delete_helm`, `after_delete_helm` | in the life of the package; `order = 10` for all of them or `before_helm(order = 10)` for one; lower runs first |
/// | `schedule = "*/5 * * * *"` or `schedule(name = "…", crontab = "…")` | at times: five fields, or six with seconds first |
/// | `kubernetes(…)` | when cluster objects change |
///
/// and options of the hook: `name = "…"` (the name of the function otherwise), `queue = "…"`, `allow_failure`,
/// `rate_limit(min_interval_ms = 1000, burst = 3)`.
///
/// In `kubernetes(…)`: `name`, `api_version` and `kind`, which must be there; `names("a", "b")`;
/// `labels("app" = "x", "tier" != "db", "zone" in ("a", "b"), "zone" not_in ("c"), "team" exists, "old" absent)`;
/// `field_selector("status.phase" = "Running")`; one projection of `fields("/metadata/name", "/data")`, `jq = "…"` and
/// `filter` (the function with `#[filter]`); `events(added, modified, deleted)` (all without it, none with `events()`);
/// `synchronization = false`, `wait = false`, `keep_full_objects`, `group = "…"`, `include_snapshots_from("other")`.
///
/// ```ignore
/// #[hook(name = "password", before_helm, order = 10, kubernetes(
///     name = "secret", api_version = "v1", kind = "Secret", labels("app.example.com/role" = "password"),
/// ))]
/// fn password(ctx: &mut Context) -> Result<()> { Ok(()) }
/// ```
#[proc_macro_attribute]
pub fn hook(attribute: TokenStream, item: TokenStream) -> TokenStream {
    finish(expand::hook(attribute.into(), item.into()))
}

/// Makes a function the judge of settings: `fn(settings: T) -> Verdict`, where `T` is read from the settings. Settings
/// that do not fit are rejected with the place. At most one in a component.
#[proc_macro_attribute]
pub fn check_settings(attribute: TokenStream, item: TokenStream) -> TokenStream {
    finish(expand::check_settings(&attribute.into(), item.into()))
}

/// Makes a function the filter of bindings with `filter`: `fn(selection: Selection<'_>, object: T) -> Result<U>`, where
/// `T` is read from the object and `U` is what is kept. At most one in a component.
#[proc_macro_attribute]
pub fn filter(attribute: TokenStream, item: TokenStream) -> TokenStream {
    finish(expand::filter(&attribute.into(), item.into()))
}

/// Makes a function the judge of health: `fn(object: T) -> Option<Health>`; `None` where it has no opinion. At most one
/// in a component.
#[proc_macro_attribute]
pub fn assess_health(attribute: TokenStream, item: TokenStream) -> TokenStream {
    finish(expand::assess_health(&attribute.into(), item.into()))
}

fn finish(expanded: syn::Result<proc_macro2::TokenStream>) -> TokenStream {
    expanded.unwrap_or_else(|error| error.to_compile_error()).into()
}
