//! Load balancers.

use jiff::Timestamp;
use machinist_labels::Selector;
use serde::{Deserialize, Serialize};

use super::{HcloudServer, LabelMap, PublicIp, listed};

/// A load balancer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HcloudLoadBalancer {
    /// Id of the load balancer.
    pub id: i64,
    /// Project of the load balancer.
    pub project: String,
    /// Name of the load balancer, unique in its project.
    pub name: String,
    /// When the load balancer was created.
    pub created: Timestamp,
    /// User-defined labels.
    pub labels: LabelMap,
    /// Name of the load balancer type.
    pub load_balancer_type: String,
    /// Name of the location.
    pub location: String,
    /// How connections are spread.
    pub algorithm: LbAlgorithm,
    /// Public IPv4 address.
    pub ipv4: PublicIp,
    /// Host name that the IPv4 address resolves to.
    pub ipv4_dns_ptr: String,
    /// Public IPv6 address.
    pub ipv6: PublicIp,
    /// Host name that the IPv6 address resolves to.
    pub ipv6_dns_ptr: String,
    /// Whether the public addresses are in use.
    pub public_interface: bool,
    /// Networks that the load balancer is attached to.
    pub private_net: Vec<LbPrivateNet>,
    /// Services, in the order of their creation.
    pub services: Vec<Service>,
    /// Targets, in the order of their creation.
    pub targets: Vec<LbTarget>,
    /// Whether deletion is refused.
    pub protected: bool,
    /// When replies to a GET by id begin to show the load balancer.
    pub visible_by_id_at: Timestamp,
    /// When lists begin to show the load balancer.
    pub visible_in_lists_at: Timestamp,
}

listed!(HcloudLoadBalancer);

/// How a load balancer spreads connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LbAlgorithm {
    /// To each target in turn.
    RoundRobin,
    /// To the target with the fewest connections.
    LeastConnections,
}

/// The attachment of a load balancer to a network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LbPrivateNet {
    /// Id of the network.
    pub network: i64,
    /// Address in the network.
    pub ip: String,
}

/// A service of a load balancer. The listen port identifies it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    /// Protocol of the service.
    pub protocol: Protocol,
    /// Port of the load balancer.
    pub listen_port: u16,
    /// Port of the targets.
    pub destination_port: u16,
    /// Whether connections begin with the PROXY protocol's header.
    pub proxyprotocol: bool,
    /// Options of HTTP and HTTPS services.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<ServiceHttp>,
    /// How targets are checked.
    pub health_check: HealthCheck,
}

/// The protocol of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// Bytes are forwarded as they are.
    Tcp,
    /// Requests are forwarded.
    Http,
    /// TLS ends at the load balancer, and requests are forwarded.
    Https,
}

/// Options of HTTP and HTTPS services.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceHttp {
    /// Name of the cookie of sticky sessions.
    pub cookie_name: String,
    /// Lifetime of the cookie in seconds.
    pub cookie_lifetime: u32,
    /// Ids of certificates, for HTTPS.
    pub certificates: Vec<i64>,
    /// Whether port 80 redirects to this service.
    pub redirect_http: bool,
    /// Whether a client stays with its target.
    pub sticky_sessions: bool,
    /// Time in seconds after which an idle connection is closed.
    pub timeout_idle: u32,
}

/// How targets are checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthCheck {
    /// Protocol of the check.
    pub protocol: Protocol,
    /// Port of the targets.
    pub port: u16,
    /// Time between checks in seconds.
    pub interval: u32,
    /// Time in seconds after which a check fails.
    pub timeout: u32,
    /// Number of failed checks after which a target is unhealthy.
    pub retries: u32,
    /// Options of HTTP checks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<HealthCheckHttp>,
}

/// Options of HTTP checks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthCheckHttp {
    /// Value of the `Host` header.
    pub domain: String,
    /// Path of the request.
    pub path: String,
    /// Text that the reply must contain.
    pub response: String,
    /// Accepted statuses; `?` stands for any digit.
    pub status_codes: Vec<String>,
    /// Whether the check uses TLS.
    pub tls: bool,
}

/// A target of a load balancer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LbTarget {
    /// The identity of the target.
    #[serde(flatten)]
    pub kind: TargetKind,
    /// Whether the private address of a server is used.
    pub use_private_ip: bool,
}

/// The identity of a target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TargetKind {
    /// The server with that id.
    Server(i64),
    /// Every server with matching labels.
    LabelSelector(String),
    /// An address of a dedicated server.
    Ip(String),
}

impl TargetKind {
    /// Whether the server is a target.
    pub(crate) fn selects(&self, server: &HcloudServer) -> bool {
        match self {
            Self::Server(id) => *id == server.id,
            Self::LabelSelector(text) => {
                text.parse::<Selector>().is_ok_and(|selector| selector.selects(&server.labels))
            }
            Self::Ip(_) => false,
        }
    }
}
