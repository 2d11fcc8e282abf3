//! `barbless plan`: what installing or upgrading a package would do, without doing it.
//!
//! The package is loaded, configured and its hooks run as the host does it (`driver::rehearsal`), but through a client
//! that cannot write; what comes of it is compared with the cluster and printed. A plan is a document ([`Document`]) in
//! which nothing is secret.

use std::io::IsTerminal as _;
use std::sync::Arc;

use barbless_cluster::{Cluster, Foreseen, Outlook, Record, Role, harmless};
use barbless_domain::event::{Desired, Failure};
use barbless_domain::identity::{ApplicationId, ObjectRef};
use barbless_domain::operation::{Action, Operation, OperationResult, Subresource};
use barbless_domain::queue::Time;
use barbless_domain::release::conflict::{Rule, Settlement};
use barbless_domain::release::upgrade_needed;
use barbless_domain::request::FIELD_CONFLICTS;
use barbless_domain::requirement::{Platform, parse_version};
use barbless_sandbox::Sandbox;
use serde_json::Value;
use tokio::sync::{broadcast, watch};

use crate::app;
use crate::cli::{Output, Plan as Args};
use crate::dev;
use crate::driver::instance::{Bundles, Grants};
use crate::driver::rehearsal::{Fate, Planned, Rehearsal, RehearsedRun, rehearse};
use crate::driver::{self, Instance, Seed, Services};
use crate::metrics::Metrics;
use crate::notice::{Notice, Notices};
use crate::report::{Exit, Report};
use crate::runs::RunLog;
use crate::ui::Ui;

mod against;
pub(crate) mod difference;
mod document;
pub(crate) mod secrets;
mod steps;
mod text;

pub use difference::Difference;
pub use document::{Change, Document, FieldPart, HookLater, HookPart, ObjectPart, OperationPart, ProblemPart, Summary};
pub use steps::StepPart;

use difference::Budget;
use secrets::Secrets;

/// Lines of the log of one hook.
const LOG_LINES_MAX: usize = 50;

/// What is to be planned.
pub struct Wish {
    /// The application.
    pub id: ApplicationId,
    /// Name of its package.
    pub package: String,
    /// Version of its package.
    pub version: String,
    /// Where its bundle comes from.
    pub bundles: Arc<dyn Bundles>,
    /// What its hooks may do.
    pub grants: Grants,
    /// `spec.settings`.
    pub settings: Value,
    /// `spec.maintenance`.
    pub maintenance: bool,
    /// What Helm installed under the same name is taken over.
    pub take_over: bool,
    /// What the operator says about fields of other managers.
    pub rules: Vec<Rule>,
    /// Leave Helm hooks out.
    pub skip_helm_hooks: bool,
    /// Show secrets.
    pub show_secrets: bool,
    /// The moment that hooks and templates see.
    pub now: Time,
    /// The cluster, in words.
    pub cluster: String,
}

impl std::fmt::Debug for Wish {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wish").field("id", &self.id).field("version", &self.version).finish_non_exhaustive()
    }
}

/// Runs the command.
///
/// # Errors
/// A report for the user, if there is no plan or something stands in its way.
pub async fn command(args: &Args) -> Result<Exit, Report> {
    let planned = tokio::time::timeout(args.timeout, Box::pin(made(args))).await;
    let document = planned.unwrap_or_else(|_| {
        let message = format!("the plan was not made within {:?}", args.timeout);
        Err(Report::new("TimedOut", message).hint("give more time with --timeout").exit(Exit::TimedOut))
    })?;
    let text = match args.output {
        Output::Json => serde_json::to_string_pretty(&document)
            .map(|text| text + "\n")
            .map_err(|error| Report::new("InternalError", format!("writing JSON: {error}")))?,
        Output::Yaml => app::yaml(&document)?,
        Output::Table => text::print(&document, coloured()),
    };
    app::print(&text)?;
    match document.problems.first() {
        None => Ok(document.exit()),
        Some(problem) => Err(Report {
            code: problem.reason.clone(),
            message: problem.message.clone(),
            place: None,
            hint: problem.hint.clone(),
            exit: document.exit(),
        }),
    }
}

/// Colours are for a terminal whose user did not refuse them.
pub(crate) fn coloured() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

