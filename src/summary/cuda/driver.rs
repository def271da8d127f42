//! Owned driver objects: the device, its modules, memory, events and streams. All calls of `cudarc`
//! that summaries and dumps need are here.
//!
//! Every object keeps the [`Device`] it belongs to, which keeps the primary context alive. Calls
//! need that context to be current on the calling thread: see [`Device::bind`].

use std::{
    collections::HashMap,
    ffi::{CString, c_void},
    ptr::NonNull,
    sync::{Arc, Mutex, PoisonError},
};

use cudarc::driver::{result, sys};

use super::{
    CudaError, DevicePointer,
    batch::{Argument, Gather, Kernel, THREADS},
    error::DuringCall,
};

include!(concat!(env!("OUT_DIR"), "/ptx.rs"));

/// A stream that some other library launches its work on.
///
/// The engine only ever adds work to it, so that the work comes after what is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProducerStream(sys::CUstream);

// SAFETY: a stream handle may be used from any thread on which its context is current.
unsafe impl Send for ProducerStream {}
unsafe impl Sync for ProducerStream {}

impl ProducerStream {
    /// # Safety
    /// `stream` belongs to the primary context of the device it is used with, and lives until the
    /// engine that it is handed to is flushed for the last time.
    pub unsafe fn new(stream: sys::CUstream) -> Self {
        Self(stream)
    }
}

/// One device's primary context, the one CubeCL works in too, and the kernels loaded there.
pub(super) struct Device {
    ordinal: sys::CUdevice,
    context: sys::CUcontext,
    functions: Mutex<HashMap<Kernel, sys::CUfunction>>,
    modules: Mutex<HashMap<String, sys::CUmodule>>,
}

// SAFETY: contexts, modules and functions may be used from any thread; the maps are locked.
unsafe impl Send for Device {}
unsafe impl Sync for Device {}

impl Device {
    pub fn new(ordinal: usize) -> Result<Arc<Self>, CudaError> {
        // SAFETY: only asks whether the library can be loaded.
        if !unsafe { sys::is_culib_present() } {
            return Err(CudaError::NoDriver);
        }
        result::init().during("cuInit")?;
        let ordinal = result::device::get(i32::try_from(ordinal).unwrap_or(i32::MAX))
            .during("cuDeviceGet")?;
        let attribute = |attribute| {
            // SAFETY: `ordinal` is a device that the driver gave.
            unsafe { result::device::get_attribute(ordinal, attribute) }
                .during("cuDeviceGetAttribute")
        };
        use sys::CUdevice_attribute as Attribute;
        let major = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        if major < 8 {
            return Err(CudaError::OldDevice { major, minor });
        }
        // SAFETY: as above; released when the last owner is dropped.
        let context =
            unsafe { result::primary_ctx::retain(ordinal) }.during("cuDevicePrimaryCtxRetain")?;
        Ok(Arc::new(Self {
            ordinal,
            context,
            functions: Mutex::default(),
            modules: Mutex::default(),
        }))
    }

    /// Makes the context current on this thread.
    pub fn bind(&self) -> Result<(), CudaError> {
        // SAFETY: the context is retained as long as `self` lives.
        unsafe { result::ctx::set_current(self.context) }.during("cuCtxSetCurrent")
    }

