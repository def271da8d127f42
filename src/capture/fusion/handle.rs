//! A tensor of Burn's stream: its primitive on the caller's side, its memory on the device's.

use burn::{
    backend::{BackendTensor, DispatchTensorKind},
    tensor::{self, BoolStore, Tensor, kind::Basic},
};
use burn_cubecl::{
    CubeBackend,
    fusion::{CubeFusionHandle, FusionCubeRuntime},
};
use burn_ir::{BackendIr, TensorHandle};

use crate::summary::cube::Storage;

/// A tensor as the caller's thread has it: an identity, its work not yet done perhaps.
pub(crate) type FusionTensor = burn_fusion::FusionTensor<FusionCubeRuntime>;

/// The primitive of a tensor on a CubeCL device; `None` for any other.
///
/// Taken on another thread than the tensor was made on it is a new identity of the same memory.
pub(crate) fn fusion_tensor<const D: usize, K: Basic>(
    tensor: &Tensor<D, K>,
) -> Option<FusionTensor> {
    fn primitive(tensor: BackendTensor<burn_fusion::Fusion<CubeBackend>>) -> Option<FusionTensor> {
        match tensor {
            BackendTensor::Float(tensor)
            | BackendTensor::Int(tensor)
            | BackendTensor::Bool(tensor)
            | BackendTensor::Quantized(tensor) => Some(tensor),
            #[cfg(feature = "autodiff")]
            BackendTensor::Autodiff(tensor) => Some(tensor.into_primitive()),
            #[allow(unreachable_patterns)]
            _ => None,
        }
    }
    match tensor.clone().into_dispatch().kind {
        DispatchTensorKind::Cube(tensor) => primitive(tensor),
        #[cfg(feature = "autodiff")]
        DispatchTensorKind::Autodiff(inner) => match *inner {
            DispatchTensorKind::Cube(tensor) => primitive(tensor),
            _ => None,
        },
        #[allow(unreachable_patterns)]
        _ => None,
    }
}

/// What tells one piece of a device's memory from every other, also from later ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Memory {
    /// The allocation; its number is never given out again.
    allocation: usize,
    /// In bytes.
    offset: u64,
}

impl Memory {
    pub(super) fn of(handle: &CubeFusionHandle) -> Self {
        Self {
            allocation: handle.handle.memory.descriptor().id.value,
            offset: handle.handle.offset_start.unwrap_or(0),
        }
    }

    /// Whether both lie in one allocation.
    pub(super) fn shares_allocation(self, other: Self) -> bool {
        self.allocation == other.allocation
    }
}

/// The values that a quantised tensor stands for, as a new tensor on its device; `None` of any other.
///
/// Not for a tensor in tiles.
pub(super) fn dequantised(handle: &CubeFusionHandle, shape: &[usize]) -> Option<CubeFusionHandle> {
    if !matches!(handle.dtype, tensor::DType::QFloat(_)) {
        return None;
    }
    let tensor = CubeBackend::quantized_tensor(TensorHandle {
        handle: handle.clone(),
        shape: shape.to_vec().into(),
    });
    let values = burn_cubecl::kernel::quantization::dequantize(tensor, tensor::DType::F32);
    Some(values.into())
}

/// How a device keeps elements of that type; `None` for packed ones.
pub(super) fn storage(dtype: tensor::DType) -> Option<Storage> {
    Some(match dtype {
        tensor::DType::F64 => Storage::F64,
        tensor::DType::F32 | tensor::DType::Flex32 => Storage::F32,
        tensor::DType::F16 => Storage::F16,
        tensor::DType::BF16 => Storage::BF16,
        tensor::DType::I64 => Storage::I64,
        tensor::DType::I32 => Storage::I32,
        tensor::DType::I16 => Storage::I16,
        tensor::DType::I8 => Storage::I8,
        tensor::DType::U64 => Storage::U64,
        tensor::DType::U32 => Storage::U32,
        tensor::DType::U16 => Storage::U16,
        tensor::DType::U8 => Storage::U8,
        tensor::DType::Bool(BoolStore::U32) => Storage::Bool32,
        tensor::DType::Bool(BoolStore::Native | BoolStore::U8) => Storage::Bool8,
        tensor::DType::QFloat(_) => return None,
    })
}
