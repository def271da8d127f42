//! A borrowed tensor in host memory: bytes, element type, shape and strides, checked once.

use std::borrow::Cow;

use super::DType;

/// A tensor in host memory, any strides, ready to be summarised, printed or written.
///
/// Every logical index is inside `bytes`: the constructor checks it.
#[derive(Clone, Debug)]
pub struct TensorView<'a> {
    dtype: DType,
    shape: Vec<usize>,
    /// In elements, not bytes; may be zero (broadcast) or negative (flipped).
    strides: Vec<isize>,
    /// Of the first logical element, in elements.
    offset: usize,
    bytes: &'a [u8],
}

/// Why some bytes are no tensor of that shape and type.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// The element type has no fixed size in bytes.
    #[error("elements of type {0} cannot be read")]
    UnreadableDType(String),
    /// Shape and strides differ in rank.
    #[error("{shape} dimensions but {strides} strides")]
    RankMismatch {
        /// Rank of the shape.
        shape: usize,
        /// Number of strides.
        strides: usize,
    },
    /// Some element would lie outside the bytes.
    #[error("a tensor of shape {shape:?} does not fit in {bytes} bytes")]
    OutOfBounds {
        /// The shape asked for.
        shape: Vec<usize>,
        /// How many bytes there are.
        bytes: usize,
    },
}

impl<'a> TensorView<'a> {
    /// A row-major tensor that begins at the first byte.
    ///
    /// # Errors
    /// If the dtype cannot be read or the bytes are too few.
    pub fn contiguous(dtype: DType, shape: &[usize], bytes: &'a [u8]) -> Result<Self, ViewError> {
        let out_of_bounds = || ViewError::OutOfBounds {
            shape: shape.to_vec(),
            bytes: bytes.len(),
        };
        let mut strides = vec![0; shape.len()];
        let mut step = 1usize;
        for (stride, &dim) in strides.iter_mut().zip(shape).rev() {
            *stride = isize::try_from(step).map_err(|_| out_of_bounds())?;
            step = step.checked_mul(dim.max(1)).ok_or_else(out_of_bounds)?;
        }
        Self::strided(dtype, shape, &strides, 0, bytes)
    }

    /// A tensor with strides and offset in elements.
    ///
    /// # Errors
    /// If the dtype cannot be read, ranks differ, or an element would lie outside the bytes.
    pub fn strided(
        dtype: DType,
        shape: &[usize],
        strides: &[isize],
        offset: usize,
        bytes: &'a [u8],
    ) -> Result<Self, ViewError> {
        let size = dtype
            .size()
            .ok_or_else(|| ViewError::UnreadableDType(dtype.to_string()))?;
        if shape.len() != strides.len() {
            return Err(ViewError::RankMismatch {
                shape: shape.len(),
                strides: strides.len(),
            });
        }
        let fits = || {
            // A zero anywhere makes the tensor empty, but the other dimensions must still multiply.
            shape
                .iter()
                .try_fold(1usize, |n, &dim| n.checked_mul(dim.max(1)))?;
            if shape.contains(&0) {
                return Some(());
            }
            let (mut low, mut high) =
                (isize::try_from(offset).ok()?, isize::try_from(offset).ok()?);
            for (&dim, &stride) in shape.iter().zip(strides) {
                let reach = isize::try_from(dim - 1).ok()?.checked_mul(stride)?;
                low = low.checked_add(reach.min(0))?;
                high = high.checked_add(reach.max(0))?;
            }
            let end = usize::try_from(high)
                .ok()?
                .checked_add(1)?
                .checked_mul(size)?;
            (low >= 0 && end <= bytes.len()).then_some(())
        };
        fits().ok_or_else(|| ViewError::OutOfBounds {
            shape: shape.to_vec(),
            bytes: bytes.len(),
        })?;
        Ok(Self {
            dtype,
            shape: shape.to_vec(),
            strides: strides.to_vec(),
            offset,
            bytes,
        })
    }

    /// The element type.
    pub fn dtype(&self) -> &DType {
        &self.dtype
    }

    /// The size of each dimension.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The step of each dimension, in elements.
    pub fn strides(&self) -> &[isize] {
        &self.strides
    }

    /// Where the first logical element is, in elements.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// The memory that the strides and the offset index.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// How many elements the tensor has.
    pub fn count(&self) -> usize {
        self.shape.iter().product()
    }

    /// The elements' bytes where they lie in row-major order without gaps.
    pub fn contiguous_bytes(&self) -> Option<&'a [u8]> {
        let size = self.dtype.size()?;
        let count = self.count();
        let mut step = 1isize;
        for (&dim, &stride) in self.shape.iter().zip(&self.strides).rev() {
            if dim != 1 && stride != step && count != 0 {
                return None;
            }
            step *= dim.max(1) as isize;
        }
        if count == 0 {
            return Some(&[]);
        }
        self.bytes
            .get(self.offset * size..(self.offset + count) * size)
    }

    /// The elements' bytes in row-major order, copied unless they lie so already.
    pub fn to_row_major_bytes(&self) -> Cow<'a, [u8]> {
        if let Some(bytes) = self.contiguous_bytes() {
            return Cow::Borrowed(bytes);
        }
        let size = self.dtype.size().unwrap_or(0);
        let mut copy = Vec::with_capacity(self.count() * size);
        let mut index = vec![0usize; self.shape.len()];
        // The constructor checked that no element lies outside.
        let mut position = self.offset as isize;
        'elements: loop {
            let start = position as usize * size;
            copy.extend_from_slice(&self.bytes[start..start + size]);
            for axis in (0..self.shape.len()).rev() {
                index[axis] += 1;
                position += self.strides[axis];
                if index[axis] < self.shape[axis] {
                    continue 'elements;
                }
                position -= self.strides[axis] * self.shape[axis] as isize;
                index[axis] = 0;
            }
            break Cow::Owned(copy);
        }
    }
}
