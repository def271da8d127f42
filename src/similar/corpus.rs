//! What is read from a repository, file by file: the part of the index that is kept on disk.
//!
//! A file is read again only if its size or time changed; everything that depends on more than one
//! file is derived from here when the index is opened.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use rayon::prelude::*;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::dates::{ModelDates, read_dates};
use super::definitions::{Definition, definitions};
use super::inheritance::{Inheritance, inheritances};
use super::naming::{ModelNames, file_model, normalised};
use super::source::{Fault, Layout, is_modular, parse, read_source, walk};
use super::terms::{TermReader, Terms};

/// A file changed within the clock's grain of the last reading may have changed after it; nanoseconds.
const SETTLING: u64 = 2_000_000_000;

/// A file's size and time of change, by which an unchanged file is recognised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// In bytes.
    pub size: u64,
    /// Nanoseconds since 1970.
    pub modified: u64,
}

impl Stamp {
    /// The stamp of a file, or of nothing if it cannot be asked.
    pub fn of(path: &Path) -> Self {
        path.metadata().map_or(Self::default(), |metadata| Self {
            size: metadata.len(),
            modified: metadata.modified().map_or(0, nanoseconds),
        })
    }
}

/// Nanoseconds since 1970.
pub fn nanoseconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |elapsed| {
        u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
    })
}

/// A file whose code is compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CodeFile {
    /// Relative to the models' folder, with `/`.
    pub path: String,
    /// Its size and time.
    pub stamp: Stamp,
    /// The model it belongs to: the first folder of its path, or the file's own name.
    pub model: String,
    /// What the model calls itself in this file.
    pub names: ModelNames,
    /// Its definitions, in the order of the file.
    pub definitions: Vec<Definition>,
    /// The digest of each definition's renamed tokens.
    pub exact: Vec<u64>,
    /// The terms of each definition; kept apart on disk.
    #[serde(skip)]
    pub terms: Vec<Vec<(u64, u16)>>,
    /// Why it has no definitions, if it could not be read.
    pub fault: Option<Fault>,
}

/// A `modular_*.py` file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModularFile {
    /// Relative to the models' folder.
    pub path: String,
    /// Its size and time.
    pub stamp: Stamp,
    /// The model whose parents it states.
    pub model: String,
    /// Who inherits from whom.
    pub inheritances: Vec<Inheritance>,
    /// Why it states nothing, if it could not be read.
    pub fault: Option<Fault>,
}

/// A model's page of the documentation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelPage {
    /// The file's name.
    pub path: String,
    /// Its size and time.
    pub stamp: Stamp,
    /// The dates it gives.
    pub dates: ModelDates,
}

/// All that was read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Corpus {
    /// Whether methods are definitions of their own.
    pub methods: bool,
    /// When the reading began, nanoseconds since 1970.
    pub read_at: u64,
    /// The files that are compared, by name.
    pub code: Vec<CodeFile>,
    /// The statements of inheritance, by name.
    pub modular: Vec<ModularFile>,
    /// The documentation's pages, by name.
    pub pages: Vec<ModelPage>,
    /// What could not be walked.
    pub walk_faults: Vec<Fault>,
}

/// How much of a corpus was read anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refreshed {
    /// Files that were read.
    pub read: usize,
    /// Files that were taken over.
    pub kept: usize,
    /// Files of the earlier corpus that are gone.
    pub gone: usize,
}

impl Refreshed {
    /// Whether the corpus differs from the earlier one.
    pub fn changed(self) -> bool {
        self.read > 0 || self.gone > 0
    }
}

/// The model of a file: the first folder of its path, or its own name if it lies in none.
pub fn model_of(path: &str) -> String {
    match path.split_once('/') {
        Some((folder, _)) => folder.to_owned(),
        None => file_model(path).to_owned(),
    }
}

