//! Opening a trace whatever form it has: a folder, a record or a tree.

use std::{
    collections::BTreeMap,
    fs,
    io::Read,
    path::{Path, PathBuf},
};

use super::{Limits, ReadError, jsonl, transformers};
use crate::{
    bounded_file::{self, Refusal},
    trace::Trace,
};

/// How much of a file is looked at to tell its form.
const GLANCE: usize = 256;

/// Reads the trace at a path: a `.burnscope.jsonl` record, a FULL_TENSORS or SUMMARY tree, or a
/// folder with the files of one trace, of which the one that holds most is read.
///
/// # Errors
/// If there is no trace, more than one, or it cannot be read.
pub fn read(path: impl AsRef<Path>) -> Result<Trace, ReadError> {
    read_with(path.as_ref(), &Limits::default())
}

/// As [`read`], with limits of the caller's.
///
/// # Errors
/// As [`read`].
pub fn read_with(path: &Path, limits: &Limits) -> Result<Trace, ReadError> {
    let file = if fs::metadata(path).map_err(ReadError::io(path))?.is_dir() {
        find(path)?
    } else {
        path.to_owned()
    };
    match recognise(&file)? {
        Form::Record => jsonl::read(&file, limits),
        Form::Tree => transformers::read(&file, limits),
    }
}

/// A file's whole contents, if it is a regular file within the limits.
pub(super) fn read_file(path: &Path, limits: &Limits) -> Result<Vec<u8>, ReadError> {
    bounded_file::read(path, limits.max_bytes).map_err(refused(path))
}

/// What a reader says of a file that was not read.
fn refused(path: &Path) -> impl FnOnce(Refusal) -> ReadError {
    move |refusal| {
        let path = path.to_owned();
        match refusal {
            Refusal::Io(source) => ReadError::Io { path, source },
            Refusal::NotAFile => ReadError::NotAFile { path },
            Refusal::TooLarge { limit, .. } => ReadError::TooLarge { path, limit },
        }
    }
}

enum Form {
    Record,
    Tree,
}

/// Tells the form by the first key, whatever the file is called.
fn recognise(path: &Path) -> Result<Form, ReadError> {
    let mut start = Vec::new();
    let (file, _) = bounded_file::open(path).map_err(refused(path))?;
    file.take(GLANCE as u64)
        .read_to_end(&mut start)
        .map_err(ReadError::io(path))?;
    let start = String::from_utf8_lossy(&start);
    let key = start
        .trim_start()
        .strip_prefix('{')
        .map(str::trim_start)
        .and_then(|rest| rest.strip_prefix('"'));
    match key {
        Some(key) if key.starts_with("kind\"") => Ok(Form::Record),
        Some(_) => Ok(Form::Tree),
        None => Err(ReadError::NotATrace {
            path: path.to_owned(),
        }),
    }
}

/// The file of a folder's only trace that holds most.
fn find(folder: &Path) -> Result<PathBuf, ReadError> {
    let endings = [
        jsonl::FILE_SUFFIX,
        transformers::Tree::Full.file_suffix(),
        transformers::Tree::Summary.file_suffix(),
    ];
    // By the trace's name: the best ending's place and the file.
    let mut traces: BTreeMap<String, (usize, PathBuf)> = BTreeMap::new();
    for entry in fs::read_dir(folder).map_err(ReadError::io(folder))? {
        let file = entry.map_err(ReadError::io(folder))?.path();
        let Some(name) = file.file_name().and_then(|name| name.to_str()) else {
            continue;
        };
        let found = endings
            .iter()
            .enumerate()
            .find_map(|(place, ending)| Some((place, name.strip_suffix(ending)?.to_owned())));
        if let Some((place, stem)) = found {
            match traces.get(&stem) {
                Some((best, _)) if *best < place => {}
                _ => {
                    traces.insert(stem, (place, file));
                }
            }
        }
    }
    let mut files: Vec<PathBuf> = traces.into_values().map(|(_, file)| file).collect();
    match files.len() {
        0 => Err(ReadError::NoTrace {
            path: folder.to_owned(),
        }),
        1 => Ok(files.remove(0)),
        _ => Err(ReadError::SeveralTraces {
            path: folder.to_owned(),
            files,
        }),
    }
}
