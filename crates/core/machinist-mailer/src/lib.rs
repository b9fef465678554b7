//! A mail, and the mail service that sends it.
//!
//! The planner of the Mailgun provider writes an [`Envelope`], its controller calls a [`Mailer`],
//! and `machinist-mailgun` implements the calls. None of the three depends on another one for
//! these types. The crate is below the planner, so it has no dependency that could wait.
//!
//! Deliberately absent: retries, deadlines, and the decision whether a mail is sent.

use std::pin::Pin;
use std::time::Duration;

use machinist_instance::Error;

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

/// A call of a mail service. Nothing is sent before it is awaited.
pub type Attempt<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// A mail service.
///
/// As a driver, a mailer makes one attempt per call and returns what it learned.
pub trait Mailer: Send + Sync {
    /// Sends a mail. `Ok` means that the service accepted the mail.
    ///
    /// # Errors
    /// `Ambiguous` if the service may have accepted the mail. `Unavailable` and `Throttled` only if
    /// it certainly did not, and another attempt may succeed. `InvalidSpec` and `Denied` if it
    /// certainly did not, and another attempt would fail.
    fn send<'a>(&'a self, mail: &'a Envelope) -> Attempt<'a, ()>;

    /// Looks a mail up by its Message-Id, and returns whether the service accepted it.
    ///
    /// # Errors
    /// `Denied` or `Unsupported` if the credential does not permit look-ups.
    fn look_up<'a>(&'a self, message_id: &'a str) -> Attempt<'a, bool>;

    /// The service promises that look-ups show an accepted mail after this time. Before that, an
    /// absence proves nothing.
    fn shown_within(&self) -> Duration;
}
