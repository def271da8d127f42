//! Which common tests a transformers checkout really runs, and which it skips, for every model.
//!
//! The scan reads test files, resolves imports and inheritance the way Python does and decides for
//! every test class what happens to each common test. It runs no Python and needs none.
//!
//! ```no_run
//! let scan = burnscope::skips::scan(&burnscope::skips::ScanOptions::new("transformers"))?;
//! for test in &scan.tests {
//!     println!("{}: off in {} models", test.name, test.models_skipped.len());
//! }
//! # Ok::<(), burnscope::skips::SkipsError>(())
//! ```

mod analysis;
mod assigned;
mod builtin;
mod call;
mod compat;
mod decorator;
mod definition;
mod eval;
mod expand;
mod facts;
mod flags;
mod flow;
mod guard;
mod lint;
mod mro;
mod project;
mod reach;
mod reader;
mod report;
mod revision;
mod status;
mod suite;
mod tree;
mod value;
mod verdict;
mod write;

use std::path::{Path, PathBuf};

use crate::python::Limits;

pub use crate::python::Fault;
pub use compat::{CompatEntry, compat_scan, compat_summary};
pub use lint::{Lint, LintKind};
pub use report::{ClassTests, Detail, TestReport, TestVerdict};
pub use revision::{Change, ChangeKind, compare};
pub use status::Status;
pub use write::{Format, summary, table, write, write_compat, write_inventory};

/// The bounds on the files of a checkout. The largest of transformers has well under 1 MB.
const LIMITS: Limits = Limits {
    file_bytes: 16 << 20,
    expression_depth: 3_000,
    indentation: 100,
};

/// What to scan.
#[derive(Clone, Debug)]
pub struct ScanOptions {
    /// The root of the checkout: the folder that holds `tests/models`.
    pub repo: PathBuf,
    /// A git revision to scan instead of the files on disk.
    pub revision: Option<String>,
    /// Report on this test only. Any test that some class has may be named, not only common ones.
    pub test: Option<String>,
    /// Conditions whose value is taken as given.
    pub assumptions: Vec<Assumption>,
    /// Look for lints.
    pub lints: bool,
    /// Also list every test of every class.
    pub inventory: bool,
}

impl ScanOptions {
    /// A full scan of the checkout at `repo` which takes for granted that PyTorch is installed.
    pub fn new(repo: impl Into<PathBuf>) -> Self {
        Self {
            repo: repo.into(),
            revision: None,
            test: None,
            assumptions: vec![Assumption {
                condition: "is_torch_available()".into(),
                value: true,
            }],
            lints: false,
            inventory: false,
        }
    }
}

/// A condition, as it is written in the source, with the value it is taken to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assumption {
    /// The source text, for example `is_torch_available()`.
    pub condition: String,
    /// Its value.
    pub value: bool,
}

/// The result of a scan.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Scan {
    /// The names of all models with a test file, sorted.
    pub models: Vec<String>,
    /// The number of model test files.
    pub files: usize,
    /// One report for every common test, in the order of their definitions.
    pub tests: Vec<TestReport>,
    /// What could not be read or resolved. The rest of the scan is complete.
    pub problems: Vec<Fault>,
    /// Lints, sorted by place; empty unless asked for.
    pub lints: Vec<Lint>,
    /// Every test of every class; empty unless asked for.
    pub classes: Vec<ClassTests>,
    /// The parsed files. Taking them apart is slow, so that is left to the scan's owner.
    sources: Sources,
}

impl Scan {
    /// How many files were read: test files and what they import.
    pub fn files_read(&self) -> usize {
        self.sources
            .0
            .as_ref()
            .map_or(0, |project| project.modules.len())
    }
}

/// Keeps the files of a scan until the scan is dropped.
#[derive(Clone, Default)]
struct Sources(Option<std::sync::Arc<project::Project>>);

impl std::fmt::Debug for Sources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} files",
            self.0.as_ref().map_or(0, |project| project.modules.len())
        )
    }
}

/// Why no scan was possible at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SkipsError {
    /// The repository has no model tests.
    #[error("no folder `tests/models` in {}: run from the root of a transformers checkout, or name it with --repo", .0.display())]
    NoModelTests(PathBuf),
    /// The folder cannot be opened.
    #[error("cannot open {}: {source}", path.display())]
    Open {
        /// The folder or file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// No class has the test.
    #[error("no test class has a test named `{name}`{hint}")]
    NoSuchTest {
        /// The name asked for.
        name: String,
        /// Similar names, as a clause to append.
        hint: String,
    },
    /// The name of a test is no Python name.
    #[error("`{0}` is not the name of a test method: letters, digits and underscores only")]
    BadTestName(String),
    /// git failed or is missing.
    #[error("git cannot read revision `{revision}`: {message}")]
    Git {
        /// The revision asked for.
        revision: String,
        /// What git said.
        message: String,
    },
    /// A result could not be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The worker threads could not be started.
    #[error("cannot start worker threads: {0}")]
    Threads(String),
}

/// Scans a checkout.
///
/// # Errors
/// [`SkipsError`] where there is nothing to scan. A file that cannot be read or parsed is no error:
/// it is listed in [`Scan::problems`] and its tests are unknown.
pub fn scan(options: &ScanOptions) -> Result<Scan, SkipsError> {
    if let Some(name) = &options.test {
        check_test_name(name)?;
    }
    with_workers(|| match &options.revision {
        Some(revision) => {
            let tree = revision::Revision::open(&options.repo, revision)?;
            analysis::analyse(&tree, &options.repo, options)
        }
        None => {
            let tree = open(&options.repo)?;
            analysis::analyse(&tree, &options.repo, options)
        }
    })
}

fn open(repo: &Path) -> Result<tree::Folder, SkipsError> {
    let tree = tree::Folder::new(repo).map_err(|source| SkipsError::Open {
        path: repo.to_owned(),
        source,
    })?;
    if !repo.join(tree::MODELS).is_dir() {
        return Err(SkipsError::NoModelTests(repo.to_owned()));
    }
    Ok(tree)
}

/// A test's name becomes part of a file's name: only names Python allows are accepted.
fn check_test_name(name: &str) -> Result<(), SkipsError> {
    let valid = !name.is_empty()
        && name.len() <= 200
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if valid {
        Ok(())
    } else {
        Err(SkipsError::BadTestName(name.to_owned()))
    }
}

/// Stack of each worker: parsing and dropping the deepest accepted file needs a few megabytes.
const WORKER_STACK: usize = 32 << 20;

/// Runs `work` on worker threads with enough stack for deeply nested files.
fn with_workers<T: Send>(
    work: impl FnOnce() -> Result<T, SkipsError> + Send,
) -> Result<T, SkipsError> {
    rayon::ThreadPoolBuilder::new()
        .stack_size(WORKER_STACK)
        .build()
        .map_err(|error| SkipsError::Threads(error.to_string()))?
        .install(work)
}
