//! The inner loops: what one tile of elements, small enough for the L1 cache, adds up to.
//!
//! Each loop does one job on a strip of the tile before the next loop reads the same strip: short
//! loops vectorise better than one long one, and short strips keep the memory busy meanwhile.

use super::moments::Moments;

/// Elements of a tile.
pub(super) const TILE: usize = 4096;

/// Elements of the longest strip.
const STRIP: usize = 256;

/// Elements of a strip: 1 KiB of the type that the loops read, and a multiple of all lanes.
pub(super) const fn strip<T>() -> usize {
    let elements = 1024 / size_of::<T>();
    if elements < STRIP { elements } else { STRIP }
}

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
    /// Of elements that are all finite, without their checksum.
    pub(super) fn finite(moments: Moments, min: X, max: X, zeros: u64) -> Self {
        Self {
            moments,
            min,
            max,
            zeros,
            nan: 0,
            pos_inf: 0,
            neg_inf: 0,
            first_non_finite: None,
            checksum: 0,
        }
    }

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

/// Lanes of the loops over floats: as many as the compiler still unrolls, so that their sums stay in
/// registers.
const LANES: usize = 16;

#[inline(always)]
fn lower<T: PartialOrd>(a: T, b: T) -> T {
    if b < a { b } else { a }
}

#[inline(always)]
fn higher<T: PartialOrd>(a: T, b: T) -> T {
    if b > a { b } else { a }
}

/// Lowest, highest and zero elements of a tile, lane by lane; NaN is passed over.
pub(super) struct Extremes<T: Float> {
    low: [T; LANES],
    high: [T; LANES],
    zeros: [T::Bits; LANES],
}

impl<T: Float> Extremes<T> {
    pub(super) fn new() -> Self {
        Self {
            low: [T::INFINITY; LANES],
            high: [T::NEG_INFINITY; LANES],
            zeros: [false.into(); LANES],
        }
    }

    /// Takes in a strip.
    #[inline(always)]
    pub(super) fn push(&mut self, values: &[T]) {
        let (rows, rest) = values.as_chunks::<LANES>();
        let (mut low, mut high, mut zeros) = (self.low, self.high, self.zeros);
        for row in rows {
            for lane in 0..LANES {
                low[lane] = lower(low[lane], row[lane]);
                high[lane] = higher(high[lane], row[lane]);
                zeros[lane] += T::Bits::from(row[lane] == T::ZERO);
            }
        }
        (self.low, self.high, self.zeros) = (low, high, zeros);
        if !rest.is_empty() {
            self.push_rest(rest);
        }
    }

    #[inline(never)]
    fn push_rest(&mut self, rest: &[T]) {
        for (lane, &value) in rest.iter().enumerate() {
            self.low[lane] = lower(self.low[lane], value);
            self.high[lane] = higher(self.high[lane], value);
            self.zeros[lane] += T::Bits::from(value == T::ZERO);
        }
    }

    /// Lowest, highest, and how many are zero.
    ///
    /// Kept out of the loops: inlined, its own order would reach into them as shuffles.
    #[inline(never)]
    fn finish(&self) -> (T, T, u64) {
        let low = self.low.into_iter().fold(T::INFINITY, lower);
        let high = self.high.into_iter().fold(T::NEG_INFINITY, higher);
        (low, high, self.zeros.into_iter().map(Into::into).sum())
    }
}

/// Sums of numbers and of their squares in double precision, lane by lane.
pub(super) struct Sums {
    sum: [f64; LANES],
    squares: [f64; LANES],
}

impl Sums {
    pub(super) fn new() -> Self {
        Self {
            sum: [0.0; LANES],
            squares: [0.0; LANES],
        }
    }

    /// Takes in a strip, each element as the number that `read` makes of it.
    #[inline(always)]
    pub(super) fn push<T: Copy>(&mut self, values: &[T], read: impl Fn(T) -> f64) {
        let (rows, rest) = values.as_chunks::<LANES>();
        let (mut sum, mut squares) = (self.sum, self.squares);
        for row in rows {
            for lane in 0..LANES {
                let x = read(row[lane]);
                sum[lane] += x;
                squares[lane] += x * x;
            }
        }
        (self.sum, self.squares) = (sum, squares);
        for (lane, &value) in rest.iter().enumerate() {
            self.push_one(lane, read(value));
        }
    }

