//! Table tests of the decisions about a mail.

use std::sync::Arc;

use machinist_api::capi::MailgunCluster;
use serde_json::{Value, json};

use super::look_up::REMEMBERED_FOR;
use super::*;
use crate::capi::facts::MailgunClusterFacts;
use crate::testing::{self, at};

/// The Message-Id of the object before it was moved.
const OWN_ID: &str = "machinist.mailguncluster.n.a.uid-of-before.create@mail.example.com";

fn request(annotations: Value, message_id: Option<&str>) -> Arc<MailRequestFacts> {
    let mut spec = json!({"priority": "Urgent", "request": "x", "requester": "dev@example.com"});
    if let Some(id) = message_id {
        spec["messageID"] = json!(id);
    }
    let object = json!({
        "metadata": {"name": "a", "namespace": "n", "uid": "u", "annotations": annotations}, "spec": spec,
    });
    let object: MailgunCluster = serde_json::from_value(object).expect("an object");
    let mut request = Arc::unwrap_or_clone(MailgunClusterFacts::parse(&object).mail);
    request.object.created = at(0);
    Arc::new(request)
}

/// Returns the annotation with an intent.
fn marked(intent: &Value) -> Value {
    json!({constants::SEND_INTENT_ANNOTATION: format!("n/a/{intent}")})
}

fn intent(holder: &str, second: i64) -> Value {
    let at = at(second).to_string();
    marked(&json!({"attempt": 1, "at": at, "holder": holder}))
}

/// The facts of a process that has been acting since that second.
fn acting_since(second: i64) -> Process {
    testing::process(second, SEND_BOUND, Duration::ZERO)
}

fn snapshot(second: i64) -> Snapshot {
    Snapshot {
        now: at(second),
        process: acting_since(-1000),
        identity: "me".to_owned(),
        domain: "mail.example.com".to_owned(),
        service: "service-a".to_owned(),
        recipient: "ops@example.com".to_owned(),
        recipient_domains: Vec::new(),
        shown_within: Duration::from_secs(300),
        credential: "key".to_owned(),
        in_flight: None,
        may_send: false,
        sent: None,
        looked: None,
        failures: 0,
        own_calls: OwnCalls::default(),
    }
}

fn decided(s: &Snapshot, request: &MailRequestFacts) -> Decision {
    let letter = Letter {
        kind: "mailguncluster",
        purpose: "create",
        subject: String::new(),
        text: String::new(),
        request,
    };
    decide(s, &letter)
}

/// Returns the action and the state.
fn outcome(s: &Snapshot, request: &MailRequestFacts) -> (String, &'static str) {
    let decision = decided(s, request);
    (decision.action.map(|action| action.to_string()).unwrap_or_default(), decision.state)
}

fn answered<T>(second: i64, answer: Result<T, Error>) -> Option<Answered<T>> {
    Some(testing::answered(second, None, answer))
}

#[test]
fn the_intent_comes_before_the_mail() {
    assert_eq!(outcome(&snapshot(0), &request(json!({}), None)).0, "intend attempt 1");
    let own = request(intent("me", 0), Some("id@x"));
    let mut s = snapshot(1);
    s.may_send = true;
    assert_eq!(outcome(&s, &own).0, "send id@x");
    s.sent = answered(2, Ok(()));
    assert_eq!(outcome(&s, &own).0, "record: sent");
}

#[test]
fn the_intent_of_another_process_is_not_carried_out() {
    for holder in ["me", "other"] {
        let of_another = request(intent(holder, 0), Some("id@x"));
        // A new process with the same identity does not exist; a process that forgot also looks up
        // the mail.
        assert_eq!(outcome(&snapshot(1), &of_another), ("look id@x up".to_owned(), "Uncertain"), "{holder}");
    }
}

#[test]
fn an_old_intent_is_written_again_before_the_call() {
    let own = request(intent("me", 0), Some("id@x"));
    let mut s = snapshot(30);
    s.may_send = true;
    assert_eq!(outcome(&s, &own).0, "send id@x");
    s.now = at(31);
    assert_eq!(outcome(&s, &own).0, "intend attempt 1", "the call waited for a slot");
}

