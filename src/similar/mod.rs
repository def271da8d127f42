//! Finds which existing model code a new modeling file repeats.
pub mod corpus;
pub mod dates;
pub mod definitions;
pub mod inheritance;
pub mod naming;
pub mod source;
pub mod terms;
pub mod vocabulary;
