//! Follows the Nodes of the cluster of containers.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use machinist_kube::{Delta, Entry, ObjectKey, WatchOptions, run_watch};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::wiring::seed;

/// Nodes by name.
type Nodes = BTreeMap<String, Value>;

/// Starts to follow the Nodes. The receiver always has their newest state: a reader that is slow
/// skips states and misses no Node.
pub(super) fn follow(parts: &mut JoinSet<anyhow::Error>, client: Client) -> watch::Receiver<Nodes> {
    #[expect(clippy::disallowed_methods, reason = "only the view of `up` reads it; it decides nothing")]
    let (sender, receiver) = watch::channel(Nodes::new());
    parts.spawn(async move {
        let options = WatchOptions { seed: seed(), ..WatchOptions::default() };
        let parse = |node: Node| serde_json::to_value(node).unwrap_or_default();
        let sink = |delta: Delta<Value>| {
            sender.send_if_modified(|nodes| take_in(nodes, delta));
        };
        run_watch(Api::<Node>::all(client), options, parse, sink).await.into()
    });
    receiver
}

/// Processes one delta of the watch. Returns whether something changed.
fn take_in(nodes: &mut Nodes, delta: Delta<Value>) -> bool {
    let named = |(key, entry): (ObjectKey, Entry<Value>)| (key.name.to_string(), (*entry.facts).clone());
    match delta {
        Delta::Upsert(key, entry) | Delta::Fetched(key, entry) => {
            nodes.extend([named((key, entry))]);
            true
        }
        Delta::Delete { key, .. } | Delta::Absent { key, .. } => nodes.remove(&*key.name).is_some(),
        Delta::Relist(list) => {
            *nodes = list.items.into_iter().map(named).collect();
            true
        }
        // A Node that cannot be parsed keeps its last state. The other deltas carry no Node here.
        Delta::Unreadable { .. } | Delta::Bookmark(_) | Delta::RelistPart(_) => false,
    }
}
