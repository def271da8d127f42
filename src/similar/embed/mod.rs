//! Vectors for definitions: what makes them, how long texts are divided, and an index from them.
//!
//! [`Embedder`] is the seam: [`model`] implements it with the built-in models, a test or another program
//! may bring its own.

use std::collections::BTreeMap;

use super::compat::{self, ScriptFile};
use super::dense::{DenseError, DenseIndex};
use super::source::{Fault, Layout};

#[cfg(feature = "embed")]
pub mod model;
pub mod windows;

/// Makes a vector of a text.
pub trait Embedder {
    /// The numbers in a vector.
    fn dimensions(&self) -> usize;

    /// How it makes one vector of many: the note that an index keeps on it.
    fn pooling(&self) -> &str;

    /// One vector for each text; `done` is told how many texts are through.
    ///
    /// # Errors
    ///
    /// Whatever keeps the embedder from its work, in one line.
    fn embed(&self, texts: &[&str], done: &dyn Fn(usize)) -> Result<Embeddings, EmbedError>;
}

/// Vectors, and what was lost on the way.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Embeddings {
    /// `[texts, dimensions]`, one after the other.
    pub vectors: Vec<f32>,
    /// Texts that were divided into windows.
    pub divided: usize,
    /// Texts with a statement longer than a window, whose end was cut off.
    pub truncated: usize,
}

/// Why there are no vectors.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmbedError {
    /// The model could not be loaded.
    #[error("{path}: {reason}", path = path.display())]
    Load {
        /// The model's folder or a file of it.
        path: std::path::PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The model could not be run.
    #[error("the model cannot embed this: {0}")]
    Run(String),
    /// The index does not fit.
    #[error(transparent)]
    Index(#[from] DenseError),
}

/// Embeds every definition of a repository, under the names and with the texts of the original script.
///
/// `done` is told how many definitions are through, and of how many.
///
/// # Errors
///
/// When the embedder fails.
pub fn build(
    layout: &Layout,
    embedder: &dyn Embedder,
    done: &dyn Fn(usize, usize),
) -> Result<(DenseIndex, Embeddings, Vec<Fault>), EmbedError> {
    let (mut files, faults) = compat::read_all(layout, &|| ());
    files.sort_by(|a, b| a.path.cmp(&b.path));
    let definitions: Vec<(String, &compat::ScriptDefinition)> =
        files.iter().flat_map(named).collect();
    let texts: Vec<&str> = definitions
        .iter()
        .map(|(_, definition)| definition.sanitized.as_str())
        .collect();
    let mut embeddings = embedder.embed(&texts, &|through| done(through, texts.len()))?;
    let tokens: BTreeMap<String, Vec<String>> = definitions
        .iter()
        .map(|(name, definition)| {
            let mut tokens: Vec<String> = definition.tokens.iter().cloned().collect();
            tokens.sort_unstable();
            (name.clone(), tokens)
        })
        .collect();
    let names = definitions.into_iter().map(|(name, _)| name).collect();
    let vectors = std::mem::take(&mut embeddings.vectors);
    let index = DenseIndex::new(names, embedder.dimensions(), vectors).map_err(EmbedError::Run)?;
    Ok((
        index
            .with_tokens(tokens)
            .with_note("pooling", embedder.pooling()),
        embeddings,
        faults,
    ))
}

fn named(file: &ScriptFile) -> impl Iterator<Item = (String, &compat::ScriptDefinition)> {
    file.definitions
        .iter()
        .map(|definition| (format!("{}:{}", file.path, definition.name), definition))
}
