//! One pass over one key, the same for every kind: observe, decide, perform, come back when told.
//!
//! # Guarantees
//! Nothing is decided about a key that has an own write the stores have not shown. A pass ends at its first call that fails.
//! The same actions planned twice from the same facts are not performed a second time before a pause, which doubles for as long as
//! nothing changes.
//! A panic ends its pass, says so in the object's `why`, and is followed by a pause; other keys go on.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use machinist_core::{ContractReason, Plan, Reason, Step, Why};
use machinist_kube::Leadership;
use tokio::time::Instant;

use crate::contract::{Contract, Kind, Observed, QueueKey, Stop};
use crate::fingerprint::fingerprint;
use crate::panics::{self, Panicked};
use crate::passes::{Count, Repetition};
use crate::runtime::{NOT_NOW_AGAIN, Runtime};

/// An API server that does not answer is asked again at the latest after this long.
const UNANSWERED_AGAIN: Duration = Duration::from_secs(5);
/// How many independent calls of one plan are in flight at once.
const CALLS_AT_ONCE: usize = 16;

/// Looks at one key.
pub async fn pass<C: Contract, K: Kind<C>>(runtime: &Arc<Runtime<C>>, key: &C::Key, id: &K::Id) {
    match runtime.unknown_writes(key) {
        Unknown::None => {}
        Unknown::Waiting => return,
        Unknown::Some(writes) => return runtime.settle_unknown(key, writes),
    }
    runtime.heed_clock();
    let observed = panics::catch(|| {
        let world = runtime.world.lock();
        // Asked again under this lock: since the key was found free, another worker may have opened a charge on it.
        let may_decide = runtime.is_synced(&world.seen) && world.barrier.blocked(key).is_none();
        if may_decide { K::observe(runtime, &world, id) } else { Observed::NotYet }
    });
    let snapshot = match observed {
        Err(panicked) => {
            return runtime.note_panic(key, program_failed("collecting its facts failed", panicked));
        }
        Ok(Observed::Ready(snapshot)) => snapshot,
        Ok(Observed::NotYet) => return,
        Ok(Observed::Gone) => {
            runtime.world.lock().passes.forget_key(key);
            runtime.decided.notify_one();
            return runtime.queue.remove(key);
        }
    };
    let decided = panics::catch(|| {
        let plan = hold_back::<C, K>(runtime, K::plan(runtime, &snapshot));
        let rendered: Vec<String> = plan.actions.iter().map(ToString::to_string).collect();
        (plan, rendered)
    });
    let (Plan { actions, why, wait }, rendered) = match decided {
        Ok(decided) => decided,
        Err(panicked) => return runtime.note_panic(key, planner_failed(panicked)),
    };
    let repetition = runtime.world.lock().passes.repetition(key, fingerprint(&snapshot), &rendered);
    if let Repetition::Pausing(until) = repetition {
        return runtime.queue.wake_at(key.clone(), until);
    }
    if repetition == Repetition::WithoutEffect {
        let action = rendered.join("; ");
        tracing::warn!(%key, %action, "Doing the same again would change nothing");
        runtime.world.lock().passes.count(Count::NoEffect, key.kind());
        runtime.note(
            key,
            Why::new(Reason::NoEffect { action }, Step::Expect("the controller tries again after a pause")),
            Vec::new(),
        );
        let pause = runtime.queue.retry(key.clone());
        runtime.world.lock().passes.pause(key, Instant::now() + pause);
        return;
    }
    if rendered.is_empty() {
        tracing::debug!(%key, %why, "Nothing to do");
    } else {
        tracing::info!(%key, actions = ?rendered, %why, "Acting");
    }
    runtime.note(key, why, rendered);
    let performed = match panics::catch_async(perform::<C, K>(runtime, &snapshot, actions)).await {
        Ok(performed) => performed,
        Err(panicked) => {
            runtime.forget_pass(key);
            return runtime.note_panic(key, program_failed("acting on it failed", panicked));
        }
    };
    match performed {
        Ok(()) => {
            // What had no effect before is no success until something changes: pauses go on growing.
            if repetition == Repetition::New {
                runtime.queue.forget(key);
            }
            runtime.come_back(key, wait);
        }
        Err(stop) => {
            let delay = match &stop {
                Stop::Stale => runtime.queue.retry(key.clone()),
                Stop::Refused { message, is_told } => {
                    let untold = K::reference(&snapshot).filter(|_| !is_told);
                    runtime.tell_refused(key, untold, message);
                    // The end of the refused write wakes the key at once, and it would be refused again.
                    let pause = runtime.queue.retry(key.clone());
                    runtime.world.lock().passes.pause(key, Instant::now() + pause);
                    pause
                }
                Stop::Unanswered(_) => {
                    // The end of the write wakes the key at once, and the server is as it was.
                    let pause = runtime.queue.retry(key.clone()).min(UNANSWERED_AGAIN);
                    let until = Instant::now() + pause;
                    runtime.world.lock().passes.pause(key, until);
                    runtime.queue.wake_at(key.clone(), until);
                    pause
                }
                // Nobody refused anything: it only was not the moment.
                Stop::NotNow(_) => {
                    runtime.forget_pass(key);
                    runtime.queue.wake_at(key.clone(), Instant::now() + NOT_NOW_AGAIN);
                    NOT_NOW_AGAIN
                }
            };
            runtime.world.lock().passes.count(stop.count(), key.kind());
            tracing::info!(%key, reason = ?stop, ?delay, "Stopped; looking again");
        }
    }
}

