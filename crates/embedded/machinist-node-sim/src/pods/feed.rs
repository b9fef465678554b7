//! The source of a machine's pods: its own watch, or one watch shared by the whole fleet.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use machinist_instance::NodeName;
use machinist_kube::{Delta, WatchOptions, run_watch};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::PodFacts;

/// A change of the pods of one node, by UID.
#[derive(Debug)]
pub(crate) enum PodChange<F = PodFacts> {
    /// A pod was added or changed.
    Seen(String, F),
    /// A pod was deleted.
    Gone(String),
    /// The complete list of pods.
    All(BTreeMap<String, F>),
}

impl<F: Clone> PodChange<F> {
    /// The change that a watch reports; `None` if no pod has changed.
    pub(crate) fn of(delta: Delta<F>) -> Option<Self> {
        match delta {
            Delta::Upsert(_, entry) => Some(Self::Seen(entry.uid, (*entry.facts).clone())),
            Delta::Delete { uid, .. } => Some(Self::Gone(uid)),
            Delta::Relist(relist) => {
                let items = relist.items.into_iter();
                Some(Self::All(items.map(|(_, entry)| (entry.uid, (*entry.facts).clone())).collect()))
            }
            Delta::Unreadable { .. }
            | Delta::Bookmark(_)
            | Delta::ListedOnce(_)
            | Delta::RelistPart(_)
            | Delta::Fetched(..)
            | Delta::Absent { .. } => None,
        }
    }
}

/// One watch per machine of the pods bound to it, with the machine's own credential, as a kubelet
/// does.
pub(crate) struct OwnFeed;

impl OwnFeed {
    /// Sends changes until it is dropped. Returns the reason only if the watch can never work.
    pub(crate) async fn run(
        client: kube::Client,
        name: &NodeName,
        to: mpsc::UnboundedSender<PodChange>,
    ) -> String {
        let options =
            WatchOptions { field_selector: Some(format!("spec.nodeName={name}")), ..WatchOptions::default() };
        let sink = move |delta| {
            if let Some(change) = PodChange::of(delta) {
                // The worker ends together with the machine, and so does this watch.
                let _ = to.send(change);
            }
        };
        run_watch(Api::<Pod>::all(client), options, PodFacts::read, sink).await.to_string()
    }
}

/// One watch of all bound pods, for fleets of thousands. It needs a credential that may read all
/// pods, so it is for benchmarks and simulations only. Machines still write with their own
/// credential.
#[derive(Clone)]
pub(crate) struct SharedFeed {
    known: Arc<Mutex<Known>>,
    _watch: Arc<AbortOnDrop>,
}

#[derive(Default)]
struct Known {
    /// The pods of each node that has any, by UID.
    pods: BTreeMap<String, BTreeMap<String, PodFacts>>,
    /// The node of each pod, by UID.
    node_of: BTreeMap<String, String>,
    subscribers: BTreeMap<String, mpsc::UnboundedSender<PodChange>>,
}

struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl SharedFeed {
    /// Starts the watch, which runs until the last clone is dropped.
    pub(crate) fn start(client: kube::Client) -> Self {
        let known: Arc<Mutex<Known>> = Arc::default();
        let sink = {
            let known = known.clone();
            move |delta| {
                if let Some(change) = PodChange::of(delta) {
                    lock(&known).take_in(change);
                }
            }
        };
        let watch = tokio::spawn(async move {
            let fatal =
                run_watch(Api::<Pod>::all(client), WatchOptions::default(), PodFacts::read, sink).await;
            tracing::error!(error = %fatal, "The watch of all pods failed, so machines no longer act on pods");
        });
        Self { known, _watch: Arc::new(AbortOnDrop(watch.abort_handle())) }
    }

    /// The pods of one node, beginning with the known ones. A node has one subscriber; a later
    /// subscriber replaces it.
    pub(crate) fn subscribe(&self, name: &NodeName) -> mpsc::UnboundedReceiver<PodChange> {
        let (sender, changes) = mpsc::unbounded_channel();
        let mut known = lock(&self.known);
        let all = known.pods.get(name.as_str()).cloned().unwrap_or_default();
        let _ = sender.send(PodChange::All(all));
        known.subscribers.insert(name.to_string(), sender);
        changes
    }
}

fn lock(known: &Mutex<Known>) -> MutexGuard<'_, Known> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Known {
    fn take_in(&mut self, change: PodChange) {
        match change {
            PodChange::Seen(uid, facts) => self.insert(uid, facts),
            PodChange::Gone(uid) => self.remove(&uid),
            PodChange::All(all) => {
                let vanished: Vec<String> =
                    self.node_of.keys().filter(|uid| !all.contains_key(*uid)).cloned().collect();
                for uid in vanished {
                    self.remove(&uid);
                }
                for (uid, facts) in all {
                    self.insert(uid, facts);
                }
            }
        }
    }

    fn insert(&mut self, uid: String, facts: PodFacts) {
        // A pod is bound once. Until then no machine acts on it.
        if facts.node.is_empty() {
            return;
        }
        let node = facts.node.clone();
        self.node_of.insert(uid.clone(), node.clone());
        self.pods.entry(node.clone()).or_default().insert(uid.clone(), facts.clone());
        self.tell(&node, PodChange::Seen(uid, facts));
    }

    fn remove(&mut self, uid: &str) {
        let Some(node) = self.node_of.remove(uid) else { return };
        if let Some(pods) = self.pods.get_mut(&node) {
            pods.remove(uid);
            if pods.is_empty() {
                self.pods.remove(&node);
            }
        }
        self.tell(&node, PodChange::Gone(uid.to_owned()));
    }

    fn tell(&mut self, node: &str, change: PodChange) {
        let is_gone = self.subscribers.get(node).is_some_and(|subscriber| subscriber.send(change).is_err());
        if is_gone {
            self.subscribers.remove(node);
        }
    }
}
