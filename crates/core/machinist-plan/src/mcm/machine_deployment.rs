//! MachineDeployment: keeps one set per template, and rolls out template changes.
//!
//! ```text
//! finalizer -> lift a freeze -> claim sets -> hash of adopted sets -> mark Machines that the autoscaler chose -> roll back -> the set of this template -> its
//! annotations and template -> sizes (rollout) -> history -> status
//! ```
//!
//! The set of the current template is found by comparing templates, never by a hash, so that a
//! takeover from Go MCM starts no rollout.

mod action;
mod chosen;
mod freeze;
mod hash_sync;
mod in_place;
mod lowerings;
mod node_marks;
mod preserve;
mod raises;
mod revision;
mod rollback;
pub(crate) mod sizing;
pub(crate) mod snapshot;
pub(crate) mod template;

use jiff::Timestamp;
use std::cell::LazyCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use machinist_api::constants::{annotations, finalizers, reasons};
use machinist_api::{MachineSet, MachineSetStatus};

pub use self::action::{Action, HashStep, Relabel, Rollback, SetPatch, TemplateSync};
pub(super) use self::in_place::shows_stage;
pub use self::preserve::about_to_preserve;
use self::revision::{next_revision, revision_annotations};
pub use self::sizing::{Limits, limits};
use self::sizing::{creates_set_first, new_set_index, unusable};
pub use self::snapshot::{OpenRaise, Owned, Snapshot};
pub use self::template::{
    FieldChange, is_same_template, new_set, owner_reference, set_name, synced_changes, template_hash,
};
use self::template::{copied_annotations, is_synced};
use super::late_adoption;
use super::live::number;
use super::refusal::Refusal;
use super::status::Stage;
use super::{rollout, status};
use crate::mcm::facts::MachineSetFacts;
use crate::mcm::why::{McmReason, Plan, Reason, Step, Why, why_finalizers_of_others, why_orphaning};
use machinist_core::just_past;

/// Number of names to try for a set. A name is skipped only if a set of another owner has it.
const NAME_ATTEMPTS: u32 = 16;

/// Decides the next actions for one deployment.
pub fn plan(s: &Snapshot) -> Plan<Action> {
    if s.deployment.deleting_since.is_some() {
        return plan_deleting(s);
    }
    if !s.deployment.has_finalizer {
        return Plan::act(
            Action::AddFinalizer,
            Why::new(Reason::Writing("adding the finalizer"), Step::Nothing),
        );
    }
    freeze::attend(s, preserve::attend(s, plan_living(s)))
}

fn plan_living(s: &Snapshot) -> Plan<Action> {
    if let Some(thaw) = freeze::thaw(s) {
        return thaw;
    }
    if let Some(refusal) = unusable(&s.deployment) {
        let why = refusal.why();
        return with_status(s, &Stage::Refused(refusal), Vec::new(), why);
    }
    if let Some(wait) = unreadable_set(s, None) {
        return wait;
    }
    let claim = claim(s);
    if !claim.is_empty() {
        return Plan::act_all(claim, Why::new(Reason::Writing("claiming MachineSets"), Step::Nothing));
    }
    if let Some(sync) = hash_sync::plan(s) {
        return sync;
    }
    let mut chosen = chosen::chosen(s);
    if let Some(first) = chosen.first() {
        return first;
    }
    if let Some(rollback) = rollback::plan(s) {
        return chosen.with(rollback);
    }
    let new = new_set_index(&s.deployment, &s.sets);
    let creates_first = creates_set_first(&s.deployment, &s.sets, new);
    let plan = chosen.with(if creates_first { create_set(s) } else { resize(s, new) });
    lowerings::hold_back(s, raises::hold_back(s, plan))
}

