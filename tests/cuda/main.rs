//! The CUDA engine and its kernels without a GPU: the kernels run on the CPU through a shim, the
//! engine runs through `cudarc` on a stand-in for the driver's library.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod dumps;
mod engine;
mod kernels;
mod laid;
mod layouts;
mod quantized;
mod reference;
mod standin;
