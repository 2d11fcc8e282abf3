//! From bytes to a component that is described, and from there to one that is linked.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use barbless_domain::grant::{self, Grant, Interface};
use barbless_domain::hook::HookDeclaration;
use barbless_domain::identity::ApplicationId;
use barbless_domain::limits::{BINDINGS_PER_HOOK, GuestLimits, HOOKS_PER_PACKAGE};
use barbless_domain::run::LogLine;
use tokio::sync::OnceCell;
use wasmtime::Store;
use wasmtime::component::{ComponentExportIndex, ComponentNamedList, HasSelf, Instance, Lift, Linker, Lower};

use crate::compile::Workshop;
use crate::config::Config;
use crate::contract::barbless::hooks as wit;
use crate::contract::{
    self, AssessParams, AssessResults, CheckParams, CheckResults, HookComponent, ProjectParams, ProjectResults,
};
use crate::error::{LoadError, PrepareError, SandboxError};
use crate::jq::Evaluator;
use crate::lane::Lanes;
use crate::machine::Machine;
use crate::outcome;
use crate::prepared::{Exports, Linked, Prepared};
use crate::state::{Access, State};
use crate::text::shown;

/// Text of all declarations of a component together, in bytes: what is larger does not fit into any status or record.
const DECLARATIONS_BYTES: usize = 4 * 1024 * 1024;
/// Bytes of a name of a hook, binding or queue.
const NAME_BYTES: usize = 253;

/// A world of the contract: something that a component can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum World {
    /// It has hooks.
    Hooks,
    /// It judges settings.
    CheckSettings,
    /// It projects objects.
    Filter,
    /// It judges the health of objects.
    AssessHealth,
}

impl World {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Hooks, Self::CheckSettings, Self::Filter, Self::AssessHealth];

    /// The exported interface, for example `hooks`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hooks => "hooks",
            Self::CheckSettings => "check-settings",
            Self::Filter => "filter",
            Self::AssessHealth => "assess-health",
        }
    }
}

/// A component that is compiled and described, and belongs to no application yet. Cheap to clone.
#[derive(Clone)]
pub struct Component(Arc<Loaded>);

struct Loaded {
    digest: String,
    size: u64,
    imports: Vec<String>,
    exports: Vec<String>,
    interfaces: BTreeSet<Interface>,
    worlds: BTreeSet<World>,
    hooks: Vec<HookDeclaration>,
    describe_log: Vec<LogLine>,
    compiled: wasmtime::component::Component,
}

impl Component {
    /// `sha256:` and the digest of its bytes.
    #[must_use]
    pub fn digest(&self) -> &str {
        &self.0.digest
    }

    /// Its size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.0.size
    }

    /// Names of its imports, as they are written in it.
    #[must_use]
    pub fn imports(&self) -> &[String] {
        &self.0.imports
    }

    /// Names of its exports, as they are written in it.
    #[must_use]
    pub fn exports(&self) -> &[String] {
        &self.0.exports
    }

    /// Interfaces that must be granted to it.
    #[must_use]
    pub fn interfaces(&self) -> &BTreeSet<Interface> {
        &self.0.interfaces
    }

    /// Whether it has what a world asks for.
    #[must_use]
    pub fn has(&self, world: World) -> bool {
        self.0.worlds.contains(&world)
    }

    /// Its hooks, as it declares them; empty if it has none. Names are bounded, nothing more is checked.
    #[must_use]
    pub fn hooks(&self) -> &[HookDeclaration] {
        &self.0.hooks
    }

    /// What it logged while it described itself.
    #[must_use]
    pub fn describe_log(&self) -> &[LogLine] {
        &self.0.describe_log
    }
}

impl std::fmt::Debug for Component {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Component")
            .field("digest", &self.0.digest)
            .field("size", &self.0.size)
            .field("worlds", &self.0.worlds)
            .finish_non_exhaustive()
    }
}

/// Loads, links and runs components. Cheap to clone; the engine goes with the last clone.
#[derive(Clone)]
pub struct Sandbox(Arc<Inner>);

