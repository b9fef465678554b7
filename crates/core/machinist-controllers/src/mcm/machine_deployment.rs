//! MachineDeployment: collects its facts, and performs its actions. The rules are in
//! `machinist_plan::mcm::machine_deployment` and `rollout`.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use super::adoption::{Adopter, adopt};
use super::contract::{Mcm, Runtime, World, Write};
use super::freeze::{with_freeze, without_freeze, without_frozen};
use super::key::Key;
use super::machine_set::preserve::{end_patch, preserve_patch};
use super::machine_set::{remember_status_written, with_changes};
use super::memory::Raise;
use super::options::Tools;
use super::reference::object_key;
use super::seen::{BY_OWNER, NO_OWNER, Seen, sets_owned_by, unknown_owned_by};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use machinist_api::constants::{annotations, finalizers, labels, reasons};
use machinist_api::{MachineDeploymentStatus, MachinePriority, MachineSet};
use machinist_kube::recorder::EventType;
use machinist_kube::{Cluster, GuardedPatch, ObjectKey};
use machinist_plan::mcm::Plan;
use machinist_plan::mcm::facts::{MachineDeploymentFacts, MachineFacts, MachineSetFacts};
use machinist_plan::mcm::machine_deployment::{
    Action, HashStep, OpenRaise, Relabel, SetPatch, Snapshot, owner_reference, synced_changes,
};
use machinist_plan::mcm::machine_set::owner_reference as machine_owner;
use machinist_runtime::{Created, Fed, Kind, Observed, Stop, controlled_by, refresh, version_if_owned};
use serde_json::{Value, json};
use tokio::time::Instant;

/// The kind MachineDeployment in the work loop.
pub(crate) struct Deployments;

impl Kind<Mcm> for Deployments {
    const EXPLAINS: Option<&'static str> = Some(<MachineDeploymentFacts as Fed<Mcm>>::RESOURCE);

    type Id = ObjectKey;
    type Snapshot = Snapshot;
    type Action = Action;

    fn ids(seen: &Seen, _: &Tools) -> Vec<ObjectKey> {
        seen.deployments.keys().cloned().collect()
    }
    fn is_decided(tools: &Tools) -> bool {
        tools.decides_sets
    }
    fn depends_on(cluster: &Cluster) -> bool {
        *cluster == Cluster::Control
    }

    fn observe(runtime: &Runtime, world: &World, id: &ObjectKey) -> Observed<Snapshot> {
        let Some(deployment) = world.seen.deployments.get(id) else { return Observed::Gone };
        let here = |key: &ObjectKey| key.namespace == id.namespace;
        let free = world.seen.sets.by_index(BY_OWNER, NO_OWNER).filter(|(key, _)| here(key));
        let adoptable = free.map(|(_, set)| set.facts.clone()).collect();
        let is_other = |owner: Option<&str>| owner != Some(&deployment.uid);
        let others = world.seen.sets.iter().filter(|(key, set)| {
            here(key) && is_other(set.facts.owner.as_ref().map(|owner| owner.uid.as_str()))
        });
        let taken_names = others.map(|(key, _)| key.name.clone()).collect();
        let snapshot = Snapshot {
            now: runtime.now(),
            sets: sets_owned_by(&world.seen, &deployment.uid),
            unreadable_sets: unknown_owned_by(&world.seen.sets, &deployment.uid),
            machines_freshness: runtime.freshness::<MachineFacts>(world),
            adoptable,
            taken_names,
            looked_for: world.seen.memory.looked_for.get(&deployment.uid).cloned().unwrap_or_default(),
            set_failure: world.seen.memory.set_failures.get(&deployment.uid).cloned(),
            protects_nodes: runtime.tools.protects_nodes,
            status_written: world.seen.memory.status_written.get(&deployment.uid).copied(),
            open_raises: open_raises(runtime, world, &deployment.uid),
            late_adoptions: world.seen.memory.late_adoptions_of(&deployment.uid),
            predecessor_until: runtime.alone_from().map(|at| runtime.wall(at)),
            deployment: deployment.facts.clone(),
        };
        Observed::Ready(snapshot)
    }

    fn plan(tools: &Tools, snapshot: &Snapshot) -> Plan<Action> {
        (tools.planners.machine_deployment)(snapshot)
    }

    async fn act(runtime: &Arc<Runtime>, s: &Snapshot, action: Action) -> Result<(), Stop> {
        perform(runtime, s, action).await
    }

