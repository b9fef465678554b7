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
//! An absence counts only while the mail service certainly still shows the mail: after the time
//! that the service promises (`shown_within`), and before `REMEMBERED_FOR`. Later, a user decides.
//! `shown_within` begins when no call can still run: some time after the intent, by the clock
//! that wrote the intent, and some time after this process began to act, by its own clock. The
//! second rule holds also if a clock steps, and if the clock of a successor is far ahead.

pub use super::calls::{LOOK_UP, SEND};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use jiff::Timestamp;
use machinist_api::capi::constants::conditions::REQUEST_SENT;
use machinist_api::capi::{OnUncertain, constants};
use machinist_core::{Answered, Call, Process, Step, plus, retry_after};
use machinist_instance::{Envelope, Error, ErrorKind};
use serde::{Deserialize, Serialize};

use super::conditions::ConditionReport;
use crate::capi::facts::{LONGEST_MESSAGE_ID, MailRequestFacts};
use crate::capi::why::{CapiReason, Reason, Why};

/// The longest duration of a call that sends a mail. The call also begins within this time after
/// its intent; later, the intent is written again.
pub const SEND_BOUND: Duration = Duration::from_secs(30);
/// How far clocks of two processes may differ.
const SKEW: Duration = Duration::from_secs(60);
/// After this time the mail service may have forgotten the mail, so an absence proves nothing.
/// Mailgun shows the events of a free account for one day; the rest is a reserve for its clock and
/// for the clock of the process that sent the mail.
const REMEMBERED_FOR: Duration = Duration::from_secs(20 * 3600);
/// First and longest wait between two look-ups.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(60));
/// State of a mail that the service did not accept because of its rate limit.
const THROTTLED: &str = "Throttled";
/// State of a mail that was not sent because the service cannot be reached.
const UNAVAILABLE: &str = "Unavailable";
/// State of a mail that may have been accepted.
const UNSURE: &str = "Uncertain";
const UNCERTAIN: &str = "It is unknown whether the mail was accepted";
/// Condition of an object that was copied with the marks of another one.
pub(crate) const COPY: &str = "spec.messageID: this object is a copy of another object, which has that Message-Id. The \
     field cannot be changed. Delete this object, and create it again without spec.messageID";
/// What to do if the Message-Id, which cannot be changed, is wrong.
const NEW_OBJECT: &str = "delete the object, and create it again without spec.messageID";

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

/// The text of a request.
pub struct Letter<'a> {
    /// Kind of the object, in lower case.
    pub kind: &'static str,
    /// Purpose of the mail.
    pub purpose: &'static str,
    /// Subject.
    pub subject: String,
    /// Text.
    pub text: String,
    /// The object.
    pub request: &'a MailRequestFacts,
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

/// Returns the field because of which the mail must not be sent, and what to do.
fn problem(s: &Snapshot, request: &MailRequestFacts) -> Option<(String, String)> {
    let is_header_safe = |id: &str| id.bytes().all(|byte| byte.is_ascii_graphic() && !b"<>".contains(&byte));
    if !is_header_safe(request.message_id.as_deref().unwrap_or_default()) {
        let message = "spec.messageID: expected printable ASCII without spaces, < and >".to_owned();
        return Some((message, NEW_OBJECT.to_owned()));
    }
    let domains = &s.recipient_domains;
    let is_permitted = |recipient: &String| {
        let domain = recipient.rsplit_once('@').map(|(_, domain)| domain);
        domain.is_some_and(|domain| domains.iter().any(|allowed| allowed.eq_ignore_ascii_case(domain)))
    };
    let index = request.recipients.iter().position(|recipient| !is_permitted(recipient));
    let index = index.filter(|_| !domains.is_empty())?;
    let expected = domains.join(", ");
    let message = format!("spec.recipients[{index}]: expected an address of one of the domains {expected}");
    let fix = "correct spec.recipients, or start the provider with another --recipient-domains".to_owned();
    Some((message, fix))
}

