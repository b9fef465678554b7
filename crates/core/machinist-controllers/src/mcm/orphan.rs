//! Connects the orphans of a cloud account with the work loop. The rules are in
//! `machinist_plan::mcm::orphan`.
//!
//! A key is a class. The first class of an account, in the order of the names, decides about the
//! account; the others have nothing to decide.

mod owners;
mod sighting;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use machinist_core::orphan::Installation;
use machinist_core::reverted::{Fix, is_reverted};
use machinist_core::{Answered, Call, Permit, plus};
use machinist_driver::Provider;
use machinist_instance::{AccountId, Instance, ProviderId, Scope};
use machinist_kube::ObjectKey;
use machinist_kube::recorder::EventType;
use machinist_plan::mcm::Plan;
use machinist_plan::mcm::orphan::{Action, Candidate, LIMIT_PERIOD, OrphanOptions, Snapshot};
use machinist_runtime::{Ask, Kind, Lane, Observed, Opened, Remember, Stop};
use serde_json::Value;
use tokio::time::timeout;

use self::sighting::{may_be_recorded, same_instance, take_list};
use super::contract::{Mcm, Runtime, World};
use super::key::Key;
use super::machine::ClassInputs;
use super::namespace;
use super::options::Tools;
use super::reference::reference;
use super::seen::{BY_UID, Seen};
use super::server_freeze::frozen_by_server;

/// Time limit of the list of instances with the marks of a class. It is a part of the time limit of
/// the call.
const MARKED_WITHIN: Duration = Duration::from_secs(30);

/// Reason of the Events about an instance that is kept, or was deleted.
const ORPHANED: &str = "OrphanedInstance";

/// The orphans of the account of a class.
pub(crate) struct Orphans;

/// A decision about an account, and the account.
pub(crate) struct Observation {
    snapshot: Snapshot,
    opened: Opened,
    class: ObjectKey,
    class_uid: String,
}

impl std::hash::Hash for Observation {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        let Self { snapshot, opened, class, class_uid } = self;
        (snapshot, opened.account.id(), class, class_uid).hash(state);
    }
}

impl Kind<Mcm> for Orphans {
    type Id = ObjectKey;
    type Snapshot = Observation;
    type Action = Action;

    fn ids(seen: &Seen, _: &Tools) -> Vec<ObjectKey> {
        seen.classes.keys().cloned().collect()
    }
    fn is_decided(tools: &Tools) -> bool {
        settings(tools).is_some()
    }

    fn observe(runtime: &Runtime, world: &World, id: &ObjectKey) -> Observed<Observation> {
        let (Some(settings), Some(class)) = (settings(&runtime.tools), world.seen.classes.get(id)) else {
            return Observed::Gone;
        };
        let Some(opened) = open(runtime, world, id) else { return Observed::Gone };
        let account = opened.account.id();
        let mut before = world.seen.classes.keys().take_while(|other| *other != id);
        if before
            .any(|other| open(runtime, world, other).is_some_and(|opened| opened.account.id() == account))
        {
            return Observed::Gone;
        }
        let memory = &world.seen.memory;
        let orphans = memory.orphans.get(account).cloned().unwrap_or_default();
        let is_asked = |id: &&ProviderId| world.asks.of(&subject(id)).is_some();
        let being_deleted: BTreeSet<_> = orphans.instances.keys().filter(is_asked).cloned().collect();
        let snapshot = Snapshot {
            now: runtime.now(),
            settings,
            installation: memory.namespace_uid.clone().map(|namespace_uid| Installation {
                cluster: runtime.tools.machine().cluster.clone(),
                namespace_uid,
            }),
            being_deleted,
            listing_since: world.asks.of(&list_subject(account)).map(|(_, since)| since),
            frozen: frozen_by_server(runtime, world),
            process: runtime.process_facts(Some(&opened)),
            account: orphans,
        };
        Observed::Ready(Observation { snapshot, opened, class: id.clone(), class_uid: class.uid.clone() })
    }

    fn plan(tools: &Tools, observation: &Observation) -> Plan<Action> {
        (tools.planners.orphan)(&observation.snapshot)
    }

