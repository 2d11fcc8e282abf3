//! HTTP: from a request to the registry and back.
//!
//! One fallback handler reads the address ([`request`]), chooses the representation ([`accept`]) and calls the registry.
//! Bodies are bounded; every refusal is a `Status`.

mod accept;
mod admitted;
mod body;
mod discovery;
pub(crate) mod fault;
pub(crate) mod journal;
mod logs;
mod openapi;
mod page;
mod protobuf;
pub(crate) mod relay;
pub(crate) mod request;
mod swagger;
mod table;
pub(crate) mod tls;
mod watch;
pub(crate) mod weather;
mod write;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use http::{HeaderMap, Method, StatusCode, header};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    admission::Services,
    catalog::Resource,
    json::{self, text},
    rbac::{self, Act, Authority, Origin},
    registry::{Options, Registry, Validation},
    selector::{Selector, selectable_fields},
    status::{ApiError, Cause},
    store::Stored,
    user::User,
};
use accept::Format;
use fault::{Effect, Faults};
use journal::Journal;
use request::{Path, Query, Target};

/// The bound of a real server (`--max-request-body-bytes`).
const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// The version that the server says it is.
pub(crate) const GIT_VERSION: &str = "v1.37.0";

/// What the handlers share.
pub(crate) struct Shared {
    pub(crate) registry: Arc<Registry>,
    pub(crate) stopping: CancellationToken,
    pub(crate) journal: Journal,
    pub(crate) faults: Faults,
    /// Webhooks that answer in the process.
    pub(crate) services: Services,
    /// Who may do what.
    pub(crate) authority: Authority,
    requests: AtomicU64,
    verbs: Mutex<BTreeMap<String, u64>>,
}

impl Shared {
    pub(crate) fn new(registry: Arc<Registry>, authority: Authority, stopping: CancellationToken) -> Self {
        let (journal, faults) = (Journal::default(), Faults::default());
        let (services, requests, verbs) = (Services::default(), AtomicU64::new(0), Mutex::default());
        Self { registry, stopping, journal, faults, services, authority, requests, verbs }
    }

    pub(crate) fn request_count(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    pub(crate) fn requests(&self) -> BTreeMap<String, u64> {
        self.verbs.lock().clone()
    }

    fn count(&self, verb: &str) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let mut verbs = self.verbs.lock();
        match verbs.get_mut(verb) {
            Some(count) => *count += 1,
            None => {
                verbs.insert(verb.to_owned(), 1);
            }
        }
    }
}

/// Put into the requests of a listening server, so that its watches end with it.
#[derive(Debug, Clone)]
pub(crate) struct Stopping(pub(crate) CancellationToken);

pub(crate) fn router(shared: Arc<Shared>) -> Router {
    Router::new().fallback(handle).with_state(shared)
}

async fn handle(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let path = Path::parse(parts.uri.path());
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    let stopping = parts.extensions.get::<Stopping>().map_or_else(|| shared.stopping.clone(), |s| s.0.clone());
    let dry_run = !query.get("dryRun").is_empty();
    let write = fault::means_to_write(&parts.method, &path, dry_run);
    let gate = parts.extensions.get::<Arc<fault::Place>>().cloned().unwrap_or_default();
    // Both count the request; what breaks at the gate does not reach the cluster.
    let (at_gate, at_cluster) = (gate.faults.judge(write), shared.faults.judge(write));
    let hit = at_gate.or(at_cluster);
    let network = parts.extensions.get::<Stopping>().is_some();
    let origin = if network { Origin::Network } else { Origin::Process };
    let user = shared.authority.identify(&shared.registry, &parts.headers, origin);
    let mut call = Call { shared, stopping, method: parts.method, headers: parts.headers, query, number: 0, user };
    call.number = call.open(&path, parts.uri.path(), dry_run, &gate.name);
    if parts.extensions.get::<weather::AnswerLost>().is_some() {
        call.note(|request| request.lost = true);
    }
    let address = parts.uri.path();
    let Some(hit) = hit else { return call.respond_to(path, address, body).await };
    if hit.performed {
        call.respond_to(path, address, body).await;
        call.note(|request| request.status = None);
    }
    match hit.effect {
        Effect::Hang => {
            call.stopping.cancelled().await;
            fault::broken()
        }
        Effect::Drop => fault::broken(),
        Effect::Refuse(status) => {
            call.note(|request| request.status = Some(status));
            fault::refuse(status)
        }
    }
}

fn refusal(error: &ApiError) -> Response {
    let code = StatusCode::from_u16(error.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json_response(code, error.to_value().to_string().into());
    if error.details.retry_after_seconds > 0 {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, header::HeaderValue::from(error.details.retry_after_seconds));
    }
    warned(response, &error.details.warnings)
}

