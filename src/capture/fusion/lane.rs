//! One device's summaries: started behind the operation that made the tensor, handed over in batches.
//!
//! The portable kernel serves every device. Where a device has an engine of its own, that is asked
//! first.

use burn_cubecl::fusion::CubeFusionHandle;
use burn_fusion::stream::StreamId;

use super::{handle, portable::Portable};
use crate::{
    capture::dump::Arriving,
    summary::cube::{DeviceTensor, NotSummarised, Reading},
};

/// The results of tensors of so many bytes have a buffer of their own.
const ALONE_BYTES: u64 = 64 << 20;

/// What a result belongs to: a session's number of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Summary(u64),
    Edges(u64),
}

/// A result, or why there is none.
pub(super) type Arrived = (Wanted, Result<Reading, String>);

/// Results on their way, with whose they are.
pub(super) struct Batch {
    pub(super) wanted: Vec<Wanted>,
    results: Vec<Box<dyn FnOnce() -> Vec<Arrived> + Send>>,
}

impl Batch {
    /// `results` waits for the device; it may bring results of other batches, too.
    pub(super) fn new(
        wanted: Vec<Wanted>,
        results: impl FnOnce() -> Vec<Arrived> + Send + 'static,
    ) -> Self {
        Self {
            wanted,
            results: vec![Box::new(results)],
        }
    }

    fn append(&mut self, mut other: Self) {
        self.wanted.append(&mut other.wanted);
        self.results.append(&mut other.results);
    }

    /// Waits for the device. Not for a device's own thread.
    pub(super) fn wait(self) -> Vec<Arrived> {
        self.results.into_iter().flat_map(|wait| wait()).collect()
    }
}

/// An engine that only some devices have, for what it does better there than the portable kernel.
///
/// It is called on the device's own thread: nothing may wait for the device but what it hands over.
pub(super) trait Native: Send {
    /// Starts a tensor's summary; false if the engine cannot read it.
    fn summarise(&mut self, id: u64, tensor: &DeviceTensor) -> bool;

    /// Starts a copy of a tensor's elements; `None` if the engine cannot make it.
    fn copy(&mut self, tensor: &DeviceTensor) -> Option<Arriving>;

    /// Whether so much was started that it should be handed over.
    fn is_full(&self) -> bool;

    /// Hands over what was started since the last time.
    fn take(&mut self) -> Batch;

    /// The same engine for another stream of its device.
    fn on_another_stream(&self) -> Box<dyn Native>;
}

/// A stream of a device at work for a session.
///
/// Each has its own summariser: what waits for a buffer waits for the stream that the buffer was
/// allocated on, so that every kernel that writes to it must be of that stream.
pub(super) struct Lane {
    pub(super) device: cubecl::Device,
    pub(super) stream: StreamId,
    portable: Portable,
    /// What will be handed over with the rest, from buffers that take no more.
    sealed: Option<Batch>,
    native: Option<Box<dyn Native>>,
}

impl Lane {
    /// Of the stream that this thread works for. What others there are of its device share the
    /// device's own engine; if that cannot start, a note says so, once.
    pub(super) fn new(
        handle: &CubeFusionHandle,
        stream: StreamId,
        others: &[Lane],
        notes: &mut Vec<String>,
    ) -> Self {
        let native = match others.iter().find(|other| other.device == handle.device) {
            Some(other) => other.native.as_ref().map(|of| of.on_another_stream()),
            None => native(&handle.device, notes),
        };
        Self {
            device: handle.device.clone(),
            stream,
            portable: Portable::new(&handle.client),
            sealed: None,
            native,
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
        // A tensor that the device could not make takes the results in its buffer with it. Large ones
        // are what devices cannot make.
        let alone = handle.handle.size_in_used() >= ALONE_BYTES;
        if alone {
            self.seal();
        }
        self.with_tensor(handle, shape, |lane, tensor| {
            let native = lane.native.as_mut();
            if !native.is_some_and(|native| native.summarise(id, tensor)) {
                lane.portable.summarise(id, tensor)?;
            }
            if edges {
                lane.portable.edges(id, tensor)?;
            }
            Ok(())
        })?;
        if alone {
            self.seal();
        }
        let full = self.portable.is_full() || self.native.as_ref().is_some_and(|of| of.is_full());
        Ok(full.then(|| self.take()))
    }

    /// Starts a copy of a tensor's elements.
    pub(super) fn copy(
        &mut self,
        handle: &CubeFusionHandle,
        shape: &[usize],
    ) -> Result<Arriving, String> {
        self.with_tensor(handle, shape, |lane, tensor| {
            let native = lane.native.as_mut();
            match native.and_then(|native| native.copy(tensor)) {
                Some(copy) => Ok(copy),
                None => lane.portable.copy(tensor),
            }
        })
    }

    /// Has what comes next go to another buffer.
    fn seal(&mut self) {
        let batch = self.portable.take();
        match &mut self.sealed {
            Some(sealed) => sealed.append(batch),
            None => self.sealed = Some(batch),
        }
    }

    /// Hands over what was started since the last time.
    pub(super) fn take(&mut self) -> Batch {
        self.seal();
        let mut batch = self.sealed.take().unwrap_or_else(|| self.portable.take());
        if let Some(native) = &mut self.native {
            batch.append(native.take());
        }
        batch
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

/// The engine that a device has of its own, if it has one and it starts.
#[cfg(feature = "cuda")]
fn native(device: &cubecl::Device, notes: &mut Vec<String>) -> Option<Box<dyn Native>> {
    let cubecl::Device::Cuda(cuda) = device else {
        return None;
    };
    match super::cuda::Cuda::start(cuda) {
        Ok(engine) => Some(Box::new(engine)),
        Err(error) => {
            notes.push(format!(
                "{}: burnscope's CUDA kernels cannot be used, the portable kernel summarises in \
                 their place: {error}",
                device_name(device)
            ));
            None
        }
    }
}

#[cfg(not(feature = "cuda"))]
fn native(_: &cubecl::Device, _: &mut Vec<String>) -> Option<Box<dyn Native>> {
    None
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
            device::{
                CudaDevice, WgpuDevice,
                WgpuDeviceKind::{Cpu, DefaultDevice, DiscreteGpu},
            },
        };
        assert_eq!(device_name(&Device::Cuda(CudaDevice::new(1))), "cuda:1");
        let name = |kind| device_name(&Device::Wgpu(WgpuDevice::new(kind)));
        assert_eq!(name(Cpu), "wgpu:cpu");
        assert_eq!(name(DefaultDevice), "wgpu");
        assert_eq!(name(DiscreteGpu(1)), "wgpu:discretegpu:1");
    }
}
