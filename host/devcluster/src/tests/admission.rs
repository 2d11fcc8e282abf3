//! Webhooks, as clients see them. A real server (1.37.2) was asked for the texts.

use std::sync::Arc;

use ::http::header;
use axum::{Json, Router, body::Body, routing::post};
use base64::Engine;
use http_body_util::BodyExt;
use parking_lot::Mutex;

use super::{http::Wire, *};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1";

/// What webhooks were asked, in order, with the path that was called.
type Asked = Arc<Mutex<Vec<(String, Value)>>>;

fn answered(review: &Value, response: Value) -> Value {
    let mut whole = json!({"uid": review["request"]["uid"], "allowed": true});
    let given = response.as_object().cloned().unwrap_or_default();
    whole.as_object_mut().unwrap().extend(given);
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": whole})
}

fn patch(operations: Value) -> Value {
    let text = base64::engine::general_purpose::STANDARD.encode(operations.to_string());
    json!({"patchType": "JSONPatch", "patch": text})
}

/// A webhook whose path says what it answers.
fn webhook(asked: &Asked) -> Router {
    let asked = Arc::clone(asked);
    let handler = move |uri: ::http::Uri, Json(review): Json<Value>| {
        let asked = Arc::clone(&asked);
        async move {
            let path = uri.path().to_owned();
            asked.lock().push((path.clone(), review.clone()));
            let response = match path.as_str() {
                "/deny" => json!({"allowed": false}),
                "/message" => json!({"allowed": false, "status": {"message": "no way", "code": 403}}),
                "/reason" => json!({"allowed": false, "status": {"reason": "Forbidden"}}),
                "/details" => json!({"allowed": false, "status": {"message": "bad", "code": 422, "reason": "Invalid",
                                     "details": {"causes": [{"field": "x", "message": "m"}]}}}),
                "/warn" => json!({"warnings": ["careful", "careful", "two\nlines"]}),
                "/data" => patch(json!([{"op": "add", "path": "/data", "value": {"w": "1"}}])),
                "/label" => {
                    let seen = review["request"]["object"]["data"]["w"].as_str().unwrap_or("none");
                    patch(json!([{"op": "add", "path": "/metadata/labels", "value": {"seen": seen}}]))
                }
                "/bad-patch" => patch(json!([{"op": "remove", "path": "/nope"}])),
                "/no-type" => json!({"patch": "W10="}),
                "/uid" => json!({"uid": "x"}),
                "/absent" => {
                    return Json(json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}));
                }
                "/kind" => {
                    let mut answer = answered(&review, json!({}));
                    answer["apiVersion"] = json!("admission.k8s.io/v1beta1");
                    return Json(answer);
                }
                "/slow" => {
                    tokio::time::sleep(Duration::from_secs(5)).await;
                    json!({})
                }
                _ => json!({}),
            };
            Json(answered(&review, response))
        }
    };
    Router::new().fallback(post(handler))
}

fn hook(name: &str, path: &str) -> Value {
    json!({
        "name": format!("{name}.example.com"), "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"service": {"namespace": "default", "name": "hooks", "path": path}},
        "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
    })
}

fn with(mut hook: Value, field: &str, value: Value) -> Value {
    hook[field] = value;
    hook
}

struct Hooked {
    wire: Wire,
    asked: Asked,
}

impl Hooked {
    async fn start() -> Self {
        let (wire, asked) = (Wire::start().await, Asked::default());
        wire.cluster.register_service("default", "hooks", webhook(&asked));
        Self { wire, asked }
    }