impl CodeFile {
    /// Reads the definitions of a source text that was read from `path`.
    pub fn read(path: &str, model: &str, source: &str, methods: bool) -> Result<Self, Fault> {
        let parsed = parse(source).map_err(|fault| fault.at(path))?;
        let file_name = path.rsplit('/').next().unwrap_or(path);
        let names = ModelNames::of(model, file_name, parsed.syntax());
        let definitions = definitions(parsed.syntax(), source, methods);
        let mut reader = TermReader::new(source, parsed.tokens(), &names);
        let read: Vec<Terms> = definitions.iter().map(|d| reader.read(d)).collect();
        Ok(Self {
            path: path.to_owned(),
            stamp: Stamp::default(),
            model: model.to_owned(),
            exact: read.iter().map(|terms| terms.exact).collect(),
            terms: read.into_iter().map(|terms| terms.counts).collect(),
            names,
            definitions,
            fault: None,
        })
    }

    fn unreadable(path: &str, fault: Fault) -> Self {
        Self {
            path: path.to_owned(),
            stamp: Stamp::default(),
            model: model_of(path),
            names: ModelNames::default(),
            definitions: Vec::new(),
            exact: Vec::new(),
            terms: Vec::new(),
            fault: Some(fault),
        }
    }
}

impl Corpus {
    /// Reads a repository; `done` is told after every file that was read.
    pub fn read(layout: &Layout, methods: bool, done: &(dyn Fn() + Sync)) -> Self {
        let empty = Self {
            methods,
            ..Self::default()
        };
        empty.refresh(layout, done).0
    }

    /// Reads what changed since this corpus was read and takes over the rest.
    pub fn refresh(self, layout: &Layout, done: &(dyn Fn() + Sync)) -> (Self, Refreshed) {
        let methods = self.methods;
        let read_at = nanoseconds(SystemTime::now());
        let settled = self.read_at.saturating_sub(SETTLING);
        let mut found = walk(&layout.root, |name| layout.takes(name) || is_modular(name));
        let (modular, code): (Vec<String>, Vec<String>) = found
            .files
            .drain(..)
            .partition(|path| is_modular(path.rsplit('/').next().unwrap_or(path)));
        let pages = match &layout.model_pages {
            Some(folder) => {
                let mut walked = walk(folder, |name| name.ends_with(".md"));
                found.faults.append(&mut walked.faults);
                walked.files
            }
            None => Vec::new(),
        };

        let (code, code_kept) = update(
            code,
            self.code,
            settled,
            |path| Stamp::of(&layout.root.join(path)),
            |file: &CodeFile| (&file.path, file.stamp),
            |path, stamp| {
                let file = read_source(&layout.root.join(path))
                    .map_err(|fault| fault.at(path))
                    .and_then(|source| CodeFile::read(path, &model_of(path), &source, methods))
                    .unwrap_or_else(|fault| CodeFile::unreadable(path, fault));
                done();
                CodeFile { stamp, ..file }
            },
        );
        let (modular, modular_kept) = update(
            modular,
            self.modular,
            settled,
            |path| Stamp::of(&layout.root.join(path)),
            |file: &ModularFile| (&file.path, file.stamp),
            |path, stamp| {
                let read = read_source(&layout.root.join(path))
                    .and_then(|source| parse(&source).map(|parsed| inheritances(parsed.syntax())));
                let (inheritances, fault) = match read {
                    Ok(inheritances) => (inheritances, None),
                    Err(fault) => (Vec::new(), Some(fault.at(path))),
                };
                ModularFile {
                    path: path.to_owned(),
                    stamp,
                    model: model_of(path),
                    inheritances,
                    fault,
                }
            },
        );
        let page_folder = layout.model_pages.clone().unwrap_or_default();
        let (pages, pages_kept) = update(
            pages,
            self.pages,
            settled,
            |path| Stamp::of(&page_folder.join(path)),
            |page: &ModelPage| (&page.path, page.stamp),
            |path, stamp| ModelPage {
                path: path.to_owned(),
                stamp,
                dates: read_source(&page_folder.join(path))
                    .map_or_else(|_| ModelDates::default(), |t| read_dates(&t)),
            },
        );
        let total = code.len() + modular.len() + pages.len();
        let kept = code_kept.0 + modular_kept.0 + pages_kept.0;
        let gone = code_kept.1 + modular_kept.1 + pages_kept.1;
        let refreshed = Refreshed {
            read: total - kept,
            kept,
            gone,
        };
        let corpus = Self {
            methods,
            read_at,
            code,
            modular,
            pages,
            walk_faults: found.faults,
        };
        (corpus, refreshed)
    }

