//! `#[burnscope::trace]` sees every call, whatever the shape of the method around it.

#![cfg(feature = "flex")]

mod callees;

use std::path::PathBuf;

use burn::{
    module::{Module, Param},
    nn,
    tensor::{Bool, Device, Int, Tensor},
};
use burnscope::{
    Session, Traced,
    trace::{Attribution, Node, Trace, Value},
};

/// A parameterless module.
#[derive(Module, Debug)]
struct Act;

impl Act {
    fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        burn::tensor::activation::relu(x)
    }
}

#[derive(Module, Debug)]
struct Block {
    fc: nn::Linear,
    act: Act,
}

#[burnscope::trace]
impl Block {
    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        self.act.forward(self.fc.forward(x))
    }
}

#[derive(Module, Debug)]
struct Net {
    layers: Vec<Block>,
    acts: Vec<Act>,
    norm: Option<nn::LayerNorm>,
    head: nn::Linear,
}

impl Net {
    fn new(device: &Device) -> Self {
        let block = || Block {
            fc: nn::LinearConfig::new(4, 4).init(device),
            act: Act,
        };
        Self {
            layers: vec![block(), block()],
            acts: vec![Act, Act],
            norm: Some(nn::LayerNormConfig::new(4).init(device)),
            head: nn::LinearConfig::new(4, 2).init(device),
        }
    }
}

/// An argument or result of several tensors.
#[derive(Debug, Clone, Traced)]
struct Pair {
    left: Tensor<2>,
    right: Option<Tensor<2>>,
    #[burnscope(skip)]
    #[allow(dead_code)]
    secret: u8,
    #[burnscope(name = "flag")]
    is_set: bool,
}

#[derive(Debug, PartialEq)]
struct Refused;

#[burnscope::trace]
impl Net {
    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let mut x = x;
        for layer in &self.layers {
            x = layer.forward(x);
        }
        for (index, act) in self.acts.iter().enumerate() {
            assert!(index < 2);
            x = act.forward(x);
        }
        if let Some(norm) = &self.norm {
            x = norm.forward(x);
        }
        self.head.forward(x)
    }

    #[allow(clippy::too_many_arguments)]
    fn forward_all(
        &self,
        #[burnscope(positional)] mut x: Tensor<2>,
        (ids, mask): (Tensor<1, Int>, Option<Tensor<1, Bool>>),
        #[burnscope(name = "pair")] p: Pair,
        scales: [f32; 2],
        #[burnscope(skip)] _ignored: &str,
        label: &str,
        other: Vec<Tensor<1>>,
    ) -> (Tensor<2>, Pair) {
        let _ = (ids, mask, scales, label, other);
        x = self.head.forward(x);
        (x, p)
    }

    fn forward_generic<const D: usize, F: Fn(Tensor<D>) -> Tensor<D>>(
        &self,
        x: Tensor<D>,
        f: F,
    ) -> Tensor<D> {
        f(self.acts[0].forward(x))
    }

    fn forward_fallible(&self, x: Tensor<2>, fail: bool) -> Result<Tensor<2>, Refused> {
        if fail {
            return Err(Refused);
        }
        let y = self.forward_step(x)?;
        Ok(self.layers[1].forward(y))
    }

    fn forward_step(&self, x: Tensor<2>) -> Result<Tensor<2>, Refused> {
        Ok(x)
    }

    fn forward_early(&self, x: Tensor<2>, early: bool) -> Tensor<2> {
        if early {
            return x;
        }
        self.layers.iter().fold(x, |x, layer| layer.forward(x))
    }

    fn forward_mut(&mut self, x: Tensor<2>, cache: &mut Vec<Tensor<2>>) -> Tensor<2> {
        self.acts.pop();
        let y = self.layers[0].forward(x);
        cache.push(y.clone());
        for _ in 0..2 {
            self.forward_cached(y.clone(), cache);
        }
        y
    }

    fn forward_cached(&self, x: Tensor<2>, cache: &mut Vec<Tensor<2>>) -> usize {
        cache.push(x);
        cache.len()
    }

    async fn forward_async(&self, x: Tensor<2>) -> Result<Tensor<2>, Refused> {
        let y = self.forward_later(x).await?;
        Ok(self.head.forward(y))
    }

    async fn forward_later(&self, x: Tensor<2>) -> Result<Tensor<2>, Refused> {
        std::future::ready(()).await;
        Ok(self.layers[0].forward(x))
    }

    fn forward_owned(self, x: Tensor<2>) -> Tensor<2> {
        vec![self.head.forward(x)].remove(0)
    }

    fn forward_borrowed<'a>(&'a self, x: &'a Tensor<2>) -> &'a Tensor<2> {
        x
    }

    #[burnscope(skip)]
    fn forward_hidden(&self, x: Tensor<2>) -> Tensor<2> {
        x
    }

    #[burnscope::trace]
    fn encode(&self, x: Tensor<2>) -> Tensor<2> {
        self.head.forward(self.forward_hidden(x))
    }
}

