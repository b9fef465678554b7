//! Connects the list of the account's instances with the work loop. The rules are in
//! `machinist_plan::ccm::account`.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use machinist_core::Answered;
use machinist_instance::{Error, Instance, RecordedId};
use machinist_plan::ccm::account::{Action, Snapshot, plan};
use machinist_plan::ccm::facts::CloudNodeFacts;
use machinist_plan::ccm::{Plan, Why};
use machinist_runtime::{Account, Kind, Observed, Sightings, Stop};

use super::contract::{Ccm, Runtime, World};
use super::events::{reference_of_program, tell};
use super::key::Key;
use super::memory::{self, next_failure};
use super::options::Tools;
use super::seen::{BALANCED, BY_ID, Seen, YES};
use super::{account_proof, cloud};

/// The list of the account in the work loop.
pub(crate) struct AccountLists;

impl Kind<Ccm> for AccountLists {
    type Id = ();
    type Snapshot = Snapshot;
    type Action = Action;

    fn ids(_: &Seen, _: &Tools) -> Vec<()> {
        vec![()]
    }
    /// The list of the account is also the proof that the credential is the right one.
    fn is_decided(tools: &Tools) -> bool {
        tools.options.controllers.any()
    }

    fn observe(runtime: &Runtime, world: &World, (): &()) -> Observed<Snapshot> {
        let opened = cloud::open(runtime, &world.seen).ok();
        let provider = &runtime.tools.options.provider;
        let records_ours = |node: &CloudNodeFacts| {
            node.provider_id().is_some_and(|id| matches!(provider.parse_id(id), RecordedId::Ours(_)))
        };
        let listed = opened.as_ref().and_then(|opened| opened.account.sightings());
        // Without Nodes, the list only checks the credential and the settings.
        let has_nodes = world.seen.nodes.iter().any(|(_, node)| records_ours(&node.facts));
        let checked = world.seen.memory.account.checked.as_ref().filter(|_| !has_nodes);
        let checked =
            checked.filter(|(account, _)| opened.as_ref().is_some_and(|opened| opened.account() == account));
        Observed::Ready(Snapshot {
            now: runtime.now(),
            account: cloud::account(runtime, world, opened.as_ref()),
            listed: listed.map(|listed| listed.ended).max(checked.map(|(_, ended)| *ended)),
            misconfigured: opened.as_ref().and_then(|opened| opened.driver.misconfigured()),
            status_period: runtime.tools.options.nodes.status_period,
            emitted: world.seen.memory.emitted(memory::ACCOUNT),
        })
    }

    fn plan(_: &Tools, snapshot: &Snapshot) -> Plan<Action> {
        plan(snapshot)
    }

    /// Stores the state of the account for `/readyz`, and wakes the keys that waited for its proof.
    fn publish(runtime: &Runtime, snapshot: &Snapshot, _: &Why) {
        wake_proven(runtime, snapshot.account.is_proven());
        let memory = &mut runtime.lock().seen.memory.account;
        // No call can be made, so no answer of the cloud shows it.
        memory.opens_none = snapshot.account.id.is_none();
        memory.note_proof(&snapshot.account);
        memory.misconfigured.clone_from(&snapshot.misconfigured);
    }

    async fn act(runtime: &Arc<Runtime>, _: &Snapshot, action: Action) -> Result<(), Stop> {
        match action {
            Action::List => cloud::list(runtime, Key::Account),
            Action::Probe => cloud::probe(runtime),
            Action::Tell(event) => {
                tell(runtime, &reference_of_program(runtime), memory::ACCOUNT, &event);
                Ok(())
            }
        }
    }

    fn is_rehearsed(runtime: &Runtime, action: &Action) -> bool {
        runtime.tools.options.dry_run
            && match action {
                Action::List | Action::Probe => false,
                Action::Tell(_) => true,
            }
    }

    /// The account is not an object of the API.
    fn reference(_: &Snapshot) -> Option<ObjectReference> {
        None
    }
}

/// Wakes the keys that wait for the proof of the account, if there is one now. Not only a list
/// proves an account: a lookup by id does, and so does the deletion of the last Node with an
/// instance, or the load balancer of a Service.
fn wake_proven(runtime: &Runtime, is_proven: bool) {
    let waiting = {
        let seen = &mut runtime.lock().seen;
        let was_proven = std::mem::replace(&mut seen.memory.account.was_proven, is_proven);
        if was_proven || !is_proven { Vec::new() } else { cloud::waiting(seen) }
    };
    waiting.into_iter().filter(|key| *key != Key::Account).for_each(|key| runtime.wake(key));
}