    fn takes_away(action: &Action) -> bool {
        match action {
            Action::PatchSet(change) => change.is_lower(),
            // The Machine is drained.
            Action::Relabel(step) => step.selects(),
            // The set deletes a failed Machine that is no longer preserved.
            Action::EndPreservation(_) => true,
            // Without its deployment, the garbage collector deletes a set that a former leader
            // adopts late.
            Action::DeleteSet(_) | Action::DeleteOwnedSet(_) | Action::RemoveFinalizer => true,
            _ => false,
        }
    }

    fn is_independent(action: &Action) -> bool {
        matches!(
            action,
            Action::MarkMachine { .. }
                | Action::LookFor(_)
                | Action::Preserve(_)
                | Action::EndPreservation(_)
        )
    }

    fn reference(s: &Snapshot) -> Option<ObjectReference> {
        Some(reference(s))
    }
}

async fn perform(runtime: &Arc<Runtime>, s: &Snapshot, action: Action) -> Result<(), Stop> {
    let deployment = &s.deployment;
    let key = object_key(&deployment.namespace, &deployment.name);
    let own = [Key::Deployment(key.clone())];
    let write = Write { runtime, charged: &own, key };
    match action {
        Action::AddFinalizer => {
            let patch = GuardedPatch::new(&deployment.uid)
                .add_finalizer(deployment.finalizers.as_deref(), finalizers::MACHINE_CONTROLLER_MANAGER);
            write.patch::<MachineDeploymentFacts>(patch).await
        }
        Action::RemoveFinalizer => {
            let patch = GuardedPatch::new(&deployment.uid)
                .remove_finalizer(deployment.finalizers.as_deref(), finalizers::MACHINE_CONTROLLER_MANAGER);
            write.patch::<MachineDeploymentFacts>(patch).await
        }
        Action::Annotate(annotations) => {
            let mut patch = GuardedPatch::new(&deployment.uid);
            for (key, value) in &annotations {
                patch = patch.set_annotation(deployment.annotations.as_ref(), key, value);
            }
            write.patch::<MachineDeploymentFacts>(patch).await
        }
        Action::MarkMachine { machine, since } => mark(runtime, s, &machine, &since).await,
        Action::Preserve(machine) => {
            let charged = sharing_machines(s);
            let write =
                Write { charged: &charged, key: object_key(&machine.namespace, &machine.name), ..write };
            write.patch::<MachineFacts>(preserve_patch(&machine)).await
        }
        Action::EndPreservation(machine) => {
            let charged = sharing_machines(s);
            let write =
                Write { charged: &charged, key: object_key(&machine.namespace, &machine.name), ..write };
            write.patch_that_takes_away::<MachineFacts>(end_patch(&machine)).await
        }
        Action::LookFor(name) => look_for(runtime, s, &name).await,
        Action::ReadMachines => {
            runtime.read_soon::<MachineFacts>(&own[0]);
            Ok(())
        }
        Action::SetChosen(chosen) => {
            let patch = GuardedPatch::new(&deployment.uid);
            let (read, key) = (deployment.annotations.as_ref(), annotations::TRIGGER_DELETION);
            let patch = match chosen {
                Some(chosen) => patch.set_annotation(read, key, &chosen),
                None => patch.remove_annotation(read, key),
            };
            write.patch::<MachineDeploymentFacts>(patch).await
        }
        Action::RollBack(rollback) => {
            let read = deployment.annotations.as_ref();
            let patch = without_rollback(deployment).change_annotations(read, &rollback.annotations);
            let template = serde_json::to_value(&rollback.template)
                .map_err(|_| Stop::NotNow("the template cannot be written as JSON"))?;
            write.patch::<MachineDeploymentFacts>(patch.add(&["spec", "template"], template)).await?;
            let message = format!("Rolled back to the template of revision {}", rollback.revision);
            tell(runtime, s, EventType::Normal, reasons::DEPLOYMENT_ROLLBACK, &message);
            Ok(())
        }
        Action::EndRollback(refusal) => {
            write.patch::<MachineDeploymentFacts>(without_rollback(deployment)).await?;
            tell(runtime, s, EventType::Warning, refusal.reason, &refusal.message);
            Ok(())
        }
        Action::RemoveFrozen { index } => {
            let index = index.to_string();
            let condition = ["status", "conditions", &index];
            write.patch_status::<MachineDeploymentFacts>(without_frozen(&deployment.uid, &condition)).await
        }
        Action::AddFreeze => {
            let patch = with_freeze(&deployment.uid, deployment.labels.as_ref());
            write.patch::<MachineDeploymentFacts>(patch).await
        }
        Action::RemoveFreeze => {
            let (labels, annotations) = (deployment.labels.as_ref(), deployment.annotations.as_ref());
            write.patch::<MachineDeploymentFacts>(without_freeze(&deployment.uid, labels, annotations)).await
        }
        Action::Warn(refusal) => {
            tell(runtime, s, EventType::Warning, refusal.reason, &refusal.message);
            Ok(())
        }
        Action::SetStatus(status) => {
            write.patch_status::<MachineDeploymentFacts>(status_patch(deployment, &status)).await?;
            remember_status_written(runtime, &deployment.uid);
            Ok(())
        }
        Action::CreateSet(set) => create_set(runtime, s, *set).await,
        Action::PatchSet(patch) => patch_set(runtime, s, patch).await,
        Action::AddHash { step, hash } => add_hash(runtime, s, &step, &hash).await,
        Action::Relabel(step) => relabel(runtime, s, &step).await,
        Action::DeleteSet(set) => {
            set_write(runtime, &set, &charged(s, &set)).delete::<MachineSetFacts>(&set.uid).await
        }
        Action::DeleteOwnedSet(set) => {
            let key = object_key(&set.namespace, &set.name);
            let owner = &deployment.uid;
            match version_if_owned::<Mcm, MachineSetFacts>(runtime, &key, &set.uid, owner).await? {
                Some(version) => {
                    let charged = charged(s, &set);
                    let write = set_write(runtime, &set, &charged);
                    write.delete_unchanged::<MachineSetFacts>(&set.uid, &version).await
                }
                None => Ok(()),
            }
        }
        Action::Release(set) => {
            let patch = controlled_by(&set.uid, set.owners_as_read().as_ref(), None);
            set_write(runtime, &set, &charged(s, &set)).patch::<MachineSetFacts>(patch).await
        }
        Action::Adopt(set) => {
            let own_key = object_key(&deployment.namespace, &deployment.name);
            let ours = owner_reference(deployment);
            let patch = controlled_by(&set.uid, set.owners_as_read().as_ref(), Some(&ours));
            let charged = charged(s, &set);
            let write = set_write(runtime, &set, &charged);
            let decides = Key::Deployment(own_key.clone());
            let adopter = Adopter { key: &own_key, uid: &deployment.uid, decides };
            adopt::<MachineDeploymentFacts, MachineSetFacts>(&write, patch, adopter, &set.uid, |set| {
                set.owner.as_ref()
            })
            .await
        }
    }
}

