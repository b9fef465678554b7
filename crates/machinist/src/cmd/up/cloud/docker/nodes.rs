//! Follows the Nodes of the cluster of containers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use machinist_kube::watch::WatchNote;
use machinist_kube::{Delta, Entry, ObjectKey, WatchOptions, run_watch};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::wiring::seed;

/// Nodes by name.
type Nodes = BTreeMap<String, Value>;

/// The watch of the Nodes fails for this long before `up` reports it: a restart of the engine or of
/// the API server takes a moment.
const FAILS_FOR: Duration = Duration::from_secs(15);

/// A change of the API server of the Nodes, for users.
pub(super) enum ServerNews {
    /// The API server does not answer. The text is the last error.
    Silent(String),
    /// The API server answers again.
    Back,
}

/// The failures of the watch since it worked.
#[derive(Debug, Default)]
struct Failing {
    since: Option<Instant>,
    is_reported: bool,
}

impl Failing {
    fn take(&mut self, note: WatchNote) -> Option<ServerNews> {
        match note {
            WatchNote::Retrying { server_works: false, error, .. } => {
                let since = *self.since.get_or_insert_with(Instant::now);
                let is_news = !self.is_reported && FAILS_FOR <= since.elapsed();
                self.is_reported |= is_news;
                is_news.then_some(ServerNews::Silent(error))
            }
            WatchNote::Opened | WatchNote::Listed { .. } | WatchNote::Retrying { server_works: true, .. } => {
                std::mem::take(self).is_reported.then_some(ServerNews::Back)
            }
            WatchNote::Undecodable { .. } => None,
        }
    }
}

/// Starts to follow the Nodes. The receiver always has their newest state: a reader that is slow
/// skips states and misses no Node.
pub(super) fn follow(
    parts: &mut JoinSet<anyhow::Error>,
    client: Client,
    report: impl Fn(ServerNews) + Send + Sync + 'static,
) -> watch::Receiver<Nodes> {
    #[expect(clippy::disallowed_methods, reason = "only the view of `up` reads it; it decides nothing")]
    let (sender, receiver) = watch::channel(Nodes::new());
    parts.spawn(async move {
        let failing = Mutex::new(Failing::default());
        let observer = move |note| {
            let news = failing.lock().unwrap_or_else(PoisonError::into_inner).take(note);
            news.into_iter().for_each(&report);
        };
        let observer = Some(Arc::new(observer) as Arc<dyn Fn(WatchNote) + Send + Sync>);
        let options = WatchOptions { seed: seed(), observer, ..WatchOptions::default() };
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
        Delta::Unreadable { .. } | Delta::Bookmark(_) | Delta::ListedOnce(_) | Delta::RelistPart(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_a_lasting_failure_is_told() {
        let failed = || WatchNote::Retrying {
            after: Duration::ZERO,
            error: "refused".to_owned(),
            kind_is_missing: false,
            server_works: false,
            server_answers: false,
        };
        let mut failing = Failing::default();
        assert!(failing.take(failed()).is_none());
        tokio::time::advance(FAILS_FOR / 2).await;
        assert!(failing.take(failed()).is_none() && failing.take(WatchNote::Opened).is_none());
        assert!(failing.take(failed()).is_none(), "the failures begin again");
        tokio::time::advance(FAILS_FOR).await;
        assert!(matches!(failing.take(failed()), Some(ServerNews::Silent(_))));
        assert!(failing.take(failed()).is_none(), "the failure is reported once");
        assert!(matches!(failing.take(WatchNote::Opened), Some(ServerNews::Back)));
    }
}
