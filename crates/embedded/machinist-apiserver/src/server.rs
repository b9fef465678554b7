//! The server: its configuration, its shared core, and the handles through which it is used.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::audit::{AuditFeed, AuditRecord, Commit, Origin, Subscription};
use crate::authn::{Credentials, Identity};
use crate::authz::{Authorization, roles};
use crate::clock::{Clock, Ids, RandomIds, SystemClock, rfc3339_seconds};
use crate::fields::track::{own_change, server_owns};
use crate::kinds::scheduling;
use crate::kinds::service::{self, addresses};
use crate::load::{self, LoadError};
use crate::object::{MANAGED_FIELDS, Object};
use crate::openapi::Documents;
use crate::resource::{Registry, split_api_version};
use crate::service::ApiService;
use crate::status::ApiError;
use crate::storage::{self, Folder, Kept, STATE_FILE, StorageError};
use crate::store::mvcc::{Change, History, Key, Store};
use crate::tls::{CertificateAuthority, PresentedCertificate, TlsError, certificates};
use crate::tokens::{TokenKey, TokenKeyError};

/// How a server is set up. `Config::default()` is right for `machinist up`; a simulation sets all of it.
#[derive(Debug)]
pub struct Config {
    /// Source of timestamps.
    pub clock: Arc<dyn Clock>,
    /// Source of uids and name suffixes.
    pub ids: Arc<dyn Ids>,
    /// How much of the past is kept.
    pub history: History,
    /// Time between bookmarks of a watch that allows them; `None` for never.
    pub bookmark_interval: Option<Duration>,
    /// When a watch without `timeoutSeconds` is ended.
    pub watch_timeout: Duration,
    /// How many undelivered events a watch may pile up before it is dropped.
    pub watch_buffer: usize,
    /// How long a request waits for a revision that is still to come.
    pub future_revision_wait: Duration,
    /// How long an Event is kept after it was last written; `None` for ever.
    pub event_ttl: Option<Duration>,
    /// The certificate authority; made on first use when absent.
    pub ca: Option<CertificateAuthority>,
    /// Signs the tokens of ServiceAccounts; made on first use when absent.
    pub token_key: Option<TokenKey>,
    /// Whether callers are asked what they may do.
    pub authorization: Authorization,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            clock: Arc::new(SystemClock),
            ids: Arc::new(RandomIds),
            history: History::default(),
            bookmark_interval: Some(Duration::from_secs(60)),
            // Between kube-apiserver's 30 and 60 minutes, and not drawn by lot.
            watch_timeout: Duration::from_secs(45 * 60),
            watch_buffer: 4096,
            future_revision_wait: Duration::from_secs(3),
            event_ttl: Some(Duration::from_secs(3600)),
            ca: None,
            token_key: None,
            authorization: Authorization::AlwaysAllow,
        }
    }
}

/// An API server with its state. Clones share both.
#[derive(Clone)]
pub struct Server {
    core: Arc<Core>,
}

/// What every request works on.
pub(crate) struct Core {
    pub(crate) store: Store,
    /// The store was not empty.
    is_continued: bool,
    /// Where the store is saved; locked for as long as it may be written. After the store, which writes as it is dropped.
    folder: Option<Folder>,
    pub(crate) config: Config,
    pub(crate) audit: AuditFeed,
    registry: RwLock<Arc<Registry>>,
    /// What was last described in OpenAPI, and how.
    described: Mutex<Option<(Arc<Registry>, Arc<Documents>)>>,
    ca: OnceLock<CertificateAuthority>,
    token_key: OnceLock<TokenKey>,
    /// Events by when they were written, oldest first.
    written_events: Mutex<VecDeque<WrittenEvent>>,
    /// Addresses and ports on their way to Services.
    pub(crate) service_addresses: addresses::Reserved,
    /// The server's own tasks run here, whoever calls.
    pub(crate) tasks: Handle,
}

/// One write of an Event, from which its time to live counts.
struct WrittenEvent {
    at: Instant,
    key: Key,
    revision: u64,
}

/// Most Events that one write clears away; the rest goes with the next ones.
const MAX_EXPIRED_AT_ONCE: usize = 64;

/// Namespaces that exist from the start, each with its default ServiceAccount.
const INITIAL_NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

impl Server {
    /// A server with the initial namespaces. Must be called within a tokio runtime, on which its tasks then run.
    pub fn new(config: Config) -> Self {
        let store = Store::new(config.history, config.watch_buffer);
        Self::with_store(config, store, None)
    }

