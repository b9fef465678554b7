//! Machine: creates an instance from the spec, waits for its Node, and deletes both.
//!
//! ```text
//! living:    finalizer -> prerequisites -> token -> ensure -> record -> Pending -> Node joins -> Running <-> Unknown
//! besides:   in place: selected -> drained -> updated -> in its new set;  preserved: expiry -> drained -> ended
//! deleting:  Terminating -> drain -> volumes -> delete the instance -> confirm its absence -> Node -> finalizer
//! ```
//!
//! Every stage is derived from facts, so any pass may be the first after a crash. The markers in
//! `lastOperation` are written for Go MCM, which continues from them. They may lag reality and
//! never lead it. Only `delete` reads a marker, for a stage that has ended for good: the drain, or
//! the deletion of the instance.
//!
//! Marking a Machine with an unhealthy Node as Failed is deliberately absent. All Machines of a
//! deployment share that limit, so [`super::replacement`] decides it.

mod action;
mod boot;
mod create;
mod delete;
mod failed_token;
mod hindrance;
mod identity;
mod in_place;
mod initialize;
mod intent;
mod join;
mod key_scope;
mod living_drain;
mod managed_again;
mod no_target;
mod node_condition;
mod node_patch;
mod node_sync;
mod place;
mod preserve;
mod proof;
mod snapshot;
mod stale_node;
mod status;
mod target_cluster;
mod virtual_capacity;

pub use self::action::{
    Action, BOOT_FAILED, CREATE_FAILED, DELETE_FAILED, DRAIN_BLOCKED, DRAIN_FORCED, INSTANCE_LEFT_BEHIND,
    INSTANCE_NOT_OURS, JOINED, NODE_UNHEALTHY, PRESERVATION_ENDED, PRESERVED, TARGET_SILENT, UPDATE_FAILED,
    VOLUMES_LEFT,
};
pub use self::snapshot::{Defaults, OtherNode, SecretNeed, Snapshot, creation_failed};

pub(crate) use self::boot::description as boot_problem;
pub use self::identity::{MachineIdentity, owner};
pub use self::join::health;
pub(crate) use self::join::{Judged, health_deadline, join_deadline, judge};
pub use self::key_scope::KeyScopeFacts;
pub use self::node_condition::{PreservedCondition, UpdateCondition};
pub use self::node_sync::NodeSync;
pub use self::place::PlaceFacts;
pub use self::status::{OperationWrite, PhaseWrite, StateWrite, StatusWrite, code_of};
pub use self::target_cluster::TargetCluster;
pub use crate::event::Severity;
use crate::mcm::why::{Plan, Reason, Step, Why, why_updated_in_place};

/// Decides the next actions for one Machine.
pub fn plan(s: &Snapshot) -> Plan<Action> {
    let plan = match s.machine.deleting_since {
        None => plan_living(s),
        Some(since) => delete::plan(s, since),
    };
    intent::keep(s, plan)
}

fn plan_living(s: &Snapshot) -> Plan<Action> {
    if !s.machine.has_finalizer {
        let why = Why::new(
            Reason::Writing("adding the finalizer, which records that an instance may exist"),
            Step::Nothing,
        );
        return Plan::act(Action::AddFinalizer { priority: s.missing_priority() }, why);
    }
    if let Some(why) = s.unusable_id() {
        return Plan::idle(why);
    }
    let plan = match &s.machine.provider_id {
        None if s.machine.is_updating_in_place() => Plan::idle(why_updated_in_place(&s.machine)),
        None => create::plan(s),
        Some(_) if s.target == TargetCluster::None => proof::gather(s, no_target::plan(s)),
        Some(_) => proof::gather(s, join::plan(s)),
    };
    failed_token::attend(s, preserve::attend(s, in_place::attend(s, plan)))
}

#[cfg(test)]
mod tests;
