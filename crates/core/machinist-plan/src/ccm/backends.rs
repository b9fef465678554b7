//! The Nodes behind load balancers.
//!
//! A cluster changes its Nodes often. So the controller computes one set for all Services, at most
//! once every two seconds, and a Service decides from that set.
//!
//! A Node of another cloud stays in the set for two minutes after this process saw it last. Its
//! kubelet may register it again in a moment, and this program could not add its target again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use machinist_api::constants::labels::parse_bool;
use machinist_core::reverted::{Fix, is_reverted};
use machinist_core::{Step, plus};
use machinist_instance::{BalancerTarget, ProviderId, RecordedId};
use machinist_labels::Selector;

use super::names::{AUTOSCALER_DELETION_TAINT, EXCLUDE_FROM_BALANCERS};
use crate::ccm::facts::CloudNodeFacts;
use crate::ccm::why::{Plan, Reason, Why};

/// All facts for one computation.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The moment of the decision.
    pub now: Timestamp,
    /// All Nodes of the cluster, and `spec.providerID` as the provider classifies it. Empty if no
    /// computation is due ([`is_due`]).
    pub nodes: Vec<(Arc<CloudNodeFacts>, RecordedId)>,
    /// Number of changes of Nodes that this process has seen.
    pub revision: u64,
    /// The number of changes at the last computation; absent before it.
    pub computed: Option<u64>,
    /// The last set.
    pub last: Option<Arc<Backends>>,
    /// Since when Nodes of another cloud are in the last set without being registered.
    pub departed: Departed,
}

/// Since when Nodes of another cloud have not been registered, by their names.
pub type Departed = BTreeMap<String, Timestamp>;

impl Hash for Snapshot {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { now: _, nodes, revision, computed, last, departed } = self;
        (nodes, revision, computed, last, departed).hash(state);
    }
}

/// A Node of another cloud that is registered again within this time keeps its targets.
const REGISTERED_AGAIN: Duration = Duration::from_secs(120);

/// One call. This planner has only one kind.
#[derive(Debug)]
pub enum Action {
    /// Lets all Services use this set.
    Share {
        /// The Nodes.
        backends: Arc<Backends>,
        /// The number of changes that the set contains.
        revision: u64,
        /// The Nodes of the set that are not registered.
        departed: Departed,
    },
}

/// Whether the set must be computed: a Node has changed, or has been unregistered for long enough.
pub fn is_due(is_changed: bool, departed: &Departed, now: Timestamp) -> bool {
    is_changed || first_end(departed).is_some_and(|end| end <= now)
}

/// Returns when the first of the departed Nodes leaves the set.
fn first_end(departed: &Departed) -> Option<Timestamp> {
    departed.values().map(|since| plus(*since, REGISTERED_AGAIN)).min()
}

/// Computes the set of Nodes, if it may have changed.
pub fn plan(s: &Snapshot) -> Plan<Action> {
    if !is_due(s.computed != Some(s.revision), &s.departed, s.now) {
        return match first_end(&s.departed) {
            Some(end) => Plan::until(end, Why::up_to_date()),
            None => Plan::idle(Why::up_to_date()),
        };
    }
    let mut backends = Backends::of(s.nodes.iter().map(|(node, recorded)| (&**node, recorded.clone())));
    let departed = keep_departed(s, &mut backends);
    let end = first_end(&departed);
    let why = Why::new(
        Reason::Writing("updating the Nodes behind load balancers"),
        Step::Expect("the Services update their load balancers"),
    );
    let share = Action::Share { backends: Arc::new(backends), revision: s.revision, departed };
    let plan = Plan::act(share, why);
    match end {
        Some(end) => plan.no_later_than(end),
        None => plan,
    }
}

