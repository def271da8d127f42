//! Sessions on a CUDA device: operations' results summarised and dumped by the CUDA kernels, on
//! Burn's own streams.
//!
//! The stand-in runs none of Burn's kernels, so all operations here are uploads and new views of
//! them.

use std::sync::OnceLock;

use burn::{
    module::{Module, Param},
    tensor::{Device, Int, Tensor, TensorData},
};
use burnscope::{
    Dump, Session,
    format::dump::DumpReader,
    summary::{DType, Summary},
    trace::{TensorRecord, TensorValue, Trace},
};

use cubecl::cuda::CudaDevice;
use cubecl_common::{device::Device as _, device_handle::DeviceHandle};

use super::{
    Server, f32_data,
    reference::{self, Random, assert_agrees},
    standin::standin,
};

/// The driver's answer to PTX that is newer than it.
const UNSUPPORTED_PTX_VERSION: i32 = 222;
/// To a launch that is too large.
const OUT_OF_RESOURCES: i32 = 701;

/// The device, with operations seen, and at work already.
fn device() -> Device {
    static DEVICE: OnceLock<Device> = OnceLock::new();
    DEVICE
        .get_or_init(|| {
            let installed = burnscope::install().expect("nothing ran before");
            assert!(installed.session().is_none());
            let device = Device::cuda(0);
            upload(&device, &[0.0], [1]).into_data();
            device
        })
        .clone()
}

fn upload<const D: usize>(device: &Device, values: &[f32], shape: [usize; D]) -> Tensor<D> {
    Tensor::from_data(TensorData::new(values.to_vec(), shape), device)
}

/// Random numbers, and the summary of them by definition.
fn random(count: usize, random: &mut Random) -> (Vec<f32>, Summary) {
    let (elements, _) = f32_data(count, random);
    let values = elements.iter().map(|&bits| f32::from_bits(bits as u32));
    (values.collect(), reference::summary(&DType::F32, &elements))
}

struct Traced {
    trace: Trace,
    folder: tempfile::TempDir,
}

/// What a session records of `run` while the device lags behind.
fn record(dump: Dump, run: impl FnOnce(&Device)) -> Option<Traced> {
    let standin = standin()?;
    let device = device();
    standin.delay(300);
    let folder = tempfile::tempdir().unwrap();
    let session = Session::builder(folder.path()).dump(dump).start().unwrap();
    session.run(|| run(&device));
    let trace = session.finish().unwrap();
    standin.delay(0);
    Some(Traced { trace, folder })
}

/// The results of the operations with that name.
fn results<'t>(trace: &'t Trace, name: &str) -> Vec<&'t TensorRecord> {
    let named = trace.operations().into_iter().filter(|op| op.name == name);
    named.map(|op| &*op.outputs[0].tensor).collect()
}

fn summary(record: &TensorRecord) -> &Summary {
    let summary = record.summary.as_ref();
    summary.unwrap_or_else(|| panic!("{:?}", record.not_summarised))
}

/// Waits until the device's thread has come to all that was asked for. The device is not waited for.
fn everything_submitted() {
    let device = DeviceHandle::<Server>::new(CudaDevice::default().to_id());
    device.submit_blocking(|_| ()).unwrap();
}

#[test]
fn results_are_summarised_by_the_cuda_kernels_and_nobody_waits() {
    let Some(standin) = standin() else { return };
    let device = device();
    let mut numbers = Random(3);
    let shapes: Vec<[usize; 2]> = (0..60).map(|i| [1 + i % 7, 1 + i * 37]).collect();
    let data: Vec<_> = shapes
        .iter()
        .map(|shape| random(shape[0] * shape[1], &mut numbers))
        .collect();
    standin.delay(500);
    let (waits, launches) = (standin.host_waits(), standin.calls("cuLaunchKernel"));
    let folder = tempfile::tempdir().unwrap();
    let session = Session::builder(folder.path()).start().unwrap();
    session.run(|| {
        for ((values, _), shape) in data.iter().zip(&shapes) {
            upload(&device, values, *shape);
        }
    });
    everything_submitted();
    assert_eq!(standin.host_waits(), waits, "somebody waits before the end");
    let trace = session.finish().unwrap();
    assert!(standin.host_waits() > waits, "the end does wait");
    assert_eq!(standin.calls("cuLaunchKernel") - launches, 60);
    let found = results(&trace, "Init");
    assert_eq!(found.len(), 60);
    for (found, (_, wanted)) in found.into_iter().zip(&data) {
        assert_eq!(found.device.as_deref(), Some("cuda:0"));
        assert_agrees(summary(found), wanted, "an upload");
    }
    assert_eq!(trace.notes, Vec::<String>::new());
}

#[test]
fn every_summary_of_many_batches_arrives() {
    let mut numbers = Random(5);
    let data: Vec<_> = (0..1300).map(|_| random(40, &mut numbers)).collect();
    let run = |device: &Device| {
        for (values, _) in &data {
            upload(device, values, [40]);
        }
    };
    let Some(traced) = record(Dump::None, run) else {
        return;
    };
    let found = results(&traced.trace, "Init");
    assert_eq!(found.len(), 1300);
    for (index, (found, (_, wanted))) in found.into_iter().zip(&data).enumerate() {
        assert_agrees(summary(found), wanted, &format!("upload {index}"));
    }
}

