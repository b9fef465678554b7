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
//!
//! What differs per kind is small: the facts, the plan, the calls. All the rest of a pass is
//! compiled once per contract.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use machinist_core::reverted::{Fix, is_reverted};
use machinist_core::{ContractReason, Plan, Reason, Step, Wait, Why};
use machinist_kube::Moment;
use tokio::time::Instant;

use crate::contract::{Contract, Kind, Observed, Stop};
use crate::fingerprint::fingerprint;
use crate::panics::{self, Panicked};
use crate::passes::Repetition;
use crate::perform::perform;
use crate::runtime::{NOT_NOW_AGAIN, Runtime, UnknownWrites};
use crate::world::World;

/// The longest pause before a retry, if an API server does not answer.
const UNANSWERED_AGAIN: Duration = Duration::from_secs(5);

/// Performs one pass over a key.
pub async fn pass<C: Contract, K: Kind<C>>(runtime: &Arc<Runtime<C>>, key: &C::Key, id: &K::Id) {
    if !may_begin(runtime, key) {
        return;
    }
    let read = Moment::now(Some(&runtime.options.clock));
    let observed = panics::catch(|| {
        let world = runtime.world.lock();
        if may_decide(runtime, &world, key) {
            return (K::observe(runtime, &world, id), false);
        }
        (Observed::NotYet, runtime.awaits_deferred(&world, key))
    });
    let snapshot = match observed {
        Err(panicked) => {
            return runtime.note_panic(key, program_failed("reading the object's state failed", panicked));
        }
        Ok((Observed::Ready(snapshot), _)) => snapshot,
        Ok((Observed::NotYet, awaits_deferred)) => return note_not_yet(runtime, key, awaits_deferred),
        Ok((Observed::Gone, _)) => return drop_key(runtime, key),
    };
    let (actions, decision) = match panics::catch(|| plan_actions::<C, K>(runtime, &snapshot)) {
        Ok(decided) => decided,
        Err(panicked) => return runtime.note_panic(key, planner_failed(panicked)),
    };
    let Some(acting) = begin(runtime, key, decision) else { return };
    let performed = panics::catch_async(perform::<C, K>(runtime, read, &snapshot, actions)).await;
    end(runtime, key, acting, performed, &|| K::reference(&snapshot));
}

/// A plan whose actions are rendered.
struct Decision<C: Contract> {
    why: Why<C::Reason>,
    wait: Wait,
    /// The fingerprint of the facts.
    facts: u64,
    /// All planned actions.
    planned: Vec<String>,
    /// Those that are performed.
    rendered: Vec<String>,
    /// Those that are only logged.
    rehearsed: Vec<String>,
}

/// The decision whose actions are being performed.
struct Acting {
    rendered: Vec<String>,
    repetition: Repetition,
    /// Whether the object is up to date but for these actions.
    is_settled: bool,
    wait: Wait,
}

/// Whether the outcomes of earlier writes are known. If not, reads them.
fn may_begin<C: Contract>(runtime: &Arc<Runtime<C>>, key: &C::Key) -> bool {
    let goes_on_from = runtime.goes_on_from(&runtime.world.lock(), key);
    let goes_on = goes_on_from.is_some_and(|from| from <= Instant::now());
    if let Some(from) = goes_on_from.filter(|_| !goes_on) {
        runtime.queue.wake_at(key.clone(), from);
    }
    match runtime.unknown_writes(key) {
        UnknownWrites::None => {}
        _ if goes_on => {}
        UnknownWrites::Waiting => return false,
        UnknownWrites::Some(writes) => {
            runtime.begin_reading_outcomes(key, writes);
            return false;
        }
    }
    runtime.heed_clock();
    runtime.notice_suspension();
    true
}

/// Whether the pass may decide about the key, under the lock that the facts are read under: another
/// worker may have opened a charge on the key since the first check.
fn may_decide<C: Contract>(runtime: &Runtime<C>, world: &World<C>, key: &C::Key) -> bool {
    (runtime.is_synced_for(&world.seen, key) && world.barrier.blocked(key).is_none())
        || runtime.goes_on_from(world, key).is_some_and(|from| from <= Instant::now())
}

/// A fact is missing. Its arrival wakes the key.
fn note_not_yet<C: Contract>(runtime: &Runtime<C>, key: &C::Key, awaits_deferred: bool) {
    if awaits_deferred {
        let reason = Reason::Looking("all watched kinds for the first time");
        let next = Step::Expect("the API server answers, and /readyz names what is missing");
        runtime.note(key, Why::new(reason, next), Vec::new());
    }
}

/// Takes a key off the queue whose object does not exist.
fn drop_key<C: Contract>(runtime: &Runtime<C>, key: &C::Key) {
    runtime.world.lock().passes.drop_key(key);
    runtime.decided.notify_one();
    runtime.queue.remove(key);
}

/// Plans, and returns the actions that are performed.
fn plan_actions<C: Contract, K: Kind<C>>(
    runtime: &Runtime<C>,
    snapshot: &K::Snapshot,
) -> (Vec<K::Action>, Decision<C>) {
    let plan = K::plan(&runtime.tools, snapshot);
    K::publish(runtime, snapshot, &plan.why);
    let takes_away = plan.actions.iter().position(K::takes_away);
    let Plan { actions, why, wait } = hold_back(runtime, plan, takes_away);
    let planned = texts_of(&actions);
    let (rehearsed, actions): (Vec<_>, Vec<_>) =
        actions.into_iter().partition(|action| K::is_rehearsed(runtime, action));
    let (rendered, rehearsed) = (texts_of(&actions), texts_of(&rehearsed));
    (actions, Decision { why, wait, facts: fingerprint(snapshot), planned, rendered, rehearsed })
}

