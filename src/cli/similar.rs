//! `burnscope similar`: which existing model code a modeling file repeats.

#[cfg(any(feature = "embed", feature = "hub"))]
mod embedding;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use burnscope::similar::{
    analysis::{Analysis, Options, QueryFile, Scored, analyse},
    compat,
    corpus::Refreshed,
    error::Error,
    index::Index,
    quality,
    report::{self, Style},
    source::Layout,
    store,
};

use super::{
    Outcome,
    output::{self, BAD, FAINT, GOOD, STRONG, styled},
};

/// Find which existing model code a new modeling file repeats
///
/// Compares every class and function of a modeling file with those of all models of a transformers
/// checkout (or of any folder of Python files), after replacing the models' own names. For each it
/// names the likely parents, says what differs from the best one, and for the file names the model
/// to inherit from and writes a modular file to start from. No neural model is needed; in a build with
/// the feature `embed`, --embed compares a BERT or Qwen3 checkpoint's embeddings as well.
///
/// The index is built when it is first needed, kept in the user's cache and brought up to date when
/// files change.
///
/// Exit codes: 0 all is well, 2 there is no answer, 3 there is one but some files could not be read.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  burnscope similar --modeling-file src/transformers/models/qwen3/modeling_qwen3.py
  burnscope similar --modeling-file qwen3 --repo ~/transformers --top 3
  burnscope similar --modeling-file my_model.py --repo ~/transformers --json
  burnscope similar --build --repo ~/transformers")]
pub struct SimilarArguments {
    /// The modeling file to ask about, or the name of a model of the repository
    #[arg(long, value_name = "FILE", alias = "modeling_file")]
    modeling_file: Option<String>,
    /// A transformers checkout, its models folder, or any folder of Python files
    #[arg(long, value_name = "DIR", default_value = ".")]
    repo: PathBuf,
    /// Build the index anew, even if there is one
    #[arg(long)]
    build: bool,
    /// How many answers for each definition
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    top: u16,
    /// Print one JSON object: `definitions`, `parent`, `skeleton`
    #[arg(long)]
    json: bool,
    /// Compare the methods of classes too
    #[arg(long)]
    methods: bool,
    /// Answer with models that came after the asked one, too
    #[arg(long)]
    any_date: bool,
    /// Of definitions that are identical after renaming, answer with the likeliest only
    #[arg(long)]
    one_per_group: bool,
    /// Compute `jaccard` as transformers' modular_model_detector.py does, faults included
    #[arg(long, conflicts_with = "methods")]
    compat: bool,
    /// Do not print the modular file to start from
    #[arg(long)]
    no_skeleton: bool,
    /// Keep the index in this file instead of the user's cache
    #[arg(long, value_name = "FILE")]
    index: Option<PathBuf>,
    /// Compare embeddings too: a sentence-transformers folder with a BERT or Qwen3 checkpoint
    ///
    /// With --build, the embeddings of the repository are computed and kept. First build, then ask:
    /// burnscope similar --build --embed MODEL_DIR,
    /// burnscope similar --modeling-file FILE --embed MODEL_DIR.
    #[cfg(feature = "embed")]
    #[arg(long, value_name = "MODEL_DIR")]
    embed: Option<PathBuf>,
    /// The folder of the embeddings' index: embeddings.safetensors, code_index_map.json,
    /// code_index_tokens.json. Without it: the working folder, the user's cache, the Hub
    #[cfg(any(feature = "embed", feature = "hub"))]
    #[arg(long, value_name = "DIR")]
    embed_index: Option<PathBuf>,
    /// Make one vector of many by `mean`, `last-token` or `cls`, not as the index or the checkpoint says
    #[cfg(feature = "embed")]
    #[arg(long, value_name = "NAME", requires = "embed")]
    pooling: Option<String>,
    /// Where the embeddings are computed
    #[cfg(feature = "embed")]
    #[arg(
        long,
        value_enum,
        default_value = "flex",
        value_name = "DEVICE",
        requires = "embed"
    )]
    device: super::device::DeviceName,
    /// The data set on the Hugging Face Hub that the embeddings' index is fetched from and sent to
    #[cfg(any(feature = "embed", feature = "hub"))]
    #[arg(long, value_name = "OWNER/NAME", default_value = burnscope::similar::hub::DEFAULT_DATASET)]
    hub_dataset: String,
    /// Send the embeddings' index to the Hub
    #[cfg(any(feature = "embed", feature = "hub"))]
    #[arg(long)]
    push_new_index: bool,
    /// Measure how often known parents are found: a JSON list of [child, parent, adds nothing]
    #[arg(long, value_name = "PAIRS", conflicts_with_all = ["modeling_file", "json"])]
    quality: Option<PathBuf>,
    /// With --quality, write what speaks for each candidate, for fitting the weights
    #[arg(
        long,
        value_name = "FILE",
        requires = "quality",
        hide_short_help = true
    )]
    features: Option<PathBuf>,
}

/// Builds or loads the index and answers.
pub fn run(arguments: &SimilarArguments) -> Outcome {
    let asks = arguments.modeling_file.is_some() || arguments.quality.is_some();
    #[cfg(any(feature = "embed", feature = "hub"))]
    let asks = asks || arguments.push_new_index;
    if !asks && !arguments.build {
        return Err(
            "give a file with --modeling-file, or --build the index; --help shows examples".into(),
        );
    }
    let index = open_index(arguments)?;
    #[cfg(feature = "embed")]
    if let (true, Some(model)) = (arguments.build, &arguments.embed) {
        embedding::build(arguments, &index, model)?;
    }
    #[cfg(any(feature = "embed", feature = "hub"))]
    if arguments.push_new_index {
        embedding::push(arguments, &index)?;
    }
    if let Some(pairs) = &arguments.quality {
        measure(arguments, &index, pairs)?;
    }
    if let Some(given) = &arguments.modeling_file {
        answer(arguments, &index, given)?;
    }
    Ok(match output::faults(index.corpus().faults()) {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::from(output::INCOMPLETE),
    })
}

