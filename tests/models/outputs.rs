//! What the models compute.

use std::path::Path;

use burn::tensor::{DType, Device, Int, Tensor};
use burnscope::models::bert::{BertConfig, BertModel};
use burnscope::models::layers::{RopeConfig, RopeScaling};
use burnscope::models::llama::LlamaForCausalLM;
use burnscope::models::qwen3::Qwen3ForCausalLM;
use burnscope::models::{self, ConfigFile, Pooling, normalize};
use serde_json::json;

use crate::support::{
    Copy, assert_agrees, case, floats, inputs, load, numbers, read_tensors, relative_l2,
};

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
    // Bit for bit where it was written; the order of a sum may differ on another processor.
    assert_agrees(&model, "llama_bf16", 5e-3);
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
    assert!(error < 3e-2, "{error:e}");
}

#[test]
fn half_precision_attention_ignores_padding_as_float32_does() {
    let model = Copy::of("qwen3_embed_f32").set("dtype", json!("bfloat16"));
    let outputs = model
        .load()
        .expect("loads")
        .forward(&inputs("qwen3_embed_f32"));
    let state = outputs.expect("runs").last_hidden_state.expect("a state");
    let expected = read_tensors(&case("qwen3_embed_f32").join("outputs.safetensors"));
    let error = relative_l2(
        &numbers(state.into_data()),
        &floats(&expected["last_hidden_state"]),
    );
    assert!(error < 3e-2, "{error:e}");
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
fn a_model_with_random_weights_runs_on_what_its_configuration_allows() {
    let read = |name: &str| {
        ConfigFile::read(&case(name).join("checkpoint/config.json")).expect("a configuration")
    };
    let device = Device::flex();
    let ids: Tensor<2, Int> = Tensor::ones([2, 16], (&device, DType::I64));
    let config = models::llama::read_config(&read("llama_f32")).expect("a Llama");
    let llama = LlamaForCausalLM::init(&config, &device).forward(ids.clone(), None, None, None);
    assert_eq!(llama.logits.dims(), [2, 16, 48]);
    let config = models::qwen3::read_config(&read("qwen3_embed_f32")).expect("a Qwen3");
    let qwen3 = Qwen3ForCausalLM::init(&config, &device).forward(ids.clone(), None, None, None);
    assert_eq!(qwen3.logits.dims(), [2, 16, 48]);
    let config = BertConfig::read(&read("bert_f32")).expect("a BERT");
    let bert = BertModel::init(&config, &device).forward(ids, None, None, None);
    assert_eq!(bert.last_hidden_state.dims(), [2, 16, 16]);
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

/// Numbers of transformers' `_compute_llama3_parameters` and
/// `_compute_linear_scaling_rope_parameters`, evaluated in float64.
#[test]
fn rotary_frequencies_are_those_of_transformers_in_both_forms_of_the_configuration() {
    let frequencies = |config: serde_json::Value, head_dim| {
        let config = ConfigFile::parse(config.to_string().as_bytes()).expect("JSON");
        let rope = RopeConfig::read(&config, head_dim).expect("sound");
        (rope, rope.inverse_frequencies())
    };
    let assert_near = |found: &[f32], expected: &[f64]| {
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            assert!(
                (f64::from(*found) / expected - 1.0).abs() < 1e-6,
                "{found} {expected}"
            );
        }
    };
    let (_, default) = frequencies(json!({}), 8);
    assert_near(&default, &[1.0, 0.1, 0.01, 0.001]);
    for config in [
        json!({"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}}),
        json!({"rope_scaling": {"type": "linear", "factor": 4}, "rope_theta": 10000}),
    ] {
        assert_near(&frequencies(config, 8).1, &[0.25, 0.025, 0.0025, 0.00025]);
    }
    let llama3 = json!({
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    });
    let mut nested = llama3.clone();
    nested["rope_theta"] = json!(500_000.0);
    for config in [
        json!({"rope_parameters": nested}),
        json!({"rope_scaling": llama3, "rope_theta": 500_000.0}),
    ] {
        let (rope, found) = frequencies(config, 32);
        assert!(matches!(rope.scaling, RopeScaling::Llama3 { .. }));
        let expected = [
            1.0,
            0.4403666027,
            0.1939227447,
            0.08539710029,
            0.03760603093,
            0.01656044008,
            0.007292664737,
            0.003211445995,
            0.000524846161,
            7.784655274e-05,
            3.428102196e-05,
            1.509621718e-05,
            6.647869871e-06,
            2.92749987e-06,
            1.289173172e-06,
            5.677088101e-07,
        ];
        assert_near(&found, &expected);
    }
}
