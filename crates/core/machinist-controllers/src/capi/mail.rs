//! Performs the actions about requests by mail: the writes of the intent and the outcome, and the
//! calls of the mail service. The rules are in `machinist_plan::capi::mail`.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use machinist_api::WireTime;
use machinist_api::capi::MailStatus;
use machinist_api::capi::constants::{RESEND_ANNOTATION, SEND_INTENT_ANNOTATION, SENT_AT_ANNOTATION};
use machinist_core::{Answered, Call, plus};
use machinist_instance::{AccountId, ErrorKind};
use machinist_kube::{GuardedPatch, ObjectKey};
use machinist_mailer::Envelope;
use machinist_plan::capi::conditions::new_problems;
use machinist_plan::capi::facts::MailRequestFacts;
use machinist_plan::capi::mail::{Action, Intent, LOOK_UP, SEND, SEND_BOUND, Snapshot};
use machinist_runtime::{Ask, Fed, Stop};
use serde_json::Value;

use super::contract::{Capi, Runtime, World, Write};
use super::engine::next_failures;
use super::events::{key_of, reference, report_problems};
use super::key::Key;
use super::options::MailOptions;
use super::patch;
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

/// One request: where it is, and what was read of it.
pub(super) struct Request<'a> {
    pub runtime: &'a Arc<Runtime>,
    pub key: Key,
    pub facts: &'a MailRequestFacts,
    pub stored: Stored,
}

/// Finds the object of a request in the store of its kind.
pub(super) type Stored = for<'s> fn(&'s Seen, &ObjectKey) -> Option<StoredRequest<'s>>;

/// A request as the store has it now.
pub(super) struct StoredRequest<'s> {
    pub facts: &'s MailRequestFacts,
    /// Whether the object or its Cluster is paused.
    pub is_paused: bool,
}

impl StoredRequest<'_> {
    /// Whether this is the object with that UID, and it is not being deleted.
    fn is_there(&self, uid: &str) -> bool {
        self.facts.object.uid == uid && self.facts.object.deleting_since.is_none()
    }
}

