//! What would become of objects: asked of the API server with dry runs, and written nowhere.
//!
//! [`harmless`] makes of a client one through which nothing can be written: every request that is not a reading one says
//! `dryRun=All`, whatever code sends it. All that is foreseen here goes through such a client, and so may everything else
//! that must not change a cluster.

use std::collections::{BTreeMap, BTreeSet};

use barbless_domain::identity::{ApplicationId, ObjectRef};
use barbless_domain::operation::{Operation, OperationResult};
use barbless_domain::release::conflict::{self, Rule, Settled, Settlement, settle};
use barbless_domain::release::{
    DeletePolicy, Directives, HelmHook, HookEvent, Ownership, Plan, ReleaseObject, ResourcePolicy, check_definition,
    defined_by, is_kept,
};
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};
use http::{Method, Request};
use kube::client::Body;
use serde_json::{Value, json};

use crate::Cluster;
use crate::error::Error;
use crate::limits::PARALLEL;
use crate::perform::{Jq, Performed};
use crate::record::{HookIdentity, hook_identity};
use crate::release::{claimed_by, foreign_owner, is_immutable, is_job};
use crate::request::Target;

/// Field manager of what a release applies.
const MANAGER: &str = "barbless";
/// Rounds of settling conflicts: fields that are taken or left may uncover others.
const SETTLE_ROUNDS: usize = 3;

/// A client of the same API server through which nothing can be written: every request that would is sent as a dry run.
#[must_use]
pub fn harmless(client: kube::Client) -> kube::Client {
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request: Request<Body>| {
        let client = client.clone();
        async move { client.send(dry(request).await?).await }
    });
    kube::Client::new(service, namespace)
}

/// The request, as a dry run if it is not a reading one.
async fn dry(request: Request<Body>) -> Result<Request<Body>, kube::Error> {
    let (mut parts, body) = request.into_parts();
    if parts.method == Method::GET || parts.method == Method::HEAD {
        return Ok(Request::from_parts(parts, body));
    }
    let refused = |why: &str| kube::Error::Service(why.into());
    parts.uri = with_dry_run(&parts.uri).ok_or_else(|| refused("the request cannot be made a dry run"))?;
    if parts.method != Method::DELETE {
        return Ok(Request::from_parts(parts, body));
    }
    // The API server reads the options of a deletion from the body, and the query only if there is none.
    let bytes = body.collect_bytes().await?;
    let mut options = match bytes.is_empty() {
        true => json!({"apiVersion": "v1", "kind": "DeleteOptions"}),
        false => serde_json::from_slice(&bytes).map_err(kube::Error::SerdeError)?,
    };
    let map = options.as_object_mut().ok_or_else(|| refused("the options of a deletion are no map"))?;
    map.insert("dryRun".to_owned(), json!(["All"]));
    let body = serde_json::to_vec(&options).map_err(kube::Error::SerdeError)?;
    parts.headers.remove(http::header::CONTENT_LENGTH);
    parts.headers.insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    Ok(Request::from_parts(parts, Body::from(body)))
}

fn with_dry_run(uri: &http::Uri) -> Option<http::Uri> {
    let kept = uri
        .query()
        .unwrap_or_default()
        .split('&')
        .filter(|pair| !pair.is_empty() && pair.split('=').next() != Some("dryRun"));
    let query: Vec<&str> = kept.chain(["dryRun=All"]).collect();
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(format!("{}?{}", uri.path(), query.join("&")).parse().ok()?);
    http::Uri::from_parts(parts).ok()
}

/// What an object is to a release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// The definition of a kind, in `crds/`.
    Definition,
    /// One of its objects.
    Object,
    /// A Helm hook that runs at these moments.
    Hook(Vec<HookEvent>),
    /// The last revision had it, this one has not.
    Dropped,
    /// The same, and its resource policy keeps it.
    Kept,
}

/// What becomes of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outlook {
    /// It is made.
    Created,
    /// It is changed, if what it is before and after says so.
    Applied,
    /// It is deleted and made anew; why.
    Recreated(String),
    /// It is deleted.
    Deleted,
    /// Nothing is done about it; why.
    Left(String),
    /// Other managers have fields that nobody says anything about; see [`Foreseen::fields`].
    Conflict,
    /// It is refused.
    Refused {
        /// Stable reason in PascalCase.
        reason: String,
        /// Why.
        message: String,
    },
    /// It is made or changed, but that could not be tried; why.
    Untried(String),
}

/// A field that another manager has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettledField {
    /// Path of the field.
    pub field: String,
    /// Who has it.
    pub manager: String,
    /// What is done; nothing is said about it if absent.
    pub settlement: Option<Settlement>,
}

