//! The answer for one modeling file: for each definition what it repeats, and for the file its parent.

use std::path::{Path, PathBuf};

use rustc_hash::FxHashMap;

use super::corpus::{CodeFile, model_of};
use super::dates::ModelDates;
use super::definitions::{Definition, Kind};
use super::error::Error;
use super::index::{EntryId, Index};
use super::naming::file_model;
use super::rank::{Candidate, Query};
use super::skeleton;
use super::snippet::{Alignment, Snippet, Twins, difference};
use super::source::{Fault, Layout, read_source, walk};

/// What to answer with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How many answers for each definition.
    pub top: usize,
    /// Whether models that came later are left out, where dates are known.
    pub only_older: bool,
    /// Whether only the first of a group of identical definitions is an answer.
    pub one_per_group: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            top: 5,
            only_older: true,
            one_per_group: false,
        }
    }
}

/// One definition that another may repeat.
#[derive(Clone, Debug, PartialEq)]
pub struct Match {
    /// The full name: `llama/modeling_llama.py:LlamaRMSNorm`.
    pub name: String,
    /// The similarity, falling along the list: a match that is ranked below a less similar one has
    /// the lower value of the two.
    pub score: f32,
    /// The cosine similarity of the renamed terms, 1 if the code is identical.
    pub similarity: f32,
    /// The probability of being the parent, given that one of the candidates is.
    pub probability: f32,
    /// Whether the code is the same after renaming.
    pub identical: bool,
    /// The line of the definition.
    pub line: u32,
    /// When the model was published and came to the library.
    pub dates: ModelDates,
    /// How many other definitions of the index are identical to it.
    pub clones: usize,
}

/// A full name and a score.
#[derive(Clone, Debug, PartialEq)]
pub struct Scored {
    /// The full name.
    pub name: String,
    /// The score, 1 at best.
    pub score: f64,
}

/// Why the best match is not the same code: what differs after renaming.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// The lines that differ, `-` the parent's and `+` the child's.
    pub lines: Vec<String>,
}

/// What was found for one definition.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The definition's name.
    pub name: String,
    /// Class, function or method.
    pub kind: Kind,
    /// Its line.
    pub line: u32,
    /// The likely parents, best first.
    pub best: Vec<Match>,
    /// The most similar by identifier sets.
    pub jaccard: Vec<Scored>,
    /// The most similar by embeddings, if a model was used.
    pub embedding: Option<Vec<Scored>>,
    /// What differs from the best match; empty if nothing does, `None` without a match.
    pub difference: Option<Difference>,
}

impl Finding {
    /// The names in both lists: of the embeddings, or without them the best, and of Jaccard.
    pub fn intersection(&self) -> Vec<&str> {
        let among = |name: &str| match &self.embedding {
            Some(embedding) => embedding.iter().any(|scored| scored.name == name),
            None => self.best.iter().any(|found| found.name == name),
        };
        let mut both: Vec<&str> = self
            .jaccard
            .iter()
            .map(|scored| scored.name.as_str())
            .filter(|name| among(name))
            .collect();
        both.sort_unstable();
        both
    }
}

/// A model to inherit from.
#[derive(Clone, Debug, PartialEq)]
pub struct Parent {
    /// The model's folder.
    pub model: String,
    /// Its modeling file, the one most definitions point to.
    pub file: String,
    /// How many definitions of the query it is expected to be the parent of.
    pub expected: f32,
    /// Its dates.
    pub dates: ModelDates,
}

/// The answer for one file.
#[derive(Clone, Debug)]
pub struct Analysis {
    /// The file's name.
    pub file: String,
    /// Its model.
    pub model: String,
    /// The model's dates.
    pub dates: ModelDates,
    /// One finding for each definition, in the order of the file.
    pub findings: Vec<Finding>,
    /// The model to inherit from, if anything speaks for one.
    pub parent: Option<Parent>,
    /// A modular file to start from.
    pub skeleton: String,
}

/// A modeling file that is asked about.
pub struct QueryFile {
    /// Where it lies.
    pub path: PathBuf,
    /// Its text.
    pub source: String,
    /// Its definitions and terms.
    pub code: CodeFile,
}

