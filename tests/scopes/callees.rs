//! A call and its callee are one record, whatever stands between them: type parameters, trait objects,
//! lists, shared parameters, arguments whose types follow from the call.

use super::*;

/// A scope also works where the call cannot know whether the callee is annotated.
trait Layer {
    fn forward(&self, x: Tensor<2>) -> Tensor<2>;
}

#[burnscope::trace]
impl Layer for Block {
    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        self.fc.forward(x)
    }
}

#[derive(Module, Debug)]
struct Wrapper<M: Module> {
    inner: M,
    scale: Param<Tensor<1>>,
}

#[burnscope::trace]
impl<M: Module + Layer> Wrapper<M> {
    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        self.inner.forward(x) * self.scale.val().unsqueeze()
    }
}

#[test]
fn an_annotated_callee_behind_a_type_parameter_is_recorded_once() {
    let folder = tempfile::tempdir().unwrap();
    let device = Device::flex();
    let model = Wrapper {
        inner: Block {
            fc: nn::LinearConfig::new(4, 4).init(&device),
            act: Act,
        },
        scale: Param::from_tensor(Tensor::ones([4], &device)),
    };
    let session = Session::builder(folder.path()).start().unwrap();
    session.attach("Wrapper", &model);
    session.run(|| model.forward(Tensor::ones([1, 4], &device)));
    let trace = session.finish().unwrap();
    assert_eq!(
        tree(&trace),
        [
            "Wrapper forward#0",
            " Wrapper.inner forward#0",
            "  Wrapper.inner.fc forward#0"
        ]
    );
    assert_eq!(
        texts(&trace.roots[0].children[0].inputs.as_ref().unwrap().kwargs),
        ["x: f32[1, 4]"]
    );
}

#[test]
fn cloned_layers_that_share_parameters_are_told_apart_by_their_turn() {
    let folder = tempfile::tempdir().unwrap();
    let device = Device::flex();
    let mut net = Net::new(&device);
    net.layers = vec![net.layers[0].clone(), net.layers[0].clone()];
    let session = Session::builder(folder.path()).start().unwrap();
    session.attach("Net", &net);
    session.run(|| net.forward(Tensor::ones([1, 4], &device)));
    let trace = session.finish().unwrap();
    let paths: Vec<&str> = trace.roots[0]
        .children
        .iter()
        .map(|child| child.path.as_str())
        .collect();
    assert_eq!(paths[..2], ["Net.layers.0", "Net.layers.1"]);
    assert_eq!(
        trace.roots[0].children[1].attribution,
        Attribution::Inferred
    );
}

/// Elements that parameters tell apart and elements that only their turn does, in one list.
#[derive(Module, Debug)]
enum Step {
    Linear(nn::Linear),
    Act(Act),
}

#[burnscope::trace]
impl Step {
    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        match self {
            Self::Linear(linear) => linear.forward(x),
            Self::Act(act) => act.forward(x),
        }
    }
}

#[derive(Module, Debug)]
struct Steps {
    steps: Vec<Step>,
}

#[burnscope::trace]
impl Steps {
    fn forward(&self, mut x: Tensor<2>) -> Tensor<2> {
        for step in &self.steps {
            x = step.forward(x);
        }
        x
    }

    fn forward_tail(&self, mut x: Tensor<2>) -> Tensor<2> {
        for step in self.steps.iter().skip(1) {
            x = step.forward(x);
        }
        x
    }
}

#[test]
fn elements_without_parameters_keep_their_place_in_a_mixed_list() {
    let folder = tempfile::tempdir().unwrap();
    let device = Device::flex();
    let linear = || Step::Linear(nn::LinearConfig::new(4, 4).init(&device));
    let act = || Step::Act(Act);
    let model = Steps {
        steps: vec![act(), linear(), act(), linear(), act()],
    };
    let session = Session::builder(folder.path()).start().unwrap();
    session.attach("Steps", &model);
    session.run(|| {
        model.forward(Tensor::ones([1, 4], &device));
        // The linear layer that begins tells where the others are.
        model.forward_tail(Tensor::ones([1, 4], &device));
    });
    let trace = session.finish().unwrap();
    let paths: Vec<&str> = trace.roots[0]
        .children
        .iter()
        .map(|child| child.path.as_str())
        .collect();
    assert_eq!(
        paths,
        [
            "Steps.steps.0",
            "Steps.steps.1",
            "Steps.steps.2",
            "Steps.steps.3",
            "Steps.steps.4"
        ]
    );
    let paths: Vec<&str> = trace.roots[1]
        .children
        .iter()
        .map(|child| child.path.as_str())
        .collect();
    assert_eq!(
        paths,
        [
            "Steps.steps.1",
            "Steps.steps.2",
            "Steps.steps.3",
            "Steps.steps.4"
        ]
    );
}