/// Evaluates the result of a list.
#[derive(Clone)]
pub(super) struct ProofRecorder {
    pub runtime: Arc<Runtime>,
    /// Absent if the account cannot be opened; no call is made in this case.
    pub account: Option<Arc<Account>>,
}

impl ProofRecorder {
    /// Records that the list begins.
    pub(super) fn begins(&self) {
        if let Some(account) = &self.account {
            let now = self.runtime.now();
            self.runtime.lock().seen.memory.proofs.list_begins(account.id(), now);
        }
    }

    /// Stores the answer, and wakes the Nodes that it concerns.
    pub(super) fn ended(&self, seen: &mut Seen, answered: Answered<Vec<Instance>>) {
        let Answered { started, ended, answer, account: asked } = answered;
        if asked.as_ref() != self.account.as_ref().map(|account| account.id()) {
            // The credential changed at that moment: the list belongs to another account.
            self.runtime.wake(Key::Account);
            return;
        }
        if let Some(account) = &self.account {
            seen.memory.proofs.list_ended(account.id(), answer.is_ok(), ended);
        }
        match (answer, &self.account) {
            (Ok(instances), Some(account)) => {
                seen.memory.account.list_failed = None;
                seen.memory.account.listed = Some(ended);
                let before = seen.memory.account.checked.replace((account.id().clone(), ended));
                if before.is_none_or(|(before, _)| before != *account.id()) {
                    self.wake_unrecorded(seen);
                }
                // A server gets its private addresses late, so a Node that registers soon needs a
                // younger list.
                if seen.nodes.iter().next().is_none() {
                    self.runtime.wake(Key::Account);
                    return;
                }
                seen.memory.first_uninitialized = None;
                let before = account.sightings();
                account.share(Sightings::new(started, ended, instances));
                if let Some(now) = account.sightings() {
                    account_proof::take_list(seen, account.id(), &*self.runtime.tools.options.provider, &now);
                    self.wake_changed(seen, before.as_deref(), &now);
                }
            }
            (Ok(_), None) => {}
            (Err(error), _) => self.failed(seen, error, ended),
        }
        self.runtime.wake(Key::Account);
        self.runtime.wake(Key::NodeRemoval);
    }

    fn failed(&self, seen: &mut Seen, error: Error, ended: jiff::Timestamp) {
        let last = seen.memory.account.list_failed.take();
        seen.memory.account.list_failed = Some(next_failure(last.as_ref(), error, ended));
        let waiting = seen.nodes.by_index(super::seen::UNINITIALIZED, super::seen::YES);
        waiting.for_each(|(key, _)| self.runtime.wake(Key::Node(key.name.clone())));
        self.wake_unrecorded(seen);
    }

    /// Wakes the Services that record no account, and may wait for the first list of it.
    fn wake_unrecorded(&self, seen: &Seen) {
        let services = seen.services.by_index(BALANCED, YES);
        let unrecorded = services.filter(|(_, service)| service.facts.recorded_balancer().is_none());
        unrecorded.for_each(|(key, _)| self.runtime.wake(Key::Service(key.clone())));
    }

    /// Wakes the Services whose load balancer lacks targets, the Nodes that wait for the list, and
    /// those whose instance differs from the last list.
    fn wake_changed(&self, seen: &Seen, before: Option<&Sightings>, now: &Sightings) {
        for (key, service) in seen.services.by_index(BALANCED, YES) {
            if seen.memory.balancers.get(&service.uid).is_some_and(|answers| !answers.skipped().is_empty()) {
                self.runtime.wake(Key::Service(key.clone()));
            }
        }
        let provider = &self.runtime.tools.options.provider;
        for (key, node) in seen.nodes.iter() {
            let waits = node.facts.is_uninitialized() || !node.facts.is_ready();
            let is_changed = || {
                let recorded = provider.parse_id(node.facts.provider_id().unwrap_or_default());
                let Some(id) = recorded.ours() else { return false };
                before.and_then(|before| before.of(id)) != now.of(id)
            };
            if waits || is_changed() {
                self.runtime.wake(Key::Node(key.name.clone()));
            }
        }
    }
}

/// Returns the name of another Node that records this instance.
pub(super) fn claimed_by(seen: &Seen, node: &CloudNodeFacts, instance: &Instance) -> Option<String> {
    let same = seen.nodes.by_index(BY_ID, instance.id.as_str());
    same.map(|(key, _)| &key.name).find(|name| **name != node.name).cloned()
}
