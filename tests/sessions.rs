//! A session keeps every tensor once, every call, and its promises about budgets, panics and gradients.

#![cfg(feature = "flex")]

use std::path::Path;

use burn::{
    module::{Module, Param},
    nn,
    tensor::{Bool, DType, Device, Int, Tensor, quantization::QuantScheme},
};
use burnscope::{
    Dump, Session, format,
    summary::{DType as Kind, Number},
    trace::{Node, TensorRecord, TensorValue, Trace, Value},
};

#[derive(Module, Debug)]
struct Net {
    fc: nn::Linear,
}

#[burnscope::trace]
impl Net {
    fn new(device: &Device) -> Self {
        Self {
            fc: nn::LinearConfig::new(3, 3).init(device),
        }
    }

    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        self.fc.forward(x)
    }

    /// Hands every kind of tensor to the recorder.
    fn forward_kinds(
        &self,
        floats: Vec<Tensor<2>>,
        ints: Vec<Tensor<1, Int>>,
        flags: Tensor<3, Bool>,
    ) -> Tensor<1> {
        let _ = (floats, ints, flags);
        Tensor::from_data([7.0], &self.fc.weight.val().device())
    }

    fn forward_in_place(&self, x: Tensor<2>) -> Tensor<2> {
        // The only owner: Flex may add in place.
        let y = self.forward_same(x);
        let y = y.add_scalar(1.0);
        self.forward_same(y)
    }

    fn forward_same(&self, x: Tensor<2>) -> Tensor<2> {
        x
    }

    async fn forward_pending(&self, x: Tensor<2>) -> Tensor<2> {
        std::future::pending::<()>().await;
        x
    }

    fn forward_panic(&self, x: Tensor<2>) -> Tensor<2> {
        let y = self.fc.forward(x);
        assert!(y.dims()[0] > 1, "one row is not enough");
        y
    }
}

fn tensors(value: &Value) -> Vec<TensorRecord> {
    value.tensors().into_iter().cloned().collect()
}

fn named(node: &Node, name: &str) -> Vec<TensorRecord> {
    let inputs = node.inputs.as_ref().unwrap();
    let (_, value) = inputs.kwargs.iter().find(|(key, _)| key == name).unwrap();
    tensors(value)
}

fn session(folder: &Path, net: &Net) -> Session {
    let session = Session::builder(folder).start().unwrap();
    session.attach("Net", net);
    session
}

