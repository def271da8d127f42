//! BERT (Devlin et al., 2018): an encoder with learned positions and a pooler. Fields and
//! arguments have the names they have in transformers, except that Rust spells `self` as `self_`
//! and `LayerNorm` as `layer_norm` (see [`PATH_NAMES`](super::PATH_NAMES)).

use burn::module::Module;
use burn::nn::{
    Dropout, DropoutConfig, Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear,
    LinearConfig,
};
use burn::tensor::{Bool, Device, Int, Tensor};
use serde_json::Value;

use super::architecture::{Architecture, InputLimits, InputTensors, ModelOutputs};
use super::config::{ConfigError, ConfigFile};
use super::decoder::{heads_do_not_divide, next_positions, read_activation};
use super::layers::{
    Activation, ActivationFunction, bidirectional_mask, index_dtype, scaled_dot_product_attention,
};

/// The configuration of a BERT.
#[derive(Debug, Clone)]
pub struct BertConfig {
    /// The number of tokens.
    pub vocab_size: usize,
    /// The width of the residual stream; a multiple of `num_attention_heads`.
    pub hidden_size: usize,
    /// The width inside the feed-forward blocks.
    pub intermediate_size: usize,
    /// The number of layers.
    pub num_hidden_layers: usize,
    /// The number of attention heads.
    pub num_attention_heads: usize,
    /// The activation of the feed-forward blocks.
    pub hidden_act: ActivationFunction,
    /// The probability with which training drops a feature. Inference drops none.
    pub hidden_dropout_prob: f64,
    /// The longest sequence, in positions.
    pub max_position_embeddings: usize,
    /// The number of token types (segments).
    pub type_vocab_size: usize,
    /// Added to the variance in normalisations.
    pub layer_norm_eps: f64,
    /// Whether the model has a pooler.
    pub add_pooling_layer: bool,
}

impl BertConfig {
    /// Reads the configuration of a BERT.
    ///
    /// # Errors
    /// On missing or impossible fields, and on options these modules do not have.
    pub fn read(config: &ConfigFile) -> Result<Self, ConfigError> {
        config.refuse("quantization_config")?;
        config.refuse("pruned_heads")?;
        config.require("is_decoder", &Value::from(false))?;
        config.require("add_cross_attention", &Value::from(false))?;
        config.require("position_embedding_type", &Value::from("absolute"))?;
        let hidden_size = config.required_size("hidden_size")?;
        let num_attention_heads = config.required_size("num_attention_heads")?;
        if !hidden_size.is_multiple_of(num_attention_heads) {
            return Err(heads_do_not_divide(hidden_size, num_attention_heads));
        }
        Ok(Self {
            vocab_size: config.required_size("vocab_size")?,
            hidden_size,
            intermediate_size: config.required_size("intermediate_size")?,
            num_hidden_layers: config.required_layers("num_hidden_layers")?,
            num_attention_heads,
            hidden_act: read_activation(config, "gelu")?,
            hidden_dropout_prob: config.probability("hidden_dropout_prob")?,
            max_position_embeddings: config.required_size("max_position_embeddings")?,
            type_vocab_size: config.size("type_vocab_size")?.unwrap_or(2),
            layer_norm_eps: config.positive("layer_norm_eps")?.unwrap_or(1e-12),
            add_pooling_layer: true,
        })
    }

    fn norm(&self, device: &Device) -> LayerNorm {
        LayerNormConfig::new(self.hidden_size)
            .with_epsilon(self.layer_norm_eps)
            .init(device)
    }

    fn dropout(&self) -> Dropout {
        DropoutConfig::new(self.hidden_dropout_prob).init()
    }

    fn linear(&self, from: usize, to: usize, device: &Device) -> Linear {
        LinearConfig::new(from, to).init(device)
    }
}

/// The sum of a token's, its position's and its type's vectors, normalised.
#[derive(Module, Debug)]
pub struct BertEmbeddings {
    /// `[vocabulary, hidden]`.
    pub word_embeddings: Embedding,
    /// `[positions, hidden]`.
    pub position_embeddings: Embedding,
    /// `[types, hidden]`.
    pub token_type_embeddings: Embedding,
    /// After the sum.
    pub layer_norm: LayerNorm,
    /// After the normalisation, in training.
    pub dropout: Dropout,
}

