//! A tensor's elements on their way from a device to a file, within the session's bound on memory.

use std::sync::Arc;

use burn_cubecl::fusion::CubeFusionHandle;
use burn_ir::TensorIr;

use super::{
    handle::FusionTensor,
    log::{DeviceLog, State},
    marker,
};
use crate::{
    capture::{
        dump::{Arriving, DumpQueue, Elements, Job},
        record::dump_dtype,
        tensor,
    },
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

impl DeviceLog {
    /// Has a tensor's elements written to a file, as they are where the program is now.
    pub(crate) fn dump(self: &Arc<Self>, tensor: FusionTensor, dump: DeviceDump) {
        let log = self.clone();
        marker::register(
            tensor,
            Box::new(move |tensor, handles| {
                let mut state = log.state();
                let copy = match handles.get_handle_ref(&tensor.id) {
                    Some(_) if state.closed => Err("the session has ended".to_owned()),
                    Some(handle) => {
                        let shape: Vec<usize> = tensor.shape.iter().copied().collect();
                        state.lane(handle).copy(handle, &shape)
                    }
                    None => Err("the operation that makes it failed".to_owned()),
                };
                drop(state);
                dump.copied(copy);
            }),
        );
    }

    /// Starts the dump of an operation's result, if there is room for it now: this thread never waits.
    pub(super) fn dump_result(
        &self,
        state: &mut State,
        (id, name): (u64, String),
        handle: &CubeFusionHandle,
        out: &TensorIr,
    ) {
        let Some(queue) = &self.settings.dumps else {
            return;
        };
        let dtype = dump_dtype(&tensor::dtype(out.dtype));
        let shape = out.shape.iter().copied().collect();
        let Some(size) = dtype.size() else { return };
        let reserved = out.shape.num_elements() * size;
        if !queue.try_reserve(reserved) {
            return;
        }
        let dump = DeviceDump {
            queue: queue.clone(),
            name: name.clone(),
            dtype,
            shape,
            reserved,
        };
        let copy = state.lane(handle).copy(handle, &dump.shape);
        if copy.is_ok() {
            state.trace.files.insert(id, name);
        }
        dump.copied(copy);
    }
}
