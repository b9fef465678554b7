//! MachineSet: collects its facts, and performs its actions. The rules are in
//! `machinist_plan::mcm::machine_set`.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use machinist_api::constants::{finalizers, reasons};
use machinist_api::{MachineSetStatus, Phase};
use machinist_kube::recorder::EventType;
use machinist_kube::{Cluster, Entry, GuardedPatch, ObjectKey};
use machinist_plan::mcm::facts::{MachineDeploymentFacts, MachineFacts, MachineSetFacts};
use machinist_plan::mcm::machine_deployment::{FieldChange, limits, synced_changes};
use machinist_plan::mcm::machine_set::{
    Action, ChildFailure, Misfit, RESERVED_NUMBERS, Snapshot, bound, child, misfit, overshoots,
    owner_reference, released_early, taken, with_stray,
};
use serde_json::json;

use self::preserve::{end_patch, preserve_patch};
use super::adoption::{Adopter, adopt};
use super::contract::{Mcm, Runtime, World, Write};
use super::freeze::{with_freeze, without_freeze, without_frozen};
use super::key::Key;
use super::measure;
use super::options::Tools;
use super::reference::object_key;
use super::seen::machines_owned_by;
use super::seen::machines_without_owner;
use super::seen::sets_owned_by;
use super::seen::unknown_owned_by;
use super::seen::{BY_UID, Seen, differs_from_its_size};
use machinist_core::Attempts;
use machinist_plan::mcm::{Plan, Why};
use machinist_runtime::{Created, Fed, Kind, Observed, Stop, controlled_by, version_if_owned};

pub(super) mod preserve;

/// The kind MachineSet in the work loop.
pub(crate) struct Sets;

impl Kind<Mcm> for Sets {
    const EXPLAINS: Option<&'static str> = Some(<MachineSetFacts as Fed<Mcm>>::RESOURCE);

    type Id = ObjectKey;
    type Snapshot = Snapshot;
    type Action = Action;

    fn ids(seen: &Seen, _: &Tools) -> Vec<ObjectKey> {
        seen.sets.keys().cloned().collect()
    }
    fn is_decided(tools: &Tools) -> bool {
        tools.decides_sets
    }
    fn depends_on(cluster: &Cluster) -> bool {
        *cluster == Cluster::Control
    }

    fn observe(runtime: &Runtime, world: &World, id: &ObjectKey) -> Observed<Snapshot> {
        let Some(set) = world.seen.sets.get(id) else { return Observed::Gone };
        let machines = machines_owned_by(&world.seen, &set.uid);
        // The begin and the end of a freeze depend on the deployment, the deletions of Recreate do,
        // and so do the creations and deletions of a set without its size (`limits`). For all other
        // rules a new version of it changes nothing.
        let margins = runtime.tools.safety_margins;
        let deployment = deployment_of(world, &set.facts).filter(|deployment| {
            let bound = bound(&set.facts, Some(&deployment.facts), margins);
            let bound = bound.and_then(|bound| usize::try_from(bound).ok());
            set.facts.freeze().is_frozen()
                || deployment.facts.recreates()
                || bound.is_some_and(|bound| bound <= machines.len())
        });
        let differs = differs_from_its_size(&world.seen, &set.facts);
        let (now, owner) = (runtime.now(), deployment_of(world, &set.facts).filter(|_| differs));
        let limits = owner
            .and_then(|owner| limits(now, &owner.facts, &sets_owned_by(&world.seen, &owner.uid), &set.uid));
        let kept = |machine: &Arc<MachineFacts>| {
            Some((machine.uid.clone(), world.seen.memory.kept.get(&machine.uid)?.clone()))
        };
        let snapshot = Snapshot {
            now,
            skew: runtime.skew(),
            machines_freshness: runtime.freshness::<MachineFacts>(world),
            rejected: machines.iter().filter_map(kept).collect(),
            auto_preserve: preserve::auto_preserve(world, &set.facts, &machines),
            machines,
            unreadable: unknown_owned_by(&world.seen.machines, &set.uid),
            adoptable: machines_without_owner(&world.seen, &id.namespace),
            deployment: deployment.map(|deployment| deployment.facts.clone()),
            limits,
            margins,
            overshooting_since: world.seen.memory.overshooting_since.get(&set.uid).copied(),
            finished_numbers: world.seen.memory.finished_numbers.get(&set.uid).cloned().unwrap_or_default(),
            status_written: world.seen.memory.status_written.get(&set.uid).copied(),
            failure: world.seen.memory.child_failures.get(&set.uid).cloned(),
            strays: world.seen.memory.strays.get(&set.uid).cloned(),
            late_adoptions: world.seen.memory.late_adoptions_of(&set.uid),
            set: set.facts.clone(),
        };
        Observed::Ready(snapshot)
    }

