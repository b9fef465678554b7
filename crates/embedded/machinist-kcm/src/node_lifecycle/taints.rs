//! Computes the taints that follow a Node's state, and how long a Pod tolerates them.
//!
//! NoSchedule taints follow the conditions and `spec.unschedulable`; NoExecute taints follow only
//! Ready. Taints with other keys stay unchanged.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{self, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::facts::node::{NodeFacts, Status};

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Condition, status, and the NoSchedule taint that follows from them.
const OF_CONDITIONS: &[(&str, Status, &str)] = &[
    ("Ready", Status::False, NOT_READY),
    ("Ready", Status::Unknown, UNREACHABLE),
    ("MemoryPressure", Status::True, "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", Status::True, "node.kubernetes.io/disk-pressure"),
    ("PIDPressure", Status::True, "node.kubernetes.io/pid-pressure"),
    ("NetworkUnavailable", Status::True, "node.kubernetes.io/network-unavailable"),
];

const NO_SCHEDULE: &str = "NoSchedule";
const NO_EXECUTE: &str = "NoExecute";

/// Returns the taints that the Node should have; `None` if it has them already.
pub(crate) fn planned(node: &NodeFacts, now: Timestamp) -> Option<Vec<Taint>> {
    let current = node.taints.as_deref().unwrap_or_default();
    let wanted = wanted(node);
    let is_right = |taint: &&Taint| {
        !is_ours(node, taint) || wanted.contains(&(taint.key.as_str(), taint.effect.as_str()))
    };
    let mut taints: Vec<Taint> = current.iter().filter(is_right).cloned().collect();
    let mut changes = taints.len() != current.len();
    for (key, effect) in wanted {
        if !taints.iter().any(|taint| taint.key == key && taint.effect == effect) {
            let time_added = Some(Time(now));
            taints.push(Taint { key: key.to_owned(), effect: effect.to_owned(), time_added, value: None });
            changes = true;
        }
    }
    changes.then_some(taints)
}

/// Returns key and effect of the taints that follow the Node's state.
fn wanted(node: &NodeFacts) -> Vec<(&'static str, &'static str)> {
    let mut wanted: Vec<_> = OF_CONDITIONS
        .iter()
        .filter(|(condition, status, _)| node.status_of(condition) == Some(*status))
        .map(|(_, _, key)| (*key, NO_SCHEDULE))
        .collect();
    if node.is_unschedulable {
        wanted.push((UNSCHEDULABLE, NO_SCHEDULE));
    }
    match node.ready() {
        Some(Status::False) => wanted.push((NOT_READY, NO_EXECUTE)),
        Some(Status::Unknown) => wanted.push((UNREACHABLE, NO_EXECUTE)),
        Some(Status::True) | None => {}
    }
    wanted
}

/// Returns whether this controller maintains the taint.
fn is_ours(node: &NodeFacts, taint: &Taint) -> bool {
    let key = taint.key.as_str();
    match taint.effect.as_str() {
        // Admission adds this taint to each new Node. It stays until the kubelet has posted the
        // condition Ready.
        NO_SCHEDULE if key == NOT_READY && node.ready().is_none() => false,
        NO_SCHEDULE => key == UNSCHEDULABLE || OF_CONDITIONS.iter().any(|(_, _, ours)| *ours == key),
        NO_EXECUTE => key == NOT_READY || key == UNREACHABLE,
        _ => false,
    }
}

/// A taint with the effect NoExecute.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Evicting {
    key: String,
    value: String,
    since: Timestamp,
}

impl Evicting {
    /// Returns the evicting taints of the Node. `first_seen` records when a taint without a time
    /// was first seen.
    pub(crate) fn of(
        node: &NodeFacts,
        first_seen: &mut BTreeMap<String, Timestamp>,
        now: Timestamp,
    ) -> Vec<Self> {
        let taints = node.taints.as_deref().unwrap_or_default();
        let evicting: Vec<Self> = taints
            .iter()
            .filter(|taint| taint.effect == NO_EXECUTE)
            .map(|taint| {
                let since = match &taint.time_added {
                    Some(time) => time.0,
                    None => *first_seen.entry(taint.key.clone()).or_insert(now),
                };
                Self { key: taint.key.clone(), value: taint.value.clone().unwrap_or_default(), since }
            })
            .collect();
        first_seen.retain(|key, _| evicting.iter().any(|taint| taint.key == *key));
        evicting
    }

