//! Sends a request by mail at most once, even if processes crash at any point.
//!
//! ```text
//! an object older than this process: look the mail up once -> found: sent
//! intent on the object -> one call -> sent | rejected | unknown
//! unknown -> look the mail up -> found: sent
//!                             -> certainly not accepted: a new intent, with the same Message-Id
//! ```
//!
//! The mail service has no key that makes a call idempotent. So the intent is written to the object
//! before the call. A process that finds the intent of another process, or of an earlier one,
//! cannot know whether the call was made: it asks the mail service by the Message-Id, which was
//! chosen with the intent. The Message-Id is in the spec and the rest in annotations, because both
//! survive a move or a restore; the status does not. A restore of the store to a moment before the
//! intent loses both, but the Message-Id of an object is always the same. So a process looks it up
//! before the first intent, unless it saw the creation of the object and made no call for it. A
//! restore may also bring back an older intent. So a process remembers its own calls by the UID of
//! the object, also after the object was deleted ([`OwnCalls`]).
//!
//! The annotations name their object, and so does the Message-Id. A copy of an object, for example
//! by `kubectl get -o yaml | kubectl create`, has the annotations of the original: its mail was not
//! sent.
//!
//! This file has the facts, the actions and the decision. `look_up` says when the mail service
//! proves an absence, `letter` what the mail contains, `report` what users see.

mod letter;
mod look_up;
mod report;

pub use super::calls::{LOOK_UP, SEND};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use jiff::Timestamp;
use machinist_api::capi::{OnUncertain, constants};
use machinist_core::{Answered, Call, Process, Step, plus, retry_after};
use machinist_instance::{Error, ErrorKind};
use machinist_mailer::Envelope;
use serde::{Deserialize, Serialize};

use super::conditions::ConditionReport;
use crate::capi::facts::MailRequestFacts;
use crate::capi::why::{Reason, Why};
use letter::{envelope, fingerprint, message_id, problem, unrecorded_id};
use look_up::{after_the_attempt, before_the_attempt, had_no_effect, is_known_as_sent, made_no_call};
use report::{
    NEW_OBJECT, calling, hold, keeping, refused, repeating, sending, sent, with_answer, without_effect,
    writing,
};

pub use letter::Letter;
pub(crate) use report::COPY;

/// The longest duration of a call that sends a mail. The call also begins within this time after
/// its intent; later, the intent is written again.
pub const SEND_BOUND: Duration = Duration::from_secs(30);

/// The intent to send a mail: the content of the annotation
/// [`constants::SEND_INTENT_ANNOTATION`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Intent {
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// When the intent was decided.
    pub at: Timestamp,
    /// The process that may make the call.
    pub holder: String,
    /// Fingerprint of the mail service and its domain. Another one does not show the mail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// How the attempt ended; absent until that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<MailOutcome>,
    /// Fingerprint of the mail and the credential. A rejected mail is sent again after they change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<String>,
    /// Message of the mail service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MailOutcome {
    /// The mail service did not accept the mail.
    Rejected,
    /// The call certainly had no effect, and is repeated with a new intent.
    NotSent,
    /// Unknown.
    Unknown,
}

/// All facts about the mail of one object.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The moment of the decision.
    pub now: Timestamp,
    /// The deciding process.
    pub process: Process,
    /// Identity of this process, unique among all processes.
    pub identity: String,
    /// Domain of the mail service.
    pub domain: String,
    /// Fingerprint of the mail service and its domain; empty if it is not known.
    pub service: String,
    /// Recipient of requests without their own.
    pub recipient: String,
    /// Domains of permitted recipients; empty for all domains.
    pub recipient_domains: Vec<String>,
    /// The mail service shows an accepted mail within this time, as it promises.
    pub shown_within: Duration,
    /// Fingerprint of the credential.
    pub credential: String,
    /// The call in flight, and its start.
    pub in_flight: Option<(Call, Timestamp)>,
    /// Whether this process wrote the present intent and made no call of unknown effect since.
    pub may_send: bool,
    /// The last answer to the call that sends the mail.
    pub sent: Option<Answered<()>>,
    /// The last answer to a look-up: whether the mail service shows the mail.
    pub looked: Option<Answered<bool>>,
    /// Consecutive failures of the last sort of call.
    pub failures: u32,
    /// The calls of this process for this request, also from before a restore of the object.
    pub own_calls: OwnCalls,
}

