//! The first operation that makes a NaN or an infinity: which one it is, what is told of it, and the stop.

use std::time::{Duration, Instant};

use burn::{
    module::{Module, Param},
    nn,
    tensor::{Bool, Device, Tensor},
};
use burnscope::{
    NonFinite, Session, Watch,
    trace::{FirstNonFinite, NonFiniteKind, Step, Trace},
};

use super::support::device;

/// A module whose logarithm meets what its scale makes of the input.
#[derive(Module, Debug)]
struct Scaled {
    scale: Param<Tensor<1>>,
}

#[burnscope::trace]
impl Scaled {
    fn forward(&self, x: Tensor<1>) -> Tensor<1> {
        (x * self.scale.val()).log()
    }
}

#[derive(Module, Debug)]
struct Net {
    first: nn::Linear,
    second: Scaled,
}

#[burnscope::trace]
impl Net {
    fn forward(&self, x: Tensor<2>) -> Tensor<1> {
        let x = self.first.forward(x).abs() + 1.0;
        let x = self.second.forward(x.reshape([4]));
        x.exp() * 2.0
    }
}

fn net(device: &Device, scale: [f32; 4]) -> Net {
    Net {
        first: nn::LinearConfig::new(2, 2).init(device),
        second: Scaled {
            scale: Param::from_tensor(Tensor::from_floats(scale, device)),
        },
    }
}

fn watched<R>(run: impl FnOnce(&Session) -> R) -> (R, Watch, Trace) {
    let folder = tempfile::tempdir().unwrap();
    let session = Session::builder(folder.path()).start().unwrap();
    let watch = session.watch(NonFinite::Report);
    let result = run(&session);
    let trace = session.finish().unwrap();
    (result, watch, trace)
}

/// The first fault of operations without a model.
fn first<R>(run: impl FnOnce() -> R) -> Option<FirstNonFinite> {
    watched(|session| session.run(run)).1.first()
}

#[test]
fn the_first_guilty_operation_is_told_with_its_module_and_its_tensors() {
    let Some(device) = device() else { return };
    let model = net(&device, [1.0, 2.0, -1.0, 3.0]);
    let x = Tensor::<2>::ones([2, 2], &device);
    let (_, watch, trace) = watched(|session| {
        session.attach("Net", &model);
        session.run(|| model.forward(x.clone()));
    });
    let first = watch.first().expect("the logarithm of a negative number");
    assert_eq!(first.step, Step::Operation);
    assert_eq!(first.made, NonFiniteKind::Nan);
    assert_eq!(
        (first.name.as_str(), first.path.as_deref()),
        ("Log", Some("Net.second"))
    );
    assert_eq!(first.not_judged, 0);
    let [read] = first.inputs.as_slice() else {
        panic!("{first:?}")
    };
    let read = read.summary.as_ref().unwrap();
    assert_eq!((read.count, read.nan), (4, 0));
    let made = first.outputs[0].summary.as_ref().unwrap();
    assert_eq!(
        (made.nan, made.pos_inf, made.first_non_finite),
        (1, 0, Some(2))
    );
    // The number is the operation's in the trace.
    let second = &trace.roots[0].children[1];
    assert_eq!(second.path, "Net.second");
    let log = second.ops.iter().find(|op| op.name == "Log").unwrap();
    assert_eq!(log.order, first.number);
    // And it is told in words.
    let note = trace
        .notes
        .iter()
        .find(|note| note.contains("the first NaN"));
    let note = note.unwrap_or_else(|| panic!("{:?}", trace.notes));
    for part in [
        "Log in Net.second",
        "1 NaN of 4",
        &format!("operation {}", first.number),
    ] {
        assert!(note.contains(part), "{note}");
    }
}

#[test]
fn a_sound_run_is_said_to_be_so() {
    let Some(device) = device() else { return };
    let model = net(&device, [1.0, 2.0, 1.0, 3.0]);
    let x = Tensor::<2>::ones([2, 2], &device);
    let (_, watch, trace) = watched(|session| {
        session.attach("Net", &model);
        session.run(|| model.forward(x.clone()));
    });
    assert_eq!(watch.first(), None);
    assert!(
        trace
            .notes
            .iter()
            .any(|note| note.contains("no operation or call"))
    );
}

