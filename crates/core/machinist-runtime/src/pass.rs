//! One pass over one key, the same for every kind: observe, plan, act, and wake the key later.
//!
//! # Guarantees
//! - If the stores do not show all writes of this process that are charged to a key, a pass makes
//!   no decision about that key.
//! - A pass ends at its first failed call.
//! - An action that takes objects away does not begin long after the facts were read: a user may
//!   have taken the request back while a slow API server answered the actions before it.
//! - If a pass plans the same actions from the same facts as the last pass, it performs them only
//!   after a pause. The pause doubles for as long as nothing changes.
//! - Actions that the API server rejected or did not answer are performed again only after a pause,
//!   even if the facts change meanwhile: the failure may have changed them.
//! - The same holds after a conflict with a write of another client. The watch shows that write,
//!   which ends the pause.
//! - If one action is performed again and again although the facts change in between, it is paused
//!   in the same way. Otherwise a planner that undoes its own action would load the API server.
//! - An action that the process only rehearses is logged once and never performed.
//! - A panic ends its pass and appears in the object's `why`. The next pass over the key follows
//!   after a pause. Other keys are not affected.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use machinist_core::reverted::{Fix, is_reverted};
use machinist_core::{ContractReason, Plan, Reason, Step, Why};
use machinist_kube::{Leadership, Moment};
use tokio::time::Instant;

use crate::contract::{Contract, Kind, Observed, Stop};
use crate::fingerprint::fingerprint;
use crate::panics::{self, Panicked};
use crate::passes::Repetition;
use crate::runtime::{NOT_NOW_AGAIN, Runtime, UnknownWrites};

/// The longest pause before a retry, if an API server does not answer.
const UNANSWERED_AGAIN: Duration = Duration::from_secs(5);
/// The number of independent calls of one plan that may be in flight at the same time.
const CALLS_AT_ONCE: usize = 16;

/// The time in which an action that takes objects away must begin, from when its facts were read.
const TAKES_AWAY_WITHIN: Duration = Duration::from_secs(10);

