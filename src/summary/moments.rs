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
