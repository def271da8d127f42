//! What is recorded of operations: all of them, their order, operands, scalars and summaries.

use burn::tensor::{Bool, DType, Device, Distribution, Int, Tensor, TensorData};
use burnscope::{
    Dump,
    format::torch_repr,
    summary::{self, TensorView},
    trace::TensorValue,
};

use super::{
    summaries::assert_agrees,
    support::{device, names, record, record_with, result},
};

fn host_summary(data: &TensorData, dtype: summary::DType) -> summary::Summary {
    let view = TensorView::contiguous(dtype, data.shape().as_slice(), data.as_bytes()).unwrap();
    summary::summarise(&view)
}

#[test]
fn every_operation_is_recorded_in_program_order_and_the_data_can_be_followed() {
    let Some(device) = device() else { return };
    let x = Tensor::<2>::random([4, 6], Distribution::Normal(0.0, 1.0), &device);
    let w = Tensor::<2>::random([6, 3], Distribution::Normal(0.0, 1.0), &device);
    let (out, trace) = record(|| {
        let product = x.clone().matmul(w.clone());
        let scaled = product * 0.5 + 2.0;
        scaled.exp().sum_dim(1)
    });
    assert_eq!(
        names(&trace),
        ["Matmul", "MulScalar", "AddScalar", "Exp", "SumDim"]
    );
    let ops = trace.operations();
    for pair in ops.windows(2) {
        assert_eq!(Some(pair[1].inputs[0].id), pair[0].outputs[0].tensor.id);
        assert_eq!(pair[1].order, pair[0].order + 1);
    }
    assert_eq!(ops[1].scalars, [("rhs".to_owned(), "0.5".to_owned())]);
    assert_eq!(ops[4].scalars, [("axis".to_owned(), "1".to_owned())]);
    assert!(ops.iter().all(|op| op.stream == 0 && !op.backward));
    assert!(ops.iter().all(|op| op.device == ops[0].device));
    let last = ops[4].outputs[0].tensor.summary.as_ref().unwrap();
    assert_agrees(last, &host_summary(&out.to_data(), summary::DType::F32));
}

#[test]
fn nothing_is_recorded_outside_a_run() {
    let Some(device) = device() else { return };
    let folder = tempfile::tempdir().unwrap();
    let session = burnscope::Session::builder(folder.path()).start().unwrap();
    let before = Tensor::<1>::ones([3], &device) + 1.0;
    let inside = session.run(|| before.clone() * 2.0);
    let after = inside.clone() / 2.0;
    assert_eq!(after.to_data(), before.to_data());
    let trace = session.finish().unwrap();
    assert_eq!(names(&trace), ["MulScalar"]);
}

/// As many operations as a program has, and the numbers of every one.
#[test]
fn none_of_a_thousand_operations_is_lost() {
    let Some(device) = device() else { return };
    let x = Tensor::<1>::ones([7], &device);
    let (_, trace) = record(|| {
        let mut y = x.clone();
        for _ in 0..1000 {
            y = y + 1.0;
        }
        y
    });
    let ops = trace.operations();
    assert_eq!(ops.len(), 1000);
    for (index, op) in ops.iter().enumerate() {
        let summary = op.outputs[0].tensor.summary.as_ref().unwrap();
        assert_eq!(summary.mean, Some(index as f64 + 2.0));
    }
}

/// The host has the numbers of an operation in place even though its operand's memory is gone.
#[test]
fn an_operation_in_place_changes_no_earlier_summary() {
    let Some(device) = device() else { return };
    let x = Tensor::<1>::ones([5], &device);
    let (_, trace) = record(move || {
        let mut y = x * 3.0;
        for _ in 0..4 {
            y = y * 2.0;
        }
        y
    });
    let means: Vec<f64> = trace
        .operations()
        .iter()
        .map(|op| op.outputs[0].tensor.summary.as_ref().unwrap().mean.unwrap())
        .collect();
    assert_eq!(means, [3.0, 6.0, 12.0, 24.0, 48.0]);
}

