//! From watches into the world, and from what changed to the keys that must look again.
//!
//! One rule decides who is woken: whoever decides from what changed. Waking too many costs microseconds, waking too few
//! costs a resync period.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, Secret};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::{Api, Resource};
use machinist_api::{Machine, MachineClass, MachineDeployment, MachineSet};
use machinist_kube::watch::{WatchOptions, run_watch};
use machinist_kube::{Change, Cluster, Delta, Entry, ObjectKey, Store};
use machinist_plan::Version;
use machinist_plan::facts::{
    AttachmentFacts, BudgetFacts, ClassFacts, MachineDeploymentFacts, MachineFacts, MachineSetFacts,
    NodeFacts, PodFacts,
};

use crate::Key;
use crate::memory::Memory;
use crate::reconcile::Shared;
use crate::world::{
    BY_CLASS, BY_OWNER, BY_SECRET, BY_UID, DELETING, NO_OWNER, SecretEntry, TokenEntry, World, YES,
};

/// A kind of object that a process watches: how it becomes facts, where these are kept, and who decides from them.
pub(crate) trait Fed: Send + Sync + Sized + 'static {
    /// The object on the wire.
    type Object: Resource<DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::Serialize
        + serde::de::DeserializeOwned
        + Send
        + Sync
        + 'static;
    /// The plural name: the store's name in barriers and metrics.
    const RESOURCE: &'static str;
    /// Where it lives.
    const CLUSTER: Cluster;

    fn api(shared: &Shared, namespace: &str) -> Api<Self::Object>;
    fn parse(object: &Self::Object) -> Self;
    fn store(world: &World) -> &Store<Self>;
    fn store_mut(world: &mut World) -> &mut Store<Self>;
    fn route(world: &World, change: &Change<Self>, wake: &mut Vec<Key>);
    /// Remembers what an object does not say about itself: since when it has been as it is.
    fn learn(_: &mut Memory, _: &Change<Self>, _: Version, _now: Timestamp) {}
    /// Forgets what was learned about an object that is gone, whoever let it go.
    fn forget(_: &mut Memory, _uid: &str) {}
}

/// Watches one kind for ever.
pub(crate) async fn feed<F: Fed>(shared: Arc<Shared>, api: Api<F::Object>, options: WatchOptions) {
    let sink = |delta: Delta<F>| take_in(&shared, delta);
    let fatal = run_watch(api, options, |object: F::Object| F::parse(&object), sink).await;
    tracing::error!(kind = F::RESOURCE, error = %fatal, cause = %fatal.source, "A watch cannot go on");
}

/// Takes in what was seen, closes the writes that it shows, and wakes whoever decides from it.
pub(crate) fn take_in<F: Fed>(shared: &Shared, delta: Delta<F>) {
    let mut wake = Vec::new();
    // Only the watch shows one version after the other; a list or a read shows what has come of them.
    let version = if matches!(delta, Delta::Upsert(..)) { Version::Next } else { Version::Later };
    {
        let mut world = shared.world.lock();
        let was_synced = F::store(&world).synced();
        let changes = F::store_mut(&mut world).apply(delta);
        let observed = F::store(&world).observed_rv();
        wake.extend(world.barrier.observe(F::CLUSTER, F::RESOURCE, observed, &changes));
        for change in &changes {
            F::route(&world, change, &mut wake);
            F::learn(&mut world.memory, change, version, shared.now());
            if change.new.is_none() {
                F::forget(&mut world.memory, &change.uid);
            }
        }
        if !was_synced && F::store(&world).synced() {
            shared.note_synced(&world);
        }
    }
    for key in wake {
        shared.wake(key);
    }
}

/// Reads one object from the API server itself and takes it in, when a watch has not shown a write in time.
pub(crate) async fn refresh<F: Fed>(
    shared: &Shared,
    api: Api<F::Object>,
    key: &ObjectKey,
) -> Result<Option<Entry<F>>, kube::Error> {
    // Read before the request is sent: when the answer comes, the watch may have shown another object of that name, and that one is
    // not absent.
    let known = F::store(&shared.world.lock()).get(key).map(|entry| entry.uid.clone());
    let Some(object) = api.get_opt(&key.name).await? else {
        if let Some(uid) = known {
            take_in::<F>(shared, Delta::Absent { key: key.clone(), uid });
        }
        return Ok(None);
    };
    let entry = entry_of::<F>(&object);
    take_in::<F>(shared, Delta::Fetched(key.clone(), entry.clone()));
    Ok(Some(entry))
}

/// An object as the store keeps it.
pub(crate) fn entry_of<F: Fed>(object: &F::Object) -> Entry<F> {
    let metadata = object.meta();
    Entry {
        uid: metadata.uid.clone().unwrap_or_default(),
        resource_version: resource_version(metadata.resource_version.as_deref()),
        deleting: metadata.deletion_timestamp.is_some(),
        facts: Arc::new(F::parse(object)),
    }
}