/// Returns an intent whose call had no effect.
fn intent_without_effect(holder: &str, service: &str) -> Arc<MailRequestFacts> {
    concluded(holder, service, "NotSent")
}

/// Returns an intent with that outcome.
fn concluded(holder: &str, service: &str, outcome: &str) -> Arc<MailRequestFacts> {
    let intent = json!({
        "attempt": 1, "at": at(0).to_string(), "holder": holder, "service": service, "outcome": outcome,
        "message": "cannot connect",
    });
    request(marked(&intent), Some("id@x"))
}

#[test]
fn a_mail_that_was_certainly_not_sent_is_no_doubt() {
    let mut s = snapshot(500);
    s.service = "service-b".to_owned();
    let of_another = intent_without_effect("other", "service-a");
    assert_eq!(outcome(&s, &of_another), ("intend attempt 1".to_owned(), "Sending"), "the address was wrong");
    s.may_send = true;
    s.failures = 1;
    s.sent = answered(499, Err(Error::new(ErrorKind::Unavailable, "cannot connect")));
    let own = intent_without_effect("me", "service-b");
    assert_eq!(outcome(&s, &own), (String::new(), "Unavailable"), "it waits");

    // A restore of the store may have lost a later attempt.
    s.sent = answered(499, Ok(()));
    assert_eq!(outcome(&s, &own).0, "record: sent", "this process knows the later attempt");
    s.sent = None;
    assert_eq!(outcome(&s, &own).0, "look id@x up", "another process does not");
    s.sent = answered(499, Err(Error::new(ErrorKind::Ambiguous, "503")));
    assert_eq!(outcome(&s, &own).0, "look id@x up", "the later attempt may have been accepted");
    s.sent = None;
    s.looked = answered(499, Ok(true));
    assert_eq!(outcome(&s, &own).0, "record: sent");
    s.looked = answered(499, Ok(false));
    assert_eq!(outcome(&s, &own).0, "intend attempt 1");
}

/// A restore of the store may have lost that the corrected mail was sent.
#[test]
fn a_corrected_mail_is_looked_up_unless_its_rejection_was_seen() {
    let corrected = concluded("me", "service-a", "Rejected");
    let mut s = snapshot(500);
    assert_eq!(outcome(&s, &corrected).0, "look id@x up");
    s.looked = answered(499, Ok(true));
    assert_eq!(outcome(&s, &corrected).0, "record: sent");
    s.looked = answered(499, Ok(false));
    assert_eq!(outcome(&s, &corrected).0, "intend attempt 2");
    s.looked = None;
    s.sent = answered(1, Err(Error::new(ErrorKind::InvalidSpec, "400")));
    assert_eq!(outcome(&s, &corrected).0, "intend attempt 2", "this process knows the last answer");
    s.sent = answered(1, Err(Error::new(ErrorKind::Ambiguous, "503")));
    assert_eq!(outcome(&s, &corrected).0, "look id@x up", "the later attempt may have been accepted");
    s.sent = answered(400, Err(Error::new(ErrorKind::Ambiguous, "503")));
    s.looked = answered(499, Ok(false));
    assert_eq!(outcome(&s, &corrected).0, "", "the service may not show the later attempt yet");
    s.looked = None;
    s.sent = answered(1, Ok(()));
    assert_eq!(outcome(&s, &corrected).0, "record: sent");
    s.sent = None;
    s.service = "service-b".to_owned();
    assert_eq!(outcome(&s, &corrected).0, "intend attempt 2", "the other service shows nothing");
}

/// The write of a new intent had an effect, and its answer was lost.
#[test]
fn an_answer_to_an_earlier_intent_is_none_to_a_later_one() {
    let own = request(intent("me", 10), Some("id@x"));
    let mut s = snapshot(11);
    s.failures = 1;
    for kind in [ErrorKind::InvalidSpec, ErrorKind::Denied, ErrorKind::Ambiguous] {
        s.sent = answered(5, Err(Error::new(kind, "400")));
        assert_eq!(outcome(&s, &own).0, "look id@x up", "{kind}");
    }
    s.sent = answered(10, Err(Error::new(ErrorKind::InvalidSpec, "400")));
    assert_eq!(outcome(&s, &own).0, "record: rejected");
    // The earlier call had no effect, so this process may still send.
    s.may_send = true;
    s.sent = answered(5, Err(Error::new(ErrorKind::Unavailable, "cannot connect")));
    assert_eq!(outcome(&s, &own).0, "send id@x");
}