/// An object and what becomes of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Foreseen {
    /// The object.
    pub target: ObjectRef,
    /// What it is to the release.
    pub role: Role,
    /// Template that it comes from.
    pub source: String,
    /// What is in the cluster.
    pub before: Option<Value>,
    /// What will be, as the API server says; what was rendered, if it could not be asked.
    pub after: Option<Value>,
    /// What becomes of it.
    pub outlook: Outlook,
    /// Fields of other managers.
    pub fields: Vec<SettledField>,
}

/// What an operation of a hook would do.
#[derive(Debug, Clone, PartialEq)]
pub struct ForeseenOperation {
    /// How it would end.
    pub result: OperationResult,
    /// The object before it.
    pub before: Option<Value>,
    /// The object after it; none if it is deleted.
    pub after: Option<Value>,
}

type Work<'a> = BoxFuture<'a, Result<Foreseen, Error>>;

impl Cluster {
    /// What carrying out a plan would do to each object, in the order of the plan: definitions, hooks, objects, what
    /// goes, what stays. `rules` are those of the operator for fields of other managers. With `take_over`, what hooks of
    /// Helm's release of the same name left is ours.
    ///
    /// # Assumptions
    /// The client of this cluster is [`harmless`].
    ///
    /// # Errors
    /// If the API server does not answer. What it refuses is part of the answer.
    pub async fn foresee_release(&self, plan: &Plan, rules: &[Rule], take_over: bool) -> Result<Vec<Foreseen>, Error> {
        let definitions = plan.definitions.iter().map(|it| &it.object);
        let defined = defined_by(plan.objects().map(|it| &it.object).chain(definitions));
        let identity =
            |it: &ObjectRef| (it.gvk.group.clone(), it.gvk.kind.clone(), it.namespace.clone(), it.name.clone());
        let managed: BTreeSet<_> = plan.previous.iter().map(identity).collect();
        let rules: Vec<Rule> = rules.iter().cloned().chain(conflict::own_rules(&plan.objects)).collect();
        let hooks_of_helm = match take_over {
            true => self.hooks_of_helm(&plan.application).await?,
            false => BTreeSet::new(),
        };
        let look = Look { cluster: self, application: &plan.application, defined, rules, hooks_of_helm };
        let look = &look;

        let mut hooks: BTreeMap<&ObjectRef, (&HelmHook, Vec<HookEvent>)> = BTreeMap::new();
        let mut order = Vec::new();
        for (event, hook) in plan.running_hooks() {
            let entry = hooks.entry(&hook.target).or_insert_with(|| {
                order.push(&hook.target);
                (hook, Vec::new())
            });
            entry.1.push(event);
        }
        let definitions = plan.definitions.iter().map(|it| look.object(it, Role::Definition, false).boxed());
        let hooks = order
            .into_iter()
            .filter_map(|target| hooks.remove(target))
            .map(|(hook, events)| look.hook(hook, events).boxed());
        let objects = plan.objects.iter().map(|it| {
            let managed = managed.contains(&identity(&it.target));
            look.object(it, Role::Object, managed).boxed()
        });
        let prune = plan.prune.iter().map(|target| look.dropped(target).boxed());
        let kept = plan.kept.iter().map(|target| look.kept(target).boxed());
        // Collected before they are polled: the compiler cannot prove that a stream of borrowing closures is `Send`.
        let work: Vec<Work<'_>> = definitions.chain(hooks).chain(objects).chain(prune).chain(kept).collect();
        futures::stream::iter(work).buffered(PARALLEL).try_collect().await
    }

    /// What an operation of a hook would do, by the same code that carries it out.
    ///
    /// # Assumptions
    /// The client of this cluster is [`harmless`].
    pub async fn foresee_operation(
        &self,
        application: &ApplicationId,
        manager: &str,
        operation: &Operation,
        jq: &dyn Jq,
    ) -> ForeseenOperation {
        let Performed { result, before, after } = self.perform_seen(application, manager, operation, jq).await;
        ForeseenOperation { result, before, after }
    }
}

/// What is needed to foresee one object.
struct Look<'a> {
    cluster: &'a Cluster,
    application: &'a ApplicationId,
    /// Kinds that the release defines.
    defined: BTreeSet<(String, String)>,
    rules: Vec<Rule>,
    /// Objects of hooks that become ours.
    hooks_of_helm: BTreeSet<HookIdentity>,
}

/// The live object, or why it cannot be looked at.
enum Live {
    Found(crate::Resource, Value),
    Absent(crate::Resource),
    NotServed,
}

