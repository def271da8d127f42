//! The `burnscope` command: one module per subcommand.

#[cfg(feature = "skips")]
pub mod skips;
