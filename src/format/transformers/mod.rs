//! The two JSON trees of transformers' model-addition debugger, written byte for byte and read back.
//!
//! One pair of files holds one trace. Where transformers would lose something, a node has a key that
//! its readers do not know and skip: `calls` for the root calls after the first, `complete`, `call`
//! and `step`. It is not concerned with the text of tensors, which the trace brings along.

mod ascii;
mod read;
mod value;
mod write;

pub use read::{read, read_from_slice};
pub use write::{to_writer, write_pair};

use crate::trace::Node;

/// Which of the two trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tree {
    /// `_debug_tree_FULL_TENSORS.json`: everything.
    Full,
    /// `_debug_tree_SUMMARY.json`: the same without any key named `value`.
    Summary,
}

impl Tree {
    /// What follows the class name in the file's name.
    pub fn file_suffix(self) -> &'static str {
        match self {
            Tree::Full => "_debug_tree_FULL_TENSORS.json",
            Tree::Summary => "_debug_tree_SUMMARY.json",
        }
    }
}

/// Counts the calls of each path within a root call, as a reader of a tree must.
///
/// A node says its number only where it differs from this count, so that an ordinary trace has no
/// key that transformers does not write.
#[derive(Default)]
struct CallCount(std::collections::HashMap<String, u64>);

impl CallCount {
    /// The number expected of the next call of `path`.
    fn expected(&self, path: &str) -> u64 {
        self.0.get(path).copied().unwrap_or(0)
    }

    /// Takes note of a call's actual number.
    fn note(&mut self, node: &Node) {
        let next = node.call.saturating_add(1);
        match self.0.get_mut(&node.path) {
            Some(count) => *count = next,
            None => {
                self.0.insert(node.path.clone(), next);
            }
        }
    }
}
