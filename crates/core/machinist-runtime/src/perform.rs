//! Performs the actions of one plan, until one fails.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesOrdered;
use futures::{FutureExt as _, StreamExt as _};
use machinist_kube::{Leadership, Moment};

use crate::contract::{Contract, Kind, Stop};
use crate::runtime::Runtime;

/// The number of independent calls of one plan that may be in flight at the same time.
const CALLS_AT_ONCE: usize = 16;

/// The time in which an action that takes objects away must begin, from when its facts were read.
const TAKES_AWAY_WITHIN: Duration = Duration::from_secs(10);

/// Performs the actions in order. Adjacent independent actions run concurrently, and those that
/// start slowly in batches of 1, 2, 4 and so on: if the API server rejects what one of them asks
/// for, it most likely rejects the others, too.
pub(crate) async fn perform<C: Contract, K: Kind<C>>(
    runtime: &Arc<Runtime<C>>,
    read: Moment,
    snapshot: &K::Snapshot,
    actions: Vec<K::Action>,
) -> Result<(), Stop> {
    let call = |action: K::Action| Call {
        is_independent: K::is_independent(&action),
        starts_slowly: K::starts_slowly(&action),
        begin: Box::new(move || {
            let answer = async move {
                may_act(runtime, read, K::takes_away(&action))?;
                K::act(runtime, snapshot, action).await
            };
            answer.boxed()
        }),
    };
    perform_in_order(actions.into_iter().map(call).collect()).await
}

/// An action that has not begun.
struct Call<'a> {
    is_independent: bool,
    starts_slowly: bool,
    begin: Begin<'a>,
}

/// Begins a call.
type Begin<'a> = Box<dyn FnOnce() -> Answer<'a> + Send + 'a>;

type Answer<'a> = BoxFuture<'a, Result<(), Stop>>;

async fn perform_in_order(calls: Vec<Call<'_>>) -> Result<(), Stop> {
    let mut calls = calls.into_iter().peekable();
    while let Some(call) = calls.next() {
        if !call.is_independent {
            (call.begin)().await?;
            continue;
        }
        let is_slow = call.starts_slowly;
        let mut together = vec![call.begin];
        while let Some(call) = calls.next_if(|call| call.is_independent && call.starts_slowly == is_slow) {
            together.push(call.begin);
        }
        let mut batch = if is_slow { 1 } else { together.len() };
        let mut together = together.into_iter().peekable();
        while together.peek().is_some() {
            perform_together(together.by_ref().take(batch).collect()).await?;
            batch = batch.saturating_mul(2);
        }
    }
    Ok(())
}

/// Performs calls concurrently. Returns the error of the first that failed, when all have ended.
async fn perform_together(calls: Vec<Begin<'_>>) -> Result<(), Stop> {
    let mut waiting = calls.into_iter();
    let mut running = FuturesOrdered::new();
    let mut results = Vec::new();
    loop {
        while running.len() < CALLS_AT_ONCE
            && let Some(begin) = waiting.next()
        {
            running.push_back(begin());
        }
        match running.next().await {
            Some(result) => results.push(result),
            None => return results.into_iter().collect(),
        }
    }
}

/// Checks before each action that this process may still act. A process that was suspended in the
/// middle of a pass may have lost its Lease.
fn may_act<C: Contract>(runtime: &Runtime<C>, read: Moment, takes_away: bool) -> Result<(), Stop> {
    if takes_away && read.is_older_than(TAKES_AWAY_WITHIN, &runtime.options.clock) {
        return Err(Stop::NotNow("the facts of the decision are too old"));
    }
    if runtime.in_flight.is_draining() {
        return Err(Stop::NotNow("the process is stopping"));
    }
    if !runtime.leadership.as_ref().is_none_or(Leadership::is_held) {
        return Err(Stop::NotNow("the lease was lost"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use k8s_openapi::api::core::v1::ObjectReference;
    use machinist_core::{Plan, Why};
    use serde_json::Value;

    use super::*;
    use crate::contract::Observed;
    use crate::test_contract::{NoReason, TestContract, TestRuntime, runtime};
    use crate::world::World;

    /// Counts the actions that were performed.
    struct Counted;

    enum Action {
        /// Takes an object away, and takes six seconds.
        Remove,
        /// Creates a child. The API server rejects odd numbers.
        Create(usize),
    }

    impl std::fmt::Display for Action {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            match self {
                Self::Remove => f.write_str("remove"),
                Self::Create(number) => write!(f, "create {number}"),
            }
        }
    }

    impl Kind<TestContract> for Counted {
        type Id = ();
        type Snapshot = Counter;
        type Action = Action;

        fn ids(_: &crate::test_contract::Seen, (): &()) -> Vec<()> {
            Vec::new()
        }
        fn observe(_: &TestRuntime, _: &World<TestContract>, (): &()) -> Observed<Counter> {
            Observed::NotYet
        }
        fn plan((): &(), _: &Counter) -> Plan<Action, NoReason> {
            Plan::idle(Why::up_to_date())
        }
        async fn act(_: &Arc<TestRuntime>, performed: &Counter, action: Action) -> Result<(), Stop> {
            performed.0.fetch_add(1, Ordering::Relaxed);
            match action {
                Action::Remove => tokio::time::sleep(Duration::from_secs(6)).await,
                Action::Create(number) if number.is_multiple_of(2) => {}
                Action::Create(_) => return Err(Stop::NotNow("rejected")),
            }
            Ok(())
        }
        fn takes_away(action: &Action) -> bool {
            matches!(action, Action::Remove)
        }
        fn starts_slowly(action: &Action) -> bool {
            matches!(action, Action::Create(_))
        }
        fn is_independent(_: &Action) -> bool {
            true
        }
        fn reference(_: &Counter) -> Option<ObjectReference> {
            None
        }
    }

    #[derive(Default)]
    struct Counter(AtomicUsize);

    impl std::hash::Hash for Counter {
        fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_batch_of_removals_is_decided_again() {
        let (runtime, clock) = runtime(|| Value::Null);
        let performed = Counter::default();
        let clock: machinist_kube::SharedClock = clock;
        let actions = (0..100).map(|_| Action::Remove).collect();
        let ended =
            perform::<TestContract, Counted>(&runtime, Moment::now(Some(&clock)), &performed, actions).await;
        assert!(matches!(ended, Err(Stop::NotNow(_))), "{ended:?}");
        assert_eq!(performed.0.load(Ordering::Relaxed), 2 * CALLS_AT_ONCE, "two rounds of six seconds");
    }

    #[tokio::test(start_paused = true)]
    async fn t_77_creations_start_slowly_and_end_at_a_rejection() {
        let performed = async |numbers: Vec<usize>| {
            let (runtime, clock) = runtime(|| Value::Null);
            let performed = Counter::default();
            let clock: machinist_kube::SharedClock = clock;
            let actions = numbers.into_iter().map(Action::Create).collect();
            let moment = Moment::now(Some(&clock));
            let ended = perform::<TestContract, Counted>(&runtime, moment, &performed, actions).await;
            (performed.0.load(Ordering::Relaxed), ended.is_ok())
        };
        assert_eq!(performed(vec![1; 100]).await, (1, false));
        assert_eq!(performed(vec![0, 0, 0, 0, 1, 0, 0, 0, 0]).await, (7, false), "the batch of the fifth");
        assert_eq!(performed(vec![0; 100]).await, (100, true));
    }
}
