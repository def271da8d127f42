//! The grove: a repository of four models in the shape of a transformers checkout.

use std::path::{Path, PathBuf};

use burnscope::similar::{
    analysis::{Analysis, Finding, Options, QueryFile, analyse},
    index::Index,
};

/// Where the test data lies.
pub fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/similar")
}

/// Where the grove's models lie, below a repository.
pub const MODELS: &str = "src/transformers/models";

/// A copy of the grove that a test may change.
pub struct Grove {
    folder: tempfile::TempDir,
}

impl Grove {
    /// A fresh copy.
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder for the test");
        copy(&data().join("tree"), folder.path());
        Self { folder }
    }

    /// The repository's root.
    pub fn root(&self) -> &Path {
        self.folder.path()
    }

    /// A file of the models' folder.
    pub fn model_file(&self, path: &str) -> PathBuf {
        self.root().join(MODELS).join(path)
    }

    /// Writes a file of the models' folder.
    pub fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.model_file(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder is made");
        std::fs::write(path, text).expect("a file is written");
    }

    /// Replaces a text in a file of the models' folder.
    pub fn edit(&self, path: &str, from: &str, to: &str) {
        let text = std::fs::read_to_string(self.model_file(path)).expect("a file of the grove");
        assert!(text.contains(from), "{path} has no {from:?}");
        self.write(path, text.replace(from, to));
    }

    /// The index of the grove as it is now.
    pub fn index(&self) -> Index {
        Index::build(self.root(), false, &|| ())
    }

    /// The answer for a model of the grove.
    pub fn ask(&self, model: &str) -> Analysis {
        self.ask_with(model, Options::default())
    }

    /// The answer for a model of the grove.
    pub fn ask_with(&self, model: &str, options: Options) -> Analysis {
        let index = self.index();
        let query = QueryFile::open(model, self.root(), index.layout(), false)
            .expect("a model of the grove");
        analyse(&index, &query, options)
    }
}

/// The finding for one definition.
pub fn finding<'a>(analysis: &'a Analysis, name: &str) -> &'a Finding {
    analysis
        .findings
        .iter()
        .find(|finding| finding.name == name)
        .unwrap_or_else(|| panic!("no finding for {name}"))
}

/// The names of the best matches.
pub fn best<'a>(analysis: &'a Analysis, name: &str) -> Vec<&'a str> {
    finding(analysis, name)
        .best
        .iter()
        .map(|found| found.name.as_str())
        .collect()
}

fn copy(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).expect("the grove") {
        let entry = entry.expect("an entry of the grove");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            std::fs::create_dir_all(&target).expect("a folder is made");
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("a file is copied");
        }
    }
}

/// Makes the sources older than the clock's grain, so that they count as settled.
pub fn settle(folder: &Path) {
    let past = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            settle(&path);
        } else {
            std::fs::File::options()
                .append(true)
                .open(&path)
                .and_then(|file| file.set_modified(past))
                .expect("is set");
        }
    }
}
