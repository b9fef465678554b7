//! The stored objects. The API's own field names are used where an object is stored as it is shown.

mod action;
mod certificate;
mod listed;
mod load_balancer;
mod network;
mod server;

pub use action::{Action, ActionError, ActionStatus, ResourceRef};
pub(crate) use action::{Effect, LbChange};
pub use certificate::{Certificate, CertificateType, SshKey};
pub use listed::Labels;
pub(crate) use listed::{Listed, listed};
pub use load_balancer::{
    Algorithm, HealthCheck, HealthCheckHttp, LbPrivateNet, LoadBalancer, Protocol, Service, ServiceHttp,
    Target, TargetKind,
};
pub use network::{Network, Route, Subnet};
pub use server::{PrivateNet, PublicIp, Server, ServerStatus};
