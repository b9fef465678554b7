//! The Nodes behind load balancers.
//!
//! A cluster changes its Nodes often. So the controller computes one set for all Services, at most
//! once every two seconds, and a Service decides from that set.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use machinist_api::constants::labels::parse_bool;
use machinist_core::Step;
use machinist_instance::{BalancerTarget, ProviderId, RecordedId};

use super::names::{AUTOSCALER_DELETION_TAINT, EXCLUDE_FROM_BALANCERS};
use super::selector::Selector;
use super::{Plan, Reason, Why};
use crate::facts::CloudNodeFacts;

/// All facts for one computation.
#[derive(Debug, Clone, Hash)]
pub struct Snapshot {
    /// All Nodes of the cluster, and `spec.providerID` as the provider classifies it. Empty if no
    /// Node has changed since the last computation.
    pub nodes: Vec<(Arc<CloudNodeFacts>, RecordedId)>,
    /// Number of changes of Nodes that this process has seen.
    pub revision: u64,
    /// The number of changes at the last computation; absent before it.
    pub computed: Option<u64>,
}

/// One call. This planner has only one kind.
#[derive(Debug)]
pub enum Action {
    /// Lets all Services use this set.
    Share {
        /// The Nodes.
        backends: Arc<Backends>,
        /// The number of changes that the set contains.
        revision: u64,
    },
}

/// Computes the set of Nodes, if a Node has changed.
pub fn plan(s: &Snapshot) -> Plan<Action> {
    if s.computed == Some(s.revision) {
        return Plan::idle(Why::settled());
    }
    let backends = Backends::of(s.nodes.iter().map(|(node, recorded)| (&**node, recorded.clone())));
    let why = Why::new(
        Reason::Writing("updating the Nodes behind load balancers"),
        Step::Expect("the Services update their load balancers"),
    );
    Plan::act(Action::Share { backends: Arc::new(backends), revision: s.revision }, why)
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
        self.select(|backend| !backend.is_foreign && selector.matches(backend.labels.as_ref()))
    }

    /// Returns the Nodes of other clouds. Another program may have made them targets of the same
    /// load balancer, and a driver that does not know them would remove those targets. Whether such
    /// a Node is selected or about to be deleted does not matter: this driver could not add its
    /// target again.
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
    is_eligible(old) != is_eligible(new) || old.provider_id() != new.provider_id() || old.labels != new.labels
}