/// The calls of this process for one request, also from before a restore. A deletion of the object
/// does not end this memory, because a restore of the store brings the object back with the same
/// UID.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct OwnCalls {
    /// Whether the mail service accepted the mail.
    pub accepted: bool,
    /// When the last call ended, or the latest time at which it may end. A call without an effect
    /// may be included: this only delays a mail.
    pub ended: Option<Timestamp>,
    /// When the last call has ended, of all calls that the process no longer remembers.
    pub forgotten: Option<Timestamp>,
}

impl Hash for Snapshot {
    /// The process is excluded like the moment.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { now: _, process: _, identity: _, domain: _, recipient: _, shown_within: _, .. } = self;
        let Self { service, recipient_domains, credential, .. } = self;
        (service, recipient_domains, credential).hash(state);
        self.in_flight.hash(state);
        let Self { may_send, sent, looked, failures, own_calls, .. } = self;
        (may_send, sent, looked, failures, own_calls).hash(state);
    }
}

/// One call about the mail of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Writes the Message-Id and the intent. The call may be made only after that.
    Intend {
        /// The Message-Id; absent if it is written already.
        message_id: Option<String>,
        /// The intent.
        intent: Intent,
    },
    /// Sends the mail.
    Send {
        /// The mail.
        mail: Box<Envelope>,
        /// The last moment at which the call may begin. Other processes know only the time of the
        /// intent.
        begins_by: Timestamp,
    },
    /// Looks the mail up.
    LookUp(String),
    /// Writes that the mail was accepted.
    ConcludeSent {
        /// The Message-Id; absent if it is written already.
        message_id: Option<String>,
    },
    /// Writes how the attempt ended.
    Conclude(Intent),
}

/// The state of a mail, the next action, and the condition.
#[derive(Debug)]
pub struct Decision {
    /// Whether the mail was accepted.
    pub is_sent: bool,
    /// The next action.
    pub action: Option<Action>,
    /// The reason for the state.
    pub why: Why,
    /// When to look again if nothing changes earlier.
    pub until: Option<Timestamp>,
    /// The condition RequestSent.
    pub report: ConditionReport,
    /// The value of `status.sendState`.
    pub state: &'static str,
}

/// Decides about the mail of one object.
pub fn decide(s: &Snapshot, letter: &Letter<'_>) -> Decision {
    let decision = decide_for_any_recipient(s, letter);
    let sends = matches!(decision.action, Some(Action::Intend { .. } | Action::Send { .. }));
    match problem(s, letter.request).filter(|_| sends) {
        Some((message, fix)) => refused(message, fix),
        None => decision,
    }
}

fn decide_for_any_recipient(s: &Snapshot, letter: &Letter<'_>) -> Decision {
    let request = letter.request;
    if request.is_copy() {
        return refused(COPY.to_owned(), NEW_OBJECT.to_owned());
    }
    if request.sent_at().is_some() {
        return sent();
    }
    if let Some((call, since)) = s.in_flight {
        return calling(s, letter, call, since);
    }
    if is_known_as_sent(s) {
        let why = writing("recording that the mail was accepted");
        let action = Action::ConcludeSent { message_id: unrecorded_id(s, letter) };
        return keeping(letter, Decision { action: Some(action), why, ..sending() });
    }
    match (request.recorded_id(), intent_of(request)) {
        (None, None) => first(s, letter),
        // The Message-Id without an intent was restored from a backup without annotations.
        (Some(_), None) => restored(s, letter),
        (None, Some(Ok(intent))) => intend(s, letter, intent.attempt.saturating_add(1)),
        (_, Some(Err(()))) => unreadable(s, letter),
        (Some(_), Some(Ok(intent))) => match intent.outcome {
            None => attempt(s, letter, &intent),
            Some(MailOutcome::Rejected) => rejected(s, letter, &intent),
            Some(MailOutcome::NotSent) => not_sent(s, letter, &intent),
            Some(MailOutcome::Unknown) => unknown(s, letter, &intent),
        },
    }
}

