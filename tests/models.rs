//! The built-in models compute what PyTorch computes, and loading says what is wrong.
#![cfg(all(feature = "models", feature = "flex"))]

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use burnscope::models::{
    self, ConfigError, InputError, IntMatrix, LoadError, LoadedModel, ModelInputs, Pooling,
    normalize,
};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::{Value, json};
use tempfile::TempDir;

fn case(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/traces")
        .join(name)
}

fn load(name: &str) -> LoadedModel {
    models::load(&case(name).join("checkpoint"), &Device::flex()).expect(name)
}

fn inputs(name: &str) -> ModelInputs {
    ModelInputs::read(&case(name).join("inputs.safetensors")).expect(name)
}

/// A tensor of a file: dtype, shape and bytes.
type Stored = (Dtype, Vec<usize>, Vec<u8>);

fn read_tensors(path: &Path) -> BTreeMap<String, Stored> {
    let bytes = fs::read(path).expect("a readable file");
    let file = SafeTensors::deserialize(&bytes).expect("a safetensors file");
    file.iter()
        .map(|(name, view)| {
            let stored = (view.dtype(), view.shape().to_vec(), view.data().to_vec());
            (name.to_owned(), stored)
        })
        .collect()
}

fn write_tensors<'a>(path: &Path, tensors: impl IntoIterator<Item = (&'a String, &'a Stored)>) {
    let views = tensors.into_iter().map(|(name, (dtype, shape, bytes))| {
        let view = TensorView::new(*dtype, shape.clone(), bytes).expect("a sound tensor");
        (name.clone(), view)
    });
    fs::write(path, safetensors::serialize(views, None).expect("bytes")).expect("written");
}

