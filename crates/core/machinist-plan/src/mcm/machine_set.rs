//! MachineSet: keeps the desired number of Machines of one template.
//!
//! ```text
//! finalizer -> lift a freeze -> claim -> sync the template -> create or delete Machines -> freeze
//! -> status
//! ```
//!
//! A set never creates more Machines than are missing, even if memory is lost: names are reserved
//! first (`names`), and this process does not decide while the store lacks its own writes.
//!
//! Deliberately absent: which Machine is marked Failed ([`super::replacement`]), how many Machines
//! a rollout may have ([`super::rollout`]), and the expiry, the taint and the drain of a preserved
//! Machine ([`super::machine`]).

mod freeze;
pub(crate) mod names;
pub(crate) mod preserve;
mod replicas;
pub(crate) mod snapshot;
mod strays;

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use machinist_api::constants::{conditions, finalizers, reasons};
use machinist_api::{MachineSetStatus, Phase};

pub use self::freeze::{bound, overshoots};
pub use self::names::{RESERVED_NUMBERS, Reserved, child_name};
pub use self::replicas::{child, owner_reference};
use self::snapshot::invalid;
pub use self::snapshot::{AutoPreserve, ChildFailure, SafetyMargins, Snapshot};
pub use self::strays::{Misfit, misfit, released_early, taken, with_stray};
use super::late_adoption;
use super::live::{is_live, number};
use super::machine_deployment::template::is_synced;
use super::refusal::Refusal;
use super::status;
use crate::mcm::facts::{MachineFacts, MachineSetFacts, Preserved};
use crate::mcm::why::{McmReason, Plan, Reason, Step, Why, why_finalizers_of_others, why_orphaning};
use machinist_core::{SKEW_LIMIT, plus};

/// When a set that waits for a larger size is looked at again, at the latest. A change of the
/// deployment or of the set wakes it earlier.
const SIZE_AGAIN: Duration = Duration::from_secs(10);

/// One call for one set.
#[derive(Debug)]
pub enum Action {
    /// Adds our finalizer to the set.
    AddFinalizer,
    /// Removes our finalizer from the set.
    RemoveFinalizer,
    /// Writes the reserved numbers.
    Reserve(Reserved),
    /// POSTs a child.
    Create {
        /// Number of the child.
        number: u64,
        /// Name of the child, derived from the number.
        name: String,
    },
    /// Lists the Machines at the API server. All sets share the answer.
    ReadMachines,
    /// DELETEs a child, by UID.
    Delete(Arc<MachineFacts>),
    /// Reads a child of a set that is being deleted, and DELETEs the version that was read if the
    /// set still owns it.
    DeleteOwned(Arc<MachineFacts>),
    /// Becomes the controller of a Machine without a controlling owner.
    Adopt(Arc<MachineFacts>),
    /// Gives up control of a Machine that the selector no longer matches.
    Release(Arc<MachineFacts>),
    /// Copies the parts of the template that need no rollout to a Machine.
    SyncMachine(Arc<MachineFacts>),
    /// Asks the machine controller to preserve a failed Machine.
    Preserve(Arc<MachineFacts>),
    /// Removes the annotation that [`Self::Preserve`] added.
    EndPreservation(Arc<MachineFacts>),
    /// Removes the condition `Frozen` from the status.
    RemoveFrozen {
        /// Index of the condition.
        index: usize,
    },
    /// Removes the label `freeze` and the annotation `unfreeze`.
    RemoveFreeze,
    /// Adds the label `freeze`.
    AddFreeze,
    /// Emits an Event that the set was frozen, with the cause.
    TellFrozen(String),
    /// Emits an Event that the freeze was lifted, with the cause.
    TellThawed(String),
    /// Emits an Event that the spec is invalid.
    Warn(Refusal),
    /// Writes the set's status.
    SetStatus(Box<MachineSetStatus>),
}

