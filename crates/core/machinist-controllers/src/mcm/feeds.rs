//! The kinds that the machine API watches, and the keys that a change of each kind wakes.

use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod, Secret};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use std::sync::Arc;

use jiff::Timestamp;
use kube::Api;
use machinist_api::{Machine, MachineClass, MachineDeployment, MachineSet};
use machinist_core::Succession;
use machinist_kube::recorder::EventType;
use machinist_kube::watch::WatchOptions;
use machinist_kube::{Change, Entry, ObjectKey};
use machinist_plan::mcm::facts::{
    AttachmentFacts, BudgetFacts, ClaimFacts, ClassFacts, MachineDeploymentFacts, MachineFacts,
    MachineSetFacts, NodeFacts, PodFacts, TOKEN_NAMESPACE, TOKEN_TYPE, VolumeFacts,
};
use machinist_plan::mcm::orphaned_node::may_be_unmanaged;
use machinist_runtime::{Fed, stored};

use super::adoption;
use super::contract::{Mcm, Runtime};
use super::key::Key;
use super::measure;
use super::orphaned_token;
use super::reference::machine_reference;
use super::seen::{
    BY_CLASS, BY_OWNER, BY_SECRET, BY_UID, DRAINED, HELD, SecretEntry, Seen, TokenEntry, YES,
    differs_from_its_size, machines_without_owner,
};

/// Reason of the Event about a Machine whose finalizer another client removed.
const FINALIZER_LOST: &str = "FinalizerLost";
/// The code in the description of a last operation that says: the cloud has several instances of
/// the Machine.
const SEVERAL_INSTANCES: &str = "OutOfRange";

impl Fed<Mcm> for MachineFacts {
    stored! { Mcm; machines: Machine as "machines", namespaced in control }
    const HAS_DEADLINES: bool = true;

    fn report(runtime: &Runtime, seen: &Seen, change: &Change<Self>) {
        if runtime.tools.machine.is_some() {
            measure::changed(runtime, seen, change);
            report_lost_finalizer(runtime, seen, change);
        }
    }

    fn learn(seen: &mut Seen, change: &Change<Self>, _: Succession, now: Timestamp) {
        adoption::learn(seen, change, |machine| machine.owner.as_ref(), now);
        let was_drained = change.old.as_ref().is_some_and(|machine| machine.may_be_drained());
        if was_drained && change.new.as_ref().is_some_and(|machine| !machine.may_be_drained()) {
            // The evictions of this drain say nothing about the patience of a later one.
            seen.memory.forget_drain(&change.uid);
        }
        match (&change.old, &change.new) {
            (Some(lost), None) if !seen.memory.released.contains(&change.uid) => {
                // A Machine that a list lacks may be lost in a restore of the cluster.
                let saw_deletion = lost.deleting_since.is_some();
                seen.memory.lose_machine(lost, saw_deletion, now);
            }
            (old, Some(new)) if has_several(new) && !old.as_ref().is_some_and(|old| has_several(old)) => {
                seen.memory.suspect_orphans(new, now);
            }
            _ => {}
        }
    }
    fn forget(seen: &mut Seen, uid: &str) {
        seen.memory.forget_machine(uid);
    }

