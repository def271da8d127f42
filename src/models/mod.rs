//! BERT, Llama and Qwen3 as Burn modules, and a loader for ordinary Hugging Face folders.
//!
//! The modules compute what transformers' classes of the same names compute, in the same order,
//! and their fields have the checkpoint's names, so that a trace of one can be laid beside a trace
//! of the other. Nothing here trains or generates text.
//!
//! ```no_run
//! use burn::tensor::Device;
//! use burnscope::models::{self, ModelInputs};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let model = models::load("checkpoint".as_ref(), &Device::default())?;
//! let inputs = ModelInputs::read("inputs.safetensors".as_ref())?;
//! let outputs = model.forward(&inputs)?;
//! println!("{}: {:?}", model.class_name(), outputs.logits.map(|logits| logits.dims()));
//! # Ok(())
//! # }
//! ```

mod architecture;
pub mod bert;
mod checkpoint;
mod config;
mod decoder;
mod error;
mod files;
mod inputs;
pub mod layers;
pub mod llama;
mod pooling;
pub mod qwen3;
mod weights;

use std::path::Path;

use burn::tensor::{DType, Device};

pub use architecture::{Architecture, InputLimits, InputTensors, ModelOutputs};
pub use config::{ConfigError, ConfigFile};
pub use decoder::{CausalLmOutput, DecoderConfig, DecoderOutput};
pub use error::{KeyMismatch, LoadError, WrongTensor};
pub use files::FileError;
pub use inputs::{InputError, IntMatrix, ModelInputs};
pub use pooling::{Pooling, normalize};
pub use weights::{PATH_NAMES, checkpoint_name};

use crate::{
    capture::{Session, SessionBuilder},
    format::WriteError,
};
use checkpoint::Checkpoint;
use config::shorten;
use weights::{Keyed, dtype_name};

/// Something to do with a model whatever its class.
///
/// A closure cannot be generic over the model's type; this can.
pub trait WithModel {
    /// What comes of it.
    type Output;

    /// Does it.
    fn call<A: Architecture>(self, model: &A) -> Self::Output;
}

/// Makes the enum of all architectures and the table that picks one by name.
macro_rules! architectures {
    ($($class:ident in $module:ident),+ $(,)?) => {
        /// A model of one of the supported classes.
        #[derive(Debug, Clone)]
        pub enum Model {
            $(
                #[doc = concat!("transformers' `", stringify!($class), "`.")]
                $class(Box<$module::$class>),
            )+
        }

        impl Model {
            /// Does something with the model inside.
            pub fn with<F: WithModel>(&self, action: F) -> F::Output {
                match self {
                    $(Self::$class(model) => action.call(model.as_ref()),)+
                }
            }
        }

        /// The supported classes.
        const CLASSES: &[Class] = &[$(
            Class {
                name: <$module::$class as Architecture>::CLASS_NAME,
                model_type: <$module::$class as Architecture>::MODEL_TYPE,
                is_base: <$module::$class as Architecture>::IS_BASE,
                head_classes: <$module::$class as Architecture>::HEAD_CLASSES,
                load: |source| {
                    source.load::<$module::$class>(|model| Model::$class(Box::new(model)))
                },
            },
        )+];
    };
}

architectures! {
    BertModel in bert,
    LlamaModel in llama,
    LlamaForCausalLM in llama,
    Qwen3Model in qwen3,
    Qwen3ForCausalLM in qwen3,
}

/// A supported class, as far as it takes to pick and load it.
struct Class {
    name: &'static str,
    model_type: &'static str,
    is_base: bool,
    head_classes: &'static [&'static str],
    load: fn(Source<'_>) -> Result<LoadedModel, LoadError>,
}

impl Class {
    /// Picks the class of a configuration, and says whether a head is left out by that.
    fn pick(config: &ConfigFile) -> Result<(&'static Self, bool), PickError> {
        let unknown = |found: String| {
            let names: Vec<&str> = CLASSES.iter().map(|class| class.name).collect();
            PickError::Unknown(LoadError::Architecture {
                found,
                supported: names.join(", "),
            })
        };
        if let Some(name) = config.texts("architectures")?.first() {
            let exact = CLASSES.iter().find(|class| class.name == *name);
            let base = || {
                CLASSES
                    .iter()
                    .find(|class| class.head_classes.contains(name))
            };
            return match (exact, base()) {
                (Some(class), _) => Ok((class, false)),
                (None, Some(class)) => Ok((class, true)),
                (None, None) => Err(unknown(format!("the architecture `{}`", shorten(name)))),
            };
        }
        let Some(model_type) = config.text("model_type")? else {
            return Err(unknown("a config.json without `architectures`".to_owned()));
        };
        CLASSES
            .iter()
            .find(|class| class.is_base && class.model_type == model_type)
            .map(|class| (class, true))
            .ok_or_else(|| unknown(format!("the model type `{}`", shorten(model_type))))
    }
}

/// Why no class could be picked.
enum PickError {
    Config(ConfigError),
    Unknown(LoadError),
}

impl From<ConfigError> for PickError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

/// What a model is loaded from.
struct Source<'a> {
    folder: &'a Path,
    config: &'a ConfigFile,
    /// Whether the checkpoint may hold a head that is left out.
    has_head: bool,
    device: &'a Device,
}

