//! The condition NetworkUnavailable of a Node.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;

use crate::ccm::facts::CloudNodeFacts;

/// A write of the condition NetworkUnavailable.
#[derive(Debug, Clone)]
pub struct NetworkCondition {
    /// The Node as it was read.
    pub node: Arc<CloudNodeFacts>,
    /// The status: `False` if all routes of the Node exist, else `True`.
    pub status: &'static str,
    /// The reason: `RouteCreated` or `NoRouteCreated`.
    pub reason: &'static str,
    /// The message.
    pub message: &'static str,
    /// The time of this write.
    pub heartbeat: Timestamp,
    /// When the status changed: the time in the Node if only the reason changes.
    pub transition: Timestamp,
}

impl NetworkCondition {
    /// Returns the write that the Node needs, if any. A condition with another reason is
    /// overwritten: another program may have set it, and this one decides about the routes.
    pub(super) fn needed(node: &Arc<CloudNodeFacts>, has_routes: bool, now: Timestamp) -> Option<Self> {
        let (status, reason, message) = if has_routes {
            ("False", "RouteCreated", "RouteController created a route")
        } else {
            ("True", "NoRouteCreated", "RouteController failed to create a route")
        };
        let current = node.network.as_ref();
        if current.is_some_and(|current| current.status == status && current.reason == reason) {
            return None;
        }
        let unchanged = current.filter(|current| current.status == status);
        let transition = unchanged.and_then(|current| current.since).unwrap_or(now);
        Some(Self { node: node.clone(), status, reason, message, heartbeat: now, transition })
    }
}

impl fmt::Display for NetworkCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}: NetworkUnavailable={}, {}", self.node.name, self.status, self.reason)
    }
}