/// Returns the writes of a MachineDeployment that may still raise the size of a set.
fn open_raises(runtime: &Runtime, world: &World, deployment_uid: &str) -> Vec<OpenRaise> {
    let raises = world.seen.memory.open_raises.get(deployment_uid).into_iter().flatten();
    let open = raises.filter(|(_, raise)| raise.may_land());
    open.map(|(set, raise)| OpenRaise {
        set: set.clone(),
        patched: raise.patched.clone(),
        until: runtime.wall(raise.until()),
    })
    .collect()
}

/// Sends a write that raises the size of a set. If the write gets no answer, the planner must know
/// that it may take effect later.
async fn raise<T>(
    runtime: &Runtime,
    s: &Snapshot,
    (set, patched): (&str, Option<(String, Option<i64>)>),
    write: impl Future<Output = Result<T, Stop>>,
) -> Result<T, Stop> {
    let raise = Raise { patched, sent: Instant::now() };
    let key = Key::Set(object_key(&s.deployment.namespace, set));
    let before = {
        let mut world = runtime.lock();
        let raises = world.seen.memory.open_raises.entry(s.deployment.uid.clone()).or_default();
        raises.retain(|_, raise| raise.may_land());
        raises.insert(set.to_owned(), raise)
    };
    let result = write.await;
    let mut world = runtime.lock();
    let is_unsure = matches!(result, Err(Stop::Unanswered(_))) && world.is_unsure(&key);
    let Some(raises) = world.seen.memory.open_raises.get_mut(&s.deployment.uid) else { return result };
    match (&result, before) {
        // The write may have waited for its turn in this process. It was sent at any time until
        // now.
        _ if is_unsure => raises.get_mut(set).into_iter().for_each(|raise| raise.sent = Instant::now()),
        // A rejection says nothing about an earlier write to the same set.
        (Err(_), Some(before)) => drop(raises.insert(set.to_owned(), before)),
        (Ok(_), _) | (Err(_), None) => drop(raises.remove(set)),
    }
    if raises.is_empty() {
        world.seen.memory.open_raises.remove(&s.deployment.uid);
    }
    result
}

