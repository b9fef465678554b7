//! The parts of the answers of Keystone, Nova, Neutron and Cinder that this driver reads.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

/// The answer of Keystone to a login. The token itself is in a header.
#[derive(Debug, Deserialize)]
pub(crate) struct LoginAnswer {
    pub(crate) token: TokenBody,
}

#[derive(Debug, Deserialize)]
pub(crate) struct TokenBody {
    pub(crate) expires_at: Timestamp,
    pub(crate) issued_at: Option<Timestamp>,
    #[serde(default)]
    pub(crate) catalog: Vec<CatalogService>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct CatalogService {
    #[serde(rename = "type")]
    pub(crate) sort: String,
    #[serde(default)]
    pub(crate) endpoints: Vec<CatalogEndpoint>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct CatalogEndpoint {
    pub(crate) interface: String,
    pub(crate) region: Option<String>,
    pub(crate) region_id: Option<String>,
    pub(crate) url: String,
}

/// A server of Nova, as microversion 2.1 shows it.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Server {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) status: String,
    #[serde(default)]
    pub(crate) metadata: BTreeMap<String, String>,
    pub(crate) created: Timestamp,
    #[serde(default)]
    pub(crate) addresses: BTreeMap<String, Vec<ServerAddress>>,
    pub(crate) flavor: Option<FlavorRef>,
    pub(crate) fault: Option<Fault>,
    #[serde(rename = "OS-EXT-STS:task_state")]
    pub(crate) task_state: Option<String>,
    #[serde(rename = "OS-EXT-AZ:availability_zone")]
    pub(crate) zone: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct ServerAddress {
    pub(crate) addr: String,
    #[serde(rename = "OS-EXT-IPS:type")]
    pub(crate) sort: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct FlavorRef {
    pub(crate) id: Option<String>,
}

/// Why a server is in the state `ERROR`.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Fault {
    #[serde(default)]
    pub(crate) message: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ServerBody {
    pub(crate) server: Server,
}

/// The answer to a creation, which contains only the id.
#[derive(Debug, Deserialize)]
pub(crate) struct CreatedBody {
    pub(crate) server: Identified,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Identified {
    pub(crate) id: String,
}

/// An image, a flavor, a network or a security group.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct NamedObject {
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) name: String,
}

/// A port of Neutron.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Port {
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) network_id: String,
    #[serde(default)]
    pub(crate) device_id: String,
    #[serde(default)]
    pub(crate) tags: Vec<String>,
    pub(crate) description: Option<String>,
    #[serde(default)]
    pub(crate) allowed_address_pairs: Vec<AddressPair>,
    pub(crate) revision_number: Option<u64>,
    pub(crate) created_at: Option<Timestamp>,
}

/// An address from which a port accepts packets. Unknown fields are sent back unchanged.
#[derive(Debug, Clone, PartialEq, Deserialize, serde::Serialize)]
pub(crate) struct AddressPair {
    #[serde(default)]
    pub(crate) ip_address: String,
    #[serde(flatten)]
    pub(crate) others: BTreeMap<String, Value>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct PortBody {
    pub(crate) port: Port,
}

/// A volume of Cinder.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Volume {
    pub(crate) id: String,
    pub(crate) name: Option<String>,
    pub(crate) status: String,
    #[serde(default)]
    pub(crate) metadata: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) attachments: Vec<Attachment>,
    /// Cinder writes UTC without a zone.
    pub(crate) created_at: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Attachment {
    #[serde(default)]
    pub(crate) server_id: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct VolumeBody {
    pub(crate) volume: Volume,
}