    fn says_node_is_lost(&self) -> bool {
        self.key == NOT_READY || self.key == UNREACHABLE
    }
}

/// A toleration of evicting taints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Toleration {
    /// `None` tolerates every key.
    key: Option<String>,
    /// `None` tolerates every value.
    value: Option<String>,
    /// `None` tolerates the taint without a time limit.
    seconds: Option<i64>,
}

impl Toleration {
    /// Returns the toleration if it applies to evicting taints.
    pub(crate) fn of_eviction(toleration: &v1::Toleration) -> Option<Self> {
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let is_of_eviction = given(&toleration.effect).is_none_or(|effect| effect == NO_EXECUTE);
        let value = match given(&toleration.operator).as_deref() {
            None | Some("Equal") => Some(toleration.value.clone().unwrap_or_default()),
            Some("Exists") => None,
            // The API version in use has no comparison operators. An unknown operator tolerates
            // nothing.
            Some(_) => return None,
        };
        is_of_eviction.then(|| Self {
            key: given(&toleration.key),
            value,
            seconds: toleration.toleration_seconds,
        })
    }

    fn covers(&self, taint: &Evicting) -> bool {
        let covers_key = self.key.as_ref().is_none_or(|key| *key == taint.key);
        let covers_value = self.value.as_ref().is_none_or(|value| *value == taint.value);
        covers_key && covers_value
    }
}

/// Time that a Pod stays on a Node with these taints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stay {
    /// The Pod stays without a time limit.
    Unlimited,
    /// The Pod stays until this time. A taint without a toleration gives a time in the past.
    Until(Timestamp),
}