impl BertEmbeddings {
    fn init(config: &BertConfig, device: &Device) -> Self {
        let embedding = |count| EmbeddingConfig::new(count, config.hidden_size).init(device);
        Self {
            word_embeddings: embedding(config.vocab_size),
            position_embeddings: embedding(config.max_position_embeddings),
            token_type_embeddings: embedding(config.type_vocab_size),
            layer_norm: config.norm(device),
            dropout: config.dropout(),
        }
    }
}

#[burnscope::trace]
impl BertEmbeddings {
    /// `[batch, sequence]` to `[batch, sequence, hidden]`. Positions count from 0 and types are 0
    /// where they are absent.
    pub fn forward(
        &self,
        input_ids: Tensor<2, Int>,
        position_ids: Option<Tensor<2, Int>>,
        token_type_ids: Option<Tensor<2, Int>>,
    ) -> Tensor<3> {
        let position_ids = position_ids.unwrap_or_else(|| next_positions(&input_ids, 0));
        let token_type_ids = token_type_ids.unwrap_or_else(|| {
            let device = input_ids.device();
            Tensor::zeros(input_ids.dims(), (&device, index_dtype(&device)))
        });
        let inputs_embeds = self.word_embeddings.forward(input_ids);
        let token_type_embeddings = self.token_type_embeddings.forward(token_type_ids);
        let embeddings = inputs_embeds + token_type_embeddings;
        let position_embeddings = self.position_embeddings.forward(position_ids);
        let embeddings = embeddings + position_embeddings;
        let embeddings = self.layer_norm.forward(embeddings);
        self.dropout.forward(embeddings)
    }
}

/// Self-attention without what follows it.
#[derive(Module, Debug)]
pub struct BertSelfAttention {
    /// `[hidden, hidden]`.
    pub query: Linear,
    /// `[hidden, hidden]`.
    pub key: Linear,
    /// `[hidden, hidden]`.
    pub value: Linear,
    attention_head_size: usize,
}

impl BertSelfAttention {
    fn init(config: &BertConfig, device: &Device) -> Self {
        let linear = || config.linear(config.hidden_size, config.hidden_size, device);
        Self {
            query: linear(),
            key: linear(),
            value: linear(),
            attention_head_size: config.hidden_size / config.num_attention_heads,
        }
    }

    /// `[batch, sequence, hidden]` to `[batch, heads, sequence, head_size]`.
    fn split_heads(&self, states: Tensor<3>) -> Tensor<4> {
        let [batch, length, width] = states.dims();
        let size = self.attention_head_size;
        states
            .reshape([batch, length, width / size, size])
            .swap_dims(1, 2)
    }
}

#[burnscope::trace]
impl BertSelfAttention {
    /// `[batch, sequence, hidden]` to the same shape.
    pub fn forward(
        &self,
        #[burnscope(positional)] hidden_states: Tensor<3>,
        attention_mask: Option<Tensor<4, Bool>>,
    ) -> Tensor<3> {
        let query = self.query.forward(hidden_states.clone());
        let key = self.key.forward(hidden_states.clone());
        let value = self.value.forward(hidden_states);
        let attn_output = scaled_dot_product_attention(
            self.split_heads(query),
            self.split_heads(key),
            self.split_heads(value),
            attention_mask,
            false,
            (self.attention_head_size as f64).sqrt().recip(),
        );
        attn_output.swap_dims(1, 2).flatten::<3>(2, 3)
    }
}

/// A projection whose result is added to the block's input and normalised: what ends both blocks
/// of a layer (`BertSelfOutput` and `BertOutput` in transformers).
#[derive(Module, Debug)]
pub struct BertOutput {
    /// `[input, hidden]`.
    pub dense: Linear,
    /// After the sum.
    pub layer_norm: LayerNorm,
    /// After the projection, in training.
    pub dropout: Dropout,
}

impl BertOutput {
    fn init(config: &BertConfig, width: usize, device: &Device) -> Self {
        Self {
            dense: config.linear(width, config.hidden_size, device),
            layer_norm: config.norm(device),
            dropout: config.dropout(),
        }
    }
}

#[burnscope::trace]
impl BertOutput {
    /// `[batch, sequence, width]` and the block's input `[batch, sequence, hidden]` to the latter's
    /// shape.
    pub fn forward(
        &self,
        #[burnscope(positional)] hidden_states: Tensor<3>,
        #[burnscope(positional)] input_tensor: Tensor<3>,
    ) -> Tensor<3> {
        let hidden_states = self.dense.forward(hidden_states);
        let hidden_states = self.dropout.forward(hidden_states);
        self.layer_norm.forward(hidden_states + input_tensor)
    }
}

