//! The stored objects. The API's own field names are used where an object is stored as it is shown.

mod action;
mod certificate;
mod floating_ip;
mod listed;
mod load_balancer;
mod network;
mod server;

pub use action::{ActionError, ActionStatus, HcloudAction, ResourceRef};
pub(crate) use action::{Effect, LbChange};
pub use certificate::{Certificate, CertificateType, SshKey};
pub use floating_ip::FloatingIp;
pub use listed::LabelMap;
pub(crate) use listed::{Listed, listed};
pub use load_balancer::{
    HcloudLoadBalancer, HealthCheck, HealthCheckHttp, LbAlgorithm, LbPrivateNet, LbTarget, Protocol, Service,
    ServiceHttp, TargetKind,
};
pub use network::{Network, NetworkRoute, Subnet};
pub use server::{HcloudServer, PrivateNet, PublicIp, ServerStatus};
