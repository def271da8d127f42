//! What can go wrong between a tensor on a CUDA device and its summary on the host.

use cudarc::driver::DriverError;

/// Why a tensor on a CUDA device has no summary or dump.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CudaError {
    /// No CUDA driver could be loaded.
    #[error("no CUDA driver library was found: install NVIDIA's driver, or summarise on the host")]
    NoDriver,
    /// The driver refused a call.
    #[error("{call} failed: {source}")]
    Driver {
        /// The driver's function, or what it was called for.
        call: &'static str,
        /// The driver's answer.
        source: DriverError,
    },
    /// The device is older than the kernels.
    #[error("the device has compute capability {major}.{minor}, the kernels need 8.0")]
    OldDevice {
        /// Major compute capability.
        major: i32,
        /// Minor compute capability.
        minor: i32,
    },
    /// No kernel reads elements of this type.
    #[error("no kernel summarises {0}")]
    Unsupported(String),
    /// Shape and strides differ in rank.
    #[error("{shape} dimensions but {strides} strides")]
    RankMismatch {
        /// Rank of the shape.
        shape: usize,
        /// Number of strides.
        strides: usize,
    },
    /// The layout has more independent dimensions than the kernels walk.
    #[error("a layout of {rank} independent dimensions, the kernels walk 8: make it contiguous")]
    TooManyDimensions {
        /// Dimensions left after joining those that can be.
        rank: usize,
    },
    /// More elements, or larger steps, than 64-bit offsets are checked for.
    #[error("a tensor of shape {shape:?} is too large for the kernels")]
    TooLarge {
        /// The shape asked for.
        shape: Vec<usize>,
    },
    /// A quantised tensor's description contradicts itself.
    #[error("a quantised tensor with {0}")]
    Quantization(&'static str),
    /// A result was not written when its event had passed.
    #[error("the device did not write summary {expected}, its slot holds {found}: a kernel failed")]
    MissingResult {
        /// The number the result should carry.
        expected: u64,
        /// The number it carries.
        found: u64,
    },
    /// The thread that writes dumps has ended.
    #[error("the dump writer has stopped")]
    WriterStopped,
    /// A closure on the device thread panicked.
    #[error("the device thread panicked: {0}")]
    Panicked(String),
    /// CubeCL has no memory or no stream for a handle.
    #[error("CubeCL gave no {0} for the tensor")]
    Cubecl(&'static str),
}

/// Names the call in a driver's error.
pub(super) trait DuringCall<T> {
    fn during(self, call: &'static str) -> Result<T, CudaError>;
}

impl<T> DuringCall<T> for Result<T, DriverError> {
    fn during(self, call: &'static str) -> Result<T, CudaError> {
        self.map_err(|source| CudaError::Driver { call, source })
    }
}
