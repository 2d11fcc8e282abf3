//! What attributes say, and what is wrong with bad ones.

use quote::quote;

use super::*;

fn read(attribute: TokenStream) -> Result<Declaration> {
    parse(attribute, &Ident::new("password", Span::call_site()))
}

fn good(attribute: TokenStream) -> Declaration {
    read(attribute).expect("a good attribute")
}

fn bad(attribute: TokenStream) -> String {
    read(attribute).expect_err("a bad attribute").to_string()
}

fn only_kubernetes(attribute: TokenStream) -> Kubernetes {
    match good(attribute).bindings.pop() {
        Some(Binding::Kubernetes(kubernetes)) => *kubernetes,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_lifecycle_hook_has_the_defaults() {
    let expected = Declaration {
        name: "password".to_owned(),
        bindings: vec![Binding::Lifecycle(Lifecycle::BeforeHelm, 10)],
        queue: "main".to_owned(),
        allow_failure: false,
        rate_limit: None,
    };
    assert_eq!(good(quote!(before_helm, order = 10)), expected);
    assert_eq!(good(quote!(order = 10, before_helm,)), expected);
    assert_eq!(good(quote!(before_helm(order = 10))), expected);
    assert_eq!(good(quote!(before_helm = 10)), expected);
}

#[test]
fn an_order_is_for_all_bindings_without_their_own() {
    let bindings = good(quote!(on_startup, before_helm = -3, after_helm, order = 7)).bindings;
    let orders = bindings.iter().map(|binding| match binding {
        Binding::Lifecycle(lifecycle, order) => (lifecycle.wit(), *order),
        other => panic!("{other:?}"),
    });
    assert_eq!(orders.collect::<Vec<_>>(), [("on-startup", 7), ("before-helm", -3), ("after-helm", 7)]);
    assert!(bad(quote!(schedule = "* * * * *", order = 7)).contains("belongs to a lifecycle binding"));
    assert!(bad(quote!(before_helm = 1, order = 7)).contains("belongs to a lifecycle binding"));
}

#[test]
fn options_of_the_hook_are_read() {
    let hook = good(quote!(
        name = "a/b.c-d_e",
        queue = "slow",
        allow_failure,
        rate_limit(min_interval_ms = 1000, burst = 3),
        on_startup
    ));
    assert_eq!((hook.name.as_str(), hook.queue.as_str(), hook.allow_failure), ("a/b.c-d_e", "slow", true));
    assert_eq!(hook.rate_limit, Some(RateLimit { min_interval_ms: 1000, burst: 3 }));
    let hook = good(quote!(allow_failure = false, rate_limit(min_interval_ms = 5), on_startup));
    assert!(!hook.allow_failure);
    assert_eq!(hook.rate_limit, Some(RateLimit { min_interval_ms: 5, burst: 1 }));
}

#[test]
fn the_name_of_a_raw_identifier_has_no_prefix() {
    let function: Ident = syn::parse_str("r#type").expect("an identifier");
    assert_eq!(parse(quote!(on_startup), &function).expect("good").name, "type");
}

#[test]
fn schedules_get_names() {
    let bindings = good(quote!(
        schedule = "*/5 * * * *",
        schedule(name = "schedule-2", crontab = "0 */5 * * * *"),
        schedule = "@every 5m",
        schedule = "TZ=Europe/Berlin 0 3 * * *",
    ))
    .bindings;
    let names = bindings.iter().map(|binding| match binding {
        Binding::Schedule { name, .. } => name.as_str(),
        other => panic!("{other:?}"),
    });
    assert_eq!(names.collect::<Vec<_>>(), ["schedule", "schedule-2", "schedule-3", "schedule-4"]);
}

#[test]
fn a_kubernetes_binding_has_the_defaults() {
    let binding = only_kubernetes(quote!(kubernetes(name = "pods", api_version = "v1", kind = "Pod")));
    assert_eq!((binding.name.as_str(), binding.api_version.as_str(), binding.kind.as_str()), ("pods", "v1", "Pod"));
    assert_eq!(binding.events, Event::ALL);
    assert_eq!(binding.projection, Projection::Whole);
    assert!(binding.synchronization && binding.wait && !binding.keep_full_objects);
    assert!(binding.names.is_empty() && binding.labels.is_none() && binding.fields.is_empty());
}

#[test]
fn a_kubernetes_binding_with_everything_is_read() {
    let binding = only_kubernetes(quote!(
        kubernetes(
            name = "other", api_version = "v1", kind = "Secret", wait = false,
        ),
        kubernetes(
            name = "pods", api_version = "apps/v1", kind = "Deployment", names("a", "b"),
            labels(
                "app" = "x", "tier" != "db", "zone" in ("a", "b"), "zone" not_in ("c"), "team" exists, "old" absent,
            ),
            field_selector("status.phase" = "Running", "spec.nodeName" != "n1"),
            jq = ".metadata", events(deleted, added), synchronization = false, wait = false, keep_full_objects,
            group = "g", include_snapshots_from("other"),
        ),
    ));
    assert_eq!(binding.names, ["a", "b"]);
    let labels = binding.labels.expect("labels");
    assert_eq!(labels.equal, [("app".to_owned(), "x".to_owned())]);
    let expressions: Vec<_> =
        labels.expressions.iter().map(|it| (it.key.as_str(), it.operator.wit(), it.values.join(","))).collect();
    let expected = [
        ("tier", "not-in", "db"),
        ("zone", "in", "a,b"),
        ("zone", "not-in", "c"),
        ("team", "exists", ""),
        ("old", "does-not-exist", ""),
    ]
    .map(|(key, operator, values)| (key, operator, values.to_owned()));
    assert_eq!(expressions, expected);
    let fields: Vec<_> = binding.fields.iter().map(|it| (it.field.as_str(), it.equals, it.value.as_str())).collect();
    assert_eq!(fields, [("status.phase", true, "Running"), ("spec.nodeName", false, "n1")]);
    assert_eq!(binding.projection, Projection::Jq(".metadata".to_owned()));
    assert_eq!(binding.events, [Event::Deleted, Event::Added]);
    assert!(!binding.synchronization && !binding.wait && binding.keep_full_objects);
    assert_eq!(binding.group.as_deref(), Some("g"));
    assert_eq!(binding.include_snapshots_from, ["other"]);
}

#[test]
fn no_events_are_no_mistake() {
    let binding = only_kubernetes(quote!(kubernetes(name = "a", api_version = "v1", kind = "Pod", events(), filter)));
    assert!(binding.events.is_empty());
    assert_eq!(binding.projection, Projection::Component);
}

/// Each mistake has an error that names the word and what would be right.
#[test]
fn mistakes_are_explained() {
    let in_kubernetes = |rest: TokenStream| quote!(kubernetes(name = "a", api_version = "v1", kind = "Pod", #rest));
    let table = [
        (quote!(), "at least one binding"),
        (quote!(queue = "main"), "at least one binding"),
        (quote!(before_helmet), "unknown word `before_helmet`; expected a binding"),
        (quote!(before_helm, before_helm), "this binding stands here twice"),
        (quote!(before_helm, name = "a", name = "b"), "`name` stands here twice"),
        (quote!(before_helm, name = "a b"), "1 to 253 letters"),
        (quote!(before_helm, name = ""), "1 to 253 letters"),
        (quote!(before_helm, queue = ""), "may not be empty"),
        (quote!(before_helm(orders = 1)), "unknown word `orders`; expected `order`"),
        (quote!(before_helm, order = 5_000_000_000), "number too large"),
        (quote!(before_helm after_helm), "expected `,`"),
        (quote!(on_startup, rate_limit(burst = 1)), "needs `min_interval_ms`"),
        (quote!(on_startup, rate_limit(min_interval_ms = 1, burst = 0)), "`burst` is at least 1"),
        (quote!(schedule = "* * *"), "this one has 3"),
        (quote!(schedule(name = "a")), "`schedule` needs `crontab"),
        (quote!(schedule(name = "a", crontab = "@daily"), schedule(name = "a", crontab = "@daily")), "two schedules"),
        (quote!(kubernetes(api_version = "v1", kind = "Pod")), "`kubernetes` needs `name"),
        (quote!(kubernetes(name = "a", kind = "Pod")), "`kubernetes` needs `api_version"),
        (quote!(kubernetes(name = "a", api_version = "v1")), "`kubernetes` needs `kind"),
        (in_kubernetes(quote!(label("a" = "b"))), "unknown word `label`"),
        (in_kubernetes(quote!(fields("metadata.name"))), "write `/metadata/name`"),
        (in_kubernetes(quote!(fields())), "at least one JSON pointer"),
        (in_kubernetes(quote!(fields("/a"), jq = ".")), "only one of"),
        (in_kubernetes(quote!(events(created))), "unknown word `created`; expected `added`"),
        (in_kubernetes(quote!(events(added, added))), "`added` stands here twice"),
        (in_kubernetes(quote!(labels("a"))), "after a label comes"),
        (in_kubernetes(quote!(labels("a" like "b"))), "after a label comes"),
        (in_kubernetes(quote!(labels("a" in ()))), "at least one value"),
        (in_kubernetes(quote!(synchronization = "no")), "expected boolean literal"),
        (in_kubernetes(quote!(include_snapshots_from("b"))), "the hook has no such binding"),
        (
            quote!(
                kubernetes(name = "a", api_version = "v1", kind = "Pod"),
                kubernetes(name = "a", api_version = "v1", kind = "Node")
            ),
            "two kubernetes bindings are named `a`",
        ),
    ];
    for (attribute, expected) in table {
        let text = attribute.to_string();
        let error = bad(attribute);
        assert!(error.contains(expected), "#[hook({text})]: {error}");
    }
}
