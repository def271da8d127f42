//! The inner loops: what one tile of elements, small enough for the L1 cache, adds up to.
//!
//! Each loop does one job on the cached tile; several short loops vectorise better than a long one.

use super::moments::Moments;

/// Elements of a tile. A multiple of every group of lanes below.
pub(super) const TILE: usize = 4096;

/// The order in which extremes are chosen, total even for signed zeros.
pub(super) trait Extreme: Copy {
    /// The lower of two.
    fn lower(self, other: Self) -> Self;
    /// The higher of two.
    fn higher(self, other: Self) -> Self;
}

impl Extreme for f64 {
    fn lower(self, other: Self) -> Self {
        if other < self || (other == self && other.is_sign_negative()) {
            other
        } else {
            self
        }
    }

    fn higher(self, other: Self) -> Self {
        if other > self || (other == self && other.is_sign_positive()) {
            other
        } else {
            self
        }
    }
}

impl Extreme for i128 {
    fn lower(self, other: Self) -> Self {
        self.min(other)
    }

    fn higher(self, other: Self) -> Self {
        self.max(other)
    }
}

/// What elements that follow each other add up to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Partial<X> {
    /// Meaningless where any element is not finite.
    pub(super) moments: Moments,
    /// Of the elements that are not NaN.
    pub(super) min: X,
    /// Of the elements that are not NaN.
    pub(super) max: X,
    pub(super) zeros: u64,
    pub(super) nan: u64,
    pub(super) pos_inf: u64,
    pub(super) neg_inf: u64,
    /// Logical index in the tensor.
    pub(super) first_non_finite: Option<u64>,
    pub(super) checksum: u64,
}

impl<X: Extreme> Partial<X> {
    /// Takes in the elements that follow.
    pub(super) fn merge(&mut self, next: &Self) {
        self.moments.merge(&next.moments);
        self.min = self.min.lower(next.min);
        self.max = self.max.higher(next.max);
        self.zeros += next.zeros;
        self.nan += next.nan;
        self.pos_inf += next.pos_inf;
        self.neg_inf += next.neg_inf;
        self.first_non_finite = self.first_non_finite.or(next.first_non_finite);
        self.checksum = self.checksum.wrapping_add(next.checksum);
    }
}

/// `sum over k of (start + k + 1) * word_k mod 2^64`.
pub(super) trait Word: Copy {
    /// The sum over one tile that begins at logical index `start`.
    fn checksum(words: &[Self], start: usize) -> u64;
}

/// Narrow words: partial sums fit 32 bits over so many elements that the vectors stay narrow too.
macro_rules! narrow_word {
    ($($word:ty: $run:literal)*) => {$(
        impl Word for $word {
            #[inline(always)]
            fn checksum(words: &[Self], start: usize) -> u64 {
                let mut total = 0u64;
                for (index, run) in words.chunks($run).enumerate() {
                    let (mut sum, mut weighted) = (0u32, 0u32);
                    for (k, &word) in run.iter().enumerate() {
                        sum = sum.wrapping_add(u32::from(word));
                        weighted = weighted.wrapping_add(u32::from(word).wrapping_mul(k as u32 + 1));
                    }
                    let before = (start + index * $run) as u64;
                    total = total
                        .wrapping_add(u64::from(weighted))
                        .wrapping_add(before.wrapping_mul(u64::from(sum)));
                }
                total
            }
        }
    )*};
}

// A run of n words of b bits needs n (n + 1) / 2 * (2^b - 1) < 2^32.
narrow_word! { u8: 4096 u16: 256 }

