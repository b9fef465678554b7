//! The provider, its accounts, and the calls for instances. Besides `client`, only the files named
//! `driver` await calls of the cloud.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use machinist_driver::{Balancers, Driver, Initializer, Instances, Provider, Routes, Volumes};
use machinist_driver_http::{Http, HttpCaller, Now, Traffic, Transport};
use machinist_instance::{
    AccountId, BalancerKey, BalancerNote, CallBudget, CallRate, CreateGuarantee, Credential, Error,
    ErrorKind, Instance, InstanceKey, InstanceRef, InstanceSpec, KeyTag, Marks, NodeName, Place, Promises,
    ProviderId, RecordedId, Scope, Sighting, VolumeSource,
};
use serde_json::Value;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use crate::balancer::{Reach, RefusedTurn, Turned};
use crate::client::call::Call;
use crate::client::failure::{Code, Failure};
use crate::client::{ATTEMPT_WITHIN, Client, Rates};
use crate::floating::Pools;
use crate::gardener::{self, GardenerClass};
use crate::label::{self, CLUSTER, KEY, Labels, MCM_CLUSTER};
use crate::model::{Id, Server};
use crate::names::Names;
use crate::options::HcloudOptions;
use crate::reply::{self, View};
use crate::request::Unresolved;
use crate::spec::ProviderSpec;
use crate::{id, request};

/// A server that a class asks for.
enum Wanted {
    /// The request that creates it.
    Own(Call),
    /// A class of 23technologies' provider, which names objects whose ids must be found.
    Gardener(GardenerClass, Unresolved),
}

impl Wanted {
    fn of(spec: &InstanceSpec) -> Result<Self, Error> {
        let Some(class) = GardenerClass::parse(&spec.provider_spec)? else {
            return request::create(spec).map(Self::Own);
        };
        let request = Unresolved::of(spec, &class)?;
        Ok(Self::Gardener(class, request))
    }
}

/// The entries of a credential that may hold the token, in the order in which they are tried.
/// The extension of 23technologies has a token of its own for machines.
const TOKEN_ENTRIES: [&str; 3] = ["token", "hcloudTokenMCM", "hcloudToken"];

/// The provider name in the classes of 23technologies' extension. Its own provider does not check
/// the name.
pub const GARDENER_NAME: &str = "hclouddriver//127.0.0.1:8080";

/// Name of the CSI driver of Hetzner Cloud. The handle of its volumes is the id in the cloud.
const CSI_DRIVER: &str = "csi.hetzner.cloud";

/// `ensure` takes at most the time of this number of calls: by key, names, creation, by name,
/// labels, start.
const MAX_CHAIN: u32 = 6;

/// Calls that begin this long after the account was opened name the Nodes of Hetzner Robot. The
/// controllers wait as long for a Node of another cloud that is registered again.
const ROBOTS_KNOWN_AFTER: Duration = Duration::from_secs(120);

/// The promises of Hetzner Cloud.
pub const PROMISES: Promises = Promises {
    // The API shows a server at once. The time covers a list whose pages changed while it was read.
    visible_within: Duration::from_secs(10),
    call_bound: ATTEMPT_WITHIN.saturating_mul(MAX_CHAIN),
    calls_outlive_process: true,
    create: CreateGuarantee::UniqueName,
    // A full bucket admits 3600 calls at once, but other programs of the project use it, too.
    rate: Some(CallRate { per_hour: 3600, burst: 360 }),
    keys: KeyTag::Rekeyable,
};

/// Hetzner Cloud as a provider. A class names it `hcloud`.
///
/// ```
/// use machinist_driver::Provider;
/// use machinist_driver_hcloud::{Endpoint, HcloudOptions, HcloudProvider};
/// use machinist_instance::{Credential, Place};
///
/// let endpoint = Endpoint::parse("http://127.0.0.1:7070/v1").expect("a URL");
/// let hcloud = HcloudProvider::new(HcloudOptions { endpoint, ..HcloudOptions::default() })?;
/// assert!(hcloud.parse_id("hcloud://42").ours().is_some());
///
/// // A credential needs a token.
/// let nothing = Credential::default();
/// let refused = hcloud.open(&hcloud.account(&nothing, &Place::WHOLE), &nothing, &Place::WHOLE).err();
/// assert!(refused.is_some_and(|error| error.message.starts_with("token: expected")));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct HcloudProvider {
    options: Arc<HcloudOptions>,
    transport: Arc<dyn Transport>,
    traffic: Traffic,
    rates: Rates,
    now: Now,
    spells_zone: bool,
}

