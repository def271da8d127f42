//! Qwen3 (Qwen team, 2025): a decoder of the Llama family whose queries and keys are normalised
//! head by head before they are rotated. Fields and arguments have the names they have in
//! transformers.

use burn::module::{Module, Param};
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig};
use burn::tensor::{Bool, Device, Int, Tensor};

use super::architecture::{Architecture, InputLimits, InputTensors, ModelOutputs};
use super::config::{ConfigError, ConfigFile};
use super::decoder::{CausalLmOutput, DecoderConfig, DecoderOutput, next_positions};
use super::layers::{
    DynamicCache, GatedMlp, RmsNorm, RotaryEmbedding, apply_rotary_pos_emb, causal_mask, repeat_kv,
    scaled_dot_product_attention,
};

/// Reads the configuration of a Qwen3.
///
/// # Errors
/// On missing or impossible fields, and on options these modules do not have; sliding windows are
/// one.
pub fn read_config(config: &ConfigFile) -> Result<DecoderConfig, ConfigError> {
    let common = DecoderConfig::read(config, |_, _| 128, |_| 32)?;
    // Without `layer_types`, the layers from `max_window_layers` on slide where sliding is on.
    let slides = config.flag_or("use_sliding_window", false)?
        && config.get("sliding_window").is_some()
        && config.get("layer_types").is_none()
        && config.size("max_window_layers")?.unwrap_or(28) < common.num_hidden_layers;
    if slides {
        return Err(config.unsupported("use_sliding_window", "false"));
    }
    Ok(common)
}

/// Causal self-attention.
#[derive(Module, Debug)]
pub struct Qwen3Attention {
    /// `[hidden, heads * head_dim]`.
    pub q_proj: Linear,
    /// `[hidden, key_value_heads * head_dim]`.
    pub k_proj: Linear,
    /// `[hidden, key_value_heads * head_dim]`.
    pub v_proj: Linear,
    /// `[heads * head_dim, hidden]`.
    pub o_proj: Linear,
    /// Normalises each query head.
    pub q_norm: RmsNorm,
    /// Normalises each key head.
    pub k_norm: RmsNorm,
    layer_idx: usize,
    head_dim: usize,
    num_key_value_groups: usize,
}

impl Qwen3Attention {
    fn init(config: &DecoderConfig, layer_idx: usize, device: &Device) -> Self {
        let linear = |from, to| {
            LinearConfig::new(from, to)
                .with_bias(config.attention_bias)
                .init(device)
        };
        let norm = || RmsNorm::init(config.head_dim, config.rms_norm_eps, device);
        let queries = config.num_attention_heads * config.head_dim;
        let keys = config.num_key_value_heads * config.head_dim;
        Self {
            q_proj: linear(config.hidden_size, queries),
            k_proj: linear(config.hidden_size, keys),
            v_proj: linear(config.hidden_size, keys),
            o_proj: linear(queries, config.hidden_size),
            q_norm: norm(),
            k_norm: norm(),
            layer_idx,
            head_dim: config.head_dim,
            num_key_value_groups: config.num_key_value_groups(),
        }
    }

    /// `[batch, sequence, heads * head_dim]` to `[batch, sequence, heads, head_dim]`.
    fn split_heads(&self, states: Tensor<3>) -> Tensor<4> {
        let [batch, length, width] = states.dims();
        states.reshape([batch, length, width / self.head_dim, self.head_dim])
    }
}

#[burnscope::trace]
impl Qwen3Attention {
    /// `[batch, sequence, hidden]` to the same shape. `position_ids` is part of the call, as in
    /// PyTorch, but the positions have gone into `position_embeddings` already.
    pub fn forward(
        &self,
        hidden_states: Tensor<3>,
        attention_mask: Option<Tensor<4, Bool>>,
        position_ids: Tensor<2, Int>,
        cache: &mut DynamicCache,
        position_embeddings: (Tensor<3>, Tensor<3>),
    ) -> Tensor<3> {
        let _ = position_ids;
        let query = self.q_proj.forward(hidden_states.clone());
        let query = self.q_norm.forward(self.split_heads(query));
        let key = self.k_proj.forward(hidden_states.clone());
        let key = self.k_norm.forward(self.split_heads(key));
        let value = self.v_proj.forward(hidden_states);
        let value = self.split_heads(value).swap_dims(1, 2);
        let (query, key) = apply_rotary_pos_emb(
            query.swap_dims(1, 2),
            key.swap_dims(1, 2),
            position_embeddings,
        );
        let (key, value) = cache.update(self.layer_idx, key, value);
        let attn_output = scaled_dot_product_attention(
            query,
            repeat_kv(key, self.num_key_value_groups),
            repeat_kv(value, self.num_key_value_groups),
            attention_mask,
            true,
            (self.head_dim as f64).sqrt().recip(),
        );
        let attn_output = attn_output.swap_dims(1, 2).flatten::<3>(2, 3);
        self.o_proj.forward(attn_output)
    }
}