    /// Puts these webhooks in the place of those before.
    async fn configure(&self, kind: &str, hooks: Vec<Value>) -> (u16, Value) {
        for plural in ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"] {
            self.wire.json("DELETE", &format!("{CONFIGURATIONS}/{plural}"), &[], Value::Null).await;
        }
        self.asked.lock().clear();
        self.add(kind, "w", hooks).await
    }

    async fn add(&self, kind: &str, name: &str, hooks: Vec<Value>) -> (u16, Value) {
        let plural = format!("{}configurations", kind.to_lowercase());
        let object = json!({"metadata": {"name": name}, "webhooks": hooks});
        self.wire.json("POST", &format!("{CONFIGURATIONS}/{plural}"), &[], object).await
    }

    async fn make(&self, name: &str, query: &str) -> (u16, Value) {
        let object = json!({"metadata": {"name": name}, "data": {"k": "v"}});
        self.wire.json("POST", &format!("{MAPS}{query}"), &[], object).await
    }
}

#[tokio::test]
async fn a_webhook_that_refuses_or_fails_is_told_of_in_the_words_of_the_api() {
    let hooked = Hooked::start().await;
    let failed = "Internal error occurred: failed calling webhook \"h.example.com\":";
    let rows = [
        ("/deny", 400, "admission webhook \"h.example.com\" denied the request without explanation".to_owned()),
        ("/message", 403, "admission webhook \"h.example.com\" denied the request: no way".to_owned()),
        ("/reason", 400, "admission webhook \"h.example.com\" denied the request: Forbidden".to_owned()),
        ("/details", 422, "admission webhook \"h.example.com\" denied the request: bad".to_owned()),
        ("/absent", 500, format!("{failed} received invalid webhook response: webhook response was absent")),
        (
            "/kind",
            500,
            format!(
                "{failed} failed to call webhook: converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): unknown \
                 conversion"
            ),
        ),
    ];
    for kind in ["ValidatingWebhook", "MutatingWebhook"] {
        for (path, code, message) in &rows {
            assert_eq!(hooked.configure(kind, vec![hook("h", path)]).await.0, 201);
            let (answered, status) = hooked.make("x", "").await;
            assert_eq!((answered, status["message"].as_str().unwrap()), (*code, message.as_str()), "{kind} {path}");
        }
        hooked.configure(kind, vec![hook("h", "/uid")]).await;
        let (_, status) = hooked.make("x", "").await;
        let message = status["message"].as_str().unwrap();
        assert!(
            message.starts_with(&format!("{failed} received invalid webhook response: expected response.uid=")),
            "{status}"
        );
        assert_eq!(status["details"]["causes"].as_array().unwrap().len(), 1, "{status}");
        // With another policy the failure does not count.
        hooked.configure(kind, vec![with(hook("h", "/uid"), "failurePolicy", json!("Ignore"))]).await;
        assert_eq!(hooked.make(&kind.to_lowercase(), "").await.0, 201);
    }
    hooked.configure("ValidatingWebhook", vec![hook("h", "/details")]).await;
    let (_, status) = hooked.make("x", "").await;
    assert_eq!(status["reason"], "Invalid");
    assert_eq!(status["details"]["causes"], json!([{"field": "x", "message": "m"}]));
    for (kind, path, message) in [
        (
            "ValidatingWebhook",
            "/data",
            "received invalid webhook response: validating webhook may not return response.patch",
        ),
        (
            "MutatingWebhook",
            "/no-type",
            "received invalid webhook response: webhook returned response.patch but not response.patchType",
        ),
    ] {
        hooked.configure(kind, vec![hook("h", path)]).await;
        assert_eq!(hooked.make("x", "").await.1["message"], format!("{failed} {message}"));
    }
    hooked.configure("MutatingWebhook", vec![hook("h", "/bad-patch")]).await;
    assert_eq!(hooked.make("x", "").await.0, 500);
}

