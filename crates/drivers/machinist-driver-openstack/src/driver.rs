//! The provider, its accounts, and the calls for instances. `create` and `parts` have the steps of
//! a creation and the parts of an instance. Besides `client`, only these three files await calls of
//! the cloud.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use machinist_driver::{Driver, Initializer, Instances, Provider, Volumes};
use machinist_driver_http::{HttpCaller, Now, Traffic, Transport};
use machinist_instance::{
    AccountId, CreateGuarantee, Credential, Error, ErrorKind, Instance, InstanceKey, InstanceRef,
    InstanceSpec, KeyTag, Marks, Place, Power, Promises, ProviderId, RecordedId, Scope, Sighting,
    VolumeSource,
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::Instant;

use crate::client::call::{Call, Service};
use crate::client::failure::Failure;
use crate::client::{ATTEMPT_WITHIN, Client, tls};
use crate::create::Memory;
use crate::model::{NamedObject, Port, Server, ServerBody};
use crate::options::OpenStackOptions;
use crate::parts::{Parts, PartsOf};
use crate::request::{self, Creation};
use crate::secret::{self, Login};
use crate::spec::{self, Named, Networking, Networks, ProviderSpec};
use crate::tag::{self, KEY, Metadata};
use crate::{id, reply};

/// No request that changes something begins later than this after the start of its call, so that
/// the call bound stays short although a creation has many requests.
const CHANGES_WITHIN: Duration = Duration::from_secs(60);

/// The promises of OpenStack.
pub const PROMISES: Promises = Promises {
    // Nova stores a server in its database before it answers, and reads the same database. The
    // other API servers may read a copy of it, which is a few seconds behind at most.
    visible_within: Duration::from_secs(10),
    call_bound: CHANGES_WITHIN.saturating_add(ATTEMPT_WITHIN),
    calls_outlive_process: true,
    create: CreateGuarantee::FindThenCreate,
    rate: None,
    keys: KeyTag::Rekeyable,
};

/// Name of the CSI driver of Cinder. The handle of its volumes is the id in the cloud.
const CSI_DRIVER: &str = "cinder.csi.openstack.org";
/// Name of the volumes that Kubernetes had built in.
const BUILT_IN_VOLUME: &str = "kubernetes.io/cinder";

/// OpenStack as a provider. A class names it `OpenStack`.
///
/// ```
/// use machinist_driver::Provider;
/// use machinist_driver_openstack::{OpenStackOptions, OpenStackProvider};
/// use machinist_instance::{Credential, Place, ProviderId};
///
/// let openstack = OpenStackProvider::new(OpenStackOptions::default());
/// let server = "5d8d6bd5-3c39-4bcb-a4c5-0a4c7a8f0001";
/// let a = ProviderId::parse(&format!("openstack:///eu/{server}"))?;
/// let b = ProviderId::parse(&format!("openstack:///{server}"))?;
/// assert!(openstack.serves("OpenStack") && openstack.same_instance(&a, &b));
/// assert_eq!(openstack.place_of(&a), Some(Place::new("eu")));
///
/// // A credential needs the URL of Keystone.
/// let (nothing, place) = (Credential::default(), Place::new("eu"));
/// let refused = openstack.open(&openstack.account(&nothing, &place), &nothing, &place).err();
/// assert!(refused.is_some_and(|error| error.message.starts_with("authURL: expected")));
/// # Ok::<(), machinist_instance::IdentityError>(())
/// ```
#[derive(Clone)]
pub struct OpenStackProvider {
    options: Arc<OpenStackOptions>,
    /// Connections of all accounts; absent if the Secret of each account decides.
    transport: Option<Arc<dyn Transport>>,
    traffic: Traffic,
    now: Now,
}

impl OpenStackProvider {
    /// Connects over TCP, as the Secret of an account says. Nothing is sent.
    #[expect(clippy::disallowed_methods, reason = "this is where the clock is injected from")]
    pub fn new(options: OpenStackOptions) -> Self {
        Self {
            options: Arc::new(options),
            transport: None,
            traffic: Traffic::default(),
            now: Arc::new(Timestamp::now),
        }
    }

    /// Uses one transport for all accounts. The certificates of the Secrets have no effect.
    #[must_use]
    pub fn over(self, transport: Arc<dyn Transport>) -> Self {
        Self { transport: Some(transport), ..self }
    }

    /// Sets the clock that is compared with the cloud's clock.
    #[must_use]
    pub fn with_clock(self, now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self { now: Arc::new(now), ..self }
    }

    /// Number of requests by method, path and status.
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// The region of a place. The whole cloud means the region of the options.
    fn region<'a>(&'a self, place: &'a Place) -> Option<&'a str> {
        Some(place.as_str()).filter(|region| !region.is_empty()).or(self.options.region.as_deref())
    }
}

impl Provider for OpenStackProvider {
    fn name(&self) -> &str {
        "OpenStack"
    }

    fn validate(&self, provider_spec: &Value) -> Result<(), Error> {
        validate(provider_spec)
    }

    fn place(&self, provider_spec: &Value) -> Result<Place, Error> {
        spec::place(provider_spec)
    }

    fn place_of(&self, id: &ProviderId) -> Option<Place> {
        id::place(id)
    }

    fn account(&self, credential: &Credential, place: &Place) -> AccountId {
        let region = self.region(place).unwrap_or_default();
        let parts = secret::account(credential);
        let parts = parts.iter().map(String::as_str);
        AccountId::of(["openstack", region].into_iter().chain(parts).map(str::as_bytes))
    }

    fn parse_id(&self, text: &str) -> RecordedId {
        id::parse(text)
    }

    fn same_instance(&self, a: &ProviderId, b: &ProviderId) -> bool {
        id::is_same(a, b)
    }

    fn marks_of(&self, instance: &Instance, provider_spec: &Value) -> Marks {
        tag::marks(instance.tags.keys().map(String::as_str), &spec::tags_of(provider_spec))
    }

    /// Nova accepts a server before it has chosen a host. So every server is watched until it runs
    /// or has failed, and until its ports accept packets of pods.
    fn needs_initialization(&self, _: &Value) -> bool {
        true
    }

    fn open(&self, _: &AccountId, credential: &Credential, place: &Place) -> Result<Arc<dyn Driver>, Error> {
        let login = Login::parse(credential)?;
        let region = self.region(place).ok_or_else(|| {
            let text = "OS_REGION_NAME: expected a region, because the call belongs to no class";
            Error::new(ErrorKind::Denied, text)
        })?;
        let transport = match &self.transport {
            Some(transport) => transport.clone(),
            None => tls::transport(&login)?,
        };
        let caller = HttpCaller::new(transport, ATTEMPT_WITHIN, self.traffic.clone(), self.now.clone());
        let client = Client::new(caller, region.to_owned(), login);
        Ok(Arc::new(Account { client, flavors: Mutex::default(), memory: Memory::default() }))
    }
}

/// Parses and validates a `providerSpec`.
///
/// # Errors
/// `InvalidSpec`, with the field, the expected and the found value.
pub fn validate(provider_spec: &Value) -> Result<(), Error> {
    request::check_class(&ProviderSpec::parse(provider_spec)?)
}

/// One account in one region.
pub(crate) struct Account {
    pub(crate) client: Client,
    /// The ids of flavors by name, as the last list showed them.
    pub(crate) flavors: Mutex<BTreeMap<String, String>>,
    /// The servers that were created so recently that reads may not show them.
    pub(crate) memory: Memory,
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
        let is_known = [CSI_DRIVER, BUILT_IN_VOLUME].contains(&source.plugin.as_str());
        (is_known && !source.id.is_empty()).then(|| source.id.clone())
    }
}

