//! A model whose tensors are many times what dumps may hold in memory: memory stays bounded.
//!
//! Runs on a software Vulkan device, whose memory is this process's own; skipped without any adapter.
#![cfg(target_os = "linux")]

use std::{
    fs,
    path::Path,
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
};

use burn::tensor::{Device, DeviceKind, Tensor};
use burnscope::{
    Dump, Session,
    trace::{Op, TensorValue, Trace, Value},
};

const MIB: u64 = 1 << 20;
/// Each tensor of the model.
const TENSOR: u64 = 8 * MIB;
const STEPS: u64 = 64;
/// What dumps may hold: a sixteenth of what they write.
const BUDGET: u64 = 32 * MIB;

/// The device for one test at a time: they measure the whole process.
fn device() -> Option<(Device, MutexGuard<'static, ()>)> {
    static TURN: Mutex<()> = Mutex::new(());
    static DEVICE: OnceLock<Option<Device>> = OnceLock::new();
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let device = DEVICE.get_or_init(|| {
        let _installed = burnscope::install().expect("nothing ran before");
        cubecl::Device::wgpu(cubecl::wgpu::WgpuDeviceKind::Cpu).ok()?;
        let device = Device::wgpu(DeviceKind::Cpu);
        // What a device needs once is no part of what is measured.
        Tensor::<1>::zeros([TENSOR as usize / 4], &device).into_data();
        Some(device)
    });
    if device.is_none() {
        eprintln!("skipped: this machine has no software adapter (install mesa-vulkan-drivers)");
    }
    Some((device.clone()?, turn))
}

/// A line of `/proc/self/status`, in bytes.
fn memory(line: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|known| known.strip_prefix(line));
    let number = line.unwrap().trim_start_matches(':').trim();
    number.trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// How far the process's memory grew at most while `run` ran.
fn growth<R>(run: impl FnOnce() -> R) -> (R, u64) {
    // The high-water mark begins anew.
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = memory("VmRSS");
    let result = run();
    (result, memory("VmHWM").saturating_sub(before))
}

struct Step;

#[burnscope::trace]
impl Step {
    fn forward(&self, x: Tensor<1>) -> Tensor<1> {
        x + 1.0
    }
}

fn session(folder: &Path) -> Session {
    let builder = Session::builder(folder).dump(Dump::Safetensors);
    builder.dump_memory(BUDGET).start().unwrap()
}

fn files(folder: &Path) -> u64 {
    let names = fs::read_dir(folder).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(".safetensors")).count() as u64
}

#[test]
fn a_traced_model_waits_for_its_files() {
    let Some((device, _turn)) = device() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let (trace, growth) = growth(|| {
        let session = session(folder.path());
        // Made before: nobody could wait for the file of an operation in no traced method.
        let mut x = Tensor::<1>::zeros([TENSOR as usize / 4], &device);
        session.run(|| {
            for _ in 0..STEPS {
                x = Step.forward(x);
            }
        });
        session.finish().unwrap()
    });
    println!("memory grew by {} MiB", growth / MIB);
    assert_eq!(trace.notes, [""; 0]);
    assert!(trace.complete);
    let has_file = |value: &Value| matches!(value.tensors()[0].value, Some(TensorValue::File(_)));
    for root in &trace.roots {
        assert!(root.outputs.as_ref().is_some_and(has_file), "{}", root.path);
    }
    // What each call was given, and what it gave.
    assert!(files(folder.path()) >= 2 * STEPS);
    assert!(
        growth < 2 * STEPS * TENSOR / 4,
        "memory grew by {} MiB, though dumps may hold {} MiB",
        growth / MIB,
        BUDGET / MIB
    );
}

fn results(trace: &Trace) -> impl Iterator<Item = &Option<TensorValue>> {
    let outputs = |op: &'_ Op| op.outputs.len();
    assert!(trace.ops.iter().all(|op| outputs(op) == 1));
    trace.ops.iter().map(|op| &op.outputs[0].tensor.value)
}

/// Where operations are in no traced method nobody can wait: files are dropped, and counted.
#[test]
fn a_device_that_is_ahead_drops_files_and_the_trace_says_how_many() {
    let Some((device, _turn)) = device() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let large = 8 * TENSOR;
    let (trace, growth) = growth(|| {
        let session = session(folder.path());
        session.run(|| {
            // Larger than the budget: it goes alone, and what comes before it is written has no room.
            let large = Tensor::<1>::zeros([large as usize / 4], &device) + 1.0;
            let mut x = Tensor::<1>::zeros([TENSOR as usize / 4], &device);
            for _ in 0..STEPS {
                x = x + 1.0;
            }
            (large, x)
        });
        session.finish().unwrap()
    });
    println!("memory grew by {} MiB", growth / MIB);
    assert!(trace.complete);
    let dropped = results(&trace).filter(|value| value.is_none()).count() as u64;
    let kept = results(&trace).count() as u64 - dropped;
    assert!(dropped > 0, "the device was never ahead");
    assert_eq!(kept, files(folder.path()));
    assert!(kept > 0);
    let note = format!("{dropped} tensors have a summary but no file");
    assert_eq!(trace.notes.len(), 1, "{:?}", trace.notes);
    assert!(trace.notes[0].contains(&note), "{:?}", trace.notes);
    assert!(trace.notes[0].contains(&BUDGET.to_string()));
    assert!(
        trace
            .ops
            .iter()
            .all(|op| op.outputs[0].tensor.summary.is_some())
    );
    assert!(
        growth < STEPS * TENSOR,
        "memory grew by {} MiB",
        growth / MIB
    );
}
