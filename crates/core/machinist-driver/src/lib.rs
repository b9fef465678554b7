//! The Driver traits, through which the controllers call a cloud.
//!
//! A [`Provider`] is one cloud (`sim`, `docker`, `hcloud`) and opens a [`Driver`] for each cloud
//! account. The machine API, Cluster API and the cloud controller manager use the same driver
//! object. So they always agree on whether an instance exists. [`contract`] is the test suite that
//! every driver passes.
//!
//! Deliberately absent: Machines, retries, rate limits and deadlines. A driver makes one attempt
//! and returns what it learned. The caller limits the time, retries and stores the answer. A driver
//! whose calls consist of several requests calls [`may_change`] before each change.

mod clock;
pub mod contract;
mod fence;
mod providers;
mod unknown_fields;

use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use jiff::SignedDuration;
use machinist_instance::{
    AccountId, Balancer, BalancerDeletion, BalancerRef, BalancerSpec, Boot, BootstrapData, BootstrapStatus,
    CallBudget, Credential, Ensured, Error, Instance, InstanceKey, InstanceRef, InstanceSpec, KeyScope,
    Marks, Place, Progress, Promises, ProviderId, Readiness, RecordedId, Route, RouteSpec, RouteTable, Scope,
    Sighting, VolumeSource,
};
use serde_json::Value;

pub use clock::CloudClock;
pub use fence::{Fence, may_change};
pub use providers::Providers;
pub use unknown_fields::unknown_fields;

/// A cloud that users can name in a MachineClass.
///
/// ```
/// use std::sync::Arc;
/// use machinist_driver::{Driver, Provider};
/// use machinist_instance::{AccountId, Credential, Error, ErrorKind, Place, ProviderId};
/// use serde_json::{Value, json};
///
/// struct Example;
///
/// impl Provider for Example {
///     fn name(&self) -> &str {
///         "example"
///     }
///     fn validate(&self, provider_spec: &Value) -> Result<(), Error> {
///         let expected = "providerSpec.size: expected a text";
///         let missing = || Error::new(ErrorKind::InvalidSpec, expected);
///         provider_spec["size"].as_str().map(|_| ()).ok_or_else(missing)
///     }
///     fn account(&self, credential: &Credential, _: &Place) -> AccountId {
///         AccountId::of([b"example", credential.text("token").unwrap_or_default().as_bytes()])
///     }
///     fn open(
///         &self,
///         _: &AccountId,
///         credential: &Credential,
///         _: &Place,
///     ) -> Result<Arc<dyn Driver>, Error> {
///         match credential.text("token") {
///             Some(_) => Err(Error::unsupported("open")), // a provider returns its driver here
///             None => Err(Error::new(ErrorKind::Denied, "token: expected text")),
///         }
///     }
/// }
///
/// assert!(Example.serves("Example"));
/// assert!(Example.validate(&json!({"size": "small"})).is_ok());
/// let nothing = Credential::default();
/// let account = Example.account(&nothing, &Place::WHOLE);
/// let refused = Example.open(&account, &nothing, &Place::WHOLE).err();
/// assert_eq!(refused.map(|error| error.kind), Some(ErrorKind::Denied));
///
/// // A provider with ids of its own form overrides these two.
/// let id = ProviderId::parse("example:///i-1").expect("not empty");
/// assert_eq!(Example.parse_id("example:///i-1").ours(), Some(&id));
/// assert!(Example.same_instance(&id, &id));
/// ```
pub trait Provider: Send + Sync {
    /// The provider name in a MachineClass, for example `sim`.
    fn name(&self) -> &str;

    /// Whether this provider serves classes with that provider name.
    fn serves(&self, provider: &str) -> bool {
        provider.eq_ignore_ascii_case(self.name())
    }

    /// Parses and validates a provider spec without calling the cloud.
    ///
    /// # Errors
    /// [`machinist_instance::ErrorKind::InvalidSpec`]. The message names the field and the expected
    /// value.
    fn validate(&self, provider_spec: &Value) -> Result<(), Error>;

    /// Lists the fields of a provider spec that have no effect, with their paths: unknown fields of
    /// a lenient format, and fields that are accepted for other programs.
    fn fields_without_effect(&self, _provider_spec: &Value) -> Vec<String> {
        Vec::new()
    }

