//! Rotary position embeddings (Su et al., 2021) with the frequency scalings of Llama 3 and of
//! linear interpolation. Other scalings are refused where the configuration is read.

use std::f32::consts::PI;

use burn::module::Module;
use burn::tensor::{DType, FloatDType, Int, Tensor, TensorData};
use serde_json::Value;

use crate::models::config::{ConfigError, ConfigFile};

/// The largest head that is accepted; its frequencies are computed before the weights are seen.
const MAX_HEAD_DIM: usize = 1 << 16;

/// How the frequencies are stretched to longer sequences than the base model was trained on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    Default,
    /// All frequencies are divided by `factor`.
    Linear {
        /// The divisor.
        factor: f64,
    },
    /// Llama 3.1: long wavelengths are divided by `factor`, short ones left alone, and those in
    /// between interpolated.
    Llama3 {
        /// The divisor.
        factor: f64,
        /// `original_max_position_embeddings` divided by this is the shortest long wavelength.
        low_freq_factor: f64,
        /// `original_max_position_embeddings` divided by this is the longest short wavelength.
        high_freq_factor: f64,
        /// The length the base model was trained on, in positions.
        original_max_position_embeddings: usize,
    },
}

/// The parameters of a rotary embedding.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RopeConfig {
    /// The size of an attention head; even.
    pub head_dim: usize,
    /// The base of the geometric series of wavelengths.
    pub theta: f64,
    /// How the frequencies are scaled.
    pub scaling: RopeScaling,
}

impl RopeConfig {
    /// Reads the parameters in either form: `rope_parameters`, or the older `rope_theta` and
    /// `rope_scaling` beside each other.
    ///
    /// # Errors
    /// On a rope type other than `default`, `linear` and `llama3`, on partial rotation, on
    /// parameters per layer type, and on missing or impossible numbers.
    pub fn read(config: &ConfigFile, head_dim: usize) -> Result<Self, ConfigError> {
        if !head_dim.is_multiple_of(2) {
            return Err(ConfigError::Inconsistent {
                reason: format!("rotary embeddings need an even head_dim, not {head_dim}"),
            });
        }
        if head_dim > MAX_HEAD_DIM {
            return Err(ConfigError::Inconsistent {
                reason: format!(
                    "rotary embeddings of head_dim {head_dim} (at most {MAX_HEAD_DIM})"
                ),
            });
        }
        config.require("partial_rotary_factor", &Value::from(1))?;
        let parameters = match config.object("rope_parameters")? {
            Some(parameters) => Some(parameters),
            None => config.object("rope_scaling")?,
        };
        let theta = match &parameters {
            Some(parameters) => parameters.positive("rope_theta")?,
            None => None,
        };
        let theta = match theta {
            Some(theta) => theta,
            None => config.positive("rope_theta")?.unwrap_or(10_000.0),
        };
        let scaling = match &parameters {
            Some(parameters) => Self::read_scaling(config, parameters)?,
            None => RopeScaling::Default,
        };
        Ok(Self {
            head_dim,
            theta,
            scaling,
        })
    }

    fn read_scaling(
        config: &ConfigFile,
        parameters: &ConfigFile,
    ) -> Result<RopeScaling, ConfigError> {
        const KNOWN: &[&str] = &[
            "factor",
            "high_freq_factor",
            "low_freq_factor",
            "original_max_position_embeddings",
            "partial_rotary_factor",
            "rope_theta",
            "rope_type",
            "type",
        ];
        if let Some(key) = parameters.keys().find(|key| !KNOWN.contains(key)) {
            return Err(parameters.unsupported(key, &KNOWN.join(", ")));
        }
        parameters.require("partial_rotary_factor", &Value::from(1))?;
        let key = match parameters.get("rope_type") {
            Some(_) => "rope_type",
            None => "type",
        };
        match parameters.text(key)?.unwrap_or("default") {
            "default" => Ok(RopeScaling::Default),
            "linear" => Ok(RopeScaling::Linear {
                factor: parameters.required_positive("factor")?,
            }),
            "llama3" => {
                let low_freq_factor = parameters.required_positive("low_freq_factor")?;
                let high_freq_factor = parameters.required_positive("high_freq_factor")?;
                if high_freq_factor <= low_freq_factor {
                    return Err(ConfigError::Inconsistent {
                        reason: format!(
                            "high_freq_factor ({high_freq_factor}) must be greater than \
                             low_freq_factor ({low_freq_factor})"
                        ),
                    });
                }
                const ORIGINAL: &str = "original_max_position_embeddings";
                let original = match (config.size(ORIGINAL)?, parameters.size(ORIGINAL)?) {
                    (Some(original), _) | (None, Some(original)) => original,
                    (None, None) => config.required_size("max_position_embeddings")?,
                };
                Ok(RopeScaling::Llama3 {
                    factor: parameters.required_positive("factor")?,
                    low_freq_factor,
                    high_freq_factor,
                    original_max_position_embeddings: original,
                })
            }
            _ => Err(parameters.unsupported(key, "default, linear, llama3")),
        }
    }

