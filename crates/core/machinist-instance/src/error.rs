//! Errors of driver calls, classified by how the caller can react.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Longest part of a wrong value that an error repeats.
const MAX_SHOWN: usize = 60;

/// A failed driver call: the kind for the caller, and the message for people.
///
/// ```
/// use machinist_instance::{Error, ErrorKind};
///
/// let error = Error::new(ErrorKind::Exhausted, "quota of 3 instances is used up");
/// assert_eq!(error.to_string(), "exhausted: quota of 3 instances is used up");
/// assert_eq!(Error::unsupported("rekey").kind, ErrorKind::Unsupported);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
#[error("{kind}: {message}")]
pub struct Error {
    /// The kind of failure, which determines how the caller reacts.
    pub kind: ErrorKind,
    /// The message for people. It never contains a secret, and no code parses it.
    pub message: String,
    /// More about the state of the cloud.
    #[serde(default, skip_serializing_if = "Circumstance::is_unknown")]
    pub circumstance: Circumstance,
    /// A text for the next calls about the same instance, see [`Self::with_state`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
}

/// The state of the cloud that an error reveals. A caller may repeat the call sooner, or report it
/// more precisely.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Circumstance {
    /// Nothing is known.
    #[default]
    Unknown,
    /// The cloud works on something that the call needs, for example a download. The call succeeds
    /// after that, so it has not failed.
    InProgress,
    /// Nothing listens at the address of the cloud's API.
    Closed,
    /// The driver rejected the input. The cloud rejected nothing.
    ByDriver,
    /// The cloud has given up the instance, so no repetition helps. Another one is needed.
    InstanceFailed,
}

impl Circumstance {
    fn is_unknown(&self) -> bool {
        *self == Self::Unknown
    }
}

impl Error {
    /// Creates an error.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), circumstance: Circumstance::Unknown, state: None }
    }

    /// Creates the answer of a call that must wait for work of the cloud. The call had no effect,
    /// and is repeated.
    ///
    /// ```
    /// use machinist_instance::Error;
    ///
    /// assert!(Error::in_progress("pulling image a").is_in_progress());
    /// ```
    pub fn in_progress(message: impl Into<String>) -> Self {
        Self { circumstance: Circumstance::InProgress, ..Self::new(ErrorKind::Unavailable, message) }
    }

    /// Creates the error of a call that nothing has accepted.
    pub fn closed(message: impl Into<String>) -> Self {
        Self { circumstance: Circumstance::Closed, ..Self::new(ErrorKind::Unavailable, message) }
    }

    /// Creates the error of a driver that rejects its input without the cloud.
    ///
    /// ```
    /// use machinist_instance::{Error, ErrorKind};
    ///
    /// let error = Error::by_driver("protocol: expected tcp, http or https");
    /// assert!(error.is_by_driver() && error.kind == ErrorKind::InvalidSpec);
    /// ```
    pub fn by_driver(message: impl Into<String>) -> Self {
        Self { circumstance: Circumstance::ByDriver, ..Self::new(ErrorKind::InvalidSpec, message) }
    }

    /// Creates the error of a field of a provider spec whose value is wrong. A provider spec
    /// contains no secret, so the beginning of the value is shown.
    ///
    /// ```
    /// use machinist_instance::Error;
    /// use serde_json::json;
    ///
    /// let error = Error::wrong_field("providerSpec.size", "a number", &json!("large"));
    /// assert_eq!(error.message, "providerSpec.size: expected a number, got \"large\"");
    /// ```
    pub fn wrong_field(path: &str, expected: &str, found: &Value) -> Self {
        let found = match found {
            Value::Null => "nothing".to_owned(),
            Value::Object(_) => "an object".to_owned(),
            Value::Array(_) => "a list".to_owned(),
            other => other.to_string().chars().take(MAX_SHOWN).collect(),
        };
        Self::new(ErrorKind::InvalidSpec, format!("{path}: expected {expected}, got {found}"))
    }

    /// Creates the error of an instance that the cloud has given up. The kind says why, for example
    /// `Exhausted`.
    ///
    /// ```
    /// use machinist_instance::{Error, ErrorKind};
    ///
    /// let error = Error::instance_failed(ErrorKind::Exhausted, "no host has 8 free cores");
    /// assert!(error.is_instance_failed() && error.kind == ErrorKind::Exhausted);
    /// ```
    pub fn instance_failed(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { circumstance: Circumstance::InstanceFailed, ..Self::new(kind, message) }
    }

    /// Adds a text that only the driver understands, such as a part of the instance that exists
    /// already. The controller stores it as `status.lastKnownState` of the Machine, and passes it
    /// to the next calls. The text contains no secret.
    ///
    /// ```
    /// use machinist_instance::{Error, ErrorKind};
    ///
    /// let error = Error::new(ErrorKind::Exhausted, "no stock").with_state("port 7 exists");
    /// assert_eq!(error.state.as_deref(), Some("port 7 exists"));
    /// ```
    #[must_use]
    pub fn with_state(self, state: impl Into<String>) -> Self {
        Self { state: Some(state.into()), ..self }
    }

    /// Whether the driver rejected its input, and not the cloud.
    pub fn is_by_driver(&self) -> bool {
        self.circumstance == Circumstance::ByDriver
    }

    /// Whether the call only waits for work of the cloud.
    pub fn is_in_progress(&self) -> bool {
        self.circumstance == Circumstance::InProgress
    }

    /// Whether the call may have changed the cloud, or may still do so: its effect is unknown, or
    /// its state names a part that it has made.
    pub fn may_have_effect(&self) -> bool {
        self.kind.may_have_effect() || self.state.is_some()
    }

    /// Whether the cloud has given up the instance.
    pub fn is_instance_failed(&self) -> bool {
        self.circumstance == Circumstance::InstanceFailed
    }

    /// Whether nothing listens at the address of the cloud's API.
    pub fn is_closed(&self) -> bool {
        self.circumstance == Circumstance::Closed
    }

    /// Creates the error for an optional call that the driver does not implement.
    pub fn unsupported(call: &str) -> Self {
        Self::new(ErrorKind::Unsupported, format!("this driver does not support {call}"))
    }
}

