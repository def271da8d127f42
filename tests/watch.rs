//! Watching a run where operations are not seen: the first call that makes a NaN or an infinity.

use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::{
    module::Module,
    nn,
    tensor::{Device, Tensor},
};
use burnscope::{
    NonFinite, Session, Watch,
    trace::{NonFiniteKind, Step, Trace},
};

/// Takes the logarithm of what its layer makes; `shift` decides whether it is positive.
#[derive(Module, Debug)]
struct Block {
    layer: nn::Linear,
    #[module(skip)]
    shift: f32,
}

#[burnscope::trace]
impl Block {
    fn forward(&self, x: Tensor<1>) -> Tensor<1> {
        (self.layer.forward(x).abs() + self.shift).log()
    }
}

#[derive(Module, Debug)]
struct Stack {
    blocks: Vec<Block>,
}

#[burnscope::trace]
impl Stack {
    fn forward(&self, mut x: Tensor<1>) -> Tensor<1> {
        for block in &self.blocks {
            x = block.forward(x);
        }
        x
    }
}

fn stack(shifts: [f32; 3]) -> Stack {
    let device = Device::flex();
    Stack {
        blocks: shifts
            .into_iter()
            .map(|shift| Block {
                layer: nn::LinearConfig::new(3, 3).init(&device),
                shift,
            })
            .collect(),
    }
}

fn watched(model: &Stack, x: [f32; 3]) -> (Watch, Trace) {
    let folder = tempfile::tempdir().unwrap();
    let session = Session::builder(folder.path()).start().unwrap();
    session.attach("Stack", model);
    let watch = session.watch(NonFinite::Report);
    session.run(|| model.forward(Tensor::from_floats(x, &Device::flex())));
    (watch, session.finish().unwrap())
}

#[test]
fn the_innermost_guilty_call_is_told_and_not_what_is_around_or_after_it() {
    // The second block's logarithm is of a negative number; the third passes the NaN on.
    let model = stack([1.0, -1e6, 1.0]);
    let (watch, trace) = watched(&model, [1.0; 3]);
    let first = watch.first().unwrap();
    assert_eq!(first.step, Step::Call);
    assert_eq!(first.made, NonFiniteKind::Nan);
    assert_eq!(first.path.as_deref(), Some("Stack.blocks.1"));
    assert_eq!(first.name, "forward");
    assert_eq!(first.number, trace.roots[0].children[1].order);
    assert_eq!(first.outputs[0].summary.as_ref().unwrap().nan, 3);
    let note = trace
        .notes
        .iter()
        .find(|note| note.contains("the first NaN"));
    let note = note.unwrap_or_else(|| panic!("{:?}", trace.notes));
    for part in [
        "Stack.blocks.1.forward",
        "3 NaN of 3",
        "Operations are not seen",
    ] {
        assert!(note.contains(part), "{note}");
    }
}

#[test]
fn the_library_module_within_is_told_where_it_is_the_one() {
    let mut model = stack([1.0; 3]);
    let device = Device::flex();
    model.blocks[2].layer.weight =
        burn::module::Param::from_tensor(Tensor::full([3, 3], f32::MAX, &device));
    // Of positive numbers, so that the sum overflows.
    let (watch, _) = watched(&model, [1e3; 3]);
    let first = watch.first().unwrap();
    assert_eq!(first.path.as_deref(), Some("Stack.blocks.2.layer"));
}

#[test]
fn a_nan_that_was_given_is_nobodys_fault() {
    let (watch, trace) = watched(&stack([1.0; 3]), [f32::NAN, 1.0, 1.0]);
    assert_eq!(watch.first(), None);
    assert!(
        trace
            .notes
            .iter()
            .any(|note| note.contains("no operation or call"))
    );
}

#[test]
fn a_stopped_run_panics_where_the_call_returns() {
    let model = stack([1.0, -1e6, 1.0]);
    let folder = tempfile::tempdir().unwrap();
    let session = Session::builder(folder.path()).start().unwrap();
    session.attach("Stack", &model);
    let watch = session.watch(NonFinite::Stop);
    let x = Tensor::from_floats([1.0; 3], &Device::flex());
    let run = || session.run(|| model.forward(x));
    let panic = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
    let text = panic.downcast_ref::<String>().unwrap();
    assert!(text.contains("burnscope stopped the run"), "{text}");
    assert!(text.contains("Stack.blocks.1.forward"), "{text}");
    assert!(watch.first().is_some());
    let trace = session.finish().unwrap();
    assert!(!trace.complete);
    assert_eq!(trace.roots[0].children.len(), 2);
    assert_eq!(
        watch.first().unwrap().path.as_deref(),
        Some("Stack.blocks.1")
    );
}

#[test]
fn a_session_that_nobody_watches_says_nothing_of_it() {
    let model = stack([1.0, -1e6, 1.0]);
    let folder = tempfile::tempdir().unwrap();
    let session = Session::builder(folder.path()).start().unwrap();
    session.run(|| model.forward(Tensor::from_floats([1.0; 3], &Device::flex())));
    assert_eq!(session.finish().unwrap().notes, Vec::<String>::new());
}