impl QueryFile {
    /// Finds and reads a modeling file, given by its path or by the name of a model of the index.
    ///
    /// # Errors
    ///
    /// A file that is not there, cannot be read or does not parse.
    pub fn open(
        given: &str,
        repository: &Path,
        layout: &Layout,
        methods: bool,
    ) -> Result<Self, Error> {
        let path = locate(given, repository, layout)?;
        let shown = path.display().to_string();
        let source = read_source(&path).map_err(|fault| Error::Query(fault.at(&shown)))?;
        let (name, model) = place(&path, layout);
        let code = CodeFile::read(&name, &model, &source, methods).map_err(|fault| {
            Error::Query(Fault {
                path: shown,
                ..fault
            })
        })?;
        Ok(Self { path, source, code })
    }

    /// The name of the file alone.
    pub fn file_name(&self) -> &str {
        self.code.path.rsplit('/').next().unwrap_or(&self.code.path)
    }
}

/// A path as it is given, from the working folder or from the repository; or a model's name.
fn locate(given: &str, repository: &Path, layout: &Layout) -> Result<PathBuf, Error> {
    let as_path = Path::new(given);
    for path in [
        as_path.to_path_buf(),
        repository.join(as_path),
        layout.root.join(as_path),
    ] {
        if path.is_file() {
            return Ok(path);
        }
    }
    let is_name = !given.is_empty()
        && given
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if is_name {
        let folder = layout.root.join(given);
        let own = folder.join(format!("modeling_{given}.py"));
        if own.is_file() {
            return Ok(own);
        }
        let found = walk(&folder, |name| layout.takes(name));
        if folder.is_dir()
            && let Some(first) = found.files.first()
        {
            return Ok(folder.join(first));
        }
    }
    Err(Error::NoModelingFile {
        given: given.to_owned(),
        root: layout.root.clone(),
    })
}

/// The file's name for the index and its model: by its place among the models, or by its own name.
fn place(path: &Path, layout: &Layout) -> (String, String) {
    let absolute = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let root = layout
        .root
        .canonicalize()
        .unwrap_or_else(|_| layout.root.clone());
    let inside = absolute.strip_prefix(&root).ok().map(|inside| {
        inside
            .iter()
            .map(|part| part.to_string_lossy())
            .collect::<Vec<_>>()
            .join("/")
    });
    match inside {
        Some(inside) => {
            let model = model_of(&inside);
            (inside, model)
        }
        None => {
            let name = path
                .file_name()
                .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
            let model = file_model(&name).to_owned();
            (name, model)
        }
    }
}

/// Answers for one file.
pub fn analyse(index: &Index, query: &QueryFile, options: Options) -> Analysis {
    let code = &query.code;
    let rankings = Query::new(index, code, options.only_older).rank(options.top);
    let parent = choose_parent(
        index,
        rankings.iter().map(|ranking| ranking.best.as_slice()),
    );
    let likeliest: Vec<Option<Candidate>> = rankings
        .iter()
        .map(|ranking| skeleton_parent(index, &ranking.best, parent.as_ref()))
        .collect();
    let mut sources = Sources {
        index,
        texts: FxHashMap::default(),
        twins: twins(index, query, &likeliest),
    };
    let mut findings = Vec::with_capacity(rankings.len());
    for (definition, ranking) in code.definitions.iter().zip(&rankings) {
        let first = ranking.best.first().copied();
        let difference =
            first.and_then(|candidate| sources.difference(query, definition, candidate));
        findings.push(Finding {
            name: definition.name.clone(),
            kind: definition.kind,
            line: definition.line,
            best: matches(index, &ranking.best, options),
            jaccard: ranking
                .jaccard
                .iter()
                .map(|&(entry, score)| Scored {
                    name: index.name(entry),
                    score,
                })
                .collect(),
            embedding: None,
            difference,
        });
    }
    let skeleton = skeleton::write(query, index, &likeliest, &mut sources);
    Analysis {
        file: query.file_name().to_owned(),
        model: code.model.clone(),
        dates: index.dates_of(&code.model),
        findings,
        parent,
        skeleton,
    }
}

/// The classes of the query that take the place of one in another file, by that file's number.
fn twins(
    index: &Index,
    query: &QueryFile,
    likeliest: &[Option<Candidate>],
) -> FxHashMap<u32, Twins> {
    let mut twins: FxHashMap<u32, Twins> = FxHashMap::default();
    for (definition, candidate) in query.code.definitions.iter().zip(likeliest) {
        let Some(candidate) = candidate else { continue };
        let other = &index.definition(candidate.entry).name;
        if definition.kind == Kind::Class
            && candidate.similarity() >= skeleton::LEAST_SIMILAR_PARENT
        {
            let of_file = twins.entry(index.file_number(candidate.entry)).or_default();
            of_file.insert(definition.name.clone(), other.clone());
        }
    }
    twins
}

