//! Settings of the cloud, for its behaviour without faults. All of them can be changed while it
//! runs.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Caller;
use crate::seconds;
use crate::state::Reach;

/// Behaviour of the cloud without faults.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Settings {
    /// The scheme of new provider ids. If it is empty, an id is the bare identity.
    pub scheme: String,
    /// The part of an id after the scheme.
    pub ids: IdStyle,
    /// The region of instances that request none.
    pub region: String,
    /// The zone of instances that request none.
    pub zone: String,
    /// Whether a key makes one instance in each zone, as a client token of EC2 does. A creation
    /// then looks first, with the lag of reads.
    pub keys_per_zone: bool,
    /// A promise: reads show every instance at most this long after it was made.
    #[serde(with = "seconds", rename = "visibleWithinSeconds")]
    pub visible_within: Duration,
    /// A promise: every call takes effect at most this long after it arrived.
    #[serde(with = "seconds", rename = "callBoundSeconds")]
    pub call_bound: Duration,
    /// How late reads actually show a new instance. Keep it within the promise, or set it higher to
    /// test a broken promise.
    #[serde(with = "seconds", rename = "lagSeconds")]
    pub lag: Duration,
    /// The latency of every call.
    #[serde(with = "seconds", rename = "latencySeconds")]
    pub latency: Duration,
    /// The time of an instance from accepted to running.
    #[serde(with = "seconds", rename = "bootSeconds")]
    pub boot: Duration,
    /// The time of an instance from the delete request to its end.
    #[serde(with = "seconds", rename = "deleteSeconds")]
    pub delete: Duration,
    /// The project of each token. Other tokens, and calls without a token, use the unnamed project.
    /// A project sees its own instances only. Keys, names and the limit on calls apply per project.
    pub projects: BTreeMap<String, String>,
    /// How many calls each project may make in an hour; no limit if absent. An idle project saves
    /// up to one hour's calls.
    pub calls_per_hour: Option<NonZeroU32>,
    /// How many instances may exist at once.
    pub quota: Option<usize>,
    /// Instance types and zones that are out of stock.
    pub stockouts: Vec<Stockout>,
    /// Tokens that are no longer valid.
    pub revoked_tokens: BTreeSet<String>,
}

impl Default for Settings {
    /// A cloud without delays that makes the promises of a typical cloud.
    fn default() -> Self {
        Self {
            scheme: "sim".to_owned(),
            ids: IdStyle::Numbered,
            region: "sim-1".to_owned(),
            zone: "sim-1a".to_owned(),
            keys_per_zone: false,
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
    /// The instances that a caller can see.
    pub(crate) fn reach_of<'a>(&'a self, caller: Caller<'a>) -> Reach<'a> {
        let region = match caller.region {
            Some("") => Some(self.region.as_str()),
            region => region,
        };
        Reach { project: Some(self.project_of(caller.token)), region, zone: None }
    }

    /// The project that a call with that token sees.
    pub(crate) fn project_of(&self, token: Option<&str>) -> &str {
        token.and_then(|token| self.projects.get(token)).map_or("", String::as_str)
    }
}

/// How the cloud forms the id of an instance, after the scheme.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum IdStyle {
    /// `sim:///i-7`: a number that is never reused.
    Numbered,
    /// `fast:///NAME`: the instance's name, as some clouds do.
    ByName,
}

/// An instance type, a zone, or a combination of both that is out of stock. An empty value matches
/// all.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Stockout {
    /// The instance type that is out of stock; every type if absent.
    pub instance_type: Option<String>,
    /// The zone that is out of stock; every zone if absent.
    pub zone: Option<String>,
}

impl Stockout {
    pub(crate) fn hits(&self, instance_type: &str, zone: &str) -> bool {
        self.instance_type.as_deref().is_none_or(|out| out == instance_type)
            && self.zone.as_deref().is_none_or(|out| out == zone)
    }
}