#[tokio::test]
async fn services_that_are_not_there_and_slow_ones_fail_the_request() {
    let hooked = Hooked::start().await;
    let failed = "Internal error occurred: failed calling webhook \"h.example.com\": failed to call webhook: Post";
    let slow = with(hook("h", "/slow"), "timeoutSeconds", json!(1));
    hooked.configure("ValidatingWebhook", vec![slow]).await;
    let (code, status) = hooked.make("x", "").await;
    let expected = format!("{failed} \"https://hooks.default.svc:443/slow?timeout=1s\": context deadline exceeded");
    assert_eq!((code, status["message"].as_str().unwrap()), (500, expected.as_str()));
    hooked.wire.cluster.remove_service("default", "hooks");
    hooked.configure("ValidatingWebhook", vec![hook("h", "/ok")]).await;
    let (_, status) = hooked.make("x", "").await;
    let address = "\"https://hooks.default.svc:443/ok?timeout=10s\"";
    assert_eq!(status["message"], format!("{failed} {address}: service \"hooks\" not found"));
    let service = json!({"metadata": {"name": "hooks"}, "spec": {"ports": [{"port": 443}]}});
    hooked.wire.json("POST", "/api/v1/namespaces/default/services", &[], service).await;
    let (_, status) = hooked.make("x", "").await;
    assert_eq!(status["message"], format!("{failed} {address}: no endpoints available for service \"hooks\""));
    let closed = json!({"url": "https://127.0.0.1:1/x"});
    hooked.configure("ValidatingWebhook", vec![with(hook("h", ""), "clientConfig", closed)]).await;
    let (_, status) = hooked.make("x", "").await;
    let refused = "dial tcp 127.0.0.1:1: connect: connection refused";
    assert_eq!(status["message"], format!("{failed} \"https://127.0.0.1:1/x?timeout=10s\": {refused}"));
}

#[tokio::test]
async fn webhooks_change_objects_in_order_and_see_what_others_changed() {
    let hooked = Hooked::start().await;
    let again = with(hook("a", "/label"), "reinvocationPolicy", json!("IfNeeded"));
    hooked.configure("MutatingWebhook", vec![again, hook("b", "/data")]).await;
    hooked.add("ValidatingWebhook", "v", vec![hook("v", "/ok")]).await;
    let (code, made) = hooked.make("x", "?fieldManager=me").await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(made["data"], json!({"w": "1"}));
    assert_eq!(made["metadata"]["labels"], json!({"seen": "1"}), "the first is asked again");
    let paths = hooked.asked.lock().iter().map(|(path, _)| path.clone()).collect::<Vec<_>>();
    assert_eq!(paths, ["/label", "/data", "/label", "/ok"]);
    let asked = hooked.asked.lock().last().unwrap().1["request"].clone();
    assert_eq!(asked["object"]["data"], json!({"w": "1"}), "who validates sees the end");
    assert_eq!(asked["object"]["metadata"]["uid"], made["metadata"]["uid"], "and the object that is stored");
    assert_eq!(asked["oldObject"], Value::Null);
    for (field, value) in [
        ("operation", json!("CREATE")),
        ("name", json!("x")),
        ("namespace", json!("default")),
        ("dryRun", json!(false)),
        ("kind", json!({"group": "", "version": "v1", "kind": "ConfigMap"})),
        ("resource", json!({"group": "", "version": "v1", "resource": "configmaps"})),
        ("options", json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "me"})),
    ] {
        assert_eq!(asked[field], value, "{field}");
    }
    // What a webhook added is nobody's.
    let owned = &made["metadata"]["managedFields"][0]["fieldsV1"];
    assert_eq!(*owned, json!({"f:data": {".": {}, "f:k": {}}}));
    // An update and a deletion are shown with what was.
    hooked.asked.lock().clear();
    let merge = [("content-type", "application/merge-patch+json")];
    let (code, _) = hooked.wire.json("PATCH", &format!("{MAPS}/x"), &merge, json!({"data": {"z": "2"}})).await;
    assert_eq!(code, 200);
    let asked = hooked.asked.lock().last().unwrap().1["request"].clone();
    assert_eq!((&asked["operation"], &asked["oldObject"]["data"]), (&json!("UPDATE"), &json!({"w": "1"})));
    hooked.configure("ValidatingWebhook", vec![hook("h", "/deny")]).await;
    let (code, _) = hooked.wire.json("DELETE", &format!("{MAPS}/x"), &[], Value::Null).await;
    assert_eq!((code, hooked.wire.get(&format!("{MAPS}/x")).await.0), (400, 200));
    let asked = hooked.asked.lock().last().unwrap().1["request"].clone();
    assert_eq!((&asked["operation"], &asked["object"]), (&json!("DELETE"), &Value::Null));
}

