//! What a cloud runs, and how it is asked for.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{InstanceKey, NodeName, ProviderId};

/// One machine in a cloud, as the cloud described it at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Instance {
    /// The cloud's identity of it; never changes.
    pub id: ProviderId,
    /// The key it was made for; absent for instances that others made.
    pub key: Option<InstanceKey>,
    /// The installation it was made for, by its tag; absent for instances that others made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The name its kubelet registers with.
    pub name: NodeName,
    /// Whether it runs.
    pub power: Power,
    /// Where it can be reached.
    pub addresses: Vec<Address>,
    /// The cloud's name of its size, for example `m5.large`.
    pub instance_type: Option<String>,
    /// Its zone.
    pub zone: Option<String>,
    /// Its region.
    pub region: Option<String>,
    /// Everything the cloud keeps beside it, the key's own tag left out.
    pub tags: BTreeMap<String, String>,
    /// When the cloud accepted it.
    pub created: Timestamp,
}

/// What an instance is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Power {
    /// Accepted, not running yet.
    Pending,
    /// Running.
    Running,
    /// Stopped; it can start again.
    Stopped,
    /// On its way out; it still exists.
    Deleting,
}

/// Where an instance can be reached.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Address {
    /// What kind of address this is.
    pub kind: AddressKind,
    /// The address itself.
    pub address: String,
}

/// The kinds of address that a Node knows, spelled as Kubernetes spells them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum AddressKind {
    /// Reachable inside the cloud's network.
    InternalIP,
    /// Reachable from outside.
    ExternalIP,
    /// The host name.
    Hostname,
    /// A name that resolves inside the cloud's network.
    InternalDNS,
    /// A name that resolves outside.
    ExternalDNS,
}

/// Which instance is meant. A driver uses the strongest identity given: id, then key, then name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
pub struct InstanceRef {
    /// The cloud's identity, once known.
    pub id: Option<ProviderId>,
    /// The key it was, or would have been, made for.
    pub key: Option<InstanceKey>,
    /// The name it was, or would have been, made with.
    pub name: Option<NodeName>,
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

/// The answer to `find`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Sighting {
    /// It exists. `Instance::key` may be absent: then others made it, under our name.
    Present(Instance),
    /// The cloud does not show it. What this proves depends on [`crate::Promises::visible_within`].
    Absent,
    /// Something exists under that id or name which was made for another key.
    Foreign(Foreign),
}

/// An instance that carries another key than the one that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Foreign {
    /// The instance.
    pub id: ProviderId,
    /// The key it carries.
    pub key: InstanceKey,
    /// The installation it was made for, by its tag.
    pub cluster: Option<String>,
}

/// What `list` covers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scope {
    /// Instances made by this installation for that cluster.
    Ours(String),
    /// Everything this account may see.
    Visible,
}
