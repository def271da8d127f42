//! The built-in ports.
