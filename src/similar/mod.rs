//! Finds which existing model code a new modeling file repeats.
pub mod compat;
pub mod corpus;
pub mod dates;
pub mod definitions;
pub mod inheritance;
pub mod index;
pub mod naming;
pub mod quality;
pub mod rank;
pub mod source;
pub mod terms;
pub mod vocabulary;
