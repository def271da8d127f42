//! Reference cases, copies of checkpoints that can be changed, and comparison.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use burn::tensor::{DType, Device, TensorData};
use burnscope::models::{self, LoadError, LoadedModel, ModelInputs};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;
use tempfile::TempDir;

/// The folder of a reference case.
pub fn case(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/traces")
        .join(name)
}

pub fn load(name: &str) -> LoadedModel {
    models::load(&case(name).join("checkpoint"), &Device::flex()).expect(name)
}

pub fn inputs(name: &str) -> ModelInputs {
    ModelInputs::read(&case(name).join("inputs.safetensors")).expect(name)
}

/// A tensor of a file: dtype, shape and bytes.
pub type Stored = (Dtype, Vec<usize>, Vec<u8>);

pub fn read_tensors(path: &Path) -> BTreeMap<String, Stored> {
    let bytes = fs::read(path).expect("a readable file");
    let file = SafeTensors::deserialize(&bytes).expect("a safetensors file");
    file.iter()
        .map(|(name, view)| {
            let stored = (view.dtype(), view.shape().to_vec(), view.data().to_vec());
            (name.to_owned(), stored)
        })
        .collect()
}

pub fn write_tensors<'a>(path: &Path, tensors: impl IntoIterator<Item = (&'a String, &'a Stored)>) {
    let views = tensors.into_iter().map(|(name, (dtype, shape, bytes))| {
        let view = TensorView::new(*dtype, shape.clone(), bytes).expect("a sound tensor");
        (name.clone(), view)
    });
    fs::write(path, safetensors::serialize(views, None).expect("bytes")).expect("written");
}

pub fn floats((dtype, _, bytes): &Stored) -> Vec<f64> {
    match dtype {
        Dtype::F32 => bytes
            .as_chunks::<4>()
            .0
            .iter()
            .map(|b| f64::from(f32::from_le_bytes(*b)))
            .collect(),
        Dtype::BF16 => bytes
            .as_chunks::<2>()
            .0
            .iter()
            .map(|b| half::bf16::from_le_bytes(*b).to_f64())
            .collect(),
        other => panic!("no float: {other:?}"),
    }
}

pub fn numbers(data: TensorData) -> Vec<f64> {
    data.convert_dtype(DType::F64).try_into_vec().expect("f64")
}

/// The L2 norm of the difference over that of the expected values.
pub fn relative_l2(found: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
    let difference = norm(&mut found.iter().zip(expected).map(|(a, b)| a - b));
    difference / norm(&mut expected.iter().copied())
}

/// Runs a case and compares every output that PyTorch returned, the cache included.
pub fn assert_agrees(model: &LoadedModel, name: &str, tolerance: f64) {
    let outputs = model.forward(&inputs(name)).expect("sound inputs");
    let outputs: BTreeMap<String, TensorData> =
        outputs.to_named_data().expect("data").into_iter().collect();
    let expected = read_tensors(&case(name).join("outputs.safetensors"));
    let names = |keys: Vec<&String>| keys.into_iter().cloned().collect::<Vec<_>>();
    assert_eq!(
        names(outputs.keys().collect()),
        names(expected.keys().collect())
    );
    for (key, data) in outputs {
        let stored = &expected[&key];
        assert_eq!(data.shape().to_vec(), stored.1, "{key}");
        let dtype = if stored.0 == Dtype::BF16 {
            DType::BF16
        } else {
            DType::F32
        };
        assert_eq!(data.dtype(), dtype, "{key}");
        let error = relative_l2(&numbers(data), &floats(stored));
        println!("{name} {key}: {error:.1e}");
        assert!(error <= tolerance, "{name} {key}: {error:e}");
    }
}

/// A copy of a case's checkpoint that can be changed.
pub struct Copy {
    pub folder: TempDir,
}

impl Copy {
    pub fn of(name: &str) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        for file in ["config.json", "model.safetensors"] {
            let from = case(name).join("checkpoint").join(file);
            fs::write(folder.path().join(file), fs::read(from).expect(file)).expect(file);
        }
        Self { folder }
    }

    pub fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    pub fn config(self, change: impl FnOnce(&mut serde_json::Map<String, Value>)) -> Self {
        let path = self.path("config.json");
        let text = fs::read(&path).expect("config.json");
        let mut config: Value = serde_json::from_slice(&text).expect("JSON");
        change(config.as_object_mut().expect("an object"));
        fs::write(path, config.to_string()).expect("written");
        self
    }

    pub fn set(self, key: &str, value: Value) -> Self {
        self.config(|config| {
            config.insert(key.to_owned(), value);
        })
    }

    pub fn weights(self, change: impl FnOnce(&mut BTreeMap<String, Stored>)) -> Self {
        let path = self.path("model.safetensors");
        let mut tensors = read_tensors(&path);
        change(&mut tensors);
        write_tensors(&path, &tensors);
        self
    }

    pub fn load(&self) -> Result<LoadedModel, LoadError> {
        models::load(self.folder.path(), &Device::flex())
    }

    pub fn error(&self) -> LoadError {
        self.load().expect_err("a checkpoint that does not load")
    }

    pub fn message(&self) -> String {
        self.error().to_string()
    }
}

pub fn rename(tensors: &mut BTreeMap<String, Stored>, change: impl Fn(&str) -> String) {
    *tensors = std::mem::take(tensors)
        .into_iter()
        .map(|(key, stored)| (change(&key), stored))
        .collect();
}

pub fn scalar(value: f32) -> Stored {
    (Dtype::F32, vec![1], value.to_le_bytes().to_vec())
}
