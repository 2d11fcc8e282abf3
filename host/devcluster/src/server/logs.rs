//! The output of Pods. There are no processes, so there is none but what the Pod says by itself.

use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use serde_json::Value;

use super::request::Query;
use crate::{
    json::{at, list, text},
    status::ApiError,
};

/// The annotation of a Pod that says what it has written.
const KNOB: &str = "devcluster.barbless.dev/log";

/// Which container is asked for.
fn container<'a>(pod: &'a Value, wanted: &str) -> Result<&'a str, ApiError> {
    let name = text(pod, &["metadata", "name"]);
    let of = |field: &str| list(pod, &["spec", field]).iter().map(|it| text(it, &["name"]));
    let names = of("containers").collect::<Vec<_>>();
    if wanted.is_empty() {
        if let [only] = names.as_slice() {
            return Ok(only);
        }
        let mut why =
            format!("a container name must be specified for pod {name}, choose one of: [{}]", names.join(" "));
        let inits = of("initContainers").collect::<Vec<_>>();
        if !inits.is_empty() {
            why.push_str(&format!(" or one of the init containers: [{}]", inits.join(" ")));
        }
        return Err(ApiError::bad_request(why));
    }
    let found = of("containers").chain(of("initContainers")).chain(of("ephemeralContainers")).find(|it| *it == wanted);
    found.ok_or_else(|| ApiError::bad_request(format!("container {wanted} is not valid for pod {name}")))
}

pub(super) fn answer(pod: &Value, query: &Query) -> Result<Response, ApiError> {
    let container = container(pod, query.get("container"))?;
    let statuses = ["containerStatuses", "initContainerStatuses"].map(|field| list(pod, &["status", field]));
    let status = statuses.into_iter().flatten().find(|it| text(it, &["name"]) == container);
    let pod_name = text(pod, &["metadata", "name"]);
    let again = status.and_then(|it| at(it, &["lastState", "terminated"])).is_some();
    if query.flag("previous") && !again {
        let why = format!("previous terminated container {container:?} in pod {pod_name:?} not found");
        return Err(ApiError::bad_request(why));
    }
    let waiting = status.map(|it| text(it, &["state", "waiting", "reason"])).filter(|reason| !reason.is_empty());
    match waiting {
        Some("ImagePullBackOff" | "ErrImagePull") => {
            let why = "trying and failing to pull image";
            return Err(ApiError::bad_request(format!(
                "container {container:?} in pod {pod_name:?} is waiting to start: {why}"
            )));
        }
        Some(reason) if !again => {
            let why = format!("container {container:?} in pod {pod_name:?} is waiting to start: {reason}");
            return Err(ApiError::bad_request(why));
        }
        _ => {}
    }
    let mut output = text(pod, &["metadata", "annotations", KNOB]).to_owned();
    if let Ok(lines) = query.get("tailLines").parse::<usize>() {
        let all = output.split_inclusive('\n').collect::<Vec<_>>();
        output = all.get(all.len().saturating_sub(lines)..).unwrap_or_default().concat();
    }
    if let Ok(bytes) = query.get("limitBytes").parse::<usize>() {
        output.truncate(output.floor_char_boundary(bytes));
    }
    Ok((StatusCode::OK, [(header::CONTENT_TYPE, "text/plain")], output).into_response())
}
