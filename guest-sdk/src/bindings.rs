//! What `wit-bindgen` makes of the contract in `wit/`.
//!
//! The types compile everywhere; the functions exist only in a component, so the rest of the crate reaches them through
//! `host`, which has a second implementation for tests. Nothing here is meant to be used directly.

#![allow(missing_docs, unsafe_code, unreachable_pub, clippy::all, reason = "generated from wit/")]

/// The world of a component with hooks.
pub mod hooks {
    wit_bindgen::generate!({
        path: "../wit",
        world: "hook-component",
        pub_export_macro: true,
        export_macro_name: "export_hooks",
        default_bindings_module: "barbless_sdk::bindings::hooks",
        additional_derives: [PartialEq, Eq],
        generate_all,
    });
}

/// The world of a component that judges settings.
pub mod settings_checker {
    wit_bindgen::generate!({
        path: "../wit",
        world: "settings-checker",
        pub_export_macro: true,
        export_macro_name: "export_settings_checker",
        default_bindings_module: "barbless_sdk::bindings::settings_checker",
        additional_derives: [PartialEq, Eq],
        with: {
            "barbless:hooks/instance@0.1.0": crate::bindings::hooks::barbless::hooks::instance,
            "barbless:hooks/log@0.1.0": crate::bindings::hooks::barbless::hooks::log,
        },
    });
}

/// The world of a component that projects objects.
pub mod object_filter {
    wit_bindgen::generate!({
        path: "../wit",
        world: "object-filter",
        pub_export_macro: true,
        export_macro_name: "export_object_filter",
        default_bindings_module: "barbless_sdk::bindings::object_filter",
        additional_derives: [PartialEq, Eq],
        with: { "barbless:hooks/log@0.1.0": crate::bindings::hooks::barbless::hooks::log },
    });
}

/// The world of a component that judges the health of objects.
pub mod health_assessor {
    wit_bindgen::generate!({
        path: "../wit",
        world: "health-assessor",
        pub_export_macro: true,
        export_macro_name: "export_health_assessor",
        default_bindings_module: "barbless_sdk::bindings::health_assessor",
        additional_derives: [PartialEq, Eq],
        with: { "barbless:hooks/log@0.1.0": crate::bindings::hooks::barbless::hooks::log },
    });
}
