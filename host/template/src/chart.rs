//! Ordinary Helm charts: loading, dependencies, values, and the data that their templates see.
//!
//! Whatever is in `charts/` is used as it lies there; nothing is fetched.

mod archive;
mod coalesce;
mod dependencies;
mod ignore;
mod load;
mod schema;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, rc::Rc};

use serde_json::{Map, Value as Json};

pub use archive::unpack;
pub use ignore::IgnoreRules;
pub(crate) use load::is_crd;
pub use load::read_values;
#[cfg(test)]
pub(crate) use tests::tar_of;

use crate::{
    error::Error,
    funcs::semver::{Constraints, Version},
    object::Object,
    render::{self, Input, Plan, Template},
    set,
    value::{Map as ValueMap, MapKind, Value},
};

/// A chart and the charts below it.
#[derive(Clone)]
struct Chart {
    metadata: Metadata,
    values: Map<String, Json>,
    /// `values.schema.json`.
    schema: Option<String>,
    /// Path below the chart and text.
    templates: Vec<(String, String)>,
    /// What `.Files` shows.
    files: BTreeMap<Rc<str>, Rc<[u8]>>,
    crds: Vec<(String, String)>,
    children: Vec<Self>,
}

#[derive(Clone, Default)]
struct Metadata {
    api_version: String,
    name: String,
    version: String,
    app_version: String,
    kind: String,
    kube_version: String,
    /// The whole of `Chart.yaml`.
    raw: Map<String, Json>,
    dependencies: Vec<Dependency>,
    /// Whether `Chart.yaml` has a list of dependencies at all: Helm merges values differently then.
    declares_dependencies: bool,
}

#[derive(Clone)]
struct Dependency {
    name: String,
    version: String,
    repository: String,
    condition: String,
    tags: Vec<String>,
    alias: String,
    import_values: Vec<Json>,
    enabled: bool,
}

impl Chart {
    fn name(&self) -> &str {
        &self.metadata.name
    }

    fn is_library(&self) -> bool {
        self.metadata.kind == "library"
    }
}

/// Loads a chart and computes its values.
pub(crate) fn plan(input: &Input<'_>, warnings: &mut Vec<String>) -> Result<Plan, Error> {
    let mut root = load::load(&input.files.0, &input.limits)?;
    if root.is_library() {
        return Err(Error::chart("Chart.yaml", "library charts are not installable")
            .with_hint("a library only lends its definitions to other charts"));
    }
    check_kube_version(&root, &input.capabilities.kube_version)?;
    let user = match &input.values {
        Json::Object(map) if input.whole_numbers_are_int64 => map.clone(),
        Json::Object(map) => set::floats_of(map.clone()),
        Json::Null => Map::new(),
        other => {
            let kind = crate::json::kind(other);
            return Err(Error::chart("values", format!("the values must be a map, not of type {kind}")));
        }
    };
    dependencies::process(&mut root, &user, warnings)?;
    let values = coalesce::coalesce_values(&root, user, warnings)?;
    if !input.skip_schema_validation {
        schema::check(&root, &values, &input.limits)?;
    }
    let roots = Roots {
        release: render::release(input),
        capabilities: render::capabilities(input),
        extra: input.roots.iter().map(|(name, value)| (name.clone(), Value::from_json(value))).collect(),
    };
    let values = render::values(&Json::Object(values), Value::typed);
    let mut plan = Plan { name: root.name().to_string(), templates: Vec::new(), crds: Vec::new() };
    collect(&root, root.name(), true, &values, &roots, &mut plan);
    definitions(&root, root.name(), &mut plan.crds);
    Ok(plan)
}

fn check_kube_version(chart: &Chart, kube: &str) -> Result<(), Error> {
    let wanted = &chart.metadata.kube_version;
    if wanted.is_empty() {
        return Ok(());
    }
    let fits = Constraints::parse(wanted).zip(Version::parse(kube)).is_some_and(|(c, v)| c.allow(&v));
    if fits {
        return Ok(());
    }
    let message = format!("chart requires kubeVersion: {wanted} which is incompatible with Kubernetes {kube}");
    Err(Error::chart("Chart.yaml", message))
}

struct Roots {
    release: Value,
    capabilities: Value,
    extra: Vec<(String, Value)>,
}

