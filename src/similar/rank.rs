//! Which existing definition another one most likely comes from.
//!
//! Candidates are found by TF-IDF similarity and ordered by a linear utility of a few [`Features`]. The
//! softmax of the utilities over the candidates is the probability of being the parent. The weights
//! were fitted to known pairs of child and parent; `docs/similar.md` says how, and how well they do.

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use super::corpus::CodeFile;
use super::dates::Day;
use super::definitions::Kind;
use super::index::{EntryId, Heirs, Index, Overlap};
use super::naming::normalised;

/// The number of candidates that are weighed for one definition.
const CANDIDATES: usize = 60;
/// What one e-fold of heirs is worth in cosine when candidates are chosen.
const PRIOR_IN_COSINE: f32 = 0.03;
/// Candidates less similar than this are none.
const LEAST_SIMILARITY: f32 = 0.02;

/// The number of features.
pub const FEATURES: usize = 13;

/// The names of the features, in their order.
pub const FEATURE_NAMES: [&str; FEATURES] = [
    "cosine",
    "identical",
    "file_heirs",
    "same_role",
    "role_suffix",
    "family",
    "age_gap",
    "jaccard",
    "child_covered",
    "parent_covered",
    "recent_heirs",
    "size_ratio",
    "support",
];

/// The place of the support of the other definitions of the file, known only after a first pass.
const SUPPORT: usize = 12;

/// What speaks for a candidate, in the order of [`FEATURE_NAMES`].
pub type Features = [f32; FEATURES];

/// Weights of the first pass, without support.
const FIRST_WEIGHTS: Features = [
    7.55, 1.43, 0.78, -0.62, 1.67, 3.56, 0.19, 5.37, 7.03, 6.41, 0.53, 2.45, 0.00,
];
/// Weights of the second pass.
const WEIGHTS: Features = [
    8.99, 1.47, 0.20, -1.43, 2.66, 0.27, 0.59, 2.74, 3.90, 5.61, 0.23, 2.07, 2.00,
];

/// A possible parent of a definition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// The definition.
    pub entry: EntryId,
    /// What speaks for it.
    pub features: Features,
    /// The weighted sum of the features.
    pub utility: f32,
    /// The probability that it is the parent, given that one of the candidates is.
    pub probability: f32,
}

impl Candidate {
    /// The cosine similarity after renaming, in `0..=1`; one if the code is identical.
    pub fn similarity(&self) -> f32 {
        if self.identical() {
            1.0
        } else {
            self.features[0]
        }
    }

    /// Whether the code is the same after renaming.
    pub fn identical(&self) -> bool {
        self.features[1] > 0.0
    }
}

/// The query: a file's definitions, and which of the index may be its parents.
pub struct Query<'a> {
    index: &'a Index,
    file: &'a CodeFile,
    model: Option<u32>,
    date: Option<Day>,
    only_older: bool,
}

/// What was found for one definition of the query.
#[derive(Clone, Debug, Default)]
pub struct Ranking {
    /// The possible parents, best first.
    pub best: Vec<Candidate>,
    /// The highest Jaccard similarities of identifier sets, highest first, ties by age.
    pub jaccard: Vec<(EntryId, f64)>,
}

impl<'a> Query<'a> {
    /// A query for the definitions of a file. Candidates of the file's own model are left out, and
    /// with `only_older` those that came to the library after it, where both dates are known.
    pub fn new(index: &'a Index, file: &'a CodeFile, only_older: bool) -> Self {
        Self {
            index,
            file,
            model: index.model_number(&file.model),
            date: index.dates_of(&file.model).available(),
            only_older,
        }
    }

    /// Ranks the candidates of every definition; keeps `top` Jaccard similarities.
    pub fn rank(&self, top: usize) -> Vec<Ranking> {
        let mut rankings: Vec<Ranking> = (0..self.file.definitions.len())
            .into_par_iter()
            .map(|at| self.first_pass(at, top))
            .collect();
        self.second_pass(&mut rankings);
        rankings
    }

    /// The terms of a definition of the file; none if the file came without.
    fn terms(&self, at: usize) -> &[(u64, u16)] {
        self.file.terms.get(at).map_or(&[], Vec::as_slice)
    }

