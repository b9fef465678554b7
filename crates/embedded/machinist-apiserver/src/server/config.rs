//! How a server is set up.

use crate::access::authz::Authorization;
use crate::store::mvcc::History;
use crate::values::clock::{Clock, Ids, RandomIds, SystemClock};
use crate::values::tls::CertificateAuthority;
use crate::values::token_key::TokenKey;
use std::sync::Arc;
use std::time::Duration;

/// Configuration of a [`Server`](crate::Server). `Config::default()` suits `machinist up`; a
/// simulation sets every field.
#[derive(Debug)]
pub struct Config {
    /// Source of timestamps.
    pub clock: Arc<dyn Clock>,
    /// Source of uids and name suffixes.
    pub ids: Arc<dyn Ids>,
    /// Amount of history that the store keeps.
    pub history: History,
    /// Time between bookmarks of a watch that allows them; `None` for never.
    pub bookmark_interval: Option<Duration>,
    /// Time after which a watch without `timeoutSeconds` ends.
    pub watch_timeout: Duration,
    /// Limit on the undelivered events of a watch. Beyond it, the server drops the watch.
    pub watch_buffer: usize,
    /// Time that a request waits for a revision that does not exist yet.
    pub future_revision_wait: Duration,
    /// Time that an Event is kept after its last write; `None` keeps Events until a client deletes
    /// them.
    pub event_ttl: Option<Duration>,
    /// The certificate authority. If absent, the server creates one on first use.
    pub ca: Option<CertificateAuthority>,
    /// Key that signs ServiceAccount tokens. If absent, the server creates one on first use.
    pub token_key: Option<TokenKey>,
    /// Whether the server checks the permissions of its callers.
    pub authorization: Authorization,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            clock: Arc::new(SystemClock),
            ids: Arc::new(RandomIds),
            history: History::default(),
            bookmark_interval: Some(Duration::from_secs(60)),
            // Between kube-apiserver's 30 and 60 minutes, and not random.
            watch_timeout: Duration::from_secs(45 * 60),
            watch_buffer: 4096,
            future_revision_wait: Duration::from_secs(3),
            event_ttl: Some(Duration::from_secs(3600)),
            ca: None,
            token_key: None,
            authorization: Authorization::AlwaysAllow,
        }
    }
}
