//! Operations of a CubeCL device: recorded one by one, with no change to the model.
//!
//! The tests run on a software Vulkan device where there is one (Debian's `mesa-vulkan-drivers`), or
//! else on the machine's own device. Without any adapter each prints that it is skipped.

mod ambient;
mod autodiff;
mod models;
mod scopes;
mod stream;
mod summaries;
mod support;
mod verify;
mod watch;