    #[inline(never)]
    fn push_one(&mut self, lane: usize, x: f64) {
        self.sum[lane] += x;
        self.squares[lane] += x * x;
    }

    /// Both sums.
    ///
    /// Kept out of the loops: inlined, its own order would reach into them as shuffles.
    #[inline(never)]
    fn finish(&self) -> (f64, f64) {
        let (mut sum, mut squares) = (self.sum, self.squares);
        let mut width = LANES / 2;
        while width > 0 {
            for lane in 0..width {
                sum[lane] += sum[lane + width];
                squares[lane] += squares[lane + width];
            }
            width /= 2;
        }
        (sum[0], squares[0])
    }

    /// The moments of the whole tile, whose plain sums these are.
    ///
    /// Where the variance is a smaller part of the mean square than one in a thousand, their
    /// difference has lost too many digits, and the sums are taken again about the mean.
    #[inline(always)]
    pub(super) fn moments<T: Copy>(&self, values: &[T], read: impl Fn(T) -> f64) -> Moments {
        let (sum, squares) = self.finish();
        let mean = sum / values.len() as f64;
        if squares - sum * mean < 1e-3 * squares {
            let mut about = Self::new();
            about.push(values, |value| read(value) - mean);
            let (sum, squares) = about.finish();
            return Moments::from_sums(values.len(), (mean, 0.0), sum, squares);
        }
        Moments::from_sums(values.len(), (0.0, 0.0), sum, squares)
    }
}

/// A floating-point element.
pub(super) trait Float: Copy + PartialOrd + Into<f64> {
    /// Its bits, which also count elements: vectors of both have as many lanes.
    type Bits: Copy + std::ops::AddAssign + From<bool> + Into<u64>;
    const INFINITY: Self;
    const NEG_INFINITY: Self;
    const ZERO: Self;

    /// How many are NaN, +Inf and -Inf.
    fn non_finite(values: &[Self]) -> [u64; 3];

    /// The first that is NaN or Inf.
    fn first_non_finite(values: &[Self]) -> Option<usize>;

    /// Whether any is a zero with that sign.
    fn any_zero(values: &[Self], negative: bool) -> bool;
}

macro_rules! float {
    ($($float:ty, $bits:ty;)*) => {$(
        impl Float for $float {
            type Bits = $bits;
            const INFINITY: Self = <$float>::INFINITY;
            const NEG_INFINITY: Self = <$float>::NEG_INFINITY;
            const ZERO: Self = 0.0;

            #[inline(always)]
            fn non_finite(values: &[Self]) -> [u64; 3] {
                let mut counts = [0 as $bits; 3];
                for &value in values {
                    counts[0] += <$bits>::from(value.is_nan());
                    counts[1] += <$bits>::from(value == Self::INFINITY);
                    counts[2] += <$bits>::from(value == Self::NEG_INFINITY);
                }
                counts.map(Into::into)
            }

            #[inline(always)]
            fn first_non_finite(values: &[Self]) -> Option<usize> {
                values.iter().position(|value| !value.is_finite())
            }

            #[inline(always)]
            fn any_zero(values: &[Self], negative: bool) -> bool {
                let zero: Self = if negative { -0.0 } else { 0.0 };
                let mut count = 0 as $bits;
                for value in values {
                    count += <$bits>::from(value.to_bits() == zero.to_bits());
                }
                count > 0
            }
        }
    )*};
}

float! {
    f64, u64;
    f32, u32;
}

/// All but the checksum of a tile of floats, which begins at logical index `start`.
#[inline(always)]
pub(super) fn float_tile<T: Float>(
    values: &[T],
    start: usize,
    extremes: &Extremes<T>,
    moments: Moments,
) -> Partial<f64> {
    let (min, max, zeros) = extremes.finish();
    let (mut min, mut max): (f64, f64) = (min.into(), max.into());
    // Either zero may have come first.
    if min == 0.0 && T::any_zero(values, true) {
        min = -0.0;
    }
    if max == 0.0 && T::any_zero(values, false) {
        max = 0.0;
    }
    let mut partial = Partial::finite(moments, min, max, zeros);
    // Any NaN or Inf reaches the sum, so that only tiles that have one are counted.
    if !moments.is_finite() {
        [partial.nan, partial.pos_inf, partial.neg_inf] = T::non_finite(values);
        partial.first_non_finite = T::first_non_finite(values).map(|k| (start + k) as u64);
    }
    partial
}

