//! The summary on a device that CubeCL drives (wgpu, Vulkan, Metal, ROCm, CUDA), as one portable kernel.
//!
//! It is not concerned with how operations are seen, nor with what the numbers are for.
//!
//! A tensor is cut into tiles of 4096 elements. One pass of one kernel leaves 80 bytes of each tile
//! on the device: integers alone, among them sums of the elements as fixed-point numbers, which are
//! exact in any order of addition. The host merges the tiles in double precision, which few devices
//! have. So the result is the same on every device and at every run, and equals that of
//! [`summarise`](super::summarise) in all counts, extremes and the checksum; mean, standard
//! deviation and norm agree to about 1e-9. What is read back is less than half a percent of a
//! tensor of 4-byte elements.
//!
//! ```no_run
//! # fn example(client: cubecl::client::Client, handle: cubecl::server::Handle) -> Result<(), Box<dyn std::error::Error>> {
//! use burnscope::summary::cube::{CubeSummariser, DeviceTensor, Storage};
//!
//! let mut summariser = CubeSummariser::new(&client);
//! let slot = summariser.enqueue(&DeviceTensor {
//!     handle: &handle,
//!     storage: Storage::F32,
//!     shape: &[1000, 1000],
//!     strides: &[1024, 1],
//!     offset: 0,
//! })?;
//! for (found, reading) in summariser.flush().wait()? {
//!     assert_eq!(found, slot);
//!     println!("{reading:?}");
//! }
//! # Ok(())
//! # }
//! ```

mod access;
mod copy;
mod error;
mod fixed;
mod gather;
mod launch;
mod layout;
mod partial;
mod slots;
mod storage;
mod summarise;
mod summariser;

pub use copy::DeviceCopy;
pub use error::{NotSummarised, ReadError};
pub use layout::DeviceTensor;
pub use slots::{Pending, Reading, Slot};
pub use storage::Storage;
pub use summariser::CubeSummariser;
