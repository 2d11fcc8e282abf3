//! Writes what an attribute stands for.

#[cfg(test)]
mod tests;

use proc_macro2::{Literal, TokenStream};
use quote::{format_ident, quote};
use serde_json::{Value, json};
use syn::{Error, ItemFn, Result, ReturnType};

use crate::attribute;
use crate::declaration::{Binding, Declaration, Kubernetes, Labels, Projection};

/// The custom section of the module.
const SECTION: &str = "barbless-hooks";

pub(crate) fn hook(attribute: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let function: ItemFn = syn::parse2(item)?;
    let declaration = attribute::parse(attribute, &function.sig.ident)?;
    expect_shape(&function, 1, "fn(ctx: &mut Context) -> Result<()>")?;

    let (ident, visibility) = (&function.sig.ident, &function.vis);
    let name = &declaration.name;
    let built = build(&declaration);
    let mut line = to_json(&declaration).to_string();
    line.push('\n');
    let (length, bytes) = (line.len(), Literal::byte_string(line.as_bytes()));
    Ok(quote! {
        #function

        #[doc(hidden)]
        #[allow(non_camel_case_types, reason = "has the name of the function")]
        #visibility enum #ident {}

        impl ::barbless_sdk::Hook for #ident {
            const NAME: &'static str = #name;

            fn declaration() -> ::barbless_sdk::declaration::HookDeclaration {
                #built
            }

            fn run(ctx: &mut ::barbless_sdk::Context) -> ::barbless_sdk::Result<()> {
                #ident(ctx)
            }
        }

        // Outside of a component only tests call a hook.
        #[cfg(not(target_arch = "wasm32"))]
        const _: () = {
            let _ = <#ident as ::barbless_sdk::Hook>::run;
        };

        #[cfg(target_arch = "wasm32")]
        #[allow(unsafe_code, reason = "places a constructor and a custom section")]
        const _: () = {
            static REGISTRATION: ::barbless_sdk::__private::Registration =
                ::barbless_sdk::__private::Registration::new::<#ident>();
            extern "C" fn register() {
                ::barbless_sdk::__private::register(&REGISTRATION);
            }
            #[used]
            #[unsafe(link_section = ".init_array")]
            static CONSTRUCTOR: extern "C" fn() = register;
            // Without `#[used]`, which would put the text into the memory as well.
            #[unsafe(link_section = #SECTION)]
            pub static DECLARATION: [u8; #length] = *#bytes;
        };
    })
}

