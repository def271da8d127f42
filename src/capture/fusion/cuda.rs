//! A lane's part for NVIDIA devices: burnscope's own CUDA kernels on CubeCL's streams.
//!
//! What the kernels do not read goes on through the portable one, on the same stream.

use std::{
    io,
    sync::{Arc, OnceLock, mpsc},
};

use cubecl::device::CudaDevice;
use cubecl_environment::stream::StreamId;

use super::lane::{Batch, Native, Wanted};
use crate::{
    capture::dump::Arriving,
    summary::{
        cube::{DeviceTensor, Reading, Storage},
        cuda::{self, CubeclEngine, CudaError, DumpError, DumpOptions, DumpSink, Dumper, Elements},
    },
};

/// Summaries are handed over to be read when there are that many: four rings of the engine's slots.
const BATCH: usize = 512;

/// The same when that many bytes are kept alive for them, because another stream made them.
const BATCH_KEPT_BYTES: u64 = 256 << 20;

/// One stream's share of a device's engine.
pub(super) struct Cuda {
    shared: Arc<Shared>,
    wanted: Vec<Wanted>,
    kept_bytes: u64,
}

struct Shared {
    engine: CubeclEngine,
    ordinal: usize,
    /// Started with the first copy; `None` if it cannot be.
    dumper: OnceLock<Option<Arc<Dumper>>>,
}

impl Shared {
    fn dumper(&self) -> Option<Arc<Dumper>> {
        let start = || {
            let options = DumpOptions {
                // The session's queue bounds what waits, and this thread must not.
                waiting_bytes: u64::MAX,
                ..DumpOptions::default()
            };
            Dumper::new(self.ordinal, options).ok().map(Arc::new)
        };
        self.dumper.get_or_init(start).clone()
    }
}

impl Cuda {
    /// Starts a device's engine.
    pub(super) fn start(device: &CudaDevice) -> Result<Self, CudaError> {
        Ok(Self::with(Arc::new(Shared {
            engine: CubeclEngine::new(device)?,
            ordinal: device.index,
            dumper: OnceLock::new(),
        })))
    }

    fn with(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            wanted: Vec::new(),
            kept_bytes: 0,
        }
    }
}

impl Native for Cuda {
    fn summarise(&mut self, id: u64, tensor: &DeviceTensor) -> bool {
        let Some(described) = describe(tensor) else {
            return false;
        };
        let handle = tensor.handle.clone();
        if handle.stream != StreamId::current() {
            self.kept_bytes += handle.size_in_used();
        }
        let at = move |addresses: &[u64]| cuda::DeviceTensor {
            data: addresses[0],
            ..described
        };
        // SAFETY: `describe` has checked that every element lies in the handle's memory.
        unsafe { self.shared.engine.summarise(id, vec![handle], at) };
        self.wanted.push(Wanted::Summary(id));
        true
    }

    fn copy(&mut self, tensor: &DeviceTensor) -> Option<Arriving> {
        let described = describe(tensor)?;
        // Truth values in words are bytes on the host, which the portable kernel sees to.
        if tensor.storage == Storage::Bool32 {
            return None;
        }
        let dumper = self.shared.dumper()?;
        let bytes = tensor.shape.iter().product::<usize>() * tensor.storage.size();
        let (sender, receiver) = mpsc::channel();
        let sink = Box::new(Gathered {
            bytes: Vec::new(),
            length: bytes,
            sender,
        });
        let handle = tensor.handle.clone();
        let at = move |data| cuda::DeviceTensor { data, ..described };
        // SAFETY: as in `summarise`.
        unsafe { self.shared.engine.dump(dumper, handle, at, sink) };
        let shared = self.shared.clone();
        Some(Box::new(move || {
            // Else the copy might not start before the program asks for more. Past this the device's
            // thread has let go of the dumper: it must not be the one that ends it.
            let submitted = shared.engine.submitted();
            submitted.map_err(|error| error.to_string())?;
            receiver
                .recv()
                .unwrap_or_else(|_| Err("its copy was never made".to_owned()))
        }))
    }

