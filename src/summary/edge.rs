//! The few elements of a tensor that PyTorch prints: which they are, and their values.
//!
//! How they are laid out on lines is another stage's concern.

use std::ops::Range;

use half::{bf16, f16};

use super::narrow::{F8E4M3, F8E5M2, Widen};
use super::walk::Walk;
use super::{DType, TensorView};

/// Items shown at each end of a shortened dimension (`torch.set_printoptions(edgeitems=3)`).
pub(crate) const EDGE: usize = 3;

/// A tensor of more elements is shortened (`torch.set_printoptions(threshold=1000)`).
const THRESHOLD: usize = 1000;

/// Whether PyTorch leaves out the middle of a dimension of that length.
pub(crate) fn is_cut(shape: &[usize], length: usize) -> bool {
    length > 2 * EDGE && element_count(shape) > THRESHOLD
}

/// Whether PyTorch leaves out any element of a tensor of that shape.
#[cfg(feature = "cube-summary")]
pub(crate) fn is_shortened(shape: &[usize]) -> bool {
    shape.iter().any(|&length| is_cut(shape, length))
}

fn element_count(shape: &[usize]) -> usize {
    if shape.contains(&0) {
        return 0;
    }
    shape.iter().fold(1, |n: usize, &dim| n.saturating_mul(dim))
}

/// The row-major logical indices of the elements that PyTorch prints of a tensor of that shape.
///
/// All of them up to 1000 elements; of a larger tensor the first and last three along each
/// dimension. The runs are in order and do not touch. Indices count from the first logical element.
pub fn edge_runs(shape: &[usize]) -> Vec<Range<usize>> {
    let count = element_count(shape);
    if count == 0 {
        return Vec::new();
    }
    if count <= THRESHOLD {
        return std::iter::once(0..count).collect();
    }
    let mut runs: Vec<Range<usize>> = std::iter::once(0..1).collect();
    // Each dimension replaces every index by its shown items; runs that touch are joined.
    for &length in shape {
        let first = if length > 2 * EDGE { EDGE } else { length };
        let shown = [0..first, length - EDGE.min(length - first)..length];
        let mut next: Vec<Range<usize>> = Vec::with_capacity(runs.len() * shown.len());
        for index in runs.into_iter().flatten() {
            for part in shown.iter().filter(|part| !part.is_empty()) {
                let (start, end) = (index * length + part.start, index * length + part.end);
                match next.last_mut() {
                    Some(last) if last.end == start => last.end = end,
                    _ => next.push(start..end),
                }
            }
        }
        runs = next;
    }
    runs
}

/// Values that are printed, in the class of their element type.
#[derive(Clone, Debug, PartialEq)]
pub enum EdgeValues {
    /// Of a floating-point type.
    Float(Vec<f64>),
    /// Of a signed or unsigned integer type.
    Int(Vec<i128>),
    /// Truth values.
    Bool(Vec<bool>),
    /// Real and imaginary parts.
    Complex(Vec<[f64; 2]>),
}

