//! A tensor's elements on their way from a device to a file, within the session's bound on memory.

use crate::{
    capture::dump::{Arriving, DumpQueue, Elements, Job},
    summary::DType,
};

/// A file that room was taken for, and whose elements are still to be copied.
pub(crate) struct DeviceDump {
    pub(crate) queue: DumpQueue,
    pub(crate) name: String,
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
    /// Bytes of room that were taken.
    pub(crate) reserved: usize,
}

impl DeviceDump {
    /// Queues the file, or gives its room back. Never waits.
    pub(super) fn copied(mut self, copy: Result<Arriving, String>) {
        // Dropping it has nothing to give back then.
        let name = std::mem::take(&mut self.name);
        match copy {
            Ok(copy) => self.queue.submit(
                Job {
                    name,
                    dtype: self.dtype.clone(),
                    shape: std::mem::take(&mut self.shape),
                    elements: Elements::Device(copy),
                },
                self.reserved,
            ),
            Err(why) => self.queue.give_up(name, self.reserved, why),
        }
    }
}

/// Burn runs no marker of a tensor whose operation failed or was refused: whoever waits for room must
/// not wait for that one.
impl Drop for DeviceDump {
    fn drop(&mut self) {
        if !self.name.is_empty() {
            let why = "the operation that makes it did not run".to_owned();
            let name = std::mem::take(&mut self.name);
            self.queue.give_up(name, self.reserved, why);
        }
    }
}
