//! Several tensors in one safetensors file, with a few words about them.

use std::{collections::HashMap, path::Path};

use safetensors::{SafeTensors, tensor::TensorView as Stored};

use super::{DTYPES, Dump, is_plain};
use crate::{
    atomic::{self, Durability},
    bounded_file,
    format::{WriteError, error::shorten},
};

/// Writes named tensors to `folder/name`, which appears under its name when it is whole. Tensors of a
/// type that has no name in safetensors are left out.
pub(crate) fn write_set(
    folder: &Path,
    name: &str,
    tensors: &[(String, &Dump)],
    words: HashMap<String, String>,
) -> Result<(), WriteError> {
    if !is_plain(name) {
        return Err(WriteError::BadName {
            name: shorten(name),
        });
    }
    let stored = tensors.iter().filter_map(|(name, tensor)| {
        let (_, dtype) = DTYPES.iter().find(|(ours, _)| *ours == tensor.dtype)?;
        let stored = Stored::new(*dtype, tensor.shape.clone(), &tensor.bytes).ok()?;
        Some((name.as_str(), stored))
    });
    let target = folder.join(name);
    let contents = safetensors::serialize(stored, Some(words))
        .map_err(|error| WriteError::io(&target)(std::io::Error::other(error)))?;
    atomic::write(&target, Durability::Cached, |out| out.write_all(&contents))
        .map_err(WriteError::io(&target))
}

/// Tensors by name, and the words beside them.
pub(crate) type Set = (HashMap<String, Dump>, HashMap<String, String>);

/// Reads what [`write_set`] wrote; the error is in words, without the file's name.
pub(crate) fn read_set(path: &Path, limit: u64) -> Result<Set, String> {
    let contents = bounded_file::read(path, limit).map_err(|error| error.to_string())?;
    let malformed = |error: safetensors::SafeTensorError| error.to_string();
    let (_, metadata) = SafeTensors::read_metadata(&contents).map_err(malformed)?;
    let words = metadata.metadata().clone().unwrap_or_default();
    let tensors = SafeTensors::deserialize(&contents).map_err(malformed)?;
    let tensors = tensors.iter().filter_map(|(name, tensor)| {
        let (dtype, _) = DTYPES
            .iter()
            .find(|(_, theirs)| *theirs == tensor.dtype())?;
        let dump = Dump {
            dtype: dtype.clone(),
            shape: tensor.shape().to_vec(),
            bytes: tensor.data().to_vec(),
        };
        Some((name.to_owned(), dump))
    });
    Ok((tensors.collect(), words))
}