    fn first_pass(&self, at: usize, top: usize) -> Ranking {
        let kind = self.file.definitions[at].kind;
        let overlaps = self.index.overlaps(self.terms(at));
        let entries: Vec<EntryId> = (0..self.index.len() as EntryId)
            .filter(|&entry| overlaps[entry as usize].terms > 0 && self.admits(entry, kind))
            .collect();
        let jaccard = self.jaccard(at, &entries, &overlaps, top);
        let mut chosen: Vec<(f32, EntryId)> = entries
            .iter()
            .filter(|&&entry| self.is_early_enough(entry))
            .map(|&entry| {
                let heirs = self
                    .index
                    .heirs(entry)
                    .map_or(0, |heirs| heirs.without(self.model).count());
                (
                    overlaps[entry as usize].cosine + PRIOR_IN_COSINE * (heirs as f32).ln_1p(),
                    entry,
                )
            })
            .filter(|&(score, _)| score > LEAST_SIMILARITY)
            .collect();
        chosen.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        chosen.truncate(CANDIDATES);
        let mut best: Vec<Candidate> = chosen
            .into_iter()
            .map(|(_, entry)| Candidate {
                entry,
                features: self.features(at, entry, overlaps[entry as usize]),
                utility: 0.0,
                probability: 0.0,
            })
            .collect();
        self.weigh(&mut best, &FIRST_WEIGHTS);
        Ranking { best, jaccard }
    }

    /// Whether an entry is of the right kind and of another model.
    fn admits(&self, entry: EntryId, kind: Kind) -> bool {
        self.index.kind(entry) == kind && Some(self.index.model_of(entry)) != self.model
    }

    fn is_early_enough(&self, entry: EntryId) -> bool {
        match (self.date, self.index.dates(entry).available()) {
            (Some(own), Some(other)) if self.only_older => other <= own,
            _ => true,
        }
    }

    fn jaccard(
        &self,
        at: usize,
        entries: &[EntryId],
        overlaps: &[Overlap],
        top: usize,
    ) -> Vec<(EntryId, f64)> {
        let own = words(self.terms(at));
        let mut scores: Vec<(EntryId, f64)> = entries
            .iter()
            .filter_map(|&entry| {
                let both = u32::from(overlaps[entry as usize].words);
                let either = own + self.index.size(entry).1 - both;
                (both > 0).then(|| (entry, f64::from(both) / f64::from(either)))
            })
            .collect();
        let order = |a: &(EntryId, f64), b: &(EntryId, f64)| {
            b.1.total_cmp(&a.1)
                .then_with(|| self.index.age_key(a.0).cmp(&self.index.age_key(b.0)))
        };
        if top < scores.len() {
            scores.select_nth_unstable_by(top, order);
            scores.truncate(top);
        }
        scores.sort_unstable_by(order);
        scores
    }

    fn features(&self, at: usize, entry: EntryId, overlap: Overlap) -> Features {
        let index = self.index;
        let (terms, words_there) = index.size(entry);
        let own_terms = self.terms(at).len() as f32;
        let own_words = words(self.terms(at));
        let either = own_words + words_there - u32::from(overlap.words);
        let own_role = self.file.names.role(&self.file.definitions[at].name);
        let role = index.file(entry).names.role(&index.definition(entry).name);
        let own_model = normalised(&self.file.model);
        let model = normalised(&index.file(entry).model);
        let common = own_model
            .bytes()
            .zip(model.bytes())
            .take_while(|(a, b)| a == b)
            .count();
        let day = index.dates(entry).available();
        let age_gap = match (self.date, day) {
            (Some(own), Some(other)) => (own.ordinal() - other.ordinal()).max(0.0) / 365.0,
            _ => 0.0,
        };
        let heirs_of = |heirs: Option<&Heirs>| {
            heirs.map_or(0, |heirs| heirs.without(self.model).count()) as f32
        };
        let recent: f32 = index.heirs(entry).map_or(0.0, |heirs| {
            heirs.without(self.model).map(|day| self.recency(day)).sum()
        });
        [
            overlap.cosine,
            f32::from(u8::from(index.exact(entry) == self.file.exact[at])),
            heirs_of(index.file_heirs(entry)).ln_1p(),
            f32::from(u8::from(own_role.eq_ignore_ascii_case(role))),
            shared_suffix(own_role, role),
            common as f32 / own_model.len().max(1) as f32,
            age_gap.ln_1p(),
            f32::from(overlap.words) / either.max(1) as f32,
            f32::from(overlap.terms) / own_terms.max(1.0),
            f32::from(overlap.terms) / terms.max(1) as f32,
            recent.ln_1p(),
            (terms.max(1) as f32 / own_terms.max(1.0)).ln().abs(),
            0.0,
        ]
    }

    /// How much an heir says about what a model of the query's time inherits from: `exp` of minus
    /// the years between them. Without a date of its own the query is taken to be new.
    fn recency(&self, heir: Option<Day>) -> f32 {
        const NEW: f32 = 2026.6 * 365.25;
        let own = self.date.map_or(NEW, Day::ordinal);
        let heir = heir.map_or(NEW, Day::ordinal);
        (-(own - heir).abs() / 365.0).exp()
    }

