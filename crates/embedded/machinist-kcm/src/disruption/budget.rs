//! The arithmetic of a PodDisruptionBudget: what its status should say.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::selector::Selector;
use crate::facts::pod::PodFacts;

/// An eviction that was granted is expected to show as a deletion within this time; after it, the Pod counts again.
const EVICTION_SHOWS_WITHIN: SignedDuration = SignedDuration::from_secs(120);

const DISRUPTION_ALLOWED: &str = "DisruptionAllowed";

/// What matters of a budget.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BudgetFacts {
    pub(crate) uid: String,
    pub(crate) namespace: String,
    pub(crate) generation: Option<i64>,
    /// What the budget asks for; the error says what is wrong with it.
    pub(crate) demand: Result<Demand, String>,
    pub(crate) status: PodDisruptionBudgetStatus,
}

/// Which Pods, and how many of them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Demand {
    pub(crate) selector: Selector,
    pub(crate) bound: Bound,
}

/// How many Pods have to be healthy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    /// The budget says nothing, so it allows nothing.
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
    /// The index of budgets by namespace.
    pub(crate) const BY_NAMESPACE: &'static str = "namespace";

    /// What matters of a PodDisruptionBudget.
    pub(crate) fn parse(budget: PodDisruptionBudget) -> Self {
        let spec = budget.spec.unwrap_or_default();
        let bound = match (&spec.max_unavailable, &spec.min_available) {
            (Some(amount), _) => Amount::parse("spec.maxUnavailable", amount).map(Bound::MaxUnavailable),
            (None, Some(amount)) => Amount::parse("spec.minAvailable", amount).map(Bound::MinAvailable),
            (None, None) => Ok(Bound::Unset),
        };
        let selector = Selector::parse(spec.selector.as_ref());
        Self {
            uid: budget.metadata.uid.unwrap_or_default(),
            namespace: budget.metadata.namespace.unwrap_or_default(),
            generation: budget.metadata.generation,
            demand: bound.and_then(|bound| selector.map(|selector| Demand { selector, bound })),
            status: budget.status.unwrap_or_default(),
        }
    }

    /// Whether it is about a Pod with these labels.
    pub(crate) fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.demand.as_ref().is_ok_and(|demand| demand.selector.selects(labels))
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

    /// The amount of `whole`, rounded up.
    fn of(self, whole: i32) -> i32 {
        match self {
            Self::Count(count) => count,
            Self::Percent(percent) => {
                let hundredths = i64::from(percent) * i64::from(whole);
                // Of 31-bit factors, divided by 100 and rounded up: beyond 31 bits only for percentages that nobody means.
                i32::try_from((hundredths + 99).div_euclid(100)).unwrap_or(i32::MAX)
            }
        }
    }
}

impl Bound {
    /// Whether it is a share of what the Pods' controllers want, and not of the Pods that exist.
    pub(crate) fn needs_scale(self) -> bool {
        match self {
            Self::MaxUnavailable(_) | Self::MinAvailable(Amount::Percent(_)) => true,
            Self::MinAvailable(Amount::Count(_)) | Self::Unset => false,
        }
    }

    /// How many Pods are expected, and how many of them have to be healthy.
    fn expected_and_desired(self, pods: i32, scale: i32) -> (i32, i32) {
        match self {
            Self::Unset => (0, 0),
            Self::MinAvailable(Amount::Count(count)) => (pods, count),
            Self::MinAvailable(percent) => (scale, percent.of(scale)),
            Self::MaxUnavailable(amount) => (scale, scale.saturating_sub(amount.of(scale)).max(0)),
        }
    }
}

/// The facts of one decision.
pub(crate) struct Snapshot {
    pub(crate) now: Timestamp,
    pub(crate) budget: Arc<BudgetFacts>,
    /// The Pods that the budget selects, by name.
    pub(crate) pods: Vec<(String, Arc<PodFacts>)>,
    /// What the controllers of these Pods want in all, or why that is not known; asked for only where the bound needs it.
    pub(crate) scale: Result<i32, String>,
}

/// What the status should be, and when it changes by itself.
#[derive(Debug, PartialEq)]
pub(crate) struct Outcome {
    /// `None`: it is what it should be.
    pub(crate) status: Option<PodDisruptionBudgetStatus>,
    pub(crate) look_again_in: Option<Duration>,
}

/// Decides.
pub(crate) fn outcome(snapshot: &Snapshot) -> Outcome {
    let budget = snapshot.budget.as_ref();
    let (status, look_again_in) = match (&budget.demand, &snapshot.scale) {
        (Ok(demand), Ok(scale)) => counted(snapshot, demand.bound, *scale),
        (Err(problem), _) | (Ok(_), Err(problem)) => (refusing(budget, snapshot.now, problem), None),
    };
    Outcome { status: (status != budget.status).then_some(status), look_again_in }
}

fn counted(snapshot: &Snapshot, bound: Bound, scale: i32) -> (PodDisruptionBudgetStatus, Option<Duration>) {
    let Snapshot { now, budget, pods, .. } = snapshot;
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

/// A budget that cannot be computed allows nothing. Its spec is not observed thereby, and the numbers stay what they were.
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

/// The Pods whose eviction was granted and does not show yet, and when the first of these is taken as not evicted.
fn still_disrupted(snapshot: &Snapshot) -> (BTreeMap<String, Time>, Option<Duration>) {
    let Snapshot { now, budget, pods, .. } = snapshot;
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

/// The conditions with this one, which keeps its time while it says the same.
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

    /// A budget with this bound over that many healthy pods and, after them, unhealthy ones.
    fn world(spec: serde_json::Value, healthy: usize, unhealthy: usize) -> Snapshot {
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
        Snapshot {
            now: at(1000),
            budget: Arc::new(BudgetFacts::parse(serde_json::from_value(budget).expect("a budget"))),
            pods: (0..healthy + unhealthy).map(pod).collect(),
            scale: Ok(i32::try_from(healthy + unhealthy).expect("few pods")),
        }
    }

    /// healthy, desired, expected, allowed
    fn numbers(snapshot: &Snapshot) -> [i32; 4] {
        let status = outcome(snapshot).status.expect("something changes");
        [status.current_healthy, status.desired_healthy, status.expected_pods, status.disruptions_allowed]
    }

    #[test]
    fn a_count_of_available_pods_is_of_the_pods_there_are() {
        assert_eq!(numbers(&world(json!({ "minAvailable": 2 }), 3, 0)), [3, 2, 3, 1]);
        assert_eq!(numbers(&world(json!({ "minAvailable": 2 }), 1, 2)), [1, 2, 3, 0]);
        assert_eq!(numbers(&world(json!({ "minAvailable": 0 }), 2, 0)), [2, 0, 2, 2]);
        assert_eq!(numbers(&world(json!({ "minAvailable": 1 }), 0, 0)), [0, 1, 0, 0]);
    }

    #[test]
    fn shares_are_of_what_the_controllers_want_and_rounded_up() {
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
    fn a_count_of_unavailable_pods_is_off_the_scale() {
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
    fn an_eviction_that_was_granted_counts_until_it_shows_or_for_two_minutes() {
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
    fn a_status_that_is_right_is_not_written_again_and_the_condition_keeps_its_time() {
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
    fn a_budget_that_cannot_be_understood_allows_nothing_and_says_why() {
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
    fn a_budget_whose_share_is_of_an_unknown_number_keeps_its_numbers_and_allows_nothing() {
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
        assert_eq!(numbers(&without_share), [3, 1, 3, 2], "a count of Pods asks no controller");
    }
}
