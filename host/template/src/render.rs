//! A package or chart, with values, to text and objects.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    rc::Rc,
};

use serde_json::{Map as JsonMap, Value as Json};

use crate::{
    chart,
    error::Error,
    exec::{self, NO_VALUE, Run, Templates},
    funcs,
    limits::{Limit, Limits},
    manifest::{self, Manifest},
    object::Object,
    parse,
    value::{MapKind, Value},
};

/// The files of a package or chart: path below its root, with `/` between the parts, to content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files(pub BTreeMap<String, Vec<u8>>);

impl Files {
    /// The text of a file, without a byte order mark; bytes that are not UTF-8 are replaced.
    pub fn text(&self, path: &str) -> Option<String> {
        let text = String::from_utf8_lossy(self.0.get(path)?);
        Some(text.strip_prefix('\u{feff}').unwrap_or(&text).to_string())
    }
}

/// What the cluster can do, as templates see it in `.Capabilities`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// For example `v1.36.0`.
    pub kube_version: String,
    /// `group/version` and `group/version/Kind`.
    pub api_versions: BTreeSet<String>,
    /// For example `v4.2`.
    pub helm_version: String,
}

impl Default for Capabilities {
    /// What Helm 4.2 assumes without a cluster: Kubernetes 1.36 and every API version that its client library has a type for.
    fn default() -> Self {
        let groups = [
            "v1",
            "admissionregistration.k8s.io/v1",
            "admissionregistration.k8s.io/v1alpha1",
            "admissionregistration.k8s.io/v1beta1",
            "internal.apiserver.k8s.io/v1alpha1",
            "apps/v1",
            "apps/v1beta1",
            "apps/v1beta2",
            "authentication.k8s.io/v1",
            "authentication.k8s.io/v1alpha1",
            "authentication.k8s.io/v1beta1",
            "authorization.k8s.io/v1",
            "authorization.k8s.io/v1beta1",
            "autoscaling/v1",
            "autoscaling/v2",
            "batch/v1",
            "batch/v1beta1",
            "certificates.k8s.io/v1",
            "certificates.k8s.io/v1beta1",
            "certificates.k8s.io/v1alpha1",
            "coordination.k8s.io/v1alpha2",
            "coordination.k8s.io/v1beta1",
            "coordination.k8s.io/v1",
            "discovery.k8s.io/v1",
            "discovery.k8s.io/v1beta1",
            "events.k8s.io/v1",
            "events.k8s.io/v1beta1",
            "extensions/v1beta1",
            "flowcontrol.apiserver.k8s.io/v1",
            "flowcontrol.apiserver.k8s.io/v1beta1",
            "flowcontrol.apiserver.k8s.io/v1beta2",
            "flowcontrol.apiserver.k8s.io/v1beta3",
            "networking.k8s.io/v1",
            "networking.k8s.io/v1beta1",
            "node.k8s.io/v1",
            "node.k8s.io/v1alpha1",
            "node.k8s.io/v1beta1",
            "policy/v1",
            "policy/v1beta1",
            "rbac.authorization.k8s.io/v1",
            "rbac.authorization.k8s.io/v1beta1",
            "rbac.authorization.k8s.io/v1alpha1",
            "resource.k8s.io/v1",
            "resource.k8s.io/v1beta2",
            "resource.k8s.io/v1beta1",
            "resource.k8s.io/v1alpha3",
            "scheduling.k8s.io/v1alpha2",
            "scheduling.k8s.io/v1beta1",
            "scheduling.k8s.io/v1",
            "storage.k8s.io/v1beta1",
            "storage.k8s.io/v1",
            "storage.k8s.io/v1alpha1",
            "storagemigration.k8s.io/v1beta1",
            "apiextensions.k8s.io/v1beta1",
            "apiextensions.k8s.io/v1",
        ];
        Self {
            kube_version: "v1.36.0".into(),
            api_versions: groups.map(String::from).into(),
            helm_version: "v4.2".into(),
        }
    }
}

