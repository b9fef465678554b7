//! Maintains the status of PodDisruptionBudgets, which evictions depend on.
//!
//! A pass runs when a budget or one of its selected Pods changes, and when a granted eviction is
//! overdue. The server itself subtracts granted evictions from the status, so a status is written
//! only if the numbers that it was computed from are unchanged.
//!
//! A budget that cannot be computed allows no disruption and gives the reason: either its spec is
//! invalid, or the replica count of the Pods' controllers is unknown.
//!
//! Deliberately absent: Events, and the condition DisruptionTarget of Pods that were not evicted
//! after all.

pub(crate) mod budget;
mod scale;
mod selector;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use kube::api::PatchParams;
use kube::{Api, Client};
use machinist_kube::{GuardedPatch, KeyQueue, ObjectKey, SharedClock, WriteOutcome};
use serde_json::json;

use crate::facts::pod::PodFacts;
use crate::kinds::Kinds;
use crate::view::{OVERDUE_AFTER, View};
use crate::work::{Controller, Next};
use budget::{BudgetFacts, BudgetSnapshot};
use scale::{ScaleError, Scales};

/// A rollout changes many Pods of one budget at once, so passes are batched. The interval is short
/// because drains wait for the status.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// Interval at which a missing controller is looked up again: no watch reports that it was created,
/// or that its kind is now served.
const UNKNOWN_SCALE_PAUSE: Duration = Duration::from_secs(30);

pub(crate) struct Disruption {
    client: Client,
    clock: SharedClock,
    scales: Scales,
    queue: KeyQueue<ObjectKey>,
    budgets: Arc<View<BudgetFacts>>,
    pods: Arc<View<PodFacts>>,
}

/// Returns a queue that is woken for each changed budget.
pub(crate) fn listen_to_budgets(budgets: &mut View<BudgetFacts>, seed: u64) -> KeyQueue<ObjectKey> {
    let queue = KeyQueue::new(|_| MIN_INTERVAL, seed);
    let on_budget = queue.clone();
    budgets.listen(move |change| on_budget.wake(change.key.clone()));
    queue
}

/// Wakes each budget that selects the old or the new state of a changed Pod.
pub(crate) fn listen_to_pods(
    pods: &mut View<PodFacts>,
    budgets: &Arc<View<BudgetFacts>>,
    queue: &KeyQueue<ObjectKey>,
) {
    let (budgets, queue) = (budgets.clone(), queue.clone());
    pods.listen(move |change| {
        if change.old == change.new {
            return;
        }
        let selects = |budget: &BudgetFacts| {
            change.old.iter().chain(&change.new).any(|pod| budget.selects(&pod.labels))
        };
        let store = budgets.store();
        for (key, entry) in store.by_index(BudgetFacts::BY_NAMESPACE, &change.key.namespace) {
            if selects(&entry.facts) {
                queue.wake(key.clone());
            }
        }
    });
}

impl Controller for Disruption {
    type Key = ObjectKey;

    const NAME: &'static str = "disruption";

    fn queue(&self) -> &KeyQueue<ObjectKey> {
        &self.queue
    }

    async fn pass(&self, key: &ObjectKey) -> Next {
        if self.budgets.lacks_own_write(key) {
            return Next::In(OVERDUE_AFTER);
        }
        let Some(mut snapshot) = self.observe(key) else { return Next::Idle };
        let needs_scale = snapshot.budget.demand.as_ref().is_ok_and(|demand| demand.bound.needs_scale());
        let mut next = Next::Idle;
        if needs_scale {
            let wanted = self.scales.wanted(&key.namespace, &snapshot.pods).await;
            next = wanted.as_ref().err().map_or(Next::Idle, after_unknown_scale);
            snapshot.scale = wanted.map_err(|error| error.to_string());
        }
        let outcome = budget::outcome(&snapshot);
        let next = next.sooner(outcome.look_again_in.map_or(Next::Idle, Next::In));
        match outcome.status {
            Some(status) => next.sooner(self.write(key, &snapshot.budget, &status).await),
            None => next,
        }
    }
}

fn after_unknown_scale(error: &ScaleError) -> Next {
    match error {
        ScaleError::NoController { .. } | ScaleError::NotServed { .. } | ScaleError::NoScale { .. } => {
            Next::In(UNKNOWN_SCALE_PAUSE)
        }
        ScaleError::Read(error) => Next::after_failed_read("read the scale of the pods' controllers", error),
    }
}

impl Disruption {
    pub(crate) fn new(
        client: Client,
        clock: SharedClock,
        kinds: Arc<Kinds>,
        queue: KeyQueue<ObjectKey>,
        budgets: Arc<View<BudgetFacts>>,
        pods: Arc<View<PodFacts>>,
    ) -> Self {
        let scales = Scales::new(client.clone(), kinds);
        Self { client, clock, scales, queue, budgets, pods }
    }

    fn observe(&self, key: &ObjectKey) -> Option<BudgetSnapshot> {
        let budget = self.budgets.store().get(key)?.facts.clone();
        let store = self.pods.store();
        let pods = store
            .by_index(PodFacts::BY_NAMESPACE, &key.namespace)
            .filter(|(_, pod)| budget.selects(&pod.facts.labels))
            .map(|(key, pod)| (key.name.clone(), pod.facts.clone()))
            .collect();
        drop(store);
        Some(BudgetSnapshot { now: self.clock.now(), budget, pods, scale: Ok(0) })
    }

    async fn write(&self, key: &ObjectKey, budget: &BudgetFacts, status: &PodDisruptionBudgetStatus) -> Next {
        let read = &budget.status;
        let disrupted = read.disrupted_pods.as_ref().map(|pods| json!(pods));
        let patch = GuardedPatch::new(&budget.uid)
            .test_generation(budget.generation)
            .test(&["status", "disruptedPods"], disrupted.as_ref())
            .test(&["status", "disruptionsAllowed"], Some(&json!(read.disruptions_allowed)))
            .add(&["status"], json!(status));
        let budgets: Api<PodDisruptionBudget> = Api::namespaced(self.client.clone(), &key.namespace);
        let result = budgets.patch_status(&key.name, &PatchParams::default(), &patch.into_kube()).await;
        if let Ok(written) = &result {
            self.budgets.note_written(key.clone(), written.metadata.resource_version.as_deref());
        }
        Next::after_write("write the status of a disruption budget", WriteOutcome::of(&result))
    }
}
