//! The hooks of the Miniflux package, in the order in which they first run.
//!
//! Each is a function of what it is given to what it asks for; none waits, and each can be run again at any time with
//! the same result, because the host repeats a hook that fails and runs one whenever what it watches changes.

use std::collections::BTreeMap;
use std::time::Duration;

use barbless_sdk::prelude::*;
use barbless_sdk::{Change, object};

#[cfg(test)]
mod tests;

/// Label of the ConfigMaps in which users list their feeds.
pub const FEEDS_LABEL: &str = "miniflux.example.com/feeds";
/// Label of the Secret with the generated passwords.
pub const ROLE_LABEL: &str = "miniflux.example.com/role";

/// How long a generated password is: 140 bits.
const PASSWORD_CHARS: usize = 24;

barbless_sdk::component!();

/// Warns of what is allowed by the schema, but hardly meant.
#[check_settings]
fn check_settings(settings: Value) -> Verdict {
    let mut verdict = Verdict::allow();
    if settings["publicUrl"].as_str().is_some_and(|url| url.starts_with("http://")) {
        verdict = verdict.warn("publicUrl is not https: passwords of the users cross the network in the clear");
    }
    if settings["pollingMinutes"].as_u64().is_some_and(|minutes| minutes < 5) {
        verdict = verdict.warn("pollingMinutes below 5: many sites block readers that ask so often");
    }
    verdict
}

/// Records which hooks are loaded.
#[hook(on_startup, order = 1)]
fn startup(ctx: &mut Context) -> Result<()> {
    ctx.values().set("/internal/hooksVersion", env!("CARGO_PKG_VERSION"))
}

/// The passwords in the values, as the templates need them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Credentials {
    database: String,
    admin: String,
}

/// Generates the passwords once and keeps them in a Secret.
///
/// The Secret is not part of the release, so it survives a suspension and a failed installation, and the database that
/// was made with its password can still be opened afterwards.
#[hook(before_helm, order = 10, kubernetes(
    name = "credentials", api_version = "v1", kind = "Secret",
    labels("miniflux.example.com/role" = "credentials"), fields("/metadata/name", "/data"),
))]
fn credentials(ctx: &mut Context) -> Result<()> {
    // A selector cannot name the application, so other applications of this package are sorted out by name.
    let name = ctx.object_name("credentials");
    if let Some(secret) = ctx.snapshot("credentials")?.find(&name) {
        let data: Credentials = secret.field("/data")?.ok_or_else(|| incomplete(&name))?;
        let credentials = Credentials {
            database: object::base64_decode(&data.database)?,
            admin: object::base64_decode(&data.admin)?,
        };
        return keep(ctx, &credentials);
    }

    // The snapshot may be older than the Secret that an earlier run asked for: what that run kept is still in the values.
    let known = ctx.values().get::<Value>("/internal/credentials")?;
    let known = known.and_then(|known| serde_json::from_value::<Credentials>(known).ok());
    let credentials = known.unwrap_or_else(|| {
        log::info!(secret = name, "generating passwords");
        Credentials { database: ctx.random().password(PASSWORD_CHARS), admin: ctx.random().password(PASSWORD_CHARS) }
    });
    let secret = ctx.labelled(json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "labels": {ROLE_LABEL: "credentials"}},
        "type": "Opaque",
        "data": {
            "database": object::base64_encode(&credentials.database),
            "admin": object::base64_encode(&credentials.admin),
        },
    }))?;
    ctx.patches().create_if_not_exists(&secret)?;
    keep(ctx, &credentials)
}

fn keep(ctx: &Context, credentials: &Credentials) -> Result<()> {
    ctx.values().set_if_changed("/internal/credentials", credentials)?;
    Ok(())
}

fn incomplete(secret: &str) -> Error {
    Error::new("CredentialsIncomplete", format!("Secret {secret} has no data"))
        .hint("restore it from a backup, or delete it together with the volume of the database")
}

/// One feed in the values.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct Feed {
    source: String,
    title: String,
    url: String,
}

