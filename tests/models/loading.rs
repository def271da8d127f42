//! What is loaded from a folder.

use std::collections::BTreeMap;
use std::fs;

use burn::tensor::DType;
use burnscope::models::LoadError;
use serde_json::json;

use crate::support::{
    Copy, Stored, assert_agrees, inputs, numbers, read_tensors, relative_l2, rename, scalar,
    write_tensors,
};

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
        let buffer = "layers.0.self_attn.rotary_emb.inv_freq";
        tensors.insert(buffer.to_owned(), scalar(1.0));
    });
    let model = without.load().expect("loads");
    let ignored = ["layers.0.self_attn.rotary_emb.inv_freq"];
    assert_eq!(model.ignored_keys(), ignored);
    assert_agrees(&model, "llama_f32", 1e-5);

    let both = Copy::of("llama_f32").weights(|tensors| {
        let norm = tensors["model.norm.weight"].clone();
        tensors.insert("norm.weight".to_owned(), norm);
    });
    let LoadError::Keys(mismatch) = both.error() else {
        panic!("another error");
    };
    assert_eq!(mismatch.unexpected, ["norm.weight"]);

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
