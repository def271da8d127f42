//! The index that definitions are looked up in: a [`Corpus`] and everything derived from it.
//!
//! Only the corpus is kept on disk. Term numbers, postings, weights, clone groups and the inheritance
//! prior depend on more than one file and are made anew when an index is opened.

use std::path::Path;

use rayon::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use super::corpus::{CodeFile, Corpus};
use super::dates::{Day, ModelDates};
use super::definitions::{Definition, Kind};
use super::naming::normalised;
use super::source::Layout;
use super::terms::is_word;
use super::vocabulary::{Postings, Vocabulary};

/// The number of an indexed definition.
pub type EntryId = u32;

/// Who inherits from one definition or file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heirs(Vec<(u32, Option<Day>)>);

impl Heirs {
    /// The heirs outside one model: the number of the model and when it came to the library.
    pub(crate) fn without(&self, model: Option<u32>) -> impl Iterator<Item = Option<Day>> + '_ {
        self.0
            .iter()
            .filter(move |(heir, _)| Some(*heir) != model)
            .map(|&(_, day)| day)
    }

    fn add(&mut self, model: u32, day: Option<Day>) {
        if !self.0.iter().any(|&(known, _)| known == model) {
            self.0.push((model, day));
        }
    }
}

/// The terms of all definitions, numbered by a common vocabulary.
///
/// Every number is below the vocabulary's length; `ends` ascends to the common length of `numbers` and
/// `counts`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TermLists {
    pub(crate) vocabulary: Vocabulary,
    /// Where each definition's list ends.
    pub(crate) ends: Vec<u32>,
    pub(crate) numbers: Vec<u32>,
    pub(crate) counts: Vec<u16>,
}

impl TermLists {
    fn of(corpus: &Corpus) -> Self {
        let all: Vec<u64> = corpus
            .code
            .par_iter()
            .flat_map_iter(|file| file.terms.iter().flatten().map(|&(term, _)| term))
            .collect();
        let vocabulary = Vocabulary::of(all);
        let lists = || corpus.code.iter().flat_map(|file| &file.terms);
        let ends = lists()
            .scan(0u32, |end, terms| {
                *end += terms.len() as u32;
                Some(*end)
            })
            .collect();
        let numbers = corpus
            .code
            .par_iter()
            .flat_map_iter(|file| file.terms.iter().flatten())
            .filter_map(|&(term, _)| vocabulary.number(term))
            .collect();
        let counts = lists().flatten().map(|&(_, count)| count).collect();
        Self {
            vocabulary,
            ends,
            numbers,
            counts,
        }
    }

    /// Gives a corpus that was loaded without them its terms back.
    pub(crate) fn restore(&self, corpus: &mut Corpus) {
        let mut from = 0;
        let mut ends = self.ends.iter();
        for file in &mut corpus.code {
            file.terms = ends
                .by_ref()
                .take(file.definitions.len())
                .map(|&end| {
                    let range = std::mem::replace(&mut from, end as usize)..end as usize;
                    let numbers = self.numbers[range.clone()].iter();
                    let terms = numbers.map(|&number| self.vocabulary.terms()[number as usize]);
                    terms.zip(self.counts[range].iter().copied()).collect()
                })
                .collect();
        }
    }
}

/// An index of the definitions of a repository.
pub struct Index {
    layout: Layout,
    corpus: Corpus,
    /// The file and the position in the file of each entry.
    entries: Vec<(u32, u32)>,
    lists: TermLists,
    postings: Postings,
    /// The inverse document frequency of each term.
    idf: Vec<f32>,
    /// The length of each entry's TF-IDF vector.
    lengths: Vec<f32>,
    /// The number of distinct terms and of distinct identifiers of each entry.
    sizes: Vec<(u32, u32)>,
    models: FxHashMap<String, u32>,
    /// The model of each file.
    file_models: Vec<u32>,
    dates: FxHashMap<String, ModelDates>,
    /// The dates of each file's model.
    file_dates: Vec<ModelDates>,
    clones: FxHashMap<u64, Vec<EntryId>>,
    by_name: FxHashMap<String, EntryId>,
    heirs: FxHashMap<EntryId, Heirs>,
    file_heirs: FxHashMap<u32, Heirs>,
}

/// `1 + ln(count)`: a term that occurs more often counts more, but not in proportion.
pub(crate) fn term_weight(count: u16) -> f32 {
    1.0 + f32::from(count.max(1)).ln()
}

/// The inverse document frequency of a term in `frequency` of `total` definitions.
fn inverse_frequency(total: usize, frequency: u32) -> f32 {
    ((total as f32 + 1.0) / (frequency as f32 + 1.0)).ln() + 1.0
}

impl Index {
    /// Reads a repository from nothing.
    pub fn build(folder: &Path, methods: bool, done: &(dyn Fn() + Sync)) -> Self {
        let layout = Layout::of(folder);
        let corpus = Corpus::read(&layout, methods, done);
        Self::derive(layout, corpus)
    }