/// Collects the feeds that users list in labelled ConfigMaps: each key is a title, each value an address.
#[hook(kubernetes(
    name = "feeds", api_version = "v1", kind = "ConfigMap",
    labels("miniflux.example.com/feeds" = "true"), fields("/metadata/name", "/data"),
))]
fn feeds(ctx: &mut Context) -> Result<()> {
    let mut feeds = Vec::new();
    for map in ctx.snapshot("feeds")?.iter() {
        let data: BTreeMap<String, String> = map.field("/data")?.unwrap_or_default();
        for (title, url) in data {
            let url = url.trim().to_owned();
            if url.starts_with("https://") || url.starts_with("http://") {
                feeds.push(Feed { source: map.name(), title, url });
            } else {
                log::warn!(config_map = map.name(), key = title, "left out: the value is no http address");
            }
        }
    }
    feeds.sort();
    feeds.dedup_by(|a, b| a.url == b.url);
    ctx.metrics().gauge_set("feeds", feeds.len() as f64, &[]);
    if ctx.values().set_if_changed("/internal/feeds", &feeds)? {
        log::info!(count = feeds.len(), changed = changed(ctx.trigger()), "the list of feeds changed");
    }
    Ok(())
}

/// The ConfigMaps whose change led to a run, for the log.
fn changed(trigger: &Trigger) -> String {
    let Trigger::Events(changes) = trigger else { return "all".to_owned() };
    let names: Vec<&str> = changes.iter().map(|Change { name, .. }| name.as_str()).collect();
    names.join(", ")
}

/// Shows that the hooks are alive. Every ten seconds, so that one can watch it.
#[hook(schedule(name = "beat", crontab = "*/10 * * * * *"), queue = "heartbeat", allow_failure)]
fn heartbeat(ctx: &mut Context) -> Result<()> {
    let beat = ctx.labelled(json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": ctx.object_name("heartbeat")},
        "data": {"time": ctx.now().to_string()},
    }))?;
    ctx.patches().apply(&beat)
}

/// Waits for the address of the web Service and puts it into the values.
#[hook(after_helm, order = 10, kubernetes(
    name = "services", api_version = "v1", kind = "Service",
    labels("app.kubernetes.io/name" = "miniflux", "app.kubernetes.io/component" = "web"),
    fields("/metadata/name", "/spec/clusterIP", "/spec/ports/0/port"),
    // The snapshot is enough: the hook runs when the release was applied.
    events(), synchronization = false,
))]
fn endpoint(ctx: &mut Context) -> Result<()> {
    let name = ctx.object_name("web");
    let service = ctx.snapshot("services")?.find(&name).ok_or_else(|| not_ready(&name, "is not there yet"))?;
    let address: String = service
        .field("/spec/clusterIP")?
        .filter(|ip: &String| !ip.is_empty())
        .ok_or_else(|| not_ready(&name, "has no address yet"))?;
    let port: u16 = service.field("/spec/ports/0/port")?.unwrap_or(80);
    // An IPv6 address has colons of its own.
    let host = if address.contains(':') { format!("[{address}]") } else { address };
    // Written only if it is new: a change of values leads to another rendering.
    if ctx.values().set_if_changed("/internal/endpoint", &format!("http://{host}:{port}"))? {
        log::info!(service = name, address = host, "the reader can be reached");
    }
    Ok(())
}

fn not_ready(service: &str, what: &str) -> Error {
    Error::new("ServiceNotReady", format!("Service {service} {what}"))
        .hint("look at the Service and its events if this lasts")
        .retry_after(Duration::from_secs(1))
}

/// Leaves word for the backup of the cluster that the database is about to go.
#[hook(before_delete_helm, order = 10)]
fn backup(ctx: &mut Context) -> Result<()> {
    let feeds = ctx.values().get::<Vec<Value>>("/internal/feeds")?.unwrap_or_default();
    let marker = ctx.labelled(json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": ctx.object_name("backup-marker")},
        "data": {
            "removedAt": ctx.now().to_string(),
            "claim": format!("data-{}-0", ctx.object_name("database")),
            "feeds": feeds.len().to_string(),
        },
    }))?;
    ctx.patches().apply(&marker)
}

/// Removes what the hooks made, apart from the passwords: they stay until the application itself is deleted.
#[hook(after_delete_helm, order = 10)]
fn cleanup(ctx: &mut Context) -> Result<()> {
    for suffix in ["heartbeat", "backup-marker"] {
        let target = ObjectRef::new("v1", "ConfigMap", ctx.object_name(suffix));
        ctx.patches().delete(&target, Propagation::Background);
    }
    Ok(())
}
