//! `patch-collector`: operations are kept as the guest wrote them, and read as a whole after the run.

use barbless_domain::identity::{BadName, Gvk, ObjectRef};
use barbless_domain::operation::{Action, Operation, Propagation, Subresource};
use serde_json::Value;
use wasmtime::Result;
use wasmtime::component::Resource;

use crate::contract::barbless::hooks::patch_collector as wit;
use crate::contract::handles::PatchCollector;
use crate::outcome::Stop;
use crate::state::State;
use crate::text::shown;

/// What was collected.
#[derive(Debug, Default)]
pub(crate) struct Patches {
    asked: Vec<Asked>,
    bytes: u64,
}

/// One operation as the guest wrote it.
#[derive(Debug)]
struct Asked {
    target: Option<wit::ObjectRef>,
    act: Act,
    options: wit::Options,
}

#[derive(Debug)]
enum Act {
    Create(String),
    CreateIfNotExists(String),
    CreateOrUpdate(String),
    Apply(String),
    MergePatch(String),
    JsonPatch(String),
    JqPatch(String),
    Delete(wit::Propagation),
}

impl Act {
    fn verb(&self) -> &'static str {
        match self {
            Self::Create(_) => "create",
            Self::CreateIfNotExists(_) => "create-if-not-exists",
            Self::CreateOrUpdate(_) => "create-or-update",
            Self::Apply(_) => "apply",
            Self::MergePatch(_) => "merge-patch",
            Self::JsonPatch(_) => "json-patch",
            Self::JqPatch(_) => "jq-patch",
            Self::Delete(_) => "delete",
        }
    }

    fn text(&self) -> &str {
        match self {
            Self::Create(text)
            | Self::CreateIfNotExists(text)
            | Self::CreateOrUpdate(text)
            | Self::Apply(text)
            | Self::MergePatch(text)
            | Self::JsonPatch(text)
            | Self::JqPatch(text) => text,
            Self::Delete(_) => "",
        }
    }
}

impl State {
    fn ask(&mut self, target: Option<wit::ObjectRef>, act: Act, options: wit::Options) -> Result<()> {
        self.run("patch-collector")?;
        let names = target.as_ref().map_or(0, |target| {
            target.api_version.len() + target.kind.len() + target.namespace.len() + target.name.len()
        });
        let bytes = (act.text().len() + names) as u64;
        let (limits, patches) = (&self.limits, &mut self.patches);
        let refuse = |what: String| Err(Stop::BadOutput(what).into());
        if patches.asked.len() >= usize::try_from(limits.operations).unwrap_or(usize::MAX) {
            return refuse(format!("more than {} operations", limits.operations));
        }
        if bytes > limits.operation_bytes {
            let (index, max) = (patches.asked.len(), limits.operation_bytes);
            return refuse(format!("operation {index} ({}) has {bytes} bytes, more than {max}", act.verb()));
        }
        if patches.bytes.saturating_add(bytes) > limits.operations_bytes {
            return refuse(format!("all operations together have more than {} bytes", limits.operations_bytes));
        }
        patches.bytes += bytes;
        patches.asked.push(Asked { target, act, options });
        Ok(())
    }
}

impl wit::Host for State {}

impl wit::HostPatchCollector for State {
    fn create(&mut self, _this: Resource<PatchCollector>, object: String, options: wit::Options) -> Result<()> {
        self.ask(None, Act::Create(object), options)
    }

    fn create_if_not_exists(
        &mut self,
        _this: Resource<PatchCollector>,
        object: String,
        options: wit::Options,
    ) -> Result<()> {
        self.ask(None, Act::CreateIfNotExists(object), options)
    }

    fn create_or_update(
        &mut self,
        _this: Resource<PatchCollector>,
        object: String,
        options: wit::Options,
    ) -> Result<()> {
        self.ask(None, Act::CreateOrUpdate(object), options)
    }

    fn apply(&mut self, _this: Resource<PatchCollector>, object: String, options: wit::Options) -> Result<()> {
        self.ask(None, Act::Apply(object), options)
    }

    fn merge_patch(
        &mut self,
        _this: Resource<PatchCollector>,
        target: wit::ObjectRef,
        patch: String,
        options: wit::Options,
    ) -> Result<()> {
        self.ask(Some(target), Act::MergePatch(patch), options)
    }

    fn json_patch(
        &mut self,
        _this: Resource<PatchCollector>,
        target: wit::ObjectRef,
        patch: String,
        options: wit::Options,
    ) -> Result<()> {
        self.ask(Some(target), Act::JsonPatch(patch), options)
    }

