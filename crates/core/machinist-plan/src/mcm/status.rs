//! Statuses of sets and deployments: computed once from facts, and compared without times.
//!
//! Counts come from the Machines, never from the statuses of their sets, which lag behind.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use machinist_api::constants::{conditions, labels, reasons};
use machinist_api::{
    ConditionStatus, LastOperation, MachineDeploymentCondition, MachineDeploymentStatus, MachineSetCondition,
    MachineSetStatus, MachineSummary, OperationState, Phase,
};

use super::live::{is_available, is_live};
use super::machine_deployment::snapshot::{self as machine_deployment, Owned};
use super::machine_set::snapshot as machine_set;
use super::refusal::Refusal;
use super::rollout::rests;
use crate::mcm::facts::{MachineFacts, MachineSetFacts};
use crate::mcm::why::{Plan, Why};
use machinist_core::plus;

/// Minimum interval between two status writes of one object, because a status changes with every
/// Machine.
const WRITE_EVERY: Duration = Duration::from_secs(1);

/// Adds the actions that report a status to a plan, now or when they are due. `writes` is absent if
/// the status does not differ from the stored one. An Event is in `writes` together with the
/// condition of the same content, so it is emitted once.
pub(crate) fn with_writes<A>(
    now: Timestamp,
    written: Option<Timestamp>,
    writes: Option<Vec<A>>,
    mut actions: Vec<A>,
    why: Why,
) -> Plan<A> {
    let Some(writes) = writes else { return Plan::act_all(actions, why) };
    let due = written.map_or(now, |written| plus(written, WRITE_EVERY));
    if now < due {
        return Plan::act_all(actions, why).no_later_than(due);
    }
    actions.extend(writes);
    Plan::act_all(actions, why)
}

/// Computes the status of a set.
pub fn of_set(s: &machine_set::Snapshot) -> MachineSetStatus {
    let machines = &s.machines;
    let current = s.set.status.clone().unwrap_or_default();
    let mut kept: Vec<_> = current
        .conditions
        .iter()
        .filter(|condition| condition.type_ != conditions::REPLICA_FAILURE)
        .cloned()
        .collect();
    kept.extend(replica_failure(s, &current));
    MachineSetStatus {
        replicas: count(machines, |_| true)
            .saturating_add(i32::try_from(s.unreadable.len()).unwrap_or(i32::MAX)),
        fully_labeled_replicas: count(machines, |machine| is_fully_labelled(machine, &s.set)),
        ready_replicas: count(machines, |machine| is_available(machine) && machine.status.phase.is_ready()),
        available_replicas: count(machines, is_available),
        observed_generation: s.set.generation.unwrap_or_default(),
        conditions: kept,
        last_operation: Some(LastOperation {
            last_update_time: Some(seconds(s.now)),
            ..LastOperation::default()
        }),
        failed_machines: failed(machines, &s.set.name, s.now),
        preserved_failed_replicas: count(machines, |machine| is_preserved(machine, s.now)),
        auto_preserve_failed_machine_count: count(machines, |machine| {
            is_live(machine) && machine.is_auto_preserved()
        }),
    }
}

/// Whether two statuses of a set differ in anything but times.
pub fn set_differs(a: &MachineSetStatus, b: &MachineSetStatus) -> bool {
    let timeless = |status: &MachineSetStatus| {
        let mut status = status.clone();
        status.last_operation = None;
        for condition in &mut status.conditions {
            condition.last_transition_time = None;
        }
        status.failed_machines.iter_mut().for_each(forget_prose);
        status
    };
    timeless(a) != timeless(b)
}

/// The stage of a deployment, which determines its conditions.
#[derive(Debug)]
pub enum Stage<'s> {
    /// The spec is invalid, with the error.
    Refused(Refusal),
    /// The deployment is being deleted.
    Leaving,
    /// The set of the template is about to be created.
    Creating {
        /// The name of the set.
        name: String,
        /// How many names before it were taken.
        collisions: u32,
    },
    /// The sets are sized. The set of the template exists, unless the rollout rests or old Machines
    /// have to be deleted first.
    Rolling(Option<&'s Owned>),
}

