//! Rights, as clients meet them with `Config::rbac`. A real server (1.37.2) was asked for the texts.

use super::{http::Wire, *};

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/rb";
const GROUP: &str = "rbac.authorization.k8s.io";
const BOB: (&str, &str) = ("authorization", "Bearer bob-token");

async fn start() -> Wire {
    let config = Config { controllers: false, rbac: true, ..Config::default() };
    let cluster = DevCluster::start(config).await.unwrap();
    cluster.add_token("bob-token", "bob", &["devs"]);
    let wire = Wire { cluster };
    let made = wire.json("POST", "/api/v1/namespaces", &[], json!({"metadata": {"name": "rb"}})).await;
    assert_eq!(made.0, 201, "the process itself may do everything: {}", made.1);
    wire
}

/// Gives bob these rules in the namespace.
async fn grant(wire: &Wire, rules: Value) {
    let role = json!({"metadata": {"name": "r"}, "rules": rules});
    let (code, made) = wire.json("PUT", &format!("{ROLES}/roles/r"), &[], role).await;
    assert!(code < 300, "{made}");
    let binding = json!({"metadata": {"name": "r"}, "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": "r"},
                         "subjects": [{"kind": "User", "apiGroup": GROUP, "name": "bob"}]});
    let (code, made) = wire.json("PUT", &format!("{ROLES}/rolebindings/r"), &[], binding).await;
    assert!(code < 300, "{made}");
}

