//! The stage that reduces one tensor to a few numbers: its element type, its view of memory, its summary.
//!
//! It is not concerned with where a tensor comes from or what is done with the numbers.

mod cascade;
mod checksum;
#[cfg(feature = "cube-summary")]
pub mod cube;
#[cfg(feature = "cuda-driver")]
pub mod cuda;
mod dtype;
pub(crate) mod edge;
mod element;
mod moments;
mod narrow;
mod reduce;
mod simd;
mod tile;
pub mod torch;
mod view;
mod walk;

pub use dtype::{DType, ParseDTypeError};
pub use edge::{EdgeError, EdgeItems, EdgeValues, edge_runs};
pub use view::{TensorView, ViewError};

use serde::{Deserialize, Serialize};

/// A number in the class of its tensor's elements, so that 64-bit integers stay exact.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Number {
    /// An element of a signed integer tensor.
    Int(i64),
    /// An element of an unsigned integer tensor that does not fit an `i64`.
    UInt(u64),
    /// An element of a floating-point tensor.
    Float(f64),
}

/// What one pass over a tensor's elements tells.
///
/// Floating-point statistics follow PyTorch: a NaN anywhere makes `mean`, `std`, `min`, `max`,
/// `abs_max` and `l2` NaN. Integer and bool elements are taken as numbers (`true` is 1).
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// How many elements the tensor has.
    pub count: u64,
    /// Arithmetic mean; absent for an empty tensor.
    pub mean: Option<f64>,
    /// Unbiased standard deviation (divisor `count - 1`): NaN for one element, absent for none.
    pub std: Option<f64>,
    /// Smallest element; absent for an empty tensor.
    pub min: Option<Number>,
    /// Largest element; absent for an empty tensor.
    pub max: Option<Number>,
    /// How many elements are NaN.
    pub nan: u64,
    /// How many elements are +Inf.
    pub pos_inf: u64,
    /// How many elements are -Inf.
    pub neg_inf: u64,
    /// How many elements equal zero (`-0.0` included).
    pub zeros: u64,
    /// Largest absolute value; absent for an empty tensor.
    pub abs_max: Option<f64>,
    /// Euclidean norm, `sqrt(sum of squares)`; 0 for an empty tensor.
    pub l2: f64,
    /// Row-major logical index of the first NaN or Inf.
    pub first_non_finite: Option<u64>,
    /// `sum over k of (k + 1) * bits_k mod 2^64`, where `bits_k` is the bit pattern of the k-th
    /// element in row-major logical order, zero-extended to 64 bits.
    pub checksum: u64,
}

impl Summary {
    /// The summary of a tensor without elements.
    pub fn empty() -> Self {
        Self {
            count: 0,
            mean: None,
            std: None,
            min: None,
            max: None,
            nan: 0,
            pos_inf: 0,
            neg_inf: 0,
            zeros: 0,
            abs_max: None,
            l2: 0.0,
            first_non_finite: None,
            checksum: 0,
        }
    }
}

/// Summarises a tensor in one pass over its memory.
///
/// Large tensors are shared out over the current Rayon pool. The result is the same to the last bit
/// for equal elements, whatever the strides, the CPU and the number of threads.
///
/// Mean, standard deviation and norm are those of the elements taken as real numbers, computed in
/// double precision: no sum overflows, and a mean far from zero costs no digits. Of zeros with
/// different signs, `min` is the negative and `max` the positive one. For a quantised tensor pass
/// the dequantised values as `f32`.
pub fn summarise(view: &TensorView) -> Summary {
    reduce::summarise(view, false).0
}