fn floats((dtype, _, bytes): &Stored) -> Vec<f64> {
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

fn numbers(data: TensorData) -> Vec<f64> {
    data.convert_dtype(DType::F64).try_into_vec().expect("f64")
}

/// The L2 norm of the difference over that of the expected values.
fn relative_l2(found: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
    let difference = norm(&mut found.iter().zip(expected).map(|(a, b)| a - b));
    difference / norm(&mut expected.iter().copied())
}

/// Runs a case and compares every output that PyTorch returned, the cache included.
fn assert_agrees(model: &LoadedModel, name: &str, tolerance: f64) {
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
struct Copy {
    folder: TempDir,
}

impl Copy {
    fn of(name: &str) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        for file in ["config.json", "model.safetensors"] {
            let from = case(name).join("checkpoint").join(file);
            fs::write(folder.path().join(file), fs::read(from).expect(file)).expect(file);
        }
        Self { folder }
    }

    fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    fn config(self, change: impl FnOnce(&mut serde_json::Map<String, Value>)) -> Self {
        let path = self.path("config.json");
        let text = fs::read(&path).expect("config.json");
        let mut config: Value = serde_json::from_slice(&text).expect("JSON");
        change(config.as_object_mut().expect("an object"));
        fs::write(path, config.to_string()).expect("written");
        self
    }

    fn set(self, key: &str, value: Value) -> Self {
        self.config(|config| {
            config.insert(key.to_owned(), value);
        })
    }

    fn weights(self, change: impl FnOnce(&mut BTreeMap<String, Stored>)) -> Self {
        let path = self.path("model.safetensors");
        let mut tensors = read_tensors(&path);
        change(&mut tensors);
        write_tensors(&path, &tensors);
        self
    }

    fn load(&self) -> Result<LoadedModel, LoadError> {
        models::load(self.folder.path(), &Device::flex())
    }

    fn error(&self) -> LoadError {
        self.load().expect_err("a checkpoint that does not load")
    }

    fn message(&self) -> String {
        self.error().to_string()
    }
}

fn rename(tensors: &mut BTreeMap<String, Stored>, change: impl Fn(&str) -> String) {
    *tensors = std::mem::take(tensors)
        .into_iter()
        .map(|(key, stored)| (change(&key), stored))
        .collect();
}

fn scalar(value: f32) -> Stored {
    (Dtype::F32, vec![1], value.to_le_bytes().to_vec())
}

// What the models compute.

#[test]
fn llama_agrees_with_pytorch() {
    let model = load("llama_f32");
    assert_eq!(model.class_name(), "LlamaForCausalLM");
    assert_eq!(model.dtype(), DType::F32);
    assert_agrees(&model, "llama_f32", 1e-5);
}

#[test]
fn llama_in_bfloat16_agrees_with_pytorch() {
    let model = load("llama_bf16");
    assert_eq!(model.dtype(), DType::BF16);
    assert_agrees(&model, "llama_bf16", 1e-2);
}

#[test]
fn bert_agrees_with_pytorch() {
    let model = load("bert_f32");
    assert_eq!(model.class_name(), "BertModel");
    assert_agrees(&model, "bert_f32", 1e-5);
}

#[test]
fn qwen3_agrees_with_pytorch_under_left_padding() {
    let model = load("qwen3_embed_f32");
    assert_eq!(model.class_name(), "Qwen3Model");
    assert_agrees(&model, "qwen3_embed_f32", 1e-5);
}

#[test]
fn a_loaded_model_drops_nothing_on_an_autodiff_device() {
    let device = Device::flex();
    #[cfg(feature = "autodiff")]
    let device = device.autodiff();
    let model = models::load(&case("bert_f32").join("checkpoint"), &device).expect("loads");
    assert_agrees(&model, "bert_f32", 1e-5);
}

#[test]
fn bert_in_bfloat16_stays_near_float32() {
    let model = Copy::of("bert_f32").set("dtype", json!("bfloat16"));
    let outputs = model.load().expect("loads").forward(&inputs("bert_f32"));
    let state = outputs.expect("runs").last_hidden_state.expect("a state");
    assert_eq!(state.dtype(), DType::BF16);
    let expected = read_tensors(&case("bert_f32").join("outputs.safetensors"));
    let error = relative_l2(
        &numbers(state.into_data()),
        &floats(&expected["last_hidden_state"]),
    );
    assert!(error < 1e-2, "{error:e}");
}

#[test]
fn a_decoder_continues_from_its_cache() {
    let models::Model::LlamaForCausalLM(model) = load("llama_f32").model().clone() else {
        panic!("another class");
    };
    let device = Device::flex();
    let ids: Tensor<2, Int> = Tensor::from_data([[39, 27, 18, 20, 26, 30]], (&device, DType::I64));
    let mut logits = Vec::new();
    let mut cache = None;
    for (from, length) in [(0, 2), (2, 3), (5, 1)] {
        let output = model.forward(ids.clone().narrow(1, from, length), None, None, cache);
        cache = Some(output.cache);
        logits.push(output.logits);
    }
    assert_eq!(cache.map(|cache| cache.seen()), Some(6));
    let found = numbers(Tensor::cat(logits, 1).into_data());
    let expected = read_tensors(&case("llama_f32").join("outputs.safetensors"));
    assert!(relative_l2(&found, &floats(&expected["logits"])) <= 1e-5);
}

#[test]
fn pooling_finds_real_tokens_wherever_the_padding_is() {
    let device = Device::flex();
    let states: Tensor<3> = Tensor::from_data(
        [
            [[1.0f32, 2.0], [3.0, 4.0], [5.0, 6.0]],
            [[7.0, 8.0], [9.0, 10.0], [11.0, 12.0]],
        ],
        &device,
    );
    let mask: Tensor<2, Int> = Tensor::from_data([[0, 1, 1], [1, 1, 0]], (&device, DType::I64));
    let pooled = |pooling: Pooling, mask: Option<&Tensor<2, Int>>| {
        numbers(pooling.pool(states.clone(), mask.cloned()).into_data())
    };
    assert_eq!(pooled(Pooling::Mean, Some(&mask)), [4.0, 5.0, 8.0, 9.0]);
    assert_eq!(
        pooled(Pooling::LastToken, Some(&mask)),
        [5.0, 6.0, 9.0, 10.0]
    );
    assert_eq!(pooled(Pooling::Cls, Some(&mask)), [3.0, 4.0, 7.0, 8.0]);
    assert_eq!(pooled(Pooling::Mean, None), [3.0, 4.0, 9.0, 10.0]);
    assert_eq!(pooled(Pooling::LastToken, None), [5.0, 6.0, 11.0, 12.0]);
    let unit = normalize(Tensor::from_data([[3.0f32, -4.0], [0.0, 0.0]], &device));
    let expected = [0.6, -0.8, 0.0, 0.0];
    for (found, expected) in numbers(unit.into_data()).iter().zip(expected) {
        assert!((found - expected).abs() < 1e-7);
    }
}

#[test]
fn minilm_reproduces_its_reference_embedding() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/downloads/minilm");
    if !folder.join("model.safetensors").is_file() {
        println!("skipped: the weights are not there; scripts/fetch-minilm.sh fetches them");
        return;
    }
    let model = models::load(&folder, &Device::flex()).expect("loads");
    assert_eq!(model.ignored_keys(), ["embeddings.position_ids"]);
    assert_agrees(&model, "minilm", 1e-5);

    let inputs = inputs("minilm");
    let outputs = model.forward(&inputs).expect("runs");
    let mask = inputs.to_tensors(&Device::flex()).attention_mask;
    let state = outputs.last_hidden_state.expect("a state");
    let found = numbers(normalize(Pooling::Mean.pool(state, mask)).into_data());
    let expected = read_tensors(&case("minilm").join("embedding.safetensors"));
    let error = relative_l2(&found, &floats(&expected["sentence_embedding"]));
    println!("minilm sentence_embedding: {error:.1e}");
    assert!(error <= 1e-5, "{error:e}");
}

