//! Starts the kernels; the one place that hands memory to them unchecked.

use cubecl::client::Client;
use cubecl::prelude::{BufferArg, CubeCount, CubeDim, TensorArg};
use cubecl::server::Handle;

use super::gather::{UNITS, copy_row_major, gather_edges};
use super::layout::Layout;
use super::partial::tile_count;
use super::slots::Room;
use super::summarise::{Variant, summarise_tiles};

/// Units of a cube of the summary kernel: the greatest power of 4 that the device allows, to 256.
pub(super) fn units(client: &Client) -> u32 {
    let hardware = &client.properties().hardware;
    let most = hardware.max_units_per_cube.min(hardware.max_cube_dim.0);
    [256, 64, 16, 4]
        .into_iter()
        .find(|&units| units <= most)
        .unwrap_or(1)
}

/// A grid of at least so many cubes, and fewer than one row more.
///
/// Rows of 1024 keep each dimension below the 65535 that every device allows.
fn cubes(count: u32) -> CubeCount {
    let rows = count.div_ceil(1024).max(1);
    CubeCount::Static(count.div_ceil(rows), rows, 1)
}

fn tensor(layout: &Layout, dims: &[(usize, usize)]) -> TensorArg {
    let (shape, strides): (Vec<usize>, Vec<usize>) = dims.iter().copied().unzip();
    // SAFETY: a `Layout` is made only of tensors all of whose elements lie inside their handle, and
    // the kernels index no others. An element narrower than a word may be read with its neighbours
    // up to the next multiple of 4 bytes, which allocations are padded to.
    unsafe { TensorArg::from_raw_parts(layout.handle().clone(), strides.into(), shape.into()) }
}

fn words(handle: &Handle) -> BufferArg {
    let length = handle.size_in_used() as usize / 4;
    // SAFETY: the length is that of the handle.
    unsafe { BufferArg::from_raw_parts(handle.clone(), length) }
}

/// Writes the partial results of all tiles from where the room is on.
///
/// There must be room for them.
pub(super) fn summarise(client: &Client, layout: &Layout, units: u32, room: &Room) {
    let variant = Variant {
        format: layout.storage.format(),
        contiguous: layout.contiguous(),
        units,
    };
    // SAFETY: the kernel reads elements below the layout's count alone and writes one partial result
    // per tile, for which the caller keeps room.
    unsafe {
        summarise_tiles::launch_unchecked(
            client,
            cubes(tile_count(layout.count)),
            CubeDim::new_1d(units),
            tensor(layout, layout.merged_dims()),
            words(&room.buffer),
            layout.count,
            layout.offset,
            room.first_word,
            room.stamp,
            variant,
        );
    }
}

/// Writes the `count` printed elements from where the room is on.
///
/// There must be room for them, one or two words each.
pub(super) fn edges(client: &Client, layout: &Layout, cut: bool, count: u32, room: &Room) {
    // SAFETY: the kernel forms indices inside the layout's shape alone and writes `count` items, for
    // which the caller keeps room.
    unsafe {
        gather_edges::launch_unchecked(
            client,
            cubes(count.div_ceil(UNITS)),
            CubeDim::new_1d(UNITS),
            tensor(layout, layout.dims()),
            words(&room.buffer),
            count,
            layout.offset,
            room.first_word,
            room.stamp,
            layout.storage.format(),
            cut,
        );
    }
}

/// Writes all elements in row-major order; `copy` has the words for them.
pub(super) fn copy(client: &Client, layout: &Layout, copy: &Handle) {
    let words_of_copy = (copy.size_in_used() / 4) as u32;
    // SAFETY: the kernel reads elements below the layout's count alone and writes as many words as
    // they take, for which the caller made `copy`.
    unsafe {
        copy_row_major::launch_unchecked(
            client,
            cubes(words_of_copy.div_ceil(UNITS)),
            CubeDim::new_1d(UNITS),
            tensor(layout, layout.merged_dims()),
            words(copy),
            layout.count,
            layout.offset,
            layout.storage.format(),
            layout.storage.host_size() as u32,
            layout.contiguous(),
        );
    }
}
