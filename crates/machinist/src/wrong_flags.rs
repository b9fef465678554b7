//! The error for flags that clap accepts and that are wrong.

use std::fmt;

/// Error for flags that parse but contradict each other or the environment.
#[derive(Debug)]
pub(crate) struct WrongFlags(String);

impl WrongFlags {
    /// Creates the error from a text that names the flag and the expected value.
    pub(crate) fn new(message: impl fmt::Display) -> Self {
        Self(message.to_string())
    }
}

impl fmt::Display for WrongFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WrongFlags {}