    /// Sets utilities and probabilities and sorts; equal utilities by age.
    fn weigh(&self, candidates: &mut [Candidate], weights: &Features) {
        for candidate in candidates.iter_mut() {
            candidate.utility = candidate
                .features
                .iter()
                .zip(weights)
                .map(|(f, w)| f * w)
                .sum();
        }
        candidates.sort_by(|a, b| {
            b.utility.total_cmp(&a.utility).then_with(|| {
                self.index
                    .age_key(a.entry)
                    .cmp(&self.index.age_key(b.entry))
            })
        });
        let Some(highest) = candidates.first().map(|c| c.utility) else {
            return;
        };
        let mut sum = 0.0;
        for candidate in candidates.iter_mut() {
            candidate.probability = (candidate.utility - highest).exp();
            sum += candidate.probability;
        }
        for candidate in candidates.iter_mut() {
            candidate.probability /= sum;
        }
    }

    /// Lets the definitions of the file agree: a parent's file that the others point to gains.
    fn second_pass(&self, rankings: &mut [Ranking]) {
        let per_definition: Vec<FxHashMap<u32, f32>> = rankings
            .iter()
            .map(|ranking| {
                let mut files = FxHashMap::default();
                for candidate in &ranking.best {
                    *files
                        .entry(self.index.file_number(candidate.entry))
                        .or_insert(0.0) += candidate.probability;
                }
                files
            })
            .collect();
        let kinds = self.file.definitions.iter().map(|d| d.kind);
        let mut total: FxHashMap<u32, f32> = FxHashMap::default();
        for (files, _) in per_definition
            .iter()
            .zip(kinds)
            .filter(|(_, kind)| *kind == Kind::Class)
        {
            for (&file, &probability) in files {
                *total.entry(file).or_insert(0.0) += probability;
            }
        }
        for (at, ranking) in rankings.iter_mut().enumerate() {
            let is_class = self.file.definitions[at].kind == Kind::Class;
            for candidate in &mut ranking.best {
                let file = self.index.file_number(candidate.entry);
                let own = if is_class {
                    per_definition[at].get(&file).copied().unwrap_or(0.0)
                } else {
                    0.0
                };
                let others = total.get(&file).copied().unwrap_or(0.0) - own;
                candidate.features[SUPPORT] = others.max(0.0).ln_1p();
            }
            self.weigh(&mut ranking.best, &WEIGHTS);
        }
    }
}

/// The number of distinct identifiers among terms.
fn words(terms: &[(u64, u16)]) -> u32 {
    terms
        .iter()
        .filter(|(term, _)| super::terms::is_word(*term))
        .count() as u32
}

/// The share of the candidate's role, in words, that the child's role ends with: all of `Attention`
/// for `TextAttention`.
fn shared_suffix(child: &str, parent: &str) -> f32 {
    let parent_words = role_words(parent);
    let shared = role_words(child)
        .iter()
        .rev()
        .zip(parent_words.iter().rev())
        .take_while(|(a, b)| a.eq_ignore_ascii_case(b))
        .count();
    shared as f32 / parent_words.len().max(1) as f32
}

/// Splits `MoEMLPBlock` into `MoE`, `MLP`, `Block` and `rotate_half` into `rotate`, `half`.
fn role_words(role: &str) -> Vec<&str> {
    let bytes = role.as_bytes();
    let mut words = Vec::new();
    let mut start = 0;
    for at in 1..=bytes.len() {
        let boundary = match bytes.get(at) {
            None => true,
            Some(b'_' | b'.') => true,
            Some(here) => {
                let before = bytes[at - 1];
                let after = bytes.get(at + 1);
                matches!(before, b'_' | b'.')
                    || (here.is_ascii_uppercase()
                        && (!before.is_ascii_uppercase()
                            || after.is_some_and(u8::is_ascii_lowercase)))
            }
        };
        if boundary && role.is_char_boundary(at) && role.is_char_boundary(start) {
            let word = &role[start..at];
            if !word.is_empty() && word != "_" && word != "." {
                words.push(word);
            }
            start = at;
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_split_into_words() {
        assert_eq!(
            role_words("TextSelfMLPBlock"),
            ["Text", "Self", "MLP", "Block"]
        );
        assert_eq!(role_words("rotate_half"), ["rotate", "half"]);
        assert_eq!(role_words("Conv2dLayer"), ["Conv2d", "Layer"]);
        assert_eq!(role_words("Modèle.forward"), ["Modèle", "forward"]);
        assert!(role_words("").is_empty());
    }

    #[test]
    fn a_suffix_is_shared_word_by_word() {
        assert_eq!(shared_suffix("TextAttention", "Attention"), 1.0);
        assert_eq!(shared_suffix("Attention", "TextAttention"), 0.5);
        assert_eq!(shared_suffix("Mention", "Attention"), 0.0);
    }
}
