//! Facts of a Node.

use std::fmt;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Taint};
use machinist_api::constants::{annotations, conditions, finalizers, labels, taints};
use machinist_core::orphan::NAMESPACE_TAG;
use machinist_labels::KeyValues;

use super::condition::ConditionFacts;
use super::machine::MachineFacts;
use super::machine::{has_finalizer, is_preserve_value};
use crate::facts::Version;

/// Annotation of a Node: which Machine of which installation added our finalizer, as
/// `CLUSTER/NAMESPACE/UID`. A bootstrap token has the same annotation, with its Machine.
pub const NODE_MARK: &str = "machinist.dev/machine";

/// Annotation of a Node: the provider id that its Machine recorded when it wrote the mark. It shows
/// that the id of the Machine was overwritten later.
pub const JOINED_AS: &str = "machinist.dev/provider-id";

/// The Machine that added our finalizer to a Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeMark {
    /// The value of `--cluster-name` of the installation.
    pub cluster: String,
    /// Namespace of the Machine.
    pub namespace: String,
    /// UID of the Machine.
    pub machine_uid: String,
}

impl NodeMark {
    /// Returns the mark of a Machine of the installation with this cluster name.
    pub fn of(machine: &MachineFacts, cluster: &str) -> Self {
        Self {
            cluster: cluster.to_owned(),
            namespace: machine.namespace.clone(),
            machine_uid: machine.uid.clone(),
        }
    }

    /// Reads a mark. The name of a cluster may contain a slash, the other parts cannot.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (rest, machine_uid) = text.rsplit_once('/')?;
        let (cluster, namespace) = rest.rsplit_once('/')?;
        Some(Self {
            cluster: cluster.to_owned(),
            namespace: namespace.to_owned(),
            machine_uid: machine_uid.to_owned(),
        })
    }
}

impl fmt::Display for NodeMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.cluster, self.namespace, self.machine_uid)
    }
}

/// Planner facts of a Node.
#[derive(Debug, Clone)]
pub struct NodeFacts {
    /// Version of the object.
    pub version: Version,
    /// Name of the Node.
    pub name: String,
    /// UID of the Node.
    pub uid: String,
    /// Creation timestamp, truncated to seconds.
    pub created: Timestamp,
    /// Deletion timestamp; absent unless the object is being deleted.
    pub deleting_since: Option<Timestamp>,
    /// Whether the Node has our finalizer.
    pub has_finalizer: bool,
    /// All finalizers, raw; absent if there are none.
    pub finalizers: Option<Vec<String>>,
    /// Labels. Guards distinguish absent from empty.
    pub labels: Option<KeyValues>,
    /// Annotations. Guards distinguish absent from empty.
    pub annotations: Option<KeyValues>,
    /// `spec.providerID`, raw. Guards distinguish absent from empty.
    pub provider_id: Option<String>,
    /// `spec.unschedulable`, raw.
    pub unschedulable: Option<bool>,
    /// `spec.taints`, raw. Guards distinguish absent from empty.
    pub taints: Option<Vec<Taint>>,
    /// Conditions of the Node.
    pub conditions: Box<[ConditionFacts]>,
    /// Names of the attached volumes in the status.
    pub attached: Box<[Box<str>]>,
    /// `status.capacity`, by resource.
    pub capacity: KeyValues,
}

impl NodeFacts {
    /// Whether the Node is being deleted and stays because of our finalizer.
    pub fn is_held(&self) -> bool {
        self.deleting_since.is_some() && self.has_finalizer
    }

    /// Reads a Node.
    pub fn parse(node: &Node) -> Self {
        let metadata = &node.metadata;
        let spec = node.spec.as_ref();
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
        let capacity = node.status.as_ref().and_then(|status| status.capacity.as_ref());
        let capacity = capacity.into_iter().flatten();
        let attached = node.status.as_ref().and_then(|status| status.volumes_attached.as_ref());
        Self {
            version: Version::of(metadata),
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            created: metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            deleting_since: metadata.deletion_timestamp.as_ref().map(|time| time.0),
            has_finalizer: has_finalizer(metadata, finalizers::NODE),
            finalizers: metadata.finalizers.clone(),
            labels: metadata.labels.as_ref().map(KeyValues::from),
            annotations: metadata.annotations.as_ref().map(KeyValues::from),
            provider_id: spec.and_then(|spec| spec.provider_id.clone()),
            unschedulable: spec.and_then(|spec| spec.unschedulable),
            taints: spec.and_then(|spec| spec.taints.clone()),
            conditions: conditions.into_iter().flatten().map(ConditionFacts::of).collect(),
            attached: attached.into_iter().flatten().map(|volume| volume.name.as_str().into()).collect(),
            capacity: capacity.map(|(key, value)| (key.as_str(), value.0.as_str())).collect(),
        }
    }

    /// Returns `spec.providerID` unless it is empty.
    pub fn provider_id(&self) -> Option<&str> {
        self.provider_id.as_deref().filter(|id| !id.is_empty())
    }

    /// Returns the name of the Machine from the Node's label.
    pub fn machine_name(&self) -> Option<&str> {
        self.labels.as_ref()?.get(labels::MACHINE_NAME)
    }

    /// Returns which Machine added our finalizer. A text that cannot be parsed names a Machine of
    /// another installation.
    pub fn mark(&self) -> Option<NodeMark> {
        let text = self.annotations.as_ref()?.get(NODE_MARK)?;
        let unknown =
            || NodeMark { cluster: text.to_owned(), namespace: String::new(), machine_uid: String::new() };
        Some(NodeMark::parse(text).unwrap_or_else(unknown))
    }

    /// Returns the UID of the namespace of the Machine that added our finalizer. Two installations
    /// may have the same names.
    pub fn namespace_uid(&self) -> Option<&str> {
        self.annotation(NAMESPACE_TAG)
    }

    /// Returns the capacity of a resource.
    pub fn capacity(&self, resource: &str) -> Option<&str> {
        self.capacity.get(resource)
    }

    /// Whether the Node is Ready.
    pub fn is_ready(&self) -> bool {
        self.condition(conditions::NODE_READY).is_some_and(|ready| ready.status == "True")
    }

    /// Returns the condition of a type.
    pub fn condition(&self, kind: &str) -> Option<&ConditionFacts> {
        self.conditions.iter().find(|condition| condition.kind == kind)
    }

    /// Returns the preserve annotation; empty if the Node has none, absent if the value is unknown.
    pub fn preserve(&self) -> Option<&str> {
        let value = self.annotation(annotations::PRESERVE).unwrap_or_default();
        is_preserve_value(value).then_some(value)
    }

    /// Returns the value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.as_ref()?.get(key)
    }

    /// Returns the value of an annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.as_ref()?.get(key)
    }

    /// Returns the taint of the Node of a preserved Machine that has failed.
    pub fn preserved_taint(&self) -> Option<&Taint> {
        self.taints
            .iter()
            .flatten()
            .find(|taint| taint.key == taints::PRESERVED && taint.effect == taints::EFFECT_NO_SCHEDULE)
    }

    /// Whether the annotation `not-managed-by-mcm` excludes the Node from management.
    pub fn is_not_managed(&self) -> bool {
        self.annotations.as_ref().is_some_and(|all| all.contains_key(annotations::NOT_MANAGED_BY_MCM))
    }
}
