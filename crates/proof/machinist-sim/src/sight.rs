//! Read access to API objects as they are on the wire.
//!
//! Scenarios and invariants read objects as JSON, not through the product's types. So they also see
//! fields that the product misreads or omits.

use std::sync::Arc;

use jiff::Timestamp;
use machinist_api::constants::{annotations, finalizers, labels};
use machinist_apiserver::{Object, Server};
use serde_json::Value;

/// The namespace of all objects that the user creates.
pub const NAMESPACE: &str = "default";
/// The cluster name of this installation.
pub const CLUSTER: &str = "sim";
/// UID of the namespace of another installation with the same names. Its instances are in the same
/// account, and its Nodes in the same cluster.
pub const OTHER_NAMESPACE: &str = "1b2c3d4e-0000-4000-8000-000000000000";
/// The table of Machines, as the embedded server names it.
pub const MACHINES: &str = "machines.machine.sapcloud.io";
/// The table of Services.
pub const SERVICES: &str = "services";
/// The table of DockerClusters.
pub const DOCKER_CLUSTERS: &str = "dockerclusters.infrastructure.cluster.x-k8s.io";
/// The table of DockerMachines.
pub const DOCKER_MACHINES: &str = "dockermachines.infrastructure.cluster.x-k8s.io";
/// The table of MachineSets.
pub const MACHINE_SETS: &str = "machinesets.machine.sapcloud.io";
/// The table of MachineDeployments.
pub const MACHINE_DEPLOYMENTS: &str = "machinedeployments.machine.sapcloud.io";
/// The table of Nodes.
pub const NODES: &str = "nodes";
/// The table of Pods.
pub const PODS: &str = "pods";
/// The table of VolumeAttachments.
pub const VOLUME_ATTACHMENTS: &str = "volumeattachments";
/// The table of MachineClasses.
pub const MACHINE_CLASSES: &str = "machineclasses.machine.sapcloud.io";
/// The table of Leases.
pub const LEASES: &str = "leases";
/// The table of Secrets.
pub const SECRETS: &str = "secrets";

/// One API object, shared.
#[derive(Debug, Clone)]
pub enum Item {
    /// An object as the embedded server stores it.
    Stored(Arc<Object>),
    /// An object that was read from another server.
    Read(Arc<Value>),
}

impl Item {
    /// All objects of these tables of an embedded server.
    pub fn all(server: &Server, tables: &[&str]) -> Vec<Self> {
        tables.iter().flat_map(|table| server.snapshot(table)).map(Self::Stored).collect()
    }

    /// A read-only view of the object.
    pub fn seen(&self) -> SeenObject<'_> {
        match self {
            Self::Stored(object) => SeenObject(object.value()),
            Self::Read(value) => SeenObject(value),
        }
    }
}

/// A read-only view of one object. Absent fields read as empty, 0 or `None`.
#[derive(Debug, Clone, Copy)]
pub struct SeenObject<'a>(pub &'a Value);

