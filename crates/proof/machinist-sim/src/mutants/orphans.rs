//! Planners that collect orphans without a part of the evidence.

use std::sync::Arc;
use std::time::Duration;

use machinist_core::minus;
use machinist_core::orphan::{NAMESPACE_TAG, OwnerNode};
use machinist_plan::mcm::Plan;
use machinist_plan::mcm::orphan::{Action, Candidate, Snapshot, plan};

/// One list is enough.
pub(super) fn at_first_sight(s: &Snapshot) -> Plan<Action> {
    changed(s, |one| one.first_seen = minus(one.last_seen, Duration::from_secs(600)))
}

/// The list of Nodes does not count.
pub(super) fn with_node(s: &Snapshot) -> Plan<Action> {
    changed(s, |one| {
        if let Some(owners) = &mut one.owners {
            owners.node = OwnerNode::None;
        }
    })
}

/// Each instance with the name of the cluster counts as ours.
pub(super) fn of_another(s: &Snapshot) -> Plan<Action> {
    let ours = s.installation.as_ref().and_then(|installation| installation.namespace_uid.clone());
    changed(s, |one| {
        let tags = &mut one.instance.tags;
        tags.insert(NAMESPACE_TAG.to_owned(), ours.clone().unwrap_or_default());
    })
}

/// Each instance is old enough.
pub(super) fn young(s: &Snapshot) -> Plan<Action> {
    let mut s = s.clone();
    s.settings.minimum_age = Duration::ZERO;
    plan(&s)
}

fn changed(s: &Snapshot, change: impl Fn(&mut Candidate)) -> Plan<Action> {
    let mut s = s.clone();
    Arc::make_mut(&mut s.account).instances.values_mut().for_each(change);
    plan(&s)
}
