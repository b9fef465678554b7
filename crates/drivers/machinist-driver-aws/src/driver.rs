//! The provider, its accounts, and the calls for instances. Besides `client`, only this file awaits
//! calls of the cloud.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use machinist_driver::{Driver, Initializer, Instances, Provider, Volumes};
use machinist_driver_http::{Http, HttpCaller, Now, Traffic, Transport};
use machinist_instance::{
    AccountId, CallRate, CreateGuarantee, Credential, Error, ErrorKind, Instance, InstanceKey, InstanceRef,
    InstanceSpec, KeyScope, KeyTag, Marks, Place, Promises, ProviderId, RecordedId, Scope, Sighting,
    VolumeSource,
};
use serde_json::Value;

use crate::client::call::Call;
use crate::client::failure::Failure;
use crate::client::{ATTEMPT_WITHIN, Client};
use crate::model::{Acknowledgement, Ec2Instance, Images, Reservation};
use crate::options::AwsOptions;
use crate::request::{self, Creation};
use crate::secret::{self, Login};
use crate::spec::{self, Initialization, ProviderSpec};
use crate::tag::{self, CLUSTER, KEY, NAME, Tags};
use crate::{id, initialize, reply};

/// `ensure` takes at most the time of this number of calls: keys of a workload, search by key and
/// by name, image, creation, search by token.
const MAX_CHAIN: u32 = 6;

/// The promises of EC2.
pub const PROMISES: Promises = Promises {
    // The documentation of EC2 says: repeat a read "up to about five minutes" until it shows a
    // change. Gardener's provider waits as long.
    visible_within: Duration::from_secs(300),
    call_bound: ATTEMPT_WITHIN.saturating_mul(MAX_CHAIN),
    calls_outlive_process: true,
    create: CreateGuarantee::NativeKey,
    // The bucket of RunInstances, the smallest of those that this driver uses: two calls a second.
    rate: Some(CallRate { per_hour: 7200, burst: 5 }),
    keys: KeyTag::Rekeyable,
};

/// Name of the CSI driver of EBS. The handle of its volumes is the id in the cloud.
const CSI_DRIVER: &str = "ebs.csi.aws.com";
/// Name of the volumes that Kubernetes had built in.
const BUILT_IN_VOLUME: &str = "kubernetes.io/aws-ebs";

/// AWS as a provider. A class names it `AWS`.
///
/// ```
/// use machinist_driver::Provider;
/// use machinist_driver_aws::{AwsOptions, AwsProvider, Http};
/// use machinist_instance::{Credential, Place, ProviderId};
///
/// let aws = AwsProvider::over(std::sync::Arc::new(Http::plain()), AwsOptions::default());
/// let (of_region, of_zone) = ("aws:///eu-west-1/i-0a1b", "aws:///eu-west-1a/i-0a1b");
/// let (a, b) = (ProviderId::parse(of_region)?, ProviderId::parse(of_zone)?);
/// assert!(aws.serves("AWS") && aws.same_instance(&a, &b));
/// assert_eq!(aws.place_of(&b), Some(Place::new("eu-west-1")));
///
/// // A credential needs keys or the identity of a workload.
/// let (nothing, place) = (Credential::default(), Place::new("eu-west-1"));
/// let refused = aws.open(&aws.account(&nothing, &place), &nothing, &place).err();
/// assert!(refused.is_some_and(|error| error.message.contains("accessKeyID: expected")));
/// # Ok::<(), machinist_instance::IdentityError>(())
/// ```
#[derive(Clone)]
pub struct AwsProvider {
    options: Arc<AwsOptions>,
    transport: Arc<dyn Transport>,
    traffic: Traffic,
    now: Now,
}

impl AwsProvider {
    /// Uses the endpoints of the options, or of AWS, over TCP. Nothing is sent.
    ///
    /// # Errors
    /// If an endpoint uses HTTPS and the system has no root certificates.
    pub fn new(options: AwsOptions) -> io::Result<Self> {
        let transport: Arc<dyn Transport> =
            if options.is_plain() { Arc::new(Http::plain()) } else { Arc::new(Http::with_tls()?) };
        Ok(Self::over(transport, options))
    }

    /// Uses any transport.
    #[expect(clippy::disallowed_methods, reason = "this is where the clock is injected from")]
    pub fn over(transport: Arc<dyn Transport>, options: AwsOptions) -> Self {
        Self {
            options: Arc::new(options),
            transport,
            traffic: Traffic::default(),
            now: Arc::new(Timestamp::now),
        }
    }