    /// Reads from a provider spec in which place of the cloud its instances are, without calling
    /// the cloud. Only the fields of the place are read, so that no other mistake in a class hides
    /// an instance.
    ///
    /// # Errors
    /// [`machinist_instance::ErrorKind::InvalidSpec`] if the fields name no place. The message
    /// names the field and the expected value.
    fn place(&self, _provider_spec: &Value) -> Result<Place, Error> {
        Ok(Place::WHOLE)
    }

    /// Returns the place that an id of this provider names; `None` if its ids name none.
    fn place_of(&self, _id: &ProviderId) -> Option<Place> {
        None
    }

    /// Reads from a provider spec within which part of the place the cloud recognises a repeated
    /// creation, without calling the cloud. Two specs with one key scope never create two
    /// instances for one key. If the key scope of a class changes after a call that may have
    /// created the instance, the controller repeats the call only when reads would show that
    /// instance, and `ensure` must return it.
    ///
    /// A provider whose cloud recognises a key in the whole place keeps the default.
    fn key_scope(&self, _provider_spec: &Value) -> KeyScope {
        KeyScope::WHOLE
    }

    /// Computes the name of the cloud account that a credential opens in a place, without calling
    /// the cloud.
    ///
    /// The name is a hash of the cloud's own id of the project, if the credential contains that id.
    /// Otherwise it is a hash of the endpoint and of the credential's entries that open the
    /// account. If the calls of one place do not show the instances of another place, the hash
    /// contains the place.
    ///
    /// # Guarantees
    /// Credentials of different accounts have different names. A new credential of the same account
    /// may have another name than the old one.
    fn account(&self, credential: &Credential, place: &Place) -> AccountId;

    /// Parses the `spec.providerID` of a Machine or a Node, without calling the cloud.
    ///
    /// The default accepts every text except the empty one. If the ids of a provider have a special
    /// form, the provider overrides this function and classifies the other texts.
    ///
    /// # Guarantees
    /// The id of every instance that the provider's drivers return parses as [`RecordedId::Ours`].
    fn parse_id(&self, text: &str) -> RecordedId {
        RecordedId::any(text)
    }

    /// Whether two ids name the same instance. Some clouds have several spellings of an id: one
    /// contains the region, another the zone. A provider that is not sure returns `false`.
    ///
    /// # Guarantees
    /// Returns `true` for two equal ids, and `false` for the ids of different instances. The
    /// controller deletes Nodes based on this answer.
    fn same_instance(&self, a: &ProviderId, b: &ProviderId) -> bool {
        a == b
    }

    /// Returns which marks of another program an instance without a key carries, without calling
    /// the cloud: the tags that the provider of machine-controller-manager puts on the instances of
    /// a class. An instance with these marks may belong to a Machine that records its id.
    fn marks_of(&self, _instance: &Instance, _provider_spec: &Value) -> Marks {
        Marks::NotUsed
    }

    /// Whether instances of that provider spec must be initialized after their creation, see
    /// [`Initializer`]. The function does not call the cloud.
    fn needs_initialization(&self, _provider_spec: &Value) -> bool {
        false
    }

    /// Returns a check whether the cloud answers now; `None` if the check would cost something. The
    /// caller limits the time.
    fn check(&self) -> Option<Check> {
        None
    }

    /// Opens the account of a credential in a place. Cheap, because it does not call the cloud.
    ///
    /// # Errors
    /// [`machinist_instance::ErrorKind::Denied`] if the credential lacks an entry. The message
    /// names the entry.
    fn open(
        &self,
        account: &AccountId,
        credential: &Credential,
        place: &Place,
    ) -> Result<Arc<dyn Driver>, Error>;
}

/// A check whether a cloud answers. Nothing is sent before it is awaited.
pub struct Check {
    /// The cloud, for users, for example `the engine at unix:///var/run/docker.sock`.
    pub cloud: String,
    /// The answer to the request.
    pub answer: Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>,
}