struct Run {
    trace: Trace,
    _folder: tempfile::TempDir,
}

fn record<R>(run: impl FnOnce(&mut Net, Tensor<2>) -> R) -> Run {
    let folder = tempfile::tempdir().unwrap();
    let device = Device::flex();
    let mut net = Net::new(&device);
    let session = Session::builder(folder.path()).start().unwrap();
    session.attach("Net", &net);
    let x = Tensor::<2>::from_data([[1.0, -2.0, 3.0, -4.0]], &device);
    session.run(|| {
        run(&mut net, x);
    });
    Run {
        trace: session.finish().unwrap(),
        _folder: folder,
    }
}

/// `path.method` of every call, indented by depth.
fn tree(trace: &Trace) -> Vec<String> {
    fn walk(node: &Node, depth: usize, lines: &mut Vec<String>) {
        let method = node.method.as_deref().unwrap_or("?");
        lines.push(format!(
            "{}{} {method}#{}",
            " ".repeat(depth),
            node.path,
            node.call
        ));
        for child in &node.children {
            walk(child, depth + 1, lines);
        }
    }
    let mut lines = Vec::new();
    for root in &trace.roots {
        walk(root, 0, &mut lines);
    }
    lines
}

fn texts(values: &[(String, Value)]) -> Vec<String> {
    values
        .iter()
        .map(|(name, value)| format!("{name}: {}", text(value)))
        .collect()
}

fn text(value: &Value) -> String {
    match value {
        Value::Tensor(tensor) => format!("{}{:?}", tensor.dtype, tensor.shape),
        Value::List(values) => format!(
            "[{}]",
            values.iter().map(text).collect::<Vec<_>>().join(", ")
        ),
        Value::Map(entries) => format!("{{{}}}", texts(entries).join(", ")),
        Value::Text(text) => text.clone(),
    }
}

#[test]
fn every_call_is_in_the_tree_in_order_and_only_once() {
    let run = record(|net, x| net.forward(x));
    assert_eq!(
        tree(&run.trace),
        [
            "Net forward#0",
            " Net.layers.0 forward#0",
            "  Net.layers.0.fc forward#0",
            "  Net.layers.0.act forward#0",
            " Net.layers.1 forward#0",
            "  Net.layers.1.fc forward#0",
            "  Net.layers.1.act forward#0",
            " Net.acts.0 forward#0",
            " Net.acts.1 forward#0",
            " Net.norm forward#0",
            " Net.head forward#0",
        ]
    );
    let root = &run.trace.roots[0];
    assert!(run.trace.complete && root.complete);
    assert_eq!(root.kind.as_deref(), Some("Net"));
    assert_eq!(root.children[0].children[0].kind.as_deref(), Some("Linear"));
    assert!(
        root.children
            .iter()
            .all(|child| child.attribution == Attribution::Exact)
    );
    // An annotated callee names its inputs; a library module is called by position.
    let block = root.children[0].inputs.as_ref().unwrap();
    assert_eq!(
        (block.args.len(), texts(&block.kwargs)),
        (0, vec!["x: f32[1, 4]".to_owned()])
    );
    let linear = root.children[0].children[0].inputs.as_ref().unwrap();
    assert_eq!((linear.args.len(), linear.kwargs.len()), (1, 0));
    assert_eq!(text(root.outputs.as_ref().unwrap()), "f32[1, 2]");
}

