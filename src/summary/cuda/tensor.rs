//! A tensor in device memory as the caller describes it: address, elements, shape, strides.

use crate::summary::DType;

/// An address in device memory (`CUdeviceptr`).
pub type DevicePointer = u64;

/// A tensor in the memory of a CUDA device.
#[derive(Clone, Debug)]
pub struct DeviceTensor {
    /// Where the first logical element is; for packed quantised storage, the word that holds it.
    pub data: DevicePointer,
    /// What the elements are.
    pub elements: Elements,
    /// The size of each dimension.
    pub shape: Vec<usize>,
    /// The step of each dimension in elements; in words along and across packed quantised storage.
    pub strides: Vec<isize>,
}

/// What the elements of a tensor are and how they are stored.
#[derive(Clone, Debug)]
pub enum Elements {
    /// Numbers stored as their type says.
    Plain(DType),
    /// Truth values in 32-bit words, 0 or 1.
    WideBool,
    /// Small codes with scales, taken as the f32 numbers that they stand for.
    Quantized(Box<Quantization>),
}

/// How quantised storage stands for numbers: element = code * (global * scale of its block).
#[derive(Clone, Debug)]
pub struct Quantization {
    /// What a code is.
    pub code: QuantCode,
    /// The words that codes are stored in.
    pub word: QuantWord,
    /// The dimension along which a word's codes follow each other, lowest bits first, counted from
    /// the innermost (0) as Burn's `QuantStore` does; its stride goes from word to word.
    pub packed_dim: usize,
    /// Elements per scale in each dimension: the size of the dimension where all share one.
    pub block: Vec<u32>,
    /// The blocks' scales.
    pub scales: DevicePointer,
    /// How a scale is stored.
    pub scale_format: ScaleFormat,
    /// The step from block to block in each dimension, in scales.
    pub scale_strides: Vec<isize>,
    /// One more scale for the whole tensor, an f32.
    pub global: Option<DevicePointer>,
}

/// A quantised element's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuantCode {
    /// A two's complement integer of 2, 4 or 8 bits.
    Int(u32),
    /// An 8-bit float without infinities.
    E4M3,
    /// An 8-bit float.
    E5M2,
    /// A 4-bit float.
    E2M1,
}

/// The word that codes are packed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuantWord {
    /// One byte.
    U8,
    /// A little-endian 32-bit word.
    U32,
}

/// The number format of a scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScaleFormat {
    /// 32-bit float.
    F32,
    /// IEEE half precision.
    F16,
    /// bfloat16.
    BF16,
    /// A power of two, by its biased exponent.
    UE8M0,
    /// An unsigned 8-bit float with 4 exponent bits.
    UE4M3,
}

impl QuantCode {
    /// Bits per code.
    pub fn bits(self) -> u32 {
        match self {
            QuantCode::Int(bits) => bits,
            QuantCode::E4M3 | QuantCode::E5M2 => 8,
            QuantCode::E2M1 => 4,
        }
    }
}

impl QuantWord {
    /// Bytes per word.
    pub fn bytes(self) -> u32 {
        match self {
            QuantWord::U8 => 1,
            QuantWord::U32 => 4,
        }
    }
}