impl<'s> Stage<'s> {
    fn collisions(&self) -> Option<i32> {
        match self {
            Self::Creating { collisions, .. } => Some(i32::try_from(*collisions).unwrap_or(i32::MAX)),
            Self::Refused(_) | Self::Leaving | Self::Rolling(_) => None,
        }
    }

    fn new_set(&self) -> Option<&'s Owned> {
        match self {
            Self::Rolling(new) => *new,
            Self::Refused(_) | Self::Leaving | Self::Creating { .. } => None,
        }
    }
}

/// Computes the status of a deployment.
pub fn of_deployment(s: &machine_deployment::Snapshot, stage: &Stage<'_>) -> MachineDeploymentStatus {
    let all = || s.sets.iter().flat_map(|owned| owned.machines.iter());
    let total = to_i32(all().count());
    let available = to_i32(all().filter(|machine| is_available(machine)).count());
    let ready = all().filter(|machine| is_available(machine) && machine.status.phase.is_ready());
    let wanted = s.sets.iter().map(|owned| owned.set.spec.replicas().max(0)).fold(0, i32::saturating_add);
    let current = s.deployment.status.clone().unwrap_or_default();
    let mut status = MachineDeploymentStatus {
        observed_generation: s.deployment.generation.unwrap_or_default(),
        replicas: total,
        updated_replicas: stage.new_set().map_or(0, |owned| to_i32(owned.machines.len())),
        ready_replicas: to_i32(ready.count()),
        available_replicas: available,
        preserved_failed_replicas: to_i32(all().filter(|machine| is_preserved(machine, s.now)).count()),
        unavailable_replicas: wanted.saturating_sub(available).max(0),
        conditions: Vec::new(),
        collision_count: match stage {
            Stage::Creating { collisions: 1.., .. } => stage.collisions(),
            _ => current.collision_count,
        },
        failed_machines: s
            .sets
            .iter()
            .flat_map(|owned| failed(&owned.machines, &owned.set.name, s.now))
            .collect(),
    };
    status.conditions = deployment_conditions(s, &current, &status, stage);
    status
}

/// Whether two statuses of a deployment differ in anything but times.
pub fn deployment_differs(a: &MachineDeploymentStatus, b: &MachineDeploymentStatus) -> bool {
    let timeless = |status: &MachineDeploymentStatus| {
        let mut status = status.clone();
        status.conditions.sort_by(|a, b| a.type_.cmp(&b.type_));
        for condition in &mut status.conditions {
            condition.last_transition_time = None;
            condition.last_update_time = None;
        }
        status.failed_machines.iter_mut().for_each(forget_prose);
        status
    };
    timeless(a) != timeless(b)
}

/// Whether the rollout is complete: every Machine has the new template, and all are available.
pub fn is_complete(s: &machine_deployment::Snapshot, status: &MachineDeploymentStatus) -> bool {
    let wanted = i32::try_from(s.deployment.replicas()).unwrap_or(i32::MAX);
    status.updated_replicas == wanted && status.replicas == wanted && status.available_replicas == wanted
}

/// Returns when the progress deadline of the rollout expires.
pub fn progress_deadline(s: &machine_deployment::Snapshot) -> Option<Timestamp> {
    let seconds = u64::try_from(s.deployment.spec.progress_deadline_seconds?).ok()?;
    let status = s.deployment.status.as_ref()?;
    let progressing = status.conditions.iter().find(|c| c.type_ == conditions::PROGRESSING)?;
    let since = progressing.last_update_time.as_ref()?.0;
    Some(plus(since, std::time::Duration::from_secs(seconds)))
}

