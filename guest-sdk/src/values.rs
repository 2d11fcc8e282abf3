//! The values document and the settings of the user.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Result, host};

/// The values document that the templates see. A run reads what it wrote; what it wrote is kept only if the run
/// succeeds and the whole document satisfies the schema of the package.
///
/// Paths are JSON pointers; [`crate::pointer::join`] makes one of parts that need escaping.
///
/// ```
/// use barbless_sdk::prelude::*;
///
/// fn count(ctx: &mut Context) -> Result<()> {
///     let seen: u32 = ctx.values().get_or("/internal/seen", 0)?;
///     ctx.values().set("/internal/seen", &(seen + 1))
/// }
///
/// let outcome = TestContext::builder().values(json!({"internal": {}})).run(count);
/// assert_eq!(outcome.values(), &json!({"internal": {"seen": 1}}));
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Values {
    pub(crate) _private: (),
}

impl Values {
    /// The value at a path, if there is one. `null` counts as none.
    ///
    /// # Errors
    /// `JsonInvalid` if it has another shape than `T`.
    pub fn get<T: DeserializeOwned>(&self, pointer: &str) -> Result<Option<T>> {
        Ok(parse::<Option<T>, _>(host::values_get(pointer), || "values", pointer)?.flatten())
    }

    /// The value at a path, which must be there.
    ///
    /// # Errors
    /// `ValueMissing` if there is none, or `null`; otherwise as [`Values::get`].
    pub fn require<T: DeserializeOwned>(&self, pointer: &str) -> Result<T> {
        self.get(pointer)?.ok_or_else(|| missing("values", pointer))
    }

    /// The value at a path, or another one if there is none.
    ///
    /// # Errors
    /// As [`Values::get`].
    pub fn get_or<T: DeserializeOwned>(&self, pointer: &str, otherwise: T) -> Result<T> {
        Ok(self.get(pointer)?.unwrap_or(otherwise))
    }

    /// Whether there is a value at a path, be it `null`.
    pub fn contains(&self, pointer: &str) -> bool {
        host::values_get(pointer).is_some()
    }

    /// Sets the value at a path. Objects on the way are made.
    ///
    /// # Errors
    /// `ValuesPathInvalid`, `ValuesReadOnly` and `ValuesTooLarge`; `JsonInvalid` if the value cannot be written as JSON.
    pub fn set<T: Serialize + ?Sized>(&self, pointer: &str, value: &T) -> Result<()> {
        let json = serde_json::to_string(value)?;
        Ok(host::values_set(pointer, &json)?)
    }

    /// Sets the value at a path unless it is already there, and says whether it changed something.
    ///
    /// # Errors
    /// As [`Values::set`].
    pub fn set_if_changed<T: Serialize + ?Sized>(&self, pointer: &str, value: &T) -> Result<bool> {
        let wanted = serde_json::to_value(value)?;
        let current =
            host::values_get(pointer).map(|json| serde_json::from_str::<serde_json::Value>(&json)).transpose()?;
        if current.as_ref() == Some(&wanted) {
            return Ok(false);
        }
        self.set(pointer, &wanted)?;
        Ok(true)
    }

    /// Removes the value at a path. One that is not there is no error.
    ///
    /// # Errors
    /// `ValuesPathInvalid` and `ValuesReadOnly`.
    pub fn remove(&self, pointer: &str) -> Result<()> {
        Ok(host::values_remove(pointer)?)
    }
}

/// The effective settings: what the user wrote, with the defaults of the schema. Read-only.
///
/// ```
/// use barbless_sdk::prelude::*;
///
/// fn check(ctx: &mut Context) -> Result<()> {
///     let size: u32 = ctx.settings().get_or("/replicas", 1)?;
///     ctx.values().set("/internal/large", &(size > 3))
/// }
///
/// let outcome = TestContext::builder().settings(json!({"replicas": 5})).run(check);
/// assert_eq!(outcome.values()["internal"]["large"], true);
///
/// // A setting that the schema requires has no default to fall back on.
/// fn owner(ctx: &mut Context) -> Result<()> {
///     let team: String = ctx.settings().require("/team")?;
///     ctx.values().set("/internal/owner", &team)
/// }
///
/// assert_eq!(TestContext::builder().run(owner).expect_error().code(), "ValueMissing");
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    pub(crate) _private: (),
}

impl Settings {
    /// The value at a path, if there is one. `null` counts as none.
    ///
    /// # Errors
    /// `JsonInvalid` if it has another shape than `T`.
    pub fn get<T: DeserializeOwned>(&self, pointer: &str) -> Result<Option<T>> {
        Ok(parse::<Option<T>, _>(host::settings_get(pointer), || "settings", pointer)?.flatten())
    }

    /// The value at a path, which must be there.
    ///
    /// # Errors
    /// `ValueMissing` if there is none, or `null`; otherwise as [`Settings::get`].
    pub fn require<T: DeserializeOwned>(&self, pointer: &str) -> Result<T> {
        self.get(pointer)?.ok_or_else(|| missing("settings", pointer))
    }

    /// The value at a path, or another one if there is none.
    ///
    /// # Errors
    /// As [`Settings::get`].
    pub fn get_or<T: DeserializeOwned>(&self, pointer: &str, otherwise: T) -> Result<T> {
        Ok(self.get(pointer)?.unwrap_or(otherwise))
    }

    /// All of them.
    ///
    /// # Errors
    /// `JsonInvalid` if they have another shape than `T`.
    pub fn all<T: DeserializeOwned>(&self) -> Result<T> {
        let json = host::settings_get("").unwrap_or_else(|| "{}".to_owned());
        serde_json::from_str(&json).map_err(|error| crate::Error::from(error).context("settings"))
    }
}

fn missing(what: &str, pointer: &str) -> crate::Error {
    crate::Error::new("ValueMissing", format!("{what} at `{pointer}`: there is no value"))
}

/// `what` is asked only if the text does not fit.
pub(crate) fn parse<T: DeserializeOwned, W: std::fmt::Display>(
    json: Option<String>,
    what: impl FnOnce() -> W,
    pointer: &str,
) -> Result<Option<T>> {
    let Some(json) = json else { return Ok(None) };
    serde_json::from_str(&json)
        .map_err(|error| crate::Error::from(error).context(format_args!("{} at `{pointer}`", what())))
}
