//! The Mailer trait, through which a controller sends mails.

use std::time::Duration;

use async_trait::async_trait;
use machinist_instance::{Envelope, Error};

/// A mail service.
///
/// As a driver, a mailer makes one attempt per call and returns what it learned.
#[async_trait]
pub trait Mailer: Send + Sync {
    /// Sends a mail. `Ok` means that the service accepted the mail.
    ///
    /// # Errors
    /// `Ambiguous` if the service may have accepted the mail. `Unavailable` and `Throttled` only if
    /// it certainly did not, and another attempt may succeed. `InvalidSpec` and `Denied` if it
    /// certainly did not, and another attempt would fail.
    async fn send(&self, mail: &Envelope) -> Result<(), Error>;

    /// Looks a mail up by its Message-Id, and returns whether the service accepted it.
    ///
    /// # Errors
    /// `Denied` or `Unsupported` if the credential does not permit look-ups.
    async fn look_up(&self, message_id: &str) -> Result<bool, Error>;

    /// The service promises that look-ups show an accepted mail after this time. Before that, an
    /// absence proves nothing.
    fn shown_within(&self) -> Duration;
}
