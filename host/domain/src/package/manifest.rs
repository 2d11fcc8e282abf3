//! `package.yaml`.
//!
//! Read by hand rather than by derive: all problems are to be reported at once, each with its place, and an unknown key
//! with the known one that it resembles.

use std::collections::{BTreeMap, BTreeSet};

use semver::Version;
use serde::Serialize;
use serde_json::Value;

use super::Problem;
use super::document::{Document, join};
use super::reader::{At, Reader, nearest};
use crate::grant::{Permission, Verb};
use crate::identity::dns_label;
use crate::requirement::{Constraint, ModuleGroup, ModuleRequirement, ModuleRequirements, Requirements, parse_version};

/// What a package is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum PackageType {
    /// Installed many times, in namespaces.
    Application,
    /// A part of the platform. Known, but not installed by us.
    Module,
}

/// `package.yaml`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// What it is.
    #[serde(rename = "type")]
    pub package_type: PackageType,
    /// Name of the package; a DNS label.
    pub name: String,
    /// Its version.
    pub version: Version,
    /// How mature it is, for the catalogue.
    pub stage: String,
    /// Where it stands in the catalogue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    /// Text of the catalogue by language.
    pub descriptions: BTreeMap<String, String>,
    /// What the platform must have.
    pub requirements: Requirements,
    /// Editions of the platform.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub editions: BTreeMap<String, Edition>,
    /// What is asked before the package is removed.
    pub disable: Disable,
    /// What the hooks ask for.
    pub permissions: Vec<Permission>,
    /// Order among modules; only for modules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<i64>,
    /// Only for modules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub critical: Option<bool>,
}

/// Whether a package is there in an edition of the platform.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Edition {
    /// It is.
    pub available: bool,
    /// Bundles in which it is on.
    pub enabled_in_bundles: Vec<String>,
}

/// What is asked before a package is removed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Disable {
    /// Ask.
    pub confirmation: bool,
    /// The question, by language; `""` for one without a language.
    pub messages: BTreeMap<String, String>,
}

impl Manifest {
    /// Parses a manifest.
    ///
    /// # Errors
    /// Malformed YAML or duplicate keys; otherwise all problems.
    pub fn parse(file: &str, text: &str) -> Result<Self, Vec<Problem>> {
        let document = Document::parse(file, text)?;
        let mut reader = Reader { document: &document, problems: Vec::new() };
        let manifest = reader.manifest();
        let Reader { mut problems, .. } = reader;
        problems.sort_by_key(|problem| (problem.line, problem.column));
        match manifest {
            Some(manifest) if problems.is_empty() => Ok(manifest),
            _ => Err(problems),
        }
    }
}

impl<'a> Reader<'a> {
    /// Text by language.
    fn messages(&mut self, node: &At<'a>) -> BTreeMap<String, String> {
        let mut messages = BTreeMap::new();
        if self.object(node, &["en", "ru"]) {
            for language in ["en", "ru"] {
                if let Some(text) = self.member(node, language).and_then(|member| self.text(&member)) {
                    messages.insert(language.to_owned(), text);
                }
            }
        }
        messages
    }

    fn manifest(&mut self) -> Option<Manifest> {
        const KNOWN: [&str; 13] = [
            "apiVersion",
            "type",
            "name",
            "version",
            "stage",
            "category",
            "descriptions",
            "requirements",
            "licensing",
            "disable",
            "permissions",
            "weight",
            "critical",
        ];
        let root = At { pointer: String::new(), value: &self.document.value };
        if root.value.is_null() {
            self.report("MalformedYaml", "", "is empty", None);
            return None;
        }
        if !self.object(&root, &KNOWN) {
            return None;
        }
        if let Some(node) = self.member(&root, "apiVersion")
            && self.text(&node).is_some_and(|version| version != "v1")
        {
            self.report("BadValue", &node.pointer, "must be 'v1'", None);
        }
        let package_type = self.required(&root, "type").and_then(|node| self.package_type(&node));
        let name = self.required(&root, "name").and_then(|node| self.name(&node));
        let version = self.required(&root, "version").and_then(|node| self.version(&node));
        let stage = self.required(&root, "stage").and_then(|node| self.text(&node));
        let category = self.member(&root, "category").and_then(|node| self.text(&node));
        let descriptions = self.required(&root, "descriptions").map(|node| {
            let before = self.problems.len();
            let descriptions = self.messages(&node);
            if descriptions.is_empty() && self.problems.len() == before {
                let hint = Some("give a text in at least one language: en, ru".to_owned());
                self.report("MissingKey", &node.pointer, "has no text", hint);
            }
            descriptions
        });
        let requirements = self.member(&root, "requirements").map(|node| self.requirements(&node)).unwrap_or_default();
        let editions = self.member(&root, "licensing").map(|node| self.editions(&node)).unwrap_or_default();
        let disable = self.member(&root, "disable").map(|node| self.disable(&node)).unwrap_or_default();
        let permissions = self.member(&root, "permissions").map(|node| self.permissions(&node)).unwrap_or_default();
        let weight = self.member(&root, "weight").and_then(|node| {
            if node.value.as_i64().is_none() {
                self.bad_type(&node, "a whole number");
            }
            node.value.as_i64()
        });
        let critical = self.member(&root, "critical").and_then(|node| self.flag(&node));
        if package_type == Some(PackageType::Application) {
            for key in ["weight", "critical"] {
                if root.value.get(key).is_some() {
                    let hint = Some("remove it: applications are not ordered".to_owned());
                    self.report("BadValue", &join("", key), "is only for packages of type Module", hint);
                }
            }
        }
        Some(Manifest {
            package_type: package_type?,
            name: name?,
            version: version?,
            stage: stage?,
            category,
            descriptions: descriptions?,
            requirements,
            editions,
            disable,
            permissions,
            weight,
            critical,
        })
    }