    /// A server that goes on where the last one on this folder ended, and keeps its state there: objects with their uids and
    /// revisions, the certificate authority, and the key of tokens. Watches from before the start get a 410, as after any compaction; one from the
    /// newest revision resumes. Must be called within a tokio runtime, and blocks while it reads.
    ///
    /// # Guarantees
    /// What is answered or shown is on stable storage. When the disk fails, the write is answered with 500 and so is every later one;
    /// reads go on.
    ///
    /// # Errors
    /// When the folder's content cannot be read, or is not what a server wrote. Nothing is changed then.
    pub fn open(config: Config, folder: Folder) -> Result<Self, StorageError> {
        Self::resume(config, Kept::open(folder)?)
    }

    /// The same, where somebody has looked at what is kept before.
    ///
    /// # Errors
    /// As above.
    pub fn resume(mut config: Config, kept: Kept) -> Result<Self, StorageError> {
        let past = kept.past();
        let Kept { folder, database, state } = kept;
        if config.ca.is_none() {
            config.ca = Some(folder.certificate_authority(past, config.clock.now())?);
        }
        if config.token_key.is_none() {
            config.token_key = Some(folder.token_key(past)?);
        }
        let path = folder.path().to_owned();
        let store = Store::open(database, state, config.history, config.watch_buffer);
        let store = store.map_err(|source| StorageError::Io { path: path.clone(), source })?;
        let server = Self::with_store(config, store, Some(folder));
        // What a start itself commits is there for its first reader.
        server.core.store.finish().map_err(|failed| StorageError::Io {
            path,
            source: io::Error::other(String::from(&*failed.why)),
        })?;
        Ok(server)
    }

    /// Waits until the data folder cannot be written: what was answered is kept, and every later change is refused. Never, where
    /// everything goes well and for a server in memory.
    pub async fn failed(&self) -> StorageError {
        let why = self.core.store.failed().await.why.to_string();
        let folder = self.core.folder.as_ref().map(|folder| folder.path().to_owned());
        StorageError::Failed { file: folder.unwrap_or_default().join(STATE_FILE), why }
    }

    /// Where it keeps its state, if it does: the place for other things that must outlive it.
    pub fn folder(&self) -> Option<&Folder> {
        self.core.folder.as_ref()
    }

    /// Whether it goes on with the state of an earlier server.
    pub fn is_continued(&self) -> bool {
        self.core.is_continued
    }

    pub(crate) fn with_store(config: Config, store: Store, folder: Option<Folder>) -> Self {
        let core = Arc::new(Core {
            is_continued: 0 < store.head(),
            store,
            folder,
            audit: AuditFeed::default(),
            registry: RwLock::new(Arc::new(Registry::built_in())),
            described: Mutex::default(),
            ca: OnceLock::new(),
            token_key: OnceLock::new(),
            written_events: Mutex::default(),
            service_addresses: addresses::Reserved::default(),
            tasks: Handle::current(),
            config,
        });
        storage::resume(&core);
        core.bootstrap();
        Server { core }
    }

    /// A service whose caller is `identity`, no questions asked.
    pub fn service_as(&self, identity: Identity) -> ApiService {
        ApiService::new(self.core.clone(), Credentials::Trusted(Arc::new(identity)))
    }

    /// A service whose caller is whoever the `Authorization` header of each request says, 401 without one.
    pub fn service_anonymous(&self) -> ApiService {
        ApiService::new(self.core.clone(), Credentials::Presented { certificate: None, bearer: None })
    }

    /// A service that presents a bearer token with each request.
    pub fn service_with_bearer(&self, token: &str) -> ApiService {
        let bearer = Some(token.into());
        ApiService::new(self.core.clone(), Credentials::Presented { certificate: None, bearer })
    }

    /// A service that presents a client certificate (PEM, leaf first) with each request. Whether the certificate is good is
    /// decided request by request, as over HTTPS; only its key is not asked for.
    ///
    /// # Errors
    /// When the text holds no certificate.
    pub fn service_with_client_cert(&self, pem: &str) -> Result<ApiService, TlsError> {
        let chain = certificates(pem)?;
        let certificate =
            Some(Arc::new(PresentedCertificate::new(chain.iter().map(|c| c.as_ref().to_vec()))));
        Ok(ApiService::new(self.core.clone(), Credentials::Presented { certificate, bearer: None }))
    }

