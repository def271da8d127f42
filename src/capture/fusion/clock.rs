//! The moment in a thread's order of operations, as the number that Burn gives its next tensor.

use std::sync::{Mutex, OnceLock, PoisonError};

use burn_cubecl::{CubeDevice, fusion::FusionCubeRuntime};
use burn_fusion::client::GlobalFusionClient;
use cubecl::device::CpuDevice;

pub(super) type Client = GlobalFusionClient<FusionCubeRuntime>;

/// Some client: all share the counter.
static CLIENT: OnceLock<Client> = OnceLock::new();

/// The devices that were seen at work.
static DEVICES: Mutex<Vec<CubeDevice>> = Mutex::new(Vec::new());

/// Notes that a device is at work. Called on any thread; never asks the device for anything.
pub(super) fn device_seen(device: &CubeDevice) {
    let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    if !devices.contains(device) {
        devices.push(device.clone());
    }
}

/// The number of the next tensor that this thread asks for, at least. Not for a device's own thread.
pub(super) fn now() -> u64 {
    // The counter is the same whatever the device, so the client need not be of one that exists. Its
    // server is given no work, but has a thread that sleeps: a device at work is preferred.
    let client = CLIENT.get_or_init(|| {
        let known = devices().into_iter().next();
        Client::load(&known.unwrap_or(CubeDevice::Cpu(CpuDevice)))
    });
    // A number that no tensor will have: only its place in the order matters.
    client.create_empty_handle().value()
}

/// Whether any device was seen at work.
pub(super) fn any_device() -> bool {
    !devices().is_empty()
}

/// Waits until every operation that this thread asked for is on its way to its device. Not for a
/// device's own thread.
///
/// The devices themselves are not waited for.
pub(super) fn drain() {
    for device in devices() {
        // A server that is gone has nothing to wait for.
        let _ = Client::load(&device).try_sync(|| ());
    }
}

fn devices() -> Vec<CubeDevice> {
    DEVICES
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
}