/// The mail must not be sent.
fn refused(message: String, fix: String) -> Decision {
    let report = ConditionReport::no(REQUEST_SENT, "Rejected", message.clone()).in_v1(
        REQUEST_SENT,
        "Rejected",
        "Error",
    );
    let why = Why::new(CapiReason::MailRejected { message }, Step::Fix(fix));
    Decision { why, report, state: "Rejected", ..sending() }
}

fn decide_for_any_recipient(s: &Snapshot, letter: &Letter<'_>) -> Decision {
    let request = letter.request;
    if request.is_copy() {
        return refused(COPY.to_owned(), NEW_OBJECT.to_owned());
    }
    if request.sent_at().is_some() {
        return Decision {
            is_sent: true,
            action: None,
            why: Why::settled(),
            until: None,
            report: ConditionReport::yes(REQUEST_SENT, "Sent").in_v1(REQUEST_SENT, "Sent", "Info"),
            state: "Sent",
        };
    }
    if let Some((call, since)) = s.in_flight {
        let why = Why::new(Reason::Calling(call), Step::Expect("the mail service answers")).since(since);
        let decision = Decision { action: None, why, ..sending() };
        return if call == LOOK_UP {
            still_unsure(s, letter, decision)
        } else if 0 < s.failures {
            repeating(letter, decision)
        } else {
            decision
        };
    }
    if s.own_calls.accepted {
        let message_id = request.recorded_id().is_none().then(|| message_id(s, letter));
        let why = writing("recording that the mail was accepted");
        return Decision { action: Some(Action::ConcludeSent { message_id }), why, ..sending() };
    }
    match (request.recorded_id(), intent_of(request)) {
        (None, None) => first(s, letter),
        // The Message-Id without an intent was restored from a backup without annotations.
        (Some(id), None) => restored(s, letter, id),
        (None, Some(Ok(intent))) => intend(s, letter, intent.attempt.saturating_add(1)),
        (_, Some(Err(()))) => hold(letter, 1, s, "the annotation with the intent cannot be read"),
        (Some(id), Some(Ok(intent))) => match intent.outcome {
            None => attempt(s, letter, id, &intent),
            Some(MailOutcome::Rejected) => rejected(s, letter, id, &intent),
            Some(MailOutcome::NotSent) => not_sent(s, letter, id, &intent),
            Some(MailOutcome::Unknown) => unknown(s, letter, id, &intent),
        },
    }
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

fn writing(what: &'static str) -> Why {
    Why::new(Reason::Writing(what), Step::Expect("the mail is sent at most once"))
}

/// A mail whose state is not known yet, without an action.
fn sending() -> Decision {
    Decision {
        is_sent: false,
        action: None,
        why: Why::settled(),
        until: None,
        report: ConditionReport::no(REQUEST_SENT, "Sending", "").in_v1(REQUEST_SENT, "Sending", "Info"),
        state: "Sending",
    }
}

/// The object has no intent. A restore of the store may have lost the intent of a mail that was
/// sent: then an answer of this process or the mail service shows the mail.
fn first(s: &Snapshot, letter: &Letter<'_>) -> Decision {
    if is_known_as_sent(s) {
        let action = Action::ConcludeSent { message_id: Some(message_id(s, letter)) };
        let why = writing("recording that the mail was accepted before the object was restored");
        return Decision { action: Some(action), why, ..sending() };
    }
    // Creation timestamps are truncated. A restore does not end in the second in which a process
    // begins to act.
    let created = plus(letter.request.object.created, Duration::from_secs(1));
    let is_new = s.process.saw_the_birth_of(created) && s.sent.is_none() && made_no_call(s, letter);
    if is_new || may_repeat(letter) {
        return intend(s, letter, 1);
    }
    look_up_before(s, letter, message_id(s, letter), (letter.request.object.created, 1))
}

/// Looks a mail up before it is sent, in case a restore of the store has lost that it was sent. It
/// may have been sent since `since`, and until a call of an earlier process ended after this
/// process began to act, or until a call of this process ended. The look counts once the mail
/// service certainly shows such a mail, and as long as it remembers it. That moment is not recorded
/// on the object: a restore could bring the record back, and then the mail would be sent twice. So
/// a process that restarts more often than that never sends such a mail.
fn look_up_before(
    s: &Snapshot,
    letter: &Letter<'_>,
    id: String,
    (since, attempt): (Timestamp, u32),
) -> Decision {
    let earlier = plus(s.process.acting_since(), SEND_BOUND);
    let counts_from = plus(own_call(s).map_or(earlier, |own| own.max(earlier)), s.shown_within);
    let why = Why::new(Reason::Calling(LOOK_UP), Step::Expect("the mail is sent if it was not sent before"));
    let look_up = Decision { action: Some(Action::LookUp(id)), why, ..sending() };
    let Some(looked) = &s.looked else { return look_up };
    match &looked.answer {
        Ok(_) if looked.started <= counts_from => {
            if counts_from < s.now {
                return look_up;
            }
            let reason = Reason::Awaiting(
                "waiting until the mail service certainly shows a mail that was sent before this process began",
            );
            let why = Why::new(reason, Step::Expect("the mail is sent if the mail service does not show it"));
            let due = plus(counts_from, Duration::from_secs(1));
            repeating(letter, Decision { why, until: Some(due), ..sending() })
        }
        Ok(_) if looked.ended < plus(since, REMEMBERED_FOR) => intend(s, letter, attempt),
        Ok(_) => hold(letter, attempt, s, "the mail service may have forgotten a mail that was sent before"),
        // An object without an intent is rarely a restored one, and a key that may only send cannot
        // look mails up.
        Err(error) if is_forbidden(error.kind) => intend(s, letter, attempt),
        // No answer is not an absence.
        Err(error) => {
            let retry_at = plus(looked.ended, retry_after(error.kind, s.failures, LOOK_AGAIN.1));
            if retry_at <= s.now {
                repeating(letter, look_up)
            } else {
                without_effect(LOOK_UP, s.failures, error, retry_at)
            }
        }
    }
}

/// Whether this process certainly made no call for an object whose creation it saw. No call is
/// older than its object.
fn made_no_call(s: &Snapshot, letter: &Letter<'_>) -> bool {
    let OwnCalls { accepted: _, ended, forgotten } = s.own_calls;
    ended.is_none() && forgotten.is_none_or(|ended| plus(ended, SKEW) < letter.request.object.created)
}

/// Returns the end of the last call of this process that may have sent the mail.
fn own_call(s: &Snapshot) -> Option<Timestamp> {
    let sent = s.sent.as_ref().filter(|_| !had_no_effect(s)).map(|sent| sent.ended);
    sent.max(s.own_calls.ended).max(s.own_calls.forgotten)
}

/// Whether the mail service will never let this credential look a mail up.
fn is_forbidden(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Denied | ErrorKind::Unsupported)
}