// What is loaded.

#[test]
fn a_sharded_checkpoint_loads_like_one_file() {
    let copy = Copy::of("llama_f32");
    let tensors = read_tensors(&copy.path("model.safetensors"));
    let mut weight_map = serde_json::Map::new();
    for (number, name) in [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    ]
    .into_iter()
    .enumerate()
    {
        let part = tensors.iter().enumerate().filter(|(i, _)| i % 2 == number);
        let part: Vec<_> = part.map(|(_, tensor)| tensor).collect();
        weight_map.extend(part.iter().map(|(key, _)| ((*key).clone(), json!(name))));
        write_tensors(&copy.path(name), part);
    }
    let index = json!({"metadata": {}, "weight_map": weight_map});
    fs::write(copy.path("model.safetensors.index.json"), index.to_string()).expect("written");
    fs::remove_file(copy.path("model.safetensors")).expect("removed");
    assert_agrees(&copy.load().expect("loads"), "llama_f32", 1e-5);

    fs::remove_file(copy.path("model-00002-of-00002.safetensors")).expect("removed");
    let message = copy.message();
    assert!(
        message.contains("model-00002-of-00002.safetensors"),
        "{message}"
    );
}

#[test]
fn keys_load_with_and_without_the_base_models_prefix() {
    let with = Copy::of("bert_f32").weights(|tensors| {
        rename(tensors, |key| format!("bert.{key}"));
        tensors.insert("cls.predictions.bias".to_owned(), scalar(1.0));
        tensors.insert("bert.embeddings.position_ids".to_owned(), scalar(1.0));
    });
    let model = with.load().expect("loads");
    let ignored = ["bert.embeddings.position_ids", "cls.predictions.bias"];
    assert_eq!(model.ignored_keys(), ignored);
    assert_agrees(&model, "bert_f32", 1e-5);

    let without = Copy::of("llama_f32").weights(|tensors| {
        rename(tensors, |key| {
            key.strip_prefix("model.").unwrap_or(key).to_owned()
        });
    });
    assert_agrees(&without.load().expect("loads"), "llama_f32", 1e-5);

    let old_names = Copy::of("bert_f32").weights(|tensors| {
        rename(tensors, |key| {
            key.replace("LayerNorm.weight", "LayerNorm.gamma")
                .replace("LayerNorm.bias", "LayerNorm.beta")
        });
    });
    assert_agrees(&old_names.load().expect("loads"), "bert_f32", 1e-5);
}