/// One cloud account. The machine API, Cluster API and the cloud controller manager use the same
/// object.
pub trait Driver: Send + Sync {
    /// Calls for instances, which every driver supports.
    fn instances(&self) -> &dyn Instances;
    /// Calls for load balancers: for Services, and for the control plane endpoint of Cluster API.
    fn balancers(&self) -> Option<&dyn Balancers> {
        None
    }
    /// Calls for routes between pod networks.
    fn routes(&self) -> Option<&dyn Routes> {
        None
    }
    /// Rules about volumes: which volumes of a pod this cloud attaches. A driver without them makes
    /// a drain wait for no single volume.
    fn volumes(&self) -> Option<&dyn Volumes> {
        None
    }
    /// Calls that complete an instance after its creation. Most clouds need none.
    fn initialization(&self) -> Option<&dyn Initializer> {
        None
    }
    /// Calls that bootstrap an instance from outside, for clouds without user data (containers).
    fn bootstrap(&self) -> Option<&dyn Bootstrap> {
        None
    }
    /// The promises of the cloud, from which the caller knows what an answer proves.
    fn promises(&self) -> Promises;
    /// The time of the cloud minus the time of this process, from the `Date` header of answers.
    /// `None` while it is unknown.
    fn clock_skew(&self) -> Option<SignedDuration> {
        None
    }
    /// The remaining calls of the account. `None` while they are unknown.
    fn budget(&self) -> Option<CallBudget> {
        None
    }
    /// The setting of the program that does not fit the account, with the expected value, for
    /// example a network that does not exist. The last list of instances showed it.
    fn misconfigured(&self) -> Option<String> {
        None
    }
}

/// Calls for the instances of one account.
///
/// ```
/// use std::collections::BTreeMap;
/// use std::sync::Mutex;
/// use async_trait::async_trait;
/// use machinist_driver::Instances;
/// use machinist_instance::*;
///
/// /// A cloud in memory: one instance per key.
/// #[derive(Default)]
/// struct Memory(Mutex<BTreeMap<InstanceKey, Instance>>);
///
/// #[async_trait]
/// impl Instances for Memory {
///     async fn ensure(&self, spec: &InstanceSpec) -> Result<Instance, Error> {
///         let made = || Instance {
///             id: ProviderId::parse(&format!("memory:///{}", spec.name)).expect("not empty"),
///             native_id: None,
///             key: Some(spec.key.clone()),
///             cluster: Some(spec.cluster.clone()),
///             name: spec.name.clone(),
///             power: Power::Running,
///             addresses: Vec::new(),
///             instance_type: None,
///             zone: None,
///             region: None,
///             tags: spec.tags.clone(),
///             node_labels: BTreeMap::new(),
///             created: jiff::Timestamp::UNIX_EPOCH,
///         };
///         let mut all = self.0.lock().expect("no panic");
///         Ok(all.entry(spec.key.clone()).or_insert_with(made).clone())
///     }
///     async fn find(&self, which: &InstanceRef) -> Result<Sighting, Error> {
///         let all = self.0.lock().expect("no panic");
///         let is_it = |instance: &&Instance| {
///             which.id.as_ref() == Some(&instance.id) || which.key == instance.key
///         };
///         let found = all.values().find(is_it).cloned();
///         Ok(found.map_or(Sighting::Absent, Sighting::Present))
///     }
///     async fn list(&self, _: &Scope) -> Result<Vec<Instance>, Error> {
///         Ok(self.0.lock().expect("no panic").values().cloned().collect())
///     }
///     async fn delete(&self, _: &InstanceRef, owner: &InstanceKey) -> Result<(), Error> {
///         self.0.lock().expect("no panic").remove(owner);
///         Ok(())
///     }
/// }
///
/// # let key = InstanceKey::new("uid-1");
/// # let spec = InstanceSpec {
/// #     key: key.clone(),
/// #     name: NodeName::new("workers-1").expect("not empty"),
/// #     cluster: "default".to_owned(),
/// #     provider_spec: serde_json::json!({}),
/// #     user_data: UserData::default(),
/// #     tags: BTreeMap::new(),
/// #     annotations: BTreeMap::new(),
/// #     adopt_made_since: None,
/// #     last_known_state: None,
/// # };
/// # use futures::FutureExt as _;
/// # let played = async {
/// let cloud = Memory::default();
/// let made = cloud.ensure(&spec).await?;
/// assert_eq!(cloud.ensure(&spec).await?, made, "the same key gives the same instance");
/// assert_eq!(cloud.list(&Scope::Visible).await?.len(), 1);
///
/// let which = InstanceRef { id: Some(made.id.clone()), ..InstanceRef::default() };
/// cloud.delete(&which, &key).await?;
/// cloud.delete(&which, &key).await?; // deleting what is absent succeeds
/// assert_eq!(cloud.find(&which).await?, Sighting::Absent);
///
/// // An optional call has a default.
/// let rekeyed = cloud.rekey(&made.id, &key, &InstanceKey::new("uid-2")).await;
/// assert_eq!(rekeyed.map_err(|error| error.kind), Err(ErrorKind::Unsupported));
/// # Ok::<(), Error>(())
/// # };
/// # played.now_or_never().expect("nothing waits").expect("the cloud in memory never fails");
/// ```
#[async_trait]
pub trait Instances: Send + Sync {
    /// Creates the instance of `spec.key`, or returns the existing one. The call returns as soon as
    /// the cloud has accepted the creation. `Instance::power` shows the progress.
    ///
    /// # Guarantees
    /// A key never has two live instances. The same key with other user data returns the existing
    /// instance. If an instance has the name of the spec, has no key and was created at or after
    /// `spec.adopt_made_since`, the driver tags it with the key and returns it.
    ///
    /// # Errors
    /// `Ambiguous` if the effect is unknown. `Unavailable` only if the call had no effect.
    async fn ensure(&self, spec: &InstanceSpec) -> Result<Instance, Error>;

