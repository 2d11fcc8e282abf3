//! The wire: status codes, representations, pages and watches, as a client without a library sees them.

use ::http::{Request, Response, StatusCode, header};
use axum::body::Body;
use http_body_util::BodyExt;
use tower::ServiceExt;

use super::*;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

pub(super) struct Wire {
    pub(super) cluster: DevCluster,
}

impl Wire {
    pub(super) async fn start() -> Self {
        let config = Config { controllers: false, ..Config::default() };
        Self { cluster: DevCluster::start(config).await.unwrap() }
    }

    pub(super) async fn raw(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Body>,
    ) -> Response<Body> {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.cluster.router().oneshot(request.body(body.into()).unwrap()).await.unwrap()
    }

    pub(super) async fn json(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Value) -> (u16, Value) {
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        let response = self.raw(method, path, headers, body).await;
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&bytes).unwrap_or_else(|_| json!(String::from_utf8_lossy(&bytes))))
    }

    pub(super) async fn get(&self, path: &str) -> (u16, Value) {
        self.json("GET", path, &[], Value::Null).await
    }

    pub(super) async fn make(&self, name: &str, labels: Value) -> Value {
        let (code, made) = self.json("POST", MAPS, &[], json!({"metadata": {"name": name, "labels": labels}})).await;
        assert_eq!(code, 201, "{made}");
        made
    }

    /// All events of a watch that ends by itself.
    async fn watch(&self, query: &str) -> Vec<Value> {
        let response = self.raw("GET", &format!("{MAPS}?watch=true&{query}"), &[], Body::empty()).await;
        assert_eq!(response.status(), StatusCode::OK);
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8(bytes.to_vec()).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|i| i["metadata"]["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn every_refusal_is_a_status_with_its_code() {
    let wire = Wire::start().await;
    wire.make("x", json!({})).await;
    let json_type = ("content-type", "application/json");
    for (method, path, headers, body, code, reason) in [
        ("GET", "/api/v1/namespaces/default/configmaps/none", vec![], String::new(), 404, "NotFound"),
        ("GET", "/apis/none/v1/things", vec![], String::new(), 404, "NotFound"),
        ("GET", "/apis/none/v1", vec![], String::new(), 404, "NotFound"),
        ("POST", "/api/v1/configmaps", vec![json_type], "{}".to_owned(), 405, "MethodNotAllowed"),
        ("PUT", MAPS, vec![json_type], "{}".to_owned(), 405, "MethodNotAllowed"),
        ("POST", MAPS, vec![json_type], "{".to_owned(), 400, "BadRequest"),
        ("POST", MAPS, vec![json_type], "{\"a\":1} trailing".to_owned(), 400, "BadRequest"),
        ("POST", MAPS, vec![json_type], "[".repeat(100_000), 400, "BadRequest"),
        ("POST", MAPS, vec![json_type], "- ".repeat(100_000), 400, "BadRequest"),
        ("POST", MAPS, vec![json_type], "- ".repeat(300), 400, "BadRequest"),
        (
            "POST",
            MAPS,
            vec![json_type],
            format!("{{\"metadata\":{}1{}}}", "{\"a\":".repeat(500), "}".repeat(500)),
            400,
            "BadRequest",
        ),
        ("POST", MAPS, vec![("content-type", "application/cbor")], "k8s".to_owned(), 415, "UnsupportedMediaType"),
        ("POST", MAPS, vec![json_type], format!("\"{}\"", "x".repeat(4 << 20)), 413, "RequestEntityTooLarge"),
        (
            "PATCH",
            "/api/v1/namespaces/default/configmaps/x",
            vec![json_type],
            "{}".to_owned(),
            415,
            "UnsupportedMediaType",
        ),
        (
            "PATCH",
            "/api/v1/namespaces/default/configmaps/x",
            vec![("content-type", "application/apply-patch+yaml")],
            "{}".to_owned(),
            422,
            "Invalid",
        ),
        (
            "GET",
            "/api/v1/configmaps",
            vec![("accept", "application/vnd.kubernetes.protobuf")],
            String::new(),
            406,
            "NotAcceptable",
        ),
        ("GET", "/api/v1/configmaps?labelSelector=a%20b", vec![], String::new(), 400, "BadRequest"),
        ("GET", "/api/v1/configmaps?continue=nonsense", vec![], String::new(), 400, "BadRequest"),
        ("GET", "/api/v1/configmaps?resourceVersion=x", vec![], String::new(), 400, "BadRequest"),
        ("GET", "/api/v1/configmaps?resourceVersion=99999999", vec![], String::new(), 504, "Timeout"),
        ("GET", "/api/v1/configmaps?resourceVersionMatch=Exact", vec![], String::new(), 422, "Invalid"),
        ("GET", "/api/v1/configmaps?watch=1&sendInitialEvents=true", vec![], String::new(), 422, "Invalid"),
        ("DELETE", "/api/v1/namespaces/kube-system", vec![], String::new(), 403, "Forbidden"),
        ("POST", "/api/v1/namespaces/default/configmaps?dryRun=Some", vec![json_type], "{}".to_owned(), 422, "Invalid"),
    ] {
        let response = wire.raw(method, path, &headers, body).await;
        assert_eq!(response.status().as_u16(), code, "{method} {path}");
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let status: Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(
            (&status["kind"], &status["reason"], &status["code"]),
            (&json!("Status"), &json!(reason), &json!(code)),
            "{status}"
        );
    }
    let (code, text) = wire.get("/nothing").await;
    assert_eq!((code, text), (404, json!("404 page not found\n")));
}

#[tokio::test]
async fn pages_show_one_state() {
    let wire = Wire::start().await;
    for name in ["a", "b", "c", "d", "e"] {
        wire.make(name, json!({"odd": "no"})).await;
    }
    let (_, first) = wire.get(&format!("{MAPS}?limit=2")).await;
    assert_eq!(
        (names(&first), &first["metadata"]["remainingItemCount"]),
        (vec!["a", "b"], &json!(4)),
        "the bundle counts too"
    );
    wire.json("DELETE", &format!("{MAPS}/c"), &[], Value::Null).await;
    wire.make("bb", json!({})).await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    let (_, second) = wire.get(&format!("{MAPS}?limit=2&continue={token}")).await;
    assert_eq!(
        (names(&second), &second["metadata"]["resourceVersion"]),
        (vec!["c", "d"], &first["metadata"]["resourceVersion"])
    );
    let token = second["metadata"]["continue"].as_str().unwrap();
    let (_, third) = wire.get(&format!("{MAPS}?limit=9&continue={token}")).await;
    assert_eq!((names(&third), third["metadata"].get("continue")), (vec!["e", "kube-root-ca.crt"], None));
    let (_, selected) = wire.get(&format!("{MAPS}?limit=1&labelSelector=odd")).await;
    assert!(selected["metadata"]["continue"].is_string() && selected["metadata"].get("remainingItemCount").is_none());
}

#[tokio::test]
async fn an_object_that_leaves_a_selection_is_deleted_for_the_watcher() {
    let wire = Wire::start().await;
    let start = wire.make("x", json!({"pick": "no"})).await["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let item = format!("{MAPS}/x");
    let merge = [("content-type", "application/merge-patch+json")];
    for pick in ["yes", "still", "no"] {
        let label = json!({"metadata": {"labels": {"pick": pick}}});
        wire.json("PATCH", &item, &merge, label).await;
    }
    let events =
        wire.watch(&format!("resourceVersion={start}&labelSelector=pick%20in%20(yes,still)&timeoutSeconds=1")).await;
    let seen = events.iter().map(|e| {
        format!("{} {}", e["type"].as_str().unwrap(), e["object"]["metadata"]["labels"]["pick"].as_str().unwrap())
    });
    assert_eq!(seen.collect::<Vec<_>>(), ["ADDED yes", "MODIFIED still", "DELETED still"]);
    let (_, now) = wire.get(&item).await;
    assert_eq!(
        events[2]["object"]["metadata"]["resourceVersion"], now["metadata"]["resourceVersion"],
        "the old object with the new version"
    );
}

#[tokio::test]
async fn a_streamed_list_ends_with_a_bookmark_and_one_comes_before_the_end() {
    let wire = Wire::start().await;
    wire.make("x", json!({"a": "b"})).await;
    let query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&labelSelector=a&timeoutSeconds=1";
    let events = wire.watch(query).await;
    assert_eq!(
        events.iter().map(|e| e["type"].as_str().unwrap()).collect::<Vec<_>>(),
        ["ADDED", "BOOKMARK", "BOOKMARK"]
    );
    assert_eq!(events[1]["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    assert!(events[2]["object"]["metadata"].get("annotations").is_none());
    let without = wire.watch("labelSelector=a&timeoutSeconds=1").await;
    assert_eq!(without.iter().map(|e| e["type"].as_str().unwrap()).collect::<Vec<_>>(), ["ADDED"]);
}

#[tokio::test]
async fn a_watch_of_the_future_is_told_so() {
    let wire = Wire::start().await;
    let events = wire.watch("resourceVersion=99999999&timeoutSeconds=9").await;
    assert_eq!((&events[0]["type"], &events[0]["object"]["code"]), (&json!("ERROR"), &json!(504)));
}

#[tokio::test]
async fn tables_and_metadata_are_rendered_on_request() {
    let wire = Wire::start().await;
    wire.make("x", json!({})).await;
    let table = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json")];
    let (_, list) = wire.json("GET", &format!("{MAPS}?fieldSelector=metadata.name=x"), &table, Value::Null).await;
    assert_eq!(list["kind"], "Table");
    assert_eq!(
        list["columnDefinitions"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect::<Vec<_>>(),
        ["Name", "Data", "Age"]
    );
    assert_eq!(
        (&list["rows"][0]["cells"][0], &list["rows"][0]["object"]["kind"]),
        (&json!("x"), &json!("PartialObjectMetadata"))
    );
    let partial = [("accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")];
    let (_, list) = wire.json("GET", MAPS, &partial, Value::Null).await;
    assert_eq!(
        (&list["kind"], &list["items"][0]["kind"]),
        (&json!("PartialObjectMetadataList"), &json!("PartialObjectMetadata"))
    );
    for (path, format, expected) in [
        (MAPS.to_owned(), "application/json", "ConfigMapList"),
        (format!("{MAPS}/x"), "application/json;as=Table;v=v1;g=meta.k8s.io", "Table"),
        (format!("{MAPS}/x"), "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", "PartialObjectMetadata"),
    ] {
        let (_, object) = wire.json("GET", &path, &[("accept", format)], Value::Null).await;
        assert_eq!(object["kind"], expected);
    }
}

#[tokio::test]
async fn unknown_and_duplicate_fields_warn_or_are_refused() {
    let wire = Wire::start().await;
    let body = r#"{"metadata":{"name":"w"},"data":{"a":"1","a":"2"},"bogus":1}"#;
    let json_type = [("content-type", "application/json")];
    let response = wire.raw("POST", &format!("{MAPS}?fieldValidation=Strict"), &json_type, body).await;
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let status: Value = serde_json::from_slice(&bytes).unwrap();
    assert!(
        status["message"]
            .as_str()
            .unwrap()
            .ends_with("strict decoding error: unknown field \"bogus\", duplicate field \"data.a\""),
        "{status}"
    );
    let response = wire.raw("POST", MAPS, &json_type, body).await;
    let warnings =
        response.headers().get_all(header::WARNING).iter().map(|w| w.to_str().unwrap().to_owned()).collect::<Vec<_>>();
    assert_eq!(warnings, ["299 - \"unknown field \\\"bogus\\\"\"", "299 - \"duplicate field \\\"data.a\\\"\""]);
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: yam\ndata:\n  k: v\n";
    let response = wire.raw("POST", MAPS, &[("content-type", "application/yaml")], yaml).await;
    let code = response.status();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(code, StatusCode::CREATED, "{}", String::from_utf8_lossy(&bytes));
}

#[tokio::test]
async fn collections_are_deleted_by_selector() {
    let wire = Wire::start().await;
    for (name, group) in [("a", "x"), ("b", "x"), ("c", "y")] {
        wire.make(name, json!({"group": group})).await;
    }
    let (code, list) = wire.json("DELETE", &format!("{MAPS}?labelSelector=group=x"), &[], Value::Null).await;
    assert_eq!((code, names(&list)), (200, vec!["a", "b"]));
    let (_, left) = wire.get(&format!("{MAPS}?labelSelector=group")).await;
    assert_eq!(names(&left), ["c"]);
}

#[tokio::test]
async fn reviews_allow_and_leases_compare_and_swap() {
    let wire = Wire::start().await;
    let review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let (code, answer) = wire
        .json("POST", review, &[], json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}))
        .await;
    assert_eq!((code, &answer["status"]["allowed"]), (201, &json!(true)));
    let rules = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    assert_eq!(
        wire.json("POST", rules, &[], json!({"spec": {"namespace": "x"}})).await.1["status"]["incomplete"],
        false
    );
    let lease = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l";
    let body =
        json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "a", "renewTime": "2026-01-01T00:00:00.000000Z"}});
    let (code, made) = wire.json("PUT", lease, &[], body).await;
    assert_eq!(code, 201, "a lease may be created by PUT: {made}");
    let mut mine = made.clone();
    mine["spec"]["holderIdentity"] = json!("b");
    assert_eq!(wire.json("PUT", lease, &[], mine).await.0, 200);
    assert_eq!(wire.json("PUT", lease, &[], made).await.0, 409);
}

