//! Look-ups: when the mail service proves that it did not accept a mail.
//!
//! An absence counts only while the mail service certainly still shows the mail: after the time
//! that the service promises (`shown_within`), and before [`REMEMBERED_FOR`]. Later, a user
//! decides. `shown_within` begins when no call can still run: some time after the intent, by the
//! clock that wrote the intent, and some time after this process began to act, by its own clock.
//! The second rule holds also if a clock steps, and if the clock of a successor is far ahead.
//!
//! A mail that a look-up shows is recorded as sent before any function here is called.

use std::time::Duration;

use jiff::Timestamp;
use machinist_api::capi::OnUncertain;
use machinist_core::{Step, plus, retry_after};
use machinist_instance::ErrorKind;

use super::letter::message_id;
use super::report::{asking, hold, repeating, sending, without_effect};
use super::{Action, Decision, LOOK_UP, Letter, OwnCalls, SEND_BOUND, Snapshot, intend, may_repeat};
use crate::capi::{Reason, Why};

/// How far clocks of two processes may differ.
const SKEW: Duration = Duration::from_secs(60);
/// After this time the mail service may have forgotten the mail, so an absence proves nothing.
/// Mailgun shows the events of a free account for one day; the rest is a reserve for its clock and
/// for the clock of the process that sent the mail.
pub(super) const REMEMBERED_FOR: Duration = Duration::from_secs(20 * 3600);
/// First and longest wait between two look-ups.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(60));

/// Looks a mail up before it is sent, in case a restore of the store has lost that it was sent. It
/// may have been sent since `since`, and until a call of an earlier process ended after this
/// process began to act, or until a call of this process ended. The look counts once the mail
/// service certainly shows a mail that was sent in that time, and as long as it remembers the mail.
/// That moment is not recorded on the object: a restore could bring the record back, and then the
/// mail would be sent twice. So a process that restarts more often than that never sends the mail.
pub(super) fn before_the_attempt(
    s: &Snapshot,
    letter: &Letter<'_>,
    since: Timestamp,
    attempt: u32,
) -> Decision {
    let earlier = plus(s.process.acting_since(), SEND_BOUND);
    let counts_from = plus(own_call(s).map_or(earlier, |own| own.max(earlier)), s.shown_within);
    let why = Why::new(Reason::Calling(LOOK_UP), Step::Expect("the mail is sent if it was not sent before"));
    let look_up = Decision { why, ..looking(s, letter, sending()) };
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
        Ok(_) => hold("the mail service may have forgotten a mail that was sent before"),
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

/// Decides after an attempt in which the mail may have been accepted. `since` is the time of the
/// attempt's intent.
pub(super) fn after_the_attempt(
    s: &Snapshot,
    letter: &Letter<'_>,
    since: Timestamp,
    attempt: u32,
) -> Decision {
    let last_call = last_call(s, since);
    let next = attempt.saturating_add(1);
    if may_repeat(letter) && last_call < s.now {
        return intend(s, letter, next);
    }
    let decision = match letter.request.on_uncertain {
        OnUncertain::Resend => asking(),
        OnUncertain::Hold => hold("spec.onUncertain is Hold"),
        OnUncertain::Verify | OnUncertain::Other(_) => verify(s, letter, (since, last_call), next),
    };
    if !may_repeat(letter) {
        return decision;
    }
    // No event reports the end of the last call.
    let repeats_at = plus(last_call, Duration::from_secs(1));
    Decision { until: Some(decision.until.map_or(repeats_at, |until| until.min(repeats_at))), ..decision }
}

/// Asks the mail service. It shows an accepted mail some time after the last call.
fn verify(
    s: &Snapshot,
    letter: &Letter<'_>,
    (since, last_call): (Timestamp, Timestamp),
    next: u32,
) -> Decision {
    let counts_from = plus(last_call, s.shown_within);
    let Some(looked) = &s.looked else { return looking(s, letter, asking()) };
    match &looked.answer {
        Ok(_) if counts_from < looked.started => {
            if looked.ended < plus(since, REMEMBERED_FOR) {
                intend(s, letter, next)
            } else {
                hold("the mail service may have forgotten the mail")
            }
        }
        Ok(_) => {
            // Each wait is as long as all time before it, so the waits double without a counter.
            let elapsed = machinist_core::since(looked.ended, since);
            let due = plus(looked.ended, elapsed.clamp(LOOK_AGAIN.0, LOOK_AGAIN.1));
            if due <= s.now {
                looking(s, letter, asking())
            } else {
                Decision { until: Some(due), ..asking() }
            }
        }
        Err(error) if is_forbidden(error.kind) => {
            hold(&format!("the mail service cannot be asked: {}", error.message))
        }
        Err(error) => {
            let retry_at = plus(looked.ended, retry_after(error.kind, s.failures, LOOK_AGAIN.1));
            if retry_at <= s.now {
                return looking(s, letter, asking());
            }
            let why = Why::call_failed(LOOK_UP, error, s.failures, retry_at);
            Decision { until: Some(retry_at), why, ..asking() }
        }
    }
}

/// Adds a look-up to a decision.
fn looking(s: &Snapshot, letter: &Letter<'_>, decision: Decision) -> Decision {
    Decision { action: Some(Action::LookUp(message_id(s, letter))), ..decision }
}

/// Whether this process certainly made no call for an object whose creation it saw. No call is
/// older than its object.
pub(super) fn made_no_call(s: &Snapshot, letter: &Letter<'_>) -> bool {
    let OwnCalls { accepted: _, ended, forgotten } = s.own_calls;
    s.sent.is_none()
        && ended.is_none()
        && forgotten.is_none_or(|ended| plus(ended, SKEW) < letter.request.object.created)
}

/// Whether an answer to this process shows that the mail was accepted.
pub(super) fn is_known_as_sent(s: &Snapshot) -> bool {
    s.own_calls.accepted
        || s.sent.as_ref().is_some_and(|sent| sent.answer.is_ok())
        || s.looked.as_ref().is_some_and(|looked| looked.answer == Ok(true))
}

/// Whether the last call of this process that sends the mail certainly had no effect.
pub(super) fn had_no_effect(s: &Snapshot) -> bool {
    let error = s.sent.as_ref().and_then(|sent| sent.answer.as_ref().err());
    error.is_some_and(|error| !matches!(error.kind, ErrorKind::Ambiguous | ErrorKind::Bug))
}

/// Returns the end of the last call of this process that may have sent the mail.
fn own_call(s: &Snapshot) -> Option<Timestamp> {
    let sent = s.sent.as_ref().filter(|_| !had_no_effect(s)).map(|sent| sent.ended);
    sent.max(s.own_calls.ended).max(s.own_calls.forgotten)
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

/// Whether the mail service will never let this credential look a mail up.
fn is_forbidden(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Denied | ErrorKind::Unsupported)
}
