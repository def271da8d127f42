//! `burnscope trace`: runs a checkpoint on inputs and records every module of the forward pass.

use std::{cell::RefCell, path::PathBuf, process::ExitCode};

use burnscope::{
    Dump, Session,
    models::{self, ModelInputs},
};
use clap::ValueEnum;

use super::{
    Outcome,
    catch::catch,
    device::{DeviceName, Operations},
    model_inputs,
    output::{self, BAD, FAINT, STRONG, printable, styled},
    tree::{self, TreeArguments},
    verify::Again,
};

/// Run a checkpoint and record every module of its forward pass
///
/// The checkpoint is an ordinary Hugging Face folder: `config.json` and `model.safetensors` or its
/// shards. BERT, Llama and Qwen3 are built in; `config.json` says which one it is.
///
/// On a GPU every operation is recorded, too (`--ops` lists them), for which Burn runs them one by one
/// in place of its fused kernels; `--fusion` leaves these in.
///
/// Writes into the folder given with --out: `<Class>_debug_tree_FULL_TENSORS.json` and
/// `<Class>_debug_tree_SUMMARY.json`, which transformers' own tools can read, and, with every number at
/// full precision, `<Class>.burnscope.jsonl`.
#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("what").required(true), after_help = "\
Examples:
  burnscope trace --checkpoint all-MiniLM-L6-v2 --text 'Hello world' --out trace
  burnscope trace --checkpoint llama --inputs inputs.safetensors --out trace --dump safetensors
  burnscope trace --checkpoint llama --inputs inputs.safetensors --out trace --include '*.layers.0.*'
  burnscope trace --checkpoint llama --inputs inputs.safetensors --out trace --device wgpu --ops