/// A version of Kubernetes as Helm writes it, `v1.30.0`, from how people write it: `1.30`, `v1.30.2`.
///
/// # Errors
/// It is not a version.
pub fn kube_version(text: &str) -> Result<String, String> {
    match funcs::semver::Version::parse(text) {
        Some(version) => Ok(format!("v{version}")),
        None => Err(format!("invalid kube version '{text}': invalid semantic version")),
    }
}

/// Whether Helm takes the name for a release.
pub fn is_release_name(name: &str) -> bool {
    let part = |part: &str| {
        part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            && !part.is_empty()
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    name.len() <= 53 && name.split('.').all(part)
}

/// The release, as templates see it in `.Release`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// The name of the release.
    pub name: String,
    /// Where its objects go.
    pub namespace: String,
    /// From 1.
    pub revision: i64,
    /// Whether this is the first revision.
    pub is_install: bool,
    /// Whether an earlier revision is replaced.
    pub is_upgrade: bool,
    /// `Helm`, unless a package expects something else.
    pub service: String,
}

/// Answers the `lookup` function.
///
/// It is asked at most once for the same object in one render, and at most [`Limits::lookups`] times in all. Since a
/// render depends on the answers, whoever shows a plan and applies it later renders once, or answers both times the same.
pub trait Lookup {
    /// The object, or a list of objects when `name` is empty; an empty map (or null) if there is none. An empty
    /// `namespace` means all of them, or a kind that has none.
    ///
    /// # Errors
    /// Any text fails the render, with `error calling lookup: ` in front: a read that is not granted or failed, or a kind
    /// that the server does not know ([`unknown_kind`]).
    fn lookup(&self, api_version: &str, kind: &str, namespace: &str, name: &str) -> Result<Json, String>;
}

/// Helm's words for a kind that the server does not know; `why` is what the server said.
pub fn unknown_kind(api_version: &str, kind: &str, why: &str) -> String {
    let version = if api_version.contains('/') { api_version.to_owned() } else { format!("/{api_version}") };
    format!("unable to get apiresource from unstructured: {version}, Kind={kind}: {why}")
}

/// Finds nothing, as `helm template` does without a cluster.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoLookup;

impl Lookup for NoLookup {
    fn lookup(&self, _: &str, _: &str, _: &str, _: &str) -> Result<Json, String> {
        Ok(Json::Object(JsonMap::new()))
    }
}

/// Everything that a render depends on: the same input gives the same output.
pub struct Input<'a> {
    /// The package or chart.
    pub files: &'a Files,
    /// For a package: the whole values document. For a chart: what the user sets over the chart's own values.
    pub values: Json,
    /// Whether whole numbers in `values` are `int64` for templates, as those of `--set` ([`crate::assign`]), and not
    /// `float64` as all numbers of YAML and JSON.
    pub whole_numbers_are_int64: bool,
    /// More roots for templates: `Application`, `Platform`. `Chart` here adds to or replaces fields of `.Chart`.
    pub roots: JsonMap<String, Json>,
    /// `.Release`.
    pub release: Release,
    /// `.Capabilities`.
    pub capabilities: Capabilities,
    /// What `now` answers, in milliseconds since 1970.
    pub now_unix_ms: i64,
    /// Where all randomness comes from. A seed that stays the same for a release keeps its manifests stable.
    pub seed: [u8; 32],
    /// Whether the values are rendered although they do not fit the `values.schema.json` of a chart.
    pub skip_schema_validation: bool,
    /// What the render may use up.
    pub limits: Limits,
    /// Answers the `lookup` function.
    pub lookup: &'a dyn Lookup,
    /// Asked about once per thousand steps; `true` ends the render.
    pub deadline: &'a dyn Fn() -> bool,
}