#[test]
fn one_modules_output_is_the_next_ones_input() {
    let run = record(|net, x| net.forward(x));
    let block = &run.trace.roots[0].children[0];
    let Some(Value::Tensor(output)) = &block.children[0].outputs else {
        panic!()
    };
    let Value::Tensor(input) = &block.children[1].inputs.as_ref().unwrap().args[0] else {
        panic!()
    };
    assert_eq!(output.id, input.id);
    assert!(output.id.is_some());
}

#[test]
fn arguments_of_every_kind_are_recorded() {
    let run = record(|net, x| {
        let device = x.device();
        let pair = Pair {
            left: x.clone(),
            right: None,
            secret: 1,
            is_set: true,
        };
        let ids = Tensor::<1, Int>::from_data([1, 2, 3], &device);
        let other = vec![Tensor::<1>::zeros([2], &device)];
        net.forward_all(x, (ids, None), pair, [0.5, 2.0], "unseen", "it's", other)
    });
    let root = &run.trace.roots[0];
    let inputs = root.inputs.as_ref().unwrap();
    let ids = match &inputs.args[1] {
        Value::List(values) => text(&values[0]),
        other => panic!("{other:?}"),
    };
    assert!(ids == "i64[3]" || ids == "i32[3]", "{ids}");
    assert_eq!(text(&inputs.args[0]), "f32[1, 4]");
    assert_eq!(
        texts(&inputs.kwargs),
        [
            "pair: {left: f32[1, 4], right: None, flag: True}",
            "scales: [0.5, 2.0]",
            "label: 'it\\'s'",
            "other: [f32[2]]"
        ]
    );
    assert_eq!(
        text(root.outputs.as_ref().unwrap()),
        "[f32[1, 2], {left: f32[1, 4], right: None, flag: True}]"
    );
}

#[test]
fn methods_of_every_shape_work() {
    let run = record(|net, x| {
        let generic = net.forward_generic(x.clone(), |x| x + 1.0);
        assert_eq!(generic.dims(), [1, 4]);
        assert_eq!(net.forward_fallible(x.clone(), true).unwrap_err(), Refused);
        net.forward_fallible(x.clone(), false).unwrap();
        net.forward_early(x.clone(), true);
        net.forward_early(x.clone(), false);
        let mut cache = Vec::new();
        net.forward_mut(x.clone(), &mut cache);
        assert_eq!(cache.len(), 3);
        assert_eq!(net.forward_borrowed(&x).dims(), [1, 4]);
        net.encode(x.clone());
        net.clone().forward_owned(x);
    });
    assert_eq!(
        tree(&run.trace),
        [
            "Net forward_generic#0",
            " Net.acts.0 forward#0",
            "Net forward_fallible#0",
            "Net forward_fallible#0",
            " Net forward_step#1",
            " Net.layers.1 forward#0",
            "  Net.layers.1.fc forward#0",
            "  Net.layers.1.act forward#0",
            "Net forward_early#0",
            "Net forward_early#0",
            " Net.layers.0 forward#0",
            "  Net.layers.0.fc forward#0",
            "  Net.layers.0.act forward#0",
            " Net.layers.1 forward#0",
            "  Net.layers.1.fc forward#0",
            "  Net.layers.1.act forward#0",
            "Net forward_mut#0",
            " Net.layers.0 forward#0",
            "  Net.layers.0.fc forward#0",
            "  Net.layers.0.act forward#0",
            " Net forward_cached#1",
            " Net forward_cached#2",
            "Net forward_borrowed#0",
            "Net encode#0",
            " Net.head forward#0",
            "Net forward_owned#0",
            " Net.head forward#0",
        ]
    );
    assert_eq!(
        text(run.trace.roots[1].outputs.as_ref().unwrap()),
        "Err(Refused)"
    );
    assert!(run.trace.roots.iter().all(|root| root.complete));
    let steps: Vec<u64> = run.trace.roots.iter().map(|root| root.step).collect();
    assert_eq!(steps, (0..9).collect::<Vec<u64>>());
}

