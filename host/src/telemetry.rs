//! Logs. Data goes to standard output, everything else, logs included, to standard error.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For machines: one JSON object a line.
    Json,
}

/// Starts logging; a filter like `info` or `barbless=debug,kube=warn`.
///
/// # Errors
/// If the filter is malformed.
pub fn start(filter: &str, format: LogFormat) -> Result<(), crate::report::Report> {
    let filter = EnvFilter::try_new(filter).map_err(|error| {
        crate::report::Report::new("BadFlag", format!("--log-level {filter:?}: {error}"))
            .hint("for example 'info', or 'barbless=debug,warn'")
            .exit(crate::report::Exit::Usage)
    })?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    // A second start, as in tests, keeps the first.
    let _ = match format {
        LogFormat::Text => builder.with_target(false).try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    Ok(())
}
