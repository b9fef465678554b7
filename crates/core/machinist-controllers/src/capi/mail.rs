//! Starts the calls of the mail service, and writes their results. The rules are in
//! `machinist_plan::capi::mail`.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use machinist_api::capi::constants::{RESEND_ANNOTATION, SEND_INTENT_ANNOTATION, SENT_AT_ANNOTATION};
use machinist_core::{Answered, Call, plus};
use machinist_instance::{AccountId, Error, ErrorKind};
use machinist_kube::GuardedPatch;
use machinist_plan::capi::facts::MailRequestFacts;
use machinist_plan::capi::mail::{Action, LOOK_UP, SEND, SEND_BOUND, Snapshot};
use machinist_runtime::{Ask, Fed, Stop};
use serde_json::Value;

use super::contract::{Capi, Runtime, World, Write};
use super::engine::next_failures;
use super::key::Key;
use super::options::MailOptions;
use super::seen::{MailAnswers, Memory, Seen};

/// Path of the Message-Id.
const MESSAGE_ID: [&str; 2] = ["spec", "messageID"];
/// Concurrent calls of the mail service.
const CALLS_AT_ONCE: usize = 4;
/// The longest duration of a look-up.
const LOOK_UP_BOUND: Duration = Duration::from_secs(30);

/// Collects the facts about the mail of an object.
pub(super) fn observe(runtime: &Runtime, world: &World, uid: &str, options: &MailOptions) -> Snapshot {
    let answers = world.seen.memory.mails.get(uid).cloned().unwrap_or_default();
    Snapshot {
        now: runtime.now(),
        process: runtime.process_facts(None),
        identity: options.process.clone(),
        domain: options.domain.clone(),
        service: options.service.clone(),
        recipient: options.recipient.clone(),
        recipient_domains: options.recipient_domains.clone(),
        shown_within: options.mailer.shown_within(),
        credential: options.credential.clone(),
        in_flight: world.asks.of(uid),
        may_send: answers.may_send,
        sent: answers.sent,
        looked: answers.looked,
        failures: answers.failures,
        own_calls: world.seen.memory.mail_calls.of(uid),
    }
}

/// Performs one action about the mail of an object.
pub(super) async fn act<F: Fed<Capi>>(
    runtime: &Arc<Runtime>,
    key: Key,
    request: &MailRequestFacts,
    action: Action,
) -> Result<(), Stop> {
    let object = &request.object;
    let own_key = [key.clone()];
    let write = Write { runtime, charged: &own_key, key: key.id().clone() };
    let annotations = object.annotations.as_ref();
    let patch = || GuardedPatch::new(&object.uid);
    match action {
        Action::Intend { message_id, intent } => {
            let text = serde_json::to_string(&intent).unwrap_or_default();
            let read = request.message_id.as_deref().map(Value::from);
            // Of several processes that decide at the same time, one writes the intent.
            let mut patch = patch()
                .test(&MESSAGE_ID, read.as_ref())
                .set_annotation(annotations, SEND_INTENT_ANNOTATION, &object.bound(&text))
                .remove_annotation(annotations, RESEND_ANNOTATION);
            if annotations.is_some() {
                // A copy may have the time of the original.
                let copied = object.annotation(SENT_AT_ANNOTATION).map(Value::from);
                patch = patch.test(&["metadata", "annotations", SENT_AT_ANNOTATION], copied.as_ref());
            }
            if let Some(id) = message_id {
                patch = patch.add(&MESSAGE_ID, Value::from(id));
            }
            write.patch::<F>(patch).await?;
            let mut world = runtime.lock();
            let answers = world.seen.memory.mails.entry(object.uid.clone()).or_default();
            // The waits between failures go on to grow.
            *answers = MailAnswers { may_send: true, failures: answers.failures, ..MailAnswers::default() };
            Ok(())
        }
        Action::Conclude(intent) => {
            let text = serde_json::to_string(&intent).unwrap_or_default();
            let patch = patch().set_annotation(annotations, SEND_INTENT_ANNOTATION, &object.bound(&text));
            write.patch::<F>(patch).await
        }
        Action::ConcludeSent { message_id } => {
            let at = machinist_api::WireTime::from(runtime.now());
            let at = object.bound(at.as_str());
            let mut patch = patch().set_annotation(annotations, SENT_AT_ANNOTATION, &at);
            if let Some(id) = message_id {
                let read = request.message_id.as_deref().map(Value::from);
                patch = patch.test(&MESSAGE_ID, read.as_ref()).add(&MESSAGE_ID, Value::from(id));
            }
            write.patch::<F>(patch).await
        }
        Action::Send { mail, begins_by } => {
            let Some(mailer) = runtime.tools.mail().map(|mail| mail.mailer.clone()) else { return Ok(()) };
            let (began, ended) = (object.uid.clone(), object.uid.clone());
            let begins = move |memory: &mut Memory| {
                // From now on the call may take effect, so it must not be repeated before its
                // answer.
                let answers = memory.mails.entry(began.clone()).or_default();
                let begins = std::mem::replace(&mut answers.may_send, false);
                if begins {
                    memory.mail_calls.begins(&began, plus(begins_by, SEND_BOUND));
                }
                begins
            };
            let remember = move |memory: &mut Memory, is_there: bool, answered: Answered<()>| {
                let had_no_effect = answered.answer.as_ref().is_err_and(|error| {
                    matches!(error.kind, ErrorKind::Throttled { .. } | ErrorKind::Unavailable)
                });
                if !had_no_effect {
                    memory.mail_calls.ended(&ended, answered.answer.is_ok(), answered.ended);
                }
                if is_there {
                    let answers = memory.mails.entry(ended).or_default();
                    answers.may_send = had_no_effect;
                    answers.failures = next_failures(answers.failures, &answered.answer);
                    answers.sent = Some(answered);
                }
            };
            let made = async move { mailer.send(&mail).await };
            let limits = (SEND_BOUND, Some(begins_by));
            start(runtime, key, &object.uid, SEND, limits, begins, remember, made)
        }
        Action::LookUp(id) => {
            let Some(mailer) = runtime.tools.mail().map(|mail| mail.mailer.clone()) else { return Ok(()) };
            let uid = object.uid.clone();
            let remember = move |memory: &mut Memory, is_there: bool, answered: Answered<bool>| {
                if is_there {
                    let answers = memory.mails.entry(uid).or_default();
                    answers.failures = next_failures(answers.failures, &answered.answer);
                    answers.looked = Some(answered);
                }
            };
            let made = async move { mailer.look_up(&id).await };
            let limits = (LOOK_UP_BOUND, None);
            start(runtime, key, &object.uid, LOOK_UP, limits, |_| true, remember, made)
        }
    }
}

