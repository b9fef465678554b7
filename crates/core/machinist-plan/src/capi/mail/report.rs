//! The state of a mail that users see: the reason, the condition, and what a user can do.

use jiff::Timestamp;
use machinist_api::capi::constants::RESEND_ANNOTATION;
use machinist_api::capi::constants::conditions::REQUEST_SENT;
use machinist_core::{Call, Step};
use machinist_instance::{Error, ErrorKind};

use super::{Decision, LOOK_UP, Letter, Snapshot};
use crate::capi::conditions::ConditionReport;
use crate::capi::{CapiReason, Reason, Why};

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
/// The fix for a wrong Message-Id, which cannot be changed.
pub(super) const NEW_OBJECT: &str = "delete the object, and create it again without spec.messageID";

/// A mail whose state is not known yet, without an action.
pub(super) fn sending() -> Decision {
    Decision {
        is_sent: false,
        action: None,
        why: Why::up_to_date(),
        until: None,
        report: reported("Sending", String::new(), "Info"),
        state: "Sending",
    }
}

/// The mail service accepted the mail, and the object says so.
pub(super) fn sent() -> Decision {
    let report = ConditionReport::yes(REQUEST_SENT, "Sent").in_v1(REQUEST_SENT, "Sent", "Info");
    Decision { is_sent: true, report, state: "Sent", ..sending() }
}

/// The mail must not be sent.
pub(super) fn refused(message: String, fix: String) -> Decision {
    let report = reported("Rejected", message.clone(), "Error");
    let why = Why::new(CapiReason::MailRejected { message }, Step::Fix(fix));
    Decision { why, report, state: "Rejected", ..sending() }
}

/// The reason for a write.
pub(super) fn writing(what: &'static str) -> Why {
    Why::new(Reason::Writing(what), Step::Expect("the mail is sent at most once"))
}

/// A call is in flight. The status keeps a doubt or a failure until its answer.
pub(super) fn calling(s: &Snapshot, letter: &Letter<'_>, call: Call, since: Timestamp) -> Decision {
    let why = Why::new(Reason::Calling(call), Step::Expect("the mail service answers")).since(since);
    let decision = Decision { why, ..sending() };
    match shown(letter) {
        Some((UNSURE, _)) if call == LOOK_UP => keeping(letter, decision),
        Some(_) | None if 0 < s.failures => repeating(letter, decision),
        Some(_) | None => decision,
    }
}

/// Waits before it repeats a call that had no effect.
pub(super) fn without_effect(call: Call, failures: u32, error: &Error, retry_at: Timestamp) -> Decision {
    let why = Why::call_failed(call, error, failures, retry_at);
    let is_throttled = matches!(error.kind, ErrorKind::Throttled { .. });
    let state = if is_throttled { THROTTLED } else { UNAVAILABLE };
    let report = reported(state, error.message.clone(), "Warning");
    Decision { why, until: Some(retry_at), report, state, ..sending() }
}

/// Repeats a call that had no effect. The status keeps the failure until the call has another
/// answer: otherwise each attempt would write it twice.
pub(super) fn repeating(letter: &Letter<'_>, decision: Decision) -> Decision {
    match shown(letter) {
        Some((THROTTLED | UNAVAILABLE, _)) => keeping(letter, decision),
        Some(_) | None => decision,
    }
}

/// Keeps the failure or the doubt that the status shows.
pub(super) fn keeping(letter: &Letter<'_>, decision: Decision) -> Decision {
    match shown(letter) {
        Some((UNSURE, message)) => {
            Decision { report: unsure_because(message.to_owned()), state: UNSURE, ..decision }
        }
        Some((state, message)) => {
            Decision { report: reported(state, message.to_owned(), "Warning"), state, ..decision }
        }
        None => decision,
    }
}

/// A mail that the mail service may have accepted.
pub(super) fn unsure() -> Decision {
    Decision { report: unsure_because(UNCERTAIN.to_owned()), state: UNSURE, ..sending() }
}

/// The mail service is asked whether it accepted the mail.
pub(super) fn asking() -> Decision {
    let next = "the mail is sent again only if it was certainly not accepted";
    Decision { why: Why::new(CapiReason::MailUncertain, Step::Expect(next)), ..unsure() }
}

/// Adds the last answer of the mail service to a doubt without another reason.
pub(super) fn with_answer(decision: Decision, answer: &str) -> Decision {
    if decision.report.message != UNCERTAIN {
        return decision;
    }
    let message = format!("{UNCERTAIN}. The last answer of the mail service: {answer}");
    Decision { report: unsure_because(message), ..decision }
}

/// A user must decide. The annotation that asks for another attempt wakes the object.
pub(super) fn hold(because: &str) -> Decision {
    let fix = format!(
        "ask the recipient; if the mail did not arrive, set the annotation {RESEND_ANNOTATION} to send it again"
    );
    let report = unsure_because(format!("{UNCERTAIN}: {because}. To continue, {fix}"));
    let why = Why::new(CapiReason::MailOnHold { because: because.to_owned() }, Step::Fix(fix));
    Decision { why, report, ..unsure() }
}

fn unsure_because(message: String) -> ConditionReport {
    ConditionReport::unknown(REQUEST_SENT, UNSURE, message).in_v1(REQUEST_SENT, UNSURE, "Warning")
}

/// The condition of a mail that was not sent, in both formats.
fn reported(reason: &'static str, message: String, severity: &'static str) -> ConditionReport {
    ConditionReport::no(REQUEST_SENT, reason, message).in_v1(REQUEST_SENT, reason, severity)
}

/// Returns a lasting state that the status shows, and its message.
fn shown<'a>(letter: &'a Letter<'_>) -> Option<(&'static str, &'a str)> {
    let mut conditions = letter.request.status.iter().flat_map(|status| &status.conditions);
    let shown = conditions.find(|shown| shown.type_ == REQUEST_SENT)?;
    let state = [THROTTLED, UNAVAILABLE, UNSURE].into_iter().find(|state| *state == shown.reason)?;
    Some((state, &shown.message))
}