/// The object has no intent. A restore of the store may have lost the intent of a mail that was
/// sent: then the mail service shows the mail.
fn first(s: &Snapshot, letter: &Letter<'_>) -> Decision {
    let created = letter.request.object.created;
    // Creation timestamps are truncated. A restore does not end in the second in which a process
    // begins to act.
    let saw_creation = s.process.saw_creation_of(plus(created, Duration::from_secs(1)));
    let is_new = saw_creation && made_no_call(s, letter);
    if is_new || may_repeat(letter) {
        intend(s, letter, 1)
    } else {
        before_the_attempt(s, letter, created, 1)
    }
}

/// Writes the intent to send the mail.
fn intend(s: &Snapshot, letter: &Letter<'_>, attempt: u32) -> Decision {
    let (holder, service) = (s.identity.clone(), Some(s.service.clone()));
    let intent = Intent { attempt, at: s.now, holder, service, outcome: None, inputs: None, message: None };
    let why = writing("recording the intent to send the mail");
    let action = Action::Intend { message_id: unrecorded_id(s, letter), intent };
    Decision { action: Some(action), why, ..sending() }
}

/// The intent is on the object, and it is not known how the attempt ended.
fn attempt(s: &Snapshot, letter: &Letter<'_>, intent: &Intent) -> Decision {
    let is_own = intent.holder == s.identity;
    // If the answer to the write of this intent was lost, the last answer is about an earlier one.
    let answer = s.sent.as_ref().filter(|sent| is_own && intent.at <= sent.started);
    match answer.and_then(|sent| sent.answer.as_ref().err()) {
        Some(error) => conclude(s, letter, intent, error),
        None if is_own && s.may_send && 0 < s.failures => repeating(letter, send(s, letter, intent)),
        None if is_own && s.may_send => send(s, letter, intent),
        // Another process, or an earlier one, may have made the call, or may still make it.
        None => unknown(s, letter, intent),
    }
}

/// Sends the mail soon after the intent. An older intent is written again first.
fn send(s: &Snapshot, letter: &Letter<'_>, intent: &Intent) -> Decision {
    let begins_by = plus(intent.at, SEND_BOUND);
    if begins_by < s.now {
        return intend(s, letter, intent.attempt);
    }
    let why = Why::new(Reason::Calling(SEND), Step::Expect("the mail service accepts the mail"));
    let mail = Box::new(envelope(s, letter, message_id(s, letter)));
    Decision { action: Some(Action::Send { mail, begins_by }), why, ..sending() }
}

/// The call failed. Another process, or this one with another mail service, does not know how it
/// ended unless that is recorded.
fn conclude(s: &Snapshot, letter: &Letter<'_>, intent: &Intent, error: &Error) -> Decision {
    let outcome = match error.kind {
        ErrorKind::Throttled { .. } | ErrorKind::Unavailable if s.may_send => MailOutcome::NotSent,
        ErrorKind::InvalidSpec | ErrorKind::Denied | ErrorKind::Exhausted | ErrorKind::Unsupported => {
            MailOutcome::Rejected
        }
        ErrorKind::Ambiguous | ErrorKind::Bug | ErrorKind::Throttled { .. } | ErrorKind::Unavailable => {
            MailOutcome::Unknown
        }
    };
    let inputs = (outcome == MailOutcome::Rejected).then(|| fingerprint(s, letter));
    let message = Some(error.message.clone());
    let concluded = Intent { outcome: Some(outcome), inputs, message, ..intent.clone() };
    let why = writing("recording how the attempt ended");
    let decision = Decision { action: Some(Action::Conclude(concluded)), why, ..sending() };
    match outcome {
        MailOutcome::NotSent => repeating(letter, decision),
        MailOutcome::Rejected | MailOutcome::Unknown => decision,
    }
}

/// The mail service did not accept the mail. A corrected mail is sent with a new intent.
fn rejected(s: &Snapshot, letter: &Letter<'_>, intent: &Intent) -> Decision {
    if intent.inputs.as_deref() == Some(fingerprint(s, letter).as_str()) {
        let fix = "correct the spec, or start the provider with another credential".to_owned();
        return refused(intent.message.clone().unwrap_or_default(), fix);
    }
    let next = intent.attempt.saturating_add(1);
    if may_hide_an_attempt(s, letter, intent) {
        before_the_attempt(s, letter, intent.at, next)
    } else {
        intend(s, letter, next)
    }
}

