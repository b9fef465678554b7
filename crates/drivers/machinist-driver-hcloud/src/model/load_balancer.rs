//! Load balancers.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::Timestamp;
use serde::Deserialize;

use super::{Id, null_as_default};

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct LoadBalancer {
    pub(crate) id: i64,
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) created: Option<Timestamp>,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) public_net: BalancerPublicNet,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) private_net: Vec<BalancerPrivateNet>,
    #[serde(default)]
    pub(crate) location: Option<BalancerLocation>,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) load_balancer_type: BalancerType,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) protection: Protection,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) labels: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) targets: Vec<BalancerTargetModel>,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) services: Vec<BalancerService>,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) algorithm: BalancerAlgorithm,
}

impl LoadBalancer {
    /// Whether the server is a target by its id.
    pub(crate) fn has_server(&self, server: i64) -> bool {
        self.targets.iter().filter_map(|target| target.server).any(|found| found.id == server)
    }
}

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
pub(crate) struct BalancerPublicNet {
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) enabled: bool,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) ipv4: BalancerIp,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) ipv6: BalancerIp,
}

/// A public address with its reverse DNS entry. The address is absent while the cloud creates the
/// balancer.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
pub(crate) struct BalancerIp {
    #[serde(default)]
    pub(crate) ip: Option<IpAddr>,
    #[serde(default)]
    pub(crate) dns_ptr: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct BalancerPrivateNet {
    pub(crate) network: i64,
    /// Absent while the cloud attaches the balancer.
    #[serde(default)]
    pub(crate) ip: Option<IpAddr>,
}

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
pub(crate) struct BalancerLocation {
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) network_zone: String,
}

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
pub(crate) struct BalancerType {
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) max_targets: Option<usize>,
    /// When the type was deprecated; absent if it is current.
    #[serde(default)]
    pub(crate) deprecated: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
pub(crate) struct Protection {
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) delete: bool,
}

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
pub(crate) struct BalancerAlgorithm {
    #[serde(default, rename = "type", deserialize_with = "null_as_default")]
    pub(crate) kind: String,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct BalancerTargetModel {
    #[serde(rename = "type")]
    pub(crate) kind: TargetKind,
    #[serde(default)]
    pub(crate) server: Option<Id>,
    #[serde(default)]
    pub(crate) ip: Option<TargetIp>,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) use_private_ip: bool,
    /// The health of each port on which the balancer listens.
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) health_status: Vec<TargetHealth>,
}

/// The health of a target for one port on which the balancer listens.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct TargetHealth {
    pub(crate) listen_port: u16,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) status: String,
}

impl TargetHealth {
    pub(crate) fn is_healthy(&self) -> bool {
        self.status == "healthy"
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TargetKind {
    Server,
    Ip,
    LabelSelector,
    /// A sort of target that this driver does not know and does not touch.
    #[serde(other)]
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct TargetIp {
    pub(crate) ip: String,
}

/// A service of a balancer: one port on which it listens.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct BalancerService {
    pub(crate) protocol: String,
    pub(crate) listen_port: u16,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) destination_port: u16,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) proxyprotocol: bool,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) http: HttpModel,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) health_check: HealthCheck,
}

/// HTTP options of a service. Times are in seconds.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
pub(crate) struct HttpModel {
    #[serde(default)]
    pub(crate) cookie_name: Option<String>,
    #[serde(default)]
    pub(crate) cookie_lifetime: Option<u64>,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) certificates: Vec<i64>,
    #[serde(default)]
    pub(crate) redirect_http: Option<bool>,
    #[serde(default)]
    pub(crate) sticky_sessions: Option<bool>,
    #[serde(default)]
    pub(crate) timeout_idle: Option<u64>,
}

/// Health check of a service. Times are in seconds.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
pub(crate) struct HealthCheck {
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) protocol: String,
    #[serde(default)]
    pub(crate) port: Option<u16>,
    #[serde(default)]
    pub(crate) interval: Option<u64>,
    #[serde(default)]
    pub(crate) timeout: Option<u64>,
    #[serde(default)]
    pub(crate) retries: Option<u32>,
    #[serde(default)]
    pub(crate) http: Option<HealthCheckHttp>,
}

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
pub(crate) struct HealthCheckHttp {
    #[serde(default)]
    pub(crate) domain: Option<String>,
    #[serde(default)]
    pub(crate) path: Option<String>,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) status_codes: Vec<String>,
    #[serde(default)]
    pub(crate) tls: Option<bool>,
}