    /// Sets the clock that signs requests and is compared with the cloud's clock.
    #[must_use]
    pub fn with_clock(self, now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self { now: Arc::new(now), ..self }
    }

    /// Number of requests by method, action and status.
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// The region of a place. The whole cloud means the region of the options.
    fn region<'a>(&'a self, place: &'a Place) -> Option<&'a str> {
        Some(place.as_str()).filter(|region| !region.is_empty()).or(self.options.region.as_deref())
    }
}

impl Provider for AwsProvider {
    fn name(&self) -> &str {
        "AWS"
    }

    fn validate(&self, provider_spec: &Value) -> Result<(), Error> {
        validate(provider_spec)
    }

    fn fields_without_effect(&self, provider_spec: &Value) -> Vec<String> {
        spec::fields_without_effect(provider_spec)
    }

    fn place(&self, provider_spec: &Value) -> Result<Place, Error> {
        spec::place(provider_spec)
    }

    fn place_of(&self, id: &ProviderId) -> Option<Place> {
        id::place(id)
    }

    fn key_scope(&self, provider_spec: &Value) -> KeyScope {
        spec::key_scope(provider_spec)
    }

    fn account(&self, credential: &Credential, place: &Place) -> AccountId {
        let endpoint = self.options.ec2.as_ref().map(ToString::to_string).unwrap_or_default();
        let region = self.region(place).unwrap_or_default();
        let account = secret::account(credential);
        AccountId::of(["aws", endpoint.as_str(), region, account.as_str()].map(str::as_bytes))
    }

    fn parse_id(&self, text: &str) -> RecordedId {
        id::parse(text)
    }

    fn same_instance(&self, a: &ProviderId, b: &ProviderId) -> bool {
        id::is_same(a, b)
    }

    fn marks_of(&self, instance: &Instance, provider_spec: &Value) -> Marks {
        tag::marks(&instance.tags, &spec::tags_of(provider_spec))
    }

    fn needs_initialization(&self, provider_spec: &Value) -> bool {
        Initialization::parse(provider_spec).is_ok_and(|wanted| !wanted.is_empty())
    }

    fn open(&self, _: &AccountId, credential: &Credential, place: &Place) -> Result<Arc<dyn Driver>, Error> {
        let login = Login::parse(credential)?;
        let region = self.region(place).ok_or_else(|| {
            let text = "AWS_REGION: expected a region, because the call belongs to no class";
            Error::new(ErrorKind::Denied, text)
        })?;
        let (transport, traffic) = (self.transport.clone(), self.traffic.clone());
        let caller = HttpCaller::new(transport, ATTEMPT_WITHIN, traffic, self.now.clone());
        let client = Client::new(caller, self.options.clone(), region.to_owned(), login);
        Ok(Arc::new(Account { client, root_devices: Mutex::default() }))
    }
}

/// Parses and validates a `providerSpec`.
///
/// # Errors
/// `InvalidSpec`, with the field, the expected and the found value.
pub fn validate(provider_spec: &Value) -> Result<(), Error> {
    ProviderSpec::parse(provider_spec).map(drop)
}

/// One account in one region.
struct Account {
    client: Client,
    /// The root device of each image. An image never changes, and a region has few that are used.
    root_devices: Mutex<BTreeMap<String, String>>,
}

impl Driver for Account {
    fn instances(&self) -> &dyn Instances {
        self
    }

    fn volumes(&self) -> Option<&dyn Volumes> {
        Some(self)
    }

    fn initialization(&self) -> Option<&dyn Initializer> {
        Some(self)
    }

    fn promises(&self) -> Promises {
        Promises { calls_outlive_process: self.client.caller.outlives_process(), ..PROMISES }
    }

    fn clock_skew(&self) -> Option<SignedDuration> {
        self.client.caller.skew()
    }
}

impl Volumes for Account {
    fn volume_id(&self, source: &VolumeSource) -> Option<String> {
        // A built-in volume is spelled aws://ZONE/vol-ID, aws:///vol-ID or vol-ID.
        let id = match source.plugin.as_str() {
            CSI_DRIVER => source.id.as_str(),
            BUILT_IN_VOLUME => source.id.rsplit('/').next().unwrap_or_default(),
            _ => "",
        };
        (!id.is_empty()).then(|| id.to_owned())
    }
}

impl Account {
    fn instance(&self, found: Ec2Instance, asked: Option<&InstanceKey>) -> Result<Instance, Error> {
        reply::instance(&self.client.region, found, asked)
    }