Exit codes: 0 recorded, 1 the forward pass panicked (what was seen until then is recorded) or --verify
found that tracing changes the outputs, 2 bad input.")]
pub struct TraceArguments {
    /// The folder of the checkpoint
    #[arg(long, value_name = "DIR")]
    checkpoint: PathBuf,
    /// A safetensors file with `input_ids` and, as the model takes them, `attention_mask`,
    /// `token_type_ids`, `position_ids`: int64, [batch, sequence]
    #[arg(long, value_name = "FILE", group = "what")]
    inputs: Option<PathBuf>,
    /// A text, tokenized with the checkpoint's `tokenizer.json`
    #[arg(long, group = "what")]
    text: Option<String>,
    /// The folder for the trace; made if it is missing
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Where to run
    #[arg(long, value_enum, default_value = "flex")]
    device: DeviceName,
    /// Leave Burn's fusion on, on a GPU: only what modules are given and give is seen then, no operation
    #[arg(long)]
    fusion: bool,
    /// Conclude the modules from the operations of a GPU alone, as for a model without
    /// `#[burnscope::trace]`
    #[arg(long, conflicts_with = "fusion")]
    ignore_annotations: bool,
    /// What to keep of the tensors' elements
    #[arg(long, value_enum, default_value = "repr")]
    dump: DumpName,
    /// The most bytes of tensor files to write, as 500M or 2G; beyond it only summaries are kept
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    dump_budget: Option<u64>,
    /// Keep only the first and last of repeated layers in the two JSON files
    #[arg(long)]
    prune: bool,
    /// Record only modules whose whole path matches; `*` stands for any characters; may be given more
    /// than once
    #[arg(long, value_name = "PATTERN")]
    include: Vec<String>,
    /// Record no module whose whole path matches
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
    /// Run without tracing, too, and say whether the outputs are the same to the last bit; on a GPU
    /// also how they differ from those of a run with Burn's fusion on
    #[arg(long)]
    verify: bool,
    /// Print nothing but where the files are
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    tree: TreeArguments,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DumpName {
    /// Nothing but shapes and statistics
    None,
    /// The lines that PyTorch would print
    Repr,
    /// Every element, each tensor in its own file
    Safetensors,
}

impl From<DumpName> for Dump {
    fn from(name: DumpName) -> Self {
        match name {
            DumpName::None => Dump::None,
            DumpName::Repr => Dump::Repr,
            DumpName::Safetensors => Dump::Safetensors,
        }
    }
}

/// Loads, runs, records and prints.
pub fn run(arguments: &TraceArguments) -> Outcome {
    let operations = if arguments.fusion {
        Operations::Fused
    } else {
        Operations::Seen
    };
    if !arguments.device.has_operations() {
        for (given, flag) in [
            (arguments.fusion, "--fusion"),
            (arguments.ignore_annotations, "--ignore-annotations"),
        ] {
            if given {
                return Err(format!(
                    "{flag} is for a GPU, whose operations are seen: give --device wgpu or cuda, too"
                )
                .into());
            }
        }
    }
    let device = arguments.device.open(operations)?;
    // Inputs are read first: they are small, and a mistake in them should not cost a load.
    let from_file = arguments
        .inputs
        .as_deref()
        .map(ModelInputs::read)
        .transpose()?;
    let loading = output::spinner(format!("loading {}", arguments.checkpoint.display()));
    let model = models::load(&arguments.checkpoint, &device);
    loading.finish_and_clear();
    let model = model?;
    let inputs = match (from_file, &arguments.text) {
        (Some(inputs), _) => inputs,
        (None, Some(text)) => {
            let token_types = model.limits().type_vocab_size.is_some();
            model_inputs::tokenize(&arguments.checkpoint, text, token_types)?
        }
        (None, None) => return Err("give the inputs with --inputs FILE or --text TEXT".into()),
    };
    inputs.check(model.class_name(), model.limits())?;

    let mut builder = Session::builder(&arguments.out)
        .name(model.class_name())
        .dump(arguments.dump.into())
        .prune_layers(arguments.prune)
        .annotations(!arguments.ignore_annotations);
    if let Some(bytes) = arguments.dump_budget {
        builder = builder.dump_budget(bytes);
    }
    for pattern in &arguments.include {
        builder = builder.include(pattern);
    }
    for pattern in &arguments.exclude {
        builder = builder.exclude(pattern);
    }
    if arguments.verify {
        super::verify::forget(&arguments.out);
    }
    let session = model.start(builder)?;
    let running = output::spinner(format!("running {}", model.class_name()));
    let (mut changed, mut one_by_one) = (false, false);
    let outcome = catch(|| {
        if !arguments.verify {
            return session.run(|| model.forward(&inputs)).map(drop);
        }
        let failed = RefCell::new(None);
        let verification = session.verify(|| match model.forward(&inputs) {
            Ok(outputs) => Some(outputs),
            Err(error) => {
                failed.borrow_mut().get_or_insert(error);
                None
            }
        });
        if let Some(error) = failed.into_inner() {
            return Err(error);
        }
        changed = !verification.changed_nothing() && !verification.differs_from_itself();
        one_by_one = verification.one_by_one == Some(true);
        Ok(())
    });
    running.finish_and_clear();
    let trace = session.finish()?;
    let filtered = !(arguments.include.is_empty() && arguments.exclude.is_empty());
    if trace.roots.is_empty() && filtered && outcome.is_ok() {
        return Err(format!(
            "no module matches --include and --exclude: a pattern must match a whole path, as in '*.layers.0.*' or '{}'",
            model.class_name()
        )
        .into());
    }

    let mut text = String::new();
    if !arguments.quiet {
        text += &tree::render(&trace, &arguments.tree);
        text.push('\n');
    }
    let beside_fusion = one_by_one.then(|| {
        let again = Again {
            checkpoint: &arguments.checkpoint,
            inputs: arguments.inputs.as_deref(),
            text: arguments.text.as_deref(),
            device: arguments.device,
            out: &arguments.out,
        };
        again.compare()
    });
    let mut notes = trace.notes.clone();
    if arguments.fusion {
        for note in &mut notes {
            if let Some(advice) = note.find(": call burnscope::install()") {
                note.replace_range(advice.., ": leave out --fusion to see each");
            }
        }
    }
    for note in notes.iter().chain(&beside_fusion) {
        text += &format!("{}\n", styled(FAINT, format!("note: {}", printable(note))));
    }
    if !model.ignored_keys().is_empty() && !arguments.quiet {
        let keys = model.ignored_keys().join(", ");
        text += &format!(
            "{}\n",
            styled(
                FAINT,
                format!("note: the model has no use for these weights: {keys}")
            )
        );
    }
    text += &format!(
        "The trace is in {}\n",
        styled(STRONG, printable(&arguments.out.display().to_string()))
    );
    output::print(&text)?;
    match outcome {
        Ok(result) => {
            result?;
            Ok(if changed {
                ExitCode::FAILURE
            } else {
                ExitCode::SUCCESS
            })
        }
        Err(message) => {
            let note = format!(
                "{} the forward pass panicked: {message}. What was seen until then is in the trace, marked incomplete.\n",
                styled(BAD, "error:")
            );
            output::print_error(&note);
            Ok(ExitCode::FAILURE)
        }
    }
}

fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let scale: u64 = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 1,
        "K" | "KB" => 1_000,
        "KIB" => 1 << 10,
        "M" | "MB" => 1_000_000,
        "MIB" => 1 << 20,
        "G" | "GB" => 1_000_000_000,
        "GIB" => 1 << 30,
        "T" | "TB" => 1_000_000_000_000,
        unit => {
            return Err(format!(
                "`{unit}` is no unit of bytes; use K, M, G, KiB, MiB or GiB"
            ));
        }
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| format!("`{digits}` is no whole number"))?;
    number
        .checked_mul(scale)
        .ok_or_else(|| "more bytes than can be counted".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_counts_take_the_usual_units() {
        assert_eq!(parse_bytes("12"), Ok(12));
        assert_eq!(parse_bytes("2G"), Ok(2_000_000_000));
        assert_eq!(parse_bytes("3MiB"), Ok(3 << 20));
        for wrong in ["", "G", "1.5G", "-1", "5 parsecs", "99999999999T"] {
            assert!(parse_bytes(wrong).is_err(), "{wrong}");
        }
    }
}
