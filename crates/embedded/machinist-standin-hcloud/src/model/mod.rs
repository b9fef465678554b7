//! The stored objects. The API's own field names are used where an object is stored as it is shown.

mod action;
mod certificate;
mod load_balancer;
mod network;
mod server;

use std::collections::BTreeMap;

use jiff::Timestamp;

pub use action::{Action, ActionError, ActionStatus, ResourceRef};
pub(crate) use action::{Effect, LbChange};
pub use certificate::{Certificate, CertificateType, SshKey};
pub use load_balancer::{
    Algorithm, HealthCheck, HealthCheckHttp, LbPrivateNet, LoadBalancer, Protocol, Service, ServiceHttp,
    Target, TargetKind,
};
pub use network::{Network, Route, Subnet};
pub use server::{PrivateNet, PublicIp, Server, ServerStatus};

/// User-defined labels.
pub type Labels = BTreeMap<String, String>;

/// The fields by which lists filter and sort.
pub(crate) trait Listed {
    fn id(&self) -> i64;
    fn name(&self) -> &str;
    fn created(&self) -> Timestamp;
    fn labels(&self) -> Option<&Labels> {
        None
    }
    fn status(&self) -> Option<&'static str> {
        None
    }
}

macro_rules! listed {
    ($type:ty) => {
        impl $crate::model::Listed for $type {
            fn id(&self) -> i64 {
                self.id
            }
            fn name(&self) -> &str {
                &self.name
            }
            fn created(&self) -> jiff::Timestamp {
                self.created
            }
            fn labels(&self) -> Option<&$crate::model::Labels> {
                Some(&self.labels)
            }
        }
    };
}
pub(crate) use listed;
