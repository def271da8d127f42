//! The names of dumped tensors' files: transformers' wherever such a name is possible and unique.

use std::{
    collections::{HashMap, HashSet},
    fmt::Write,
    hash::{DefaultHasher, Hash, Hasher},
};

use crate::trace::Node;

const EXTENSION: &str = ".safetensors";

/// The longest name that common file systems take, in bytes.
const LONGEST: usize = 255;

/// The name of one tensor of one call, built along the way to it.
///
/// `LlamaForCausalLM.model.rotary_emb` gives `LlamaForCausalLM.model.rotary_emb_inputs_args_0`, its
/// second output `LlamaForCausalLM.model.rotary_emb_outputs_1`. Calls after the first of a path and
/// root calls after the first get `~call1`, `~step1` at the end, where transformers would
/// overwrite the earlier file.
#[derive(Clone, Debug)]
pub struct DumpName {
    /// Encoded, so it holds no `~` and no `/`.
    stem: String,
    step: u64,
    call: u64,
}

impl DumpName {
    /// The positional argument `index` of a call.
    pub fn arg(node: &Node, index: usize) -> Self {
        Self::of(node, "_inputs_args").index(index)
    }

    /// The named argument `key` of a call.
    pub fn kwarg(node: &Node, key: &str) -> Self {
        Self::of(node, "_inputs_kwargs").key(key)
    }

    /// What a call returned.
    pub fn outputs(node: &Node) -> Self {
        Self::of(node, "_outputs")
    }

    fn of(node: &Node, part: &str) -> Self {
        Self {
            stem: encode(&node.path) + part,
            step: node.step,
            call: node.call,
        }
    }

    /// The element `index` of a list that lies under this name.
    #[must_use]
    pub fn index(mut self, index: usize) -> Self {
        self.stem.push('_');
        self.stem.push_str(&index.to_string());
        self
    }

    /// The entry `key` of a map that lies under this name.
    #[must_use]
    pub fn key(mut self, key: &str) -> Self {
        self.stem.push('_');
        self.stem.push_str(&encode(key));
        self
    }

    fn suffix(&self) -> String {
        let mut suffix = String::new();
        for (word, number) in [("step", self.step), ("call", self.call)] {
            if number > 0 {
                suffix += &format!("~{word}{number}");
            }
        }
        suffix
    }
}

/// The names that a session has given out, so that no file is written twice.
///
/// Two tensors can ask for one name: an argument `a_0` and the first element of a list `a`, or two
/// modules that differ in case only, which are one file on macOS and Windows. The second gets `~2`.
#[derive(Debug, Default)]
pub struct DumpNames {
    /// Lower case, since some file systems do not tell the cases apart.
    taken: HashSet<String>,
    /// The last number tried for a name, so that many equal names do not take quadratic time.
    last: HashMap<String, u64>,
}

impl DumpNames {
    /// A plain file name of at most 255 bytes that was not given out before.
    pub fn reserve(&mut self, name: &DumpName) -> String {
        // A name of transformers that already has the extension keeps it.
        let stem = name.stem.strip_suffix(EXTENSION).unwrap_or(&name.stem);
        let suffix = name.suffix();
        let first = compose(stem, &suffix);
        if self.taken.insert(first.to_ascii_lowercase()) {
            return first;
        }
        let count = self.last.entry(first.to_ascii_lowercase()).or_insert(1);
        loop {
            *count += 1;
            let next = compose(stem, &format!("{suffix}~{count}"));
            if self.taken.insert(next.to_ascii_lowercase()) {
                return next;
            }
        }
    }
}

/// A trace's name as the beginning of its files' names: a plain name of at most 200 bytes.
pub fn file_stem(name: &str) -> String {
    cut(&encode(name), 200)
}

fn compose(stem: &str, suffix: &str) -> String {
    let room = LONGEST - EXTENSION.len() - suffix.len();
    cut(stem, room) + suffix + EXTENSION
}