impl HcloudProvider {
    /// Uses the endpoint of the options over TCP. Nothing is sent.
    ///
    /// # Errors
    /// If the endpoint uses HTTPS and the system has no root certificates.
    pub fn new(options: HcloudOptions) -> io::Result<Self> {
        let transport: Arc<dyn Transport> =
            if options.endpoint.is_https() { Arc::new(Http::with_tls()?) } else { Arc::new(Http::plain()) };
        Ok(Self::over(transport, options))
    }

    /// Uses any transport.
    #[expect(clippy::disallowed_methods, reason = "this is where the clock is injected from")]
    pub fn over(transport: Arc<dyn Transport>, options: HcloudOptions) -> Self {
        Self {
            options: Arc::new(options),
            transport,
            traffic: Traffic::default(),
            rates: Rates::default(),
            now: Arc::new(Timestamp::now),
            spells_zone: false,
        }
    }

    /// Sets the clock that is compared with the cloud's clock.
    #[must_use]
    pub fn with_clock(self, now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self { now: Arc::new(now), ..self }
    }

    /// Spells the ids of servers with the marks of 23technologies' provider as that provider does,
    /// for Machines: it cannot read the other form. Nodes have the other form.
    #[must_use]
    pub fn with_machine_ids(self) -> Self {
        Self { spells_zone: true, ..self }
    }

    /// Number of requests by method, path and status.
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// The last rate limit of each account.
    pub fn rates(&self) -> &Rates {
        &self.rates
    }
}

impl Provider for HcloudProvider {
    fn name(&self) -> &str {
        "hcloud"
    }

    fn serves(&self, provider: &str) -> bool {
        provider.eq_ignore_ascii_case(self.name()) || provider == GARDENER_NAME
    }

    fn validate(&self, provider_spec: &Value) -> Result<(), Error> {
        validate(provider_spec)
    }

    fn fields_without_effect(&self, provider_spec: &Value) -> Vec<String> {
        gardener::fields_without_effect(provider_spec)
    }

    fn account(&self, credential: &Credential, _: &Place) -> AccountId {
        let endpoint = self.options.endpoint.to_string();
        AccountId::of([self.name(), &endpoint, token(credential).unwrap_or_default()].map(str::as_bytes))
    }

    fn parse_id(&self, text: &str) -> RecordedId {
        id::parse(text)
    }

    fn same_instance(&self, a: &ProviderId, b: &ProviderId) -> bool {
        id::is_same(a, b)
    }

    fn needs_initialization(&self, provider_spec: &Value) -> bool {
        gardener::has_pool(provider_spec)
    }

    fn marks_of(&self, instance: &Instance, provider_spec: &Value) -> Marks {
        reply::marks(&instance.tags, gardener::cluster_of(provider_spec))
    }

    fn open(
        &self,
        account: &AccountId,
        credential: &Credential,
        _: &Place,
    ) -> Result<Arc<dyn Driver>, Error> {
        let authorization = token(credential).and_then(Client::authorization).ok_or_else(|| {
            let [name, others @ ..] = TOKEN_ENTRIES;
            let others = others.join(" or ");
            let text =
                format!("{name}: expected an API token without spaces in the entry {name} or {others}");
            Error::new(ErrorKind::Denied, text)
        })?;
        let (transport, traffic) = (self.transport.clone(), self.traffic.clone());
        let client = Client {
            caller: HttpCaller::new(transport, ATTEMPT_WITHIN, traffic, self.now.clone()),
            endpoint: self.options.endpoint.clone(),
            authorization,
            account: account.clone(),
            rates: self.rates.clone(),
        };
        Ok(Arc::new(Account {
            opened: Instant::now(),
            client,
            options: self.options.clone(),
            network: tokio::sync::Mutex::default(),
            has_network: OnceCell::new(),
            missing_network: Mutex::default(),
            unreported: Mutex::default(),
            detached: Mutex::default(),
            refused_turns: Mutex::default(),
            shown: Mutex::default(),
            turned: Mutex::default(),
            pools: Pools::default(),
            names: Names::default(),
            spells_zone: self.spells_zone,
        }))
    }
}