    /// The angle in radians by which each pair of features turns from one position to the next,
    /// `head_dim / 2` numbers, in float32 step by step as transformers computes them.
    pub fn inverse_frequencies(&self) -> Vec<f32> {
        let base = |pair: usize| {
            let exponent = (2 * pair) as f32 / self.head_dim as f32;
            1.0 / (self.theta as f32).powf(exponent)
        };
        (0..self.head_dim / 2)
            .map(|pair| self.scaling.apply(base(pair)))
            .collect()
    }

    /// The module.
    pub fn init(&self) -> RotaryEmbedding {
        RotaryEmbedding {
            inv_freq: self.inverse_frequencies(),
        }
    }
}

impl RopeScaling {
    fn apply(self, inv_freq: f32) -> f32 {
        match self {
            Self::Default => inv_freq,
            Self::Linear { factor } => inv_freq / factor as f32,
            Self::Llama3 {
                factor,
                low_freq_factor,
                high_freq_factor,
                original_max_position_embeddings,
            } => {
                let (factor, original) = (factor as f32, original_max_position_embeddings as f64);
                let wavelength = 2.0 * PI / inv_freq;
                if wavelength < (original / high_freq_factor) as f32 {
                    inv_freq
                } else if wavelength > (original / low_freq_factor) as f32 {
                    inv_freq / factor
                } else {
                    let smooth = (original as f32 / wavelength - low_freq_factor as f32)
                        / (high_freq_factor - low_freq_factor) as f32;
                    (1.0 - smooth) * inv_freq / factor + smooth * inv_freq
                }
            }
        }
    }
}

/// Turns positions into the cosines and sines that [`apply_rotary_pos_emb`] rotates with.
#[derive(Module, Debug)]
pub struct RotaryEmbedding {
    #[module(skip)]
    inv_freq: Vec<f32>,
}

#[burnscope::trace]
impl RotaryEmbedding {
    /// The cosines and sines of `position_ids` `[batch, sequence]`, each
    /// `[batch, sequence, head_dim]`: computed in float32, returned in the dtype of `x`, which is
    /// looked at for nothing else.
    pub fn forward(
        &self,
        #[burnscope(positional)] x: Tensor<3>,
        position_ids: Tensor<2, Int>,
    ) -> (Tensor<3>, Tensor<3>) {
        let dtype: FloatDType = x.dtype().into();
        let pairs = self.inv_freq.len();
        let inv_freq = TensorData::new(self.inv_freq.clone(), [1, 1, pairs]);
        let inv_freq = Tensor::<3>::from_data(inv_freq, (&x.device(), DType::F32));
        let positions: Tensor<3> = position_ids.cast(FloatDType::F32).unsqueeze_dim(2);
        let freqs = positions * inv_freq;
        let emb = Tensor::cat(vec![freqs.clone(), freqs], 2);
        (emb.clone().cos().cast(dtype), emb.sin().cast(dtype))
    }
}

/// Rotates queries and keys, `[batch, heads, sequence, head_dim]`, by the angles whose cosines
/// and sines, `[batch or 1, sequence, head_dim]`, [`RotaryEmbedding`] made.
pub fn apply_rotary_pos_emb(
    q: Tensor<4>,
    k: Tensor<4>,
    position_embeddings: (Tensor<3>, Tensor<3>),
) -> (Tensor<4>, Tensor<4>) {
    let (cos, sin) = position_embeddings;
    let (cos, sin) = (cos.unsqueeze_dim(1), sin.unsqueeze_dim(1));
    (
        q.clone() * cos.clone() + rotate_half(q) * sin.clone(),
        k.clone() * cos + rotate_half(k) * sin,
    )
}

/// `(x1, x2)` to `(-x2, x1)`, halves of the last dimension.
fn rotate_half(x: Tensor<4>) -> Tensor<4> {
    let half = x.dims()[3] / 2;
    let x1 = x.clone().narrow(3, 0, half);
    let x2 = x.narrow(3, half, half);
    Tensor::cat(vec![x2.neg(), x1], 3)
}