/// Returns the keys of the decisions that count a MachineSet's replicas: the MachineDeployment's,
/// and the set's own.
fn charged(s: &Snapshot, set: &MachineSetFacts) -> [Key; 2] {
    let deployment = object_key(&s.deployment.namespace, &s.deployment.name);
    [Key::Deployment(deployment), Key::Set(object_key(&set.namespace, &set.name))]
}

/// Returns the keys of the decisions that depend on which Machines of the deployment are preserved:
/// the MachineDeployment's, and the keys of all its sets.
fn sharing_machines(s: &Snapshot) -> Vec<Key> {
    let namespace = &s.deployment.namespace;
    let sets = s.sets.iter().map(|owned| Key::Set(object_key(namespace, &owned.set.name)));
    sets.chain([Key::Deployment(object_key(namespace, &s.deployment.name))]).collect()
}

/// Gives a Machine the first place in the deletion order of its MachineSet. Neither the set nor the
/// deployment may decide before they see this change.
async fn mark(runtime: &Arc<Runtime>, s: &Snapshot, machine: &MachineFacts, since: &str) -> Result<(), Stop> {
    let namespace = &s.deployment.namespace;
    let mut charged = vec![Key::Deployment(object_key(namespace, &s.deployment.name))];
    charged.extend(machine.owner.as_ref().map(|owner| Key::Set(object_key(namespace, &owner.name))));
    let first = MachinePriority::DELETE_FIRST.0.to_string();
    let patch = GuardedPatch::new(&machine.uid)
        .set_annotation(machine.annotations.as_ref(), annotations::MACHINE_PRIORITY, &first)
        .set_annotation(machine.annotations.as_ref(), annotations::MARKED_FOR_DELETION_TIME, since);
    let write = Write { runtime, charged: &charged, key: object_key(namespace, &machine.name) };
    write.patch::<MachineFacts>(patch).await
}

/// Reads a Machine that the watch does not show. Emits an Event if the Machine does not belong to
/// this MachineDeployment.
async fn look_for(runtime: &Arc<Runtime>, s: &Snapshot, name: &str) -> Result<(), Stop> {
    let deployment = &s.deployment;
    let key = object_key(&deployment.namespace, name);
    let found = refresh::<Mcm, MachineFacts>(runtime, &key).await;
    let found = found.map_err(|error| Stop::Unanswered(error.to_string()))?;
    let owner = found.as_ref().and_then(|machine| machine.facts.owner.as_ref());
    let is_ours = owner.is_some_and(|owner| s.sets.iter().any(|owned| owned.set.uid == owner.uid));
    {
        let mut world = runtime.lock();
        if world.seen.has_owner(&deployment.uid) {
            let named = deployment.annotation(annotations::TRIGGER_DELETION).unwrap_or_default();
            let looked_for = world.seen.memory.looked_for.entry(deployment.uid.clone()).or_default();
            looked_for.retain(|name| named.contains(name.as_str()));
            looked_for.insert(name.to_owned());
        }
    }
    if !is_ours {
        let message = format!(
            "Machine {name} in annotation {} is not a Machine of this MachineDeployment: it is deleted already, or the name \
             is wrong. Nothing was deleted now.",
            annotations::TRIGGER_DELETION
        );
        tell(runtime, s, EventType::Warning, reasons::CHOSEN_MACHINE_UNKNOWN, &message);
    }
    runtime.queue.wake(Key::Deployment(object_key(&deployment.namespace, &deployment.name)));
    Ok(())
}

fn set_write<'a>(runtime: &'a Runtime, set: &MachineSetFacts, charged: &'a [Key]) -> Write<'a> {
    Write { runtime, charged, key: object_key(&set.namespace, &set.name) }
}

