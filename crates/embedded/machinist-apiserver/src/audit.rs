//! What tests, benchmarks and invariants look at: every request answered, and every commit.
//!
//! Both subscriptions are unbounded on purpose: a record that is dropped because its reader is slow would make a count
//! wrong, and readers live in the same process. Commits arrive in commit order.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;

use crate::object::Object;
use crate::store::mvcc::{Event, Key};

/// One answered request, refused ones included. A watch is recorded when it is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRecord {
    /// Authenticated user name, empty when authentication failed.
    pub user: String,
    /// As whom the user acted, if as somebody else.
    pub impersonated: Option<String>,
    /// `User-Agent`, empty when not sent.
    pub user_agent: String,
    /// get, list, watch, create, update, patch, delete, deletecollection; for other paths the lower-case HTTP method.
    pub verb: &'static str,
    /// API group, empty for core.
    pub group: String,
    /// Plural resource; for other paths the path itself.
    pub resource: String,
    /// Subresource, empty for the main resource.
    pub subresource: String,
    /// Namespace, empty when cluster-wide.
    pub namespace: String,
    /// Object name; for creates the name the object was created under, if it was.
    pub name: String,
    /// HTTP status code.
    pub code: u16,
    /// Revision of this request's last commit, if it committed.
    pub revision: Option<u64>,
}

impl AuditRecord {
    /// Whether this request asked to change something; the unit of write budgets, refused requests included.
    pub fn is_write(&self) -> bool {
        matches!(self.verb, "create" | "update" | "patch" | "delete" | "deletecollection")
    }
}

/// One commit.
#[derive(Debug, Clone)]
pub struct Commit {
    /// The revision it made.
    pub revision: u64,
    /// `plural.group` (`nodes`, `machines.machine.sapcloud.io`).
    pub resource: Arc<str>,
    /// Which object.
    pub key: Key,
    /// The version before, if there was one.
    pub old: Option<Arc<Object>>,
    /// The version after, if the object still exists.
    pub new: Option<Arc<Object>>,
    /// Who asked, or as whom it was asked.
    pub user: Arc<str>,
    /// Which program asked.
    pub user_agent: Arc<str>,
}

impl Commit {
    pub(crate) fn of(event: &Event, origin: &Origin) -> Self {
        Commit {
            revision: event.revision,
            resource: event.table.clone(),
            key: event.key.clone(),
            old: event.old(),
            new: (!event.deleted).then(|| event.object()),
            user: origin.user.clone(),
            user_agent: origin.user_agent.clone(),
        }
    }
}

/// Who is behind a commit.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    pub(crate) user: Arc<str>,
    pub(crate) user_agent: Arc<str>,
}

impl Default for Origin {
    /// The server itself.
    fn default() -> Self {
        Origin { user: "system:apiserver".into(), user_agent: "machinist-apiserver".into() }
    }
}

/// A stream of records, from the moment of subscription on.
pub struct Subscription<T>(mpsc::UnboundedReceiver<T>);

impl<T> Subscription<T> {
    pub(crate) fn new(receiver: mpsc::UnboundedReceiver<T>) -> Self {
        Subscription(receiver)
    }

    /// The next record; `None` once the server is gone.
    pub async fn next(&mut self) -> Option<T> {
        self.0.recv().await
    }

    /// Everything recorded and not yet taken.
    pub fn drain(&mut self) -> Vec<T> {
        std::iter::from_fn(|| self.0.try_recv().ok()).collect()
    }
}

impl<T> fmt::Debug for Subscription<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").field("waiting", &self.0.len()).finish()
    }
}

/// Subscribers of the commit log; published to under the store's lock, hence in order.
#[derive(Debug, Default)]
pub(crate) struct CommitFeed(Vec<mpsc::UnboundedSender<Arc<Commit>>>);

impl CommitFeed {
    pub(crate) fn add(&mut self, sender: mpsc::UnboundedSender<Arc<Commit>>) {
        self.0.push(sender);
    }

    pub(crate) fn publish(&mut self, commit: impl FnOnce() -> Commit) {
        if self.0.is_empty() {
            return;
        }
        let commit = Arc::new(commit());
        self.0.retain(|sender| sender.send(commit.clone()).is_ok());
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
