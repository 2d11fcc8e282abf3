//! What the macros need. Not part of the public API.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::optional::{Health, Selection, Verdict};

/// Answers `check-settings`: settings that do not fit the type are rejected.
pub fn check_settings<T: DeserializeOwned>(settings: &str, check: impl FnOnce(T) -> Verdict) -> Verdict {
    match serde_json::from_str(settings) {
        Ok(settings) => check(settings),
        Err(error) => Verdict::reject(error.to_string()),
    }
}

/// Answers `filter`.
///
/// # Errors
/// The object does not fit the type, or the filter refused it.
pub fn project<T: DeserializeOwned, U: Serialize>(
    hook: &str,
    binding: &str,
    object: &str,
    project: impl FnOnce(Selection<'_>, T) -> crate::Result<U>,
) -> Result<String, String> {
    let text = |error: crate::Error| format!("{}: {error}", error.code());
    let object = serde_json::from_str(object).map_err(|error| text(error.into()))?;
    let projection = project(Selection { hook, binding }, object).map_err(text)?;
    serde_json::to_string(&projection).map_err(|error| text(error.into()))
}

/// Answers `assess-health`: an object that does not fit the type has unknown health.
pub fn assess<T: DeserializeOwned>(object: &str, assess: impl FnOnce(T) -> Option<Health>) -> Option<Health> {
    match serde_json::from_str(object) {
        Ok(object) => assess(object),
        Err(error) => Some(Health::new(crate::optional::Status::Unknown, error.to_string())),
    }
}

#[cfg(target_arch = "wasm32")]
pub use guest::{Component, Registration, prepare, register};

/// The side of a component.
#[cfg(target_arch = "wasm32")]
mod guest {
    use std::ptr;
    use std::sync::atomic::{AtomicPtr, Ordering};

    use crate::bindings::hooks::barbless::hooks::{log, patch_collector, types};
    use crate::bindings::hooks::exports::barbless::hooks::hooks as wit;
    use crate::{Context, Hook, Result, host};

    /// A hook of this component, in a list that constructors build before the first call.
    pub struct Registration {
        name: &'static str,
        declaration: fn() -> wit::HookDeclaration,
        run: fn(&mut Context) -> Result<()>,
        next: AtomicPtr<Registration>,
    }

    static FIRST: AtomicPtr<Registration> = AtomicPtr::new(ptr::null_mut());

    impl Registration {
        pub const fn new<H: Hook>() -> Self {
            Self { name: H::NAME, declaration: H::declaration, run: H::run, next: AtomicPtr::new(ptr::null_mut()) }
        }
    }

    /// Adds a hook. Each registration is added once, by its constructor.
    pub fn register(registration: &'static Registration) {
        let rest = FIRST.swap(ptr::from_ref(registration).cast_mut(), Ordering::Relaxed);
        registration.next.store(rest, Ordering::Relaxed);
    }

    fn registrations() -> impl Iterator<Item = &'static Registration> {
        #[expect(unsafe_code, reason = "the list holds only what `register` was given: references that live for ever")]
        let follow = |link: &AtomicPtr<Registration>| unsafe { link.load(Ordering::Relaxed).as_ref() };
        std::iter::successors(follow(&FIRST), move |registration| follow(&registration.next))
    }

    /// Makes a panic tell its message and place before the trap.
    pub fn prepare() {
        std::panic::set_hook(Box::new(|panic| {
            let message = panic.payload_as_str().unwrap_or("a panic without a message");
            let location = panic.location().map(ToString::to_string).unwrap_or_default();
            log::report_panic(message, &location);
        }));
    }

    /// What is exported.
    pub struct Component;

    impl wit::Guest for Component {
        fn describe() -> Vec<wit::HookDeclaration> {
            prepare();
            let mut declarations: Vec<_> = registrations().map(|hook| (hook.declaration)()).collect();
            declarations.sort_by(|a, b| a.name.cmp(&b.name));
            declarations
        }

        fn run(
            hook: String,
            context: wit::Context,
            patches: &patch_collector::PatchCollector,
        ) -> std::result::Result<(), types::HookError> {
            prepare();
            let Some(registration) = registrations().find(|registration| registration.name == hook) else {
                let error = crate::Error::new("HookUnknown", format!("this component has no hook `{hook}`"));
                return Err(error.into());
            };
            let mut ctx = Context::new(context, host::Collector::new(patches));
            (registration.run)(&mut ctx).map_err(Into::into)
        }
    }
}
