//! burnscope records what a Burn model computes, module by module, in files that match PyTorch's.
//!
//! Data moves one way through the stages, one folder each: `capture` sees tensors, [`summary`]
//! reduces a tensor to numbers, [`mod@trace`] remembers them, [`mod@format`] writes and reads files.

// The code that the macros write names this crate as its users do.
#[cfg(feature = "capture")]
extern crate self as burnscope;

mod atomic;
mod bounded_file;
#[cfg(feature = "capture")]
pub mod capture;
pub mod format;
#[cfg(feature = "models")]
pub mod models;
#[cfg(any(feature = "skips", feature = "similar"))]
pub mod python;
#[cfg(feature = "similar")]
pub mod similar;
#[cfg(feature = "skips")]
pub mod skips;
pub mod summary;
pub mod trace;

#[cfg(feature = "capture")]
pub use burnscope_macros::{Traced, trace};
#[cfg(feature = "capture")]
#[doc(hidden)]
pub use capture::private as __private;
#[cfg(feature = "capture")]
pub use capture::{
    Dump, InstallError, Installed, NonFinite, Session, Verification, Watch, backward, install,
};
