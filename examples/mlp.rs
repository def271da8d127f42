//! Traces a small model of one's own and prints what was recorded.
//!
//! Run it with `cargo run --example mlp`; the files are in the folder `trace`.

use std::error::Error;

use burn::{
    module::Module,
    nn::{Linear, LinearConfig, Relu},
    tensor::{Device, Distribution, Tensor},
};
use burnscope::{
    Dump, Session,
    trace::{Node, Value},
};

#[derive(Module, Debug)]
struct Mlp {
    up: Linear,
    act: Relu,
    down: Linear,
}

#[burnscope::trace]
impl Mlp {
    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        self.down.forward(self.act.forward(self.up.forward(x)))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let device = Device::flex();
    device.seed(1);
    let model = Mlp {
        up: LinearConfig::new(8, 32).init(&device),
        act: Relu::new(),
        down: LinearConfig::new(32, 8).init(&device),
    };
    let x = Tensor::<2>::random([4, 8], Distribution::Normal(0.0, 1.0), &device);

    let session = Session::builder("trace").dump(Dump::Repr).start()?;
    session.attach("Mlp", &model);
    let output = session.run(|| model.forward(x));
    let trace = session.finish()?;

    println!("output {:?}", output.dims());
    trace.roots.iter().for_each(print);
    Ok(())
}

fn print(node: &Node) {
    if let Some(Value::Tensor(tensor)) = &node.outputs
        && let Some(summary) = &tensor.summary
    {
        let (mean, std) = (
            summary.mean.unwrap_or(f64::NAN),
            summary.std.unwrap_or(f64::NAN),
        );
        println!(
            "{:10} {:?} mean {mean:.4} std {std:.4} zeros {}",
            node.path, tensor.shape, summary.zeros
        );
    }
    node.children.iter().for_each(print);
}
