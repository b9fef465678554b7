//! Computes the status of a PodDisruptionBudget.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use machinist_labels::Selector;

use super::selector;
use crate::facts::pod::PodFacts;

/// A granted eviction is expected to cause a deletion within this time. After that, the Pod counts
/// again.
const EVICTION_SHOWS_WITHIN: SignedDuration = SignedDuration::from_secs(120);

const DISRUPTION_ALLOWED: &str = "DisruptionAllowed";

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BudgetFacts {
    pub(crate) uid: String,
    pub(crate) namespace: String,
    pub(crate) generation: Option<i64>,
    /// The parsed spec; the error says why the spec is invalid.
    pub(crate) demand: Result<Demand, String>,
    pub(crate) status: PodDisruptionBudgetStatus,
}

/// The Pods of a budget, and how many of them must be available.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Demand {
    /// Absent if the budget selects no Pod.
    pub(crate) selector: Option<Selector>,
    pub(crate) bound: Bound,
}

/// The required number of healthy Pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    /// The budget sets no bound, so it allows no disruption.
    Unset,
    MinAvailable(Amount),
    MaxUnavailable(Amount),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Amount {
    Count(i32),
    Percent(i32),
}

impl BudgetFacts {
    /// Index of budgets by namespace.
    pub(crate) const BY_NAMESPACE: &'static str = "namespace";

    pub(crate) fn parse(budget: PodDisruptionBudget) -> Self {
        let spec = budget.spec.unwrap_or_default();
        let bound = match (&spec.max_unavailable, &spec.min_available) {
            (Some(amount), _) => Amount::parse("spec.maxUnavailable", amount).map(Bound::MaxUnavailable),
            (None, Some(amount)) => Amount::parse("spec.minAvailable", amount).map(Bound::MinAvailable),
            (None, None) => Ok(Bound::Unset),
        };
        let selector = selector::parse(spec.selector.as_ref());
        Self {
            uid: budget.metadata.uid.unwrap_or_default(),
            namespace: budget.metadata.namespace.unwrap_or_default(),
            generation: budget.metadata.generation,
            demand: bound.and_then(|bound| selector.map(|selector| Demand { selector, bound })),
            status: budget.status.unwrap_or_default(),
        }
    }

    /// Returns whether the budget selects a Pod with these labels.
    pub(crate) fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        let selector = self.demand.as_ref().ok().and_then(|demand| demand.selector.as_ref());
        selector.is_some_and(|selector| selector.selects(labels))
    }
}

impl Amount {
    fn parse(field: &str, amount: &IntOrString) -> Result<Self, String> {
        match amount {
            IntOrString::Int(count) => Ok(Self::Count(*count)),
            IntOrString::String(text) => {
                let percent = text.strip_suffix('%').and_then(|digits| digits.parse().ok());
                percent.map(Self::Percent).ok_or_else(|| {
                    format!("{field}: {text:?}; expected a number, or a percentage such as \"50%\"")
                })
            }
        }
    }

    /// Returns the amount of `whole`, rounded up.
    fn of(self, whole: i32) -> i32 {
        match self {
            Self::Count(count) => count,
            Self::Percent(percent) => {
                let hundredths = i64::from(percent) * i64::from(whole);
                // The product of two 31-bit factors, divided by 100 and rounded up, exceeds 31 bits
                // only for absurd percentages.
                i32::try_from((hundredths + 99).div_euclid(100)).unwrap_or(i32::MAX)
            }
        }
    }
}

impl Bound {
    /// Returns whether the bound depends on the replicas of the Pods' controllers instead of the
    /// existing Pods.
    pub(crate) fn needs_scale(self) -> bool {
        match self {
            Self::MaxUnavailable(_) | Self::MinAvailable(Amount::Percent(_)) => true,
            Self::MinAvailable(Amount::Count(_)) | Self::Unset => false,
        }
    }

    /// Returns how many Pods are expected, and how many of them must be healthy.
    fn expected_and_desired(self, pods: i32, scale: i32) -> (i32, i32) {
        match self {
            Self::Unset => (0, 0),
            Self::MinAvailable(Amount::Count(count)) => (pods, count),
            Self::MinAvailable(percent) => (scale, percent.of(scale)),
            Self::MaxUnavailable(amount) => (scale, scale.saturating_sub(amount.of(scale)).max(0)),
        }
    }
}