/// Callees behind trait objects, one annotated and one not.
struct Objects {
    annotated: Box<dyn Layer>,
    plain: Box<dyn Layer>,
}

struct Plain(Block, Block);

impl Layer for Plain {
    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        Layer::forward(&self.1, Layer::forward(&self.0, x))
    }
}

#[burnscope::trace]
impl Objects {
    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        self.plain.forward(self.annotated.forward(x))
    }
}

#[test]
fn a_trait_object_is_recorded_once_and_keeps_its_own_calls() {
    let folder = tempfile::tempdir().unwrap();
    let device = Device::flex();
    let block = || Block {
        fc: nn::LinearConfig::new(4, 4).init(&device),
        act: Act,
    };
    let model = Objects {
        annotated: Box::new(block()),
        plain: Box::new(Plain(block(), block())),
    };
    let session = Session::builder(folder.path())
        .name("Objects")
        .start()
        .unwrap();
    session.run(|| model.forward(Tensor::ones([1, 4], &device)));
    let trace = session.finish().unwrap();
    let shape: Vec<(usize, bool)> = trace.roots[0]
        .children
        .iter()
        .map(|child| (child.children.len(), child.outputs.is_some()))
        .collect();
    assert_eq!(trace.roots[0].children[0].path, "Objects.annotated");
    assert_eq!(trace.roots[0].children[1].path, "Objects.plain");
    // The annotated one calls its Linear; the plain one calls two annotated blocks.
    assert_eq!(shape, [(1, true), (2, true)]);
}

/// Arguments whose types follow from nothing but the call.
#[derive(Module, Debug)]
struct Options {
    fc: nn::Linear,
}

impl Options {
    fn forward_with(
        &self,
        x: Tensor<2>,
        mask: Option<Tensor<2>>,
        f: fn(f32) -> f32,
        n: u64,
    ) -> Tensor<2> {
        let _ = (mask, f(1.0), n);
        self.fc.forward(x)
    }
}

fn identity<T>(x: T) -> T {
    x
}

#[derive(Module, Debug)]
struct Caller {
    options: Options,
}

#[burnscope::trace]
impl Caller {
    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let x = self.options.forward_with(x, None, identity, 7u32.into());
        self.options
            .forward_with(x, Default::default(), |x| x, u64::MAX)
    }

    /// `T` follows from no argument.
    fn forward_as<T: Default + std::fmt::Debug>(&self, x: Tensor<2>) -> (Tensor<2>, T) {
        (x, T::default())
    }
}

#[test]
fn arguments_are_recorded_with_the_types_that_the_call_gives_them() {
    let folder = tempfile::tempdir().unwrap();
    let device = Device::flex();
    let model = Caller {
        options: Options {
            fc: nn::LinearConfig::new(4, 4).init(&device),
        },
    };
    let session = Session::builder(folder.path()).start().unwrap();
    session.attach("Caller", &model);
    session.run(|| {
        let x = model.forward(Tensor::ones([1, 4], &device));
        assert_eq!(model.forward_as::<u8>(x).1, 0);
    });
    let trace = session.finish().unwrap();
    let inputs = trace.roots[0].children[0].inputs.as_ref().unwrap();
    assert_eq!(text(&inputs.args[1]), "None");
    assert_eq!(text(&inputs.args[3]), "7");
    let inputs = trace.roots[0].children[1].inputs.as_ref().unwrap();
    assert_eq!(text(&inputs.args[1]), "None");
    assert_eq!(text(&inputs.args[2]), "<closure>");
    assert_eq!(text(&inputs.args[3]), u64::MAX.to_string());
}