/// Performs one pass over a key.
pub async fn pass<C: Contract, K: Kind<C>>(runtime: &Arc<Runtime<C>>, key: &C::Key, id: &K::Id) {
    let goes_on_from = runtime.goes_on_from(&runtime.world.lock(), key);
    let goes_on = goes_on_from.is_some_and(|from| from <= Instant::now());
    if let Some(from) = goes_on_from.filter(|_| !goes_on) {
        runtime.queue.wake_at(key.clone(), from);
    }
    match runtime.unknown_writes(key) {
        UnknownWrites::None => {}
        _ if goes_on => {}
        UnknownWrites::Waiting => return,
        UnknownWrites::Some(writes) => return runtime.begin_reading_outcomes(key, writes),
    }
    runtime.heed_clock();
    runtime.notice_suspension();
    let read = Moment::now(Some(&runtime.options.clock));
    let observed = panics::catch(|| {
        let world = runtime.world.lock();
        // Checked again under this lock: another worker may have opened a charge on the key since
        // the first check.
        let may_decide = (runtime.is_synced_for(&world.seen, key) && world.barrier.blocked(key).is_none())
            || runtime.goes_on_from(&world, key).is_some_and(|from| from <= Instant::now());
        let is_held = !may_decide && runtime.awaits_deferred(&world, key);
        let observed = if may_decide { K::observe(runtime, &world, id) } else { Observed::NotYet };
        (observed, is_held)
    });
    let snapshot = match observed {
        Err(panicked) => {
            return runtime.note_panic(key, program_failed("reading the object's state failed", panicked));
        }
        Ok((Observed::Ready(snapshot), _)) => snapshot,
        Ok((Observed::NotYet, is_held)) => {
            if is_held {
                let reason = Reason::Looking("all watched kinds for the first time");
                let next = Step::Expect("the API server answers, and /readyz names what is missing");
                runtime.note(key, Why::new(reason, next), Vec::new());
            }
            return;
        }
        Ok((Observed::Gone, _)) => {
            runtime.world.lock().passes.drop_key(key);
            runtime.decided.notify_one();
            return runtime.queue.remove(key);
        }
    };
    let decided = panics::catch(|| {
        let plan = K::plan(&runtime.tools, &snapshot);
        K::publish(runtime, &snapshot, &plan.why);
        let plan = hold_back::<C, K>(runtime, plan);
        let planned: Vec<String> = plan.actions.iter().map(ToString::to_string).collect();
        (plan, planned)
    });
    let (Plan { actions, why, wait }, planned) = match decided {
        Ok(decided) => decided,
        Err(panicked) => return runtime.note_panic(key, planner_failed(panicked)),
    };
    let (rehearsed, actions): (Vec<_>, Vec<_>) =
        actions.into_iter().partition(|action| K::is_rehearsed(runtime, action));
    rehearse(runtime, key, &rehearsed, &why);
    let rendered: Vec<String> = actions.iter().map(ToString::to_string).collect();
    let repetition = runtime.world.lock().passes.repetition(key, fingerprint(&snapshot), &rendered);
    if let Repetition::Pausing(until) = repetition {
        return runtime.queue.wake_at(key.clone(), until);
    }
    if repetition == Repetition::WithoutEffect {
        runtime.note_no_effect(key, &rendered);
        let pause = runtime.queue.retry(key.clone());
        runtime.world.lock().passes.pause(key, Instant::now() + pause);
        return;
    }
    if rendered.is_empty() {
        tracing::debug!(%key, %why, "Nothing to do");
    } else {
        tracing::info!(%key, actions = ?rendered, %why, "Performing actions");
    }
    let counts_as_settled = why.reason == Reason::Settled;
    runtime.note(key, why, planned);
    let performed = match panics::catch_async(perform::<C, K>(runtime, read, &snapshot, actions)).await {
        Ok(performed) => performed,
        Err(panicked) => {
            runtime.forget_pass(key);
            return runtime.note_panic(key, program_failed("performing an action failed", panicked));
        }
    };
    match performed {
        Ok(()) => {
            // In the condition, the lock would be held until the end of the block.
            let pause = runtime.world.lock().passes.circle(key, &rendered);
            if let Some(pause) = pause {
                return runtime.note_circle(key, &rendered, pause);
            }
            // A repeated action does not count as a success before something changes, so the pauses
            // keep growing.
            if repetition == Repetition::New {
                runtime.queue.forget(key);
            }
            runtime.come_back(key, wait);
        }
        Err(stop) => {
            let delay = match &stop {
                // The end of the rejected write wakes the key at once, usually before the watch
                // shows the write of the other client. The pause ends early when the facts change,
                // so a conflict costs one write. If the facts have not changed after the pause, a
                // second conflict is not ordinary.
                Stop::Stale => {
                    let pause = runtime.queue.retry(key.clone());
                    runtime.world.lock().passes.pause(key, Instant::now() + pause);
                    if repetition == Repetition::AfterPause {
                        runtime.note_no_effect(key, &rendered);
                    }
                    pause
                }
                Stop::Refused { message, is_told } => {
                    let untold = K::reference(&snapshot).filter(|_| !is_told);
                    runtime.tell_refused(key, untold, message);
                    // The end of the rejected write wakes the key at once. Without a pause, the API
                    // server would reject the same write again.
                    let pause = runtime.queue.retry(key.clone());
                    let now = Instant::now();
                    let passes = &mut runtime.world.lock().passes;
                    passes.hold(key, now + pause.min(UNANSWERED_AGAIN));
                    passes.pause(key, now + pause);
                    pause
                }
                Stop::Unanswered(_) => {
                    if counts_as_settled {
                        runtime.note_unanswered(key, &rendered);
                    }
                    // The end of the write wakes the key at once, but the API server is probably
                    // still unavailable.
                    let pause = runtime.queue.retry(key.clone()).min(UNANSWERED_AGAIN);
                    let until = Instant::now() + pause;
                    runtime.world.lock().passes.hold(key, until);
                    runtime.queue.wake_at(key.clone(), until);
                    pause
                }
                // The call was not rejected. It only may not start yet.
                Stop::NotNow(_) => {
                    runtime.forget_pass(key);
                    runtime.queue.wake_at(key.clone(), Instant::now() + NOT_NOW_AGAIN);
                    NOT_NOW_AGAIN
                }
            };
            runtime.count_retry(stop.count(), key);
            tracing::info!(%key, reason = ?stop, ?delay, "Pass stopped early; retrying after the delay");
        }
    }
}

/// Logs the actions that are not performed, each once for its key.
fn rehearse<C: Contract, A: Display>(
    runtime: &Runtime<C>,
    key: &C::Key,
    rehearsed: &[A],
    why: &Why<C::Reason>,
) {
    let rehearsed = rehearsed.iter().map(ToString::to_string);
    let actions = runtime.world.lock().passes.newly_rehearsed(key, rehearsed);
    if !actions.is_empty() {
        tracing::info!(%key, ?actions, %why, "Dry run: not performing actions");
    }
}

/// Cuts the plan before the first action that must wait for the last writes of the previous leader.
/// Such writes may delete objects that count for the same limit.
fn hold_back<C: Contract, K: Kind<C>>(
    runtime: &Runtime<C>,
    mut plan: Plan<K::Action, C::Reason>,
) -> Plan<K::Action, C::Reason> {
    let Some(held_back) = plan.actions.iter().position(K::takes_away) else { return plan };
    let alone_from = runtime.alone_from().filter(|_| !is_reverted(Fix::TakeoverWaits));
    let Some(alone_from) = alone_from else { return plan };
    plan.actions.truncate(held_back);
    let at = runtime.wall(alone_from);
    let then = Step::Expect("the controller performs the planned actions");
    plan.why =
        Why::new(Reason::PredecessorCalls, then.clone()).since(runtime.leading_since()).deadline(at, then);
    plan.no_later_than(at)
}