#[test]
fn a_doubt_names_its_reason_and_the_way_out() {
    let mut s = snapshot(430);
    s.service = "service-b".to_owned();
    let intent = json!({"attempt": 1, "at": at(0).to_string(), "holder": "other", "service": "service-a"});
    let held = request(marked(&intent), Some("id@x"));
    let message = decided(&s, &held).report.message;
    assert!(message.contains("another mail service or domain was used before"), "{message}");
    assert!(message.contains(constants::RESEND_ANNOTATION), "{message}");

    let intent = json!({
        "attempt": 1, "at": at(0).to_string(), "holder": "other", "outcome": "Unknown", "message": "503: unavailable",
    });
    let unsure = request(marked(&intent), Some("id@x"));
    let mut s = snapshot(20);
    let message = decided(&s, &unsure).report.message;
    assert!(message.ends_with("503: unavailable"), "{message}");
    let mut shown = Arc::unwrap_or_clone(unsure);
    shown.status = serde_json::from_value(json!({"conditions": [{
        "type": "RequestSent", "status": "Unknown", "reason": "Uncertain", "message": message,
        "lastTransitionTime": "2027-01-15T08:00:00Z",
    }]}))
    .expect("a status");
    s.in_flight = Some((LOOK_UP, at(20)));
    assert_eq!(outcome(&s, &shown), (String::new(), "Uncertain"), "a look-up changes no status");
}

#[test]
fn an_unavailable_service_is_tried_again() {
    let own = request(intent("me", 0), Some("id@x"));
    let mut s = snapshot(2);
    s.may_send = true;
    s.failures = 1;
    s.sent = answered(1, Err(Error::new(ErrorKind::Unavailable, "cannot connect")));
    assert_eq!(outcome(&s, &own), ("record: not sent".to_owned(), "Sending"));
    s.sent = answered(1, Err(Error::new(ErrorKind::Throttled { retry_after: None }, "429")));
    assert_eq!(outcome(&s, &own), ("record: not sent".to_owned(), "Sending"));
    let mut shown = Arc::unwrap_or_clone(intent_without_effect("me", "service-a"));
    shown.status = serde_json::from_value(json!({"conditions": [{
        "type": "RequestSent", "status": "False", "reason": "Unavailable", "message": "cannot connect",
        "lastTransitionTime": "2027-01-15T08:00:00Z",
    }]}))
    .expect("a status");
    s.sent = answered(1, Err(Error::new(ErrorKind::Unavailable, "cannot connect")));
    s.now = at(6);
    assert_eq!(outcome(&s, &shown), ("intend attempt 1".to_owned(), "Unavailable"), "until the next answer");
    s.in_flight = Some((SEND, at(6)));
    assert_eq!(outcome(&s, &shown), (String::new(), "Unavailable"));
}

#[test]
fn another_mail_service_proves_no_absence() {
    let at = at(0).to_string();
    let intent = json!({"attempt": 1, "at": at, "holder": "other", "service": "service-a"});
    let pending = request(marked(&intent), Some("id@x"));
    let mut s = snapshot(430);
    s.looked = answered(421, Ok(false));
    assert_eq!(outcome(&s, &pending).0, "intend attempt 2");
    s.service = "service-b".to_owned();
    assert_eq!(outcome(&s, &pending), (String::new(), "Uncertain"));
}

#[test]
fn a_sent_mail_is_never_sent_again() {
    let sent = request(json!({constants::SENT_AT_ANNOTATION: "n/a/2026-01-01T00:00:00Z"}), Some("id@x"));
    assert_eq!(outcome(&snapshot(0), &sent), (String::new(), "Sent"), "no second mail");
}