#[test]
fn tensors_of_every_dtype_are_summarised() {
    let folder = tempfile::tempdir().unwrap();
    let device = Device::flex();
    let net = Net::new(&device);
    let base = Tensor::<2>::from_data([[1.0, -2.0], [0.0, 4.0]], &device);
    let floats: Vec<Tensor<2>> = [DType::F64, DType::F32, DType::F16, DType::BF16]
        .map(|dtype| base.clone().cast(dtype))
        .to_vec();
    let quantized = base.clone().quantize_dynamic(&QuantScheme::default());
    let empty = Tensor::<2>::empty([0, 3], &device);
    let broken =
        Tensor::<2>::from_data([[1.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY]], &device);
    let int = Tensor::<1, Int>::from_data([3, 0, -5], &device);
    let ints: Vec<Tensor<1, Int>> = [DType::I64, DType::I32, DType::I16, DType::I8]
        .map(|dtype| int.clone().cast(dtype))
        .to_vec();
    let flags = Tensor::<3, Bool>::from_data([[[true, false, true]]], &device);

    let session = session(folder.path(), &net);
    session.run(|| {
        net.forward_kinds(
            [floats, vec![quantized, empty, broken]].concat(),
            ints,
            flags,
        )
    });
    let trace = session.finish().unwrap();
    let root = &trace.roots[0];

    let floats = named(root, "floats");
    let kinds = [Kind::F64, Kind::F32, Kind::F16, Kind::BF16];
    for (tensor, kind) in floats.iter().zip(kinds) {
        let summary = tensor.summary.as_ref().unwrap();
        assert_eq!(tensor.dtype, kind);
        assert_eq!((summary.count, summary.zeros), (4, 1));
        assert_eq!(summary.mean, Some(0.75));
        assert_eq!(summary.min, Some(Number::Float(-2.0)));
        // PyTorch's debugger prints statistics of these three types alone.
        assert_eq!(tensor.printed.is_some(), kind != Kind::F64, "{kind}");
    }
    let quantized = &floats[4];
    assert!(matches!(&quantized.dtype, Kind::Quantized(scheme) if !scheme.is_empty()));
    let mean = quantized.summary.as_ref().unwrap().mean.unwrap();
    assert!((mean - 0.75).abs() < 0.02, "{mean}");
    let empty = &floats[5];
    let summary = empty.summary.as_ref().unwrap();
    assert_eq!(
        (&empty.shape[..], summary.count, summary.mean, summary.min),
        (&[0, 3][..], 0, None, None)
    );
    assert!(empty.printed.is_none());
    let broken = floats[6].summary.as_ref().unwrap();
    assert_eq!((broken.nan, broken.pos_inf, broken.neg_inf), (1, 1, 1));
    assert_eq!(broken.first_non_finite, Some(1));
    assert!(broken.mean.unwrap().is_nan());

    for (tensor, kind) in
        named(root, "ints")
            .iter()
            .zip([Kind::I64, Kind::I32, Kind::I16, Kind::I8])
    {
        let summary = tensor.summary.as_ref().unwrap();
        assert_eq!(tensor.dtype, kind);
        assert_eq!(
            (summary.min, summary.max),
            (Some(Number::Int(-5)), Some(Number::Int(3)))
        );
    }
    let flags = &named(root, "flags")[0];
    assert_eq!(
        (&flags.dtype, flags.summary.as_ref().unwrap().zeros),
        (&Kind::Bool, 1)
    );
}

#[test]
fn a_tensor_changed_in_place_is_another_tensor() {
    let folder = tempfile::tempdir().unwrap();
    let device = Device::flex();
    let net = Net::new(&device);
    let session = session(folder.path(), &net);
    session.run(|| net.forward_in_place(Tensor::from_data([[1.0, 2.0, 3.0]], &device)));
    let trace = session.finish().unwrap();
    let root = &trace.roots[0];
    let before = named(&root.children[0], "x").remove(0);
    let after = named(&root.children[1], "x").remove(0);
    assert_ne!(before.id, after.id);
    assert_eq!(before.summary.unwrap().mean, Some(2.0));
    assert_eq!(after.summary.unwrap().mean, Some(3.0));
    // The same tensor under another name is not summarised again.
    assert_eq!(named(root, "x").remove(0).id, before.id);
}

#[test]
fn live_tensors_of_one_shape_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let device = Device::flex();
    let net = Net::new(&device);
    let session = session(folder.path(), &net);
    let kept: Vec<Tensor<2>> = (0..4)
        .map(|value| Tensor::full([1, 3], value as f32, &device))
        .collect();
    session.run(|| {
        for tensor in &kept {
            net.forward_same(tensor.clone());
        }
        // A view of the same memory in another layout.
        let wide = Tensor::<2>::from_data([[1.0, 2.0], [3.0, 5.0]], &device);
        net.forward_same(wide.clone());
        net.forward_same(wide.transpose());
    });
    let trace = session.finish().unwrap();
    let seen = |root: usize| named(&trace.roots[root], "x").remove(0);
    for value in 0..4 {
        assert_eq!(seen(value).summary.unwrap().mean, Some(value as f64));
    }
    assert_ne!(
        seen(4).summary.unwrap().checksum,
        seen(5).summary.unwrap().checksum
    );
}

