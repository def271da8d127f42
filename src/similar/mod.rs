//! Finds which existing model code a new modeling file repeats.
//!
//! The data's way: [`source`] finds and parses Python files; [`definitions`], [`naming`] and [`terms`]
//! take them apart; [`inheritance`] and [`dates`] read what else a repository says; [`corpus`] holds all
//! that and [`store`] keeps it on disk; [`index`] derives what looking up needs, [`rank`] orders the
//! possible parents, [`analysis`] answers for a file and [`report`] says it. No neural model is needed:
//! where one is given, [`embed`] makes vectors of the definitions and [`dense`] compares them.
//!
//! ```no_run
//! use burnscope::similar::analysis::{Options, QueryFile, analyse};
//! use burnscope::similar::index::Index;
//!
//! # fn main() -> Result<(), burnscope::similar::error::Error> {
//! let repository = std::path::Path::new("transformers");
//! let index = Index::build(repository, false, &|| ());
//! let query = QueryFile::open("qwen3", repository, index.layout(), false)?;
//! let answer = analyse(&index, &query, Options::default());
//! println!("{:?}", answer.parent.map(|parent| parent.model));
//! # Ok(())
//! # }
//! ```

pub mod analysis;
pub mod compat;
pub mod corpus;
pub mod dates;
pub mod definitions;
pub mod dense;
pub mod embed;
pub mod error;
pub mod hub;
pub mod index;
pub mod inheritance;
pub mod naming;
pub mod quality;
pub mod rank;
pub mod report;
mod skeleton;
mod snippet;
pub mod source;
pub mod store;
pub mod terms;
pub mod vocabulary;