    async fn search(&self, call: Call, asked: Option<&InstanceKey>) -> Result<Option<Ec2Instance>, Failure> {
        Ok(reply::choose(self.client.instances(&call).await?, asked))
    }

    /// Reads an instance by its id, in every state.
    async fn by_id(&self, id: &ProviderId) -> Result<Option<Ec2Instance>, Error> {
        let id = id::instance(id)?;
        Ok(self.client.instance(id, &request::by_id(id)).await?)
    }

    /// Finds an instance by its key: by the tag, else by the token of its creation.
    async fn by_key(&self, key: &InstanceKey) -> Result<Option<Ec2Instance>, Error> {
        // A text that cannot be a client token is the key of no instance.
        if tag::check_key(key.as_str()).is_err() {
            return Ok(None);
        }
        if let Some(found) = self.search(request::by_tag(KEY, key.as_str()), Some(key)).await? {
            return Ok(Some(found));
        }
        Ok(self.search(request::by_token(key), Some(key)).await?)
    }

    /// Finds an instance by the strongest given identity. By its id, a terminated one is found,
    /// too: EC2 shows it for about an hour.
    async fn lookup(&self, which: &InstanceRef) -> Result<Option<Ec2Instance>, Error> {
        if let Some(id) = &which.id {
            return self.by_id(id).await;
        }
        if let Some(key) = &which.key
            && let Some(found) = self.by_key(key).await?
        {
            return Ok(Some(found));
        }
        let asked = which.key.as_ref();
        if let Some(name) = &which.name
            && let Some(found) = self.search(request::by_tag(NAME, name.as_str()), asked).await?
        {
            return Ok(Some(found));
        }
        match which.node_name.as_ref().or(which.name.as_ref()) {
            Some(node) => Ok(self.search(request::by_private_dns_name(node.as_str()), asked).await?),
            None => Ok(None),
        }
    }

    /// Finds an instance that another program created for the same purpose: it has the name, the
    /// marks of the class and no key, and is young enough.
    ///
    /// # Errors
    /// `Denied` if another instance has the name and the marks. It may belong to a Machine that was
    /// created again from a backup, without its recorded id. A second instance would run in
    /// addition.
    async fn adoptable(&self, spec: &InstanceSpec, of_class: &Tags) -> Result<Option<Ec2Instance>, Error> {
        let Some(since) = spec.adopt_made_since else { return Ok(None) };
        let mut found = self.client.instances(&request::by_tag(NAME, spec.name.as_str())).await?;
        found.retain(|found| !reply::is_deleting(found) && reply::marks(found, of_class) == Marks::OfClass);
        let is_new =
            |found: &Ec2Instance| reply::key(found, None).is_none() && since <= reply::created(found);
        let (new, others): (Vec<_>, Vec<_>) = found.into_iter().partition(is_new);
        match (reply::choose(new, None), others.first()) {
            (Some(new), _) => Ok(Some(new)),
            (None, None) => Ok(None),
            (None, Some(other)) => {
                let text = format!(
                    "instance {} has the name {} and the marks of the class, and was not created for this \
                     Machine; delete it, or set it as spec.providerID",
                    other.instance_id, spec.name
                );
                Err(Error::new(ErrorKind::Denied, text))
            }
        }
    }

    /// Tags an instance with the key. A credential that may not write tags keeps it without a key.
    async fn adopt(&self, mut found: Ec2Instance, spec: &InstanceSpec) -> Result<Instance, Error> {
        let tags = request::tags_of_adoption(spec);
        match self.acknowledged(&request::set_tags(&found.instance_id, &tags)).await {
            Ok(()) => reply::set_tags(&mut found, tags),
            Err(failure) if failure.is("UnauthorizedOperation") => {
                let id = found.instance_id.as_str();
                tracing::warn!(id, "Adopted an instance without its key: ec2:CreateTags is not allowed");
            }
            Err(failure) => return Err(failure.error),
        }
        self.instance(found, None)
    }

    /// Sends a request of whose answer nothing is read.
    async fn acknowledged(&self, call: &Call) -> Result<(), Failure> {
        self.client.call::<Acknowledgement>(call).await.map(drop)
    }