#[test]
fn an_absence_counts_only_after_the_delay() {
    let pending = request(intent("other", 0), Some("id@x"));
    let mut s = snapshot(200);
    s.looked = answered(199, Ok(false));
    assert_eq!(outcome(&s, &pending), (String::new(), "Uncertain"), "waits before it looks again");
    s.now = at(430);
    s.looked = answered(419, Ok(false));
    assert_eq!(outcome(&s, &pending).1, "Uncertain", "the call may have begun 30 s after its intent");
    s.looked = answered(421, Ok(false));
    assert_eq!(outcome(&s, &pending).0, "intend attempt 2");
    s.looked = answered(421, Ok(true));
    assert_eq!(outcome(&s, &pending).0, "record: sent");
    for hour in [25, 3 * 24] {
        s.now = at((hour + 1) * 3600);
        s.looked = answered(hour * 3600, Ok(false));
        let uncertain = (String::new(), "Uncertain");
        assert_eq!(outcome(&s, &pending), uncertain, "{hour} h: the service may have forgotten the mail");
    }
}

/// Events of Mailgun may take half an hour.
#[test]
fn an_absence_counts_only_after_the_promise_of_the_service() {
    let pending = request(intent("other", 0), Some("id@x"));
    let mut s = snapshot(1930);
    s.shown_within = Duration::from_secs(1800);
    s.looked = answered(1919, Ok(false));
    assert_eq!(outcome(&s, &pending).1, "Uncertain");
    s.looked = answered(1921, Ok(false));
    assert_eq!(outcome(&s, &pending).0, "intend attempt 2");
}

#[test]
fn only_permitted_recipients_and_one_line_ids_get_a_mail() {
    let refuses = |recipients: &[&str], message_id: Option<&str>| {
        let mut wanted = Arc::unwrap_or_clone(request(json!({}), message_id));
        wanted.recipients = recipients.iter().map(|recipient| (*recipient).to_owned()).collect();
        let mut s = snapshot(0);
        s.recipient_domains = vec!["example.com".to_owned(), "example.org".to_owned()];
        let decision = decided(&s, &wanted);
        let is_refused = (decision.action.is_none(), decision.state) == (true, "Rejected");
        assert_eq!(decision.report.reason == "Rejected", is_refused);
        is_refused
    };
    assert!(!refuses(&[], None));
    assert!(!refuses(&["a@example.com", "b@EXAMPLE.org"], None));
    for recipient in ["a@example.net", "a@x@example.net", "a", "a@sub.example.com"] {
        assert!(refuses(&["a@example.com", recipient], None), "{recipient}");
    }
    let all = request(json!({}), None);
    let mut any = Arc::unwrap_or_clone(all);
    any.recipients = vec!["a@example.net".to_owned()];
    assert_eq!(outcome(&snapshot(0), &any).0, "intend attempt 1", "no domains are configured");
    for id in ["a@x>\r\nBcc: b@x", "a@x b", "<a@x>"] {
        let mut wanted = Arc::unwrap_or_clone(request(intent("me", 0), Some(id)));
        wanted.recipients = Vec::new();
        let mut s = snapshot(1);
        s.may_send = true;
        let decision = decided(&s, &wanted);
        assert_eq!((decision.action, decision.state), (None, "Rejected"), "{id}");
        assert!(decision.report.message.starts_with("spec.messageID: expected"), "{id}");
    }
}

/// The clock was wrong when the intent was written, or it steps: the mail may be seconds old.
#[test]
fn an_absence_counts_only_late_in_the_life_of_a_process() {
    for holder in ["me", "other"] {
        let pending = request(intent(holder, 0), Some("id@x"));
        let mut s = snapshot(1001);
        s.process = acting_since(1000);
        s.looked = answered(1001, Ok(false));
        assert_eq!(outcome(&s, &pending), (String::new(), "Uncertain"), "{holder}");
        s.now = at(1062);
        assert_eq!(outcome(&s, &pending).0, "look id@x up", "{holder}");
        s.now = at(1340);
        s.looked = answered(1330, Ok(false));
        assert_eq!(outcome(&s, &pending), (String::new(), "Uncertain"), "{holder}: a call lasts up to 30 s");
        s.looked = answered(1331, Ok(false));
        assert_eq!(outcome(&s, &pending).0, "intend attempt 2", "{holder}");
        s.looked = answered(1331, Ok(true));
        assert_eq!(outcome(&s, &pending).0, "record: sent", "{holder}");
    }
}

