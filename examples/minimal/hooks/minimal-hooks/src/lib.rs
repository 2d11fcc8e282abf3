//! The smallest useful hook: it puts a greeting into the values, and the template shows it.

use barbless_sdk::prelude::*;

/// Greets.
#[hook(before_helm)]
fn greet(ctx: &mut Context) -> Result<()> {
    let name: String = ctx.settings().get_or("/name", "world".to_owned())?;
    log::info!(name = name, "greeting");
    ctx.values().set("/internal/greeting", &format!("Hello, {name}!"))
}

barbless_sdk::component!();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greeting_has_the_name_of_the_settings() {
        let outcome = TestContext::builder().settings(json!({"name": "Ada"})).run(greet).expect_ok();
        assert_eq!(outcome.values()["internal"]["greeting"], "Hello, Ada!");
    }

    #[test]
    fn without_a_name_the_world_is_greeted() {
        let outcome = TestContext::builder().run(greet).expect_ok();
        assert_eq!(outcome.values()["internal"]["greeting"], "Hello, world!");
    }
}
