//! An index of embeddings in the original script's files, and the search in it.
//!
//! It stores and compares vectors; where they come from is the business of [`super::embed`]. The files
//! are `embeddings.safetensors` (one float matrix `embeddings`), `code_index_map.json` (row number to
//! full name) and `code_index_tokens.json` (full name to sorted identifiers).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde_json::{Map, Value};

use super::naming::normalised;
use super::store::write_file;
use crate::bounded_file::{self, Refusal};

/// The file of vectors.
pub const EMBEDDINGS_FILE: &str = "embeddings.safetensors";
/// The file of names.
pub const MAP_FILE: &str = "code_index_map.json";
/// The file of identifiers.
pub const TOKENS_FILE: &str = "code_index_tokens.json";
/// All three.
pub const FILES: [&str; 3] = [EMBEDDINGS_FILE, MAP_FILE, TOKENS_FILE];
/// The name of the matrix.
const KEY: &str = "embeddings";
/// The largest of the files that is read, in bytes.
const MAX_FILE_BYTES: u64 = 8 << 30;

/// What is wrong with an index of embeddings.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DenseError {
    /// A file could not be read or written.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A file is not what it should be.
    #[error("{path}: {reason}", path = path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// Vectors of two sizes.
    #[error(
        "the index has vectors of {index} numbers, the model gives {model}; they are of different models"
    )]
    Dimensions {
        /// Numbers in a vector of the index.
        index: usize,
        /// Numbers in a vector of the model.
        model: usize,
    },
}

/// Vectors with names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DenseIndex {
    names: Vec<String>,
    dimensions: usize,
    /// `[names, dimensions]`, rows of length one.
    vectors: Vec<f32>,
    tokens: BTreeMap<String, Vec<String>>,
    /// How the vectors were made, where the file says it: `pooling`, `model`.
    notes: BTreeMap<String, String>,
}

impl DenseIndex {
    /// An index of vectors `[names, dimensions]`; their length is set to one.
    ///
    /// # Errors
    ///
    /// A number of values that is not the product of names and dimensions.
    pub fn new(
        names: Vec<String>,
        dimensions: usize,
        mut vectors: Vec<f32>,
    ) -> Result<Self, String> {
        if dimensions == 0 || names.len().checked_mul(dimensions) != Some(vectors.len()) {
            return Err(format!(
                "{} values are no {} vectors of {dimensions} numbers",
                vectors.len(),
                names.len()
            ));
        }
        vectors.par_chunks_mut(dimensions).for_each(normalise);
        Ok(Self {
            names,
            dimensions,
            vectors,
            tokens: BTreeMap::new(),
            notes: BTreeMap::new(),
        })
    }

    /// Adds the identifiers of each definition.
    pub fn with_tokens(self, tokens: BTreeMap<String, Vec<String>>) -> Self {
        Self { tokens, ..self }
    }

    /// Adds a note on how the vectors were made.
    pub fn with_note(mut self, key: &str, value: impl Into<String>) -> Self {
        self.notes.insert(key.to_owned(), value.into());
        self
    }

    /// How the vectors were made, if the file says it; the script's files do not.
    pub fn note(&self, key: &str) -> Option<&str> {
        self.notes.get(key).map(String::as_str)
    }

    /// The number of vectors.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The numbers in a vector.
    pub fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// The full names, by row.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The identifiers of each definition.
    pub fn tokens(&self) -> &BTreeMap<String, Vec<String>> {
        &self.tokens
    }

    /// The vector of a row.
    pub fn vector(&self, row: usize) -> &[f32] {
        &self.vectors[row * self.dimensions..(row + 1) * self.dimensions]
    }

    /// The cosine similarity of a vector with each row.
    ///
    /// # Errors
    ///
    /// A vector of another size.
    pub fn similarities(&self, query: &[f32]) -> Result<Vec<f32>, DenseError> {
        if query.len() != self.dimensions {
            return Err(DenseError::Dimensions {
                index: self.dimensions,
                model: query.len(),
            });
        }
        let mut query = query.to_vec();
        normalise(&mut query);
        let dot = |row: &[f32]| row.iter().zip(&query).map(|(a, b)| a * b).sum();
        Ok(self.vectors.par_chunks(self.dimensions).map(dot).collect())
    }

    /// The rows most similar to a vector, best first, without those of one model; equal ones in the
    /// order that `age` gives to their names.
    ///
    /// # Errors
    ///
    /// A vector of another size.
    pub fn nearest<K: Ord>(
        &self,
        query: &[f32],
        without_model: &str,
        top: usize,
        age: impl Fn(&str) -> K,
    ) -> Result<Vec<(&str, f32)>, DenseError> {
        let without_model = normalised(without_model);
        let similarities = self.similarities(query)?;
        let mut scored: Vec<(&str, f32)> = self
            .names
            .iter()
            .map(String::as_str)
            .zip(similarities)
            .filter(|(name, _)| normalised(model_of_name(name)) != without_model)
            .collect();
        let order = |a: &(&str, f32), b: &(&str, f32)| {
            b.1.total_cmp(&a.1)
                .then_with(|| age(a.0).cmp(&age(b.0)))
                .then_with(|| a.0.cmp(b.0))
        };
        if top < scored.len() {
            scored.select_nth_unstable_by(top, order);
            scored.truncate(top);
        }
        scored.sort_unstable_by(order);
        Ok(scored)
    }