    async fn act(runtime: &Arc<Runtime>, seen: &Observation, action: Action) -> Result<(), Stop> {
        match action {
            Action::ReadNamespace => {
                let read = namespace::read(runtime).await;
                note_read(runtime, seen, read)
            }
            Action::List => {
                // The namespace may have been created again, or the right to read it may be new.
                namespace::read(runtime).await?;
                list(runtime, seen)
            }
            Action::ReadOwners => {
                // The namespace may have been created again since it was read.
                let read = match namespace::read(runtime).await {
                    Ok(()) => owners::read(runtime, &seen.opened).await,
                    Err(stop) => Err(stop),
                };
                note_read(runtime, seen, read)
            }
            Action::Delete(permit) => delete(runtime, seen, permit),
            Action::Report { id, kept, message } => {
                tell(runtime, seen, &id, &message);
                let mut world = runtime.lock();
                let account = world.seen.memory.orphans_of(seen.opened.account.id());
                if let Some(one) = account.instances.get_mut(&id) {
                    one.reported = Some(kept);
                }
                Ok(())
            }
        }
    }

    fn reference(seen: &Observation) -> Option<ObjectReference> {
        Some(class_reference(seen))
    }
}

fn settings(tools: &Tools) -> Option<OrphanOptions> {
    tools.machine.as_ref().and_then(|machine| machine.orphans)
}

fn class_reference(seen: &Observation) -> ObjectReference {
    reference("MachineClass", &seen.class.namespace, &seen.class.name, &seen.class_uid)
}

/// Emits an Event about an orphan. Its object is the Machine that the instance was made for,
/// because many Events of one object and one reason become a single Event. An instance without a
/// key has no such Machine; its Event is about the class.
fn tell(runtime: &Runtime, seen: &Observation, id: &ProviderId, message: &str) {
    let instance = seen.snapshot.account.instances.get(id).map(|one| &one.instance);
    let lost = instance.and_then(|instance| {
        let (name, uid) = (instance.name.as_str(), instance.key.as_ref()?.as_str());
        Some(reference("Machine", &seen.class.namespace, name, uid))
    });
    let about = lost.unwrap_or_else(|| class_reference(seen));
    tracing::warn!(account = %seen.opened.account.id(), message, "Orphaned instance");
    runtime.recorder.record(&about, EventType::Warning, ORPHANED, message);
}

/// Opens the account of a class.
fn open(runtime: &Runtime, world: &World, class: &ObjectKey) -> Option<Opened> {
    let inputs = ClassInputs::of_class(world, class)?;
    if inputs.lacks_content() {
        return None;
    }
    // A Secret is sent only to the cloud that its class names.
    let named = inputs.class.provider.as_deref().unwrap_or_default();
    let provider = runtime.tools.machine().providers.serving(named)?;
    let place = provider.place(&inputs.class.provider_spec).ok()?;
    inputs.open(runtime, provider, Some(&place))?.ok()
}

/// The identity of calls about one orphan.
fn subject(id: &ProviderId) -> String {
    format!("orphan {id}")
}

/// The identity of the list of an account.
fn list_subject(account: &AccountId) -> String {
    format!("orphans of {account}")
}

/// Remembers whether a read had an answer, and decides again.
fn note_read(runtime: &Runtime, seen: &Observation, read: Result<(), Stop>) -> Result<(), Stop> {
    let failed = read.is_err().then(|| runtime.now());
    runtime.lock().seen.memory.orphans_of(seen.opened.account.id()).read_failed = failed;
    runtime.queue.wake(Key::Orphans(seen.class.clone()));
    read
}

/// Lists the instances of this installation, and those that Go made for its classes.
fn list(runtime: &Arc<Runtime>, seen: &Observation) -> Result<(), Stop> {
    let account = seen.opened.account.id().clone();
    let provider = seen.opened.provider.clone();
    let scope = Scope::Ours(runtime.tools.machine().cluster.clone());
    let remember: Remember<Mcm, Vec<Instance>> = {
        let account = account.clone();
        Box::new(move |seen, answered| take_list(seen, &account, &*provider, answered))
    };
    let driver = seen.opened.driver.clone();
    let provider_specs = provider_specs(runtime, &account);
    let ask = Ask {
        subject: list_subject(&account),
        key: Key::Orphans(seen.class.clone()),
        call: Call::LIST,
        account: seen.opened.account.clone(),
        bound: seen.opened.promises().call_bound,
        begins_by: None,
        still_wanted: Box::new(|_| true),
        remember,
    };
    runtime.ask_in(Lane::Idle, ask, async move {
        let mut found = driver.instances().list(&scope).await?;
        // Nothing is done with the marked ones but to report them, so the collection of our own
        // does not wait for them.
        match timeout(MARKED_WITHIN, driver.instances().list_marked(&provider_specs)).await {
            Ok(Ok(marked)) => {
                let known: BTreeSet<_> = found.iter().map(|instance| instance.id.clone()).collect();
                found.extend(marked.into_iter().filter(|instance| !known.contains(&instance.id)));
            }
            Ok(Err(error)) => tracing::warn!(%error, "Cannot list the instances of Go MCM"),
            Err(_) => tracing::warn!("No list of the instances of Go MCM within {MARKED_WITHIN:?}"),
        }
        Ok(found)
    })
}