#[tokio::test]
async fn only_what_a_webhook_wants_to_see_is_shown_to_it() {
    let hooked = Hooked::start().await;
    hooked
        .wire
        .json(
            "PATCH",
            "/api/v1/namespaces/default",
            &[("content-type", "application/merge-patch+json")],
            json!({"metadata": {"labels": {"team": "a"}}}),
        )
        .await;
    let rules = |operation: &str, resource: &str, scope: &str| {
        json!([{"operations": [operation], "apiGroups": [""], "apiVersions": ["*"], "resources": [resource],
                "scope": scope}])
    };
    let condition = |expression: &str| json!([{"name": "c", "expression": expression}]);
    let rows = [
        ("rules", rules("CREATE", "*", "*"), true),
        ("rules", rules("UPDATE", "*", "*"), false),
        ("rules", rules("CREATE", "secrets", "*"), false),
        ("rules", rules("CREATE", "configmaps/status", "*"), false),
        ("rules", rules("*", "*/*", "Namespaced"), true),
        ("rules", rules("*", "*/*", "Cluster"), false),
        ("namespaceSelector", json!({"matchLabels": {"team": "a"}}), true),
        (
            "namespaceSelector",
            json!({"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["a"]}]}),
            false,
        ),
        ("objectSelector", json!({"matchLabels": {"x": "y"}}), false),
        ("objectSelector", json!({"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}), true),
        ("matchConditions", condition("object.data.k == 'v' && request.operation == 'CREATE'"), true),
        ("matchConditions", condition("object.data.k == 'w'"), false),
        (
            "matchConditions",
            condition("oldObject == null && request.userInfo.groups.exists(g, g == 'system:masters')"),
            true,
        ),
    ];
    for (index, (field, value, seen)) in rows.into_iter().enumerate() {
        let (code, status) =
            hooked.configure("ValidatingWebhook", vec![with(hook("h", "/ok"), field, value.clone())]).await;
        assert_eq!(code, 201, "{status}");
        assert_eq!(hooked.make(&format!("n{index}"), "").await.0, 201, "{value}");
        assert_eq!(hooked.asked.lock().len() == 1, seen, "{value}");
    }
    let failing = with(hook("h", "/ok"), "matchConditions", condition("object.nope.x == 'y'"));
    hooked.configure("ValidatingWebhook", vec![failing.clone()]).await;
    let (code, status) = hooked.make("y", "").await;
    let message =
        "configmaps \"y\" is forbidden: expression 'object.nope.x == 'y'' resulted in error: no such key: nope";
    assert_eq!((code, status["message"].as_str().unwrap()), (403, message));
    hooked.configure("ValidatingWebhook", vec![with(failing, "failurePolicy", json!("Ignore"))]).await;
    assert_eq!(hooked.make("y", "").await.0, 201);
    assert!(hooked.asked.lock().is_empty());
}

#[tokio::test]
async fn a_dry_run_asks_too_and_warnings_come_once() {
    let hooked = Hooked::start().await;
    hooked.configure("ValidatingWebhook", vec![hook("h", "/warn")]).await;
    let body = Body::from(json!({"metadata": {"name": "x"}}).to_string());
    let response = hooked.wire.raw("POST", &format!("{MAPS}?dryRun=All"), &[], body).await;
    assert_eq!(response.status().as_u16(), 201);
    let warnings = response.headers().get_all(header::WARNING).iter().map(|v| v.to_str().unwrap()).collect::<Vec<_>>();
    assert_eq!(warnings, ["299 - \"careful\"", "299 - \"two lines\""]);
    response.into_body().collect().await.unwrap();
    assert_eq!(hooked.asked.lock()[0].1["request"]["dryRun"], json!(true));
    assert_eq!(hooked.wire.get(&format!("{MAPS}/x")).await.0, 404);
}

#[tokio::test]
async fn a_configuration_that_cannot_work_is_refused() {
    let hooked = Hooked::start().await;
    let rules = json!([{"operations": ["*", "CREATE"], "apiGroups": [], "apiVersions": ["*", "v1"],
                        "resources": ["*/*", "a"]}]);
    let conditions = json!([{"name": "a", "expression": "1"}, {"name": "a", "expression": "foo"},
                            {"name": "z", "expression": "request.foo == 'x' && object.bar"}]);
    let mut bad = hook("h", "/x");
    for (field, value) in [
        ("rules", rules),
        ("matchConditions", conditions),
        ("failurePolicy", json!("X")),
        ("sideEffects", json!("Some")),
        ("timeoutSeconds", json!(40)),
        ("clientConfig", json!({"url": "http://x?a=b"})),
        ("admissionReviewVersions", json!(["v2"])),
    ] {
        bad[field] = value;
    }
    let short = with(hook("h", "/x"), "name", json!("x"));
    let (code, status) = hooked.configure("ValidatingWebhook", vec![bad, short]).await;
    assert_eq!(code, 422, "{status}");
    let causes = status["details"]["causes"].as_array().unwrap().iter();
    let causes = causes.map(|c| format!("{}: {}", c["field"].as_str().unwrap(), c["message"].as_str().unwrap()));
    let found = causes.collect::<Vec<_>>();
    let expected = [
        "webhooks[0].rules[0].operations: Invalid value: [\"*\",\"CREATE\"]: if '*' is present, must not specify other \
         operations",
        "webhooks[0].rules[0].apiGroups: Required value",
        "webhooks[0].rules[0].apiVersions: Invalid value: [\"*\",\"v1\"]: if '*' is present, must not specify other API \
         versions",
        "webhooks[0].rules[0].resources: Invalid value: [\"*/*\",\"a\"]: if '*/*' is present, must not specify other \
         resources",
        "webhooks[0].failurePolicy: Unsupported value: \"X\": supported values: \"Fail\", \"Ignore\"",
        "webhooks[0].sideEffects: Unsupported value: \"Some\": supported values: \"None\", \"NoneOnDryRun\"",
        "webhooks[0].timeoutSeconds: Invalid value: 40: the timeout value must be between 1 and 30 seconds",
        "webhooks[0].clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; desired format: \
         https://host[/path]",
        "webhooks[0].clientConfig.url: Invalid value: \"a=b\": query parameters are not permitted in the URL",
        "webhooks[0].matchConditions[0].expression: Invalid value: \"1\": must evaluate to bool but got int",
        "webhooks[0].matchConditions[1].expression: Invalid value: \"foo\": compilation failed: ERROR: <input>:1:1: \
         undeclared reference to 'foo' (in container '')\n | foo\n | ^",
        "webhooks[0].matchConditions[1].name: Duplicate value: \"a\"",
        "webhooks[0].matchConditions[2].expression: Invalid value: \"request.foo == 'x' && object.bar\": compilation \
         failed: ERROR: <input>:1:8: undefined field 'foo'\n | request.foo == 'x' && object.bar\n | .......^",
        "webhooks[0].admissionReviewVersions: Invalid value: [\"v2\"]: must include at least one of v1, v1beta1",
        "webhooks[1].name: Invalid value: \"x\": should be a domain with at least three segments separated by dots",
    ];
    assert_eq!(found, expected);
}

/// A server with a certificate of its own, as a webhook outside of the cluster has.
async fn outside(asked: &Asked) -> (std::net::SocketAddr, String, tokio::task::JoinHandle<()>) {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let asked = Arc::clone(asked);
    let task = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            serve_one(&mut stream, webhook(&asked)).await;
        }
    });
    let pem = base64::engine::general_purpose::STANDARD.encode(made.cert.pem());
    (address, pem, task)
}

/// Reads one request and answers it: as much of HTTP as a test needs.
async fn serve_one(stream: &mut (impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin), router: Router) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tower::ServiceExt;
    let mut got = Vec::new();
    let (head, length) = loop {
        let mut chunk = [0; 4096];
        let n = stream.read(&mut chunk).await.unwrap();
        got.extend_from_slice(&chunk[..n]);
        let text = String::from_utf8_lossy(&got).into_owned();
        if let Some(end) = text.find("\r\n\r\n") {
            let lower = text[..end].to_lowercase();
            let length = lower.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap().parse::<usize>();
            break (end, length.unwrap());
        }
        assert!(n > 0, "the request ends early");
    };
    while got.len() < head + 4 + length {
        let mut chunk = [0; 4096];
        let n = stream.read(&mut chunk).await.unwrap();
        got.extend_from_slice(&chunk[..n]);
    }
    let path = String::from_utf8_lossy(&got).split(' ').nth(1).unwrap().to_owned();
    let body = Body::from(got[head + 4..].to_vec());
    let request = ::http::Request::post(path).header("content-type", "application/json").body(body).unwrap();
    let answer = router.oneshot(request).await.unwrap().into_body().collect().await.unwrap().to_bytes();
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", answer.len());
    stream.write_all(&[head.as_bytes(), &answer].concat()).await.unwrap();
    stream.shutdown().await.ok();
}

#[tokio::test]
async fn a_webhook_outside_is_called_over_tls_and_its_certificate_is_checked() {
    let hooked = Hooked::start().await;
    let (address, bundle, task) = outside(&hooked.asked).await;
    let url = format!("https://{address}/data");
    let client = |bundle: &str| json!({"url": url, "caBundle": bundle});
    hooked.configure("MutatingWebhook", vec![with(hook("h", ""), "clientConfig", client(&bundle))]).await;
    let (code, made) = hooked.make("x", "").await;
    assert_eq!((code, &made["data"]), (201, &json!({"w": "1"})), "{made}");
    // Another authority than the one that signed.
    let other = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let other = base64::engine::general_purpose::STANDARD.encode(other.cert.pem());
    for bundle in [other.as_str(), ""] {
        hooked.configure("MutatingWebhook", vec![with(hook("h", ""), "clientConfig", client(bundle))]).await;
        let (code, status) = hooked.make("y", "").await;
        let message = format!(
            "Internal error occurred: failed calling webhook \"h.example.com\": failed to call webhook: Post \
             \"{url}?timeout=10s\": tls: failed to verify certificate: x509: certificate signed by unknown authority"
        );
        assert_eq!((code, status["message"].as_str().unwrap()), (500, message.as_str()));
    }
    let named = json!({"url": url.replace("127.0.0.1", "localhost"), "caBundle": bundle});
    hooked.configure("MutatingWebhook", vec![with(hook("h", ""), "clientConfig", named)]).await;
    let (_, status) = hooked.make("y", "").await;
    let why = "certificate is not valid for any names, but wanted to match localhost";
    assert!(status["message"].as_str().unwrap().ends_with(why), "{status}");
    task.abort();
}

/// A cluster with these policies, each bound with these actions.
async fn with_policies(policies: &[(&str, Value, &str)]) -> Wire {
    let wire = Wire::start().await;
    for (name, given, action) in policies {
        let mut spec = json!({"matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
            "operations": ["CREATE", "UPDATE"], "resources": ["configmaps"]}]}});
        spec.as_object_mut().unwrap().extend(given.as_object().unwrap().clone());
        let policy = json!({"metadata": {"name": name}, "spec": spec});
        let (code, made) =
            wire.json("POST", &format!("{CONFIGURATIONS}/validatingadmissionpolicies"), &[], policy).await;
        assert_eq!(code, 201, "{made}");
        let mut binding = json!({"policyName": name, "validationActions": [action]});
        if given.get("paramKind").is_some() {
            binding["paramRef"] = json!({"name": "params", "namespace": "default", "parameterNotFoundAction": "Deny"});
        }
        let binding = json!({"metadata": {"name": format!("{name}-binding")}, "spec": binding});
        let (code, made) =
            wire.json("POST", &format!("{CONFIGURATIONS}/validatingadmissionpolicybindings"), &[], binding).await;
        assert_eq!(code, 201, "{made}");
    }
    wire
}