/// The index: from its file where that is current, else read from the sources and kept.
fn open_index(arguments: &SimilarArguments) -> Result<Index, Box<dyn std::error::Error>> {
    if !arguments.repo.is_dir() {
        return Err(format!(
            "{}: no such folder; give one with --repo",
            arguments.repo.display()
        )
        .into());
    }
    let layout = Layout::of(&arguments.repo);
    let methods = arguments.methods;
    let path = arguments
        .index
        .clone()
        .or_else(|| store::default_path(&layout, methods));
    let bar = output::counter("reading model code, files:");
    let done = || bar.inc(1);
    let kept = path
        .as_deref()
        .filter(|path| !arguments.build && path.is_file());
    let loaded = kept.and_then(
        |path| match store::load(path, layout.clone(), methods, &done) {
            Ok(loaded) => Some(loaded),
            Err(error) => {
                output::note(&format!("{error}; reading the sources instead"));
                None
            }
        },
    );
    let (index, refreshed) = match loaded {
        Some(loaded) => loaded,
        None => {
            let index = Index::build(&arguments.repo, methods, &done);
            let read = index.corpus().code.len();
            (
                index,
                Refreshed {
                    read,
                    ..Refreshed::default()
                },
            )
        }
    };
    bar.finish_and_clear();
    if index.is_empty() {
        output::faults(index.corpus().faults());
        return Err(Error::Empty(arguments.repo.clone()).into());
    }
    if let Some(path) = path.filter(|_| refreshed.changed() || arguments.build) {
        match store::save(&index, &path) {
            Ok(()) if arguments.build => output::note(&format!(
                "{} definitions of {} files, index in {}",
                index.len(),
                index.corpus().code.len(),
                path.display()
            )),
            Ok(()) => {}
            // The user asked for this file; the cache is only a convenience.
            Err(error) if arguments.index.is_some() || arguments.build => return Err(error.into()),
            Err(error) => output::note(&format!("the index was not kept: {error}")),
        }
    }
    Ok(index)
}

fn answer(
    arguments: &SimilarArguments,
    index: &Index,
    given: &str,
) -> Result<(), Box<dyn std::error::Error>> {
    let query = QueryFile::open(given, &arguments.repo, index.layout(), arguments.methods)?;
    let options = Options {
        top: usize::from(arguments.top),
        only_older: !arguments.any_date,
        one_per_group: arguments.one_per_group,
    };
    let mut analysis = analyse(index, &query, options);
    if arguments.compat {
        script_jaccard(index, &query, options.top, &mut analysis)?;
    }
    #[cfg(feature = "embed")]
    if let Some(model) = &arguments.embed {
        embedding::answer(arguments, index, &query, model, &mut analysis)?;
    }
    let text = if arguments.json {
        format!("{:#}\n", report::to_json(&analysis))
    } else {
        report::lines(&analysis, !arguments.no_skeleton)
            .into_iter()
            .map(|(style, line)| match style {
                Style::Heading => format!("{}\n", styled(STRONG, line)),
                Style::Label => format!("{}\n", styled(FAINT, line)),
                Style::Best | Style::Added => format!("{}\n", styled(GOOD, line)),
                Style::Removed => format!("{}\n", styled(BAD, line)),
                Style::Plain => format!("{line}\n"),
            })
            .collect()
    };
    Ok(output::print(&text)?)
}

/// Replaces the Jaccard lists by the original script's.
fn script_jaccard(
    index: &Index,
    query: &QueryFile,
    top: usize,
    analysis: &mut Analysis,
) -> Result<(), Box<dyn std::error::Error>> {
    let bar = output::counter("reading as the script does, files:");
    let (files, faults) = compat::read_all(index.layout(), &|| bar.inc(1));
    bar.finish_and_clear();
    output::faults(faults.iter().filter(|fault| {
        !index
            .corpus()
            .faults()
            .any(|known| known.path == fault.path)
    }));
    let model = compat::query_model(&query.path, index.layout());
    let answers = compat::jaccard(&query.path, &model, &files, top).map_err(Error::Query)?;
    for finding in &mut analysis.findings {
        let scored = answers
            .iter()
            .find(|(name, _)| *name == finding.name)
            .map(|(_, scored)| scored.as_slice());
        finding.jaccard = scored
            .unwrap_or_default()
            .iter()
            .map(|(name, score)| Scored {
                name: name.clone(),
                score: *score,
            })
            .collect();
    }
    Ok(())
}

fn measure(
    arguments: &SimilarArguments,
    index: &Index,
    path: &Path,
) -> Result<(), Box<dyn std::error::Error>> {
    let pairs = quality::read_pairs(path)?;
    let bar = output::counter("ranking the children of known parents, files:");
    let (table, examples) = quality::measure(index, &pairs, arguments.compat, &|| bar.inc(1));
    bar.finish_and_clear();
    if let Some(path) = &arguments.features {
        quality::write_examples(path, &examples)?;
    }
    Ok(output::print(&table.to_string())?)
}