/// The specs of all classes of an account.
fn provider_specs(runtime: &Runtime, account: &AccountId) -> Vec<Value> {
    let world = runtime.lock();
    let is_of_account = |class: &&ObjectKey| {
        open(runtime, &world, class).is_some_and(|opened| opened.account.id() == account)
    };
    let classes = world.seen.classes.keys().filter(is_of_account);
    let classes = classes.filter_map(|class| world.seen.classes.get(class));
    classes.map(|class| (*class.facts.provider_spec).clone()).collect()
}

/// Deletes an orphan, with a permit.
fn delete(runtime: &Arc<Runtime>, seen: &Observation, permit: Permit) -> Result<(), Stop> {
    let Some(id) = permit.which().id.clone() else { return Err(Stop::refused("the orphan has no id")) };
    let account = seen.opened.account.id().clone();
    let still_wanted = {
        let (account, id, key) = (account.clone(), id.clone(), permit.owner().clone());
        let (runtime, provider) = (runtime.clone(), seen.opened.provider.clone());
        Box::new(move |seen: &mut Seen| {
            let one = seen.memory.orphans.get(&account).and_then(|orphans| orphans.instances.get(&id));
            if one.is_none_or(|one| has_owner(seen, &*provider, one, key.as_str())) {
                return false;
            }
            // A deletion counts when it begins: its answer may be lost.
            let (now, orphans) = (runtime.now(), seen.memory.orphans_of(&account));
            orphans.deletions.retain(|at| now < plus(*at, LIMIT_PERIOD));
            orphans.deletions.push(now);
            if let Some(one) = orphans.instances.get_mut(&id) {
                one.deleted = Some((now, None));
            }
            true
        })
    };
    let remember: Remember<Mcm, ()> = {
        let id = id.clone();
        Box::new(move |seen, answered: Answered<()>| {
            let one = seen.memory.orphans_of(&account).instances.get_mut(&id);
            if let Some(one) = one {
                one.deleted = Some((answered.started, answered.answer.err()));
            }
        })
    };
    tell(runtime, seen, &id, &format!("Deleting instance {id}, which has no Machine: {permit}"));
    let ask = Ask {
        subject: subject(&id),
        key: Key::Orphans(seen.class.clone()),
        call: Call::DELETE,
        account: seen.opened.account.clone(),
        bound: seen.opened.promises().call_bound,
        begins_by: Some(permit.valid_until()),
        still_wanted,
        remember,
    };
    let driver = seen.opened.driver.clone();
    #[expect(clippy::disallowed_methods, reason = "a permit becomes a deletion")]
    let call = async move { driver.instances().delete(permit.which(), permit.owner()).await };
    runtime.ask_in(Lane::Deletion, ask, call)
}

/// Whether the stores show an owner of an orphan, which appeared after the lists.
fn has_owner(seen: &Seen, provider: &dyn Provider, one: &Candidate, key: &str) -> bool {
    let id = &one.instance.id;
    let by_key = || seen.machines.by_index(BY_UID, key).next().is_some();
    let named = ObjectKey::cluster_scoped(one.instance.name.as_str());
    let may_be = |of_node: Option<&str>| same_instance(provider, of_node, id) != Some(false);
    let by_id = || seen.nodes_with_id_like(id.as_str()).any(|(_, node)| may_be(node.facts.provider_id()));
    let by_node = || seen.nodes.get(&named).is_some() || by_id();
    let is_of_node = || by_node() && !is_reverted(Fix::NodesKeepInstances);
    (!one.is_second && by_key()) || may_be_recorded(seen, provider, id) || is_of_node()
}
