//! Dumped tensors: one safetensors file each, beside the trace that names them.
//!
//! Names and bytes are those of transformers' debugger. It is not concerned with which tensors are
//! dumped.

mod name;
mod read;
#[cfg(feature = "capture")]
mod set;
mod write;

pub use name::{DumpName, DumpNames, file_stem};
pub use read::{Dump, DumpReader};
#[cfg(feature = "capture")]
pub(crate) use set::{read_set, write_set};
pub use write::write_tensor;

use safetensors::tensor::{Dtype, TensorInfo};
use serde::{Deserialize, Serialize};

use crate::summary::DType;

/// The header of a file that holds one tensor, under the key `data`.
#[derive(Serialize, Deserialize)]
struct Header {
    data: TensorInfo,
}

/// Each element type that both sides have.
const DTYPES: [(DType, Dtype); 15] = [
    (DType::F64, Dtype::F64),
    (DType::F32, Dtype::F32),
    (DType::F16, Dtype::F16),
    (DType::BF16, Dtype::BF16),
    (DType::F8E4M3, Dtype::F8_E4M3),
    (DType::F8E5M2, Dtype::F8_E5M2),
    (DType::I64, Dtype::I64),
    (DType::I32, Dtype::I32),
    (DType::I16, Dtype::I16),
    (DType::I8, Dtype::I8),
    (DType::U64, Dtype::U64),
    (DType::U32, Dtype::U32),
    (DType::U16, Dtype::U16),
    (DType::U8, Dtype::U8),
    (DType::Bool, Dtype::BOOL),
];

/// Whether a name is one plain component, so that joining it to a folder stays in the folder.
fn is_plain(name: &str) -> bool {
    use std::path::{Component, Path};
    let mut components = Path::new(name).components();
    matches!(components.next(), Some(Component::Normal(only)) if only == name)
        && components.next().is_none()
        && !name.contains(['/', '\\', '\0', ':'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_names_are_plain() {
        for name in ["a", "a.safetensors", "..a", "~", "a b", "é"] {
            assert!(is_plain(name), "{name}");
        }
        for name in [
            "", ".", "..", "a/b", "/a", "a/", "./a", "a\\b", "C:a", "a\0",
        ] {
            assert!(!is_plain(name), "{name:?}");
        }
    }
}
