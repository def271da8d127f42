//! Kernels that copy elements of a tensor on the device: the printed few, or all of them row by row.

#![allow(missing_docs)]

use cubecl::prelude::*;

use super::access::{high_bits, low_bits, position};
use super::storage::Format;
use crate::summary::edge::EDGE;

/// Shown items of a shortened dimension, from both ends.
const SHOWN: u32 = 2 * EDGE as u32;

/// Units of a cube of these kernels, which do not work together.
pub(super) const UNITS: u32 = 64;

/// Copies `count` elements from those that PyTorch prints, in row-major order, one or two words
/// each, from word `first_word` on, and `stamp` to the word before.
///
/// `data` has the shape and strides of the tensor, with no dimensions merged. If `cut`, the
/// dimensions of more than six items show the first and the last three.
#[cube(launch_unchecked)]
pub(super) fn gather_edges(
    data: &Tensor<u32>,
    items: &mut [u32],
    count: u32,
    offset: u32,
    first_word: u32,
    stamp: u32,
    #[comptime] format: Format,
    #[comptime] cut: bool,
) {
    let item = CUBE_POS as u32 * UNITS + UNIT_POS;
    if item == 0 {
        items[(first_word - 1) as usize] = stamp;
    }
    if item < count {
        let rank = data.rank();
        let mut rest = item;
        let mut at = offset;
        for i in 0..rank {
            let dim = rank - 1 - i;
            let length = data.shape(dim) as u32;
            let shown = if comptime!(cut) {
                select(length < SHOWN, length, SHOWN)
            } else {
                length
            };
            let place = rest % shown;
            let index = select(
                place < comptime!(SHOWN / 2),
                place,
                place + (length - shown),
            );
            at += index * data.stride(dim) as u32;
            rest /= shown;
        }
        if comptime!(format.wide()) {
            items[(first_word + 2 * item) as usize] = low_bits(data, at, format);
            items[(first_word + 2 * item + 1) as usize] = high_bits(data, at);
        } else {
            items[(first_word + item) as usize] = low_bits(data, at, format);
        }
    }
}

/// Copies all elements in row-major order without gaps; each unit writes one word.
///
/// An element takes `host_bytes` bytes of the copy. Bytes of the last word beyond the last element
/// are zero.
#[cube(launch_unchecked)]
pub(super) fn copy_row_major(
    data: &Tensor<u32>,
    copy: &mut [u32],
    count: u32,
    offset: u32,
    #[comptime] format: Format,
    #[comptime] host_bytes: u32,
    #[comptime] contiguous: bool,
) {
    let index = CUBE_POS as u32 * UNITS + UNIT_POS;
    if comptime!(host_bytes == 8) {
        let k = index >> 1;
        if k < count {
            let at = offset + position(data, k, contiguous);
            copy[index as usize] = data[(at * 2 + (index & 1)) as usize];
        }
    } else {
        let per_word = comptime!(4 / host_bytes);
        let first = index * per_word;
        if first < count {
            let mut word = 0u32;
            #[unroll]
            for i in 0..per_word {
                let k = first + i;
                if k < count {
                    let at = offset + position(data, k, contiguous);
                    word |= low_bits(data, at, format) << comptime!(8 * host_bytes * i);
                }
            }
            copy[index as usize] = word;
        }
    }
}
