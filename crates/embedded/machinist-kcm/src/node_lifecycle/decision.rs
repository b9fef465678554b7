//! Decides about one Node and the Pods on it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{NodeCondition, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use machinist_kube::ObjectKey;

use super::taints::{self, Evicting, Stay};
use crate::facts::node::{NodeFacts, Status};
use crate::facts::pod::PodFacts;

/// Conditions that only a running kubelet can update.
const VOUCHED_BY_KUBELET: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// Time limits for the silence of a Node and for the Pods on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// For a Node with a kubelet that has posted a status.
    pub(crate) grace: Duration,
    /// For a Node with a kubelet that has not posted a status yet.
    pub(crate) startup_grace: Duration,
    /// For a Pod without a toleration of lost Nodes.
    pub(crate) pod_eviction_after: Duration,
}

/// The input of one decision.
pub(crate) struct NodeSnapshot {
    pub(crate) now: Timestamp,
    pub(crate) node: Arc<NodeFacts>,
    pub(crate) silent_for: Duration,
    pub(crate) evicting: Vec<Evicting>,
    /// The Pods on the Node, in the order of their keys.
    pub(crate) pods: Vec<(ObjectKey, Arc<PodFacts>)>,
    pub(crate) patience: Patience,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// Sets the conditions to Unknown, unless the Lease was renewed after all.
    MarkUnknown(Vec<NodeCondition>),
    /// Sets all taints.
    SetTaints(Vec<Taint>),
    /// Marks the Pod as not ready. No other process does that, since its kubelet is silent.
    MarkPodNotReady { pod: ObjectKey, uid: String },
    /// Deletes the Pod. If its kubelet returns, it terminates the Pod.
    DeletePod { pod: ObjectKey, uid: String },
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MarkUnknown(_) => f.write_str("mark the node Unknown"),
            Self::SetTaints(_) => f.write_str("set the node's taints"),
            Self::MarkPodNotReady { pod, .. } => write!(f, "mark pod {pod} not ready"),
            Self::DeletePod { pod, .. } => write!(f, "delete pod {pod}"),
        }
    }
}

/// Actions to perform now, and when to look again if no event comes before.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Plan {
    pub(crate) actions: Vec<Action>,
    pub(crate) look_again_in: Option<Duration>,
}

pub(crate) fn plan(snapshot: &NodeSnapshot) -> Plan {
    let mut plan = Plan::default();
    plan_silence(snapshot, &mut plan);
    if !plan.actions.is_empty() {
        // All other actions depend on the conditions, so they wait until the conditions are
        // correct.
        return plan;
    }
    if is_lost(&snapshot.node) {
        plan_readiness_of_pods(snapshot, &mut plan);
    }
    match taints::planned(&snapshot.node, snapshot.now) {
        // A Node that is back must not lose its Pods to a taint that is about to be removed.
        Some(taints) => plan.actions.push(Action::SetTaints(taints)),
        None => plan_evictions(snapshot, &mut plan),
    }
    plan
}

fn is_lost(node: &NodeFacts) -> bool {
    node.ready() == Some(Status::Unknown)
}

fn plan_silence(snapshot: &NodeSnapshot, plan: &mut Plan) {
    let NodeSnapshot { node, silent_for, patience, .. } = snapshot;
    if is_lost(node) {
        return;
    }
    let grace = if node.ready().is_some() { patience.grace } else { patience.startup_grace };
    if *silent_for < grace {
        plan.look_sooner(grace - *silent_for);
    } else {
        plan.actions.push(Action::MarkUnknown(unknown_conditions(node, snapshot.now)));
    }
}

fn unknown_conditions(node: &NodeFacts, now: Timestamp) -> Vec<NodeCondition> {
    let is_vouched = |name: &&&str| node.status_of(name) != Some(Status::Unknown);
    let unknown = |name: &str| {
        let known = node.conditions.get(name);
        let (reason, message) = match known {
            Some(_) => ("NodeStatusUnknown", "Kubelet stopped posting node status."),
            None => ("NodeStatusNeverUpdated", "Kubelet never posted node status."),
        };
        // The heartbeat is the kubelet's own. Without one, the creation time of the Node is used.
        let heartbeat = match known {
            Some(condition) => condition.heartbeat,
            None => node.created,
        };
        NodeCondition {
            type_: name.to_owned(),
            status: "Unknown".to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_heartbeat_time: heartbeat.map(Time),
            last_transition_time: Some(Time(now)),
        }
    };
    VOUCHED_BY_KUBELET.iter().filter(is_vouched).map(|name| unknown(name)).collect()
}

fn plan_readiness_of_pods(snapshot: &NodeSnapshot, plan: &mut Plan) {
    for (key, pod) in snapshot.pods.iter().filter(|(_, pod)| pod.is_ready) {
        plan.actions.push(Action::MarkPodNotReady { pod: key.clone(), uid: pod.uid.clone() });
    }
}

fn plan_evictions(snapshot: &NodeSnapshot, plan: &mut Plan) {
    let NodeSnapshot { now, evicting, pods, patience, .. } = snapshot;
    for (key, pod) in pods.iter().filter(|(_, pod)| !pod.is_deleting) {
        match taints::stay(&pod.tolerations, evicting, patience.pod_eviction_after) {
            Stay::Unlimited => {}
            Stay::Until(end) if end <= *now => {
                plan.actions.push(Action::DeletePod { pod: key.clone(), uid: pod.uid.clone() });
            }
            Stay::Until(end) => {
                // Timestamps have whole seconds, so the limit is reached at most one second later.
                let left = end.duration_since(*now).unsigned_abs();
                plan.look_sooner(left + Duration::from_secs(1));
            }
        }
    }
}