    fn jq_patch(
        &mut self,
        _this: Resource<PatchCollector>,
        target: wit::ObjectRef,
        program: String,
        options: wit::Options,
    ) -> Result<()> {
        self.ask(Some(target), Act::JqPatch(program), options)
    }

    fn delete(
        &mut self,
        _this: Resource<PatchCollector>,
        target: wit::ObjectRef,
        propagation: wit::Propagation,
        options: wit::Options,
    ) -> Result<()> {
        self.ask(Some(target), Act::Delete(propagation), options)
    }

    fn drop(&mut self, _this: Resource<PatchCollector>) -> Result<()> {
        Ok(())
    }
}

impl Patches {
    /// Reads all operations: those that are well-formed, in order, and what is wrong with the first that is not.
    pub(crate) fn read(self) -> (Vec<Operation>, Option<String>) {
        let mut wrong = None;
        let mut operations = Vec::with_capacity(self.asked.len());
        for (index, asked) in self.asked.into_iter().enumerate() {
            let verb = asked.act.verb();
            match asked.read() {
                Ok(operation) => operations.push(operation),
                Err(what) => {
                    wrong.get_or_insert_with(|| format!("operation {index} ({verb}): {what}"));
                }
            }
        }
        (operations, wrong)
    }
}

impl Asked {
    fn read(self) -> std::result::Result<Operation, String> {
        let (target, action) = match self.act {
            Act::Create(text) => object(&text).map(|(target, object)| (target, Action::Create { object }))?,
            Act::CreateIfNotExists(text) => {
                object(&text).map(|(target, object)| (target, Action::CreateIfNotExists { object }))?
            }
            Act::CreateOrUpdate(text) => {
                object(&text).map(|(target, object)| (target, Action::CreateOrUpdate { object }))?
            }
            Act::Apply(text) => object(&text).map(|(target, object)| (target, Action::Apply { object }))?,
            Act::MergePatch(text) => {
                let patch = json("patch", &text)?;
                if !patch.is_object() {
                    return Err("the patch is no JSON object".to_owned());
                }
                (reference(self.target)?, Action::MergePatch { patch })
            }
            Act::JsonPatch(text) => {
                let patch = json("patch", &text)?;
                if !patch.as_array().is_some_and(|steps| steps.iter().all(Value::is_object)) {
                    return Err("the patch is no JSON array of objects".to_owned());
                }
                (reference(self.target)?, Action::JsonPatch { patch })
            }
            Act::JqPatch(program) => {
                if program.trim().is_empty() {
                    return Err("the jq program is empty".to_owned());
                }
                (reference(self.target)?, Action::JqPatch { program })
            }
            Act::Delete(propagation) => {
                let propagation = match propagation {
                    wit::Propagation::Foreground => Propagation::Foreground,
                    wit::Propagation::Background => Propagation::Background,
                    wit::Propagation::Orphan => Propagation::Orphan,
                };
                (reference(self.target)?, Action::Delete { propagation })
            }
        };
        Ok(Operation {
            target,
            action,
            subresource: self.options.subresource.map(|subresource| match subresource {
                wit::Subresource::Status => Subresource::Status,
                wit::Subresource::Scale => Subresource::Scale,
            }),
            ignore_missing_object: self.options.ignore_missing_object,
            on_failure: self.options.on_failure,
        })
    }
}

fn json(what: &str, text: &str) -> std::result::Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("the {what} is no JSON: {error}"))
}

fn object(text: &str) -> std::result::Result<(ObjectRef, Value), String> {
    let value = json("object", text)?;
    if !value.is_object() {
        return Err("the object is no JSON object".to_owned());
    }
    let target = ObjectRef::of(&value).map_err(|error| bad_name(&error))?;
    Ok((target, value))
}

fn reference(target: Option<wit::ObjectRef>) -> std::result::Result<ObjectRef, String> {
    let target = target.ok_or_else(|| "it has no target".to_owned())?;
    let gvk = Gvk::parse(&target.api_version, &target.kind).map_err(|error| bad_name(&error))?;
    if target.name.is_empty() {
        return Err("the name of the target is empty".to_owned());
    }
    Ok(ObjectRef { gvk, namespace: target.namespace, name: target.name })
}

fn bad_name(error: &BadName) -> String {
    format!("{} {:?} is not valid: {}", error.kind, shown(&error.value, 128), error.reason)
}
