//! Carries out a plan together with the record of the release: looked at first, begun, kept alive, told of each hook, and
//! ended, whatever happens.

use barbless_domain::identity::{ApplicationId, ObjectRef};
use barbless_domain::release::{Plan, ReleaseStatus, history};
use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};

use super::executor::{Applied, Prepared, Removed};
use super::{ReleaseError, ReleaseOptions};
use crate::Cluster;
use crate::record::{HEARTBEAT, HookPhase, NewRevision, Record, RecordError};

/// Moments that nobody has written down yet. Hooks follow each other, so there are never more than a few.
const MOMENTS: usize = 16;

/// What the record is told of while a plan is carried out.
pub(super) enum Moment {
    /// A hook is about to begin; it does once this is answered.
    HookBegins(ObjectRef, oneshot::Sender<()>),
    /// A hook has ended.
    HookEnds(ObjectRef, HookPhase),
    /// The first object is about to be removed: the hooks before have allowed it.
    RemovalBegins(oneshot::Sender<()>),
}

/// Tells the record; a plan that is carried out without one tells nobody.
#[derive(Clone, Default)]
pub(super) struct Chronicle(Option<mpsc::Sender<Moment>>);

impl Chronicle {
    /// Tells of a moment and waits until it is written down. If it cannot be, the operation is cancelled meanwhile.
    pub(super) async fn write(&self, moment: impl FnOnce(oneshot::Sender<()>) -> Moment) {
        let Some(sender) = &self.0 else { return };
        let (written, answer) = oneshot::channel();
        if sender.send(moment(written)).await.is_ok() {
            let _ = answer.await;
        }
    }

    /// Tells how a hook ended. It is written down with what comes next.
    pub(super) fn hook_ended(&self, hook: &ObjectRef, phase: HookPhase) {
        if let Some(sender) = &self.0 {
            let _ = sender.try_send(Moment::HookEnds(hook.clone(), phase));
        }
    }
}

/// Why a release could not be deployed or removed.
#[derive(Debug, thiserror::Error)]
pub enum DeployError {
    /// Its record forbids it, or cannot be read or written.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The plan could not be carried out.
    #[error(transparent)]
    Release(#[from] ReleaseError),
}

impl DeployError {
    /// Stable reason in PascalCase.
    #[must_use]
    pub fn reason(&self) -> &str {
        match self {
            Self::Record(error) => error.reason(),
            Self::Release(error) => error.reason(),
        }
    }

    /// What a user can do.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Record(error) => error.hint(),
            Self::Release(error) => error.hint(),
        }
    }

    /// The message with those of its sources.
    #[must_use]
    pub fn chain(&self) -> String {
        crate::error::chain(self)
    }

    /// Whether somebody stopped it, and nothing is wrong.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        matches!(self, Self::Release(ReleaseError::Cancelled))
    }
}

/// The record that an operation keeps.
struct Kept<'a> {
    record: &'a mut Record,
    /// The process that takes the record once objects are removed.
    owner: &'a str,
    /// The fields that Helm has become ours first.
    take_over: bool,
}

/// How a removal treats the history of the release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterRemoval {
    /// It goes too.
    Forget,
    /// It stays, and the last revision says that the release was removed.
    KeepHistory,
}

impl Cluster {
    /// Deploys a plan as a new revision. Ownership of all objects, the state of the release and the size of its record are
    /// looked at before anything is written.
    ///
    /// # Guarantees
    /// The record is written before each hook begins. However the operation ends, short of the end of the process, the
    /// revision is then deployed or failed; after the end of the process it counts as failed once its signs of life are
    /// old.
    ///
    /// # Errors
    /// See [`DeployError`].
    pub async fn deploy(
        &self,
        application: &ApplicationId,
        revision: NewRevision<'_>,
        options: &ReleaseOptions,
    ) -> Result<Applied, DeployError> {
        let (plan, take_over) = (revision.plan, revision.take_over);
        let prepared = match Box::pin(self.prepare(plan, options, take_over)).await {
            // Objects of Helm are most likely those of its release: that is the thing to say.
            Err(ReleaseError::NotOurs { objects }) if !take_over => {
                let theirs = self.helm_release(application).await.map_err(RecordError::from)?;
                return Err(match theirs.and_then(|release| Some(release.records.last()?.revision)) {
                    Some(revision) => RecordError::BelongsToHelm { application: application.clone(), revision }.into(),
                    None => ReleaseError::NotOurs { objects }.into(),
                });
            }
            prepared => prepared?,
        };
        let mut record = self.begin_release(application, revision).await?;
        let kept = Kept { record: &mut record, owner: "", take_over };
        let result = self.keep(kept, plan, prepared, options).await?;
        let (status, description) = match &result {
            Ok(_) => (ReleaseStatus::Deployed, "applied".to_owned()),
            Err(error) => (ReleaseStatus::Failed, error.chain()),
        };
        self.finish_release(&mut record, status, &description, Timestamp::now()).await?;
        Ok(result?)
    }