    /// Whether a repository still is as it was read.
    pub fn is_current(&self, layout: &Layout) -> bool {
        let settled = self.read_at.saturating_sub(SETTLING);
        let same = |stamp: Stamp, path: &Path| Stamp::of(path) == stamp && stamp.modified < settled;
        let found = walk(&layout.root, |name| layout.takes(name) || is_modular(name));
        let pages = layout
            .model_pages
            .as_ref()
            .map(|folder| (folder, walk(folder, |name| name.ends_with(".md"))));
        let walked = found.files.len() + pages.as_ref().map_or(0, |(_, walk)| walk.files.len());
        let faults = found.faults.len() + pages.as_ref().map_or(0, |(_, walk)| walk.faults.len());
        let code = self.code.iter().map(|file| (&file.path, file.stamp));
        let modular = self.modular.iter().map(|file| (&file.path, file.stamp));
        walked == self.code.len() + self.modular.len() + self.pages.len()
            && faults == self.walk_faults.len()
            && code
                .chain(modular)
                .all(|(path, stamp)| same(stamp, &layout.root.join(path)))
            && pages.is_none_or(|(folder, _)| {
                self.pages
                    .iter()
                    .all(|page| same(page.stamp, &folder.join(&page.path)))
            })
    }

    /// Everything that is wrong with the input.
    pub fn faults(&self) -> impl Iterator<Item = &Fault> {
        let code = self.code.iter().filter_map(|file| file.fault.as_ref());
        let modular = self.modular.iter().filter_map(|file| file.fault.as_ref());
        self.walk_faults.iter().chain(code).chain(modular)
    }

    /// The dates by model name, letters and digits in lower case.
    pub fn dates(&self) -> FxHashMap<String, ModelDates> {
        self.pages
            .iter()
            .filter(|page| page.dates != ModelDates::default())
            .map(|page| (normalised(page.path.trim_end_matches(".md")), page.dates))
            .collect()
    }
}

/// Takes over what is unchanged and reads the rest; returns how many were kept and how many are gone.
fn update<T: Send>(
    paths: Vec<String>,
    old: Vec<T>,
    settled: u64,
    stamp: impl Fn(&str) -> Stamp + Sync,
    identity: impl Fn(&T) -> (&String, Stamp),
    read: impl Fn(&str, Stamp) -> T + Sync,
) -> (Vec<T>, (usize, usize)) {
    let before = old.len();
    let mut old: FxHashMap<String, (Stamp, T)> = old
        .into_iter()
        .map(|file| {
            let (path, stamp) = identity(&file);
            (path.clone(), (stamp, file))
        })
        .collect();
    let mut stayed = 0;
    let mut kept = 0;
    let work: Vec<(String, Stamp, Option<T>)> = paths
        .into_iter()
        .map(|path| {
            let now = stamp(&path);
            let earlier = old.remove(&path);
            stayed += usize::from(earlier.is_some());
            let same = earlier
                .filter(|(then, _)| *then == now && now.modified < settled)
                .map(|(_, file)| file);
            kept += usize::from(same.is_some());
            (path, now, same)
        })
        .collect();
    let files = work
        .into_par_iter()
        .map(|(path, now, same)| same.unwrap_or_else(|| read(&path, now)))
        .collect();
    (files, (kept, before - stayed))
}