/// One layer: attention, then a feed-forward block, each on a normalised input and added to it.
#[derive(Module, Debug)]
pub struct Qwen3DecoderLayer {
    /// Attention.
    pub self_attn: Qwen3Attention,
    /// The feed-forward block.
    pub mlp: GatedMlp,
    /// Before the attention.
    pub input_layernorm: RmsNorm,
    /// Before the feed-forward block.
    pub post_attention_layernorm: RmsNorm,
}

impl Qwen3DecoderLayer {
    fn init(config: &DecoderConfig, layer_idx: usize, device: &Device) -> Self {
        let norm = || RmsNorm::init(config.hidden_size, config.rms_norm_eps, device);
        Self {
            self_attn: Qwen3Attention::init(config, layer_idx, device),
            mlp: config.mlp().init(device),
            input_layernorm: norm(),
            post_attention_layernorm: norm(),
        }
    }
}

#[burnscope::trace]
impl Qwen3DecoderLayer {
    /// `[batch, sequence, hidden]` to the same shape.
    pub fn forward(
        &self,
        #[burnscope(positional)] hidden_states: Tensor<3>,
        attention_mask: Option<Tensor<4, Bool>>,
        position_embeddings: (Tensor<3>, Tensor<3>),
        position_ids: Tensor<2, Int>,
        cache: &mut DynamicCache,
    ) -> Tensor<3> {
        let residual = hidden_states.clone();
        let hidden_states = self.input_layernorm.forward(hidden_states);
        let hidden_states = self.self_attn.forward(
            hidden_states,
            attention_mask,
            position_ids,
            cache,
            position_embeddings,
        );
        let hidden_states = residual + hidden_states;

        let residual = hidden_states.clone();
        let hidden_states = self.post_attention_layernorm.forward(hidden_states);
        let hidden_states = self.mlp.forward(hidden_states);
        residual + hidden_states
    }
}

/// The decoder without a head.
#[derive(Module, Debug)]
pub struct Qwen3Model {
    /// One vector for each token, `[vocabulary, hidden]`.
    pub embed_tokens: Embedding,
    /// The layers.
    pub layers: Vec<Qwen3DecoderLayer>,
    /// After the last layer.
    pub norm: RmsNorm,
    /// The positions' cosines and sines, shared by all layers.
    pub rotary_emb: RotaryEmbedding,
}

impl Qwen3Model {
    /// A model with random weights.
    pub fn init(config: &DecoderConfig, device: &Device) -> Self {
        Self {
            embed_tokens: EmbeddingConfig::new(config.vocab_size, config.hidden_size).init(device),
            layers: (0..config.num_hidden_layers)
                .map(|index| Qwen3DecoderLayer::init(config, index, device))
                .collect(),
            norm: RmsNorm::init(config.hidden_size, config.rms_norm_eps, device),
            rotary_emb: config.rope.init(),
        }
    }
}

#[burnscope::trace]
impl Qwen3Model {
    /// Runs the decoder on `input_ids` `[batch, sequence]`.
    ///
    /// `attention_mask` is `[batch, seen + sequence]`, 0 at padding; `position_ids`
    /// `[batch or 1, sequence]` count on from the cache where they are absent; `cache` is what an
    /// earlier call returned.
    pub fn forward(
        &self,
        input_ids: Tensor<2, Int>,
        attention_mask: Option<Tensor<2, Int>>,
        position_ids: Option<Tensor<2, Int>>,
        cache: Option<DynamicCache>,
    ) -> DecoderOutput {
        let mut cache = cache.unwrap_or_else(|| DynamicCache::new(self.layers.len()));
        let seen = cache.seen();
        let position_ids = position_ids.unwrap_or_else(|| next_positions(&input_ids, seen));
        let causal_mask = causal_mask(&input_ids, seen, attention_mask.as_ref());

        let mut hidden_states = self.embed_tokens.forward(input_ids);
        let position_embeddings = self
            .rotary_emb
            .forward(hidden_states.clone(), position_ids.clone());
        for decoder_layer in &self.layers {
            hidden_states = decoder_layer.forward(
                hidden_states,
                causal_mask.clone(),
                position_embeddings.clone(),
                position_ids.clone(),
                &mut cache,
            );
        }
        let last_hidden_state = self.norm.forward(hidden_states);
        DecoderOutput {
            last_hidden_state,
            cache,
        }
    }
}