    fn route(seen: &Seen, change: &Change<Self>, wake: &mut Vec<Key>) {
        wake.push(Key::Machine(change.key.clone()));
        let owner = |facts: &Arc<Self>| facts.owner.clone();
        if change.old.as_ref().map(owner) != change.new.as_ref().map(owner) {
            // Decisions are no longer made under the key that the Machine had alone; the pass
            // removes the key.
            wake.push(Key::Replacement(change.uid.clone()));
        }
        if change.old.is_none() && change.new.is_none() {
            // A Machine that cannot be parsed has appeared or is gone. It may use any class, and
            // its set counts it.
            let classes = seen.classes.iter().filter(|(key, _)| key.namespace == change.key.namespace);
            wake.extend(classes.map(|(key, _)| Key::Class(key.clone())));
            for key in sets_of(seen, &change.key.namespace) {
                if let Key::Set(set) = &key
                    && let Some(deployment) = seen.sets.get(set).and_then(|set| set.facts.owner.as_ref())
                {
                    wake.push(Key::Deployment(ObjectKey::new(&set.namespace, &deployment.name)));
                }
                wake.push(key);
            }
        }
        if may_leave_an_orphan(seen, change) {
            let classes = seen.classes.keys().filter(|class| class.namespace == change.key.namespace);
            wake.extend(classes.map(|class| Key::Orphans(class.clone())));
        }
        let node_name = |machine: &Arc<Self>| machine.node_name().to_owned();
        let node = change.new.as_ref().map(node_name);
        if let Some(left) = change.old.as_ref().map(node_name).filter(|left| node.as_ref() != Some(left)) {
            let may_be_unmanaged = |entry: &Entry<NodeFacts>| may_be_unmanaged(&entry.facts);
            let left = ObjectKey::cluster_scoped(&left);
            wake.extend(
                seen.nodes.get(&left).filter(|node| may_be_unmanaged(node)).map(|_| Key::Node(left.name)),
            );
        }
        if let (Some(gone), None) = (&change.old, &change.new) {
            // Nothing else releases its Node if the Node is being deleted.
            let left = seen.nodes.by_index(HELD, YES);
            wake.extend(left.map(|(key, _)| Key::Node(key.name.clone())));
            wake.extend(orphaned_token::left_by(seen, &gone.uid));
            // Copies of the Machine may own the instance now.
            let copies = gone.spec.provider_id().into_iter().flat_map(|id| seen.machines_with_id_like(id));
            wake.extend(copies.map(|(key, _)| Key::Machine(key.clone())));
        }
        if [&change.old, &change.new].into_iter().flatten().any(|facts| seen.unknown_owner(facts).is_some()) {
            wake.push(Key::Owner(change.key.clone()));
        }
        for facts in [&change.old, &change.new].into_iter().flatten() {
            let namespace = &facts.namespace;
            wake.push(Key::Class(ObjectKey::new(namespace, facts.spec.class.name())));
            wake.push(seen.replacement_key(facts));
            match &facts.owner {
                Some(owner) => wake.extend(set_and_deployment(seen, namespace, &owner.name, &owner.uid)),
                None => wake.extend(sets_of(seen, namespace)),
            }
        }
    }
}

/// Whether a change of a Machine shows that its account may have an instance without a Machine.
fn may_leave_an_orphan(seen: &Seen, change: &Change<MachineFacts>) -> bool {
    match (&change.old, &change.new) {
        (Some(_), None) => !seen.memory.released.contains(&change.uid),
        (old, Some(new)) => has_several(new) && !old.as_ref().is_some_and(|old| has_several(old)),
        (None, None) => false,
    }
}

/// Whether the driver has found several instances of the Machine.
fn has_several(machine: &MachineFacts) -> bool {
    let description = machine.status.operation.description.as_deref();
    description.is_some_and(|description| description.contains(SEVERAL_INSTANCES))
}

/// Reports a Machine whose deletion ended without this process, so that its instance may be left.
/// Another client has removed the finalizer, or the cluster was restored from a backup.
fn report_lost_finalizer(runtime: &Runtime, seen: &Seen, change: &Change<MachineFacts>) {
    // Without a finalizer, an object that is being deleted was reported before.
    let is_news = |old: &&Arc<MachineFacts>| old.has_finalizer || old.deleting_since.is_none();
    let Some(old) = change.old.as_ref().filter(is_news) else { return };
    let is_free = change.new.as_ref().is_none_or(|new| !new.has_finalizer && new.deleting_since.is_some());
    let asked_for = seen.memory.answers.get(&change.uid).is_some_and(|answers| answers.ever_ensured);
    let instance = match old.spec.provider_id() {
        Some(id) => format!("instance {id}"),
        None if asked_for => "an instance that was being created".to_owned(),
        None => return,
    };
    if !is_free || seen.memory.released.contains(&change.uid) {
        return;
    }
    let message = format!(
        "Machine {} was removed, but this controller did not remove its finalizer. Its {instance} may still run. \
         Delete the instance in the cloud if it does.",
        old.name
    );
    tracing::warn!(machine = old.name, instance, "A Machine was removed without its finalizer");
    runtime.recorder.record(&machine_reference(old), EventType::Warning, FINALIZER_LOST, &message);
}