fn texts_of<A: ToString>(actions: &[A]) -> Vec<String> {
    actions.iter().map(ToString::to_string).collect()
}

/// Records the decision. Returns nothing if its actions are not performed now.
fn begin<C: Contract>(runtime: &Runtime<C>, key: &C::Key, decision: Decision<C>) -> Option<Acting> {
    let Decision { why, wait, facts, planned, rendered, rehearsed } = decision;
    rehearse(runtime, key, rehearsed, &why);
    let repetition = runtime.world.lock().passes.repetition(key, facts, &rendered);
    if let Repetition::Pausing(until) = repetition {
        runtime.queue.wake_at(key.clone(), until);
        return None;
    }
    if repetition == Repetition::WithoutEffect {
        runtime.note_no_effect(key, &rendered);
        let pause = runtime.queue.retry(key.clone());
        runtime.world.lock().passes.pause(key, Instant::now() + pause);
        return None;
    }
    if rendered.is_empty() {
        tracing::debug!(%key, %why, "Nothing to do");
    } else {
        tracing::info!(%key, actions = ?rendered, %why, "Performing actions");
    }
    let is_settled = why.reason == Reason::Settled;
    runtime.note(key, why, planned);
    Some(Acting { rendered, repetition, is_settled, wait })
}

/// Wakes the key again, after the actions were performed or the first of them failed.
fn end<C: Contract>(
    runtime: &Runtime<C>,
    key: &C::Key,
    acting: Acting,
    performed: Result<Result<(), Stop>, Panicked>,
    reference: &dyn Fn() -> Option<ObjectReference>,
) {
    match performed {
        Err(panicked) => {
            runtime.forget_pass(key);
            runtime.note_panic(key, program_failed("performing an action failed", panicked));
        }
        Ok(Ok(())) => {
            // In the condition, the lock would be held until the end of the block.
            let pause = runtime.world.lock().passes.circle(key, &acting.rendered);
            if let Some(pause) = pause {
                return runtime.note_circle(key, &acting.rendered, pause);
            }
            // A repeated action does not count as a success before something changes, so the pauses
            // keep growing.
            if acting.repetition == Repetition::New {
                runtime.queue.forget(key);
            }
            runtime.come_back(key, acting.wait);
        }
        Ok(Err(stop)) => {
            let delay = delay_after(runtime, key, &acting, &stop, reference);
            runtime.count_retry(stop.count(), key);
            tracing::info!(%key, reason = ?stop, ?delay, "Pass stopped early; retrying after the delay");
        }
    }
}

/// Reports why the pass ended early, and wakes the key after a pause, which is returned.
fn delay_after<C: Contract>(
    runtime: &Runtime<C>,
    key: &C::Key,
    acting: &Acting,
    stop: &Stop,
    reference: &dyn Fn() -> Option<ObjectReference>,
) -> Duration {
    match stop {
        // The end of the rejected write wakes the key at once, usually before the watch shows the
        // write of the other client. The pause ends early when the facts change, so a conflict
        // costs one write. If the facts have not changed after the pause, a second conflict is not
        // ordinary.
        Stop::Stale => {
            let pause = runtime.queue.retry(key.clone());
            runtime.world.lock().passes.pause(key, Instant::now() + pause);
            if acting.repetition == Repetition::AfterPause {
                runtime.note_no_effect(key, &acting.rendered);
            }
            pause
        }
        Stop::Refused { message, is_told } => {
            let untold = if *is_told { None } else { reference() };
            runtime.tell_refused(key, untold, message);
            // The end of the rejected write wakes the key at once. Without a pause, the API server
            // would reject the same write again.
            let pause = runtime.queue.retry(key.clone());
            let now = Instant::now();
            let passes = &mut runtime.world.lock().passes;
            passes.hold(key, now + pause.min(UNANSWERED_AGAIN));
            passes.pause(key, now + pause);
            pause
        }
        Stop::Unanswered(_) => {
            if acting.is_settled {
                runtime.note_unanswered(key, &acting.rendered);
            }
            // The end of the write wakes the key at once, but the API server is probably still
            // unavailable.
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
    }
}

/// Logs the actions that are not performed, each once for its key.
fn rehearse<C: Contract>(runtime: &Runtime<C>, key: &C::Key, rehearsed: Vec<String>, why: &Why<C::Reason>) {
    let actions = runtime.world.lock().passes.newly_rehearsed(key, rehearsed.into_iter());
    if !actions.is_empty() {
        tracing::info!(%key, ?actions, %why, "Dry run: not performing actions");
    }
}

/// Cuts the plan before the first action that must wait for the last writes of the previous leader.
/// Those writes may delete objects that count for the same limit.
fn hold_back<C: Contract, A>(
    runtime: &Runtime<C>,
    mut plan: Plan<A, C::Reason>,
    first_that_takes_away: Option<usize>,
) -> Plan<A, C::Reason> {
    let Some(held_back) = first_that_takes_away else { return plan };
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use machinist_kube::ObjectKey;
    use serde_json::Value;

    use super::*;
    use crate::take_in::take_in;
    use crate::test_contract::{Host, Map, NoReason, TestContract, TestRuntime, item, relist, runtime};
    use crate::test_key::TestKey;

    struct Remove;

    impl std::fmt::Display for Remove {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("remove")
        }
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
            Plan::act(Remove, Why::up_to_date())
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
