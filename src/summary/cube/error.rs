//! Why a tensor on a device cannot be read by the kernels, or its numbers not be had.

/// Why a tensor has no summary, no edge items or no copy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotSummarised {
    /// The kernels cannot read such elements.
    #[error("elements of type {0} cannot be read on a device: dequantise or cast the tensor")]
    UnsupportedType(String),
    /// Elements or words are more than 32 bits can count.
    #[error("a tensor of shape {shape:?} reaches over 2^32 elements or words: summarise its parts")]
    TooLarge {
        /// The tensor's shape.
        shape: Vec<usize>,
    },
    /// Shape and strides differ in rank.
    #[error("{shape} dimensions but {strides} strides")]
    Rank {
        /// Rank of the shape.
        shape: usize,
        /// Number of strides.
        strides: usize,
    },
    /// Some element would lie outside the buffer.
    #[error("a tensor of shape {shape:?} does not fit in a buffer of {bytes} bytes")]
    OutOfBounds {
        /// The tensor's shape.
        shape: Vec<usize>,
        /// How many bytes the buffer has.
        bytes: u64,
    },
    /// The buffer does not begin at a whole element.
    #[error("a buffer that begins at byte {start} of its memory splits an element")]
    Misaligned {
        /// Where it begins.
        start: u64,
    },
    /// The memory belongs to another device than the kernels run on.
    #[error("the tensor is on another device than the one asked to summarise it")]
    ForeignDevice,
}

/// The device could not run the kernels or give their results back.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the device gave no results back: {reason}")]
pub struct ReadError {
    /// What the device's runtime says.
    pub reason: String,
}