    /// Puts an object into the store as it is, as restoring etcd from a backup would: uid, creation, generation, owners, finalizers,
    /// a deletion under way and status stay as given, only `metadata.resourceVersion` is this server's. Watchers see it as any
    /// commit; the audit does not, since nobody asked.
    ///
    /// # Guarantees
    /// Nothing is admitted, defaulted, pruned or validated. A definition is served when this returns. An object in another served
    /// version than the stored one is converted, as every request's is.
    ///
    /// # Errors
    /// When its group, version and kind are not served, its namespace or name does not fit them, or the name is taken.
    pub fn load(&self, object: Value) -> Result<Arc<Object>, LoadError> {
        load::load(&self.core, object)
    }

    /// Every request answered from now on.
    pub fn audit(&self) -> Subscription<Arc<AuditRecord>> {
        self.core.audit.subscribe()
    }

    /// Every commit from now on, in order.
    pub fn commits(&self) -> Subscription<Arc<Commit>> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.core.store.subscribe(sender);
        Subscription::new(receiver)
    }

    /// Waits until everything committed so far is on stable storage, and thereby shown; at once for a server in memory.
    ///
    /// # Errors
    /// When the disk failed.
    pub async fn saved(&self) -> Result<(), ApiError> {
        self.core.store.saved(self.core.store.head()).await.map_err(|failed| failed.refusal())
    }

    /// Every object there is as if it had been made just now, resource by resource, and then every commit in order.
    pub fn state_and_commits(&self) -> Subscription<Arc<Commit>> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.core.store.subscribe_from_start(sender);
        Subscription::new(receiver)
    }

    /// The revision of the newest commit.
    pub fn revision(&self) -> u64 {
        self.core.store.revision()
    }

    /// Forgets the past up to now: watches that resume from before get a 410.
    pub fn compact(&self) {
        self.core.store.compact(None);
    }

    /// Forgets the past up to `revision`.
    pub fn compact_to(&self, revision: u64) {
        self.core.store.compact(Some(revision));
    }

    /// The oldest revision that can still be read.
    pub fn compacted(&self) -> u64 {
        self.core.store.compacted()
    }

    /// Every object of a resource (`nodes`, `machines.machine.sapcloud.io`), in list order.
    pub fn snapshot(&self, resource: &str) -> Vec<Arc<Object>> {
        let slice = self.core.store.slice_shown(resource, "", None, None);
        slice.map(|s| s.items.into_iter().map(|(_, object)| object.opened()).collect()).unwrap_or_default()
    }

    /// What commits and [`Server::snapshot`] call a resource that is served.
    pub fn resource(&self, group: &str, plural: &str) -> Option<String> {
        self.core.registry().find_any(group, plural).map(|served| served.resource.table.to_string())
    }

    /// How many watches are open.
    pub fn open_watches(&self) -> usize {
        self.core.store.watchers()
    }

    /// The cluster's certificate authority.
    ///
    /// # Errors
    /// When it has to be made and cannot.
    pub fn ca(&self) -> Result<&CertificateAuthority, TlsError> {
        self.core.ca()
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// The clock that timestamps come from.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.core.config.clock
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("revision", &self.revision()).finish_non_exhaustive()
    }
}