/// Adds the templates of a chart and its children, and returns what a parent sees of it in `.Subcharts`.
fn collect(chart: &Chart, path: &str, is_root: bool, values: &Value, roots: &Roots, plan: &mut Plan) -> Value {
    let subcharts = Value::dict([]);
    let dot = Value::map_of(
        MapKind::Any,
        [
            ("Capabilities", roots.capabilities.clone()),
            ("Chart", chart_value(chart, is_root)),
            ("Files", Value::object(Object::Files(chart.files.clone()))),
            ("Release", roots.release.clone()),
            ("Subcharts", subcharts.clone()),
            ("Values", values.clone()),
        ]
        .map(|(name, value)| (Rc::from(name), value))
        .into(),
    );
    if let Value::Map(dot) = &dot {
        for (name, value) in &roots.extra {
            match (name.as_str(), dot.get("Chart")) {
                ("Chart", Some(Value::Map(chart))) => merge_fields(&chart, value),
                _ => dot.set(name, value.clone()),
            }
        }
    }
    for child in &chart.children {
        // The same map, not a copy: what a parent sets in its values for a child, the child sees.
        let inner = match values {
            Value::Map(map) => map.get(child.name()),
            _ => None,
        };
        let inner = inner.filter(|value| matches!(value, Value::Map(_))).unwrap_or_else(|| Value::dict([]));
        let seen = collect(child, &format!("{path}/charts/{}", child.name()), false, &inner, roots, plan);
        if let Value::Map(subcharts) = &subcharts {
            subcharts.set(child.name(), seen);
        }
    }
    let base_path = format!("{path}/templates");
    for (name, text) in &chart.templates {
        let is_partial = name.rsplit('/').next().is_some_and(|base| base.starts_with('_'));
        // A library only lends definitions, and the notes of a subchart are nobody's.
        let is_foreign_notes = !is_root && name.ends_with("NOTES.txt");
        if (chart.is_library() && !is_partial) || is_foreign_notes {
            continue;
        }
        plan.templates.push(Template {
            path: format!("{path}/{name}"),
            text: text.clone(),
            base_path: base_path.clone(),
            dot: dot.clone(),
        });
    }
    dot
}

/// What stands in `crds/`, that of a parent before that of its subcharts.
fn definitions(chart: &Chart, path: &str, into: &mut Vec<(String, String)>) {
    into.extend(chart.crds.iter().map(|(name, text)| (format!("{path}/{name}"), text.clone())));
    for child in &chart.children {
        definitions(child, &format!("{path}/charts/{}", child.name()), into);
    }
}

fn merge_fields(chart: &ValueMap, fields: &Value) {
    if let Value::Map(fields) = fields {
        fields.pairs().into_iter().for_each(|(name, value)| chart.set(&name, value));
    }
}

/// `.Chart`: the fields of `Chart.yaml` under the names of Helm's Go structs.
fn chart_value(chart: &Chart, is_root: bool) -> Value {
    let Metadata { api_version, name, version, app_version, kind, kube_version, raw, dependencies, .. } =
        &chart.metadata;
    let text = |key: &str| Value::str(raw.get(key).map(load::text_of).unwrap_or_default());
    let texts = |key: &str| {
        let items = raw.get(key).and_then(Json::as_array).cloned().unwrap_or_default();
        Value::strings(items.iter().map(load::text_of))
    };
    let annotations = raw.get("annotations").and_then(Json::as_object).cloned().unwrap_or_default();
    let annotations = annotations.iter().map(|(k, v)| (Rc::from(k.as_str()), Value::str(load::text_of(v))));
    let maintainers = raw.get("maintainers").and_then(Json::as_array).cloned().unwrap_or_default();
    let maintainers = maintainers.iter().map(|person| {
        let field = |key: &str| Value::str(person.get(key).map(load::text_of).unwrap_or_default());
        Value::dict([("Name", field("name")), ("Email", field("email")), ("URL", field("url"))])
    });
    let dependencies = dependencies.iter().map(|dependency| {
        let Dependency { name, version, repository, condition, tags, alias, import_values, enabled } = dependency;
        Value::dict([
            ("Alias", Value::str(alias.as_str())),
            ("Condition", Value::str(condition.as_str())),
            ("Enabled", Value::Bool(*enabled)),
            ("ImportValues", Value::list(import_values.iter().map(Value::from_json).collect())),
            ("Name", Value::str(name.as_str())),
            ("Repository", Value::str(repository.as_str())),
            ("Tags", Value::strings(tags.iter().map(String::as_str))),
            ("Version", Value::str(version.as_str())),
        ])
    });
    Value::dict([
        ("APIVersion", Value::str(api_version.as_str())),
        ("Annotations", Value::map_of(MapKind::Str, annotations.collect())),
        ("AppVersion", Value::str(app_version.as_str())),
        ("Condition", text("condition")),
        ("Dependencies", Value::list(dependencies.collect())),
        ("Deprecated", Value::Bool(raw.get("deprecated") == Some(&Json::Bool(true)))),
        ("Description", text("description")),
        ("Home", text("home")),
        ("Icon", text("icon")),
        ("IsRoot", Value::Bool(is_root)),
        ("Keywords", texts("keywords")),
        ("KubeVersion", Value::str(kube_version.as_str())),
        ("Maintainers", Value::list(maintainers.collect())),
        ("Name", Value::str(name.as_str())),
        ("Sources", texts("sources")),
        ("Tags", text("tags")),
        ("Type", Value::str(kind.as_str())),
        ("Version", Value::str(version.as_str())),
    ])
}