/// Parses and validates a `providerSpec` of this driver, or of 23technologies' provider.
///
/// # Errors
/// `InvalidSpec`, with the field and the expected value.
pub fn validate(provider_spec: &Value) -> Result<(), Error> {
    match GardenerClass::parse(provider_spec)? {
        Some(_) => Ok(()),
        None => ProviderSpec::parse(provider_spec).map(drop),
    }
}

/// The token without surrounding white space: a file often ends with a newline.
fn token(credential: &Credential) -> Option<&str> {
    let mut found = TOKEN_ENTRIES.iter().filter_map(|name| credential.text(name)).map(str::trim);
    found.find(|token| !token.is_empty())
}

/// One project of the cloud.
pub(crate) struct Account {
    /// When the account was opened, usually at the start of the process.
    opened: Instant,
    pub(crate) client: Client,
    pub(crate) options: Arc<HcloudOptions>,
    /// The id of the network that is configured by its name, while it is known. Another network may
    /// get the name.
    network: tokio::sync::Mutex<Option<i64>>,
    /// Set once the network was seen that is configured by its id.
    has_network: OnceCell<()>,
    /// Why the configured network cannot be used.
    missing_network: Mutex<Option<String>>,
    /// The targets that were removed to get another sort of address: the balancer, and the server.
    pub(crate) detached: Mutex<BTreeSet<(i64, i64)>>,
    /// The targets with traffic that did not get another sort of address.
    pub(crate) refused_turns: Mutex<Vec<RefusedTurn>>,
    /// The balancers that were created or adopted, and that no answer has contained yet. An adopted
    /// one has a note.
    pub(crate) unreported: Mutex<BTreeMap<BalancerKey, (i64, Option<BalancerNote>)>>,
    /// The result of the last list of all servers, and its time. The result saves calls that the
    /// cloud would reject.
    pub(crate) shown: Mutex<Option<(Instant, Reach)>>,
    /// The target of each balancer that got another sort of address last, by the balancer's id.
    pub(crate) turned: Mutex<BTreeMap<i64, Turned>>,
    /// Whether the project has floating addresses of pools.
    pub(crate) pools: Pools,
    /// The ids of the objects that classes name.
    names: Names,
    /// See [`HcloudProvider::with_machine_ids`].
    spells_zone: bool,
}

impl Driver for Account {
    fn instances(&self) -> &dyn Instances {
        self
    }

    fn balancers(&self) -> Option<&dyn Balancers> {
        self.options.balancers_enabled.then_some(self)
    }

