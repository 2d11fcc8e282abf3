//! The compiler as a program of its own: what tests and other embedders give as `Compiler::Child`. The host uses a hidden
//! subcommand of its own executable instead.

fn main() -> std::process::ExitCode {
    barbless_sandbox::compile_main()
}
