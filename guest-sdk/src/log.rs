//! Log lines, kept with the run and shown where the user looks at it.
//!
//! ```
//! use barbless_sdk::prelude::*;
//!
//! fn greet(ctx: &mut Context) -> Result<()> {
//!     let name = &ctx.instance().name;
//!     log::info!("hello");
//!     log::warn!(application = name, replicas = 0, "nothing to do for {name}");
//!     Ok(())
//! }
//!
//! let outcome = TestContext::builder().instance("ns", "blog").run(greet);
//! assert_eq!(outcome.logs()[1].message, "nothing to do for blog");
//! assert_eq!(outcome.logs()[1].fields[0], ("application".to_owned(), "blog".to_owned()));
//! ```
//!
//! Limits: 64 KiB a line and 1 MiB a run; what exceeds them is cut, and the cut is noted.

use crate::host;

pub use crate::bindings::hooks::barbless::hooks::log::Level;
pub use crate::{__log_debug as debug, __log_error as error, __log_info as info, __log_warn as warn};

/// Writes a line with fields. The macros of this module are shorter.
pub fn write(level: Level, message: &str, fields: &[(String, String)]) {
    host::log(level, message, fields);
}

/// Writes a line for developers: `debug!(field = value, …, "format", arguments…)`.
#[doc(hidden)]
#[macro_export]
macro_rules! __log_debug {
    ($($line:tt)*) => { $crate::__log!(Debug, $($line)*) };
}

/// Writes a line about what happened.
#[doc(hidden)]
#[macro_export]
macro_rules! __log_info {
    ($($line:tt)*) => { $crate::__log!(Info, $($line)*) };
}

/// Writes a line about something that may need care.
#[doc(hidden)]
#[macro_export]
macro_rules! __log_warn {
    ($($line:tt)*) => { $crate::__log!(Warn, $($line)*) };
}

/// Writes a line about something that went wrong.
#[doc(hidden)]
#[macro_export]
macro_rules! __log_error {
    ($($line:tt)*) => { $crate::__log!(Error, $($line)*) };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __log {
    ($level:ident, $($field:ident = $value:expr,)* $message:literal $($arguments:tt)*) => {
        $crate::log::write(
            $crate::log::Level::$level,
            &::std::format!($message $($arguments)*),
            &[$((::std::string::String::from(::core::stringify!($field)), ::std::string::ToString::to_string(&$value))),*],
        )
    };
}
