//! The reason for an object's state, as a value.
//!
//! A [`Why`] becomes a log line, an Event, a condition reason and the output of `machinist why`.
//! Prose is rendered here, last, and parsed nowhere. [`Reason`] has the reasons that objects of
//! every contract may have; each contract adds its own.
//!
//! A rendered reason is a complete phrase, such as "MachineClass workers not found" or "waiting for
//! Node a to register".

use std::fmt;

use jiff::Timestamp;
use machinist_instance::{Error, ErrorKind};

use crate::snapshot::Call;

/// Page about the reasons that objects of every contract may have.
const SHARED_PAGE: &str = "stuck.md";

/// Source folder of the book, as a user finds it in the repository.
const BOOK: &str = "docs/src";

/// A reason that only objects of one contract have.
pub trait ContractReason: fmt::Display + fmt::Debug + Clone + PartialEq + Send + Sync + 'static {
    /// Page about these reasons, below the source folder of the book.
    const PAGE: &'static str = SHARED_PAGE;

    /// Returns the constant CamelCase name for conditions, Events and metrics.
    fn code(&self) -> &'static str;

    /// Returns what answers a driver call of this contract, for users.
    fn callee(_: Call) -> &'static str {
        "the cloud"
    }
}

/// The reason for an object's state: what it waits for, since when, the next step, and the
/// deadline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Why<R> {
    /// The first unmet condition, or [`Reason::Settled`].
    pub reason: Reason<R>,
    /// Since when the reason applies, if known.
    pub since: Option<Timestamp>,
    /// The next step.
    pub next: Step,
    /// The step that follows if the reason lasts too long.
    pub deadline: Option<Deadline>,
}

impl<R> Why<R> {
    /// Combines a reason with the next step.
    pub fn new(reason: impl Into<Reason<R>>, next: Step) -> Self {
        Self { reason: reason.into(), since: None, next, deadline: None }
    }

    /// The object is up to date.
    pub fn up_to_date() -> Self {
        Self::new(Reason::Settled, Step::Nothing)
    }

    /// A driver call has failed, and is repeated at that moment.
    pub fn call_failed(call: Call, error: &Error, failures: u32, retry_at: Timestamp) -> Self {
        let (kind, message) = (error.kind, error.message.clone());
        Self::new(Reason::CallFailed { call, kind, message, failures }, Step::Repeat(call, retry_at))
    }

    /// Sets since when the reason applies.
    #[must_use]
    pub fn since(mut self, since: impl Into<Option<Timestamp>>) -> Self {
        self.since = since.into();
        self
    }

    /// Sets a deadline and the step that follows it.
    #[must_use]
    pub fn deadline(mut self, at: Timestamp, then: Step) -> Self {
        self.deadline = Some(Deadline { at, then });
        self
    }
}

/// A moment, and the step that follows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deadline {
    /// The moment.
    pub at: Timestamp,
    /// The step that follows.
    pub then: Step,
}