/// Returns the keys of the MachineSet that owns a Machine, and of that set's MachineDeployment:
/// both count Machines.
fn set_and_deployment(seen: &Seen, namespace: &str, name: &str, uid: &str) -> Vec<Key> {
    let mut keys = vec![Key::Set(ObjectKey::new(namespace, name))];
    let set = seen.sets.by_index(BY_UID, uid).next();
    let owner = set.and_then(|(_, set)| set.facts.owner.as_ref());
    keys.extend(owner.map(|owner| Key::Deployment(ObjectKey::new(namespace, &owner.name))));
    keys
}

/// Returns the keys of all MachineSets of a namespace: any of them may adopt a Machine without an
/// owner.
fn sets_of(seen: &Seen, namespace: &str) -> Vec<Key> {
    let here = seen.sets.iter().filter(|(key, _)| key.namespace == namespace);
    here.map(|(key, _)| Key::Set(key.clone())).collect()
}

impl Fed<Mcm> for MachineSetFacts {
    stored! { Mcm; sets: MachineSet as "machinesets", namespaced in control }

    fn learn(seen: &mut Seen, change: &Change<Self>, _: Succession, now: Timestamp) {
        adoption::learn(seen, change, |set| set.owner.as_ref(), now);
    }
    fn forget(seen: &mut Seen, uid: &str) {
        seen.memory.forget_owner(uid);
    }

    fn route(seen: &Seen, change: &Change<Self>, wake: &mut Vec<Key>) {
        wake.push(Key::Set(change.key.clone()));
        for facts in [&change.old, &change.new].into_iter().flatten() {
            match &facts.owner {
                Some(owner) => {
                    wake.push(Key::Deployment(ObjectKey::new(&facts.namespace, &owner.name)));
                    wake.push(Key::Replacement(owner.uid.clone()));
                }
                None => {
                    let here = seen.deployments.iter().filter(|(key, _)| key.namespace == facts.namespace);
                    wake.extend(here.map(|(key, _)| Key::Deployment(key.clone())));
                }
            }
            // The set's own key is woken, too: no decisions are made under it once the set has a
            // deployment.
            wake.push(Key::Replacement(facts.uid.clone()));
        }
        let marks = |facts: &Arc<Self>| facts.node_marks(true);
        if change.old.as_ref().map(marks) != change.new.as_ref().map(marks) {
            let owned = seen.machines.by_index(BY_OWNER, &change.uid);
            wake.extend(owned.map(|(key, _)| Key::Machine(key.clone())));
        }
        // The set of these Machines is known now, or no longer exists.
        if change.old.is_none() || change.new.is_none() {
            let owned = seen.machines.by_index(BY_OWNER, &change.uid);
            wake.extend(owned.map(|(key, _)| Key::Owner(key.clone())));
        }
        let selection = |facts: &Arc<Self>| {
            (facts.owner.clone(), facts.spec.selector.clone(), facts.deleting_since, facts.invalid.is_some())
        };
        if change.old.as_ref().map(selection) != change.new.as_ref().map(selection) {
            // Machines without owners are counted with the set that selects them.
            for machine in machines_without_owner(seen, &change.key.namespace) {
                wake.push(Key::Replacement(machine.uid.clone()));
                wake.push(seen.replacement_key(&machine));
            }
        }
    }
}

impl Fed<Mcm> for MachineDeploymentFacts {
    stored! { Mcm; deployments: MachineDeployment as "machinedeployments", namespaced in control }

    fn forget(seen: &mut Seen, uid: &str) {
        seen.memory.forget_owner(uid);
    }