    /// The name of the root device of an image.
    async fn root_device(&self, image: &str) -> Result<String, Error> {
        let known = || self.root_devices.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(device) = known().get(image) {
            return Ok(device.clone());
        }
        let missing = |why: &str| {
            let text = format!("providerSpec.ami: expected an image with a root volume, but {image} {why}");
            Error::new(ErrorKind::InvalidSpec, text)
        };
        let images = match self.client.call::<Images>(&request::image(image)).await {
            Ok(images) => images.images_set.item,
            Err(failure) if failure.error.kind == ErrorKind::InvalidSpec => {
                return Err(missing("does not exist"));
            }
            Err(failure) => return Err(failure.error),
        };
        let image_found = images.into_iter().next().ok_or_else(|| missing("does not exist"))?;
        let device = image_found.root_device_name.filter(|name| !name.is_empty());
        let device = device.ok_or_else(|| missing("has none"))?;
        known().insert(image.to_owned(), device.clone());
        Ok(device)
    }

    /// Creates the instance. EC2 returns the existing one if the key has created one before.
    async fn create(&self, creation: &Creation, key: &InstanceKey) -> Result<Ec2Instance, Error> {
        let root_device = self.root_device(creation.image()).await?;
        let call = creation.call(&root_device, self.client.options.sends_all_fields);
        match self.client.call::<Reservation>(&call).await {
            Ok(made) => made.instances_set.item.into_iter().next().ok_or_else(|| {
                Error::new(ErrorKind::Ambiguous, "the answer to RunInstances contains no instance")
            }),
            // The first request had other user data, or the class was edited since.
            Err(failure) if failure.is("IdempotentParameterMismatch") => self.made_before(key).await,
            Err(failure) if failure.is("IdempotentInstanceTerminated") => Err(made_and_terminated(key)),
            Err(failure) => Err(failure.error),
        }
    }

    /// Finds the instance that an earlier request of the key has created.
    async fn made_before(&self, key: &InstanceKey) -> Result<Ec2Instance, Error> {
        let found = self.client.instances(&request::by_token(key)).await?;
        let has_existed = !found.is_empty();
        reply::choose(found, Some(key)).ok_or_else(|| {
            if has_existed {
                return made_and_terminated(key);
            }
            let text = format!(
                "EC2 remembers another request with the key {key}, and shows no instance of it; if none \
                 appears within five minutes, delete the Machine"
            );
            Error::in_progress(text)
        })
    }

    /// Reads an instance that must exist, because its id was recorded.
    async fn existing(&self, id: &ProviderId) -> Result<Ec2Instance, Error> {
        let found = self.by_id(id).await?.filter(|found| !reply::is_terminated(found));
        found.ok_or_else(|| Error::new(ErrorKind::Unavailable, format!("{id} does not exist")))
    }
}

#[async_trait]
impl Instances for Account {
    async fn ensure(&self, spec: &InstanceSpec) -> Result<Instance, Error> {
        let creation = Creation::of(spec, &self.client.region)?;
        let key = &spec.key;
        if let Some(found) = self.search(request::by_tag(KEY, key.as_str()), Some(key)).await? {
            return self.instance(found, Some(key));
        }
        if let Some(found) = self.adoptable(spec, creation.tags_of_class()).await? {
            return self.adopt(found, spec).await;
        }
        let made = self.create(&creation, key).await?;
        if reply::is_terminated(&made) {
            return Err(made_and_terminated(key));
        }
        match reply::key(&made, Some(key)) {
            Some(carried) if carried == key.as_str() => self.instance(made, Some(key)),
            _ => Err(wrong_key(&made, key)),
        }
    }

    async fn find(&self, which: &InstanceRef) -> Result<Sighting, Error> {
        let found = self.lookup(which).await?;
        if let Some(found) = found.as_ref().filter(|found| reply::is_terminated(found)) {
            let is_of_another = match (&which.key, reply::key(found, which.key.as_ref())) {
                (Some(asked), Some(carried)) => asked.as_str() != carried,
                (None, _) | (_, None) => false,
            };
            return Ok(if is_of_another { Sighting::Absent } else { Sighting::Ended });
        }
        let is_of_another = found.as_ref().is_some_and(|found| has_only_the_name(found, which));
        let mut found = found.map(|found| self.instance(found, which.key.as_ref())).transpose()?;
        // The object keeps the spelling that it records.
        if let (Some(found), Some(id)) = (&mut found, &which.id) {
            found.id = id.clone();
        }
        match found {
            Some(found) if is_of_another => Ok(Sighting::Foreign(found.into())),
            found => Ok(Sighting::of(which, found)),
        }
    }