async fn message(wire: &Wire, method: &str, path: &str, headers: &[(&str, &str)], body: Value) -> (u16, String) {
    let (code, answer) = wire.json(method, path, headers, body).await;
    (code, answer["message"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn a_user_may_do_what_roles_say_and_nothing_else() {
    let wire = start().await;
    let maps = "/api/v1/namespaces/rb/configmaps";
    let refused = "configmaps is forbidden: User \"bob\" cannot list resource \"configmaps\" in API group \"\" in the \
                   namespace \"rb\"";
    assert_eq!(message(&wire, "GET", maps, &[BOB], Value::Null).await, (403, refused.to_owned()));
    for path in ["/api", "/apis", "/api/v1", "/version", "/openapi/v3", "/healthz"] {
        assert_eq!(wire.json("GET", path, &[BOB], Value::Null).await.0, 200, "{path}");
    }
    let unknown = ("authorization", "Bearer nobody");
    assert_eq!(message(&wire, "GET", maps, &[unknown], Value::Null).await, (401, "Unauthorized".to_owned()));
    let thing = "things.nope is forbidden: User \"bob\" cannot list resource \"things\" in API group \"nope\" at the cluster \
                 scope";
    assert_eq!(message(&wire, "GET", "/apis/nope/v1/things", &[BOB], Value::Null).await, (403, thing.to_owned()));
    grant(
        &wire,
        json!([
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "create"]},
            {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["mine"], "verbs": ["get", "watch"]},
        ]),
    )
    .await;
    assert_eq!(wire.json("GET", maps, &[BOB], Value::Null).await.0, 200);
    assert_eq!(wire.json("POST", maps, &[BOB], json!({"metadata": {"name": "x"}})).await.0, 201);
    assert_eq!(wire.json("DELETE", &format!("{maps}/x"), &[BOB], Value::Null).await.0, 403);
    assert_eq!(wire.json("GET", "/api/v1/configmaps", &[BOB], Value::Null).await.0, 403, "in all namespaces");
    let secrets = "/api/v1/namespaces/rb/secrets";
    for (path, code) in [
        (format!("{secrets}/mine"), 404),
        (format!("{secrets}/other"), 403),
        (secrets.to_owned(), 403),
        (format!("{secrets}?watch=1&timeoutSeconds=1&fieldSelector=metadata.name=mine"), 200),
    ] {
        assert_eq!(wire.raw("GET", &path, &[BOB], axum::body::Body::empty()).await.status().as_u16(), code, "{path}");
    }
    let (_, review) = wire
        .json(
            "POST",
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            &[BOB],
            json!({"spec": {
            "resourceAttributes": {"namespace": "rb", "verb": "get", "resource": "configmaps"}}}),
        )
        .await;
    let because = "RBAC: allowed by RoleBinding \"r/rb\" of Role \"r\" to User \"bob\"";
    assert_eq!(review["status"], json!({"allowed": true, "reason": because}));
    let (_, review) = wire
        .json(
            "POST",
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            &[],
            json!({"spec": {"user": "bob",
            "resourceAttributes": {"namespace": "rb", "verb": "delete", "resource": "configmaps"}}}),
        )
        .await;
    assert_eq!(review["status"], json!({"allowed": false}));
    let rules = json!({"spec": {"namespace": "rb"}});
    let (_, review) = wire.json("POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", &[BOB], rules).await;
    assert!(review["status"]["resourceRules"].as_array().unwrap().iter().any(|r| r["resources"][0] == "configmaps"));
    let (_, me) = wire.json("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", &[BOB], json!({})).await;
    assert_eq!(me["status"]["userInfo"], json!({"username": "bob", "groups": ["devs", "system:authenticated"]}));
}

#[tokio::test]
async fn nobody_gives_rights_that_they_do_not_have() {
    let wire = start().await;
    grant(&wire, json!([
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "create"]},
        {"apiGroups": [GROUP], "resources": ["roles", "rolebindings"], "verbs": ["create", "get", "update", "patch"]},
    ])).await;
    let more = json!([
        {"apiGroups": [""], "resources": ["secrets", "configmaps"], "verbs": ["get", "list"]},
        {"apiGroups": ["apps"], "resources": ["deployments"], "resourceNames": ["x"], "verbs": ["*"]},
    ]);
    let told = |plural: &str, name: &str| {
        format!(
            "{plural}.{GROUP} \"{name}\" is forbidden: user \"bob\" (groups=[\"devs\" \"system:authenticated\"]) is \
             attempting to grant RBAC permissions not currently held:\n{{APIGroups:[\"\"], Resources:[\"secrets\"], \
             Verbs:[\"get\" \"list\"]}}\n{{APIGroups:[\"apps\"], Resources:[\"deployments\"], ResourceNames:[\"x\"], \
             Verbs:[\"*\"]}}"
        )
    };
    let roles = format!("{ROLES}/roles");
    let role = |name: &str, rules: &Value| json!({"metadata": {"name": name}, "rules": rules});
    let (code, said) = message(&wire, "POST", &roles, &[BOB], role("e", &more)).await;
    assert_eq!((code, said), (403, told("roles", "e")));
    let less = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]);
    assert_eq!(wire.json("POST", &roles, &[BOB], role("ok", &less)).await.0, 201);
    assert_eq!(wire.json("POST", &roles, &[], role("big", &more)).await.0, 201, "an administrator may");
    let bind = |name: &str, kind: &str, role: &str| {
        json!({"metadata": {"name": name}, "roleRef": {"apiGroup": GROUP, "kind": kind, "name": role},
               "subjects": [{"kind": "User", "apiGroup": GROUP, "name": "bob"}]})
    };
    let bindings = format!("{ROLES}/rolebindings");
    let (code, said) = message(&wire, "POST", &bindings, &[BOB], bind("b", "Role", "big")).await;
    assert_eq!((code, said), (403, told("rolebindings", "b")));
    assert_eq!(wire.json("POST", &bindings, &[BOB], bind("ok", "Role", "ok")).await.0, 201);
    let (code, said) = message(&wire, "POST", &bindings, &[BOB], bind("n", "ClusterRole", "nope")).await;
    assert_eq!((code, said), (404, format!("rolebindings.{GROUP} \"nope\" not found")));
    let bad = role("bad", &json!([{"resources": ["a"]}, {"verbs": ["get"], "nonResourceURLs": ["/x"]}]));
    let expected = "Role.rbac.authorization.k8s.io \"bad\" is invalid: [rules[0].apiGroups: Required value: resource rules \
                    must supply at least one api group, rules[1].nonResourceURLs: Invalid value: [\"/x\"]: namespaced rules \
                    cannot apply to non-resource URLs, rules[0].verbs: Required value]";
    assert_eq!(message(&wire, "POST", &roles, &[], bad).await, (422, expected.to_owned()));
    // The roles for people: each is made of the one before.
    for (role, verb, resource, allowed) in [
        ("view", "list", "configmaps", true),
        ("view", "get", "secrets", false),
        ("view", "create", "configmaps", false),
        ("edit", "get", "secrets", true),
        ("edit", "create", "deployments", true),
        ("edit", "create", "roles", false),
        ("admin", "create", "roles", true),
        ("admin", "watch", "pods", true),
    ] {
        let name = format!("{role}-{verb}-{resource}");
        let mut binding = bind(&name, "ClusterRole", role);
        binding["subjects"] = json!([{"kind": "Group", "apiGroup": GROUP, "name": name}]);
        assert_eq!(wire.json("POST", &bindings, &[], binding).await.0, 201);
        let group = match resource {
            "deployments" => "apps",
            "roles" => GROUP,
            _ => "",
        };
        let asked = json!({"spec": {"user": "u", "groups": [name], "resourceAttributes":
            {"namespace": "rb", "verb": verb, "resource": resource, "group": group}}});
        let (_, review) = wire.json("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", &[], asked).await;
        assert_eq!(review["status"]["allowed"], json!(allowed), "{name}: {review}");
    }
}

