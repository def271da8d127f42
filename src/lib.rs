//! burnscope records what a Burn model computes, module by module, in files that match PyTorch's.
//!
//! Data moves one way through the stages, one folder each: [`capture`] sees tensors, [`summary`]
//! reduces a tensor to numbers, [`trace`] remembers them, [`format`] writes and reads files.

#[cfg(feature = "capture")]
pub mod capture;
pub mod format;
#[cfg(feature = "models")]
pub mod models;
#[cfg(feature = "similar")]
pub mod similar;
pub mod summary;
pub mod trace;