    /// Finds one instance by the strongest given identity.
    async fn find(&self, which: &InstanceRef) -> Result<Sighting, Error>;

    /// Lists all instances in the scope. The result is complete or an error, never partial.
    async fn list(&self, scope: &Scope) -> Result<Vec<Instance>, Error>;

    /// Lists the instances without a key that carry the marks of one of these classes
    /// ([`Provider::marks_of`]): another program created them. Instances with the marks of another
    /// cluster are left out. The result is complete or an error.
    /// A cloud without such marks returns none, without a request.
    async fn list_marked(&self, _provider_specs: &[Value]) -> Result<Vec<Instance>, Error> {
        Ok(Vec::new())
    }

    /// Requests the deletion of an instance. Deleting an absent instance succeeds. The deletion has
    /// ended only when `find` returns [`Sighting::Absent`] or [`Sighting::Ended`].
    ///
    /// # Errors
    /// `Denied` if the key of the instance is not `owner`, and the instance does not have the
    /// recorded `which.native_id` either. The result is also `Denied` if the instance has no key,
    /// unless `which.may_lack_key` is set and `which.id` names the instance.
    async fn delete(&self, which: &InstanceRef, owner: &InstanceKey) -> Result<(), Error>;

    /// Changes the key of an instance from `from` to `to`, and nothing else. A Machine that was
    /// restored from a backup has a new UID, so its instance needs a new key.
    ///
    /// # Guarantees
    /// The driver compares the key before it changes it. An instance with the key `to` stays
    /// unchanged, so the call can be repeated.
    ///
    /// # Errors
    /// `Denied` if the instance has no key or a third key. `Unsupported` if keys are
    /// [`machinist_instance::KeyTag::Fixed`], or if the cloud cannot change the key in the present
    /// state of the instance; the instance is then deleted by the key that it carries.
    async fn rekey(&self, _id: &ProviderId, _from: &InstanceKey, _to: &InstanceKey) -> Result<(), Error> {
        Err(Error::unsupported("rekey"))
    }
}

/// Calls for the load balancers of one account: for Services, and for the control plane endpoint of
/// Cluster API.
#[async_trait]
pub trait Balancers: Send + Sync {
    /// Creates the balancer of `spec.key`, or changes the existing one so that it matches the spec.
    /// If none has the key, the driver adopts the balancer that has the spec's name and no key. A
    /// balancer with another key is never adopted, because its object may belong to another
    /// cluster. The only exception is a balancer with the recorded `spec.native_id`.
    ///
    /// # Guarantees
    /// A key never has two balancers. If the balancer matches the spec, the call only reads. The
    /// driver changes nothing that the spec does not mention.
    ///
    /// # Errors
    /// `InvalidSpec` names the option, or the balancer of that name that has the key of another
    /// object. `Ambiguous` if the effect of a change is unknown; repeating the call is safe.
    async fn ensure(&self, spec: &BalancerSpec) -> Result<Progress<Ensured>, Error>;

    /// Returns the changes with which [`Self::ensure`] would begin, in words of the cloud; none if
    /// the balancer matches the spec. The call only reads.
    ///
    /// # Errors
    /// As [`Self::ensure`]. `Unsupported` if the driver cannot know the changes.
    async fn foresee(&self, _spec: &BalancerSpec) -> Result<Vec<String>, Error> {
        Err(Error::unsupported("foresee"))
    }

