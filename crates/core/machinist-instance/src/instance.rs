//! Instances, and the types with which a driver finds and lists them.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::identity::{InstanceKey, NativeId, NodeName, ProviderId};

/// One instance in a cloud, as the cloud described it at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Instance {
    /// The cloud's identity of the instance; never changes.
    pub id: ProviderId,
    /// The cloud's internal id, if [`id`](Self::id) is a name that the cloud gives out again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native_id: Option<NativeId>,
    /// The key for which the driver created the instance; absent if another program created it.
    pub key: Option<InstanceKey>,
    /// The installation from the instance's tag; absent if another program created the instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The name with which the kubelet registers the Node.
    pub name: NodeName,
    /// The power state that the cloud reports.
    pub power: Power,
    /// The network addresses of the instance.
    pub addresses: Vec<Address>,
    /// The cloud's name of the size, for example `m5.large`.
    pub instance_type: Option<String>,
    /// Zone of the cloud, if it has zones. Cluster API calls it the failure domain.
    pub zone: Option<String>,
    /// Region of the cloud, if it has regions.
    pub region: Option<String>,
    /// Tags of the instance in the cloud, without the tag that stores the key.
    pub tags: BTreeMap<String, String>,
    /// Labels that the cloud's Nodes have, beyond type, zone and region.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_labels: BTreeMap<String, String>,
    /// When the cloud accepted the creation.
    pub created: Timestamp,
}

/// The power state of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Power {
    /// The cloud has accepted the creation; the instance does not run yet.
    Pending,
    /// The instance runs.
    Running,
    /// The instance is stopped and can be started again.
    Stopped,
    /// The cloud could not start the instance, or lost it, and will not repair it.
    Failed,
    /// The cloud is stopping, moving or rebuilding the instance, or does not say.
    Changing,
    /// The cloud is deleting the instance, which still exists.
    Deleting,
}

/// A network address of an instance.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Address {
    /// Whether the address is an IP address or a name, internal or external.
    pub kind: AddressKind,
    /// The IP address or name as text.
    pub address: String,
}

/// The types of Node addresses, spelled as in the Kubernetes API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum AddressKind {
    /// An IP address that is reachable inside the cloud's network.
    InternalIP,
    /// An IP address that is reachable from outside.
    ExternalIP,
    /// The host name of the instance.
    Hostname,
    /// A name that resolves inside the cloud's network.
    InternalDNS,
    /// A name that resolves outside the cloud's network.
    ExternalDNS,
}

/// A reference to one instance. A driver uses the strongest identity given: id, then key, then
/// name.
///
/// ```
/// use machinist_instance::{InstanceKey, InstanceRef, NodeName, ProviderId};
///
/// let by_key = InstanceRef { key: Some(InstanceKey::new("uid-1")), ..InstanceRef::default() };
/// assert_eq!(by_key.to_string(), "key uid-1");
/// let by_name = InstanceRef { name: NodeName::new("workers-1"), ..by_key };
/// assert_eq!(by_name.to_string(), "workers-1");
/// let by_id = InstanceRef { id: ProviderId::parse("sim:///workers-1").ok(), ..by_name };
/// assert_eq!(by_id.to_string(), "sim:///workers-1");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
pub struct InstanceRef {
    /// The cloud's identity, if known.
    pub id: Option<ProviderId>,
    /// The key of the instance, even if the cloud has not created it.
    pub key: Option<InstanceKey>,
    /// The name of the instance, even if the cloud has not created it.
    pub name: Option<NodeName>,
    /// The recorded name of the Node, if it is not the name of the instance. Only drivers of clouds
    /// that name the Nodes read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<NodeName>,
    /// The native id that the caller recorded. A driver may search by it before all others, because
    /// ids and names can change. If the found instance has another key and this native id, it
    /// belongs to the caller nevertheless. Only drivers with [`crate::KeyTag::Fixed`] use it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native_id: Option<NativeId>,
    /// The Kubernetes cluster of the caller's object. If it is present, the recorded native id
    /// counts only for an instance whose own labels name this cluster: users can write the recorded
    /// id, and not the labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The text that the driver last returned with an error about this instance, see
    /// [`crate::Error::with_state`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_known_state: Option<String>,
    /// Whether `delete` may delete the instance although it has no key: another program created it,
    /// and the caller knows that it belongs to the caller's object.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_lack_key: bool,
}

impl fmt::Display for InstanceRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.id, &self.name, &self.key) {
            (Some(id), _, _) => write!(f, "{id}"),
            (None, Some(name), _) => write!(f, "{name}"),
            (None, None, Some(key)) => write!(f, "key {key}"),
            (None, None, None) => f.write_str("nothing"),
        }
    }
}

/// The result of `find`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Sighting {
    /// The instance exists. If `Instance::key` is absent, another program created an instance of
    /// that name.
    Present(Instance),
    /// The cloud does not show the instance. [`crate::Promises::visible_within`] says when that
    /// proves its absence.
    Absent,
    /// The instance was in this account and is deleted: the cloud still shows its end. It never
    /// comes back. Only a search by id has this result, and only for an instance without another
    /// key than the requested one. Unlike an absence, it shows that the account is the account of
    /// the instance. A cloud that forgets an instance at once answers [`Self::Absent`].
    Ended,
    /// The cloud does not show the instance, but parts of it exist: a port or a volume that was
    /// made before the instance, or that is left of it. Each part carries the key. Each text names
    /// one part. `ensure` uses the parts, `delete` deletes them, and the instance is gone when
    /// `find` returns `Absent`.
    Parts(Vec<String>),
    /// An instance with that id or name exists, belongs to another owner, and does not have the
    /// recorded native id.
    Foreign(Foreign),
}

impl Sighting {
    /// Whether the instance does not exist, and no parts of it are known.
    pub fn is_absent(&self) -> bool {
        match self {
            Self::Absent | Self::Ended => true,
            Self::Present(_) | Self::Parts(_) | Self::Foreign(_) => false,
        }
    }

    /// The result of a search that found this instance, or none. An instance with another key than
    /// the requested one is foreign.
    pub fn of(which: &InstanceRef, found: impl Into<Option<Instance>>) -> Self {
        match found.into() {
            None => Self::Absent,
            Some(instance) => match (&which.key, &instance.key) {
                (Some(asked), Some(carried)) if asked != carried => Self::Foreign(instance.into()),
                _ => Self::Present(instance),
            },
        }
    }
}

/// An instance of another owner: it has another key than the requested one, or it has no key and
/// another program created it for a machine of that name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Foreign {
    /// The cloud's identity of the instance.
    pub id: ProviderId,
    /// The key of the instance; absent if another program created it.
    pub key: Option<InstanceKey>,
    /// The installation from the instance's tag.
    pub cluster: Option<String>,
    /// When the cloud created the instance, by the cloud's clock.
    pub created: Timestamp,
}

impl From<Instance> for Foreign {
    fn from(Instance { id, key, cluster, created, .. }: Instance) -> Self {
        Self { id, key, cluster, created }
    }
}

/// Whether an instance without a key carries the marks that another program puts on the instances
/// of a class, such as the tags of a provider of machine-controller-manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Marks {
    /// No other program marks instances of this class.
    #[default]
    NotUsed,
    /// Instances of the class have marks, and this one has none: another program created it, or a
    /// user removed them.
    Missing,
    /// The marks name another cluster than the class does now. A user may have edited the class.
    OfAnotherClass,
    /// The instance has the marks of the class.
    OfClass,
}

/// The instances that `list` returns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scope {
    /// The instances with the tag of this installation.
    Ours(String),
    /// Every instance that the account may see.
    Visible,
}