    fn plan(tools: &Tools, snapshot: &Snapshot) -> Plan<Action> {
        (tools.planners.machine_set)(snapshot)
    }

    /// The next decisions read since when the set has too many Machines.
    fn publish(runtime: &Runtime, s: &Snapshot, _: &Why) {
        let overshoots = overshoots(s);
        if overshoots == s.overshooting_since.is_some() {
            return;
        }
        let mut world = runtime.lock();
        if !overshoots {
            world.seen.memory.overshooting_since.remove(&s.set.uid);
        } else if world.seen.has_owner(&s.set.uid) {
            world.seen.memory.overshooting_since.insert(s.set.uid.clone(), s.now);
        }
    }

    async fn act(runtime: &Arc<Runtime>, s: &Snapshot, action: Action) -> Result<(), Stop> {
        perform(runtime, s, action).await
    }

    fn takes_away(action: &Action) -> bool {
        // Without its set, the garbage collector deletes a Machine that a former leader adopts
        // late.
        matches!(
            action,
            Action::Delete(_) | Action::DeleteOwned(_) | Action::EndPreservation(_) | Action::RemoveFinalizer
        )
    }

    fn starts_slowly(action: &Action) -> bool {
        matches!(action, Action::Create { .. })
    }
    fn is_independent(action: &Action) -> bool {
        matches!(
            action,
            Action::Create { .. }
                | Action::Delete(_)
                | Action::DeleteOwned(_)
                | Action::SyncMachine(_)
                | Action::Preserve(_)
                | Action::EndPreservation(_)
        )
    }

    fn reference(s: &Snapshot) -> Option<ObjectReference> {
        Some(reference(&s.set))
    }
}

fn deployment_of<'w>(world: &'w World, set: &MachineSetFacts) -> Option<&'w Entry<MachineDeploymentFacts>> {
    let owner = set.owner.as_ref()?;
    world.seen.deployments.by_index(BY_UID, &owner.uid).next().map(|(_, deployment)| deployment)
}

