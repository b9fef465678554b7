//! Proof in the results of driver calls: whether the instances were created in the account.

use crate::mcm::contract::Runtime;
use std::sync::Arc;

use jiff::Timestamp;
use machinist_instance::{Error, Instance, InstanceSpec, KeyScope, Sighting};
use machinist_kube::recorder::EventType;
use machinist_plan::mcm::facts::MachineFacts;
use machinist_plan::mcm::machine::CREATE_FAILED;
use machinist_runtime::{Opened, Sightings};

use super::instance::Asking;
use crate::mcm::account_proof::{InstanceMatch, take_list, take_sighting};
use crate::mcm::key::Key;
use crate::mcm::reference::{machine_reference, object_key};
use machinist_core::MadeIn;

/// Where the calls before another one may have created the instance.
#[derive(Default)]
pub(super) struct Before {
    made_in: MadeIn,
    called_within: Option<KeyScope>,
}

/// Evaluates the result of one call for one Machine.
pub(super) struct ProofRecorder {
    runtime: Arc<Runtime>,
    machine: MachineFacts,
    /// Absent if the account cannot be opened; no call is made in this case.
    opened: Option<Opened>,
}

impl ProofRecorder {
    pub(super) fn of(asking: &Asking<'_>) -> Self {
        let opened = asking.opened.as_ref().ok().cloned();
        Self { runtime: asking.runtime.clone(), machine: asking.machine.clone(), opened }
    }

    /// Records that an instance may be created from now on. Returns where it may have been created
    /// before.
    pub(super) fn may_be_made(&self, spec: &InstanceSpec) -> Before {
        let mut world = self.runtime.lock();
        let Some(answers) = world.seen.memory.answers.get_mut(&self.machine.uid) else {
            return Before::default();
        };
        let before =
            Before { made_in: answers.made_in.clone(), called_within: answers.called_within.clone() };
        if let Some(opened) = &self.opened {
            answers.made_in = before.made_in.and(opened.account());
            answers.called_in.get_or_insert_with(|| opened.place.clone());
            answers.called_within = Some(opened.provider.key_scope(&spec.provider_spec));
        }
        before
    }

    /// Handles the result of `ensure`. After a definite rejection, no instance was created.
    pub(super) fn ensured(&self, answer: &Result<Instance, Error>, before: Before) {
        if let Ok(instance) = answer {
            self.tell_if_ownerless(instance);
        }
        let made_nothing = matches!(answer, Err(error) if !error.may_have_effect());
        let mut world = self.runtime.lock();
        if made_nothing && let Some(answers) = world.seen.memory.answers.get_mut(&self.machine.uid) {
            if before.made_in == MadeIn::Nowhere {
                answers.called_in = None;
            }
            answers.made_in = before.made_in;
            answers.called_within = before.called_within;
        }
    }

    /// Reports an instance if its Machine was deleted during the creation because its finalizer was
    /// removed. No object refers to this instance.
    fn tell_if_ownerless(&self, instance: &Instance) {
        if self.runtime.lock().seen.has_machine(&self.machine.uid) {
            return;
        }
        let (machine, id) = (&self.machine.name, &instance.id);
        tracing::warn!(%machine, instance = %id, "An instance was created for a Machine that was deleted meanwhile");
        let message = format!(
            "Instance {id} was created for Machine {machine}, which was deleted meanwhile because its finalizer was removed. Delete the instance yourself"
        );
        self.runtime.recorder.record(
            &machine_reference(&self.machine),
            EventType::Warning,
            CREATE_FAILED,
            &message,
        );
    }

    /// Handles the result of `find`.
    pub(super) fn found(&self, answer: &Result<Sighting, Error>) {
        let (Ok(sighting), Some(opened)) = (answer, &self.opened) else { return };
        let mut world = self.runtime.lock();
        if world.seen.has_machine(&self.machine.uid) {
            let matching = self.matching(opened);
            take_sighting(&mut world.seen, opened.account(), &matching, &self.machine, sighting);
        }
    }

    fn matching<'a>(&'a self, opened: &'a Opened) -> InstanceMatch<'a> {
        let cluster = &self.runtime.tools.machine().cluster;
        InstanceMatch { provider: &*opened.provider, cluster, place: &opened.place }
    }

    /// Returns whether the account may be listed now.
    pub(super) fn may_list(&self) -> bool {
        let now = self.runtime.now();
        let Some(Opened { account, .. }) = &self.opened else { return true };
        let last = account.sightings().map(|sightings| sightings.ended);
        self.runtime.lock().seen.memory.proofs.may_list(account.id(), last, now)
    }

    /// Records that the list begins, and returns the time.
    pub(super) fn lists(&self) -> Timestamp {
        let now = self.runtime.now();
        if let Some(Opened { account, .. }) = &self.opened {
            self.runtime.lock().seen.memory.proofs.list_begins(account.id(), now);
        }
        now
    }

    /// Handles the result of a list, and wakes all Machines that wait for it.
    pub(super) fn listed(
        &self,
        started: Timestamp,
        answer: Result<Vec<Instance>, Error>,
    ) -> Result<(), Error> {
        let Some(opened) = &self.opened else { return answer.map(drop) };
        let account = &opened.account;
        let now = self.runtime.now();
        let mut world = self.runtime.lock();
        world.seen.memory.proofs.list_ended(account.id(), answer.is_ok(), now);
        let ended = match answer {
            Ok(instances) => {
                take_list(&mut world.seen, account.id(), &self.matching(opened), &instances);
                account.share(Sightings::new(started, now, instances));
                Ok(())
            }
            Err(error) => Err(error),
        };
        let waits =
            |machine: &MachineFacts| machine.deleting_since.is_some() || machine.provider_id.is_none();
        let waiting = world.seen.machines.iter().filter(|(_, machine)| waits(&machine.facts));
        let keys: Vec<Key> =
            waiting.map(|(key, _)| Key::Machine(object_key(&key.namespace, &key.name))).collect();
        drop(world);
        keys.into_iter().for_each(|key| self.runtime.queue.wake(key));
        ended
    }
}
