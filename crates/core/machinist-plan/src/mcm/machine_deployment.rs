//! MachineDeployment: keeps one set per template, and rolls out template changes.
//!
//! ```text
//! finalizer -> lift a freeze -> claim sets -> hash of adopted sets -> mark Machines that the autoscaler chose -> roll back -> the set of this template -> its
//! annotations and template -> sizes (rollout) -> history -> status
//! ```
//!
//! The set of the current template is found by comparing templates, never by a hash, so that a
//! takeover from Go MCM starts no rollout.

mod chosen;
mod freeze;
mod hash_sync;
mod in_place;
mod lowerings;
mod node_marks;
mod preserve;
mod raises;
mod rollback;
pub(crate) mod sizing;
pub(crate) mod snapshot;
pub(crate) mod template;

use jiff::Timestamp;
use std::cell::LazyCell;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use machinist_api::constants::{annotations, finalizers, reasons};
use machinist_api::{MachineDeploymentStatus, MachineSet, MachineSetStatus, MachineSpec};

pub use self::hash_sync::HashStep;
pub use self::in_place::Relabel;
pub(super) use self::in_place::shows_stage;
pub use self::preserve::about_to_preserve;
pub use self::rollback::Rollback;
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
use crate::mcm::facts::{MachineFacts, MachineSetFacts};
use crate::mcm::why::{McmReason, Plan, Reason, Step, Why, why_finalizers_of_others, why_orphaning};
use machinist_core::just_past;

/// Number of former revisions that a set remembers.
const REVISIONS_KEPT: usize = 10;
/// Number of names to try for a set. A name is skipped only if a set of another owner has it.
const NAME_ATTEMPTS: u32 = 16;

/// One call for one deployment.
#[derive(Debug)]
pub enum Action {
    /// Adds our finalizer to the deployment.
    AddFinalizer,
    /// Removes our finalizer from the deployment.
    RemoveFinalizer,
    /// Becomes the controller of a set without a controlling owner.
    Adopt(Arc<MachineSetFacts>),
    /// Gives up control of a set that the selector no longer matches.
    Release(Arc<MachineSetFacts>),
    /// POSTs the set of this template.
    CreateSet(Box<MachineSet>),
    /// Changes a set, in one patch.
    PatchSet(SetPatch),
    /// Adds the label `machine-template-hash` to an adopted set or to one of its Machines.
    AddHash {
        /// The object that gets the label.
        step: HashStep,
        /// The value of the label.
        hash: String,
    },
    /// Changes the labels of a Machine and perhaps its owner, in an update in place.
    Relabel(Box<Relabel>),
    /// DELETEs a set, by UID.
    DeleteSet(Arc<MachineSetFacts>),
    /// Reads a set of a deployment that is being deleted, and DELETEs the version that was read if
    /// the deployment still owns it.
    DeleteOwnedSet(Arc<MachineSetFacts>),
    /// Writes annotations of the deployment.
    Annotate(BTreeMap<String, String>),
    /// Marks a Machine so that its set deletes it first.
    MarkMachine {
        /// The Machine.
        machine: Arc<MachineFacts>,
        /// When the autoscaler chose the Machine, RFC 3339.
        since: String,
    },
    /// Asks the machine controller to preserve a failed Machine.
    Preserve(Arc<MachineFacts>),
    /// Removes the annotation that [`Self::Preserve`] added.
    EndPreservation(Arc<MachineFacts>),
    /// Looks up a Machine with that name at the API server.
    LookFor(String),
    /// Lists the Machines at the API server. All deployments and sets share the answer.
    ReadMachines,
    /// Writes the names of the chosen Machines, or removes the annotation if there are none.
    SetChosen(Option<String>),
    /// Copies the template and the annotations of a former revision to the deployment, and removes
    /// `spec.rollbackTo`.
    RollBack(Box<Rollback>),
    /// Removes `spec.rollbackTo`, with the reason why nothing is rolled back.
    EndRollback(Refusal),
    /// Removes the condition `Frozen` from the status.
    RemoveFrozen {
        /// Index of the condition.
        index: usize,
    },
    /// Adds the label `freeze`.
    AddFreeze,
    /// Removes the label `freeze` and the annotation `unfreeze`.
    RemoveFreeze,
    /// Emits an Event that the spec is invalid.
    Warn(Refusal),
    /// Writes the deployment's status.
    SetStatus(Box<MachineDeploymentStatus>),
}