macro_rules! wide_word {
    ($($word:ty)*) => {$(
        impl Word for $word {
            #[inline(always)]
            fn checksum(words: &[Self], start: usize) -> u64 {
                // Sums of sums weigh the elements without a multiplication: after n steps the
                // second sum of a lane holds the k-th element n - k times.
                const LANES: usize = 16;
                let (mut sums, mut sums_of_sums) = ([0u64; LANES], [0u64; LANES]);
                let (rows, rest) = words.as_chunks::<LANES>();
                for row in rows {
                    for lane in 0..LANES {
                        sums[lane] = sums[lane].wrapping_add(u64::from(row[lane]));
                        sums_of_sums[lane] = sums_of_sums[lane].wrapping_add(sums[lane]);
                    }
                }
                let (start, steps) = (start as u64, rows.len() as u64);
                let mut total = 0u64;
                for lane in 0..LANES {
                    let first = start.wrapping_add(lane as u64 + 1);
                    let rows_before = steps.wrapping_mul(sums[lane]).wrapping_sub(sums_of_sums[lane]);
                    total = total
                        .wrapping_add(first.wrapping_mul(sums[lane]))
                        .wrapping_add((LANES as u64).wrapping_mul(rows_before));
                }
                for (k, &word) in rest.iter().enumerate() {
                    let weight = start.wrapping_add((rows.len() * LANES + k + 1) as u64);
                    total = total.wrapping_add(weight.wrapping_mul(u64::from(word)));
                }
                total
            }
        }
    )*};
}

wide_word! { u32 u64 }

macro_rules! float_tile {
    ($name:ident, $float:ty, $mask:ty) => {
        /// Everything but the checksum of a tile of floats, which begins at logical index `start`.
        ///
        /// Moments are of the elements times `scale`, a power of two.
        #[inline(always)]
        pub(super) fn $name(values: &[$float], scale: f64, start: usize) -> Partial<f64> {
            const LANES: usize = 128 / size_of::<$float>();
            let mut low = [<$float>::INFINITY; LANES];
            let mut high = [<$float>::NEG_INFINITY; LANES];
            let mut zeros = [0 as $mask; LANES];
            let (rows, rest) = values.as_chunks::<LANES>();
            let mut take = |lane: usize, value: $float| {
                low[lane] = if value < low[lane] { value } else { low[lane] };
                high[lane] = if value > high[lane] {
                    value
                } else {
                    high[lane]
                };
                zeros[lane] += (value == 0.0) as $mask;
            };
            for row in rows {
                for lane in 0..LANES {
                    take(lane, row[lane]);
                }
            }
            for (lane, &value) in rest.iter().enumerate() {
                take(lane, value);
            }
            let mut min = low
                .iter()
                .fold(f64::INFINITY, |a, &b| a.lower(f64::from(b)));
            let mut max = high
                .iter()
                .fold(f64::NEG_INFINITY, |a, &b| a.higher(f64::from(b)));
            let zeros = zeros.iter().map(|&n| n as u64).sum();
            // The loop took whichever zero came first.
            if min == 0.0 && values.iter().any(|v| *v == 0.0 && v.is_sign_negative()) {
                min = -0.0;
            }
            if max == 0.0 && values.iter().any(|v| *v == 0.0 && v.is_sign_positive()) {
                max = 0.0;
            }

            let first = values.first().map_or(0.0, |&v| f64::from(v) * scale);
            let pivot = if first.is_finite() { first } else { 0.0 };
            const WIDE: usize = 16;
            let (mut sum, mut squares) = ([0f64; WIDE], [0f64; WIDE]);
            let mut take = |lane: usize, value: $float| {
                let d = f64::from(value) * scale - pivot;
                sum[lane] += d;
                squares[lane] += d * d;
            };
            let (rows, rest) = values.as_chunks::<WIDE>();
            for row in rows {
                for lane in 0..WIDE {
                    take(lane, row[lane]);
                }
            }
            for (lane, &value) in rest.iter().enumerate() {
                take(lane, value);
            }
            let (sum, squares) = (sum.iter().sum::<f64>(), squares.iter().sum::<f64>());
            let mut partial = Partial {
                moments: Moments::from_sums(values.len(), (pivot, 0.0), sum, squares),
                min,
                max,
                zeros,
                nan: 0,
                pos_inf: 0,
                neg_inf: 0,
                first_non_finite: None,
                checksum: 0,
            };
            // Any NaN or Inf reaches the sum, so that only tiles that have one are counted.
            if !sum.is_finite() {
                for &value in values {
                    partial.nan += u64::from(value.is_nan());
                    partial.pos_inf += u64::from(value == <$float>::INFINITY);
                    partial.neg_inf += u64::from(value == <$float>::NEG_INFINITY);
                }
                partial.first_non_finite = values
                    .iter()
                    .position(|value| !value.is_finite())
                    .map(|k| (start + k) as u64);
            }
            partial
        }
    };
}

