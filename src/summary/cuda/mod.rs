//! Summaries of tensors on CUDA devices: one pass where the tensor is, 640 bytes to the host.
//!
//! [`Engine`] launches the kernels of `kernels/` on the stream that produced a tensor, through
//! `cudarc`; [`Dumper`] copies whole tensors out when they are asked for. Neither knows of Burn or
//! of traces. `docs/cuda.md` tells how the parts work together and what is tested where.

mod batch;
#[cfg(feature = "cuda-cubecl")]
mod cubecl_stream;
mod driver;
mod dump;
mod engine;
mod error;
mod layout;
mod slot;
mod tensor;

#[cfg(feature = "cuda-cubecl")]
pub use cubecl_stream::CubeclEngine;
pub use cudarc::driver::sys::CUstream;
pub use driver::ProducerStream;
pub use dump::{DumpError, DumpOptions, DumpSink, Dumper};
pub use engine::{Engine, Summarised};
pub use error::CudaError;
pub use tensor::{
    DevicePointer, DeviceTensor, Elements, QuantCode, QuantWord, Quantization, ScaleFormat,
};
