//! Networks and their routes.

use std::net::IpAddr;

use serde::Deserialize;

use super::null_as_default;

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Network {
    pub(crate) id: i64,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) routes: Vec<NetworkRoute>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct NetworkRoute {
    pub(crate) destination: String,
    pub(crate) gateway: IpAddr,
}