impl Look<'_> {
    async fn live(&self, target: &ObjectRef) -> Result<Live, Error> {
        let resource = match self.cluster.resolve(&target.gvk).await {
            Ok(resource) => resource,
            Err(Error::KindNotServed { .. }) => return Ok(Live::NotServed),
            Err(error) => return Err(error),
        };
        let found = self.cluster.get_in(&Target { resource: &resource, object: target }).await?;
        Ok(match found {
            Some(object) => Live::Found(resource, object),
            None => Live::Absent(resource),
        })
    }

    async fn object(&self, object: &ReleaseObject, role: Role, managed: bool) -> Result<Foreseen, Error> {
        let ReleaseObject { target, object, source } = object;
        let mut seen = Foreseen {
            target: target.clone(),
            role,
            source: source.clone(),
            before: None,
            after: Some(object.clone()),
            outlook: Outlook::Created,
            fields: Vec::new(),
        };
        let (resource, live) = match self.live(target).await? {
            Live::Found(resource, live) => (resource, Some(live)),
            Live::Absent(resource) => (resource, None),
            Live::NotServed if self.is_defined(target) => return Ok(seen),
            Live::NotServed => {
                seen.outlook = refused(&Error::KindNotServed { gvk: target.gvk.clone() });
                return Ok(seen);
            }
        };
        if let Some(live) = &live {
            let owned = seen.role != Role::Definition && Directives::of(object).ownership == Ownership::Release;
            let owner = match owned {
                true => foreign_owner(self.application, target, live, managed),
                false => claimed_by(self.application, target, live),
            };
            if let Some(owner) = owner {
                seen.outlook = not_ours(target, &owner);
                return Ok(seen);
            }
        }
        if let Some(live) = live {
            if seen.role == Role::Definition
                && let Err(error) = check_definition(&live, object)
            {
                let message = format!("{target} is not upgraded: {error}");
                seen.outlook = Outlook::Refused { reason: "UnsafeDefinition".to_owned(), message };
                return Ok(seen);
            }
            seen.before = Some(live);
        }
        if seen.role == Role::Object
            && let Some(outlook) = by_policy(target, object, seen.before.is_some())
        {
            seen.outlook = outlook;
            return Ok(seen);
        }
        let mut object = object.clone();
        if let Some(replicas) = Directives::of(&object).replicas_on_creation
            && let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
        {
            // They are set once; later applies do not name them.
            match seen.before {
                Some(_) => spec.remove("replicas"),
                None => spec.insert("replicas".to_owned(), replicas.into()),
            };
            seen.after = Some(object.clone());
        }
        self.apply(&Target { resource: &resource, object: target }, &object, seen).await
    }

    /// Tries the apply, and settles what other managers have.
    async fn apply(&self, at: &Target<'_>, object: &Value, mut seen: Foreseen) -> Result<Foreseen, Error> {
        let (mut object, mut force) = (object.clone(), false);
        for _ in 0..SETTLE_ROUNDS {
            let error = match self.cluster.apply_in(at, None, MANAGER, force, &object).await {
                Ok(after) => {
                    seen.outlook = if seen.before.is_some() { Outlook::Applied } else { Outlook::Created };
                    // What is made is shown as it was written; what is changed, as the API server will have it.
                    if seen.before.is_some() {
                        seen.after = Some(after);
                    }
                    return Ok(seen);
                }
                Err(error) => error,
            };
            let Some(conflict) = error.field_conflict(at.object) else {
                return self.judge(at.object, error, seen);
            };
            let fields: Vec<&str> = conflict.fields.iter().map(|it| it.field.as_str()).collect();
            let settled = settle(at.object, &object, &fields, &self.rules);
            let open: BTreeSet<usize> = match &settled {
                Settled::Open(open) => open.iter().copied().collect(),
                Settled::Retry { .. } => BTreeSet::new(),
            };
            for (index, field) in conflict.fields.iter().enumerate() {
                let settlement = match &settled {
                    _ if open.contains(&index) => None,
                    _ => self.settlement(at.object, &object, &field.field),
                };
                let field = SettledField { field: field.field.clone(), manager: field.manager.clone(), settlement };
                if !seen.fields.contains(&field) {
                    seen.fields.push(field);
                }
            }
            match settled {
                Settled::Retry { object: next, force: forced } => {
                    object = next;
                    force = force || forced;
                }
                Settled::Open(_) => break,
            }
        }
        seen.outlook = Outlook::Conflict;
        Ok(seen)
    }

    /// What is done about a field that has a rule: the question is put for this field alone.
    fn settlement(&self, target: &ObjectRef, object: &Value, field: &str) -> Option<Settlement> {
        match settle(target, object, &[field], &self.rules) {
            Settled::Retry { force: true, .. } => Some(Settlement::Take),
            Settled::Retry { force: false, .. } => Some(Settlement::Yield),
            Settled::Open(_) => None,
        }
    }

    /// What an apply that failed means.
    fn judge(&self, target: &ObjectRef, error: Error, mut seen: Foreseen) -> Result<Foreseen, Error> {
        seen.outlook = match error {
            error @ Error::Unreachable { .. } => return Err(error),
            error if seen.before.is_some() && is_immutable(&error) => {
                let directives = seen.after.as_ref().map(Directives::of).unwrap_or_default();
                let asked = directives.delete_policies.contains(&DeletePolicy::BeforeCreationIfImmutable);
                let may = seen.role == Role::Object && (asked || is_job(target));
                match may && !directives.resource_policies.contains(&ResourcePolicy::SkipRecreate) {
                    true => Outlook::Recreated("it cannot be changed in this way".to_owned()),
                    false => Outlook::Refused { reason: "ImmutableField".to_owned(), message: error.chain() },
                }
            }
            // A dry run does not make the namespace that an earlier step makes.
            error if seen.before.is_none() && error.code() == Some(404) && !target.namespace.is_empty() => {
                Outlook::Untried(format!("namespace {:?} is not there yet", target.namespace))
            }
            error => refused(&error),
        };
        Ok(seen)
    }

    async fn hook(&self, hook: &HelmHook, events: Vec<HookEvent>) -> Result<Foreseen, Error> {
        let object =
            ReleaseObject { target: hook.target.clone(), object: hook.object.clone(), source: hook.source.clone() };
        let of_helm = self.hooks_of_helm.contains(&hook_identity(&hook.target));
        if !hook.is_made_anew() {
            return self.object(&object, Role::Hook(events), of_helm).await;
        }
        let mut seen = Foreseen {
            target: object.target,
            role: Role::Hook(events),
            source: object.source,
            before: None,
            after: Some(object.object),
            outlook: Outlook::Created,
            fields: Vec::new(),
        };
        match self.live(&hook.target).await? {
            Live::Found(_, live) => {
                if let Some(owner) = foreign_owner(self.application, &hook.target, &live, of_helm) {
                    seen.outlook = not_ours(&hook.target, &owner);
                } else {
                    seen.outlook = Outlook::Recreated("what an earlier run left is deleted first".to_owned());
                }
                seen.before = Some(live);
            }
            Live::NotServed if !self.is_defined(&hook.target) => {
                seen.outlook = refused(&Error::KindNotServed { gvk: hook.target.gvk.clone() });
            }
            Live::Absent(_) | Live::NotServed => {}
        }
        Ok(seen)
    }

    async fn dropped(&self, target: &ObjectRef) -> Result<Foreseen, Error> {
        let mut seen = Foreseen {
            target: target.clone(),
            role: Role::Dropped,
            source: String::new(),
            before: None,
            after: None,
            outlook: Outlook::Deleted,
            fields: Vec::new(),
        };
        let gone = |why: &str| Outlook::Left(why.to_owned());
        match self.live(target).await? {
            Live::Found(_, live) => {
                if let Some(owner) = foreign_owner(self.application, target, &live, true) {
                    seen.outlook = Outlook::Left(format!("it belongs to {owner}"));
                } else if is_kept(&live) {
                    seen.outlook = Outlook::Left("its resource policy keeps it".to_owned());
                }
                seen.before = Some(live);
            }
            Live::Absent(_) => seen.outlook = gone("it is gone already"),
            Live::NotServed => seen.outlook = gone("the cluster no longer serves its kind"),
        }
        Ok(seen)
    }

    async fn kept(&self, target: &ObjectRef) -> Result<Foreseen, Error> {
        let seen = self.dropped(target).await?;
        Ok(Foreseen { role: Role::Kept, outlook: Outlook::Left("its resource policy keeps it".to_owned()), ..seen })
    }

    fn is_defined(&self, target: &ObjectRef) -> bool {
        self.defined.contains(&(target.gvk.group.clone(), target.gvk.kind.clone()))
    }
}

/// What the annotations of an object say about it, whatever the API server would say.
fn by_policy(target: &ObjectRef, object: &Value, exists: bool) -> Option<Outlook> {
    let directives = Directives::of(object);
    let policies = &directives.resource_policies;
    let anew = directives.delete_policies.contains(&DeletePolicy::BeforeHookCreation)
        && !policies.contains(&ResourcePolicy::SkipRecreate)
        && target.gvk.kind != "CustomResourceDefinition";
    let left = |what: &str| Some(Outlook::Left(format!("its resource policy says that it is not {what}")));
    match exists {
        false if policies.contains(&ResourcePolicy::SkipCreate) => left("created"),
        true if policies.contains(&ResourcePolicy::SkipUpdate) => left("changed"),
        true if anew => Some(Outlook::Recreated("its delete policy says so".to_owned())),
        _ => None,
    }
}

fn refused(error: &Error) -> Outlook {
    Outlook::Refused { reason: error.reason().to_owned(), message: error.chain() }
}

fn not_ours(target: &ObjectRef, owner: &str) -> Outlook {
    Outlook::Refused {
        reason: "ObjectNotOwned".to_owned(),
        message: format!("{target} is there already and is not ours: {owner}"),
    }
}
