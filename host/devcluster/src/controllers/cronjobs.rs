//! CronJobs: a Job each time the schedule comes round, and not too many old ones.
//!
//! The clock of the schedules goes as fast as the seconds of the controllers are short, so that a test need not wait for
//! a minute. Of several times that were missed only the last is made up for, as in a real cluster.

use std::{sync::Arc, time::Duration};

use jiff::{Timestamp, tz::TimeZone};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    Context, Next,
    cron::Schedule,
    is_terminating, is_true, reference_to,
    replicas::JOBS,
    work::{Item, Queue, Role},
};
use crate::{
    json::{at, copy, int, list, set, text},
    registry::{DeleteOptions, Propagation},
    status::ApiError,
    store::{Change, Stored},
};

pub(super) const CRON_JOBS: &str = "batch/cronjobs";
const REPORTER: &str = "cronjob-controller";
/// When a CronJob was first seen, from which its times are counted until it has made a Job.
const SEEN: &str = "seen";
const SCHEDULED_AT: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
/// Times that were missed are counted up to this.
const MISSED_MAX: usize = 100;

pub(super) fn enqueue(context: &Context, change: &Change, queue: &mut Queue) {
    if &*change.table == CRON_JOBS && !change.deleted {
        queue.push(Item::of(Role::CronJob, change));
    }
    if &*change.table == JOBS
        && let Some(owner) = super::controller_of(&change.new.value)
        && let Some(((table, key), _)) = context.registry.store.by_uid(text(owner, &["uid"]))
        && &*table == CRON_JOBS
    {
        queue.push(Item { role: Role::CronJob, table, key });
    }
}

/// The clock that schedules go by: it began with the controllers, at the time of the machine.
#[derive(Debug)]
pub(super) struct Clock {
    began: Instant,
    at: Timestamp,
    second: Duration,
}

impl Clock {
    pub(super) fn new(second: Duration) -> Self {
        // A second that takes no time would be all times at once.
        Self { began: Instant::now(), at: Timestamp::now(), second: second.max(Duration::from_micros(100)) }
    }

    /// How much faster it goes than the clock of the machine.
    fn speed(&self) -> f64 {
        1.0 / self.second.as_secs_f64()
    }

    fn read(&self, when: Instant) -> Timestamp {
        let (sign, real) = match when.checked_duration_since(self.began) {
            Some(after) => (1.0, after),
            None => (-1.0, self.began.duration_since(when)),
        };
        let shift = jiff::SignedDuration::try_from_secs_f64(sign * real.as_secs_f64() * self.speed());
        // What is beyond the end of time is as good as never.
        shift.ok().and_then(|shift| self.at.checked_add(shift).ok()).unwrap_or(Timestamp::MAX)
    }

    /// When it will say so; what is past is now.
    fn when(&self, time: Timestamp) -> Instant {
        let ahead = time.duration_since(self.read(Instant::now()));
        let ahead = Duration::try_from(ahead).unwrap_or_default();
        Instant::now() + ahead.mul_f64(self.second.as_secs_f64()).min(Duration::from_secs(24 * 3600))
    }
}

