//! The version of the program.

/// Version of the program in Cargo.toml.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