#[test]
fn what_only_relabels_memory_says_so_and_is_not_summarised_again() {
    let Some(device) = device() else { return };
    let x = Tensor::<2>::random([4, 6], Distribution::Default, &device);
    let (_, trace) = record(|| {
        let made = x.clone() + 1.0;
        let reshaped = made.clone().reshape([2, 12]);
        let swapped = made.clone().swap_dims(0, 1);
        let sliced = made.clone().slice(0..2);
        let expanded = made.clone().reshape([4, 6, 1]).expand([4, 6, 5]);
        (reshaped * 2.0, swapped, sliced, expanded)
    });
    let made = result(&trace, "AddScalar");
    let (swapped, sliced) = (result(&trace, "SwapDims"), result(&trace, "Slice"));
    assert_eq!(made.alias_of, None);
    assert_eq!(swapped.alias_of, made.tensor.id);
    assert_eq!(swapped.tensor.summary, None);
    assert_eq!(swapped.tensor.not_summarised, None);
    let ops = trace.operations();
    let reshaped = ops.iter().find(|op| op.name == "Reshape").unwrap();
    assert_eq!(reshaped.outputs[0].alias_of, made.tensor.id);
    // The same elements in the same order: the numbers are known.
    assert_eq!(reshaped.outputs[0].tensor.summary, made.tensor.summary);
    assert!(made.tensor.summary.is_some());
    // A slice of padded rows may be a copy: then it has its own numbers.
    assert_eq!(sliced.alias_of.is_some(), sliced.tensor.summary.is_none());
    assert_eq!(result(&trace, "Expand").tensor.summary, None);
    assert_eq!(result(&trace, "MulScalar").alias_of, None);
}

#[test]
fn summaries_of_every_kind_agree_with_the_host() {
    let Some(device) = device() else { return };
    let floats = Tensor::<2>::random([33, 70], Distribution::Normal(3.0, 2.0), &device);
    let (out, trace) = record(|| {
        let padded = floats.clone() + 1.0;
        let ints: Tensor<2, Int> = (floats.clone() * 10.0).int();
        let mask: Tensor<2, Bool> = floats.clone().greater_elem(3.0);
        let half = floats.clone().cast(DType::F16);
        (padded, ints, mask, half)
    });
    let (padded, ints, mask, half) = out;
    let cases = [
        ("AddScalar", padded.to_data(), summary::DType::F32),
        ("IntoInt", ints.to_data(), summary::DType::I32),
        ("Cast", half.to_data(), summary::DType::F16),
        (
            "GreaterElem",
            mask.to_data()
                .convert_dtype(DType::Bool(burn::tensor::BoolStore::Native)),
            summary::DType::Bool,
        ),
    ];
    for (name, data, dtype) in cases {
        let tensor = &result(&trace, name).tensor;
        assert_eq!(tensor.dtype, dtype, "{name}");
        let ours = tensor.summary.as_ref();
        let ours = ours.unwrap_or_else(|| panic!("{name}: {:?}", tensor.not_summarised));
        assert_agrees(ours, &host_summary(&data, dtype));
    }
}

#[test]
fn quantised_tensors_have_the_numbers_of_the_values_they_stand_for() {
    use burn::tensor::quantization::{QuantScheme, QuantValue};
    let Some(device) = device() else { return };
    let x = Tensor::<2>::random([8, 32], Distribution::Normal(0.0, 1.0), &device);
    let scheme = QuantScheme::default().with_value(QuantValue::Q8S);
    let (back, trace) = record(|| x.clone().quantize_dynamic(&scheme).dequantize());
    let ops = trace.operations();
    let quantised = ops.iter().find(|op| op.name == "Quantize").unwrap();
    let tensor = &quantised.outputs[0].tensor;
    let ours = tensor.summary.as_ref();
    let ours = ours.unwrap_or_else(|| panic!("{:?}", tensor.not_summarised));
    assert_agrees(ours, &host_summary(&back.to_data(), summary::DType::F32));
}

