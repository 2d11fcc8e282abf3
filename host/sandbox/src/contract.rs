//! The contract in types: what the macro of the engine makes of `wit/`, and how it becomes the words of the domain.
#![allow(unreachable_pub, reason = "the macro writes `pub` for items of a private module")]

use barbless_domain::hook as domain;
use wasmtime::component::{ComponentType, Lift};

wasmtime::component::bindgen!({
    path: "../../wit",
    world: "hook-component",
    imports: { default: trappable },
    exports: { default: async },
    with: {
        "barbless:hooks/patch-collector.patch-collector": handles::PatchCollector,
        "barbless:hooks/snapshots.snapshot": handles::SnapshotHandle,
        "barbless:hooks/snapshots.item": handles::ItemHandle,
    },
});

/// What the handles of guests stand for. Nothing is stored behind them: a handle is a number.
pub(crate) mod handles {
    /// The collector of operations; there is one for each run, and the guest only borrows it.
    pub struct PatchCollector;
    /// A snapshot. Its number is its place among the opened ones.
    pub struct SnapshotHandle;
    /// An item. Its number is the place of its snapshot and its place in there.
    pub struct ItemHandle;
}

use exports::barbless::hooks::hooks as wit;

/// Package of the contract.
pub(crate) const PACKAGE: &str = "barbless:hooks";
/// Version of the contract that this host speaks.
pub(crate) const VERSION: (u64, u64, u64) = (0, 1, 0);

/// Answer of `check-settings`.
#[derive(Debug, ComponentType, Lift)]
#[component(variant)]
pub(crate) enum WitVerdict {
    #[component(name = "allow")]
    Allow(Vec<String>),
    #[component(name = "reject")]
    Reject(String),
}

/// Status of `assess-health`.
#[derive(Debug, Clone, Copy, ComponentType, Lift)]
#[component(enum)]
#[repr(u8)]
#[expect(dead_code, reason = "the engine makes the values, by their number")]
pub(crate) enum WitHealthStatus {
    #[component(name = "healthy")]
    Healthy,
    #[component(name = "suspended")]
    Suspended,
    #[component(name = "progressing")]
    Progressing,
    #[component(name = "missing")]
    Missing,
    #[component(name = "degraded")]
    Degraded,
    #[component(name = "unknown")]
    Unknown,
}

/// Verdict of `assess-health`.
#[derive(Debug, ComponentType, Lift)]
#[component(record)]
pub(crate) struct WitHealth {
    #[component(name = "status")]
    pub(crate) status: WitHealthStatus,
    #[component(name = "message")]
    pub(crate) message: String,
}

/// Parameters and results of the functions that are called.
pub(crate) type RunParams<'a> = (&'a str, &'a wit::Context, wasmtime::component::Resource<handles::PatchCollector>);
pub(crate) type RunResults = (Result<(), wit::HookError>,);
pub(crate) type CheckParams = (String,);
pub(crate) type CheckResults = (WitVerdict,);
pub(crate) type ProjectParams = (String, String, String);
pub(crate) type ProjectResults = (Result<String, String>,);
pub(crate) type AssessParams = (String,);
pub(crate) type AssessResults = (Option<WitHealth>,);

/// Makes the context of a run.
pub(crate) fn context(input: &barbless_domain::run::RunInput) -> wit::Context {
    wit::Context {
        trigger: match &input.trigger {
            domain::Trigger::Lifecycle(domain::Stage::OnStartup) => wit::Trigger::OnStartup,
            domain::Trigger::Lifecycle(domain::Stage::BeforeHelm) => wit::Trigger::BeforeHelm,
            domain::Trigger::Lifecycle(domain::Stage::AfterHelm) => wit::Trigger::AfterHelm,
            domain::Trigger::Lifecycle(domain::Stage::BeforeDeleteHelm) => wit::Trigger::BeforeDeleteHelm,
            domain::Trigger::Lifecycle(domain::Stage::AfterDeleteHelm) => wit::Trigger::AfterDeleteHelm,
            domain::Trigger::Schedule(name) => wit::Trigger::Schedule(name.clone()),
            domain::Trigger::Synchronization(names) => wit::Trigger::Synchronization(names.clone()),
            domain::Trigger::Events(changes) => wit::Trigger::Events(changes.iter().map(change).collect()),
        },
        attempt: input.attempt,
        dry_run: input.dry_run,
    }
}