    /// Waits for all work of the whole context.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        result::ctx::synchronize().during("cuCtxSynchronize")
    }

    /// Finds out whether the driver takes the kernels' PTX, with the smallest module: all have one
    /// version and target. The device must be bound.
    pub fn try_module(&self) -> Result<(), CudaError> {
        self.module("gather").map(|_| ())
    }

    fn function(&self, kernel: &Kernel) -> Result<sys::CUfunction, CudaError> {
        let mut functions = self
            .functions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(&function) = functions.get(kernel) {
            return Ok(function);
        }
        let module = self.module(&kernel.module)?;
        let name = CString::new(kernel.function.as_str())
            .map_err(|_| CudaError::Unsupported(kernel.function.clone()))?;
        // SAFETY: the module stays loaded as long as `self` lives.
        let function =
            unsafe { result::module::get_function(module, name) }.during("cuModuleGetFunction")?;
        functions.insert(kernel.clone(), function);
        Ok(function)
    }

    fn module(&self, name: &str) -> Result<sys::CUmodule, CudaError> {
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&module) = modules.get(name) {
            return Ok(module);
        }
        let (_, ptx) = PTX
            .iter()
            .find(|(module, _)| *module == name)
            .ok_or_else(|| CudaError::Unsupported(name.to_owned()))?;
        // SAFETY: the text ends with a zero byte (build.rs adds it).
        let module =
            unsafe { result::module::load_data(ptx.as_ptr().cast()) }.during("cuModuleLoadData")?;
        modules.insert(name.to_owned(), module);
        Ok(module)
    }

    /// Launches a summary kernel over `blocks` tiles.
    ///
    /// # Safety
    /// What the argument points to is valid when the stream comes to the launch: tensors to be
    /// read, parts, tickets and slots to be written, and nobody else writes any of it meanwhile.
    pub unsafe fn launch_summary(
        &self,
        kernel: &Kernel,
        argument: &Argument,
        blocks: u32,
        stream: ProducerStream,
    ) -> Result<(), CudaError> {
        let function = self.function(kernel)?;
        let argument: *const c_void = match argument {
            Argument::Dense(batch) => (&raw const **batch).cast(),
            Argument::Strided(batch) => (&raw const **batch).cast(),
            Argument::Quantized(batch) => (&raw const **batch).cast(),
        };
        // SAFETY: the kernel takes one argument, which is copied before the call returns; the
        // rest is the caller's promise.
        unsafe { launch(function, blocks, argument, stream.0) }
    }

    /// Launches a gather of elements of `bytes` each.
    ///
    /// # Safety
    /// As for a summary: source and target are valid when the stream comes to the launch.
    pub unsafe fn launch_gather(
        &self,
        gather: &Gather,
        bytes: u64,
        stream: &Stream,
    ) -> Result<(), CudaError> {
        // Enough to fill any device; the kernel strides over the rest.
        const MAX_BLOCKS: u64 = 4096;
        let function = self.function(&Kernel {
            module: "gather".to_owned(),
            function: format!("gather_{bytes}"),
        })?;
        let blocks = gather.count.div_ceil(THREADS.into()).clamp(1, MAX_BLOCKS);
        // SAFETY: as in `launch_summary`.
        unsafe {
            launch(
                function,
                blocks as u32,
                (&raw const *gather).cast(),
                stream.raw,
            )
        }
    }
}

/// # Safety
/// `function` takes exactly one argument, of which `argument` points to a value; what that names
/// is valid when the stream comes to the launch.
unsafe fn launch(
    function: sys::CUfunction,
    blocks: u32,
    argument: *const c_void,
    stream: sys::CUstream,
) -> Result<(), CudaError> {
    let mut arguments = [argument.cast_mut()];
    // SAFETY: the caller's promise.
    unsafe {
        result::launch_kernel(
            function,
            (blocks, 1, 1),
            (THREADS, 1, 1),
            0,
            stream,
            &mut arguments,
        )
    }
    .during("cuLaunchKernel")
}

impl Drop for Device {
    fn drop(&mut self) {
        // Modules go with the context unless somebody else keeps it; errors have nowhere to go.
        let modules = self
            .modules
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        // SAFETY: every object that could launch from them keeps the device alive.
        unsafe {
            let _ = result::ctx::set_current(self.context);
            for (_, module) in modules.drain() {
                let _ = result::module::unload(module);
            }
            let _ = result::primary_ctx::release(self.ordinal);
        }
    }
}

/// Device memory.
pub(super) struct DeviceBuffer {
    pointer: DevicePointer,
    device: Arc<Device>,
}

