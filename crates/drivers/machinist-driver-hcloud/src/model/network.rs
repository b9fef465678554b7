//! Networks and their routes.

use std::net::IpAddr;

use serde::Deserialize;

use super::null_as_default;

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Network {
    pub(crate) id: i64,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) routes: Vec<NetworkRoute>,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) subnets: Vec<Subnet>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Subnet {
    #[serde(default, rename = "type", deserialize_with = "null_as_default")]
    pub(crate) kind: String,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) ip_range: String,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) network_zone: String,
    /// Absent in a subnet of a vSwitch.
    #[serde(default)]
    pub(crate) gateway: Option<IpAddr>,
}

impl Subnet {
    /// Whether the subnet connects dedicated servers, to which the cloud forwards.
    pub(crate) fn is_vswitch(&self) -> bool {
        self.kind == "vswitch"
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct NetworkRoute {
    pub(crate) destination: String,
    pub(crate) gateway: IpAddr,
}