#[test]
fn an_async_method_is_one_scope_across_its_waits() {
    let run = record(|net, x| {
        let mut future = std::pin::pin!(net.forward_async(x));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        while future.as_mut().poll(&mut context).is_pending() {}
    });
    assert_eq!(
        tree(&run.trace),
        [
            "Net forward_async#0",
            " Net forward_later#1",
            "  Net.layers.0 forward#0",
            "   Net.layers.0.fc forward#0",
            "   Net.layers.0.act forward#0",
            " Net.head forward#0",
        ]
    );
    assert_eq!(
        text(run.trace.roots[0].children[0].outputs.as_ref().unwrap()),
        "f32[1, 4]"
    );
}

#[test]
fn a_panic_marks_the_trace_and_spares_the_next_session() {
    let folder = tempfile::tempdir().unwrap();
    let device = Device::flex();
    let net = Net::new(&device);
    let session = Session::builder(folder.path()).start().unwrap();
    session.attach("Net", &net);
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        session.run(|| net.forward_early(Tensor::ones([1, 3], &device), false))
    }));
    assert!(outcome.is_err());
    let trace = session.finish().unwrap();
    assert!(!trace.complete);
    assert!(!trace.roots[0].complete);
    assert!(trace.roots[0].outputs.is_none());
    let run = record(|net, x| net.forward(x));
    assert!(run.trace.complete);
    assert_eq!(run.trace.roots[0].path, "Net");
}

#[test]
fn sessions_on_two_threads_do_not_see_each_other() {
    let barrier = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        let threads: Vec<_> = [1, 3]
            .map(|repeats| {
                let barrier = &barrier;
                scope.spawn(move || {
                    record(|net, x| {
                        for _ in 0..repeats {
                            barrier.wait();
                            net.forward(x.clone());
                        }
                        for _ in repeats..3 {
                            barrier.wait();
                        }
                    })
                    .trace
                })
            })
            .into_iter()
            .collect();
        let roots: Vec<usize> = threads
            .into_iter()
            .map(|thread| thread.join().unwrap().roots.len())
            .collect();
        assert_eq!(roots, [1, 3]);
    });
}

#[test]
fn a_module_called_twice_keeps_both_records() {
    let run = record(|net, x| {
        let _ = net;
        #[derive(Module, Debug)]
        struct Twice {
            fc: nn::Linear,
        }
        #[burnscope::trace]
        impl Twice {
            fn forward(&self, x: Tensor<2>) -> Tensor<2> {
                self.fc.forward(self.fc.forward(x))
            }
        }
        Twice {
            fc: nn::LinearConfig::new(4, 4).init(&x.device()),
        }
        .forward(x)
    });
    let calls: Vec<(String, u64)> = run.trace.roots[0]
        .children
        .iter()
        .map(|node| (node.path.clone(), node.call))
        .collect();
    assert_eq!(calls, [("Net.fc".to_owned(), 0), ("Net.fc".to_owned(), 1)]);
}

#[test]
fn filters_keep_the_way_to_what_they_select() {
    let folder = tempfile::tempdir().unwrap();
    let device = Device::flex();
    let net = Net::new(&device);
    let session = Session::builder(folder.path())
        .include("*.fc")
        .exclude("*.layers.1.*")
        .start()
        .unwrap();
    session.attach("Net", &net);
    session.run(|| net.forward(Tensor::ones([1, 4], &device)));
    let trace = session.finish().unwrap();
    assert_eq!(
        tree(&trace),
        [
            "Net forward#0",
            " Net.layers.0 forward#0",
            "  Net.layers.0.fc forward#0"
        ]
    );
    assert!(trace.roots[0].inputs.is_none());
    assert!(trace.roots[0].children[0].children[0].inputs.is_some());
}

#[test]
fn the_folder_must_be_writable() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = Session::builder(file.join("trace"))
        .start()
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.starts_with("cannot write ") && error.contains("Not a directory"),
        "{error}"
    );
    let _: PathBuf = file;
}
