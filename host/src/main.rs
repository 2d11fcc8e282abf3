//! The program: parse, run, print the error once, exit.

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    let cli = barbless::cli::Cli::parse();
    if matches!(cli.command, barbless::cli::Command::CompileComponent) {
        // The child of the sandbox: nothing else is started in it.
        return barbless::app::compile_component();
    }
    match barbless::app::run(cli) {
        Ok(exit) => exit.into(),
        Err(report) => {
            // Standard error may be gone; there is nobody left to tell then.
            let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{report}\n"));
            report.exit.into()
        }
    }
}
