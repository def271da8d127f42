//! The index on disk: one safetensors file with the corpus as JSON and the terms as arrays.
//!
//! The file is a cache of what the sources say. A file of another version, of another folder or one
//! that is damaged is refused; a file whose sources changed is brought up to date in part.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use safetensors::tensor::{Dtype, SafeTensors, View};
use xxhash_rust::xxh3::xxh3_64;

use super::corpus::{Corpus, Refreshed};
use super::error::Error;
use super::index::{Index, TermLists};
use super::source::Layout;
use super::vocabulary::Vocabulary;
use crate::atomic::{self, Durability};
use crate::bounded_file::{self, Refusal};

/// Raised when the file's layout or the meaning of a term changes.
const VERSION: u32 = 1;
/// The largest index that is read, in bytes.
const MAX_INDEX_BYTES: u64 = 4 << 30;

/// Where the index of a folder is kept if nothing else is asked for: in the user's cache.
///
/// `None` if the environment names no cache and no home.
pub fn default_path(layout: &Layout, methods: bool) -> Option<PathBuf> {
    let folder = |name| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let cache =
        folder("XDG_CACHE_HOME").or_else(|| folder("HOME").map(|home| home.join(".cache")))?;
    let root = layout
        .root
        .canonicalize()
        .unwrap_or_else(|_| layout.root.clone());
    let digest = xxh3_64(root.as_os_str().as_encoded_bytes());
    let kind = if methods { "-methods" } else { "" };
    Some(
        cache
            .join("burnscope")
            .join("similar")
            .join(format!("{digest:016x}{kind}.safetensors")),
    )
}

struct Array<'a> {
    dtype: Dtype,
    shape: [usize; 1],
    bytes: Cow<'a, [u8]>,
}

impl View for Array<'_> {
    fn dtype(&self) -> Dtype {
        self.dtype
    }
    fn shape(&self) -> &[usize] {
        &self.shape
    }
    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.bytes)
    }
    fn data_len(&self) -> usize {
        self.bytes.len()
    }
}

/// Writes an index: beside its place first, then moved there.
///
/// # Errors
///
/// A folder or file that cannot be written.
pub fn save(index: &Index, path: &Path) -> Result<(), Error> {
    let file_error = |source| Error::File {
        path: path.to_path_buf(),
        source,
    };
    let corpus =
        serde_json::to_vec(index.corpus()).map_err(|e| file_error(std::io::Error::other(e)))?;
    let lists = index.lists();
    let array = |dtype, length, bytes| Array {
        dtype,
        shape: [length],
        bytes,
    };
    let terms = lists.vocabulary.terms();
    let arrays = [
        ("corpus", array(Dtype::U8, corpus.len(), Cow::Owned(corpus))),
        (
            "vocabulary",
            array(
                Dtype::U64,
                terms.len(),
                little_endian(terms, u64::to_le_bytes),
            ),
        ),
        (
            "ends",
            array(
                Dtype::U32,
                lists.ends.len(),
                little_endian(&lists.ends, u32::to_le_bytes),
            ),
        ),
        (
            "numbers",
            array(
                Dtype::U32,
                lists.numbers.len(),
                little_endian(&lists.numbers, u32::to_le_bytes),
            ),
        ),
        (
            "counts",
            array(
                Dtype::U16,
                lists.counts.len(),
                little_endian(&lists.counts, u16::to_le_bytes),
            ),
        ),
    ];
    let metadata = [
        ("format".to_owned(), "burnscope-similar".to_owned()),
        ("version".to_owned(), VERSION.to_string()),
        ("root".to_owned(), root_name(index.layout())),
    ];
    let bytes = safetensors::serialize(arrays, Some(metadata.into_iter().collect()))
        .map_err(|e| file_error(std::io::Error::other(e)))?;
    write_file(path, &bytes).map_err(file_error)
}

/// Writes a file, and its folder if need be, so that it is there in full or not at all.
pub(super) fn write_file(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    if let Some(folder) = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        std::fs::create_dir_all(folder)?;
    }
    atomic::write(path, Durability::Cached, |out| out.write_all(bytes))
}

fn little_endian<T: Copy, const N: usize>(
    values: &[T],
    bytes: fn(T) -> [u8; N],
) -> Cow<'static, [u8]> {
    Cow::Owned(values.iter().flat_map(|&value| bytes(value)).collect())
}

fn root_name(layout: &Layout) -> String {
    let root = layout
        .root
        .canonicalize()
        .unwrap_or_else(|_| layout.root.clone());
    root.to_string_lossy().into_owned()
}