/// The decoder with a language model head.
#[derive(Module, Debug)]
pub struct Qwen3ForCausalLM {
    /// The decoder.
    pub model: Qwen3Model,
    /// `[hidden, vocabulary]`.
    pub lm_head: Linear,
}

impl Qwen3ForCausalLM {
    /// A model with random weights.
    pub fn init(config: &DecoderConfig, device: &Device) -> Self {
        let model = Qwen3Model::init(config, device);
        let lm_head = LinearConfig::new(config.hidden_size, config.vocab_size)
            .with_bias(false)
            .init(device);
        Self { model, lm_head }
    }
}

#[burnscope::trace]
impl Qwen3ForCausalLM {
    /// Runs the model; the arguments are those of [`Qwen3Model::forward`].
    pub fn forward(
        &self,
        input_ids: Tensor<2, Int>,
        attention_mask: Option<Tensor<2, Int>>,
        position_ids: Option<Tensor<2, Int>>,
        cache: Option<DynamicCache>,
    ) -> CausalLmOutput {
        let outputs = self
            .model
            .forward(input_ids, attention_mask, position_ids, cache);
        let logits = self.lm_head.forward(outputs.last_hidden_state);
        CausalLmOutput {
            logits,
            cache: outputs.cache,
        }
    }
}

impl Architecture for Qwen3Model {
    const CLASS_NAME: &'static str = "Qwen3Model";
    const MODEL_TYPE: &'static str = "qwen3";
    const BASE_PREFIX: &'static str = "model.";
    const IS_BASE: bool = true;
    const HEAD_CLASSES: &'static [&'static str] = &[
        "Qwen3ForSequenceClassification",
        "Qwen3ForTokenClassification",
    ];
    const HEAD_KEYS: &'static [&'static str] = &["lm_head.", "score."];
    type Config = DecoderConfig;

    fn read_config(config: &ConfigFile) -> Result<DecoderConfig, ConfigError> {
        read_config(config)
    }

    fn init(config: &DecoderConfig, device: &Device) -> Self {
        Self::init(config, device)
    }

    fn limits(config: &DecoderConfig) -> InputLimits {
        config.limits()
    }

    fn run(&self, inputs: InputTensors) -> ModelOutputs {
        self.forward(
            inputs.input_ids,
            inputs.attention_mask,
            inputs.position_ids,
            None,
        )
        .into()
    }
}

impl Architecture for Qwen3ForCausalLM {
    const CLASS_NAME: &'static str = "Qwen3ForCausalLM";
    const MODEL_TYPE: &'static str = "qwen3";
    const BASE_PREFIX: &'static str = "model.";
    const TIED_KEY: Option<&'static str> = Some("lm_head.weight");
    const HEAD_KEYS: &'static [&'static str] = &["lm_head."];
    type Config = DecoderConfig;

    fn read_config(config: &ConfigFile) -> Result<DecoderConfig, ConfigError> {
        read_config(config)
    }

    fn init(config: &DecoderConfig, device: &Device) -> Self {
        Self::init(config, device)
    }

    fn limits(config: &DecoderConfig) -> InputLimits {
        config.limits()
    }

    fn ties_embeddings(config: &DecoderConfig) -> bool {
        config.tie_word_embeddings
    }

    fn tie_embeddings(&mut self) {
        let embeddings = self.model.embed_tokens.weight.val();
        self.lm_head.weight = Param::from_tensor(embeddings.transpose());
    }

    fn run(&self, inputs: InputTensors) -> ModelOutputs {
        self.forward(
            inputs.input_ids,
            inputs.attention_mask,
            inputs.position_ids,
            None,
        )
        .into()
    }
}