impl DeviceBuffer {
    /// Uninitialised; the device must be bound.
    pub fn new(device: &Arc<Device>, bytes: usize) -> Result<Self, CudaError> {
        // SAFETY: freed once, when dropped.
        let pointer = unsafe { result::malloc_sync(bytes) }.during("cuMemAlloc")?;
        Ok(Self {
            pointer,
            device: device.clone(),
        })
    }

    pub fn pointer(&self) -> DevicePointer {
        self.pointer
    }

    /// Zeroes the first `bytes` when `stream` comes to it.
    pub fn zero(&mut self, bytes: usize, stream: ProducerStream) -> Result<(), CudaError> {
        // SAFETY: callers zero what they allocated; the buffer outlives the stream's work
        // because its owner synchronises before dropping it.
        unsafe { result::memset_d8_async(self.pointer, 0, bytes, stream.0) }
            .during("cuMemsetD8Async")
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        // SAFETY: allocated by `new`, freed only here; owners wait for pending work first.
        unsafe {
            let _ = result::ctx::set_current(self.device.context);
            let _ = result::free_sync(self.pointer);
        }
    }
}

/// Page-locked host memory that copies run to by themselves, cached so that the host reads it fast.
pub(super) struct PinnedBuffer {
    pointer: NonNull<u8>,
    bytes: usize,
    device: Arc<Device>,
}

// SAFETY: plain memory with one owner.
unsafe impl Send for PinnedBuffer {}

impl PinnedBuffer {
    /// Uninitialised; the device must be bound.
    pub fn new(device: &Arc<Device>, bytes: usize) -> Result<Self, CudaError> {
        // No flags: cudarc's own type would be write-combined, which the host reads slowly.
        // SAFETY: freed once, when dropped.
        let pointer = unsafe { result::malloc_host(bytes, 0) }.during("cuMemHostAlloc")?;
        let pointer = NonNull::new(pointer.cast()).ok_or(CudaError::Driver {
            call: "cuMemHostAlloc",
            source: cudarc::driver::DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY),
        })?;
        // SAFETY: the allocation is that long; reading it is defined from now on.
        unsafe { pointer.write_bytes(0, bytes) };
        Ok(Self {
            pointer,
            bytes,
            device: device.clone(),
        })
    }

    /// Starts a copy of `bytes` from device memory on `stream`.
    ///
    /// # Safety
    /// The source is valid when the stream comes to the copy, and the buffer is neither read,
    /// dropped nor copied to before an event after the copy has passed.
    unsafe fn copy_from(
        &mut self,
        from: DevicePointer,
        bytes: usize,
        stream: sys::CUstream,
    ) -> Result<(), CudaError> {
        assert!(bytes <= self.bytes, "a copy beyond the buffer");
        // SAFETY: the slice is inside the allocation; the rest is the caller's promise.
        unsafe {
            let target = std::slice::from_raw_parts_mut(self.pointer.as_ptr(), bytes);
            result::memcpy_dtoh_async(target, from, stream)
        }
        .during("cuMemcpyDtoHAsync")
    }

    /// The contents; no copy to it may be running.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: initialised by `new`; the owner has waited for the copy.
        unsafe { std::slice::from_raw_parts(self.pointer.as_ptr(), self.bytes) }
    }
}

impl Drop for PinnedBuffer {
    fn drop(&mut self) {
        // SAFETY: allocated by `new`, freed only here; owners wait for pending copies first.
        unsafe {
            let _ = result::ctx::set_current(self.device.context);
            let _ = result::free_host(self.pointer.as_ptr().cast());
        }
    }
}

/// A point in a stream.
pub(super) struct Event {
    raw: sys::CUevent,
    device: Arc<Device>,
}

// SAFETY: an event may be used from any thread on which its context is current.
unsafe impl Send for Event {}