/// The beginning of a driver call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Began(Instant);

impl Began {
    pub(crate) fn now() -> Self {
        Self(Instant::now())
    }

    /// The moment after which the call changes nothing.
    fn deadline(self) -> Instant {
        self.0 + CHANGES_WITHIN
    }
}

impl Account {
    pub(crate) fn flavors(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.flavors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn instance(&self, server: Server) -> Result<Instance, Error> {
        reply::instance(&self.client.region, server, &self.flavors())
    }

    /// Sends a request that changes something and whose answer is not read.
    pub(crate) async fn change(&self, began: Began, call: &Call) -> Result<(), Failure> {
        self.client.acknowledged(&call.until(began.deadline())).await
    }

    /// Sends a request that creates something.
    pub(crate) async fn post<T: DeserializeOwned>(&self, began: Began, call: &Call) -> Result<T, Failure> {
        self.client.call(&call.until(began.deadline())).await
    }

    /// Reads a server by the cloud's id.
    pub(crate) async fn server(&self, id: &str) -> Result<Option<Server>, Error> {
        // Nova would read another text as another path.
        if !id::is_server(id) {
            return Ok(None);
        }
        let found: Option<ServerBody> = self.client.optional(&request::server(id)).await?;
        Ok(found.map(|found| found.server).filter(|server| !reply::is_absent(server)))
    }

    /// Lists servers of exactly that name.
    pub(crate) async fn servers_named(&self, name: &str) -> Result<Vec<Server>, Error> {
        let mut found = self.servers(&request::servers_named(name)).await?;
        found.retain(|server| server.name == name);
        Ok(found)
    }

    async fn servers(&self, call: &Call) -> Result<Vec<Server>, Error> {
        let mut found: Vec<Server> = self.client.list(call, "servers").await?;
        found.retain(|server| !reply::is_absent(server));
        Ok(found)
    }

    /// Lists the servers that a reference without an id may mean. Nova cannot search by metadata.
    async fn candidates(&self, which: &InstanceRef) -> Result<Vec<Server>, Error> {
        match (&which.name, &which.key) {
            (Some(name), _) => self.servers_named(name.as_str()).await,
            (None, Some(key)) => {
                let mut all = self.servers(&request::servers()).await?;
                all.retain(|server| reply::is_of_key(server, key));
                Ok(all)
            }
            (None, None) => Ok(Vec::new()),
        }
    }

    /// Requests the deletion of a server that was just read.
    pub(crate) async fn delete_server(&self, began: Began, server: &Server) -> Result<(), Error> {
        if reply::is_deleting(server) {
            return Ok(());
        }
        match self.change(began, &request::delete_server(&server.id)).await {
            Err(failure) if !failure.is_absence() => Err(failure.error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Finds a server that was renamed: a port or volume of the key says which server uses it.
    async fn user_of_parts(&self, key: &InstanceKey, users: &[String]) -> Result<Option<Server>, Error> {
        for user in users {
            if let Some(server) = self.server(user).await?
                && reply::is_of_key(&server, key)
            {
                return Ok(Some(server));
            }
        }
        Ok(None)
    }

    /// Looks for parts that are left of an instance that the cloud does not show.
    async fn left(&self, which: &InstanceRef) -> Result<Sighting, Error> {
        let Some(key) = &which.key else { return Ok(Sighting::Absent) };
        let parts = self.parts(&PartsOf::of(which, key)).await?;
        self.left_of(which, key, &parts).await
    }

    async fn left_of(
        &self,
        which: &InstanceRef,
        key: &InstanceKey,
        parts: &Parts,
    ) -> Result<Sighting, Error> {
        if which.id.is_none()
            && let Some(server) = self.user_of_parts(key, &parts.users()).await?
        {
            return Ok(Sighting::of(which, self.instance(server)?));
        }
        let parts = parts.texts();
        Ok(if parts.is_empty() { Sighting::Absent } else { Sighting::Parts(parts) })
    }

    /// Reads a server that must exist, because its id was recorded.
    async fn existing(&self, id: &ProviderId) -> Result<Server, Error> {
        let found = self.server(id::server(id)?).await?;
        found.ok_or_else(|| Error::new(ErrorKind::Unavailable, format!("{id} does not exist")))
    }

    /// Resolves the name of a network.
    pub(crate) async fn network(&self, network: &Named) -> Result<String, Error> {
        match network {
            Named::Id(id) => Ok(id.clone()),
            Named::Name(name) => {
                let field = "providerSpec.spec.networks.name";
                self.only_one(&request::networks_named(name), "networks", name, field).await
            }
        }
    }

    /// Reads the only object of a name.
    ///
    /// # Errors
    /// `InvalidSpec` names the field if there is none or if there are several.
    pub(crate) async fn only_one(
        &self,
        call: &Call,
        list: &str,
        name: &str,
        field: &str,
    ) -> Result<String, Error> {
        let mut found: Vec<NamedObject> = self.client.list(call, list).await?;
        found.retain(|object| object.name == name);
        match found.as_slice() {
            [only] => Ok(only.id.clone()),
            [] => Err(invalid(field, &format!("the name of one of the {list}, but {name} does not exist"))),
            _ => Err(invalid(field, &format!("a unique name, but {} {list} are called {name}", found.len()))),
        }
    }

    /// Adds the missing address pairs to the ports of a server in networks of pods.
    pub(crate) async fn complete_ports(
        &self,
        began: Began,
        server: &Server,
        wanted: &Networking,
    ) -> Result<(), Error> {
        let mut networks = Vec::new();
        match &wanted.networks {
            Networks::OwnPort { network, .. } => networks.push(network.clone()),
            Networks::OfNova(all) => {
                for network in all.iter().filter(|network| network.has_pods) {
                    networks.push(self.network(&network.network).await?);
                }
            }
        }
        if networks.is_empty() {
            return Ok(());
        }
        let ports: Vec<Port> = self.client.list(&request::ports("device_id", &server.id), "ports").await?;
        let ports: Vec<&Port> = ports.iter().filter(|port| networks.contains(&port.network_id)).collect();
        if ports.is_empty() {
            return Err(Error::in_progress(format!(
                "server {} has no port in the networks of pods",
                server.id
            )));
        }
        let pairs = request::pairs(&wanted.pod_ranges);
        for call in ports.into_iter().filter_map(|port| request::add_pairs(port, &pairs)) {
            match self.change(began, &call).await {
                Ok(()) => {}
                Err(failure) if failure.is(http::StatusCode::PRECONDITION_FAILED) => {
                    return Err(Error::in_progress("another program changed the port at the same time"));
                }
                Err(failure) => return Err(failure.error),
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Instances for Account {
    async fn ensure(&self, spec: &InstanceSpec) -> Result<Instance, Error> {
        let creation = Creation::of(spec, &self.client.region)?;
        let server = self.ensure_server(&creation, spec).await?;
        self.instance(server)
    }

    async fn find(&self, which: &InstanceRef) -> Result<Sighting, Error> {
        let found = match &which.id {
            Some(id) => self.server(id::server(id)?).await?,
            None => reply::choose(self.candidates(which).await?, which.key.as_ref()),
        };
        let Some(server) = found else { return self.left(which).await };
        // Names are not unique: in addition to a server of another owner, there may be parts of
        // ours. If a server without a key uses one of our parts, its adoption has not finished.
        if let (None, Some(key)) = (&which.id, &which.key)
            && !reply::is_of_key(&server, key)
        {
            let parts = self.parts(&PartsOf::of(which, key)).await?;
            let is_half_adopted = reply::key(&server).is_none() && parts.users().contains(&server.id);
            if !is_half_adopted && !parts.texts().is_empty() {
                return self.left_of(which, key, &parts).await;
            }
        }
        let mut instance = self.instance(server)?;
        // The object keeps the spelling that it records.
        if let Some(id) = &which.id {
            instance.id = id.clone();
        }
        Ok(Sighting::of(which, instance))
    }

    async fn list(&self, scope: &Scope) -> Result<Vec<Instance>, Error> {
        let all = self.servers(&request::servers()).await?.into_iter();
        let is_in_scope = |server: &Server| match scope {
            Scope::Ours(cluster) => server.metadata.get(tag::CLUSTER) == Some(cluster),
            Scope::Visible => true,
        };
        all.filter(is_in_scope).map(|server| self.instance(server)).collect()
    }

    async fn list_marked(&self, provider_specs: &[Value]) -> Result<Vec<Instance>, Error> {
        let classes: Vec<_> = provider_specs.iter().map(spec::tags_of).collect();
        if !classes.iter().any(|tags| tag::has_marks(tags.keys().map(String::as_str))) {
            return Ok(Vec::new());
        }
        let mut servers = self.servers(&request::servers()).await?;
        servers.retain(|server| {
            let names = || server.metadata.keys().map(String::as_str);
            let is_marked = classes.iter().any(|tags| tag::marks(names(), tags) == Marks::OfClass);
            is_marked && !server.metadata.contains_key(tag::KEY)
        });
        servers.into_iter().map(|server| self.instance(server)).collect()
    }

    async fn delete(&self, which: &InstanceRef, owner: &InstanceKey) -> Result<(), Error> {
        let began = Began::now();
        self.memory.forget(owner);
        if let Some(id) = &which.id {
            let id = id::server(id)?;
            let Some(mut server) = self.server(id).await? else {
                // A call without a name is about an orphan. Another server of its key may belong to
                // a living Machine, so the parts are left alone.
                if which.name.is_none() {
                    return Ok(());
                }
                let parts = self.parts(&PartsOf::of(which, owner)).await?;
                return self.delete_parts(began, &parts, owner).await;
            };
            check_owner(&server, owner, which.may_lack_key)?;
            if reply::key(&server).is_none() && !reply::is_deleting(&server) {
                // Nothing but the key finds its parts when the server is gone.
                self.claim_parts(began, &server, owner).await?;
                let Some(again) = self.server(id).await? else { return Ok(()) };
                server = again;
                check_owner(&server, owner, which.may_lack_key)?;
            }
            return match which.name {
                Some(_) => self.delete_server(began, &server).await,
                None => self.delete_orphan(began, &server, owner).await,
            };
        }
        let found = self.candidates(&InstanceRef { key: Some(owner.clone()), ..which.clone() }).await?;
        let (ours, others): (Vec<Server>, Vec<Server>) =
            found.into_iter().partition(|server| reply::is_of_key(server, owner));
        for server in &ours {
            self.delete_server(began, server).await?;
        }
        if !ours.is_empty() {
            return Ok(());
        }
        let parts = self.parts(&PartsOf::of(which, owner)).await?;
        match others.first().filter(|_| parts.texts().is_empty()) {
            Some(other) => Err(wrong_key(other, owner)),
            None => self.delete_parts(began, &parts, owner).await,
        }
    }

    async fn rekey(&self, id: &ProviderId, from: &InstanceKey, to: &InstanceKey) -> Result<(), Error> {
        let began = Began::now();
        request::check_key(to)?;
        let server = self.existing(id).await?;
        if !reply::is_of_key(&server, to) {
            if !reply::is_of_key(&server, from) {
                return Err(wrong_key(&server, from));
            }
            self.memory.forget(from);
            // The server comes first: Nova changes nothing at a server that is locked or in ERROR,
            // and then its parts must keep the same key.
            let metadata = Metadata::from([(KEY.to_owned(), to.as_str().to_owned())]);
            let changed = self.change(began, &request::set_server_metadata(&server.id, &metadata)).await;
            changed.map_err(|failure| {
                if failure.is(http::StatusCode::CONFLICT) {
                    Error::new(ErrorKind::Unsupported, failure.error.message)
                } else {
                    failure.error
                }
            })?;
        }
        self.rekey_parts(began, &server.name, from, to).await
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
        let began = Began::now();
        let wanted = Networking::parse(provider_spec)?;
        let server = self.existing(id).await?;
        // A server of Gardener's provider has no key. Only one of the class is changed.
        let is_ours = match reply::key(&server) {
            Some(key) => key == owner.as_str(),
            None => reply::marks(&server, &spec::tags_of(provider_spec)) == Marks::OfClass,
        };
        if !is_ours {
            return Err(wrong_key(&server, owner));
        }
        match reply::power(&server) {
            Power::Pending => Err(Error::in_progress(format!("Nova builds server {}", server.id))),
            Power::Failed => Err(reply::failed(&server)),
            Power::Deleting => {
                Err(Error::new(ErrorKind::Unavailable, format!("server {} is deleted", server.id)))
            }
            Power::Running | Power::Stopped | Power::Changing => {
                self.complete_ports(began, &server, &wanted).await
            }
        }
    }
}

/// Checks that a server belongs to an owner. A server without a key is deleted only if the caller
/// knows that it does.
fn check_owner(server: &Server, owner: &InstanceKey, may_lack_key: bool) -> Result<(), Error> {
    let is_ours = match reply::key(server) {
        Some(key) => key == owner.as_str(),
        None => may_lack_key,
    };
    if is_ours { Ok(()) } else { Err(wrong_key(server, owner)) }
}

pub(crate) fn wrong_key(server: &Server, expected: &InstanceKey) -> Error {
    let key = reply::key(server).unwrap_or("no key");
    let text = format!("server {}: expected the key {expected}, got {key}", server.id);
    Error::new(ErrorKind::Denied, text)
}

pub(crate) fn invalid(field: &str, expected: &str) -> Error {
    Error::new(ErrorKind::InvalidSpec, format!("{field}: expected {expected}"))
}

/// The error of a class that needs a service which the region does not have.
pub(crate) fn no_service(service: Service, field: &str) -> Error {
    let text = format!("{field}: expected nothing, because the region has no {}", service.name());
    Error::new(ErrorKind::InvalidSpec, text)
}
