//! A driver under test, and the trouble that its cloud can produce.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use machinist_instance::{AccountId, Credential, InstanceKey, NodeName, ProviderId, VolumeSource};
use serde_json::Value;

use crate::Provider;

/// Number of letters of a DNS label. In most clouds the name of an instance is one.
pub(crate) const LABEL_LETTERS: usize = 63;

/// A driver under test, and the hooks of its cloud.
#[async_trait]
pub trait Subject: Send + Sync {
    /// The provider under test.
    fn provider(&self) -> &dyn Provider;

    /// An account that may create instances.
    fn account(&self) -> (AccountId, Credential);

    /// A credential of another account of the same cloud, if one exists.
    fn another_account(&self) -> Option<Credential>;

    /// A valid provider spec of the smallest and cheapest instance.
    fn provider_spec(&self) -> Value;

    /// A valid provider spec of an instance in another place of the cloud; `None` if the cloud has
    /// one place only.
    fn elsewhere(&self) -> Option<Value> {
        None
    }

    /// A valid provider spec in the same place with another key scope; `None` if a key counts in
    /// the whole place.
    fn other_key_scope(&self) -> Option<Value> {
        None
    }

    /// A provider spec whose instances need an initialization; `None` if the cloud has no such
    /// instances.
    fn uninitialized_spec(&self) -> Option<Value> {
        None
    }

    /// A provider spec with one mistake, and the field that the error must name.
    fn broken_spec(&self) -> (Value, &'static str);

    /// Other spellings of the instance's id that a Machine or a Node may have; empty if the cloud
    /// has one spelling only.
    fn other_spellings(&self, _id: &ProviderId) -> Vec<String> {
        Vec::new()
    }

    /// Ids of another cloud; empty if the provider accepts every text as its own id.
    fn foreign_ids(&self) -> Vec<String> {
        Vec::new()
    }

    /// Texts that resemble an id of this provider but are malformed; empty if the provider accepts
    /// every text as its own id.
    fn malformed_ids(&self) -> Vec<String> {
        Vec::new()
    }

    /// The name with which the kubelet of the instance of that name registers its Node.
    fn node_name(&self, name: &NodeName) -> NodeName {
        name.clone()
    }

    /// Number of letters that the name of an instance may have.
    fn longest_name(&self) -> usize {
        LABEL_LETTERS
    }

    /// An id of this run, unique among all runs against the account. Keys and names contain it.
    fn run_id(&self) -> String;

    /// The time of the cloud.
    fn now(&self) -> Timestamp;

    /// Waits, or advances the clock of the driver and its cloud.
    async fn wait(&self, span: Duration);

    /// Injects trouble for the following calls.
    async fn inject(&self, trouble: Trouble) -> Hook;

    /// Ends all injected trouble.
    async fn clear_trouble(&self);

    /// Creates an instance with a name, without a key and with that creation time, as another
    /// program would.
    async fn made_by_others(&self, name: &NodeName, created: Timestamp) -> Hook;

    /// Counts the instances of a key in the records of the cloud; `None` if only the driver can
    /// count them.
    async fn truly_alive(&self, key: &InstanceKey) -> Option<usize>;

    /// Counts the requests so far that can change the cloud; `None` if the cloud does not count.
    async fn changing_requests(&self) -> Option<u64> {
        None
    }

    /// Options without which the cloud creates no balancer.
    fn balancer_options(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    /// Two volumes of this cloud, as their PersistentVolumes name them; empty if the cloud attaches
    /// no volumes.
    fn volumes(&self) -> Vec<VolumeSource> {
        Vec::new()
    }

    /// A range of pod addresses in CIDR notation for a route. Different numbers give different
    /// ranges.
    fn pod_range(&self, number: u8) -> String {
        format!("10.244.{number}.0/24")
    }
}

/// Whether a subject could inject the situation that a case needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// The situation is injected.
    Arranged,
    /// This cloud cannot produce the situation.
    Missing,
}

/// The trouble that a case can request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// The next call takes effect, and the cloud returns an error.
    ErrorAfterEffect(DriverVerb),
    /// The next call takes effect, and the cloud never answers.
    SilenceAfterEffect(DriverVerb),
    /// The connection of the next call breaks at once. The call takes effect shortly before the
    /// call bound ends.
    LateEffect(DriverVerb),
    /// The cloud rejects the next call without effect, as in a temporary outage.
    Outage(DriverVerb),
    /// The cloud throttles the next call and returns a `Retry-After`.
    Throttled(DriverVerb),
    /// Reads show the next instance as late as the promise permits.
    SlowReads,
    /// Deletions take some time, during which reads still show the instance.
    SlowDeletion,
    /// The cloud no longer accepts the credential of the account.
    RevokedCredential,
    /// The quota of the account is used up.
    QuotaUsedUp,
    /// The cloud has no capacity left for the instance type.
    StockUsedUp,
    /// The next creation makes the parts that an instance needs before it, and is then rejected.
    RefusedAfterParts,
}

/// The calls for which trouble can be injected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriverVerb {
    /// [`Instances::ensure`](crate::Instances::ensure).
    Ensure,
    /// [`Instances::find`](crate::Instances::find).
    Find,
    /// [`Instances::list`](crate::Instances::list).
    List,
    /// [`Instances::delete`](crate::Instances::delete).
    Delete,
}