/// A call of an earlier process may still run when a user asks for another attempt.
#[test]
fn another_attempt_waits_for_the_end_of_the_last_call() {
    let mut annotations = intent("other", 0);
    annotations[constants::RESEND_ANNOTATION] = json!("yes");
    let mut wanted = Arc::unwrap_or_clone(request(annotations, Some("id@x")));
    for policy in [OnUncertain::Hold, OnUncertain::Verify] {
        wanted.on_uncertain = policy;
        let mut s = snapshot(1001);
        s.process = acting_since(1000);
        s.looked = answered(1001, Err(Error::new(ErrorKind::Denied, "403")));
        let decision = decided(&s, &wanted);
        assert_eq!((decision.action, decision.until), (None, Some(at(1031))));
        s.now = at(1031);
        assert_eq!(outcome(&s, &wanted).0, "intend attempt 2");
    }
}

/// The store was restored to a moment before the intent, or the process was away.
#[test]
fn an_older_request_is_looked_up_before_its_first_mail() {
    let older = request(json!({}), None);
    let mut s = snapshot(10);
    s.process = acting_since(10);
    let look_up = "look machinist.mailguncluster.n.a.u.create@mail.example.com up".to_owned();
    assert_eq!(outcome(&s, &older), (look_up.clone(), "Sending"));
    s.looked = answered(10, Ok(true));
    assert_eq!(outcome(&s, &older).0, "record: sent");
    let recorded = decided(&s, &older).action;
    assert!(matches!(recorded, Some(Action::ConcludeSent { message_id: Some(_) })), "{recorded:?}");
    s.looked = answered(10, Ok(false));
    let decision = decided(&s, &older);
    assert_eq!((decision.action, decision.until), (None, Some(at(341))), "one early look is not enough");
    s.now = at(341);
    assert_eq!(outcome(&s, &older).0, look_up);
    s.looked = answered(340, Ok(false));
    assert_eq!(outcome(&s, &older).0, look_up, "a call of an earlier process may have ended at second 40");
    s.looked = answered(341, Ok(false));
    assert_eq!(outcome(&s, &older).0, "intend attempt 1");
    s.now = at(10);
    s.looked = answered(10, Err(Error::new(ErrorKind::Denied, "403")));
    assert_eq!(outcome(&s, &older).0, "intend attempt 1", "a key that may only send");
    s.looked = answered(10, Err(Error::new(ErrorKind::Unavailable, "cannot connect")));
    s.failures = 1;
    assert_eq!(outcome(&s, &older), (String::new(), "Unavailable"));
    s.now = at(15);
    assert_eq!(outcome(&s, &older).0, look_up);
    s.looked = None;
    let wanted = request(json!({constants::RESEND_ANNOTATION: "yes"}), None);
    assert_eq!(outcome(&s, &wanted).0, "intend attempt 1", "a user permits a second mail");
}

#[test]
fn a_look_without_an_answer_permits_no_first_mail() {
    let (older, not_sent) = (request(json!({}), None), intent_without_effect("other", "service-a"));
    for kind in [ErrorKind::Ambiguous, ErrorKind::Bug, ErrorKind::Exhausted, ErrorKind::InvalidSpec] {
        for request in [&older, &not_sent] {
            let mut s = snapshot(999);
            s.process = acting_since(10);
            s.looked = answered(999, Err(Error::new(kind, "no answer within 30 s")));
            s.failures = 1;
            let decision = decided(&s, request);
            assert!(decision.action.is_none(), "{kind}: {:?}", decision.action);
            assert_eq!(decision.report.message, "no answer within 30 s");
            s.now = decision.until.expect("a time for the next look");
            assert!(outcome(&s, request).0.starts_with("look "), "{kind}");
        }
    }
}

