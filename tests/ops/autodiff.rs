//! Backward passes: recorded, and told from the forward pass.

use burn::{
    module::Module,
    nn,
    tensor::{Device, Distribution, Tensor},
};
use burnscope::{Session, trace::Trace};

use super::support::device;

#[derive(Module, Debug)]
struct Net {
    fc: nn::Linear,
}

impl Net {
    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        self.fc.forward(x)
    }
}

/// The trace of a step and the number of its last forward operation.
fn step(announced: bool) -> Option<(Trace, Tensor<2>, Tensor<2>)> {
    let device: Device = device()?.autodiff();
    let net = Net {
        fc: nn::LinearConfig::new(5, 3).with_bias(false).init(&device),
    };
    let x = Tensor::<2>::random([4, 5], Distribution::Normal(0.0, 1.0), &device);
    let folder = tempfile::tempdir().unwrap();
    let session = Session::builder(folder.path())
        .gradients(true)
        .start()
        .unwrap();
    session.attach("Net", &net);
    let gradients = session.run(|| {
        let y = net.forward(x.clone());
        let loss = y.clone().mul(y).sum();
        if announced {
            burnscope::backward(|| loss.backward())
        } else {
            loss.backward()
        }
    });
    let gradient = net.fc.weight.val().grad(&gradients).unwrap();
    // d/dW of sum((x W)^2) is 2 x^T (x W).
    let (x, w) = (x.inner(), net.fc.weight.val().inner());
    let expected = x.clone().transpose().matmul(x.matmul(w)) * 2.0;
    Some((session.finish().unwrap(), gradient, expected))
}

fn check(announced: bool) {
    let Some((trace, gradient, expected)) = step(announced) else {
        return;
    };
    let apart = (gradient.clone() - expected)
        .abs()
        .max()
        .into_scalar::<f32>();
    assert!(apart < 1e-4, "{apart}");
    let ops = trace.operations();
    let names = |backward: bool| -> Vec<&str> {
        let ops = ops.iter().filter(|op| op.backward == backward);
        ops.map(|op| op.name.as_str()).collect()
    };
    let backward = names(true);
    // The forward pass has one product and the loss.
    assert_eq!(
        names(false)
            .iter()
            .filter(|name| **name == "Matmul")
            .count(),
        1,
        "{:?}",
        names(false)
    );
    assert!(names(false).contains(&"Mul"));
    assert!(names(false).contains(&"Sum"));
    assert_eq!(backward[0], "Ones", "{backward:?}");
    assert!(backward.contains(&"Matmul"), "{backward:?}");
    // The last result of the pass that has the parameter's shape is its gradient.
    let last = ops
        .iter()
        .filter(|op| op.backward)
        .flat_map(|op| &op.outputs);
    let last = last
        .filter(|out| out.tensor.shape == [5, 3])
        .filter_map(|out| out.tensor.summary.as_ref())
        .next_back()
        .unwrap();
    let mean = gradient.mean().into_scalar::<f32>();
    assert!((last.mean.unwrap() - f64::from(mean)).abs() < 1e-5);
    // The forward pass is in the tree, the backward pass beside it.
    assert_eq!(trace.roots.len(), 1);
    assert_eq!(trace.roots[0].children[0].path, "Net.fc");
    assert!(trace.ops.iter().any(|op| op.backward));
    let noted = trace
        .notes
        .iter()
        .any(|note| note.contains("backward pass"));
    assert_eq!(noted, !announced, "{:?}", trace.notes);
}

#[test]
fn an_announced_backward_pass_is_marked() {
    check(true);
}

#[test]
fn a_backward_pass_is_recognised() {
    check(false);
}

/// Two steps in one run: the second forward pass and the updates are none of the first backward pass.
#[test]
fn a_training_loop_keeps_its_passes_apart() {
    let Some(device) = device() else { return };
    let device = device.autodiff();
    let mut net = Net {
        fc: nn::LinearConfig::new(5, 3).with_bias(false).init(&device),
    };
    let x = Tensor::<2>::ones([4, 5], &device);
    let folder = tempfile::tempdir().unwrap();
    let session = Session::builder(folder.path())
        .gradients(true)
        .start()
        .unwrap();
    session.attach("Net", &net);
    session.run(|| {
        for _ in 0..2 {
            let loss = net.forward(x.clone()).powi_scalar(2).sum();
            let gradients = burnscope::backward(|| loss.backward());
            let gradient = net.fc.weight.val().grad(&gradients).unwrap();
            net.fc.weight = net.fc.weight.clone().map(|weight| {
                let updated = weight.inner() - gradient.clone() * 0.01;
                Tensor::from_inner(updated).require_grad()
            });
        }
    });
    let trace = session.finish().unwrap();
    let ops = trace.operations();
    let updates = ops.iter().filter(|op| op.name == "Sub").count();
    assert_eq!(updates, 2);
    assert!(
        ops.iter()
            .filter(|op| op.name == "Sub")
            .all(|op| !op.backward)
    );
    // No call is made of an update.
    let calls: Vec<&str> = trace.roots.iter().map(|root| root.path.as_str()).collect();
    assert!(!calls.is_empty());
    for root in &trace.roots {
        assert!(root.ops.iter().all(|op| op.name != "Sub"));
        for child in &root.children {
            assert!(child.ops.iter().all(|op| op.name != "Sub"), "{child:?}");
        }
    }
}
