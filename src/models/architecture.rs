//! What a model must provide so that it can be picked by its class name, loaded from a folder and
//! run on a file of inputs. Nothing here knows a particular model.

use std::fmt::Debug;

use burn::module::Module;
use burn::tensor::{Device, Int, Tensor, TensorData};

use super::config::{ConfigError, ConfigFile};
use super::layers::DynamicCache;

/// A model class with the name, the parameters and the computation of one in transformers.
///
/// To add one: write its modules in a new file, implement this, and name it in the list in
/// `models/mod.rs`.
pub trait Architecture: Module + Debug + Sized {
    /// The class name, as `architectures` in `config.json` has it.
    const CLASS_NAME: &'static str;
    /// The family, as `model_type` in `config.json` has it.
    const MODEL_TYPE: &'static str;
    /// What the keys of the base model start with in the checkpoint of a model with a head,
    /// trailing dot included.
    const BASE_PREFIX: &'static str;
    /// Whether this is the family's base model, which is picked where a file says nothing but the
    /// family.
    const IS_BASE: bool = false;
    /// Classes whose checkpoints hold this base model and a head that is left out.
    const HEAD_CLASSES: &'static [&'static str] = &[];
    /// What the keys of heads start with. A base model ignores them; a model with a head owns
    /// them.
    const HEAD_KEYS: &'static [&'static str] = &[];
    /// The key that may be absent where it shares the token embeddings' weight.
    const TIED_KEY: Option<&'static str> = None;
    /// The model's sizes and options.
    type Config: Clone + Debug;

    /// Reads and checks the configuration.
    ///
    /// # Errors
    /// On missing or impossible fields, and on options the model does not have.
    fn read_config(config: &ConfigFile) -> Result<Self::Config, ConfigError>;

    /// Fits the configuration to a checkpoint that is about to be loaded: `has_head` says that it
    /// may hold a head that is left out, `has_keys` whether it has keys that start with something
    /// once [`Self::BASE_PREFIX`] is gone.
    fn adapt(config: &mut Self::Config, has_head: bool, has_keys: &dyn Fn(&str) -> bool) {
        let _ = (config, has_head, has_keys);
    }

    /// A model with random weights, in the device's default float dtype.
    fn init(config: &Self::Config, device: &Device) -> Self;

    /// What inputs the model can take.
    fn limits(config: &Self::Config) -> InputLimits;

    /// Whether the configuration ties [`Self::TIED_KEY`] to the token embeddings.
    fn ties_embeddings(config: &Self::Config) -> bool {
        let _ = config;
        false
    }

    /// Makes [`Self::TIED_KEY`] share the token embeddings' weight.
    fn tie_embeddings(&mut self) {}

    /// Calls the model's `forward` with the inputs it has a name for.
    fn run(&self, inputs: InputTensors) -> ModelOutputs;
}

/// What inputs a model can take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputLimits {
    /// Token ids are below this.
    pub vocab_size: usize,
    /// Positions are below this, and sequences no longer.
    pub max_positions: usize,
    /// Token types are below this; `None` where the model knows no types.
    pub type_vocab_size: Option<usize>,
}

/// A model's inputs on its device, each `[batch, sequence]`.
#[derive(Debug, Clone)]
pub struct InputTensors {
    /// The tokens.
    pub input_ids: Tensor<2, Int>,
    /// 1 at real tokens, 0 at padding.
    pub attention_mask: Option<Tensor<2, Int>>,
    /// The segments.
    pub token_type_ids: Option<Tensor<2, Int>>,
    /// The positions; the batch may be 1.
    pub position_ids: Option<Tensor<2, Int>>,
}

/// A model's outputs: those of the fields that its class has.
#[derive(Debug, Clone, Default, burnscope::Traced)]
pub struct ModelOutputs {
    /// `[batch, sequence, hidden]`.
    pub last_hidden_state: Option<Tensor<3>>,
    /// `[batch, hidden]`.
    pub pooler_output: Option<Tensor<2>>,
    /// `[batch, sequence, vocabulary]`.
    pub logits: Option<Tensor<3>>,
    /// The keys and values seen.
    pub cache: Option<DynamicCache>,
}

impl ModelOutputs {
    /// Every tensor with its name, copied to the host: the fields' names, and `cache.0.key`,
    /// `cache.0.value` and so on.
    ///
    /// # Errors
    /// When the device fails.
    pub fn to_named_data(
        &self,
    ) -> Result<Vec<(String, TensorData)>, burn::tensor::TensorReadError> {
        let mut named = Vec::new();
        if let Some(tensor) = &self.last_hidden_state {
            named.push((
                "last_hidden_state".to_owned(),
                tensor.clone().try_into_data()?,
            ));
        }
        if let Some(tensor) = &self.pooler_output {
            named.push(("pooler_output".to_owned(), tensor.clone().try_into_data()?));
        }
        if let Some(tensor) = &self.logits {
            named.push(("logits".to_owned(), tensor.clone().try_into_data()?));
        }
        for (index, layer) in self.cache.iter().flat_map(DynamicCache::layers).enumerate() {
            let (key, value) = (layer.key.clone(), layer.value.clone());
            named.push((format!("cache.{index}.key"), key.try_into_data()?));
            named.push((format!("cache.{index}.value"), value.try_into_data()?));
        }
        Ok(named)
    }
}
