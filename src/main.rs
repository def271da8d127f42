//! The `burnscope` command.

mod cli;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// See what Burn models compute, and what a transformers checkout tests.
#[derive(Debug, Parser)]
#[command(name = "burnscope", version)]
struct Burnscope {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[cfg(feature = "skips")]
    Skips(cli::skips::SkipsArgs),
}

fn main() -> ExitCode {
    match Burnscope::parse().command {
        #[cfg(feature = "skips")]
        Command::Skips(args) => cli::skips::run(&args),
    }
}
