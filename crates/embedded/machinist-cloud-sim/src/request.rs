//! What the cloud is asked and what it answers, in its own words: the same in process and over HTTP.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use machinist_instance::{Instance, InstanceKey, InstanceRef, NodeName, ProviderId, UserData};
use serde::{Deserialize, Serialize};

use crate::Operation;

/// One request.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "operation", content = "params", rename_all = "camelCase")]
pub enum Request {
    /// Make an instance, or say which one was made for that key.
    Ensure(CreateRequest),
    /// Describe one instance, by the strongest identity given; a key that nothing has falls back to the name.
    Find(InstanceRef),
    /// Describe all instances, or those of one cluster.
    #[serde(rename_all = "camelCase")]
    List {
        /// Only instances of that cluster.
        cluster: Option<String>,
    },
    /// Make an instance go away.
    Delete(DeleteRequest),
    /// Give an instance another key, if it carries the one that is expected.
    Rekey {
        /// Which instance.
        id: ProviderId,
        /// The key it must carry, unless it carries the new one already.
        from: InstanceKey,
        /// Its key from then on.
        to: InstanceKey,
    },
    /// Add or replace tags.
    Tag {
        /// Which instance.
        id: ProviderId,
        /// The tags to add or replace.
        tags: BTreeMap<String, String>,
    },
    /// Start a stopped instance.
    Start {
        /// Which instance.
        id: ProviderId,
    },
    /// Stop a running instance, keeping it.
    Stop {
        /// Which instance.
        id: ProviderId,
    },
    /// The last lines that an instance printed.
    Console {
        /// Which instance.
        id: ProviderId,
        /// How many lines at most.
        lines: usize,
    },
}

impl Request {
    /// What is asked.
    pub fn operation(&self) -> Operation {
        match self {
            Self::Ensure(_) => Operation::Ensure,
            Self::Find(_) => Operation::Find,
            Self::List { .. } => Operation::List,
            Self::Delete(_) => Operation::Delete,
            Self::Rekey { .. } => Operation::Rekey,
            Self::Tag { .. } => Operation::Tag,
            Self::Start { .. } => Operation::Start,
            Self::Stop { .. } => Operation::Stop,
            Self::Console { .. } => Operation::Console,
        }
    }

    /// Which instance it is about; empty for a list.
    pub fn which(&self) -> InstanceRef {
        match self {
            Self::Ensure(create) => {
                InstanceRef { id: None, key: Some(create.key.clone()), name: Some(create.name.clone()) }
            }
            Self::Find(which) => which.clone(),
            Self::List { .. } => InstanceRef::default(),
            Self::Delete(delete) => delete.which.clone(),
            Self::Rekey { id, .. }
            | Self::Tag { id, .. }
            | Self::Start { id }
            | Self::Stop { id }
            | Self::Console { id, .. } => InstanceRef { id: Some(id.clone()), key: None, name: None },
        }
    }
}

/// What an instance shall be.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateRequest {
    /// Makes the request idempotent, for ever.
    pub key: InstanceKey,
    /// Its name.
    pub name: NodeName,
    /// The cluster it is made for.
    pub cluster: String,
    /// Its size.
    pub instance_type: String,
    /// Where; the cloud's own choice when absent.
    #[serde(default)]
    pub region: Option<String>,
    /// Where; the cloud's own choice when absent.
    #[serde(default)]
    pub zone: Option<String>,
    /// What it runs.
    #[serde(default)]
    pub image: Option<String>,
    /// How long it boots, when the one who asks wants to decide that.
    #[serde(default)]
    pub boot_seconds: Option<u64>,
    /// What it boots from.
    #[serde(with = "user_data")]
    pub user_data: UserData,
    /// Kept beside it.
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
    /// Take over an instance of this name without a key if it was made at or after this moment.
    #[serde(default)]
    pub adopt_made_since: Option<Timestamp>,
}

/// Which instance shall go away, and who says so.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeleteRequest {
    /// Which instance.
    pub which: InstanceRef,
    /// The key that it must have been made for, if it has one.
    pub owner: InstanceKey,
}

/// The answer to a request that was not refused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Reply {
    /// To `ensure`.
    Instance(Instance),
    /// To `find`.
    Found(Option<Instance>),
    /// To `list`: all of them.
    Instances(Vec<Instance>),
    /// To `console`.
    Lines(Vec<String>),
    /// To everything else.
    Done,
}

/// Why the cloud did not do it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "camelCase")]
#[error("{code}: {message}")]
pub struct Refusal {
    /// What kind of refusal.
    pub code: Code,
    /// For people.
    pub message: String,
    /// When to come back, if the cloud says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_seconds: Option<u64>,
}

impl Refusal {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), retry_after_seconds: None }
    }
}

/// The cloud's own error codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Code {
    /// The request makes no sense.
    InvalidParameter,
    /// The token opens no account.
    Unauthorized,
    /// The instance belongs to another key.
    Foreign,
    /// The key was used for an instance that is gone.
    KeySpent,
    /// There is no such instance.
    NotFound,
    /// The instance is in a state that forbids it.
    WrongState,
    /// The account may have no more instances.
    QuotaExceeded,
    /// The cloud has no more of them.
    OutOfStock,
    /// Too many calls.
    RateLimited,
    /// Nothing was done; come back.
    ServiceUnavailable,
    /// Something broke on the way: it may or may not have been done.
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

/// User data travels as base64; it is not text in general.
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
        // The decoder's own message would quote the data, which holds a token.
        STANDARD.decode(text).map(UserData::new).map_err(|_| D::Error::custom("userData: expected base64"))
    }
}
