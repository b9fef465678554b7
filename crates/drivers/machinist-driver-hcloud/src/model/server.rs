//! Servers.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::Timestamp;
use serde::Deserialize;

use super::{Named, null_as_default};

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Server {
    pub(crate) id: i64,
    pub(crate) name: String,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) status: String,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) public_net: PublicNet,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) private_net: Vec<PrivateNet>,
    #[serde(default)]
    pub(crate) server_type: Option<Named>,
    #[serde(default)]
    pub(crate) location: Option<Named>,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) labels: BTreeMap<String, String>,
    /// A server without a creation time counts as old, so it is never adopted.
    #[serde(default = "long_ago")]
    pub(crate) created: Timestamp,
}

fn long_ago() -> Timestamp {
    Timestamp::UNIX_EPOCH
}

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
pub(crate) struct PublicNet {
    #[serde(default)]
    pub(crate) ipv4: Option<PublicIp>,
    #[serde(default)]
    pub(crate) ipv6: Option<PublicIp>,
}

/// A public address: an IPv4 address, or an IPv6 network in CIDR notation.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct PublicIp {
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) ip: String,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct PrivateNet {
    pub(crate) network: i64,
    /// Absent while the cloud attaches the server.
    #[serde(default)]
    pub(crate) ip: Option<IpAddr>,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) alias_ips: Vec<IpAddr>,
}
