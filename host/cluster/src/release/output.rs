//! Asks the containers of a failed hook what they said last.
//!
//! That is for people, and nothing hangs on it: what cannot be had is said instead.

use barbless_domain::identity::{Gvk, ObjectRef};
use barbless_domain::release::{OUTPUT_LINES, Speaker, last_words, shows_output_of_failure, speakers};
use kube::api::LogParams;
use serde_json::Value;

use super::Run;
use super::pods::troubles;
use crate::error::Error;
use crate::limits::{OUTPUT_BYTES, OUTPUT_WAIT};
use crate::request::metadata;

impl Run<'_> {
    /// What the containers of a hook that failed said last, as the end of a message; empty if they said nothing, or if
    /// its author does not want it shown. `uid` is that of the object that was applied.
    pub(super) async fn output_of(&self, hook: &Value, target: &ObjectRef, uid: &str) -> String {
        if !shows_output_of_failure(hook) {
            return String::new();
        }
        let asking = async {
            let mut said = String::new();
            for speaker in speakers(&self.pods_of(target, uid).await?) {
                let output = self.log(target, &speaker).await?;
                if let Some(words) = last_words(&output) {
                    said.push_str(&format!("; Pod {}, container {} said: {words}", speaker.pod, speaker.container));
                }
            }
            Ok::<String, Error>(said)
        };
        match tokio::time::timeout(OUTPUT_WAIT, asking).await {
            Ok(Ok(said)) => said,
            Ok(Err(error)) => format!("; what its containers said cannot be read: {}", error.chain()),
            Err(_) => "; what its containers said could not be read in time".to_owned(),
        }
    }

    /// What is wrong with the Pods of a hook that failed, as a part of a message; empty if that cannot be told.
    pub(super) async fn trouble_of(&self, target: &ObjectRef, uid: &str) -> String {
        let pods = tokio::time::timeout(OUTPUT_WAIT, self.pods_of(target, uid)).await;
        let found = pods.into_iter().flatten().flatten().flat_map(|pod| troubles(target, &pod)).next();
        found.map(|trouble| format!(" ({trouble})")).unwrap_or_default()
    }

    /// The Pods that a hook has made, or is. Others are none of its business, whatever labels they have.
    async fn pods_of(&self, target: &ObjectRef, uid: &str) -> Result<Vec<Value>, Error> {
        if target.gvk.kind == "Pod" {
            let pod = self.cluster.get(target).await?;
            return Ok(pod.into_iter().filter(|pod| metadata(pod, "uid") == Some(uid)).collect());
        }
        let kind = Gvk { group: String::new(), version: "v1".to_owned(), kind: "Pod".to_owned() };
        let selector = format!("job-name={}", target.name);
        let mut pods = self.cluster.list(&kind, Some(&target.namespace), &selector).await?;
        let is_owner = |owner: &Value| owner.get("uid").and_then(Value::as_str) == Some(uid);
        pods.retain(|pod| {
            let owners = pod.pointer("/metadata/ownerReferences").and_then(Value::as_array);
            owners.is_some_and(|owners| owners.iter().any(is_owner))
        });
        Ok(pods)
    }

    async fn log(&self, target: &ObjectRef, speaker: &Speaker) -> Result<String, Error> {
        let what = || format!("output of Pod {}/{}", target.namespace, speaker.pod);
        let path = format!("/api/v1/namespaces/{}/pods", target.namespace);
        let parameters = LogParams {
            container: Some(speaker.container.clone()),
            tail_lines: i64::try_from(OUTPUT_LINES).ok(),
            limit_bytes: Some(OUTPUT_BYTES),
            ..LogParams::default()
        };
        let request = kube::api::Request::new(path).logs(&speaker.pod, &parameters);
        let request = request.map_err(|error| Error::of("read", what(), kube::Error::BuildRequest(error)))?;
        self.cluster.client().request_text(request).await.map_err(|error| Error::of("read", what(), error))
    }
}