#[expect(clippy::too_many_arguments, reason = "the parts of one call, used twice")]
fn start<T: Send + 'static>(
    runtime: &Arc<Runtime>,
    key: Key,
    uid: &str,
    call: Call,
    (bound, begins_by): (Duration, Option<Timestamp>),
    begins: impl FnOnce(&mut Memory) -> bool + Send + 'static,
    remember: impl FnOnce(&mut Memory, bool, Answered<T>) + Send + 'static,
    made: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<(), Stop> {
    let Some(mail) = runtime.tools.mail() else { return Ok(()) };
    let account = AccountId::of([b"mailgun".as_slice(), mail.domain.as_bytes()]);
    let (wanted, answered_key, uid) = (key.clone(), key.clone(), uid.to_owned());
    let (wanted_uid, answered_uid) = (uid.clone(), uid.clone());
    let ask = Ask {
        subject: uid,
        key,
        call,
        account: runtime.accounts.limits(account, CALLS_AT_ONCE, None),
        bound,
        begins_by,
        still_wanted: Box::new(move |seen: &mut Seen| {
            // A mail of a deleted or paused object is not sent.
            is_there(seen, &wanted, &wanted_uid) && !is_paused(seen, &wanted) && begins(&mut seen.memory)
        }),
        remember: Box::new(move |seen: &mut Seen, answered: Answered<T>| {
            let is_there = is_there(seen, &answered_key, &answered_uid);
            remember(&mut seen.memory, is_there, answered);
        }),
    };
    runtime.ask(ask, made)
}

/// Whether the object or its Cluster is paused.
fn is_paused(seen: &Seen, key: &Key) -> bool {
    match key {
        Key::MailgunCluster(id) => {
            let entry = seen.mailgun_clusters.get(id);
            entry.is_some_and(|cluster| seen.cluster_is_paused(&cluster.facts.mail.object))
        }
        Key::MailgunMachine(id) => {
            let entry = seen.mailgun_machines.get(id);
            entry.is_some_and(|machine| seen.machine_is_paused(&machine.facts.mail.object))
        }
        Key::DockerCluster(_) | Key::DockerMachine(_) => false,
    }
}

/// Whether the object exists and is not being deleted.
fn is_there(seen: &Seen, key: &Key, uid: &str) -> bool {
    let object = match key {
        Key::MailgunCluster(id) => {
            seen.mailgun_clusters.get(id).map(|cluster| (&cluster.uid, &cluster.facts.mail.object))
        }
        Key::MailgunMachine(id) => {
            seen.mailgun_machines.get(id).map(|machine| (&machine.uid, &machine.facts.mail.object))
        }
        Key::DockerCluster(_) | Key::DockerMachine(_) => None,
    };
    object.is_some_and(|(found, object)| found == uid && object.deleting_since.is_none())
}