/// Self-attention and what ends its block.
#[derive(Module, Debug)]
pub struct BertAttention {
    /// The attention; `self` in checkpoints.
    pub self_: BertSelfAttention,
    /// The end of the block.
    pub output: BertOutput,
}

#[burnscope::trace]
impl BertAttention {
    /// `[batch, sequence, hidden]` to the same shape.
    pub fn forward(
        &self,
        #[burnscope(positional)] hidden_states: Tensor<3>,
        #[burnscope(positional)] attention_mask: Option<Tensor<4, Bool>>,
    ) -> Tensor<3> {
        let attention_output = self.self_.forward(hidden_states.clone(), attention_mask);
        self.output.forward(attention_output, hidden_states)
    }
}

/// The first half of the feed-forward block.
#[derive(Module, Debug)]
pub struct BertIntermediate {
    /// `[hidden, intermediate]`.
    pub dense: Linear,
    /// The activation.
    pub intermediate_act_fn: Activation,
}

#[burnscope::trace]
impl BertIntermediate {
    /// `[batch, sequence, hidden]` to `[batch, sequence, intermediate]`.
    pub fn forward(&self, #[burnscope(positional)] hidden_states: Tensor<3>) -> Tensor<3> {
        let hidden_states = self.dense.forward(hidden_states);
        self.intermediate_act_fn.forward(hidden_states)
    }
}

/// One layer.
#[derive(Module, Debug)]
pub struct BertLayer {
    /// The attention block.
    pub attention: BertAttention,
    /// The first half of the feed-forward block.
    pub intermediate: BertIntermediate,
    /// Its second half.
    pub output: BertOutput,
}

impl BertLayer {
    fn init(config: &BertConfig, device: &Device) -> Self {
        Self {
            attention: BertAttention {
                self_: BertSelfAttention::init(config, device),
                output: BertOutput::init(config, config.hidden_size, device),
            },
            intermediate: BertIntermediate {
                dense: config.linear(config.hidden_size, config.intermediate_size, device),
                intermediate_act_fn: Activation::new(config.hidden_act),
            },
            output: BertOutput::init(config, config.intermediate_size, device),
        }
    }
}

#[burnscope::trace]
impl BertLayer {
    /// `[batch, sequence, hidden]` to the same shape.
    pub fn forward(
        &self,
        #[burnscope(positional)] hidden_states: Tensor<3>,
        #[burnscope(positional)] attention_mask: Option<Tensor<4, Bool>>,
    ) -> Tensor<3> {
        let attention_output = self.attention.forward(hidden_states, attention_mask);
        let intermediate_output = self.intermediate.forward(attention_output.clone());
        self.output.forward(intermediate_output, attention_output)
    }
}

/// The layers.
#[derive(Module, Debug)]
pub struct BertEncoder {
    /// The layers, first to last.
    pub layer: Vec<BertLayer>,
}

#[burnscope::trace]
impl BertEncoder {
    /// `[batch, sequence, hidden]` to the same shape.
    pub fn forward(
        &self,
        #[burnscope(positional)] hidden_states: Tensor<3>,
        attention_mask: Option<Tensor<4, Bool>>,
    ) -> Tensor<3> {
        let mut hidden_states = hidden_states;
        for layer_module in &self.layer {
            hidden_states = layer_module.forward(hidden_states, attention_mask.clone());
        }
        hidden_states
    }
}

/// The first token's vector, projected.
#[derive(Module, Debug)]
pub struct BertPooler {
    /// `[hidden, hidden]`.
    pub dense: Linear,
    /// The hyperbolic tangent.
    pub activation: Activation,
}

#[burnscope::trace]
impl BertPooler {
    /// `[batch, sequence, hidden]` to `[batch, hidden]`.
    pub fn forward(&self, #[burnscope(positional)] hidden_states: Tensor<3>) -> Tensor<2> {
        let first_token_tensor: Tensor<2> = hidden_states.narrow(1, 0, 1).squeeze_dim(1);
        let pooled_output = self.dense.forward(first_token_tensor);
        self.activation.forward(pooled_output)
    }
}