/// The plan up to what must wait for the last writes of a former leader. They may take away something for the same limit.
fn hold_back<C: Contract, K: Kind<C>>(
    runtime: &Runtime<C>,
    mut plan: Plan<K::Action, C::Reason>,
) -> Plan<K::Action, C::Reason> {
    let Some(held_back) = plan.actions.iter().position(K::takes_away) else { return plan };
    let Some(alone_from) = runtime.alone_from() else { return plan };
    plan.actions.truncate(held_back);
    let at = runtime.wall(alone_from);
    let then = Step::Expect("the controller performs the planned actions");
    plan.why =
        Why::new(Reason::PredecessorCalls, then.clone()).since(runtime.leading_since()).deadline(at, then);
    plan.no_later_than(at)
}

/// A planner panicked. It sees no secret, so what it said may be told.
pub(crate) fn planner_failed<R: ContractReason>(panicked: Panicked) -> Why<R> {
    let message = panicked.message.clone();
    failed("the rule engine failed on this object", panicked, message)
}

/// Something else panicked, which may have had a secret in its hands.
pub(crate) fn program_failed<R: ContractReason>(what: &'static str, panicked: Panicked) -> Why<R> {
    failed(what, panicked, String::new())
}

fn failed<R: ContractReason>(what: &'static str, panicked: Panicked, message: String) -> Why<R> {
    let reason = Reason::ProgramFailed { what, at: panicked.at, message };
    Why::new(reason, Step::Mend("report this bug; the controller tries again after a pause".to_owned()))
}

/// Performs the actions in order; neighbours that are independent of each other beside each other.
async fn perform<C: Contract, K: Kind<C>>(
    runtime: &Arc<Runtime<C>>,
    snapshot: &K::Snapshot,
    actions: Vec<K::Action>,
) -> Result<(), Stop> {
    let mut actions = actions.into_iter().peekable();
    while let Some(action) = actions.next() {
        if runtime.in_flight.is_draining() {
            return Err(Stop::NotNow("the process is stopping"));
        }
        // A process that was stopped for a while may find its Lease run out in the middle of a pass.
        if !runtime.leadership.as_ref().is_none_or(Leadership::is_held) {
            return Err(Stop::NotNow("the lease was lost"));
        }
        if !K::is_independent(&action) {
            K::act(runtime, snapshot, action).await?;
            continue;
        }
        let mut together = vec![action];
        while let Some(action) = actions.next_if(K::is_independent) {
            together.push(action);
        }
        let calls = together.into_iter().map(|action| K::act(runtime, snapshot, action));
        let results: Vec<_> = futures::stream::iter(calls).buffered(CALLS_AT_ONCE).collect().await;
        results.into_iter().collect::<Result<(), Stop>>()?;
    }
    Ok(())
}

/// Own writes that keep a key from being decided about.
pub(crate) enum Unknown {
    /// There are none.
    None,
    /// They were answered; the store will show them.
    Waiting,
    /// Nobody knows what became of these.
    Some(Vec<machinist_kube::barrier::Charge>),
}
