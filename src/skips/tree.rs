//! Where the files of a checkout come from: a folder on disk or a revision of its git repository.
//!
//! Paths are relative to the repository's root and use forward slashes. Nothing outside the root is
//! ever opened: a symbolic link that leads out of it is a problem to report.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use ignore::WalkBuilder;
use rustc_hash::FxHashSet;

use super::{Fault, LIMITS};
use crate::bounded_file::{self, Refusal};

/// A set of files to scan.
pub(crate) trait Tree: Sync {
    /// Every `test_modeling_*.py` under `tests/models`, sorted by path components.
    fn test_files(&self, problems: &mut Vec<Fault>) -> Vec<String>;
    /// Whether `path` is a file.
    fn is_file(&self, path: &str) -> bool;
    /// The bytes of a file.
    fn read(&self, path: &str) -> Result<Vec<u8>, String>;
}

/// The folder of the model tests.
pub(crate) const MODELS: &str = "tests/models";

pub(crate) fn is_model_test(name: &str) -> bool {
    name.starts_with("test_modeling_") && name.ends_with(".py")
}

/// Sorts paths the way Python sorts `Path` objects: component by component.
pub(crate) fn sort_paths(paths: &mut [String]) {
    paths.sort_by(|a, b| a.split('/').cmp(b.split('/')));
}

/// A checkout on disk.
pub(crate) struct Folder {
    root: PathBuf,
    canonical: PathBuf,
    /// Files that the walk reached without passing a link.
    walked: OnceLock<FxHashSet<String>>,
}

impl Folder {
    pub fn new(root: &Path) -> std::io::Result<Self> {
        Ok(Self {
            root: root.to_owned(),
            canonical: root.canonicalize()?,
            walked: OnceLock::new(),
        })
    }

    /// The path on disk, if it stays inside the root.
    fn inside(&self, path: &str) -> Result<PathBuf, String> {
        let full = self.root.join(path);
        let canonical = full.canonicalize().map_err(|error| error.to_string())?;
        if canonical.starts_with(&self.canonical) {
            Ok(full)
        } else {
            Err("the link leads out of the repository".into())
        }
    }
}

impl Tree for Folder {
    fn test_files(&self, problems: &mut Vec<Fault>) -> Vec<String> {
        let mut files = Vec::new();
        let mut walked = FxHashSet::default();
        let base = self.root.join(MODELS);
        let base_is_inside = self.inside(MODELS).is_ok_and(|_| !is_link(&base));
        for entry in WalkBuilder::new(&base)
            .standard_filters(false)
            .follow_links(false)
            .build()
        {
            match entry {
                Ok(entry) => {
                    let is_dir = entry.file_type().is_some_and(|kind| kind.is_dir());
                    if is_dir || !is_model_test(&entry.file_name().to_string_lossy()) {
                        continue;
                    }
                    let relative = entry
                        .path()
                        .strip_prefix(&self.root)
                        .unwrap_or(entry.path());
                    match relative.to_str() {
                        Some(path) => {
                            let path = path.replace('\\', "/");
                            if base_is_inside && !entry.path_is_symlink() {
                                walked.insert(path.clone());
                            }
                            files.push(path);
                        }
                        None => problems.push(Fault::new(
                            relative.to_string_lossy(),
                            None,
                            "the path is not valid Unicode; the file is left out",
                        )),
                    }
                }
                Err(error) => {
                    let path = walk_error_path(&error).unwrap_or(&base).to_owned();
                    let path = path.strip_prefix(&self.root).unwrap_or(&path);
                    let message = error
                        .io_error()
                        .map_or_else(|| error.to_string(), ToString::to_string);
                    problems.push(Fault::new(
                        path.to_string_lossy().replace('\\', "/"),
                        None,
                        format!("cannot be read: {message}"),
                    ));
                }
            }
        }
        sort_paths(&mut files);
        // A second walk of the same folder would find the same.
        let _ = self.walked.set(walked);
        files
    }

    fn is_file(&self, path: &str) -> bool {
        self.root.join(path).is_file()
    }

    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        let walked = self
            .walked
            .get()
            .is_some_and(|walked| walked.contains(path));
        let full = if walked {
            self.root.join(path)
        } else {
            self.inside(path)?
        };
        bounded_file::read(&full, LIMITS.file_bytes).map_err(|refusal| match refusal {
            Refusal::Io(error) => error.to_string(),
            Refusal::NotAFile => "it is not a regular file".into(),
            Refusal::TooLarge { limit, .. } => {
                format!("the file is larger than {} MiB", limit >> 20)
            }
        })
    }
}

fn is_link(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink())
}

fn walk_error_path(error: &ignore::Error) -> Option<&Path> {
    match error {
        ignore::Error::WithPath { path, .. } => Some(path),
        ignore::Error::WithDepth { err, .. } | ignore::Error::WithLineNumber { err, .. } => {
            walk_error_path(err)
        }
        _ => None,
    }
}