pub(crate) fn check_settings(attribute: &TokenStream, item: TokenStream) -> Result<TokenStream> {
    let function = plain(attribute, item, 1, "fn(settings: T) -> Verdict")?;
    let ident = &function.sig.ident;
    Ok(export(
        &function,
        &quote!(settings_checker),
        &quote!(export_settings_checker),
        &quote! {
            impl ::barbless_sdk::bindings::settings_checker::exports::barbless::hooks::check_settings::Guest for Component {
                fn check(settings: ::std::string::String) -> ::barbless_sdk::optional::Verdict {
                    ::barbless_sdk::__private::prepare();
                    ::barbless_sdk::__private::check_settings(&settings, #ident)
                }
            }
        },
    ))
}

pub(crate) fn filter(attribute: &TokenStream, item: TokenStream) -> Result<TokenStream> {
    let function = plain(attribute, item, 2, "fn(selection: Selection<'_>, object: T) -> Result<U>")?;
    let ident = &function.sig.ident;
    Ok(export(
        &function,
        &quote!(object_filter),
        &quote!(export_object_filter),
        &quote! {
            impl ::barbless_sdk::bindings::object_filter::exports::barbless::hooks::filter::Guest for Component {
                fn project(
                    hook: ::std::string::String,
                    binding: ::std::string::String,
                    object: ::std::string::String,
                ) -> ::core::result::Result<::std::string::String, ::std::string::String> {
                    ::barbless_sdk::__private::prepare();
                    ::barbless_sdk::__private::project(&hook, &binding, &object, #ident)
                }
            }
        },
    ))
}

pub(crate) fn assess_health(attribute: &TokenStream, item: TokenStream) -> Result<TokenStream> {
    let function = plain(attribute, item, 1, "fn(object: T) -> Option<Health>")?;
    let ident = &function.sig.ident;
    Ok(export(
        &function,
        &quote!(health_assessor),
        &quote!(export_health_assessor),
        &quote! {
            impl ::barbless_sdk::bindings::health_assessor::exports::barbless::hooks::assess_health::Guest for Component {
                fn assess(object: ::std::string::String) -> ::core::option::Option<::barbless_sdk::optional::Health> {
                    ::barbless_sdk::__private::prepare();
                    ::barbless_sdk::__private::assess(&object, #ident)
                }
            }
        },
    ))
}

fn plain(attribute: &TokenStream, item: TokenStream, arguments: usize, shape: &str) -> Result<ItemFn> {
    syn::parse2::<attribute::Nothing>(attribute.clone())?;
    let function: ItemFn = syn::parse2(item)?;
    expect_shape(&function, arguments, shape)?;
    Ok(function)
}

fn export(function: &ItemFn, world: &TokenStream, exporter: &TokenStream, guest: &TokenStream) -> TokenStream {
    let ident = &function.sig.ident;
    quote! {
        #function

        // Outside of a component only tests call it.
        #[cfg(not(target_arch = "wasm32"))]
        const _: () = {
            let _ = #ident;
        };

        #[cfg(target_arch = "wasm32")]
        #[allow(unsafe_code, reason = "generated from the contract")]
        const _: () = {
            struct Component;
            #guest
            ::barbless_sdk::bindings::#world::#exporter!(
                Component with_types_in ::barbless_sdk::bindings::#world
            );
        };
    }
}

/// Rejects what cannot be called; the compiler checks the types of the rest.
fn expect_shape(function: &ItemFn, arguments: usize, shape: &str) -> Result<()> {
    let signature = &function.sig;
    let wrong = |what: &str| Err(Error::new_spanned(signature, format!("{what}; expected `{shape}`")));
    if let Some(asyncness) = &signature.asyncness {
        return Err(Error::new_spanned(asyncness, format!("a hook is not `async`; expected `{shape}`")));
    }
    if !signature.generics.params.is_empty() {
        return wrong("no generics are possible here");
    }
    if signature.inputs.len() != arguments
        || signature.inputs.iter().any(|input| matches!(input, syn::FnArg::Receiver(_)))
    {
        return wrong("the function has other arguments");
    }
    if matches!(signature.output, ReturnType::Default) {
        return wrong("the function returns nothing");
    }
    Ok(())
}

fn build(declaration: &Declaration) -> TokenStream {
    let Declaration { name, bindings, queue, allow_failure, rate_limit } = declaration;
    let bindings = bindings.iter().map(build_binding);
    let rate_limit = option(rate_limit.as_ref().map(|limit| {
        let (min_interval_ms, burst) = (limit.min_interval_ms, limit.burst);
        quote!(RateLimit { min_interval_ms: #min_interval_ms, burst: #burst })
    }));
    quote! {
        use ::barbless_sdk::declaration::*;
        HookDeclaration {
            name: ::std::string::String::from(#name),
            bindings: ::std::vec![#(#bindings),*],
            queue: ::std::string::String::from(#queue),
            allow_failure: #allow_failure,
            rate_limit: #rate_limit,
        }
    }
}

fn build_binding(binding: &Binding) -> TokenStream {
    match binding {
        Binding::Lifecycle(lifecycle, order) => {
            let variant = format_ident!("{}", lifecycle.variant());
            quote!(Binding::#variant(#order))
        }
        Binding::Schedule { name, crontab } => quote! {
            Binding::Schedule(ScheduleBinding {
                name: ::std::string::String::from(#name),
                crontab: ::std::string::String::from(#crontab),
            })
        },
        Binding::Kubernetes(kubernetes) => build_kubernetes(kubernetes),
    }
}

fn build_kubernetes(binding: &Kubernetes) -> TokenStream {
    let Kubernetes {
        name,
        api_version,
        kind,
        names,
        labels,
        fields,
        projection,
        events,
        synchronization,
        wait,
        keep_full_objects,
        group,
        include_snapshots_from,
    } = binding;
    let names = strings(names);
    let labels = option(labels.as_ref().map(build_labels));
    let fields = fields.iter().map(|requirement| {
        let (field, equals, value) = (&requirement.field, requirement.equals, &requirement.value);
        quote! {
            FieldRequirement {
                field: ::std::string::String::from(#field),
                equals: #equals,
                value: ::std::string::String::from(#value),
            }
        }
    });
    let projection = match projection {
        Projection::Whole => quote!(Projection::Whole),
        Projection::Fields(pointers) => {
            let pointers = strings(pointers);
            quote!(Projection::Fields(#pointers))
        }
        Projection::Jq(program) => quote!(Projection::Jq(::std::string::String::from(#program))),
        Projection::Component => quote!(Projection::Component),
    };
    let events = events.iter().map(|event| format_ident!("{}", event.variant()));
    let group = option(group.as_ref().map(|group| quote!(::std::string::String::from(#group))));
    let included = strings(include_snapshots_from);
    quote! {
        Binding::Kubernetes(KubernetesBinding {
            name: ::std::string::String::from(#name),
            api_version: ::std::string::String::from(#api_version),
            kind: ::std::string::String::from(#kind),
            name_selector: #names,
            label_selector: #labels,
            field_selector: ::std::vec![#(#fields),*],
            filter: #projection,
            execute_on_events: ::std::vec![#(WatchEventType::#events),*],
            execute_on_synchronization: #synchronization,
            wait_for_synchronization: #wait,
            keep_full_objects: #keep_full_objects,
            group: #group,
            include_snapshots_from: #included,
        })
    }
}

fn build_labels(labels: &Labels) -> TokenStream {
    let equal = labels
        .equal
        .iter()
        .map(|(key, value)| quote!((::std::string::String::from(#key), ::std::string::String::from(#value))));
    let expressions = labels.expressions.iter().map(|requirement| {
        let key = &requirement.key;
        let operator = format_ident!("{}", requirement.operator.variant());
        let values = strings(&requirement.values);
        quote! {
            LabelRequirement {
                key: ::std::string::String::from(#key),
                operator: LabelOperator::#operator,
                values: #values,
            }
        }
    });
    quote! {
        LabelSelector {
            match_labels: ::std::vec![#(#equal),*],
            match_expressions: ::std::vec![#(#expressions),*],
        }
    }
}

fn strings(strings: &[String]) -> TokenStream {
    quote!(::std::vec![#(::std::string::String::from(#strings)),*])
}

fn option(value: Option<TokenStream>) -> TokenStream {
    match value {
        Some(value) => quote!(::core::option::Option::Some(#value)),
        None => quote!(::core::option::Option::None),
    }
}

/// The same facts with the words of the contract.
fn to_json(declaration: &Declaration) -> Value {
    let bindings: Vec<Value> = declaration
        .bindings
        .iter()
        .map(|binding| match binding {
            Binding::Lifecycle(lifecycle, order) => json!({ lifecycle.wit(): order }),
            Binding::Schedule { name, crontab } => json!({"schedule": {"name": name, "crontab": crontab}}),
            Binding::Kubernetes(kubernetes) => json!({"kubernetes": kubernetes_to_json(kubernetes)}),
        })
        .collect();
    json!({
        "name": declaration.name,
        "bindings": bindings,
        "queue": declaration.queue,
        "allow-failure": declaration.allow_failure,
        "rate-limit": declaration.rate_limit.as_ref().map(|limit| json!({
            "min-interval-ms": limit.min_interval_ms, "burst": limit.burst,
        })),
    })
}

fn kubernetes_to_json(binding: &Kubernetes) -> Value {
    let labels = binding.labels.as_ref().map(|labels| {
        let expressions: Vec<Value> = labels
            .expressions
            .iter()
            .map(|it| json!({"key": it.key, "operator": it.operator.wit(), "values": it.values}))
            .collect();
        json!({"match-labels": labels.equal, "match-expressions": expressions})
    });
    let fields: Vec<Value> =
        binding.fields.iter().map(|it| json!({"field": it.field, "equals": it.equals, "value": it.value})).collect();
    let filter = match &binding.projection {
        Projection::Whole => json!("whole"),
        Projection::Fields(pointers) => json!({"fields": pointers}),
        Projection::Jq(program) => json!({"jq": program}),
        Projection::Component => json!("component"),
    };
    json!({
        "name": binding.name,
        "api-version": binding.api_version,
        "kind": binding.kind,
        "name-selector": binding.names,
        "label-selector": labels,
        "field-selector": fields,
        "filter": filter,
        "execute-on-events": binding.events.iter().map(|event| event.wit()).collect::<Vec<_>>(),
        "execute-on-synchronization": binding.synchronization,
        "wait-for-synchronization": binding.wait,
        "keep-full-objects": binding.keep_full_objects,
        "group": binding.group,
        "include-snapshots-from": binding.include_snapshots_from,
    })
}
