//! The stage that turns a trace into files and files into a trace.

pub mod torch_repr;
