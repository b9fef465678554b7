//! Mails, for providers that ask a person.

/// A mail to send.
///
/// The Message-Id identifies the mail. The caller chooses it before the first call, so that the
/// mail can be looked up after a call of unknown outcome.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Envelope {
    /// Message-Id, without angle brackets.
    pub message_id: String,
    /// Mail address of the person who asks.
    pub requester: String,
    /// Mail addresses of the recipients.
    pub recipients: Vec<String>,
    /// Subject.
    pub subject: String,
    /// Text.
    pub text: String,
    /// UID of the object, for the records of the mail service.
    pub uid: String,
    /// Purpose of the mail, for the records of the mail service.
    pub purpose: &'static str,
}
