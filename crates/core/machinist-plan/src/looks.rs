//! What was read from the target cluster's API server itself, and since when the watches have shown what has no time of its own.
//!
//! A store may be older than the server. Where that could cost a pod or leave a Node behind, the planner asks for a read with
//! quorum, and the answer is kept here with the moment at which the read began. All of it may be lost at any moment: then the
//! read is repeated.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use machinist_api::constants::conditions;

use crate::facts::{ConditionFacts, NodeFacts};
use machinist_core::{Version, plus, since};

/// How long a read may be evidence: long enough for one more pass, far shorter than any timeout.
const EVIDENCE_VALID: Duration = Duration::from_secs(10);
/// A read that settled nothing is repeated after this long.
const READ_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// The last reads for one Machine, in this process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Looks {
    /// The last look for its Node.
    pub node: Option<NodeLook>,
    /// The last list of the pods on its Node.
    pub pods: Option<PodList>,
    /// The last look at its Node's Lease.
    pub lease: Option<LeaseLook>,
}

/// A GET of a Node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NodeLook {
    /// The name that was looked for.
    pub name: String,
    /// When the look began.
    pub started: Timestamp,
    /// The UID of the Node of that name; absent if there was none.
    pub uid: Option<String>,
}

/// A list of the pods on a Node. What it showed is in the store, too.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PodList {
    /// The UID of the Node.
    pub node_uid: String,
    /// When the list was asked for.
    pub started: Timestamp,
    /// How many pods have to leave in a drain.
    pub leaving: usize,
}

/// A GET of a Node's Lease.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LeaseLook {
    /// The UID of the Node.
    pub node_uid: String,
    /// When the look began.
    pub started: Timestamp,
    /// What it showed.
    pub found: Renewal,
}

/// When a Node's Lease was last renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Renewal {
    /// At that moment.
    At(Timestamp),
    /// Never: there is no Lease, or it names no time.
    Never,
    /// The API server does not let this process read it.
    Unknown,
}

/// Since when the watch of Nodes has shown what a Node itself has no time for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct NodeSeen {
    /// Since when it has been closed for new pods without interruption, as far as every version of it was seen.
    pub cordoned: Option<Timestamp>,
    /// For conditions that name no time: since when they have said that something is wrong, by type.
    pub untimed: BTreeMap<String, Timestamp>,
}

/// The conditions that mean a dead Node, each with the status that it has on a Node that is fine.
pub(crate) const DEADLY: [(&str, &str); 2] =
    [(conditions::NODE_READY, "True"), (conditions::NODE_READONLY_FILESYSTEM, "False")];

/// Whether a condition says that something is wrong, and does not say since when.
pub(crate) fn is_untimed(condition: &ConditionFacts, fine: &str) -> bool {
    condition.status != fine && condition.since.is_none()
}

impl NodeSeen {
    /// What is known once another version of the Node was seen.
    #[must_use]
    pub fn after(self, node: &NodeFacts, version: Version, now: Timestamp) -> Self {
        // Between two versions that were not both seen, the Node may have been open, and a pod may have been bound to it.
        let cordoned = match version {
            Version::Next => self.cordoned,
            Version::Later => None,
        };
        let is_wrong = |(kind, fine): &(&str, &str)| {
            node.condition(kind).is_some_and(|condition| is_untimed(condition, fine))
        };
        let since =
            |(kind, _): (&str, &str)| (kind.to_owned(), self.untimed.get(kind).copied().unwrap_or(now));
        Self {
            cordoned: (node.unschedulable == Some(true)).then(|| cordoned.unwrap_or(now)),
            untimed: DEADLY.into_iter().filter(is_wrong).map(since).collect(),
        }
    }

    /// The same when the clock has stepped, and moments mean nothing any more.
    pub fn begin_again(&mut self, now: Timestamp) {
        let moments = self.cordoned.iter_mut().chain(self.untimed.values_mut());
        moments.for_each(|moment| *moment = now);
    }

    /// Whether there is nothing to remember.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Looks {
    /// The look for a Node of that name, if it is young enough to be evidence.
    pub(crate) fn node_now(&self, name: &str, now: Timestamp) -> Option<&NodeLook> {
        self.node.as_ref().filter(|look| look.name == name && is_evidence(look.started, now))
    }

    /// The list of the pods on that Node, if it began after the Node was seen closed and is young enough to be evidence.
    pub(crate) fn pods_since(&self, node_uid: &str, cordoned: Timestamp, now: Timestamp) -> Option<&PodList> {
        let counts = |list: &&PodList| {
            list.node_uid == node_uid && cordoned <= list.started && is_evidence(list.started, now)
        };
        self.pods.as_ref().filter(counts)
    }

    /// The look at the Lease of that Node, if it began no earlier than that.
    pub(crate) fn lease_since(&self, node_uid: &str, earliest: Timestamp) -> Option<&LeaseLook> {
        self.lease.as_ref().filter(|look| look.node_uid == node_uid && earliest <= look.started)
    }
}

fn is_evidence(started: Timestamp, now: Timestamp) -> bool {
    since(now, started) <= EVIDENCE_VALID
}

/// When a read that began then, and settled nothing, is repeated.
pub(crate) fn again_at(started: Timestamp) -> Timestamp {
    plus(started, READ_AGAIN_AFTER)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_000 + second).expect("a small number of seconds")
    }

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
        let seen = closed(NodeSeen::default(), Version::Next, 1);
        assert_eq!(seen.cordoned, Some(at(1)));
        let seen = closed(seen, Version::Next, 5);
        assert_eq!(seen.cordoned, Some(at(1)), "every version in between was closed, too");
        let seen = closed(seen, Version::Later, 9);
        assert_eq!(seen.cordoned, Some(at(9)), "a version that was not seen may have been open");
        let seen = seen.after(&node(false, ready()), Version::Next, at(10));
        assert!(seen.is_empty(), "{seen:?}");
        assert_eq!(closed(seen, Version::Next, 11).cordoned, Some(at(11)));
    }

    #[test]
    fn an_untimed_condition_counts_from_its_first_sight() {
        let silent = |time: Option<Timestamp>| {
            let time = time.map_or(Value::Null, |time| time.to_string().into());
            node(false, json!({"type": "Ready", "status": "Unknown", "lastTransitionTime": time}))
        };
        let seen = NodeSeen::default().after(&silent(None), Version::Later, at(1));
        let seen = seen.after(&silent(None), Version::Later, at(7));
        assert_eq!(seen.untimed.get("Ready"), Some(&at(1)));
        assert!(seen.clone().after(&silent(Some(at(0))), Version::Next, at(8)).is_empty());
        assert!(seen.after(&node(false, ready()), Version::Next, at(8)).is_empty());
    }
}