#[tokio::test]
async fn a_policy_refuses_with_the_words_and_codes_of_the_api() {
    let unless = |value: &str, rest: &str| format!("!('a' in variables.n) || variables.n.a != '{value}'{rest}");
    let wire = with_policies(&[
        (
            "p",
            json!({
            "variables": [{"name": "d", "expression": "has(object.data) ? object.data : {}"},
                          {"name": "n", "expression": "variables.d"}],
            "validations": [
                {"expression": unless("1", ""), "message": "a is 1"},
                {"expression": unless("2", "")},
                {"expression": unless("3", ""), "messageExpression": "'got ' + variables.n.a", "reason": "Forbidden"},
                {"expression": unless("4", " || object.data.zz == 'x'")},
                {"expression": unless("5", " || namespaceObject.metadata.name == 'x'")},
                {"expression": unless("7", ""), "reason": "RequestEntityTooLarge"},
            ]}),
            "Deny",
        ),
        (
            "warns",
            json!({"validations": [{"expression": "!has(object.data) || !('w' in object.data)",
                                         "message": "w is bad"}]}),
            "Warn",
        ),
        (
            "some",
            json!({"matchConditions": [{"name": "c", "expression": "has(object.data) && 'm' in object.data"}],
                        "validations": [{"expression": "false"}]}),
            "Deny",
        ),
    ])
    .await;
    let make = |data: Value| {
        let wire = &wire;
        async move {
            let object = json!({"metadata": {"name": "v"}, "data": data});
            wire.json("POST", &format!("{MAPS}?dryRun=All"), &[], object).await
        }
    };
    let said = |policy: &str, why: &str| {
        format!(
            "configmaps \"v\" is forbidden: ValidatingAdmissionPolicy '{policy}' with binding '{policy}-binding' denied \
             request: {why}"
        )
    };
    let failed = |value: &str, rest: &str| format!("failed expression: {}", unless(value, rest));
    for (data, code, reason, message) in [
        (json!({"a": "1"}), 422, "Invalid", said("p", "a is 1")),
        (json!({"a": "2"}), 422, "Invalid", said("p", &failed("2", ""))),
        (json!({"a": "3"}), 403, "Forbidden", said("p", "got 3")),
        (
            json!({"a": "4"}),
            422,
            "Invalid",
            said(
                "p",
                &format!(
                    "expression '{}' resulted in error: no such key: zz",
                    unless("4", " || object.data.zz == 'x'")
                ),
            ),
        ),
        (json!({"a": "5"}), 422, "Invalid", said("p", &failed("5", " || namespaceObject.metadata.name == 'x'"))),
        (json!({"a": "7"}), 413, "RequestEntityTooLarge", said("p", &failed("7", ""))),
        (json!({"m": "1"}), 422, "Invalid", said("some", "failed expression: false")),
    ] {
        let (answered, status) = make(data.clone()).await;
        let found = (answered, status["reason"].as_str(), status["message"].as_str());
        assert_eq!(found, (code, Some(reason), Some(message.as_str())), "{data}");
        let cause = status["details"]["causes"][0]["message"].as_str().unwrap();
        assert!(message.ends_with(cause), "{status}");
    }
    assert_eq!(make(json!({})).await.0, 201);
    let body = Body::from(json!({"metadata": {"name": "v"}, "data": {"w": "1"}}).to_string());
    let response = wire.raw("POST", MAPS, &[], body).await;
    assert_eq!(response.status().as_u16(), 201);
    let warning = response.headers()[header::WARNING].to_str().unwrap().to_owned();
    let expected = "299 - \"Validation failed for ValidatingAdmissionPolicy 'warns' with binding 'warns-binding': w is \
                    bad\"";
    assert_eq!(warning, expected);
}