impl<'a> SeenObject<'a> {
    /// The value at a JSON pointer without escapes. For these, `Value::pointer` copies each part
    /// twice.
    fn at(self, pointer: &str) -> Option<&'a Value> {
        let parts = pointer.strip_prefix('/')?.split('/');
        parts.into_iter().try_fold(self.0, |value, part| match value {
            Value::Object(fields) => fields.get(part),
            Value::Array(items) => items.get(part.parse::<usize>().ok()?),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        })
    }

    /// The text at a JSON pointer.
    pub fn text(self, pointer: &str) -> &'a str {
        self.at(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// The number at a JSON pointer.
    pub fn number(self, pointer: &str) -> Option<i64> {
        self.at(pointer).and_then(Value::as_i64)
    }

    /// The time at a JSON pointer.
    pub fn time(self, pointer: &str) -> Option<Timestamp> {
        self.text(pointer).parse().ok()
    }

    /// The list at a JSON pointer.
    pub fn list(self, pointer: &str) -> &'a [Value] {
        self.at(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// `metadata.name`
    pub fn name(self) -> &'a str {
        self.text("/metadata/name")
    }

    /// `metadata.namespace`
    pub fn namespace(self) -> &'a str {
        self.text("/metadata/namespace")
    }

    /// `metadata.uid`
    pub fn uid(self) -> &'a str {
        self.text("/metadata/uid")
    }

    /// `metadata.creationTimestamp`
    pub fn created(self) -> Option<Timestamp> {
        self.time("/metadata/creationTimestamp")
    }

    /// `metadata.deletionTimestamp`
    pub fn deleting_since(self) -> Option<Timestamp> {
        self.time("/metadata/deletionTimestamp")
    }

    /// Whether the object is being deleted.
    pub fn is_deleting(self) -> bool {
        self.at("/metadata/deletionTimestamp").is_some_and(|at| !at.is_null())
    }

    /// One label; empty when absent.
    pub fn label(self, name: &str) -> &'a str {
        self.entry("labels", name)
    }

    /// One annotation; empty when absent.
    pub fn annotation(self, name: &str) -> &'a str {
        self.entry("annotations", name)
    }

    fn entry(self, map: &str, name: &str) -> &'a str {
        // A JSON pointer would have to escape the slashes in the names.
        let found =
            self.0.get("metadata").and_then(|metadata| metadata.get(map)).and_then(|map| map.get(name));
        found.and_then(Value::as_str).unwrap_or_default()
    }

    /// Whether a Node is annotated as not managed.
    pub fn is_not_managed(self) -> bool {
        !self.annotation(annotations::NOT_MANAGED_BY_MCM).is_empty()
    }

    /// Whether the object has that finalizer.
    pub fn has_finalizer(self, finalizer: &str) -> bool {
        self.list("/metadata/finalizers").iter().any(|on| on == finalizer)
    }

    /// Whether the object has the finalizer that means "an instance may exist".
    pub fn has_intent(self) -> bool {
        self.has_finalizer(finalizers::MACHINE_CONTROLLER_MANAGER)
    }

    /// The UID of the controlling owner.
    pub fn owner_uid(self) -> Option<&'a str> {
        let owners = self.list("/metadata/ownerReferences").iter();
        let mut controllers = owners.filter(|owner| owner.get("controller") == Some(&Value::Bool(true)));
        controllers.next()?.get("uid")?.as_str()
    }

    /// The description of a Machine's last operation.
    pub fn operation_text(self) -> &'a str {
        self.text("/status/lastOperation/description")
    }

    /// A Machine's phase.
    pub fn phase(self) -> &'a str {
        self.text("/status/currentStatus/phase")
    }

    /// `spec.providerID` of a Machine or a Node.
    pub fn provider_id(self) -> &'a str {
        self.text("/spec/providerID")
    }

    /// The name of a Machine's Node.
    pub fn node_label(self) -> &'a str {
        self.label(labels::NODE)
    }

    /// The name of a Node's Machine.
    pub fn machine_label(self) -> &'a str {
        self.label(labels::MACHINE_NAME)
    }

    /// `spec.replicas` of a set or deployment; 0 when absent.
    pub fn replicas(self) -> u32 {
        self.number("/spec/replicas").map_or(0, |replicas| u32::try_from(replicas).unwrap_or(0))
    }

    /// Maximum number of Machines above `replicas`: a number, or a percentage of the replicas,
    /// rounded up.
    pub fn max_surge(self) -> u32 {
        if self.recreates() {
            return 0;
        }
        self.part_of_replicas(&self.limit("maxSurge"), Rounding::Up)
    }

    /// Whether the strategy of a deployment is `InPlaceUpdate`.
    pub fn updates_in_place(self) -> bool {
        self.text("/spec/strategy/type") == "InPlaceUpdate"
    }

    /// The pointer to a limit of the strategy.
    fn limit(self, name: &str) -> String {
        let strategy = if self.updates_in_place() { "inPlaceUpdate" } else { "rollingUpdate" };
        format!("/spec/strategy/{strategy}/{name}")
    }

    /// Whether the strategy of a deployment is `Recreate`.
    pub fn recreates(self) -> bool {
        self.text("/spec/strategy/type") == "Recreate"
    }

    /// Maximum number of unavailable Machines: 0 for `Recreate`, otherwise a number, or a
    /// percentage of the replicas, rounded down.
    pub fn max_unavailable(self) -> u32 {
        if self.recreates() {
            return 0;
        }
        let unavailable = self.part_of_replicas(&self.limit("maxUnavailable"), Rounding::Down);
        // As upstream: if both are 0, one may be unavailable, because otherwise no rollout could
        // proceed.
        if unavailable == 0 && self.max_surge() == 0 { 1 } else { unavailable }
    }

    fn part_of_replicas(self, pointer: &str, rounding: Rounding) -> u32 {
        const DEFAULT: u32 = 1;
        match self.at(pointer) {
            None | Some(Value::Null) => DEFAULT,
            Some(Value::String(text)) => {
                let percent: u32 = text.trim_end_matches('%').parse().unwrap_or(0);
                let hundredfold = self.replicas().saturating_mul(percent);
                match rounding {
                    Rounding::Up => hundredfold.div_ceil(100),
                    Rounding::Down => hundredfold / 100,
                }
            }
            Some(number) => number.as_u64().and_then(|number| u32::try_from(number).ok()).unwrap_or(DEFAULT),
        }
    }

    /// The status of a condition of a Node, Pod or deployment (`status.conditions`); empty when
    /// absent.
    pub fn condition(self, kind: &str) -> &'a str {
        self.condition_field(kind, "status")
    }

    /// The reason of a condition; empty when absent.
    pub fn condition_reason(self, kind: &str) -> &'a str {
        self.condition_field(kind, "reason")
    }

    /// The last transition time of a condition.
    pub fn condition_since(self, kind: &str) -> Option<Timestamp> {
        self.condition_field(kind, "lastTransitionTime").parse().ok()
    }

    fn condition_field(self, kind: &str, field: &str) -> &'a str {
        let found = self.list("/status/conditions").iter().find(|condition| condition["type"] == kind);
        found.and_then(|condition| condition.get(field)).and_then(Value::as_str).unwrap_or_default()
    }

    /// Whether a Node is cordoned.
    pub fn is_cordoned(self) -> bool {
        self.at("/spec/unschedulable") == Some(&Value::Bool(true))
    }
}

enum Rounding {
    Up,
    Down,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment(replicas: u32, surge: Value, unavailable: Value) -> Value {
        json!({"spec": {"replicas": replicas, "strategy": {"rollingUpdate": {
            "maxSurge": surge, "maxUnavailable": unavailable}}}})
    }

    #[test]
    fn parts_of_the_replicas_are_rounded_as_upstream_does() {
        let value = deployment(5, json!("30%"), json!("30%"));
        assert_eq!((SeenObject(&value).max_surge(), SeenObject(&value).max_unavailable()), (2, 1));
        let stuck = deployment(5, json!(0), json!(0));
        assert_eq!(SeenObject(&stuck).max_unavailable(), 1);
    }

    #[test]
    fn absent_fields_read_as_empty() {
        let nothing = json!({});
        let seen = SeenObject(&nothing);
        assert_eq!((seen.name(), seen.label("a/b"), seen.replicas()), ("", "", 0));
        assert!(!seen.is_deleting() && !seen.has_intent() && seen.owner_uid().is_none());
    }
}
