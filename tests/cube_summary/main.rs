//! The summary on a device equals that on the host, whatever the type, the layout and the values.
//!
//! The tests run on a software Vulkan device where there is one (Debian's `mesa-vulkan-drivers`), or
//! else on the machine's own device. Without any adapter each prints that it is skipped.

mod elements;
mod layouts;
mod requests;
mod support;
mod values;
