//! A model without a single annotation on a GPU: two lines, and every operation is on record.
//!
//! ```console
//! BURNSCOPE=trace cargo run --example gpu --features wgpu
//! ```

use burn::{
    module::Module,
    nn::{Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig},
    tensor::{Device, Int, Tensor, activation},
};

#[derive(Module, Debug)]
struct Classifier {
    embed: Embedding,
    norm: LayerNorm,
    hidden: Linear,
    head: Linear,
}

impl Classifier {
    fn init(device: &Device) -> Self {
        Self {
            embed: EmbeddingConfig::new(100, 32).init(device),
            norm: LayerNormConfig::new(32).init(device),
            hidden: LinearConfig::new(32, 64).init(device),
            head: LinearConfig::new(64, 4).init(device),
        }
    }

    /// `[batch, tokens]` to `[batch, classes]`.
    fn forward(&self, tokens: Tensor<2, Int>) -> Tensor<2> {
        let embedded = self.norm.forward(self.embed.forward(tokens));
        let pooled = embedded.mean_dim(1).squeeze_dim(1);
        self.head
            .forward(activation::gelu(self.hidden.forward(pooled)))
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Before the first tensor.
    let burnscope = burnscope::install()?;

    let device = Device::default();
    let model = Classifier::init(&device);
    burnscope.attach("Classifier", &model);

    let tokens = Tensor::<2, Int>::from_data([[1, 2, 3, 4], [5, 6, 7, 8]], &device);
    let logits = model.forward(tokens);
    println!("{}", activation::softmax(logits, 1));

    match burnscope.finish()? {
        Some(trace) => println!(
            "{} calls recorded; look at them with `burnscope show <the folder> --ops`",
            trace.roots.iter().map(calls).sum::<usize>()
        ),
        None => println!("nothing was recorded: run it with BURNSCOPE=<folder> in the environment"),
    }
    Ok(())
}

fn calls(node: &burnscope::trace::Node) -> usize {
    1 + node.children.iter().map(calls).sum::<usize>()
}