/// Decides the next actions for one set.
pub fn plan(s: &Snapshot) -> Plan<Action> {
    if s.set.deleting_since.is_some() {
        return plan_deleting(s);
    }
    if !s.set.has_finalizer {
        return Plan::act(
            Action::AddFinalizer,
            Why::new(Reason::Writing("adding the finalizer"), Step::Nothing),
        );
    }
    if let Some(thaw) = freeze::thaw(s) {
        return thaw;
    }
    if let Some(refusal) = invalid(&s.set) {
        return with_status(s, Vec::new(), refusal.why());
    }
    let claim = claim(s);
    if !claim.is_empty() {
        // Claims must be complete before Machines are counted, created or deleted.
        return Plan::act_all(claim, Why::new(Reason::Writing("claiming Machines"), Step::Nothing));
    }
    // Deletions do not wait after a rejected creation, because fewer Machines may fix the cause.
    let again = s.failure.as_ref().and_then(|failure| failure.next_attempt(s.now));
    let again = again.max(strays::next_creation(s));
    // First the replicas: a slow webhook for updates must not delay deletions.
    let mut actions = match replicas::write_off(s) {
        // Until this is written, a used name might be treated as unused.
        Some(write_off) => vec![write_off],
        None => replicas::plan(s, again),
    };
    actions.splice(0..0, preserve::actions(s));
    actions.extend(sync(s));
    // Last: a change that is rejected must not keep the set from deleting Machines.
    actions.extend(freeze::completion(s));
    if let Some(wait) = stale(s, &actions) {
        actions.retain(|action| !matches!(action, Action::Delete(_) | Action::EndPreservation(_)));
        actions.extend(wait.actions);
        let mut plan = with_status(s, actions, wait.why);
        plan.wait = plan.wait.earliest(wait.wait);
        return match again {
            Some(again) => plan.no_later_than(again),
            None => plan,
        };
    }
    let look_at = again.into_iter().chain(replicas::next_expiry(s)).chain(s.next_deletion());
    let look_at = look_at.chain(freeze::due_at(s).filter(|due| s.now < *due));
    let is_bound = replicas::kept_available(s).is_some() || replicas::without_room(s).is_some();
    let is_waiting = is_bound || waits_for_size(s).is_some() || replicas::awaiting_preservation(s).is_some();
    let look_at = look_at.chain(is_waiting.then(|| plus(s.now, SIZE_AGAIN))).min();
    match look_at {
        Some(look_at) => with_status(s, actions, why(s)).no_later_than(look_at),
        None => with_status(s, actions, why(s)),
    }
}

/// Returns the obstacle to deletions if the Machines are not fresh. In an old view, a Machine may
/// be Failed or no longer preserved although it has recovered, and the deployment may want fewer
/// Machines in this set because others were available.
fn stale(s: &Snapshot, actions: &[Action]) -> Option<Plan<Action>> {
    let is_held =
        actions.iter().any(|action| matches!(action, Action::Delete(_) | Action::EndPreservation(_)));
    if is_held { s.machines_freshness.obstacle(|| Action::ReadMachines) } else { None }
}

/// Returns the size that the deployment has not written yet, if the set deletes or creates fewer
/// Machines because of it.
fn waits_for_size(s: &Snapshot) -> Option<u32> {
    let live = number(s.machines.iter().filter(|machine| is_live(machine)).count());
    match live.cmp(&s.set.replicas()) {
        Ordering::Less => s.smaller_size(),
        Ordering::Equal => None,
        Ordering::Greater => s.larger_size(),
    }
}

impl Snapshot {
    /// Returns how a Machine is preserved. During clock skew, no preservation expires.
    pub(crate) fn preserved(&self, machine: &MachineFacts) -> Option<Preserved> {
        let now = if self.skew <= SKEW_LIMIT { self.now } else { Timestamp::MIN };
        machine.preserved(now)
    }

    /// Returns how a failed Machine is preserved; absent for other Machines.
    pub(crate) fn failed_and_preserved(&self, machine: &MachineFacts) -> Option<Preserved> {
        self.preserved(machine).filter(|_| machine.status.phase == Phase::Failed)
    }