impl<'a> Input<'a> {
    /// The first installation of a package or chart with its own values: without a cluster, in 1970, with a seed of zeros,
    /// in no hurry. The caller changes what is different.
    #[must_use]
    pub fn first(files: &'a Files, name: &str, namespace: &str) -> Self {
        const NEVER: fn() -> bool = || false;
        Self {
            files,
            values: Json::Object(JsonMap::new()),
            whole_numbers_are_int64: false,
            roots: JsonMap::new(),
            release: Release {
                name: name.to_owned(),
                namespace: namespace.to_owned(),
                revision: 1,
                is_install: true,
                is_upgrade: false,
                service: "Helm".to_owned(),
            },
            capabilities: Capabilities::default(),
            now_unix_ms: 0,
            seed: [0; 32],
            skip_schema_validation: false,
            limits: Limits::default(),
            lookup: &NoLookup,
            deadline: &NEVER,
        }
    }
}

/// The text of one template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenderedFile {
    /// With the chart's name in front, as in `chart/templates/a.yaml`.
    pub path: String,
    /// What the template wrote.
    pub text: String,
}

/// What a render makes.
#[derive(Clone, Debug)]
pub struct Rendered {
    /// Every template but partials, by path.
    pub files: Vec<RenderedFile>,
    /// All objects, Helm hooks last, each part in the order of installation.
    pub manifests: Vec<Manifest>,
    /// The text of the root chart's `NOTES.txt`.
    pub notes: Option<String>,
    /// The objects below `crds/`, which are not templates.
    pub crds: Vec<Manifest>,
    /// Things that deserve a look although they fail nothing.
    pub warnings: Vec<String>,
    pub(crate) crd_files: Vec<RenderedFile>,
    pub(crate) output: String,
    /// Where hooks begin in `output`.
    pub(crate) hooks_at: usize,
    /// Where the text of each hook ends in `output`, and whether it is a test.
    pub(crate) hooks: Vec<(usize, bool)>,
}

impl Rendered {
    /// The part of [`Rendered::helm_output`] that Helm keeps as the release: hooks are apart.
    pub fn helm_manifest(&self) -> &str {
        self.output.get(..self.hooks_at).unwrap_or(&self.output)
    }

    /// All objects as text: those of the release, then Helm hooks.
    pub fn helm_output(&self) -> &str {
        &self.output
    }
}

/// Renders a chart if there is a `Chart.yaml`, a package otherwise.
///
/// # Errors
/// The first failure, with its place: a template that cannot be parsed or evaluated, a rendered text that is not YAML, a
/// broken chart, an exceeded limit.
pub fn render(input: &Input<'_>) -> Result<Rendered, Error> {
    // Evaluation recurses once per nested template or block. It gets a stack of its own, sized for the depth that the
    // limits allow, so that neither a small thread nor a debug build can overflow.
    stacker::grow(stack_bytes(&input.limits), || render_here(input))
}

fn stack_bytes(limits: &Limits) -> usize {
    let levels = limits.depth.min(exec::DEPTH_MAX) as usize + limits.nesting.min(parse::NESTING_MAX) * 4 + 1_000;
    (levels * STACK_PER_LEVEL).next_multiple_of(1 << 20)
}

/// Measured in a debug build, with room to spare; pages that are not touched cost nothing.
const STACK_PER_LEVEL: usize = 16 << 10;

/// Evaluates the templates only: what they write need not be YAML. For looking at a text that [`render`] refuses.
///
/// # Errors
/// As [`render`], but for the manifests.
pub fn render_files(input: &Input<'_>) -> Result<Vec<RenderedFile>, Error> {
    stacker::grow(stack_bytes(&input.limits), || {
        let plan = plan(input, &mut Vec::new())?;
        evaluate(&mut new_run(input), &plan.templates)
    })
}

fn plan(input: &Input<'_>, warnings: &mut Vec<String>) -> Result<Plan, Error> {
    if input.files.0.contains_key("Chart.yaml") { chart::plan(input, warnings) } else { Ok(package(input)) }
}

fn new_run<'i>(input: &'i Input<'_>) -> Run<'i> {
    Run::new(&input.limits, input.lookup, input.deadline, input.now_unix_ms, input.seed)
}