async fn perform(runtime: &Arc<Runtime>, s: &Snapshot, action: Action) -> Result<(), Stop> {
    let set = &s.set;
    let set_key = object_key(&set.namespace, &set.name);
    let own = [Key::Set(set_key.clone())];
    let write = Write { runtime, charged: &own, key: set_key };
    match action {
        Action::AddFinalizer => {
            let patch = GuardedPatch::new(&set.uid)
                .add_finalizer(set.finalizers.as_deref(), finalizers::MACHINE_CONTROLLER_MANAGER);
            write.patch::<MachineSetFacts>(patch).await
        }
        Action::RemoveFinalizer => {
            let patch = GuardedPatch::new(&set.uid)
                .remove_finalizer(set.finalizers.as_deref(), finalizers::MACHINE_CONTROLLER_MANAGER);
            write.patch::<MachineSetFacts>(patch).await
        }
        Action::Reserve(reserved) => {
            let patch = GuardedPatch::new(&set.uid).set_annotation(
                set.annotations.as_ref(),
                RESERVED_NUMBERS,
                &reserved.to_string(),
            );
            write.patch::<MachineSetFacts>(patch).await?;
            // Only pending numbers need to be remembered.
            let mut world = runtime.lock();
            if let Some(settled) = world.seen.memory.finished_numbers.get_mut(&set.uid) {
                settled.retain(|number| reserved.pending.contains(number));
            }
            Ok(())
        }
        Action::SetStatus(status) => {
            write.patch_status::<MachineSetFacts>(status_patch(set, &status)).await?;
            remember_status_written(runtime, &set.uid);
            Ok(())
        }
        Action::RemoveFrozen { index } => {
            let index = index.to_string();
            let condition = ["status", "machineSetCondition", &index];
            write.patch_status::<MachineSetFacts>(without_frozen(&set.uid, &condition)).await
        }
        Action::AddFreeze => write.patch::<MachineSetFacts>(with_freeze(&set.uid, set.labels.as_ref())).await,
        Action::TellFrozen(message) => {
            runtime.recorder.record(&reference(set), EventType::Normal, reasons::FROZE_MACHINE_SET, &message);
            Ok(())
        }
        Action::RemoveFreeze => {
            let patch = without_freeze(&set.uid, set.labels.as_ref(), set.annotations.as_ref());
            write.patch::<MachineSetFacts>(patch).await?;
            // A set whose freeze a user lifts gets another period.
            runtime.lock().seen.memory.overshooting_since.remove(&set.uid);
            Ok(())
        }
        Action::TellThawed(message) => {
            runtime.recorder.record(
                &reference(set),
                EventType::Normal,
                reasons::UNFROZE_MACHINE_SET,
                &message,
            );
            Ok(())
        }
        Action::Warn(refusal) => {
            runtime.recorder.record(&reference(set), EventType::Warning, refusal.reason, &refusal.message);
            Ok(())
        }
        Action::Create { number, name } => create(runtime, s, number, &name).await,
        Action::ReadMachines => {
            runtime.read_soon::<MachineFacts>(&own[0]);
            Ok(())
        }
        // The other process may just have written that the Machine has recovered.
        Action::Delete(machine) if machine.status.phase == Phase::Failed => {
            let version = machine.version.to_string();
            delete(runtime, s, &machine, Some(&version)).await
        }
        Action::Delete(machine) => delete(runtime, s, &machine, None).await,
        Action::DeleteOwned(machine) => {
            let key = object_key(&set.namespace, &machine.name);
            match version_if_owned::<Mcm, MachineFacts>(runtime, &key, &machine.uid, &set.uid).await? {
                Some(version) => delete(runtime, s, &machine, Some(&version)).await,
                None => Ok(()),
            }
        }
        Action::Adopt(machine) => {
            let own_key = object_key(&set.namespace, &set.name);
            let ours = owner_reference(set);
            let patch = controlled_by(&machine.uid, machine.owners_as_read().as_ref(), Some(&ours));
            let write = child_write(runtime, s, &machine, &own);
            let adopter = Adopter { key: &own_key, uid: &set.uid, decides: Key::Set(own_key.clone()) };
            adopt::<MachineSetFacts, MachineFacts>(&write, patch, adopter, &machine.uid, |machine| {
                machine.owner.as_ref()
            })
            .await
        }
        Action::Release(machine) => {
            let patch = controlled_by(&machine.uid, machine.owners_as_read().as_ref(), None);
            let result = child_write(runtime, s, &machine, &own).patch::<MachineFacts>(patch).await;
            // Without an answer, the set may have lost the Machine too.
            if let (Ok(()) | Err(Stop::Unanswered(_)), Some(message)) = (&result, released_early(s, &machine))
            {
                remember_stray(runtime, s, machine.created, message);
            }
            result
        }
        Action::Preserve(machine) => {
            let charged = counting(s);
            child_write(runtime, s, &machine, &charged).patch::<MachineFacts>(preserve_patch(&machine)).await
        }
        Action::EndPreservation(machine) => {
            let charged = counting(s);
            let write = child_write(runtime, s, &machine, &charged);
            write.patch_that_takes_away::<MachineFacts>(end_patch(&machine)).await
        }
        Action::SyncMachine(machine) => {
            child_write(runtime, s, &machine, &own).patch::<MachineFacts>(template_patch(s, &machine)).await
        }
    }
}

/// Returns the keys of the decisions that count a set's Machines: the set's own, and its
/// MachineDeployment's.
fn counting(s: &Snapshot) -> Vec<Key> {
    let mut keys = vec![Key::Set(object_key(&s.set.namespace, &s.set.name))];
    keys.extend(s.set.owner.as_ref().map(|owner| Key::Deployment(object_key(&s.set.namespace, &owner.name))));
    keys
}

