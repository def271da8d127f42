//! Mean and squared deviations of a set of numbers, and how two disjoint sets become one.

/// Count, mean and squared deviations of some numbers.
///
/// The mean is kept as a pivot and an offset from it, so that numbers which are far from zero but
/// close to each other (time stamps, say) keep their spread.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moments {
    /// How many numbers.
    count: f64,
    /// A number among or near them, as the unevaluated sum of two floats.
    pivot: (f64, f64),
    /// Mean less the pivot.
    offset: f64,
    /// Sum of squared deviations from the mean.
    deviations: f64,
}

impl Moments {
    /// From sums over `d = x - pivot`: of `d` and of `d * d`.
    pub(super) fn from_sums(count: usize, pivot: (f64, f64), sum: f64, squares: f64) -> Self {
        let count = count as f64;
        let offset = sum / count;
        Self {
            count,
            pivot,
            offset,
            deviations: (squares - sum * offset).max(0.0),
        }
    }

    /// From the mean less the pivot and the sum of squared deviations from the mean.
    #[cfg(feature = "cube-summary")]
    pub(super) fn from_deviations(
        count: usize,
        pivot: (f64, f64),
        offset: f64,
        deviations: f64,
    ) -> Self {
        Self {
            count: count as f64,
            pivot,
            offset,
            deviations,
        }
    }

    /// From the exact sums of at most 2^16 whole numbers and of their squares.
    pub(super) fn from_whole(count: usize, sum: i64, squares: u64) -> Self {
        let number = count as i128;
        let deviations = number * i128::from(squares) - i128::from(sum) * i128::from(sum);
        Self {
            count: count as f64,
            pivot: (0.0, 0.0),
            offset: sum as f64 / count as f64,
            deviations: deviations as f64 / count as f64,
        }
    }

    /// Whether neither a NaN nor an Inf is among the numbers, unless their sum overflowed.
    pub(super) fn is_finite(&self) -> bool {
        self.offset.is_finite()
    }

    /// Takes in a later, disjoint set (Chan, Golub and LeVeque 1979).
    pub(super) fn merge(&mut self, other: &Self) {
        if self.count == 0.0 {
            *self = *other;
            return;
        }
        if other.count == 0.0 {
            return;
        }
        let delta = (other.pivot.0 - self.pivot.0)
            + ((other.pivot.1 - self.pivot.1) + (other.offset - self.offset));
        let count = self.count + other.count;
        let share = other.count / count;
        self.offset += delta * share;
        self.deviations += other.deviations + delta * delta * (self.count * share);
        self.count = count;
    }

    /// Arithmetic mean.
    pub(super) fn mean(&self) -> f64 {
        self.pivot.0 + (self.pivot.1 + self.offset)
    }

    /// Standard deviation with divisor `count - 1`: NaN for one number.
    pub(super) fn std(&self) -> f64 {
        (self.deviations / (self.count - 1.0)).sqrt()
    }

    /// Square root of the sum of squares.
    pub(super) fn l2(&self) -> f64 {
        let mean = self.mean();
        (self.deviations + self.count * mean * mean).sqrt()
    }
}
