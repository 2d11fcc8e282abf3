//! What a hook asks the host to do to the cluster.

use serde::Serialize;

use crate::bindings::hooks::barbless::hooks::patch_collector as wit;
use crate::{Result, host};

pub use wit::{Propagation, Subresource};

/// An object to patch or delete.
///
/// ```
/// use barbless_sdk::prelude::*;
///
/// let target = ObjectRef::new("apps/v1", "Deployment", "web");
/// assert_eq!(target.to_string(), "apps/v1 Deployment web");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectRef {
    pub(crate) wit: wit::ObjectRef,
}

impl ObjectRef {
    /// An object in the namespace of the application, which is the only one that an application may name.
    pub fn new(api_version: impl Into<String>, kind: impl Into<String>, name: impl Into<String>) -> Self {
        let wit = wit::ObjectRef {
            api_version: api_version.into(),
            kind: kind.into(),
            namespace: String::new(),
            name: name.into(),
        };
        Self { wit }
    }

    /// Names the namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.wit.namespace = namespace.into();
        self
    }
}

impl std::fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} ", self.wit.api_version, self.wit.kind)?;
        if !self.wit.namespace.is_empty() {
            write!(f, "{}/", self.wit.namespace)?;
        }
        f.write_str(&self.wit.name)
    }
}

/// Collects operations. Nothing happens before the hook has returned: then all of it is validated, and carried out in
/// order if every operation is well formed and granted.
///
/// Options come first, the operation last:
///
/// ```
/// use barbless_sdk::prelude::*;
///
/// fn sync(ctx: &mut Context) -> Result<()> {
///     ctx.patches().apply(&json!({
///         "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "state"}, "data": {"phase": "ready"},
///     }))?;
///     let target = ObjectRef::new("apps/v1", "Deployment", "web");
///     ctx.patches().ignore_missing_object().merge_patch(&target, &json!({"spec": {"replicas": 2}}))?;
///     ctx.patches().delete(&ObjectRef::new("v1", "Secret", "old"), Propagation::Background);
///     Ok(())
/// }
///
/// let outcome = TestContext::builder().run(sync);
/// assert_eq!(outcome.operations().len(), 3);
/// assert_eq!(outcome.operations()[0].object()["data"]["phase"], "ready");
/// ```
///
/// Limits: 1 000 operations of at most 1 MiB each and 8 MiB together; a call beyond that ends the run.
#[derive(Debug, Clone, Copy)]
pub struct Patches<'a> {
    collector: &'a host::Collector,
    options: wit::Options,
}

impl<'a> Patches<'a> {
    pub(crate) fn new(collector: &'a host::Collector) -> Self {
        let options = wit::Options { subresource: None, ignore_missing_object: false, on_failure: false };
        Self { collector, options }
    }

    /// The next operation is about this part of the object only.
    #[must_use]
    pub fn subresource(mut self, subresource: Subresource) -> Self {
        self.options.subresource = Some(subresource);
        self
    }

    /// For the next operation, an object that is not there is no error.
    #[must_use]
    pub fn ignore_missing_object(mut self) -> Self {
        self.options.ignore_missing_object = true;
        self
    }

    /// The next operation is carried out even when the run fails after it: the way to report a failure in a status.
    #[must_use]
    pub fn on_failure(mut self) -> Self {
        self.options.on_failure = true;
        self
    }

    /// Creates an object; it is an error if it exists.
    ///
    /// # Errors
    /// `JsonInvalid` if the object cannot be written as JSON, as for all operations.
    pub fn create<T: Serialize + ?Sized>(self, object: &T) -> Result<()> {
        self.collector.create(&serde_json::to_string(object)?, self.options);
        Ok(())
    }

    /// Creates an object unless it exists.
    ///
    /// # Errors
    /// As [`Patches::create`].
    pub fn create_if_not_exists<T: Serialize + ?Sized>(self, object: &T) -> Result<()> {
        self.collector.create_if_not_exists(&serde_json::to_string(object)?, self.options);
        Ok(())
    }

    /// Creates an object, or replaces it as a whole: fields that are not given vanish. Prefer [`Patches::apply`].
    ///
    /// # Errors
    /// As [`Patches::create`].
    pub fn create_or_update<T: Serialize + ?Sized>(self, object: &T) -> Result<()> {
        self.collector.create_or_update(&serde_json::to_string(object)?, self.options);
        Ok(())
    }

    /// Server-side apply: sets just the fields that are given. Conflicts with other managers are errors.
    ///
    /// # Errors
    /// As [`Patches::create`].
    pub fn apply<T: Serialize + ?Sized>(self, object: &T) -> Result<()> {
        self.collector.apply(&serde_json::to_string(object)?, self.options);
        Ok(())
    }

    /// JSON merge patch (RFC 7396).
    ///
    /// # Errors
    /// As [`Patches::create`].
    pub fn merge_patch<T: Serialize + ?Sized>(self, target: &ObjectRef, patch: &T) -> Result<()> {
        self.collector.merge_patch(&target.wit, &serde_json::to_string(patch)?, self.options);
        Ok(())
    }

    /// JSON patch (RFC 6902): a list of operations.
    ///
    /// # Errors
    /// As [`Patches::create`].
    pub fn json_patch<T: Serialize + ?Sized>(self, target: &ObjectRef, patch: &T) -> Result<()> {
        self.collector.json_patch(&target.wit, &serde_json::to_string(patch)?, self.options);
        Ok(())
    }

    /// Replaces the object by what the jq program makes of it, which must be just one object.
    ///
    /// It is read, changed and written again if another writer was faster; nothing is written if nothing changes. With
    /// [`Patches::subresource`] `Status` the program sees the whole object, and only its status is written. A program
    /// that is none ends the operation with `JqBadProgram`.
    pub fn jq_patch(self, target: &ObjectRef, program: &str) {
        self.collector.jq_patch(&target.wit, program, self.options);
    }

    /// Deletes an object. One that is not there is no error; the deletion is not waited for.
    pub fn delete(self, target: &ObjectRef, propagation: Propagation) {
        self.collector.delete(&target.wit, propagation, self.options);
    }
}
