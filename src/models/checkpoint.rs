//! Opens the weights of a Hugging Face folder, one file or several, without reading the tensors.
//! It does not know what model they belong to.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use burn_store::burn_pack::Tensor as PackTensor;
use burn_store::{ModuleStore, SafetensorsStore};
use serde_json::Value;

use super::config::shorten;
use super::error::LoadError;
use super::files::{open_file, read_bounded};

/// The largest index that is read, in bytes. That of a model with 1000 layers is about 1 MB.
const MAX_INDEX_BYTES: u64 = 64 << 20;

/// The number of absent files that a message lists.
const LISTED: usize = 20;

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// The tensors of a checkpoint by key. Their data is read when it is asked for.
pub(super) struct Checkpoint {
    /// The tensors.
    pub tensors: BTreeMap<String, PackTensor>,
}

impl Checkpoint {
    /// Opens `model.safetensors`, or the files that `model.safetensors.index.json` names.
    pub fn open(folder: &Path) -> Result<Self, LoadError> {
        let (single, index) = (folder.join(SINGLE), folder.join(INDEX));
        if single.exists() {
            return Ok(Self {
                tensors: open_safetensors(&single)?,
            });
        }
        if index.exists() {
            return Self::open_shards(folder, &index);
        }
        Err(LoadError::NoWeights {
            folder: folder.to_owned(),
        })
    }

    fn open_shards(folder: &Path, index: &Path) -> Result<Self, LoadError> {
        let bad = |reason: String| LoadError::Index {
            path: index.to_owned(),
            reason,
        };
        let shards = read_index(index)?;
        let mut absent = shards.keys().filter(|shard| !folder.join(shard).is_file());
        let named: Vec<String> = absent.by_ref().take(LISTED).map(|s| shorten(s)).collect();
        if !named.is_empty() {
            let more = match absent.count() {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            return Err(bad(format!(
                "it names files that are not in the folder: {}{more}",
                named.join(", ")
            )));
        }
        let mut tensors = BTreeMap::new();
        for (shard, keys) in &shards {
            let contents = open_safetensors(&folder.join(shard))?;
            if let Some(key) = keys.iter().find(|key| !contents.contains_key(*key)) {
                let key = shorten(key);
                return Err(bad(format!(
                    "it names `{key}` in {shard}, which has no such key"
                )));
            }
            for (key, tensor) in contents {
                if tensors.insert(key.clone(), tensor).is_some() {
                    let key = shorten(&key);
                    return Err(bad(format!(
                        "`{key}` is in {shard} and in another file too"
                    )));
                }
            }
        }
        Ok(Self { tensors })
    }
}

/// Reads an index: the keys of each shard, by the shard's name.
fn read_index(index: &Path) -> Result<BTreeMap<String, Vec<String>>, LoadError> {
    let bad = |reason: String| LoadError::Index {
        path: index.to_owned(),
        reason,
    };
    let bytes = read_bounded(index, MAX_INDEX_BYTES)?;
    let document: Value = serde_json::from_slice(&bytes).map_err(|error| bad(error.to_string()))?;
    let Some(weight_map) = document.get("weight_map").and_then(Value::as_object) else {
        return Err(bad("it has no `weight_map`".to_owned()));
    };
    let mut shards = BTreeMap::<String, Vec<String>>::new();
    for (key, shard) in weight_map {
        let Some(shard) = shard.as_str() else {
            let key = shorten(key);
            return Err(bad(format!("`weight_map` gives no file name for `{key}`")));
        };
        if !stays_in_folder(shard) {
            let shard = shorten(shard);
            return Err(bad(format!(
                "the file name `{shard}` leads out of the folder"
            )));
        }
        shards
            .entry(shard.to_owned())
            .or_default()
            .push(key.clone());
    }
    if shards.is_empty() {
        return Err(bad("its `weight_map` is empty".to_owned()));
    }
    Ok(shards)
}

/// Whether a name from an index is a plain relative path downwards.
fn stays_in_folder(name: &str) -> bool {
    let mut components = Path::new(name).components().peekable();
    components.peek().is_some()
        && components.all(|component| matches!(component, Component::Normal(_)))
        && !name.contains(['\\', '\0'])
}

fn open_safetensors(path: &Path) -> Result<BTreeMap<String, PackTensor>, LoadError> {
    // Not every path can be mapped to memory: a pipe would block for ever.
    open_file(path)?;
    let mut store = SafetensorsStore::from_file(PathBuf::from(path));
    match store.get_all_tensors() {
        Ok(tensors) => Ok(tensors.clone()),
        Err(error) => Err(LoadError::Safetensors {
            path: path.to_owned(),
            reason: error.to_string(),
        }),
    }
}
