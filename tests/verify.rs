//! A session proves that tracing changed nothing, and tells what changed where something did.

use std::cell::Cell;

use burn::{
    module::Module,
    nn,
    tensor::{Device, Int, Tensor},
};
use burnscope::{
    Session,
    capture::{Differs, Verification},
};

#[derive(Module, Debug)]
struct Net {
    fc: nn::Linear,
}

#[burnscope::trace]
impl Net {
    fn forward(&self, x: Tensor<2>) -> (Tensor<2>, Tensor<1, Int>) {
        let x = self.fc.forward(x);
        (x.clone(), x.argmax(1).flatten(0, 1))
    }
}

fn verify<R: burnscope::capture::Traced>(
    run: impl FnMut() -> R,
) -> (Verification, burnscope::trace::Trace) {
    let folder = tempfile::tempdir().unwrap();
    let session = Session::builder(folder.path()).start().unwrap();
    let verification = session.verify(run);
    (verification, session.finish().unwrap())
}

#[test]
fn a_traced_run_is_the_same_and_the_trace_says_so() {
    let device = Device::flex();
    let net = Net {
        fc: nn::LinearConfig::new(5, 7).init(&device),
    };
    let x = Tensor::<2>::ones([3, 5], &device);
    let (verification, trace) = verify(|| net.forward(x.clone()));
    assert!(verification.changed_nothing(), "{verification}");
    assert_eq!(verification.tracing.outputs, 2);
    assert_eq!((verification.itself, verification.one_by_one), (None, None));
    // One of the two runs is in the trace.
    assert_eq!(trace.roots.len(), 1);
    assert!(
        trace
            .notes
            .iter()
            .any(|note| note.starts_with("verified: 2 outputs"))
    );
}

/// The closure cannot tell the runs apart but by counting them, as code that tracing changes would.
#[test]
fn what_tracing_changes_is_told_with_its_size() {
    let device = Device::flex();
    let runs = Cell::new(0);
    let (verification, trace) = verify(|| {
        runs.set(runs.get() + 1);
        let traced = runs.get() == 2;
        let wrong = if traced { 0.5 } else { 0.0 };
        let x = Tensor::<1>::from_floats([1.0, 2.0, 4.0 + wrong], &device);
        (x, "same", traced)
    });
    assert_eq!(runs.get(), 3);
    assert!(!verification.changed_nothing());
    assert!(!verification.differs_from_itself());
    let [tensor, text] = verification.tracing.differences.as_slice() else {
        panic!("{verification:?}")
    };
    assert_eq!(
        (tensor.output.as_str(), text.output.as_str()),
        ("output.0", "output.2")
    );
    let expected = Differs::Elements {
        count: 3,
        different: 1,
        largest_absolute: 0.5,
        largest_relative: 0.5 / 4.5,
    };
    assert_eq!(tensor.how, expected);
    let note = trace
        .notes
        .iter()
        .find(|note| note.contains("tracing changed"));
    let note = note.unwrap_or_else(|| panic!("{:?}", trace.notes));
    assert!(
        note.contains("output.0 differs in 1 of 3 elements"),
        "{note}"
    );
}

#[test]
fn shapes_and_what_is_missing_are_told() {
    let device = Device::flex();
    let runs = Cell::new(0);
    let (verification, _) = verify(|| {
        runs.set(runs.get() + 1);
        let size = if runs.get() == 2 { 2 } else { 3 };
        vec![Tensor::<1>::ones([size], &device); size]
    });
    let how: Vec<_> = verification
        .tracing
        .differences
        .iter()
        .map(|it| &it.how)
        .collect();
    assert_eq!(how.len(), 3);
    assert!(
        matches!(how[0], Differs::Kind { first, second } if first == "[3] f32" && second == "[2] f32")
    );
    assert_eq!(how[2], &Differs::Missing);
}

#[test]
fn a_model_that_differs_from_itself_is_not_blamed_on_tracing() {
    let device = Device::flex();
    let runs = Cell::new(0.0f32);
    let (verification, _) = verify(|| {
        runs.set(runs.get() + 1.0);
        Tensor::<1>::from_floats([runs.get()], &device)
    });
    assert!(!verification.changed_nothing());
    assert!(verification.differs_from_itself());
    assert!(verification.to_string().contains("differs from itself"));
}

#[test]
fn the_untraced_run_is_untraced_within_a_run_too() {
    let device = Device::flex();
    let net = Net {
        fc: nn::LinearConfig::new(2, 2).init(&device),
    };
    let x = Tensor::<2>::ones([1, 2], &device);
    let folder = tempfile::tempdir().unwrap();
    let session = Session::builder(folder.path()).start().unwrap();
    session.run(|| {
        session.verify(|| net.forward(x.clone()));
        net.forward(x.clone());
    });
    assert_eq!(session.finish().unwrap().roots.len(), 2);
}