#[tokio::test]
async fn requests_are_counted_by_verb() {
    let wire = Wire::start().await;
    wire.make("x", json!({})).await;
    wire.get(MAPS).await;
    wire.get(&format!("{MAPS}/x")).await;
    wire.get("/version").await;
    assert_eq!(wire.cluster.request_count(), 4);
    let verbs = wire.cluster.requests();
    assert_eq!((verbs["create"], verbs["list"], verbs["get"]), (1, 1, 2));
}

#[tokio::test]
async fn objects_and_definitions_survive_a_restart() {
    let folder = std::env::temp_dir().join(format!("devcluster-restart-{}", uuid::Uuid::new_v4()));
    let config = Config { data_dir: Some(folder.clone()), ..Config::default() };
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let definition = json!({"metadata": {"name": "things.example.com"}, "spec": {"group": "example.com", "scope": "Cluster",
        "names": {"plural": "things", "kind": "Thing"}, "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}});
    let version = {
        let wire = Wire { cluster: DevCluster::start(config.clone()).await.unwrap() };
        wire.json("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &[], definition).await;
        let (code, made) = wire
            .json("POST", "/apis/example.com/v1/things", &[], json!({"metadata": {"name": "t"}, "free": {"a": 1}}))
            .await;
        assert_eq!(code, 201, "{made}");
        let router = wire.cluster.router();
        wire.cluster.stop().await;
        // What cannot be kept is not acknowledged.
        let request = Request::post(MAPS).body(Body::from("{\"metadata\":{\"name\":\"late\"}}")).unwrap();
        assert_eq!(router.oneshot(request).await.unwrap().status(), StatusCode::INTERNAL_SERVER_ERROR);
        made["metadata"]["resourceVersion"].clone()
    };
    let wire = Wire { cluster: DevCluster::start(config).await.unwrap() };
    let (code, thing) = wire.get("/apis/example.com/v1/things/t").await;
    assert_eq!((code, &thing["free"], &thing["metadata"]["resourceVersion"]), (200, &json!({"a": 1}), &version));
    wire.cluster.stop().await;
    let _ = std::fs::remove_dir_all(folder);
}

#[tokio::test]
async fn a_server_ends_with_its_open_watches() {
    let cluster = DevCluster::start(Config::default()).await.unwrap();
    let server = cluster.serve("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let mut stream = tokio::net::TcpStream::connect(server.local_addr()).await.unwrap();
    let request = b"GET /api/v1/pods?watch=true HTTP/1.1\r\nHost: x\r\n\r\n";
    tokio::io::AsyncWriteExt::write_all(&mut stream, request).await.unwrap();
    let mut head = [0; 12];
    tokio::io::AsyncReadExt::read_exact(&mut stream, &mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
    let start = std::time::Instant::now();
    server.shutdown().await;
    assert!(start.elapsed() < Duration::from_secs(3));
}

#[tokio::test]
async fn a_list_goes_on_where_it_was_however_much_changes_and_says_when_it_cannot() {
    let wire = Wire::start().await;
    for name in ["a", "b", "c", "d"] {
        wire.make(name, json!({})).await;
    }
    let made = wire.json("POST", "/api/v1/namespaces", &[], json!({"metadata": {"name": "other"}})).await;
    assert_eq!(made.0, 201);
    let elsewhere = "/api/v1/namespaces/other/configmaps";
    for name in ["a", "z"] {
        wire.json("POST", elsewhere, &[], json!({"metadata": {"name": name}})).await;
    }
    // Two lists of one resource at one revision, each with its own pages.
    let ours = |list: &Value| {
        let all = names(list).into_iter().filter(|name| *name != "kube-root-ca.crt");
        all.map(str::to_owned).collect::<Vec<_>>()
    };
    let (_, first) = wire.get(&format!("{MAPS}?limit=2")).await;
    let (_, there) = wire.get(&format!("{elsewhere}?limit=1")).await;
    let (_, all) = wire.get("/api/v1/configmaps?limit=3").await;
    let revision = first["metadata"]["resourceVersion"].as_str().unwrap();
    assert_eq!(names(&first), ["a", "b"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    let token = |list: &Value| list["metadata"]["continue"].as_str().unwrap().to_owned();
    wire.json("DELETE", &format!("{MAPS}/c"), &[], Value::Null).await;
    wire.make("bb", json!({})).await;
    let (_, next) = wire.get(&format!("{MAPS}?limit=2&continue={}", token(&first))).await;
    assert_eq!((names(&next), &next["metadata"]["resourceVersion"]), (vec!["c", "d"], &json!(revision)));
    let (_, next) = wire.get(&format!("{elsewhere}?limit=2&continue={}", token(&there))).await;
    assert_eq!(ours(&next), ["z"]);
    let (_, next) = wire.get(&format!("/api/v1/configmaps?continue={}", token(&all))).await;
    assert_eq!(ours(&next), ["d", "a", "z"]);
    // The state of a revision, without a list that kept it.
    let exact = format!("{MAPS}?resourceVersionMatch=Exact&resourceVersion=");
    let (_, before) = wire.get(&format!("{exact}{revision}")).await;
    assert_eq!(ours(&before), ["a", "b", "c", "d"]);
    let earlier = revision.parse::<u64>().unwrap() - 4;
    let (_, before) = wire.get(&format!("{exact}{earlier}")).await;
    assert_eq!(ours(&before), ["a", "b", "c"]);
    // More changes than the history holds, and more lists than are kept.
    for n in 0..4200 {
        let change = [("content-type", "application/merge-patch+json")];
        wire.json("PATCH", &format!("{MAPS}/a"), &change, json!({"data": {"n": n.to_string()}})).await;
        if n % 50 == 0 {
            wire.get(&format!("{MAPS}?limit=1")).await;
        }
    }
    let (code, gone) = wire.get(&format!("{MAPS}?limit=2&continue={}", token(&first))).await;
    assert_eq!((code, gone["reason"].as_str()), (410, Some("Expired")), "{gone}");
    assert!(gone["message"].as_str().unwrap().starts_with("The provided continue parameter is too old to display"));
    let (_, rest) = wire.get(&format!("{MAPS}?limit=1&continue={}", token(&gone))).await;
    assert_eq!(names(&rest), ["bb"], "what is there now");
    let (_, rest) = wire.get(&format!("{MAPS}?limit=2&continue={}", token(&rest))).await;
    assert_eq!(ours(&rest), ["d"]);
    assert_eq!(wire.get(&format!("{exact}{earlier}")).await.0, 410);
}

#[tokio::test]
async fn parameters_of_lists_that_contradict_each_other_are_refused() {
    let wire = Wire::start().await;
    wire.make("a", json!({})).await;
    wire.make("b", json!({})).await;
    let (_, list) = wire.get(&format!("{MAPS}?limit=1")).await;
    let token = list["metadata"]["continue"].as_str().unwrap().to_owned();
    let options = "ListOptions.meta.k8s.io \"\" is invalid: ";
    // As a real server (1.37.2) answers.
    let rows = [
        (
            format!("limit=2&resourceVersion=5&continue={token}"),
            400,
            "specifying resource version is not allowed when using continue".to_owned(),
        ),
        (
            format!("limit=2&resourceVersionMatch=Exact&continue={token}"),
            422,
            format!(
                "{options}[resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is \
             provided, resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided]"
            ),
        ),
        (
            "resourceVersionMatch=Foo&resourceVersion=1".to_owned(),
            422,
            format!(
                "{options}resourceVersionMatch: Unsupported value: \"Foo\": supported values: \"Exact\", \"NotOlderThan\", \
             \"\""
            ),
        ),
        (
            "resourceVersionMatch=Exact&resourceVersion=0".to_owned(),
            422,
            format!(
                "{options}resourceVersionMatch: Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \
             \"0\""
            ),
        ),
        (
            "resourceVersion=x".to_owned(),
            400,
            "invalid resource version: resourceVersion: Invalid value: \"x\": \
            strconv.ParseUint: parsing \"x\": invalid syntax"
                .to_owned(),
        ),
        ("limit=x".to_owned(), 400, "strconv.ParseInt: parsing \"x\": invalid syntax".to_owned()),
        (
            "watch=1&resourceVersionMatch=Exact&resourceVersion=1".to_owned(),
            422,
            format!(
                "{options}[resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless \
             sendInitialEvents is provided, resourceVersionMatch: Unsupported value: \"Exact\": supported values: \
             \"NotOlderThan\"]"
            ),
        ),
    ];
    for (query, code, message) in rows {
        let (answered, status) = wire.get(&format!("{MAPS}?{query}")).await;
        assert_eq!((answered, status["message"].as_str().unwrap()), (code, message.as_str()), "{query}");
    }
    for query in ["limit=-1".to_owned(), format!("resourceVersion=0&continue={token}"), "limit=0".to_owned()] {
        assert_eq!(wire.get(&format!("{MAPS}?{query}")).await.0, 200, "{query}");
    }
    for token in ["bad", "", "e30", "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MH0", "%00"] {
        let (code, status) = wire.get(&format!("{MAPS}?continue={token}")).await;
        let expected = if token.is_empty() { 200 } else { 400 };
        assert_eq!(code, expected, "{status}");
    }
}
