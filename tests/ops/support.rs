//! The device of these tests, and what they look for in a trace.

use std::sync::OnceLock;

use burn::tensor::{Device, DeviceKind, Tensor};
use burnscope::{
    Dump, Session,
    trace::{Op, Output, Trace},
};

/// A software Vulkan device or the machine's own, with operations seen; `None` without any adapter.
pub fn device() -> Option<Device> {
    static DEVICE: OnceLock<Option<Device>> = OnceLock::new();
    let device = DEVICE.get_or_init(|| {
        // Kept for the life of the process, as in a program's `main`.
        let installed = burnscope::install().expect("nothing ran before");
        assert!(installed.session().is_none());
        [DeviceKind::Cpu, DeviceKind::DefaultDevice]
            .into_iter()
            .find(|kind| {
                let kind = match kind {
                    DeviceKind::Cpu => cubecl::wgpu::WgpuDeviceKind::Cpu,
                    _ => cubecl::wgpu::WgpuDeviceKind::DefaultDevice,
                };
                cubecl::Device::wgpu(kind).is_ok()
            })
            .map(|kind| {
                let device = Device::wgpu(kind);
                // A session without a model learns of a device once that is at work.
                Tensor::<1>::zeros([1], &device).into_data();
                device
            })
    });
    if device.is_none() {
        eprintln!("skipped: this machine has no adapter (install mesa-vulkan-drivers for one)");
    }
    device.clone()
}

/// What a session records of `run`.
pub fn record<R>(run: impl FnOnce() -> R) -> (R, Trace) {
    record_with(Dump::None, |_| (), run)
}

pub fn record_with<R>(
    dump: Dump,
    prepare: impl FnOnce(&Session),
    run: impl FnOnce() -> R,
) -> (R, Trace) {
    let folder = tempfile::tempdir().unwrap();
    let session = Session::builder(folder.path()).dump(dump).start().unwrap();
    prepare(&session);
    let result = session.run(run);
    (result, session.finish().unwrap())
}

pub fn names(trace: &Trace) -> Vec<&str> {
    trace
        .operations()
        .iter()
        .map(|op| op.name.as_str())
        .collect()
}

/// The only result of the only operation with that name.
pub fn result<'t>(trace: &'t Trace, name: &str) -> &'t Output {
    let found: Vec<&Op> = trace
        .operations()
        .into_iter()
        .filter(|op| op.name == name)
        .collect();
    assert_eq!(found.len(), 1, "{name} in {:?}", names(trace));
    assert_eq!(found[0].outputs.len(), 1);
    &found[0].outputs[0]
}
