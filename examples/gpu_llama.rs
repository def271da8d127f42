//! What tracing costs a Llama's forward pass on a CUDA device: run by `scripts/gpu-check.sh`.
//!
//! Random weights of Llama 2 7B's shape, four layers, bf16, 2048 tokens. Prints rows of a Markdown
//! table. With `--operations` every operation is seen, and both runs are without Burn's fusers.

use std::{error::Error, time::Instant};

use burn::tensor::{Device, Distribution, FloatDType, Int, Tensor};
use burnscope::{
    Dump, Session,
    models::{
        ConfigFile,
        llama::{LlamaForCausalLM, read_config},
    },
};

const CONFIG: &[u8] = br#"{
    "architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "hidden_size": 4096,
    "intermediate_size": 11008, "max_position_embeddings": 4096, "model_type": "llama",
    "num_attention_heads": 32, "num_hidden_layers": 4, "num_key_value_heads": 32,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": false, "vocab_size": 32000
}"#;
const TOKENS: usize = 2048;
const WARM_UP: usize = 3;
const REPEATS: usize = 20;

fn main() -> Result<(), Box<dyn Error>> {
    let operations = std::env::args().any(|argument| argument == "--operations");
    // Kept to the end, as a program's `main` does.
    let _installed = operations.then(burnscope::install).transpose()?;
    let seen = if operations { "operations" } else { "modules" };
    let mut device = Device::cuda(0);
    device.configure(FloatDType::BF16)?;
    let config = read_config(&ConfigFile::parse(CONFIG)?)?;
    let model = LlamaForCausalLM::init(&config, &device);
    let ids = Tensor::<2, Int>::random([1, TOKENS], Distribution::Uniform(0.0, 32000.0), &device);
    let forward = || drop(model.forward(ids.clone(), None, None, None));

    let untraced = milliseconds(&device, forward)?;
    let folder = std::env::temp_dir().join(format!("burnscope-gpu-llama-{}", std::process::id()));
    let session = Session::builder(&folder).dump(Dump::None).start()?;
    session.attach("LlamaForCausalLM", &model);
    let traced = milliseconds(&device, || session.run(forward))?;
    for note in session.finish()?.notes {
        eprintln!("{note}");
    }
    std::fs::remove_dir_all(folder)?;

    println!("| Llama forward, {seen}, untraced | bf16 | {TOKENS} tokens | {untraced:.2} ms |");
    let ratio = traced / untraced;
    println!(
        "| Llama forward, {seen}, traced | bf16 | {TOKENS} tokens | {traced:.2} ms, {ratio:.3} times |"
    );
    Ok(())
}

/// Median time of a run, the device's work included.
fn milliseconds(device: &Device, run: impl Fn()) -> Result<f64, Box<dyn Error>> {
    let mut times = Vec::with_capacity(REPEATS);
    for i in 0..WARM_UP + REPEATS {
        device.sync()?;
        let start = Instant::now();
        run();
        device.sync()?;
        if i >= WARM_UP {
            times.push(start.elapsed().as_secs_f64() * 1e3);
        }
    }
    times.sort_by(f64::total_cmp);
    Ok(times[REPEATS / 2])
}
