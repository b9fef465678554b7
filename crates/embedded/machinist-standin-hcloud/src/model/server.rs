//! Servers.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{LabelMap, Listed};

/// A server. It is kept after its deletion, so that tests know every server that ever existed. It
/// holds no user data, because servers are printed and dumped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HcloudServer {
    /// Id of the server, unique in all projects.
    pub id: i64,
    /// Sequence number of the server, from 1.
    pub serial: u64,
    /// Project of the server.
    pub project: String,
    /// Name of the server, unique in its project.
    pub name: String,
    /// Status that replies show.
    pub status: ServerStatus,
    /// When the server was requested.
    pub created: Timestamp,
    /// Name of the server type.
    pub server_type: String,
    /// Id of the image.
    pub image: Option<i64>,
    /// Name of the location.
    pub location: String,
    /// User-defined labels.
    pub labels: LabelMap,
    /// Public IPv4 address, if the server has one.
    pub ipv4: Option<PublicIp>,
    /// Public IPv6 network, if the server has one.
    pub ipv6: Option<PublicIp>,
    /// Networks that the server is attached to.
    pub private_net: Vec<PrivateNet>,
    /// Size of the disk in gigabytes.
    pub primary_disk_size: u32,
    /// Whether deletion is refused.
    pub protected: bool,
    /// When replies to a GET by id begin to show the server.
    pub visible_by_id_at: Timestamp,
    /// When lists begin to show the server.
    pub visible_in_lists_at: Timestamp,
    /// When the server ceased to exist.
    pub deleted: Option<Timestamp>,
}

impl HcloudServer {
    /// Whether the server exists, in any status.
    pub fn is_alive(&self) -> bool {
        self.deleted.is_none()
    }

    /// The provider id of the server's Node: `hcloud://ID`.
    pub fn provider_id(&self) -> String {
        format!("hcloud://{}", self.id)
    }
}

impl Listed for HcloudServer {
    fn id(&self) -> i64 {
        self.id
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn created(&self) -> Timestamp {
        self.created
    }
    fn labels(&self) -> Option<&LabelMap> {
        Some(&self.labels)
    }
    fn status(&self) -> Option<&'static str> {
        Some(self.status.as_str())
    }
}

/// The status of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerStatus {
    /// The server is being created.
    Initializing,
    /// The server has power and is not ready.
    Starting,
    /// The server runs.
    Running,
    /// The server is shutting down.
    Stopping,
    /// The server has no power.
    Off,
    /// The server is being deleted.
    Deleting,
    /// The server is being moved to other hardware.
    Migrating,
    /// The disk of the server is being written from an image.
    Rebuilding,
    /// The cloud does not know.
    Unknown,
}

impl ServerStatus {
    /// The word in replies and in the `status` filter.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Initializing => "initializing",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Off => "off",
            Self::Deleting => "deleting",
            Self::Migrating => "migrating",
            Self::Rebuilding => "rebuilding",
            Self::Unknown => "unknown",
        }
    }
}

/// A public address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublicIp {
    /// Id of the address.
    pub id: i64,
    /// The IPv4 address, or the IPv6 network with its prefix length.
    pub ip: String,
}

/// The attachment of a server to a network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrivateNet {
    /// Id of the network.
    pub network: i64,
    /// Address in the network.
    pub ip: String,
    /// Further addresses in the network.
    pub alias_ips: Vec<String>,
    /// Hardware address of the interface.
    pub mac_address: String,
}
