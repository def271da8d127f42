//! The gated feed-forward block of the Llama family (SwiGLU where the activation is SiLU,
//! Shazeer, 2020).

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Tensor};

use super::{Activation, ActivationFunction};

/// The sizes of a [`GatedMlp`].
#[derive(Debug, Clone)]
pub struct GatedMlpConfig {
    /// The width of the input and of the output.
    pub hidden_size: usize,
    /// The width in between.
    pub intermediate_size: usize,
    /// Whether the three projections have a bias.
    pub bias: bool,
    /// What is applied to the gate.
    pub activation: ActivationFunction,
}

/// `down_proj(act_fn(gate_proj(x)) * up_proj(x))`.
#[derive(Module, Debug)]
pub struct GatedMlp {
    /// `[hidden, intermediate]`.
    pub gate_proj: Linear,
    /// `[hidden, intermediate]`.
    pub up_proj: Linear,
    /// `[intermediate, hidden]`.
    pub down_proj: Linear,
    /// Applied to the gate.
    pub act_fn: Activation,
}

impl GatedMlpConfig {
    /// A block with random weights.
    pub fn init(&self, device: &Device) -> GatedMlp {
        let linear = |from, to| {
            LinearConfig::new(from, to)
                .with_bias(self.bias)
                .init(device)
        };
        GatedMlp {
            gate_proj: linear(self.hidden_size, self.intermediate_size),
            up_proj: linear(self.hidden_size, self.intermediate_size),
            down_proj: linear(self.intermediate_size, self.hidden_size),
            act_fn: Activation::new(self.activation),
        }
    }
}

#[burnscope::trace]
impl GatedMlp {
    /// `[batch, sequence, hidden]` to the same shape.
    pub fn forward(&self, #[burnscope(positional)] x: Tensor<3>) -> Tensor<3> {
        let gate = self.gate_proj.forward(x.clone());
        let gate = self.act_fn.forward(gate);
        let up = self.up_proj.forward(x);
        self.down_proj.forward(gate * up)
    }
}