fn render_here(input: &Input<'_>) -> Result<Rendered, Error> {
    let mut warnings = Vec::new();
    let plan = plan(input, &mut warnings)?;
    let files = evaluate(&mut new_run(input), &plan.templates)?;
    let notes_path = format!("{}/templates/NOTES.txt", plan.name);
    let notes = files.iter().find(|file| file.path == notes_path).map(|file| file.text.clone());
    let objects = files.iter().filter(|file| !file.path.ends_with("NOTES.txt") && !is_partial(&file.path));
    let nodes = input.limits.document_nodes;
    let sorted = manifest::collect(objects.map(|file| (file.path.as_str(), file.text.as_str())), nodes)?;
    warnings.extend(sorted.left_out);
    let mut crds = Vec::new();
    for (path, text) in &plan.crds {
        crds.extend(manifest::parse(path, text, nodes)?.into_iter().filter_map(|(_, manifest)| manifest));
    }
    Ok(Rendered {
        files,
        manifests: sorted.manifests,
        notes,
        crds,
        warnings,
        crd_files: plan.crds.into_iter().map(|(path, text)| RenderedFile { path, text }).collect(),
        output: sorted.output,
        hooks_at: sorted.hooks_at,
        hooks: sorted.hooks,
    })
}

/// Templates and their data, ready to be evaluated.
pub(crate) struct Plan {
    pub(crate) name: String,
    pub(crate) templates: Vec<Template>,
    /// Path and text, in order.
    pub(crate) crds: Vec<(String, String)>,
}

pub(crate) struct Template {
    pub(crate) path: String,
    pub(crate) text: String,
    /// `chart/templates`.
    pub(crate) base_path: String,
    /// The dot; templates of one chart share it.
    pub(crate) dot: Value,
}

fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn is_partial(path: &str) -> bool {
    base_name(path).starts_with('_')
}

