//! A model's inputs, read from a safetensors file and checked against what the model can take
//! before anything runs.

use std::path::{Path, PathBuf};

use burn::tensor::{Device, Int, Tensor, TensorData};
use safetensors::{Dtype, SafeTensors};
use thiserror::Error;

use super::architecture::{InputLimits, InputTensors};
use super::config::shorten;
use super::files::{FileError, read_bounded};
use super::layers::index_dtype;

/// The largest file of inputs that is read, in bytes.
const MAX_INPUT_BYTES: u64 = 256 << 20;

/// The inputs that have a name, the required one first.
const NAMES: [&str; 4] = [
    "input_ids",
    "attention_mask",
    "token_type_ids",
    "position_ids",
];

/// What is wrong with a model's inputs.
#[derive(Debug, Error)]
pub enum InputError {
    /// The file could not be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file is not a safetensors file.
    #[error("{path} is not a safetensors file: {reason}")]
    Format {
        /// The file.
        path: PathBuf,
        /// What the parser said.
        reason: String,
    },
    /// There is no `input_ids`.
    #[error("the inputs have no `input_ids`")]
    NoInputIds,
    /// There is a tensor no model takes.
    #[error("the inputs hold `{name}`; the inputs taken are {}", NAMES.join(", "))]
    Unknown {
        /// Its name, escaped.
        name: String,
    },
    /// A tensor has another dtype than int64.
    #[error("`{name}` is {found}; it must be int64 (safetensors I64)")]
    Dtype {
        /// The tensor.
        name: &'static str,
        /// Its dtype.
        found: String,
    },
    /// A tensor has another rank than 2.
    #[error("`{name}` has shape {shape:?}; it must be [batch, sequence]")]
    Rank {
        /// The tensor.
        name: &'static str,
        /// Its shape.
        shape: Vec<usize>,
    },
    /// There is no token.
    #[error("`input_ids` has shape {shape:?}; there is nothing to run")]
    Empty {
        /// Its shape.
        shape: [usize; 2],
    },
    /// A tensor does not fit `input_ids`.
    #[error("`{name}` has shape {found:?}, but `input_ids` has shape {expected:?}")]
    Shape {
        /// The tensor.
        name: &'static str,
        /// Its shape.
        found: [usize; 2],
        /// The shape of `input_ids`.
        expected: [usize; 2],
    },
    /// An element is out of range.
    #[error("`{name}` holds {value} at [{row}, {column}]; it must be from 0 to {max}")]
    Range {
        /// The tensor.
        name: &'static str,
        /// The element.
        value: i64,
        /// Its row.
        row: usize,
        /// Its column.
        column: usize,
        /// The largest element allowed.
        max: usize,
    },
    /// The sequence is longer than the model's positions.
    #[error("the sequence has {length} tokens; the model has {max} positions")]
    TooLong {
        /// Its length.
        length: usize,
        /// The longest length allowed.
        max: usize,
    },
    /// The model has no use for a tensor.
    #[error("{class} takes no `{name}`")]
    NotTaken {
        /// The model's class.
        class: &'static str,
        /// The tensor.
        name: &'static str,
    },
}

/// Integers in rows and columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IntMatrix {
    shape: [usize; 2],
    values: Vec<i64>,
}

impl IntMatrix {
    /// A matrix from its rows; `None` where they differ in length.
    pub fn from_rows(rows: &[Vec<i64>]) -> Option<Self> {
        let columns = rows.first().map_or(0, Vec::len);
        rows.iter().all(|row| row.len() == columns).then(|| Self {
            shape: [rows.len(), columns],
            values: rows.concat(),
        })
    }

    /// The number of rows and of columns.
    pub fn shape(&self) -> [usize; 2] {
        self.shape
    }

    /// The elements, row by row.
    pub fn values(&self) -> &[i64] {
        &self.values
    }

    fn read(file: &SafeTensors<'_>, name: &'static str) -> Result<Option<Self>, InputError> {
        let Ok(view) = file.tensor(name) else {
            return Ok(None);
        };
        if view.dtype() != Dtype::I64 {
            return Err(InputError::Dtype {
                name,
                found: format!("{:?}", view.dtype()),
            });
        }
        let Ok(shape) = <[usize; 2]>::try_from(view.shape()) else {
            return Err(InputError::Rank {
                name,
                shape: view.shape().to_vec(),
            });
        };
        let (values, _) = view.data().as_chunks::<8>();
        let values = values.iter().map(|bytes| i64::from_le_bytes(*bytes));
        Ok(Some(Self {
            shape,
            values: values.collect(),
        }))
    }