/// The last call had no effect. It is repeated after a wait.
fn not_sent(s: &Snapshot, letter: &Letter<'_>, intent: &Intent) -> Decision {
    if may_hide_an_attempt(s, letter, intent) {
        return before_the_attempt(s, letter, intent.at, intent.attempt);
    }
    let failure = s.sent.as_ref().and_then(|sent| Some((sent.answer.as_ref().err()?, sent.ended)));
    if let Some((error, ended)) = failure {
        let retry_at = plus(ended, retry_after(error.kind, s.failures, Duration::ZERO));
        if s.now < retry_at {
            return without_effect(SEND, s.failures, error, retry_at);
        }
    }
    let mut decision = repeating(letter, intend(s, letter, intent.attempt));
    // The status shows this message. It stays until another answer, so that an attempt does not
    // write the status twice.
    if let Some(Action::Intend { intent: next, .. }) = &mut decision.action {
        next.message.clone_from(&intent.message);
    }
    decision
}

/// Whether an attempt after this one may have sent the mail: a restore of the store may have lost
/// it. False if this process knows that its last call had no effect, or if a user permits a second
/// mail. Another mail service shows nothing of this attempt.
fn may_hide_an_attempt(s: &Snapshot, letter: &Letter<'_>, intent: &Intent) -> bool {
    let is_same_service = intent.service.as_ref() == Some(&s.service);
    is_same_service && !had_no_effect(s) && !may_repeat(letter)
}

/// Decides if the effect of the attempt is unknown. Only the mail service of the attempt knows the
/// effect.
fn unknown(s: &Snapshot, letter: &Letter<'_>, intent: &Intent) -> Decision {
    let is_known = !s.service.is_empty();
    let is_elsewhere = intent.service.as_ref().is_some_and(|service| is_known && *service != s.service);
    if is_elsewhere && !may_repeat(letter) {
        return hold("another mail service or domain was used before");
    }
    let decision = after_the_attempt(s, letter, intent.at, intent.attempt);
    match &intent.message {
        Some(message) => with_answer(decision, message),
        None => decision,
    }
}

/// The time of the intent is lost. So the mail service may have forgotten the mail, and an absence
/// proves nothing. A mail that it still shows was sent.
fn restored(s: &Snapshot, letter: &Letter<'_>) -> Decision {
    let decision = after_the_attempt(s, letter, letter.request.object.created, 1);
    let sends_again = matches!(decision.action, Some(Action::Intend { .. }));
    if sends_again && !may_repeat(letter) {
        return hold("the object was restored, and the mail service does not show the mail");
    }
    decision
}

/// The annotation with the intent has another form. A user decides.
fn unreadable(s: &Snapshot, letter: &Letter<'_>) -> Decision {
    let request = letter.request;
    if request.object.annotation(constants::RESEND_ANNOTATION).is_some() && request.message_id.is_some() {
        intend(s, letter, 2)
    } else {
        hold("the annotation with the intent cannot be read")
    }
}

/// Whether a user has decided that the mail may arrive twice.
fn may_repeat(letter: &Letter<'_>) -> bool {
    letter.request.object.annotation(constants::RESEND_ANNOTATION).is_some()
        || matches!(letter.request.on_uncertain, OnUncertain::Resend)
}

/// Reads the intent of an object; an error if the annotation has another form. The intent of
/// another object does not count: it was copied.
pub fn intent_of(request: &MailRequestFacts) -> Option<Result<Intent, ()>> {
    let (text, is_own) = request.intent()?;
    let read = |text| serde_json::from_str::<Intent>(text);
    // The text of a copied intent: namespace, name, intent.
    let is_of_another = || text.splitn(3, '/').nth(2).is_some_and(|text| read(text).is_ok());
    match read(text) {
        Ok(intent) => is_own.then_some(Ok(intent)),
        Err(_) => (!is_of_another()).then_some(Err(())),
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Intend { intent, .. } => write!(f, "intend attempt {}", intent.attempt),
            Self::Send { mail, .. } => write!(f, "send {}", mail.message_id),
            Self::LookUp(id) => write!(f, "look {id} up"),
            Self::ConcludeSent { .. } => f.write_str("record: sent"),
            Self::Conclude(intent) => match intent.outcome {
                Some(MailOutcome::Rejected) => f.write_str("record: rejected"),
                Some(MailOutcome::NotSent) => f.write_str("record: not sent"),
                Some(MailOutcome::Unknown) | None => f.write_str("record: unknown"),
            },
        }
    }
}

#[cfg(test)]
mod tests;