/// Shortens an encoded name: the cut is marked by `~` and a hash of the whole.
fn cut(encoded: &str, room: usize) -> String {
    if encoded.len() <= room {
        return encoded.to_owned();
    }
    let mut hasher = DefaultHasher::new();
    encoded.hash(&mut hasher);
    let hash = format!("~{:016x}", hasher.finish());
    format!("{}{hash}", &encoded[..room - hash.len()])
}

/// Replaces what has a meaning to some file system, a leading dot, `%` and `~` by `%XX` of each byte.
fn encode(name: &str) -> String {
    let mut encoded = String::with_capacity(name.len());
    for (place, byte) in name.bytes().enumerate() {
        let plain = match byte {
            b'.' => place > 0,
            b'/' | b'\\' | b':' | b'*' | b'?' | b'"' | b'<' | b'>' | b'|' | b'%' | b'~' => false,
            _ => (b' '..=b'~').contains(&byte),
        };
        if plain {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::dump::is_plain;
    use proptest::prelude::*;

    fn node(path: &str, step: u64, call: u64) -> Node {
        Node {
            path: path.to_owned(),
            step,
            call,
            ..Node::default()
        }
    }

    #[test]
    fn repeated_calls_and_steps_get_their_own_files() {
        let mut names = DumpNames::default();
        let name = |step, call| DumpName::outputs(&node("M.act", step, call));
        assert_eq!(names.reserve(&name(0, 0)), "M.act_outputs.safetensors");
        assert_eq!(
            names.reserve(&name(0, 1)),
            "M.act_outputs~call1.safetensors"
        );
        assert_eq!(
            names.reserve(&name(2, 0)),
            "M.act_outputs~step2.safetensors"
        );
        assert_eq!(
            names.reserve(&name(2, 1)),
            "M.act_outputs~step2~call1.safetensors"
        );
    }

    #[test]
    fn names_that_join_to_the_same_text_or_differ_in_case_stay_apart() {
        let mut names = DumpNames::default();
        let list = DumpName::kwarg(&node("M", 0, 0), "a").index(0);
        let plain = DumpName::kwarg(&node("M", 0, 0), "a_0");
        let case = DumpName::kwarg(&node("m", 0, 0), "A_0");
        assert_eq!(names.reserve(&list), "M_inputs_kwargs_a_0.safetensors");
        assert_eq!(names.reserve(&plain), "M_inputs_kwargs_a_0~2.safetensors");
        assert_eq!(names.reserve(&case), "m_inputs_kwargs_A_0~3.safetensors");
    }

    #[test]
    fn a_name_cannot_leave_the_folder() {
        let mut names = DumpNames::default();
        let name = DumpName::outputs(&node("../../etc/passwd\0", 0, 0)).key("a\\b:c~call1");
        assert_eq!(
            names.reserve(&name),
            "%2E.%2F..%2Fetc%2Fpasswd%00_outputs_a%5Cb%3Ac%7Ecall1.safetensors"
        );
        assert_eq!(file_stem(".."), "%2E.");
    }

    proptest! {
        #[test]
        fn any_names_are_plain_short_and_distinct(
            paths in proptest::collection::vec(("[aA/._~é]{0,3}|.{0,400}", 0u64..3, 0u64..3, "[a0_]{0,3}|.{0,200}"), 1..30)
        ) {
            let mut names = DumpNames::default();
            let mut seen = HashSet::new();
            for (path, step, call, key) in paths {
                let name = names.reserve(&DumpName::kwarg(&node(&path, step, call), &key));
                prop_assert!(is_plain(&name), "{name}");
                prop_assert!(name.len() <= 255 && !name.starts_with('.'));
                prop_assert!(seen.insert(name.to_lowercase()));
                prop_assert!(is_plain(&(file_stem(&path) + "x")) && file_stem(&path).len() <= 200);
            }
        }
    }
}