impl Request<'_> {
    /// Performs one action about the mail.
    pub(super) async fn act<F: Fed<Capi>>(self, action: Action) -> Result<(), Stop> {
        match action {
            Action::Intend { message_id, intent } => self.intend::<F>(message_id, &intent).await,
            Action::Send { mail, begins_by } => self.send(mail, begins_by),
            Action::LookUp(message_id) => self.look_up(message_id),
            Action::Conclude(intent) => {
                let text = serde_json::to_string(&intent).unwrap_or_default();
                self.write::<F>(self.marked(SEND_INTENT_ANNOTATION, &text)).await
            }
            Action::ConcludeSent { message_id } => {
                let at = WireTime::from(self.runtime.now());
                let mut patch = self.marked(SENT_AT_ANNOTATION, at.as_str());
                if let Some(id) = message_id {
                    patch = self.same_id(patch).add(&MESSAGE_ID, Value::from(id));
                }
                self.write::<F>(patch).await
            }
        }
    }

    /// Writes the status, and reports the problems that it is the first to show.
    pub(super) async fn set_status<F: Fed<Capi>>(self, kind: &str, new: &MailStatus) -> Result<(), Stop> {
        let Self { runtime, ref key, facts, stored: _ } = self;
        let patch = patch::status(&facts.object, facts.status.as_ref(), new);
        let write = Write { runtime, charged: std::slice::from_ref(key), key: key_of(&facts.object) };
        write.patch_status::<F>(patch).await?;
        let old = facts.status.as_ref().and_then(|old| old.deprecated.as_ref());
        let new_problems = new_problems(old, new.deprecated.as_ref());
        report_problems(runtime, &reference(kind, &facts.object), &new_problems);
        Ok(())
    }

    /// Writes the intent. Of several processes that decide at the same time, one writes it.
    async fn intend<F: Fed<Capi>>(&self, message_id: Option<String>, intent: &Intent) -> Result<(), Stop> {
        let object = &self.facts.object;
        let annotations = object.annotations.as_ref();
        let text = serde_json::to_string(intent).unwrap_or_default();
        let mut patch = self
            .same_id(self.marked(SEND_INTENT_ANNOTATION, &text))
            .remove_annotation(annotations, RESEND_ANNOTATION);
        if annotations.is_some() {
            // A copy may have the time of the original.
            let copied = object.annotation(SENT_AT_ANNOTATION).map(Value::from);
            patch = patch.test(&["metadata", "annotations", SENT_AT_ANNOTATION], copied.as_ref());
        }
        if let Some(id) = message_id {
            patch = patch.add(&MESSAGE_ID, Value::from(id));
        }
        self.write::<F>(patch).await?;
        let mut world = self.runtime.lock();
        let answers = world.seen.memory.mails.entry(object.uid.clone()).or_default();
        // The waits between failures go on to grow.
        *answers = MailAnswers { may_send: true, failures: answers.failures, ..MailAnswers::default() };
        Ok(())
    }

    /// Returns a patch that binds a text to the object, in an annotation.
    fn marked(&self, annotation: &str, text: &str) -> GuardedPatch {
        let object = &self.facts.object;
        let (annotations, text) = (object.annotations.as_ref(), object.bound(text));
        GuardedPatch::new(&object.uid).set_annotation(annotations, annotation, &text)
    }

    /// Makes a patch apply only to the Message-Id that was read.
    fn same_id(&self, patch: GuardedPatch) -> GuardedPatch {
        let read = self.facts.message_id.as_deref().map(Value::from);
        patch.test(&MESSAGE_ID, read.as_ref())
    }

    async fn write<F: Fed<Capi>>(&self, patch: GuardedPatch) -> Result<(), Stop> {
        let charged = std::slice::from_ref(&self.key);
        let write = Write { runtime: self.runtime, charged, key: key_of(&self.facts.object) };
        write.patch::<F>(patch).await
    }

    fn send(&self, mail: Box<Envelope>, begins_by: Timestamp) -> Result<(), Stop> {
        let Some(MailOptions { mailer, .. }) = self.runtime.tools.mail().cloned() else { return Ok(()) };
        let (began, ended) = (self.facts.object.uid.clone(), self.facts.object.uid.clone());
        let begins = move |memory: &mut Memory| memory.begins_to_send(&began, begins_by);
        let remember = move |memory: &mut Memory, is_there, answered| memory.sent(ended, is_there, answered);
        let ask = Ask { begins_by: Some(begins_by), ..self.ask(SEND, begins, remember) };
        self.runtime.ask(ask, async move { mailer.send(&mail).await })
    }

    fn look_up(&self, message_id: String) -> Result<(), Stop> {
        let Some(MailOptions { mailer, .. }) = self.runtime.tools.mail().cloned() else { return Ok(()) };
        let uid = self.facts.object.uid.clone();
        let remember = move |memory: &mut Memory, is_there, answered| memory.looked(uid, is_there, answered);
        let ask = Ask { bound: LOOK_UP_BOUND, ..self.ask(LOOK_UP, |_| true, remember) };
        self.runtime.ask(ask, async move { mailer.look_up(&message_id).await })
    }

    /// Returns a call for this request. `remember` learns whether the request still exists.
    fn ask<T: 'static>(
        &self,
        call: Call,
        begins: impl FnOnce(&mut Memory) -> bool + Send + 'static,
        remember: impl FnOnce(&mut Memory, bool, Answered<T>) + Send + 'static,
    ) -> Ask<Capi, T> {
        let domain = self.runtime.tools.mail().map(|mail| mail.domain.as_bytes()).unwrap_or_default();
        let account = AccountId::of([b"mailgun".as_slice(), domain]);
        let uid = self.facts.object.uid.clone();
        let (id, stored) = (key_of(&self.facts.object), self.stored);
        let (wanted, answered) = ((id.clone(), uid.clone()), (id, uid.clone()));
        Ask {
            subject: uid,
            key: self.key.clone(),
            call,
            account: self.runtime.accounts.limits("mailgun", account, CALLS_AT_ONCE, None),
            bound: SEND_BOUND,
            begins_by: None,
            still_wanted: Box::new(move |seen: &mut Seen| {
                // A mail of a deleted or paused object is not sent.
                let (id, uid) = wanted;
                let is_wanted = |request: StoredRequest<'_>| request.is_there(&uid) && !request.is_paused;
                stored(seen, &id).is_some_and(is_wanted) && begins(&mut seen.memory)
            }),
            remember: Box::new(move |seen: &mut Seen, answer: Answered<T>| {
                let (id, uid) = answered;
                let is_there = stored(seen, &id).is_some_and(|request| request.is_there(&uid));
                remember(&mut seen.memory, is_there, answer);
            }),
        }
    }
}

impl Memory {
    /// The call that sends a mail begins. From now on it may take effect, so it must not be
    /// repeated before its answer. Returns whether this process may make the call.
    fn begins_to_send(&mut self, uid: &str, begins_by: Timestamp) -> bool {
        let answers = self.mails.entry(uid.to_owned()).or_default();
        let begins = std::mem::replace(&mut answers.may_send, false);
        if begins {
            self.mail_calls.begins(uid, plus(begins_by, SEND_BOUND));
        }
        begins
    }

    /// The call that sends a mail has ended.
    fn sent(&mut self, uid: String, is_there: bool, answered: Answered<()>) {
        let error = answered.answer.as_ref().err();
        let had_no_effect = error
            .is_some_and(|error| matches!(error.kind, ErrorKind::Throttled { .. } | ErrorKind::Unavailable));
        if !had_no_effect {
            self.mail_calls.ended(&uid, answered.answer.is_ok(), answered.ended);
        }
        if is_there {
            let answers = self.mails.entry(uid).or_default();
            answers.may_send = had_no_effect;
            answers.failures = next_failures(answers.failures, &answered.answer);
            answers.sent = Some(answered);
        }
    }

    /// A look-up has ended.
    fn looked(&mut self, uid: String, is_there: bool, answered: Answered<bool>) {
        if is_there {
            let answers = self.mails.entry(uid).or_default();
            answers.failures = next_failures(answers.failures, &answered.answer);
            answers.looked = Some(answered);
        }
    }
}
