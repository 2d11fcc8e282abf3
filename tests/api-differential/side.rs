//! One of the two servers: asks it, and writes its answers so that they can be compared.

use std::collections::HashMap;

use kube::Client;
use serde_json::{Map, Value, json};

/// A question. In its path and its body `$rv:RESOURCE/NAME`, `$old:…` and `$uid:…` stand for what the server has said of
/// that object: its last version, its first one, its uid.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Request {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    /// Content type of the body.
    pub(crate) kind: &'static str,
    pub(crate) body: Value,
}

/// An answer that can be compared.
#[derive(Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) warnings: Value,
    pub(crate) body: Value,
}

/// What is known of an object that a server has told of.
#[derive(Default, Clone)]
struct Seen {
    uid: String,
    first: String,
    last: String,
}

pub(crate) struct Side {
    client: Client,
    objects: HashMap<String, Seen>,
    /// What the server has drawn, and what it is called here.
    names: HashMap<String, String>,
    counts: HashMap<&'static str, usize>,
}

impl Side {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, objects: HashMap::new(), names: HashMap::new(), counts: HashMap::new() }
    }

    /// The names of objects of a resource that the server has told of.
    pub(crate) fn names(&self, resource: &str) -> Vec<String> {
        let mut names: Vec<String> = self
            .objects
            .keys()
            .filter_map(|key| key.strip_prefix(resource)?.strip_prefix('/'))
            // What a server has drawn is another name on each side.
            .filter(|name| !name.starts_with("made-"))
            .map(str::to_owned)
            .collect();
        names.sort();
        names
    }

    /// Whether an object of the resource has a name that the server has drawn.
    pub(crate) fn has_drawn(&self, resource: &str) -> bool {
        self.objects.keys().any(|key| key.starts_with(&format!("{resource}/made-")))
    }

    pub(crate) async fn ask(&mut self, request: &Request) -> Answer {
        let path = self.filled(&request.path);
        let text = if request.body.is_null() { String::new() } else { self.filled(&request.body.to_string()) };
        let asked = axum::http::Request::builder()
            .method(request.method)
            .uri(path)
            .header("content-type", request.kind)
            .body(kube::client::Body::from(text.into_bytes()))
            .unwrap();
        let response = self.client.send(asked).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = axum::body::to_bytes(axum::body::Body::new(body), 64 << 20).await.unwrap();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let lines: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| json!(line))).collect();
        let body = serde_json::from_str::<Value>(&text).unwrap_or(Value::Array(lines));
        self.learn(&request.path, &body);
        // A refusal tells the name, too, that the server had drawn.
        let given = (request.body["metadata"]["generateName"].as_str(), body["details"]["name"].as_str());
        if let (Some(prefix), Some(name)) = given
            && name.len() > prefix.len()
            && name.starts_with(prefix)
        {
            self.called(name, "name");
        }
        let warnings = parts.headers.get_all("warning").iter().map(|it| json!(String::from_utf8_lossy(it.as_bytes())));
        let mut body = self.plain(&body, "");
        in_order(&mut body);
        Answer { code: parts.status.as_u16(), warnings: warnings.collect(), body }
    }

    /// How far the server is in each collection.
    pub(crate) async fn versions(&self, collections: &[String]) -> Vec<String> {
        let mut versions = Vec::new();
        for collection in collections {
            let list = self.text(format!("{collection}?limit=1")).await;
            let list = serde_json::from_str::<Value>(&list).unwrap_or_default();
            versions.push(list["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned());
        }
        versions
    }

    /// What watches from these versions on tell, for each collection.
    pub(crate) async fn watch(&mut self, collections: &[String], from: &[String]) -> Vec<Answer> {
        let paths = collections
            .iter()
            .zip(from)
            .map(|(collection, version)| format!("{collection}?watch=true&resourceVersion={version}&timeoutSeconds=1"));
        let told = futures::future::join_all(paths.map(|path| self.text(path))).await;
        let mut answers = Vec::new();
        for text in told {
            let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            // Where there are controllers, every namespace has this one.
            let events = events.filter(|event| event["object"]["metadata"]["name"] != "kube-root-ca.crt");
            let body = events.map(|event| self.plain(&event, "")).collect();
            answers.push(Answer { code: 200, warnings: Value::Null, body });
        }
        answers
    }

    async fn text(&self, path: String) -> String {
        let request = axum::http::Request::get(path).body(kube::client::Body::empty()).unwrap();
        let body = self.client.send(request).await.unwrap().into_body();
        let bytes = axum::body::to_bytes(axum::body::Body::new(body), 64 << 20).await.unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Removes what the episode has made.
    pub(crate) async fn leave(&mut self, namespace: &str) {
        for collection in crate::objects::collections(namespace) {
            let list = self.ask(&Request::get(collection.clone())).await;
            for item in list.body["items"].as_array().into_iter().flatten() {
                let name = item["metadata"]["name"].as_str().unwrap_or_default();
                let name = self.names.iter().find(|(_, called)| *called == name).map_or(name, |(name, _)| name);
                let path = format!("{collection}/{name}");
                let freed = json!({"metadata": {"finalizers": null}});
                let kind = "application/merge-patch+json";
                self.ask(&Request { method: "PATCH", path: path.clone(), kind, body: freed }).await;
                let path = format!("{path}?propagationPolicy=Background");
                self.ask(&Request { method: "DELETE", path, kind: "application/json", body: Value::Null }).await;
            }
        }
        let path = format!("/api/v1/namespaces/{namespace}");
        self.ask(&Request { method: "DELETE", path, kind: "application/json", body: Value::Null }).await;
    }

    /// Replaces what stands for versions and uids.
    fn filled(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            let (before, from) = rest.split_at(at);
            out.push_str(before);
            let end = from.find(['"', '&', '\'']).unwrap_or(from.len());
            let (word, after) = from.split_at(end);
            match word[1..].split_once(':') {
                Some((what, key)) => {
                    let seen = self.objects.get(key).cloned().unwrap_or_default();
                    out.push_str(match what {
                        "rv" => &seen.last,
                        "old" => &seen.first,
                        _ => &seen.uid,
                    });
                }
                None => out.push_str(word),
            }
            rest = after;
        }
        out + rest
    }

    /// Remembers versions, uids and names that the server has drawn.
    fn learn(&mut self, path: &str, body: &Value) {
        let path = path.split('?').next().unwrap_or_default();
        let parts: Vec<&str> = path.split('/').collect();
        let Some(at) = parts.iter().position(|part| *part == "namespaces").filter(|at| parts.len() > at + 2) else {
            return;
        };
        let resource = parts[at + 2];
        let metadata = &body["metadata"];
        if let (Some(uid), Some(name)) = (metadata["uid"].as_str(), metadata["name"].as_str()) {
            if metadata["generateName"].as_str().is_some_and(|prefix| name.len() > prefix.len()) {
                self.called(name, "name");
            }
            let version = metadata["resourceVersion"].as_str().unwrap_or_default().to_owned();
            let seen = self.objects.entry(format!("{resource}/{name}")).or_default();
            if seen.uid != uid {
                *seen = Seen { uid: uid.to_owned(), first: version.clone(), last: String::new() };
            }
            seen.last = version;
        }
    }

    /// What something that the server has drawn is called here.
    fn called(&mut self, drawn: &str, what: &'static str) -> String {
        if let Some(name) = self.names.get(drawn) {
            return name.clone();
        }
        let count = self.counts.entry(what).or_default();
        *count += 1;
        let name = format!("<{what} {count}>");
        self.names.insert(drawn.to_owned(), name.clone());
        name
    }

    /// The same without what the server has drawn.
    fn plain(&mut self, value: &Value, key: &str) -> Value {
        match value {
            Value::Object(map) => {
                let list = map.contains_key("items");
                let mut out = Map::new();
                for (key, value) in map {
                    if key == "items" && list {
                        // Where there are controllers, every namespace has this one.
                        let own = |item: &&Value| item["metadata"]["name"] != "kube-root-ca.crt";
                        let items = value.as_array().into_iter().flatten().filter(own);
                        let mut items = items.map(|item| self.plain(item, "")).collect::<Vec<_>>();
                        // The order is that of the names, and some names are drawn.
                        items.sort_by_key(|item| item["metadata"]["name"].to_string());
                        out.insert(key.clone(), Value::Array(items));
                        continue;
                    }
                    let plain = match key.as_str() {
                        // That of a list says how far the server is, in which others write, too.
                        "metadata" if list => {
                            json!({"continue": value["continue"].as_str().is_some_and(|it| !it.is_empty()),
                            "remainingItemCount": value["remainingItemCount"]})
                        }
                        "managedFields" => self.managed(value),
                        _ => self.plain(value, key),
                    };
                    out.insert(key.clone(), plain);
                }
                Value::Object(out)
            }
            Value::Array(items) => items.iter().map(|item| self.plain(item, key)).collect(),
            Value::String(text) => match key {
                "resourceVersion" if !text.is_empty() => json!(self.called(&format!("rv/{text}"), "version")),
                "clusterIP" | "clusterIPs" if text != "None" => json!(self.called(text, "address")),
                _ => json!(self.called_so(text)),
            },
            Value::Number(_) if key == "nodePort" || key == "healthCheckNodePort" => json!("<port>"),
            other => other.clone(),
        }
    }

    /// The order of managers depends on times, which are not compared.
    fn managed(&mut self, value: &Value) -> Value {
        let Value::Array(entries) = self.plain(value, "") else { return value.clone() };
        let mut entries = entries;
        entries.sort_by_key(|it| format!("{} {} {}", it["manager"], it["operation"], it["subresource"]));
        Value::Array(entries)
    }

    fn called_so(&mut self, text: &str) -> String {
        if text.parse::<jiff::Timestamp>().is_ok() {
            return "<time>".to_owned();
        }
        let mut out = versions(&times(text));
        for uid in uids(text) {
            let name = self.called(&uid, "uid");
            out = out.replace(&uid, &name);
        }
        for (drawn, name) in &self.names {
            if name.starts_with("<name") && out.contains(drawn.as_str()) {
                out = out.replace(drawn.as_str(), name);
            }
        }
        out
    }
}

/// Conflicts are found in the order of a Go map, and so are the faults of a custom object. What is refused as a template
/// is shown in the form that the server has inside, and a patched object as it was read.
fn in_order(body: &mut Value) {
    let invalid = body["reason"] == "Invalid";
    let custom = body["details"]["group"] == "differential.example.com";
    let conflict = body["reason"] == "Conflict";
    let Some(causes) = body["details"]["causes"].as_array_mut().filter(|_| invalid || conflict) else { return };
    let mut again = false;
    for cause in causes.iter_mut().filter(|_| invalid) {
        let field = cause["field"].as_str().unwrap_or_default();
        let tail = match (field, cause["message"].as_str()) {
            ("patch", Some(message)) => message.rsplit_once("\": ").map(|(_, tail)| tail.to_owned()),
            ("spec.template" | "spec.template.spec", Some(message)) => {
                message.rsplit_once("}: ").map(|(_, tail)| tail.to_owned())
            }
            _ => None,
        };
        if let Some(tail) = tail {
            cause["message"] = json!(tail);
            again = true;
        }
    }
    if (conflict || custom) && causes.len() > 1 {
        causes.sort_by_key(Value::to_string);
        again |= custom && invalid;
    }
    if again {
        // The message is the causes once more.
        let head = body["message"].as_str().and_then(|it| it.split_once(": ")).map(|(head, _)| head.to_owned());
        body["message"] = json!(head);
    }
}

impl Request {
    pub(crate) fn get(path: String) -> Self {
        Self { method: "GET", path, kind: "application/json", body: Value::Null }
    }
}

/// Times within a text are called so.
fn times(text: &str) -> String {
    const FORM: &[u8] = b"0000-00-00T00:00:00Z";
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let here = rest.as_bytes().get(..FORM.len()).filter(|here| {
            here.iter().zip(FORM).all(|(byte, form)| if *form == b'0' { byte.is_ascii_digit() } else { byte == form })
        });
        let (said, length) =
            if here.is_some() { ("<time>".to_owned(), FORM.len()) } else { (next.to_string(), next.len_utf8()) };
        out.push_str(&said);
        rest = &rest[length..];
    }
    out
}

/// Versions in a refusal are called so.
fn versions(text: &str) -> String {
    if !text.contains("ResourceVersion in the precondition") {
        return text.to_owned();
    }
    let parts = text.split('(').map(|part| part.trim_start_matches(|it: char| it.is_ascii_digit()));
    parts.collect::<Vec<_>>().join("(")
}

/// What looks like a uid.
fn uids(text: &str) -> Vec<String> {
    const LENGTHS: [usize; 5] = [8, 4, 4, 4, 12];
    let words = text.split(|it: char| !(it.is_ascii_hexdigit() || it == '-'));
    let is_uid = |word: &&str| {
        let parts: Vec<usize> = word.split('-').map(str::len).collect();
        parts == LENGTHS
    };
    words.filter(is_uid).map(str::to_owned).collect()
}
