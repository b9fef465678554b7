//! A planner that collects orphans without a part of the evidence. The other parts are checked
//! twice: the list and the call leave out other installations and instances with a Node, too.

use std::sync::Arc;
use std::time::Duration;

use machinist_core::minus;
use machinist_plan::mcm::Plan;
use machinist_plan::mcm::orphan::{Action, Snapshot, plan};

/// One list is enough.
pub(super) fn at_first_sight(s: &Snapshot) -> Plan<Action> {
    let mut s = s.clone();
    for one in Arc::make_mut(&mut s.account).instances.values_mut() {
        one.first_seen = minus(one.last_seen, Duration::from_secs(600));
    }
    plan(&s)
}