/// Adds the Nodes of another cloud that left a short time ago, and returns them.
fn keep_departed(s: &Snapshot, backends: &mut Backends) -> Departed {
    // A Node that has just registered again has no provider id yet.
    let known = s.nodes.iter().filter(|(_, recorded)| !matches!(recorded, RecordedId::Unset));
    let registered: BTreeSet<&String> = known.map(|(node, _)| &node.name).collect();
    let before = s.last.iter().flat_map(|last| &last.0).filter(|backend| backend.is_foreign);
    let mut departed = Departed::new();
    for backend in before.filter(|backend| !registered.contains(&backend.name)) {
        let since = s.departed.get(&backend.name).copied().unwrap_or(s.now);
        if s.now < plus(since, REGISTERED_AGAIN) {
            departed.insert(backend.name.clone(), since);
            backends.0.retain(|other| other.name != backend.name);
            backends.0.push(backend.clone());
        }
    }
    backends.0.sort_by(|a, b| a.name.cmp(&b.name));
    departed
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Share { backends, .. } => write!(f, "backends: {} Nodes", backends.0.len()),
        }
    }
}

/// The Nodes that may receive traffic of load balancers, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Backends(Vec<Backend>);

/// A Node that may receive traffic.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Backend {
    name: String,
    /// The instance; absent while the Node has no provider id, or a malformed one.
    instance: Option<ProviderId>,
    /// Whether the instance is one of another cloud.
    is_foreign: bool,
    /// The labels, which a Service may select by.
    labels: Option<BTreeMap<String, String>>,
}

impl Backends {
    /// Collects the Nodes that may receive traffic. The second part of each item is
    /// `spec.providerID`, as the provider classifies it.
    pub fn of<'n>(nodes: impl IntoIterator<Item = (&'n CloudNodeFacts, RecordedId)>) -> Self {
        let is_foreign = |recorded: &RecordedId| matches!(recorded, RecordedId::NotOurs { .. });
        // Another program decides which of its Nodes receive traffic.
        let counts = nodes.into_iter().filter(|(node, recorded)| is_eligible(node) || is_foreign(recorded));
        let mut all: Vec<Backend> = counts
            .map(|(node, recorded)| {
                let is_foreign = is_foreign(&recorded);
                let foreign = || ProviderId::parse(node.provider_id().filter(|_| is_foreign)?).ok();
                Backend {
                    name: node.name.clone(),
                    instance: recorded.ours().cloned().or_else(foreign),
                    is_foreign,
                    labels: node.labels.clone(),
                }
            })
            .collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Self(all)
    }

    /// Returns the targets of one load balancer. Nodes without an instance of this cloud are left
    /// out; they return when their provider id appears.
    pub fn targets(&self, selector: &Selector) -> Vec<BalancerTarget> {
        let selects =
            |backend: &Backend| selector.matches(|key| backend.labels.as_ref()?.get(key).map(String::as_str));
        self.select(|backend| !backend.is_foreign && selects(backend))
    }

    /// Returns the Nodes of other clouds. Another program may have made them targets of the same
    /// load balancer, and a driver that does not know them would remove those targets. Whether a
    /// Node of another cloud is selected or about to be deleted does not matter: this driver could
    /// not add its target again.
    pub fn foreign_targets(&self) -> Vec<BalancerTarget> {
        self.select(|backend| backend.is_foreign)
    }

    fn select(&self, is_wanted: impl Fn(&Backend) -> bool) -> Vec<BalancerTarget> {
        let wanted = self.0.iter().filter(|backend| is_wanted(backend));
        wanted
            .filter_map(|backend| {
                let instance = backend.instance.clone()?;
                Some(BalancerTarget {
                    node: backend.name.clone(),
                    instance,
                    weight: BalancerTarget::FULL_WEIGHT,
                })
            })
            .collect()
    }
}

/// Whether a Node may receive traffic. Readiness is not considered: the load balancer checks the
/// health of its targets, and connections should drain.
pub fn is_eligible(node: &CloudNodeFacts) -> bool {
    let is_leaving = node.taints().iter().any(|taint| taint.key == AUTOSCALER_DELETION_TAINT);
    node.deleting_since.is_none() && !is_excluded(node) && !is_leaving
}

/// Whether the label excludes a Node: any value that is not false in Go's spelling.
fn is_excluded(node: &CloudNodeFacts) -> bool {
    node.label(EXCLUDE_FROM_BALANCERS).is_some_and(|value| parse_bool(value) != Some(false))
}