fn plan_deleting(s: &Snapshot) -> Plan<Action> {
    let since = s.deployment.deleting_since;
    if !s.deployment.has_finalizer {
        return Plan::idle(why_finalizers_of_others(since));
    }
    if s.sets.is_empty() {
        let wait = unreadable_set(s, since);
        if let Some(wait) = wait.or_else(|| late_adoption::wait(&s.late_adoptions, s.now, since)) {
            return wait;
        }
        let why = Why::new(Reason::Writing("removing the finalizer"), Step::Nothing);
        return Plan::act(Action::RemoveFinalizer, why);
    }
    if finalizers::has_orphan(s.deployment.finalizers.as_deref()) {
        return with_status(s, &Stage::Leaving, Vec::new(), why_orphaning(since));
    }
    let machines = || s.sets.iter().flat_map(|owned| &owned.machines);
    let first = machines().next().map(|machine| machine.name.clone());
    let reason = McmReason::MachinesLeaving { left: number(machines().count()), first };
    let why = Why::new(reason, Step::Expect("the finalizer is removed after the Machines and MachineSets"))
        .since(since);
    let staying = s.sets.iter().filter(|owned| owned.set.deleting_since.is_none());
    // The garbage collector may have released sets that the watch still shows as owned.
    let leave = |set: &Arc<MachineSetFacts>| {
        let child = format_args!("MachineSet {}", set.name);
        match late_adoption::released(&s.late_adoptions, &set.uid, child, since) {
            Some(warning) => vec![Action::Release(set.clone()), Action::Warn(warning)],
            None => vec![Action::DeleteOwnedSet(set.clone())],
        }
    };
    with_status(s, &Stage::Leaving, staying.flat_map(|owned| leave(&owned.set)).collect(), why)
}

/// Waits for a user if a set of the deployment cannot be parsed. The set may have all the Machines
/// that the deployment wants, so the deployment creates and sizes nothing.
fn unreadable_set(s: &Snapshot, since: Option<Timestamp>) -> Option<Plan<Action>> {
    let set = s.unreadable_sets.first()?.clone();
    let fix = Step::Fix(format!("correct MachineSet {set}; the log of the manager names the field"));
    Some(Plan::idle(Why::new(McmReason::SetUnreadable { set }, fix).since(since)))
}

/// Returns why a deployment rests, excluding the bounds of the rollout.
fn rest(s: &Snapshot) -> Option<Why> {
    if s.deployment.spec.is_paused() {
        return Some(Why::new(McmReason::Paused, Step::Fix("set spec.paused to false".to_owned())));
    }
    let updating = rollout::updating_in_place(&s.sets).filter(|_| !s.deployment.is_in_place());
    updating.map(crate::mcm::why::why_updated_in_place)
}

/// Returns the sets to adopt or release, by selector and owner. A set that is being deleted keeps
/// its owner.
fn claim(s: &Snapshot) -> Vec<Action> {
    let Some(selector) = &s.deployment.selector else { return Vec::new() };
    let matches = |set: &Arc<MachineSetFacts>| selector.matches(|key| set.label(key));
    let staying = |set: &&Arc<MachineSetFacts>| set.deleting_since.is_none();
    let owned = s.sets.iter().map(|owned| &owned.set);
    let unconfirmed = owned.clone().filter(|set| late_adoption::is_unconfirmed(&s.late_adoptions, &set.uid));
    let adopted = s.adoptable.iter().chain(unconfirmed).filter(staying).filter(|set| matches(set)).cloned();
    let released = owned.filter(staying).filter(|set| !matches(set)).cloned();
    adopted.map(Action::Adopt).chain(released.map(Action::Release)).collect()
}

fn create_set(s: &Snapshot) -> Plan<Action> {
    // From the first name, not from `collisionCount`: so a template gets only a few sets if another
    // program changes each of them, and the deployment does not recognise them.
    let free = (0..NAME_ATTEMPTS).find(|attempt| {
        let name = set_name(&s.deployment, *attempt);
        !s.taken_names.contains(&name) && !s.sets.iter().any(|owned| owned.set.name == name)
    });
    let Some(attempt) = free else {
        let message =
            format!("no free name for a MachineSet of {}: every name tried is taken", s.deployment.name);
        let refusal = Refusal {
            reason: reasons::MACHINE_SET_CREATE_ERROR,
            field: "metadata.name".to_owned(),
            message: message.clone(),
        };
        let why = Why::new(
            McmReason::ChildFailed { message },
            Step::Fix("delete MachineSets of other owners".to_owned()),
        );
        return with_status(s, &Stage::Refused(refusal), Vec::new(), why);
    };
    // If there are other sets, the new set starts empty and is sized by the bounds. A single set is
    // created at full size.
    let is_alone =
        s.sets.iter().all(|owned| rollout::specified(owned) == 0 && rollout::has_no_machines(owned));
    // If another program changed a set that has the first name, it may change each further one. So
    // that one gets its size only when the deployment owns it.
    let replicas = if is_alone && attempt == 0 { s.deployment.replicas() } else { 0 };
    let set = new_set(&s.deployment, attempt, replicas, next_revision(s, None), size_annotations(s));
    if let Some(refusal) = template::unselected(&s.deployment, &set) {
        let why = refusal.why();
        return with_status(s, &Stage::Refused(refusal), Vec::new(), why);
    }
    if let Some(message) = &s.set_failure {
        return again(s, set, message.clone());
    }
    let stage = Stage::Creating { name: set.metadata.name.clone().unwrap_or_default(), collisions: attempt };
    let why =
        Why::new(Reason::Writing("creating the MachineSet"), Step::Expect("the set creates its Machines"));
    with_status(s, &stage, vec![Action::CreateSet(Box::new(set))], why)
}