    /// Whether a Machine may be deleted now: its deletion was not rejected, or not recently.
    fn may_delete(&self, machine: &MachineFacts) -> bool {
        self.rejected.get(&machine.uid).is_none_or(|failure| failure.next_attempt(self.now).is_none())
    }

    /// Returns when the next rejected deletion may be repeated, if one has to wait.
    fn next_deletion(&self) -> Option<Timestamp> {
        let living = self.machines.iter().filter(|machine| is_live(machine));
        living.filter_map(|machine| self.rejected.get(&machine.uid)?.next_attempt(self.now)).min()
    }

    /// Returns the last failed creation, the strays because of which Machines are missing, or a
    /// failed deletion of a Machine that the set still has to delete.
    pub(crate) fn last_failure(&self) -> Option<&ChildFailure> {
        let strays = strays::limit(self).filter(|_| 0 < replicas::missing(self));
        let creation = self.failure.as_ref().or(strays);
        if creation.is_some() || self.rejected.is_empty() {
            return creation;
        }
        replicas::victims(self).into_iter().find_map(|machine| self.rejected.get(&machine.uid))
    }
}

fn plan_deleting(s: &Snapshot) -> Plan<Action> {
    if !s.set.has_finalizer {
        return Plan::idle(why_finalizers_of_others(s.set.deleting_since));
    }
    if s.machines.is_empty() && s.unreadable.is_empty() {
        if let Some(wait) = late_adoption::wait(&s.late_adoptions, s.now, s.set.deleting_since) {
            return wait;
        }
        let why = Why::new(Reason::Writing("removing the finalizer"), Step::Nothing);
        return Plan::act(Action::RemoveFinalizer, why);
    }
    if finalizers::has_orphan(s.set.finalizers.as_deref()) {
        return with_status(s, Vec::new(), why_orphaning(s.set.deleting_since));
    }
    let left = number(s.machines.len() + s.unreadable.len());
    let first = s.machines.first().map(|machine| &machine.name).or(s.unreadable.first()).cloned();
    let step = match (s.machines.first(), s.unreadable.first()) {
        (None, Some(name)) => Step::Fix(format!(
            "correct Machine {name}, which cannot be parsed: its instance is deleted only after that"
        )),
        _ => Step::Expect("the finalizer is removed after the Machines"),
    };
    let why = Why::new(McmReason::MachinesLeaving { left, first }, step).since(s.set.deleting_since);
    // The garbage collector may have released Machines that the watch still shows as owned.
    let staying = s.machines.iter().filter(|machine| machine.deleting_since.is_none());
    let due = staying.filter(|machine| s.may_delete(machine));
    let leave = |machine: &Arc<MachineFacts>| {
        let child = format_args!("Machine {}", machine.name);
        match late_adoption::released(&s.late_adoptions, &machine.uid, child, s.set.deleting_since) {
            Some(warning) => vec![Action::Release(machine.clone()), Action::Warn(warning)],
            None => vec![Action::DeleteOwned(machine.clone())],
        }
    };
    let actions = due.flat_map(leave).collect();
    let plan = with_status(s, actions, why);
    match s.next_deletion() {
        Some(look_at) => plan.no_later_than(look_at),
        None => plan,
    }
}

/// Adds the set's status to a plan, with the Event about an invalid spec.
fn with_status(s: &Snapshot, actions: Vec<Action>, why: Why) -> Plan<Action> {
    let mut status = status::of_set(s);
    // In the order in which the next pass computes them.
    let place = status.conditions.iter().position(|condition| condition.type_ == conditions::REPLICA_FAILURE);
    let place = place.unwrap_or(status.conditions.len());
    status.conditions.splice(place..place, freeze::begun(s));
    let differs = s.set.status.as_ref().is_none_or(|current| status::set_differs(current, &status));
    let writes = differs.then(|| {
        let news = status::news_of_set(s).map(Action::Warn);
        news.into_iter().chain([Action::SetStatus(Box::new(status))]).collect()
    });
    status::with_writes(s.now, s.status_written, writes, actions, why)
}