impl Event {
    /// Not recorded yet; the device must be bound.
    pub fn new(device: &Arc<Device>) -> Result<Self, CudaError> {
        let raw = result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)
            .during("cuEventCreate")?;
        Ok(Self {
            raw,
            device: device.clone(),
        })
    }

    /// Marks the end of what `stream` holds now.
    pub fn record(&mut self, stream: ProducerStream) -> Result<(), CudaError> {
        // SAFETY: both handles are alive.
        unsafe { result::event::record(self.raw, stream.0) }.during("cuEventRecord")
    }

    /// Whether the stream has come past the mark.
    pub fn has_passed(&self) -> Result<bool, CudaError> {
        // SAFETY: the handle is alive.
        match unsafe { result::event::query(self.raw) } {
            Ok(()) => Ok(true),
            Err(error) if error.0 == sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            Err(error) => Err(error).during("cuEventQuery"),
        }
    }

    /// Waits on the host until the stream has come past the mark.
    pub fn wait(&self) -> Result<(), CudaError> {
        // SAFETY: the handle is alive.
        unsafe { result::event::synchronize(self.raw) }.during("cuEventSynchronize")
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: created by `new`, destroyed only here; the driver keeps what still runs.
        unsafe {
            let _ = result::ctx::set_current(self.device.context);
            let _ = result::event::destroy(self.raw);
        }
    }
}

/// A copy from a device buffer to pinned memory under way, or done: one at a time.
pub(super) struct Landing {
    buffer: PinnedBuffer,
    event: Event,
}

impl Landing {
    pub fn new(device: &Arc<Device>, bytes: usize) -> Result<Self, CudaError> {
        Ok(Self {
            buffer: PinnedBuffer::new(device, bytes)?,
            event: Event::new(device)?,
        })
    }

    /// Starts a copy on a producer's stream.
    ///
    /// # Safety
    /// `from` holds `bytes` when the stream comes to the copy, and the last copy into this
    /// landing has been awaited.
    pub unsafe fn start(
        &mut self,
        from: DevicePointer,
        bytes: usize,
        stream: ProducerStream,
    ) -> Result<(), CudaError> {
        // SAFETY: the caller's promise; readers go through `wait` or `has_arrived` below.
        unsafe { self.buffer.copy_from(from, bytes, stream.0) }?;
        self.event.record(stream)
    }

    pub fn has_arrived(&self) -> Result<bool, CudaError> {
        self.event.has_passed()
    }

    pub fn wait(&self) -> Result<(), CudaError> {
        self.event.wait()
    }

    /// What the last copy brought; it must have arrived.
    pub fn bytes(&self) -> &[u8] {
        self.buffer.bytes()
    }
}

/// A stream of our own.
pub(super) struct Stream {
    raw: sys::CUstream,
    device: Arc<Device>,
}

// SAFETY: a stream may be used from any thread on which its context is current.
unsafe impl Send for Stream {}

impl Stream {
    /// Does not wait for the default stream; the device must be bound.
    pub fn new(device: &Arc<Device>) -> Result<Self, CudaError> {
        let raw = result::stream::create(result::stream::StreamKind::NonBlocking)
            .during("cuStreamCreate")?;
        Ok(Self {
            raw,
            device: device.clone(),
        })
    }

    /// Lets later work here wait, on the device, until `event` has passed.
    pub fn wait_for(&self, event: &Event) -> Result<(), CudaError> {
        // SAFETY: both handles are alive.
        unsafe {
            result::stream::wait_event(
                self.raw,
                event.raw,
                sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT,
            )
        }
        .during("cuStreamWaitEvent")
    }

    /// This stream as one to launch on.
    pub fn as_producer(&self) -> ProducerStream {
        ProducerStream(self.raw)
    }

    /// Waits on the host for all its work.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        // SAFETY: the handle is alive.
        unsafe { result::stream::synchronize(self.raw) }.during("cuStreamSynchronize")
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: created by `new`, destroyed only here; pending work is finished by the driver.
        unsafe {
            let _ = result::ctx::set_current(self.device.context);
            let _ = result::stream::destroy(self.raw);
        }
    }
}
