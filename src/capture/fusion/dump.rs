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
    pub(super) fn copied(self, copy: Result<Arriving, String>) {
        match copy {
            Ok(copy) => self.queue.submit(
                Job {
                    name: self.name,
                    dtype: self.dtype,
                    shape: self.shape,
                    elements: Elements::Device(copy),
                },
                self.reserved,
            ),
            Err(why) => self.queue.give_up(self.name, self.reserved, why),
        }
    }
}
