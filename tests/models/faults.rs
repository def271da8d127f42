//! What is wrong with a checkpoint is said in one error.

use std::fs;

use burn::tensor::Device;
use burnscope::models::{self, ConfigError, LoadError};
use proptest::prelude::*;
use safetensors::Dtype;
use serde_json::json;

use crate::support::{Copy, inputs, scalar};

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
        ("llama_f32", "head_dim", json!(1 << 29)),
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Whatever one byte of a file becomes, loading and running end with a value or an error.
    #[test]
    fn one_changed_byte_never_panics(
        file in prop::sample::select(&["config.json", "model.safetensors"][..]),
        place in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let copy = Copy::of("llama_f32");
        let mut bytes = fs::read(copy.path(file)).expect("read");
        // Of the weights, only the header has a structure to break.
        let place = place.index(bytes.len().min(3000));
        bytes[place] = byte;
        fs::write(copy.path(file), bytes).expect("written");
        if let Ok(model) = copy.load() {
            let _ = model.forward(&inputs("llama_f32"));
        }
    }
}
