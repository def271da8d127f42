//! The engine on CubeCL's own stream: all that burnscope uses of CubeCL's semi-internal interface.
//!
//! A closure submitted to CubeCL's device thread runs in order with everything that the calling
//! thread has submitted, so the tensor is written and its memory is still its own. There the
//! address and the `CUstream` are asked for and the engine adds its work. Nothing is held alive and
//! nobody waits. The calls belong to exactly the versions of `burn` and `cubecl` that `Cargo.toml`
//! names.

use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use cubecl::{
    cuda::{CudaDevice, CudaRuntime},
    server::Handle,
};
use cubecl_common::{device::Device, device_handle::DeviceHandle};
use cubecl_environment::stream::StreamId;
use cubecl_server::{runtime::Runtime, server::ServerStorage, stream::WriteScoped};

use super::{
    CudaError, DevicePointer, DeviceTensor, DumpError, DumpSink, Dumper, Engine, ProducerStream,
    Summarised,
};

type Server = <CudaRuntime as Runtime>::Server;

/// Summarises and dumps tensors that CubeCL holds on one CUDA device.
pub struct CubeclEngine {
    device: DeviceHandle<Server>,
    shared: Arc<Shared>,
}

struct Shared {
    engine: Mutex<Engine>,
    /// Tensors whose summary could not be started.
    failed: Mutex<Vec<Summarised>>,
    /// Handles written on another stream than the one that reads them: that stream could give
    /// their memory away too early. Kept until their summary is handed out.
    kept: Mutex<HashMap<u64, Vec<Handle>>>,
}

/// What the device thread knows of some handles.
struct Located {
    stream: ProducerStream,
    addresses: Vec<DevicePointer>,
}

impl CubeclEngine {
    /// An engine for a device that CubeCL uses.
    ///
    /// # Errors
    /// As [`Engine::new`].
    pub fn new(device: &CudaDevice) -> Result<Self, CudaError> {
        Ok(Self {
            device: DeviceHandle::new(device.to_id()),
            shared: Arc::new(Shared {
                engine: Mutex::new(Engine::new(device.index)?),
                failed: Mutex::default(),
                kept: Mutex::default(),
            }),
        })
    }

    /// Adds a tensor's summary to the stream that this thread's operations run on.
    ///
    /// `describe` makes the tensor from the handles' addresses; it runs on the device thread and
    /// must call nothing of CubeCL. What goes wrong is handed out under `number`.
    ///
    /// # Safety
    /// The described tensor lies inside the handles' memory.
    pub unsafe fn summarise<F>(&self, number: u64, handles: Vec<Handle>, describe: F)
    where
        F: FnOnce(&[DevicePointer]) -> DeviceTensor + Send + 'static,
    {
        let shared = self.shared.clone();
        let current = StreamId::current();
        if handles.iter().any(|handle| handle.stream != current) {
            lock(&shared.kept).insert(number, handles.clone());
        }
        let failed = shared.clone();
        self.submit(
            handles,
            move |located| {
                let tensor = describe(&located.addresses);
                // SAFETY: the caller's promise; the stream is CubeCL's and lives as long as the
                // process, and CubeCL orders every other use of the memory after it.
                unsafe { lock(&shared.engine).summarise(located.stream, &[(number, tensor)]) }
            },
            move |error| lock(&failed.failed).push((number, Err(error))),
        );
    }