#[test]
fn tied_embeddings_need_no_head_in_the_checkpoint() {
    let tie = |tensors: &mut BTreeMap<String, Stored>| {
        let embeddings = tensors["model.embed_tokens.weight"].clone();
        tensors.insert("lm_head.weight".to_owned(), embeddings);
    };
    let drop_head = |tensors: &mut BTreeMap<String, Stored>| {
        tensors.remove("lm_head.weight");
    };
    let whole = Copy::of("llama_f32").weights(tie);
    let tied = Copy::of("llama_f32").weights(drop_head);
    let tied = tied.set("tie_word_embeddings", json!(true));
    let logits = |copy: &Copy| {
        let outputs = copy.load().expect("loads").forward(&inputs("llama_f32"));
        numbers(outputs.expect("runs").logits.expect("logits").into_data())
    };
    assert!(relative_l2(&logits(&tied), &logits(&whole)) < 1e-6);

    let untied = Copy::of("llama_f32").weights(drop_head);
    let LoadError::Keys(mismatch) = untied.error() else {
        panic!("another error");
    };
    assert_eq!(mismatch.missing, ["lm_head.weight"]);
}

#[test]
fn a_checkpoint_with_an_unported_head_gives_the_base_model() {
    let copy = Copy::of("bert_f32").set("architectures", json!(["BertForMaskedLM"]));
    let copy = copy.weights(|tensors| {
        tensors.retain(|key, _| !key.starts_with("pooler."));
        rename(tensors, |key| format!("bert.{key}"));
        tensors.insert("cls.predictions.bias".to_owned(), scalar(1.0));
    });
    let model = copy.load().expect("loads");
    assert_eq!(model.class_name(), "BertModel");
    let outputs = model.forward(&inputs("bert_f32")).expect("runs");
    assert!(outputs.pooler_output.is_none());

    let base = Copy::of("llama_f32").set("architectures", json!(["LlamaModel"]));
    let model = base.load().expect("loads");
    assert_eq!(model.class_name(), "LlamaModel");
    assert_eq!(model.ignored_keys(), ["lm_head.weight"]);
}

#[test]
fn half_precision_follows_the_configuration_and_then_the_weights() {
    let cast = Copy::of("llama_f32").set("dtype", json!("float16"));
    assert_eq!(cast.load().expect("loads").dtype(), DType::F16);
    let older = Copy::of("llama_bf16").config(|config| {
        config.remove("dtype");
        config.insert("torch_dtype".to_owned(), json!("float32"));
    });
    assert_eq!(older.load().expect("loads").dtype(), DType::F32);
    let silent = Copy::of("llama_bf16").config(|config| {
        config.remove("dtype");
    });
    assert_eq!(silent.load().expect("loads").dtype(), DType::BF16);
}

// What is wrong with a checkpoint.