    fn package_type(&mut self, node: &At<'a>) -> Option<PackageType> {
        match self.text(node)?.as_str() {
            "Application" => Some(PackageType::Application),
            "Module" => Some(PackageType::Module),
            other => {
                let message = format!("'{other}' is no type of package");
                self.report("BadValue", &node.pointer, message, Some("use 'Application'".to_owned()));
                None
            }
        }
    }

    fn name(&mut self, node: &At<'a>) -> Option<String> {
        let name = self.text(node)?;
        if let Err(error) = dns_label("package name", &name) {
            self.report("BadValue", &node.pointer, error.to_string(), Some("for example 'web-shop'".to_owned()));
            return None;
        }
        Some(name)
    }

    fn version(&mut self, node: &At<'a>) -> Option<Version> {
        let text = self.text(node)?;
        match Version::parse(text.strip_prefix('v').unwrap_or(&text)) {
            Ok(version) => Some(version),
            Err(_) => {
                let hint = match parse_version(&text) {
                    Ok(version) => format!("write all three numbers: {version}"),
                    Err(_) => "for example 1.2.3".to_owned(),
                };
                let message = format!("'{text}' is no semantic version");
                self.report("BadVersion", &node.pointer, message, Some(hint));
                None
            }
        }
    }

    fn disable(&mut self, node: &At<'a>) -> Disable {
        if !self.object(node, &["confirmation", "messages", "message"]) {
            return Disable::default();
        }
        let confirmation = self.member(node, "confirmation").and_then(|member| self.flag(&member)).unwrap_or_default();
        let mut messages = self.member(node, "messages").map(|member| self.messages(&member)).unwrap_or_default();
        if let Some(text) = self.member(node, "message").and_then(|member| self.text(&member)) {
            messages.insert(String::new(), text);
        }
        Disable { confirmation, messages }
    }

    fn editions(&mut self, node: &At<'a>) -> BTreeMap<String, Edition> {
        let mut editions = BTreeMap::new();
        if !self.object(node, &["editions"]) {
            return editions;
        }
        let Some(node) = self.member(node, "editions") else { return editions };
        let Some(object) = node.value.as_object() else {
            self.bad_type(&node, "an object");
            return editions;
        };
        for (name, value) in object {
            let edition = At { pointer: join(&node.pointer, name), value };
            if self.object(&edition, &["available", "enabledInBundles"]) {
                let available = self.member(&edition, "available").and_then(|member| self.flag(&member));
                let bundles = self.member(&edition, "enabledInBundles").map(|member| self.texts(&member));
                editions.insert(
                    name.clone(),
                    Edition {
                        available: available.unwrap_or_default(),
                        enabled_in_bundles: bundles.unwrap_or_default(),
                    },
                );
            }
        }
        editions
    }

    fn constraint(&mut self, node: &At<'a>, context: &str) -> Option<Constraint> {
        let text = self.text(node)?;
        match Constraint::parse(&text) {
            Ok(constraint) => Some(constraint),
            Err(error) => {
                let hint = Some("for example '>= 1.2', '~1.4' or '>= 1.2, < 2 || 3.x'".to_owned());
                self.report("BadConstraint", &node.pointer, format!("{context}: {error}"), hint);
                None
            }
        }
    }

    fn requirements(&mut self, node: &At<'a>) -> Requirements {
        if !self.object(node, &["kubernetes", "deckhouse", "modules"]) {
            return Requirements::default();
        }
        let kubernetes = self.member(node, "kubernetes").and_then(|member| self.platform(&member, "kubernetes"));
        let deckhouse = self.member(node, "deckhouse").and_then(|member| self.platform(&member, "deckhouse"));
        let modules = self.member(node, "modules").map(|member| self.modules(&member)).unwrap_or_default();
        Requirements { kubernetes, deckhouse, modules }
    }