/// The reason for an object's state: up to date, in progress, waiting or blocked.
#[derive(Debug, Clone, PartialEq, Eq, strum::IntoStaticStr)]
pub enum Reason<R> {
    /// The object is up to date.
    Settled,
    /// This controller is about to write. The text names the write, for example `adding the
    /// finalizer`.
    Writing(&'static str),
    /// This controller is about to read from the API server. The text names the object.
    Looking(&'static str),
    /// Another client or a user must act. The text says what the object waits for.
    Awaiting(&'static str),
    /// A driver call is in flight.
    Calling(Call),
    /// A driver call failed and will be retried.
    CallFailed {
        /// The failed call.
        call: Call,
        /// The kind of failure, which determines the retry.
        kind: ErrorKind,
        /// The message of the cloud.
        message: String,
        /// Number of consecutive failures; 0 if not counted.
        failures: u32,
    },
    /// The cloud throttles the account: no call is made before the pause ends.
    AccountPaused,
    /// This process has just become the leader, and a call of the previous leader may still take
    /// effect.
    PredecessorCalls,
    /// The API server did not answer a write, and its effect is not known yet.
    WriteUnsettled {
        /// The write, for example `DELETE of machines ns/m`.
        write: String,
    },
    /// The API server rejected a change of the object.
    ChangeRefused {
        /// The message of the API server.
        message: String,
    },
    /// The same action was planned twice and had no effect.
    NoEffect {
        /// The repeated action.
        action: String,
    },
    /// A bug of this program prevents work on this object.
    ProgramFailed {
        /// The operation that failed.
        what: &'static str,
        /// File and line of the failure.
        at: String,
        /// The panic message; empty if it might quote a secret.
        message: String,
    },
    /// The clocks may differ too much to enforce a deadline.
    ClockSkew {
        /// Upper bound of the difference, in seconds.
        seconds: u64,
    },
    /// A deadline is due, and the facts that decide about it are not fresh: the watch delivered
    /// nothing for too long.
    ServerSilent {
        /// The API server, for example `the API server of the target cluster`.
        server: String,
    },
    /// A reason that only objects of this contract have.
    Contract(R),
}

impl<R: ContractReason> From<R> for Reason<R> {
    fn from(reason: R) -> Self {
        Self::Contract(reason)
    }
}

/// The next step, taken by a user, a controller or the cloud.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// No step follows.
    Nothing,
    /// A user must act. The text says how to fix the problem.
    Fix(String),
    /// A controller or the cloud acts. The text says what happens.
    Expect(&'static str),
    /// A driver call is retried at this moment.
    Repeat(Call, Timestamp),
}

impl<R: ContractReason> Reason<R> {
    /// Returns the constant CamelCase name for conditions, Events and metrics.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Contract(reason) => reason.code(),
            shared => shared.into(),
        }
    }

    /// Returns the page about this reason below `docs/src`, and the anchor in it: the code in lower
    /// case with hyphens. For `ClassMissing` that is `stuck.md#class-missing`.
    pub fn page(&self) -> String {
        let page = match self {
            Self::Contract(_) => R::PAGE,
            _ => SHARED_PAGE,
        };
        format!("{page}#{}", anchor(self.code()))
    }

    /// Returns the section of the book about this reason for users, for example
    /// `docs/src/stuck.md#class-missing`.
    pub fn section(&self) -> String {
        format!("{BOOK}/{}", self.page())
    }
}

/// The reason of an object whose cloud does not answer. No planner has it.
pub const CLOUD_SILENT: &str = "CloudSilent";

/// Returns the section of the book about a reason that no planner has, such as [`CLOUD_SILENT`].
pub fn shared_section(code: &str) -> String {
    format!("{BOOK}/{SHARED_PAGE}#{}", anchor(code))
}

/// Returns the anchor of a section: the code of its reason in lower case with hyphens.
fn anchor(code: &str) -> String {
    let mut anchor = String::new();
    for letter in code.chars() {
        if letter.is_ascii_uppercase() && !anchor.is_empty() {
            anchor.push('-');
        }
        anchor.push(letter.to_ascii_lowercase());
    }
    anchor
}

impl<R: ContractReason> fmt::Display for Reason<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Settled => f.write_str("up to date"),
            Self::Writing(what) | Self::Awaiting(what) => f.write_str(what),
            Self::Looking(what) => write!(f, "reading {what} from the API server"),
            Self::Calling(call) => write!(f, "waiting for {} to {}", R::callee(*call), call.task()),
            Self::CallFailed { call, kind, message, failures } => {
                let (callee, task) = (R::callee(*call), call.task());
                write!(f, "{callee} failed{} to {task} ({kind}): {message}", times(*failures))
            }
            Self::AccountPaused => f.write_str("the cloud throttles this account; its calls are paused"),
            Self::PredecessorCalls => f.write_str("waiting for the last calls of the previous leader to end"),
            Self::WriteUnsettled { write } => {
                write!(f, "the API server has not answered a {write}; its outcome is unknown")
            }
            Self::ChangeRefused { message } => write!(f, "the API server rejected a change: {message}"),
            Self::NoEffect { action } => {
                write!(f, "repeated action had no effect: {action}; another client may be reverting it")
            }
            Self::ProgramFailed { what, at, message } => {
                write!(f, "internal error (please report it): {what} at {at}")?;
                if message.is_empty() { Ok(()) } else { write!(f, ": {message}") }
            }
            Self::ClockSkew { seconds } => {
                write!(f, "clock skew: this process may differ from the API server by {seconds} s")
            }
            Self::ServerSilent { server } => {
                write!(f, "{server} is silent; a deadline has passed and waits for its answer")
            }
            Self::Contract(reason) => fmt::Display::fmt(reason, f),
        }
    }
}

/// Renders a count of attempts with a leading space; empty if the count is unknown.
fn times(count: u32) -> String {
    match count {
        0 => String::new(),
        1 => " once".to_owned(),
        many => format!(" {many} times"),
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("nothing"),
            Self::Fix(what) => f.write_str(what),
            Self::Expect(what) => f.write_str(what),
            Self::Repeat(call, at) => write!(f, "try again to {} at {at:.0}", call.task()),
        }
    }
}

impl<R: ContractReason> fmt::Display for Why<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.reason)?;
        if let Some(since) = self.since {
            write!(f, "; since {since:.0}")?;
        }
        if self.next != Step::Nothing {
            write!(f, "; next: {}", self.next)?;
        }
        if let Some(Deadline { at, then }) = &self.deadline {
            write!(f, "; deadline {at:.0}: {then}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone, PartialEq)]
    struct Other;

    impl fmt::Display for Other {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("something else")
        }
    }

    impl ContractReason for Other {
        const PAGE: &'static str = "elsewhere.md";

        fn code(&self) -> &'static str {
            "Other"
        }
    }

    #[test]
    fn failures_are_counted_in_words() {
        let failed = |failures| Reason::<Other>::CallFailed {
            call: Call::ENSURE,
            kind: ErrorKind::Unavailable,
            message: "no".to_owned(),
            failures,
        };
        for (failures, expected) in [
            (0, "the cloud failed to create the instance (unavailable): no"),
            (1, "the cloud failed once to create the instance (unavailable): no"),
            (2, "the cloud failed 2 times to create the instance (unavailable): no"),
        ] {
            assert_eq!(failed(failures).to_string(), expected);
        }
    }

    #[test]
    fn an_anchor_is_named_after_the_code() {
        assert_eq!(Reason::<Other>::AccountPaused.page(), "stuck.md#account-paused");
        assert_eq!(Reason::Contract(Other).page(), "elsewhere.md#other");
        assert_eq!(Reason::Contract(Other).section(), "docs/src/elsewhere.md#other");
        assert_eq!(shared_section("CloudSilent"), "docs/src/stuck.md#cloud-silent");
    }

    #[test]
    fn a_contract_renders_its_own_reasons() {
        let why = Why::new(Other, Step::Nothing);
        assert_eq!((why.to_string().as_str(), why.reason.code()), ("something else", "Other"));
    }
}