#[test]
fn integers_are_summarised_in_their_own_type() {
    let values: Vec<i32> = (0..5000).map(|i| (i * 7919) % 100_003 - 50_000).collect();
    let elements: Vec<u64> = values
        .iter()
        .map(|&value| u64::from(value as u32))
        .collect();
    let Some(traced) = record(Dump::None, |device| {
        let data = TensorData::new(values.clone(), [50, 100]);
        Tensor::<2, Int>::from_data(data, (device, burn::tensor::DType::I32));
    }) else {
        return;
    };
    let found = results(&traced.trace, "Init");
    assert_eq!(found[0].dtype, DType::I32);
    let wanted = reference::summary(&DType::I32, &elements);
    assert_agrees(summary(found[0]), &wanted, "integers");
}

#[derive(Module, Debug)]
struct Net {
    weight: Param<Tensor<2>>,
}

#[burnscope::trace]
impl Net {
    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        x.swap_dims(0, 1)
    }
}

/// What a traced method is given comes by another way than what an operation makes; a tensor of
/// another thread is read on another stream than it was written on.
#[test]
fn a_tensor_of_another_thread_that_a_method_is_given_is_summarised_once_it_is_written() {
    let (values, wanted) = random(30_000, &mut Random(7));
    let Some(standin) = standin() else { return };
    let device = device();
    let net = Net {
        weight: Param::from_tensor(upload(&device, &[1.0; 6], [2, 3])),
    };
    standin.delay(2000);
    let folder = tempfile::tempdir().unwrap();
    let session = Session::builder(folder.path()).start().unwrap();
    session.attach("Net", &net);
    let x = std::thread::scope(|scope| {
        let made = scope.spawn(|| upload(&device, &values, [100, 300]));
        made.join().unwrap()
    });
    session.run(|| net.forward(x));
    let trace = session.finish().unwrap();
    let inputs = trace.roots[0].inputs.as_ref().unwrap();
    let input = inputs.values().flat_map(|value| value.tensors()).next();
    assert_agrees(summary(input.unwrap()), &wanted, "the argument");
}

#[test]
fn dumps_hold_the_bytes_that_the_program_uploaded() {
    let mut numbers = Random(11);
    // Rows that CubeCL pads, several pieces of a pinned buffer, a scalar.
    let shapes = [[100, 300], [1500, 2000], [1, 1], [7, 4096]];
    let data: Vec<_> = shapes
        .iter()
        .map(|shape| random(shape[0] * shape[1], &mut numbers))
        .collect();
    let Some(traced) = record(Dump::Safetensors, |device| {
        for ((values, _), shape) in data.iter().zip(shapes) {
            upload(device, values, shape);
        }
    }) else {
        return;
    };
    let found = results(&traced.trace, "Init");
    assert_eq!(found.len(), 4);
    let reader = DumpReader::new(traced.folder.path());
    for ((found, (values, wanted)), shape) in found.into_iter().zip(&data).zip(shapes) {
        assert_agrees(summary(found), wanted, "a dumped tensor");
        let Some(TensorValue::File(file)) = &found.value else {
            panic!("{found:?}");
        };
        let dump = reader.read(file).unwrap();
        let bytes: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        assert_eq!(
            (dump.dtype, dump.shape.as_slice()),
            (DType::F32, &shape[..])
        );
        assert!(dump.bytes == bytes, "another tensor's bytes");
    }
}

#[test]
fn a_device_whose_driver_refuses_the_kernels_is_left_to_the_portable_kernel_and_a_note_says_so() {
    let Some(standin) = standin() else { return };
    let device = device();
    let folder = tempfile::tempdir().unwrap();
    let session = Session::builder(folder.path()).start().unwrap();
    standin.fail("cuModuleLoadData", UNSUPPORTED_PTX_VERSION, 0);
    session.run(|| {
        for _ in 0..3 {
            upload(&device, &[1.0; 8], [8]);
        }
    });
    let trace = session.finish().unwrap();
    standin.heal();
    let said: Vec<&String> = trace
        .notes
        .iter()
        .filter(|note| note.contains("PTX"))
        .collect();
    assert_eq!(said.len(), 1, "{:?}", trace.notes);
    assert!(said[0].starts_with("cuda:0: "), "{said:?}");
    // What the portable kernel gives is not looked at: CubeCL cannot compile it on this driver.
}

#[test]
fn a_summary_that_cannot_be_launched_says_why() {
    let Some(standin) = standin() else { return };
    let device = device();
    let folder = tempfile::tempdir().unwrap();
    let session = Session::builder(folder.path()).start().unwrap();
    session.run(|| {
        upload(&device, &[1.0; 8], [8]);
    });
    everything_submitted();
    standin.fail("cuLaunchKernel", OUT_OF_RESOURCES, 0);
    session.run(|| {
        upload(&device, &[2.0; 8], [8]);
    });
    everything_submitted();
    standin.heal();
    let trace = session.finish().unwrap();
    let found = results(&trace, "Init");
    assert_eq!(summary(found[0]).mean, Some(1.0));
    let why = found[1].not_summarised.as_deref().unwrap();
    assert!(why.contains("cuLaunchKernel"), "{why}");
}