impl Plan {
    fn look_sooner(&mut self, after: Duration) {
        self.look_again_in = Some(self.look_again_in.map_or(after, |sooner| sooner.min(after)));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::facts::node::Condition;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).expect("a valid second")
    }

    /// Builds a Node with this Ready status, the matching taints and one ready Pod, silent for this
    /// long.
    fn world(ready: Option<&str>, silent_for: u64) -> NodeSnapshot {
        let condition = |status: &str| Condition { status: Status::from(status), heartbeat: Some(at(1)) };
        let mut node = NodeFacts {
            uid: "n".to_owned(),
            created: Some(at(0)),
            conditions: ready.map(|status| ("Ready".to_owned(), condition(status))).into_iter().collect(),
            ..NodeFacts::default()
        };
        node.taints = taints::planned(&node, at(1000));
        let pod = PodFacts { uid: "p".to_owned(), is_ready: true, ..PodFacts::default() };
        NodeSnapshot {
            now: at(1000),
            evicting: Evicting::of(&node, &mut BTreeMap::new(), at(1000)),
            node: Arc::new(node),
            silent_for: Duration::from_secs(silent_for),
            pods: vec![(ObjectKey::new("default", "web"), Arc::new(pod))],
            patience: Patience {
                grace: Duration::from_secs(40),
                startup_grace: Duration::from_secs(60),
                pod_eviction_after: Duration::from_secs(300),
            },
        }
    }

    fn told(snapshot: &NodeSnapshot) -> (Vec<String>, Option<u64>) {
        let plan = plan(snapshot);
        (
            plan.actions.iter().map(ToString::to_string).collect(),
            plan.look_again_in.map(|after| after.as_secs()),
        )
    }

    fn texts(actions: &[&str]) -> Vec<String> {
        actions.iter().map(|action| (*action).to_owned()).collect()
    }

    #[test]
    fn a_reporting_node_causes_no_action_until_its_grace_ends() {
        assert_eq!(told(&world(Some("True"), 15)), (Vec::new(), Some(25)));
    }

    #[test]
    fn a_silent_node_is_first_marked_unknown() {
        let snapshot = world(Some("True"), 40);
        assert_eq!(told(&snapshot), (texts(&["mark the node Unknown"]), None));
        let Some(Action::MarkUnknown(conditions)) = plan(&snapshot).actions.pop() else { panic!("marked") };
        let reasons: Vec<_> = conditions
            .iter()
            .map(|condition| (condition.type_.as_str(), condition.reason.as_deref().unwrap()))
            .collect();
        assert_eq!(
            reasons,
            [
                ("Ready", "NodeStatusUnknown"),
                ("MemoryPressure", "NodeStatusNeverUpdated"),
                ("DiskPressure", "NodeStatusNeverUpdated"),
                ("PIDPressure", "NodeStatusNeverUpdated"),
            ]
        );
        assert_eq!(conditions[0].last_heartbeat_time, Some(Time(at(1))), "the kubelet's own heartbeat stays");
        assert_eq!(conditions[1].last_heartbeat_time, Some(Time(at(0))));
    }

    #[test]
    fn a_silent_not_ready_node_is_marked_unknown() {
        assert_eq!(told(&world(Some("False"), 41)), (texts(&["mark the node Unknown"]), None));
    }

    #[test]
    fn a_node_that_never_posted_has_more_time() {
        assert_eq!(told(&world(None, 59)), (Vec::new(), Some(1)));
        assert_eq!(told(&world(None, 60)), (texts(&["mark the node Unknown"]), None));
    }

    #[test]
    fn pods_of_a_lost_node_become_not_ready_and_are_deleted_later() {
        let mut snapshot = world(Some("Unknown"), 500);
        assert_eq!(told(&snapshot), (texts(&["mark pod default/web not ready"]), Some(301)));
        snapshot.pods[0].1 = Arc::new(PodFacts { uid: "p".to_owned(), ..PodFacts::default() });
        snapshot.now = at(1299);
        assert_eq!(told(&snapshot), (Vec::new(), Some(2)));
        snapshot.now = at(1300);
        assert_eq!(told(&snapshot), (texts(&["delete pod default/web"]), None));
    }

    #[test]
    fn a_pod_that_is_being_deleted_is_not_deleted_again() {
        let mut snapshot = world(Some("Unknown"), 500);
        let deleting = PodFacts { uid: "p".to_owned(), is_deleting: true, ..PodFacts::default() };
        snapshot.pods[0].1 = Arc::new(deleting);
        snapshot.now = at(9999);
        assert_eq!(told(&snapshot), (Vec::new(), None));
    }

    #[test]
    fn pods_of_a_not_ready_node_are_evicted_but_not_marked() {
        let mut snapshot = world(Some("False"), 5);
        assert_eq!(told(&snapshot), (Vec::new(), Some(35)));
        snapshot.now = at(1300);
        assert_eq!(told(&snapshot), (texts(&["delete pod default/web"]), Some(35)));
    }

    #[test]
    fn a_node_that_is_back_loses_its_taints_and_no_pods() {
        let mut snapshot = world(Some("Unknown"), 0);
        let mut node = snapshot.node.as_ref().clone();
        node.conditions.insert("Ready".to_owned(), Condition { status: Status::True, heartbeat: None });
        snapshot.node = Arc::new(node);
        snapshot.now = at(9999);
        assert_eq!(told(&snapshot), (texts(&["set the node's taints"]), Some(40)));
    }
}
