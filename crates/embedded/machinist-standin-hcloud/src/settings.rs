//! Settings of the stand-in: its projects and tokens, and its behaviour without faults. All of them
//! can be changed while it runs.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Behaviour of the stand-in without faults.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Settings {
    /// The tokens, each with its project. Requests with other tokens are unauthorized.
    pub tokens: Tokens,
    /// Start of the identifiers and addresses. Equal seeds and equal requests give equal replies.
    pub seed: u32,
    /// The time of an action from request to success, unless another setting applies.
    #[serde(with = "seconds", rename = "actionSeconds")]
    pub action: Duration,
    /// The time in which a new server has the status `initializing`.
    #[serde(with = "seconds", rename = "createSeconds")]
    pub create: Duration,
    /// The time in which a server has the status `starting`.
    #[serde(with = "seconds", rename = "startSeconds")]
    pub start: Duration,
    /// If present, an action ends after this number of reads instead of a time.
    pub action_polls: Option<u32>,
    /// The error code of a request on a resource on which an action runs.
    pub busy: Busy,
    /// Whether a server can be deleted while an action runs on it.
    pub delete_while_busy: bool,
    /// The time until a new server or load balancer is found by its id.
    #[serde(with = "seconds", rename = "visibleByIdSeconds")]
    pub visible_by_id: Duration,
    /// The time until a new server or load balancer is in lists.
    #[serde(with = "seconds", rename = "visibleInListsSeconds")]
    pub visible_in_lists: Duration,
    /// Whether servers and load balancers have the field `datacenter`, as before its removal.
    pub datacenter: bool,
    /// The reply to a page larger than 50.
    pub large_pages: LargePages,
    /// Whether the deletion of a load balancer is an action, as since October 2026, or done at once
    /// and answered without content, as before.
    pub balancer_deletion: DeletionReply,
    /// The error code for a write with a read-only token.
    pub read_only_code: ReadOnlyCode,
    /// Requests that each project may save up, and makes per hour.
    pub requests_per_hour: NonZeroU32,
    /// Maximum number of servers of a project; no limit if absent.
    pub server_limit: Option<usize>,
    /// Maximum number of routes of a network.
    pub route_limit: usize,
    /// Server types and locations that are out of stock, as `TYPE`, `LOCATION` or `TYPE/LOCATION`.
    pub out_of_stock: Vec<String>,
}

impl Default for Settings {
    /// One project with the read-write token `stand-in`, and times of a second.
    fn default() -> Self {
        let second = Duration::from_secs(1);
        Self {
            tokens: Tokens::default().with("stand-in", "default", Access::ReadWrite),
            seed: 0,
            action: second,
            create: second,
            start: second,
            action_polls: None,
            busy: Busy::Locked,
            delete_while_busy: true,
            visible_by_id: Duration::ZERO,
            visible_in_lists: Duration::ZERO,
            datacenter: false,
            large_pages: LargePages::Clamp,
            balancer_deletion: DeletionReply::Action,
            read_only_code: ReadOnlyCode::TokenReadonly,
            requests_per_hour: NonZeroU32::new(3600).expect("not zero"),
            server_limit: None,
            route_limit: 100,
            out_of_stock: Vec::new(),
        }
    }
}

impl Settings {
    /// Settings without waiting times: every action has ended when it is answered, and a server
    /// runs at once.
    pub fn instant() -> Self {
        Self { action: Duration::ZERO, create: Duration::ZERO, start: Duration::ZERO, ..Self::default() }
    }

    pub(crate) fn is_out_of_stock(&self, server_type: &str, location: &str) -> bool {
        let both = format!("{server_type}/{location}");
        self.out_of_stock.iter().any(|out| out == server_type || out == location || *out == both)
    }
}

/// The error code of a request on a resource on which an action runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Busy {
    /// 423 `locked`.
    Locked,
    /// 409 `conflict`.
    Conflict,
}

/// The reply to a page larger than 50.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LargePages {
    /// The page has 50 entries.
    Clamp,
    /// The request is invalid.
    Reject,
}

/// The reply to the deletion of a load balancer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DeletionReply {
    /// 201 with an action.
    Action,
    /// 204 without content.
    NoContent,
}

/// The error code for a write with a read-only token. The status is 403 in both cases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ReadOnlyCode {
    /// `token_readonly`.
    TokenReadonly,
    /// `forbidden`, which new versions of the official clients expect.
    Forbidden,
}

/// The permissions of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Access {
    /// All requests.
    ReadWrite,
    /// GET requests only.
    ReadOnly,
    /// None: the token was revoked.
    Revoked,
}

/// The project and the permissions of a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Grant {
    /// Name of the project.
    pub project: String,
    /// Permissions in the project.
    pub access: Access,
}

/// All tokens. `Debug` prints their grants only.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Tokens(BTreeMap<String, Grant>);

impl Tokens {
    /// Adds or replaces a token.
    #[must_use]
    pub fn with(mut self, token: &str, project: &str, access: Access) -> Self {
        self.set(token, project, access);
        self
    }

    /// Adds or replaces a token.
    pub fn set(&mut self, token: &str, project: &str, access: Access) {
        self.0.insert(token.to_owned(), Grant { project: project.to_owned(), access });
    }

    /// Makes a token invalid from the next request on. Returns whether the token existed.
    pub fn revoke(&mut self, token: &str) -> bool {
        self.0.get_mut(token).map(|grant| grant.access = Access::Revoked).is_some()
    }

    /// The grant of a token, unless it is unknown or revoked.
    pub fn grant(&self, token: &str) -> Option<&Grant> {
        self.0.get(token).filter(|grant| grant.access != Access::Revoked)
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.values()).finish()
    }
}

impl Serialize for Tokens {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Tokens {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        BTreeMap::deserialize(deserializer).map(Self)
    }
}

/// Durations as seconds in JSON.
pub(crate) mod seconds {
    use std::time::Duration;

    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(span.as_secs_f64())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        Duration::try_from_secs_f64(f64::deserialize(deserializer)?)
            .map_err(|_| D::Error::custom("expected seconds, zero or more"))
    }
}