/// Creates the set again, which the API server has rejected. The status comes first: the actions
/// after a rejected one are not performed.
fn again(s: &Snapshot, set: MachineSet, message: String) -> Plan<Action> {
    let refusal =
        Refusal { reason: reasons::MACHINE_SET_CREATE_ERROR, field: String::new(), message: message.clone() };
    let why = Why::new(McmReason::ChildFailed { message }, Step::Expect("the controller tries again"));
    let mut plan = with_status(s, &Stage::Refused(refusal), Vec::new(), why);
    plan.actions.push(Action::CreateSet(Box::new(set)));
    plan
}

fn resize(s: &Snapshot, new: Option<usize>) -> Plan<Action> {
    let rolling = Stage::Rolling(new.map(|new| &s.sets[new]));
    let is_complete = LazyCell::new(|| status::is_complete(s, &status::of_deployment(s, &rolling)));
    let sizes = rollout::sizes(s.now, &s.deployment, &s.sets, new);
    let sized = s.sets.iter().zip(sizes.replicas).enumerate();
    let mut actions: Vec<_> = sized
        .filter_map(|(index, (owned, replicas))| {
            let is_new = Some(index) == new;
            let marks = node_marks::changes(s, owned, new, replicas, || *is_complete);
            patch_set(s, owned, replicas, is_new, marks)
        })
        .collect();
    actions.extend(new.into_iter().flat_map(|new| in_place::steps(s, new)));
    if let Some(new) = new {
        let revision = next_revision(s, Some(new)).to_string();
        if s.deployment.annotation(annotations::REVISION) != Some(&revision) {
            actions.push(Action::Annotate(BTreeMap::from([(annotations::REVISION.to_owned(), revision)])));
        }
    }
    actions.extend(outdated_history(s, new, || *is_complete).into_iter().map(Action::DeleteSet));
    let plan = with_status(s, &rolling, actions, rest(s).unwrap_or(sizes.why));
    match status::progress_deadline(s) {
        Some(deadline) if s.now <= deadline => plan.no_later_than(just_past(deadline)),
        Some(_) | None => plan,
    }
}

/// Returns the patch that a set needs, if any.
fn patch_set(
    s: &Snapshot,
    owned: &Owned,
    replicas: u32,
    is_new: bool,
    node_marks::Marks { labels, mut annotations }: node_marks::Marks,
) -> Option<Action> {
    let set = &owned.set;
    if set.deleting_since.is_some() {
        return None;
    }
    let resized = (set.replicas() != replicas || set.spec.replicas.is_none()).then_some(replicas);
    let mut wanted = BTreeMap::new();
    if resized.is_some() || is_new || set.replicas() > 0 {
        wanted.extend(size_annotations(s));
    }
    if is_new {
        wanted.extend(copied_annotations(&s.deployment));
        wanted.extend(revision_annotations(s, set));
    }
    wanted.retain(|key, value| set.annotation(key) != Some(value));
    annotations.extend(wanted.into_iter().map(|(key, value)| (key, Some(value))));
    let template = if is_new { template_sync(s, set) } else { None };
    let nothing = resized.is_none() && annotations.is_empty() && labels.is_empty() && template.is_none();
    (!nothing).then(|| {
        Action::PatchSet(SetPatch { set: set.clone(), replicas: resized, annotations, labels, template })
    })
}

