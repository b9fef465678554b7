//! The commit log: who changed which object, in commit order.
//!
//! Subscriptions are unbounded on purpose: a dropped record would make the count of a reader wrong,
//! and readers are in the same process.

use std::fmt;
use std::sync::Arc;

use tokio::sync::mpsc;

use crate::log::event::Event;
use crate::log::origin::Origin;
use crate::values::key::Key;
use crate::values::object::Object;

/// One commit to the store.
#[derive(Debug, Clone)]
pub struct Commit {
    /// Revision that this commit created.
    pub revision: u64,
    /// `plural.group` (`nodes`, `machines.machine.sapcloud.io`).
    pub resource: Arc<str>,
    /// Namespace and name of the object.
    pub key: Key,
    /// The object before the commit, if it existed.
    pub old: Option<Arc<Object>>,
    /// The object after the commit, unless the commit deleted it.
    pub new: Option<Arc<Object>>,
    /// User that sent the request, or the impersonated user.
    pub user: Arc<str>,
    /// `User-Agent` of the client.
    pub user_agent: Arc<str>,
}

impl Commit {
    pub(crate) fn of(event: &Event, origin: &Origin) -> Self {
        Commit {
            revision: event.revision,
            resource: event.collection.clone(),
            key: event.key.clone(),
            old: event.old(),
            new: (!event.deleted).then(|| event.object()),
            user: origin.user.clone(),
            user_agent: origin.user_agent.clone(),
        }
    }
}

/// A stream of records, starting at the subscription.
pub struct Subscription<T>(mpsc::UnboundedReceiver<T>);

impl<T> Subscription<T> {
    pub(crate) fn new(receiver: mpsc::UnboundedReceiver<T>) -> Self {
        Subscription(receiver)
    }

    /// Returns the next record, or `None` after the server has stopped.
    pub async fn next(&mut self) -> Option<T> {
        self.0.recv().await
    }

    /// Returns all records that are waiting.
    pub fn drain(&mut self) -> Vec<T> {
        std::iter::from_fn(|| self.0.try_recv().ok()).collect()
    }
}

impl<T> fmt::Debug for Subscription<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").field("waiting", &self.0.len()).finish()
    }
}

/// Subscribers of the commit log. The store publishes under its lock, so commits arrive in order.
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