#[test]
fn edge_items_are_gathered_on_the_device() {
    let Some(device) = device() else { return };
    let x = Tensor::<2>::from_data(
        TensorData::new((0..2000).map(|i| i as f32).collect(), [40, 50]),
        &device,
    );
    let (out, trace) = record_with(Dump::Repr, |_| (), || x.clone() + 1.0);
    let tensor = &result(&trace, "AddScalar").tensor;
    // The host's lines are PyTorch's: another test compares the two.
    let data = out.to_data();
    let view = TensorView::contiguous(summary::DType::F32, &[40, 50], data.as_bytes()).unwrap();
    let expected = torch_repr::lines(&view, tensor.device.as_deref());
    assert!(expected[3].contains("..."));
    assert_eq!(tensor.value, Some(TensorValue::Lines(expected)));
}

#[test]
fn threads_are_told_apart() {
    let Some(device) = device() else { return };
    let folder = tempfile::tempdir().unwrap();
    let session = burnscope::Session::builder(folder.path()).start().unwrap();
    let work = |device: &Device, scale: f32| {
        let mut x = Tensor::<1>::ones([4], device);
        for _ in 0..50 {
            x = x * scale;
        }
        x.to_data()
    };
    std::thread::scope(|scope| {
        for scale in [1.0f32, 0.5] {
            let (session, device) = (&session, &device);
            scope.spawn(move || session.run(|| work(device, scale)));
        }
        // Its operations are nobody's.
        work(&device, 2.0);
    });
    let trace = session.finish().unwrap();
    let ops = trace.operations();
    let mut by_stream: std::collections::BTreeMap<u64, Vec<f64>> = Default::default();
    for op in ops.iter().filter(|op| op.name == "MulScalar") {
        let mean = op.outputs[0].tensor.summary.as_ref().unwrap().mean;
        by_stream.entry(op.stream).or_default().push(mean.unwrap());
    }
    assert_eq!(by_stream.len(), 2, "{by_stream:?}");
    for means in by_stream.values() {
        assert_eq!(means.len(), 50);
        let constant = means.iter().all(|mean| *mean == 1.0);
        let halving = means.windows(2).all(|pair| pair[1] == pair[0] / 2.0);
        assert!(constant || halving, "{means:?}");
    }
}

#[test]
fn a_tensor_of_another_thread_is_the_same_tensor() {
    let Some(device) = device() else { return };
    let folder = tempfile::tempdir().unwrap();
    let session = burnscope::Session::builder(folder.path()).start().unwrap();
    let made = session.run(|| Tensor::<1>::ones([4], &device) * 3.0);
    std::thread::scope(|scope| {
        let (session, made) = (&session, made.clone());
        scope.spawn(move || session.run(|| (made + 1.0).to_data()));
    });
    let trace = session.finish().unwrap();
    let made = result(&trace, "MulScalar").tensor.id;
    let ops = trace.operations();
    let used = ops.iter().find(|op| op.name == "AddScalar").unwrap();
    assert_eq!(Some(used.inputs[0].id), made);
}

