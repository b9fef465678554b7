//! The letter of a request: whom it may reach, its Message-Id, its text.

use std::hash::{Hash, Hasher};

use machinist_mailer::Envelope;

use super::Snapshot;
use super::report::NEW_OBJECT;
use crate::capi::facts::{MAX_MESSAGE_ID_LEN, MailRequestFacts};

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

/// Returns the field because of which the mail must not be sent, and what to do.
pub(super) fn problem(s: &Snapshot, request: &MailRequestFacts) -> Option<(String, String)> {
    let is_header_safe = |id: &str| id.bytes().all(|byte| byte.is_ascii_graphic() && !b"<>".contains(&byte));
    if !is_header_safe(request.message_id.as_deref().unwrap_or_default()) {
        let message = "spec.messageID: expected printable ASCII without spaces, < and >".to_owned();
        return Some((message, NEW_OBJECT.to_owned()));
    }
    let permitted = &s.recipient_domains;
    let is_permitted = |recipient: &String| {
        let own = recipient.rsplit_once('@').map(|(_, domain)| domain);
        own.is_some_and(|own| permitted.iter().any(|domain| domain.eq_ignore_ascii_case(own)))
    };
    let index = request.recipients.iter().position(|recipient| !is_permitted(recipient));
    let index = index.filter(|_| !permitted.is_empty())?;
    let expected = permitted.join(", ");
    let message = format!("spec.recipients[{index}]: expected an address of one of the domains {expected}");
    let fix = "correct spec.recipients, or start the provider with another --recipient-domains".to_owned();
    Some((message, fix))
}

/// Returns the Message-Id: the recorded Message-Id, or the Message-Id that the object will get.
pub(super) fn message_id(s: &Snapshot, letter: &Letter<'_>) -> String {
    letter.request.recorded_id().map_or_else(|| chosen_id(s, letter), str::to_owned)
}

/// Returns the Message-Id to record; nothing if one is recorded.
pub(super) fn unrecorded_id(s: &Snapshot, letter: &Letter<'_>) -> Option<String> {
    letter.request.recorded_id().is_none().then(|| chosen_id(s, letter))
}

/// The same object and purpose always have the same Message-Id.
fn chosen_id(s: &Snapshot, letter: &Letter<'_>) -> String {
    let object = &letter.request.object;
    let (namespace, name, uid) = (&object.namespace, &object.name, &object.uid);
    let id = format!("machinist.{}.{namespace}.{name}.{uid}.{}@{}", letter.kind, letter.purpose, s.domain);
    if id.len() <= MAX_MESSAGE_ID_LEN {
        return id;
    }
    format!("machinist.{}.{uid}.{}@{}", letter.kind, letter.purpose, s.domain)
}

/// Returns the mail to send.
pub(super) fn envelope(s: &Snapshot, letter: &Letter<'_>, message_id: String) -> Envelope {
    let request = letter.request;
    let recipients = match request.recipients.as_slice() {
        [] => vec![s.recipient.clone()],
        recipients => recipients.to_vec(),
    };
    Envelope {
        message_id,
        requester: request.requester.clone(),
        recipients,
        subject: letter.subject.clone(),
        text: letter.text.clone(),
        uid: request.object.uid.clone(),
        purpose: letter.purpose,
    }
}

/// Returns the fingerprint of the mail and the credential.
pub(super) fn fingerprint(s: &Snapshot, letter: &Letter<'_>) -> String {
    let mut hash = fnv::FnvHasher::default();
    envelope(s, letter, String::new()).hash(&mut hash);
    s.credential.hash(&mut hash);
    format!("{:016x}", hash.finish())
}
