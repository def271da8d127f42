//! What can stop the detector altogether; faults of single files do not.

use std::path::PathBuf;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read or written.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A folder holds nothing to compare with.
    #[error("{}: no Python definitions here; give a transformers checkout or a folder of Python files with --repo", .0.display())]
    Empty(PathBuf),
    /// The file that was asked about is not there.
    #[error("{given}: no such file, and no model of that name in {root}", root = root.display())]
    NoModelingFile {
        /// What was asked for.
        given: String,
        /// Where models are looked for.
        root: PathBuf,
    },
    /// The file that was asked about could not be used.
    #[error("{0}")]
    Query(super::source::Fault),
    /// A file of an index is not what it should be.
    #[error("{path}: {reason}; build it again with --build", path = path.display())]
    Index {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A file of pairs is not a list of `[child, parent, adds nothing]`.
    #[error("{path}: not a list of [child, parent, adds nothing]: {reason}", path = path.display())]
    Pairs {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}