/// The input of one decision.
pub(crate) struct BudgetSnapshot {
    pub(crate) now: Timestamp,
    pub(crate) budget: Arc<BudgetFacts>,
    /// The Pods that the budget selects, by name.
    pub(crate) pods: Vec<(String, Arc<PodFacts>)>,
    /// The total replica count of the Pods' controllers, or why it is unknown. Read only if the
    /// bound needs it.
    pub(crate) scale: Result<i32, String>,
}

/// The new status, and when it changes without an event.
#[derive(Debug, PartialEq)]
pub(crate) struct Outcome {
    /// `None` means that the current status is correct.
    pub(crate) status: Option<PodDisruptionBudgetStatus>,
    pub(crate) look_again_in: Option<Duration>,
}

pub(crate) fn outcome(snapshot: &BudgetSnapshot) -> Outcome {
    let budget = snapshot.budget.as_ref();
    let (status, look_again_in) = match (&budget.demand, &snapshot.scale) {
        (Ok(demand), Ok(scale)) => counted(snapshot, demand.bound, *scale),
        (Err(problem), _) | (Ok(_), Err(problem)) => (refusing(budget, snapshot.now, problem), None),
    };
    Outcome { status: (status != budget.status).then_some(status), look_again_in }
}

fn counted(
    snapshot: &BudgetSnapshot,
    bound: Bound,
    scale: i32,
) -> (PodDisruptionBudgetStatus, Option<Duration>) {
    let BudgetSnapshot { now, budget, pods, .. } = snapshot;
    let (disrupted, look_again_in) = still_disrupted(snapshot);
    let is_healthy = |(name, pod): &&(String, Arc<PodFacts>)| {
        pod.is_ready && !pod.is_deleting && !disrupted.contains_key(name)
    };
    let healthy = count(pods.iter().filter(is_healthy));
    let (expected, desired) = bound.expected_and_desired(count(pods.iter()), scale);
    let allowed = if expected <= 0 { 0 } else { healthy.saturating_sub(desired).max(0) };
    let (verdict, reason) =
        if 0 < allowed { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    let condition = Condition {
        type_: DISRUPTION_ALLOWED.to_owned(),
        status: verdict.to_owned(),
        reason: reason.to_owned(),
        message: String::new(),
        observed_generation: budget.generation,
        last_transition_time: Time(*now),
    };
    let status = PodDisruptionBudgetStatus {
        conditions: Some(with_condition(&budget.status, condition)),
        current_healthy: healthy,
        desired_healthy: desired,
        disrupted_pods: (!disrupted.is_empty()).then_some(disrupted),
        disruptions_allowed: allowed,
        expected_pods: expected,
        observed_generation: budget.generation,
    };
    (status, look_again_in)
}

/// Returns the status of a budget that cannot be computed: it allows no disruption. The observed
/// generation and the numbers stay unchanged.
fn refusing(budget: &BudgetFacts, now: Timestamp, problem: &str) -> PodDisruptionBudgetStatus {
    let condition = Condition {
        type_: DISRUPTION_ALLOWED.to_owned(),
        status: "False".to_owned(),
        reason: "SyncFailed".to_owned(),
        message: problem.to_owned(),
        observed_generation: budget.status.observed_generation,
        last_transition_time: Time(now),
    };
    PodDisruptionBudgetStatus {
        conditions: Some(with_condition(&budget.status, condition)),
        disruptions_allowed: 0,
        ..budget.status.clone()
    }
}

/// Returns the Pods with a granted eviction that has not caused a deletion yet, and when the first
/// of these evictions expires.
fn still_disrupted(snapshot: &BudgetSnapshot) -> (BTreeMap<String, Time>, Option<Duration>) {
    let BudgetSnapshot { now, budget, pods, .. } = snapshot;
    let granted = budget.status.disrupted_pods.iter().flatten();
    let mut disrupted = BTreeMap::new();
    let mut first_end: Option<Timestamp> = None;
    for (name, granted_at) in granted {
        let end = granted_at.0.saturating_add(EVICTION_SHOWS_WITHIN).unwrap_or(Timestamp::MAX);
        let exists = pods.iter().any(|(pod, facts)| pod == name && !facts.is_deleting);
        if exists && *now < end {
            disrupted.insert(name.clone(), granted_at.clone());
            first_end = Some(first_end.map_or(end, |earlier| earlier.min(end)));
        }
    }
    (disrupted, first_end.map(|end| end.duration_since(*now).unsigned_abs()))
}

/// Returns the conditions including this one. The transition time is kept if the status is
/// unchanged.
fn with_condition(status: &PodDisruptionBudgetStatus, mut condition: Condition) -> Vec<Condition> {
    let mut conditions = status.conditions.clone().unwrap_or_default();
    match conditions.iter_mut().find(|old| old.type_ == condition.type_) {
        Some(old) => {
            if old.status == condition.status {
                condition.last_transition_time = old.last_transition_time.clone();
            }
            *old = condition;
        }
        None => conditions.push(condition),
    }
    conditions
}

fn count<T>(pods: impl Iterator<Item = T>) -> i32 {
    i32::try_from(pods.count()).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).expect("a valid second")
    }

    /// Builds a budget with this spec over `healthy` healthy Pods followed by `unhealthy` unhealthy
    /// ones.
    fn world(spec: serde_json::Value, healthy: usize, unhealthy: usize) -> BudgetSnapshot {
        let budget = json!({
            "metadata": { "uid": "b", "namespace": "default", "name": "b", "generation": 3 },
            "spec": spec,
            "status": { "currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0 },
        });
        let pod = |index: usize| {
            let facts =
                PodFacts { uid: format!("u{index}"), is_ready: index < healthy, ..PodFacts::default() };
            (format!("p{index}"), Arc::new(facts))
        };
        BudgetSnapshot {
            now: at(1000),
            budget: Arc::new(BudgetFacts::parse(serde_json::from_value(budget).expect("a budget"))),
            pods: (0..healthy + unhealthy).map(pod).collect(),
            scale: Ok(i32::try_from(healthy + unhealthy).expect("few pods")),
        }
    }

    /// Returns healthy, desired, expected and allowed.
    fn numbers(snapshot: &BudgetSnapshot) -> [i32; 4] {
        let status = outcome(snapshot).status.expect("something changes");
        [status.current_healthy, status.desired_healthy, status.expected_pods, status.disruptions_allowed]
    }

    #[test]
    fn a_min_available_count_refers_to_the_existing_pods() {
        assert_eq!(numbers(&world(json!({ "minAvailable": 2 }), 3, 0)), [3, 2, 3, 1]);
        assert_eq!(numbers(&world(json!({ "minAvailable": 2 }), 1, 2)), [1, 2, 3, 0]);
        assert_eq!(numbers(&world(json!({ "minAvailable": 0 }), 2, 0)), [2, 0, 2, 2]);
        assert_eq!(numbers(&world(json!({ "minAvailable": 1 }), 0, 0)), [0, 1, 0, 0]);
    }

    #[test]
    fn percentages_refer_to_the_desired_replicas_and_round_up() {
        let mut snapshot = world(json!({ "minAvailable": "50%" }), 4, 0);
        snapshot.scale = Ok(7);
        assert_eq!(numbers(&snapshot), [4, 4, 7, 0]);
        snapshot.scale = Ok(5);
        assert_eq!(numbers(&snapshot), [4, 3, 5, 1]);
        let mut snapshot = world(json!({ "maxUnavailable": "30%" }), 4, 0);
        snapshot.scale = Ok(4);
        assert_eq!(numbers(&snapshot), [4, 2, 4, 2], "30% of 4 is 1.2, rounded up to 2");
    }

    #[test]
    fn a_max_unavailable_count_is_subtracted_from_the_replicas() {
        assert_eq!(numbers(&world(json!({ "maxUnavailable": 1 }), 3, 0)), [3, 2, 3, 1]);
        assert_eq!(numbers(&world(json!({ "maxUnavailable": 1 }), 2, 1)), [2, 2, 3, 0]);
        assert_eq!(numbers(&world(json!({ "maxUnavailable": 9 }), 2, 1)), [2, 0, 3, 2]);
        let mut without_controller = world(json!({ "maxUnavailable": 1 }), 3, 0);
        without_controller.scale = Ok(0);
        assert_eq!(numbers(&without_controller), [3, 0, 0, 0]);
    }

    #[test]
    fn a_budget_without_a_bound_allows_nothing() {
        assert_eq!(numbers(&world(json!({}), 3, 0)), [3, 0, 0, 0]);
    }

    #[test]
    fn a_granted_eviction_counts_until_deletion_or_two_minutes() {
        let mut snapshot = world(json!({ "minAvailable": 1 }), 3, 0);
        let mut budget = snapshot.budget.as_ref().clone();
        let granted = [("p0", 950), ("p1", 880), ("gone", 990)];
        budget.status.disrupted_pods =
            Some(granted.iter().map(|(name, seconds)| ((*name).to_owned(), Time(at(*seconds)))).collect());
        snapshot.budget = Arc::new(budget);
        let Outcome { status, look_again_in } = outcome(&snapshot);
        let status = status.expect("something changes");
        let kept: Vec<String> = status.disrupted_pods.unwrap_or_default().into_keys().collect();
        assert_eq!((kept, status.current_healthy), (vec!["p0".to_owned()], 2));
        assert_eq!(look_again_in, Some(Duration::from_secs(70)));
        snapshot.now = at(1070);
        let status = outcome(&snapshot).status.expect("something changes");
        assert_eq!((status.disrupted_pods, status.current_healthy), (None, 3));
    }

    #[test]
    fn a_pod_that_is_being_deleted_is_expected_but_not_healthy() {
        let mut snapshot = world(json!({ "minAvailable": 1 }), 2, 0);
        snapshot.pods[0].1 = Arc::new(PodFacts { is_ready: true, is_deleting: true, ..PodFacts::default() });
        assert_eq!(numbers(&snapshot), [1, 1, 2, 0]);
    }

    #[test]
    fn a_correct_status_is_not_rewritten_and_keeps_its_times() {
        let mut snapshot = world(json!({ "minAvailable": 1 }), 2, 0);
        let status = outcome(&snapshot).status.expect("something changes");
        assert_eq!(status.observed_generation, Some(3));
        let mut budget = snapshot.budget.as_ref().clone();
        budget.status = status;
        snapshot.budget = Arc::new(budget);
        snapshot.now = at(2000);
        assert_eq!(outcome(&snapshot).status, None);
        snapshot.pods.pop();
        let conditions = outcome(&snapshot).status.and_then(|status| status.conditions).expect("a condition");
        assert_eq!(
            (conditions[0].reason.as_str(), &conditions[0].last_transition_time),
            ("InsufficientPods", &Time(at(2000)))
        );
    }

    #[test]
    fn an_invalid_budget_allows_nothing_and_gives_the_reason() {
        let mut snapshot = world(json!({ "minAvailable": "half" }), 2, 0);
        let mut budget = snapshot.budget.as_ref().clone();
        budget.status.disruptions_allowed = 1;
        snapshot.budget = Arc::new(budget);
        let status = outcome(&snapshot).status.expect("something changes");
        let condition =
            status.conditions.and_then(|conditions| conditions.into_iter().next()).expect("a condition");
        assert_eq!((status.disruptions_allowed, condition.reason.as_str()), (0, "SyncFailed"));
        assert!(condition.message.contains("half"), "{}", condition.message);
    }

    #[test]
    fn with_unknown_replicas_a_budget_allows_nothing() {
        let mut snapshot = world(json!({ "maxUnavailable": 1 }), 3, 0);
        let before = outcome(&snapshot).status.expect("something changes");
        let mut budget = snapshot.budget.as_ref().clone();
        budget.status = before.clone();
        budget.generation = Some(2);
        snapshot.budget = Arc::new(budget);
        snapshot.scale = Err("found no controllers".to_owned());
        let status = outcome(&snapshot).status.expect("something changes");
        assert_eq!((before.disruptions_allowed, status.disruptions_allowed), (1, 0));
        assert_eq!(status.expected_pods, before.expected_pods);
        assert_eq!(status.observed_generation, before.observed_generation, "the new spec is not observed");
        let condition = &status.conditions.as_ref().expect("conditions")[0];
        let told = (condition.status.as_str(), condition.reason.as_str(), condition.message.as_str());
        assert_eq!(told, ("False", "SyncFailed", "found no controllers"));

        let mut without_share = world(json!({ "minAvailable": 1 }), 3, 0);
        without_share.scale = Ok(0);
        assert_eq!(
            numbers(&without_share),
            [3, 1, 3, 2],
            "a minAvailable count does not depend on the controllers"
        );
    }
}
