//! Python source files as the detector reads them: found below a folder, bounded, decoded and parsed.
//!
//! It decides what is readable; what the code means is left to the other modules. Every file is
//! untrusted: size, nesting and number are limited, and what is refused is a [`Fault`], never a panic.

use std::path::{Path, PathBuf};

use ruff_python_ast::ModModule;
use ruff_python_parser::Parsed;

use crate::bounded_file::{self, Refusal};
use crate::python::{self, Limits, source_text};
pub use crate::python::{Fault, SyntaxFault};

/// The largest Python file that is read, in bytes.
///
/// The largest modeling file of transformers has about a third of a megabyte.
pub const MAX_FILE_BYTES: u64 = 8 << 20;
/// The most files that one index takes.
pub const MAX_FILES: usize = 100_000;
/// What fits the stack of a thread that nobody chose the stack of.
const LIMITS: Limits = Limits {
    file_bytes: MAX_FILE_BYTES,
    expression_depth: 1_000,
    indentation: 100,
};

/// Reads a Python file as UTF-8 text without its byte order mark.
///
/// # Errors
///
/// A file that cannot be opened, that is larger than [`MAX_FILE_BYTES`] or that is not UTF-8.
pub fn read_source(path: &Path) -> Result<String, SyntaxFault> {
    let bytes = bounded_file::read(path, MAX_FILE_BYTES).map_err(|refusal| match refusal {
        Refusal::Io(error) => SyntaxFault::whole(format!("cannot be read: {error}")),
        Refusal::NotAFile => SyntaxFault::whole(refusal.to_string()),
        Refusal::TooLarge { .. } => python::too_large(&LIMITS),
    })?;
    source_text(bytes)
}

/// Parses a module, refusing what would need an unbounded stack.
///
/// # Errors
///
/// The first syntax error, or nesting beyond what CPython itself takes.
pub fn parse(source: &str) -> Result<Parsed<ModModule>, SyntaxFault> {
    python::parse(source, &LIMITS)
}

/// The Python files below a folder, and what of it could not be walked.
#[derive(Debug, Default)]
pub struct Walk {
    /// Paths relative to the folder, with `/`, in the order of their names.
    pub files: Vec<String>,
    /// Folders that could not be read, names that are not UTF-8, files beyond [`MAX_FILES`].
    pub faults: Vec<Fault>,
}

/// Collects the regular files below `root` whose name satisfies `keep`; links are not followed.
pub fn walk(root: &Path, keep: impl Fn(&str) -> bool) -> Walk {
    let mut found = Walk::default();
    let walker = ignore::WalkBuilder::new(root)
        .standard_filters(false)
        .hidden(true)
        .follow_links(false)
        .sort_by_file_name(|a, b| a.cmp(b))
        .build();
    for entry in walker {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                found.faults.push(Fault {
                    path: root.display().to_string(),
                    line: None,
                    message: error.to_string(),
                });
                continue;
            }
        };
        if !entry.file_type().is_some_and(|kind| kind.is_file()) {
            continue;
        }
        let Some(name) = entry.file_name().to_str() else {
            if entry.path().extension().is_some_and(|e| e == "py") {
                found.faults.push(Fault {
                    path: entry.path().display().to_string(),
                    line: None,
                    message: "has a name that is not UTF-8".to_owned(),
                });
            }
            continue;
        };
        if !keep(name) {
            continue;
        }
        let Some(relative) = entry.path().strip_prefix(root).ok().and_then(slashed) else {
            continue;
        };
        if found.files.len() == MAX_FILES {
            found.faults.push(Fault {
                path: root.display().to_string(),
                line: None,
                message: format!("has more than {MAX_FILES} files; the rest was left out"),
            });
            break;
        }
        found.files.push(relative);
    }
    found
}

/// A relative path with `/` between its parts, or `None` if a part is not plain UTF-8.
fn slashed(path: &Path) -> Option<String> {
    let mut parts = Vec::new();
    for part in path.components() {
        match part {
            std::path::Component::Normal(part) => parts.push(part.to_str()?),
            _ => return None,
        }
    }
    Some(parts.join("/"))
}

/// Where the code of a repository lies and which files of it are compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The folder that names are relative to.
    pub root: PathBuf,
    /// Whether only `modeling_*.py` is read, or every Python file.
    pub modeling_only: bool,
    /// The folder of the documentation's model pages, where there is one.
    pub model_pages: Option<PathBuf>,
}

impl Layout {
    /// Recognises a transformers checkout, the models folder of one, or any folder of Python files.
    pub fn of(folder: &Path) -> Self {
        let models = folder.join("src/transformers/models");
        if models.is_dir() {
            let pages = folder.join("docs/source/en/model_doc");
            return Self {
                root: models,
                modeling_only: true,
                model_pages: pages.is_dir().then_some(pages),
            };
        }
        let pages = folder.join("../../../docs/source/en/model_doc");
        let is_models = folder.ends_with("src/transformers/models");
        let modeling_only = is_models || !walk(folder, is_modeling).files.is_empty();
        Self {
            root: folder.to_path_buf(),
            modeling_only,
            model_pages: (is_models && pages.is_dir()).then_some(pages),
        }
    }

    /// Whether a file of this name is compared.
    pub fn takes(&self, name: &str) -> bool {
        if self.modeling_only {
            is_modeling(name)
        } else {
            name.ends_with(".py") && !is_modular(name)
        }
    }
}

fn is_modeling(name: &str) -> bool {
    name.starts_with("modeling_") && name.ends_with(".py")
}

/// Whether a file of this name states what a model inherits from.
pub fn is_modular(name: &str) -> bool {
    name.starts_with("modular_") && name.ends_with(".py")
}