/// One patch of a set. Absent parts are not changed.
#[derive(Debug, Clone)]
pub struct SetPatch {
    /// The set as it was read.
    pub set: Arc<MachineSetFacts>,
    /// The new replicas.
    pub replicas: Option<u32>,
    /// Annotations to set, and to remove (`None`).
    pub annotations: BTreeMap<String, Option<String>>,
    /// Labels to set, and to remove (`None`).
    pub labels: BTreeMap<String, Option<String>>,
    /// The parts of the template that need no rollout, copied from the deployment.
    pub template: Option<TemplateSync>,
}

impl SetPatch {
    /// Whether the patch lowers the replicas, so that the set deletes Machines.
    pub fn is_lower(&self) -> bool {
        self.replicas.is_some_and(|replicas| replicas < self.set.replicas())
    }

    /// Whether the patch raises the replicas, so that the set creates Machines.
    pub fn is_higher(&self) -> bool {
        self.replicas.is_some_and(|replicas| self.set.replicas() < replicas)
    }
}

/// The fields that are copied from a deployment to its set without a rollout.
#[derive(Debug, Clone)]
pub struct TemplateSync {
    /// The template's Machine spec, with nodeTemplate, timeouts and class kind of the deployment.
    /// Only the fields that differ are written ([`synced_changes`]).
    pub spec: Box<MachineSpec>,
    /// `minReadySeconds`, if it differs.
    pub min_ready_seconds: Option<i32>,
    /// `autoPreserveFailedMachineMax`, if it differs.
    pub auto_preserve_max: Option<i32>,
}

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
        let fix = Step::Fix(format!("fix {}", refusal.field));
        let why = Why::new(McmReason::InvalidSpec(refusal.message.clone()), fix);
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
    let matches =
        |set: &Arc<MachineSetFacts>| set.labels.as_ref().is_some_and(|labels| selector.selects(labels));
    let staying = |set: &&Arc<MachineSetFacts>| set.deleting_since.is_none();
    let owned = s.sets.iter().map(|owned| &owned.set);
    let unconfirmed = owned.clone().filter(|set| late_adoption::is_unconfirmed(&s.late_adoptions, &set.uid));
    let adopted = s.adoptable.iter().chain(unconfirmed).filter(staying).filter(|set| matches(set)).cloned();
    let released = owned.filter(staying).filter(|set| !matches(set)).cloned();
    adopted.map(Action::Adopt).chain(released.map(Action::Release)).collect()
}

