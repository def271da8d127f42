//! `burnscope similar` with embeddings: where their index comes from, building, asking and sending it.

use std::path::PathBuf;

use burnscope::similar::{hub, index::Index, store};

use super::SimilarArguments;
use crate::cli::{device::Operations, output};

/// A word on why an index of embeddings cannot be had, in one line.
type AnyError = Box<dyn std::error::Error>;

/// The folder in which an index is built if no other is asked for: beside the index of terms.
fn default_folder(index: &Index) -> Option<PathBuf> {
    store::default_path(index.layout(), false).map(|path| path.with_extension("embeddings"))
}

/// The folder to build in or to send from.
fn own_folder(arguments: &SimilarArguments, index: &Index) -> Result<PathBuf, AnyError> {
    let folder = arguments
        .embed_index
        .clone()
        .or_else(|| default_folder(index));
    folder.ok_or_else(|| {
        "there is no folder for the user's caches; name one with --embed-index".into()
    })
}

/// Sends the index to the Hub.
pub(super) fn push(arguments: &SimilarArguments, index: &Index) -> Result<(), AnyError> {
    let folder = own_folder(arguments, index)?;
    if !hub::has_all(&folder) {
        return Err(format!(
            "{} has no index of embeddings to send; build one with --build --embed MODEL_DIR",
            folder.display()
        )
        .into());
    }
    hub::push(&arguments.hub_dataset, &folder)?;
    output::note(&format!("sent to {}", arguments.hub_dataset));
    Ok(())
}

#[cfg(feature = "embed")]
pub(super) use with_models::{answer, build};

#[cfg(feature = "embed")]
mod with_models {
    use std::{collections::BTreeMap, path::Path};

    use burnscope::similar::{
        analysis::{Analysis, QueryFile, Scored},
        compat,
        definitions::Kind,
        dense::DenseIndex,
        embed::{
            self, Embedder, Embeddings,
            model::{ModelEmbedder, pooling_of_name},
        },
        naming::normalised,
    };

    use super::*;

    /// Embeds the repository and keeps the index.
    pub fn build(
        arguments: &SimilarArguments,
        index: &Index,
        model: &Path,
    ) -> Result<(), AnyError> {
        let embedder = load(arguments, model, None)?;
        let bar = output::bar("embedding definitions");
        let built = embed::build(index.layout(), &embedder, &|through, total| {
            bar.set_length(total as u64);
            bar.set_position(through as u64);
        });
        bar.finish_and_clear();
        let (dense, embeddings, faults) = built?;
        let known: Vec<&str> = index
            .corpus()
            .faults()
            .map(|fault| fault.path.as_str())
            .collect();
        output::faults(
            faults
                .iter()
                .filter(|fault| !known.contains(&fault.path.as_str())),
        );
        let folder = own_folder(arguments, index)?;
        dense.write(&folder)?;
        output::note(&format!(
            "{} vectors of {} numbers in {}{}",
            dense.len(),
            dense.dimensions(),
            folder.display(),
            lengths(&embeddings, &embedder)
        ));
        Ok(())
    }