fn intend(s: &Snapshot, letter: &Letter<'_>, attempt: u32) -> Decision {
    let is_new = letter.request.message_id.as_ref().is_none_or(String::is_empty);
    let (holder, service) = (s.identity.clone(), Some(s.service.clone()));
    let intent = Intent { attempt, at: s.now, holder, service, outcome: None, inputs: None, message: None };
    let message_id = is_new.then(|| message_id(s, letter));
    let why = writing("recording the intent to send the mail");
    Decision { action: Some(Action::Intend { message_id, intent }), why, ..sending() }
}

/// Returns the Message-Id. The same object and purpose always have the same one.
fn message_id(s: &Snapshot, letter: &Letter<'_>) -> String {
    let object = &letter.request.object;
    let (namespace, name, uid) = (&object.namespace, &object.name, &object.uid);
    let id = format!("machinist.{}.{namespace}.{name}.{uid}.{}@{}", letter.kind, letter.purpose, s.domain);
    if id.len() <= LONGEST_MESSAGE_ID {
        return id;
    }
    format!("machinist.{}.{uid}.{}@{}", letter.kind, letter.purpose, s.domain)
}

/// The intent is on the object, and it is not known how the attempt ended.
fn attempt(s: &Snapshot, letter: &Letter<'_>, id: &str, intent: &Intent) -> Decision {
    let is_own = intent.holder == s.identity;
    let conclude = |outcome, error: &Error| {
        let inputs = (outcome == MailOutcome::Rejected).then(|| fingerprint(s, letter));
        let message = Some(error.message.clone());
        let concluded = Intent { outcome: Some(outcome), inputs, message, ..intent.clone() };
        let why = writing("recording how the attempt ended");
        Decision { action: Some(Action::Conclude(concluded)), why, ..sending() }
    };
    // If the answer to the write of this intent was lost, the last answer is about an earlier one.
    let is_about_it = |sent: &&Answered<()>| is_own && (sent.answer.is_ok() || intent.at <= sent.started);
    match s.sent.as_ref().filter(is_about_it).map(|sent| &sent.answer) {
        Some(Ok(())) => {
            let why = writing("recording that the mail was accepted");
            Decision { action: Some(Action::ConcludeSent { message_id: None }), why, ..sending() }
        }
        Some(Err(error)) => match error.kind {
            // The call had no effect. Another process, or this one with another mail service, does
            // not know that unless it is recorded.
            ErrorKind::Throttled { .. } | ErrorKind::Unavailable if s.may_send => {
                repeating(letter, conclude(MailOutcome::NotSent, error))
            }
            ErrorKind::InvalidSpec | ErrorKind::Denied | ErrorKind::Exhausted | ErrorKind::Unsupported => {
                conclude(MailOutcome::Rejected, error)
            }
            ErrorKind::Ambiguous | ErrorKind::Bug | ErrorKind::Throttled { .. } | ErrorKind::Unavailable => {
                conclude(MailOutcome::Unknown, error)
            }
        },
        None if is_own && s.may_send && 0 < s.failures => repeating(letter, send(s, letter, id, intent)),
        None if is_own && s.may_send => send(s, letter, id, intent),
        // Another process, or an earlier one, may have made the call, or may still make it.
        None => unknown(s, letter, id, intent),
    }
}