impl Source<'_> {
    fn load<A: Architecture>(self, wrap: fn(A) -> Model) -> Result<LoadedModel, LoadError> {
        let in_config = |source| LoadError::Config {
            folder: self.folder.to_owned(),
            source,
        };
        let mut config = A::read_config(self.config).map_err(in_config)?;
        let named = self.named_dtype().map_err(in_config)?;
        let weights = Keyed::of::<A>(Checkpoint::open(self.folder)?.tensors);
        A::adapt(&mut config, self.has_head, &|prefix| {
            weights.has_keys(prefix)
        });
        let dtype = named.unwrap_or_else(|| weights.dtype());
        if !matches!(dtype, DType::F32 | DType::F16 | DType::BF16) {
            return Err(LoadError::Dtype {
                found: dtype_name(dtype),
            });
        }
        if !self.device.supports_dtype(dtype) {
            return Err(LoadError::DeviceDtype {
                dtype: dtype_name(dtype),
            });
        }
        let mut model = A::init(&config, self.device);
        let loaded = weights.load(&mut model, dtype, A::ties_embeddings(&config))?;
        Ok(LoadedModel {
            model: wrap(model),
            class_name: A::CLASS_NAME,
            limits: A::limits(&config),
            dtype,
            device: self.device.clone(),
            ignored: loaded.ignored,
        })
    }

    /// The dtype that `config.json` names: what transformers loads a checkpoint in by default.
    fn named_dtype(&self) -> Result<Option<DType>, ConfigError> {
        let key = match self.config.get("dtype") {
            Some(_) => "dtype",
            None => "torch_dtype",
        };
        match self.config.text(key)? {
            None | Some("auto") => Ok(None),
            Some("float32") => Ok(Some(DType::F32)),
            Some("float16") => Ok(Some(DType::F16)),
            Some("bfloat16") => Ok(Some(DType::BF16)),
            Some(_) => Err(self.config.unsupported(key, "float32, float16, bfloat16")),
        }
    }
}

/// A model loaded from a folder.
#[derive(Debug, Clone)]
pub struct LoadedModel {
    model: Model,
    class_name: &'static str,
    limits: InputLimits,
    dtype: DType,
    device: Device,
    ignored: Vec<String>,
}

/// Loads the checkpoint in `folder`: `config.json` and `model.safetensors`, or the files that
/// `model.safetensors.index.json` names.
///
/// The class is the first of `architectures`; the checkpoint of a class with a head there is no
/// port of gives the base model, as does a file with nothing but a `model_type`. The model
/// computes in the dtype that `config.json` names, else in that of the weights, else, where these
/// are mixed, in float32.
///
/// # Errors
/// See [`LoadError`]. Keys that are missing, unexpected or of another shape are listed all at
/// once.
pub fn load(folder: &Path, device: &Device) -> Result<LoadedModel, LoadError> {
    if !folder.is_dir() {
        return Err(LoadError::NoFolder {
            folder: folder.to_owned(),
        });
    }
    let in_config = |source| LoadError::Config {
        folder: folder.to_owned(),
        source,
    };
    let config = ConfigFile::read(&folder.join("config.json")).map_err(in_config)?;
    let (class, has_head) = Class::pick(&config).map_err(|error| match error {
        PickError::Config(source) => in_config(source),
        PickError::Unknown(error) => error,
    })?;
    (class.load)(Source {
        folder,
        config: &config,
        has_head,
        device,
    })
}

impl LoadedModel {
    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The model's class, as in transformers.
    pub fn class_name(&self) -> &'static str {
        self.class_name
    }

    /// What inputs the model takes.
    pub fn limits(&self) -> &InputLimits {
        &self.limits
    }

    /// The dtype the model computes in.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The device the model is on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The checkpoint's keys that were left out because the model has no use for them: buffers
    /// that are computed anew, and heads.
    pub fn ignored_keys(&self) -> &[String] {
        &self.ignored
    }

    /// Starts a session that knows this model's modules by the checkpoint's names.
    ///
    /// # Errors
    /// If the session's folder cannot be made or written to.
    pub fn start(&self, builder: SessionBuilder) -> Result<Session, WriteError> {
        struct Attach<'a>(&'a Session, &'static str);
        impl WithModel for Attach<'_> {
            type Output = ();

            fn call<A: Architecture>(self, model: &A) {
                self.0.attach(self.1, model);
            }
        }
        let names = PATH_NAMES.iter();
        let builder = names.fold(builder, |builder, (field, name)| {
            builder.rename(field, name)
        });
        let session = builder.start()?;
        self.model.with(Attach(&session, self.class_name));
        Ok(session)
    }

    /// Checks the inputs and runs the model on them.
    ///
    /// # Errors
    /// When the model cannot take the inputs; then nothing has run.
    pub fn forward(&self, inputs: &ModelInputs) -> Result<ModelOutputs, InputError> {
        struct Run(InputTensors);
        impl WithModel for Run {
            type Output = ModelOutputs;

            fn call<A: Architecture>(self, model: &A) -> ModelOutputs {
                model.run(self.0)
            }
        }
        inputs.check(self.class_name, &self.limits)?;
        Ok(self.model.with(Run(inputs.to_tensors(&self.device))))
    }
}