/// The candidate for the skeleton: an identical definition of the file's parent before the best one.
fn skeleton_parent(
    index: &Index,
    best: &[Candidate],
    parent: Option<&Parent>,
) -> Option<Candidate> {
    let first = best.first().copied()?;
    let in_parent = best.iter().find(|c| {
        parent.is_some_and(|p| index.file(c.entry).path == p.file)
            && c.identical()
            && first.identical()
    });
    Some(in_parent.copied().unwrap_or(first))
}

fn matches(index: &Index, best: &[Candidate], options: Options) -> Vec<Match> {
    let mut lowest = 1.0f32;
    let mut seen = rustc_hash::FxHashSet::default();
    best.iter()
        .filter(|candidate| !options.one_per_group || seen.insert(index.exact(candidate.entry)))
        .take(options.top)
        .map(|candidate| {
            let similarity = candidate.similarity();
            lowest = lowest.min(similarity);
            Match {
                name: index.name(candidate.entry),
                score: lowest,
                similarity,
                probability: candidate.probability,
                identical: candidate.identical(),
                line: index.definition(candidate.entry).line,
                dates: index.dates(candidate.entry),
                clones: index.clones(index.exact(candidate.entry)).len() - 1,
            }
        })
        .collect()
}

/// The model whose file is expected to be the parent of the most definitions.
fn choose_parent<'a>(
    index: &Index,
    rankings: impl Iterator<Item = &'a [Candidate]>,
) -> Option<Parent> {
    let mut models: FxHashMap<u32, f32> = FxHashMap::default();
    let mut files: FxHashMap<u32, (f32, EntryId)> = FxHashMap::default();
    for candidate in rankings.flatten() {
        *models.entry(index.model_of(candidate.entry)).or_insert(0.0) += candidate.probability;
        files
            .entry(index.file_number(candidate.entry))
            .or_insert((0.0, candidate.entry))
            .0 += candidate.probability;
    }
    let (model, expected) = models
        .into_iter()
        .max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)))?;
    let (_, entry) = files
        .into_values()
        .filter(|&(_, entry)| index.model_of(entry) == model)
        .max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)))?;
    let file = index.file(entry);
    Some(Parent {
        model: file.model.clone(),
        file: file.path.clone(),
        expected,
        dates: index.dates(entry),
    })
}

/// The source texts of the index's files, read when they are needed.
pub(crate) struct Sources<'a> {
    index: &'a Index,
    texts: FxHashMap<String, Option<String>>,
    twins: FxHashMap<u32, Twins>,
}

impl Sources<'_> {
    /// The classes of the query that take the place of one in the entry's file.
    pub(crate) fn twins(&self, entry: EntryId) -> Twins {
        self.twins
            .get(&self.index.file_number(entry))
            .cloned()
            .unwrap_or_default()
    }

    /// The text of an indexed definition, if its file can still be read.
    pub(crate) fn text(&mut self, entry: EntryId) -> Option<&str> {
        let file = self.index.file(entry);
        let definition = self.index.definition(entry);
        let path = self.index.layout().root.join(&file.path);
        let text = self
            .texts
            .entry(file.path.clone())
            .or_insert_with(|| read_source(&path).ok());
        text.as_deref()?
            .get(definition.start as usize..definition.end as usize)
    }

    fn difference(
        &mut self,
        query: &QueryFile,
        definition: &Definition,
        candidate: Candidate,
    ) -> Option<Difference> {
        if candidate.identical() {
            return Some(Difference::default());
        }
        let parent_name = self.index.definition(candidate.entry).name.clone();
        let parent_names = self.index.file(candidate.entry).names.clone();
        let parent = Snippet::new(self.text(candidate.entry)?);
        let child = Snippet::new(
            query
                .source
                .get(definition.start as usize..definition.end as usize)?,
        );
        let twins = self.twins(candidate.entry);
        let alignment = Alignment::new(
            (&query.code.names, &definition.name),
            (&parent_names, &parent_name),
            &twins,
        );
        let lines = difference(
            &alignment.parent(&parent.lines()),
            &alignment.child(&child.lines()),
        );
        Some(Difference { lines })
    }
}