async fn create_set(runtime: &Arc<Runtime>, s: &Snapshot, set: MachineSet) -> Result<(), Stop> {
    let name = set.metadata.name.clone().unwrap_or_default();
    let key = object_key(&s.deployment.namespace, &name);
    let charged =
        [Key::Deployment(object_key(&s.deployment.namespace, &s.deployment.name)), Key::Set(key.clone())];
    let write = Write { runtime, charged: &charged, key };
    let creation = write.create::<MachineSetFacts>(&set);
    let created = if 0 < set.spec.replicas() {
        raise(runtime, s, (&name, None), creation).await
    } else {
        creation.await
    };
    let failures = |change: &dyn Fn(&mut BTreeMap<String, String>)| {
        change(&mut runtime.lock().seen.memory.set_failures);
    };
    let created = created.and_then(|created| match created {
        Created::Made { labels, owners } if !owns(&s.deployment, &labels, &owners) => {
            Err(Stop::refused(format!(
                "MachineDeployment {} does not select or control its new MachineSet {name}: another program, \
                 for example an admission webhook, changes its metadata",
                s.deployment.name
            )))
        }
        created => Ok(created),
    });
    match created {
        Ok(Created::Made { .. }) => {
            failures(&|all| drop(all.remove(&s.deployment.uid)));
            if set.spec.replicas() > 0 {
                let message = format!("Scaled up MachineSet {name} to {}", set.spec.replicas());
                tell(runtime, s, EventType::Normal, reasons::SCALING_MACHINE_SET, &message);
            }
            Ok(())
        }
        // The set exists from an earlier create with a lost response, or another program created
        // it: the store will show which.
        Ok(Created::WasThere { .. }) => Ok(()),
        Err(Stop::Refused { message, .. }) => {
            failures(&|all| drop(all.insert(s.deployment.uid.clone(), message.clone())));
            tell(runtime, s, EventType::Warning, reasons::MACHINE_SET_CREATE_ERROR, &message);
            Err(Stop::Refused { message, is_told: true })
        }
        Err(stop) => Err(stop),
    }
}

/// Whether a deployment owns, or adopts, a set with these labels and owners.
fn owns(
    deployment: &MachineDeploymentFacts,
    labels: &BTreeMap<String, String>,
    owners: &[OwnerReference],
) -> bool {
    let is_other = |owner: &OwnerReference| owner.uid != deployment.uid && owner.controller == Some(true);
    let is_selected = deployment.selector.as_ref().is_some_and(|selector| selector.selects(labels));
    is_selected && !owners.iter().any(is_other)
}

/// Changes the labels of a Machine, and its owner if it moves to another set. Neither set nor the
/// deployment decide anything before they see the change.
async fn relabel(runtime: &Arc<Runtime>, s: &Snapshot, step: &Relabel) -> Result<(), Stop> {
    let machine = &step.machine;
    let patch = match &step.owner {
        Some(set) => {
            let owner = machine_owner(set);
            controlled_by(&machine.uid, machine.owners_as_read().as_ref(), Some(&owner))
        }
        None => GuardedPatch::new(&machine.uid),
    };
    let patch = patch.change_labels(machine.labels.as_ref(), &step.labels);
    let set = |name: &str| Key::Set(object_key(&machine.namespace, name));
    let mut charged = vec![Key::Deployment(object_key(&s.deployment.namespace, &s.deployment.name))];
    charged.extend(machine.owner.as_ref().map(|owner| set(&owner.name)));
    charged.extend(step.owner.as_ref().map(|owner| set(&owner.name)));
    let write = Write { runtime, charged: &charged, key: object_key(&machine.namespace, &machine.name) };
    let Some(owner) = &step.owner else { return write.patch::<MachineFacts>(patch).await };
    // The set may be deleted before the patch takes effect, and the garbage collector would then
    // delete the Machine.
    let new_owner = object_key(&machine.namespace, &owner.name);
    let adopter = Adopter { key: &new_owner, uid: &owner.uid, decides: Key::Set(new_owner.clone()) };
    adopt::<MachineSetFacts, MachineFacts>(&write, patch, adopter, &machine.uid, |machine| {
        machine.owner.as_ref()
    })
    .await
}