    /// `{constraint: …}`, or the constraint itself in older manifests.
    fn platform(&mut self, node: &At<'a>, subject: &str) -> Option<Constraint> {
        let context = format!("parse {subject} requirement");
        if node.value.is_object() {
            self.object(node, &["constraint"]);
            let member = self.required(node, "constraint")?;
            self.constraint(&member, &context)
        } else {
            self.constraint(node, &context)
        }
    }

    fn modules(&mut self, node: &At<'a>) -> ModuleRequirements {
        const BUCKETS: [&str; 4] = ["mandatory", "conditional", "anyOf", "noneOf"];
        let mut modules = ModuleRequirements::default();
        let Some(object) = node.value.as_object() else {
            self.bad_type(node, "an object");
            return modules;
        };
        // Older manifests map names to constraints. A module may be called like a bucket, but then it has text here.
        if !object.is_empty() && object.values().all(Value::is_string) {
            return self.legacy_modules(node);
        }
        self.object(node, &BUCKETS);
        let mut taken: BTreeMap<String, String> = BTreeMap::new();
        if let Some(list) = self.member(node, "mandatory") {
            modules.mandatory = self.bucket(&list, "mandatory", &mut taken);
        }
        if let Some(list) = self.member(node, "conditional") {
            modules.conditional = self.bucket(&list, "conditional", &mut taken);
        }
        if let Some(list) = self.member(node, "anyOf") {
            modules.any_of = self.groups(&list, "anyOf", &mut taken);
        }
        if let Some(list) = self.member(node, "noneOf") {
            modules.none_of = self.groups(&list, "noneOf", &mut taken);
        }
        modules
    }

    fn legacy_modules(&mut self, node: &At<'a>) -> ModuleRequirements {
        let mut modules = ModuleRequirements::default();
        for (name, value) in node.value.as_object().into_iter().flatten() {
            let member = At { pointer: join(&node.pointer, name), value };
            let Some(text) = self.text(&member) else { continue };
            let (text, optional) = match text.strip_suffix("!optional") {
                Some(text) => (text.trim(), true),
                None => (text.as_str(), false),
            };
            let kind = if optional { "conditional" } else { "mandatory" };
            match Constraint::parse(text) {
                Ok(constraint) => {
                    let requirement = ModuleRequirement { name: name.clone(), constraint: Some(constraint) };
                    if optional { &mut modules.conditional } else { &mut modules.mandatory }.push(requirement);
                }
                Err(error) => {
                    let message = format!("parse {kind} module requirement '{name}': {error}");
                    self.report("BadConstraint", &member.pointer, message, None);
                }
            }
        }
        modules
    }

    /// `mandatory` or `conditional`.
    fn bucket(&mut self, list: &At<'a>, bucket: &str, taken: &mut BTreeMap<String, String>) -> Vec<ModuleRequirement> {
        let mut requirements = Vec::new();
        for item in self.items(list) {
            if !self.object(&item, &["name", "constraint"]) {
                continue;
            }
            let Some(name) = self.required(&item, "name").and_then(|node| self.text(&node)) else { continue };
            let context = format!("parse {bucket} module requirement '{name}'");
            if let Some(other) = taken.get(&name) {
                let why = if other == bucket { "listed twice".to_owned() } else { format!("also listed as {other}") };
                self.report("DuplicateModule", &item.pointer, format!("{context}: {why}"), None);
            }
            let constraint = self.member(&item, "constraint").and_then(|node| self.constraint(&node, &context));
            if bucket == "conditional" && item.value.get("constraint").is_none_or(Value::is_null) {
                self.report("MissingKey", &item.pointer, format!("{context}: constraint is required"), None);
            }
            taken.insert(name.clone(), bucket.to_owned());
            requirements.push(ModuleRequirement { name, constraint });
        }
        requirements
    }

