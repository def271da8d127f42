//! How often the right parent is found, measured on known pairs of child and parent.
//!
//! It judges a ranking; it does not fit one.

use std::fmt;
use std::path::Path;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::compat;
use super::error::Error;
use super::index::{EntryId, Index};
use super::rank::{Features, Query};
use super::store::write_file;
use crate::bounded_file::{self, Refusal};

/// A child, its parent, and whether the child adds nothing: one element of the pairs' JSON list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair(pub String, pub String, pub bool);

impl Pair {
    /// Whether the pair was kept aside when the weights were fitted: those of a quarter of the child
    /// models, chosen by the digest of the model's name.
    pub fn kept_aside(&self) -> bool {
        let model = self.0.split('/').next().unwrap_or_default();
        xxh3_64(model.as_bytes()).is_multiple_of(4)
    }
}

/// The largest file of pairs that is read, in bytes.
const MAX_PAIRS_BYTES: u64 = 64 << 20;

/// Reads a JSON list of pairs.
///
/// # Errors
///
/// A file that cannot be read, has more than 64 MiB or is no such list.
pub fn read_pairs(path: &Path) -> Result<Vec<Pair>, Error> {
    let wrong = |reason: String| Error::Pairs {
        path: path.to_path_buf(),
        reason,
    };
    let bytes = bounded_file::read(path, MAX_PAIRS_BYTES).map_err(|refusal| match refusal {
        Refusal::Io(source) => Error::File {
            path: path.to_path_buf(),
            source,
        },
        Refusal::NotAFile => wrong("it is not a regular file".to_owned()),
        Refusal::TooLarge { .. } => wrong("it is too large".to_owned()),
    })?;
    serde_json::from_slice(&bytes).map_err(|e| wrong(e.to_string()))
}

/// Writes what speaks for each candidate, as JSON.
///
/// # Errors
///
/// A file that cannot be written.
pub fn write_examples(path: &Path, examples: &[Example]) -> Result<(), Error> {
    let file_error = |source| Error::File {
        path: path.to_path_buf(),
        source,
    };
    let text = serde_json::to_vec(examples).map_err(|e| file_error(e.into()))?;
    write_file(path, &text).map_err(file_error)
}

/// The share of pairs answered right.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shares {
    /// The parent is the first answer.
    pub exact_at_1: f64,
    /// The parent is among the first five.
    pub exact_at_5: f64,
    /// The first answer is the parent or identical to it after renaming.
    pub clone_at_1: f64,
    /// One of the first five is.
    pub clone_at_5: f64,
    /// The number of pairs.
    pub pairs: usize,
}

/// One line of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The method and the part of the pairs.
    pub name: String,
    /// Its shares.
    pub shares: Shares,
}

/// The table, and the pairs whose names are not in the index.
#[derive(Clone, Debug, Default)]
pub struct Quality {
    /// One line for every method and part.
    pub rows: Vec<Row>,
    /// Pairs left out.
    pub unknown: usize,
}

/// The candidates of one pair with what speaks for each, for fitting.
#[derive(Clone, Debug, Serialize)]
pub struct Example {
    /// The child's full name.
    pub child: String,
    /// The true parent's full name.
    pub parent: String,
    /// See [`Pair::kept_aside`].
    pub kept_aside: bool,
    /// The candidates' full names.
    pub candidates: Vec<String>,
    /// Whether each candidate is identical to the true parent after renaming.
    pub clones: Vec<bool>,
    /// The candidates' features.
    pub features: Vec<Features>,
}

