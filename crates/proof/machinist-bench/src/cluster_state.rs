//! What is there now: Machines and Nodes, counted as watches show them.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use anyhow::{Result, anyhow};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use machinist_api::{Machine, Phase};
use machinist_kube::watch::{WatchOptions, run_watch};
use machinist_kube::{Change, Store};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::objects::NAMESPACE;

/// How many there are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Machines.
    pub(crate) machines: u32,
    /// Machines that there ever were: every one is seen, because a watch that breaks off is resumed where it was.
    pub(crate) machines_ever: u32,
    /// Machines by phase.
    phases: BTreeMap<String, u32>,
    /// Nodes.
    pub(crate) nodes: u32,
    /// Nodes whose Ready condition is True.
    pub(crate) nodes_ready: u32,
}

impl Counts {
    /// Machines that run.
    pub(crate) fn running(&self) -> u32 {
        self.phases.get(Phase::Running.as_str()).copied().unwrap_or_default()
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

/// Follows Machines and Nodes until it is dropped.
pub(crate) struct ClusterState {
    counts: watch::Receiver<Counts>,
    _watches: JoinSet<()>,
}

impl ClusterState {
    /// Begins to follow. `control` and `target` may be clients of one server.
    pub(crate) fn follow(control: Client, target: Client) -> Self {
        #[expect(clippy::disallowed_methods, reason = "one task waits, so there is no order")]
        let (sender, counts) = watch::channel(Counts::default());
        let mut watches = JoinSet::new();
        let machines: Api<Machine> = Api::namespaced(control, NAMESPACE);
        let told = sender.clone();
        watches.spawn(count(
            machines,
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
        watches.spawn(count(Api::all(target), is_ready, move |change| {
            let is_ready = |node: &&std::sync::Arc<bool>| ***node;
            sender.send_modify(|counts| {
                counts.nodes = moved(counts.nodes, &change.old, &change.new);
                let (old, new) = (change.old.as_ref().filter(is_ready), change.new.as_ref().filter(is_ready));
                counts.nodes_ready = moved(counts.nodes_ready, &old, &new);
            });
        }));
        Self { counts, _watches: watches }
    }

    /// What is there now.
    pub(crate) fn now(&self) -> Counts {
        self.counts.borrow().clone()
    }

    /// Waits for a state.
    ///
    /// # Errors
    /// After `within`, with what is there instead.
    pub(crate) async fn until(
        &mut self,
        what: &str,
        within: Duration,
        is_so: impl Fn(&Counts) -> bool,
    ) -> Result<()> {
        let reached = async {
            // The senders live in the watches, which end only with us.
            self.counts.wait_for(|counts| is_so(counts)).await.is_ok()
        };
        match tokio::time::timeout(within, reached).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(anyhow!("a watch ended")),
            Err(_elapsed) => Err(anyhow!("not within {within:?}: {what}. There are {}", self.now())),
        }
    }
}

async fn count<K, F>(api: Api<K>, parse: impl Fn(K) -> F + Send, tell: impl Fn(Change<F>) + Send + Sync)
where
    K: kube::Resource + serde::de::DeserializeOwned,
    F: Send + Sync,
{
    let mut store = Store::new(&[]);
    // It ends only when the server does not know the kind at all, and we have created it.
    let _fatal = run_watch(api, WatchOptions::default(), parse, |delta| {
        store.apply(delta).into_iter().for_each(&tell)
    })
    .await;
}

fn moved<T>(count: u32, old: &Option<T>, new: &Option<T>) -> u32 {
    count + u32::from(new.is_some()) - u32::from(old.is_some())
}

fn is_ready(node: Node) -> bool {
    let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
