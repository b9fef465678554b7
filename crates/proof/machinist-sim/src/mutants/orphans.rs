//! Planners that decide about orphans without a part of the evidence. Two parts are checked twice:
//! the list leaves out other installations, and the call leaves out instances with a Node. These
//! mutants also take the second check back.

use std::sync::Arc;
use std::time::Duration;

use machinist_core::minus;
use machinist_core::orphan::{NAMESPACE_TAG, OwnerNode};
use machinist_plan::mcm::orphan::{Action, Snapshot, plan};
use machinist_plan::mcm::orphaned_node::MachineRead;
use machinist_plan::mcm::{Plan, orphaned_node, orphaned_token};

/// One list is enough.
pub(super) fn at_first_sight(s: &Snapshot) -> Plan<Action> {
    let mut s = s.clone();
    for one in Arc::make_mut(&mut s.account).instances.values_mut() {
        one.first_seen = minus(one.last_seen, Duration::from_secs(600));
    }
    plan(&s)
}

/// No instance is too young.
pub(super) fn at_any_age(s: &Snapshot) -> Plan<Action> {
    let mut s = s.clone();
    s.settings.minimum_age = Duration::ZERO;
    plan(&s)
}

/// No instance has a Node.
pub(super) fn despite_nodes(s: &Snapshot) -> Plan<Action> {
    let mut s = s.clone();
    let candidates = Arc::make_mut(&mut s.account).instances.values_mut();
    candidates.filter_map(|one| one.owners.as_mut()).for_each(|owners| owners.node = OwnerNode::None);
    plan(&s)
}

/// Every instance was made for the namespace of this installation.
pub(super) fn of_any_namespace(s: &Snapshot) -> Plan<Action> {
    let mut s = s.clone();
    let ours = s.installation.as_ref().and_then(|installation| installation.namespace_uid.clone());
    for one in Arc::make_mut(&mut s.account).instances.values_mut() {
        one.instance.tags.extend(ours.clone().map(|uid| (NAMESPACE_TAG.to_owned(), uid)));
    }
    plan(&s)
}

/// Every mark on a Node is of the namespace of this installation.
pub(super) fn node_of_any_namespace(s: &orphaned_node::Snapshot) -> Plan<orphaned_node::Action> {
    let namespace_uid = s.node.namespace_uid().map(str::to_owned);
    orphaned_node::plan(&orphaned_node::Snapshot { namespace_uid, ..s.clone() })
}

/// Every mark on a token is of the namespace of this installation.
pub(super) fn token_of_any_namespace(s: &orphaned_token::Snapshot) -> Plan<orphaned_token::Action> {
    let namespace_uid = s.token.namespace_uid.clone();
    orphaned_token::plan(&orphaned_token::Snapshot { namespace_uid, ..s.clone() })
}

/// Each Node is old enough, and a list has shown no Machine of it.
pub(super) fn hasty_annotation(s: &orphaned_node::Snapshot) -> Plan<orphaned_node::Action> {
    let look = MachineRead { started: s.now, claimed_by: None };
    orphaned_node::plan(&orphaned_node::Snapshot {
        has_machine: false,
        creation_timeout: Duration::ZERO,
        look: Some(look),
        ..s.clone()
    })
}