fn template_sync(s: &Snapshot, set: &MachineSetFacts) -> Option<TemplateSync> {
    let (ours, theirs) = (&s.deployment.spec, &set.spec);
    let min_ready_seconds = ours.min_ready_seconds.unwrap_or(0);
    let waits_as_long = min_ready_seconds == theirs.min_ready_seconds.unwrap_or(0);
    let auto_preserve_max = ours.auto_preserve_failed_machine_max.unwrap_or(0);
    let preserves_as_many = auto_preserve_max == theirs.auto_preserve_failed_machine_max.unwrap_or(0);
    if waits_as_long && preserves_as_many && is_synced(&ours.template.spec, &theirs.template.spec) {
        return None;
    }
    let mut spec = theirs.template.spec.clone();
    spec.node_template = ours.template.spec.node_template.clone();
    spec.configuration = ours.template.spec.configuration.clone();
    spec.class.kind.clone_from(&ours.template.spec.class.kind);
    // An absent value means 0, which must be written if the set has another value.
    Some(TemplateSync {
        spec: Box::new(spec),
        min_ready_seconds: (!waits_as_long).then_some(min_ready_seconds),
        auto_preserve_max: (!preserves_as_many).then_some(auto_preserve_max),
    })
}

/// Returns the annotations that the autoscaler and rollout tools read from each set.
fn size_annotations(s: &Snapshot) -> BTreeMap<String, String> {
    let desired = s.deployment.replicas();
    BTreeMap::from([
        (annotations::DESIRED_REPLICAS.to_owned(), desired.to_string()),
        (
            annotations::MAX_REPLICAS.to_owned(),
            desired.saturating_add(s.deployment.rolling_surge()).to_string(),
        ),
    ])
}

/// Returns the old empty sets beyond `revisionHistoryLimit`, oldest first. Without a limit all sets
/// are kept. During a rollout all sets are kept, too, because a user may want to return to one of
/// them; a pause ends this, unless a rollback waits for the end of the pause.
///
/// Only the oldest sets beyond the limit are candidates. A candidate with Machines is kept, and no
/// younger set is deleted instead.
fn outdated_history(
    s: &Snapshot,
    new: Option<usize>,
    is_complete: impl FnOnce() -> bool,
) -> Vec<Arc<MachineSetFacts>> {
    let old: Vec<_> = s
        .sets
        .iter()
        .enumerate()
        .filter(|(index, owned)| Some(*index) != new && owned.set.deleting_since.is_none())
        .map(|(_, owned)| owned)
        .collect();
    let limit = s.deployment.spec.revision_history_limit.and_then(|limit| usize::try_from(limit).ok());
    let surplus = limit.map_or(0, |limit| old.len().saturating_sub(limit));
    let oldest = old.into_iter().take(surplus).filter(|owned| is_empty(owned));
    let outdated: Vec<_> = oldest.map(|owned| owned.set.clone()).collect();
    if s.deployment.spec.rollback_to.is_some() {
        return Vec::new();
    }
    let is_due = || s.deployment.spec.is_paused() || is_complete();
    if outdated.is_empty() || !is_due() { Vec::new() } else { outdated }
}

/// Whether a set has no Machines and 0 replicas, and its status confirms this for the latest
/// generation.
fn is_empty(owned: &Owned) -> bool {
    let set = &owned.set;
    let is_confirmed = |status: &MachineSetStatus| {
        status.replicas == 0 && set.generation.unwrap_or_default() <= status.observed_generation
    };
    set.replicas() == 0 && rollout::has_no_machines(owned) && set.status.as_ref().is_some_and(is_confirmed)
}

/// Adds the deployment's status to a plan, with the Event about an invalid spec.
fn with_status(s: &Snapshot, stage: &Stage<'_>, actions: Vec<Action>, why: Why) -> Plan<Action> {
    let mut status = status::of_deployment(s, stage);
    status.conditions.extend(freeze::begun(s));
    let differs =
        s.deployment.status.as_ref().is_none_or(|current| status::deployment_differs(current, &status));
    let writes = differs.then(|| {
        let news = status::news(s, stage).cloned().map(Action::Warn);
        news.into_iter().chain([Action::SetStatus(Box::new(status))]).collect()
    });
    status::with_writes(s.now, s.status_written, writes, actions, why)
}

#[cfg(test)]
mod tests;