    /// Fails on the first element that is not from 0 to `max`.
    fn check_range(&self, name: &'static str, max: usize) -> Result<(), InputError> {
        let outside = |value: &i64| usize::try_from(*value).map_or(true, |value| value > max);
        match self.values.iter().position(outside) {
            None => Ok(()),
            Some(index) => Err(InputError::Range {
                name,
                value: self.values[index],
                row: index / self.shape[1],
                column: index % self.shape[1],
                max,
            }),
        }
    }

    fn to_tensor(&self, device: &Device) -> Tensor<2, Int> {
        let data = TensorData::new(self.values.clone(), self.shape);
        Tensor::from_data(data, (device, index_dtype(device)))
    }
}

/// What a model is run on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelInputs {
    /// The tokens, `[batch, sequence]`.
    pub input_ids: IntMatrix,
    /// 1 at real tokens, 0 at padding; the shape of `input_ids`.
    pub attention_mask: Option<IntMatrix>,
    /// The segments; the shape of `input_ids`.
    pub token_type_ids: Option<IntMatrix>,
    /// The positions; the shape of `input_ids`, or one row for all.
    pub position_ids: Option<IntMatrix>,
}

impl ModelInputs {
    /// Inputs of nothing but tokens.
    pub fn new(input_ids: IntMatrix) -> Self {
        Self {
            input_ids,
            attention_mask: None,
            token_type_ids: None,
            position_ids: None,
        }
    }

    /// Reads a safetensors file whose keys are the names of the inputs.
    ///
    /// # Errors
    /// When the file cannot be read, holds anything that is not an input, or holds an input that
    /// is not an int64 matrix.
    pub fn read(path: &Path) -> Result<Self, InputError> {
        let bytes = read_bounded(path, MAX_INPUT_BYTES)?;
        let file = SafeTensors::deserialize(&bytes).map_err(|error| InputError::Format {
            path: path.to_owned(),
            reason: error.to_string(),
        })?;
        let mut names = file.names();
        names.sort_unstable();
        if let Some(name) = names.iter().find(|name| !NAMES.contains(name)) {
            return Err(InputError::Unknown {
                name: shorten(name),
            });
        }
        let [input_ids, attention_mask, token_type_ids, position_ids] =
            NAMES.map(|name| IntMatrix::read(&file, name));
        Ok(Self {
            input_ids: input_ids?.ok_or(InputError::NoInputIds)?,
            attention_mask: attention_mask?,
            token_type_ids: token_type_ids?,
            position_ids: position_ids?,
        })
    }

    /// Checks shapes and ranges against what a model can take.
    ///
    /// # Errors
    /// On the first thing that does not fit.
    pub fn check(&self, class: &'static str, limits: &InputLimits) -> Result<(), InputError> {
        let shape @ [batch, length] = self.input_ids.shape;
        if batch == 0 || length == 0 {
            return Err(InputError::Empty { shape });
        }
        if length > limits.max_positions {
            return Err(InputError::TooLong {
                length,
                max: limits.max_positions,
            });
        }
        self.input_ids
            .check_range(NAMES[0], limits.vocab_size - 1)?;
        let same_shape = |name, matrix: &IntMatrix| match matrix.shape == shape {
            true => Ok(()),
            false => Err(InputError::Shape {
                name,
                found: matrix.shape,
                expected: shape,
            }),
        };
        if let Some(mask) = &self.attention_mask {
            same_shape(NAMES[1], mask)?;
            mask.check_range(NAMES[1], 1)?;
        }
        if let Some(types) = &self.token_type_ids {
            let Some(count) = limits.type_vocab_size else {
                return Err(InputError::NotTaken {
                    class,
                    name: NAMES[2],
                });
            };
            same_shape(NAMES[2], types)?;
            types.check_range(NAMES[2], count - 1)?;
        }
        if let Some(positions) = &self.position_ids {
            if positions.shape != [1, length] {
                same_shape(NAMES[3], positions)?;
            }
            positions.check_range(NAMES[3], limits.max_positions - 1)?;
        }
        Ok(())
    }

    /// Copies the inputs to a device.
    pub fn to_tensors(&self, device: &Device) -> InputTensors {
        let optional = |matrix: &Option<IntMatrix>| matrix.as_ref().map(|m| m.to_tensor(device));
        InputTensors {
            input_ids: self.input_ids.to_tensor(device),
            attention_mask: optional(&self.attention_mask),
            token_type_ids: optional(&self.token_type_ids),
            position_ids: optional(&self.position_ids),
        }
    }
}
