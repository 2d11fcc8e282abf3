//! Where a write passes its webhooks.

use serde_json::Value;

use super::{Registry, convert, write::Options};
use crate::{
    admission::{Gate, Phase},
    catalog::Resource,
    json::{copy, remove},
    registry::Validation,
    status::ApiError,
};

/// One state of a write.
#[derive(Clone, Copy)]
pub(super) struct Passing<'a> {
    pub(super) resource: &'a Resource,
    pub(super) subresource: &'a str,
    pub(super) name: &'a str,
    /// The version that is written over; 0 for none.
    pub(super) revision: u64,
    pub(super) old: Option<&'a Value>,
}

impl Registry {
    /// An object in the version of a resource.
    pub(crate) fn converted(&self, resource: &Resource, object: &Value) -> Value {
        let mut object = object.clone();
        convert::to(resource, &mut object);
        object
    }

    /// Lets the webhooks change an object before it is checked.
    pub(super) fn mutated(&self, at: Passing<'_>, object: &mut Value, options: Options<'_>) -> Result<(), ApiError> {
        // The number of a scale is not an object that could be changed further.
        let Some(gate) = options.gate.filter(|_| at.subresource != "scale") else { return Ok(()) };
        let shown = || {
            let mut shown = object.clone();
            if at.old.is_none() {
                // What is created gets these later.
                for field in ["uid", "creationTimestamp", "generation"] {
                    remove(&mut shown, &["metadata", field]);
                }
            }
            (Some(shown), at.old.cloned())
        };
        let Some(mut changed) = gate.pass(Phase::Mutate, at.revision, at.name, shown)? else { return Ok(()) };
        for field in ["name", "namespace", "uid", "creationTimestamp", "generation", "resourceVersion"] {
            copy(object, &mut changed, &["metadata", field]);
        }
        for field in ["apiVersion", "kind"] {
            copy(object, &mut changed, &[field]);
        }
        remove(&mut changed, &["metadata", "managedFields"]);
        if changed == *object {
            return Ok(());
        }
        let ignoring = Options { validation: Validation::Ignore, duplicates: &[], ..options };
        self.decode(at.resource, &mut changed, ignoring)?;
        *object = changed;
        Ok(())
    }

    /// Lets the webhooks refuse an object that is otherwise good.
    pub(super) fn validated(&self, at: Passing<'_>, object: &Value, options: Options<'_>) -> Result<(), ApiError> {
        let Some(gate) = options.gate else { return Ok(()) };
        let shown = |state: &Value| match at.subresource {
            "scale" => self.scale(at.resource, state),
            _ => state.clone(),
        };
        let state = || (Some(shown(object)), at.old.map(shown));
        gate.pass(Phase::Validate, at.revision, at.name, state).map(|_| ())
    }

    /// Lets the webhooks refuse a deletion.
    pub(super) fn deletable(&self, at: Passing<'_>, gate: Option<&Gate>) -> Result<(), ApiError> {
        let Some(gate) = gate else { return Ok(()) };
        for phase in [Phase::Mutate, Phase::Validate] {
            gate.pass(phase, at.revision, at.name, || (None, at.old.cloned()))?;
        }
        Ok(())
    }
}
