//! The layers that several architectures share, each computing what PyTorch's computes, in the
//! same order of roundings. Layers that Burn already has (`Linear`, `Embedding`, `LayerNorm`,
//! `Dropout`) are used from there.

mod activation;
mod attention;
mod cache;
mod mlp;
mod rms_norm;
mod rotary;

pub use activation::{Activation, ActivationFunction};
pub use attention::{bidirectional_mask, causal_mask, repeat_kv, scaled_dot_product_attention};
pub use cache::{CachedLayer, DynamicCache};
pub use mlp::{GatedMlp, GatedMlpConfig};
pub use rms_norm::RmsNorm;
pub use rotary::{RopeConfig, RopeScaling, RotaryEmbedding, apply_rotary_pos_emb};

use burn::tensor::{DType, Device, FloatDType, Tensor};

/// The dtype of token, position and mask tensors: int64 as in PyTorch, or the device's own
/// integer where it has no int64.
pub fn index_dtype(device: &Device) -> DType {
    if device.supports_dtype(DType::I64) {
        DType::I64
    } else {
        device.settings().int_dtype.into()
    }
}

/// Applies `function` in float32 where the input is narrower, rounding once at the end, as
/// PyTorch's CPU and CUDA kernels do for half types.
fn in_float32<const D: usize>(
    input: Tensor<D>,
    function: impl FnOnce(Tensor<D>) -> Tensor<D>,
) -> Tensor<D> {
    match input.dtype() {
        dtype @ (DType::F16 | DType::BF16) => {
            let narrow: FloatDType = dtype.into();
            function(input.cast(FloatDType::F32)).cast(narrow)
        }
        _ => function(input),
    }
}
