//! Release records on a development cluster that listens, for a test that reads them with real Helm.
//!
//! Prints the address of the cluster as a line of JSON, then answers one line of JSON for each line of JSON that it reads:
//! `{"ok": …}` or `{"error": {"reason": …, "message": …, "hint": …}}`. Each request has `do`, one of the functions below,
//! and the fields that it needs. It ends with its input.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, Write as _};

use anyhow::{Context as _, Result};
use barbless_cluster::{Cluster, HookPhase, NewRevision, Record, RecordError, helm_marks};
use barbless_devcluster::{Config, DevCluster};
use barbless_domain::grant::Scope;
use barbless_domain::identity::{ApplicationId, Gvk, ObjectRef};
use barbless_domain::release::history::{self, Action};
use barbless_domain::release::{InventoryItem, Plan, PlanInput, ReleaseAction, ReleaseStatus, Rendered, plan};
use barbless_domain::values::Patches;
use jiff::Timestamp;
use serde_json::{Value, json};

const OWNER: &str = "helm-records";
const MANAGER: &str = "barbless";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let devcluster = DevCluster::start(Config::default()).await?;
    let server = devcluster.serve(([127, 0, 0, 1], 0).into()).await?;
    let address = format!("http://{}", server.local_addr());
    let service = tower::ServiceBuilder::new()
        .map_request(|request: http::Request<kube::client::Body>| request.map(axum::body::Body::new))
        .service(devcluster.router());
    let mut session = Session { cluster: Cluster::new(kube::Client::new(service, "default")), record: None };
    say(&json!({"server": address, "kubeconfig": DevCluster::kubeconfig(&address)}))?;
    let (lines, mut requests) = tokio::sync::mpsc::channel(1);
    // Reading the input blocks; the cluster goes on meanwhile.
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if lines.blocking_send(line).is_err() {
                break;
            }
        }
    });
    while let Some(line) = requests.recv().await {
        let request: Value = serde_json::from_str(&line).context("a request is no JSON")?;
        let answer = match session.answer(&request).await {
            Ok(answer) => json!({"ok": answer}),
            Err(error) => json!({"error": told(&error)}),
        };
        say(&answer)?;
    }
    server.shutdown().await;
    Ok(())
}

fn say(answer: &Value) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{answer}")?;
    Ok(out.flush()?)
}

fn told(error: &anyhow::Error) -> Value {
    match error.downcast_ref::<RecordError>() {
        Some(error) => json!({"reason": error.reason(), "message": error.chain(), "hint": error.hint()}),
        None => json!({"reason": "Other", "message": format!("{error:#}")}),
    }
}

struct Session {
    cluster: Cluster,
    /// The revision that is under way, or was last.
    record: Option<Record>,
}

impl Session {
    async fn answer(&mut self, request: &Value) -> Result<Value> {
        let id = ApplicationId::new(text(request, "namespace")?, text(request, "name")?)?;
        match text(request, "do")? {
            "begin" => self.begin(&id, request).await,
            "hook" => self.hook(request).await,
            "finish" => {
                let status: ReleaseStatus = serde_json::from_value(request["status"].clone())?;
                let record = self.record.as_mut().context("nothing was begun")?;
                let description = text(request, "description")?;
                self.cluster.finish_release(record, status, description, Timestamp::now()).await?;
                Ok(view(record))
            }
            "uninstalling" => {
                let record = self.record.as_mut().context("nothing was begun")?;
                self.cluster.mark_uninstalling(record, OWNER, Timestamp::now()).await?;
                Ok(view(record))
            }
            "uninstalled" => {
                let record = self.record.as_mut().context("nothing was begun")?;
                self.cluster.mark_uninstalled(record, "removed", Timestamp::now()).await?;
                Ok(view(record))
            }
            "delete" => Ok(self.cluster.delete_releases(&id).await.map(|()| Value::Null)?),
            "history" => {
                let history = self.cluster.release_history(&id).await?;
                Ok(history.iter().map(view).collect())
            }
            "helm" => {
                let Some(release) = self.cluster.helm_release(&id).await? else { return Ok(Value::Null) };
                let mut marked = Vec::new();
                for item in release.inventory() {
                    let live = self.cluster.get(&item.target).await?;
                    let ours = live.and_then(|live| helm_marks(&live)).is_some_and(|marks| marks.are_of(&id));
                    marked.push(json!({"target": item.target.to_string(), "marked": ours}));
                }
                Ok(json!({"inventory": marked, "revisions": release.records.iter().map(view).collect::<Value>()}))
            }
            "adopt" => {
                let target = ObjectRef::of(&request["object"])?;
                let from: Vec<String> = serde_json::from_value(request["from"].clone())?;
                let from: Vec<&str> = from.iter().map(String::as_str).collect();
                Ok(self.cluster.adopt_fields(&target, &from, MANAGER).await?.unwrap_or_default())
            }
            other => anyhow::bail!("nobody knows how to {other:?}"),
        }
    }