/// Whether a change of a Node may change the targets of a load balancer, so that the set must be
/// computed again. That includes each change from eligible to not eligible, and back: another
/// computation may have considered a taint that is removed now.
pub fn is_affected_by(old: &CloudNodeFacts, new: &CloudNodeFacts) -> bool {
    let has_turned = is_eligible(old) != is_eligible(new) && !is_reverted(Fix::TaintsChangeTargets);
    has_turned || old.provider_id() != new.provider_id() || old.labels != new.labels
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;
    use machinist_core::Wait;
    use serde_json::json;

    use super::*;
    use crate::testing::at;

    /// A Node of this cloud, of another cloud, or without a provider id.
    fn node(name: &str, id: &str) -> (Arc<CloudNodeFacts>, RecordedId) {
        let node = json!({"metadata": {"name": name, "uid": name}, "spec": {"providerID": id}});
        let node: Node = serde_json::from_value(node).expect("a Node");
        let recorded = match id {
            "" => RecordedId::Unset,
            id if id.starts_with("sim:") => RecordedId::any(id),
            _ => RecordedId::NotOurs { expected: "sim://ID".to_owned() },
        };
        (Arc::new(CloudNodeFacts::parse(&node)), recorded)
    }

    /// Plays the changes of the Nodes, each at its second, and returns the names of the Nodes of
    /// other clouds after the last one, and the wait.
    fn played(changes: &[(i64, &[(&str, &str)])]) -> (Vec<String>, Wait) {
        let (mut last, mut departed): (Option<Arc<Backends>>, _) = (None, Departed::new());
        let mut wait = Wait::Idle;
        for (revision, (second, nodes)) in (1..).zip(changes) {
            let s = Snapshot {
                now: at(*second),
                nodes: nodes.iter().map(|(name, id)| node(name, id)).collect(),
                revision,
                computed: Some(revision - 1),
                last: last.clone(),
                departed: departed.clone(),
            };
            let planned = plan(&s);
            wait = planned.wait;
            let [Action::Share { backends, departed: left, .. }] = &planned.actions[..] else {
                panic!("the set is computed: {planned}")
            };
            (last, departed) = (Some(backends.clone()), left.clone());
        }
        let foreign = last.expect("a set").foreign_targets();
        (foreign.into_iter().map(|target| target.node).collect(), wait)
    }

    /// Without the Node in the set, its targets would be removed, and this program could not add
    /// them again.
    #[test]
    fn a_node_elsewhere_that_comes_back_stays_in_the_set() {
        let both: &[_] = &[("a", "sim://a"), ("robot", "hrobot://1")];
        let one: &[_] = &[("a", "sim://a")];
        let kept = vec!["robot".to_owned()];
        assert_eq!(played(&[(0, both), (10, one)]), (kept.clone(), Wait::Until(at(130))));
        assert_eq!(played(&[(0, both), (10, one), (129, one)]), (kept.clone(), Wait::Until(at(130))));
        assert_eq!(played(&[(0, both), (10, one), (130, one)]), (Vec::new(), Wait::Idle));
        let unset: &[_] = &[("a", "sim://a"), ("robot", "")];
        assert_eq!(played(&[(0, both), (10, one), (12, unset)]).0, kept, "its provider id follows");
        assert_eq!(played(&[(0, both), (10, one), (12, both)]), (kept.clone(), Wait::Idle));
        assert_eq!(played(&[(0, both), (10, one), (100, both), (200, one)]).0, kept, "a new departure");
        let moved: &[_] = &[("a", "sim://a"), ("robot", "sim://robot")];
        assert_eq!(played(&[(0, both), (10, moved)]).0, Vec::<String>::new(), "it is one of this cloud");
    }

    #[test]
    fn the_set_is_computed_when_a_departed_node_is_given_up() {
        let departed: Departed = [("robot".to_owned(), at(0))].into();
        assert!(is_due(true, &Departed::new(), at(0)));
        assert!(!is_due(false, &departed, at(119)) && is_due(false, &departed, at(120)));
        let (now, last) = (at(5), None);
        let s = Snapshot { now, nodes: Vec::new(), revision: 1, computed: Some(1), last, departed };
        let planned = plan(&s);
        assert!(planned.actions.is_empty() && planned.wait == Wait::Until(at(120)), "{planned}");
    }
}