impl EdgeValues {
    /// How many values.
    pub fn len(&self) -> usize {
        match self {
            Self::Float(values) => values.len(),
            Self::Int(values) => values.len(),
            Self::Bool(values) => values.len(),
            Self::Complex(values) => values.len(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads elements that follow each other; `None` for a type that cannot be read.
    fn decode(dtype: &DType, bytes: &[u8]) -> Option<Self> {
        Some(match dtype {
            DType::F64 => Self::Float(each(bytes, f64::from_ne_bytes)),
            DType::F32 | DType::Quantized(_) => {
                Self::Float(each(bytes, |b| f32::from_ne_bytes(b).into()))
            }
            DType::F16 => Self::Float(each(bytes, |b| f16::from_ne_bytes(b).into())),
            DType::BF16 => Self::Float(each(bytes, |b| bf16::from_ne_bytes(b).into())),
            DType::F8E4M3 => Self::Float(bytes_as_floats::<F8E4M3>(bytes)),
            DType::F8E5M2 => Self::Float(bytes_as_floats::<F8E5M2>(bytes)),
            DType::I64 => Self::Int(each(bytes, |b| i64::from_ne_bytes(b).into())),
            DType::I32 => Self::Int(each(bytes, |b| i32::from_ne_bytes(b).into())),
            DType::I16 => Self::Int(each(bytes, |b| i16::from_ne_bytes(b).into())),
            DType::I8 => Self::Int(each(bytes, |b| i8::from_ne_bytes(b).into())),
            DType::U64 => Self::Int(each(bytes, |b| u64::from_ne_bytes(b).into())),
            DType::U32 => Self::Int(each(bytes, |b| u32::from_ne_bytes(b).into())),
            DType::U16 => Self::Int(each(bytes, |b| u16::from_ne_bytes(b).into())),
            DType::U8 => Self::Int(each(bytes, |[b]| b.into())),
            DType::Bool => Self::Bool(each(bytes, |[b]| b != 0)),
            DType::Other(name) if name == "torch.complex64" => {
                let parts: Vec<f64> = each(bytes, |b| f32::from_ne_bytes(b).into());
                Self::Complex(parts.as_chunks().0.to_vec())
            }
            DType::Other(name) if name == "torch.complex128" => {
                let parts = each(bytes, f64::from_ne_bytes);
                Self::Complex(parts.as_chunks().0.to_vec())
            }
            DType::Other(_) => return None,
        })
    }
}

fn each<const SIZE: usize, T>(bytes: &[u8], read: impl Fn([u8; SIZE]) -> T) -> Vec<T> {
    bytes
        .as_chunks()
        .0
        .iter()
        .map(|&chunk| read(chunk))
        .collect()
}

fn bytes_as_floats<F: Widen<Word = u8>>(bytes: &[u8]) -> Vec<f64> {
    let mut values = vec![0f32; bytes.len()];
    F::widen(bytes, &mut values);
    values.into_iter().map(f64::from).collect()
}

/// Why bytes are not the printed elements of a tensor.
#[derive(Debug, thiserror::Error)]
pub enum EdgeError {
    /// Elements of that type have no known layout.
    #[error("elements of type {0} cannot be printed")]
    UnreadableDType(String),
    /// Too few or too many values.
    #[error("a tensor of shape {shape:?} prints {expected} elements, but {found} are given")]
    Count {
        /// The tensor's shape.
        shape: Vec<usize>,
        /// How many elements [`edge_runs`] names.
        expected: usize,
        /// How many the bytes hold.
        found: usize,
    },
}

/// A tensor's shape and type with the values of those elements that PyTorch prints.
#[derive(Clone, Debug, PartialEq)]
pub struct EdgeItems {
    dtype: DType,
    shape: Vec<usize>,
    values: EdgeValues,
}

impl EdgeItems {
    /// From the bytes of the elements that [`edge_runs`] names, one after the other.
    ///
    /// Also reads `torch.complex64` and `torch.complex128`; of a quantised tensor the bytes are its
    /// dequantised values as `f32`.
    ///
    /// # Errors
    /// If elements of that type cannot be read, or the bytes hold another number of them.
    pub fn new(dtype: DType, shape: &[usize], bytes: &[u8]) -> Result<Self, EdgeError> {
        let values = EdgeValues::decode(&dtype, bytes)
            .ok_or_else(|| EdgeError::UnreadableDType(dtype.to_string()))?;
        let expected = edge_runs(shape).iter().map(ExactSizeIterator::len).sum();
        if values.len() != expected {
            return Err(EdgeError::Count {
                shape: shape.to_vec(),
                expected,
                found: values.len(),
            });
        }
        Ok(Self {
            dtype,
            shape: shape.to_vec(),
            values,
        })
    }

    /// Gathers them from a tensor in host memory.
    pub fn gather(view: &TensorView) -> Self {
        let walk = Walk::new(view);
        let (mut bytes, mut buffer) = (Vec::new(), Vec::new());
        for run in edge_runs(view.shape()) {
            bytes.extend_from_slice(walk.read(run.start, run.len(), &mut buffer));
        }
        Self {
            dtype: view.dtype().clone(),
            shape: view.shape().to_vec(),
            // A view's constructor admits only types that can be read.
            values: EdgeValues::decode(view.dtype(), &bytes)
                .unwrap_or(EdgeValues::Float(Vec::new())),
        }
    }

    /// The tensor's element type.
    pub fn dtype(&self) -> &DType {
        &self.dtype
    }

    /// The whole tensor's shape.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The printed values, in row-major order.
    pub fn values(&self) -> &EdgeValues {
        &self.values
    }
}