/// Returns the Machines to adopt or release, by selector and owner. A Machine that is being deleted
/// is not adopted.
fn claim(s: &Snapshot) -> Vec<Action> {
    let unconfirmed = s.machines.iter().filter(|machine| {
        let stays = machine.deleting_since.is_none() && is_selected(&s.set, machine);
        stays && late_adoption::is_unconfirmed(&s.late_adoptions, &machine.uid)
    });
    let adopted =
        s.adoptable.iter().filter(|machine| would_adopt(&s.set, machine)).chain(unconfirmed).cloned();
    let released = s.machines.iter().filter(|machine| !is_selected(&s.set, machine)).cloned();
    adopted.map(Action::Adopt).chain(released.map(Action::Release)).collect()
}

/// Whether a set adopts this Machine, which has no controlling owner.
pub fn would_adopt(set: &MachineSetFacts, machine: &MachineFacts) -> bool {
    let stay = set.deleting_since.is_none() && machine.deleting_since.is_none();
    stay && invalid(set).is_none() && is_selected(set, machine)
}

/// Whether the set's selector matches a Machine.
fn is_selected(set: &MachineSetFacts, machine: &MachineFacts) -> bool {
    set.selector.as_ref().is_some_and(|selector| selector.matches(|key| machine.label(key)))
}

/// Returns the Machines that differ from the template in parts that need no rollout.
fn sync(s: &Snapshot) -> Vec<Action> {
    let template = &s.set.spec.template.spec;
    let differs = |machine: &&Arc<MachineFacts>| {
        machine.status.phase.is_active()
            && machine.deleting_since.is_none()
            && !is_synced(template, &machine.spec)
    };
    s.machines.iter().filter(differs).cloned().map(Action::SyncMachine).collect()
}

fn why(s: &Snapshot) -> Why {
    let desired = s.set.replicas();
    let count = |test: &dyn Fn(&MachineFacts) -> bool| {
        u32::try_from(s.machines.iter().filter(|machine| test(machine)).count()).unwrap_or(u32::MAX)
    };
    let available = count(&|machine| is_live(machine) && machine.status.phase.is_available());
    let live = count(&is_live).saturating_add(number(s.unreadable.len()));
    if let Some(frozen) = freeze::why(s) {
        return frozen;
    }
    if live < desired && s.set.is_scale_up_disabled() {
        let fix = "remove the label so that the set can create machines".to_owned();
        return Why::new(McmReason::ScaleUpDisabled, Step::Fix(fix));
    }
    if let Some(strays) = strays::limit(s).filter(|_| live < desired && s.failure.is_none()) {
        let reason = McmReason::MachinesStray { message: strays.message.clone() };
        return Why::new(reason, Step::Expect("the controller creates the next Machine"))
            .since(strays.attempts.last);
    }
    if let Some(failure) = s.last_failure().filter(|_| live != desired) {
        let reason = McmReason::ChildFailed { message: failure.message.clone() };
        return Why::new(reason, Step::Expect("the controller tries again")).since(failure.attempts.last);
    }
    if live < desired
        && let (Some(size), Some(owner)) = (waits_for_size(s), &s.set.owner)
    {
        return outdated(owner.name.clone(), size);
    }
    if let Some(bounds) = replicas::without_room(s) {
        let (machines, most) = (bounds.live, bounds.most);
        let reason = McmReason::SurgeBound { machines, most, waiting_for: None };
        return Why::new(reason, Step::Expect("the other MachineSets delete Machines"));
    }
    if available < desired {
        let mut waiting =
            s.machines.iter().filter(|machine| is_live(machine) && !machine.status.phase.is_available());
        let kept = waiting.clone().find_map(|machine| Some((machine, s.failed_and_preserved(machine)?)));
        if let (Some(machine), Some(owner)) = (replicas::awaiting_preservation(s), &s.set.owner) {
            let (machine, deployment) = (machine.name.clone(), owner.name.clone());
            let next = Step::Expect("the MachineDeployment annotates the Machine");
            return Why::new(McmReason::AwaitingPreservation { machine, deployment }, next);
        }
        let first = waiting.find(|machine| s.failed_and_preserved(machine).is_none());
        if let (Some((machine, preserved)), None, true) = (kept, first, desired <= live) {
            return crate::mcm::why::why_preserved(machine, preserved);
        }
        if let Some(machine) = first.filter(|machine| machine.is_updating_in_place()) {
            return crate::mcm::why::why_updated_in_place(machine);
        }
        let first = first.map(|machine| &machine.name).or(s.unreadable.first()).cloned();
        return Why::new(
            McmReason::MachinesPending { available, desired, first },
            Step::Expect("the Machines become Running"),
        );
    }
    if let (Some(size), Some(owner)) = (waits_for_size(s), &s.set.owner) {
        return outdated(owner.name.clone(), size);
    }
    if let Some(bounds) = replicas::kept_available(s) {
        let (available, fewest) = (bounds.available, bounds.fewest);
        let reason = McmReason::UnavailableBound { available, fewest, waiting_for: None };
        return Why::new(reason, Step::Expect("Machines of the other MachineSets become Running"));
    }
    let leaving = s.machines.iter().filter(|machine| !is_live(machine));
    let left = u32::try_from(leaving.clone().count()).unwrap_or(u32::MAX);
    let surplus = count(&|machine| is_live(machine) && !replicas::moves(s, machine)).saturating_sub(desired);
    if 0 < left || 0 < surplus {
        let first = leaving.map(|machine| machine.name.clone()).next();
        return Why::new(
            McmReason::MachinesLeaving { left: left.max(surplus), first },
            Step::Expect("the Machines are drained and deleted"),
        );
    }
    let kept = s.machines.iter().find(|machine| is_live(machine) && replicas::moves(s, machine));
    kept.filter(|_| desired < live)
        .map_or_else(Why::up_to_date, |machine| crate::mcm::why::why_updated_in_place(machine))
}

