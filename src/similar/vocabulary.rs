//! The distinct terms of an index, numbered, and the lists of definitions that contain each.
//!
//! It knows digests and numbers only; where they come from is told in [`super::terms`].

use rayon::prelude::*;

/// All distinct terms in ascending order, found by their leading bits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vocabulary {
    terms: Vec<u64>,
    /// `buckets[b]` is the number of terms whose leading bits are below `b`.
    buckets: Vec<u32>,
    shift: u32,
}

impl Vocabulary {
    /// Numbers the distinct terms among `terms`.
    pub fn of(mut terms: Vec<u64>) -> Self {
        terms.par_sort_unstable();
        terms.dedup();
        Self::from_sorted(terms)
    }

    /// Takes terms that are ascending and distinct.
    pub fn from_sorted(terms: Vec<u64>) -> Self {
        let bits = (usize::BITS - terms.len().leading_zeros()).clamp(1, 24);
        let shift = 64 - bits;
        let mut buckets = vec![0u32; (1 << bits) + 1];
        for term in &terms {
            buckets[(term >> shift) as usize + 1] += 1;
        }
        for at in 1..buckets.len() {
            buckets[at] += buckets[at - 1];
        }
        Self {
            terms,
            buckets,
            shift,
        }
    }

    /// The number of a term.
    pub fn number(&self, term: u64) -> Option<u32> {
        let bucket = (term >> self.shift) as usize;
        let (from, to) = (self.buckets[bucket], self.buckets[bucket + 1]);
        let within = self.terms[from as usize..to as usize]
            .binary_search(&term)
            .ok()?;
        Some(from + within as u32)
    }

    /// The terms, ascending; a term's number is its position.
    pub fn terms(&self) -> &[u64] {
        &self.terms
    }
}

/// For every term, the definitions that contain it and how often: the inverted index.
#[derive(Clone, Debug, Default)]
pub struct Postings {
    /// `starts[t]..starts[t + 1]` are the postings of term `t`.
    starts: Vec<u32>,
    definitions: Vec<u32>,
    counts: Vec<u16>,
}

impl Postings {
    /// Inverts the lists of terms: definition `d` has `numbers[ends[d - 1]..ends[d]]`.
    ///
    /// The caller guarantees that every number is below `vocabulary` and that `ends` ascends to the
    /// common length of `numbers` and `counts`.
    pub fn invert(vocabulary: usize, ends: &[u32], numbers: &[u32], counts: &[u16]) -> Self {
        let mut starts = vec![0u32; vocabulary + 1];
        for &number in numbers {
            starts[number as usize + 1] += 1;
        }
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let mut next = starts.clone();
        let mut inverted = Self {
            starts,
            definitions: vec![0; numbers.len()],
            counts: vec![0; numbers.len()],
        };
        let mut from = 0;
        for (definition, &end) in ends.iter().enumerate() {
            for at in from as usize..end as usize {
                let slot = &mut next[numbers[at] as usize];
                inverted.definitions[*slot as usize] = definition as u32;
                inverted.counts[*slot as usize] = counts[at];
                *slot += 1;
            }
            from = end;
        }
        inverted
    }

    /// The definitions that contain a term, ascending, with the term's count in each.
    pub fn of(&self, term: u32) -> impl Iterator<Item = (u32, u16)> + '_ {
        let range = self.starts[term as usize] as usize..self.starts[term as usize + 1] as usize;
        let counts = &self.counts[range.clone()];
        self.definitions[range]
            .iter()
            .copied()
            .zip(counts.iter().copied())
    }

    /// The number of definitions that contain a term.
    pub fn frequency(&self, term: u32) -> u32 {
        self.starts[term as usize + 1] - self.starts[term as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_term_is_found_and_no_other() {
        let terms: Vec<u64> = (0..5000u64)
            .map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15))
            .collect();
        let vocabulary = Vocabulary::of(terms.clone());
        for term in terms {
            let number = vocabulary.number(term).expect("a term of the vocabulary");
            assert_eq!(vocabulary.terms()[number as usize], term);
            assert_eq!(vocabulary.number(term ^ 1), None);
        }
        assert_eq!(Vocabulary::of(Vec::new()).number(7), None);
        assert_eq!(
            Vocabulary::of(vec![u64::MAX, 0, u64::MAX]).number(u64::MAX),
            Some(1)
        );
    }

    #[test]
    fn postings_invert_the_lists() {
        let postings = Postings::invert(4, &[2, 2, 5], &[0, 3, 0, 1, 3], &[1, 2, 3, 4, 5]);
        assert_eq!(postings.of(0).collect::<Vec<_>>(), [(0, 1), (2, 3)]);
        assert_eq!(postings.of(2).count(), 0);
        assert_eq!(postings.of(3).collect::<Vec<_>>(), [(0, 2), (2, 5)]);
        assert_eq!(postings.frequency(3), 2);
    }
}
