//! The handle through which a server is used.

use crate::access::authn::Credentials;
use crate::server::audit::AuditRecord;
use crate::server::config::Config;
use crate::server::core::Core;
use crate::server::kept::Kept;
use crate::server::load::{self, LoadError};
use crate::server::resume;
use crate::server::service::ApiService;
use crate::storage::database::Database;
use crate::storage::{Folder, STATE_FILE, StorageError};
use crate::store::commits::{Commit, Subscription};
use crate::store::mvcc::Store;
use crate::values::clock::Clock;
use crate::values::identity::Identity;
use crate::values::object::Object;
use crate::values::status::ApiError;
use crate::values::tls::{CertificateAuthority, PresentedCertificate, TlsError, certificates};
use serde_json::Value;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::mpsc;

/// An API server with its state. Clones share both.
#[derive(Clone)]
pub struct Server {
    core: Arc<Core>,
}

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

    /// A server on a storage backend of the caller's, for tests of disks that fail. It keeps no keys,
    /// and has no folder. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// When the backend's content cannot be read, or is not what a server wrote.
    pub fn open_on(config: Config, backend: impl redb::StorageBackend) -> Result<Self, StorageError> {
        let (database, state) = Database::open_on(backend)?;
        let store = Store::open(database, state, config.history, config.watch_buffer);
        let store = store.map_err(|source| StorageError::Io { path: PathBuf::new(), source })?;
        Ok(Self::with_store(config, store, None))
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

    fn with_store(config: Config, store: Store, folder: Option<Folder>) -> Self {
        let core = Arc::new(Core::new(config, store, folder));
        resume::resume(&core);
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
        self.core.keys.ca()
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