/// The reason after a panic of a planner. A planner sees no secret, so the reason contains the
/// panic message.
pub(crate) fn planner_failed<R: ContractReason>(panicked: Panicked) -> Why<R> {
    let message = panicked.message.clone();
    failed("the rule engine failed on this object", panicked, message)
}

/// The reason after a panic of code outside a planner. The panic message may quote a secret, so the
/// reason omits the message.
pub(crate) fn program_failed<R: ContractReason>(what: &'static str, panicked: Panicked) -> Why<R> {
    failed(what, panicked, String::new())
}

fn failed<R: ContractReason>(what: &'static str, panicked: Panicked, message: String) -> Why<R> {
    let reason = Reason::ProgramFailed { what, at: panicked.at, message };
    Why::new(reason, Step::Fix("report this bug; the controller tries again after a pause".to_owned()))
}

/// Performs the actions in order. Adjacent independent actions run concurrently, and those that
/// start slowly in batches of 1, 2, 4 and so on: if the API server rejects what one of them asks
/// for, it most likely rejects the others, too.
async fn perform<C: Contract, K: Kind<C>>(
    runtime: &Arc<Runtime<C>>,
    read: Moment,
    snapshot: &K::Snapshot,
    actions: Vec<K::Action>,
) -> Result<(), Stop> {
    let mut actions = actions.into_iter().peekable();
    while let Some(action) = actions.next() {
        if !K::is_independent(&action) {
            may_act::<C, K>(runtime, read, &action)?;
            K::act(runtime, snapshot, action).await?;
            continue;
        }
        let is_slow = K::starts_slowly(&action);
        let mut together = vec![action];
        let is_alike = |action: &K::Action| K::is_independent(action) && K::starts_slowly(action) == is_slow;
        while let Some(action) = actions.next_if(is_alike) {
            together.push(action);
        }
        let mut batch = if is_slow { 1 } else { together.len() };
        let mut together = together.into_iter().peekable();
        while together.peek().is_some() {
            let calls = together.by_ref().take(batch).map(async |action| {
                may_act::<C, K>(runtime, read, &action)?;
                K::act(runtime, snapshot, action).await
            });
            let results: Vec<_> = futures::stream::iter(calls).buffered(CALLS_AT_ONCE).collect().await;
            results.into_iter().collect::<Result<(), Stop>>()?;
            batch = batch.saturating_mul(2);
        }
    }
    Ok(())
}

