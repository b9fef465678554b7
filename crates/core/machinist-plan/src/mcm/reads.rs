//! Reads from the target cluster's API server, and observation times for facts without a timestamp.
//!
//! A store may be older than the server. If that could cost a pod or leave a Node behind, the
//! planner requests a quorum read. This module keeps the answer with the moment at which the read
//! began. The answers may be lost at any moment; then the read is repeated.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use jiff::Timestamp;
use machinist_api::constants::conditions;

use crate::mcm::facts::{ConditionFacts, NodeFacts};
use machinist_core::{Succession, plus, since};

/// Lifetime of a read as evidence: long enough for one more pass, far shorter than any timeout.
const EVIDENCE_VALID: Duration = Duration::from_secs(10);
/// Wait before an inconclusive read is repeated.
const READ_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// The last reads about one Machine, in this process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Reads {
    /// The last GETs of the Nodes of the instance, one of each name.
    pub nodes: Vec<NodeRead>,
    /// When the API server last rejected the cordon or the condition of a Node.
    pub rejected_write: Option<Timestamp>,
    /// The last list of the pods on a Node.
    pub pods: Option<PodList>,
    /// The last lists of the pods on other Nodes of the instance.
    pub other_pods: Vec<PodList>,
    /// The last GET of the Node's Lease.
    pub lease: Option<LeaseRead>,
    /// Since when the API server of the target cluster has not answered requests about this
    /// Machine.
    pub silence: Option<TargetSilence>,
}

/// A request without an answer says nothing about the API server after this time. While requests
/// are needed, they are repeated more often than that.
const SILENCE_LASTS: Duration = Duration::from_secs(60);

/// A rejected write to a Node is expected to be rejected again for this long.
const REJECTION_LASTS: Duration = Duration::from_secs(600);

/// The API server of the target cluster does not answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetSilence {
    /// When the first request without an answer began, after the last answer.
    pub since: Timestamp,
    /// When the last of these requests ended. A silence is known for a minute after it.
    pub last: Timestamp,
    /// The error of the last request.
    pub error: String,
    /// Whether this process has never listed the objects of that cluster, so that its stores show
    /// nothing.
    pub is_blind: bool,
}

impl Hash for TargetSilence {
    /// Leaves out what differs after each request without an answer. Otherwise no pass would
    /// recognize that it repeats the request, and passes would repeat it without a pause.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { since, last: _, error: _, is_blind } = self;
        (since, is_blind).hash(state);
    }
}

impl TargetSilence {
    /// Whether the silence is known to go on: the last request without an answer is not old.
    pub fn is_known_at(&self, now: Timestamp) -> bool {
        since(now, self.last) <= SILENCE_LASTS
    }
}

/// A GET of a Node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NodeRead {
    /// The requested name.
    pub name: String,
    /// When the read began.
    pub started: Timestamp,
    /// UID of the Node; absent if no such Node exists.
    pub uid: Option<String>,
}

/// A list of the pods on a Node. The listed pods are also in the store.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PodList {
    /// UID of the Node.
    pub node_uid: String,
    /// When the list began.
    pub started: Timestamp,
    /// Number of pods that a drain must evict.
    pub leaving: usize,
    /// Number of these pods that have not ended.
    pub running: usize,
}

/// A GET of a Node's Lease.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LeaseRead {
    /// UID of the Node.
    pub node_uid: String,
    /// When the read began.
    pub started: Timestamp,
    /// The renewal time in the Lease.
    pub found: Renewal,
}

/// When a Node's Lease was last renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Renewal {
    /// The Lease was renewed at this moment.
    At(Timestamp),
    /// The Lease does not exist, or it has no renewal time.
    Never,
    /// The API server does not allow this process to read the Lease.
    Unknown,
}

