//! Counts the passes of the planners, and stops a loop that never waits.
//!
//! Planners are plain functions, so the counters are thread-local: one thread runs one simulation.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use machinist_controllers::mcm::Planners;
use machinist_plan::mcm::{Plan, Why};

use crate::faults::Fuse;

struct Counting {
    planners: Planners,
    fuse: Arc<Fuse>,
    passes: BTreeMap<&'static str, u64>,
}

thread_local! {
    static COUNTING: RefCell<Option<Counting>> = const { RefCell::new(None) };
}

/// Planners that count each pass and then call `planners`, for the run of this thread.
pub fn counted(planners: Planners, fuse: Arc<Fuse>) -> Planners {
    COUNTING
        .with_borrow_mut(|counting| *counting = Some(Counting { planners, fuse, passes: BTreeMap::new() }));
    Planners {
        machine: |s| pass("machine", |p| p.machine, s),
        class: |s| pass("machineclass", |p| p.class, s),
        secret: |s| pass("secret", |p| p.secret, s),
        replacement: |s| pass("replacement", |p| p.replacement, s),
        lost_owner: |s| pass("lost owner", |p| p.lost_owner, s),
        orphaned_node: |s| pass("orphaned node", |p| p.orphaned_node, s),
        orphan: |s| pass("orphan", |p| p.orphan, s),
        orphaned_token: |s| pass("orphaned token", |p| p.orphaned_token, s),
        machine_set: |s| pass("machineset", |p| p.machine_set, s),
        machine_deployment: |s| pass("machinedeployment", |p| p.machine_deployment, s),
    }
}

/// Number of passes so far, by kind.
pub fn counts() -> BTreeMap<&'static str, u64> {
    COUNTING
        .with_borrow(|counting| counting.as_ref().map(|counting| counting.passes.clone()).unwrap_or_default())
}

type Planner<S, A> = fn(&S) -> Plan<A>;

fn pass<S, A>(kind: &'static str, of: fn(&Planners) -> Planner<S, A>, snapshot: &S) -> Plan<A> {
    let planner = COUNTING.with_borrow_mut(|counting| {
        let counting = counting.as_mut()?;
        *counting.passes.entry(kind).or_default() += 1;
        counting.fuse.holds(format_args!("a pass for {kind}")).then(|| of(&counting.planners))
    });
    match planner {
        Some(planner) => planner(snapshot),
        // The run has failed, so planners return idle plans from now on.
        None => Plan::idle(Why::up_to_date()),
    }
}