    fn route(seen: &Seen, change: &Change<Self>, wake: &mut Vec<Key>) {
        wake.push(Key::Deployment(change.key.clone()));
        // The begin and the end of a set's freeze depend on the replicas of its deployment, and so
        // does whether the set deletes surplus Machines.
        let replicas = change.new.as_ref().map_or(u32::MAX, |deployment| deployment.replicas());
        let depends = |set: &MachineSetFacts| {
            set.freeze().is_frozen() || replicas < set.replicas() || differs_from_its_size(seen, set)
        };
        let owned = seen.sets.by_index(BY_OWNER, &change.uid).filter(|(_, set)| depends(&set.facts));
        wake.extend(owned.map(|(key, _)| Key::Set(key.clone())));
    }
}

impl Fed<Mcm> for ClassFacts {
    stored! { Mcm; classes: MachineClass as "machineclasses", namespaced in control }

    fn route(seen: &Seen, change: &Change<Self>, wake: &mut Vec<Key>) {
        wake.push(Key::Class(change.key.clone()));
        // Another class may decide about the account now.
        wake.extend(seen.classes.keys().cloned().map(Key::Orphans));
        wake.push(Key::Orphans(change.key.clone()));
        if change.old.is_none() && change.new.is_none() {
            // A class that cannot be parsed has appeared or is gone. It may use any Secret.
            let held = seen.secrets.iter().filter(|(_, secret)| secret.facts.facts.has_finalizer);
            wake.extend(held.map(|(key, _)| Key::Secret(key.clone())));
        }
        wake.extend(machines_that_need(seen, &change.key));
        let capacity = |facts: &Option<Arc<Self>>| facts.as_ref()?.virtual_capacity.clone();
        if capacity(&change.old) != capacity(&change.new) {
            // The Nodes of all Machines follow.
            let machines = seen.machines.by_index(BY_CLASS, &change.key.name);
            let here = machines.filter(|(key, _)| key.namespace == change.key.namespace);
            wake.extend(here.map(|(key, _)| Key::Machine(key.clone())));
        }
        for facts in [&change.old, &change.new].into_iter().flatten() {
            let secret = |(namespace, name): &(String, String)| Key::Secret(ObjectKey::new(namespace, name));
            wake.extend(facts.secrets.iter().map(secret));
        }
    }
}

/// Returns the Machines with a next step that needs their class: those without an instance, and
/// those that are being deleted.
fn machines_that_need(seen: &Seen, class: &ObjectKey) -> Vec<Key> {
    let needs = |facts: &MachineFacts| {
        facts.namespace == class.namespace && (facts.provider_id.is_none() || facts.deleting_since.is_some())
    };
    let machines = seen.machines.by_index(BY_CLASS, &class.name);
    machines.filter(|(_, entry)| needs(&entry.facts)).map(|(key, _)| Key::Machine(key.clone())).collect()
}

impl Fed<Mcm> for SecretEntry {
    stored! { Mcm; secrets: Secret as "secrets", namespaced in control }

    fn route(seen: &Seen, change: &Change<Self>, wake: &mut Vec<Key>) {
        wake.push(Key::Secret(change.key.clone()));
        let had_content = change.old.as_ref().is_none_or(|old| old.has_content());
        let name = change.key.to_string();
        if seen.classes.by_index(BY_SECRET, &name).next().is_some() {
            // Another class may decide about the account now.
            wake.extend(seen.classes.keys().cloned().map(Key::Orphans));
        }
        for (class, _) in seen.classes.by_index(BY_SECRET, &name) {
            if had_content {
                wake.extend(machines_that_need(seen, class));
            } else {
                // Every Machine of the class waited for the content.
                let machines = seen.machines.by_index(BY_CLASS, &class.name);
                wake.extend(machines.map(|(key, _)| Key::Machine(key.clone())));
            }
        }
    }
}

impl Fed<Mcm> for TokenEntry {
    stored! { Mcm; tokens: Secret as "bootstraptokens", namespaced in target }

    fn watched(runtime: &Runtime) -> (Api<Secret>, WatchOptions) {
        let field_selector = Some(format!("type={TOKEN_TYPE}"));
        (Self::api(runtime, TOKEN_NAMESPACE), WatchOptions { field_selector, ..WatchOptions::default() })
    }

