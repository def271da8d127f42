//! What the decoders of the Llama family share besides layers: their configuration and what they
//! return.

use burn::tensor::{Int, Tensor};
use serde_json::Value;

use super::architecture::{InputLimits, ModelOutputs};
use super::config::{ConfigError, ConfigFile};
use super::layers::{ActivationFunction, DynamicCache, GatedMlpConfig, RopeConfig, index_dtype};

/// The configuration of a decoder of the Llama family.
#[derive(Debug, Clone)]
pub struct DecoderConfig {
    /// The number of tokens.
    pub vocab_size: usize,
    /// The width of the residual stream.
    pub hidden_size: usize,
    /// The width inside the feed-forward blocks.
    pub intermediate_size: usize,
    /// The number of layers.
    pub num_hidden_layers: usize,
    /// The number of query heads; a multiple of `num_key_value_heads`.
    pub num_attention_heads: usize,
    /// The number of key and value heads.
    pub num_key_value_heads: usize,
    /// The size of a head.
    pub head_dim: usize,
    /// The activation of the feed-forward blocks.
    pub hidden_act: ActivationFunction,
    /// The longest sequence, in positions.
    pub max_position_embeddings: usize,
    /// Added to the mean square in normalisations.
    pub rms_norm_eps: f64,
    /// Whether the attention's projections have a bias.
    pub attention_bias: bool,
    /// Whether the feed-forward projections have a bias.
    pub mlp_bias: bool,
    /// Whether the language model head shares the token embeddings' weight.
    pub tie_word_embeddings: bool,
    /// The rotary embedding.
    pub rope: RopeConfig,
}

impl DecoderConfig {
    /// Reads the fields all decoders have. `head_dim` and `num_key_value_heads` are what the
    /// architecture assumes where the file does not say, from the hidden size and the number of
    /// attention heads.
    pub(super) fn read(
        config: &ConfigFile,
        head_dim: impl FnOnce(usize, usize) -> usize,
        num_key_value_heads: impl FnOnce(usize) -> usize,
    ) -> Result<Self, ConfigError> {
        config.refuse("quantization_config")?;
        config.require("is_causal", &Value::from(true))?;
        config.require("use_bidirectional_attention", &Value::from(false))?;
        if config
            .texts("layer_types")?
            .iter()
            .any(|kind| *kind != "full_attention")
        {
            return Err(config.unsupported("layer_types", "full_attention"));
        }
        let hidden_size = config.required_size("hidden_size")?;
        let num_attention_heads = config.required_size("num_attention_heads")?;
        let num_key_value_heads = config
            .size("num_key_value_heads")?
            .unwrap_or_else(|| num_key_value_heads(num_attention_heads));
        if !num_attention_heads.is_multiple_of(num_key_value_heads) {
            return Err(ConfigError::Inconsistent {
                reason: format!(
                    "num_attention_heads ({num_attention_heads}) is not a multiple of \
                     num_key_value_heads ({num_key_value_heads})"
                ),
            });
        }
        let head_dim = match config.size("head_dim")? {
            Some(head_dim) => head_dim,
            None if hidden_size.is_multiple_of(num_attention_heads) => {
                head_dim(hidden_size, num_attention_heads)
            }
            None => return Err(heads_do_not_divide(hidden_size, num_attention_heads)),
        };
        Ok(Self {
            vocab_size: config.required_size("vocab_size")?,
            hidden_size,
            intermediate_size: config.required_size("intermediate_size")?,
            num_hidden_layers: config.required_layers("num_hidden_layers")?,
            num_attention_heads,
            num_key_value_heads,
            head_dim,
            hidden_act: read_activation(config, "silu")?,
            max_position_embeddings: config.required_size("max_position_embeddings")?,
            rms_norm_eps: config.positive("rms_norm_eps")?.unwrap_or(1e-6),
            attention_bias: config.flag_or("attention_bias", false)?,
            mlp_bias: false,
            tie_word_embeddings: config.flag_or("tie_word_embeddings", false)?,
            rope: RopeConfig::read(config, head_dim)?,
        })
    }

    /// What inputs the decoder can take.
    pub fn limits(&self) -> InputLimits {
        InputLimits {
            vocab_size: self.vocab_size,
            max_positions: self.max_position_embeddings,
            type_vocab_size: None,
        }
    }

    /// The feed-forward block of every layer.
    pub fn mlp(&self) -> GatedMlpConfig {
        GatedMlpConfig {
            hidden_size: self.hidden_size,
            intermediate_size: self.intermediate_size,
            bias: self.mlp_bias,
            activation: self.hidden_act,
        }
    }

    /// The number of query heads that share one key and value head.
    pub fn num_key_value_groups(&self) -> usize {
        self.num_attention_heads / self.num_key_value_heads
    }
}

/// The error for a width that cannot be split into its heads.
pub(super) fn heads_do_not_divide(hidden_size: usize, heads: usize) -> ConfigError {
    ConfigError::Inconsistent {
        reason: format!(
            "hidden_size ({hidden_size}) is not a multiple of num_attention_heads ({heads})"
        ),
    }
}

/// Reads `hidden_act`.
pub(super) fn read_activation(
    config: &ConfigFile,
    default: &str,
) -> Result<ActivationFunction, ConfigError> {
    let name = config.text("hidden_act")?.unwrap_or(default);
    ActivationFunction::by_name(name).ok_or_else(|| {
        let names: Vec<&str> = ActivationFunction::NAMES.iter().map(|(n, _)| *n).collect();
        config.unsupported("hidden_act", &names.join(", "))
    })
}

/// What a decoder without a head returns.
#[derive(Debug, Clone, burnscope::Traced)]
pub struct DecoderOutput {
    /// The normalised hidden states, `[batch, sequence, hidden]`.
    pub last_hidden_state: Tensor<3>,
    /// The keys and values seen so far.
    pub cache: DynamicCache,
}

/// What a decoder with a language model head returns.
#[derive(Debug, Clone, burnscope::Traced)]
pub struct CausalLmOutput {
    /// The scores of every token, `[batch, sequence, vocabulary]`.
    pub logits: Tensor<3>,
    /// The keys and values seen so far.
    pub cache: DynamicCache,
}

impl From<DecoderOutput> for ModelOutputs {
    fn from(output: DecoderOutput) -> Self {
        Self {
            last_hidden_state: Some(output.last_hidden_state),
            cache: Some(output.cache),
            ..Self::default()
        }
    }
}

impl From<CausalLmOutput> for ModelOutputs {
    fn from(output: CausalLmOutput) -> Self {
        Self {
            logits: Some(output.logits),
            cache: Some(output.cache),
            ..Self::default()
        }
    }
}

/// The positions of `length` tokens after `seen` ones, `[1, length]`.
pub(super) fn next_positions(input_ids: &Tensor<2, Int>, seen: usize) -> Tensor<2, Int> {
    let device = input_ids.device();
    let length = input_ids.dims()[1];
    let positions = seen as i64..(seen + length) as i64;
    Tensor::<1, Int>::arange(positions, (&device, index_dtype(&device))).unsqueeze()
}