    /// Removes a release: the plan of a removal of its last revision. The revision counts as being removed once the hooks
    /// before have allowed it, and not before.
    ///
    /// # Errors
    /// See [`DeployError`].
    pub async fn remove_release(
        &self,
        plan: &Plan,
        record: &mut Record,
        owner: &str,
        after: AfterRemoval,
        options: &ReleaseOptions,
    ) -> Result<Removed, DeployError> {
        let application = plan.application.clone();
        let revision = record.revision();
        history::may_remove(std::slice::from_ref(&revision), owner, Timestamp::now())
            .map_err(|refusal| RecordError::Refused { application: application.clone(), refusal })?;
        let prepared = Box::pin(self.prepare(plan, options, false)).await?;
        let kept = Kept { record, owner, take_over: false };
        let applied = self.keep(kept, plan, prepared, options).await??;
        match after {
            AfterRemoval::Forget => self.delete_releases(&application).await.map_err(RecordError::from)?,
            AfterRemoval::KeepHistory => self.mark_uninstalled(record, "removed", Timestamp::now()).await?,
        }
        Ok(Removed { deleted: applied.pruned, left: applied.left })
    }

    /// Runs the tests of the last revision, and notes in its record how they ended.
    ///
    /// # Errors
    /// See [`DeployError`].
    pub async fn test_release(
        &self,
        plan: &Plan,
        record: &mut Record,
        options: &ReleaseOptions,
    ) -> Result<Applied, DeployError> {
        let prepared = Box::pin(self.prepare(plan, options, false)).await?;
        let kept = Kept { record, owner: "", take_over: false };
        let result = self.keep(kept, plan, prepared, options).await?;
        let (status, description) = (record.status, record.description.clone());
        self.finish_release(record, status, &description, Timestamp::now()).await?;
        Ok(result?)
    }

    /// Gives our manager the fields that Helm has of the objects of a plan, and makes ours what Helm's hooks left.
    async fn adopt(&self, plan: &Plan, manager: &str) -> Result<(), crate::error::Error> {
        for object in &plan.objects {
            match self.adopt_fields(&object.target, &["helm"], manager).await {
                Ok(_) | Err(crate::error::Error::KindNotServed { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.adopt_hooks(plan, manager).await
    }

    /// Carries a plan out while the record gives signs of life and is told of hooks. Says how the plan ended.
    ///
    /// # Errors
    /// If the record is somebody else's by now, or cannot be written: the work is stopped then.
    async fn keep(
        &self,
        kept: Kept<'_>,
        plan: &Plan,
        prepared: Prepared,
        options: &ReleaseOptions,
    ) -> Result<Result<Applied, ReleaseError>, RecordError> {
        let Kept { record, owner, take_over } = kept;
        let stop = options.cancel.child_token();
        let options = ReleaseOptions { cancel: stop.clone(), ..options.clone() };
        let (told, mut moments) = mpsc::channel(MOMENTS);
        let work = async {
            if take_over {
                self.adopt(plan, &options.manager).await?;
            }
            self.carry_out_prepared(plan, &options, prepared, Chronicle(Some(told))).await
        };
        let mut broken = None;
        let mut work = std::pin::pin!(work);
        let result = loop {
            let written = tokio::select! {
                biased;
                Some(moment) = moments.recv() => self.note(record, owner, moment).await,
                result = &mut work => break result,
                () = tokio::time::sleep(HEARTBEAT), if record.owner.is_some() => {
                    match self.release_heartbeat(record, Timestamp::now()).await {
                        // A missed sign of life is made up for by the next.
                        Err(RecordError::Request(error)) => {
                            tracing::warn!(application = %record.application, error = error.chain(), "no sign of life");
                            Ok(())
                        }
                        beaten => beaten,
                    }
                }
            };
            if let Err(error) = written {
                stop.cancel();
                broken.get_or_insert(error);
            }
        };
        // What was told last is in the record before it is ended.
        while let Ok(moment) = moments.try_recv() {
            if let Moment::HookEnds(hook, phase) = moment {
                record.hook_ended(&hook, phase, Timestamp::now());
            }
        }
        broken.map_or(Ok(result), Err)
    }

    async fn note(&self, record: &mut Record, owner: &str, moment: Moment) -> Result<(), RecordError> {
        let now = Timestamp::now();
        match moment {
            Moment::HookBegins(hook, written) => {
                self.hook_started(record, &hook, now).await?;
                let _ = written.send(());
            }
            Moment::HookEnds(hook, phase) => record.hook_ended(&hook, phase, now),
            Moment::RemovalBegins(written) => {
                self.mark_uninstalling(record, owner, now).await?;
                let _ = written.send(());
            }
        }
        Ok(())
    }
}