#[test]
fn memory_used_again_is_not_taken_for_the_old_tensor() {
    let folder = tempfile::tempdir().unwrap();
    let device = Device::flex();
    let net = Net::new(&device);
    let session = session(folder.path(), &net);
    session.run(|| {
        for step in 0..200 {
            // Freed at once, so that the allocator hands the same address out again and again.
            net.forward_same(Tensor::full([1, 3], step as f32, &device));
        }
    });
    let trace = session.finish().unwrap();
    for (step, root) in trace.roots.iter().enumerate() {
        let mean = named(root, "x").remove(0).summary.unwrap().mean;
        assert_eq!(mean, Some(step as f64));
    }
}

#[test]
fn every_step_is_kept_in_every_file() {
    let folder = tempfile::tempdir().unwrap();
    let device = Device::flex();
    let net = Net::new(&device);
    let session = session(folder.path(), &net);
    session.run(|| {
        for step in 0..3 {
            net.forward(Tensor::full([1, 3], step as f32, &device));
        }
    });
    let trace = session.finish().unwrap();
    assert_eq!(trace.roots.len(), 3);
    let steps = |trace: &Trace| -> Vec<u64> { trace.roots.iter().map(|root| root.step).collect() };
    for file in [
        "Net.burnscope.jsonl",
        "Net_debug_tree_FULL_TENSORS.json",
        "Net_debug_tree_SUMMARY.json",
    ] {
        let read = format::read(folder.path().join(file)).unwrap();
        assert_eq!(steps(&read), [0, 1, 2], "{file}");
    }
    assert_eq!(format::read(folder.path()).unwrap(), trace);
}

#[test]
fn beyond_the_dump_budget_summaries_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let device = Device::flex();
    let net = Net::new(&device);
    let session = Session::builder(folder.path())
        .dump(Dump::Safetensors)
        .dump_budget(3 * 4 * 2)
        .start()
        .unwrap();
    session.attach("Net", &net);
    session.run(|| net.forward(Tensor::ones([1, 3], &device)));
    let trace = session.finish().unwrap();
    let root = &trace.roots[0];
    let all = [
        named(root, "x"),
        tensors(&root.children[0].inputs.as_ref().unwrap().args[0]),
        tensors(root.children[0].outputs.as_ref().unwrap()),
        tensors(root.outputs.as_ref().unwrap()),
    ]
    .concat();
    let files = all
        .iter()
        .filter(|tensor| matches!(tensor.value, Some(TensorValue::File(_))));
    assert_eq!(files.count(), 2);
    assert!(all.iter().all(|tensor| tensor.summary.is_some()));
    assert!(
        trace
            .notes
            .iter()
            .any(|note| note.contains("2 tensors have a summary but no file")),
        "{:?}",
        trace.notes
    );
    let written = std::fs::read_dir(folder.path()).unwrap();
    let written = written.filter(|entry| {
        let name = entry.as_ref().unwrap().file_name();
        name.to_string_lossy().ends_with(".safetensors")
    });
    assert_eq!(written.count(), 2);
}

#[test]
fn a_panic_leaves_valid_files_marked_incomplete() {
    let folder = tempfile::tempdir().unwrap();
    let device = Device::flex();
    let net = Net::new(&device);
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        // The session itself is dropped by the panic.
        let session = session(folder.path(), &net);
        session.run(|| net.forward_panic(Tensor::ones([1, 3], &device)));
        session.finish().unwrap()
    }));
    assert!(outcome.is_err());
    for file in [
        "Net.burnscope.jsonl",
        "Net_debug_tree_FULL_TENSORS.json",
        "Net_debug_tree_SUMMARY.json",
    ] {
        let trace = format::read(folder.path().join(file)).unwrap();
        assert!(!trace.complete && !trace.roots[0].complete, "{file}");
        assert!(trace.roots[0].children[0].complete, "{file}");
    }
}