/// When the Node watch first showed states for which the Node has no timestamp.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct NodeSeen {
    /// Since when the Node has been cordoned without interruption, according to an unbroken
    /// sequence of seen versions.
    pub cordoned: Option<Timestamp>,
    /// Since when the Node has had the taint of a preserved Machine without interruption.
    pub tainted: Option<Timestamp>,
    /// Since when the Node has had the annotation `not-managed-by-mcm`.
    pub not_managed: Option<Timestamp>,
    /// For bad conditions without a time: since when the watch has shown them, by type.
    pub untimed: BTreeMap<String, Timestamp>,
}

/// The conditions that indicate a dead Node, each with the status on a healthy Node.
pub(crate) const DEADLY: [(&str, &str); 2] =
    [(conditions::NODE_READY, "True"), (conditions::NODE_READONLY_FILESYSTEM, "False")];

/// Whether a condition is bad and has no transition time.
pub(crate) fn is_untimed(condition: &ConditionFacts, fine: &str) -> bool {
    condition.status != fine && condition.since.is_none()
}

impl NodeSeen {
    /// Returns the times after another version of the Node was seen.
    #[must_use]
    pub fn after(self, node: &NodeFacts, version: Succession, now: Timestamp) -> Self {
        // If a version was missed, the Node may have been schedulable in between, and a pod may
        // have been bound to it.
        let (cordoned, tainted) = match version {
            Succession::Next => (self.cordoned, self.tainted),
            Succession::Later => (None, None),
        };
        let is_wrong = |(kind, fine): &(&str, &str)| {
            node.condition(kind).is_some_and(|condition| is_untimed(condition, fine))
        };
        let since =
            |(kind, _): (&str, &str)| (kind.to_owned(), self.untimed.get(kind).copied().unwrap_or(now));
        Self {
            cordoned: (node.unschedulable == Some(true)).then(|| cordoned.unwrap_or(now)),
            tainted: node.preserved_taint().map(|_| tainted.unwrap_or(now)),
            not_managed: node.is_not_managed().then(|| self.not_managed.unwrap_or(now)),
            untimed: DEADLY.into_iter().filter(is_wrong).map(since).collect(),
        }
    }

    /// Restarts all times at `now`, after the clock has stepped and earlier moments are
    /// meaningless.
    pub fn begin_again(&mut self, now: Timestamp) {
        let moments = self.cordoned.iter_mut().chain(&mut self.tainted).chain(&mut self.not_managed);
        moments.chain(self.untimed.values_mut()).for_each(|moment| *moment = now);
    }

    /// Whether no time is stored.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Reads {
    /// Takes the end of one request to the API server of the target cluster. `unanswered` is the
    /// error if no answer arrived.
    pub fn heard(&mut self, asked: Timestamp, ended: Timestamp, unanswered: Option<String>) {
        let goes_on = self.silence.as_ref().filter(|silence| silence.is_known_at(asked));
        let since = goes_on.map_or(asked, |silence| silence.since);
        self.silence = unanswered.map(|error| TargetSilence { since, last: ended, error, is_blind: false });
    }

    /// Returns the GET of the Node with that name, if it is young enough to be evidence.
    pub(crate) fn node_now(&self, name: &str, now: Timestamp) -> Option<&NodeRead> {
        self.node(name).filter(|look| is_evidence(look.started, now))
    }

    /// Returns the last GET of the Node with that name.
    pub(crate) fn node(&self, name: &str) -> Option<&NodeRead> {
        self.nodes.iter().find(|look| look.name == name)
    }

    /// Whether the API server has rejected a write to a Node not long ago.
    pub(crate) fn is_write_rejected(&self, now: Timestamp) -> bool {
        self.rejected_write.is_some_and(|at| since(now, at) <= REJECTION_LASTS)
    }

    /// Takes a GET of a Node.
    pub fn looked(&mut self, look: NodeRead) {
        self.nodes.retain(|other| other.name != look.name && is_evidence(other.started, look.started));
        self.nodes.push(look);
    }

    /// Takes a list of the pods on a Node.
    pub fn listed(&mut self, list: PodList) {
        self.other_pods.extend(self.pods.take());
        self.other_pods.retain(|other| other.node_uid != list.node_uid);
        self.pods = Some(list);
    }