/// Ranks the children of all pairs and counts the right answers.
///
/// With `script`, the original script's Jaccard similarity is measured as well.
pub fn measure(
    index: &Index,
    pairs: &[Pair],
    script: bool,
    done: &(dyn Fn() + Sync),
) -> (Quality, Vec<Example>) {
    let known: Vec<(&Pair, EntryId, EntryId)> = pairs
        .iter()
        .filter_map(|pair| Some((pair, index.find(&pair.0)?, index.find(&pair.1)?)))
        .collect();
    let mut files: Vec<u32> = known
        .iter()
        .map(|&(_, child, _)| index.file_number(child))
        .collect();
    files.sort_unstable();
    files.dedup();
    let (script_files, _) = if script {
        compat::read_all(index.layout(), &|| ())
    } else {
        Default::default()
    };

    type Answers = Vec<(usize, &'static str, Vec<EntryId>)>;
    let per_file: Vec<(Answers, Vec<Example>)> = files
        .par_iter()
        .map(|&number| {
            let file = &index.file_with_terms(number);
            let rankings = Query::new(index, file, true).rank(5);
            let by_script = if script {
                compat::jaccard(
                    &index.layout().root.join(&file.path),
                    &file.model,
                    &script_files,
                    5,
                )
                .unwrap_or_default()
            } else {
                Vec::new()
            };
            let mut answers: Answers = Vec::new();
            let mut examples = Vec::new();
            for (at, &(pair, child, parent)) in known.iter().enumerate() {
                if index.file_number(child) != number {
                    continue;
                }
                let definition = index.definition(child);
                let Some(place) = file
                    .definitions
                    .iter()
                    .position(|d| d.name == definition.name)
                else {
                    continue;
                };
                let ranking = &rankings[place];
                answers.push((
                    at,
                    METHODS[3],
                    ranking.best.iter().map(|c| c.entry).collect(),
                ));
                answers.push((
                    at,
                    METHODS[4],
                    one_per_group(index, ranking.best.iter().map(|c| c.entry)),
                ));
                answers.push((
                    at,
                    METHODS[2],
                    ranking.jaccard.iter().map(|&(entry, _)| entry).collect(),
                ));
                let mut by_similarity: Vec<_> = ranking.best.clone();
                by_similarity.sort_by(|a, b| {
                    let ages = || index.age_key(a.entry).cmp(&index.age_key(b.entry));
                    b.features[0].total_cmp(&a.features[0]).then_with(ages)
                });
                answers.push((
                    at,
                    METHODS[1],
                    by_similarity.iter().map(|c| c.entry).collect(),
                ));
                if let Some((_, scored)) =
                    by_script.iter().find(|(name, _)| *name == definition.name)
                {
                    let found = scored
                        .iter()
                        .filter_map(|(name, _)| index.find(name))
                        .collect();
                    answers.push((at, METHODS[0], found));
                }
                examples.push(Example {
                    child: pair.0.clone(),
                    parent: pair.1.clone(),
                    kept_aside: pair.kept_aside(),
                    candidates: ranking.best.iter().map(|c| index.name(c.entry)).collect(),
                    clones: ranking
                        .best
                        .iter()
                        .map(|c| index.exact(c.entry) == index.exact(parent))
                        .collect(),
                    features: ranking.best.iter().map(|c| c.features).collect(),
                });
            }
            done();
            (answers, examples)
        })
        .collect();

    let mut quality = Quality {
        rows: Vec::new(),
        unknown: pairs.len() - known.len(),
    };
    let (answers, examples): (Vec<Answers>, Vec<Vec<Example>>) = per_file.into_iter().unzip();
    let answers: Answers = answers.into_iter().flatten().collect();
    for (part, keep) in [
        ("all", None),
        ("fitted on", Some(false)),
        ("kept aside", Some(true)),
    ] {
        for method in METHODS {
            let mut shares = Shares::default();
            for (at, _, found) in answers.iter().filter(|(_, name, _)| *name == method) {
                let (pair, _, parent) = known[*at];
                if keep.is_none_or(|aside| pair.kept_aside() == aside) {
                    shares.count(index, found, parent);
                }
            }
            if shares.pairs > 0 {
                quality.rows.push(Row {
                    name: format!("{method}, {part}"),
                    shares: shares.normalised(),
                });
            }
        }
    }
    (quality, examples.into_iter().flatten().collect())
}

/// The methods of the table, from the script's to the default and its variant.
const METHODS: [&str; 5] = [
    "the script's Jaccard",
    "TF-IDF cosine alone",
    "Jaccard after renaming",
    "default",
    "default, one per clone group",
];

/// Keeps the first of every group of identical definitions.
pub fn one_per_group(index: &Index, entries: impl Iterator<Item = EntryId>) -> Vec<EntryId> {
    let mut seen = rustc_hash::FxHashSet::default();
    entries
        .filter(|&entry| seen.insert(index.exact(entry)))
        .collect()
}

impl Shares {
    fn count(&mut self, index: &Index, found: &[EntryId], parent: EntryId) {
        let same = |entry: &EntryId| *entry == parent;
        let clone = |entry: &EntryId| index.exact(*entry) == index.exact(parent);
        let first = found.first();
        let five = &found[..found.len().min(5)];
        self.pairs += 1;
        self.exact_at_1 += f64::from(u8::from(first.is_some_and(same)));
        self.exact_at_5 += f64::from(u8::from(five.iter().any(same)));
        self.clone_at_1 += f64::from(u8::from(first.is_some_and(clone)));
        self.clone_at_5 += f64::from(u8::from(five.iter().any(clone)));
    }

    fn normalised(self) -> Self {
        let pairs = self.pairs as f64;
        Self {
            exact_at_1: self.exact_at_1 / pairs,
            exact_at_5: self.exact_at_5 / pairs,
            clone_at_1: self.clone_at_1 / pairs,
            clone_at_5: self.clone_at_5 / pairs,
            pairs: self.pairs,
        }
    }
}

impl fmt::Display for Quality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self
            .rows
            .iter()
            .map(|row| row.name.len())
            .max()
            .unwrap_or(0)
            .max(6);
        writeln!(
            f,
            "{:width$}  pairs  exact@1  exact@5  clone@1  clone@5",
            "method"
        )?;
        for Row { name, shares } in &self.rows {
            writeln!(
                f,
                "{name:width$}  {:5}  {:7.3}  {:7.3}  {:7.3}  {:7.3}",
                shares.pairs,
                shares.exact_at_1,
                shares.exact_at_5,
                shares.clone_at_1,
                shares.clone_at_5
            )?;
        }
        if self.unknown > 0 {
            writeln!(
                f,
                "{} pairs were left out: a name is not in the index",
                self.unknown
            )?;
        }
        Ok(())
    }
}
