//! Takes requests about tensors of one device, and hands their results over to be read back.

use std::fmt;

use cubecl::client::Client;

use super::copy::DeviceCopy;
use super::error::NotSummarised;
use super::launch;
use super::layout::{DeviceTensor, Layout};
use super::partial::{PARTIAL_WORDS, tile_count};
use super::slots::{Buffers, Content, Pending, Slot, edge_count};
use crate::summary::edge::is_shortened;

/// Bytes of a buffer of results: the partial results of some 13000 tiles.
const BUFFER_BYTES: u32 = 1 << 20;

/// Summarises tensors of one device without waiting for it.
///
/// Each request starts one kernel behind the work that the device already has, and returns. Kernels
/// leave their results in buffers on the device, which [`flush`](Self::flush) hands over to be read,
/// each once. Requests may be made on the device's own thread.
pub struct CubeSummariser {
    client: Client,
    units: u32,
    buffers: Buffers,
}

/// Without the client, which has no such form.
impl fmt::Debug for CubeSummariser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CubeSummariser")
            .field("units", &self.units)
            .field("buffers", &self.buffers)
            .finish_non_exhaustive()
    }
}

impl CubeSummariser {
    /// For tensors of that client's device. Allocates nothing yet.
    pub fn new(client: &Client) -> Self {
        Self::with_buffer_bytes(client, BUFFER_BYTES)
    }

    /// The same with another size of the buffers, each of which is read in one go.
    pub fn with_buffer_bytes(client: &Client, bytes: u32) -> Self {
        Self {
            client: client.clone(),
            units: launch::units(client),
            buffers: Buffers::new((bytes / 4).max(PARTIAL_WORDS + 1)),
        }
    }

    /// Summarises a tensor as it is after the work that the device was given before.
    ///
    /// # Errors
    /// If the kernels cannot read it.
    pub fn enqueue(&mut self, tensor: &DeviceTensor) -> Result<Slot, NotSummarised> {
        let storage = tensor.storage;
        let layout = Layout::new(&self.client, tensor)?;
        let count = layout.as_ref().map_or(0, |layout| layout.count);
        let content = Content::Partials { storage, count };
        let Some(layout) = layout else {
            return Ok(self.buffers.push_empty(content));
        };
        let words = tile_count(count) * PARTIAL_WORDS;
        let (slot, room) = self.buffers.reserve(&self.client, content, words);
        launch::summarise(&self.client, &layout, self.units, &room);
        Ok(slot)
    }

    /// Gathers the elements of a tensor that PyTorch prints.
    ///
    /// # Errors
    /// As [`enqueue`](Self::enqueue).
    pub fn enqueue_edges(&mut self, tensor: &DeviceTensor) -> Result<Slot, NotSummarised> {
        let content = Content::Edges {
            storage: tensor.storage,
            shape: tensor.shape.to_vec(),
        };
        let Some(layout) = Layout::new(&self.client, tensor)? else {
            return Ok(self.buffers.push_empty(content));
        };
        let wide = tensor.storage.format().wide();
        let count = u32::try_from(edge_count(tensor.shape)).ok();
        let words = count.and_then(|count| count.checked_mul(if wide { 2 } else { 1 }));
        let (Some(count), Some(words)) = (count, words) else {
            return Err(too_large(tensor));
        };
        let (slot, room) = self.buffers.reserve(&self.client, content, words);
        let cut = is_shortened(tensor.shape);
        launch::edges(&self.client, &layout, cut, count, &room);
        Ok(slot)
    }

    /// Copies a whole tensor, row by row, to other memory of the device.
    ///
    /// # Errors
    /// As [`enqueue`](Self::enqueue).
    pub fn enqueue_copy(&self, tensor: &DeviceTensor) -> Result<DeviceCopy, NotSummarised> {
        let storage = tensor.storage;
        let handle = match Layout::new(&self.client, tensor)? {
            None => None,
            Some(layout) => {
                let bytes = (layout.count as usize)
                    .checked_mul(storage.host_size())
                    .filter(|bytes| bytes / 4 < 1 << 31)
                    .ok_or_else(|| too_large(tensor))?;
                let copy = self.client.empty(bytes.next_multiple_of(4));
                launch::copy(&self.client, &layout, &copy);
                Some(copy)
            }
        };
        Ok(DeviceCopy::new(&self.client, handle, storage, tensor.shape))
    }

    /// Bytes of results on the device that wait for [`flush`](Self::flush).
    pub fn pending_bytes(&self) -> u64 {
        self.buffers.bytes()
    }

    /// Hands over the results of all requests since the last time, without waiting for them.
    pub fn flush(&mut self) -> Pending {
        self.buffers.take(&self.client)
    }
}

fn too_large(tensor: &DeviceTensor) -> NotSummarised {
    NotSummarised::TooLarge {
        shape: tensor.shape.to_vec(),
    }
}