#[tokio::test]
async fn a_policy_takes_parameters_from_an_object() {
    let rule = "!has(object.data) || !('p' in object.data) || object.data.p == params.data.p";
    let spec = json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "validations": [{"expression": rule}]});
    let wire = with_policies(&[("p", spec, "Deny")]).await;
    let make = |name: &'static str, data: Value| {
        let wire = &wire;
        async move { wire.json("POST", MAPS, &[], json!({"metadata": {"name": name}, "data": data})).await }
    };
    let (code, status) = make("v", json!({})).await;
    let message = "configmaps \"v\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p-binding' denied request: \
                   failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction";
    assert_eq!((code, status["message"].as_str().unwrap()), (422, message));
    // The policy holds for its own parameters too, so they are made beside it.
    let other = json!({"metadata": {"name": "params"}, "data": {"p": "1"}});
    let bindings = format!("{CONFIGURATIONS}/validatingadmissionpolicybindings");
    let (_, binding) = wire.get(&format!("{bindings}/p-binding")).await;
    wire.json("DELETE", &format!("{bindings}/p-binding"), &[], Value::Null).await;
    assert_eq!(wire.json("POST", MAPS, &[], other).await.0, 201);
    let again = json!({"metadata": {"name": "p-binding"}, "spec": binding["spec"]});
    assert_eq!(wire.json("POST", &bindings, &[], again).await.0, 201);
    for (name, data, code) in [("a", json!({"p": "1"}), 201), ("b", json!({"p": "2"}), 422), ("c", json!({}), 201)] {
        assert_eq!(make(name, data.clone()).await.0, code, "{data}");
    }
}

