//! What a component tells of its hooks. The `#[hook]` macro writes it; it can be read in tests.

use crate::bindings::hooks::exports::barbless::hooks::hooks as wit;
use crate::{Context, Result};

pub use wit::{
    Binding, FieldRequirement, HookDeclaration, KubernetesBinding, LabelOperator, LabelRequirement, LabelSelector,
    Projection, RateLimit, ScheduleBinding, WatchEventType,
};

/// A hook. `#[hook]` implements it for a type that has the name of the function.
///
/// ```
/// use barbless_sdk::prelude::*;
/// use barbless_sdk::declaration::Binding;
///
/// #[hook(before_helm, order = 10)]
/// fn password(ctx: &mut Context) -> Result<()> {
///     ctx.values().set("/internal/password", &ctx.random().password(24))
/// }
///
/// assert_eq!(<password as Hook>::declaration().bindings, [Binding::BeforeHelm(10)]);
/// ```
pub trait Hook {
    /// Unique in the component.
    const NAME: &'static str;

    /// Why the hook runs, and how.
    fn declaration() -> HookDeclaration;

    /// Runs it.
    ///
    /// # Errors
    /// Those of the hook.
    fn run(ctx: &mut Context) -> Result<()>;
}
