//! Hooks that do little. The integration tests give them bindings of their own (`hooks/bindings/*.yaml`) and look at why
//! and when they ran and what they were shown, which stands in the records of their runs.
//!
//! Their own schedule never comes in a test (29 February).

use std::time::Duration;

use barbless_sdk::prelude::*;

barbless_sdk::component!();

/// Does nothing.
#[hook(name = "quiet", schedule = "0 0 29 2 *")]
fn quiet(_ctx: &mut Context) -> Result<()> {
    Ok(())
}

/// Does nothing, beside the other.
#[hook(name = "second", schedule = "0 0 29 2 *")]
fn second(_ctx: &mut Context) -> Result<()> {
    Ok(())
}

/// Fails three times before it succeeds.
#[hook(name = "stubborn", schedule = "0 0 29 2 *")]
fn stubborn(ctx: &mut Context) -> Result<()> {
    if ctx.attempt() < 4 {
        let error = Error::new("NotYet", format!("attempt {}", ctx.attempt()));
        return Err(error.retry_after(Duration::from_secs(1)));
    }
    Ok(())
}

/// Always fails.
#[hook(name = "broken", schedule = "0 0 29 2 *")]
fn broken(_ctx: &mut Context) -> Result<()> {
    Err(Error::new("Broken", "it always fails").retry_after(Duration::from_secs(1)))
}

/// Writes what has changed into its log, one line for each object.
#[hook(name = "told", schedule = "0 0 29 2 *")]
fn told(ctx: &mut Context) -> Result<()> {
    for object in ctx.changed().iter() {
        log::info!("{} {}", object.name(), object.get::<Value>("/data")?.unwrap_or_default());
    }
    Ok(())
}

/// Adds up the numbers of what has changed, and of everything if a schedule asks for it.
#[hook(name = "sums", schedule = "0 0 29 2 *")]
fn sums(ctx: &mut Context) -> Result<()> {
    let objects = if let Trigger::Events(_) = ctx.trigger() { ctx.changed() } else { ctx.snapshot("numbers")? };
    let mut sum = 0;
    for object in objects.iter() {
        let number: Option<String> = object.get("/n")?;
        sum += number.and_then(|number| number.parse::<u64>().ok()).unwrap_or_default();
    }
    log::info!("{sum}");
    Ok(())
}
