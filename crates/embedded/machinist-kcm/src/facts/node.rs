//! Parses Nodes into the fields that the controllers need.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition, Taint};

/// Health, taints and schedulability of a Node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NodeFacts {
    pub(crate) uid: String,
    pub(crate) created: Option<Timestamp>,
    pub(crate) is_unschedulable: bool,
    /// The conditions by type.
    pub(crate) conditions: BTreeMap<String, Condition>,
    /// Taints as they were read; `None` means that the field is absent.
    pub(crate) taints: Option<Vec<Taint>>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Condition {
    pub(crate) status: Status,
    /// Time at which the kubelet last posted this condition. For a kubelet without a Lease this is
    /// the sign of life.
    pub(crate) heartbeat: Option<Timestamp>,
}

/// Status of a condition; any value other than True and False counts as Unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    True,
    False,
    Unknown,
}

impl From<&str> for Status {
    fn from(text: &str) -> Self {
        match text {
            "True" => Self::True,
            "False" => Self::False,
            _ => Self::Unknown,
        }
    }
}

impl NodeFacts {
    pub(crate) fn parse(node: Node) -> Self {
        let metadata = &node.metadata;
        let spec = node.spec.as_ref();
        let conditions =
            node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        let condition = |condition: &NodeCondition| {
            let status = Status::from(condition.status.as_str());
            let heartbeat = condition.last_heartbeat_time.as_ref().map(|time| time.0);
            (condition.type_.clone(), Condition { status, heartbeat })
        };
        Self {
            uid: metadata.uid.clone().unwrap_or_default(),
            created: metadata.creation_timestamp.as_ref().map(|time| time.0),
            is_unschedulable: spec.and_then(|spec| spec.unschedulable).unwrap_or_default(),
            conditions: conditions.iter().map(condition).collect(),
            taints: spec.and_then(|spec| spec.taints.clone()),
        }
    }

    /// Returns the status of the condition Ready; `None` if the kubelet has not posted it.
    pub(crate) fn ready(&self) -> Option<Status> {
        self.status_of("Ready")
    }

    pub(crate) fn status_of(&self, condition: &str) -> Option<Status> {
        self.conditions.get(condition).map(|condition| condition.status)
    }

    /// Returns the time at which the kubelet last posted the condition Ready.
    pub(crate) fn heartbeat(&self) -> Option<Timestamp> {
        self.conditions.get("Ready").and_then(|condition| condition.heartbeat)
    }
}