fn change(change: &domain::Change) -> wit::Change {
    wit::Change {
        binding: change.binding.clone(),
        event: match change.event {
            domain::WatchEventType::Added => wit::WatchEventType::Added,
            domain::WatchEventType::Modified => wit::WatchEventType::Modified,
            domain::WatchEventType::Deleted => wit::WatchEventType::Deleted,
        },
        namespace: change.namespace.clone(),
        name: change.name.clone(),
    }
}

/// Makes a declaration of the domain.
pub(crate) fn declaration(hook: wit::HookDeclaration) -> domain::HookDeclaration {
    domain::HookDeclaration {
        name: hook.name,
        bindings: hook.bindings.into_iter().map(binding).collect(),
        queue: if hook.queue.is_empty() { domain::DEFAULT_QUEUE.to_owned() } else { hook.queue },
        allow_failure: hook.allow_failure,
        rate_limit: hook
            .rate_limit
            .map(|limit| domain::RateLimit { min_interval_ms: limit.min_interval_ms, burst: limit.burst }),
    }
}

fn binding(binding: wit::Binding) -> domain::Binding {
    use domain::{Binding, Stage};
    match binding {
        wit::Binding::OnStartup(order) => Binding::Lifecycle { stage: Stage::OnStartup, order },
        wit::Binding::BeforeHelm(order) => Binding::Lifecycle { stage: Stage::BeforeHelm, order },
        wit::Binding::AfterHelm(order) => Binding::Lifecycle { stage: Stage::AfterHelm, order },
        wit::Binding::BeforeDeleteHelm(order) => Binding::Lifecycle { stage: Stage::BeforeDeleteHelm, order },
        wit::Binding::AfterDeleteHelm(order) => Binding::Lifecycle { stage: Stage::AfterDeleteHelm, order },
        wit::Binding::Schedule(schedule) => {
            Binding::Schedule(domain::ScheduleBinding { name: schedule.name, crontab: schedule.crontab })
        }
        wit::Binding::Kubernetes(kubernetes) => Binding::Kubernetes(kubernetes_binding(kubernetes)),
    }
}

fn kubernetes_binding(binding: wit::KubernetesBinding) -> domain::KubernetesBinding {
    domain::KubernetesBinding {
        name: binding.name,
        api_version: binding.api_version,
        kind: binding.kind,
        name_selector: binding.name_selector,
        label_selector: binding.label_selector.map(|selector| domain::LabelSelector {
            match_labels: selector.match_labels,
            match_expressions: selector
                .match_expressions
                .into_iter()
                .map(|requirement| domain::LabelRequirement {
                    key: requirement.key,
                    operator: match requirement.operator {
                        wit::LabelOperator::In => domain::LabelOperator::In,
                        wit::LabelOperator::NotIn => domain::LabelOperator::NotIn,
                        wit::LabelOperator::Exists => domain::LabelOperator::Exists,
                        wit::LabelOperator::DoesNotExist => domain::LabelOperator::DoesNotExist,
                    },
                    values: requirement.values,
                })
                .collect(),
        }),
        field_selector: binding
            .field_selector
            .into_iter()
            .map(|requirement| domain::FieldRequirement {
                field: requirement.field,
                equals: requirement.equals,
                value: requirement.value,
            })
            .collect(),
        filter: match binding.filter {
            wit::Projection::Whole => domain::Projection::Whole,
            wit::Projection::Fields(fields) => domain::Projection::Fields(fields),
            wit::Projection::Jq(program) => domain::Projection::Jq(program),
            wit::Projection::Component => domain::Projection::Component,
        },
        execute_on_events: binding
            .execute_on_events
            .into_iter()
            .map(|event| match event {
                wit::WatchEventType::Added => domain::WatchEventType::Added,
                wit::WatchEventType::Modified => domain::WatchEventType::Modified,
                wit::WatchEventType::Deleted => domain::WatchEventType::Deleted,
            })
            .collect(),
        execute_on_synchronization: binding.execute_on_synchronization,
        wait_for_synchronization: binding.wait_for_synchronization,
        keep_full_objects: binding.keep_full_objects,
        group: binding.group,
        include_snapshots_from: binding.include_snapshots_from,
    }
}
