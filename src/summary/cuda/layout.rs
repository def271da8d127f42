//! The order in which a tensor's elements are visited: dimensions sorted, joined and bounded.
//!
//! It knows nothing of devices; offsets stay in elements.

use super::CudaError;

/// Most dimensions that the kernels walk, after joining.
pub(super) const MAX_RANK: usize = 8;

/// Most elements of one tensor: the kernels' per-thread counters hold for as many.
const MAX_COUNT: u64 = 1 << 40;

/// Furthest that an element may lie from the first one, in elements: in bytes it fits an `i64`.
const MAX_REACH: u64 = 1 << 59;

/// One dimension of the walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dim {
    pub size: u64,
    /// In elements of memory.
    pub stride: i64,
    /// In row-major logical indices.
    pub weight: u64,
}

/// How to walk a tensor, innermost dimension first; no dimension has size 1, none at all has a
/// scalar, and an empty tensor has `count` 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Walk {
    pub dims: Vec<Dim>,
    pub count: u64,
}

impl Walk {
    /// Logical order.
    pub fn logical(shape: &[usize], strides: &[isize]) -> Result<Self, CudaError> {
        let (mut dims, count) = dims(shape, strides)?;
        join(&mut dims);
        bounded(dims, count)
    }

    /// Memory order where that is another one, so that neighbouring threads read neighbouring
    /// bytes: dimensions by falling stride, repeated ones outermost.
    pub fn memory(shape: &[usize], strides: &[isize]) -> Result<Self, CudaError> {
        let (mut dims, count) = dims(shape, strides)?;
        let rank = |dim: &Dim| match dim.stride.unsigned_abs() {
            0 => u64::MAX,
            stride => stride,
        };
        // Stable: equal strides stay in logical order.
        dims.sort_by_key(rank);
        join(&mut dims);
        bounded(dims, count)
    }

    /// Whether visited and logical order are one, without gaps.
    pub fn is_contiguous(&self) -> bool {
        match self.dims.as_slice() {
            [] => true,
            [dim] => dim.stride == 1 && dim.weight == 1,
            _ => false,
        }
    }

    /// Whether `per_vector` elements of `bytes` each, from a multiple of `per_vector` on, always
    /// lie together at an address divisible by 16.
    pub fn has_whole_vectors(&self, address: u64, bytes: u64) -> bool {
        let per_vector = 16 / bytes;
        let aligned = |dim: &Dim| (dim.stride.unsigned_abs() * bytes).is_multiple_of(16);
        match self.dims.split_first() {
            None => false,
            Some((inner, outer)) => {
                address.is_multiple_of(16)
                    && inner.stride == 1
                    && (outer.is_empty() || inner.size.is_multiple_of(per_vector))
                    && outer.iter().all(aligned)
            }
        }
    }
}

/// Dimensions innermost first without those of size 1, and the number of elements.
fn dims(shape: &[usize], strides: &[isize]) -> Result<(Vec<Dim>, u64), CudaError> {
    if shape.len() != strides.len() {
        return Err(CudaError::RankMismatch {
            shape: shape.len(),
            strides: strides.len(),
        });
    }
    let too_large = || CudaError::TooLarge {
        shape: shape.to_vec(),
    };
    let (mut weight, mut reach) = (1u64, 0u64);
    let mut dims = Vec::with_capacity(shape.len());
    for (&size, &stride) in shape.iter().zip(strides).rev() {
        let (size, stride) = (size as u64, stride as i64);
        // A zero elsewhere must not hide an overflow.
        let product = weight.checked_mul(size.max(1)).ok_or_else(too_large)?;
        if size != 1 {
            dims.push(Dim {
                size,
                stride,
                weight,
            });
            let steps = size.saturating_sub(1).checked_mul(stride.unsigned_abs());
            reach = steps
                .and_then(|steps| reach.checked_add(steps))
                .ok_or_else(too_large)?;
        }
        weight = product;
    }
    if weight > MAX_COUNT || reach > MAX_REACH {
        return Err(too_large());
    }
    let count = if shape.contains(&0) { 0 } else { weight };
    Ok((dims, count))
}