    fn is_full(&self) -> bool {
        self.wanted.len() >= BATCH || self.kept_bytes >= BATCH_KEPT_BYTES
    }

    fn take(&mut self) -> Batch {
        self.kept_bytes = 0;
        let wanted = std::mem::take(&mut self.wanted);
        let (shared, expected) = (self.shared.clone(), wanted.clone());
        Batch::new(wanted, move || {
            if expected.is_empty() {
                return Vec::new();
            }
            match shared.engine.flush() {
                Ok(done) => done
                    .into_iter()
                    .map(|(id, summary)| {
                        let reading = summary.map(Reading::Summary);
                        let reading = reading.map_err(|error| error.to_string());
                        (Wanted::Summary(id), reading)
                    })
                    .collect(),
                Err(error) => {
                    let lost = |wanted| (wanted, Err(error.to_string()));
                    expected.into_iter().map(lost).collect()
                }
            }
        })
    }

    fn on_another_stream(&self) -> Box<dyn Native> {
        Box::new(Self::with(self.shared.clone()))
    }
}

/// The tensor as the engine takes it, its address still to be asked for; `None` if the kernels cannot
/// read it, it has no elements, or any would lie outside its handle's memory.
fn describe(tensor: &DeviceTensor) -> Option<cuda::DeviceTensor> {
    let size = tensor.storage.size();
    let reach = reach(tensor.shape, tensor.strides)?;
    let end = reach.checked_add(tensor.offset)?.checked_mul(size)?;
    let start = tensor.handle.offset_start.unwrap_or(0);
    let whole = start.is_multiple_of(size as u64) && tensor.offset == 0;
    if !whole || end as u64 > tensor.handle.size_in_used() {
        return None;
    }
    let described = cuda::DeviceTensor {
        data: 0,
        elements: match tensor.storage {
            Storage::Bool32 => Elements::WideBool,
            storage => Elements::Plain(storage.dtype()),
        },
        shape: tensor.shape.to_vec(),
        strides: tensor
            .strides
            .iter()
            .map(|&stride| stride as isize)
            .collect(),
    };
    cuda::Engine::check(&described).ok()?;
    Some(described)
}

/// How many elements of memory a tensor reaches over, gaps included; `None` if it has no elements or
/// reaches over more than can be counted.
fn reach(shape: &[usize], strides: &[usize]) -> Option<usize> {
    if shape.len() != strides.len() {
        return None;
    }
    let steps = shape.iter().zip(strides);
    let last = steps
        .into_iter()
        .try_fold(0usize, |at, (&length, &stride)| {
            at.checked_add(length.checked_sub(1)?.checked_mul(stride)?)
        })?;
    last.checked_add(1)
}

/// A copied tensor's bytes until all have come.
struct Gathered {
    bytes: Vec<u8>,
    length: usize,
    sender: mpsc::Sender<Result<Vec<u8>, String>>,
}

impl DumpSink for Gathered {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let missing = self.length - self.bytes.len();
        self.bytes.try_reserve_exact(missing)?;
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn close(self: Box<Self>, outcome: Result<(), DumpError>) {
        let Self { bytes, sender, .. } = *self;
        // Nobody waits any more if the session is gone.
        let _ = sender.send(outcome.map(|()| bytes).map_err(|error| error.to_string()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tensor_reaches_as_far_as_its_last_element() {
        assert_eq!(reach(&[], &[]), Some(1));
        assert_eq!(reach(&[3, 4], &[4, 1]), Some(12));
        // Padded rows: none behind the last.
        assert_eq!(reach(&[3, 4], &[16, 1]), Some(36));
        // Transposed, and broadcast.
        assert_eq!(reach(&[4, 3], &[1, 16]), Some(36));
        assert_eq!(reach(&[1000, 4], &[0, 1]), Some(4));
        assert_eq!(reach(&[3, 0], &[4, 1]), None);
        assert_eq!(reach(&[3, 4], &[1]), None);
        assert_eq!(reach(&[3, 2], &[usize::MAX, 1]), None);
    }
}
