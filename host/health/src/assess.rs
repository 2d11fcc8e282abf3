//! The built-in checks: object to verdict, with the statuses and messages of Argo CD.
//!
//! Group and kind select the check. An object that is being deleted is Progressing whatever its kind. A field of the
//! wrong type, or a version that the check was not written for, is Unknown with a message that says so. Custom checks,
//! in Lua or as components, come before these and are not here.

mod autoscaler;
mod batch;
mod network;
mod pod;
mod storage;
mod workload;

use serde_json::Value;

use crate::object::{Fields, Kind, Reading, has_finalizer, is_being_deleted};
use crate::verdict::{Health, Verdict};

/// An object whose deletion is held up only by this finalizer is a hook that is still judged by its kind.
const HOOK_FINALIZER: &str = "argocd.argoproj.io/hook-finalizer";

/// Whose word counts where Argo CD's manual and its code differ.
///
/// | | `Documented` | `ArgoCd` |
/// |---|---|---|
/// | address of a Service or Ingress | needs a host name or an IP | any entry will do |
/// | Job with `spec.suspend` | Suspended | only the condition `Suspended` counts |
/// | Job that was resumed and runs | Progressing | Healthy |
/// | CronJob that is suspended | Suspended | Healthy |
/// | CronJob whose last job runs | Progressing | Healthy |
/// | CronJob whose last job failed, and none ever succeeded | Degraded | Healthy |
/// | HorizontalPodAutoscaler in `v2beta1`, `v2beta2` | checked | Unknown |
/// | an object that is not in the cluster | counts as Missing | counts only if no object is there |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Compatibility {
    /// The manual, where it is explicit; the code elsewhere.
    #[default]
    Documented,
    /// The code of Argo CD 3.6.
    ArgoCd,
}

/// The health of an object that is in the cluster, by [`Compatibility::Documented`].
///
/// None means that this kind has no check: such an object does not count, neither for good nor for ill.
pub fn assess(object: &Value) -> Option<Health> {
    assess_as(object, Compatibility::default())
}

/// The health of an object that is in the cluster, or None if its kind has no check.
pub fn assess_as(object: &Value, compatibility: Compatibility) -> Option<Health> {
    if is_being_deleted(object) && !has_finalizer(object, HOOK_FINALIZER) {
        return Some(Health::new(Verdict::Progressing, "Pending deletion"));
    }
    let kind = Kind::of(object)?;
    let check = check_of(kind, compatibility)?;
    if !check.versions.is_empty() && !check.versions.contains(&kind.version) {
        let Kind { group, version, kind } = kind;
        let called = check.called;
        return Some(Health::new(
            Verdict::Unknown,
            format!("unsupported {called} GVK: {group}/{version}, Kind={kind}"),
        ));
    }
    let subject = Subject { object, fields: Fields::of(object), version: kind.version, compatibility };
    let verdict = (check.judge)(&subject).unwrap_or_else(|malformed| {
        let called = check.called;
        Health::new(Verdict::Unknown, format!("failed to convert unstructured {called} to typed: {malformed}"))
    });
    Some(verdict)
}

/// What a check gets.
struct Subject<'a> {
    object: &'a Value,
    fields: Fields<'a>,
    version: &'a str,
    compatibility: Compatibility,
}

impl Subject<'_> {
    /// How far the object is ahead of what its controller has seen.
    fn is_unobserved(&self) -> Reading<bool> {
        Ok(self.fields.count("metadata.generation")? > self.fields.count("status.observedGeneration")?)
    }

    fn name(&self) -> Reading<&str> {
        self.fields.text("metadata.name")
    }
}

struct Check {
    /// The kind, as messages about versions and malformed fields call it.
    called: &'static str,
    /// The versions that the check knows; empty for any.
    versions: &'static [&'static str],
    judge: fn(&Subject<'_>) -> Reading<Health>,
}

fn check_of(kind: Kind<'_>, compatibility: Compatibility) -> Option<Check> {
    let check = |called, versions, judge| Some(Check { called, versions, judge });
    match (kind.group, kind.kind) {
        ("", "PersistentVolumeClaim") => check("PersistentVolumeClaim", &["v1"], storage::persistent_volume_claim),
        ("", "Pod") => check("Pod", &["v1"], pod::pod),
        ("", "Service") => check("Service", &["v1"], network::service),
        ("apiregistration.k8s.io", "APIService") => check("APIService", &["v1", "v1beta1"], network::api_service),
        ("apps", "DaemonSet") => check("DaemonSet", &["v1"], workload::daemon_set),
        ("apps", "Deployment") => check("Deployment", &["v1"], workload::deployment),
        ("apps", "ReplicaSet") => check("ReplicaSet", &["v1"], workload::replica_set),
        ("apps", "StatefulSet") => check("StatefulSet", &["v1"], workload::stateful_set),
        ("argoproj.io", "Workflow") => check("Workflow", &[], batch::workflow),
        ("autoscaling", "HorizontalPodAutoscaler") => {
            let versions: &[_] = match compatibility {
                Compatibility::Documented => &[],
                Compatibility::ArgoCd => &["v1", "v2"],
            };
            check("HPA", versions, autoscaler::horizontal_pod_autoscaler)
        }
        ("batch", "CronJob") => check("CronJob", &[], batch::cron_job),
        ("batch", "Job") => check("Job", &["v1"], batch::job),
        ("extensions" | "networking.k8s.io", "Ingress") => check("Ingress", &[], network::ingress),
        _ => None,
    }
}

fn progressing(message: impl Into<String>) -> Reading<Health> {
    Ok(Health::new(Verdict::Progressing, message))
}

fn healthy(message: impl Into<String>) -> Reading<Health> {
    Ok(Health::new(Verdict::Healthy, message))
}

fn degraded(message: impl Into<String>) -> Reading<Health> {
    Ok(Health::new(Verdict::Degraded, message))
}

fn suspended(message: impl Into<String>) -> Reading<Health> {
    Ok(Health::new(Verdict::Suspended, message))
}

#[cfg(test)]
mod tests;
