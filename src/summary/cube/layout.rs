//! A tensor on a device as a kernel needs it: aligned, merged, and checked to lie in its buffer.

use cubecl::client::Client;
use cubecl::server::Handle;

use super::error::NotSummarised;
use super::storage::Storage;

/// A tensor in a device's memory, with any strides.
#[derive(Clone, Copy, Debug)]
pub struct DeviceTensor<'a> {
    /// The memory that strides and offset index.
    pub handle: &'a Handle,
    /// How an element is kept there.
    pub storage: Storage,
    /// The size of each dimension.
    pub shape: &'a [usize],
    /// The step of each dimension, in elements; zero where it is broadcast.
    pub strides: &'a [usize],
    /// Of the first logical element, in elements.
    pub offset: usize,
}

/// Elements and words are counted in 32 bits, and the last tile may reach beyond.
const MOST: usize = u32::MAX as usize - (1 << 16);

/// A tensor that was checked: every logical index is inside its buffer, and numbers fit 32 bits.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    handle: Handle,
    pub(super) storage: Storage,
    /// Elements; not zero.
    pub(super) count: u32,
    /// Of the first element, in elements from where the handle begins.
    pub(super) offset: u32,
    /// The dimensions with their strides, outermost first; at least one.
    dims: Vec<(usize, usize)>,
    /// The same, with those that one stride can describe merged.
    merged: Vec<(usize, usize)>,
}

impl Layout {
    /// `None` for a tensor without elements.
    pub(super) fn new(
        client: &Client,
        tensor: &DeviceTensor,
    ) -> Result<Option<Self>, NotSummarised> {
        let size = tensor.storage.size();
        if tensor.shape.len() != tensor.strides.len() {
            return Err(NotSummarised::Rank {
                shape: tensor.shape.len(),
                strides: tensor.strides.len(),
            });
        }
        if tensor.handle.service != client.service_id() {
            return Err(NotSummarised::ForeignDevice);
        }
        if tensor.shape.contains(&0) {
            return Ok(None);
        }
        let too_large = || NotSummarised::TooLarge {
            shape: tensor.shape.to_vec(),
        };
        let count = tensor
            .shape
            .iter()
            .try_fold(1usize, |n, &dim| n.checked_mul(dim))
            .ok_or_else(too_large)?;
        let last = tensor
            .shape
            .iter()
            .zip(tensor.strides)
            .try_fold(tensor.offset, |at, (&dim, &stride)| {
                at.checked_add((dim - 1).checked_mul(stride)?)
            })
            .ok_or_else(too_large)?;
        let end = last
            .checked_add(1)
            .and_then(|elements| elements.checked_mul(size))
            .ok_or_else(too_large)?;
        if end as u64 > tensor.handle.size_in_used() {
            return Err(NotSummarised::OutOfBounds {
                shape: tensor.shape.to_vec(),
                bytes: tensor.handle.size_in_used(),
            });
        }

        // A buffer is bound from where the device can: the rest of the way is counted in elements.
        let mut handle = tensor.handle.clone();
        let start = handle.offset_start.unwrap_or(0);
        let alignment = client.properties().memory.alignment.max(8);
        let slack = start % alignment;
        if !slack.is_multiple_of(size as u64) {
            return Err(NotSummarised::Misaligned { start });
        }
        handle.offset_start = (start > slack).then_some(start - slack);
        let before = slack as usize;
        if count > MOST || (before + end) / 4 > MOST {
            return Err(too_large());
        }

        let dims = tensor
            .shape
            .iter()
            .copied()
            .zip(tensor.strides.iter().copied());
        let mut kept: Vec<(usize, usize)> = dims.filter(|&(length, _)| length != 1).collect();
        if kept.is_empty() {
            kept.push((1, 1));
        }
        let mut merged: Vec<(usize, usize)> = Vec::with_capacity(kept.len());
        for &(length, stride) in &kept {
            match merged.last_mut() {
                Some((outer, step)) if Some(*step) == stride.checked_mul(length) => {
                    *outer *= length;
                    *step = stride;
                }
                _ => merged.push((length, stride)),
            }
        }
        Ok(Some(Self {
            handle,
            storage: tensor.storage,
            count: count as u32,
            offset: (tensor.offset + before / size) as u32,
            dims: kept,
            merged,
        }))
    }

    /// Whether the elements lie in row-major order without gaps.
    pub(super) fn contiguous(&self) -> bool {
        matches!(self.merged[..], [(_, 1)])
    }

    /// Its memory, from an address that the device can bind.
    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// As few dimensions as possible, as length and stride.
    pub(super) fn merged_dims(&self) -> &[(usize, usize)] {
        &self.merged
    }

    /// All dimensions of more than one item, as length and stride.
    pub(super) fn dims(&self) -> &[(usize, usize)] {
        &self.dims
    }
}
