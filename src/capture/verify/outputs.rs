//! The outputs of one run on the host: read out of whatever the closure returned, kept, saved.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use super::super::{
    session::Shared,
    value::{Captured, Elements, Recorder, Traced},
};
use crate::{
    format::{
        WriteError,
        dump::{Dump, read_set, write_set},
    },
    summary::{self, DType},
};

/// The most bytes of elements that are kept of one run: beyond it digests alone are compared.
const KEPT_BYTES: usize = 256 << 20;

/// What a closure returned, flat.
#[derive(Debug, Default)]
pub(super) struct Outputs {
    pub(super) items: Vec<(String, Item)>,
    /// Whether a tensor is on a device where Burn may fuse operations.
    pub(super) on_fusion: bool,
    kept: usize,
}

#[derive(Debug)]
pub(super) enum Item {
    Tensor(Tensor),
    Text(String),
}

#[derive(Debug)]
pub(super) struct Tensor {
    dtype: DType,
    shape: Vec<usize>,
    /// The summary's checksum; `None` of what has none.
    pub(super) digest: Option<u64>,
    pub(super) elements: Option<Dump>,
}

impl Tensor {
    #[cfg(test)]
    pub(super) fn new(
        dtype: DType,
        shape: Vec<usize>,
        digest: Option<u64>,
        elements: Option<Dump>,
    ) -> Self {
        Self {
            dtype,
            shape,
            digest,
            elements,
        }
    }

    pub(super) fn what(&self) -> String {
        format!("{:?} {}", self.shape, self.dtype)
    }
}

impl Item {
    pub(super) fn what(&self) -> String {
        match self {
            Self::Tensor(tensor) => tensor.what(),
            Self::Text(text) => text.clone(),
        }
    }
}

impl Outputs {
    /// Reads every tensor of a result, waiting for its device.
    pub(super) fn read<R: Traced>(session: &Shared, result: &R) -> Self {
        let mut recorder = Recorder::reading(session);
        let captured = result.traced(&mut recorder);
        let mut outputs = Self {
            on_fusion: recorder.saw_fusion(),
            ..Self::default()
        };
        outputs.add("output".to_owned(), captured);
        outputs
    }

    fn add(&mut self, label: String, captured: Captured) {
        match captured {
            Captured::Text(text) => self.items.push((label, Item::Text(text))),
            Captured::List(values) => values
                .into_iter()
                .enumerate()
                .for_each(|(index, value)| self.add(format!("{label}.{index}"), value)),
            Captured::Map(entries) => entries
                .into_iter()
                .for_each(|(key, value)| self.add(format!("{label}.{key}"), value)),
            Captured::Tensor(tensor) => {
                let record = &tensor.record;
                let elements = match tensor.elements {
                    Elements::Copied(bytes) if self.kept + bytes.len() <= KEPT_BYTES => {
                        self.kept += bytes.len();
                        Some(Dump {
                            // A quantised tensor's elements are the f32 values it stands for.
                            dtype: match &record.dtype {
                                DType::Quantized(_) => DType::F32,
                                dtype => dtype.clone(),
                            },
                            shape: record.shape.clone(),
                            bytes,
                        })
                    }
                    _ => None,
                };
                let tensor = Tensor {
                    dtype: record.dtype.clone(),
                    shape: record.shape.clone(),
                    digest: record.summary.as_ref().map(|summary| summary.checksum),
                    elements,
                };
                self.items.push((label, Item::Tensor(tensor)));
            }
        }
    }

    /// Saves the kept tensors in a session's folder.
    pub(super) fn save(&self, folder: &Path, one_by_one: bool) -> Result<(), WriteError> {
        let tensors: Vec<(String, &Dump)> = self
            .items
            .iter()
            .filter_map(|(label, item)| match item {
                Item::Tensor(tensor) => Some((label.clone(), tensor.elements.as_ref()?)),
                Item::Text(_) => None,
            })
            .collect();
        let words = HashMap::from([(
            "operations".to_owned(),
            if one_by_one {
                "one by one"
            } else {
                "as Burn fuses them"
            }
            .to_owned(),
        )]);
        write_set(folder, file_name(one_by_one), &tensors, words)
    }

    /// What a run of that setting saved in a folder of these outputs, in their order, and how many of
    /// their tensors either run did not keep; `None` if there is no such run.
    pub(super) fn saved(
        &self,
        folder: &Path,
        one_by_one: bool,
    ) -> Option<Result<(Self, usize), String>> {
        let path: PathBuf = folder.join(file_name(one_by_one));
        if !path.exists() {
            return None;
        }
        let limit = 2 * KEPT_BYTES as u64;
        let read = read_set(&path, limit).map_err(|why| format!("{}: {why}", path.display()));
        Some(read.map(|(mut tensors, _)| {
            let mut saved = Self::default();
            let mut not_kept = 0;
            for (label, item) in &self.items {
                match (item, tensors.remove(label)) {
                    (Item::Tensor(ours), Some(elements)) if ours.elements.is_some() => {
                        let tensor = Tensor {
                            // The scheme of a quantised tensor is not saved.
                            dtype: match &ours.dtype {
                                DType::Quantized(scheme) => DType::Quantized(scheme.clone()),
                                _ => elements.dtype.clone(),
                            },
                            shape: elements.shape.clone(),
                            digest: elements
                                .view()
                                .ok()
                                .map(|view| summary::summarise(&view).checksum),
                            elements: Some(elements),
                        };
                        saved.items.push((label.clone(), Item::Tensor(tensor)));
                    }
                    (Item::Tensor(_), _) => not_kept += 1,
                    (Item::Text(_), _) => {}
                }
            }
            (saved, not_kept)
        }))
    }
}

fn file_name(one_by_one: bool) -> &'static str {
    if one_by_one {
        "verify.one_by_one.safetensors"
    } else {
        "verify.fused.safetensors"
    }
}