#[tokio::test]
async fn a_policy_that_cannot_work_is_refused() {
    let wire = Wire::start().await;
    let spec = json!({"failurePolicy": "Z", "matchConstraints": {"resourceRules": [{"apiGroups": [""],
        "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]},
        "validations": [{"expression": "1"}, {"expression": ""},
                        {"expression": "foo == 1", "reason": "Bad", "messageExpression": "1"}]});
    let policy = json!({"metadata": {"name": "p"}, "spec": spec});
    let (code, status) = wire.json("POST", &format!("{CONFIGURATIONS}/validatingadmissionpolicies"), &[], policy).await;
    assert_eq!(code, 422, "{status}");
    let shown = |status: &Value| {
        let causes = status["details"]["causes"].as_array().unwrap().iter();
        let line = |c: &Value| format!("{}: {}", c["field"].as_str().unwrap(), c["message"].as_str().unwrap());
        causes.map(line).collect::<Vec<_>>()
    };
    let expected = [
        "spec.failurePolicy: Unsupported value: \"Z\": supported values: \"Fail\", \"Ignore\"",
        "spec.validations[0].expression: Invalid value: \"1\": must evaluate to bool but got int",
        "spec.validations[1].expression: Required value: expression is not specified",
        "spec.validations[2].expression: Invalid value: \"foo == 1\": compilation failed: ERROR: <input>:1:1: undeclared \
         reference to 'foo' (in container '')\n | foo == 1\n | ^",
        "spec.validations[2].messageExpression: Invalid value: \"1\": must evaluate to string but got int",
        "spec.validations[2].reason: Unsupported value: \"Bad\": supported values: \"Forbidden\", \"Invalid\", \
         \"RequestEntityTooLarge\"",
    ];
    assert_eq!(shown(&status), expected);
    let binding = json!({"metadata": {"name": "b"}, "spec": {"validationActions": ["Deny", "Warn"], "paramRef": {}}});
    let path = format!("{CONFIGURATIONS}/validatingadmissionpolicybindings");
    let (_, status) = wire.json("POST", &path, &[], binding).await;
    let expected = [
        "spec.paramRef: Required value: one of name or selector must be specified",
        "spec.paramRef.parameterNotFoundAction: Required value",
        "spec.validationActions: Invalid value: [\"Deny\",\"Warn\"]: must not contain both Deny and Warn (repeating the \
         same validation failure information in the API response and headers serves no purpose)",
        "spec.policyName: Required value",
    ];
    assert_eq!(shown(&status), expected);
}
