//! The controllers: what makes objects change by themselves.

use std::{sync::Arc, time::Duration};

use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{
    registry::{Options, Registry},
    status::ApiError,
};

/// The name under which controllers own fields.
const MANAGER: &str = "kube-controller-manager";

/// Makes what every cluster has from its first moment. What exists is left alone.
pub(crate) fn bootstrap(registry: &Registry) -> Result<(), ApiError> {
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        ensure(registry, "v1", "Namespace", "", json!({"metadata": {"name": name}}))?;
    }
    Ok(())
}

fn ensure(
    registry: &Registry,
    api_version: &str,
    kind: &str,
    namespace: &str,
    object: serde_json::Value,
) -> Result<(), ApiError> {
    let resource = registry.catalog.by_kind(api_version, kind).ok_or_else(ApiError::no_such_resource)?;
    match registry.create(&resource, namespace, object, Options::of(MANAGER)) {
        Err(error) if error.reason != "AlreadyExists" => Err(error),
        _ => Ok(()),
    }
}

/// Starts the controllers; they end with the token.
pub(crate) fn start(
    _registry: &Arc<Registry>,
    _workloads: bool,
    _ready_delay: Duration,
    _stopping: &CancellationToken,
) {
}