async fn made(args: &Args) -> Result<Document, Report> {
    // What costs nothing is checked before hooks are built.
    let script = dev::script(&args.package, args.settings.as_deref())?;
    let manifest = dev::manifest(&args.package)?;
    let grants = dev::grants(args.grants.as_deref())?;
    let name = args.name.clone().unwrap_or_else(|| dev::default_name(&manifest.name));
    let id = dev::identity(&args.namespace, &name)?;
    dev::build_hooks(&args.package, &Ui::new(true))?;
    let ground = against::open(args, &id, (&manifest.name, &manifest.version.to_string()), script).await?;
    let sandbox = app::sandbox(app::default_cache())?;
    let wish = Wish {
        id,
        package: manifest.name.clone(),
        version: manifest.version.to_string(),
        bundles: Arc::new(crate::bundle::Folder::new(&args.package)),
        grants,
        settings: ground.settings.clone(),
        maintenance: ground.maintenance,
        take_over: ground.take_over,
        rules: ground.rules.clone(),
        skip_helm_hooks: args.no_hooks,
        show_secrets: args.show_secrets,
        now: args.now.unwrap_or_else(driver::now),
        cluster: ground.words.clone(),
    };
    let document = foresee(ground.client.clone(), sandbox, &wish).await;
    ground.close().await;
    document
}

/// Makes a plan. Nothing is written through the client, whatever the package wants.
///
/// # Errors
/// If the package or its settings are bad, or the API server does not answer. What goes wrong once hooks have run is a
/// problem in the plan.
pub async fn foresee(client: kube::Client, sandbox: Sandbox, wish: &Wish) -> Result<Document, Report> {
    let cluster = Cluster::new(harmless(client));
    let failed = |error: barbless_cluster::Error| Report::new(error.reason(), error.chain());
    let kubernetes_version = parse_version(&cluster.version().await.map_err(failed)?).ok();
    let (_platform, facts) = watch::channel(Platform { kubernetes_version, ..Platform::default() });
    let notices = Notices::default();
    let mut told = notices.subscribe();
    let services = Arc::new(Services {
        cluster: cluster.clone(),
        sandbox,
        runs: RunLog::in_memory(),
        notices,
        metrics: Metrics::default(),
        owner: format!("plan-{}-{}", std::process::id(), driver::now().0),
        platform: facts,
    });
    let desired = Desired {
        generation: 1,
        version: wish.version.clone(),
        settings: wish.settings.clone(),
        maintenance: wish.maintenance,
        take_over: wish.take_over,
        ..Desired::default()
    };
    let mut instance = Instance::new(wish.id.clone(), Arc::clone(&wish.bundles), wish.grants.clone());
    instance.skip_helm_hooks = wish.skip_helm_hooks;
    // The same plan for the same input; the release itself will have a seed that nobody knows.
    instance.known_seed = Some(Seed::of(&instance.id));
    instance.moment = Some(wish.now);
    let mut rehearsal = Box::pin(rehearse(services, instance, desired)).await;
    // Without a run there is nothing to show but the failure.
    if rehearsal.planned.is_none() && rehearsal.runs.is_empty() {
        let failure = rehearsal.failure.take();
        return Err(failure.unwrap_or_else(|| Failure::new("InternalError", "the plan came to nothing")).into());
    }
    let foreseen = match &rehearsal.planned {
        Some(planned) => cluster.foresee_release(&planned.plan, &wish.rules, wish.take_over).await.map_err(failed)?,
        None => Vec::new(),
    };
    let mut warnings = Vec::new();
    loop {
        match told.try_recv() {
            Ok((_, Notice::Progress { text })) => warnings.push(text),
            Ok(_) | Err(broadcast::error::TryRecvError::Lagged(_)) => {}
            Err(_) => break,
        }
    }
    Ok(Writer::new(wish, &rehearsal, &foreseen).document(wish, &rehearsal, &foreseen, &warnings))
}

/// Writes the document: everything goes through the masks first.
struct Writer {
    secrets: Secrets,
    budget: Budget,
}

