//! Reads small files without trusting their size. It does not interpret what it reads.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use thiserror::Error;

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
    let io = |source| FileError::Io {
        path: path.to_owned(),
        source,
    };
    let metadata = std::fs::metadata(path).map_err(io)?;
    if !metadata.is_file() {
        return Err(FileError::NotAFile {
            path: path.to_owned(),
        });
    }
    Ok((File::open(path).map_err(io)?, metadata.len()))
}

/// Reads an ordinary file of at most `max` bytes.
pub(super) fn read_bounded(path: &Path, max: u64) -> Result<Vec<u8>, FileError> {
    let (file, bytes) = open_file(path)?;
    let too_large = |bytes| FileError::TooLarge {
        path: path.to_owned(),
        bytes,
        max,
    };
    if bytes > max {
        return Err(too_large(bytes));
    }
    let mut contents = Vec::new();
    // The file may grow while it is read, so the limit holds for the reading too.
    file.take(max + 1)
        .read_to_end(&mut contents)
        .map_err(|source| FileError::Io {
            path: path.to_owned(),
            source,
        })?;
    match contents.len() as u64 {
        read if read > max => Err(too_large(read)),
        _ => Ok(contents),
    }
}
