//! Tests of the detector of repeated model code, on a small grove of models and, where it was fetched,
//! on transformers itself.

#![cfg(feature = "similar")]

mod answers;
mod broken_input;
#[cfg(feature = "cli")]
mod command;
mod corpus;
mod embeddings;
mod index_file;
mod support;
