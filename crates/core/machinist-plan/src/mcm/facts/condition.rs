//! The conditions of a Node, also as a Machine copies them.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::NodeCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use machinist_labels::SharedText;

/// Planner facts of a condition. All fields are kept, because a Machine copies the condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConditionFacts {
    /// Type of the condition, for example `Ready`.
    pub kind: SharedText,
    /// `True`, `False` or `Unknown`.
    pub status: SharedText,
    /// `reason`. A copy distinguishes absent from empty.
    reason: Option<SharedText>,
    /// `message`. A copy distinguishes absent from empty.
    message: Option<SharedText>,
    /// When the condition was last written.
    pub written: Option<Timestamp>,
    /// When the status last changed.
    pub since: Option<Timestamp>,
}

impl ConditionFacts {
    /// Reads a condition.
    pub fn of(condition: &NodeCondition) -> Self {
        let shared = |text: &Option<String>| text.as_deref().map(SharedText::from);
        let time = |time: &Option<Time>| time.as_ref().map(|time| time.0);
        Self {
            kind: condition.type_.as_str().into(),
            status: condition.status.as_str().into(),
            reason: shared(&condition.reason),
            message: shared(&condition.message),
            written: time(&condition.last_heartbeat_time),
            since: time(&condition.last_transition_time),
        }
    }

    /// Returns the reason; empty if there is none.
    pub fn reason(&self) -> &str {
        self.reason.as_deref().unwrap_or_default()
    }

    /// Returns the message; empty if there is none.
    pub fn message(&self) -> &str {
        self.message.as_deref().unwrap_or_default()
    }

    /// Returns the whole condition, as it was read.
    pub fn copied(&self) -> NodeCondition {
        let owned = |text: &Option<SharedText>| text.as_deref().map(str::to_owned);
        NodeCondition {
            type_: self.kind.to_string(),
            status: self.status.to_string(),
            reason: owned(&self.reason),
            message: owned(&self.message),
            last_heartbeat_time: self.written.map(Time),
            last_transition_time: self.since.map(Time),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use serde_json::json;

    #[test]
    fn a_copy_repeats_each_field_and_adds_none() {
        let shortest = json!({ "type": "Ready", "status": "Unknown" });
        let empty = json!({ "type": "Ready", "status": "True", "reason": "", "message": "" });
        let longest = json!({
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "message": "kubelet is posting ready status",
            "lastHeartbeatTime": "2026-01-02T03:04:05Z",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        for condition in [shortest, empty, longest] {
            let read: NodeCondition = serde_json::from_value(condition.clone()).expect("a condition");
            assert_eq!(json!(ConditionFacts::of(&read).copied()), condition);
        }
    }
}