    fn route(seen: &Seen, change: &Change<Self>, wake: &mut Vec<Key>) {
        for entry in [&change.old, &change.new].into_iter().flatten() {
            let owner = entry.facts.machine_uid.as_deref();
            let machines = owner.into_iter().flat_map(|uid| seen.machines.by_index(BY_UID, uid));
            wake.extend(machines.map(|(key, _)| Key::Machine(key.clone())));
            if entry.facts.mark.is_some() && owner.is_some_and(|uid| !seen.has_machine(uid)) {
                wake.push(Key::Token(entry.facts.id.clone()));
            }
        }
    }

    fn forget(seen: &mut Seen, uid: &str) {
        seen.memory.token_looks.remove(uid);
    }
}

impl Fed<Mcm> for NodeFacts {
    stored! { Mcm; nodes: Node as "nodes", all in target }
    const HAS_DEADLINES: bool = true;

    fn learn(seen: &mut Seen, change: &Change<Self>, version: Succession, now: Timestamp) {
        let Some(node) = &change.new else { return };
        let known = seen.memory.nodes.remove(&change.uid).unwrap_or_default().after(node, version, now);
        if !known.is_empty() {
            seen.memory.nodes.insert(change.uid.clone(), known);
        }
    }
    fn forget(seen: &mut Seen, uid: &str) {
        seen.memory.nodes.remove(uid);
        seen.memory.machine_looks.remove(uid);
    }

    fn route(seen: &Seen, change: &Change<Self>, wake: &mut Vec<Key>) {
        wake.extend(seen.machines_of_node(&change.key.name).cloned().map(Key::Machine));
        // The label of a Machine may be missing or name another Node.
        let ids = [&change.old, &change.new].into_iter().flatten().filter_map(|node| node.provider_id());
        let by_id = ids.flat_map(|id| seen.machines_with_id_like(id));
        let others = by_id.filter(|(_, machine)| machine.facts.node_name() != change.key.name);
        wake.extend(others.map(|(key, _)| Key::Machine(key.clone())));
        let marks = |node: &Arc<Self>| (node.is_not_managed(), node.has_finalizer);
        let is_news = change.old.as_ref().map(marks) != change.new.as_ref().map(marks)
            && change.new.as_ref().is_some_and(|node| may_be_unmanaged(node))
            && seen.machines_of_node(&change.key.name).next().is_none();
        if is_news || [&change.old, &change.new].into_iter().flatten().any(|node| node.is_held()) {
            wake.push(Key::Node(change.key.name.clone()));
        }
        // The Machine may have another Node of the instance from now on.
        let id = change.new.as_ref().and_then(|node| node.provider_id());
        let of_instance = id.into_iter().flat_map(|id| seen.nodes_with_id_like(id));
        let held = of_instance.filter(|(_, node)| node.facts.is_held());
        wake.extend(held.map(|(key, _)| Key::Node(key.name.clone())));
    }
}

impl Fed<Mcm> for PodFacts {
    stored! { Mcm; pods: Pod as "pods", namespaced in target }
    const IS_DEFERRED: bool = true;
    const HAS_DEADLINES: bool = true;

    fn watched(runtime: &Runtime) -> (Api<Pod>, WatchOptions) {
        (Api::all(runtime.clients.target.clone()), WatchOptions::default())
    }

    fn route(seen: &Seen, change: &Change<Self>, wake: &mut Vec<Key>) {
        for facts in [&change.old, &change.new].into_iter().flatten() {
            wake.extend(drained_machines_of_node(seen, &facts.node));
            wake.extend(machines_awaiting_pod(seen, facts));
        }
    }
}