/// Adds the label `machine-template-hash`. The set and the deployment decide nothing before they
/// see it.
async fn add_hash(runtime: &Arc<Runtime>, s: &Snapshot, step: &HashStep, hash: &str) -> Result<(), Stop> {
    const KEY: &str = labels::MACHINE_TEMPLATE_HASH;
    match step {
        HashStep::Template(set) => {
            let read = &set.spec.template.metadata.labels;
            let mut all = read.clone();
            all.insert(KEY.to_owned(), hash.to_owned());
            let patch = GuardedPatch::new(&set.uid)
                .test_generation(set.generation)
                .add(&["spec", "template", "metadata", "labels"], json!(all));
            set_write(runtime, set, &charged(s, set)).patch::<MachineSetFacts>(patch).await
        }
        HashStep::Machine(machine) => {
            let labels = BTreeMap::from([(KEY.to_owned(), Some(hash.to_owned()))]);
            let step = Relabel { machine: machine.clone(), labels, owner: None, what: "label" };
            relabel(runtime, s, &step).await
        }
        HashStep::Selector(set) => {
            let decides = Key::Set(object_key(&set.namespace, &set.name));
            if runtime.lock().is_charged(&decides) {
                // A POST without an answer may still create a Machine without the label, which the
                // set would lose.
                return Err(Stop::NotNow("a write of the MachineSet has no answer yet"));
            }
            let selector = set.spec.selector.clone().unwrap_or_default();
            let mut all = selector.match_labels.unwrap_or_default();
            all.insert(KEY.to_owned(), hash.to_owned());
            let patch = GuardedPatch::new(&set.uid)
                .test_generation(set.generation)
                .set_label(set.labels.as_ref(), KEY, hash)
                .add(&["spec", "selector", "matchLabels"], json!(all));
            set_write(runtime, set, &charged(s, set)).patch::<MachineSetFacts>(patch).await
        }
    }
}

async fn patch_set(runtime: &Arc<Runtime>, s: &Snapshot, change: SetPatch) -> Result<(), Stop> {
    let set = &change.set;
    let mut patch = GuardedPatch::new(&set.uid)
        .change_annotations(set.annotations.as_ref(), &change.annotations)
        .change_labels(set.labels.as_ref(), &change.labels);
    if change.replicas.is_some() || change.template.is_some() {
        patch = patch.test_generation(set.generation);
    }
    if let Some(replicas) = change.replicas {
        patch = patch.add(&["spec", "replicas"], Value::from(replicas));
    }
    if let Some(template) = &change.template {
        let changes = synced_changes(&template.spec, &set.spec.template.spec);
        patch = with_changes(patch, &["spec", "template", "spec"], changes);
        patch = match template.min_ready_seconds {
            Some(seconds) => patch.add(&["spec", "minReadySeconds"], Value::from(seconds)),
            None => patch,
        };
        patch = match template.auto_preserve_max {
            Some(most) => patch.add(&["spec", "autoPreserveFailedMachineMax"], Value::from(most)),
            None => patch,
        };
    }
    let charged = charged(s, set);
    let write = set_write(runtime, set, &charged);
    if change.is_lower() {
        write.patch_that_takes_away::<MachineSetFacts>(patch).await?;
    } else if change.is_higher() {
        let patched = Some((set.uid.clone(), set.generation));
        raise(runtime, s, (&set.name, patched), write.patch::<MachineSetFacts>(patch)).await?;
    } else {
        write.patch::<MachineSetFacts>(patch).await?;
    }
    if let Some(replicas) = change.replicas {
        let direction = if set.replicas() < replicas { "up" } else { "down" };
        let message = format!("Scaled {direction} MachineSet {} to {replicas}", set.name);
        tell(runtime, s, EventType::Normal, reasons::SCALING_MACHINE_SET, &message);
    }
    Ok(())
}

/// A patch that removes `spec.rollbackTo`, if the spec still equals the spec that was read.
fn without_rollback(deployment: &MachineDeploymentFacts) -> GuardedPatch {
    GuardedPatch::new(&deployment.uid).test_generation(deployment.generation).remove(&["spec", "rollbackTo"])
}

fn status_patch(deployment: &MachineDeploymentFacts, status: &MachineDeploymentStatus) -> GuardedPatch {
    let status = serde_json::to_value(status).unwrap_or_else(|_| json!({}));
    GuardedPatch::new(&deployment.uid).add(&["status"], status)
}

fn tell(runtime: &Runtime, s: &Snapshot, kind: EventType, reason: &str, message: &str) {
    runtime.recorder.record(&reference(s), kind, reason, message);
}

fn reference(s: &Snapshot) -> ObjectReference {
    let deployment = &s.deployment;
    super::reference::reference("MachineDeployment", &deployment.namespace, &deployment.name, &deployment.uid)
}
