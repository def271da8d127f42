//! What a session records and where it writes, as a user sets it.

use std::path::PathBuf;

use wildmatch::WildMatch;

use super::{Dump, Session, names::SegmentNames};
use crate::format::{WriteError, jsonl};

/// What a session records and where it writes.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) name: Option<String>,
    pub(crate) dump: Dump,
    pub(crate) dump_budget: Option<u64>,
    pub(crate) dump_memory: u64,
    pub(crate) prune_layers: bool,
    pub(crate) gradients: bool,
    pub(crate) annotations: bool,
    pub(crate) segments: SegmentNames,
    pub(crate) include: Vec<WildMatch>,
    pub(crate) exclude: Vec<WildMatch>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: None,
            dump: Dump::default(),
            dump_budget: None,
            dump_memory: 256 << 20,
            prune_layers: false,
            gradients: false,
            annotations: true,
            segments: SegmentNames::default(),
            include: Vec::new(),
            exclude: Vec::new(),
        }
    }
}

impl Options {
    /// Whether there are any filters.
    #[cfg(feature = "fusion")]
    pub(crate) fn filters(&self) -> bool {
        !(self.include.is_empty() && self.exclude.is_empty())
    }

    /// Whether the filters let a module's record in.
    pub(crate) fn selects(&self, path: &str) -> bool {
        (self.include.is_empty() || self.include.iter().any(|pattern| pattern.matches(path)))
            && !self.exclude.iter().any(|pattern| pattern.matches(path))
    }

    /// The first line of the journal.
    pub(crate) fn header(&self, name: &str) -> jsonl::Header {
        let patterns = |patterns: &[WildMatch]| -> Vec<String> {
            patterns.iter().map(ToString::to_string).collect()
        };
        let options = [
            (
                "dump",
                serde_json::json!(format!("{:?}", self.dump).to_lowercase()),
            ),
            ("dump_budget", serde_json::json!(self.dump_budget)),
            ("dump_memory", serde_json::json!(self.dump_memory)),
            ("prune_layers", serde_json::json!(self.prune_layers)),
            ("gradients", serde_json::json!(self.gradients)),
            ("annotations", serde_json::json!(self.annotations)),
            ("include", serde_json::json!(patterns(&self.include))),
            ("exclude", serde_json::json!(patterns(&self.exclude))),
        ];
        jsonl::Header {
            options: options
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect(),
            ..jsonl::Header::now(name)
        }
    }
}

/// Settings of a session about to start; see [`Session::builder`].
#[derive(Clone, Debug)]
pub struct SessionBuilder {
    folder: PathBuf,
    options: Options,
}

impl SessionBuilder {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            options: Options::default(),
        }
    }

    /// The model's name, first part of every file name; the attached model's where not given.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.options.name = Some(name.into()).filter(|name: &String| !name.is_empty());
        self
    }

    /// What to keep of the elements; nothing where not given.
    pub fn dump(mut self, dump: Dump) -> Self {
        self.options.dump = dump;
        self
    }

    /// The most bytes of tensor files to write. Beyond it summaries go on, and the trace says what
    /// was dropped.
    pub fn dump_budget(mut self, bytes: u64) -> Self {
        self.options.dump_budget = Some(bytes);
        self
    }

    /// The most bytes that tensor files on their way may hold, on the host and on devices together;
    /// 256 MiB where not given. A program that is ahead of the disk waits. Only the results of
    /// operations outside any traced method cannot wait: of these some are dropped, and the trace says
    /// how many.
    pub fn dump_memory(mut self, bytes: u64) -> Self {
        self.options.dump_memory = bytes;
        self
    }

    /// Keep only the first and the last of three or more repeated layers in the two JSON files, as
    /// transformers does. The returned trace and the `.burnscope.jsonl` have them all.
    pub fn prune_layers(mut self, prune: bool) -> Self {
        self.options.prune_layers = prune;
        self
    }

    /// Record only modules whose path matches a pattern given here; `*` stands for any characters,
    /// dots included, `?` for one.
    pub fn include(mut self, pattern: impl AsRef<str>) -> Self {
        self.options.include.push(WildMatch::new(pattern.as_ref()));
        self
    }

    /// Record no module whose path matches; wins over [`SessionBuilder::include`].
    pub fn exclude(mut self, pattern: impl AsRef<str>) -> Self {
        self.options.exclude.push(WildMatch::new(pattern.as_ref()));
        self
    }

    /// Leave gradients on in traced runs on an autodiff device. Otherwise a root call whose model is
    /// on one runs on the model's [`valid`](burn::module::Module::valid) copy.
    pub fn gradients(mut self, on: bool) -> Self {
        self.options.gradients = on;
        self
    }

    /// Whether `#[burnscope::trace]` is heeded. Without it modules are concluded from the operations
    /// of CubeCL devices alone, as for a model that has no annotation.
    pub fn annotations(mut self, heed: bool) -> Self {
        self.options.annotations = heed;
        self
    }

    /// Call the field `field` by `name` in every path, as for a checkpoint name that Rust cannot
    /// spell: `rename("self_", "self")`.
    pub fn rename(mut self, field: &str, name: &str) -> Self {
        self.options.segments.add(field, name);
        self
    }

    /// Starts the session: makes the folder.
    ///
    /// # Errors
    /// If the folder cannot be made or written to.
    pub fn start(self) -> Result<Session, WriteError> {
        Session::start(self.folder, self.options)
    }
}