float_tile! { f32_tile, f32, u32 }
float_tile! { f64_tile, f64, u64 }

/// An integer element type.
pub(super) trait Integer: Copy {
    /// Everything but the checksum of a tile.
    fn tile(values: &[Self]) -> Partial<i128>;
}

/// `$distance` is the unsigned type of the same width, `$sum` and `$square` hold a tile's sums.
macro_rules! integer_tile {
    ($($int:ty, $distance:ty, $sum:ty, $square:ty;)*) => {$(
        impl Integer for $int {
            #[inline(always)]
            fn tile(values: &[Self]) -> Partial<i128> {
                let (mut min, mut max) = (<$int>::MAX, <$int>::MIN);
                let mut zeros = 0 as $distance;
                let mut all_zeros = 0u64;
                // Few enough at a time for the narrowest counter.
                for run in values.chunks(128) {
                    for &value in run {
                        min = min.min(value);
                        max = max.max(value);
                        zeros += (value == 0) as $distance;
                    }
                    all_zeros += zeros as u64;
                    zeros = 0;
                }
                // The distance from the lowest element is exact in unsigned arithmetic.
                let (mut sum, mut squares) = (0 as $sum, 0 as $square);
                for &value in values {
                    let d = value.wrapping_sub(min) as $distance;
                    sum += d as $sum;
                    squares += d as $square * d as $square;
                }
                Partial {
                    moments: integer_moments(values.len(), min as i128, sum as f64, squares as f64),
                    min: min as i128,
                    max: max as i128,
                    zeros: all_zeros,
                    nan: 0,
                    pos_inf: 0,
                    neg_inf: 0,
                    first_non_finite: None,
                    checksum: 0,
                }
            }
        }
    )*};
}

integer_tile! {
    i8, u8, u32, u32;
    u8, u8, u32, u32;
    i16, u16, u32, u64;
    u16, u16, u32, u64;
}

/// The same for wide integers, whose sums are kept in floats, lane by lane.
macro_rules! wide_integer_tile {
    ($($int:ty, $distance:ty;)*) => {$(
        impl Integer for $int {
            #[inline(always)]
            fn tile(values: &[Self]) -> Partial<i128> {
                let (mut min, mut max, mut zeros) = (<$int>::MAX, <$int>::MIN, 0 as $distance);
                for &value in values {
                    min = min.min(value);
                    max = max.max(value);
                    zeros += (value == 0) as $distance;
                }
                const WIDE: usize = 16;
                let (mut sum, mut squares) = ([0f64; WIDE], [0f64; WIDE]);
                let mut take = |lane: usize, value: $int| {
                    // The distance from the lowest element is exact in unsigned arithmetic.
                    let d = value.wrapping_sub(min) as $distance as f64;
                    sum[lane] += d;
                    squares[lane] += d * d;
                };
                let (rows, rest) = values.as_chunks::<WIDE>();
                for row in rows {
                    for lane in 0..WIDE {
                        take(lane, row[lane]);
                    }
                }
                for (lane, &value) in rest.iter().enumerate() {
                    take(lane, value);
                }
                let (sum, squares) = (sum.iter().sum::<f64>(), squares.iter().sum::<f64>());
                Partial {
                    moments: integer_moments(values.len(), min as i128, sum, squares),
                    min: min as i128,
                    max: max as i128,
                    zeros: zeros as u64,
                    nan: 0,
                    pos_inf: 0,
                    neg_inf: 0,
                    first_non_finite: None,
                    checksum: 0,
                }
            }
        }
    )*};
}

wide_integer_tile! {
    i32, u32;
    u32, u32;
    i64, u64;
    u64, u64;
}

fn integer_moments(count: usize, pivot: i128, sum: f64, squares: f64) -> Moments {
    let high = pivot as f64;
    Moments::from_sums(count, (high, (pivot - high as i128) as f64), sum, squares)
}
