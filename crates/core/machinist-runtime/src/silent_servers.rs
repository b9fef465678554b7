//! API servers that do not answer: the first thing that a user must know.
//!
//! A server is silent if no watch of it delivered anything for two minutes, or if all its watches
//! fail for ten seconds. The first case includes a connection that is open and dead. The second
//! one shows a refused connection much earlier. A server that has never answered this process is
//! silent since the process began.

use std::collections::BTreeMap;
use std::time::Duration;

use machinist_kube::Cluster;
use machinist_kube::store::FRESH_FOR;
use machinist_kube::watch::WatchNote;
use tokio::time::Instant;

use crate::contract::Contract;
use crate::runtime::Runtime;
use crate::silence::{Failure, SilentServer};
use crate::world::World;

/// A server whose watches all fail is silent after this time. A restart of an API server ends all
/// watches for a moment.
const FAILING_FOR: Duration = Duration::from_secs(10);

impl<C: Contract> Runtime<C> {
    /// The silent API servers.
    pub fn silent_servers(&self, world: &World<C>) -> Vec<SilentServer> {
        let mut clusters: BTreeMap<Cluster, Silent> = BTreeMap::new();
        // The watch of a deferred kind may not have begun.
        let begun = self.listed_first.initialized();
        for feed in self.feeds.iter().filter(|feed| begun || !feed.is_deferred()) {
            let Some(cluster) = feed.cluster() else { continue };
            let heard = feed.heard_at(&world.seen);
            let failure = world.failing.get(feed.resource());
            let silent = clusters.entry(cluster).or_insert_with(|| Silent {
                since: heard,
                all_fail: true,
                answers: false,
                error: None,
            });
            silent.since = silent.since.max(heard);
            silent.all_fail &= failure.is_some();
            silent.answers |= failure.is_some_and(|failure| failure.server_answers);
            silent.error = silent.error.take().or_else(|| failure.map(|failure| failure.error.clone()));
        }
        let is_silent = |silent: &Silent| {
            let limit = if silent.all_fail { FAILING_FOR } else { FRESH_FOR };
            // Before the first list, a watch may still wait for its answer, or be answered with an
            // error. Readiness says then what is missing.
            let never_answers = silent.all_fail && !silent.answers;
            let since = silent.since.or(never_answers.then_some(self.began));
            since.filter(|since| limit < since.elapsed())
        };
        let outages = clusters.into_iter().filter_map(|(cluster, silent)| {
            let since = self.past(is_silent(&silent)?);
            Some(SilentServer { cluster, since, error: silent.error })
        });
        outages.collect()
    }

    /// The outage of a cluster that the log has named. It stays the same while it lasts.
    pub fn told_silence(&self, cluster: &Cluster) -> Option<SilentServer> {
        self.told_silences.lock().get(cluster).cloned()
    }

    /// Logs the begin and the end of outages.
    pub(crate) fn tell_silences(&self) {
        let outages = self.silent_servers(&self.world.lock());
        let mut told = self.told_silences.lock();
        for outage in &outages {
            let SilentServer { cluster, since, .. } = outage;
            if !told.contains_key(cluster) {
                let error = outage.error();
                tracing::warn!(%cluster, %since, error, "An API server is silent; deadlines that depend on it wait");
                told.insert(cluster.clone(), outage.clone());
            }
        }
        told.retain(|cluster, SilentServer { since, .. }| {
            let lasts = outages.iter().any(|outage| outage.cluster == *cluster);
            if !lasts {
                tracing::info!(%cluster, %since, "An API server answers again");
            }
            lasts
        });
    }

    /// Takes note of the state of a watch.
    pub(crate) fn note_watch(&self, resource: &'static str, note: &WatchNote) {
        match note {
            WatchNote::Retrying { error, server_answers, .. } => {
                let failure = Failure { error: error.clone(), server_answers: *server_answers };
                self.world.lock().failing.insert(resource, failure);
            }
            WatchNote::Opened => {
                let waiting = {
                    let mut world = self.world.lock();
                    world.failing.remove(resource);
                    world.fresh_reads.answered(resource)
                };
                waiting.into_iter().for_each(|key| self.wake(key));
            }
            WatchNote::Listed { .. } => {
                self.world.lock().failing.remove(resource);
            }
            WatchNote::Undecodable { .. } => {}
        }
    }
}