/// The last call had no effect. It is repeated after a wait. A process that has not made the call
/// looks the mail up first: a restore of the store may have lost a later attempt. Another mail
/// service shows nothing of this one.
fn not_sent(s: &Snapshot, letter: &Letter<'_>, id: &str, intent: &Intent) -> Decision {
    if let Some(decision) = accepted_or_unknown(s, letter, id, intent, intent.attempt) {
        return decision;
    }
    let failure = s.sent.as_ref().and_then(|sent| Some((sent.answer.as_ref().err()?, sent.ended)));
    if let Some((error, ended)) = failure {
        let retry_at = retry_of_send(s, error, ended);
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

/// A restore of the store may have lost an attempt after this one. Concludes that the mail was
/// accepted, or looks the mail up before the next attempt. Returns nothing if this process knows
/// that its last call had no effect, if a user permits a second mail, and if the mail service of
/// the attempt is another one.
fn accepted_or_unknown(
    s: &Snapshot,
    letter: &Letter<'_>,
    id: &str,
    intent: &Intent,
    next: u32,
) -> Option<Decision> {
    if is_known_as_sent(s) {
        let why = writing("recording that the mail was accepted before the object was restored");
        return Some(Decision { action: Some(Action::ConcludeSent { message_id: None }), why, ..sending() });
    }
    let is_same_service = intent.service.as_ref() == Some(&s.service);
    if had_no_effect(s) || !is_same_service || may_repeat(letter) {
        return None;
    }
    Some(look_up_before(s, letter, id.to_owned(), (intent.at, next)))
}

/// Whether an answer to this process shows that the mail was accepted.
fn is_known_as_sent(s: &Snapshot) -> bool {
    s.sent.as_ref().is_some_and(|sent| sent.answer.is_ok())
        || s.looked.as_ref().is_some_and(|looked| looked.answer == Ok(true))
}

/// Whether the last call of this process that sends the mail certainly had no effect.
fn had_no_effect(s: &Snapshot) -> bool {
    let error = s.sent.as_ref().and_then(|sent| sent.answer.as_ref().err());
    error.is_some_and(|error| !matches!(error.kind, ErrorKind::Ambiguous | ErrorKind::Bug))
}

fn retry_of_send(s: &Snapshot, error: &Error, ended: Timestamp) -> Timestamp {
    plus(ended, retry_after(error.kind, s.failures, Duration::ZERO))
}

/// Waits before it repeats a call that had no effect.
fn without_effect(call: Call, failures: u32, error: &Error, retry_at: Timestamp) -> Decision {
    let why = Why::call_failed(call, error, failures, retry_at);
    let is_throttled = matches!(error.kind, ErrorKind::Throttled { .. });
    let state = if is_throttled { THROTTLED } else { UNAVAILABLE };
    let report = no_effect(state, error.message.clone());
    Decision { why, until: Some(retry_at), report, state, ..sending() }
}

/// The mail service did not accept the mail, and will be asked again.
fn no_effect(state: &'static str, message: String) -> ConditionReport {
    ConditionReport::no(REQUEST_SENT, state, message).in_v1(REQUEST_SENT, state, "Warning")
}

/// Repeats a call that had no effect. The status keeps the failure until the call has another
/// answer: otherwise each attempt would write it twice.
fn repeating(letter: &Letter<'_>, decision: Decision) -> Decision {
    let conditions = letter.request.status.iter().flat_map(|status| &status.conditions);
    let mut shown = conditions.filter(|shown| shown.type_ == REQUEST_SENT);
    let failure = shown.find_map(|shown| {
        let state = [THROTTLED, UNAVAILABLE].into_iter().find(|state| *state == shown.reason)?;
        Some((state, no_effect(state, shown.message.clone())))
    });
    match failure {
        Some((state, report)) => Decision { report, state, ..decision },
        None => decision,
    }
}

/// Sends the mail soon after the intent. An older intent is written again first.
fn send(s: &Snapshot, letter: &Letter<'_>, id: &str, intent: &Intent) -> Decision {
    let begins_by = plus(intent.at, SEND_BOUND);
    if begins_by < s.now {
        return intend(s, letter, intent.attempt);
    }
    let why = Why::new(Reason::Calling(SEND), Step::Expect("the mail service accepts the mail"));
    let mail = Box::new(envelope(s, letter, id));
    Decision { action: Some(Action::Send { mail, begins_by }), why, ..sending() }
}

fn envelope(s: &Snapshot, letter: &Letter<'_>, id: &str) -> Envelope {
    let request = letter.request;
    let recipients = match request.recipients.as_slice() {
        [] => vec![s.recipient.clone()],
        recipients => recipients.to_vec(),
    };
    Envelope {
        message_id: id.to_owned(),
        requester: request.requester.clone(),
        recipients,
        subject: letter.subject.clone(),
        text: letter.text.clone(),
        uid: request.object.uid.clone(),
        purpose: letter.purpose,
    }
}

/// The mail service did not accept the mail. A corrected mail is sent with a new intent.
fn rejected(s: &Snapshot, letter: &Letter<'_>, id: &str, intent: &Intent) -> Decision {
    if is_known_as_sent(s) || intent.inputs.as_deref() != Some(fingerprint(s, letter).as_str()) {
        let next = intent.attempt.saturating_add(1);
        let known = accepted_or_unknown(s, letter, id, intent, next);
        return known.unwrap_or_else(|| intend(s, letter, next));
    }
    let fix = "correct the spec, or start the provider with another credential".to_owned();
    refused(intent.message.clone().unwrap_or_default(), fix)
}

/// Returns the fingerprint of the mail and the credential.
fn fingerprint(s: &Snapshot, letter: &Letter<'_>) -> String {
    let mut hash = fnv::FnvHasher::default();
    envelope(s, letter, "").hash(&mut hash);
    s.credential.hash(&mut hash);
    format!("{:016x}", hash.finish())
}

/// It is unknown whether the attempt had an effect. Only the mail service of the attempt can tell.
fn unknown(s: &Snapshot, letter: &Letter<'_>, id: &str, intent: &Intent) -> Decision {
    let is_known = !s.service.is_empty();
    let is_elsewhere = intent.service.as_ref().is_some_and(|service| is_known && *service != s.service);
    if is_elsewhere && !may_repeat(letter) {
        return hold(letter, intent.attempt, s, "another mail service or domain was used before");
    }
    let decision = uncertain(s, letter, id, intent.at, intent.attempt);
    match &intent.message {
        Some(message) if decision.report.message == UNCERTAIN => {
            let message = format!("{UNCERTAIN}. The last answer of the mail service: {message}");
            Decision { report: unsure_because(message), ..decision }
        }
        Some(_) | None => decision,
    }
}

/// The time of the intent is lost. So the mail service may have forgotten the mail, and an absence
/// proves nothing. A mail that it still shows was sent.
fn restored(s: &Snapshot, letter: &Letter<'_>, id: &str) -> Decision {
    let decision = uncertain(s, letter, id, letter.request.object.created, 1);
    let sends_again = matches!(decision.action, Some(Action::Intend { .. }));
    if sends_again && !may_repeat(letter) {
        return hold(letter, 1, s, "the object was restored, and the mail service does not show the mail");
    }
    decision
}

/// Whether a user has decided that the mail may arrive twice.
fn may_repeat(letter: &Letter<'_>) -> bool {
    letter.request.object.annotation(constants::RESEND_ANNOTATION).is_some()
        || matches!(letter.request.on_uncertain, OnUncertain::Resend)
}

/// It is unknown whether the mail was accepted. `since` is the time of the intent.
fn uncertain(s: &Snapshot, letter: &Letter<'_>, id: &str, since: Timestamp, attempts: u32) -> Decision {
    let last_call = last_call(s, since);
    if may_repeat(letter) && last_call < s.now {
        return intend(s, letter, attempts.saturating_add(1));
    }
    let decision = match letter.request.on_uncertain {
        OnUncertain::Resend => Decision { why: asking(), ..unsure() },
        OnUncertain::Hold => hold(letter, attempts, s, "spec.onUncertain is Hold"),
        OnUncertain::Verify | OnUncertain::Other(_) => verify(s, letter, id, (since, last_call), attempts),
    };
    if !may_repeat(letter) {
        return decision;
    }
    // No event reports the end of the last call.
    let repeats_at = plus(last_call, Duration::from_secs(1));
    Decision { until: Some(decision.until.map_or(repeats_at, |until| until.min(repeats_at))), ..decision }
}

/// Returns the end of the last call that may have been made for an intent of that time.
fn last_call(s: &Snapshot, intended: Timestamp) -> Timestamp {
    // A call of another process begins within the bound after the intent, by the clock of that
    // process, and ends within the bound.
    let by_the_intent = plus(intended, SEND_BOUND + SEND_BOUND + SKEW);
    // That clock may have been wrong. No call from before this process began to act, or from before
    // a step of its clock, lasts longer than the bound.
    let earlier = by_the_intent.max(plus(s.process.acting_since(), SEND_BOUND));
    // A restore may have brought back an older intent than the intent of the last call.
    own_call(s).map_or(earlier, |own| own.max(earlier))
}

/// Asks the mail service. It shows an accepted mail some time after the last call.
fn verify(
    s: &Snapshot,
    letter: &Letter<'_>,
    id: &str,
    (since, last_call): (Timestamp, Timestamp),
    attempts: u32,
) -> Decision {
    let counts_from = plus(last_call, s.shown_within);
    let look_up = || Decision { action: Some(Action::LookUp(id.to_owned())), why: asking(), ..unsure() };
    let Some(looked) = &s.looked else { return look_up() };
    match &looked.answer {
        Ok(true) => {
            let why = writing("recording that the mail service shows the mail");
            Decision { action: Some(Action::ConcludeSent { message_id: None }), why, ..unsure() }
        }
        Ok(false) if counts_from < looked.started => {
            if looked.ended < plus(since, REMEMBERED_FOR) {
                intend(s, letter, attempts.saturating_add(1))
            } else {
                hold(letter, attempts, s, "the mail service may have forgotten the mail")
            }
        }
        Ok(false) => {
            // Each wait is as long as all time before it, so the waits double without a counter.
            let elapsed = machinist_core::since(looked.ended, since);
            let wait = elapsed.clamp(LOOK_AGAIN.0, LOOK_AGAIN.1);
            let due = plus(looked.ended, wait);
            if due <= s.now { look_up() } else { Decision { until: Some(due), why: asking(), ..unsure() } }
        }
        Err(error) if is_forbidden(error.kind) => {
            hold(letter, attempts, s, &format!("the mail service cannot be asked: {}", error.message))
        }
        Err(error) => {
            let retry_at = plus(looked.ended, retry_after(error.kind, s.failures, LOOK_AGAIN.1));
            if retry_at <= s.now {
                return look_up();
            }
            let why = Why::call_failed(LOOK_UP, error, s.failures, retry_at);
            Decision { until: Some(retry_at), why, ..unsure() }
        }
    }
}

fn asking() -> Why {
    Why::new(
        CapiReason::MailUncertain,
        Step::Expect("the mail is sent again only if it was certainly not accepted"),
    )
}

fn unsure() -> Decision {
    Decision { report: unsure_because(UNCERTAIN.to_owned()), state: UNSURE, ..sending() }
}

fn unsure_because(message: String) -> ConditionReport {
    ConditionReport::unknown(REQUEST_SENT, UNSURE, message).in_v1(REQUEST_SENT, UNSURE, "Warning")
}

/// A look-up is in flight. The status keeps the doubt until its answer.
fn still_unsure(s: &Snapshot, letter: &Letter<'_>, decision: Decision) -> Decision {
    let mut conditions = letter.request.status.iter().flat_map(|status| &status.conditions);
    match conditions.find(|shown| shown.type_ == REQUEST_SENT && shown.reason == UNSURE) {
        Some(shown) => Decision { report: unsure_because(shown.message.clone()), state: UNSURE, ..decision },
        None if 0 < s.failures => repeating(letter, decision),
        None => decision,
    }
}

/// A user must decide. The annotation that asks for another attempt wakes the object.
fn hold(letter: &Letter<'_>, attempts: u32, s: &Snapshot, because: &str) -> Decision {
    if letter.request.object.annotation(constants::RESEND_ANNOTATION).is_some()
        && letter.request.message_id.is_some()
        && intent_of(letter.request).is_some_and(|intent| intent.is_err())
    {
        return intend(s, letter, attempts.saturating_add(1));
    }
    let fix = format!(
        "ask the recipient; if the mail did not arrive, set the annotation {} to send it again",
        constants::RESEND_ANNOTATION
    );
    let report = unsure_because(format!("{UNCERTAIN}: {because}. To continue, {fix}"));
    let why = Why::new(CapiReason::MailOnHold { because: because.to_owned() }, Step::Fix(fix));
    Decision { why, report, ..unsure() }
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