    /// Finds one balancer. `None` if the cloud has none of that id or key.
    ///
    /// # Errors
    /// `InvalidSpec` if several balancers have the key.
    async fn find(&self, which: &BalancerRef) -> Result<Option<Balancer>, Error>;

    /// Lists all balancers that the account may see. The result is complete or an error.
    async fn list(&self) -> Result<Vec<Balancer>, Error>;

    /// Deletes a balancer. Deleting an absent balancer succeeds with
    /// [`BalancerDeletion::Absent`]. A balancer that a user protected against deletion stays, and
    /// loses its key.
    ///
    /// # Errors
    /// `InvalidSpec` if the key of the balancer is not `which.key`.
    async fn delete(&self, which: &BalancerRef) -> Result<Progress<BalancerDeletion>, Error>;
}

/// Calls for the routes of one account.
#[async_trait]
pub trait Routes: Send + Sync {
    /// Lists all routes, including those that other programs made. The result is complete or an
    /// error.
    async fn list(&self) -> Result<RouteTable, Error>;

    /// Creates a route. If the route exists, the call only reads. A route of the same destination
    /// to another gateway is deleted first.
    ///
    /// # Errors
    /// `InvalidSpec` if the instance has none of the addresses, or the cloud has no routes of that
    /// IP family.
    async fn create(&self, spec: &RouteSpec) -> Result<Progress<()>, Error>;

    /// Deletes exactly this route: its destination and its gateway. Deleting an absent route
    /// succeeds.
    async fn delete(&self, route: &Route) -> Result<Progress<()>, Error>;
}

/// Rules about the volumes of one account.
pub trait Volumes: Send + Sync {
    /// Returns the cloud's id of a volume, if this cloud attaches the volume to instances. A drain
    /// waits for such volumes. The function does not call the cloud.
    ///
    /// # Guarantees
    /// Returns `None` for a volume of another cloud, and different ids for different volumes.
    fn volume_id(&self, source: &VolumeSource) -> Option<String>;
}

/// Calls that complete an instance after its creation, for settings that a cloud accepts only for
/// an instance that exists.
#[async_trait]
pub trait Initializer: Send + Sync {
    /// Makes all changes that an instance of this provider spec still needs. The caller has
    /// recorded the id before. It repeats the call until it succeeds, also in another process.
    ///
    /// # Guarantees
    /// An instance that needs no change stays unchanged, so the call can be repeated.
    ///
    /// # Errors
    /// An error of [`Error::in_progress`] while the cloud works. `Denied` if the instance has
    /// another key than `owner`. `Unsupported` counts as success.
    async fn initialize(
        &self,
        id: &ProviderId,
        owner: &InstanceKey,
        provider_spec: &Value,
    ) -> Result<(), Error>;
}

/// Calls that bootstrap an instance from outside, once per instance.
///
/// No call waits: each starts something or observes it, in one short attempt. The usual order is
/// [`readiness`](Self::readiness), [`load_images`](Self::load_images), [`start`](Self::start),
/// [`progress`](Self::progress).
#[async_trait]
pub trait Bootstrap: Send + Sync {
    /// Observes whether the instance has started so far that its bootstrap can begin.
    async fn readiness(&self, which: &InstanceRef) -> Result<Readiness, Error>;

    /// Loads container images from outside into the instance. A repeated call observes the loading.
    /// Images that the instance has are skipped.
    ///
    /// # Errors
    /// `InvalidSpec` names an image that does not exist.
    async fn load_images(&self, which: &InstanceRef, images: &[String]) -> Result<Progress<()>, Error>;

    /// Starts the bootstrap and returns without waiting for its end.
    ///
    /// # Guarantees
    /// The steps of an instance run at most once, even if the call is repeated, its outcome is
    /// unknown, or this process or the instance restarts.
    ///
    /// # Errors
    /// `InvalidSpec` if the data cannot be parsed; the message contains none of the data.
    /// `Denied` if the instance has another key.
    async fn start(&self, which: &InstanceRef, data: &BootstrapData) -> Result<(), Error>;

    /// Observes the bootstrap. The answer comes from the instance, so it does not depend on the
    /// process that started the bootstrap.
    async fn progress(&self, which: &InstanceRef) -> Result<BootstrapStatus, Error>;

    /// Observes an instance whose Node has not registered: whether it runs, and what became of its
    /// user data. An absent instance, and an instance that cannot run its user data, is a final
    /// problem.
    async fn boot(&self, which: &InstanceRef) -> Result<Boot, Error>;
}
