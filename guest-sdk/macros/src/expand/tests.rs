//! What is written for an attribute.

use quote::quote;

use super::*;

fn function() -> TokenStream {
    quote!(
        fn password(ctx: &mut Context) -> Result<()> {
            Ok(())
        }
    )
}

#[test]
fn the_section_says_what_the_declaration_says() {
    let attribute = quote!(
        name = "a",
        before_helm,
        order = 10,
        rate_limit(min_interval_ms = 7, burst = 2),
        schedule = "@daily",
        kubernetes(
            name = "pods", api_version = "v1", kind = "Pod", names("x"), labels("app" = "x", "old" absent),
            fields("/metadata/name"), events(added), wait = false, group = "g",
        ),
    );
    let ident = format_ident!("password");
    let declaration = attribute::parse(attribute, &ident).expect("a good attribute");
    let expected = json!({
        "name": "a",
        "queue": "main",
        "allow-failure": false,
        "rate-limit": {"min-interval-ms": 7, "burst": 2},
        "bindings": [
            {"before-helm": 10},
            {"schedule": {"name": "schedule", "crontab": "@daily"}},
            {"kubernetes": {
                "name": "pods", "api-version": "v1", "kind": "Pod", "name-selector": ["x"],
                "label-selector": {
                    "match-labels": [["app", "x"]],
                    "match-expressions": [{"key": "old", "operator": "does-not-exist", "values": []}],
                },
                "field-selector": [], "filter": {"fields": ["/metadata/name"]}, "execute-on-events": ["added"],
                "execute-on-synchronization": true, "wait-for-synchronization": false, "keep-full-objects": false,
                "group": "g", "include-snapshots-from": [],
            }},
        ],
    });
    assert_eq!(to_json(&declaration), expected);
}

#[test]
fn a_line_of_the_section_is_one_line() {
    let attribute = quote!(kubernetes(name = "a", api_version = "v1", kind = "Pod", jq = ".a\n| .b"));
    let ident = format_ident!("password");
    let line = to_json(&attribute::parse(attribute, &ident).expect("a good attribute")).to_string();
    assert!(!line.contains('\n'), "{line}");
}

#[test]
fn what_is_written_is_rust() {
    for expanded in [
        hook(quote!(on_startup), function()),
        check_settings(
            &quote!(),
            quote!(
                fn check(settings: Value) -> Verdict {
                    Verdict::allow()
                }
            ),
        ),
        filter(
            &quote!(),
            quote!(
                fn keep(selection: Selection<'_>, object: Value) -> Result<Value> {
                    Ok(object)
                }
            ),
        ),
        assess_health(
            &quote!(),
            quote!(
                fn assess(object: Value) -> Option<Health> {
                    None
                }
            ),
        ),
    ] {
        let expanded = expanded.expect("a good item");
        syn::parse2::<syn::File>(expanded.clone()).unwrap_or_else(|error| panic!("{error}: {expanded}"));
    }
}

#[test]
fn functions_of_another_shape_are_refused() {
    let table = [
        (
            quote!(
                async fn a(ctx: &mut Context) -> Result<()> {
                    Ok(())
                }
            ),
            "not `async`",
        ),
        (
            quote!(
                fn a<T>(ctx: &mut Context) -> Result<()> {
                    Ok(())
                }
            ),
            "no generics",
        ),
        (
            quote!(
                fn a() -> Result<()> {
                    Ok(())
                }
            ),
            "other arguments",
        ),
        (
            quote!(
                fn a(&self) -> Result<()> {
                    Ok(())
                }
            ),
            "other arguments",
        ),
        (
            quote!(
                fn a(ctx: &mut Context, more: u8) -> Result<()> {
                    Ok(())
                }
            ),
            "other arguments",
        ),
        (
            quote!(
                fn a(ctx: &mut Context) {}
            ),
            "returns nothing",
        ),
        (
            quote!(
                struct A;
            ),
            "expected `fn`",
        ),
    ];
    for (item, expected) in table {
        let error = hook(quote!(on_startup), item).expect_err("a bad item").to_string();
        assert!(error.contains(expected), "{error}");
    }
    let arguments = check_settings(
        &quote!(order = 1),
        quote!(
            fn check(settings: Value) -> Verdict {}
        ),
    );
    assert!(arguments.expect_err("a bad attribute").to_string().contains("no arguments"));
}
