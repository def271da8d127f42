//! The element type of a tensor, with the names that PyTorch, safetensors and Burn give it.

use std::{fmt, str::FromStr};

/// An element type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DType {
    /// 64-bit float.
    F64,
    /// 32-bit float.
    F32,
    /// IEEE half precision.
    F16,
    /// bfloat16.
    BF16,
    /// 8-bit float, 4 exponent bits, no infinity (`torch.float8_e4m3fn`).
    F8E4M3,
    /// 8-bit float, 5 exponent bits (`torch.float8_e5m2`).
    F8E5M2,
    /// Signed integers.
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
    /// Truth value, one byte.
    Bool,
    /// A quantised tensor, by its scheme; numbers about it are of the dequantised values.
    Quantized(String),
    /// A type that burnscope can name but not read, by its full name (`torch.complex64`).
    Other(String),
}

/// A text that names no element type.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is no dtype")]
pub struct ParseDTypeError(pub String);

impl DType {
    const NAMES: [(DType, &'static str, &'static str, usize); 15] = [
        (DType::F64, "float64", "f64", 8),
        (DType::F32, "float32", "f32", 4),
        (DType::F16, "float16", "f16", 2),
        (DType::BF16, "bfloat16", "bf16", 2),
        (DType::F8E4M3, "float8_e4m3fn", "f8e4m3", 1),
        (DType::F8E5M2, "float8_e5m2", "f8e5m2", 1),
        (DType::I64, "int64", "i64", 8),
        (DType::I32, "int32", "i32", 4),
        (DType::I16, "int16", "i16", 2),
        (DType::I8, "int8", "i8", 1),
        (DType::U64, "uint64", "u64", 8),
        (DType::U32, "uint32", "u32", 4),
        (DType::U16, "uint16", "u16", 2),
        (DType::U8, "uint8", "u8", 1),
        (DType::Bool, "bool", "bool", 1),
    ];

    fn row(&self) -> Option<&'static (DType, &'static str, &'static str, usize)> {
        Self::NAMES.iter().find(|row| row.0 == *self)
    }

    /// PyTorch's full name, as `torch.float32`.
    pub fn torch_name(&self) -> String {
        match (self.row(), self) {
            (Some(row), _) => format!("torch.{}", row.1),
            (None, DType::Quantized(scheme)) => format!("quantized.{scheme}"),
            (None, DType::Other(name)) => name.clone(),
            (None, _) => unreachable!("every plain dtype has a row"),
        }
    }

    /// Bytes per element; `None` where an element has no whole number of bytes or is unknown.
    pub fn size(&self) -> Option<usize> {
        self.row().map(|row| row.3)
    }

    /// Whether every element is a whole number or a truth value, so that none is NaN or infinite.
    pub fn is_exact(&self) -> bool {
        self.row().is_some() && !self.is_float()
    }

    /// Whether PyTorch counts it among the floating-point types.
    pub fn is_float(&self) -> bool {
        matches!(
            self,
            DType::F64 | DType::F32 | DType::F16 | DType::BF16 | DType::F8E4M3 | DType::F8E5M2
        )
    }
}

/// The short name (`f32`, `bf16`, `i64`, `bool`).
impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.row(), self) {
            (Some(row), _) => f.write_str(row.2),
            (None, DType::Quantized(scheme)) => write!(f, "quantized.{scheme}"),
            (None, DType::Other(name)) => f.write_str(name),
            (None, _) => unreachable!("every plain dtype has a row"),
        }
    }
}

/// Reads short names and PyTorch's; an unknown `torch.` name becomes [`DType::Other`].
impl FromStr for DType {
    type Err = ParseDTypeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let torch = text.strip_prefix("torch.");
        if let Some(row) = Self::NAMES
            .iter()
            .find(|row| torch.map_or(row.2 == text, |name| row.1 == name))
        {
            return Ok(row.0.clone());
        }
        match text.strip_prefix("quantized.") {
            Some(scheme) => Ok(DType::Quantized(scheme.to_owned())),
            None if torch.is_some() => Ok(DType::Other(text.to_owned())),
            None => Err(ParseDTypeError(text.to_owned())),
        }
    }
}
