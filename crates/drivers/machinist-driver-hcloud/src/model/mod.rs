//! The objects of the API, as far as this driver reads them.
//!
//! Every field that the driver can do without has a default, and unknown fields are ignored. So an
//! answer of a newer or an older API still parses. Ids are 64-bit numbers and never pass through a
//! floating-point number.

mod action;
mod floating_ip;
mod load_balancer;
mod network;
mod server;

use serde::{Deserialize, Deserializer};

pub(crate) use action::{Action, ActionStatus};
pub(crate) use floating_ip::FloatingIp;
pub(crate) use load_balancer::{
    BalancerIp, BalancerService, BalancerTargetModel, HealthCheck, HealthCheckHttp, HttpModel, LoadBalancer,
    TargetHealth, TargetKind,
};
pub(crate) use network::{Network, NetworkRoute, Subnet};
pub(crate) use server::{PrivateNet, Server};

/// A reference to an object by its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(crate) struct Id {
    pub(crate) id: i64,
}

/// An object of which only the name is needed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Named {
    pub(crate) name: String,
}

/// Reads `null` as the default value.
fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}
