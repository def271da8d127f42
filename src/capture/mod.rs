//! Sees tensors.