#[tokio::test]
async fn service_accounts_have_tokens_that_end_with_them() {
    let wire = start().await;
    let accounts = "/api/v1/namespaces/rb/serviceaccounts";
    wire.json("POST", accounts, &[], json!({"metadata": {"name": "sa"}})).await;
    let path = format!("{accounts}/sa/token");
    let (code, made) = wire.json("POST", &path, &[], json!({"spec": {"expirationSeconds": 600}})).await;
    assert_eq!(code, 201, "{made}");
    let bearer = format!("Bearer {}", made["status"]["token"].as_str().unwrap());
    let who = ("authorization", bearer.as_str());
    let refused = "nodes is forbidden: User \"system:serviceaccount:rb:sa\" cannot list resource \"nodes\" in API group \
                   \"\" at the cluster scope";
    assert_eq!(message(&wire, "GET", "/api/v1/nodes", &[who], Value::Null).await, (403, refused.to_owned()));
    let binding = json!({"metadata": {"name": "sa"}, "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": "view"},
                         "subjects": [{"kind": "ServiceAccount", "name": "sa", "namespace": "rb"}]});
    assert_eq!(wire.json("POST", &format!("{ROLES}/rolebindings"), &[], binding).await.0, 201);
    let maps = "/api/v1/namespaces/rb/configmaps";
    assert_eq!(wire.json("GET", maps, &[who], Value::Null).await.0, 200);
    let reviews = "/apis/authentication.k8s.io/v1/tokenreviews";
    let (_, review) = wire.json("POST", reviews, &[], json!({"spec": {"token": made["status"]["token"]}})).await;
    assert_eq!(review["status"]["authenticated"], json!(true), "{review}");
    assert_eq!(
        review["status"]["user"]["groups"],
        json!(["system:serviceaccounts", "system:serviceaccounts:rb", "system:authenticated"])
    );
    let (_, review) = wire.json("POST", reviews, &[], json!({"spec": {"token": "bad"}})).await;
    assert_eq!(review["status"], json!({"user": {}, "error": "invalid bearer token"}));
    let short = "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 60: may not \
                 specify a duration less than 10 minutes";
    let asked = json!({"spec": {"expirationSeconds": 60}});
    assert_eq!(message(&wire, "POST", &path, &[], asked).await, (422, short.to_owned()));
    // Another signature.
    let forged = format!("{}x", &bearer[..bearer.len() - 1]);
    assert_eq!(wire.json("GET", maps, &[("authorization", &forged)], Value::Null).await.0, 401);
    wire.json("DELETE", &format!("{accounts}/sa"), &[], Value::Null).await;
    assert_eq!(wire.json("GET", maps, &[who], Value::Null).await.0, 401, "the account is gone");
}

#[tokio::test]
async fn who_may_impersonate_acts_as_somebody_else() {
    let wire = start().await;
    let eve = ("impersonate-user", "eve");
    let refused = |user: &str| {
        format!(
            "nodes is forbidden: User {user:?} cannot list resource \"nodes\" in API group \"\" at the cluster scope"
        )
    };
    assert_eq!(message(&wire, "GET", "/api/v1/nodes", &[eve], Value::Null).await, (403, refused("eve")));
    let masters = ("impersonate-group", "system:masters");
    assert_eq!(wire.json("GET", "/api/v1/nodes", &[eve, masters], Value::Null).await.0, 200);
    let (code, said) = message(&wire, "GET", "/api/v1/nodes", &[BOB, eve], Value::Null).await;
    let cannot = "users \"eve\" is forbidden: User \"bob\" cannot impersonate resource \"users\" in API group \"\" at the \
                  cluster scope";
    assert_eq!((code, said.as_str()), (403, cannot));
    let account = ("impersonate-user", "system:serviceaccount:rb:sa");
    let cannot = "serviceaccounts \"sa\" is forbidden: User \"bob\" cannot impersonate resource \"serviceaccounts\" in API \
                  group \"\" in the namespace \"rb\"";
    assert_eq!(message(&wire, "GET", "/api/v1/nodes", &[BOB, account], Value::Null).await, (403, cannot.to_owned()));
    assert_eq!(wire.json("GET", "/api/v1/nodes", &[masters], Value::Null).await.0, 400);
    // The webhook of a request is told who it is.
    let (_, me) = wire.json("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", &[account], json!({})).await;
    assert_eq!(me["status"]["userInfo"]["username"], "system:serviceaccount:rb:sa");
}

