//! Puts a checkpoint's tensors into a model: which key belongs to which parameter, whether all of
//! them are there, and in what dtype they are loaded.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{DType, Tensor};
use burn_store::burn_pack::Tensor as PackTensor;
use burn_store::{FloatCastAdapter, ModuleAdapter, ModuleSnapshot, PyTorchToBurnAdapter};

use super::architecture::Architecture;
use super::error::{KeyMismatch, LoadError, WrongTensor};

/// Field names that differ from the names in a checkpoint, because Rust has no such field name:
/// the field's name, then the checkpoint's.
///
/// They hold for whole parts of a path: `encoder.layer.0.attention.self_.query` is
/// `encoder.layer.0.attention.self.query`.
pub const PATH_NAMES: &[(&str, &str)] = &[("layer_norm", "LayerNorm"), ("self_", "self")];

/// The checkpoint's name for one part of a module's path.
pub fn checkpoint_name(field: &str) -> &str {
    PATH_NAMES
        .iter()
        .find(|(ours, _)| *ours == field)
        .map_or(field, |(_, theirs)| theirs)
}

/// Keys that some checkpoints hold and no model needs: buffers that are computed anew.
const BUFFERS: &[&str] = &["embeddings.position_ids", "rotary_emb.inv_freq"];

/// What [`Keyed::load`] did besides loading.
#[derive(Debug, Clone, Default)]
pub(super) struct Loaded {
    /// Keys of the checkpoint that were left out, because nothing needs them.
    pub ignored: Vec<String>,
}

/// The checkpoint's tensors under the keys that the class `A` gives them.
pub(super) struct Keyed {
    /// By the class's key: the checkpoint's own key and the tensor.
    tensors: BTreeMap<String, (String, PackTensor)>,
    ignored: Vec<String>,
    /// Keys that collide with another one once the prefix is gone.
    doubled: Vec<String>,
}

impl Keyed {
    /// Gives the tensors the keys of class `A`: with or without the base model's prefix, and with
    /// the older names of a normalisation's parameters replaced.
    pub fn of<A: Architecture>(tensors: BTreeMap<String, PackTensor>) -> Self {
        let mut keyed = Self {
            tensors: BTreeMap::new(),
            ignored: Vec::new(),
            doubled: Vec::new(),
        };
        for (original, tensor) in tensors {
            let is_head = |key: &str| A::HEAD_KEYS.iter().any(|head| key.starts_with(head));
            let is_buffer = |key: &str| {
                BUFFERS.iter().any(|buffer| {
                    key.strip_suffix(buffer)
                        .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
                })
            };
            if is_buffer(&original) || (A::IS_BASE && is_head(&original)) {
                keyed.ignored.push(original);
                continue;
            }
            let key = match original.strip_prefix(A::BASE_PREFIX) {
                Some(rest) if A::IS_BASE => rest.to_owned(),
                None if !A::IS_BASE && !is_head(&original) => {
                    format!("{}{original}", A::BASE_PREFIX)
                }
                _ => original.clone(),
            };
            let key = match key.rsplit_once('.') {
                Some((norm, "gamma")) if norm.ends_with("LayerNorm") => format!("{norm}.weight"),
                Some((norm, "beta")) if norm.ends_with("LayerNorm") => format!("{norm}.bias"),
                _ => key,
            };
            match keyed.tensors.entry(key) {
                Entry::Vacant(entry) => {
                    entry.insert((original, tensor));
                }
                Entry::Occupied(_) => keyed.doubled.push(original),
            }
        }
        keyed
    }

    /// Whether there is a key that starts with `prefix`.
    pub fn has_keys(&self, prefix: &str) -> bool {
        self.tensors.keys().any(|key| key.starts_with(prefix))
    }

    /// The dtype to compute in: the only one there is, or float32 where there are several.
    pub fn dtype(&self) -> DType {
        let mut dtypes = self
            .tensors
            .values()
            .map(|(_, tensor)| tensor.dtype)
            .filter(DType::is_float);
        let first = dtypes.next().unwrap_or(DType::F32);
        if dtypes.all(|dtype| dtype == first) {
            first
        } else {
            DType::F32
        }
    }