/// Reads an index and brings it up to date with its sources.
///
/// # Errors
///
/// A file that is absent, damaged, of another version or of another folder.
pub fn load(
    path: &Path,
    layout: Layout,
    methods: bool,
    done: &(dyn Fn() + Sync),
) -> Result<(Index, Refreshed), Error> {
    let (mut corpus, lists) = read(path, &layout, methods)?;
    if corpus.is_current(&layout) {
        let kept = corpus.code.len() + corpus.modular.len() + corpus.pages.len();
        return Ok((
            Index::assemble(layout, corpus, lists),
            Refreshed {
                kept,
                ..Refreshed::default()
            },
        ));
    }
    lists.restore(&mut corpus);
    let (corpus, refreshed) = corpus.refresh(&layout, done);
    Ok((Index::derive(layout, corpus), refreshed))
}

fn read(path: &Path, layout: &Layout, methods: bool) -> Result<(Corpus, TermLists), Error> {
    let wrong = |reason: &str| Error::Index {
        path: path.to_path_buf(),
        reason: reason.to_owned(),
    };
    let bytes = bounded_file::read(path, MAX_INDEX_BYTES).map_err(|refusal| match refusal {
        Refusal::Io(source) => Error::File {
            path: path.to_path_buf(),
            source,
        },
        Refusal::NotAFile => wrong("is not a regular file"),
        Refusal::TooLarge { .. } => wrong("is too large to be an index"),
    })?;
    let (_, header) =
        SafeTensors::read_metadata(&bytes).map_err(|e| wrong(&format!("is no index: {e}")))?;
    let metadata = header.metadata().clone().unwrap_or_default();
    if metadata.get("format").map(String::as_str) != Some("burnscope-similar") {
        return Err(wrong("is no index of definitions"));
    }
    if metadata.get("version") != Some(&VERSION.to_string()) {
        return Err(wrong("is of another version"));
    }
    if metadata.get("root") != Some(&root_name(layout)) {
        return Err(wrong("is the index of another folder"));
    }
    let arrays =
        SafeTensors::deserialize(&bytes).map_err(|e| wrong(&format!("is no index: {e}")))?;
    let array = |name: &str, dtype: Dtype| {
        let view = arrays
            .tensor(name)
            .map_err(|e| wrong(&format!("is damaged: {e}")))?;
        if view.dtype() == dtype {
            Ok(view.data())
        } else {
            Err(wrong("is damaged: wrong type of array"))
        }
    };
    let corpus: Corpus = serde_json::from_slice(array("corpus", Dtype::U8)?)
        .map_err(|e| wrong(&format!("is damaged: {e}")))?;
    let terms: Vec<u64> = values(array("vocabulary", Dtype::U64)?, u64::from_le_bytes);
    let ends: Vec<u32> = values(array("ends", Dtype::U32)?, u32::from_le_bytes);
    let numbers: Vec<u32> = values(array("numbers", Dtype::U32)?, u32::from_le_bytes);
    let counts: Vec<u16> = values(array("counts", Dtype::U16)?, u16::from_le_bytes);
    let definitions: usize = corpus.code.iter().map(|file| file.definitions.len()).sum();
    let sound = corpus.methods == methods
        && corpus
            .code
            .iter()
            .all(|file| file.exact.len() == file.definitions.len() && is_inside(&file.path))
        && terms.is_sorted_by(|a, b| a < b)
        && u32::try_from(numbers.len()).is_ok()
        && ends.len() == definitions
        && ends.is_sorted()
        && ends.last().copied().unwrap_or(0) as usize == numbers.len()
        && counts.len() == numbers.len()
        && numbers
            .iter()
            .all(|&number| (number as usize) < terms.len());
    if !sound {
        return Err(wrong("is damaged: its parts do not fit together"));
    }
    let vocabulary = Vocabulary::from_sorted(terms);
    Ok((
        corpus,
        TermLists {
            vocabulary,
            ends,
            numbers,
            counts,
        },
    ))
}

/// Whether a path names something below the folder it is relative to.
fn is_inside(path: &str) -> bool {
    Path::new(path)
        .components()
        .all(|part| matches!(part, std::path::Component::Normal(_)))
}

fn values<T, const N: usize>(bytes: &[u8], value: fn([u8; N]) -> T) -> Vec<T> {
    bytes
        .as_chunks::<N>()
        .0
        .iter()
        .map(|&chunk| value(chunk))
        .collect()
}