fn child_write<'a>(
    runtime: &'a Runtime,
    s: &Snapshot,
    machine: &MachineFacts,
    charged: &'a [Key],
) -> Write<'a> {
    Write { runtime, charged, key: object_key(&s.set.namespace, &machine.name) }
}

/// The source of the Events about created and deleted Machines, as in Go's
/// machine-controller-manager. The other Events of sets name the manager.
const SET_CONTROLLER: &str = "machineset-controller";

async fn create(runtime: &Arc<Runtime>, s: &Snapshot, number: u64, name: &str) -> Result<(), Stop> {
    let set = &s.set;
    let charged = counting(s);
    let write = Write { runtime, charged: &charged, key: object_key(&set.namespace, name) };
    let machine = child(set, name);
    match write.create::<MachineFacts>(&machine).await {
        Ok(Created::Made { labels, owners }) => {
            if let Some(misfit) = misfit(set, name, &labels, &owners) {
                return Err(refuse_misfit(runtime, s, number, misfit));
            }
            let message = format!("Created Machine {name}");
            runtime.recorder.record_by(
                SET_CONTROLLER,
                &reference(set),
                EventType::Normal,
                reasons::SUCCESSFUL_CREATE,
                &message,
            );
        }
        // If the Machine is ours, the watch shows it and it is counted; otherwise it is not. In
        // both cases the number is in use.
        Ok(Created::WasThere { owners }) => {
            let is_ours = owners.iter().any(|owner| owner.uid == set.uid);
            tracing::info!(
                set = set.name,
                machine = name,
                is_ours,
                "A Machine with this name exists already"
            );
            // An answer may have been lost that showed it.
            if let Some(message) = taken(set, name, &owners) {
                remember_stray(runtime, s, s.now, message);
            }
        }
        Err(Stop::Refused { message, .. }) => return Err(refuse_creation(runtime, set, message)),
        Err(stop) => return Err(stop),
    }
    let mut world = runtime.lock();
    remember_number(&mut world.seen, set, number);
    world.seen.memory.child_failures.remove(&set.uid);
    Ok(())
}

/// Remembers that a number of a set is in use.
fn remember_number(seen: &mut Seen, set: &MachineSetFacts, number: u64) {
    if seen.has_owner(&set.uid) {
        seen.memory.finished_numbers.entry(set.uid.clone()).or_default().insert(number);
    }
}

/// Reports a failed creation, so that the set waits before the next one.
fn refuse_creation(runtime: &Runtime, set: &MachineSetFacts, message: String) -> Stop {
    tell_failed_creation(runtime, set, &message);
    let (now, mut world) = (runtime.now(), runtime.lock());
    if world.seen.has_owner(&set.uid) {
        remember_failure(&mut world.seen.memory.child_failures, &set.uid, &message, now);
    }
    Stop::Refused { message, is_told: true }
}

fn tell_failed_creation(runtime: &Runtime, set: &MachineSetFacts, message: &str) {
    runtime.recorder.record_by(
        SET_CONTROLLER,
        &reference(set),
        EventType::Warning,
        reasons::FAILED_CREATE,
        message,
    );
}

/// Reports that the set does not count a Machine that it has just created. The other creations of
/// the pass do not follow.
fn refuse_misfit(runtime: &Runtime, s: &Snapshot, number: u64, misfit: Misfit) -> Stop {
    remember_number(&mut runtime.lock().seen, &s.set, number);
    // A Machine that the set controls becomes a stray when the set releases it.
    if !misfit.is_controlled {
        remember_stray(runtime, s, s.now, misfit.message.clone());
    }
    tell_failed_creation(runtime, &s.set, &misfit.message);
    Stop::Refused { message: misfit.message, is_told: true }
}

/// Remembers a Machine that left its set soon after its creation.
fn remember_stray(runtime: &Runtime, s: &Snapshot, created: Timestamp, message: String) {
    let mut world = runtime.lock();
    if world.seen.has_owner(&s.set.uid) {
        let strays = &mut world.seen.memory.strays;
        let all = with_stray(s, strays.get(&s.set.uid), created, message);
        strays.insert(s.set.uid.clone(), all);
    }
}

