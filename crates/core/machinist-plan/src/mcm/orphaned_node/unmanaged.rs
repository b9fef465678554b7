//! A Node that no Machine has, and that nothing deletes: a user created it, or its Machine was
//! removed by hand. The annotation `not-managed-by-mcm` tells users and other programs that no
//! controller cares for it, and our finalizer must not hold its deletion later. As in Go MCM, the
//! Node must be older than the creation timeout, and is never deleted.
//!
//! Two conditions are stricter than in Go MCM: a list of the API server must show no Machine that
//! may have the Node, and a Node whose mark names another installation is left alone. One list
//! answers for all such Nodes, and one patch per Node writes annotation and finalizer. A Node
//! without a mark keeps the finalizer, which may belong to another installation, until it is
//! deleted.
//!
//! The annotation is removed when the Node has a Machine ([`crate::mcm::machine`]).

use std::time::Duration;

use jiff::Timestamp;
use machinist_core::{is_past, just_past, plus};

use super::{Action, LOOK_AGAIN, LOOK_LASTS, MachineRead, Snapshot};
use crate::mcm::facts::NodeFacts;
use crate::mcm::why::{Plan, Reason, Step, Why};

/// Whether a Node may have to be annotated: it stays, and lacks the annotation or has our
/// finalizer.
pub fn may_be_unmanaged(node: &NodeFacts) -> bool {
    node.deleting_since.is_none() && (!node.is_not_managed() || (node.has_finalizer && node.mark().is_some()))
}

/// Whether a Node is younger than the creation timeout. Then its Machine is not looked for.
pub fn is_young(node: &NodeFacts, now: Timestamp, creation_timeout: Duration) -> bool {
    !is_past(now, plus(node.created, creation_timeout))
}

pub(super) fn plan(s: &Snapshot) -> Plan<Action> {
    if s.has_machine || s.is_of_another_installation() {
        return Plan::idle(Why::up_to_date());
    }
    let then = || Step::Expect("the Node is annotated as not managed if no Machine has it");
    let from = plus(s.node.created, s.creation_timeout);
    if !is_past(s.now, from) {
        let reason = Reason::Awaiting("the Node is new, so its Machine may still record it");
        return Plan::until(just_past(from), Why::new(reason, then()).since(s.node.created));
    }
    let looking = || Why::new(Reason::Looking("the Machines, of which none seems to have the Node,"), then());
    match &s.look {
        Some(MachineRead { started, claimed_by: None }) if s.now <= plus(*started, LOOK_LASTS) => {
            let why = Why::new(Reason::Writing("marking a Node that no Machine has"), Step::Nothing);
            Plan::act(Action::Disown, why)
        }
        Some(look) if look.claimed_by.is_some() && s.now < plus(look.started, LOOK_AGAIN) => {
            let reason = Reason::Awaiting("a Machine that the watch has not shown yet has the Node");
            Plan::until(plus(look.started, LOOK_AGAIN), Why::new(reason, then()))
        }
        Some(_) | None => match s.listing_until.filter(|until| s.now < *until) {
            Some(until) => Plan::until(until, looking()),
            None => Plan::act(Action::ListMachines, looking()),
        },
    }
}