/// The silence of one cluster.
struct Silent {
    since: Option<Instant>,
    all_fail: bool,
    /// Whether the server answers a watch with an error.
    answers: bool,
    error: Option<String>,
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use serde_json::Value;
    use tokio::time::advance;
    use tracing_subscriber::util::SubscriberInitExt as _;

    use super::*;
    use crate::feed::Fed;
    use crate::take_in::take_in;
    use crate::test_contract::{Host, Map, TestContract, TestRuntime, relist, runtime};

    fn fail(runtime: &TestRuntime, resource: &'static str, error: &str, server_answers: bool) {
        let note = WatchNote::Retrying {
            after: Duration::ZERO,
            error: error.to_owned(),
            kind_is_missing: false,
            server_works: false,
            server_answers,
        };
        runtime.note_watch(resource, &note);
    }

    fn silent(runtime: &TestRuntime) -> Vec<String> {
        runtime.silent_servers(&runtime.lock()).iter().map(ToString::to_string).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_never_answered_is_named() {
        let (runtime, _) = runtime(|| Value::Null);
        let began = runtime.now();
        assert_eq!(silent(&runtime), Vec::<String>::new());
        advance(FAILING_FOR + Duration::from_secs(1)).await;
        assert_eq!(silent(&runtime), Vec::<String>::new(), "the first answers may still arrive");
        fail(&runtime, Map::RESOURCE, "forbidden", true);
        fail(&runtime, Host::RESOURCE, "connection refused", false);
        let expected = format!("the API server of the target cluster is silent since {began:.0}");
        assert_eq!(silent(&runtime), [expected], "a rejection is an answer");
        take_in::<TestContract, Host>(&runtime, relist(Vec::new(), 1));
        runtime.note_watch(Host::RESOURCE, &WatchNote::Listed { objects: 0 });
        assert_eq!(silent(&runtime), Vec::<String>::new());
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_has_ten_seconds_to_start() {
        let (runtime, _) = runtime(|| Value::Null);
        fail(&runtime, Map::RESOURCE, "connection refused", false);
        advance(FAILING_FOR).await;
        assert_eq!(silent(&runtime), Vec::<String>::new());
        advance(Duration::from_millis(1)).await;
        assert_eq!(silent(&runtime).len(), 1);
    }

    /// The log of a test.
    #[derive(Clone, Default)]
    struct Logged(Arc<Mutex<Vec<u8>>>);

    impl Logged {
        fn lines(&self) -> Vec<String> {
            let bytes = self.0.lock().expect("no panic");
            String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect()
        }
    }

    impl io::Write for Logged {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no panic").extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// An operator reads since when a server is silent. Later the log does not repeat it.
    #[tokio::test(start_paused = true)]
    async fn the_log_names_an_outage_once_with_its_start() {
        let logged = Logged::default();
        let writer = logged.clone();
        let log = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone());
        let _guard = log.set_default();
        // With only one subscriber, the first test that reaches a log line decides whether that
        // line is ever logged, and other tests have no subscriber.
        let _other = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::default());
        let (runtime, _) = runtime(|| Value::Null);
        take_in::<TestContract, Host>(&runtime, relist(Vec::new(), 1));
        let heard = runtime.now();
        let cluster = Host::cluster();
        advance(FAILING_FOR).await;
        fail(&runtime, Host::RESOURCE, "connection refused", false);
        runtime.tell_silences();
        assert_eq!((logged.lines(), runtime.told_silence(&cluster)), (Vec::new(), None));
        for _ in 0..3 {
            advance(Duration::from_secs(60)).await;
            runtime.tell_silences();
        }
        let lines = logged.lines();
        let [line] = &lines[..] else { panic!("one line: {lines:#?}") };
        assert!(line.contains("An API server is silent") && line.contains("connection refused"), "{line}");
        assert!(line.contains(&format!("since={heard}")), "{line}");
        let told = runtime.told_silence(&cluster).expect("an outage");
        assert_eq!(told.since, heard, "it began with the last sign of life");
        runtime.note_watch(Host::RESOURCE, &WatchNote::Listed { objects: 0 });
        take_in::<TestContract, Host>(&runtime, relist(Vec::new(), 2));
        runtime.tell_silences();
        let lines = logged.lines();
        assert!(lines.len() == 2 && lines[1].contains("An API server answers again"), "{lines:#?}");
        assert_eq!(runtime.told_silence(&cluster), None);
    }
}
