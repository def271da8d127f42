//! Root mean square normalisation as the Llama family computes it. Burn's own `RmsNorm` rounds
//! at other places and calls its weight `gamma`.

use burn::module::{Initializer, Module, Param};
use burn::tensor::{Device, FloatDType, Tensor};

/// `weight * (x / sqrt(mean(x^2) + eps))` over the last dimension.
///
/// The division is done in float32 and its result rounded to the input's dtype before it is
/// multiplied with the weight (Zhang and Sennrich, 2019; `LlamaRMSNorm` in transformers).
#[derive(Module, Debug)]
pub struct RmsNorm {
    /// The scale of each feature, `[size]`.
    pub weight: Param<Tensor<1>>,
    variance_epsilon: f64,
}

impl RmsNorm {
    /// A layer over `size` features with all weights one.
    pub fn init(size: usize, variance_epsilon: f64, device: &Device) -> Self {
        Self {
            weight: Initializer::Ones.init([size], device),
            variance_epsilon,
        }
    }
}

impl RmsNorm {
    /// Normalises the last dimension; shape and dtype stay.
    pub fn forward<const D: usize>(&self, hidden_states: Tensor<D>) -> Tensor<D> {
        let dtype: FloatDType = hidden_states.dtype().into();
        let hidden_states = hidden_states.cast(FloatDType::F32);
        let variance = hidden_states.clone().square().mean_dim(D - 1);
        let hidden_states = hidden_states * (variance + self.variance_epsilon).sqrt().recip();
        self.weight.val().unsqueeze() * hidden_states.cast(dtype)
    }
}