    /// Adds the most similar by embeddings to an answer.
    pub fn answer(
        arguments: &SimilarArguments,
        index: &Index,
        query: &QueryFile,
        model: &Path,
        analysis: &mut Analysis,
    ) -> Result<(), AnyError> {
        let folder = find(arguments, index)?;
        let dense = DenseIndex::read(&folder)?;
        let missing = (0..index.len() as u32)
            .filter(|&entry| index.definition(entry).kind != Kind::Method)
            .map(|entry| index.name(entry))
            .filter(|name| !dense.tokens().contains_key(name))
            .count();
        if missing > 0 {
            output::note(&format!(
                "{missing} definitions have no vector in {}; --build --embed adds them",
                folder.display()
            ));
        }
        let embedder = load(arguments, model, Some(&dense))?;
        let source = query.source.replace("\r\n", "\n").replace('\r', "\n");
        let texts: BTreeMap<String, String> =
            compat::script_definitions(&source, &query.code.model)
                .map_err(|fault| fault.at(query.file_name()).to_string())?
                .into_iter()
                .map(|definition| (definition.name, definition.sanitized))
                .collect();
        let inputs: Vec<&str> = texts.values().map(String::as_str).collect();
        let bar = output::bar("embedding the file's definitions");
        bar.set_length(inputs.len() as u64);
        let embedded = embedder.embed(&inputs, &|through| bar.set_position(through as u64));
        bar.finish_and_clear();
        let embeddings = embedded?;
        if embeddings.divided > 0 {
            output::note(lengths(&embeddings, &embedder).trim_start_matches(", "));
        }
        let vectors: BTreeMap<&str, &[f32]> = texts
            .keys()
            .map(String::as_str)
            .zip(embeddings.vectors.chunks_exact(embedder.dimensions()))
            .collect();
        let top = usize::from(arguments.top);
        let age = |name: &str| {
            let day = index
                .dates_of(name.split('/').next().unwrap_or_default())
                .available();
            (day.is_none(), day)
        };
        for finding in &mut analysis.findings {
            let nearest = match vectors.get(finding.name.as_str()) {
                Some(vector) => dense.nearest(vector, &normalised(&query.code.model), top, age)?,
                None => Vec::new(),
            };
            let scored = |(name, score): (&str, f32)| Scored {
                name: name.to_owned(),
                score: f64::from(score),
            };
            finding.embedding = Some(nearest.into_iter().map(scored).collect());
        }
        Ok(())
    }

    /// How many texts did not fit into a window, if any.
    fn lengths(embeddings: &Embeddings, embedder: &ModelEmbedder) -> String {
        match (embeddings.divided, embeddings.truncated) {
            (0, 0) => String::new(),
            (divided, truncated) => format!(
                ", {divided} definitions longer than {} tokens were divided, {truncated} of them with a statement that was cut off",
                embedder.most_tokens()
            ),
        }
    }

    /// Loads the model, with the pooling that was asked for, that of the index, or its own.
    fn load(
        arguments: &SimilarArguments,
        model: &Path,
        dense: Option<&DenseIndex>,
    ) -> Result<ModelEmbedder, AnyError> {
        // The script writes no note; it always takes the mean.
        let of_index = dense.map(|dense| dense.note("pooling").unwrap_or("mean"));
        let pooling =
            match arguments.pooling.as_deref().or(of_index) {
                Some(name) => Some(pooling_of_name(name).ok_or_else(|| {
                    format!("{name:?} is no pooling; mean, last-token and cls are")
                })?),
                None => None,
            };
        let device = arguments.device.open(Operations::Fused)?;
        let spinner = output::spinner("loading the model");
        let loaded = ModelEmbedder::load(model, &device, pooling);
        spinner.finish_and_clear();
        Ok(loaded?)
    }

    /// An index of embeddings: the one that is named, in the working folder, in the user's cache, on the Hub.
    fn find(arguments: &SimilarArguments, index: &Index) -> Result<PathBuf, AnyError> {
        if let Some(folder) = &arguments.embed_index {
            return match hub::has_all(folder) {
                true => Ok(folder.clone()),
                false => Err(format!(
                    "{} has no index of embeddings; --build --embed makes one",
                    folder.display()
                )
                .into()),
            };
        }
        let here = PathBuf::from(".");
        let local = [Some(here), default_folder(index)]
            .into_iter()
            .flatten()
            .find(|folder| hub::has_all(folder));
        if let Some(folder) = local {
            return Ok(folder);
        }
        let spinner = output::spinner(format!("fetching {}", arguments.hub_dataset));
        let fetched = hub::fetch(&arguments.hub_dataset);
        spinner.finish_and_clear();
        fetched.map_err(|error| {
            format!("there is no index of embeddings (--build --embed makes one), and {error}")
                .into()
        })
    }
}