/// Makes one dimension of every two neighbours that memory and logical index step through alike.
fn join(dims: &mut Vec<Dim>) {
    let mut joined: Vec<Dim> = Vec::with_capacity(dims.len());
    for &outer in dims.iter() {
        match joined.last_mut() {
            Some(inner)
                if outer.stride == inner.stride * inner.size as i64
                    && outer.weight == inner.weight * inner.size =>
            {
                inner.size *= outer.size;
            }
            _ => joined.push(outer),
        }
    }
    *dims = joined;
}

fn bounded(dims: Vec<Dim>, count: u64) -> Result<Walk, CudaError> {
    if dims.len() > MAX_RANK {
        return Err(CudaError::TooManyDimensions { rank: dims.len() });
    }
    Ok(Walk { dims, count })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dim(size: u64, stride: i64, weight: u64) -> Dim {
        Dim {
            size,
            stride,
            weight,
        }
    }

    #[test]
    fn a_row_major_tensor_of_any_rank_is_one_run() {
        let walk = Walk::memory(&[2, 1, 3, 4], &[12, 99, 4, 1]).unwrap();
        assert_eq!(walk.dims, [dim(24, 1, 1)]);
        assert!(walk.is_contiguous());
        assert!(Walk::memory(&[], &[]).unwrap().is_contiguous());
    }

    #[test]
    fn padded_rows_stay_in_logical_order() {
        let walk = Walk::memory(&[2, 3, 5], &[24, 8, 1]).unwrap();
        assert_eq!(walk.dims, [dim(5, 1, 1), dim(6, 8, 5)]);
        assert!(!walk.is_contiguous());
    }

    #[test]
    fn a_transposed_tensor_is_walked_as_memory_lies() {
        let walk = Walk::memory(&[3, 7], &[1, 3]).unwrap();
        assert_eq!(walk.dims, [dim(3, 1, 7), dim(7, 3, 1)]);
        let logical = Walk::logical(&[3, 7], &[1, 3]).unwrap();
        assert_eq!(logical.dims, [dim(7, 3, 1), dim(3, 1, 7)]);
    }

    #[test]
    fn a_repeated_dimension_is_walked_last() {
        let walk = Walk::memory(&[5, 4], &[1, 0]).unwrap();
        assert_eq!(walk.dims, [dim(5, 1, 4), dim(4, 0, 1)]);
    }

    #[test]
    fn vectors_are_whole_only_where_rows_and_strides_divide() {
        let rows = |columns, pitch| Walk::memory(&[8, columns], &[pitch, 1]).unwrap();
        assert!(rows(12, 16).has_whole_vectors(32, 4));
        assert!(!rows(12, 16).has_whole_vectors(36, 4), "address");
        assert!(!rows(10, 16).has_whole_vectors(32, 4), "row");
        assert!(!rows(12, 18).has_whole_vectors(32, 4), "pitch");
    }

    #[test]
    fn what_cannot_be_walked_is_an_error() {
        assert!(matches!(
            Walk::memory(&[2, 2], &[1]),
            Err(CudaError::RankMismatch { .. })
        ));
        assert!(matches!(
            Walk::memory(&[1 << 30, 1 << 30], &[1 << 30, 1]),
            Err(CudaError::TooLarge { .. })
        ));
        let shape = [2; 9];
        let strides: Vec<isize> = (0..9).map(|d| 3isize.pow(d)).collect();
        assert!(matches!(
            Walk::memory(&shape, &strides),
            Err(CudaError::TooManyDimensions { rank: 9 })
        ));
    }

    #[test]
    fn an_empty_tensor_has_no_elements_whatever_its_other_dimensions() {
        assert_eq!(Walk::memory(&[0, 5], &[5, 1]).unwrap().count, 0);
    }
}