/// The encoder with its embeddings and, where the checkpoint has one, its pooler.
#[derive(Module, Debug)]
pub struct BertModel {
    /// The embeddings.
    pub embeddings: BertEmbeddings,
    /// The layers.
    pub encoder: BertEncoder,
    /// The pooler.
    pub pooler: Option<BertPooler>,
}

/// What [`BertModel`] returns.
#[derive(Debug, Clone, burnscope::Traced)]
pub struct BertOutputs {
    /// The last layer's output, `[batch, sequence, hidden]`.
    pub last_hidden_state: Tensor<3>,
    /// The pooler's output, `[batch, hidden]`.
    pub pooler_output: Option<Tensor<2>>,
}

impl BertModel {
    /// A model with random weights.
    pub fn init(config: &BertConfig, device: &Device) -> Self {
        Self {
            embeddings: BertEmbeddings::init(config, device),
            encoder: BertEncoder {
                layer: (0..config.num_hidden_layers)
                    .map(|_| BertLayer::init(config, device))
                    .collect(),
            },
            pooler: config.add_pooling_layer.then(|| BertPooler {
                dense: config.linear(config.hidden_size, config.hidden_size, device),
                activation: Activation::new(ActivationFunction::Tanh),
            }),
        }
    }
}

#[burnscope::trace]
impl BertModel {
    /// Runs the encoder on `input_ids` `[batch, sequence]`.
    ///
    /// `attention_mask` `[batch, sequence]` is 0 at padding; `token_type_ids` `[batch, sequence]`
    /// tells the segments apart; `position_ids` are `[batch or 1, sequence]`.
    pub fn forward(
        &self,
        input_ids: Tensor<2, Int>,
        attention_mask: Option<Tensor<2, Int>>,
        token_type_ids: Option<Tensor<2, Int>>,
        position_ids: Option<Tensor<2, Int>>,
    ) -> BertOutputs {
        let embedding_output = self
            .embeddings
            .forward(input_ids, position_ids, token_type_ids);
        let attention_mask = bidirectional_mask(attention_mask.as_ref());
        let sequence_output = self.encoder.forward(embedding_output, attention_mask);
        let mut pooler_output = None;
        if let Some(pooler) = &self.pooler {
            pooler_output = Some(pooler.forward(sequence_output.clone()));
        }
        BertOutputs {
            last_hidden_state: sequence_output,
            pooler_output,
        }
    }
}

impl From<BertOutputs> for ModelOutputs {
    fn from(output: BertOutputs) -> Self {
        Self {
            last_hidden_state: Some(output.last_hidden_state),
            pooler_output: output.pooler_output,
            ..Self::default()
        }
    }
}

impl Architecture for BertModel {
    const CLASS_NAME: &'static str = "BertModel";
    const MODEL_TYPE: &'static str = "bert";
    const BASE_PREFIX: &'static str = "bert.";
    const IS_BASE: bool = true;
    const HEAD_CLASSES: &'static [&'static str] = &[
        "BertForMaskedLM",
        "BertForMultipleChoice",
        "BertForNextSentencePrediction",
        "BertForPreTraining",
        "BertForQuestionAnswering",
        "BertForSequenceClassification",
        "BertForTokenClassification",
    ];
    const HEAD_KEYS: &'static [&'static str] = &["cls.", "classifier.", "qa_outputs."];
    type Config = BertConfig;

    fn read_config(config: &ConfigFile) -> Result<BertConfig, ConfigError> {
        BertConfig::read(config)
    }

    /// A checkpoint of a class with a head may have been saved without the pooler.
    fn adapt(config: &mut BertConfig, has_head: bool, has_keys: &dyn Fn(&str) -> bool) {
        if has_head {
            config.add_pooling_layer = has_keys("pooler.");
        }
        // A loaded model is there to be looked at, not to be trained: it drops nothing, on an
        // autodiff device neither.
        config.hidden_dropout_prob = 0.0;
    }

    fn init(config: &BertConfig, device: &Device) -> Self {
        Self::init(config, device)
    }

    fn limits(config: &BertConfig) -> InputLimits {
        InputLimits {
            vocab_size: config.vocab_size,
            max_positions: config.max_position_embeddings,
            type_vocab_size: Some(config.type_vocab_size),
        }
    }

    fn run(&self, inputs: InputTensors) -> ModelOutputs {
        self.forward(
            inputs.input_ids,
            inputs.attention_mask,
            inputs.token_type_ids,
            inputs.position_ids,
        )
        .into()
    }
}
