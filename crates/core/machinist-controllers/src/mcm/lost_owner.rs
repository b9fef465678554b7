//! Connects Machines whose MachineSet is unknown with the work loop. The rules are in
//! `machinist_plan::mcm::lost_owner`.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Api;
use kube::api::ListParams;
use machinist_api::MachineSet;
use machinist_kube::recorder::EventType;
use machinist_kube::{Cluster, ObjectKey, list_once};
use machinist_plan::mcm::Plan;
use machinist_plan::mcm::lost_owner::{Action, OwnerRead, Snapshot};
use machinist_runtime::{Kind, Observed, Stop};

use super::contract::{Mcm, Runtime, World};
use super::key::Key;
use super::options::Tools;
use super::reference::machine_reference;
use super::seen::Seen;

/// Reason of the Event about a Machine whose owner does not exist.
const OWNER_MISSING: &str = "OwnerMissing";

/// Machines whose MachineSet is unknown.
pub(crate) struct LostOwners;

impl Kind<Mcm> for LostOwners {
    type Id = ObjectKey;
    type Snapshot = Snapshot;
    type Action = Action;

    fn ids(seen: &Seen, _: &Tools) -> Vec<ObjectKey> {
        let lost = seen.machines.iter().filter(|(_, machine)| seen.unknown_owner(&machine.facts).is_some());
        lost.map(|(key, _)| key.clone()).collect()
    }
    fn is_decided(tools: &Tools) -> bool {
        tools.machine.is_some()
    }
    fn depends_on(cluster: &Cluster) -> bool {
        *cluster == Cluster::Control
    }

    fn observe(_: &Runtime, world: &World, id: &ObjectKey) -> Observed<Snapshot> {
        match snapshot(&world.seen, id) {
            Some(snapshot) => Observed::Ready(snapshot),
            None => Observed::Gone,
        }
    }

    fn plan(tools: &Tools, snapshot: &Snapshot) -> Plan<Action> {
        (tools.planners.lost_owner)(snapshot)
    }

    async fn act(runtime: &Arc<Runtime>, s: &Snapshot, action: Action) -> Result<(), Stop> {
        match action {
            Action::LookForOwner => look_for_owner(runtime, s).await,
            Action::Warn(message) => {
                runtime.recorder.record(
                    &machine_reference(&s.machine),
                    EventType::Warning,
                    OWNER_MISSING,
                    &message,
                );
                tracing::warn!(
                    machine = s.machine.name,
                    set = s.set,
                    "The owner of a Machine does not exist"
                );
                remember(runtime, s, |look| look.is_emitted = true);
                Ok(())
            }
        }
    }

    fn reference(s: &Snapshot) -> Option<ObjectReference> {
        Some(machine_reference(&s.machine))
    }
}

/// Returns the facts about a Machine whose set is unknown; absent for other Machines.
pub(super) fn snapshot(seen: &Seen, id: &ObjectKey) -> Option<Snapshot> {
    let machine = &seen.machines.get(id)?.facts;
    let set = seen.unknown_owner(machine).filter(|_| machine.deleting_since.is_none())?;
    let owner = machine.owner.as_ref()?;
    Some(Snapshot {
        set: set.to_owned(),
        set_uid: owner.uid.clone(),
        look: seen.memory.owner_looks.get(&machine.uid).cloned(),
        machine: machine.clone(),
    })
}

/// Lists the sets of that name with quorum. The machine controller may list sets, but not get them.
async fn look_for_owner(runtime: &Arc<Runtime>, s: &Snapshot) -> Result<(), Stop> {
    let started = runtime.now();
    let api: Api<MachineSet> = Api::namespaced(runtime.clients.control.clone(), &s.machine.namespace);
    let params = ListParams::default().fields(&format!("metadata.name={}", s.set));
    let uid = |set: MachineSet| set.metadata.uid.unwrap_or_default();
    let list = list_once(api, &params, uid).await.map_err(|error| Stop::Unanswered(error.to_string()))?;
    let mut unreadable = list.unreadable.iter().map(|(_, set)| &set.uid);
    let exists =
        list.items.iter().any(|(_, set)| set.uid == s.set_uid) || unreadable.any(|uid| *uid == s.set_uid);
    let look = OwnerRead { set_uid: s.set_uid.clone(), started, exists, is_emitted: false };
    remember(runtime, s, |known| *known = look);
    Ok(())
}

fn remember(runtime: &Runtime, s: &Snapshot, change: impl FnOnce(&mut OwnerRead)) {
    let mut world = runtime.lock();
    if world.seen.has_machine(&s.machine.uid) {
        let nothing =
            || OwnerRead { set_uid: String::new(), started: runtime.now(), exists: false, is_emitted: false };
        change(world.seen.memory.owner_looks.entry(s.machine.uid.clone()).or_insert_with(nothing));
    }
    drop(world);
    runtime.queue.wake(Key::Owner(ObjectKey::new(&s.machine.namespace, &s.machine.name)));
}
