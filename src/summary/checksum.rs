//! The checksum of elements: their bit patterns, each weighed by its place.
//!
//! `sum over k of (k + 1) * bits_k mod 2^64` can be taken in any order, so that it also finds
//! elements that changed places.

use super::tile::TILE;

/// The bit pattern of one element.
pub(super) trait Word: Copy {
    /// What a tile's words have added up to.
    type Checksum: Default;

    /// Takes in the words that follow; any but a tile's last are a multiple of 32 words.
    fn accumulate(sum: &mut Self::Checksum, words: &[Self]);

    /// The checksum of all words, where the first one has logical index `start`.
    fn checksum(sum: &Self::Checksum, start: usize) -> u64;
}

/// Words that are added in one vector.
const LANES: usize = 16;

/// Two narrow words at a time in lanes of 32 bits, which hold the sums of one tile.
#[derive(Default)]
pub(super) struct Pairs {
    /// Of both words of a pair.
    sums: [u32; LANES],
    sums_of_sums: [u32; LANES],
    /// Of the second words, each of which weighs one more than its first.
    seconds: [u32; LANES],
    /// Full rows so far.
    rows: u64,
    /// Of the words after the last full row, where the first word counts as the tensor's first.
    rest: u64,
    rest_sum: u64,
}

// The largest sum of sums, of a tile's rows of pairs of the largest words.
const _: () = {
    let rows = (TILE / (2 * LANES)) as u64;
    assert!(rows * (rows + 1) / 2 * 2 * (u16::MAX as u64) <= u32::MAX as u64);
};

impl Word for u16 {
    type Checksum = Pairs;

    #[inline(always)]
    fn accumulate(all: &mut Pairs, words: &[Self]) {
        let (rows, rest) = words.as_chunks::<{ 2 * LANES }>();
        let (mut sums, mut sums_of_sums) = (all.sums, all.sums_of_sums);
        let mut seconds = all.seconds;
        for row in rows {
            let bytes: &[[u8; 4]; LANES] = bytemuck::cast_ref(row);
            for lane in 0..LANES {
                let pair = u32::from_ne_bytes(bytes[lane]);
                let (first, second) = if cfg!(target_endian = "little") {
                    (pair & 0xffff, pair >> 16)
                } else {
                    (pair >> 16, pair & 0xffff)
                };
                sums[lane] = sums[lane].wrapping_add(first + second);
                sums_of_sums[lane] = sums_of_sums[lane].wrapping_add(sums[lane]);
                seconds[lane] = seconds[lane].wrapping_add(second);
            }
        }
        (all.sums, all.sums_of_sums, all.seconds) = (sums, sums_of_sums, seconds);
        all.rows += rows.len() as u64;
        let before = all.rows * 2 * LANES as u64;
        for (k, &word) in rest.iter().enumerate() {
            all.rest += (before + k as u64 + 1) * u64::from(word);
            all.rest_sum += u64::from(word);
        }
    }

    #[inline(never)]
    fn checksum(all: &Pairs, start: usize) -> u64 {
        let start = start as u64;
        let mut total = all.rest.wrapping_add(all.rest_sum.wrapping_mul(start));
        for lane in 0..LANES {
            let sum = u64::from(all.sums[lane]);
            // After n rows the sum of sums holds the k-th row's pair n - k times.
            let rows_before = all.rows * sum - u64::from(all.sums_of_sums[lane]);
            total = total
                .wrapping_add(start.wrapping_add(2 * lane as u64 + 1).wrapping_mul(sum))
                .wrapping_add(2 * LANES as u64 * rows_before + u64::from(all.seconds[lane]));
        }
        total
    }
}

/// Bytes, a run at a time.
#[derive(Default)]
pub(super) struct Bytes {
    /// How many so far.
    count: u64,
    sum: u64,
    /// Where the first word counts as the tensor's first.
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

impl Word for u8 {
    type Checksum = Bytes;

    #[inline(always)]
    fn accumulate(all: &mut Bytes, words: &[Self]) {
        for run in words.chunks(RUN) {
            let (mut sum, mut weighted) = (0u32, 0u32);
            for (&word, &weight) in run.iter().zip(&WEIGHTS) {
                sum += u32::from(word);
                // Signed 16-bit factors have a vector instruction of their own.
                weighted += (i32::from(word as i16) * i32::from(weight as i16)) as u32;
            }
            all.weighted += u64::from(weighted) + all.count * u64::from(sum);
            all.sum += u64::from(sum);
            all.count += run.len() as u64;
        }
    }

    fn checksum(all: &Bytes, start: usize) -> u64 {
        all.weighted
            .wrapping_add(all.sum.wrapping_mul(start as u64))
    }
}

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