    /// Begins a revision of `objects`, each `{source, object}`, or of those of the revision `rollback_of`.
    async fn begin(&mut self, id: &ApplicationId, request: &Value) -> Result<Value> {
        let mut records = self.cluster.release_history(id).await?;
        let take_over = request["take_over"].as_bool().unwrap_or(false);
        if take_over && let Some(helm) = self.cluster.helm_release(id).await? {
            records.extend(helm.records);
        }
        let known: Vec<history::Revision> = records.iter().map(Record::revision).collect();
        let wanted = request["rollback_of"].as_u64().and_then(|it| u32::try_from(it).ok());
        let rollback_of = wanted.map(|wanted| history::rollback_target(&known, wanted)).transpose()?;
        let rendered: Vec<Rendered> = match rollback_of {
            Some(revision) => records.iter().find(|it| it.revision == revision).context("no such record")?.rendered(),
            None => serde_json::from_value::<Vec<Value>>(request["objects"].clone())?
                .into_iter()
                .map(|mut it| Ok(Rendered { source: text(&it, "source")?.to_owned(), object: it["object"].take() }))
                .collect::<Result<_>>()?,
        };
        let base = history::base(&known);
        let previous = records.iter().find(|it| Some(it.revision) == base).map(Record::inventory).unwrap_or_default();
        let planned = self.plan(id, text(request, "package")?, rendered, &previous).await?;
        let action = if rollback_of.is_some() { Action::Rollback } else { history::next_action(&known) };
        let new = NewRevision {
            plan: &planned,
            action,
            package_version: text(request, "version")?,
            settings: &request["settings"],
            notes: request["notes"].as_str().unwrap_or_default(),
            owner: OWNER,
            now: Timestamp::now(),
            rollback_of,
            set_aside: None,
            seed: None,
            patches: const { &Patches::EMPTY },
            take_over,
            kept_revisions: history::KEPT_REVISIONS,
        };
        let record = self.cluster.begin_release(id, new).await?;
        let answer = json!({
            "record": view(&record),
            "prune": planned.prune.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "digest": planned.digest,
        });
        self.record = Some(record);
        Ok(answer)
    }

    async fn plan(
        &self,
        id: &ApplicationId,
        package: &str,
        rendered: Vec<Rendered>,
        previous: &[InventoryItem],
    ) -> Result<Plan> {
        let kinds: BTreeSet<Gvk> =
            rendered.iter().map(|it| ObjectRef::of(&it.object).map(|it| it.gvk)).collect::<Result<_, _>>()?;
        let mut scopes: BTreeMap<Gvk, Scope> = BTreeMap::new();
        for gvk in kinds {
            let scope = self.cluster.resolve(&gvk).await?.scope;
            scopes.insert(gvk, scope);
        }
        let input = PlanInput {
            application: id,
            package,
            action: ReleaseAction::Upgrade,
            rendered,
            definitions: Vec::new(),
            previous,
            maintenance: false,
            skip_hooks: false,
        };
        Ok(plan(input, |gvk| scopes.get(gvk).copied(), |_| false)?)
    }

    /// Notes a run of the hook `hook` that ended as `phase`.
    async fn hook(&mut self, request: &Value) -> Result<Value> {
        let record = self.record.as_mut().context("nothing was begun")?;
        let name = text(request, "hook")?;
        let hook = record.hooks.iter().find(|it| it.hook.target.name == name).context("no such hook")?;
        let target = hook.hook.target.clone();
        self.cluster.hook_started(record, &target, Timestamp::now()).await?;
        let phase = match text(request, "phase")? {
            "Succeeded" => HookPhase::Succeeded,
            "Failed" => HookPhase::Failed,
            _ => return Ok(view(record)),
        };
        record.hook_ended(&target, phase, Timestamp::now());
        Ok(view(record))
    }
}

fn text<'a>(request: &'a Value, field: &str) -> Result<&'a str> {
    request[field].as_str().with_context(|| format!("the request has no {field:?}"))
}

/// What the test compares.
fn view(record: &Record) -> Value {
    let hooks = record.hooks.iter().map(|it| {
        let phase = it.last_run.map(|run| format!("{:?}", run.phase));
        json!({"name": it.hook.target.name, "object": it.hook.object, "weight": it.hook.weight, "events": it.hook.events,
            "policies": it.hook.delete_policies, "phase": phase})
    });
    json!({
        "revision": record.revision, "status": record.status, "description": record.description, "notes": record.notes,
        "package": record.package, "settings": record.settings, "digest": record.digest,
        "writtenByHelm": record.written_by_helm, "rollbackOf": record.rollback_of,
        "firstDeployed": record.first_deployed, "lastDeployed": record.last_deployed,
        "objects": record.objects.iter().map(|it| &it.object).collect::<Vec<_>>(),
        "inventory": record.inventory().iter().map(|it| it.target.to_string()).collect::<Vec<_>>(),
        "hooks": hooks.collect::<Vec<_>>(),
    })
}