    /// Derives everything else from a corpus that was read.
    pub fn derive(layout: Layout, corpus: Corpus) -> Self {
        let lists = TermLists::of(&corpus);
        Self::assemble(layout, corpus, lists)
    }

    /// Derives everything else from a corpus and its terms, numbered.
    ///
    /// The caller guarantees what [`TermLists`] promises, with one list for every definition.
    pub(crate) fn assemble(layout: Layout, corpus: Corpus, lists: TermLists) -> Self {
        let TermLists {
            vocabulary,
            ends,
            numbers,
            counts,
        } = lists;
        let entries: Vec<(u32, u32)> = (0u32..)
            .zip(&corpus.code)
            .flat_map(|(file, code)| (0..code.definitions.len() as u32).map(move |at| (file, at)))
            .collect();
        let postings = Postings::invert(vocabulary.terms().len(), &ends, &numbers, &counts);
        let idf: Vec<f32> = (0..vocabulary.terms().len() as u32)
            .map(|term| inverse_frequency(entries.len(), postings.frequency(term)))
            .collect();
        let mut lengths = Vec::with_capacity(entries.len());
        let mut sizes = Vec::with_capacity(entries.len());
        let mut from = 0;
        for &end in &ends {
            let range = from as usize..end as usize;
            let squares: f32 = numbers[range.clone()]
                .iter()
                .zip(&counts[range.clone()])
                .map(|(&number, &count)| (term_weight(count) * idf[number as usize]).powi(2))
                .sum();
            lengths.push(squares.sqrt());
            let words = numbers[range]
                .iter()
                .filter(|&&n| is_word(vocabulary.terms()[n as usize]))
                .count();
            sizes.push((end - from, words as u32));
            from = end;
        }
        let mut index = Self {
            layout,
            entries,
            postings,
            lists: TermLists {
                vocabulary,
                ends,
                numbers,
                counts,
            },
            idf,
            lengths,
            sizes,
            models: FxHashMap::default(),
            file_models: Vec::new(),
            dates: corpus.dates(),
            file_dates: Vec::new(),
            clones: FxHashMap::default(),
            by_name: FxHashMap::default(),
            heirs: FxHashMap::default(),
            file_heirs: FxHashMap::default(),
            corpus,
        };
        index.relate();
        index
    }

    /// Numbers the models and connects definitions to their clones and heirs.
    fn relate(&mut self) {
        for file in &self.corpus.code {
            let next = self.models.len() as u32;
            self.file_models
                .push(*self.models.entry(normalised(&file.model)).or_insert(next));
            self.file_dates.push(self.dates_of(&file.model));
        }
        for (entry, &(file, at)) in self.entries.iter().enumerate() {
            let code = &self.corpus.code[file as usize];
            self.clones
                .entry(code.exact[at as usize])
                .or_default()
                .push(entry as EntryId);
            let name = format!("{}:{}", code.path, code.definitions[at as usize].name);
            self.by_name.entry(name).or_insert(entry as EntryId);
        }
        let files: FxHashMap<&str, u32> = (0u32..)
            .zip(&self.corpus.code)
            .map(|(at, file)| (file.path.as_str(), at))
            .collect();
        for modular in &self.corpus.modular {
            let next = self.models.len() as u32;
            let heir = *self
                .models
                .entry(normalised(&modular.model))
                .or_insert(next);
            let day = self.dates_of(&modular.model).available();
            for inheritance in &modular.inheritances {
                if let Some(&file) = files.get(inheritance.parent_file.as_str()) {
                    self.file_heirs.entry(file).or_default().add(heir, day);
                }
                let name = format!("{}:{}", inheritance.parent_file, inheritance.parent);
                if let Some(&entry) = self.by_name.get(&name) {
                    self.heirs.entry(entry).or_default().add(heir, day);
                }
            }
        }
    }

    /// The dates of a model, from its page or from the page of the family it is a part of
    /// (`vitpose` for `vitpose_backbone`).
    pub fn dates_of(&self, model: &str) -> ModelDates {
        let mut name = model;
        loop {
            if let Some(dates) = self.dates.get(&normalised(name)) {
                return *dates;
            }
            match name.rsplit_once(['_', '-']) {
                Some((shorter, _)) => name = shorter,
                None => return ModelDates::default(),
            }
        }
    }