impl Writer {
    fn new(wish: &Wish, rehearsal: &Rehearsal, foreseen: &[Foreseen]) -> Self {
        if wish.show_secrets {
            return Self { secrets: Secrets::shown(), budget: Budget::default() };
        }
        let mut objects: Vec<&Value> = Vec::new();
        objects.extend(foreseen.iter().flat_map(|it| [&it.before, &it.after]).flatten());
        if let Some(planned) = &rehearsal.planned {
            let plan = &planned.plan;
            objects.extend(plan.objects.iter().map(|it| &it.object));
            objects.extend(plan.hooks.values().flatten().map(|it| &it.object));
            objects.extend(planned.last.iter().flat_map(|last| &last.objects).map(|it| &it.object));
        }
        let mut documents: Vec<&Value> = vec![&rehearsal.values, &rehearsal.settings];
        for run in &rehearsal.runs {
            documents.extend([&*run.before, &*run.after]);
            for (operation, fate) in &run.operations {
                objects.extend(object_of(operation));
                if let Fate::Foreseen(foreseen) = fate {
                    objects.extend([&foreseen.before, &foreseen.after].into_iter().flatten());
                }
            }
        }
        documents.extend(rehearsal.planned.iter().filter_map(|it| it.last.as_ref()).map(|last| &last.settings));
        let told = rehearsal.runs.iter().flat_map(|run| &run.told);
        Self { secrets: Secrets::of(objects, documents).with(told), budget: Budget::default() }
    }

    fn document(mut self, wish: &Wish, rehearsal: &Rehearsal, foreseen: &[Foreseen], warnings: &[String]) -> Document {
        let planned = rehearsal.planned.as_ref();
        let last = planned.and_then(|planned| planned.last.as_ref());
        let applies = rehearsal.applies;
        let needed = planned.and_then(|Planned { plan, last, missing, .. }| {
            let last = last.as_ref().map(|last| (last.status, last.digest.as_str()));
            upgrade_needed(last, &plan.digest, missing)
        });
        let reason = match needed {
            Some(reason) => Some(reason.to_string()).filter(|_| applies),
            // The host knows of one more reason than manifests and objects.
            None => applies.then(|| "the mark of maintenance changes".to_owned()),
        };
        let from = last.map(|last| last.revision);
        let to = applies.then(|| from.map_or(1, |from| from.saturating_add(1)));
        let settings = match last {
            Some(last) => self.documents(Some(&last.settings), Some(&rehearsal.settings)),
            None => Difference::default(),
        };
        let hooks: Vec<HookPart> = rehearsal.runs.iter().map(|run| self.run(run)).collect();
        let later = |hook: &String| HookLater { hook: hook.clone(), trigger: "afterHelm".to_owned() };
        let objects: Vec<ObjectPart> = foreseen
            .iter()
            // Hooks run, and dropped objects go, only with an apply.
            .filter(|one| applies || matches!(one.role, Role::Definition | Role::Object))
            .map(|one| self.object(one, last, applies))
            .collect();
        let plan = planned.map(|planned| &*planned.plan).filter(|_| applies);
        let mut notes: Vec<String> = warnings.iter().map(|text| self.secrets.mask_text(text)).collect();
        notes.extend(planned.into_iter().flat_map(|it| &it.plan.notes).map(|note| self.secrets.mask_text(note)));
        let mut problems = self.problems(rehearsal, &objects);
        if let Some(failure) = &rehearsal.failure {
            let problem = self.problem(failure);
            if !problems.contains(&problem) {
                problems.push(problem);
            }
        }
        let mut document = Document {
            application: wish.id.to_string(),
            package: wish.package.clone(),
            version: wish.version.clone(),
            cluster: wish.cluster.clone(),
            action: plan.map_or("none", |plan| plan.action.as_str()).to_owned(),
            revision: document::Revision { from, to: to.filter(|_| plan.is_some()) },
            reason,
            settings,
            hooks,
            hooks_later: plan.map(|_| rehearsal.after.iter().map(later).collect()).unwrap_or_default(),
            steps: plan.map(steps::steps).unwrap_or_default(),
            stages: plan.map(steps::stages).unwrap_or_default(),
            objects,
            notes,
            problems,
            summary: Summary::default(),
        };
        document.summary = document.count();
        document
    }

    fn documents(&mut self, before: Option<&Value>, after: Option<&Value>) -> Difference {
        let (before, after) = self.secrets.mask_documents(before, after);
        difference::of(before.as_ref(), after.as_ref(), &mut self.budget)
    }