#[test]
fn all_wrong_keys_are_listed_at_once() {
    let copy = Copy::of("qwen3_embed_f32").weights(|tensors| {
        tensors.remove("layers.1.mlp.up_proj.weight");
        tensors.remove("norm.weight");
        tensors.insert("layers.7.mlp.up_proj.weight".to_owned(), scalar(0.0));
        tensors.insert("a\u{1b}[31mb".to_owned(), scalar(0.0));
        tensors.insert("layers.0.self_attn.q_norm.weight".to_owned(), scalar(0.0));
        let q_proj = tensors
            .get_mut("layers.0.self_attn.q_proj.weight")
            .expect("there");
        q_proj.1.reverse();
        let k_norm = tensors
            .get_mut("layers.0.self_attn.k_norm.weight")
            .expect("there");
        k_norm.0 = Dtype::I32;
    });
    let error = copy.error();
    let message = error.to_string();
    let LoadError::Keys(mismatch) = error else {
        panic!("another error: {message}");
    };
    assert_eq!(
        mismatch.missing,
        ["layers.1.mlp.up_proj.weight", "norm.weight"]
    );
    assert_eq!(
        mismatch.unexpected,
        ["a\u{1b}[31mb", "layers.7.mlp.up_proj.weight"]
    );
    let wrong: Vec<_> = mismatch
        .wrong
        .iter()
        .map(|w| format!("{} {} {}", w.key, w.found, w.expected))
        .collect();
    assert_eq!(
        wrong,
        [
            "layers.0.self_attn.k_norm.weight i32 [8] float [8]",
            "layers.0.self_attn.q_norm.weight float32 [1] float [8]",
            "layers.0.self_attn.q_proj.weight float32 [16, 32] float [32, 16]",
        ]
    );
    for key in mismatch
        .missing
        .iter()
        .chain(mismatch.wrong.iter().map(|w| &w.key))
    {
        assert!(message.contains(key.as_str()), "{message}");
    }
    assert!(!message.contains('\u{1b}'), "{message}");
}

#[test]
fn unknown_architectures_name_the_known_ones() {
    for (key, value) in [
        ("architectures", json!(["GPT2LMHeadModel"])),
        ("model_type", json!("gpt2")),
    ] {
        let copy = Copy::of("llama_f32").config(|config| {
            config.remove("architectures");
            config.insert(key.to_owned(), value);
        });
        let message = copy.message();
        assert!(message.to_lowercase().contains("gpt2"), "{message}");
        for known in [
            "BertModel",
            "LlamaForCausalLM",
            "LlamaModel",
            "Qwen3ForCausalLM",
            "Qwen3Model",
        ] {
            assert!(message.contains(known), "{message}");
        }
    }
    let by_type = Copy::of("qwen3_embed_f32").config(|config| {
        config.remove("architectures");
    });
    assert_eq!(by_type.load().expect("loads").class_name(), "Qwen3Model");
}

#[test]
fn a_configuration_that_cannot_be_computed_is_refused_by_field() {
    for (name, key, value) in [
        ("llama_f32", "hidden_size", json!(null)),
        ("llama_f32", "hidden_size", json!(-16)),
        ("llama_f32", "hidden_size", json!(1u64 << 40)),
        ("llama_f32", "vocab_size", json!("48")),
        ("llama_f32", "num_hidden_layers", json!(1_000_000)),
        ("llama_f32", "num_key_value_heads", json!(3)),
        ("llama_f32", "head_dim", json!(3)),
        ("llama_f32", "hidden_act", json!("xielu")),
        (
            "llama_f32",
            "rope_parameters",
            json!({"rope_type": "yarn", "factor": 2.0}),
        ),
        (
            "llama_f32",
            "rope_parameters",
            json!({"rope_type": "linear"}),
        ),
        (
            "llama_f32",
            "rope_parameters",
            json!({"rope_theta": 1e4, "mscale": 2}),
        ),
        (
            "llama_f32",
            "rope_parameters",
            json!({"partial_rotary_factor": 0.5}),
        ),
        ("llama_f32", "rope_parameters", json!([1])),
        ("llama_f32", "rms_norm_eps", json!(0)),
        ("llama_f32", "attention_bias", json!("no")),
        ("llama_f32", "is_causal", json!(false)),
        ("llama_f32", "quantization_config", json!({"bits": 4})),
        ("llama_f32", "dtype", json!("float64")),
        (
            "qwen3_embed_f32",
            "layer_types",
            json!(["sliding_attention"]),
        ),
        ("bert_f32", "num_attention_heads", json!(3)),
        ("bert_f32", "position_embedding_type", json!("relative_key")),
        ("bert_f32", "is_decoder", json!(true)),
        ("bert_f32", "pruned_heads", json!({"0": [1]})),
        ("bert_f32", "hidden_dropout_prob", json!(2)),
    ] {
        let shown = format!("{key}: {value}");
        let copy = Copy::of(name).set(key, value);
        let error = copy.error();
        let message = error.to_string();
        assert!(
            matches!(error, LoadError::Config { .. }),
            "{shown}: {message}"
        );
        let named = message.contains(key) || message.contains("rotary");
        assert!(named && message.lines().count() == 1, "{shown}: {message}");
    }
    let slides = Copy::of("qwen3_embed_f32").config(|config| {
        config.remove("layer_types");
        config.insert("use_sliding_window".to_owned(), json!(true));
        config.insert("sliding_window".to_owned(), json!(4));
        config.insert("max_window_layers".to_owned(), json!(2));
    });
    assert!(slides.message().contains("use_sliding_window"));
}

