//! Why an object is where it is, as a value.
//!
//! A [`Why`] becomes a log line, an Event, a condition reason and the output of `machinist why`. Prose is rendered
//! here, last, and parsed nowhere. Reasons that objects of every contract may have are in [`Reason`]; each contract adds its own.

use std::fmt;

use jiff::Timestamp;
use machinist_instance::ErrorKind;

use crate::snapshot::Call;

/// A reason that only objects of one contract have.
pub trait ContractReason: fmt::Display + fmt::Debug + Clone + PartialEq + Send + Sync + 'static {
    /// A constant, CamelCase name for conditions, Events and metrics.
    fn code(&self) -> &'static str;
}

/// The first thing an object waits for, since when, what happens next, and by when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Why<R> {
    /// The first broken link, or that there is none.
    pub reason: Reason<R>,
    /// Since when, where that is known.
    pub since: Option<Timestamp>,
    /// The next step, and who takes it.
    pub next: Step,
    /// What happens if it lasts too long.
    pub deadline: Option<Deadline>,
}

impl<R> Why<R> {
    /// A reason, and what follows it.
    pub fn new(reason: impl Into<Reason<R>>, next: Step) -> Self {
        Self { reason: reason.into(), since: None, next, deadline: None }
    }

    /// Nothing is missing.
    pub fn settled() -> Self {
        Self::new(Reason::Settled, Step::Nothing)
    }

    /// The same, with its beginning.
    #[must_use]
    pub fn since(mut self, since: impl Into<Option<Timestamp>>) -> Self {
        self.since = since.into();
        self
    }

    /// The same, with an end.
    #[must_use]
    pub fn deadline(mut self, at: Timestamp, then: Step) -> Self {
        self.deadline = Some(Deadline { at, then });
        self
    }
}

/// A moment at which patience ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deadline {
    /// When.
    pub at: Timestamp,
    /// What is done then.
    pub then: Step,
}

/// What an object waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason<R> {
    /// Nothing is missing.
    Settled,
    /// This controller is about to write; the text names the write.
    Writing(&'static str),
    /// This controller is about to read something from the API server itself; the text names it.
    Looking(&'static str),
    /// Another program or a person has to act; the text names what is awaited.
    Awaiting(&'static str),
    /// A driver call is in flight.
    Calling(Call),
    /// A driver call failed and will be repeated.
    CallFailed {
        /// The call.
        call: Call,
        /// What can be done about it.
        kind: ErrorKind,
        /// What the cloud said.
        message: String,
        /// How many times in a row; 0 where it was not counted.
        failures: u32,
    },
    /// The cloud throttles the account: no call is made before its pause ends.
    AccountPaused,
    /// This process has just begun to lead, and a call of the former leader may still take effect.
    PredecessorCalls,
    /// The API server did not answer a write, and its effect is not known yet.
    WriteUnsettled {
        /// The write, for example `DELETE of machines ns/m`.
        write: String,
    },
    /// A change of the object was refused.
    ChangeRefused {
        /// What the API server said.
        message: String,
    },
    /// The same action was planned twice and changed nothing.
    NoEffect {
        /// The action.
        action: String,
    },
    /// This program has a bug that shows with this object.
    ProgramFailed {
        /// What failed.
        what: &'static str,
        /// The file and line.
        at: String,
        /// What was said there; empty where it might quote a secret.
        message: String,
    },
    /// The clocks disagree too much to enforce a deadline.
    ClockSkew {
        /// By how many seconds.
        seconds: u64,
    },
    /// A reason that only objects of this contract have.
    Contract(R),
}

impl<R: ContractReason> From<R> for Reason<R> {
    fn from(reason: R) -> Self {
        Self::Contract(reason)
    }
}

/// The next step, and who takes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// No step follows: this is how the object should be.
    Nothing,
    /// A person acts; the text says how.
    Mend(String),
    /// A controller or the cloud acts; the text says how.
    Expect(&'static str),
    /// A driver call is repeated.
    Repeat(Call, Timestamp),
}

impl<R: ContractReason> Reason<R> {
    /// A constant, CamelCase name for conditions, Events and metrics.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Settled => "Settled",
            Self::Writing(_) => "Writing",
            Self::Looking(_) => "Looking",
            Self::Awaiting(_) => "Awaiting",
            Self::Calling(_) => "Calling",
            Self::CallFailed { .. } => "CallFailed",
            Self::AccountPaused => "AccountPaused",
            Self::PredecessorCalls => "PredecessorCalls",
            Self::WriteUnsettled { .. } => "WriteUnsettled",
            Self::ChangeRefused { .. } => "ChangeRefused",
            Self::NoEffect { .. } => "NoEffect",
            Self::ProgramFailed { .. } => "ProgramFailed",
            Self::ClockSkew { .. } => "ClockSkew",
            Self::Contract(reason) => reason.code(),
        }
    }
}

impl<R: ContractReason> fmt::Display for Reason<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Settled => f.write_str("nothing: it is as it should be"),
            Self::Writing(what) | Self::Awaiting(what) => f.write_str(what),
            Self::Looking(what) => write!(f, "the API server to show {what}"),
            Self::Calling(call) => write!(f, "the cloud to answer {call}"),
            Self::CallFailed { call, kind, message, failures } => {
                write!(f, "the cloud: {call} failed{}, {kind}: {message}", times(*failures))
            }
            Self::AccountPaused => f.write_str("the cloud, which throttles this account"),
            Self::PredecessorCalls => {
                f.write_str("calls of the former leader to end: this process has just begun to lead")
            }
            Self::WriteUnsettled { write } => {
                write!(f, "the outcome of a {write}, which the API server has not answered")
            }
            Self::ChangeRefused { message } => write!(f, "the API server to accept a change: {message}"),
            Self::NoEffect { action } => write!(f, "somebody else: doing {action} changed nothing"),
            Self::ProgramFailed { what, at, message } => {
                write!(f, "a bug of this program to be mended: {what} at {at}")?;
                if message.is_empty() { Ok(()) } else { write!(f, ": {message}") }
            }
            Self::ClockSkew { seconds } => {
                write!(f, "clocks to agree: this process is {seconds} s off the API server's time")
            }
            Self::Contract(reason) => fmt::Display::fmt(reason, f),
        }
    }
}

/// How often something happened, after a space; nothing where that is not known.
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
            Self::Mend(what) => f.write_str(what),
            Self::Expect(what) => f.write_str(what),
            Self::Repeat(call, at) => write!(f, "{call} again at {at:.0}"),
        }
    }
}

impl<R: ContractReason> fmt::Display for Why<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "waits for {}", self.reason)?;
        if let Some(since) = self.since {
            write!(f, "; since {since:.0}")?;
        }
        if self.next != Step::Nothing {
            write!(f, "; next: {}", self.next)?;
        }
        if let Some(Deadline { at, then }) = &self.deadline {
            write!(f, "; by {at:.0}: {then}")?;
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
            (0, "the cloud: ensure failed, unavailable: no"),
            (1, "the cloud: ensure failed once, unavailable: no"),
            (2, "the cloud: ensure failed 2 times, unavailable: no"),
        ] {
            assert_eq!(failed(failures).to_string(), expected);
        }
    }

    #[test]
    fn a_contracts_own_reason_speaks_for_itself() {
        let why = Why::new(Other, Step::Nothing);
        assert_eq!((why.to_string().as_str(), why.reason.code()), ("waits for something else", "Other"));
    }
}