#[test]
fn the_record_of_a_process_that_dies_is_readable() {
    let folder = tempfile::tempdir().unwrap();
    let device = Device::flex();
    let net = Net::new(&device);
    let session = session(folder.path(), &net);
    session.run(|| net.forward(Tensor::ones([1, 3], &device)));
    // As an abort would: nothing is closed, nothing is written at the end.
    std::mem::forget(session);
    let trace = format::read(folder.path()).unwrap();
    assert!(!trace.complete);
    assert_eq!(trace.roots[0].children[0].path, "Net.fc");
    assert!(trace.roots[0].outputs.is_some());
}

#[cfg(feature = "autodiff")]
#[test]
fn gradients_are_off_unless_asked_for() {
    let device = Device::flex().autodiff();
    let net = Net::new(&device);
    let run = |gradients: bool| {
        let folder = tempfile::tempdir().unwrap();
        let session = Session::builder(folder.path())
            .gradients(gradients)
            .start()
            .unwrap();
        session.attach("Net", &net);
        let output = session.run(|| net.forward(Tensor::ones([1, 3], &device)));
        let trace = session.finish().unwrap();
        assert_eq!(trace.roots.len(), 1);
        assert_eq!(trace.roots[0].children[0].path, "Net.fc");
        assert!(
            tensors(trace.roots[0].outputs.as_ref().unwrap())[0]
                .summary
                .is_some()
        );
        output
    };
    let weight = |output: Tensor<2>| {
        let gradients = output.sum().backward();
        net.fc.weight.val().grad(&gradients)
    };
    assert!(weight(run(true)).is_some());
    // Burn refuses to go backward from a tensor that no gradient reaches.
    let output = run(false);
    let backward = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| weight(output)));
    assert!(!matches!(backward, Ok(Some(_))));
}

#[test]
fn attaching_leaves_lazy_parameters_alone() {
    let folder = tempfile::tempdir().unwrap();
    let net = Net::new(&Device::flex());
    let session = session(folder.path(), &net);
    drop(session);
    let weight: &Param<Tensor<2>> = &net.fc.weight;
    assert!(!weight.is_initialized());
}

#[test]
fn guards_may_be_dropped_in_any_order() {
    let folder = tempfile::tempdir().unwrap();
    let device = Device::flex();
    let net = Net::new(&device);
    let first = session(&folder.path().join("first"), &net);
    let second = session(&folder.path().join("second"), &net);
    let first_guard = first.enter();
    let second_guard = second.enter();
    drop(first_guard);
    net.forward(Tensor::ones([1, 3], &device));
    drop(second_guard);
    net.forward(Tensor::ones([1, 3], &device));
    assert_eq!(first.finish().unwrap().roots.len(), 0);
    assert_eq!(second.finish().unwrap().roots.len(), 1);
}

#[test]
fn a_call_that_outlives_its_session_does_not_touch_the_files() {
    let folder = tempfile::tempdir().unwrap();
    let device = Device::flex();
    let net = Net::new(&device);
    let session = session(folder.path(), &net);
    let guard = session.enter();
    // Still waiting when the session ends.
    let mut pending = Box::pin(net.forward_pending(Tensor::ones([1, 3], &device)));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(pending.as_mut().poll(&mut context).is_pending());
    drop(guard);
    let trace = session.finish().unwrap();
    assert!(!trace.complete);
    let record = folder.path().join("Net.burnscope.jsonl");
    let before = std::fs::read(&record).unwrap();
    drop(pending);
    assert_eq!(std::fs::read(&record).unwrap(), before);
}

#[test]
fn threads_of_a_pool_share_a_session_without_waiting_for_each_other() {
    use rayon::prelude::*;
    let folder = tempfile::tempdir().unwrap();
    let device = Device::flex();
    let net = Net::new(&device);
    let session = session(folder.path(), &net);
    // Large enough for the summary to use the same pool.
    (0..8).into_par_iter().for_each(|_| {
        session.run(|| net.forward_same(Tensor::ones([1000, 3000], &device)));
    });
    assert_eq!(session.finish().unwrap().roots.len(), 8);
}