    fn objects(&mut self, before: Option<&Value>, after: Option<&Value>) -> Difference {
        let (before, after) = self.secrets.mask_objects(before, after);
        difference::of(before.as_ref(), after.as_ref(), &mut self.budget)
    }

    fn problem(&self, failure: &Failure) -> ProblemPart {
        let exit = Report::from(failure.clone()).exit;
        ProblemPart {
            reason: failure.reason.clone(),
            message: self.secrets.mask_text(&failure.message),
            hint: failure.hint.as_deref().map(|hint| self.secrets.mask_text(hint)),
            denied: exit == Exit::Denied,
        }
    }

    /// Everything that would stop the host, in the order in which it would meet it.
    fn problems(&self, rehearsal: &Rehearsal, objects: &[ObjectPart]) -> Vec<ProblemPart> {
        let mut problems = Vec::new();
        for run in &rehearsal.runs {
            problems.extend(run.failure.iter().map(|failure| self.problem(failure)));
            for (operation, fate) in &run.operations {
                let at = |message: &str| format!("hook '{}': {message}", run.hook);
                match fate {
                    Fate::Denied(failure) => {
                        let problem = self.problem(failure);
                        problems.push(ProblemPart { message: at(&problem.message), ..problem });
                    }
                    Fate::Foreseen(foreseen) => {
                        if let OperationResult::Failed { reason, message } = &foreseen.result {
                            let failure = Failure::new(reason, at(&format!("{operation}: {message}")));
                            problems.push(self.problem(&failure));
                        }
                    }
                    Fate::AfterAnother => {}
                }
            }
        }
        for object in objects {
            match object.change {
                Change::Refused => {
                    let message = object.notes.join(": ");
                    let reason = object.reason.clone().unwrap_or_default();
                    problems.push(ProblemPart { reason, message, hint: None, denied: false });
                }
                Change::Conflict => {
                    let fields: Vec<String> = object
                        .fields
                        .iter()
                        .filter(|field| field.settlement == "open")
                        .map(|it| format!("field {} belongs to manager {:?}", it.field, it.manager))
                        .collect();
                    problems.push(ProblemPart {
                        reason: "FieldConflict".to_owned(),
                        message: format!("{}: {}", object.target, fields.join(", ")),
                        hint: Some(format!(
                            "leave the fields to it with annotation {} on the object, or take them with annotation {} \
                             on the Application",
                            barbless_domain::release::YIELD_ANNOTATION,
                            FIELD_CONFLICTS
                        )),
                        denied: false,
                    });
                }
                _ => {}
            }
        }
        problems
    }

    fn run(&mut self, run: &RehearsedRun) -> HookPart {
        let RehearsedRun { hook, trigger, failure, log, before, after, operations, told: _ } = run;
        let mut lines: Vec<String> =
            log.iter().take(LOG_LINES_MAX).map(|line| self.secrets.mask_text(&line.to_string())).collect();
        if log.len() > LOG_LINES_MAX {
            lines.push(format!("… {} more lines", log.len() - LOG_LINES_MAX));
        }
        HookPart {
            hook: hook.clone(),
            trigger: trigger.as_str().to_owned(),
            failure: failure.as_ref().map(|failure| self.problem(failure)),
            log: lines,
            values: self.documents(Some(before), Some(after)),
            operations: operations.iter().map(|(operation, fate)| self.operation(operation, fate)).collect(),
        }
    }

    fn operation(&mut self, operation: &Operation, fate: &Fate) -> OperationPart {
        let mut object = ObjectPart {
            target: operation.target.clone(),
            change: Change::Refused,
            source: String::new(),
            events: Vec::new(),
            reason: None,
            notes: Vec::new(),
            fields: Vec::new(),
            difference: Difference::default(),
        };
        let mut denied = None;
        match fate {
            Fate::Denied(failure) => denied = Some(self.problem(failure)),
            Fate::AfterAnother => {
                object.change = Change::Unknown;
                object.notes.push("an operation before it changes the same object".to_owned());
            }
            Fate::Foreseen(foreseen) => match &foreseen.result {
                OperationResult::Failed { reason, message } => {
                    object.reason = Some(reason.clone());
                    object.notes.push(self.secrets.mask_text(message));
                }
                OperationResult::Done | OperationResult::Unchanged | OperationResult::Skipped => {
                    let of = |object: &Option<Value>| object.as_ref().map(|it| part_of(operation, it));
                    let (before, after) = (of(&foreseen.before), of(&foreseen.after));
                    object.change = match (&before, &after) {
                        (None, None) => Change::Unchanged,
                        (None, Some(_)) => Change::Create,
                        (Some(_), None) => Change::Delete,
                        (Some(before), Some(after)) if before == after => Change::Unchanged,
                        (Some(_), Some(_)) => Change::Change,
                    };
                    if object.change != Change::Delete {
                        object.difference = self.objects(before.as_ref(), after.as_ref());
                    }
                }
            },
        }
        OperationPart { operation: operation.to_string(), denied, object }
    }