#[tokio::test]
async fn over_the_network_one_is_nobody_without_a_token() {
    let wire = start().await;
    let server = wire.cluster.serve_tls("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let client = |token: Option<String>| {
        let text = server.kubeconfig(token.as_deref());
        async move {
            let config = kube::config::Kubeconfig::from_yaml(&text).unwrap();
            let options = kube::config::KubeConfigOptions::default();
            Client::try_from(kube::Config::from_custom_kubeconfig(config, &options).await.unwrap()).unwrap()
        }
    };
    let nobody = Api::<ConfigMap>::all(client(None).await).list(&ListParams::default()).await.unwrap_err();
    assert!(nobody.to_string().contains("User \"system:anonymous\" cannot list resource \"configmaps\""), "{nobody}");
    let admin = client(Some(wire.cluster.admin_token())).await;
    Api::<ConfigMap>::all(admin).list(&ListParams::default()).await.unwrap();
    server.shutdown().await;
}

#[tokio::test]
async fn kubectl_shows_its_token_asks_what_it_may_and_makes_tokens() {
    if std::process::Command::new("kubectl").arg("version").arg("--client").output().is_err() {
        eprintln!("skipped: kubectl not found");
        return;
    }
    let wire = start().await;
    let server = wire.cluster.serve_tls("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let home = std::env::temp_dir().join(format!("devcluster-rights-{}", uuid::Uuid::new_v4()));
    std::fs::create_dir_all(&home).unwrap();
    let token = wire.cluster.admin_token();
    let run = |token: String, args: &[&str]| {
        std::fs::write(home.join("config"), server.kubeconfig(Some(&token))).unwrap();
        let mut command = std::process::Command::new("kubectl");
        command.args(args).env("KUBECONFIG", home.join("config")).env("HOME", &home);
        async move {
            let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
            (output.status.success(), text(&output.stdout), text(&output.stderr))
        }
    };
    let admin = |args: &'static [&'static str]| run(token.clone(), args);
    for args in [
        &["create", "serviceaccount", "sa", "-n", "rb"][..],
        &["create", "role", "reader", "-n", "rb", "--verb=get,list", "--resource=configmaps"],
        &["create", "rolebinding", "reader", "-n", "rb", "--role=reader", "--serviceaccount=rb:sa"],
    ] {
        let (good, out, err) = run(token.clone(), args).await;
        assert!(good, "{args:?}: {out}{err}");
    }
    let who = "system:serviceaccount:rb:sa";
    let (_, out, err) =
        admin(&["auth", "can-i", "list", "configmaps", "-n", "rb", "--as", "system:serviceaccount:rb:sa"]).await;
    assert_eq!(out, "yes", "{err}");
    let (_, out, _) =
        admin(&["auth", "can-i", "delete", "configmaps", "-n", "rb", "--as", "system:serviceaccount:rb:sa"]).await;
    assert_eq!(out, "no");
    let (good, made, err) = admin(&["create", "token", "sa", "-n", "rb"]).await;
    assert!(good, "{err}");
    let (_, out, err) = run(made.clone(), &["auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"]).await;
    assert_eq!(out, who, "{err}");
    assert!(run(made.clone(), &["get", "configmaps", "-n", "rb"]).await.0);
    let (good, _, err) = run(made, &["get", "nodes"]).await;
    let refused = format!(
        "Error from server (Forbidden): nodes is forbidden: User \"{who}\" cannot list resource \"nodes\" in API group \"\" \
         at the cluster scope"
    );
    assert_eq!((good, err), (false, refused));
    server.shutdown().await;
    std::fs::remove_dir_all(&home).ok();
}
