//! `burnscope show`: the tree of a recorded trace, ours or transformers'.

use std::{path::PathBuf, process::ExitCode};

use burnscope::format;

use super::{
    Outcome,
    output::{self, BAD, FAINT, printable, styled},
    tree::{self, TreeArguments},
};

/// Show the tree of a trace: modules, shapes, statistics
///
/// Reads a trace of burnscope or of transformers' model-addition debugger: a folder that holds one, a
/// `.burnscope.jsonl`, a `*_debug_tree_FULL_TENSORS.json` or a `*_debug_tree_SUMMARY.json`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  burnscope show trace
  burnscope show trace --depth 3
  burnscope show trace --filter '*.self_attn.*' --show-inputs
  burnscope show trace --filter '*.layers.0*' --ops")]
pub struct ShowArguments {
    /// A folder with a trace, or one of its files
    trace: PathBuf,
    #[command(flatten)]
    tree: TreeArguments,
}

/// Reads the trace and prints it.
pub fn run(arguments: &ShowArguments) -> Outcome {
    let trace = format::read(&arguments.trace)?;
    let mut text = tree::render(&trace, &arguments.tree);
    if text.is_empty() && !trace.roots.is_empty() {
        return Err(format!(
            "no module matches --filter: it must match a whole path, as in '*{}*' or '{}.*'",
            "attention", trace.roots[0].path
        )
        .into());
    }
    if text.is_empty() {
        text = format!("{}\n", styled(FAINT, "the trace has no call"));
    }
    if arguments.tree.ops && !tree::has_ops(&trace) {
        let none = "no operations here: only the .burnscope.jsonl record of a run on a GPU device has them";
        text += &format!("{}\n", styled(FAINT, none));
    }
    if !trace.complete {
        text += &format!(
            "{}\n",
            styled(BAD, "incomplete: the run ended before its end was recorded")
        );
    }
    for note in &trace.notes {
        text += &format!("{}\n", styled(FAINT, format!("note: {}", printable(note))));
    }
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}