/// What was there before the session and what a parameter holds is known to be finite or not.
#[test]
fn a_nan_that_came_in_is_not_the_fault_of_what_reads_it() {
    let Some(device) = device() else { return };
    let x = Tensor::<2>::from_floats([[1.0, f32::NAN], [1.0, 1.0]], &device);
    let model = net(&device, [1.0; 4]);
    assert_eq!(first(|| (x.clone() + 1.0).reshape([4]).exp()), None);

    let broken = net(&device, [1.0, f32::INFINITY, 1.0, 1.0]);
    let x = Tensor::<2>::ones([2, 2], &device);
    let (_, watch, _) = watched(|session| {
        session.attach("Net", &broken);
        session.run(|| broken.forward(x.clone()));
    });
    assert_eq!(watch.first(), None);

    let (_, watch, _) = watched(|session| {
        session.attach("Net", &model);
        session.run(|| model.second.forward(Tensor::from_floats([0.0; 4], &device)));
    });
    let first = watch.first().unwrap();
    assert_eq!(
        (first.made, first.name.as_str()),
        (NonFiniteKind::Infinity, "Log")
    );
    assert_eq!(first.outputs[0].summary.as_ref().unwrap().neg_inf, 4);
}

#[test]
fn a_mask_of_infinities_is_no_fault_and_a_row_masked_as_a_whole_is() {
    let Some(device) = device() else { return };
    let scores = Tensor::<2>::ones([2, 3], &device);
    let attend = |mask: [[bool; 3]; 2]| {
        let mask = Tensor::<2, Bool>::from_data(mask, &device);
        let scores = scores.clone() * 0.5;
        let masked = scores.mask_fill(mask, f32::NEG_INFINITY);
        let shifted = masked.clone() - masked.max_dim(1);
        let exp = shifted.exp();
        exp.clone() / exp.sum_dim(1)
    };
    let ordinary = [[false, true, true], [false, false, true]];
    assert_eq!(first(|| attend(ordinary)), None);
    let whole = [[false, true, true], [true, true, true]];
    let guilty = first(|| attend(whole)).expect("a row of infinities less its maximum");
    assert_eq!(
        (guilty.made, guilty.name.as_str()),
        (NonFiniteKind::Nan, "Sub")
    );
    assert_eq!(guilty.outputs[0].summary.as_ref().unwrap().nan, 3);
}

#[test]
fn what_creates_a_tensor_is_given_its_values() {
    let Some(device) = device() else { return };
    let found = first(|| {
        let full = Tensor::<1>::full([3], f32::INFINITY, &device);
        let data = Tensor::<1>::from_floats([f32::NAN, 1.0], &device);
        (full + 1.0, data * 2.0)
    });
    assert_eq!(found, None);
}

/// The parts of a tensor are judged by their own numbers or by those of the whole.
#[test]
fn views_of_finite_tensors_are_finite() {
    let Some(device) = device() else { return };
    let x = Tensor::<2>::from_floats([[1.0, 2.0, 3.0], [4.0, 5.0, 0.0]], &device);
    let found = first(|| {
        let made = x.clone() * 2.0;
        made.swap_dims(0, 1).slice(1..3).reshape([4]).recip()
    });
    let found = found.expect("the reciprocal of zero");
    assert_eq!(
        (found.made, found.name.as_str()),
        (NonFiniteKind::Infinity, "Recip")
    );
}

#[test]
fn threads_have_their_own_order_and_the_first_of_all_is_found() {
    let Some(device) = device() else { return };
    let (_, watch, _) = watched(|session| {
        std::thread::scope(|scope| {
            let device = &device;
            scope.spawn(move || session.run(|| (Tensor::<1>::ones([2], device) * 3.0).to_data()));
            scope.spawn(move || session.run(|| (Tensor::<1>::zeros([2], device)).log().to_data()));
        });
    });
    assert_eq!(watch.first().unwrap().name, "Log");
}

/// Runs steps, each read back as a program does, until one gives an error.
fn step_until_stopped(session: &Session, device: &Device) -> (String, usize) {
    let begun = Instant::now();
    let mut x = Tensor::<1>::ones([8], device);
    for step in 0.. {
        let read = session.run(|| {
            for _ in 0..40 {
                x = x.clone() * 1.0;
            }
            // Infinite from the third step on.
            let y = x.clone() / if step < 2 { 1.0 } else { 0.0 };
            (y + 1.0).try_into_data()
        });
        if let Err(error) = read {
            return (error.to_string(), step);
        }
        assert!(begun.elapsed() < Duration::from_secs(120), "never stopped");
    }
    unreachable!()
}

