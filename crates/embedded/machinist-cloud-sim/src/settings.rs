//! How the cloud behaves when nothing goes wrong. All of it can be changed while it runs.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::seconds;

/// How the cloud behaves when nothing goes wrong.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Settings {
    /// The scheme of the provider ids it gives out; ids are bare identities if it is empty.
    pub scheme: String,
    /// What follows the scheme.
    pub ids: IdStyle,
    /// Where instances are that ask for no region.
    pub region: String,
    /// Where instances are that ask for no zone.
    pub zone: String,
    /// The promise: every instance is shown by reads this long after it was made.
    #[serde(with = "seconds", rename = "visibleWithinSeconds")]
    pub visible_within: Duration,
    /// The promise: no call takes effect later than this after it arrived.
    #[serde(with = "seconds", rename = "callBoundSeconds")]
    pub call_bound: Duration,
    /// How late reads really show a new instance. Stay within the promise, or test what happens if it is broken.
    #[serde(with = "seconds", rename = "lagSeconds")]
    pub lag: Duration,
    /// How long every call takes.
    #[serde(with = "seconds", rename = "latencySeconds")]
    pub latency: Duration,
    /// How long an instance takes from accepted to running.
    #[serde(with = "seconds", rename = "bootSeconds")]
    pub boot: Duration,
    /// How long an instance takes from its deletion being asked to being gone.
    #[serde(with = "seconds", rename = "deleteSeconds")]
    pub delete: Duration,
    /// The project that each token opens. Other tokens, and calls without one, open the project without a name. A project sees its own
    /// instances only; a key, a name and the limit on calls mean something within a project only.
    pub projects: BTreeMap<String, String>,
    /// How many calls each project may make in an hour; no limit when absent. An idle project saves up to an hour's worth.
    pub calls_per_hour: Option<NonZeroU32>,
    /// How many instances may exist at once.
    pub quota: Option<usize>,
    /// What the cloud has run out of.
    pub stockouts: Vec<Stockout>,
    /// Tokens that open no account any more.
    pub revoked_tokens: BTreeSet<String>,
}

impl Default for Settings {
    /// An instant cloud that promises what a reasonable one would.
    fn default() -> Self {
        Self {
            scheme: "sim".to_owned(),
            ids: IdStyle::Numbered,
            region: "sim-1".to_owned(),
            zone: "sim-1a".to_owned(),
            visible_within: Duration::from_secs(2),
            call_bound: Duration::from_secs(1),
            lag: Duration::ZERO,
            latency: Duration::ZERO,
            boot: Duration::ZERO,
            delete: Duration::ZERO,
            projects: BTreeMap::new(),
            calls_per_hour: None,
            quota: None,
            stockouts: Vec::new(),
            revoked_tokens: BTreeSet::new(),
        }
    }
}

impl Settings {
    /// The project that a call with that token sees.
    pub(crate) fn project_of(&self, token: Option<&str>) -> &str {
        token.and_then(|token| self.projects.get(token)).map_or("", String::as_str)
    }
}

/// What identifies an instance after the scheme.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum IdStyle {
    /// `sim:///i-7`: a number that is never used again.
    Numbered,
    /// `fast:///NAME`: the instance's name, as some clouds do.
    ByName,
}

/// Something the cloud has run out of: an instance type, a zone, or both together. An empty one matches all.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Stockout {
    /// The instance type that is out of stock; any when absent.
    pub instance_type: Option<String>,
    /// The zone it is out of stock in; any when absent.
    pub zone: Option<String>,
}

impl Stockout {
    pub(crate) fn hits(&self, instance_type: &str, zone: &str) -> bool {
        self.instance_type.as_deref().is_none_or(|out| out == instance_type)
            && self.zone.as_deref().is_none_or(|out| out == zone)
    }
}