struct Inner {
    machine: Arc<Machine>,
    limits: Arc<GuestLimits>,
    workshop: Workshop,
    /// Linkers by the interfaces that they have; there are few combinations, and all share their functions.
    linkers: Mutex<HashMap<BTreeSet<Interface>, Arc<Linker<State>>>>,
    /// Lanes of the applications that components are linked for.
    lanes: Arc<Lanes>,
    /// The evaluator of jq programs, from its first use on.
    evaluator: OnceCell<Arc<Evaluator>>,
}

impl Sandbox {
    /// Sets up the engine, its clock and the cache folder.
    ///
    /// # Errors
    /// [`SandboxError`].
    pub fn new(config: Config) -> Result<Self, SandboxError> {
        let machine = Arc::new(Machine::new(&config)?);
        let limits = Arc::new(config.limits);
        let workshop = Workshop::new(machine.wasmtime().clone(), Arc::clone(&limits), config.compiler, config.cache)?;
        let (linkers, lanes) = Default::default();
        Ok(Self(Arc::new(Inner { machine, limits, workshop, linkers, lanes, evaluator: OnceCell::new() })))
    }

    /// The limits that components are loaded with.
    #[must_use]
    pub fn limits(&self) -> &GuestLimits {
        &self.0.limits
    }

    /// The evaluator of jq programs. Compiled at its first use, and again after a failure of that.
    pub(crate) async fn evaluator(&self) -> Result<&Arc<Evaluator>, LoadError> {
        let Inner { machine, limits, workshop, evaluator, .. } = &*self.0;
        evaluator
            .get_or_try_init(|| async {
                let compiled = workshop.make_own(Evaluator::COMPONENT).await?;
                Evaluator::new(machine, limits, &compiled).map(Arc::new)
            })
            .await
    }

    /// Loads a component: scans it, compiles it unless the cache has it, and has it describe itself.
    ///
    /// Needs a tokio runtime with timers. Work that takes long happens in a child process or on a blocking thread.
    ///
    /// *Malicious guests*: size, functions, compile time and memory, and the time and memory of `describe` are bounded.
    ///
    /// # Errors
    /// [`LoadError`]: everything that can be wrong with a component, each by its own variant.
    pub async fn load(&self, wasm: Vec<u8>) -> Result<Component, LoadError> {
        let size = wasm.len() as u64;
        let made = self.0.workshop.make(wasm).await?;
        let mut loaded = Loaded {
            digest: made.digest,
            size,
            imports: made.scan.imports,
            exports: made.scan.exports,
            interfaces: made.scan.interfaces,
            worlds: made.scan.worlds,
            hooks: Vec::new(),
            describe_log: Vec::new(),
            compiled: made.compiled,
        };
        self.describe(&mut loaded).await?;
        Ok(Component(Arc::new(loaded)))
    }

    /// Links a component for the grant of an application.
    ///
    /// Only interfaces that the component imports and that are granted are in the linker, so that one that is not
    /// granted is not merely refused but absent.
    ///
    /// # Errors
    /// [`PrepareError::NotGranted`] with the name of the import and the grant to add.
    pub fn prepare(
        &self,
        component: &Component,
        application: &ApplicationId,
        grant: &Grant,
    ) -> Result<Prepared, PrepareError> {
        for &interface in &component.0.interfaces {
            let request = grant::Request::Link(interface);
            grant::allows(application, grant, request)
                .into_result()
                .map_err(|denial| PrepareError::NotGranted { import: component.import_of(interface), denial })?;
        }
        let link = |source: wasmtime::Error| PrepareError::Link { source: source.into() };
        let linker = self.linker(&component.0.interfaces).map_err(link)?;
        let pre = linker.instantiate_pre(&component.0.compiled).map_err(link)?;
        let exports = exports(&component.0.compiled);
        let machine = Arc::clone(&self.0.machine);
        let lane = self.0.lanes.of(application, machine.in_flight());
        let linked = Linked { machine, lane, component: component.clone(), pre, exports };
        Ok(Prepared::new(linked, Arc::clone(&self.0.limits)))
    }

