//! Why a driver call failed, in terms of what the caller can do.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A failed driver call: what the caller can do, and what the cloud said.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
#[error("{kind}: {message}")]
pub struct Error {
    /// What the caller can do.
    pub kind: ErrorKind,
    /// What happened, for people. Never holds a secret, never parsed.
    pub message: String,
}

impl Error {
    /// An error of this kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// An optional call that this driver does not have.
    pub fn unsupported(call: &str) -> Self {
        Self::new(ErrorKind::Unsupported, format!("this driver has no {call}"))
    }
}

/// What a caller can do about a failure; nothing else belongs here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ErrorKind {
    /// The description is wrong; only its author can mend it.
    InvalidSpec,
    /// The credential is missing, wrong, or may not do this.
    Denied,
    /// Quota or stock is used up; try much later, or elsewhere.
    Exhausted,
    /// The cloud asks for patience.
    Throttled {
        /// How long, when the cloud said so.
        retry_after: Option<Duration>,
    },
    /// The cloud did not accept the call: it had no effect. Try again.
    Unavailable,
    /// The effect is unknown (a timeout or a reset after sending): look before concluding anything.
    Ambiguous,
    /// This driver cannot do that.
    Unsupported,
    /// The driver itself broke a rule.
    Bug,
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InvalidSpec => "invalid spec",
            Self::Denied => "denied",
            Self::Exhausted => "exhausted",
            Self::Throttled { .. } => "throttled",
            Self::Unavailable => "unavailable",
            Self::Ambiguous => "outcome unknown",
            Self::Unsupported => "unsupported",
            Self::Bug => "driver bug",
        })
    }
}
