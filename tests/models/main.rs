//! The built-in models compute what PyTorch computes, and loading says what is wrong.
#![cfg(all(feature = "models", feature = "flex"))]

mod faults;
mod inputs;
mod loading;
mod outputs;
mod support;