/// Deletes a Machine; if `version` is given, only that version of it.
async fn delete(
    runtime: &Arc<Runtime>,
    s: &Snapshot,
    machine: &MachineFacts,
    version: Option<&str>,
) -> Result<(), Stop> {
    let charged = counting(s);
    let write = child_write(runtime, s, machine, &charged);
    let result = match version {
        // The size of the set may change before a lost DELETE could be repeated.
        version if s.set.deleting_since.is_none() => {
            write.delete_chosen::<MachineFacts>(&machine.uid, version).await
        }
        Some(version) => write.delete_unchanged::<MachineFacts>(&machine.uid, version).await,
        None => write.delete::<MachineFacts>(&machine.uid).await,
    };
    match result {
        Ok(()) => {
            measure::set_deleted(&runtime.options.metrics, machine);
            let message = format!("Deleted Machine {}", machine.name);
            runtime.recorder.record_by(
                SET_CONTROLLER,
                &reference(&s.set),
                EventType::Normal,
                reasons::SUCCESSFUL_DELETE,
                &message,
            );
            let memory = &mut runtime.lock().seen.memory;
            memory.child_failures.remove(&s.set.uid);
            memory.kept.remove(&machine.uid);
            Ok(())
        }
        Err(Stop::Refused { message, .. }) => {
            runtime.recorder.record_by(
                SET_CONTROLLER,
                &reference(&s.set),
                EventType::Warning,
                reasons::FAILED_DELETE,
                &message,
            );
            let (now, mut world) = (runtime.now(), runtime.lock());
            if world.seen.has_machine(&machine.uid) {
                remember_failure(&mut world.seen.memory.kept, &machine.uid, &message, now);
            }
            drop(world);
            Err(Stop::Refused { message, is_told: true })
        }
        Err(stop) => Err(stop),
    }
}

/// Remembers when the status of a MachineSet or MachineDeployment was written, to limit the
/// frequency of writes.
pub(super) fn remember_status_written(runtime: &Runtime, uid: &str) {
    let now = runtime.now();
    let mut world = runtime.lock();
    if world.seen.has_owner(uid) {
        world.seen.memory.status_written.insert(uid.to_owned(), now);
    }
}

/// Remembers that creating or deleting a Machine failed, so that the planner waits before the next
/// attempt.
fn remember_failure(
    failures: &mut BTreeMap<String, ChildFailure>,
    uid: &str,
    message: &str,
    last: Timestamp,
) {
    let first = || ChildFailure { message: String::new(), attempts: Attempts { count: 0, last } };
    let ChildFailure { message: known, attempts } = failures.entry(uid.to_owned()).or_insert_with(first);
    message.clone_into(known);
    // Several creations of one batch that fail at the same time count as one failure.
    if attempts.last != last || attempts.count == 0 {
        attempts.count = attempts.count.saturating_add(1);
    }
    attempts.last = last;
}

fn status_patch(set: &MachineSetFacts, status: &MachineSetStatus) -> GuardedPatch {
    let status = serde_json::to_value(status).unwrap_or_else(|_| json!({}));
    GuardedPatch::new(&set.uid).add(&["status"], status)
}

fn template_patch(s: &Snapshot, machine: &MachineFacts) -> GuardedPatch {
    let patch = GuardedPatch::new(&machine.uid).test_generation(machine.generation);
    with_changes(patch, &["spec"], synced_changes(&s.set.spec.template.spec, &machine.spec))
}

/// Adds changes of fields below a spec to a patch.
pub(super) fn with_changes(patch: GuardedPatch, spec: &[&str], changes: Vec<FieldChange>) -> GuardedPatch {
    changes.into_iter().fold(patch, |patch, (field, value)| {
        let path = [spec, field].concat();
        match value {
            Some(value) => patch.add(&path, value),
            None => patch.remove(&path),
        }
    })
}

fn reference(set: &MachineSetFacts) -> ObjectReference {
    super::reference::reference("MachineSet", &set.namespace, &set.name, &set.uid)
}
