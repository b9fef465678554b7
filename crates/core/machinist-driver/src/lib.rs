//! The Driver traits: what every cloud offers to every front end.
//!
//! A [`Provider`] is a cloud as users name it (`sim`, `docker`, `hcloud`); it opens a [`Driver`] per cloud account.
//! The same driver object serves the machine API, Cluster API and the cloud controller manager, so they can
//! never disagree about whether an instance exists. [`contract`] is the suite that every driver passes.
//!
//! Deliberately absent: Machines, retries, rate limits and deadlines. A driver makes one attempt and says
//! truthfully what it knows; the caller bounds it, repeats it and remembers.

mod clock;
pub mod contract;

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use jiff::SignedDuration;
use machinist_instance::{
    AccountId, Credential, Error, Instance, InstanceKey, InstanceRef, InstanceSpec, Promises, ProviderId,
    RecordedId, Scope, Sighting,
};
use serde_json::Value;

pub use clock::CloudClock;

/// A cloud, as users name it in a class.
pub trait Provider: Send + Sync {
    /// The name that users write, for example `sim`.
    fn name(&self) -> &str;

    /// Whether this provider serves classes of that provider name.
    fn serves(&self, provider: &str) -> bool {
        provider.eq_ignore_ascii_case(self.name())
    }

    /// Parses and validates a provider spec without calling the cloud.
    ///
    /// # Errors
    /// [`machinist_instance::ErrorKind::InvalidSpec`], naming the field and what was expected.
    fn validate(&self, provider_spec: &Value) -> Result<(), Error>;

    /// Names the cloud account that a credential opens: a hash of the endpoint and of the entries that open it, or of the cloud's
    /// own id of the project where the credential tells it. No call is made.
    ///
    /// # Guarantees
    /// Credentials of different accounts never share a name. A new credential of the same account may have another one.
    fn account(&self, credential: &Credential) -> AccountId;

    /// Reads the `spec.providerID` of a Machine or a Node. A provider whose ids have a form of their own says which texts
    /// are not ids of it; without an override every text but the empty one is.
    ///
    /// # Guarantees
    /// The id of every instance that its drivers return reads as [`RecordedId::Ours`]. No call is made.
    fn parse_id(&self, text: &str) -> RecordedId {
        RecordedId::any(text)
    }

    /// Whether two ids name the same instance. Some clouds spell an id in several ways: one has the region in it where
    /// another has the zone. A provider that is not sure answers `false`.
    ///
    /// # Guarantees
    /// An id is the same as itself, and never the same as the id of another instance: Nodes are deleted by this answer.
    fn same_instance(&self, a: &ProviderId, b: &ProviderId) -> bool {
        a == b
    }

    /// Opens the account that a credential gives access to. Cheap: no call is made.
    ///
    /// # Errors
    /// [`machinist_instance::ErrorKind::Denied`] when the credential lacks an entry, naming it.
    fn open(&self, account: &AccountId, credential: &Credential) -> Result<Arc<dyn Driver>, Error>;
}

/// One cloud account. The same object serves the machine API, Cluster API and the cloud controller manager.
pub trait Driver: Send + Sync {
    /// Instances: every driver has them.
    fn instances(&self) -> &dyn Instances;
    /// Load balancers: Services, and Cluster API's control plane endpoint.
    fn balancers(&self) -> Option<&dyn Balancers> {
        None
    }
    /// Routes between pod networks.
    fn routes(&self) -> Option<&dyn Routes> {
        None
    }
    /// Volumes: which of a pod's volumes this cloud attaches.
    fn volumes(&self) -> Option<&dyn Volumes> {
        None
    }
    /// Bootstrapping from outside, for clouds whose instances cannot boot from user data (containers).
    fn bootstrap(&self) -> Option<&dyn Bootstrap> {
        None
    }
    /// What an answer of this account proves.
    fn promises(&self) -> Promises;
    /// The cloud's time minus ours, from the `Date` header of its answers; `None` while that is not known.
    fn clock_skew(&self) -> Option<SignedDuration> {
        None
    }
}

/// Instances of one account.
#[async_trait]
pub trait Instances: Send + Sync {
    /// Creates the instance, or returns the one already made for `spec.key`. Returns once the cloud has
    /// accepted; `Instance::power` tells how far it is.
    ///
    /// # Guarantees
    /// Never two live instances for one key. The same key with other user data returns the existing instance.
    /// An instance without a key that has our name and was made since `spec.adopt_made_since` is tagged with the
    /// key first, then returned.
    ///
    /// # Errors
    /// `Ambiguous` whenever the effect is unknown; `Unavailable` only when there was none.
    async fn ensure(&self, spec: &InstanceSpec) -> Result<Instance, Error>;

    /// Looks for one instance by the strongest identity given.
    async fn find(&self, which: &InstanceRef) -> Result<Sighting, Error>;

    /// Everything in the scope: complete or an error, never a part.
    async fn list(&self, scope: &Scope) -> Result<Vec<Instance>, Error>;

    /// Asks for deletion. Deleting the absent succeeds; gone means that `find` says so.
    ///
    /// # Errors
    /// `Denied` when the instance carries another key than `owner`.
    async fn delete(&self, which: &InstanceRef, owner: &InstanceKey) -> Result<(), Error>;

    /// Gives an instance the key `to` in place of `from`: its object was restored and has a new UID. Nothing else changes.
    ///
    /// # Guarantees
    /// The key is compared before it is changed. An instance that carries `to` already is left as it is, so the call can be
    /// repeated.
    ///
    /// # Errors
    /// `Denied` when the instance carries neither key, or none. `Unsupported` where keys are [`machinist_instance::KeyTag::Fixed`].
    async fn rekey(&self, _id: &ProviderId, _from: &InstanceKey, _to: &InstanceKey) -> Result<(), Error> {
        Err(Error::unsupported("rekey"))
    }

    /// Adds or replaces tags.
    async fn update_tags(&self, _id: &ProviderId, _tags: &BTreeMap<String, String>) -> Result<(), Error> {
        Err(Error::unsupported("update_tags"))
    }

    /// Starts a stopped instance.
    async fn start(&self, _id: &ProviderId) -> Result<(), Error> {
        Err(Error::unsupported("start"))
    }

    /// Stops a running instance, keeping it.
    async fn stop(&self, _id: &ProviderId) -> Result<(), Error> {
        Err(Error::unsupported("stop"))
    }

    /// The last lines of its console, for people who ask why it did not join.
    async fn console_tail(&self, _id: &ProviderId, _lines: usize) -> Result<Vec<String>, Error> {
        Err(Error::unsupported("console_tail"))
    }
}

/// Load balancers of one account. Its calls arrive with the service controller and Cluster API.
pub trait Balancers: Send + Sync {}

/// Routes of one account. Its calls arrive with the route controller.
pub trait Routes: Send + Sync {}

/// Volumes of one account. Its calls arrive with volume detachment.
pub trait Volumes: Send + Sync {}

/// Bootstrapping from outside, once per instance.
#[async_trait]
pub trait Bootstrap: Send + Sync {
    /// Starts the script unless it was started before; returns at once.
    async fn start(&self, which: &InstanceRef, script: &[u8]) -> Result<(), Error>;
    /// How far the script is.
    async fn progress(&self, which: &InstanceRef) -> Result<BootstrapProgress, Error>;
}

/// How far a bootstrap script is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BootstrapProgress {
    /// Nobody has started it.
    NotStarted,
    /// It runs.
    Running,
    /// It ended well.
    Succeeded,
    /// It ended badly; the text is the end of its output.
    Failed(String),
}
