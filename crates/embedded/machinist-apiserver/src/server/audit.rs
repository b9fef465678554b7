//! Records of every answered request and every commit, for tests, benchmarks and invariants.
//!
//! Both subscriptions are unbounded on purpose. A record dropped because of a slow reader would
//! make a count wrong, and readers live in the same process. Commits arrive in commit order.

use crate::store::commits::Subscription;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;

/// One answered request, including rejected requests. A watch is recorded when it opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRecord {
    /// Authenticated user name, empty when authentication failed.
    pub user: String,
    /// User that the caller impersonated, if any.
    pub impersonated: Option<String>,
    /// `User-Agent`, empty when not sent.
    pub user_agent: String,
    /// One of get, list, watch, create, update, patch, delete and deletecollection. For paths
    /// outside of resources, the lower-case HTTP method.
    pub verb: &'static str,
    /// API group, empty for core.
    pub group: String,
    /// Plural name of the resource. For paths outside of resources, the path itself.
    pub resource: String,
    /// Subresource, empty for the main resource.
    pub subresource: String,
    /// Namespace, empty when cluster-wide.
    pub namespace: String,
    /// Object name. For a create, the name of the new object, if the create succeeded.
    pub name: String,
    /// HTTP status code.
    pub code: u16,
    /// Revision of this request's last commit, if it committed.
    pub revision: Option<u64>,
}

impl AuditRecord {
    /// Whether this request tries to change something. Write budgets count these requests,
    /// including rejected ones.
    pub fn is_write(&self) -> bool {
        matches!(self.verb, "create" | "update" | "patch" | "delete" | "deletecollection")
    }
}

/// Subscribers of the request log.
#[derive(Debug, Default)]
pub(crate) struct AuditFeed(Mutex<Vec<mpsc::UnboundedSender<Arc<AuditRecord>>>>);

impl AuditFeed {
    pub(crate) fn subscribe(&self) -> Subscription<Arc<AuditRecord>> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(sender);
        Subscription::new(receiver)
    }

    pub(crate) fn publish(&self, record: AuditRecord) {
        let mut senders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !senders.is_empty() {
            let record = Arc::new(record);
            senders.retain(|sender| sender.send(record.clone()).is_ok());
        }
    }
}