/// Flex is behind no `Fusion`: its tensors are seen where a traced method is given them.
#[test]
fn a_session_takes_tensors_of_two_devices() {
    #[derive(burn::module::Module, Debug)]
    struct Both {
        scale: f64,
    }
    #[burnscope::trace]
    impl Both {
        fn forward(&self, here: Tensor<1>, there: Tensor<1>) -> (Tensor<1>, Tensor<1>) {
            (here * self.scale, there * self.scale)
        }
    }
    let Some(device) = device() else { return };
    let here = Tensor::<1>::ones([3], &Device::flex());
    let there = Tensor::<1>::ones([5], &device);
    let (_, trace) = record(|| Both { scale: 4.0 }.forward(here, there));
    let root = &trace.roots[0];
    let outputs = root.outputs.as_ref().unwrap().tensors();
    let inputs = root.inputs.as_ref().unwrap();
    let inputs: Vec<_> = inputs.values().flat_map(|value| value.tensors()).collect();
    let found = |tensors: Vec<&burnscope::trace::TensorRecord>| -> Vec<(String, f64, u64)> {
        let summary = |tensor: &burnscope::trace::TensorRecord| {
            let summary = tensor.summary.clone().unwrap();
            let device = tensor.device.clone().unwrap();
            (device, summary.mean.unwrap(), summary.count)
        };
        tensors.into_iter().map(summary).collect()
    };
    let name = &trace.operations()[0].device;
    assert_ne!(name, "cpu");
    assert_eq!(
        found(inputs),
        [("cpu".to_owned(), 1.0, 3), (name.clone(), 1.0, 5)]
    );
    assert_eq!(
        found(outputs),
        [("cpu".to_owned(), 4.0, 3), (name.clone(), 4.0, 5)]
    );
    // Every tensor has a number of its own.
    let mut ids: Vec<u64> = root
        .outputs
        .iter()
        .chain(root.inputs.iter().flat_map(|inputs| inputs.values()))
        .flat_map(|value| value.tensors())
        .map(|tensor| tensor.id.unwrap())
        .collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 4);
    assert_eq!(names(&trace), ["MulScalar"]);
}

/// What no session sees may put another tensor into the memory of one that was recorded.
#[test]
fn a_tensor_in_the_memory_of_another_is_not_taken_for_it() {
    let Some(device) = device() else { return };
    let folder = tempfile::tempdir().unwrap();
    let session = burnscope::Session::builder(folder.path()).start().unwrap();
    let made = session.run(|| Tensor::<1>::ones([6], &device) * 3.0);
    // In place: `made` is used up.
    let unseen = made + 1.0;
    session.run(|| unseen * 2.0).into_data();
    let trace = session.finish().unwrap();
    let ops = trace.operations();
    assert_eq!(names(&trace), ["Ones", "MulScalar", "MulScalar"]);
    assert_ne!(Some(ops[2].inputs[0].id), ops[1].outputs[0].tensor.id);
    let mean = |op: &burnscope::trace::Op| op.outputs[0].tensor.summary.clone().unwrap().mean;
    assert_eq!((mean(ops[1]), mean(ops[2])), (Some(3.0), Some(8.0)));
}

/// Results are read behind the stream that makes them, however long that takes.
#[test]
fn the_numbers_of_a_slow_thread_are_waited_for() {
    let Some(device) = device() else { return };
    let folder = tempfile::tempdir().unwrap();
    let session = burnscope::Session::builder(folder.path()).start().unwrap();
    let x = Tensor::<2>::ones([768, 768], &device);
    let barrier = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        let (session, barrier, device) = (&session, &barrier, &device);
        scope.spawn(move || {
            session.run(|| {
                // The first to ask for a summary on this device.
                let quick = Tensor::<1>::ones([4], device).exp();
                barrier.wait();
                barrier.wait();
                quick
            });
        });
        scope.spawn(move || {
            barrier.wait();
            session.run(|| {
                let mut y = x.clone();
                for _ in 0..4 {
                    y = x.clone().matmul(y) / 768.0;
                }
                y.exp()
            });
            barrier.wait();
        });
    });
    let trace = session.finish().unwrap();
    let ops = trace.operations();
    let slow: Vec<f64> = ops
        .iter()
        .filter(|op| op.stream == ops.last().unwrap().stream && op.name == "Exp")
        .map(|op| op.outputs[0].tensor.summary.as_ref().unwrap().mean.unwrap())
        .collect();
    assert_eq!(slow.len(), 1);
    assert!((slow[0] - 1f64.exp()).abs() < 1e-5, "{slow:?}");
}