#[test]
fn broken_files_give_one_error_each() {
    let copy = Copy::of("llama_f32");
    let weights = fs::read(copy.path("model.safetensors")).expect("read");
    let huge = [&u64::MAX.to_le_bytes()[..], b"{}"].concat();
    let deep = ["[".repeat(100_000), "]".repeat(100_000)].concat();
    for bytes in [
        &weights[..weights.len() - 1],
        &weights[..100],
        &weights[..3],
        b"",
        &huge,
    ] {
        fs::write(copy.path("model.safetensors"), bytes).expect("written");
        let error = copy.error();
        assert!(matches!(error, LoadError::Safetensors { .. }), "{error}");
        assert!(error.to_string().contains("model.safetensors"), "{error}");
    }
    fs::remove_file(copy.path("model.safetensors")).expect("removed");
    assert!(matches!(copy.error(), LoadError::NoWeights { .. }));
    for index in [
        "{}".to_owned(),
        "[".to_owned(),
        deep,
        json!({"weight_map": {}}).to_string(),
        json!({"weight_map": {"a": 1}}).to_string(),
        json!({"weight_map": {"a": "../model.safetensors"}}).to_string(),
        json!({"weight_map": {"a": "/etc/passwd"}}).to_string(),
        json!({"weight_map": {"a": "."}}).to_string(),
        json!({"weight_map": {"a": ""}}).to_string(),
        json!({"weight_map": {"a": "absent.safetensors"}}).to_string(),
    ] {
        fs::write(copy.path("model.safetensors.index.json"), &index).expect("written");
        let error = copy.error();
        assert!(matches!(error, LoadError::Index { .. }), "{error}");
    }
    for config in ["", "[1]", "{\"a\":"] {
        fs::write(copy.path("config.json"), config).expect("written");
        let error = copy.error();
        assert!(
            matches!(
                error,
                LoadError::Config {
                    source: ConfigError::Syntax { .. },
                    ..
                }
            ),
            "{error}"
        );
    }
    fs::remove_file(copy.path("config.json")).expect("removed");
    assert!(copy.message().contains("config.json"));
    let nowhere = models::load(&copy.path("nowhere"), &Device::flex());
    assert!(matches!(nowhere, Err(LoadError::NoFolder { .. })));
}

// What is wrong with inputs.

