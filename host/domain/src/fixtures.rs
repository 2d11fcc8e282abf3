//! Builders of what tests are about: declarations of hooks and wishes of users, plain unless said otherwise.

use serde_json::json;

use crate::event::{Desired, Released};
use crate::hook::{Binding, HookDeclaration, KubernetesBinding, Projection, ScheduleBinding, Stage, WatchEventType};

/// A hook of queue `main` whose failures count.
pub(crate) fn hook(name: &str, bindings: Vec<Binding>) -> HookDeclaration {
    HookDeclaration {
        name: name.to_owned(),
        bindings,
        queue: "main".to_owned(),
        allow_failure: false,
        rate_limit: None,
    }
}

/// A lifecycle binding.
pub(crate) fn at(stage: Stage, order: i32) -> Binding {
    Binding::Lifecycle { stage, order }
}

/// A schedule binding.
pub(crate) fn schedule(name: &str, crontab: &str) -> Binding {
    Binding::Schedule(ScheduleBinding { name: name.to_owned(), crontab: crontab.to_owned() })
}

/// A binding to all ConfigMaps, whole, waited for and with all events.
pub(crate) fn objects(name: &str) -> KubernetesBinding {
    KubernetesBinding {
        name: name.to_owned(),
        api_version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        name_selector: Vec::new(),
        label_selector: None,
        field_selector: Vec::new(),
        filter: Projection::Whole,
        execute_on_events: vec![WatchEventType::Added, WatchEventType::Modified, WatchEventType::Deleted],
        execute_on_synchronization: true,
        wait_for_synchronization: true,
        keep_full_objects: false,
        group: None,
        include_snapshots_from: Vec::new(),
    }
}

/// An application of this version without settings or special wishes.
pub(crate) fn desired(version: &str) -> Desired {
    Desired {
        generation: 1,
        version: version.to_owned(),
        settings: json!({}),
        maintenance: false,
        deleting: false,
        skip_delete_hooks: false,
        skip_hooks: vec![],
        retry: String::new(),
        deletion_step: None,
        rollback_to: None,
        take_over: false,
        field_conflicts: String::new(),
        refused: Vec::new(),
    }
}

/// A first revision that ended well.
pub(crate) fn released(digest: &str, maintenance: bool) -> Released {
    Released {
        revision: 1,
        version: "1.0.0".to_owned(),
        digest: digest.to_owned(),
        deployed: true,
        maintenance,
        set_aside: None,
    }
}
