//! The Llama whose forward pass the benches trace: hidden size 512, 8 layers, random weights.

use burnscope::models::{ConfigFile, DecoderConfig, llama};

/// How many tokens a forward pass takes.
pub const TOKENS: usize = 256;

pub fn config() -> DecoderConfig {
    let text = br#"{
        "architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "hidden_size": 512,
        "intermediate_size": 1408, "max_position_embeddings": 512, "model_type": "llama",
        "num_attention_heads": 8, "num_hidden_layers": 8, "num_key_value_heads": 8,
        "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": false, "vocab_size": 1000
    }"#;
    let file = ConfigFile::parse(text).expect("a JSON object");
    llama::read_config(&file).expect("a Llama's configuration")
}