#[test]
fn inputs_a_model_cannot_take_are_refused_before_it_runs() {
    let bert = load("bert_f32");
    let llama = load("llama_f32");
    let rows = |rows: &[&[i64]]| {
        let rows: Vec<Vec<i64>> = rows.iter().map(|row| row.to_vec()).collect();
        IntMatrix::from_rows(&rows).expect("equal rows")
    };
    let with = |ids: &[&[i64]], change: &dyn Fn(&mut ModelInputs)| {
        let mut inputs = ModelInputs::new(rows(ids));
        change(&mut inputs);
        inputs
    };
    let too_long: &[i64] = &[1; 17];
    for (inputs, expected) in [
        (with(&[], &|_| ()), "nothing to run"),
        (with(&[&[]], &|_| ()), "nothing to run"),
        (
            with(&[&[1, 48]], &|_| ()),
            "`input_ids` holds 48 at [0, 1]; it must be from 0 to 47",
        ),
        (
            with(&[&[1], &[-1]], &|_| ()),
            "`input_ids` holds -1 at [1, 0]",
        ),
        (
            with(&[too_long], &|_| ()),
            "17 tokens; the model has 16 positions",
        ),
        (
            with(&[&[1, 2]], &|i| i.attention_mask = Some(rows(&[&[1]]))),
            "`attention_mask` has shape [1, 1]",
        ),
        (
            with(&[&[1, 2]], &|i| i.attention_mask = Some(rows(&[&[1, 2]]))),
            "`attention_mask` holds 2",
        ),
        (
            with(&[&[1, 2]], &|i| i.token_type_ids = Some(rows(&[&[0, 2]]))),
            "`token_type_ids` holds 2",
        ),
        (
            with(&[&[1, 2]], &|i| i.position_ids = Some(rows(&[&[0, 16]]))),
            "`position_ids` holds 16",
        ),
        (
            with(&[&[1], &[2]], &|i| {
                i.position_ids = Some(rows(&[&[0], &[0], &[0]]))
            }),
            "`position_ids` has shape [3, 1]",
        ),
    ] {
        let message = bert.forward(&inputs).expect_err(expected).to_string();
        assert!(message.contains(expected), "{message}");
    }
    let typed = with(&[&[1]], &|i| i.token_type_ids = Some(rows(&[&[0]])));
    let message = llama.forward(&typed).expect_err("no types").to_string();
    assert_eq!(message, "LlamaForCausalLM takes no `token_type_ids`");
    assert_eq!(IntMatrix::from_rows(&[vec![1], vec![]]), None);
}

#[test]
fn a_file_of_inputs_says_what_is_wrong_with_it() -> Result<(), Box<dyn Error>> {
    let folder = TempDir::new()?;
    let path = folder.path().join("inputs.safetensors");
    let read = |tensors: &[(&str, Dtype, &[usize], usize)]| {
        let tensors: BTreeMap<String, Stored> = tensors
            .iter()
            .map(|(name, dtype, shape, bytes)| {
                (
                    (*name).to_owned(),
                    (*dtype, shape.to_vec(), vec![0; *bytes]),
                )
            })
            .collect();
        write_tensors(&path, &tensors);
        ModelInputs::read(&path)
    };
    let ids = ("input_ids", Dtype::I64, &[1, 2][..], 16);
    assert!(read(&[ids]).is_ok());
    let error = read(&[("input_ids", Dtype::F32, &[1, 2], 8)]).expect_err("a float");
    assert_eq!(
        error.to_string(),
        "`input_ids` is F32; it must be int64 (safetensors I64)"
    );
    let error = read(&[("input_ids", Dtype::I64, &[2], 16)]).expect_err("a vector");
    assert!(matches!(error, InputError::Rank { .. }), "{error}");
    let error = read(&[("attention_mask", Dtype::I64, &[1, 2], 16)]).expect_err("no ids");
    assert!(matches!(error, InputError::NoInputIds), "{error}");
    let error = read(&[ids, ("pixel_values", Dtype::F32, &[1], 4)]).expect_err("pixels");
    assert!(error.to_string().contains("`pixel_values`"), "{error}");
    for bytes in [&b""[..], b"12345678", &[0xff; 64]] {
        fs::write(&path, bytes)?;
        let error = ModelInputs::read(&path).expect_err("garbage");
        assert!(matches!(error, InputError::Format { .. }), "{error}");
    }
    let error = ModelInputs::read(folder.path()).expect_err("a folder");
    assert!(matches!(error, InputError::File(_)), "{error}");
    Ok(())
}
