//! Small requests that show whether an API server answers while its watches are silent.
//!
//! A contract names the kinds whose silence matters ([`Contract::server_checks`]). While one of
//! these kinds is not fresh, the process requests one object of it, once per period. After a
//! request without an answer, the next one follows after a fifth of the timeout. While the kinds
//! are fresh, nothing is requested, and the facts themselves are the answer.
//!
//! The requests fill no store. A deadline that is due reads the whole kind (`fresh_reads`).

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use machinist_kube::store::FRESH_FOR;
use tokio::time::{Instant, timeout};

use crate::contract::Contract;
use crate::feed::{Fed, Feed};
use crate::runtime::Runtime;
use crate::server_answers::{Requests, ServerChecks};

/// The interval at which the process looks whether a request is due.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A request that takes longer has no answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

impl<C: Contract> Runtime<C> {
    /// Returns since when requests about a kind that is not fresh have no answer.
    pub fn unanswered_since<F: Fed<C>>(&self, seen: &C::Seen) -> Option<Instant> {
        if F::store(seen).is_fresh() {
            return None;
        }
        self.server_answers.lock().get(F::RESOURCE)?.unanswered_since
    }

    /// Makes the requests that are due, in an endless loop.
    pub(crate) async fn check_servers(self: Arc<Self>, checks: ServerChecks) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            self.check_due(checks).await;
        }
    }

    /// Makes the requests that are due.
    async fn check_due(&self, checks: ServerChecks) {
        let now = Instant::now();
        let mut due = Vec::new();
        {
            let world = self.world.lock();
            let mut answers = self.server_answers.lock();
            for feed in self.feeds.iter().filter(|feed| checks.kinds.contains(&feed.resource())) {
                // The first list may take a while, and needs no second request.
                let is_starting = !feed.is_synced(&world.seen) && self.began.elapsed() < FRESH_FOR;
                if is_starting || feed.is_fresh(&world.seen) {
                    answers.remove(feed.resource());
                    continue;
                }
                let requests =
                    answers.entry(feed.resource()).or_insert(Requests { unanswered_since: None, next: now });
                if requests.next <= now {
                    requests.unanswered_since.get_or_insert(now);
                    due.push(feed);
                }
            }
        }
        join_all(due.into_iter().map(|feed| self.check_server(&**feed, checks))).await;
    }

    async fn check_server(&self, feed: &dyn Feed<C>, checks: ServerChecks) {
        let is_answered = timeout(ANSWERS_WITHIN, feed.is_answered(self)).await.unwrap_or(false);
        let mut answers = self.server_answers.lock();
        let Some(requests) = answers.get_mut(feed.resource()) else { return };
        if is_answered {
            requests.unanswered_since = None;
        }
        let pause = if is_answered { checks.period } else { checks.timeout / 5 };
        requests.next = Instant::now() + pause;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::{Value, json};
    use tokio::time::advance;

    use super::*;
    use crate::take_in::take_in;
    use crate::test_contract::{Host, TestContract, relist, runtime};

    const SECOND: Duration = Duration::from_secs(1);
    const CHECKS: ServerChecks =
        ServerChecks { kinds: &["nodes"], timeout: Duration::from_secs(30), period: Duration::from_secs(60) };

    /// A fresh kind costs no request. A silent one costs one per period, or one every six seconds
    /// without an answer.
    #[tokio::test(start_paused = true)]
    async fn requests_are_made_only_while_a_kind_is_silent() {
        let (requests, works) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(1)));
        let (counted, answers) = (requests.clone(), works.clone());
        let (runtime, _) = runtime(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            // A text that is not a list counts as no answer.
            let list = json!({"metadata": {"resourceVersion": "1"}, "items": []});
            if answers.load(Ordering::Relaxed) == 1 { list } else { Value::Null }
        });
        let pass = async |seconds: u32| {
            let before = requests.load(Ordering::Relaxed);
            for _ in 0..seconds {
                advance(SECOND).await;
                runtime.check_due(CHECKS).await;
            }
            requests.load(Ordering::Relaxed) - before
        };
        let unanswered_for = || {
            let since = runtime.unanswered_since::<Host>(&runtime.lock().seen)?;
            Some(since.elapsed().as_secs())
        };
        take_in::<TestContract, Host>(&runtime, relist(Vec::new(), 1));
        assert_eq!((pass(120).await, unanswered_for()), (0, None));
        assert_eq!((pass(121).await, unanswered_for()), (3, None), "a request each minute");
        works.store(0, Ordering::Relaxed);
        assert_eq!(pass(60).await, 1, "the next request is due a minute after the last answer");
        assert_eq!(pass(60).await, 10);
        assert!(unanswered_for().is_some_and(|seconds| 60 <= seconds), "{:?}", unanswered_for());
        works.store(1, Ordering::Relaxed);
        pass(6).await;
        assert_eq!(unanswered_for(), None, "the first answer");
        works.store(0, Ordering::Relaxed);
        pass(120).await;
        assert!(unanswered_for().is_some());
        take_in::<TestContract, Host>(&runtime, relist(Vec::new(), 2));
        assert_eq!((unanswered_for(), pass(60).await), (None, 0), "the watch delivers again");
    }
}