/// Checks before each action that this process may still act. A process that was suspended in the
/// middle of a pass may have lost its Lease.
fn may_act<C: Contract, K: Kind<C>>(
    runtime: &Runtime<C>,
    read: Moment,
    action: &K::Action,
) -> Result<(), Stop> {
    if K::takes_away(action) && read.is_older_than(TAKES_AWAY_WITHIN, &runtime.options.clock) {
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
    use serde_json::Value;

    use super::*;
    use machinist_kube::ObjectKey;

    use crate::take_in::take_in;
    use crate::test_contract::{Host, Map, NoReason, TestContract, TestRuntime, item, relist, runtime};
    use crate::test_key::TestKey;
    use crate::world::World;

    /// Counts the actions that were performed.
    struct Removals;

    struct Remove;

    impl std::fmt::Display for Remove {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("remove")
        }
    }

    impl Kind<TestContract> for Removals {
        type Id = ();
        type Snapshot = Counter;
        type Action = Remove;

        fn ids(_: &crate::test_contract::Seen, (): &()) -> Vec<()> {
            Vec::new()
        }
        fn observe(_: &TestRuntime, _: &World<TestContract>, (): &()) -> Observed<Counter> {
            Observed::NotYet
        }
        fn plan((): &(), _: &Counter) -> Plan<Remove, NoReason> {
            Plan::idle(Why::settled())
        }
        async fn act(_: &Arc<TestRuntime>, performed: &Counter, _: Remove) -> Result<(), Stop> {
            performed.0.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_secs(6)).await;
            Ok(())
        }
        fn takes_away(_: &Remove) -> bool {
            true
        }
        fn is_independent(_: &Remove) -> bool {
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
        let actions = (0..100).map(|_| Remove).collect();
        let ended =
            perform::<TestContract, Removals>(&runtime, Moment::now(Some(&clock)), &performed, actions).await;
        assert!(matches!(ended, Err(Stop::NotNow(_))), "{ended:?}");
        assert_eq!(performed.0.load(Ordering::Relaxed), 2 * CALLS_AT_ONCE, "two rounds of six seconds");
    }

    /// Creates children, of which the API server rejects those with an odd number.
    struct Creations;

    struct Create(usize);

    impl std::fmt::Display for Create {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "create {}", self.0)
        }
    }

    impl Kind<TestContract> for Creations {
        type Id = ();
        type Snapshot = Counter;
        type Action = Create;

        fn ids(_: &crate::test_contract::Seen, (): &()) -> Vec<()> {
            Vec::new()
        }
        fn observe(_: &TestRuntime, _: &World<TestContract>, (): &()) -> Observed<Counter> {
            Observed::NotYet
        }
        fn plan((): &(), _: &Counter) -> Plan<Create, NoReason> {
            Plan::idle(Why::settled())
        }
        async fn act(_: &Arc<TestRuntime>, performed: &Counter, create: Create) -> Result<(), Stop> {
            performed.0.fetch_add(1, Ordering::Relaxed);
            if create.0.is_multiple_of(2) { Ok(()) } else { Err(Stop::NotNow("rejected")) }
        }
        fn starts_slowly(_: &Create) -> bool {
            true
        }
        fn is_independent(_: &Create) -> bool {
            true
        }
        fn reference(_: &Counter) -> Option<ObjectReference> {
            None
        }
    }

    /// T-77.
    #[tokio::test(start_paused = true)]
    async fn t_77_creations_start_slowly_and_end_at_a_rejection() {
        let performed = async |numbers: Vec<usize>| {
            let (runtime, clock) = runtime(|| Value::Null);
            let performed = Counter::default();
            let clock: machinist_kube::SharedClock = clock;
            let actions = numbers.into_iter().map(Create).collect();
            let moment = Moment::now(Some(&clock));
            let ended = perform::<TestContract, Creations>(&runtime, moment, &performed, actions).await;
            (performed.0.load(Ordering::Relaxed), ended.is_ok())
        };
        assert_eq!(performed(vec![1; 100]).await, (1, false));
        assert_eq!(performed(vec![0, 0, 0, 0, 1, 0, 0, 0, 0]).await, (7, false), "the batch of the fifth");
        assert_eq!(performed(vec![0; 100]).await, (100, true));
    }
    /// Writes that conflict with the writes of another client. The facts are the number of config
    /// maps.
    struct Conflicts;

    /// Number of config maps.
    #[derive(Hash)]
    struct Maps(usize);

    /// Number of writes. Only one test performs them.
    static WRITES: AtomicUsize = AtomicUsize::new(0);

    impl Kind<TestContract> for Conflicts {
        type Id = ();
        type Snapshot = Maps;
        type Action = Remove;

        fn ids(_: &crate::test_contract::Seen, (): &()) -> Vec<()> {
            Vec::new()
        }
        fn observe(_: &TestRuntime, world: &World<TestContract>, (): &()) -> Observed<Maps> {
            Observed::Ready(Maps(world.seen.maps.len()))
        }
        fn plan((): &(), _: &Maps) -> Plan<Remove, NoReason> {
            Plan::act(Remove, Why::settled())
        }
        async fn act(_: &Arc<TestRuntime>, _: &Maps, _: Remove) -> Result<(), Stop> {
            WRITES.fetch_add(1, Ordering::Relaxed);
            Err(Stop::Stale)
        }
        fn reference(_: &Maps) -> Option<ObjectReference> {
            None
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_conflict_waits_for_new_facts_and_is_no_warning() {
        let (runtime, _) = runtime(|| Value::Null);
        let show = |number: u64| {
            let map = |name: u64| item(ObjectKey::new("default", format!("m{name}")), name + 1, Map);
            take_in::<TestContract, Map>(&runtime, relist((0..number).map(map).collect(), number + 1));
        };
        show(1);
        take_in::<TestContract, Host>(&runtime, relist(Vec::new(), 1));
        let key = TestKey("key".to_owned());
        let after_a_pass = async || {
            pass::<TestContract, Conflicts>(&runtime, &key, &()).await;
            let reason = runtime.world.lock().passes.whys[&key].why.reason.clone();
            (WRITES.load(Ordering::Relaxed), matches!(reason, Reason::NoEffect { .. }))
        };
        assert_eq!(after_a_pass().await, (1, false));
        assert_eq!(after_a_pass().await, (1, false), "the end of the write wakes the key");
        show(2);
        assert_eq!(after_a_pass().await, (2, false), "the watch shows the write of the other client");
        assert_eq!(after_a_pass().await, (2, false));
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(after_a_pass().await, (3, true), "the server rejects the write, and no fact has changed");
        assert_eq!(after_a_pass().await, (3, true));
    }
}