/// A session may end on another thread than the one that ran, which has read nothing.
#[test]
fn what_another_thread_only_asked_for_is_recorded() {
    let Some(device) = device() else { return };
    let folder = tempfile::tempdir().unwrap();
    let session = burnscope::Session::builder(folder.path()).start().unwrap();
    let kept = std::thread::scope(|scope| {
        let (session, device) = (&session, &device);
        let run = scope.spawn(move || session.run(|| Tensor::<1>::ones([4], device) * 5.0));
        run.join().unwrap()
    });
    let trace = session.finish().unwrap();
    assert_eq!(names(&trace), ["Ones", "MulScalar"]);
    let mean = |name| result(&trace, name).tensor.summary.clone().unwrap().mean;
    assert_eq!(mean("MulScalar"), Some(5.0));
    drop(kept);
}

#[test]
fn a_panic_without_any_annotation_leaves_an_incomplete_trace() {
    let Some(device) = device() else { return };
    let folder = tempfile::tempdir().unwrap();
    let session = burnscope::Session::builder(folder.path())
        .name("Net")
        .start()
        .unwrap();
    let run = std::panic::AssertUnwindSafe(|| {
        session.run(|| {
            let _made = Tensor::<1>::ones([4], &device) * 5.0;
            panic!("the model's own");
        })
    });
    assert!(std::panic::catch_unwind(run).is_err());
    // Dropped, as by the panic of a program.
    drop(session);
    let trace = burnscope::format::read(folder.path().join("Net.burnscope.jsonl")).unwrap();
    assert!(!trace.complete);
    assert_eq!(names(&trace), ["Ones", "MulScalar"]);
    assert!(result(&trace, "MulScalar").tensor.summary.is_some());
}

/// Of two sessions on one thread the inner one records.
#[test]
fn a_session_within_another_pauses_it() {
    let Some(device) = device() else { return };
    let folder = tempfile::tempdir().unwrap();
    let start = |name: &str| {
        burnscope::Session::builder(folder.path().join(name))
            .start()
            .unwrap()
    };
    let (outer, inner) = (start("outer"), start("inner"));
    let x = Tensor::<1>::ones([4], &device);
    outer.run(|| {
        let y = x.clone() + 1.0;
        let y = inner.run(|| y * 2.0);
        y.exp()
    });
    let (outer, inner) = (outer.finish().unwrap(), inner.finish().unwrap());
    assert_eq!(names(&outer), ["AddScalar", "Exp"]);
    assert_eq!(names(&inner), ["MulScalar"]);
}

/// An operation that its device cannot do has no numbers, and takes none from others.
#[test]
fn a_failed_operation_is_told_and_takes_no_numbers_along() {
    let Some(device) = device() else { return };
    let x = Tensor::<1>::ones([4], &device);
    let (failed, trace) = record(|| {
        let before = x.clone() * 3.0;
        // Eight gigabytes and more in one piece is nothing that this device gives.
        let huge = Tensor::<2>::zeros([1 << 20, 1 << 20], &device) + 1.0;
        let failed = (huge.sum() * 2.0).try_into_data().is_err();
        let after = before.clone() - 1.0;
        after.into_data();
        failed
    });
    if !failed {
        eprintln!("skipped: this device has terabytes");
        return;
    }
    let good: Vec<f64> = trace
        .operations()
        .iter()
        .filter(|op| op.outputs[0].tensor.shape == [4])
        .map(|op| op.outputs[0].tensor.summary.clone().unwrap().mean.unwrap())
        .collect();
    assert_eq!(good, [3.0, 2.0]);
    for op in trace.operations() {
        let tensor = &op.outputs[0].tensor;
        if tensor.shape != [4] {
            assert_eq!(tensor.summary, None, "{}", op.name);
            assert!(tensor.not_summarised.is_some(), "{}", op.name);
        }
    }
}
