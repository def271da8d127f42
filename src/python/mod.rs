//! Python source files as the scanners see them: bounded text, line numbers and a guarded parser.
//!
//! It is not an interpreter: nothing here runs Python or resolves a name.

mod nesting;
mod source;

pub use nesting::{MAX_NESTING, nesting_exceeds};
pub use source::{LineIndex, MAX_SOURCE_BYTES, SyntaxError, parse_source, source_text};
