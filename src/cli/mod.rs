//! The command line: one file for each subcommand, and what they share in talking to a person.
//!
//! Results go to standard output, progress and errors to standard error.

#[cfg(feature = "models")]
mod catch;
#[cfg(feature = "models")]
mod demo;
#[cfg(feature = "models")]
mod device;
#[cfg(feature = "models")]
mod model_inputs;
mod output;
mod show;
#[cfg(feature = "similar")]
mod similar;
#[cfg(feature = "skips")]
mod skips;
#[cfg(feature = "models")]
mod trace;
mod tree;
#[cfg(feature = "models")]
mod verify;

use std::{error::Error, process::ExitCode};

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, builder::styling};

/// What a subcommand returns; an error is one line for a person and the exit code 2.
type Outcome = Result<ExitCode, Box<dyn Error>>;

/// See what a Burn model computes: every module's inputs, outputs and statistics.
///
/// Exit codes: 0 all is well, 1 the command ran and found something wrong, 2 the command could not
/// run, 3 the command ran but some of its input could not be read. NO_COLOR turns colours off.
#[derive(Parser)]
#[command(
    version,
    after_help = "Start with `burnscope demo`. `burnscope COMMAND --help` explains a command."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    #[cfg(feature = "models")]
    Trace(trace::TraceArguments),
    Show(show::ShowArguments),
    #[cfg(feature = "skips")]
    Skips(skips::SkipsArguments),
    #[cfg(feature = "similar")]
    Similar(similar::SimilarArguments),
    #[cfg(feature = "models")]
    Demo(demo::DemoArguments),
}

/// Runs the command that the arguments name.
pub fn main() -> ExitCode {
    let styles = styling::Styles::styled()
        .header(styling::AnsiColor::Green.on_default().bold())
        .usage(styling::AnsiColor::Green.on_default().bold())
        .literal(styling::AnsiColor::Cyan.on_default().bold())
        .placeholder(styling::AnsiColor::Cyan.on_default());
    let matches = Arguments::command().styles(styles).get_matches();
    let arguments = match Arguments::from_arg_matches(&matches) {
        Ok(arguments) => arguments,
        Err(error) => error.exit(),
    };
    let outcome = match arguments.command {
        #[cfg(feature = "models")]
        Command::Trace(arguments) => trace::run(&arguments),
        Command::Show(arguments) => show::run(&arguments),
        #[cfg(feature = "skips")]
        Command::Skips(arguments) => skips::run(&arguments),
        #[cfg(feature = "similar")]
        Command::Similar(arguments) => similar::run(&arguments),
        #[cfg(feature = "models")]
        Command::Demo(arguments) => demo::run(&arguments),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            output::error(&*error);
            ExitCode::from(2)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }
}