impl Core {
    pub(crate) fn registry(&self) -> Arc<Registry> {
        self.registry.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes what is served.
    pub(crate) fn update_registry(&self, change: impl FnOnce(&mut Registry)) {
        let mut held = self.registry.write().unwrap_or_else(PoisonError::into_inner);
        let mut next = held.as_ref().clone();
        change(&mut next);
        *held = Arc::new(next);
    }

    /// The OpenAPI documents of what is served now, made when they are first asked for.
    pub(crate) fn openapi(&self) -> Arc<Documents> {
        let registry = self.registry();
        let mut described = self.described.lock().unwrap_or_else(PoisonError::into_inner);
        match described.as_ref() {
            Some((of, documents)) if Arc::ptr_eq(of, &registry) => documents.clone(),
            _ => {
                let documents = Arc::new(Documents::of_registry(&registry));
                *described = Some((registry, documents.clone()));
                documents
            }
        }
    }

    /// The present as `metav1.Time`.
    pub(crate) fn now(&self) -> String {
        rfc3339_seconds(self.config.clock.now())
    }

    pub(crate) fn ca(&self) -> Result<&CertificateAuthority, TlsError> {
        if let Some(ca) = self.ca.get() {
            return Ok(ca);
        }
        let ca = match &self.config.ca {
            Some(given) => given.clone(),
            None => CertificateAuthority::generate(self.config.clock.now())?,
        };
        Ok(self.ca.get_or_init(|| ca))
    }

    /// The key that signs the tokens of ServiceAccounts.
    pub(crate) fn token_key(&self) -> Result<&TokenKey, TokenKeyError> {
        if let Some(key) = self.token_key.get() {
            return Ok(key);
        }
        let key = match &self.config.token_key {
            Some(given) => given.clone(),
            None => TokenKey::generate()?,
        };
        Ok(self.token_key.get_or_init(|| key))
    }

    /// Notes that an Event was written, and deletes those whose time is over and that nobody wrote again. Events cost no
    /// timer this way: they grow old only as fast as new ones come.
    pub(crate) fn expire_events(&self, key: &Key, revision: u64) {
        let Some(ttl) = self.config.event_ttl else { return };
        let mut over = Vec::new();
        {
            let mut written = self.written_events.lock().unwrap_or_else(PoisonError::into_inner);
            while over.len() < MAX_EXPIRED_AT_ONCE && written.front().is_some_and(|e| ttl <= e.at.elapsed()) {
                over.extend(written.pop_front());
            }
            written.push_back(WrittenEvent { at: Instant::now(), key: key.clone(), revision });
        }
        let table: Arc<str> = "events".into();
        for event in over {
            if let Some(read) =
                self.store.get(&table, &event.key).filter(|held| held.revision() == event.revision)
            {
                // Raced means that somebody wrote it just now: it lives on.
                let _raced =
                    self.store.commit(&table, &event.key, Change::Delete { read }, &Origin::default());
            }
        }
    }

    /// What kube-apiserver and its controllers make in a cluster that lacks it, as far as it is served here.
    fn bootstrap(&self) {
        for namespace in INITIAL_NAMESPACES {
            self.seed(
                "namespaces",
                "",
                json!({
                    "apiVersion": "v1", "kind": "Namespace",
                    "metadata": {"name": namespace, "labels": {"kubernetes.io/metadata.name": namespace}},
                    "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}
                }),
            );
            self.seed(
                "serviceaccounts",
                namespace,
                json!({
                    "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": namespace}
                }),
            );
        }
        for (name, value, description) in scheduling::SYSTEM_CLASSES {
            self.seed(
                scheduling::TABLE,
                "",
                json!({
                    "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name, "generation": 1},
                    "value": value, "description": description, "preemptionPolicy": "PreemptLowerPriority",
                }),
            );
        }
        self.seed("services", "default", service::of_api_server());
        if self.config.authorization == Authorization::Rbac {
            for initial in roles::initial() {
                self.seed(initial.table, initial.namespace, initial.object.clone());
                self.renew(initial);
            }
        }
        // A cluster's first revisions are history before anyone can have read them.
        self.store.compact(None);
    }

    fn seed(&self, table: &str, namespace: &str, mut object: Value) {
        let name = crate::object::meta_str(&object, "name").to_owned();
        let key = Key::new(namespace, &name);
        // Kept from an earlier run.
        if self.store.get(table, &key).is_some() {
            return;
        }
        let (group, version) = split_api_version(object["apiVersion"].as_str().unwrap_or_default());
        let served = self.registry().find(group, version, table).cloned().expect("a built-in kind is served");
        // What every write of the kind is given in any case is nobody's.
        let mut said = object.clone();
        for given in ["spec", "status"] {
            crate::object::drop_field(&mut said, given);
        }
        let owners = server_owns(self, &served, &said);
        crate::object::set_meta(&mut object, MANAGED_FIELDS, Some(json!(owners.text())));
        crate::object::set_meta(&mut object, "uid", Some(json!(self.config.ids.uid())));
        crate::object::set_meta(&mut object, "creationTimestamp", Some(json!(self.now())));
        let done = self.store.commit(&Arc::from(table), &key, Change::Create(object), &Origin::default());
        done.expect("nobody else has the store yet");
    }

    /// Brings a role or binding up to date that was kept from an earlier run.
    fn renew(&self, initial: &roles::Initial) {
        let key = Key::new(initial.namespace, crate::object::meta_str(&initial.object, "name"));
        let read = self.store.get(initial.table, &key).expect("it was seeded");
        let Some(mut value) = roles::renewed(read.value(), &initial.object) else { return };
        let (group, version) = split_api_version(initial.object["apiVersion"].as_str().unwrap_or_default());
        let registry = self.registry();
        let served = registry.find(group, version, initial.table).expect("a built-in kind is served");
        own_change(self, served, &read, &mut value);
        let change = Change::Update { read, value };
        let done = self.store.commit(&Arc::from(initial.table), &key, change, &Origin::default());
        done.expect("nobody else has the store yet");
    }
}