    /// Where the code lies.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(crate) fn lists(&self) -> &TermLists {
        &self.lists
    }

    /// What was read.
    pub fn corpus(&self) -> &Corpus {
        &self.corpus
    }

    /// The number of definitions.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no definition at all.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The file of an entry.
    pub fn file(&self, entry: EntryId) -> &CodeFile {
        &self.corpus.code[self.entries[entry as usize].0 as usize]
    }

    /// A file of the index as a query reads it, with the terms of its definitions, which an index
    /// that was loaded keeps apart.
    pub fn file_with_terms(&self, number: u32) -> CodeFile {
        let mut file = self.corpus.code[number as usize].clone();
        let first = self.entries.partition_point(|&(other, _)| other < number);
        let end = |entry: usize| self.lists.ends.get(entry).map_or(0, |&end| end as usize);
        file.terms = (first..first + file.definitions.len())
            .map(|entry| {
                let range = entry.checked_sub(1).map_or(0, end)..end(entry);
                let numbers = self.lists.numbers[range.clone()].iter();
                let terms = numbers.map(|&number| self.lists.vocabulary.terms()[number as usize]);
                terms
                    .zip(self.lists.counts[range].iter().copied())
                    .collect()
            })
            .collect();
        file
    }

    /// The definition of an entry.
    pub fn definition(&self, entry: EntryId) -> &Definition {
        let (file, at) = self.entries[entry as usize];
        &self.corpus.code[file as usize].definitions[at as usize]
    }

    /// The kind of an entry.
    pub(crate) fn kind(&self, entry: EntryId) -> Kind {
        self.definition(entry).kind
    }

    /// The full name of an entry: `llama/modeling_llama.py:LlamaRMSNorm`.
    pub fn name(&self, entry: EntryId) -> String {
        format!("{}:{}", self.file(entry).path, self.definition(entry).name)
    }

    /// The entry of a full name.
    pub fn find(&self, name: &str) -> Option<EntryId> {
        self.by_name.get(name).copied()
    }

    /// The digest of an entry's renamed tokens.
    pub fn exact(&self, entry: EntryId) -> u64 {
        let (file, at) = self.entries[entry as usize];
        self.corpus.code[file as usize].exact[at as usize]
    }

    /// The entries that are identical after renaming, oldest model first.
    pub fn clones(&self, exact: u64) -> Vec<EntryId> {
        let mut group = self.clones.get(&exact).cloned().unwrap_or_default();
        group.sort_by_key(|&entry| self.age_key(entry));
        group
    }

    /// The dates of an entry's model.
    pub fn dates(&self, entry: EntryId) -> ModelDates {
        self.file_dates[self.entries[entry as usize].0 as usize]
    }

    /// Orders entries by age, those without a date last, and then by name.
    pub(crate) fn age_key(&self, entry: EntryId) -> (bool, Option<Day>, EntryId) {
        let day = self.dates(entry).available();
        (day.is_none(), day, entry)
    }

    pub(crate) fn file_number(&self, entry: EntryId) -> u32 {
        self.entries[entry as usize].0
    }

    pub(crate) fn model_number(&self, model: &str) -> Option<u32> {
        self.models.get(&normalised(model)).copied()
    }

    pub(crate) fn model_of(&self, entry: EntryId) -> u32 {
        self.file_models[self.entries[entry as usize].0 as usize]
    }

    pub(crate) fn heirs(&self, entry: EntryId) -> Option<&Heirs> {
        self.heirs.get(&entry)
    }

    pub(crate) fn file_heirs(&self, entry: EntryId) -> Option<&Heirs> {
        self.file_heirs.get(&self.file_number(entry))
    }

    /// The number of distinct terms and of distinct identifiers of an entry.
    pub(crate) fn size(&self, entry: EntryId) -> (u32, u32) {
        self.sizes[entry as usize]
    }

    /// What a definition shares with every entry of the index.
    pub(crate) fn overlaps(&self, terms: &[(u64, u16)]) -> Vec<Overlap> {
        let mut overlaps = vec![Overlap::default(); self.entries.len()];
        let mut squares = 0.0f32;
        for &(term, count) in terms {
            let Some(number) = self.lists.vocabulary.number(term) else {
                squares += (term_weight(count) * inverse_frequency(self.entries.len(), 0)).powi(2);
                continue;
            };
            let idf = self.idf[number as usize];
            let weight = term_weight(count) * idf;
            squares += weight.powi(2);
            let word = u16::from(is_word(term));
            for (entry, count) in self.postings.of(number) {
                let overlap = &mut overlaps[entry as usize];
                // Most terms occur once, where the weight is one.
                let other = if count == 1 { 1.0 } else { term_weight(count) };
                overlap.cosine += weight * idf * other;
                overlap.terms = overlap.terms.saturating_add(1);
                overlap.words = overlap.words.saturating_add(word);
            }
        }
        let length = squares.sqrt();
        for (overlap, other) in overlaps.iter_mut().zip(&self.lengths) {
            if overlap.terms > 0 {
                overlap.cosine = (overlap.cosine / (length * other)).min(1.0);
            }
        }
        overlaps
    }

    /// The folders that hold models, as they are written.
    pub fn model_names(&self) -> FxHashSet<&str> {
        self.corpus
            .code
            .iter()
            .map(|file| file.model.as_str())
            .collect()
    }
}

/// What two definitions have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Overlap {
    /// The cosine of the TF-IDF vectors, in `0..=1`.
    pub(crate) cosine: f32,
    /// The number of distinct terms in both.
    pub(crate) terms: u16,
    /// The number of distinct identifiers in both.
    pub(crate) words: u16,
}
