//! Mean, standard deviation, minimum and maximum with PyTorch's own rounding, to its last digit.
//!
//! A [`Summary`] is more exact than PyTorch, which adds `f32` elements in `f32`: a printed digit
//! differs now and then, and a sum that leaves the range of `f32` makes its mean infinite.

use half::{bf16, f16};

use super::{DType, Number, Summary, TensorView, reduce};

/// What `mean()`, `std()`, `min()` and `max()` of a PyTorch tensor return.
///
/// Each value is one of the tensor's element type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Statistics {
    /// `tensor.mean()`: NaN for an empty tensor.
    pub mean: f64,
    /// `tensor.std()`: NaN for an empty tensor and for one element.
    pub std: f64,
    /// `tensor.min()`, which fails for an empty tensor.
    pub min: Option<f64>,
    /// `tensor.max()`, which fails for an empty tensor.
    pub max: Option<f64>,
}

/// Summarises a tensor as [`summarise`](super::summarise) does and computes PyTorch's statistics in
/// the same pass.
///
/// They are those of a row-major tensor on a CPU, with one thread and AVX2 vectors, to the bit
/// except where a value lies within about 1e-12 of the middle between two neighbours. There are
/// none for the types that PyTorch has no `mean` for: integers, `bool` and 8-bit floats.
pub fn summarise(view: &TensorView) -> (Summary, Option<Statistics>) {
    let Some(round) = rounding(view.dtype()) else {
        return (super::summarise(view), None);
    };
    let (summary, sum) = reduce::summarise(view, true);
    let statistics = sum.map(|sum| {
        let count = summary.count;
        let mean = match view.dtype() {
            DType::F64 => sum / count as f64,
            // Half types too: `cast_fp32 -> sum -> div -> cast_half` in ATen's `mean_out`.
            _ => f64::from(sum as f32 / count as f32),
        };
        Statistics {
            mean: round(mean),
            std: round(std(&summary, view.dtype(), mean)),
            ..Statistics::rounded(&summary, round)
        }
    });
    (summary, statistics)
}

impl Statistics {
    /// The statistics of a tensor of which only the summary is known, each rounded to `dtype`.
    ///
    /// The printed mean can differ from PyTorch's in the last digit. `None` as for [`summarise`].
    pub fn from_summary(summary: &Summary, dtype: &DType) -> Option<Self> {
        rounding(dtype).map(|round| Self::rounded(summary, round))
    }

    fn rounded(summary: &Summary, round: fn(f64) -> f64) -> Self {
        Self {
            mean: round(summary.mean.unwrap_or(f64::NAN)),
            std: round(summary.std.unwrap_or(f64::NAN)),
            min: summary.min.map(float),
            max: summary.max.map(float),
        }
    }
}

/// Rounds to a type for which PyTorch has a mean.
fn rounding(dtype: &DType) -> Option<fn(f64) -> f64> {
    match dtype {
        DType::F64 => Some(|x| x),
        DType::F32 => Some(|x| f64::from(x as f32)),
        // PyTorch's half types convert from `f32` alone.
        DType::F16 => Some(|x| f16::from_f32(x as f32).to_f64()),
        DType::BF16 => Some(|x| bf16::from_f32(x as f32).to_f64()),
        _ => None,
    }
}

/// `std_var_all_cpu` of `aten/src/ATen/native/ReduceOps.cpp` takes squared distances, in `f64`, from
/// the mean as rounded above; for half types Welford's method in `f64` finds its own mean.
fn std(summary: &Summary, dtype: &DType, mean: f64) -> f64 {
    let (Some(exact_mean), Some(exact_std)) = (summary.mean, summary.std) else {
        return f64::NAN;
    };
    if matches!(dtype, DType::F16 | DType::BF16) {
        return exact_std;
    }
    let count = summary.count as f64;
    let shift = exact_mean - mean;
    let deviations = exact_std * exact_std * (count - 1.0) + shift * shift * count;
    (deviations / (count - 1.0)).sqrt()
}

fn float(number: Number) -> f64 {
    match number {
        Number::Float(value) => value,
        Number::Int(value) => value as f64,
        Number::UInt(value) => value as f64,
    }
}