fn deployment_conditions(
    s: &machine_deployment::Snapshot,
    current: &MachineDeploymentStatus,
    status: &MachineDeploymentStatus,
    stage: &Stage<'_>,
) -> Vec<MachineDeploymentCondition> {
    let mut all: Vec<_> = current
        .conditions
        .iter()
        .filter(|condition| {
            ![conditions::AVAILABLE, conditions::PROGRESSING, conditions::REPLICA_FAILURE]
                .contains(&condition.type_.as_str())
        })
        .cloned()
        .collect();
    all.extend(progressing(s, current, status, stage));
    let (state, reason, message) = match (has_enough(s, status, stage), stage) {
        (true, _) => {
            let message = "Deployment has minimum availability.".to_owned();
            (ConditionStatus::True, reasons::MINIMUM_REPLICAS_AVAILABLE, message)
        }
        (false, Stage::Refused(refusal)) => {
            let message = format!("Deployment is not reconciled: {}", refusal.message);
            (ConditionStatus::False, reasons::MINIMUM_REPLICAS_UNAVAILABLE, message)
        }
        (false, Stage::Leaving | Stage::Creating { .. } | Stage::Rolling(_)) => {
            let message = "Deployment does not have minimum availability.".to_owned();
            (ConditionStatus::False, reasons::MINIMUM_REPLICAS_UNAVAILABLE, message)
        }
    };
    all.push(condition(current, conditions::AVAILABLE, state, reason, &message, s.now));
    all.extend(deployment_failure(s, current, stage));
    all
}

/// Whether enough Machines are available.
fn has_enough(s: &machine_deployment::Snapshot, status: &MachineDeploymentStatus, stage: &Stage<'_>) -> bool {
    let fewest = match stage {
        // The invalid field may be a bound, so the bounds do not count. No Machine will be created,
        // so 0 is not enough.
        Stage::Refused(_) => s.deployment.replicas().max(1),
        Stage::Leaving | Stage::Creating { .. } | Stage::Rolling(_) => {
            s.deployment.replicas().saturating_sub(s.deployment.max_unavailable())
        }
    };
    // A user who preserves a failed Machine accepts that it is not available.
    let fewest = i64::from(fewest) - i64::from(status.preserved_failed_replicas);
    fewest <= i64::from(status.available_replicas)
}

/// Returns the error in the spec, if the status does not report it yet.
pub(crate) fn news<'s>(s: &machine_deployment::Snapshot, stage: &'s Stage<'_>) -> Option<&'s Refusal> {
    let Stage::Refused(refusal) = stage else { return None };
    let shown = s.deployment.status.iter().flat_map(|status| &status.conditions);
    let mut shown = shown.filter(|condition| condition.type_ == conditions::REPLICA_FAILURE);
    let is_reported = shown.any(|c| refusal.is_reported(c.reason.as_deref(), c.message.as_deref()));
    (!is_reported).then_some(refusal)
}

/// Returns the error in a set's spec, if the status does not report it yet.
pub(crate) fn news_of_set(s: &machine_set::Snapshot) -> Option<Refusal> {
    let refusal = machine_set::invalid(&s.set)?;
    let shown = s.set.status.iter().flat_map(|status| &status.conditions);
    let mut shown = shown.filter(|condition| condition.type_ == conditions::REPLICA_FAILURE);
    let is_reported = shown.any(|c| refusal.is_reported(c.reason.as_deref(), c.message.as_deref()));
    (!is_reported).then_some(refusal)
}

/// Returns the failure of the deployment, or else of its new set, or else of any set.
fn deployment_failure(
    s: &machine_deployment::Snapshot,
    current: &MachineDeploymentStatus,
    stage: &Stage<'_>,
) -> Option<MachineDeploymentCondition> {
    let kind = conditions::REPLICA_FAILURE;
    if let Stage::Refused(Refusal { reason, message, .. }) = stage {
        return Some(condition(current, kind, ConditionStatus::True, reason, message, s.now));
    }
    let sets = stage.new_set().into_iter().chain(&s.sets).filter_map(|owned| owned.set.status.as_ref());
    let failure = sets.flat_map(|status| &status.conditions).find(|c| c.type_ == kind)?;
    Some(MachineDeploymentCondition {
        type_: kind.to_owned(),
        status: failure.status.clone(),
        last_update_time: failure.last_transition_time.clone(),
        last_transition_time: failure.last_transition_time.clone(),
        reason: failure.reason.clone(),
        message: failure.message.clone(),
    })
}