#[test]
fn a_stopped_run_ends_with_an_error_that_names_the_operation() {
    let Some(device) = device() else { return };
    let folder = tempfile::tempdir().unwrap();
    let session = Session::builder(folder.path()).start().unwrap();
    let watch = session.watch(NonFinite::Stop);
    let (error, steps) = step_until_stopped(&session, &device);
    assert!(steps >= 2, "{steps}: {error}");
    let first = watch.first().expect("known before the end");
    assert_eq!(
        (first.made, first.name.as_str()),
        (NonFiniteKind::Infinity, "DivScalar")
    );
    let text = error;
    for part in [
        "burnscope stopped the run",
        "DivScalar",
        &format!("operation {}", first.number),
    ] {
        assert!(text.contains(part), "{text}");
    }
    // Whatever is no part of the session's runs goes on, also what the run left behind.
    let outside = Tensor::<1>::ones([3], &device) * 2.0;
    assert_eq!(outside.into_data().try_to_vec::<f32>().unwrap(), [2.0; 3]);
    let other_folder = tempfile::tempdir().unwrap();
    let other = Session::builder(other_folder.path()).start().unwrap();
    let theirs = other.run(|| (Tensor::<1>::ones([3], &device) * 4.0).into_data());
    assert_eq!(theirs.try_to_vec::<f32>().unwrap(), [4.0; 3]);
    other.finish().unwrap();
    // No run of the stopped session does.
    let again = session.run(|| (Tensor::<1>::ones([3], &device) * 2.0).try_into_data());
    assert!(again.is_err());
    let trace = session.finish().unwrap();
    assert!(
        trace
            .notes
            .iter()
            .any(|note| note.contains("stopped the run"))
    );
    assert_eq!(watch.first().unwrap().number, first.number);
}

#[test]
fn a_stopped_model_is_told_its_module() {
    let Some(device) = device() else { return };
    let model = net(&device, [1.0, 2.0, -1.0, 3.0]);
    let x = Tensor::<2>::ones([2, 2], &device);
    let folder = tempfile::tempdir().unwrap();
    let session = Session::builder(folder.path()).start().unwrap();
    session.attach("Net", &model);
    session.watch(NonFinite::Stop);
    let begun = Instant::now();
    let error = loop {
        if let Err(error) = session.run(|| model.forward(x.clone()).try_into_data()) {
            break error.to_string();
        }
        assert!(begun.elapsed() < Duration::from_secs(120), "never stopped");
    };
    assert!(error.contains("Log in Net.second"), "{error}");
    session.finish().unwrap();
}

#[test]
fn a_model_without_annotation_is_told_its_module_at_the_end() {
    let Some(device) = device() else { return };
    let model = nn::LinearConfig::new(2, 2).init(&device);
    let mut broken = model.clone();
    // The largest f32 twice overflows in the matrix product.
    broken.weight = Param::from_tensor(Tensor::full([2, 2], f32::MAX, &device));
    let x = Tensor::<2>::ones([1, 2], &device);
    let (_, watch, _) = watched(|session| {
        session.attach("Linear", &broken);
        session.run(|| broken.forward(x.clone()));
    });
    let first = watch.first().unwrap();
    assert_eq!(first.made, NonFiniteKind::Infinity);
    assert_eq!(
        (first.name.as_str(), first.path.as_deref()),
        ("Matmul", Some("Linear"))
    );
    let weight = first.inputs.iter().find(|input| input.parameter.is_some());
    let weight = weight.unwrap_or_else(|| panic!("{first:?}"));
    assert_eq!(weight.parameter.as_deref(), Some("Linear.weight"));
    assert!(weight.summary.is_some());
}

/// Files of tensors that are never made would otherwise keep the room that later ones wait for.
#[test]
fn a_stopped_run_does_not_wait_for_files_of_tensors_that_are_never_made() {
    let Some(device) = device() else { return };
    let (sender, stopped) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let model = net(&device, [1.0, 2.0, -1.0, 3.0]);
        let folder = tempfile::tempdir().unwrap();
        let session = Session::builder(folder.path())
            .dump(burnscope::Dump::Safetensors)
            .dump_memory(64)
            .start()
            .unwrap();
        session.attach("Net", &model);
        session.watch(NonFinite::Stop);
        let mut refused = 0;
        while refused < 10 {
            let x = Tensor::<2>::ones([2, 2], &device);
            let result = session.run(|| model.forward(x).try_into_data());
            refused += usize::from(result.is_err());
        }
        let trace = session.finish().expect("what was not made is no error");
        sender.send(trace.notes).unwrap();
    });
    let notes = stopped.recv_timeout(Duration::from_secs(120));
    let notes = notes.expect("it waits for ever");
    let told = |note: &String| note.contains("have no file") && note.contains("did not run");
    assert!(notes.iter().any(told), "{notes:?}");
}