    /// Reads the three files of a folder.
    ///
    /// # Errors
    ///
    /// A file that is absent, damaged, or that does not fit the others.
    pub fn read(folder: &Path) -> Result<Self, DenseError> {
        let map_path = folder.join(MAP_FILE);
        let content = |path: &Path, reason: String| DenseError::Content {
            path: path.to_path_buf(),
            reason,
        };
        let map: Map<String, Value> = read_json(&map_path)?;
        let mut names = vec![None; map.len()];
        for (row, name) in &map {
            let slot = row.parse::<usize>().ok().and_then(|row| names.get_mut(row));
            match (slot, name.as_str()) {
                (Some(slot), Some(name)) => *slot = Some(name.to_owned()),
                _ => {
                    return Err(content(
                        &map_path,
                        format!("the entry {row:?} is no row with a name"),
                    ));
                }
            }
        }
        let names: Option<Vec<String>> = names.into_iter().collect();
        let names = names.ok_or_else(|| content(&map_path, "some rows have no name".to_owned()))?;

        let path = folder.join(EMBEDDINGS_FILE);
        let bytes = read_bounded(&path)?;
        let wrong = |reason: String| content(&path, reason);
        let (_, header) = SafeTensors::read_metadata(&bytes).map_err(|e| wrong(e.to_string()))?;
        let file = SafeTensors::deserialize(&bytes).map_err(|e| wrong(e.to_string()))?;
        let tensor = file
            .tensor(KEY)
            .map_err(|_| wrong(format!("has no tensor `{KEY}`")))?;
        let &[rows, dimensions] = tensor.shape() else {
            return Err(wrong(format!(
                "`{KEY}` is no matrix but {:?}",
                tensor.shape()
            )));
        };
        if rows != names.len() {
            return Err(wrong(format!(
                "has {rows} rows, {MAP_FILE} has {} names",
                names.len()
            )));
        }
        let vectors = floats(&tensor)
            .ok_or_else(|| wrong(format!("`{KEY}` is {:?}, not floats", tensor.dtype())))?;
        if let Some(at) = vectors.iter().position(|value| !value.is_finite()) {
            return Err(wrong(format!(
                "row {} has a value that is no finite number",
                at / dimensions.max(1)
            )));
        }
        let tokens = read_json(&folder.join(TOKENS_FILE))?;
        let notes = header
            .metadata()
            .clone()
            .unwrap_or_default()
            .into_iter()
            .collect();
        let index = Self::new(names, dimensions, vectors).map_err(wrong)?;
        Ok(Self {
            notes,
            ..index.with_tokens(tokens)
        })
    }

    /// Writes the three files to a folder, each under another name first.
    ///
    /// # Errors
    ///
    /// A file that cannot be written.
    pub fn write(&self, folder: &Path) -> Result<(), DenseError> {
        let put = |name: &str, bytes: &[u8]| {
            let path = folder.join(name);
            write_file(&path, bytes).map_err(|source| DenseError::File { path, source })
        };
        let bytes: Vec<u8> = self
            .vectors
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        let invalid = |reason: String| DenseError::Content {
            path: folder.join(EMBEDDINGS_FILE),
            reason,
        };
        let view = TensorView::new(Dtype::F32, vec![self.len(), self.dimensions], &bytes)
            .map_err(|e| invalid(e.to_string()))?;
        let notes = (!self.notes.is_empty()).then(|| self.notes.clone().into_iter().collect());
        let file =
            safetensors::serialize([(KEY, view)], notes).map_err(|e| invalid(e.to_string()))?;
        put(EMBEDDINGS_FILE, &file)?;
        let map: Map<String, Value> = self
            .names
            .iter()
            .enumerate()
            .map(|(row, name)| (row.to_string(), Value::from(name.as_str())))
            .collect();
        put(MAP_FILE, Value::Object(map).to_string().as_bytes())?;
        let tokens = serde_json::to_vec(&self.tokens).map_err(|e| invalid(e.to_string()))?;
        put(TOKENS_FILE, &tokens)
    }
}

/// The model of a full name: its first folder, or its file.
fn model_of_name(name: &str) -> &str {
    let path = name.split(':').next().unwrap_or(name);
    path.split('/').next().unwrap_or(path)
}

fn normalise(vector: &mut [f32]) {
    let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
    if length > 0.0 {
        vector.iter_mut().for_each(|value| *value /= length);
    }
}

fn floats(tensor: &TensorView<'_>) -> Option<Vec<f32>> {
    let data = tensor.data();
    match tensor.dtype() {
        Dtype::F32 => Some(
            data.as_chunks()
                .0
                .iter()
                .map(|&bytes| f32::from_le_bytes(bytes))
                .collect(),
        ),
        Dtype::F16 => Some(
            data.as_chunks()
                .0
                .iter()
                .map(|&bytes| half::f16::from_le_bytes(bytes).to_f32())
                .collect(),
        ),
        Dtype::BF16 => Some(
            data.as_chunks()
                .0
                .iter()
                .map(|&bytes| half::bf16::from_le_bytes(bytes).to_f32())
                .collect(),
        ),
        _ => None,
    }
}

fn read_bounded(path: &Path) -> Result<Vec<u8>, DenseError> {
    bounded_file::read(path, MAX_FILE_BYTES).map_err(|refusal| {
        let path = path.to_path_buf();
        let reason = match refusal {
            Refusal::Io(source) => return DenseError::File { path, source },
            Refusal::NotAFile => "is not a regular file",
            Refusal::TooLarge { .. } => "is too large",
        }
        .to_owned();
        DenseError::Content { path, reason }
    })
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, DenseError> {
    serde_json::from_slice(&read_bounded(path)?).map_err(|e| DenseError::Content {
        path: path.to_path_buf(),
        reason: e.to_string(),
    })
}