    /// `anyOf` or `noneOf`. A module may stand in several groups of one bucket, but in one bucket only.
    fn groups(&mut self, list: &At<'a>, bucket: &str, taken: &mut BTreeMap<String, String>) -> Vec<ModuleGroup> {
        let mut groups: Vec<ModuleGroup> = Vec::new();
        let earlier = taken.clone();
        for (index, item) in self.items(list).into_iter().enumerate() {
            if !self.object(&item, &["name", "description", "modules"]) {
                continue;
            }
            let Some(name) = self.member(&item, "name").and_then(|node| self.text(&node)) else {
                let message = format!("parse {bucket} group [{index}]: name is required");
                self.report("MissingKey", &item.pointer, message, None);
                continue;
            };
            let context = format!("parse {bucket} group '{name}'");
            if groups.iter().any(|group| group.name == name) {
                self.report("DuplicateGroup", &item.pointer, format!("{context}: duplicate group name"), None);
            }
            let description = self.member(&item, "description").and_then(|node| self.text(&node));
            let members = self.member(&item, "modules").map(|node| self.items(&node)).unwrap_or_default();
            if members.is_empty() {
                self.report("EmptyGroup", &item.pointer, format!("{context}: at least one member is required"), None);
            }
            let mut modules = Vec::new();
            let mut names = BTreeSet::new();
            for member in members {
                if !self.object(&member, &["name", "constraint"]) {
                    continue;
                }
                let Some(module) = self.member(&member, "name").and_then(|node| self.text(&node)) else {
                    self.report("MissingKey", &member.pointer, format!("{context}: member name is required"), None);
                    continue;
                };
                if !names.insert(module.clone()) {
                    let message = format!("{context}: duplicate member '{module}'");
                    self.report("DuplicateModule", &member.pointer, message, None);
                }
                if let Some(other) = earlier.get(&module) {
                    let link = if other.starts_with("in ") { "" } else { "as " };
                    let message = format!("{context} member '{module}': also listed {link}{other}");
                    self.report("DuplicateModule", &member.pointer, message, None);
                }
                let context = format!("{context} member '{module}'");
                let constraint = self.member(&member, "constraint").and_then(|node| self.constraint(&node, &context));
                taken.insert(module.clone(), format!("in {bucket} group '{name}'"));
                modules.push(ModuleRequirement { name: module, constraint });
            }
            groups.push(ModuleGroup { name, description, modules });
        }
        groups
    }

    fn permissions(&mut self, node: &At<'a>) -> Vec<Permission> {
        let mut permissions = Vec::new();
        for item in self.items(node) {
            if !self.object(&item, &["apiGroups", "kinds", "verbs", "names", "cluster"]) {
                continue;
            }
            let api_groups = self.permission_list(&item, "apiGroups", |group| {
                let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
                (group == "*" || group.chars().all(plain)).then(|| group.to_owned()).ok_or_else(|| {
                    let hint = group.split_once('/').map(|(group, _)| format!("leave the version out: '{group}'"));
                    (format!("'{group}' is no API group"), hint)
                })
            });
            let kinds = self.permission_list(&item, "kinds", |kind| {
                let plain = kind.starts_with(|c: char| c.is_ascii_uppercase())
                    && kind.chars().all(|c| c.is_ascii_alphanumeric());
                (kind == "*" || plain).then(|| kind.to_owned()).ok_or_else(|| {
                    let hint = "write the kind as in an object, for example 'ConfigMap', not 'configmaps'".to_owned();
                    (format!("'{kind}' is no kind"), Some(hint))
                })
            });
            let verbs = self.permission_list(&item, "verbs", |verb| {
                const VERBS: [Verb; 5] = [Verb::Watch, Verb::Create, Verb::Apply, Verb::Patch, Verb::Delete];
                VERBS.into_iter().find(|known| known.as_str() == verb).ok_or_else(|| {
                    let known = VERBS.map(Verb::as_str);
                    let hint = match (verb, nearest(verb, &known)) {
                        ("get" | "list", _) => "reading is 'watch'".to_owned(),
                        ("update", _) => "changing is 'patch' or 'apply'".to_owned(),
                        (_, Some(nearest)) => format!("did you mean '{nearest}'?"),
                        (_, None) => format!("known verbs: {}", known.join(", ")),
                    };
                    (format!("'{verb}' is no verb"), Some(hint))
                })
            });
            let names = self.member(&item, "names").map(|names| {
                let names = (names.pointer.clone(), self.texts(&names));
                if names.1.is_empty() {
                    let hint = Some("leave the key out to allow all names".to_owned());
                    self.report("BadValue", &names.0, "must not be empty", hint);
                }
                names.1
            });
            let cluster = self.member(&item, "cluster").and_then(|member| self.flag(&member)).unwrap_or_default();
            permissions.push(Permission { api_groups, kinds, verbs, names, cluster });
        }
        permissions
    }

    /// A list with at least one entry, all of which are understood.
    fn permission_list<T>(
        &mut self,
        item: &At<'a>,
        key: &str,
        parse: impl Fn(&str) -> Result<T, (String, Option<String>)>,
    ) -> Vec<T> {
        let Some(list) = self.required(item, key) else { return Vec::new() };
        let entries = self.items(&list);
        if entries.is_empty() && list.value.is_array() {
            self.report("BadValue", &list.pointer, "must not be empty", None);
        }
        let mut parsed = Vec::new();
        for entry in entries {
            let Some(text) = entry.value.as_str() else {
                self.bad_type(&entry, "text");
                continue;
            };
            match parse(text) {
                Ok(value) => parsed.push(value),
                Err((message, hint)) => self.report("BadValue", &entry.pointer, message, hint),
            }
        }
        parsed
    }
}
