//! Promises of a cloud, from which the core knows what an answer proves.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The guarantees on which the core relies for one cloud account.
///
/// ```
/// use std::time::Duration;
/// use machinist_instance::{CreateGuarantee, KeyTag, Promises};
///
/// let promises = Promises {
///     visible_within: Duration::from_secs(10),
///     call_bound: Duration::from_secs(30),
///     calls_outlive_process: true,
///     create: CreateGuarantee::NativeKey,
///     rate: None,
///     keys: KeyTag::Rekeyable,
/// };
/// // An instance that was requested now may appear until then.
/// assert_eq!(promises.absence_takes(), Duration::from_secs(40));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Promises {
    /// The longest time between the effect of `ensure` and the moment from which `find` and `list`
    /// show the instance.
    pub visible_within: Duration,
    /// The longest time between the start of a call and its effect, even if no answer arrives.
    pub call_bound: Duration,
    /// Whether a call may take effect after the process that made it has ended. Only a cloud inside
    /// of the process ends with it.
    pub calls_outlive_process: bool,
    /// How the cloud prevents a second instance for one key.
    pub create: CreateGuarantee,
    /// The rate limit of the account. `None` if the cloud states no limit.
    pub rate: Option<CallRate>,
    /// Whether the key of an instance can be changed.
    pub keys: KeyTag,
}

/// The rate limit of a cloud for one account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CallRate {
    /// Sustained number of calls per hour.
    pub per_hour: u32,
    /// Number of calls that the cloud admits at once after a pause.
    pub burst: u32,
}

/// The remaining calls of one account, as an answer of the cloud showed them. The cloud gives calls
/// back evenly until the account is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CallBudget {
    /// Number of calls of the full account.
    pub limit: u32,
    /// Number of calls that were left.
    pub remaining: u32,
    /// When the answer arrived.
    pub seen_at: Timestamp,
    /// When the account is full again, if no further call is made.
    pub full_at: Timestamp,
}

impl Promises {
    /// The longest time between the last possible `ensure` call for an instance and the moment from
    /// which reads show it.
    pub fn absence_takes(&self) -> Duration {
        self.visible_within.saturating_add(self.call_bound)
    }
}

/// How a cloud prevents a second instance for one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CreateGuarantee {
    /// The cloud deduplicates creations by a client token. If the token counts only in a part of a
    /// place, the provider names that part as the [`crate::KeyScope`] of a class.
    NativeKey,
    /// The cloud rejects a second instance of the same name.
    UniqueName,
    /// The driver searches before it creates. This is safe only with one caller per key.
    FindThenCreate,
}

/// How a cloud stores the key of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum KeyTag {
    /// In a tag that can be changed.
    Rekeyable,
    /// In a place that cannot be changed, such as the label of a container.
    Fixed,
}