    fn linker(&self, interfaces: &BTreeSet<Interface>) -> wasmtime::Result<Arc<Linker<State>>> {
        // The map is whole whatever happens while the lock is held.
        let mut linkers = self.0.linkers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(linker) = linkers.get(interfaces) {
            return Ok(Arc::clone(linker));
        }
        let mut linker = Linker::new(self.0.machine.wasmtime());
        wit::types::add_to_linker::<State, HasSelf<State>>(&mut linker, |state| state)?;
        for &interface in interfaces {
            link(&mut linker, interface)?;
        }
        let linker = Arc::new(linker);
        linkers.insert(interfaces.clone(), Arc::clone(&linker));
        Ok(linker)
    }

    async fn describe(&self, loaded: &mut Loaded) -> Result<(), LoadError> {
        let misfit = |error: &wasmtime::Error| LoadError::WrongContract { what: shown(&format!("{error:#}"), 1024) };
        let linker = self.linker(&loaded.interfaces).map_err(|error| misfit(&error))?;
        let pre = linker.instantiate_pre(&loaded.compiled).map_err(|error| misfit(&error))?;
        let machine = &self.0.machine;
        // Not by a lane: a component belongs to no application yet. An application loads one at a time.
        let _permit = machine.permit().await;
        let state = State::new(Access::Log, Arc::clone(&self.0.limits));
        let clock = Arc::clone(&state.clock);
        let mut store = machine.store(state);
        let instantiated = machine.drive(&clock, pre.instantiate_async(&mut store)).await;
        let described = match instantiated {
            Ok(instance) => {
                check_exports(&mut store, &instance, &exports(&loaded.compiled), &loaded.worlds)?;
                if loaded.worlds.contains(&World::Hooks) {
                    let component = HookComponent::new(&mut store, &instance).map_err(|error| misfit(&error))?;
                    machine.drive(&clock, component.barbless_hooks_hooks().call_describe(&mut store)).await
                } else {
                    Ok(Vec::new())
                }
            }
            Err(error) => Err(error),
        };
        let mut state = store.into_data();
        loaded.describe_log = state.take_log();
        let declarations = match described {
            Ok(declarations) => declarations,
            Err(error) => {
                let end = outcome::failed(&error, &self.0.limits, state.panic.take());
                return Err(LoadError::Describe { end, log: std::mem::take(&mut loaded.describe_log) });
            }
        };
        if declarations.len() > HOOKS_PER_PACKAGE {
            let what = format!("it has {} hooks, more than {HOOKS_PER_PACKAGE}", declarations.len());
            return Err(LoadError::BadDeclaration { what });
        }
        loaded.hooks = declarations.into_iter().map(contract::declaration).collect();
        check_declarations(&loaded.hooks)
    }
}

impl Component {
    /// The import that makes an interface needed.
    fn import_of(&self, interface: Interface) -> String {
        let named = |import: &&String| match interface {
            Interface::Wasi => import.starts_with("wasi:"),
            other => import.split_once('@').is_some_and(|(path, _)| path.ends_with(&format!("/{}", other.as_str()))),
        };
        self.0.imports.iter().find(named).map_or_else(|| interface.as_str().to_owned(), |import| shown(import, 256))
    }
}

