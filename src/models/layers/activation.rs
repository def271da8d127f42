//! The activation functions a `config.json` can name, as one module without parameters. It is a
//! module so that it has its own place in the tree, as in PyTorch.

use burn::module::Module;
use burn::tensor::{Tensor, activation};

use super::in_float32;

/// An activation function, by the formula it computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActivationFunction {
    /// `x * Phi(x)` with the exact error function.
    Gelu,
    /// `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))`.
    GeluTanh,
    /// `x * sigmoid(1.702 x)`.
    QuickGelu,
    /// `max(x, 0)`.
    Relu,
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
    /// `x * sigmoid(x)`.
    Silu,
    /// The hyperbolic tangent.
    Tanh,
}

impl ActivationFunction {
    /// Every name that is understood, with its function: transformers' `ACT2FN`, as far as the
    /// architectures here use it.
    pub const NAMES: &'static [(&'static str, Self)] = &[
        ("gelu", Self::Gelu),
        ("gelu_fast", Self::GeluTanh),
        ("gelu_new", Self::GeluTanh),
        ("gelu_python", Self::Gelu),
        ("gelu_pytorch_tanh", Self::GeluTanh),
        ("quick_gelu", Self::QuickGelu),
        ("relu", Self::Relu),
        ("sigmoid", Self::Sigmoid),
        ("silu", Self::Silu),
        ("swish", Self::Silu),
        ("tanh", Self::Tanh),
    ];

    /// The function that transformers calls `name`, if it is one of [`Self::NAMES`].
    pub fn by_name(name: &str) -> Option<Self> {
        Self::NAMES
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, function)| *function)
    }
}

/// An activation function as a module.
#[derive(Module, Debug)]
pub struct Activation {
    #[module(skip)]
    function: ActivationFunction,
}

impl Activation {
    /// The module that applies `function`.
    pub fn new(function: ActivationFunction) -> Self {
        Self { function }
    }
}

impl Activation {
    /// Applies the function to every element; shape and dtype stay.
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        in_float32(input, |x| match self.function {
            ActivationFunction::Gelu => activation::gelu(x),
            ActivationFunction::GeluTanh => activation::gelu_approximate(x),
            ActivationFunction::QuickGelu => x.clone() * activation::sigmoid(x * 1.702),
            ActivationFunction::Relu => activation::relu(x),
            ActivationFunction::Sigmoid => activation::sigmoid(x),
            ActivationFunction::Silu => activation::silu(x),
            ActivationFunction::Tanh => activation::tanh(x),
        })
    }
}