/// An integer element.
pub(super) trait Integer: Copy + Into<i128> {
    /// What a tile's moments are computed from.
    type Sums;

    /// Before the first strip.
    fn sums() -> Self::Sums;

    /// Takes in a strip.
    fn push(sums: &mut Self::Sums, values: &[Self]);

    /// The moments of the whole tile, of which `min` is the lowest.
    fn moments(sums: &Self::Sums, values: &[Self], min: Self) -> Moments;

    /// The lowest and highest of a strip and one earlier pair, and how many of the strip are zero.
    fn extremes(before: (Self, Self), values: &[Self]) -> (Self, Self, u64);

    /// What no element is lower than, and what none is higher than, the other way round.
    const NONE: (Self, Self);
}

/// `$count` is as wide as the elements.
macro_rules! extremes {
    ($int:ty, $count:ty) => {
        const NONE: (Self, Self) = (Self::MAX, Self::MIN);

        #[inline(always)]
        fn extremes((mut min, mut max): (Self, Self), values: &[Self]) -> (Self, Self, u64) {
            let mut zeros = 0;
            // So few that the narrowest counter holds them.
            for values in values.chunks(STRIP / 2) {
                let mut count = 0 as $count;
                for &value in values {
                    min = min.min(value);
                    max = max.max(value);
                    count += <$count>::from(value == 0);
                }
                zeros += u64::from(count);
            }
            (min, max, zeros)
        }
    };
}

/// Sums of whole numbers and of their squares.
#[derive(Default)]
pub(super) struct WholeSums {
    sum: i64,
    squares: u64,
}

/// Narrow integers: both sums of a tile are exact.
macro_rules! narrow_integer {
    ($($int:ty, $count:ty, $square:ty;)*) => {$(
        impl Integer for $int {
            extremes!($int, $count);

            type Sums = WholeSums;

            fn sums() -> WholeSums {
                WholeSums::default()
            }

            #[inline(always)]
            fn push(all: &mut WholeSums, values: &[Self]) {
                // Of one strip: the squares of 8 bits fit 32.
                let (mut sum, mut squares) = (0i32, 0 as $square);
                for &value in values {
                    let value = i32::from(value);
                    sum += value;
                    squares += value.wrapping_mul(value) as u32 as $square;
                }
                all.sum += i64::from(sum);
                all.squares += u64::from(squares);
            }

            fn moments(all: &WholeSums, values: &[Self], _: Self) -> Moments {
                Moments::from_whole(values.len(), all.sum, all.squares)
            }
        }
    )*};
}

narrow_integer! {
    i8, u8, u32;
    u8, u8, u32;
    i16, u16, u64;
    u16, u16, u64;
}

macro_rules! middle_integer {
    ($($int:ty, $count:ty;)*) => {$(
        impl Integer for $int {
            extremes!($int, $count);

            type Sums = Sums;

            fn sums() -> Sums {
                Sums::new()
            }

            #[inline(always)]
            fn push(sums: &mut Sums, values: &[Self]) {
                sums.push(values, f64::from);
            }

            #[inline(always)]
            fn moments(sums: &Sums, values: &[Self], _: Self) -> Moments {
                sums.moments(values, f64::from)
            }
        }
    )*};
}

middle_integer! {
    i32, u32;
    u32, u32;
}

/// Wide integers are not exact as floats, but their distances from the lowest of a tile are, in
/// unsigned arithmetic.
macro_rules! wide_integer {
    ($($int:ty, $count:ty;)*) => {$(
        impl Integer for $int {
            extremes!($int, $count);

            type Sums = ();

            fn sums() {}

            #[inline(always)]
            fn push(_: &mut (), _: &[Self]) {}

            #[inline(always)]
            fn moments(_: &(), values: &[Self], min: Self) -> Moments {
                let mut sums = Sums::new();
                sums.push(values, |value| value.wrapping_sub(min) as u64 as f64);
                let (sum, squares) = sums.finish();
                let high = min as f64;
                let low = (i128::from(min) - high as i128) as f64;
                Moments::from_sums(values.len(), (high, low), sum, squares)
            }
        }
    )*};
}

wide_integer! {
    i64, u64;
    u64, u64;
}
