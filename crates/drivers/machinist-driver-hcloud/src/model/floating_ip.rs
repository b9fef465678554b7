//! Floating addresses.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::null_as_default;

/// An address that can be assigned to a server.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct FloatingIp {
    pub(crate) id: i64,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) name: String,
    /// The server to which the address is assigned.
    #[serde(default)]
    pub(crate) server: Option<i64>,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) labels: BTreeMap<String, String>,
}
