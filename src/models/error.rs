//! Why a checkpoint could not be loaded.

use std::fmt;
use std::path::PathBuf;

use thiserror::Error;

use super::config::{ConfigError, shorten};
use super::files::FileError;

/// Why a checkpoint could not be loaded.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The path is not a folder.
    #[error(
        "{folder} is not a folder; expected a checkpoint with config.json and model.safetensors"
    )]
    NoFolder {
        /// The path.
        folder: PathBuf,
    },
    /// The configuration cannot be used.
    #[error("{folder}: {source}")]
    Config {
        /// The checkpoint.
        folder: PathBuf,
        /// What is wrong.
        source: ConfigError,
    },
    /// The configuration names a model there is no port of.
    #[error("{found} is not supported; supported are {supported}")]
    Architecture {
        /// What `config.json` names.
        found: String,
        /// The classes there are.
        supported: String,
    },
    /// The folder holds no weights in a form that is read.
    #[error(
        "{folder} has neither model.safetensors nor model.safetensors.index.json; other formats \
         must be converted first"
    )]
    NoWeights {
        /// The checkpoint.
        folder: PathBuf,
    },
    /// A file could not be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The list of files is unusable.
    #[error("{path}: {reason}")]
    Index {
        /// The index.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A file is not a safetensors file, or is cut short.
    #[error("{path}: {reason}")]
    Safetensors {
        /// The file.
        path: PathBuf,
        /// What the parser said.
        reason: String,
    },
    /// The weights are in a dtype the models do not compute in.
    #[error("the weights are {found}; the models compute in float32, float16 or bfloat16")]
    Dtype {
        /// The dtype.
        found: String,
    },
    /// The device cannot compute in the weights' dtype.
    #[error("the weights are {dtype}, which the device does not support")]
    DeviceDtype {
        /// The dtype.
        dtype: String,
    },
    /// The checkpoint's keys are not those of the model.
    #[error(transparent)]
    Keys(#[from] KeyMismatch),
    /// The weights could not be put into the model.
    #[error("cannot load the weights: {reason}")]
    Apply {
        /// What Burn said.
        reason: String,
    },
}

/// A tensor of a checkpoint that is not what the model needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrongTensor {
    /// Its key in the checkpoint.
    pub key: String,
    /// What the model needs, dtype kind and shape.
    pub expected: String,
    /// What the checkpoint has.
    pub found: String,
}

/// Every way in which a checkpoint's keys differ from those of a model.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
pub struct KeyMismatch {
    /// The model's class.
    pub class: &'static str,
    /// Keys that the model needs and the checkpoint lacks.
    pub missing: Vec<String>,
    /// Keys that the checkpoint has and the model does not know.
    pub unexpected: Vec<String>,
    /// Tensors of another shape or kind than the model's.
    pub wrong: Vec<WrongTensor>,
}

/// The number of keys of each kind that a message lists; the fields hold all of them.
const LISTED: usize = 100;

impl fmt::Display for KeyMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the checkpoint does not fit {}", self.class)?;
        let wrong = self.wrong.iter().map(|tensor| {
            let (key, found) = (shorten(&tensor.key), shorten(&tensor.found));
            format!("{key}: {found}, expected {}", tensor.expected)
        });
        list(f, "missing", self.missing.iter().map(|key| shorten(key)))?;
        list(
            f,
            "unexpected",
            self.unexpected.iter().map(|key| shorten(key)),
        )?;
        list(f, "wrong", wrong)
    }
}

/// Writes a title and the first lines under it, or nothing where there are none.
fn list(
    f: &mut fmt::Formatter<'_>,
    title: &str,
    mut lines: impl ExactSizeIterator<Item = String>,
) -> fmt::Result {
    if lines.len() == 0 {
        return Ok(());
    }
    write!(f, "\n  {title} ({}):", lines.len())?;
    for line in lines.by_ref().take(LISTED) {
        write!(f, "\n    {line}")?;
    }
    match lines.len() {
        0 => Ok(()),
        more => write!(f, "\n    and {more} more"),
    }
}
