//! Connects MachineClasses and their Secrets with the work loop. The rules are in
//! `machinist_plan::mcm::machine_class`.

use std::sync::Arc;

use super::contract::{Mcm, Runtime, World, Write};
use super::key::Key;
use super::machine::class_error;
use super::options::Tools;
use super::reference::reference;
use super::seen::{BY_CLASS, BY_SECRET, SecretEntry, Seen, unknown};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use machinist_api::constants::{finalizers, reasons};
use machinist_core::Reason;
use machinist_kube::recorder::EventType;
use machinist_kube::{Cluster, GuardedPatch, ObjectKey, Store};
use machinist_plan::mcm::facts::ClassFacts;
use machinist_plan::mcm::machine_class::{
    Action, Checked, ClassSnapshot, SecretSnapshot, Users, keeps_class,
};
use machinist_plan::mcm::{McmReason, Plan, Why};
use machinist_runtime::{Fed, Kind, Observed, Stop, WhyRecord, refresh};

/// The kind MachineClass in the work loop.
pub(crate) struct Classes;

impl Kind<Mcm> for Classes {
    const EXPLAINS: Option<&'static str> = Some(<ClassFacts as Fed<Mcm>>::RESOURCE);

    type Id = ObjectKey;
    type Snapshot = ClassSnapshot;
    type Action = Action;

    fn ids(seen: &Seen, _: &Tools) -> Vec<ObjectKey> {
        seen.classes.keys().cloned().collect()
    }
    fn is_decided(tools: &Tools) -> bool {
        tools.machine.is_some()
    }
    fn depends_on(cluster: &Cluster) -> bool {
        *cluster == Cluster::Control
    }

    /// The class whose key decides about the orphans of its account shows them.
    fn why<'w>(world: &'w World, id: &ObjectKey, record: &'w WhyRecord<McmReason>, _: Timestamp) -> &'w Why {
        let orphans = world.passes.whys.get(&Key::Orphans(id.clone())).map(|record| &record.why);
        let orphans = orphans.filter(|orphans| orphans.reason != Reason::Settled);
        orphans.filter(|_| !keeps_class(&record.why.reason)).unwrap_or(&record.why)
    }

    fn observe(runtime: &Runtime, world: &World, id: &ObjectKey) -> Observed<ClassSnapshot> {
        let Some(class) = world.seen.classes.get(id) else { return Observed::Gone };
        let here = |(key, entry): &(
            &ObjectKey,
            &machinist_kube::Entry<machinist_plan::mcm::facts::MachineFacts>,
        )| {
            key.namespace == id.namespace && entry.facts.spec.class.kind() == "MachineClass"
        };
        let machines =
            world.seen.machines.by_index(BY_CLASS, &id.name).filter(here).map(|(key, _)| &key.name);
        let unreadable = unreadable_in(&world.seen.machines, &id.namespace);
        let users = users(world, &Key::Class(id.clone()), machines, unreadable);
        let checked = checked(runtime, &class.facts);
        Observed::Ready(ClassSnapshot { class: class.facts.clone(), users, checked })
    }

    fn plan(tools: &Tools, snapshot: &ClassSnapshot) -> Plan<Action> {
        (tools.planners.class)(snapshot)
    }

    async fn act(runtime: &Arc<Runtime>, s: &ClassSnapshot, action: Action) -> Result<(), Stop> {
        let class = &s.class;
        let key = ObjectKey::new(&class.namespace, &class.name);
        let patch = match action {
            Action::AddFinalizer => GuardedPatch::new(&class.uid)
                .add_finalizer(class.finalizers.as_deref(), finalizers::MACHINE_CONTROLLER_MANAGER),
            Action::RemoveFinalizer => GuardedPatch::new(&class.uid)
                .remove_finalizer(class.finalizers.as_deref(), finalizers::MACHINE_CONTROLLER_MANAGER),
            Action::Warn(message) => return warn(runtime, Self::reference(s), &message),
            Action::ReadContent => unreachable!("only a Secret has content"),
        };
        let charged = [Key::Class(key.clone())];
        Write { runtime, charged: &charged, key }.patch::<ClassFacts>(patch).await
    }

    fn reference(s: &ClassSnapshot) -> Option<ObjectReference> {
        Some(reference("MachineClass", &s.class.namespace, &s.class.name, &s.class.uid))
    }
}

/// Secrets of the control cluster in the work loop.
pub(crate) struct Secrets;

impl Kind<Mcm> for Secrets {
    type Id = ObjectKey;
    type Snapshot = SecretSnapshot;
    type Action = Action;

    fn ids(seen: &Seen, _: &Tools) -> Vec<ObjectKey> {
        seen.secrets.keys().cloned().collect()
    }
    fn is_decided(tools: &Tools) -> bool {
        tools.machine.is_some()
    }
    fn depends_on(cluster: &Cluster) -> bool {
        *cluster == Cluster::Control
    }

