//! How a server is set up.

use crate::access::authz::Authorization;
use crate::store::mvcc::History;
use crate::values::clock::{Clock, Ids, RandomIds, SystemClock};
use crate::values::tls::CertificateAuthority;
use crate::values::token_key::TokenKey;
use std::sync::Arc;
use std::time::Duration;

/// How a server is set up. `Config::default()` is right for `machinist up`; a simulation sets all of it.
#[derive(Debug)]
pub struct Config {
    /// Source of timestamps.
    pub clock: Arc<dyn Clock>,
    /// Source of uids and name suffixes.
    pub ids: Arc<dyn Ids>,
    /// How much of the past is kept.
    pub history: History,
    /// Time between bookmarks of a watch that allows them; `None` for never.
    pub bookmark_interval: Option<Duration>,
    /// When a watch without `timeoutSeconds` is ended.
    pub watch_timeout: Duration,
    /// How many undelivered events a watch may pile up before it is dropped.
    pub watch_buffer: usize,
    /// How long a request waits for a revision that is still to come.
    pub future_revision_wait: Duration,
    /// How long an Event is kept after it was last written; `None` for ever.
    pub event_ttl: Option<Duration>,
    /// The certificate authority; made on first use when absent.
    pub ca: Option<CertificateAuthority>,
    /// Signs the tokens of ServiceAccounts; made on first use when absent.
    pub token_key: Option<TokenKey>,
    /// Whether callers are asked what they may do.
    pub authorization: Authorization,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            clock: Arc::new(SystemClock),
            ids: Arc::new(RandomIds),
            history: History::default(),
            bookmark_interval: Some(Duration::from_secs(60)),
            // Between kube-apiserver's 30 and 60 minutes, and not drawn by lot.
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