    fn object(&mut self, foreseen: &Foreseen, last: Option<&Record>, applies: bool) -> ObjectPart {
        let Foreseen { target, role, source, before, after, outlook, fields } = foreseen;
        let (mut reason, mut notes) = (None, Vec::new());
        let clean = |object: &Option<Value>| object.as_ref().map(difference::without_traces);
        let (mut before, after) = (clean(before), clean(after));
        let mut shown = true;
        let change = match outlook {
            Outlook::Created => Change::Create,
            Outlook::Applied if before == after => Change::Unchanged,
            Outlook::Applied => Change::Change,
            Outlook::Recreated(why) => {
                notes.push(why.clone());
                // The API server will not say what it makes of it: what was rendered last is compared.
                before = last.and_then(|last| rendered_last(last, target)).map(difference::without_traces);
                shown = before.is_some();
                Change::Recreate
            }
            Outlook::Deleted => Change::Delete,
            Outlook::Left(why) => {
                notes.push(why.clone());
                shown = false;
                if *role == Role::Kept { Change::Keep } else { Change::Left }
            }
            Outlook::Conflict => {
                shown = false;
                Change::Conflict
            }
            Outlook::Refused { reason: code, message } => {
                reason = Some(code.clone());
                notes.push(self.secrets.mask_text(message));
                shown = false;
                Change::Refused
            }
            Outlook::Untried(why) => {
                notes.push(why.clone());
                Change::Create
            }
        };
        let change = match change {
            Change::Create if !applies => {
                notes = vec!["it is gone, and it may be".to_owned()];
                shown = false;
                Change::Left
            }
            Change::Change | Change::Recreate | Change::Conflict | Change::Refused if !applies => {
                notes =
                    vec!["somebody changed it; nothing is applied as long as the manifests stay the same".to_owned()];
                Change::Left
            }
            change => change,
        };
        let settled = |settlement: Option<Settlement>| match settlement {
            Some(Settlement::Take) => "taken",
            Some(Settlement::Yield) => "left",
            None => "open",
        };
        let difference = match change {
            Change::Delete | Change::Unchanged | Change::Keep => Difference::default(),
            _ if shown => self.objects(before.as_ref(), after.as_ref()),
            _ => Difference::default(),
        };
        ObjectPart {
            target: target.clone(),
            change,
            source: source.clone(),
            events: match role {
                Role::Hook(events) => events.clone(),
                _ => Vec::new(),
            },
            reason,
            notes,
            fields: fields
                .iter()
                .map(|it| FieldPart {
                    field: it.field.clone(),
                    manager: it.manager.clone(),
                    settlement: settled(it.settlement),
                })
                .collect(),
            difference,
        }
    }
}

/// What the last revision rendered of an object.
fn rendered_last<'a>(last: &'a Record, target: &ObjectRef) -> Option<&'a Value> {
    last.objects.iter().find(|it| it.target == *target).map(|it| &it.object)
}

/// The object that an operation brings.
fn object_of(operation: &Operation) -> Option<&Value> {
    match &operation.action {
        Action::Create { object }
        | Action::CreateIfNotExists { object }
        | Action::CreateOrUpdate { object }
        | Action::Apply { object } => Some(object),
        Action::MergePatch { .. } | Action::JsonPatch { .. } | Action::JqPatch { .. } | Action::Delete { .. } => None,
    }
}

/// The part of an object that an operation is about.
fn part_of(operation: &Operation, object: &Value) -> Value {
    match operation.subresource {
        Some(Subresource::Status) => object.get("status").cloned().unwrap_or_default(),
        Some(Subresource::Scale) | None => difference::without_traces(object),
    }
}
