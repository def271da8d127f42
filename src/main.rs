//! The `burnscope` command: parses the command line, runs one subcommand, turns errors into exit codes.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
