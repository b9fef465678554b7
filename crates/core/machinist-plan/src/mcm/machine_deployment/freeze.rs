//! Freezes a deployment with a frozen set, and lifts the freeze.
//!
//! A deployment is frozen while one of its sets is frozen. The freeze of a deployment stops
//! nothing: it shows users that a set is frozen. The set's own rule freezes a set and lifts the
//! freeze of a set. The annotation `unfreeze` is first copied to the frozen sets and then removed
//! from the deployment. If the process dies in between, the next pass copies it again.
//!
//! The status write adds the condition. The next pass sees it and adds the label. The reason is the
//! set's reason if the set was frozen because of its Machines. Otherwise it is the reason by which
//! Go's machine-controller-manager names a freeze that had only one of its marks.

use std::collections::BTreeMap;

use machinist_api::constants::{annotations, conditions, reasons};
use machinist_api::{ConditionStatus, MachineDeploymentCondition};

use super::action::{Action, SetPatch};
use super::snapshot::{Owned, Snapshot};
use crate::mcm::status::condition;
use crate::mcm::why::{Plan, Reason, Step, Why};

/// Lifts the freeze if the conditions for it are met.
pub(super) fn thaw(s: &Snapshot) -> Option<Plan<Action>> {
    let freeze = s.deployment.freeze();
    let frozen = || s.sets.iter().filter(|owned| is_frozen(owned));
    let why = Why::new(Reason::Writing("lifting the freeze"), Step::Nothing);
    if let Some(value) = s.deployment.annotation(annotations::UNFREEZE) {
        let unasked = frozen().filter(|owned| !owned.set.freeze().is_lift_asked);
        let pass_on = |owned: &Owned| {
            let annotations = BTreeMap::from([(annotations::UNFREEZE.to_owned(), Some(value.to_owned()))]);
            Action::PatchSet(SetPatch {
                set: owned.set.clone(),
                replicas: None,
                annotations,
                labels: BTreeMap::new(),
                template: None,
            })
        };
        let actions: Vec<_> = unasked.map(pass_on).collect();
        if !actions.is_empty() {
            return Some(Plan::act_all(actions, why));
        }
    } else if !freeze.is_frozen() || frozen().next().is_some() {
        return None;
    }
    let condition =
        freeze.condition.as_ref().map(|condition| Action::RemoveFrozen { index: condition.index });
    let has_marks = freeze.has_label || freeze.is_lift_asked;
    let actions = condition.into_iter().chain(has_marks.then_some(Action::RemoveFreeze));
    Some(Plan::act_all(actions.collect(), why))
}

/// Returns the condition of a freeze that begins now. The status of the deployment contains it.
pub(super) fn begun(s: &Snapshot) -> Option<MachineDeploymentCondition> {
    let freeze = s.deployment.freeze();
    let frozen = freezing(s).filter(|_| freeze.condition.is_none())?;
    let of_set = frozen.set.status.iter().flat_map(|status| &status.conditions);
    let is_cause = |reason: Option<&str>| reason == Some(reasons::OVERSHOOTING_REPLICA_COUNT);
    let cause = of_set
        .filter(|condition| condition.type_ == conditions::FROZEN && !freeze.has_label)
        .find(|condition| is_cause(condition.reason.as_deref()));
    let (reason, message) = match cause.and_then(|cause| cause.message.as_deref()) {
        Some(message) => (reasons::OVERSHOOTING_REPLICA_COUNT, message.to_owned()),
        None => (reasons::MACHINE_DEPLOYMENT_STATE_SYNC, format!("MachineSet {} is frozen", frozen.set.name)),
    };
    let current = s.deployment.status.clone().unwrap_or_default();
    Some(condition(&current, conditions::FROZEN, ConditionStatus::True, reason, &message, s.now))
}

/// Adds the label that completes a freeze whose condition is in the status to the plan of the
/// deployment.
pub(super) fn attend(s: &Snapshot, mut plan: Plan<Action>) -> Plan<Action> {
    let freeze = s.deployment.freeze();
    if freezing(s).is_some() && freeze.condition.is_some() && !freeze.has_label {
        plan.actions.push(Action::AddFreeze);
    }
    plan
}

/// Returns a set that freezes the deployment: its freeze is not about to be lifted by a user.
fn freezing(s: &Snapshot) -> Option<&Owned> {
    let is_lasting = |owned: &&Owned| is_frozen(owned) && !owned.set.freeze().is_lift_asked;
    let is_exempt = s.deployment.freeze().is_lift_asked || s.deployment.deleting_since.is_some();
    s.sets.iter().find(is_lasting).filter(|_| !is_exempt)
}

/// Whether a set is frozen. A set that is being deleted does not count, because it creates no
/// Machines.
fn is_frozen(owned: &Owned) -> bool {
    owned.set.deleting_since.is_none() && owned.set.freeze().is_frozen()
}