    async fn list(&self, scope: &Scope) -> Result<Vec<Instance>, Error> {
        let call = match scope {
            Scope::Ours(cluster) => request::by_tag(CLUSTER, cluster),
            Scope::Visible => request::all(),
        };
        let found = self.client.instances(&call).await?.into_iter();
        found.filter(|found| !reply::is_terminated(found)).map(|found| self.instance(found, None)).collect()
    }

    async fn list_marked(&self, provider_specs: &[Value]) -> Result<Vec<Instance>, Error> {
        let classes: BTreeSet<Vec<String>> = provider_specs
            .iter()
            .map(|spec| tag::marks_of_class(&spec::tags_of(spec)).into_iter().map(str::to_owned).collect())
            .collect();
        let mut marked = BTreeMap::new();
        // Without both marks, the filter would find the instances of other clusters.
        for marks in classes.iter().filter(|marks| tag::has_marks(marks.iter().map(String::as_str))) {
            for found in self.client.instances(&request::by_marks(marks)).await? {
                let carried = reply::tags(&found);
                if !marks.iter().all(|mark| carried.contains_key(mark)) {
                    continue;
                }
                let instance = self.instance(found, None)?;
                marked.insert(instance.id.clone(), instance);
            }
        }
        Ok(marked.into_values().filter(|instance| instance.key.is_none()).collect())
    }

    async fn delete(&self, which: &InstanceRef, owner: &InstanceKey) -> Result<(), Error> {
        let found = self.lookup(which).await?.filter(|found| !reply::is_terminated(found));
        let Some(found) = found else { return Ok(()) };
        let may_delete = match reply::key(&found, Some(owner)) {
            Some(key) => key == owner.as_str(),
            None => which.may_lack_key && which.id.is_some(),
        };
        if !may_delete {
            return Err(wrong_key(&found, owner));
        }
        if reply::is_deleting(&found) {
            return Ok(());
        }
        match self.acknowledged(&request::terminate(&found.instance_id)).await {
            Err(failure) if !failure.is_absence() => Err(failure.error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    async fn rekey(&self, id: &ProviderId, from: &InstanceKey, to: &InstanceKey) -> Result<(), Error> {
        tag::check_key(to.as_str())?;
        let found = self.existing(id).await?;
        let key = reply::key(&found, Some(from));
        if key == Some(to.as_str()) {
            return Ok(());
        }
        if key != Some(from.as_str()) {
            return Err(wrong_key(&found, from));
        }
        let tags = Tags::from([(KEY.to_owned(), to.as_str().to_owned())]);
        Ok(self.acknowledged(&request::set_tags(&found.instance_id, &tags)).await?)
    }
}

#[async_trait]
impl Initializer for Account {
    async fn initialize(
        &self,
        id: &ProviderId,
        owner: &InstanceKey,
        provider_spec: &Value,
    ) -> Result<(), Error> {
        let wanted = Initialization::parse(provider_spec)?;
        let found = self.existing(id).await?;
        // An instance of Gardener's provider has no key. Only one of the class is changed.
        let is_ours = match reply::key(&found, Some(owner)) {
            Some(key) => key == owner.as_str(),
            None => reply::marks(&found, &spec::tags_of(provider_spec)) == Marks::OfClass,
        };
        if !is_ours {
            return Err(wrong_key(&found, owner));
        }
        for call in initialize::missing(&wanted, &found)? {
            self.acknowledged(&call).await?;
        }
        Ok(())
    }
}

/// Whether nothing but the name of the Node shows that an instance is the wanted instance. Networks
/// of one account have the same addresses, and so the same names of Nodes.
fn has_only_the_name(found: &Ec2Instance, which: &InstanceRef) -> bool {
    let (None, Some(key)) = (&which.id, &which.key) else { return false };
    let is_of_machine =
        which.name.as_ref().is_some_and(|name| reply::name_of_machine(found) == Some(name.as_str()));
    reply::key(found, Some(key)).is_none() && !is_of_machine
}

/// EC2 creates no second instance for a client token, and a second token for one key would permit
/// two instances.
fn made_and_terminated(key: &InstanceKey) -> Error {
    let text = format!(
        "the instance of the key {key} was terminated, and EC2 creates no second one for a key; delete the \
         Machine, so that another one replaces it"
    );
    Error::new(ErrorKind::Unavailable, text)
}

fn wrong_key(found: &Ec2Instance, expected: &InstanceKey) -> Error {
    let key = reply::key(found, Some(expected)).unwrap_or("no key");
    let text = format!("instance {}: expected the key {expected}, got {key}", found.instance_id);
    Error::new(ErrorKind::Denied, text)
}