fn progressing(
    s: &machine_deployment::Snapshot,
    current: &MachineDeploymentStatus,
    status: &MachineDeploymentStatus,
    stage: &Stage<'_>,
) -> Option<MachineDeploymentCondition> {
    let before = current.conditions.iter().find(|c| c.type_ == conditions::PROGRESSING);
    let say = |state, reason: &str, message: String| {
        Some(condition(current, conditions::PROGRESSING, state, reason, &message, s.now))
    };
    let reason = before.and_then(|condition| condition.reason.as_deref());
    let is_late = reason == Some(reasons::PROGRESS_DEADLINE_EXCEEDED);
    let new = match stage {
        Stage::Refused(Refusal { reason, message, .. }) => {
            return say(ConditionStatus::False, reason, message.clone());
        }
        Stage::Leaving => return before.cloned(),
        Stage::Creating { name, .. } => {
            let message = format!("Created new machine set \"{name}\"");
            return say(ConditionStatus::True, reasons::NEW_MACHINE_SET_CREATED, message);
        }
        // A pause does not hide that the rollout made no progress before it.
        Stage::Rolling(_) if s.deployment.spec.is_paused() && is_late => return before.cloned(),
        Stage::Rolling(_) if s.deployment.spec.is_paused() => {
            let message = "Deployment is paused".to_owned();
            return say(ConditionStatus::Unknown, reasons::DEPLOYMENT_PAUSED, message);
        }
        Stage::Rolling(None) if rests(&s.deployment, &s.sets) => return before.cloned(),
        Stage::Rolling(new) => new,
    };
    let about = match new {
        Some(owned) => format!("MachineSet \"{}\"", owned.set.name),
        // With `Recreate`, the new set is created after the old Machines are gone.
        None => format!("MachineDeployment \"{}\"", s.deployment.name),
    };
    if is_complete(s, status) {
        let message = format!("{about} has successfully progressed.");
        return say(ConditionStatus::True, reasons::NEW_MACHINE_SET_AVAILABLE, message);
    }
    let is_new_spec = current.observed_generation != s.deployment.generation.unwrap_or_default();
    let old = |status: &MachineDeploymentStatus| status.replicas.saturating_sub(status.updated_replicas);
    let has_moved = current.updated_replicas < status.updated_replicas
        || old(status) < old(current)
        || current.ready_replicas < status.ready_replicas
        || current.available_replicas < status.available_replicas;
    // A Machine that fails later does not reset a complete rollout, and neither does another number
    // of replicas.
    let was_complete = reason == Some(reasons::NEW_MACHINE_SET_AVAILABLE);
    let stays_complete = was_complete && old(status) == 0;
    let goes_on = (is_new_spec && !stays_complete) || (has_moved && !was_complete);
    if reason == Some(reasons::DEPLOYMENT_PAUSED) {
        let message = "Deployment is resumed".to_owned();
        return say(ConditionStatus::Unknown, reasons::DEPLOYMENT_RESUMED, message);
    }
    if let (None, Some(owned)) = (before, new) {
        let message = format!("Found new machine set \"{}\"", owned.set.name);
        return say(ConditionStatus::True, reasons::FOUND_NEW_MACHINE_SET, message);
    }
    if goes_on || before.is_none() {
        let message = format!("{about} is progressing.");
        let now = Some(seconds(s.now));
        let said = say(ConditionStatus::True, reasons::MACHINE_SET_UPDATED, message);
        return said.map(|said| MachineDeploymentCondition { last_update_time: now, ..said });
    }
    let is_due = progress_deadline(s).is_some_and(|deadline| machinist_core::is_past(s.now, deadline));
    if is_due && !was_complete && !is_late {
        let message = format!("{about} has timed out progressing.");
        return say(ConditionStatus::False, reasons::PROGRESS_DEADLINE_EXCEEDED, message);
    }
    before.cloned()
}

