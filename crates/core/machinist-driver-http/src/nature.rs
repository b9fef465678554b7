//! The possible effect of a call without a usable answer, as the kind of an error.

use std::time::Duration;

use http::StatusCode;
use machinist_instance::ErrorKind;

/// Whether a call changes the cloud.
///
/// ```
/// use machinist_driver_http::{Nature, NoAnswer};
/// use machinist_instance::ErrorKind;
///
/// let lost = NoAnswer::Lost("the connection broke".to_owned());
/// assert_eq!(Nature::Changes.without_answer(&lost), ErrorKind::Ambiguous);
/// assert_eq!(Nature::Reads.without_answer(&lost), ErrorKind::Unavailable);
///
/// let not_sent = NoAnswer::NotSent("cannot connect".to_owned());
/// assert_eq!(Nature::Changes.without_answer(&not_sent), ErrorKind::Unavailable);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nature {
    /// The call only reads, so it can be repeated.
    Reads,
    /// The call creates, changes or deletes something.
    Changes,
}

/// No answer arrived, or only a part of one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// The request cannot have reached the cloud.
    #[error("{0}")]
    NotSent(String),
    /// The request may have reached the cloud.
    #[error("{0}")]
    Lost(String),
}

impl Nature {
    /// The error of a call that may have reached the cloud, if nothing says what it did there.
    pub fn unknown_effect(self) -> ErrorKind {
        match self {
            Self::Reads => ErrorKind::Unavailable,
            Self::Changes => ErrorKind::Ambiguous,
        }
    }

    /// The error of a call that has no answer.
    pub fn without_answer(self, lost: &NoAnswer) -> ErrorKind {
        match lost {
            NoAnswer::NotSent(_) => ErrorKind::Unavailable,
            NoAnswer::Lost(_) => self.unknown_effect(),
        }
    }

    /// The error of an answer with this status, if nothing else says what the answer means. It may
    /// come from a proxy.
    pub fn with_status(self, status: StatusCode, retry_after: Option<Duration>) -> ErrorKind {
        match status.as_u16() {
            401 | 403 => ErrorKind::Denied,
            429 => ErrorKind::Throttled { retry_after },
            // The cloud may have begun to act before it failed.
            500..=599 => self.unknown_effect(),
            _ => ErrorKind::Unavailable,
        }
    }
}