fn outdated(deployment: String, size: u32) -> Why {
    let next = Step::Expect("the MachineDeployment writes the new size");
    Why::new(McmReason::SizeOutdated { deployment, size }, next)
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddFinalizer => f.write_str("set: add finalizer"),
            Self::RemoveFinalizer => f.write_str("set: remove finalizer"),
            Self::Reserve(reserved) => write!(f, "set: reserve numbers {reserved}"),
            Self::Create { number, name } => write!(f, "machine {name}: create, number {number}"),
            Self::Delete(machine) => write!(f, "machine {}: delete", machine.name),
            Self::ReadMachines => f.write_str("machines: list them at the API server"),
            Self::DeleteOwned(machine) => write!(f, "machine {}: delete if owned", machine.name),
            Self::Adopt(machine) => write!(f, "machine {}: adopt", machine.name),
            Self::Release(machine) => write!(f, "machine {}: release", machine.name),
            Self::SyncMachine(machine) => write!(f, "machine {}: sync template", machine.name),
            Self::Preserve(machine) => write!(f, "machine {}: preserve", machine.name),
            Self::EndPreservation(machine) => write!(f, "machine {}: preserve no longer", machine.name),
            Self::RemoveFrozen { .. } => f.write_str("set: remove condition Frozen"),
            Self::RemoveFreeze => f.write_str("set: remove freeze"),
            Self::AddFreeze => f.write_str("set: freeze"),
            Self::TellFrozen(_) => write!(f, "event {}", reasons::FROZE_MACHINE_SET),
            Self::TellThawed(_) => write!(f, "event {}", reasons::UNFROZE_MACHINE_SET),
            Self::Warn(refusal) => write!(f, "warning {}: {}", refusal.reason, refusal.message),
            Self::SetStatus(status) => write!(
                f,
                "status: {} replicas, {} available, {} ready",
                status.replicas, status.available_replicas, status.ready_replicas
            ),
        }
    }
}

#[cfg(test)]
mod tests;
