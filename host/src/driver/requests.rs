//! Requests of an operator about the release: rollbacks.

use std::sync::Arc;

use barbless_domain::event::{Answer, Failure};
use barbless_domain::release::{ReleaseStatus, history};
use barbless_domain::request::ROLLBACK_TO;
use tokio_util::sync::CancellationToken;

use super::Context;
use super::release::{self, Decisions, cluster_failure};

/// Finds out which revision "the one before the last" is and writes its number into the request. A process that goes on
/// after this one would otherwise count from the revision that the rollback makes.
pub(super) async fn pin_rollback(context: &Context) -> Result<Answer, Failure> {
    let id = &context.instance.id;
    let history = context.services.cluster.release_history(id).await.map_err(cluster_failure)?;
    let known: Vec<history::Revision> = history.iter().map(barbless_cluster::Record::revision).collect();
    let revision = match history::rollback_target(&known, 0) {
        Ok(revision) => revision,
        Err(error) => return Ok(Answer::Refused(Failure::new(error.reason(), error.to_string()).hint(error.hint()))),
    };
    let written = context.services.cluster.replace_annotation(id, ROLLBACK_TO, "0", Some(&revision.to_string())).await;
    // If the request is another one by now, the application is told of that one.
    written.map_err(cluster_failure)?;
    Ok(Answer::Revision(revision))
}

/// Makes the objects those of an earlier revision again.
pub(super) async fn roll_back(
    context: &Arc<Context>,
    revision: u32,
    field_conflicts: &str,
    token: &CancellationToken,
) -> Answer {
    let history = match context.services.cluster.release_history(&context.instance.id).await {
        Ok(history) => history,
        Err(error) => return Answer::Failed(cluster_failure(error)),
    };
    let known: Vec<history::Revision> = history.iter().map(barbless_cluster::Record::revision).collect();
    if let Err(error) = history::rollback_target(&known, revision) {
        return Answer::Refused(Failure::new(error.reason(), error.to_string()).hint(error.hint()));
    }
    // An earlier process did it and ended before it could say so.
    let done =
        |last: &barbless_cluster::Record| last.status == ReleaseStatus::Deployed && last.rollback_of == Some(revision);
    if history.last().is_some_and(done) {
        return Answer::Done;
    }
    let decisions = Decisions { take_over: false, field_conflicts };
    release::roll_back(context, &history, revision, decisions, token).await
}

/// Takes the request off, unless it is another one by now.
pub(super) async fn settle_rollback(context: &Context, revision: u32) -> Result<(), Failure> {
    let id = &context.instance.id;
    let settled = context.services.cluster.replace_annotation(id, ROLLBACK_TO, &revision.to_string(), None).await;
    settled.map(drop).map_err(cluster_failure)
}
