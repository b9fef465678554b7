//! Networks.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{LabelMap, listed};

/// A private network. The servers and load balancers in it are derived from their attachments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// Id of the network.
    pub id: i64,
    /// Project of the network.
    pub project: String,
    /// Name of the network, unique in its project.
    pub name: String,
    /// When the network was created.
    pub created: Timestamp,
    /// User-defined labels.
    pub labels: LabelMap,
    /// Range of all addresses in the network.
    pub ip_range: String,
    /// Subnets, from which servers and load balancers get addresses.
    pub subnets: Vec<Subnet>,
    /// Routes to ranges behind a server.
    pub routes: Vec<NetworkRoute>,
    /// Whether deletion is refused.
    pub protected: bool,
    /// Whether the routes are also used by a coupled vSwitch.
    pub expose_routes_to_vswitch: bool,
}

listed!(Network);

/// A subnet of a network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subnet {
    /// `cloud`, `server` or `vswitch`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Range of the subnet.
    pub ip_range: String,
    /// Network zone of the subnet.
    pub network_zone: String,
    /// Address of the router.
    pub gateway: String,
    /// Id of the vSwitch, for a subnet of that type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vswitch_id: Option<i64>,
}

/// A route of a network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkRoute {
    /// Range that the route leads to.
    pub destination: String,
    /// Address in the network that forwards the traffic.
    pub gateway: String,
}