fn rfc3339(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn is_finished(job: &Value) -> bool {
    is_true(job, "Complete") || is_true(job, "Failed")
}

pub(super) fn cron_job(context: &Context, item: &Item) -> Result<Next, ApiError> {
    let Some(stored) = context.get(item).filter(|stored| !is_terminating(&stored.value)) else { return Ok(Next::Done) };
    let jobs = context.controlled(&stored, JOBS);
    drop_old(context, &stored, &jobs, true)?;
    drop_old(context, &stored, &jobs, false)?;
    let mut status = stored.value.get("status").cloned().unwrap_or_else(|| json!({}));
    count_active(context, &stored, &jobs, &mut status)?;
    let next = make_due(context, &stored, &jobs, &mut status);
    // What was made is written down even when what follows failed.
    let next = match next {
        Ok(next) => next,
        Err(error) => {
            context.set_status(&stored, &status)?;
            return Err(error);
        }
    };
    context.set_status(&stored, &status)?;
    Ok(next)
}

/// Brings the Jobs that run, and when the last one went well, up to date.
fn count_active(context: &Context, stored: &Stored, jobs: &[Arc<Stored>], status: &mut Value) -> Result<(), ApiError> {
    let known = list(status, &["active"]).to_vec();
    let mut active = Vec::new();
    for reference in known {
        let uid = text(&reference, &["uid"]);
        match jobs.iter().find(|job| job.uid() == uid) {
            Some(job) if is_finished(&job.value) => {
                let end = if is_true(&job.value, "Complete") { "Complete" } else { "Failed" };
                let name = text(&job.value, &["metadata", "name"]);
                let message = format!("Saw completed job: {name}, condition: {end}");
                context.note(&stored.value, REPORTER, "SawCompletedJob", &message)?;
                let ended = text(&job.value, &["status", "completionTime"]);
                if end == "Complete" && ended > text(status, &["lastSuccessfulTime"]) {
                    set(status, &["lastSuccessfulTime"], json!(ended));
                }
            }
            Some(_) => active.push(reference),
            None => {
                let message = format!("Active job went missing: {}", text(&reference, &["name"]));
                context.note(&stored.value, REPORTER, "MissingJob", &message)?;
            }
        }
    }
    set_active(status, active);
    Ok(())
}

fn set_active(status: &mut Value, active: Vec<Value>) {
    if active.is_empty() {
        crate::json::remove(status, &["active"]);
    } else {
        set(status, &["active"], Value::Array(active));
    }
}

/// Makes the Job that is due, and says when to look again.
fn make_due(context: &Context, stored: &Stored, jobs: &[Arc<Stored>], status: &mut Value) -> Result<Next, ApiError> {
    let object = &stored.value;
    if at(object, &["spec", "suspend"]) == Some(&Value::Bool(true)) {
        return Ok(Next::Done);
    }
    let zone = match text(object, &["spec", "timeZone"]) {
        "" => Some(TimeZone::UTC),
        name => TimeZone::get(name).ok(),
    };
    let Some(zone) = zone else {
        let message = format!("invalid timeZone: {:?}", text(object, &["spec", "timeZone"]));
        context.warn(object, REPORTER, "UnknownTimeZone", &message)?;
        return Ok(Next::Done);
    };
    let written = text(object, &["spec", "schedule"]);
    let Some(schedule) = Schedule::parse(written) else {
        context.warn(object, REPORTER, "UnparseableSchedule", &format!("unparseable schedule: {written:?}"))?;
        return Ok(Next::Done);
    };
    let now = context.schedules.read(Instant::now());
    let seen = context.clocks.began(stored.uid(), SEEN, text(object, &["metadata", "creationTimestamp"]));
    let last = text(status, &["lastScheduleTime"]).parse::<Timestamp>().ok();
    let since = last.unwrap_or_else(|| context.schedules.read(seen));
    let next = |after| match schedule.next(after, &zone) {
        Some(time) => Next::At(context.schedules.when(time)),
        None => Next::Done,
    };
    let deadline = int(object, &["spec", "startingDeadlineSeconds"]).map(jiff::SignedDuration::from_secs);
    let earliest = deadline.and_then(|deadline| now.checked_sub(deadline).ok()).map_or(since, |bound| bound.max(since));
    let missed = std::iter::successors(schedule.next(earliest, &zone), |time| schedule.next(*time, &zone));
    let missed = missed.take_while(|time| *time <= now).take(MISSED_MAX + 1).collect::<Vec<_>>();
    if missed.len() > MISSED_MAX {
        let message = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
        context.warn(object, REPORTER, "TooManyMissedTimes", message)?;
    }
    // Beyond what is counted, the last minute is looked at alone.
    let recent = || {
        let from = now.checked_sub(jiff::SignedDuration::from_secs(60)).ok()?;
        schedule.next(from, &zone).filter(|time| *time <= now)
    };
    let due = if missed.len() > MISSED_MAX { recent().or(missed.last().copied()) } else { missed.last().copied() };
    let Some(due) = due else { return Ok(next(now)) };
    let active = list(status, &["active"]).to_vec();
    let policy = text(object, &["spec", "concurrencyPolicy"]);
    if policy == "Forbid" && !active.is_empty() {
        let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
        context.note(object, REPORTER, "JobAlreadyActive", message)?;
        return Ok(next(now));
    }
    if policy == "Replace" {
        for job in jobs.iter().filter(|job| active.iter().any(|known| text(known, &["uid"]) == job.uid())) {
            delete(context, object, job)?;
        }
        set_active(status, Vec::new());
    }
    let made =
        match context.create("batch/v1", "Job", text(object, &["metadata", "namespace"]), job_of(object, due, &zone)) {
            Ok(made) => made,
            // It was made before this could be written down.
            Err(error) if error.reason == "AlreadyExists" => {
                set(status, &["lastScheduleTime"], json!(rfc3339(due)));
                return Ok(next(now));
            }
            Err(error) => {
                // A namespace that is going, or a template that cannot be: it is told, and the next time is waited for.
                context.warn(object, REPORTER, "FailedCreate", &format!("Error creating job: {error}"))?;
                return Ok(next(now));
            }
        };
    let name = text(&made.value, &["metadata", "name"]);
    context.note(object, REPORTER, "SuccessfulCreate", &format!("Created job {name}"))?;
    let mut active = list(status, &["active"]).to_vec();
    active.push(json!({"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": made.uid(),
        "namespace": text(object, &["metadata", "namespace"]), "resourceVersion": made.revision.to_string()}));
    set_active(status, active);
    set(status, &["lastScheduleTime"], json!(rfc3339(due)));
    Ok(next(now))
}

fn job_of(object: &Value, due: Timestamp, zone: &TimeZone) -> Value {
    let template = at(object, &["spec", "jobTemplate"]).cloned().unwrap_or_default();
    let minute = due.as_second().div_euclid(60);
    let mut job = json!({"metadata": {"name": format!("{}-{minute}", text(object, &["metadata", "name"]))}});
    for part in ["labels", "annotations"] {
        copy(&template, &mut job, &["metadata", part]);
    }
    copy(&template, &mut job, &["spec"]);
    let offset = zone.to_offset(due);
    let local = zone.to_datetime(due).strftime("%Y-%m-%dT%H:%M:%S").to_string();
    let at_local = if offset.is_zero() {
        format!("{local}Z")
    } else {
        format!("{local}{}", due.to_zoned_datetime(zone.clone()).strftime("%:z"))
    };
    set(&mut job, &["metadata", "annotations", SCHEDULED_AT], json!(at_local));
    set(&mut job, &["metadata", "ownerReferences"], json!([reference_to(object)]));
    job
}

fn delete(context: &Context, object: &Value, job: &Stored) -> Result<(), ApiError> {
    let propagation = Some(Propagation::Background);
    context.delete(job, DeleteOptions { propagation, ..DeleteOptions::default() })?;
    let message = format!("Deleted job {}", text(&job.value, &["metadata", "name"]));
    context.note(object, REPORTER, "SuccessfulDelete", &message)
}

/// Deletes the oldest Jobs that ended like this, beyond those that are kept.
fn drop_old(context: &Context, stored: &Stored, jobs: &[Arc<Stored>], good: bool) -> Result<(), ApiError> {
    let (field, fallback, end) =
        if good { ("successfulJobsHistoryLimit", 3, "Complete") } else { ("failedJobsHistoryLimit", 1, "Failed") };
    let kept = int(&stored.value, &["spec", field]).unwrap_or(fallback);
    let ended = jobs.iter().filter(|job| is_true(&job.value, end) && !is_terminating(&job.value));
    let mut ended = ended.collect::<Vec<_>>();
    let part = |job: &Stored, path: &[&str]| text(&job.value, path).to_owned();
    ended.sort_by_cached_key(|job| (part(job, &["status", "startTime"]), part(job, &["metadata", "name"])));
    let surplus = ended.len().saturating_sub(usize::try_from(kept).unwrap_or_default());
    ended.into_iter().take(surplus).try_for_each(|job| delete(context, &stored.value, job))
}
