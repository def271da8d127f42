//! What is wrong with a file, as a value; it stops nothing by itself.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One thing that is wrong with the input and did not stop the rest of the work.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Fault {
    /// The file or folder.
    pub path: String,
    /// The line, counted from one, where one is known.
    pub line: Option<u32>,
    /// What is wrong with it.
    pub message: String,
}

impl Fault {
    /// A fault of a file or folder; of one of its lines, counted from one, where one is known.
    pub fn new(path: impl Into<String>, line: Option<u32>, message: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            line,
            message: message.into(),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.path, self.message),
            None => write!(f, "{}: {}", self.path, self.message),
        }
    }
}

/// Why a source text was not parsed: the line, counted from one, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxFault {
    /// The line, counted from one; `None` for a fault of the file as a whole.
    pub line: Option<u32>,
    /// What is wrong.
    pub message: String,
}

impl SyntaxFault {
    /// The fault with its file's name.
    pub fn at(self, path: impl Into<String>) -> Fault {
        Fault::new(path, self.line, self.message)
    }

    /// A fault of the file as a whole.
    pub fn whole(message: impl Into<String>) -> Self {
        Self {
            line: None,
            message: message.into(),
        }
    }
}
