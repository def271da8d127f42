//! A tile's partial result as the kernel leaves it, and how those of a tensor become its summary.
//!
//! The last step is taken here, in double precision, because few devices have it.

use super::storage::{Class, Format, Storage};
use crate::summary::Summary;
use crate::summary::moments::Moments;
use crate::summary::reduce::{float_summary, integer_summary, rescale};
use crate::summary::tile::{Extreme, Partial};

/// Elements of a tile. Counts of them fit 16 bits, and sums of squared distances of 64 bits 5 words.
pub(super) const TILE: u32 = 4096;

/// Where the numbers of a partial result are, in words.
pub(super) mod word {
    /// Zeros, and NaNs from bit 16.
    pub const ZEROS_NANS: u32 = 0;
    /// Positive infinities, and negative ones from bit 16.
    pub const INFINITIES: u32 = 1;
    /// Index of the first NaN or infinity in the tile, or all ones.
    pub const FIRST_NON_FINITE: u32 = 2;
    /// Two words.
    pub const CHECKSUM: u32 = 3;
    /// The lowest key; two words. Meaningless where a number is NaN, as are all the words below.
    pub const MIN: u32 = 5;
    /// The highest key; two words.
    pub const MAX: u32 = 7;
    /// The exponent field of the greatest magnitude, and from bit 16 the shift of distances.
    pub const SCALE: u32 = 9;
    /// Sum of the distances from the lowest number, in units of the scale; three words.
    pub const SUM: u32 = 10;
    /// Of floats of at most 4 bytes, the sum of the same distances, each shifted; two words.
    pub const COARSE_SUM: u32 = 13;
    /// Sum of the squares of the distances, of the shifted ones if there are any; five words.
    pub const SQUARES: u32 = 15;
}

/// Words of a partial result.
pub(super) const PARTIAL_WORDS: u32 = 20;

/// How many tiles a tensor has.
pub(super) fn tile_count(count: u32) -> u32 {
    count.div_ceil(TILE)
}

/// The summary of a tensor of `count` elements, from the partial results of its tiles in order.
pub(super) fn summary(storage: Storage, count: u32, words: &[u32]) -> Summary {
    let format = storage.format();
    let tiles = words.chunks_exact(PARTIAL_WORDS as usize);
    let tiles = tiles.enumerate().map(|(index, words)| {
        let start = index as u32 * TILE;
        Tile {
            format,
            words,
            start,
            count: TILE.min(count.saturating_sub(start)),
        }
    });
    let summary = if format.is_float() {
        let merged = |scale| merge(tiles.clone().map(|tile| tile.float_partial(scale)));
        merged(1.0).map(|partial| {
            let greatest = partial.min.abs().max(partial.max.abs());
            let finite = partial.nan + partial.pos_inf + partial.neg_inf == 0;
            // The squares of extreme double precision numbers need another scale.
            let scale = rescale(greatest).filter(|_| finite && format.wide());
            let scale = scale.unwrap_or(1.0);
            let partial = if scale == 1.0 {
                partial
            } else {
                merged(scale).unwrap_or(partial)
            };
            float_summary(u64::from(count), &partial, scale)
        })
    } else {
        merge(tiles.map(|tile| tile.integer_partial()))
            .map(|partial| integer_summary(u64::from(count), &partial))
    };
    summary.unwrap_or_else(Summary::empty)
}

fn merge<X: Extreme>(tiles: impl Iterator<Item = Partial<X>>) -> Option<Partial<X>> {
    tiles.reduce(|mut all, next| {
        all.merge(&next);
        all
    })
}

/// One tile's partial result.
#[derive(Clone, Copy)]
struct Tile<'a> {
    format: Format,
    words: &'a [u32],
    /// Logical index of the first element.
    start: u32,
    count: u32,
}

impl Tile<'_> {
    fn word(&self, at: u32) -> u32 {
        self.words[at as usize]
    }

    fn pair(&self, at: u32) -> u64 {
        u64::from(self.word(at)) | u64::from(self.word(at + 1)) << 32
    }

    /// A number of several words, which is far below the range of `f64`.
    fn sum(&self, at: u32, length: u32) -> f64 {
        let quarters = |from, to| {
            (from..to).rev().fold(0u128, |number, i| {
                number << 32 | u128::from(self.word(at + i))
            })
        };
        quarters(0, length.min(4)) as f64 + quarters(4, length.max(4)) as f64 * 2f64.powi(128)
    }

    /// The parts that do not depend on the class of number.
    fn partial<X>(&self, moments: Moments, min: X, max: X) -> Partial<X> {
        let (special, infinities) = (self.word(word::ZEROS_NANS), self.word(word::INFINITIES));
        let first = self.word(word::FIRST_NON_FINITE);
        Partial {
            moments,
            min,
            max,
            zeros: u64::from(special & 0xffff),
            nan: u64::from(special >> 16),
            pos_inf: u64::from(infinities & 0xffff),
            neg_inf: u64::from(infinities >> 16),
            first_non_finite: (first != u32::MAX).then(|| u64::from(self.start) + u64::from(first)),
            checksum: self.pair(word::CHECKSUM),
        }
    }

    /// The moments are of the elements times `scale`, a power of two.
    fn float_partial(&self, scale: f64) -> Partial<f64> {
        let (min, max) = (self.float(word::MIN), self.float(word::MAX));
        let scale_word = self.word(word::SCALE);
        let (exponent, shift) = ((scale_word & 0xffff) as i32, (scale_word >> 16) as i32);
        // The greatest mantissa is shifted up to 62 bits.
        let unit = if self.format.wide() {
            exponent - 1075 - 9
        } else {
            exponent - 150 - 38
        };
        let unit = 2f64.powi(unit + scale.log2() as i32);
        let (sum, squares) = (self.sum(word::SUM, 3), self.sum(word::SQUARES, 5));
        let (count, pivot) = (self.count as usize, (min * scale, 0.0));
        let moments = if self.format.wide() {
            Moments::from_sums(count, pivot, sum * unit, squares * unit * unit)
        } else {
            // Deviations are those of the shifted distances from the mean of just these: what the shift
            // cuts off moves both alike.
            let shifted = self.sum(word::COARSE_SUM, 2);
            let deviations = (squares - shifted * (shifted / count as f64)).max(0.0);
            let coarse = unit * 2f64.powi(shift);
            let offset = sum * unit / count as f64;
            Moments::from_deviations(count, pivot, offset, deviations * coarse * coarse)
        };
        self.partial(moments, min, max)
    }

    fn integer_partial(&self) -> Partial<i128> {
        let (min, max) = (self.integer(word::MIN), self.integer(word::MAX));
        let high = min as f64;
        let pivot = (high, (min - high as i128) as f64);
        let (sum, squares) = (self.sum(word::SUM, 3), self.sum(word::SQUARES, 5));
        let moments = Moments::from_sums(self.count as usize, pivot, sum, squares);
        self.partial(moments, min, max)
    }

    fn float(&self, at: u32) -> f64 {
        if self.format.wide() {
            let key = self.pair(at);
            f64::from_bits(if key >> 63 == 1 { key ^ 1 << 63 } else { !key })
        } else {
            let key = self.word(at);
            f32::from_bits(if key >> 31 == 1 { key ^ 1 << 31 } else { !key }).into()
        }
    }

    fn integer(&self, at: u32) -> i128 {
        let signed = self.format.class == Class::Signed;
        if self.format.wide() {
            i128::from(self.pair(at)) - i128::from(signed) * (1 << 63)
        } else {
            i128::from(self.word(at)) - i128::from(signed) * (1 << 31)
        }
    }
}