    fn routes(&self) -> Option<&dyn Routes> {
        self.options.has_routes().then_some(self)
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

    fn misconfigured(&self) -> Option<String> {
        self.missing_network.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn budget(&self) -> Option<CallBudget> {
        self.client.rates.budget(&self.client.account)
    }
}

impl Volumes for Account {
    fn volume_id(&self, source: &VolumeSource) -> Option<String> {
        (source.plugin == CSI_DRIVER && !source.id.is_empty()).then(|| source.id.clone())
    }
}

impl Account {
    /// Whether Nodes of Hetzner Robot may exist that no call has named yet. A kubelet may be
    /// registering its Node again while the process starts.
    pub(crate) fn may_have_unknown_robots(&self) -> bool {
        Instant::now() < self.opened + ROBOTS_KNOWN_AFTER
    }

    /// The id of the configured network. A call may have to search the network by name.
    pub(crate) async fn network(&self) -> Result<Option<i64>, Failure> {
        let Some(configured) = &self.options.network else { return Ok(None) };
        if let Ok(id) = configured.parse() {
            return Ok(Some(id));
        }
        let mut known = self.network.lock().await;
        if known.is_none() {
            *known = Some(self.network_of_name(configured).await?);
        }
        Ok(*known)
    }

    /// Forgets the id of a network that no longer exists.
    pub(crate) async fn forget_network(&self, id: i64) {
        let mut known = self.network.lock().await;
        *known = known.filter(|known| *known != id);
    }

    async fn network_of_name(&self, name: &str) -> Result<i64, Failure> {
        let found: Vec<Id> = self.client.list(&request::networks(name), "networks").await?;
        found.first().map(|network| network.id).ok_or_else(|| no_network(name))
    }

    /// The id of the configured network, checked with a list of all servers. Servers that are
    /// attached to the network show it without a call.
    async fn network_of_all(&self, servers: &[Server]) -> Result<Option<i64>, Failure> {
        let Some(configured) = &self.options.network else { return Ok(None) };
        if let Ok(id) = configured.parse() {
            self.check_network(id, servers).await;
            return Ok(Some(id));
        }
        let mut known = self.network.lock().await;
        if known.is_none_or(|id| !is_attached(servers, id)) {
            // With the id of a deleted network, the servers would show no private addresses.
            let found = self.network_of_name(configured).await;
            if let Err(failure) = &found
                && failure.error.kind == ErrorKind::InvalidSpec
            {
                *known = None;
                self.set_missing(Some(failure.error.message.clone()));
            }
            *known = Some(found?);
        }
        self.set_missing(None);
        Ok(*known)
    }

    /// Notes whether the network exists that is configured by its id.
    async fn check_network(&self, id: i64, servers: &[Server]) {
        let check = async || {
            if is_attached(servers, id) {
                return Ok(());
            }
            let found: Option<Id> = self.client.find(Call::get("/networks/-", id), "network").await?;
            found.map(drop).ok_or_else(|| no_network(&id.to_string()))
        };
        let missing = match self.has_network.get_or_try_init(check).await {
            Ok(()) => None,
            Err(failure) if failure.error.kind == ErrorKind::InvalidSpec => Some(failure.error.message),
            // Without an answer, the last one stays.
            Err(_) => return,
        };
        self.set_missing(missing);
    }

    fn set_missing(&self, missing: Option<String>) {
        *self.missing_network.lock().unwrap_or_else(PoisonError::into_inner) = missing;
    }

    pub(crate) async fn view(&self) -> Result<View, Error> {
        Ok(self.view_in(self.network().await?))
    }

    fn view_in(&self, network: Option<i64>) -> View {
        View {
            family: self.options.address_family,
            has_zone: self.options.zone_label,
            network,
            spells_zone: self.spells_zone,
        }
    }

    pub(crate) async fn servers(&self, call: Call) -> Result<Vec<Server>, Failure> {
        self.client.list(&call, "servers").await
    }

    pub(crate) async fn server(&self, id: i64) -> Result<Option<Server>, Failure> {
        self.client.find(request::get(id), "server").await
    }

    /// Finds a server by the strongest given identity.
    async fn lookup(&self, which: &InstanceRef) -> Result<Option<Server>, Error> {
        if let Some(id) = &which.id {
            return Ok(self.server(id::server(id)?).await?);
        }
        if let Some(key) = &which.key
            && let Some(server) = self.by_key(key).await?
        {
            return Ok(Some(server));
        }
        match &which.name {
            Some(name) => self.by_name(name).await,
            None => Ok(None),
        }
    }

    async fn by_key(&self, key: &InstanceKey) -> Result<Option<Server>, Error> {
        // A text that cannot be the value of a label is the key of no server.
        if !label::is_segment(key.as_str()) {
            return Ok(None);
        }
        let found = self.servers(request::by_label(KEY, key.as_str())).await?;
        Ok(found.into_iter().next())
    }

    async fn by_name(&self, name: &NodeName) -> Result<Option<Server>, Error> {
        let found = self.servers(request::by_name(name.as_str())).await?;
        Ok(found.into_iter().find(|server| server.name == name.as_str()))
    }

    /// Returns the server that has the name of the spec: our own server, or a server that may be
    /// adopted. For a class of 23technologies' provider, only a server with the marks of the class
    /// may be.
    async fn of_that_name(
        &self,
        spec: &InstanceSpec,
        class: Option<&GardenerClass>,
    ) -> Result<Server, Error> {
        let name = &spec.name;
        let Some(server) = self.by_name(name).await? else {
            let text = format!("a server has the name {name}, but lists do not show it yet");
            return Err(Error::new(ErrorKind::Unavailable, text));
        };
        let denied = |why: &str| {
            let text = format!("server {} has the name {name} and {why}", server.id);
            Err(Error::new(ErrorKind::Denied, text))
        };
        let has_marks =
            |class: &GardenerClass| reply::marks(&server.labels, Some(&class.cluster)) == Marks::OfClass;
        match reply::key(&server.labels) {
            Some(key) if key == spec.key.as_str() => Ok(server),
            Some(key) => denied(&format!("the key {key}")),
            None if !class.is_none_or(has_marks) => denied("does not carry the marks of the class"),
            None if spec.adopt_made_since.is_some_and(|since| since <= server.created) => {
                // The other provider starts a server after its creation, and may have ended before.
                if reply::is_off(&server) {
                    self.client.call(request::power_on(server.id)).await?;
                }
                let mut labels = server.labels.clone();
                let of_class = class.map(GardenerClass::labels).unwrap_or_default();
                labels.extend(request::labels(spec, of_class)?);
                self.set_labels(server.id, &labels).await
            }
            None => denied("was not created for this purpose"),
        }
    }

    /// Reads a server that must exist, because its id was recorded.
    async fn existing(&self, id: &ProviderId) -> Result<Server, Error> {
        let found = self.server(id::server(id)?).await?;
        found.ok_or_else(|| Error::new(ErrorKind::Unavailable, format!("{id} does not exist")))
    }

    async fn set_labels(&self, id: i64, labels: &Labels) -> Result<Server, Error> {
        Ok(self.client.call(request::set_labels(id, labels)).await?.take("server")?)
    }
}

#[async_trait]
impl Instances for Account {
    async fn ensure(&self, spec: &InstanceSpec) -> Result<Instance, Error> {
        let wanted = Wanted::of(spec)?;
        let view = self.view().await?;
        if let Some(server) = self.by_key(&spec.key).await? {
            return reply::instance(view, server);
        }
        let (create, class) = match wanted {
            Wanted::Own(create) => (create, None),
            Wanted::Gardener(class, request) => {
                let resolved = self.names.resolve(&self.client, &class).await?;
                (request.resolved(&resolved), Some(class))
            }
        };
        let server = match self.client.call(create).await {
            Ok(mut answer) => answer.take("server")?,
            Err(failure) if is_name_taken(&failure) => self.of_that_name(spec, class.as_ref()).await?,
            // An object to which the spec refers does not exist, for example the image.
            Err(failure) if failure.is_absence() => {
                self.names.forget();
                return Err(Error::new(ErrorKind::InvalidSpec, failure.error.message));
            }
            Err(failure) => return Err(failure.error),
        };
        reply::instance(view, server)
    }

    async fn find(&self, which: &InstanceRef) -> Result<Sighting, Error> {
        let view = self.view().await?;
        let found = self.lookup(which).await?;
        if let (None, Some(key)) = (&found, &which.key) {
            let left = self.left_addresses(key).await?;
            if !left.is_empty() {
                return Ok(Sighting::Parts(left));
            }
        }
        let mut found = found.map(|server| reply::instance(view, server)).transpose()?;
        // The object keeps the spelling that it records.
        if let (Some(found), Some(id)) = (&mut found, &which.id) {
            found.id = id.clone();
        }
        Ok(Sighting::of(which, found))
    }

    async fn list(&self, scope: &Scope) -> Result<Vec<Instance>, Error> {
        let (view, servers) = match scope {
            Scope::Ours(cluster) => {
                label::check_value("cluster", cluster)?;
                (self.view().await?, self.servers(request::by_label(CLUSTER, cluster)).await?)
            }
            Scope::Visible => {
                let servers = self.servers(request::all()).await?;
                let view = self.view_in(self.network_of_all(&servers).await?);
                self.remember(Reach::of(view, &servers));
                (view, servers)
            }
        };
        servers.into_iter().map(|server| reply::instance(view, server)).collect()
    }

    async fn list_marked(&self, provider_specs: &[Value]) -> Result<Vec<Instance>, Error> {
        let clusters: BTreeSet<&str> = provider_specs.iter().filter_map(gardener::cluster_of).collect();
        if clusters.is_empty() {
            return Ok(Vec::new());
        }
        let (view, mut marked) = (self.view().await?, Vec::new());
        for cluster in clusters.into_iter().filter(|cluster| label::check_value("cluster", cluster).is_ok()) {
            let servers = self.servers(request::by_label(MCM_CLUSTER, cluster)).await?;
            for server in servers {
                marked.push(reply::instance(view, server)?);
            }
        }
        marked.retain(|one: &Instance| one.key.is_none() && reply::is_worker(&one.tags));
        Ok(marked)
    }

    async fn delete(&self, which: &InstanceRef, owner: &InstanceKey) -> Result<(), Error> {
        let Some(server) = self.lookup(which).await? else {
            return self.delete_addresses(None, owner).await;
        };
        let may_delete = match reply::key(&server.labels) {
            Some(key) => key == owner.as_str(),
            None => which.may_lack_key && which.id.is_some(),
        };
        if !may_delete {
            return Err(wrong_key(&server, owner));
        }
        if reply::is_deleting(&server) {
            return Ok(());
        }
        self.delete_addresses(Some(&server), owner).await?;
        match self.client.call(request::delete(server.id)).await {
            Ok(_) => Ok(()),
            Err(failure) if failure.is_absence() => Ok(()),
            Err(failure) => Err(failure.error),
        }
    }

    async fn rekey(&self, id: &ProviderId, from: &InstanceKey, to: &InstanceKey) -> Result<(), Error> {
        label::check_value("key", to.as_str())?;
        let server = self.existing(id).await?;
        let key = reply::key(&server.labels);
        if key == Some(to.as_str()) {
            return Ok(());
        }
        if key != Some(from.as_str()) {
            return Err(wrong_key(&server, from));
        }
        self.rekey_addresses(&server, to).await?;
        let mut labels = server.labels;
        labels.insert(KEY.to_owned(), to.as_str().to_owned());
        self.set_labels(server.id, &labels).await.map(drop)
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
        let class = GardenerClass::parse(provider_spec)?;
        let Some((class, pool)) =
            class.as_ref().and_then(|class| Some((class, class.floating_pool.as_ref()?)))
        else {
            return Ok(());
        };
        let server = self.existing(id).await?;
        let is_ours = match reply::key(&server.labels) {
            Some(key) => key == owner.as_str(),
            None => reply::marks(&server.labels, Some(&class.cluster)) == Marks::OfClass,
        };
        if !is_ours {
            return Err(wrong_key(&server, owner));
        }
        self.ensure_address(&server, class, pool).await
    }
}

fn is_attached(servers: &[Server], network: i64) -> bool {
    servers.iter().any(|server| server.private_net.iter().any(|net| net.network == network))
}

fn no_network(configured: &str) -> Failure {
    let text =
        format!("HCLOUD_NETWORK: expected the name or id of a network, but {configured:?} does not exist");
    Failure::new(ErrorKind::InvalidSpec, text)
}

/// Whether the name of the new server is taken. The cloud reports other unique fields with the same
/// code.
fn is_name_taken(failure: &Failure) -> bool {
    failure.is(Code::UniquenessError)
        && (failure.fields.is_empty() || failure.fields.iter().any(|field| field == "name"))
}

fn wrong_key(server: &Server, expected: &InstanceKey) -> Error {
    let key = reply::key(&server.labels).unwrap_or("no key");
    Error::new(ErrorKind::Denied, format!("server {}: expected the key {expected}, got {key}", server.id))
}
