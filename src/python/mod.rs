//! Python source files as the scanners see them: bounded text, line numbers and a guarded parser.
//!
//! It is not an interpreter: nothing here runs Python or resolves a name. Every file is untrusted: what
//! is refused is a [`Fault`], never a panic.

mod fault;
mod nesting;
mod source;

pub use fault::{Fault, SyntaxFault};
#[cfg(feature = "similar")]
pub(crate) use source::too_large;
pub use source::{Limits, LineIndex, parse, source_text};
