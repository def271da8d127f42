//! How a device keeps the elements of a tensor, and what of that a kernel must know.

use super::error::NotSummarised;
use crate::summary::DType;

/// The bits in which a device keeps one element.
///
/// Kernels read them as 32-bit words, whatever types the device's own shading language has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Storage {
    /// 64-bit float.
    F64,
    /// 32-bit float.
    F32,
    /// IEEE half precision.
    F16,
    /// bfloat16.
    BF16,
    /// 8-bit float, 4 exponent bits, no infinity.
    F8E4M3,
    /// 8-bit float, 5 exponent bits.
    F8E5M2,
    /// 64-bit signed integer.
    I64,
    /// 32-bit signed integer.
    I32,
    /// 16-bit signed integer.
    I16,
    /// 8-bit signed integer.
    I8,
    /// 64-bit unsigned integer.
    U64,
    /// 32-bit unsigned integer.
    U32,
    /// 16-bit unsigned integer.
    U16,
    /// 8-bit unsigned integer.
    U8,
    /// Truth value in one byte: zero is false.
    Bool8,
    /// Truth value in four bytes: zero is false.
    Bool32,
}

/// What the number in an element's bits means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Class {
    /// Any bit set means true, which is 1.
    Bool,
    Unsigned,
    Signed,
    /// A sign, an exponent with this bias, and this many bits of mantissa.
    Float {
        mantissa: u32,
        bias: u32,
        /// Without infinities only the pattern of ones is NaN.
        infinities: bool,
    },
}

/// An element's size and class: what a kernel is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Format {
    /// 1, 2, 4 or 8.
    pub(super) bytes: u32,
    pub(super) class: Class,
}

impl Format {
    /// Whether an element takes two words.
    pub(super) fn wide(self) -> bool {
        self.bytes == 8
    }

    pub(super) fn is_float(self) -> bool {
        matches!(self.class, Class::Float { .. })
    }
}

impl Storage {
    /// The element type of which tensors so kept are; a truth value is one byte on the host.
    pub fn dtype(self) -> DType {
        match self {
            Self::F64 => DType::F64,
            Self::F32 => DType::F32,
            Self::F16 => DType::F16,
            Self::BF16 => DType::BF16,
            Self::F8E4M3 => DType::F8E4M3,
            Self::F8E5M2 => DType::F8E5M2,
            Self::I64 => DType::I64,
            Self::I32 => DType::I32,
            Self::I16 => DType::I16,
            Self::I8 => DType::I8,
            Self::U64 => DType::U64,
            Self::U32 => DType::U32,
            Self::U16 => DType::U16,
            Self::U8 => DType::U8,
            Self::Bool8 | Self::Bool32 => DType::Bool,
        }
    }

    /// Bytes per element on the device.
    pub fn size(self) -> usize {
        self.format().bytes as usize
    }

    /// Bytes per element on the host.
    pub(super) fn host_size(self) -> usize {
        match self {
            Self::Bool32 => 1,
            _ => self.size(),
        }
    }

    pub(super) fn format(self) -> Format {
        let float = |mantissa, bias, infinities| Class::Float {
            mantissa,
            bias,
            infinities,
        };
        let (bytes, class) = match self {
            Self::F64 => (8, float(52, 1023, true)),
            Self::F32 => (4, float(23, 127, true)),
            Self::F16 => (2, float(10, 15, true)),
            Self::BF16 => (2, float(7, 127, true)),
            Self::F8E4M3 => (1, float(3, 7, false)),
            Self::F8E5M2 => (1, float(2, 15, true)),
            Self::I64 => (8, Class::Signed),
            Self::I32 => (4, Class::Signed),
            Self::I16 => (2, Class::Signed),
            Self::I8 => (1, Class::Signed),
            Self::U64 => (8, Class::Unsigned),
            Self::U32 => (4, Class::Unsigned),
            Self::U16 => (2, Class::Unsigned),
            Self::U8 => (1, Class::Unsigned),
            Self::Bool8 => (1, Class::Bool),
            Self::Bool32 => (4, Class::Bool),
        };
        Format { bytes, class }
    }
}

/// The storage that has the element type's own size; of [`DType::Bool`] one byte.
impl TryFrom<&DType> for Storage {
    type Error = NotSummarised;

    fn try_from(dtype: &DType) -> Result<Self, NotSummarised> {
        Ok(match dtype {
            DType::F64 => Self::F64,
            DType::F32 => Self::F32,
            DType::F16 => Self::F16,
            DType::BF16 => Self::BF16,
            DType::F8E4M3 => Self::F8E4M3,
            DType::F8E5M2 => Self::F8E5M2,
            DType::I64 => Self::I64,
            DType::I32 => Self::I32,
            DType::I16 => Self::I16,
            DType::I8 => Self::I8,
            DType::U64 => Self::U64,
            DType::U32 => Self::U32,
            DType::U16 => Self::U16,
            DType::U8 => Self::U8,
            DType::Bool => Self::Bool8,
            DType::Quantized(_) | DType::Other(_) => {
                return Err(NotSummarised::UnsupportedType(dtype.to_string()));
            }
        })
    }
}