/// Builds a condition. The transition time stays while the status is unchanged, the update time
/// while the reason is unchanged.
pub(crate) fn condition(
    current: &MachineDeploymentStatus,
    kind: &str,
    status: ConditionStatus,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> MachineDeploymentCondition {
    let before = current.conditions.iter().find(|condition| condition.type_ == kind);
    let same_status = before.filter(|before| before.status == status);
    let same_reason = same_status.filter(|before| before.reason.as_deref() == Some(reason));
    let now = Some(seconds(now));
    MachineDeploymentCondition {
        type_: kind.to_owned(),
        last_update_time: same_reason.map_or_else(|| now.clone(), |before| before.last_update_time.clone()),
        last_transition_time: same_status
            .map_or_else(|| now.clone(), |before| before.last_transition_time.clone()),
        status,
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
    }
}

fn replica_failure(s: &machine_set::Snapshot, current: &MachineSetStatus) -> Option<MachineSetCondition> {
    let (reason, message) = match (machine_set::invalid(&s.set), s.last_failure()) {
        (Some(refusal), _) => (refusal.reason, refusal.message),
        (None, Some(failure)) => {
            let makes = s.machines.len() < usize::try_from(s.set.replicas()).unwrap_or(usize::MAX);
            (if makes { reasons::FAILED_CREATE } else { reasons::FAILED_DELETE }, failure.message.clone())
        }
        (None, None) => return None,
    };
    let before = current.conditions.iter().find(|condition| condition.type_ == conditions::REPLICA_FAILURE);
    Some(MachineSetCondition {
        type_: conditions::REPLICA_FAILURE.to_owned(),
        status: ConditionStatus::True,
        last_transition_time: before
            .map_or_else(|| Some(seconds(s.now)), |before| before.last_transition_time.clone()),
        reason: Some(reason.to_owned()),
        message: Some(message),
    })
}

pub(crate) fn is_fully_labelled(machine: &MachineFacts, set: &MachineSetFacts) -> bool {
    let of_template = &set.spec.template.metadata.labels;
    let mut wanted = of_template.iter().filter(|(key, _)| key.as_str() != labels::NODE);
    wanted.all(|(key, value)| machine.label(key) == Some(value))
}

/// Whether a Machine has failed and is preserved.
fn is_preserved(machine: &MachineFacts, now: Timestamp) -> bool {
    is_live(machine) && machine.status.phase == Phase::Failed && machine.preserved(now).is_some()
}

fn failed(machines: &[Arc<MachineFacts>], set: &str, now: Timestamp) -> Vec<MachineSummary> {
    let is_failed = |machine: &&Arc<MachineFacts>| {
        let failed = machine.status.operation.state == Some(OperationState::Failed)
            || machine.status.phase == Phase::Failed;
        failed && !is_preserved(machine, now)
    };
    let summary = |machine: &Arc<MachineFacts>| MachineSummary {
        name: Some(machine.name.clone()),
        provider_id: machine.spec.provider_id.clone().filter(|id| !id.is_empty()),
        last_operation: Some(machine.status.operation.clone()),
        owner_ref: Some(set.to_owned()),
    };
    machines.iter().filter(is_failed).map(summary).collect()
}

/// Reduces a failed Machine's last operation to its marker. Error messages of clouds contain
/// request ids and times, and each new message would cause a write of the set and another of the
/// deployment.
fn forget_prose(machine: &mut MachineSummary) {
    if let Some(operation) = &mut machine.last_operation {
        operation.last_update_time = None;
        operation.description = operation.deletion_marker().map(|marker| marker.as_str().to_owned());
    }
}

fn count(machines: &[Arc<MachineFacts>], test: impl Fn(&MachineFacts) -> bool) -> i32 {
    to_i32(machines.iter().filter(|machine| test(machine)).count())
}

fn to_i32(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

fn seconds(at: Timestamp) -> Time {
    Time(Timestamp::from_second(at.as_second()).unwrap_or(at))
}
