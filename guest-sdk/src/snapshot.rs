//! What the kubernetes bindings of a hook select.

use serde::de::DeserializeOwned;

use crate::values::parse;
use crate::{Error, Result, host, pointer};

/// The objects of one kubernetes binding, as of the start of the run, ordered by namespace and name.
///
/// Nothing crosses to the hook before it is asked for, so a snapshot of many large objects costs only what is read.
///
/// ```
/// use barbless_sdk::prelude::*;
///
/// fn names(ctx: &mut Context) -> Result<()> {
///     let mut running = Vec::new();
///     for pod in ctx.snapshot("pods")?.iter() {
///         if pod.get::<String>("/status/phase")?.as_deref() == Some("Running") {
///             running.push(pod.name());
///         }
///     }
///     ctx.values().set("/internal/running", &running)
/// }
///
/// let pod = json!({"metadata": {"name": "web-0"}, "status": {"phase": "Running"}});
/// let outcome = TestContext::builder().snapshot("pods", vec![pod]).run(names);
/// assert_eq!(outcome.values()["internal"]["running"], json!(["web-0"]));
/// ```
pub struct Snapshot {
    handle: host::SnapshotHandle,
    binding: String,
}

impl Snapshot {
    pub(crate) fn open(binding: &str) -> Result<Self> {
        match host::snapshot_open(binding) {
            Ok(handle) => Ok(Self { handle, binding: binding.to_owned() }),
            Err(error) => Err(Error::from(error).context(format_args!("snapshot `{binding}`"))),
        }
    }

    pub(crate) fn of_changes(handle: host::SnapshotHandle) -> Self {
        Self { handle, binding: "of the changes".to_owned() }
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        // Lossless: a guest has 32-bit addresses, everything else has wider ones.
        self.handle.len() as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The object at an index.
    pub fn at(&self, index: usize) -> Option<Item> {
        let index = u32::try_from(index).ok()?;
        self.handle.at(index).map(|handle| Item { handle })
    }

    /// The first object, which is all there is where a binding selects one name.
    pub fn first(&self) -> Option<Item> {
        self.at(0)
    }

    /// The object of a name.
    pub fn find(&self, name: &str) -> Option<Item> {
        self.iter().find(|item| item.name() == name)
    }

    /// The objects one by one.
    pub fn iter(&self) -> impl Iterator<Item = Item> + '_ {
        (0..self.handle.len()).filter_map(|index| self.handle.at(index)).map(|handle| Item { handle })
    }

    /// All projections as one JSON array.
    pub fn json(&self) -> String {
        self.handle.json()
    }

    /// All projections, typed.
    ///
    /// # Errors
    /// `JsonInvalid` if one has another shape than `T`.
    pub fn to_vec<T: DeserializeOwned>(&self) -> Result<Vec<T>> {
        serde_json::from_str(&self.json())
            .map_err(|error| Error::from(error).context(format_args!("snapshot `{}`", self.binding)))
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot").field("binding", &self.binding).field("len", &self.len()).finish()
    }
}

/// One object of a snapshot.
pub struct Item {
    handle: host::ItemHandle,
}

impl Item {
    /// Name of the object.
    pub fn name(&self) -> String {
        self.handle.name()
    }

    /// Its namespace; empty for a cluster-scoped object.
    pub fn namespace(&self) -> String {
        self.handle.namespace()
    }

    /// Value at a JSON pointer of the projection, if there is one. `null` counts as none. The projection is the whole
    /// object unless the binding says otherwise.
    ///
    /// # Errors
    /// `JsonInvalid` if it has another shape than `T`.
    pub fn get<T: DeserializeOwned>(&self, pointer: &str) -> Result<Option<T>> {
        let value: Option<Option<T>> =
            parse(self.handle.get(pointer), || format!("object `{}`", self.handle.name()), pointer)?;
        Ok(value.flatten())
    }

    /// What a binding with `fields(…)` kept for one of its fields: `field("/data")` for `fields("/data")`.
    ///
    /// Such a projection is an object from pointer to value, so that the plain [`Item::get`] would need the pointer
    /// escaped once more.
    ///
    /// # Errors
    /// `JsonInvalid` if it has another shape than `T`.
    pub fn field<T: DeserializeOwned>(&self, field: &str) -> Result<Option<T>> {
        self.get(&pointer::join([field]))
    }

    /// The projection as JSON text.
    pub fn json(&self) -> String {
        self.handle.json()
    }

    /// The projection, typed.
    ///
    /// # Errors
    /// `JsonInvalid` if it has another shape than `T`.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_str(&self.json())
            .map_err(|error| Error::from(error).context(format_args!("object `{}`", self.name())))
    }

    /// The whole object, typed, if the binding keeps it (`keep_full_objects`).
    ///
    /// # Errors
    /// `JsonInvalid` if it has another shape than `T`.
    pub fn object<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        parse(self.handle.object(), || format!("object `{}`", self.handle.name()), "")
    }
}

impl std::fmt::Debug for Item {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Item").field("namespace", &self.namespace()).field("name", &self.name()).finish()
    }
}