    /// Returns the list of the pods on that Node, if it began at `earliest` or later and is young
    /// enough to be evidence.
    pub(crate) fn pods_since(&self, node_uid: &str, earliest: Timestamp, now: Timestamp) -> Option<&PodList> {
        let counts = |list: &&PodList| {
            list.node_uid == node_uid && earliest <= list.started && is_evidence(list.started, now)
        };
        self.pods.iter().chain(&self.other_pods).find(counts)
    }

    /// Returns the GET of that Node's Lease, if it began at `earliest` or later.
    pub(crate) fn lease_since(&self, node_uid: &str, earliest: Timestamp) -> Option<&LeaseRead> {
        self.lease.as_ref().filter(|look| look.node_uid == node_uid && earliest <= look.started)
    }
}

/// Whether an observation that began then still counts as evidence.
pub(crate) fn is_evidence(started: Timestamp, now: Timestamp) -> bool {
    since(now, started) <= EVIDENCE_VALID
}

/// Returns when an inconclusive read that began at `started` is repeated.
pub(crate) fn again_at(started: Timestamp) -> Timestamp {
    plus(started, READ_AGAIN_AFTER)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::at;

    fn node(unschedulable: bool, ready: Value) -> NodeFacts {
        let node = json!({
            "metadata": {"name": "n", "uid": "u"},
            "spec": {"unschedulable": unschedulable},
            "status": {"conditions": [ready]},
        });
        NodeFacts::parse(&serde_json::from_value(node).expect("a Node"))
    }

    fn ready() -> Value {
        json!({"type": "Ready", "status": "True", "lastTransitionTime": at(-60).to_string()})
    }

    #[test]
    fn a_cordon_counts_from_the_last_version_not_seen() {
        let closed = |seen: NodeSeen, version, second| seen.after(&node(true, ready()), version, at(second));
        let seen = closed(NodeSeen::default(), Succession::Next, 1);
        assert_eq!(seen.cordoned, Some(at(1)));
        let seen = closed(seen, Succession::Next, 5);
        assert_eq!(seen.cordoned, Some(at(1)), "every version in between was cordoned");
        let seen = closed(seen, Succession::Later, 9);
        assert_eq!(seen.cordoned, Some(at(9)), "a missed version may have been schedulable");
        let seen = seen.after(&node(false, ready()), Succession::Next, at(10));
        assert!(seen.is_empty(), "{seen:?}");
        assert_eq!(closed(seen, Succession::Next, 11).cordoned, Some(at(11)));
    }

    /// Otherwise a pass would not recognize that it repeats a request, and would repeat it without
    /// a pause while the API server does not answer.
    #[test]
    fn another_request_without_an_answer_is_no_news() {
        let hash = |reads: &Reads| {
            let mut hasher = fnv::FnvHasher::default();
            reads.hash(&mut hasher);
            hasher.finish()
        };
        let mut reads = Reads::default();
        let before = hash(&reads);
        reads.heard(at(0), at(1), Some("connection refused".to_owned()));
        let silent = hash(&reads);
        assert_ne!(silent, before);
        reads.heard(at(2), at(3), Some("connection reset".to_owned()));
        assert_eq!(hash(&reads), silent);
        reads.heard(at(4), at(5), None);
        assert_eq!(hash(&reads), before);
    }

    #[test]
    fn an_untimed_condition_counts_from_its_first_sight() {
        let silent = |time: Option<Timestamp>| {
            let time = time.map_or(Value::Null, |time| time.to_string().into());
            node(false, json!({"type": "Ready", "status": "Unknown", "lastTransitionTime": time}))
        };
        let seen = NodeSeen::default().after(&silent(None), Succession::Later, at(1));
        let seen = seen.after(&silent(None), Succession::Later, at(7));
        assert_eq!(seen.untimed.get("Ready"), Some(&at(1)));
        assert!(seen.clone().after(&silent(Some(at(0))), Succession::Next, at(8)).is_empty());
        assert!(seen.after(&node(false, ready()), Succession::Next, at(8)).is_empty());
    }
}
