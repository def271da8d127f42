//! What can go wrong with the files of a trace, in words that tell the way out, and the bounds that readers keep.

use std::{
    io,
    path::{Path, PathBuf},
};

/// How deep calls may nest in a file: a call inside a call inside a call.
///
/// Real models stay below twenty. The bound keeps an untrusted file from exhausting the stack.
pub const MAX_CALL_DEPTH: usize = 256;

/// How deep lists and maps may nest in one argument or result; what lies deeper is not written.
pub const MAX_VALUE_DEPTH: usize = 32;

/// The text in place of a list or map that lies deeper than [`MAX_VALUE_DEPTH`].
pub(super) const TOO_DEEP: &str = "<nested too deep>";

/// The bounds a reader keeps on an untrusted file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The largest file that is read, in bytes. What reading takes in memory is proportional to the
    /// file's size: once or twice of it for an ordinary trace, twenty times for one of empty calls.
    pub max_bytes: u64,
}

/// Files up to 1 GiB.
impl Default for Limits {
    fn default() -> Self {
        Self {
            max_bytes: 1024 * 1024 * 1024,
        }
    }
}

/// Why a trace or a dumped tensor could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The operating system refused.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A folder, device, pipe or (for a dumped tensor) a link where a file was expected.
    #[error("{} is not a regular file", path.display())]
    NotAFile {
        /// The path asked for.
        path: PathBuf,
    },
    /// The file is larger than the reader's limit.
    #[error("{} has more than {limit} bytes; raise the limit to read it all the same", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The limit in bytes.
        limit: u64,
    },
    /// A JSON tree is not one, or not one of a trace.
    #[error("{}: line {line}, column {column}{}: {message}", path.display(), place(node))]
    Tree {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// From 1.
        column: usize,
        /// The module and key being read, as `BertModel.encoder, inputs.kwargs`; empty at the top.
        node: String,
        /// What is wrong there.
        message: String,
    },
    /// A line of a record is not what its kind asks for.
    #[error("{}: line {line}: {message}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: u64,
        /// What is wrong there.
        message: String,
    },
    /// The file is neither a burnscope record nor a debug tree.
    #[error(
        "{} is no trace: expected a burnscope record (.burnscope.jsonl) or a debug tree \
         (_debug_tree_FULL_TENSORS.json, _debug_tree_SUMMARY.json)",
        path.display()
    )]
    NotATrace {
        /// The file.
        path: PathBuf,
    },
    /// The record was written by a burnscope whose schema this one does not know.
    #[error(
        "{} has schema version {found}, this program reads {supported}.x: use the burnscope that wrote it or a newer one",
        path.display()
    )]
    Schema {
        /// The file.
        path: PathBuf,
        /// The file's version.
        found: String,
        /// The major version that is supported.
        supported: u64,
    },
    /// The folder holds no file of a trace.
    #[error(
        "{} holds no trace: expected a file ending in .burnscope.jsonl, _debug_tree_FULL_TENSORS.json or _debug_tree_SUMMARY.json",
        path.display()
    )]
    NoTrace {
        /// The folder.
        path: PathBuf,
    },
    /// The folder holds the files of more than one trace.
    #[error("{} holds {} traces: name one of {}", path.display(), files.len(), list(files))]
    SeveralTraces {
        /// The folder.
        path: PathBuf,
        /// One file of each trace, sorted.
        files: Vec<PathBuf>,
    },
    /// A file name from a trace that would lead out of the trace's folder.
    #[error("`{name}` is no plain file name: a trace's tensors lie beside it")]
    BadName {
        /// The name, shortened.
        name: String,
    },
    /// A dumped tensor's file is damaged or holds something else.
    #[error("{}: {message}", path.display())]
    Tensor {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
}

/// Why a file of a trace could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The operating system refused.
    #[error("cannot write {}: {source}{}", path.display(), hint(source))]
    Io {
        /// The file or folder that was to be written.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Calls nest deeper than a reader would accept.
    #[error(
        "calls nest deeper than {MAX_CALL_DEPTH}: a JSON tree of them could not be read back; the .burnscope.jsonl record is not bounded"
    )]
    TooDeep,
    /// Another session, of this process or another, is writing this record.
    #[error("{} is being written by another session; give each session a folder of its own", path.display())]
    Busy {
        /// The record.
        path: PathBuf,
    },
    /// There is no root call, so there is no tree to write.
    #[error("the trace `{name}` has no root call: run the model inside the session")]
    NoCalls {
        /// The trace's name.
        name: String,
    },
    /// An earlier write of this record failed, so that it ends there.
    #[error("the record {} ended at an earlier error", path.display())]
    Ended {
        /// The record.
        path: PathBuf,
    },
    /// An `exit` of a call that never entered this record.
    #[error("call {node} is not in the record {}", path.display())]
    UnknownCall {
        /// The record.
        path: PathBuf,
        /// The call's number.
        node: u64,
    },
    /// A call is said to have made an operation that never entered this record, or that belongs to
    /// another call.
    #[error("operation {op} is not in the record {} or belongs to another call", path.display())]
    UnknownOp {
        /// The record.
        path: PathBuf,
        /// The operation's place in program order.
        op: u64,
    },
    /// A tensor file's name that is not one plain file name.
    #[error("`{name}` is no plain file name")]
    BadName {
        /// The name, shortened.
        name: String,
    },
    /// The element type has no name in safetensors.
    #[error("elements of type {dtype} cannot be written as safetensors")]
    DType {
        /// The element type.
        dtype: String,
    },
}

impl ReadError {
    pub(super) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| ReadError::Io { path, source }
    }
}

impl WriteError {
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| WriteError::Io { path, source }
    }
}

/// The first characters of an untrusted text, so that a message stays readable and cannot steer a
/// terminal.
pub(super) fn shorten(text: &str) -> String {
    const LONGEST: usize = 160;
    let mut short = String::new();
    for (place, c) in text.chars().enumerate() {
        if place == LONGEST {
            short.push('…');
            break;
        }
        if c.is_control() {
            short.extend(c.escape_default());
        } else {
            short.push(c);
        }
    }
    short
}

fn place(node: &str) -> String {
    if node.is_empty() {
        String::new()
    } else {
        format!(", in {node}")
    }
}

fn list(files: &[PathBuf]) -> String {
    const SHOWN: usize = 20;
    let mut names: Vec<String> = files
        .iter()
        .take(SHOWN)
        .map(|file| shorten(&file.display().to_string()))
        .collect();
    if files.len() > SHOWN {
        names.push(format!("{} more", files.len() - SHOWN));
    }
    names.join(", ")
}

fn hint(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            ": free some space or choose another folder"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            ": choose a folder that you may write to"
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            ": a file is where a folder should be"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_short_and_cannot_steer_a_terminal() {
        assert_eq!(shorten("é\u{1b}[31m\n"), "é\\u{1b}[31m\\n");
        assert_eq!(shorten(&"é".repeat(161)), "é".repeat(160) + "…");
    }
}
