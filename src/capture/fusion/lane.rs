//! One device's summaries: started behind the operation that made the tensor, handed over in batches.

use burn_cubecl::fusion::CubeFusionHandle;
use burn_fusion::stream::StreamId;

use super::handle;
use crate::summary::cube::{
    CubeSummariser, DeviceCopy, DeviceTensor, NotSummarised, Pending, Slot,
};

/// Results are handed over to be read once they fill that many bytes on the device.
const BATCH_BYTES: u64 = 4 << 20;

/// What a slot's result belongs to: a session's number of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Summary(u64),
    Edges(u64),
}

/// Results on their way, with whose they are.
pub(super) struct Batch {
    pub(super) pending: Pending,
    pub(super) wanted: Vec<(Slot, Wanted)>,
}

/// A stream of a device at work for a session.
///
/// Each has its own summariser: what waits for a buffer waits for the stream that the buffer was
/// allocated on, so that every kernel that writes to it must be of that stream.
pub(super) struct Lane {
    pub(super) device: cubecl::Device,
    pub(super) stream: StreamId,
    summariser: CubeSummariser,
    wanted: Vec<(Slot, Wanted)>,
}

impl Lane {
    /// Of the stream that this thread works for.
    pub(super) fn new(handle: &CubeFusionHandle, stream: StreamId) -> Self {
        Self {
            device: handle.device.clone(),
            stream,
            summariser: CubeSummariser::new(&handle.client),
            wanted: Vec::new(),
        }
    }

    /// Starts a tensor's summary and, if asked for, the copy of the elements that PyTorch prints.
    ///
    /// Returns what is full by now, to be read.
    pub(super) fn summarise(
        &mut self,
        id: u64,
        handle: &CubeFusionHandle,
        shape: &[usize],
        edges: bool,
    ) -> Result<Option<Batch>, String> {
        self.with_tensor(handle, shape, |lane, tensor| {
            let slot = lane.summariser.enqueue(tensor)?;
            lane.wanted.push((slot, Wanted::Summary(id)));
            if edges {
                let slot = lane.summariser.enqueue_edges(tensor)?;
                lane.wanted.push((slot, Wanted::Edges(id)));
            }
            Ok(())
        })?;
        let full = self.summariser.pending_bytes() >= BATCH_BYTES;
        Ok(full.then(|| self.take()))
    }

    /// Starts a copy of a tensor's elements.
    pub(super) fn copy(
        &mut self,
        handle: &CubeFusionHandle,
        shape: &[usize],
    ) -> Result<DeviceCopy, String> {
        self.with_tensor(handle, shape, |lane, tensor| {
            lane.summariser.enqueue_copy(tensor)
        })
    }

    /// Hands over what was started since the last time.
    pub(super) fn take(&mut self) -> Batch {
        Batch {
            pending: self.summariser.flush(),
            wanted: std::mem::take(&mut self.wanted),
        }
    }

    fn with_tensor<R>(
        &mut self,
        handle: &CubeFusionHandle,
        shape: &[usize],
        then: impl FnOnce(&mut Self, &DeviceTensor) -> Result<R, NotSummarised>,
    ) -> Result<R, String> {
        if handle.tiles.is_some() {
            return Err("its memory is laid out in tiles".to_owned());
        }
        // The numbers of a quantised tensor are those of the values it stands for.
        let dequantised = handle::dequantised(handle, shape);
        let handle = dequantised.as_ref().unwrap_or(handle);
        let storage = handle::storage(handle.dtype)
            .ok_or_else(|| format!("elements of type {:?} cannot be read", handle.dtype))?;
        let strides: Vec<usize> = handle.strides.iter().copied().collect();
        let tensor = DeviceTensor {
            handle: &handle.handle,
            storage,
            shape,
            strides: &strides,
            offset: 0,
        };
        then(self, &tensor).map_err(|error| error.to_string())
    }
}

/// PyTorch's name of a device where it has one (`cuda:0`), else one like it: `wgpu:discretegpu:0`.
pub(crate) fn device_name(device: &cubecl::Device) -> String {
    use cubecl::Device;
    match device {
        Device::Cuda(device) => format!("cuda:{}", device.index),
        // PyTorch calls ROCm's devices so, too.
        Device::Hip(device) => format!("cuda:{}", device.index),
        Device::Wgpu(device) => match format!("{:?}", device.kind).to_lowercase().as_str() {
            "defaultdevice" => "wgpu".to_owned(),
            kind => format!("wgpu:{}", kind.replace('(', ":").trim_end_matches(')')),
        },
        other => format!("{other:?}").to_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_have_short_names() {
        use cubecl::{
            Device,
            wgpu::WgpuDeviceKind::{Cpu, DefaultDevice, DiscreteGpu},
        };
        let name = |kind| device_name(&Device::Wgpu(cubecl::wgpu::WgpuDevice::new(kind)));
        assert_eq!(name(Cpu), "wgpu:cpu");
        assert_eq!(name(DefaultDevice), "wgpu");
        assert_eq!(name(DiscreteGpu(1)), "wgpu:discretegpu:1");
    }
}