/// Adds what the client should know, each thing once.
fn warn(response: &mut Response, warnings: &[String]) {
    let mut told = std::collections::HashSet::new();
    for warning in warnings.iter().filter(|warning| told.insert(warning.as_str())).take(32) {
        // The header is one line of visible characters.
        let plain = warning.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>();
        let quoted = plain.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = header::HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
}

fn json_response(code: StatusCode, bytes: Bytes) -> Response {
    (code, [(header::CONTENT_TYPE, "application/json")], bytes).into_response()
}

fn plain(code: StatusCode, text: &'static str) -> Response {
    (code, [(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response()
}

/// One request without its body.
struct Call {
    shared: Arc<Shared>,
    /// Ends the watches of this request's server.
    stopping: CancellationToken,
    method: Method,
    headers: HeaderMap,
    query: Query,
    /// Its place in the journal.
    number: u64,
    user: Result<User, ApiError>,
}

impl Call {
    /// Answers, and writes into the journal how.
    async fn respond_to(&self, path: Path, address: &str, body: Body) -> Response {
        let response = self.answer(path, address, body).await.unwrap_or_else(|error| refusal(&error));
        let status = response.status().as_u16();
        self.note(|request| request.status = Some(status));
        response
    }

    /// Begins the entry of the journal with what the address says.
    fn open(&self, path: &Path, address: &str, dry_run: bool, gate: &str) -> u64 {
        let mut request = journal::entry(&self.method, &self.headers, &self.query, path, address);
        request.dry_run = dry_run;
        gate.clone_into(&mut request.gate);
        self.shared.journal.open(request)
    }

    fn note(&self, add: impl FnOnce(&mut journal::Request)) {
        self.shared.journal.note(self.number, add);
    }

    /// Writes down the preconditions that an object carries.
    fn note_preconditions(&self, object: &Value) {
        let given = |field: &str| Some(text(object, &["metadata", field]).to_owned()).filter(|text| !text.is_empty());
        self.note(|request| {
            request.uid = given("uid");
            request.resource_version = given("resourceVersion");
        });
    }

    fn registry(&self) -> &Registry {
        &self.shared.registry
    }

    /// Who makes the request.
    fn user(&self) -> Result<&User, ApiError> {
        self.user.as_ref().map_err(Clone::clone)
    }

    /// Refuses what the user may not do.
    fn authorize(&self, target: Option<&Target>, address: &str) -> Result<(), ApiError> {
        let user = self.user()?;
        let act = match target {
            Some(target) => {
                // A list or a watch of one name is about that name.
                let selected = self.query.get("fieldSelector").strip_prefix("metadata.name=").unwrap_or_default();
                let name = target.name.as_deref().unwrap_or(selected);
                let (group, resource) = (target.group.clone(), target.plural.clone());
                Act {
                    verb: self.verb(target).to_owned(),
                    namespace: rbac::namespace_of(target.namespace.as_deref(), &group, &resource, name),
                    group,
                    resource,
                    subresource: target.subresource.clone(),
                    name: name.to_owned(),
                    path: None,
                }
            }
            None => Act { verb: self.method.as_str().to_lowercase(), path: Some(address.to_owned()), ..Act::default() },
        };
        self.shared.authority.authorize(self.registry(), user, &act)
    }

    async fn answer(&self, path: Path, address: &str, body: Body) -> Result<Response, ApiError> {
        let target = match path {
            Path::Target(target) => target,
            other => {
                self.shared.count("get");
                self.authorize(None, address)?;
                return self.fixed(&other);
            }
        };
        self.authorize(Some(&target), address)?;
        let catalog = &self.registry().catalog;
        let resource = catalog.find(&target.group, &target.version, &target.plural);
        let resource = resource.ok_or_else(ApiError::no_such_resource)?;
        if resource.namespaced && target.namespace.is_none() && target.name.is_some() {
            return Err(ApiError::no_such_resource());
        }
        if !resource.namespaced && target.namespace.is_some() {
            return Err(ApiError::no_such_resource());
        }
        if target.name.is_some() && matches!(target.subresource.as_str(), "exec" | "attach" | "portforward" | "proxy") {
            let why = format!("nothing runs in a development cluster, so that there is no {}", target.subresource);
            return Err(ApiError::bad_request(why));
        }
        if !target.subresource.is_empty() && resource.subresource(&target.subresource).is_none() {
            return Err(ApiError::no_such_resource());
        }
        let verb = self.verb(&target);
        self.shared.count(verb);
        match verb {
            "get" => self.get(&resource, &target),
            "list" => self.list(&resource, &target),
            "watch" => self.watch(&resource, &target),
            "create" => self.create(&resource, &target, body).await,
            "update" => self.update(&resource, &target, body).await,
            "patch" => self.patch(&resource, &target, body).await,
            "delete" => self.delete(&resource, &target, body).await,
            "deletecollection" => self.delete_collection(&resource, &target, body).await,
            _ => Err(ApiError::method_not_allowed()),
        }
    }

    fn verb(&self, target: &Target) -> &'static str {
        journal::verb(&self.method, &self.query, target)
    }

    fn fixed(&self, path: &Path) -> Result<Response, ApiError> {
        if !matches!(self.method, Method::GET | Method::HEAD) {
            return Err(ApiError::method_not_allowed());
        }
        let catalog = &self.registry().catalog;
        let aggregated = accept::wants_aggregated(&self.headers);
        let value = match path {
            Path::Health => return Ok(plain(StatusCode::OK, "ok")),
            Path::Version => discovery::version(),
            Path::Root => discovery::root(&catalog.table()),
            Path::Core if aggregated => return Ok(discovery::aggregated(&catalog.table(), true)),
            Path::Groups if aggregated => return Ok(discovery::aggregated(&catalog.table(), false)),
            Path::Core => json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}),
            Path::Groups => discovery::groups(&catalog.table()),
            Path::Group(group) => discovery::group(&catalog.table(), group).ok_or_else(ApiError::no_such_resource)?,
            Path::Resources(group, version) => {
                discovery::resources(&catalog.table(), group, version).ok_or_else(ApiError::no_such_resource)?
            }
            Path::Swagger => return Ok(swagger::document(&self.headers)),
            Path::OpenApiIndex => openapi::index(&catalog.table()),
            Path::OpenApi(path) => openapi::document(&catalog.table(), path).ok_or_else(ApiError::no_such_resource)?,
            Path::Unknown | Path::Target(_) => return Ok(plain(StatusCode::NOT_FOUND, "404 page not found\n")),
        };
        Ok(json_response(StatusCode::OK, value.to_string().into()))
    }

    fn manager(&self) -> String {
        journal::manager(&self.headers, &self.query)
    }

    fn options<'a>(&self, manager: &'a str, duplicates: &'a [String]) -> Result<Options<'a>, ApiError> {
        let validation = match self.query.get("fieldValidation") {
            "" | "Warn" => Validation::Warn,
            "Ignore" => Validation::Ignore,
            "Strict" => Validation::Strict,
            other => {
                let allowed = [json!("Ignore"), json!("Strict"), json!("Warn")];
                let cause = Cause::not_supported("fieldValidation", &json!(other), &allowed);
                return Err(ApiError::invalid_options(self.options_kind(), cause));
            }
        };
        if manager.len() > 128 || manager.chars().any(char::is_control) {
            let why = "fieldManager: Invalid value: may not be longer than 128 characters and must be printable";
            return Err(ApiError::new(422, "Invalid", why));
        }
        Ok(Options { manager, dry_run: self.dry_run()?, validation, duplicates, gate: None })
    }

    fn dry_run(&self) -> Result<bool, ApiError> {
        match self.query.get("dryRun") {
            "" => Ok(false),
            "All" => Ok(true),
            other => {
                let cause = Cause::not_supported("dryRun", &json!([other]), &[json!("All")]);
                Err(ApiError::invalid_options(self.options_kind(), cause))
            }
        }
    }

    /// What the parameters of a write are called.
    fn options_kind(&self) -> &'static str {
        match self.method {
            Method::POST => "CreateOptions",
            Method::PUT => "UpdateOptions",
            Method::DELETE => "DeleteOptions",
            _ => "PatchOptions",
        }
    }

    fn format(&self) -> Result<Format, ApiError> {
        accept::format(&self.headers).ok_or_else(ApiError::not_acceptable)
    }

    async fn bytes(&self, body: Body) -> Result<Bytes, ApiError> {
        axum::body::to_bytes(body, BODY_BYTES_MAX).await.map_err(|_| ApiError::too_large(BODY_BYTES_MAX))
    }

    /// The body as one object.
    async fn object(&self, body: Body) -> Result<body::Decoded, ApiError> {
        let bytes = self.bytes(body).await?;
        let media = self.media_type();
        match media.as_str() {
            "" | "application/json" | "application/yaml" => body::decode(&bytes),
            PROTOBUF => Ok(body::Decoded { value: protobuf::decode(&bytes)?, duplicates: Vec::new() }),
            _ => Err(ApiError::unsupported_media_type(
                "application/json, application/yaml, application/vnd.kubernetes.protobuf",
            )),
        }
    }

    fn media_type(&self) -> String {
        let value = self.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
    }

    fn selector(&self, resource: &Resource) -> Result<Selector, ApiError> {
        let custom = resource.custom.as_ref().map(|c| c.selectable_fields.as_slice()).unwrap_or_default();
        let allowed = |field: &str| {
            matches!(field, "metadata.name" | "metadata.namespace")
                || (resource.custom.is_none() && selectable_fields(&resource.group, &resource.kind).contains(&field))
                || custom.iter().any(|known| known == field)
        };
        let refused = |field: &str| match (resource.group.as_str(), resource.kind.as_str()) {
            ("batch", "Job") => format!("field label {field:?} not supported for Job"),
            (group, kind) if resource.custom.is_none() && selectable_fields(group, kind).is_empty() => {
                // Kinds that know no others have an answer of their own.
                format!("{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
            }
            _ => format!("field label not supported: {field}"),
        };
        Selector::parse(self.query.get("labelSelector"), self.query.get("fieldSelector"), allowed, refused)
    }

    fn get(&self, resource: &Resource, target: &Target) -> Result<Response, ApiError> {
        let name = target.name.as_deref().unwrap_or_default();
        let namespace = target.namespace.as_deref().unwrap_or_default();
        if !resource.has_verb("get") {
            return Err(ApiError::method_not_allowed());
        }
        let object = self.registry().get(resource, namespace, name)?;
        match target.subresource.as_str() {
            "" | "status" => self.respond(resource, StatusCode::OK, &object, &[]),
            "scale" => {
                let scale = self.registry().read_scale(resource, &object.value)?;
                Ok(json_response(StatusCode::OK, scale.to_string().into()))
            }
            "log" => logs::answer(&object.value, &self.query),
            _ => Err(ApiError::method_not_allowed()),
        }
    }

    fn list(&self, resource: &Arc<Resource>, target: &Target) -> Result<Response, ApiError> {
        if !resource.has_verb("list") {
            return Err(ApiError::method_not_allowed());
        }
        let selector = self.selector(resource)?;
        let format = self.format()?;
        let page = self.page(resource, target, &selector)?;
        let objects = page.objects.iter().map(|stored| self.registry().view(resource, stored)).collect::<Vec<_>>();
        let mut metadata = json!({"resourceVersion": page.revision.to_string()});
        if let Some(token) = page.next {
            json::set(&mut metadata, &["continue"], json!(token));
            if let Some(remaining) = page.remaining {
                json::set(&mut metadata, &["remainingItemCount"], json!(remaining));
            }
        }
        let bytes = match format {
            Format::Json => list_bytes(resource, &metadata, &objects),
            Format::Metadata => {
                let items = objects.iter().map(|object| accept::partial(&object.value)).collect::<Vec<_>>();
                let list = json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
                                  "metadata": metadata, "items": items});
                list.to_string().into()
            }
            Format::Table => {
                let include = self.query.get("includeObject");
                table::render(resource, objects.iter().map(|o| &o.value), Some(&metadata), include).to_string().into()
            }
        };
        Ok(json_response(StatusCode::OK, bytes))
    }

    fn respond(
        &self,
        resource: &Resource,
        code: StatusCode,
        object: &Arc<Stored>,
        warnings: &[String],
    ) -> Result<Response, ApiError> {
        let bytes = match self.format()? {
            Format::Json => object.bytes(),
            Format::Metadata => accept::partial(&object.value).to_string().into(),
            Format::Table => {
                let include = self.query.get("includeObject");
                let metadata = json!({"resourceVersion": text(&object.value, &["metadata", "resourceVersion"])});
                table::render(resource, std::iter::once(&object.value), Some(&metadata), include).to_string().into()
            }
        };
        Ok(warned(json_response(code, bytes), warnings))
    }
}

/// The answer with warnings.
fn warned(mut response: Response, warnings: &[String]) -> Response {
    warn(&mut response, warnings);
    response
}

/// A list made of objects that are already text. Only custom objects say in a list, too, what they are.
fn list_bytes(resource: &Resource, metadata: &Value, objects: &[Arc<Stored>]) -> Bytes {
    let (kind, api_version) = (&resource.list_kind, resource.api_version());
    let mut out =
        format!("{{\"kind\":{},\"apiVersion\":{},\"metadata\":{metadata},\"items\":[", json!(kind), json!(api_version))
            .into_bytes();
    for (index, object) in objects.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(&if resource.custom.is_some() { object.bytes() } else { object.item_bytes() });
    }
    out.extend_from_slice(b"]}");
    out.into()
}
