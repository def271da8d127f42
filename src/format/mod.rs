//! The stage that turns a trace into files and files into a trace.
//!
//! `docs/trace-format.md` describes the files. It is not concerned with what is recorded
//! ([`mod@crate::trace`]) or how it was seen.

pub mod dump;
mod error;
pub mod jsonl;
mod open;
pub mod torch_repr;
pub mod transformers;

pub use error::{Limits, MAX_CALL_DEPTH, MAX_VALUE_DEPTH, ReadError, WriteError};
pub use open::{read, read_with};

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    atomic::{Durability, Staged},
    trace::Trace,
};

/// Writes the two JSON trees of a trace into a folder, which is made if it is missing, and returns
/// their paths: none for a trace without a root call.
///
/// The record beside them is written while the run goes, by [`jsonl::JsonlWriter`].
///
/// # Errors
/// If the folder or a file cannot be written, or calls nest deeper than [`MAX_CALL_DEPTH`]. Nothing
/// half-written is left.
pub fn write_all(folder: &Path, trace: &Trace) -> Result<Vec<PathBuf>, WriteError> {
    fs::create_dir_all(folder).map_err(WriteError::io(folder))?;
    if trace.roots.is_empty() {
        return Ok(Vec::new());
    }
    transformers::write_pair(folder, trace).map(Vec::from)
}

/// Makes a folder for a trace and finds out whether it can be written to, before a long run rather
/// than after it.
///
/// # Errors
/// If the folder or a file in it cannot be made.
pub fn prepare_folder(folder: &Path) -> Result<(), WriteError> {
    fs::create_dir_all(folder).map_err(WriteError::io(folder))?;
    // Dropped without being published, the file is removed.
    // The person asked for the folder and knows nothing of a probe.
    Staged::write(&folder.join("probe"), Durability::Cached, |_| Ok(()))
        .map(drop)
        .map_err(WriteError::io(folder))
}

/// Removes the JSON trees that an earlier run left under this name.
///
/// # Errors
/// If a file that is there cannot be removed.
pub fn remove_trees(folder: &Path, name: &str) -> Result<(), WriteError> {
    for tree in [transformers::Tree::Full, transformers::Tree::Summary] {
        let path = folder.join(dump::file_stem(name) + tree.file_suffix());
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(WriteError::io(&path)(error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Where the record of a trace of this name lies in a folder.
pub fn record_path(folder: &Path, name: &str) -> PathBuf {
    folder.join(dump::file_stem(name) + jsonl::FILE_SUFFIX)
}