#[test]
fn a_first_mail_that_may_be_forgotten_waits_for_a_user() {
    let late = i64::try_from(REMEMBERED_FOR.as_secs()).expect("a small number");
    for request in [request(json!({}), None), intent_without_effect("other", "service-a")] {
        let mut s = snapshot(late - 1);
        s.process = acting_since(10);
        s.looked = answered(late - 1, Ok(false));
        assert!(outcome(&s, &request).0.starts_with("intend "));
        s.looked = answered(late + 5, Ok(false));
        s.now = at(late + 5);
        assert_eq!(outcome(&s, &request), (String::new(), "Uncertain"));
    }
}

/// The process sent the mail before the store was restored.
#[test]
fn a_process_remembers_a_mail_whose_intent_is_lost() {
    let restored = request(json!({}), None);
    let mut s = snapshot(10);
    assert_eq!(outcome(&s, &restored).0, "intend attempt 1");
    s.sent = answered(5, Ok(()));
    assert_eq!(outcome(&s, &restored).0, "record: sent");
    s.sent = answered(5, Err(Error::new(ErrorKind::Ambiguous, "503")));
    assert!(outcome(&s, &restored).0.starts_with("look "), "the outcome is unknown");
}

/// The states to which a restore may bring an object back, with the next attempt.
fn restored_states() -> [(&'static str, Arc<MailRequestFacts>); 6] {
    [
        ("no intent", request(json!({}), None)),
        ("no intent, but a Message-Id", request(json!({}), Some(OWN_ID))),
        ("own intent", request(intent("me", 0), Some("id@x"))),
        ("unknown", concluded("me", "service-a", "Unknown")),
        ("rejected", concluded("me", "service-a", "Rejected")),
        ("not sent", concluded("me", "service-a", "NotSent")),
    ]
}

/// The object was deleted, so its answers are forgotten, and a restore brought it back.
#[test]
fn no_restored_state_repeats_a_mail_of_this_process() {
    for (state, restored) in restored_states() {
        let mut s = snapshot(2000);
        s.own_calls = OwnCalls { accepted: true, ended: Some(at(1990)), forgotten: None };
        s.looked = answered(1999, Ok(false));
        assert_eq!(outcome(&s, &restored).0, "record: sent", "{state}");
        // The call had no answer, or its answer is ambiguous.
        s.own_calls.accepted = false;
        for (second, looked) in [(1999, 1999), (2290, 2290)] {
            s.now = at(second);
            s.looked = answered(looked, Ok(false));
            let action = outcome(&s, &restored).0;
            assert!(!action.starts_with("intend ") && !action.starts_with("send "), "{state}: {action}");
        }
        s.now = at(2291);
        s.looked = answered(2291, Ok(true));
        assert_eq!(outcome(&s, &restored).0, "record: sent", "{state}");
        s.looked = answered(2291, Ok(false));
        if !state.starts_with("no intent, but") {
            assert!(outcome(&s, &restored).0.starts_with("intend "), "{state}: {:?}", outcome(&s, &restored));
        }
    }
}

/// The memory is bounded: this process has made a call for an object that it does not remember.
#[test]
fn a_forgotten_call_may_be_that_of_an_older_object() {
    let restored = request(json!({}), None);
    let mut s = snapshot(2000);
    s.own_calls.forgotten = Some(at(1990));
    assert!(outcome(&s, &restored).0.starts_with("look "), "{:?}", outcome(&s, &restored));
    s.looked = answered(1999, Ok(false));
    assert_eq!(outcome(&s, &restored).0, "", "the service may not show the mail yet");
    s.looked = answered(2291, Ok(false));
    s.now = at(2291);
    assert_eq!(outcome(&s, &restored).0, "intend attempt 1");
    let mut newer = Arc::unwrap_or_clone(restored);
    newer.object.created = at(2051);
    s.looked = None;
    assert_eq!(outcome(&s, &newer).0, "intend attempt 1", "no call is older than its object");
}

#[test]
fn a_restored_message_id_is_looked_up() {
    let restored = request(json!({}), Some(OWN_ID));
    assert_eq!(
        outcome(&snapshot(0), &restored).0,
        format!("look {OWN_ID} up"),
        "no second mail after a restore without status"
    );
    let mut s = snapshot(430);
    s.looked = answered(421, Ok(true));
    assert_eq!(outcome(&s, &restored).0, "record: sent");
}

#[test]
fn a_restored_mail_is_not_sent_again_by_itself() {
    let mut s = snapshot(430);
    s.looked = answered(421, Ok(false));
    let outcome_with = |annotations| outcome(&s, &request(annotations, Some(OWN_ID)));
    assert_eq!(outcome_with(json!({})), (String::new(), "Uncertain"), "the service may have forgotten it");
    let wanted = json!({constants::RESEND_ANNOTATION: "yes"});
    assert_eq!(outcome_with(wanted).0, "intend attempt 2");
}

#[test]
fn an_unreadable_intent_waits_for_a_user() {
    let broken = request(json!({constants::SEND_INTENT_ANNOTATION: "n/a/{"}), Some("id@x"));
    assert_eq!(outcome(&snapshot(0), &broken), (String::new(), "Uncertain"));
}

#[test]
fn the_message_id_is_always_the_same() {
    let request = request(json!({}), None);
    let letter = Letter {
        kind: "mailguncluster",
        purpose: "create",
        subject: String::new(),
        text: String::new(),
        request: &request,
    };
    let id = message_id(&snapshot(0), &letter);
    assert_eq!(id, "machinist.mailguncluster.n.a.u.create@mail.example.com");
}

/// The annotations and the Message-Id of an object were copied to a new object.
#[test]
fn a_copy_of_a_request_is_not_sent() {
    let time = "2026-01-01T00:00:00Z";
    let sent = |value: &str| json!({constants::SENT_AT_ANNOTATION: value});
    let bare = |annotations: Value| {
        let text = annotations[constants::SEND_INTENT_ANNOTATION].as_str().unwrap_or_default();
        json!({constants::SEND_INTENT_ANNOTATION: text.trim_start_matches("n/a/")})
    };
    let s = snapshot(500);
    assert_eq!(outcome(&s, &request(sent(&format!("n/a/{time}")), Some("id@x"))).1, "Sent");
    assert_eq!(outcome(&s, &request(sent(time), Some(OWN_ID))).1, "Sent", "of an earlier version, or moved");
    assert_eq!(outcome(&s, &request(bare(intent("me", 0)), Some(OWN_ID))).0, format!("look {OWN_ID} up"));

    let others = [
        "machinist.mailguncluster.n.b.u.create@mail.example.com",
        "machinist.mailguncluster.m.a.u.create@mail.example.com",
        // The name of the other object is a.b.
        "machinist.mailguncluster.n.a.b.u.create@mail.example.com",
    ];
    for id in others {
        for annotations in [sent(time), sent(&format!("n/b/{time}")), bare(intent("me", 0)), json!({})] {
            let copy = request(annotations, Some(id));
            let decision = decided(&s, &copy);
            assert!(decision.action.is_none() && !decision.is_sent, "{id}: {:?}", decision.action);
            let message = format!("{} {}", decision.report.message, decision.why);
            for part in ["copy of another object", "reate it again without spec.messageID"] {
                assert!(message.contains(part), "expected {part:?} in {message}");
            }
            assert!(decision.report.message.contains("spec.messageID"), "{}", decision.report.message);
        }
    }

    let short = format!("machinist.mailguncluster.u.create@{}.example.com", "mail.".repeat(30));
    assert_eq!(outcome(&s, &request(sent(time), Some(&short))).1, "Rejected", "the long form fits");
    let mut long = Arc::unwrap_or_clone(request(sent(time), Some(&short)));
    long.object.name = "a".repeat(60);
    assert_eq!(outcome(&s, &long).1, "Sent");

    // The copy that was created as the message says.
    for annotations in [sent(time), sent(&format!("n/b/{time}")), bare(intent("me", 0))] {
        assert_eq!(outcome(&s, &request(annotations, None)).0, "intend attempt 1");
    }
}
