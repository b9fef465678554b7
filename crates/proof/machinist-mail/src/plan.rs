//! The planner of a Mail: record the intent, send the letter, record the result.
//!
//! ```text
//! no state -> Sending (the intent) -> one call -> Sent | Failed | Unknown
//! ```
//!
//! The controller records the intent on the object before the call. If a process finds the intent
//! of another process, it cannot know whether that process made the call. So it never repeats the
//! call, and records the outcome as unknown.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use machinist_core::{Answered, Call, ContractReason, Plan, Reason, Step, Why, plus, retry_after};
use machinist_instance::{Error, ErrorKind};

/// The call that sends a letter.
pub const SEND: Call = Call::change("send");

/// The facts of one decision.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The time of the decision.
    pub now: Timestamp,
    /// The text of `status.state`, not parsed.
    pub state: Option<String>,
    /// Whether the call may be made: this process recorded the intent, and no later call of it has
    /// an unknown effect.
    pub may_send: bool,
    /// The call in flight, and its start.
    pub in_flight: Option<(Call, Timestamp)>,
    /// The last answer to a call.
    pub answered: Option<Answered<()>>,
}

/// One planned call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Record the intent to send the letter.
    Intend,
    /// Send the letter.
    Send,
    /// Record the result in `status.state`.
    Conclude(&'static str),
}

/// The reasons that only Mails have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MailReason {
    /// A process crashed between the intent and the answer, or the call failed with unknown effect.
    OutcomeUnknown,
    /// The post office rejected the letter.
    Refused,
}

/// Decides about one Mail.
pub fn plan(s: &Snapshot) -> Plan<Action, MailReason> {
    let writes = |what| Why::new(Reason::Writing(what), Step::Expect("the letter is sent at most once"));
    match (s.state.as_deref(), &s.in_flight, &s.answered) {
        (Some("Sent"), _, _) => Plan::idle(Why::settled()),
        (Some("Failed"), _, _) => {
            Plan::idle(Why::new(MailReason::Refused, Step::Fix("create another Mail".to_owned())))
        }
        (Some("Unknown"), _, _) => {
            Plan::idle(Why::new(MailReason::OutcomeUnknown, Step::Fix("ask the recipient".to_owned())))
        }
        (_, Some((call, since)), _) => Plan::idle(
            Why::new(Reason::Calling(*call), Step::Expect("the post office answers")).since(*since),
        ),
        (None, None, _) => Plan::act(Action::Intend, writes("recording the intent to send the letter")),
        (Some(_), None, Some(Answered { answer: Ok(()), .. })) => {
            Plan::act(Action::Conclude("Sent"), writes("recording that the letter was sent"))
        }
        (Some(_), None, Some(Answered { answer: Err(error), ended, .. })) => failed(s, error, *ended),
        (Some(_), None, None) if s.may_send => {
            Plan::act(Action::Send, Why::new(Reason::Calling(SEND), Step::Expect("the post office answers")))
        }
        (Some(_), None, None) => {
            Plan::act(Action::Conclude("Unknown"), writes("recording that the outcome is unknown"))
        }
    }
}

fn failed(s: &Snapshot, error: &Error, ended: Timestamp) -> Plan<Action, MailReason> {
    let conclude =
        |state, what| Plan::act(Action::Conclude(state), Why::new(Reason::Writing(what), Step::Nothing));
    match error.kind {
        ErrorKind::Throttled { .. } | ErrorKind::Unavailable if s.may_send => {
            let again = plus(ended, retry_after(error.kind, 1, Duration::ZERO));
            let why = Why::call_failed(SEND, error, 1, again);
            if again <= s.now { Plan::act(Action::Send, why) } else { Plan::until(again, why) }
        }
        ErrorKind::Ambiguous | ErrorKind::Bug | ErrorKind::Throttled { .. } | ErrorKind::Unavailable => {
            conclude("Unknown", "recording that the outcome is unknown")
        }
        ErrorKind::InvalidSpec | ErrorKind::Denied | ErrorKind::Exhausted | ErrorKind::Unsupported => {
            conclude("Failed", "recording that the post office rejected the letter")
        }
    }
}

impl ContractReason for MailReason {
    fn code(&self) -> &'static str {
        match self {
            Self::OutcomeUnknown => "OutcomeUnknown",
            Self::Refused => "Refused",
        }
    }
}

impl fmt::Display for MailReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OutcomeUnknown => "the outcome of sending the letter is unknown",
            Self::Refused => "the post office rejected the letter",
        })
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Intend => f.write_str("status: Sending"),
            Self::Send => f.write_str("post: send"),
            Self::Conclude(state) => write!(f, "status: {state}"),
        }
    }
}