/// Adds what stands behind an interface. The match has no default, so that an interface without an implementation does
/// not compile.
fn link(linker: &mut Linker<State>, interface: Interface) -> wasmtime::Result<()> {
    type Own = HasSelf<State>;
    match interface {
        Interface::PatchCollector => wit::patch_collector::add_to_linker::<State, Own>(linker, |state| state),
        Interface::Snapshots => wit::snapshots::add_to_linker::<State, Own>(linker, |state| state),
        Interface::Values => wit::values::add_to_linker::<State, Own>(linker, |state| state),
        Interface::Settings => wit::settings::add_to_linker::<State, Own>(linker, |state| state),
        Interface::Instance => wit::instance::add_to_linker::<State, Own>(linker, |state| state),
        Interface::Log => wit::log::add_to_linker::<State, Own>(linker, |state| state),
        Interface::Metrics => wit::metrics::add_to_linker::<State, Own>(linker, |state| state),
        Interface::Clock => wit::clock::add_to_linker::<State, Own>(linker, |state| state),
        Interface::Random => wit::random::add_to_linker::<State, Own>(linker, |state| state),
        Interface::Wasi => wasmtime_wasi::p2::add_to_linker_async(linker),
    }
}

fn exports(component: &wasmtime::component::Component) -> Exports {
    let (major, minor, patch) = contract::VERSION;
    let find = |interface: World, function: &str| {
        let name = format!("{}/{}@{major}.{minor}.{patch}", contract::PACKAGE, interface.as_str());
        let instance = component.get_export_index(None, &name)?;
        component.get_export_index(Some(&instance), function)
    };
    Exports {
        run: find(World::Hooks, "run"),
        check: find(World::CheckSettings, "check"),
        project: find(World::Filter, "project"),
        assess: find(World::AssessHealth, "assess"),
    }
}

/// The functions of the optional worlds are there, with the types of the contract.
fn check_exports(
    store: &mut Store<State>,
    instance: &Instance,
    exports: &Exports,
    worlds: &BTreeSet<World>,
) -> Result<(), LoadError> {
    for world in worlds {
        let found = match world {
            World::Hooks => continue,
            World::CheckSettings => exports.check.map(|at| typed::<CheckParams, CheckResults>(store, instance, at)),
            World::Filter => exports.project.map(|at| typed::<ProjectParams, ProjectResults>(store, instance, at)),
            World::AssessHealth => exports.assess.map(|at| typed::<AssessParams, AssessResults>(store, instance, at)),
        };
        let what = match found {
            Some(Ok(())) => continue,
            Some(Err(error)) => shown(&format!("'{}': {error:#}", world.as_str()), 1024),
            None => format!("'{}' has no function", world.as_str()),
        };
        return Err(LoadError::WrongContract { what });
    }
    Ok(())
}

fn typed<P, R>(store: &mut Store<State>, instance: &Instance, at: ComponentExportIndex) -> wasmtime::Result<()>
where
    P: ComponentNamedList + Lower,
    R: ComponentNamedList + Lift,
{
    instance.get_typed_func::<P, R>(store, at).map(|_function| ())
}

/// Bounds of what a component says of itself; what it means is for the domain to judge.
fn check_declarations(hooks: &[HookDeclaration]) -> Result<(), LoadError> {
    let bad = |what: String| Err(LoadError::BadDeclaration { what });
    let mut names = BTreeSet::new();
    for hook in hooks {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
        if hook.name.is_empty() || hook.name.len() > NAME_BYTES || !hook.name.chars().all(plain) {
            let name = shown(&hook.name, 64);
            return bad(format!("hook name {name:?} must be 1 to {NAME_BYTES} letters, digits, '-', '_', '.' or '/'"));
        }
        if !names.insert(hook.name.as_str()) {
            return bad(format!("two hooks are named '{}'", hook.name));
        }
        if hook.bindings.len() > BINDINGS_PER_HOOK {
            return bad(format!(
                "hook '{}' has {} bindings, more than {BINDINGS_PER_HOOK}",
                hook.name,
                hook.bindings.len()
            ));
        }
        if hook.queue.len() > NAME_BYTES {
            return bad(format!("the queue of hook '{}' is longer than {NAME_BYTES} bytes", hook.name));
        }
    }
    let bytes = serde_json::to_vec(hooks).map_or(usize::MAX, |text| text.len());
    if bytes > DECLARATIONS_BYTES {
        return bad(format!("all declarations together have more than {DECLARATIONS_BYTES} bytes"));
    }
    Ok(())
}
