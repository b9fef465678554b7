//! What a cloud promises, so that the core knows what an answer proves.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What the core may rely on for one cloud account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Promises {
    /// A created instance is shown by `find` and `list` at the latest this long after `ensure` took effect.
    pub visible_within: Duration,
    /// No call takes effect later than this after it was started, whether or not its answer arrived.
    pub call_bound: Duration,
    /// How repeated creation of the same key is prevented.
    pub create: CreateGuarantee,
    /// How many calls the account admits. `None` if the cloud states no limit.
    pub rate: Option<CallRate>,
    /// Whether an instance can be given another key.
    pub keys: KeyTag,
}

/// How many calls a cloud admits from one account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CallRate {
    /// Calls per hour in the long run.
    pub per_hour: u32,
    /// Calls that may be made at once after a rest.
    pub burst: u32,
}

impl Promises {
    /// How long after the last moment at which someone may have asked for it an instance can still appear.
    pub fn absence_takes(&self) -> Duration {
        self.visible_within + self.call_bound
    }
}

/// How a cloud keeps one instance per key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CreateGuarantee {
    /// The cloud deduplicates by a client token.
    NativeKey,
    /// The cloud refuses a second instance of the same name.
    UniqueName,
    /// The driver looks before it creates; safe only with one caller per key.
    FindThenCreate,
}

/// How a cloud keeps the key of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum KeyTag {
    /// As a tag that can be changed.
    Rekeyable,
    /// As something that stays as it was made, such as the label of a container.
    Fixed,
}
