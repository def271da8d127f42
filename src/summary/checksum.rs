//! The checksum of elements: their bit patterns, each weighed by its place.
//!
//! `sum over k of (k + 1) * bits_k mod 2^64` can be taken in any order, so that it also finds
//! elements that changed places.

/// The bit pattern of one element.
pub(super) trait Word: Copy {
    /// What a tile's words have added up to.
    type Checksum: Default;

    /// Takes in the words that follow; any but a tile's last have a multiple of 16 words.
    fn accumulate(sum: &mut Self::Checksum, words: &[Self]);

    /// The checksum of all words, where the first one has logical index `start`.
    fn checksum(sum: &Self::Checksum, start: usize) -> u64;
}

/// A checksum whose first word counts as the tensor's first.
#[derive(Default)]
pub(super) struct Narrow {
    /// How many words.
    count: u64,
    /// Their plain sum.
    sum: u64,
    weighted: u64,
}

/// Words of a run: weights that fit 16 bits, and sums that fit 32.
const RUN: usize = 256;

const WEIGHTS: [u16; RUN] = {
    let mut weights = [0; RUN];
    let mut k = 0;
    while k < RUN {
        weights[k] = k as u16 + 1;
        k += 1;
    }
    weights
};

/// Narrow words: partial sums fit 32 bits over so many elements that the vectors stay narrow too.
macro_rules! narrow_word {
    ($($word:ty)*) => {$(
        impl Word for $word {
            type Checksum = Narrow;

            #[inline(always)]
            fn accumulate(all: &mut Narrow, words: &[Self]) {
                for run in words.chunks(RUN) {
                    let (mut sum, mut weighted) = (0u32, 0u32);
                    for (&word, &weight) in run.iter().zip(&WEIGHTS) {
                        sum += u32::from(word);
                        // At most 256 * 257 / 2 * (2^16 - 1) < 2^32 in all.
                        weighted += u32::from(word) * u32::from(weight);
                    }
                    all.weighted = all
                        .weighted
                        .wrapping_add(u64::from(weighted))
                        .wrapping_add(all.count.wrapping_mul(u64::from(sum)));
                    all.sum += u64::from(sum);
                    all.count += run.len() as u64;
                }
            }

            fn checksum(all: &Narrow, start: usize) -> u64 {
                all.weighted.wrapping_add(all.sum.wrapping_mul(start as u64))
            }
        }
    )*};
}

narrow_word! { u8 u16 }

/// Words that are added in one vector.
const LANES: usize = 16;

/// Sums of sums weigh the elements without a multiplication: after n rows the second sum of a lane
/// holds the k-th row's element n - k times.
#[derive(Default)]
pub(super) struct Wide {
    sums: [u64; LANES],
    sums_of_sums: [u64; LANES],
    /// Full rows so far.
    rows: u64,
    /// Of the words after the last full row, where the first word counts as the tensor's first.
    rest: u64,
    rest_sum: u64,
}

macro_rules! wide_word {
    ($($word:ty)*) => {$(
        impl Word for $word {
            type Checksum = Wide;

            #[inline(always)]
            fn accumulate(all: &mut Wide, words: &[Self]) {
                let (rows, rest) = words.as_chunks::<LANES>();
                let (mut sums, mut sums_of_sums) = (all.sums, all.sums_of_sums);
                for row in rows {
                    for lane in 0..LANES {
                        sums[lane] = sums[lane].wrapping_add(u64::from(row[lane]));
                        sums_of_sums[lane] = sums_of_sums[lane].wrapping_add(sums[lane]);
                    }
                }
                (all.sums, all.sums_of_sums) = (sums, sums_of_sums);
                all.rows += rows.len() as u64;
                for (k, &word) in rest.iter().enumerate() {
                    let weight = all.rows * LANES as u64 + k as u64 + 1;
                    all.rest = all.rest.wrapping_add(weight.wrapping_mul(u64::from(word)));
                    all.rest_sum = all.rest_sum.wrapping_add(u64::from(word));
                }
            }

            fn checksum(all: &Wide, start: usize) -> u64 {
                all.finish(start as u64)
            }
        }
    )*};
}

wide_word! { u32 u64 }

impl Wide {
    /// Kept out of the loops: inlined, its own order would reach into them as shuffles.
    #[inline(never)]
    fn finish(&self, start: u64) -> u64 {
        let mut total = self.rest.wrapping_add(self.rest_sum.wrapping_mul(start));
        for lane in 0..LANES {
            let first = start.wrapping_add(lane as u64 + 1);
            let rows_before = self
                .rows
                .wrapping_mul(self.sums[lane])
                .wrapping_sub(self.sums_of_sums[lane]);
            total = total
                .wrapping_add(first.wrapping_mul(self.sums[lane]))
                .wrapping_add((LANES as u64).wrapping_mul(rows_before));
        }
        total
    }
}