fn create_set(s: &Snapshot) -> Plan<Action> {
    let collisions = u32::try_from(s.deployment.status.as_ref().and_then(|s| s.collision_count).unwrap_or(0));
    let first = collisions.unwrap_or(0);
    let free = (first..first.saturating_add(NAME_ATTEMPTS)).find(|attempt| {
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
    // Beside other sets, the new set starts empty and is sized by the bounds. A single set is
    // created at full size.
    let is_alone =
        s.sets.iter().all(|owned| rollout::specified(owned) == 0 && rollout::has_no_machines(owned));
    let replicas = if is_alone { s.deployment.replicas() } else { 0 };
    let set = new_set(&s.deployment, attempt, replicas, next_revision(s, None), size_annotations(s));
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

fn revision_of(set: &MachineSetFacts) -> i64 {
    set.annotation(annotations::REVISION).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Returns the revision of the set of this template, which is higher than the revision of every
/// other set.
fn next_revision(s: &Snapshot, new: Option<usize>) -> i64 {
    let others = s.sets.iter().enumerate().filter(|(index, _)| Some(*index) != new);
    let highest = others.map(|(_, owned)| revision_of(&owned.set)).max().unwrap_or(0);
    let own = new.map_or(0, |new| revision_of(&s.sets[new].set));
    own.max(highest.saturating_add(1))
}

fn revision_annotations(s: &Snapshot, set: &MachineSetFacts) -> BTreeMap<String, String> {
    let new = s.sets.iter().position(|owned| owned.set.uid == set.uid);
    let revision = next_revision(s, new);
    let current = revision_of(set);
    let mut all = BTreeMap::from([(annotations::REVISION.to_owned(), revision.to_string())]);
    if current != 0 && current != revision {
        // A set that becomes the newest again remembers its former revisions.
        let history = set.annotation(annotations::REVISION_HISTORY).unwrap_or_default();
        let mut history: Vec<_> =
            history.split(',').filter(|text| !text.is_empty()).map(str::to_owned).collect();
        history.push(current.to_string());
        let first = history.len().saturating_sub(REVISIONS_KEPT);
        all.insert(annotations::REVISION_HISTORY.to_owned(), history[first..].join(","));
    }
    all
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

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddFinalizer => f.write_str("deployment: add finalizer"),
            Self::RemoveFinalizer => f.write_str("deployment: remove finalizer"),
            Self::Adopt(set) => write!(f, "set {}: adopt", set.name),
            Self::Release(set) => write!(f, "set {}: release", set.name),
            Self::CreateSet(set) => write!(
                f,
                "set {}: create with {} replicas",
                set.metadata.name.as_deref().unwrap_or_default(),
                set.spec.replicas()
            ),
            Self::PatchSet(patch) => {
                write!(f, "set {}:", patch.set.name)?;
                if let Some(replicas) = patch.replicas {
                    write!(f, " {} -> {replicas} replicas", patch.set.replicas())?;
                }
                let short = |key: &String| key.rsplit('/').next().unwrap_or(key).to_owned();
                let shown = |(key, value): (&String, &Option<String>)| match value {
                    Some(_) => short(key),
                    None => format!("-{}", short(key)),
                };
                for (what, changes) in [("annotations", &patch.annotations), ("labels", &patch.labels)] {
                    let keys: Vec<_> = changes.iter().map(shown).collect();
                    if !keys.is_empty() {
                        write!(f, " {what} {}", keys.join(" "))?;
                    }
                }
                if patch.template.is_some() { f.write_str(" template") } else { Ok(()) }
            }
            Self::AddHash { step: HashStep::Template(set), hash } => {
                write!(f, "set {}: label template {hash}", set.name)
            }
            Self::AddHash { step: HashStep::Machine(machine), hash } => {
                write!(f, "machine {}: label {hash}", machine.name)
            }
            Self::AddHash { step: HashStep::Selector(set), hash } => {
                write!(f, "set {}: select {hash}", set.name)
            }
            Self::Relabel(step) => write!(f, "machine {}: {}", step.machine.name, step.what),
            Self::DeleteSet(set) => write!(f, "set {}: delete", set.name),
            Self::DeleteOwnedSet(set) => write!(f, "set {}: delete if owned", set.name),
            Self::Annotate(annotations) => {
                let all: Vec<_> = annotations.iter().map(|(k, v)| format!("{k}={v}")).collect();
                write!(f, "deployment: annotate {}", all.join(" "))
            }
            Self::MarkMachine { machine, since } => {
                write!(f, "machine {}: mark for deletion since {since}", machine.name)
            }
            Self::Preserve(machine) => write!(f, "machine {}: preserve", machine.name),
            Self::EndPreservation(machine) => write!(f, "machine {}: preserve no longer", machine.name),
            Self::LookFor(name) => write!(f, "machine {name}: look for it"),
            Self::ReadMachines => f.write_str("machines: list them at the API server"),
            Self::SetChosen(Some(chosen)) => write!(f, "deployment: machines to delete {chosen}"),
            Self::SetChosen(None) => f.write_str("deployment: no machines to delete"),
            Self::RollBack(rollback) => write!(f, "deployment: roll back to revision {}", rollback.revision),
            Self::EndRollback(refusal) => write!(f, "deployment: no rollback, {}", refusal.message),
            Self::RemoveFrozen { .. } => f.write_str("deployment: remove condition Frozen"),
            Self::AddFreeze => f.write_str("deployment: freeze"),
            Self::RemoveFreeze => f.write_str("deployment: remove freeze"),
            Self::Warn(refusal) => write!(f, "warning {}: {}", refusal.reason, refusal.message),
            Self::SetStatus(status) => write!(
                f,
                "status: {} replicas, {} updated, {} available",
                status.replicas, status.updated_replicas, status.available_replicas
            ),
        }
    }
}

#[cfg(test)]
mod tests;