    /// Loads the tensors into `model`, converted to `dtype`. `tied` says that
    /// [`Architecture::TIED_KEY`] may be absent and then shares the token embeddings' weight.
    pub fn load<A: Architecture>(
        self,
        model: &mut A,
        dtype: DType,
        tied: bool,
    ) -> Result<Loaded, LoadError> {
        let expected = Expected::of(model);
        let tie = A::TIED_KEY.filter(|key| tied && !self.tensors.contains_key(*key));
        self.compare::<A>(&expected, tie)?;

        let tensors = expected
            .parameters
            .into_iter()
            .filter_map(|(key, parameter)| {
                let (_, tensor) = self.tensors.get(&key)?;
                let mut tensor = tensor.clone();
                tensor.name = parameter.path;
                Some(tensor)
            })
            .collect();
        let adapter = PyTorchToBurnAdapter.chain(FloatCastAdapter::to(dtype));
        let result = model.apply(tensors, None, Some(Box::new(adapter)), false);
        if let Some(error) = result.errors.first() {
            return Err(LoadError::Apply {
                reason: error.to_string(),
            });
        }
        if let Some((path, _)) = result.missing.iter().find(|(path, _)| tie != Some(path)) {
            return Err(LoadError::Apply {
                reason: format!("`{path}` was not filled"),
            });
        }
        if tie.is_some() {
            model.tie_embeddings();
        }
        Ok(Loaded {
            ignored: self.ignored,
        })
    }

    fn compare<A: Architecture>(
        &self,
        expected: &Expected,
        tie: Option<&str>,
    ) -> Result<(), KeyMismatch> {
        let mut mismatch = KeyMismatch {
            class: A::CLASS_NAME,
            missing: Vec::new(),
            unexpected: self.doubled.clone(),
            wrong: Vec::new(),
        };
        for (key, parameter) in &expected.parameters {
            let Some((original, tensor)) = self.tensors.get(key) else {
                if tie != Some(key) {
                    mismatch.missing.push(key.clone());
                }
                continue;
            };
            let found = tensor.shape.to_vec();
            if found != parameter.shape || !tensor.dtype.is_float() {
                mismatch.wrong.push(WrongTensor {
                    key: original.clone(),
                    expected: format!("float {:?}", parameter.shape),
                    found: format!("{} {found:?}", dtype_name(tensor.dtype)),
                });
            }
        }
        let unknown = self
            .tensors
            .iter()
            .filter(|(key, _)| !expected.parameters.contains_key(*key))
            .map(|(_, (original, _))| original.clone());
        mismatch.unexpected.extend(unknown);
        let fits = mismatch.missing.is_empty()
            && mismatch.unexpected.is_empty()
            && mismatch.wrong.is_empty();
        if fits { Ok(()) } else { Err(mismatch) }
    }
}

/// A dtype as PyTorch calls it, where it is a float.
pub(super) fn dtype_name(dtype: DType) -> String {
    match dtype {
        DType::F64 => "float64".to_owned(),
        DType::F32 => "float32".to_owned(),
        DType::F16 => "float16".to_owned(),
        DType::BF16 => "bfloat16".to_owned(),
        other => format!("{other:?}").to_lowercase(),
    }
}

/// A parameter of a model.
struct Parameter {
    /// Its path in the Burn module, with the names a checkpoint gives a normalisation's
    /// parameters.
    path: String,
    /// Its shape in the checkpoint.
    shape: Vec<usize>,
}

/// The parameters of a model by their keys in a checkpoint.
struct Expected {
    parameters: BTreeMap<String, Parameter>,
    /// The way down to the parameter being visited: each field and the type that holds it.
    stack: Vec<(String, String)>,
}

impl Expected {
    /// Walks a model; its weights are not initialised by that.
    fn of<M: Module>(model: &M) -> Self {
        let mut expected = Self {
            parameters: BTreeMap::new(),
            stack: Vec::new(),
        };
        model.visit(&mut expected);
        expected
    }

    fn add(&mut self, mut shape: Vec<usize>) {
        let mut path: Vec<&str> = self.stack.iter().map(|(name, _)| name.as_str()).collect();
        let Some((name, container)) = self.stack.last() else {
            return;
        };
        // What burn-store's PyTorch adapter undoes on the way in.
        match (container.as_str(), name.as_str()) {
            ("Struct:Linear", "weight") => shape.reverse(),
            ("Struct:LayerNorm", "gamma") => set_last(&mut path, "weight"),
            ("Struct:LayerNorm", "beta") => set_last(&mut path, "bias"),
            _ => {}
        }
        let key: Vec<&str> = path.iter().map(|part| checkpoint_name(part)).collect();
        let path = path.join(".");
        self.parameters
            .insert(key.join("."), Parameter { path, shape });
    }
}

fn set_last<'a>(path: &mut [&'a str], name: &'a str) {
    if let Some(last) = path.last_mut() {
        *last = name;
    }
}

impl ModuleVisitor for Expected {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.stack
            .push((name.to_owned(), container_type.to_owned()));
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.stack.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.add(param.lazy_shape().to_vec());
    }
}
