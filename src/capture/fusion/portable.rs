//! A lane's part for the kernel that runs on every device that CubeCL drives.

use std::collections::HashMap;

use cubecl::client::Client;

use super::lane::{Batch, Wanted};
use crate::{
    capture::dump::Arriving,
    summary::cube::{CubeSummariser, DeviceTensor, NotSummarised, Slot},
};

/// Bytes of a buffer of results. Each stream has one at a time: a program may have many threads.
const BUFFER_BYTES: u32 = 128 << 10;

/// Results are handed over to be read once they fill that many bytes on the device.
const BATCH_BYTES: u64 = 4 << 20;

pub(super) struct Portable {
    summariser: CubeSummariser,
    wanted: Vec<(Slot, Wanted)>,
}

impl Portable {
    pub(super) fn new(client: &Client) -> Self {
        Self {
            summariser: CubeSummariser::with_buffer_bytes(client, BUFFER_BYTES),
            wanted: Vec::new(),
        }
    }

    pub(super) fn summarise(
        &mut self,
        id: u64,
        tensor: &DeviceTensor,
    ) -> Result<(), NotSummarised> {
        let slot = self.summariser.enqueue(tensor)?;
        self.wanted.push((slot, Wanted::Summary(id)));
        Ok(())
    }

    /// Starts the copy of the elements that PyTorch prints.
    pub(super) fn edges(&mut self, id: u64, tensor: &DeviceTensor) -> Result<(), NotSummarised> {
        let slot = self.summariser.enqueue_edges(tensor)?;
        self.wanted.push((slot, Wanted::Edges(id)));
        Ok(())
    }

    pub(super) fn copy(&self, tensor: &DeviceTensor) -> Result<Arriving, NotSummarised> {
        let copy = self.summariser.enqueue_copy(tensor)?;
        Ok(Box::new(move || {
            copy.wait().map_err(|error| error.to_string())
        }))
    }

    pub(super) fn is_full(&self) -> bool {
        self.summariser.pending_bytes() >= BATCH_BYTES
    }

    pub(super) fn take(&mut self) -> Batch {
        let pending = self.summariser.flush();
        let by_slot = std::mem::take(&mut self.wanted);
        let wanted = by_slot.iter().map(|(_, wanted)| *wanted).collect();
        Batch::new(wanted, move || {
            let mut results: Result<HashMap<_, _>, _> = match pending.wait() {
                Ok(results) => Ok(results.into_iter().collect()),
                Err(error) => Err(error.to_string()),
            };
            let mut result = |slot| match &mut results {
                Ok(results) => results
                    .remove(&slot)
                    .ok_or_else(|| "the device gave no result for it".to_owned()),
                Err(why) => Err(why.clone()),
            };
            by_slot
                .into_iter()
                .map(|(slot, wanted)| (wanted, result(slot)))
                .collect()
        })
    }
}
