//! One open watch in the store: its filter, and its undelivered events.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::mpsc;

use crate::log::event::Event;
use crate::store::node_index::node_name;
use crate::values::key::Key;

/// The cheap part of the selectors of a list or a watch. For a watch, the store checks it at commit
/// time, so that a pod's event wakes one kubelet and not all.
#[derive(Debug, Clone, Default)]
pub(crate) struct Interest {
    /// `namespace/`, or empty for all namespaces.
    pub(crate) prefix: String,
    /// `metadata.name`, if the field selector fixes it.
    pub(crate) name: Option<String>,
    /// `spec.nodeName`, if the field selector fixes it.
    pub(crate) node_name: Option<String>,
}

impl Interest {
    /// Reports whether events of this key may match the filter.
    pub(crate) fn covers_key(&self, key: &Key) -> bool {
        key.as_str().starts_with(&self.prefix) && self.name.as_ref().is_none_or(|name| names(key) == name)
    }

    pub(crate) fn covers(&self, event: &Event) -> bool {
        self.covers_key(&event.key)
            && self.node_name.as_ref().is_none_or(|node| {
                node_name(&event.object().glance()) == node
                    || event.old().is_some_and(|old| node_name(&old.glance()) == node)
            })
    }
}

fn names(key: &Key) -> &str {
    key.as_str().rsplit('/').next().unwrap_or_default()
}

/// Events of one watch in commit order: first those from before it was opened, then live events.
#[derive(Debug)]
pub(crate) struct Feed {
    id: u64,
    backlog: VecDeque<Arc<Event>>,
    live: mpsc::Receiver<Arc<Event>>,
}

impl Feed {
    pub(crate) fn new(id: u64, backlog: VecDeque<Arc<Event>>, live: mpsc::Receiver<Arc<Event>>) -> Self {
        Feed { id, backlog, live }
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Returns the next event, or `None` if the store dropped this watch.
    pub(crate) async fn next(&mut self) -> Option<Arc<Event>> {
        match self.backlog.pop_front() {
            Some(event) => Some(event),
            None => self.live.recv().await,
        }
    }

    pub(crate) fn is_drained(&self) -> bool {
        self.backlog.is_empty() && self.live.is_empty()
    }
}
