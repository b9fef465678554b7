//! Floating addresses.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{LabelMap, listed};

/// An IPv4 address that can be assigned to a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FloatingIp {
    /// Id of the address.
    pub id: i64,
    /// Project of the address.
    pub project: String,
    /// Name of the address, unique in its project.
    pub name: String,
    /// When the address was created.
    pub created: Timestamp,
    /// User-defined labels.
    pub labels: LabelMap,
    /// The address.
    pub ip: String,
    /// Name of the location.
    pub location: String,
    /// The server to which the address is assigned.
    pub server: Option<i64>,
}

listed!(FloatingIp);