/// A resourceVersion as a number; 0 for what is none.
pub(crate) fn resource_version(text: Option<&str>) -> u64 {
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

impl Fed for MachineFacts {
    type Object = Machine;
    const RESOURCE: &'static str = "machines";
    const CLUSTER: Cluster = Cluster::Control;

    fn parse(object: &Machine) -> Self {
        Self::parse(object)
    }
    fn api(shared: &Shared, namespace: &str) -> Api<Machine> {
        Api::namespaced(shared.control.clone(), namespace)
    }
    fn store(world: &World) -> &Store<Self> {
        &world.machines
    }
    fn store_mut(world: &mut World) -> &mut Store<Self> {
        &mut world.machines
    }

    fn forget(memory: &mut Memory, uid: &str) {
        memory.forget_machine(uid);
    }

    fn route(world: &World, change: &Change<Self>, wake: &mut Vec<Key>) {
        wake.push(Key::Machine(change.key.clone()));
        let owner = |facts: &Arc<Self>| facts.owner.clone();
        if change.old.as_ref().map(owner) != change.new.as_ref().map(owner) {
            // Nothing is decided any more under the key that it had alone; the key is removed.
            wake.push(Key::Replacement(change.uid.clone()));
        }
        for facts in [&change.old, &change.new].into_iter().flatten() {
            let namespace = &facts.namespace;
            wake.push(Key::Class(ObjectKey::new(namespace, facts.spec.class.name())));
            wake.push(world.replacement_key(facts));
            match &facts.owner {
                Some(owner) => wake.extend(set_and_deployment(world, namespace, &owner.name, &owner.uid)),
                None => wake.extend(sets_of(world, namespace)),
            }
        }
    }
}

/// A set that a Machine names as its owner, and that set's deployment: both count Machines.
fn set_and_deployment(world: &World, namespace: &str, name: &str, uid: &str) -> Vec<Key> {
    let mut keys = vec![Key::Set(ObjectKey::new(namespace, name))];
    let set = world.sets.by_index(BY_UID, uid).next();
    let owner = set.and_then(|(_, set)| set.facts.owner.as_ref());
    keys.extend(owner.map(|owner| Key::Deployment(ObjectKey::new(namespace, &owner.name))));
    keys
}

/// Every set of a namespace: a Machine that nobody controls may be adopted by any of them.
fn sets_of(world: &World, namespace: &str) -> Vec<Key> {
    let here = world.sets.iter().filter(|(key, _)| key.namespace == namespace);
    here.map(|(key, _)| Key::Set(key.clone())).collect()
}

impl Fed for MachineSetFacts {
    type Object = MachineSet;
    const RESOURCE: &'static str = "machinesets";
    const CLUSTER: Cluster = Cluster::Control;

    fn parse(object: &MachineSet) -> Self {
        Self::parse(object)
    }
    fn api(shared: &Shared, namespace: &str) -> Api<MachineSet> {
        Api::namespaced(shared.control.clone(), namespace)
    }
    fn store(world: &World) -> &Store<Self> {
        &world.sets
    }
    fn store_mut(world: &mut World) -> &mut Store<Self> {
        &mut world.sets
    }

    fn forget(memory: &mut Memory, uid: &str) {
        memory.forget_owner(uid);
    }

    fn route(world: &World, change: &Change<Self>, wake: &mut Vec<Key>) {
        wake.push(Key::Set(change.key.clone()));
        for facts in [&change.old, &change.new].into_iter().flatten() {
            match &facts.owner {
                Some(owner) => {
                    wake.push(Key::Deployment(ObjectKey::new(&facts.namespace, &owner.name)));
                    wake.push(Key::Replacement(owner.uid.clone()));
                }
                None => {
                    let here = world.deployments.iter().filter(|(key, _)| key.namespace == facts.namespace);
                    wake.extend(here.map(|(key, _)| Key::Deployment(key.clone())));
                }
            }
            // Its own key, too: nothing is decided under it any more when the set has a deployment.
            wake.push(Key::Replacement(facts.uid.clone()));
        }
        let selection = |facts: &Arc<Self>| {
            (facts.owner.clone(), facts.spec.selector.clone(), facts.deleting_since, facts.invalid.is_some())
        };
        if change.old.as_ref().map(selection) != change.new.as_ref().map(selection) {
            // Machines without owners are counted with the set that selects them.
            for machine in machines_without_owner(world, &change.key.namespace) {
                wake.push(Key::Replacement(machine.uid.clone()));
                wake.push(world.replacement_key(&machine));
            }
        }
    }
}

impl Fed for MachineDeploymentFacts {
    type Object = MachineDeployment;
    const RESOURCE: &'static str = "machinedeployments";
    const CLUSTER: Cluster = Cluster::Control;

    fn parse(object: &MachineDeployment) -> Self {
        Self::parse(object)
    }
    fn api(shared: &Shared, namespace: &str) -> Api<MachineDeployment> {
        Api::namespaced(shared.control.clone(), namespace)
    }
    fn store(world: &World) -> &Store<Self> {
        &world.deployments
    }
    fn store_mut(world: &mut World) -> &mut Store<Self> {
        &mut world.deployments
    }

    fn forget(memory: &mut Memory, uid: &str) {
        memory.forget_owner(uid);
    }

    fn route(world: &World, change: &Change<Self>, wake: &mut Vec<Key>) {
        wake.push(Key::Deployment(change.key.clone()));
        // When the freeze of a set is lifted depends on what its deployment wants.
        let frozen =
            world.sets.by_index(BY_OWNER, &change.uid).filter(|(_, set)| set.facts.freeze().is_frozen());
        wake.extend(frozen.map(|(key, _)| Key::Set(key.clone())));
    }
}

impl Fed for ClassFacts {
    type Object = MachineClass;
    const RESOURCE: &'static str = "machineclasses";
    const CLUSTER: Cluster = Cluster::Control;

    fn parse(object: &MachineClass) -> Self {
        Self::parse(object)
    }
    fn api(shared: &Shared, namespace: &str) -> Api<MachineClass> {
        Api::namespaced(shared.control.clone(), namespace)
    }
    fn store(world: &World) -> &Store<Self> {
        &world.classes
    }
    fn store_mut(world: &mut World) -> &mut Store<Self> {
        &mut world.classes
    }

    fn route(world: &World, change: &Change<Self>, wake: &mut Vec<Key>) {
        wake.push(Key::Class(change.key.clone()));
        wake.extend(machines_that_need(world, &change.key));
        for facts in [&change.old, &change.new].into_iter().flatten() {
            let secret = |(namespace, name): &(String, String)| Key::Secret(ObjectKey::new(namespace, name));
            wake.extend(facts.secrets.iter().map(secret));
        }
    }
}

/// The Machines whose next step needs their class: those without an instance, and those whose instance is to go.
fn machines_that_need(world: &World, class: &ObjectKey) -> Vec<Key> {
    let needs = |facts: &MachineFacts| {
        facts.namespace == class.namespace && (facts.provider_id.is_none() || facts.deleting_since.is_some())
    };
    let machines = world.machines.by_index(BY_CLASS, &class.name);
    machines.filter(|(_, entry)| needs(&entry.facts)).map(|(key, _)| Key::Machine(key.clone())).collect()
}

impl Fed for SecretEntry {
    type Object = Secret;
    const RESOURCE: &'static str = "secrets";
    const CLUSTER: Cluster = Cluster::Control;

    fn parse(object: &Secret) -> Self {
        Self::parse(object)
    }
    fn api(shared: &Shared, namespace: &str) -> Api<Secret> {
        Api::namespaced(shared.control.clone(), namespace)
    }
    fn store(world: &World) -> &Store<Self> {
        &world.secrets
    }
    fn store_mut(world: &mut World) -> &mut Store<Self> {
        &mut world.secrets
    }

    fn route(world: &World, change: &Change<Self>, wake: &mut Vec<Key>) {
        wake.push(Key::Secret(change.key.clone()));
        for (class, _) in world.classes.by_index(BY_SECRET, &change.key.to_string()) {
            wake.extend(machines_that_need(world, class));
        }
    }
}

impl Fed for TokenEntry {
    type Object = Secret;
    const RESOURCE: &'static str = "bootstraptokens";
    const CLUSTER: Cluster = Cluster::Target;

    fn parse(object: &Secret) -> Self {
        Self::parse(object)
    }
    fn api(shared: &Shared, namespace: &str) -> Api<Secret> {
        Api::namespaced(shared.target.clone(), namespace)
    }
    fn store(world: &World) -> &Store<Self> {
        &world.tokens
    }
    fn store_mut(world: &mut World) -> &mut Store<Self> {
        &mut world.tokens
    }

    fn route(world: &World, change: &Change<Self>, wake: &mut Vec<Key>) {
        for entry in [&change.old, &change.new].into_iter().flatten() {
            let owner = entry.facts.machine_uid.as_deref();
            let machines = owner.into_iter().flat_map(|uid| world.machines.by_index(BY_UID, uid));
            wake.extend(machines.map(|(key, _)| Key::Machine(key.clone())));
        }
    }
}

impl Fed for NodeFacts {
    type Object = Node;
    const RESOURCE: &'static str = "nodes";
    const CLUSTER: Cluster = Cluster::Target;

    fn parse(object: &Node) -> Self {
        Self::parse(object)
    }
    fn api(shared: &Shared, _: &str) -> Api<Node> {
        Api::all(shared.target.clone())
    }
    fn store(world: &World) -> &Store<Self> {
        &world.nodes
    }
    fn store_mut(world: &mut World) -> &mut Store<Self> {
        &mut world.nodes
    }

    fn learn(memory: &mut Memory, change: &Change<Self>, version: Version, now: Timestamp) {
        let Some(node) = &change.new else { return };
        let seen = memory.nodes.remove(&change.uid).unwrap_or_default().after(node, version, now);
        if !seen.is_empty() {
            memory.nodes.insert(change.uid.clone(), seen);
        }
    }
    fn forget(memory: &mut Memory, uid: &str) {
        memory.nodes.remove(uid);
    }

    fn route(world: &World, change: &Change<Self>, wake: &mut Vec<Key>) {
        wake.extend(world.machines_of_node(&change.key.name).cloned().map(Key::Machine));
    }
}

impl Fed for PodFacts {
    type Object = Pod;
    const RESOURCE: &'static str = "pods";
    const CLUSTER: Cluster = Cluster::Target;

    fn parse(object: &Pod) -> Self {
        Self::parse(object)
    }
    fn api(shared: &Shared, namespace: &str) -> Api<Pod> {
        Api::namespaced(shared.target.clone(), namespace)
    }
    fn store(world: &World) -> &Store<Self> {
        &world.pods
    }
    fn store_mut(world: &mut World) -> &mut Store<Self> {
        &mut world.pods
    }

    fn route(world: &World, change: &Change<Self>, wake: &mut Vec<Key>) {
        for facts in [&change.old, &change.new].into_iter().flatten() {
            wake.extend(deleting_machines_of_node(world, &facts.node));
        }
    }
}

impl Fed for BudgetFacts {
    type Object = PodDisruptionBudget;
    const RESOURCE: &'static str = "poddisruptionbudgets";
    const CLUSTER: Cluster = Cluster::Target;

    fn parse(object: &PodDisruptionBudget) -> Self {
        Self::parse(object)
    }
    fn api(shared: &Shared, namespace: &str) -> Api<PodDisruptionBudget> {
        Api::namespaced(shared.target.clone(), namespace)
    }
    fn store(world: &World) -> &Store<Self> {
        &world.budgets
    }
    fn store_mut(world: &mut World) -> &mut Store<Self> {
        &mut world.budgets
    }

    fn route(world: &World, _: &Change<Self>, wake: &mut Vec<Key>) {
        // Drains are few; which pods a budget covers is the planner's question.
        wake.extend(world.machines.by_index(DELETING, YES).map(|(key, _)| Key::Machine(key.clone())));
    }
}

impl Fed for AttachmentFacts {
    type Object = VolumeAttachment;
    const RESOURCE: &'static str = "volumeattachments";
    const CLUSTER: Cluster = Cluster::Target;

    fn parse(object: &VolumeAttachment) -> Self {
        Self::parse(object)
    }
    fn api(shared: &Shared, _: &str) -> Api<VolumeAttachment> {
        Api::all(shared.target.clone())
    }
    fn store(world: &World) -> &Store<Self> {
        &world.attachments
    }
    fn store_mut(world: &mut World) -> &mut Store<Self> {
        &mut world.attachments
    }

    fn route(world: &World, change: &Change<Self>, wake: &mut Vec<Key>) {
        for facts in [&change.old, &change.new].into_iter().flatten() {
            wake.extend(deleting_machines_of_node(world, &facts.node));
        }
    }
}

/// The Machines that are being deleted and go by a Node's name: only these decide from what is on it.
fn deleting_machines_of_node<'w>(world: &'w World, node: &'w str) -> impl Iterator<Item = Key> + 'w {
    let on_node = world.machines_of_node(node);
    let deleting = on_node.filter(|key| world.machines.get(key).is_some_and(|entry| entry.deleting));
    deleting.cloned().map(Key::Machine)
}

/// The children of an owner, in order.
pub(crate) fn machines_owned_by(world: &World, owner_uid: &str) -> Vec<Arc<MachineFacts>> {
    world.machines.by_index(BY_OWNER, owner_uid).map(|(_, entry)| entry.facts.clone()).collect()
}

/// The Machines of a namespace that nobody controls, in order.
pub(crate) fn machines_without_owner(world: &World, namespace: &str) -> Vec<Arc<MachineFacts>> {
    let free = world.machines.by_index(BY_OWNER, NO_OWNER).filter(|(key, _)| key.namespace == namespace);
    free.map(|(_, entry)| entry.facts.clone()).collect()
}