    /// Hands a tensor to a dumper of the same device; a failure closes the sink with it.
    ///
    /// # Safety
    /// The described tensor lies inside the handle's memory.
    pub unsafe fn dump<F>(
        &self,
        dumper: Arc<Dumper>,
        handle: Handle,
        describe: F,
        sink: Box<dyn DumpSink>,
    ) where
        F: FnOnce(DevicePointer) -> DeviceTensor + Send + 'static,
    {
        let keep = Box::new(handle.clone());
        // Whoever comes first takes it: the dumper, or the report of a failure before it.
        let sink = Arc::new(Mutex::new(Some(sink)));
        let unused = sink.clone();
        self.submit(
            vec![handle],
            move |located| {
                let tensor = describe(located.addresses[0]);
                if let Some(sink) = lock(&sink).take() {
                    // SAFETY: the caller's promise; a handle that is shared is written by nobody.
                    unsafe { dumper.dump(located.stream, &tensor, keep, sink) };
                }
                Ok(())
            },
            move |error| {
                if let Some(sink) = lock(&unused).take() {
                    sink.close(Err(DumpError::Cuda(error)));
                }
            },
        );
    }

    /// Summaries that have arrived; does not wait for the device.
    ///
    /// # Errors
    /// If the device has failed.
    pub fn collect(&self) -> Result<Vec<Summarised>, CudaError> {
        let done = lock(&self.shared.engine).collect()?;
        Ok(self.shared.hand_out(done))
    }

    /// Waits until everything handed in so far is on its stream. The device is not waited for.
    ///
    /// Not for a thread on which CubeCL runs a device.
    ///
    /// # Errors
    /// If the device thread is gone.
    pub fn submitted(&self) -> Result<(), CudaError> {
        // One queue holds the closures of all threads: this one comes after them.
        self.device
            .submit_blocking(|_| ())
            .map_err(|error| CudaError::Panicked(format!("{error:?}")))
    }

    /// Waits until everything handed in so far is summarised, by any thread. Work that is handed in
    /// meanwhile is not held up.
    ///
    /// # Errors
    /// As [`submitted`](Self::submitted).
    pub fn flush(&self) -> Result<Vec<Summarised>, CudaError> {
        self.submitted()?;
        // In a statement of its own: the lock must be free while this thread waits.
        let under_way = lock(&self.shared.engine).send();
        Ok(self.shared.hand_out(under_way.wait()))
    }

    /// Runs `work` on the device thread with the addresses of some handles and their stream, and
    /// `failed` if that goes wrong or panics: a panic there would end as a line in a log.
    fn submit<W, F>(&self, handles: Vec<Handle>, work: W, failed: F)
    where
        W: FnOnce(Located) -> Result<(), CudaError> + Send + 'static,
        F: FnOnce(CudaError) + Send + 'static,
    {
        let bindings: Vec<_> = handles.into_iter().map(Handle::binding).collect();
        self.device.submit(move |server| {
            let work = || locate(server, bindings).and_then(work);
            let done = catch_unwind(AssertUnwindSafe(work))
                .unwrap_or_else(|panic| Err(CudaError::Panicked(message(&*panic))));
            if let Err(error) = done {
                failed(error);
            }
        });
    }
}

impl Shared {
    /// Adds the failures, and lets go of what was kept for those done.
    fn hand_out(&self, mut done: Vec<Summarised>) -> Vec<Summarised> {
        done.append(&mut lock(&self.failed));
        let mut kept = lock(&self.kept);
        for (number, _) in &done {
            kept.remove(number);
        }
        done
    }
}

fn locate(
    server: &mut Server,
    bindings: Vec<cubecl::server::BufferBinding>,
) -> Result<Located, CudaError> {
    // The caller's: CubeCL carries it to the device thread.
    let id = StreamId::current();
    let mut addresses = Vec::with_capacity(bindings.len());
    for binding in bindings {
        // Also makes the stream wait for the handle's writer.
        let resource = server
            .get_resource(binding, id)
            .map_err(|_| CudaError::Cubecl("memory"))?;
        addresses.push(resource.resource().ptr);
    }
    let stream = server
        .write_streams()
        .try_stream_mut(&id)
        .ok_or(CudaError::Cubecl("stream"))?;
    Ok(Located {
        // SAFETY: CubeCL's streams belong to the primary context and are not destroyed before it.
        stream: unsafe { ProducerStream::new(stream.sys) },
        addresses,
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "without a message".to_owned())
}