fn evaluate(run: &mut Run<'_>, templates: &[Template]) -> Result<Vec<RenderedFile>, Error> {
    let limits = run.limits;
    if templates.len() > limits.templates {
        return Err(Error::limit("", Limit::Templates));
    }
    // Deepest and last names first, so that a definition of the parent chart replaces that of a subchart.
    let mut order: Vec<&Template> = templates.iter().collect();
    order.sort_by_key(|template| std::cmp::Reverse((template.path.matches('/').count(), template.path.as_str())));
    let mut set = Templates::default();
    let mut own = HashMap::new();
    for template in &order {
        if template.text.len() > limits.template_bytes {
            return Err(Error::limit(&template.path, Limit::TemplateSize));
        }
        if (run.deadline)() {
            return Err(Error::limit(&template.path, Limit::Deadline));
        }
        let file: Rc<str> = template.path.as_str().into();
        let text: Rc<str> = template.text.as_str().into();
        let trees = parse::parse(&file, &text, limits.nesting, &funcs::exists)
            .map_err(|error| Error::parse(&template.path, &template.text, &error))?;
        if let Some(main) = trees.first() {
            own.insert(template.path.as_str(), main.clone());
        }
        trees.into_iter().for_each(|tree| set.add(tree));
    }
    let mut files = Vec::new();
    let mut written = 0;
    for template in order.iter().filter(|template| !is_partial(&template.path)) {
        if let Value::Map(dot) = &template.dot {
            let about = Value::dict([
                ("Name", Value::str(template.path.as_str())),
                ("BasePath", Value::str(template.base_path.as_str())),
            ]);
            dot.set("Template", about);
        }
        // By name, since another file may define a template of this file's name.
        let Some(tree) = set.get(&template.path).or_else(|| own.get(template.path.as_str()).map(|tree| &**tree)) else {
            continue;
        };
        let mut out = String::new();
        exec::execute(run, &set, tree, template.dot.clone(), &mut out).map_err(|error| Error::execution(&error))?;
        if out.contains(NO_VALUE) {
            out = out.replace(NO_VALUE, "");
        }
        written += out.len();
        if written > limits.output_bytes {
            return Err(Error::limit(&template.path, Limit::Output));
        }
        files.push(RenderedFile { path: template.path.clone(), text: out });
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

pub(crate) fn release(input: &Input<'_>) -> Value {
    let Release { name, namespace, revision, is_install, is_upgrade, service } = &input.release;
    Value::dict([
        ("Name", Value::str(name.as_str())),
        ("Namespace", Value::str(namespace.as_str())),
        ("Revision", Value::Int(*revision)),
        ("IsInstall", Value::Bool(*is_install)),
        ("IsUpgrade", Value::Bool(*is_upgrade)),
        ("Service", Value::str(service.as_str())),
    ])
}

pub(crate) fn capabilities(input: &Input<'_>) -> Value {
    let Capabilities { kube_version, api_versions, helm_version } = &input.capabilities;
    let mut numbers = kube_version.trim_start_matches('v').split('.');
    let mut number = || {
        let text = numbers.next().unwrap_or_default();
        text.chars().take_while(char::is_ascii_digit).collect::<String>()
    };
    let (major, minor) = (number(), number());
    Value::object(Object::Capabilities {
        kube: Value::object(Object::KubeVersion { version: kube_version.clone(), major, minor }),
        apis: Value::object(Object::ApiVersions(api_versions.clone())),
        helm: Value::object(Object::HelmVersion { version: helm_version.clone() }),
    })
}

/// A values document: a map whose type has a name of its own, as in Helm.
pub(crate) fn values(json: &Json, number: fn(&serde_json::Number) -> Value) -> Value {
    let entries = match json {
        Json::Object(map) => {
            map.iter().map(|(k, v)| (Rc::from(k.as_str()), Value::from_json_with(v, number))).collect()
        }
        _ => BTreeMap::new(),
    };
    Value::map_of(MapKind::Values, entries)
}

/// A folder with `templates/` and nothing that Helm asks for.
fn package(input: &Input<'_>) -> Plan {
    let text_of = |value: Option<&Json>| value.and_then(Json::as_str).map(String::from);
    let chart_root = input.roots.get("Chart");
    let name = text_of(chart_root.and_then(|chart| chart.get("Name")))
        .or_else(|| text_of(input.roots.get("Application").and_then(|app| app.pointer("/Package/Name"))))
        .unwrap_or_else(|| input.release.name.clone());
    let chart = Value::dict([
        ("APIVersion", Value::str("v2")),
        ("AppVersion", Value::str("")),
        ("IsRoot", Value::Bool(true)),
        ("Name", Value::str(name.as_str())),
        ("Type", Value::str("application")),
        ("Version", Value::str("")),
    ]);
    if let (Value::Map(chart), Some(Json::Object(fields))) = (&chart, chart_root) {
        fields.iter().for_each(|(key, value)| chart.set(key, Value::from_json(value)));
    }
    let visible = |path: &str| {
        !path.starts_with("templates/")
            && !path.starts_with("charts/")
            && !path.starts_with("hooks/")
            && path != "values.yaml"
    };
    let files: BTreeMap<Rc<str>, Rc<[u8]>> = input
        .files
        .0
        .iter()
        .filter(|(path, _)| visible(path))
        .map(|(path, content)| (Rc::from(path.as_str()), Rc::from(content.as_slice())))
        .collect();
    let dot = Value::map_of(
        MapKind::Values,
        [
            ("Capabilities", capabilities(input)),
            ("Chart", chart),
            ("Files", Value::object(Object::Files(files))),
            ("Release", release(input)),
            ("Subcharts", Value::dict([])),
            ("Values", values(&input.values, Value::float64)),
        ]
        .map(|(name, value)| (Rc::from(name), value))
        .into(),
    );
    if let Value::Map(dot) = &dot {
        for (root, value) in input.roots.iter().filter(|(root, _)| *root != "Chart") {
            dot.set(root, Value::from_json(value));
        }
    }
    let base_path = format!("{name}/templates");
    let templates = input.files.0.keys().filter(|path| path.starts_with("templates/")).map(|path| Template {
        path: format!("{name}/{path}"),
        text: input.files.text(path).unwrap_or_default(),
        base_path: base_path.clone(),
        dot: dot.clone(),
    });
    let crds = input.files.0.keys().filter(|path| chart::is_crd(path));
    let crds = crds.map(|path| (format!("{name}/{path}"), input.files.text(path).unwrap_or_default())).collect();
    Plan { templates: templates.collect(), crds, name }
}
