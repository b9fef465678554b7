//! Connects Machines with the work loop. The rules are in `machinist_plan::mcm::machine`.
//!
//! ```text
//! observe    collects the facts of one decision; opens the account
//! act        performs actions
//! status     writes a Machine's status
//! token      the bootstrap token
//! node       the Node and its pods, partly read from the API server directly
//! drain      evicts pods
//! instance   driver calls
//! proof_recorder  proof from the results of driver calls
//! user_data  boot data of the instance
//! volumes    the volumes of the pods on the Node
//! memory     changes of the memory about a Machine
//! ```

use super::seen::Seen;
use jiff::Timestamp;
use machinist_core::Reason;
use machinist_driver::Check;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use machinist_instance::Boot;
use machinist_kube::ObjectKey;
use machinist_plan::mcm::facts::MachineFacts;
use machinist_plan::mcm::machine::{Action, Snapshot};
use machinist_plan::mcm::{McmReason, Plan, Why};
use machinist_runtime::{Fed, Kind, Observed, Stop, WhyRecord};

use super::contract::{Mcm, Runtime, World, is_about_turns, may_await_turn};
use super::key::Key;
use super::options::Tools;
use super::reference::machine_reference;

mod act;
mod drain;
mod instance;
mod memory;
mod node;
mod observe;
mod proof_recorder;
mod status;
mod token;
mod user_data;
mod volumes;

pub(super) use node::look_for;
pub(super) use observe::{ClassInputs, class_error, has_better_node, identity, node_of, other_nodes};
pub(super) use status::deadline_patch;
pub(super) use token::{secret_key, token};

/// The kind Machine in the work loop.
pub(crate) struct Machines;

impl Kind<Mcm> for Machines {
    const EXPLAINS: Option<&'static str> = Some(<MachineFacts as Fed<Mcm>>::RESOURCE);

    type Id = ObjectKey;
    type Snapshot = Snapshot;
    type Action = Action;

    fn ids(seen: &Seen, _: &Tools) -> Vec<ObjectKey> {
        seen.machines.keys().cloned().collect()
    }
    fn is_decided(tools: &Tools) -> bool {
        tools.machine.is_some()
    }

    /// The label `force-deletion` works without the cluster of the Nodes.
    fn goes_on_without_target(seen: &Seen, id: &ObjectKey) -> bool {
        let machine = seen.machines.get(id).map(|entry| &entry.facts);
        machine.is_some_and(|machine| machine.deleting_since.is_some() && machine.wants_force_deletion())
    }

    fn check_cloud(tools: &Tools) -> Option<Check> {
        // The check of one of several clouds says nothing about the others.
        tools.machine.as_ref()?.providers.only()?.check()
    }

    /// For a Machine whose owner does not exist, returns the reason of the decision about the
    /// owner. For a Machine that waits for its replacement, returns the reason of the decision
    /// about replacements.
    fn why<'w>(
        world: &'w World,
        id: &ObjectKey,
        record: &'w WhyRecord<McmReason>,
        now: Timestamp,
    ) -> &'w Why {
        let turn = || {
            let machine = world.seen.machines.get(id)?;
            let turn = world.passes.whys.get(&world.seen.replacement_key(&machine.facts))?;
            is_about_turns(&turn.why).then_some(&turn.why)
        };
        let lost = || {
            let owner = &world.passes.whys.get(&Key::Owner(id.clone()))?.why;
            matches!(owner.reason, Reason::Contract(McmReason::OwnerUnknown { .. })).then_some(owner)
        };
        let turn = || may_await_turn(&record.why, now).then(turn).flatten();
        lost().or_else(turn).unwrap_or(&record.why)
    }

    fn observe(runtime: &Runtime, world: &World, id: &ObjectKey) -> Observed<Snapshot> {
        match world.seen.machines.get(id) {
            // The read of the content wakes the Machines of the class.
            Some(machine)
                if observe::ClassInputs::of(world, &machine.facts)
                    .is_some_and(|inputs| inputs.lacks_content()) =>
            {
                Observed::NotYet
            }
            Some(machine) => Observed::Ready(observe::snapshot(runtime, world, machine.facts.clone())),
            None => Observed::Gone,
        }
    }

    fn plan(tools: &Tools, snapshot: &Snapshot) -> Plan<Action> {
        (tools.planners.machine)(snapshot)
    }

    /// The decision about replacements reads that an instance can never join.
    fn publish(runtime: &Runtime, s: &Snapshot, _: &Why) {
        let boot = s.answers.boot.as_deref().and_then(|answered| answered.answer.as_ref().ok());
        if matches!(boot, Some(Boot::Trouble(trouble)) if trouble.is_final) {
            let key = runtime.lock().seen.replacement_key(&s.machine);
            runtime.queue.wake(key);
        }
    }

    async fn act(runtime: &Arc<Runtime>, s: &Snapshot, action: Action) -> Result<(), Stop> {
        act::perform(runtime, s, action).await
    }

    fn is_independent(action: &Action) -> bool {
        matches!(action, Action::Drain(_) | Action::DeleteAttachment(_))
    }

    fn reference(s: &Snapshot) -> Option<ObjectReference> {
        Some(machine_reference(&s.machine))
    }
}