/// Returns the keys of the Machines that wait for a volume of this pod: the pod may replace an
/// evicted pod.
fn machines_awaiting_pod(seen: &Seen, pod: &PodFacts) -> Vec<Key> {
    if seen.memory.volume_waits.is_empty() {
        return Vec::new();
    }
    let keys = pod.claims.iter().filter_map(|claim| claim.split_once('/'));
    let claims = keys.filter_map(|(namespace, name)| seen.claims.get(&ObjectKey::new(namespace, name)));
    let volumes = claims.filter_map(|claim| claim.facts.volume.as_deref());
    volumes.flat_map(|volume| machines_awaiting(seen, volume)).collect()
}

impl Fed<Mcm> for BudgetFacts {
    stored! { Mcm; budgets: PodDisruptionBudget as "poddisruptionbudgets", namespaced in target }
    const IS_DEFERRED: bool = true;

    fn watched(runtime: &Runtime) -> (Api<PodDisruptionBudget>, WatchOptions) {
        (Api::all(runtime.clients.target.clone()), WatchOptions::default())
    }

    fn route(seen: &Seen, _: &Change<Self>, wake: &mut Vec<Key>) {
        // Drains are rare, and the planner decides which pods a budget covers.
        wake.extend(seen.machines.by_index(DRAINED, YES).map(|(key, _)| Key::Machine(key.clone())));
    }
}

impl Fed<Mcm> for AttachmentFacts {
    stored! { Mcm; attachments: VolumeAttachment as "volumeattachments", all in target }
    const IS_DEFERRED: bool = true;

    fn watched(runtime: &Runtime) -> (Api<VolumeAttachment>, WatchOptions) {
        (Api::all(runtime.clients.target.clone()), WatchOptions::default())
    }

    fn route(seen: &Seen, change: &Change<Self>, wake: &mut Vec<Key>) {
        for facts in [&change.old, &change.new].into_iter().flatten() {
            wake.extend(drained_machines_of_node(seen, &facts.node));
            let volume = facts.volume.as_deref().into_iter();
            wake.extend(volume.flat_map(|volume| machines_awaiting(seen, volume)));
        }
    }
}

impl Fed<Mcm> for ClaimFacts {
    stored! { Mcm; claims: PersistentVolumeClaim as "persistentvolumeclaims", namespaced in target }
    const IS_DEFERRED: bool = true;

    fn watched(runtime: &Runtime) -> (Api<PersistentVolumeClaim>, WatchOptions) {
        (Api::all(runtime.clients.target.clone()), WatchOptions::default())
    }

    fn route(seen: &Seen, change: &Change<Self>, wake: &mut Vec<Key>) {
        let of_claim = [&change.old, &change.new].into_iter().flatten();
        let volumes = of_claim.filter_map(|claim| claim.volume.as_deref());
        wake.extend(volumes.flat_map(|volume| machines_awaiting(seen, volume)));
    }
}

impl Fed<Mcm> for VolumeFacts {
    stored! { Mcm; volumes: PersistentVolume as "persistentvolumes", all in target }
    const IS_DEFERRED: bool = true;

    fn route(seen: &Seen, change: &Change<Self>, wake: &mut Vec<Key>) {
        wake.extend(machines_awaiting(seen, &change.key.name));
    }
}

/// Returns the keys of the Machines that wait in a drain for a volume.
fn machines_awaiting<'w>(seen: &'w Seen, volume: &'w str) -> impl Iterator<Item = Key> + 'w {
    seen.machines_awaiting(volume).cloned().map(Key::Machine)
}

/// Returns the Machines of a Node that are being deleted, are preserved after a failure, or are
/// selected for an update in place: only their decisions depend on the objects on the Node.
fn drained_machines_of_node<'w>(seen: &'w Seen, node: &'w str) -> impl Iterator<Item = Key> + 'w {
    let id = seen.nodes.get(&ObjectKey::cluster_scoped(node)).and_then(|node| node.facts.provider_id());
    let by_id = id.into_iter().flat_map(|id| seen.machines_with_id_like(id)).map(|(key, _)| key);
    let on_node = seen.machines_of_node(node).chain(by_id);
    let drained =
        on_node.filter(|key| seen.machines.get(key).is_some_and(|entry| entry.facts.may_be_drained()));
    drained.cloned().map(Key::Machine)
}