/// Returns how long a Pod with these tolerations stays. The default applies to a Pod on a lost Node
/// without a toleration for it. API servers add that toleration to each Pod, so the default is for
/// servers that do not.
pub(crate) fn stay(tolerations: &[Toleration], taints: &[Evicting], default: Duration) -> Stay {
    let mut stay = Stay::Unlimited;
    for taint in taints {
        let covering = tolerations.iter().find(|toleration| toleration.covers(taint));
        let for_seconds = match covering {
            Some(Toleration { seconds: None, .. }) => continue,
            Some(Toleration { seconds: Some(seconds), .. }) => *seconds.max(&0),
            None if taint.says_node_is_lost() => i64::try_from(default.as_secs()).unwrap_or(i64::MAX),
            None => 0,
        };
        let until =
            taint.since.saturating_add(SignedDuration::from_secs(for_seconds)).unwrap_or(Timestamp::MAX);
        stay = match stay {
            Stay::Unlimited => Stay::Until(until),
            Stay::Until(earlier) => Stay::Until(earlier.min(until)),
        };
    }
    stay
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::node::Condition;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn node(ready: Option<&str>, taints: &[(&str, &str)]) -> NodeFacts {
        let condition = |status: &str| Condition { status: Status::from(status), heartbeat: None };
        let taint = |(key, effect): &(&str, &str)| Taint {
            key: (*key).to_owned(),
            effect: (*effect).to_owned(),
            ..Taint::default()
        };
        NodeFacts {
            conditions: ready.map(|status| ("Ready".to_owned(), condition(status))).into_iter().collect(),
            taints: Some(taints.iter().map(taint).collect()),
            ..NodeFacts::default()
        }
    }

    fn planned_keys(node: &NodeFacts) -> Option<Vec<String>> {
        let taints = planned(node, NOW)?;
        Some(
            taints
                .iter()
                .map(|taint| format!("{}:{}", taint.key.rsplit('/').next().unwrap(), taint.effect))
                .collect(),
        )
    }

    #[test]
    fn a_node_that_becomes_ready_loses_the_taint_of_admission() {
        let node = node(Some("True"), &[(NOT_READY, NO_SCHEDULE), ("team", NO_EXECUTE)]);
        assert_eq!(planned_keys(&node), Some(vec!["team:NoExecute".to_owned()]));
    }

    #[test]
    fn a_node_that_has_posted_nothing_keeps_the_taint_of_admission() {
        assert_eq!(planned_keys(&node(None, &[(NOT_READY, NO_SCHEDULE)])), None);
    }

    #[test]
    fn a_lost_node_is_unreachable_and_no_longer_not_ready() {
        let node = node(Some("Unknown"), &[(NOT_READY, NO_SCHEDULE), (NOT_READY, NO_EXECUTE)]);
        let expected = ["unreachable:NoSchedule", "unreachable:NoExecute"].map(str::to_owned).to_vec();
        assert_eq!(planned_keys(&node), Some(expected));
    }

    #[test]
    fn a_cordoned_node_is_tainted_once() {
        let mut cordoned = node(Some("True"), &[]);
        cordoned.is_unschedulable = true;
        assert_eq!(planned_keys(&cordoned), Some(vec!["unschedulable:NoSchedule".to_owned()]));
        cordoned.taints = planned(&cordoned, NOW);
        assert_eq!(planned_keys(&cordoned), None);
        cordoned.is_unschedulable = false;
        assert_eq!(planned_keys(&cordoned), Some(Vec::new()));
    }

    #[test]
    fn each_pressure_condition_has_its_own_taint() {
        let mut pressed = node(Some("True"), &[]);
        let pressure = Condition { status: Status::True, heartbeat: None };
        pressed.conditions.insert("DiskPressure".to_owned(), pressure);
        assert_eq!(planned_keys(&pressed), Some(vec!["disk-pressure:NoSchedule".to_owned()]));
    }

    fn toleration(key: &str, operator: &str, effect: &str, seconds: Option<i64>) -> Option<Toleration> {
        Toleration::of_eviction(&v1::Toleration {
            key: Some(key.to_owned()),
            operator: Some(operator.to_owned()),
            effect: Some(effect.to_owned()),
            toleration_seconds: seconds,
            value: None,
        })
    }

    fn lost(key: &str) -> Vec<Evicting> {
        vec![Evicting { key: key.to_owned(), value: String::new(), since: NOW }]
    }

    fn stay_of(tolerations: &[Option<Toleration>], taints: &[Evicting]) -> Stay {
        let tolerations: Vec<Toleration> = tolerations.iter().flatten().cloned().collect();
        stay(&tolerations, taints, Duration::from_secs(300))
    }

    fn until(seconds: i64) -> Stay {
        Stay::Until(Timestamp::from_second(seconds).expect("a valid second"))
    }

    #[test]
    fn the_default_applies_only_to_taints_of_lost_nodes() {
        assert_eq!(stay_of(&[], &lost(UNREACHABLE)), until(300));
        assert_eq!(stay_of(&[], &lost("team")), until(0));
        assert_eq!(stay_of(&[], &[]), Stay::Unlimited);
    }

    #[test]
    fn the_tolerations_of_the_pod_override_the_default() {
        assert_eq!(
            stay_of(&[toleration(UNREACHABLE, "Exists", "NoExecute", Some(5))], &lost(UNREACHABLE)),
            until(5)
        );
        assert_eq!(
            stay_of(&[toleration(UNREACHABLE, "Exists", "", None)], &lost(UNREACHABLE)),
            Stay::Unlimited
        );
        assert_eq!(stay_of(&[toleration("", "Exists", "", None)], &lost("team")), Stay::Unlimited);
        assert_eq!(
            stay_of(&[toleration(UNREACHABLE, "Exists", "NoExecute", Some(-1))], &lost(UNREACHABLE)),
            until(0)
        );
    }

    #[test]
    fn the_shortest_toleration_counts() {
        let taints = [lost(UNREACHABLE), lost("team")].concat();
        let tolerations = [
            toleration("team", "Exists", "NoExecute", Some(20)),
            toleration(UNREACHABLE, "Exists", "NoExecute", Some(40)),
        ];
        assert_eq!(stay_of(&tolerations, &taints), until(20));
    }

    #[test]
    fn a_toleration_must_match_effect_and_value() {
        assert_eq!(toleration(UNREACHABLE, "Exists", "NoSchedule", None), None);
        let equal = toleration("team", "Equal", "NoExecute", None);
        let mut taints = lost("team");
        assert_eq!(stay_of(std::slice::from_ref(&equal), &taints), Stay::Unlimited);
        taints[0].value = "blue".to_owned();
        assert_eq!(stay_of(&[equal], &taints), until(0));
    }

    #[test]
    fn a_taint_without_a_time_counts_from_when_it_was_first_seen() {
        let tainted = node(Some("True"), &[("team", NO_EXECUTE)]);
        let mut first_seen = BTreeMap::new();
        let later = Timestamp::from_second(9).expect("a valid second");
        Evicting::of(&tainted, &mut first_seen, NOW);
        assert_eq!(Evicting::of(&tainted, &mut first_seen, later)[0].since, NOW);
        Evicting::of(&node(Some("True"), &[]), &mut first_seen, later);
        assert!(first_seen.is_empty());
    }
}
