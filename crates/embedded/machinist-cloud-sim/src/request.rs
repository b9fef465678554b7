//! Requests and answers of the cloud, in the cloud's own words. They are the same in process and
//! over HTTP.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use machinist_instance::{Instance, InstanceKey, InstanceRef, NodeName, ProviderId, UserData};
use serde::{Deserialize, Serialize};

use crate::Operation;

/// The account and the region of a call to the cloud.
#[derive(Debug, Clone, Copy, Default)]
pub struct Caller<'a> {
    /// The token of the account.
    pub token: Option<&'a str>,
    /// The region whose endpoint is called; empty for the default region. Without a region, the
    /// call sees the instances of all regions.
    pub region: Option<&'a str>,
}

impl<'a> From<Option<&'a str>> for Caller<'a> {
    fn from(token: Option<&'a str>) -> Self {
        Self { token, region: None }
    }
}

/// One request.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "operation", content = "params", rename_all = "camelCase")]
pub enum Request {
    /// Create an instance, or return the instance that was made for that key.
    Ensure(CreateRequest),
    /// Describe one instance, found by the strongest given identity. If no instance has the key,
    /// the cloud looks for the name.
    Find(InstanceRef),
    /// Describe all instances, or the instances of one cluster.
    #[serde(rename_all = "camelCase")]
    List {
        /// Only instances of that cluster.
        cluster: Option<String>,
    },
    /// Delete an instance.
    Delete(DeleteRequest),
    /// Complete an instance after its creation. The cloud has nothing to complete and only counts
    /// the call.
    Initialize {
        /// Id of the instance.
        id: ProviderId,
        /// The key that the instance must have been made for, if it has one.
        owner: InstanceKey,
    },
    /// Give an instance another key if it carries the expected key.
    Rekey {
        /// Id of the instance.
        id: ProviderId,
        /// The key that the instance must carry, unless it already carries the new key.
        from: InstanceKey,
        /// The key from then on.
        to: InstanceKey,
    },
}

impl Request {
    /// The operation of the request.
    pub fn operation(&self) -> Operation {
        match self {
            Self::Ensure(_) => Operation::Ensure,
            Self::Find(_) => Operation::Find,
            Self::List { .. } => Operation::List,
            Self::Delete(_) => Operation::Delete,
            Self::Initialize { .. } => Operation::Initialize,
            Self::Rekey { .. } => Operation::Rekey,
        }
    }

    /// The instance that the request names; empty for a list.
    pub fn which(&self) -> InstanceRef {
        match self {
            Self::Ensure(create) => {
                let (key, name) = (Some(create.key.clone()), Some(create.name.clone()));
                InstanceRef { key, name, ..InstanceRef::default() }
            }
            Self::Find(which) => which.clone(),
            Self::List { .. } => InstanceRef::default(),
            Self::Delete(delete) => delete.which.clone(),
            Self::Initialize { id, .. } | Self::Rekey { id, .. } => {
                InstanceRef { id: Some(id.clone()), ..InstanceRef::default() }
            }
        }
    }
}

/// Properties of an instance to create.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateRequest {
    /// Idempotency key without an expiry: no second instance is made for it.
    pub key: InstanceKey,
    /// Name of the instance.
    pub name: NodeName,
    /// The cluster that the instance is made for.
    pub cluster: String,
    /// Size of the instance, in the cloud's words.
    pub instance_type: String,
    /// Region; if absent, the cloud chooses.
    #[serde(default)]
    pub region: Option<String>,
    /// Zone; if absent, the cloud chooses.
    #[serde(default)]
    pub zone: Option<String>,
    /// Image that the instance runs.
    #[serde(default)]
    pub image: Option<String>,
    /// Boot time in seconds; if absent, the cloud's setting applies.
    #[serde(default)]
    pub boot_seconds: Option<u64>,
    /// User data that the instance boots from.
    #[serde(with = "user_data")]
    pub user_data: UserData,
    /// Tags that the cloud stores with the instance.
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
    /// Adopt an instance of this name that has no key, if it was made at or after this moment.
    #[serde(default)]
    pub adopt_made_since: Option<Timestamp>,
}

/// The instance to delete, and the key of its owner.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeleteRequest {
    /// Id, key or name of the instance.
    pub which: InstanceRef,
    /// The key that the instance must have been made for. An instance without a key is deleted
    /// only if `which` says so.
    pub owner: InstanceKey,
}

/// The answer to a request that was not refused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Reply {
    /// Answer to `ensure`.
    Instance(Instance),
    /// Answer to `find`.
    Found(Option<Instance>),
    /// Answer to `list`: all instances.
    Instances(Vec<Instance>),
    /// Answer to every other operation.
    Done,
}

/// Why the cloud refused a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "camelCase")]
#[error("{code}: {message}")]
pub struct CloudRefusal {
    /// Kind of the refusal.
    pub code: Code,
    /// Text for people.
    pub message: String,
    /// Seconds after which to retry, if the cloud says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_seconds: Option<u64>,
}

impl CloudRefusal {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), retry_after_seconds: None }
    }
}

/// The cloud's own error codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Code {
    /// The request is invalid.
    InvalidParameter,
    /// The token is not valid for any account.
    Unauthorized,
    /// The instance belongs to another key.
    Foreign,
    /// The key was used for an instance that has been deleted.
    KeySpent,
    /// The instance does not exist.
    NotFound,
    /// The state of the instance does not allow the operation.
    WrongState,
    /// The account has reached its limit of instances.
    QuotaExceeded,
    /// The cloud has no more instances of this type or in this zone.
    OutOfStock,
    /// The project has made too many calls.
    RateLimited,
    /// Nothing was done; retry later.
    ServiceUnavailable,
    /// The call failed after it began: it may or may not have taken effect.
    InternalError,
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InvalidParameter => "invalid parameter",
            Self::Unauthorized => "unauthorized",
            Self::Foreign => "foreign instance",
            Self::KeySpent => "key spent",
            Self::NotFound => "not found",
            Self::WrongState => "wrong state",
            Self::QuotaExceeded => "quota exceeded",
            Self::OutOfStock => "out of stock",
            Self::RateLimited => "rate limited",
            Self::ServiceUnavailable => "service unavailable",
            Self::InternalError => "internal error",
        })
    }
}

/// User data is sent as base64, because it is not always text.
pub(crate) mod user_data {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use machinist_instance::UserData;
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(data: &UserData, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode(data.expose()))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<UserData, D::Error> {
        let text = String::deserialize(from)?;
        // The decoder's own message would quote the data, which contains a token.
        STANDARD.decode(text).map(UserData::new).map_err(|_| D::Error::custom("userData: expected base64"))
    }
}
