//! What loading a model says of files that are not there, no files or too large.

use std::fs::File;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::bounded_file::{self, Refusal};

/// Why a file could not be read.
#[derive(Debug, Error)]
pub enum FileError {
    /// The operating system said no.
    #[error("cannot read {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The path is a folder, a pipe or a device.
    #[error("{path} is not an ordinary file")]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// The file is larger than any file of its kind has reason to be.
    #[error("{path} has {bytes} bytes; more than {max} are not read")]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size in bytes.
        bytes: u64,
        /// The largest size that is read.
        max: u64,
    },
}

/// Opens an ordinary file; a pipe or a device, which could block for ever, is refused.
pub(super) fn open_file(path: &Path) -> Result<(File, u64), FileError> {
    bounded_file::open(path).map_err(refused(path))
}

/// Reads an ordinary file of at most `max` bytes.
pub(super) fn read_bounded(path: &Path, max: u64) -> Result<Vec<u8>, FileError> {
    bounded_file::read(path, max).map_err(refused(path))
}

fn refused(path: &Path) -> impl FnOnce(Refusal) -> FileError {
    move |refusal| {
        let path = path.to_owned();
        match refusal {
            Refusal::Io(source) => FileError::Io { path, source },
            Refusal::NotAFile => FileError::NotAFile { path },
            Refusal::TooLarge { bytes, limit } => FileError::TooLarge {
                path,
                bytes,
                max: limit,
            },
        }
    }
}