    fn observe(_: &Runtime, world: &World, id: &ObjectKey) -> Observed<SecretSnapshot> {
        let Some(secret) = world.seen.secrets.get(id) else { return Observed::Gone };
        let name = id.to_string();
        let classes = world.seen.classes.by_index(BY_SECRET, &name).map(|(key, _)| &key.name);
        let unreadable = unreadable_in(&world.seen.classes, &id.namespace);
        let users = users(world, &Key::Secret(id.clone()), classes, unreadable);
        let has_content = secret.facts.has_content();
        Observed::Ready(SecretSnapshot { secret: secret.facts.facts.clone(), users, has_content })
    }

    fn plan(tools: &Tools, snapshot: &SecretSnapshot) -> Plan<Action> {
        (tools.planners.secret)(snapshot)
    }

    /// No other Secret of the namespace concerns this process.
    fn publish(runtime: &Runtime, s: &SecretSnapshot, _: &Why) {
        if s.users.first.is_none() && s.users.unreadable.is_none() {
            let key = ObjectKey::new(&s.secret.namespace, &s.secret.name);
            let world = runtime.lock();
            world.seen.secrets.get(&key).iter().for_each(|secret| secret.facts.forget_content());
        }
    }

    async fn act(runtime: &Arc<Runtime>, s: &SecretSnapshot, action: Action) -> Result<(), Stop> {
        let secret = &s.secret;
        let key = ObjectKey::new(&secret.namespace, &secret.name);
        let patch = GuardedPatch::new(&secret.uid);
        let patch = match action {
            Action::AddFinalizer => patch.add_finalizer(secret.finalizers.as_deref(), finalizers::SECRET),
            Action::RemoveFinalizer => {
                patch.remove_finalizer(secret.finalizers.as_deref(), finalizers::SECRET)
            }
            Action::Warn(message) => return warn(runtime, Self::reference(s), &message),
            Action::ReadContent => return read_content(runtime, &key).await,
        };
        let charged = [Key::Secret(key.clone())];
        Write { runtime, charged: &charged, key }.patch::<SecretEntry>(patch).await
    }

    fn reference(s: &SecretSnapshot) -> Option<ObjectReference> {
        let reference = reference("Secret", &s.secret.namespace, &s.secret.name, &s.secret.uid);
        Some(ObjectReference { api_version: Some("v1".to_owned()), ..reference })
    }
}

/// Lets the provider of a class check it.
fn checked(runtime: &Runtime, class: &ClassFacts) -> Checked {
    let serving = runtime.tools.machine().providers.serving(class.provider.as_deref().unwrap_or_default());
    let without_effect = serving.map(|provider| provider.fields_without_effect(&class.provider_spec));
    Checked { error: class_error(runtime, class), without_effect: without_effect.unwrap_or_default() }
}

/// Reads the content of a Secret, and wakes the Machines that waited for it.
async fn read_content(runtime: &Arc<Runtime>, key: &ObjectKey) -> Result<(), Stop> {
    let read = refresh::<Mcm, SecretEntry>(runtime, key).await;
    let Some(read) = read.map_err(|error| Stop::Unanswered(error.to_string()))? else { return Ok(()) };
    let waiting: Vec<Key> = {
        let world = runtime.lock();
        // The store keeps its entry if the version is the same.
        let kept = world.seen.secrets.get(key).filter(|kept| kept.resource_version == read.resource_version);
        kept.iter().for_each(|kept| kept.facts.take_content(&read.facts));
        let name = key.to_string();
        let classes = world.seen.classes.by_index(BY_SECRET, &name);
        let machines = classes.flat_map(|(class, _)| world.seen.machines.by_index(BY_CLASS, &class.name));
        machines.map(|(machine, _)| Key::Machine(machine.clone())).collect()
    };
    waiting.into_iter().for_each(|key| runtime.wake(key));
    Ok(())
}

/// Returns the users of an object, and whether they were the last reason: then the Event was
/// already emitted.
fn users<'w>(
    world: &World,
    key: &Key,
    names: impl Iterator<Item = &'w String>,
    unreadable: Option<String>,
) -> Users {
    // The keys are sorted, and so are the names within a namespace.
    let mut names = names.peekable();
    let first = names.peek().map(|name| (*name).clone());
    let last = world.passes.whys.get(key).map(|record| &record.why.reason);
    Users {
        count: names.count(),
        first,
        unreadable,
        is_emitted: matches!(last, Some(Reason::Contract(McmReason::InUse { .. }))),
    }
}

/// Returns the name of an [`unknown`] object of a namespace.
fn unreadable_in<F>(store: &Store<F>, namespace: &str) -> Option<String> {
    let mut here = unknown(store).filter(|(key, _)| key.namespace == namespace);
    here.next().map(|(key, _)| key.name.clone())
}

fn warn(runtime: &Runtime, object: Option<ObjectReference>, message: &str) -> Result<(), Stop> {
    if let Some(object) = object {
        runtime.recorder.record(&object, EventType::Warning, reasons::STILL_IN_USE, message);
    }
    Ok(())
}
