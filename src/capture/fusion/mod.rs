//! The reach into Burn's `Fusion` decorator: every operation of a CubeCL device, and ordered markers.
//!
//! Two threads meet here. The caller's thread says which module call it is in and which tensors it
//! wants seen; the device's own thread, where Burn runs operations some time later, records them in
//! a [`DeviceLog`] and starts their summaries. Neither ever waits for the device: readings come back
//! on a third thread.
//!
//! Burn's semi-internal interfaces (its registry of fusers, its observer, operations and clients of its
//! stream) are called in `fuser`, `observer`, `marker`, `clock` and `handle`; the rest names its types.

mod backward;
mod clock;
#[cfg(feature = "cuda")]
mod cuda;
mod describe;
mod dump;
mod fuser;
mod handle;
mod identity;
mod lane;
mod log;
mod marker;
mod observer;
mod parameters;
mod portable;
mod publish;
mod reader;
mod registry;
mod timeline;
mod watch;

pub(crate) use dump::DeviceDump;
pub(crate) use fuser::{installed, register};
pub(crate) use handle::{FusionTensor, fusion_tensor};
pub(crate) use lane::device_name;
pub(crate) use log::{DeviceLog, DeviceTrace, LogSettings, Logged, Place};
pub(crate) use parameters::parameters;
pub(crate) use reader::Numbers;
pub(crate) use watch::first_guilty;