/// How the caller of a failed driver call can react. Each kind stands for a different reaction.
///
/// ```
/// use std::time::Duration;
/// use machinist_instance::ErrorKind;
///
/// // A caller decides by the kind, never by the message.
/// let is_repeated_at_once = |kind| matches!(kind, ErrorKind::Ambiguous | ErrorKind::Unavailable);
/// assert!(is_repeated_at_once(ErrorKind::Unavailable));
/// assert!(!is_repeated_at_once(ErrorKind::Denied));
///
/// let throttled = ErrorKind::Throttled { retry_after: Some(Duration::from_secs(30)) };
/// assert_eq!(throttled.to_string(), "throttled");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ErrorKind {
    /// The provider spec is invalid. A user must correct it.
    InvalidSpec,
    /// The credential is missing or wrong, or the cloud does not permit the call with it.
    Denied,
    /// The quota or the stock of the cloud is used up. Retry much later, or in another place.
    Exhausted,
    /// The cloud throttles the account.
    Throttled {
        /// The wait that the cloud asks for, if it names one.
        retry_after: Option<Duration>,
    },
    /// The cloud did not accept the call, and the call had no effect. Retry it.
    Unavailable,
    /// The effect is unknown, for example after a timeout or a connection reset. Read the state of
    /// the cloud before drawing a conclusion.
    Ambiguous,
    /// The driver does not support the call.
    Unsupported,
    /// The driver has a bug: it panicked or broke a rule of its contract.
    Bug,
}

impl ErrorKind {
    /// Whether the cloud may have carried out the call, or may still do so.
    pub fn may_have_effect(self) -> bool {
        match self {
            Self::Ambiguous | Self::Bug => true,
            Self::InvalidSpec
            | Self::Denied
            | Self::Exhausted
            | Self::Throttled { .. }
            | Self::Unavailable
            | Self::Unsupported => false,
        }
    }
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
