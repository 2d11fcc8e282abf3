//! Evictions: deletions of Pods that disruption budgets may forbid.

use serde_json::{Value, json};

use super::{
    DeleteOptions, Registry,
    write::{Edit, Options, Outcome},
};
use crate::{
    catalog::Resource,
    json::{self, at, int, list, set, text},
    selector::label_selector_matches,
    status::{ApiError, Cause},
    store::Stored,
};

const BUDGETS: &str = "policy/poddisruptionbudgets";
/// Who owns what an eviction writes.
const MANAGER: &str = "kube-apiserver";
/// Before a client that was refused should try again while a budget is being counted.
const AGAIN_SECONDS: u64 = 10;

fn is_true(pod: &Value, kind: &str) -> bool {
    let conditions = list(pod, &["status", "conditions"]);
    conditions.iter().any(|it| text(it, &["type"]) == kind && text(it, &["status"]) == "True")
}

fn refusal(cause: String, retry_after_seconds: u64) -> ApiError {
    let why = "Cannot evict pod as it would violate the pod's disruption budget.";
    let cause = Cause { reason: "DisruptionBudget", message: cause, field: String::new() };
    let mut error = ApiError::new(429, "TooManyRequests", why).with_cause(cause);
    error.details.retry_after_seconds = retry_after_seconds;
    error
}

impl Registry {
    /// Deletes a Pod if its disruption budget allows one more to go.
    pub(crate) fn evict(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Outcome, ApiError> {
        let stored = self.store.get(&resource.table, namespace, name);
        let pod = stored.ok_or_else(|| ApiError::not_found(resource.about(), name))?;
        // A Pod that does not run, or goes already, serves nobody.
        let idle = matches!(text(&pod.value, &["status", "phase"]), "Succeeded" | "Failed" | "Pending");
        if !idle && at(&pod.value, &["metadata", "deletionTimestamp"]).is_none() {
            self.spend_budget(&pod.value, namespace, name, options.dry_run)?;
        }
        if !options.dry_run {
            self.mark_disrupted(resource, namespace, name)?;
        }
        self.delete(resource, namespace, name, options)
    }

    /// The one budget that selects a Pod.
    fn budget_of(&self, pod: &Value, namespace: &str) -> Result<Option<std::sync::Arc<Stored>>, ApiError> {
        let mut budgets = self.store.list(BUDGETS, Some(namespace)).0;
        budgets.retain(|budget| {
            at(&budget.value, &["spec", "selector"]).is_some_and(|selector| label_selector_matches(selector, pod))
        });
        if budgets.len() > 1 {
            let why =
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
            return Err(ApiError::new(500, "InternalError", why));
        }
        Ok(budgets.pop())
    }

    /// Takes one disruption from the budget of a Pod, or refuses.
    fn spend_budget(&self, pod: &Value, namespace: &str, name: &str, dry_run: bool) -> Result<(), ApiError> {
        let Some(budget) = self.budget_of(pod, namespace)? else { return Ok(()) };
        let budgets = self.catalog.any_version("policy/v1", "PodDisruptionBudget");
        let budgets = budgets.ok_or_else(ApiError::no_such_resource)?;
        let number = |object: &Value, field: &str| int(object, &["status", field]).unwrap_or_default();
        let object = &budget.value;
        let (healthy, needed) = (number(object, "currentHealthy"), number(object, "desiredHealthy"));
        if !is_true(pod, "Ready") {
            let always = text(object, &["spec", "unhealthyPodEvictionPolicy"]) == "AlwaysAllow";
            if always || (needed > 0 && healthy >= needed) {
                return Ok(());
            }
        }
        let its_name = text(object, &["metadata", "name"]).to_owned();
        let counted =
            number(object, "observedGeneration") >= int(object, &["metadata", "generation"]).unwrap_or_default();
        if !counted {
            let cause = format!("The disruption budget {its_name} is still being processed by the server.");
            return Err(refusal(cause, AGAIN_SECONDS));
        }
        let exhausted = || {
            let cause =
                format!("The disruption budget {its_name} needs {needed} healthy pods and has {healthy} currently");
            refusal(cause, 0)
        };
        if number(object, "disruptionsAllowed") <= 0 {
            return Err(exhausted());
        }
        let spent = |budget: &mut Value| {
            let allowed = number(budget, "disruptionsAllowed");
            if allowed > 0 {
                set(budget, &["status", "disruptionsAllowed"], json!(allowed - 1));
                set(budget, &["status", "disruptedPods", name], json!(json::now()));
            }
            allowed > 0
        };
        let options = Options { dry_run, ..Options::of(MANAGER) };
        let outcome = self.update(&budgets, namespace, &its_name, "status", &Edit::With(&spent), options)?;
        let taken = dry_run || at(&outcome.object.value, &["status", "disruptedPods", name]).is_some();
        outcome.ticket.ignore();
        if taken { Ok(()) } else { Err(exhausted()) }
    }

    /// Notes in a Pod why it goes.
    fn mark_disrupted(&self, resource: &Resource, namespace: &str, name: &str) -> Result<(), ApiError> {
        let mark = |pod: &mut Value| {
            if is_true(pod, "DisruptionTarget") {
                return false;
            }
            let mut conditions = list(pod, &["status", "conditions"]).to_vec();
            conditions.retain(|it| text(it, &["type"]) != "DisruptionTarget");
            conditions.push(json!({"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
                "message": "Eviction API: evicting", "lastTransitionTime": json::now()}));
            set(pod, &["status", "conditions"], Value::Array(conditions));
            true
        };
        let outcome = self.update(resource, namespace, name, "status", &Edit::With(&mark), Options::of(MANAGER))?;
        outcome.ticket.ignore();
        Ok(())
    }
}
