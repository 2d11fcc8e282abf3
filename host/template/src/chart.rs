//! Helm charts.

use crate::{
    error::Error,
    render::{Input, Plan},
};

pub(crate) fn is_crd(path: &str) -> bool {
    path.starts_with("crds/") && (path.ends_with(".yaml") || path.ends_with(".yml") || path.ends_with(".json"))
}

pub(crate) fn plan(_input: &Input<'_>, _warnings: &mut Vec<String>) -> Result<Plan, Error> {
    Err(Error::chart("Chart.yaml", "charts are not read yet"))
}
