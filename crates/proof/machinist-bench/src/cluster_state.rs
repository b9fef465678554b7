//! Counts of Machines and Nodes, from watches.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, anyhow};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use machinist_api::{Machine, Phase};
use machinist_kube::watch::{WatchOptions, run_watch};
use machinist_kube::{Change, Store};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::objects;

/// Counts of Machines and Nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) machines: u32,
    /// Machines that ever existed. Every Machine is counted, because a broken watch resumes at its
    /// last revision.
    pub(crate) machines_ever: u32,
    phases: BTreeMap<String, u32>,
    pub(crate) nodes: u32,
    pub(crate) nodes_ready: u32,
}

impl Counts {
    /// Machines in phase Running.
    pub(crate) fn running(&self) -> u32 {
        self.phases.get(Phase::Running.as_str()).copied().unwrap_or_default()
    }

    /// Whether this number of machines run, and no other Machine or Node exists.
    pub(crate) fn all_run(&self, count: u32) -> bool {
        [self.running(), self.machines, self.nodes_ready, self.nodes] == [count; 4]
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} Machines", self.machines)?;
        for (phase, count) in self.phases.iter().filter(|(_, count)| **count != 0) {
            let phase = if phase.is_empty() { "without phase" } else { phase };
            write!(f, ", {count} {phase}")?;
        }
        write!(f, "; {} Nodes, {} Ready", self.nodes, self.nodes_ready)
    }
}

/// Watches Machines and Nodes until it is dropped.
pub(crate) struct ClusterState {
    counts: watch::Receiver<Counts>,
    _watches: JoinSet<()>,
}

impl ClusterState {
    /// Starts the watches. `control` and `target` may be clients of one server.
    pub(crate) fn follow(control: Client, target: Client) -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "only one task waits, so the order of wake-ups does not matter"
        )]
        let (sender, counts) = watch::channel(Counts::default());
        let mut watches = JoinSet::new();
        let told = sender.clone();
        watches.spawn(report_changes(
            objects::machines(&control),
            |machine: Machine| machine.phase().as_str().to_owned(),
            move |change| {
                told.send_modify(|counts| {
                    counts.machines = moved(counts.machines, &change.old, &change.new);
                    counts.machines_ever += u32::from(change.old.is_none());
                    if let Some(phase) = &change.old {
                        *counts.phases.entry(phase.to_string()).or_default() -= 1;
                    }
                    if let Some(phase) = &change.new {
                        *counts.phases.entry(phase.to_string()).or_default() += 1;
                    }
                });
            },
        ));
        watches.spawn(report_changes(Api::all(target), is_ready, move |change| {
            let is_ready = |node: &&std::sync::Arc<bool>| ***node;
            sender.send_modify(|counts| {
                counts.nodes = moved(counts.nodes, &change.old, &change.new);
                let (old, new) = (change.old.as_ref().filter(is_ready), change.new.as_ref().filter(is_ready));
                counts.nodes_ready = moved(counts.nodes_ready, &old, &new);
            });
        }));
        Self { counts, _watches: watches }
    }

    /// The current counts.
    pub(crate) fn now(&self) -> Counts {
        self.counts.borrow().clone()
    }

    /// Waits until the counts satisfy a condition.
    ///
    /// # Errors
    /// After `within`, with the current counts.
    pub(crate) async fn until(
        &mut self,
        what: &str,
        within: Duration,
        is_so: impl Fn(&Counts) -> bool,
    ) -> Result<()> {
        let reached = async {
            // The senders are owned by the watches, which end when this value is dropped.
            self.counts.wait_for(|counts| is_so(counts)).await.is_ok()
        };
        match tokio::time::timeout(within, reached).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(anyhow!("a watch ended")),
            Err(_elapsed) => {
                Err(anyhow!("timed out after {within:?}: {what}. Current state: {}", self.now()))
            }
        }
    }
}

/// Watches all objects of a kind, and reports each change, until it is dropped.
pub(crate) async fn report_changes<K, F>(
    api: Api<K>,
    parse: impl Fn(K) -> F + Send,
    mut tell: impl FnMut(Change<F>) + Send,
) where
    K: kube::Resource + serde::de::DeserializeOwned,
    F: Send + Sync,
{
    let mut store = Store::new(&[]);
    // The watch ends only if the server does not serve the kind, and this crate created the kind
    // before.
    let _fatal = run_watch(api, WatchOptions::default(), parse, |delta| {
        store.apply(delta).into_iter().for_each(&mut tell)
    })
    .await;
}

/// Reads or changes what the watches of a test have seen.
pub(crate) fn with_seen<S, T>(seen: &Mutex<S>, change: impl FnOnce(&mut S) -> T) -> T {
    change(&mut seen.lock().unwrap_or_else(PoisonError::into_inner))
}

fn moved<T>(count: u32, old: &Option<T>, new: &Option<T>) -> u32 {
    count + u32::from(new.is_some()) - u32::from(old.is_some())
}

pub(crate) fn is_ready(node: Node) -> bool {
    let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
