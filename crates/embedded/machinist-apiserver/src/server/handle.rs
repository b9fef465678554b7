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

/// An API server with its state. Clones share the state.
#[derive(Clone)]
pub struct Server {
    core: Arc<Core>,
}

impl Server {
    /// Creates a server with the initial namespaces. Must be called within a tokio runtime; the
    /// server's tasks run on it.
    pub fn new(config: Config) -> Self {
        let store = Store::new(config.history, config.watch_buffer);
        Self::with_store(config, store, None)
    }

    /// Starts a server that continues the state in `folder` and keeps its state there: objects with
    /// their uids and revisions, the certificate authority, and the token key. A watch from a
    /// revision before the start gets a 410, as after any compaction. A watch from the newest
    /// revision resumes. Must be called within a tokio runtime, and blocks while it reads.
    ///
    /// # Guarantees
    /// Everything that the server answers or shows is on stable storage. When the disk fails, the
    /// server answers the current write and all later writes with 500. Reads still work.
    ///
    /// # Errors
    /// When the folder's content cannot be read, or was not written by a server. Nothing is changed
    /// then.
    pub fn open(config: Config, folder: Folder) -> Result<Self, StorageError> {
        Self::resume(config, Kept::open(folder)?)
    }

    /// A server on a storage backend of the caller's, for tests of disks that fail. It keeps no
    /// keys, and has no folder. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// When the backend's content cannot be read, or is not what a server wrote.
    // Hidden because it shows a type of redb: a new major version of redb must not break other
    // users. Only the power cuts of machinist-conformance need it.
    #[doc(hidden)]
    pub fn open_on(config: Config, backend: impl redb::StorageBackend) -> Result<Self, StorageError> {
        let (database, state) = Database::open_on(backend)?;
        let store = Store::open(database, state, config.history, config.watch_buffer);
        let store = store.map_err(|source| StorageError::Io { path: PathBuf::new(), source })?;
        Ok(Self::with_store(config, store, None))
    }

    /// Like [`Server::open`], for a folder that is already opened and checked.
    ///
    /// # Errors
    /// As for [`Server::open`].
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
        // The commits of the start are visible to the first reader.
        server.core.store.finish().map_err(|failed| StorageError::Io {
            path,
            source: io::Error::other(String::from(&*failed.why)),
        })?;
        Ok(server)
    }

    /// Waits until the data folder cannot be written. The server then keeps all answered writes and
    /// rejects every later write. The future never completes for a server in memory, or without a
    /// disk failure.
    pub async fn failed(&self) -> StorageError {
        let why = self.core.store.failed().await.why.to_string();
        let folder = self.core.folder.as_ref().map(|folder| folder.path().to_owned());
        StorageError::Failed { file: folder.unwrap_or_default().join(STATE_FILE), why }
    }

    /// Data folder, if the server has one. Other state that must outlive the server can also be
    /// kept there.
    pub fn folder(&self) -> Option<&Folder> {
        self.core.folder.as_ref()
    }

    /// Reports whether the server continues the state of an earlier server.
    pub fn is_continued(&self) -> bool {
        self.core.is_continued
    }

    fn with_store(config: Config, store: Store, folder: Option<Folder>) -> Self {
        let core = Arc::new(Core::new(config, store, folder));
        resume::resume(&core);
        core.bootstrap();
        Server { core }
    }

    /// Creates a service for requests of `identity`, without authentication.
    pub fn service_as(&self, identity: Identity) -> ApiService {
        ApiService::new(self.core.clone(), Credentials::Trusted(Arc::new(identity)))
    }

    /// Creates a service that authenticates each request by its `Authorization` header, and answers
    /// 401 without one.
    pub fn service_anonymous(&self) -> ApiService {
        ApiService::new(self.core.clone(), Credentials::Presented { certificate: None, bearer: None })
    }

    /// Creates a service that presents a bearer token with each request.
    pub fn service_with_bearer(&self, token: &str) -> ApiService {
        let bearer = Some(token.into());
        ApiService::new(self.core.clone(), Credentials::Presented { certificate: None, bearer })
    }

    /// Creates a service that presents a client certificate (PEM, leaf first) with each request.
    /// Each request verifies the certificate, as over HTTPS. Only the private key is not checked.
    ///
    /// # Errors
    /// When the text contains no certificate.
    pub fn service_with_client_cert(&self, pem: &str) -> Result<ApiService, TlsError> {
        let chain = certificates(pem)?;
        let certificate =
            Some(Arc::new(PresentedCertificate::new(chain.iter().map(|c| c.as_ref().to_vec()))));
        Ok(ApiService::new(self.core.clone(), Credentials::Presented { certificate, bearer: None }))
    }

    /// Puts an object into the store unchanged, like a restore of etcd from a backup. The uid,
    /// creation time, generation, owners, finalizers, deletion in progress and status stay as
    /// given. Only `metadata.resourceVersion` is this server's. Watchers see the object like any
    /// commit. The audit does not, because there was no request.
    ///
    /// # Guarantees
    /// The object is not admitted, defaulted, pruned or validated. A CustomResourceDefinition is
    /// served when this returns. An object in another served version than the stored one is
    /// converted, as in every request.
    ///
    /// # Errors
    /// When the server does not serve the object's group, version and kind, when the namespace or
    /// name is invalid, or when the name is taken.
    pub fn load(&self, object: Value) -> Result<Arc<Object>, LoadError> {
        load::load(&self.core, object)
    }

    /// Subscribes to the audit records of requests answered from now on.
    pub fn audit(&self) -> Subscription<Arc<AuditRecord>> {
        self.core.audit.subscribe()
    }

    /// Subscribes to all commits from now on, in order.
    pub fn commits(&self) -> Subscription<Arc<Commit>> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.core.store.subscribe(sender);
        Subscription::new(receiver)
    }

    /// Waits until everything committed so far is on stable storage and visible. Returns at once
    /// for a server in memory.
    ///
    /// # Errors
    /// When the disk fails.
    pub async fn saved(&self) -> Result<(), ApiError> {
        self.core.store.saved(self.core.store.head()).await.map_err(|failed| failed.refusal())
    }

    /// Subscribes to the existing objects, each as a creation, resource by resource, and then to
    /// all commits in order.
    pub fn state_and_commits(&self) -> Subscription<Arc<Commit>> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.core.store.subscribe_from_start(sender);
        Subscription::new(receiver)
    }

    /// Returns the revision of the newest commit.
    pub fn revision(&self) -> u64 {
        self.core.store.revision()
    }

    /// Compacts the store at the newest revision. Watches that resume from an older revision get a
    /// 410.
    pub fn compact(&self) {
        self.core.store.compact(None);
    }

    /// Returns the oldest revision that can still be read.
    pub fn compacted(&self) -> u64 {
        self.core.store.compacted()
    }

    /// Lists every object of a resource (`nodes`, `machines.machine.sapcloud.io`), in list order.
    pub fn snapshot(&self, resource: &str) -> Vec<Arc<Object>> {
        let slice = self.core.store.slice_shown(resource, "", None, None);
        slice.map(|s| s.items.into_iter().map(|(_, object)| object.opened()).collect()).unwrap_or_default()
    }

    /// Returns the name of a served resource, as commits and [`Server::snapshot`] use it.
    pub fn resource(&self, group: &str, plural: &str) -> Option<String> {
        self.core.registry().find_any(group, plural).map(|served| served.resource.collection.to_string())
    }

    /// Counts the open watches.
    pub fn open_watches(&self) -> usize {
        self.core.store.watchers()
    }

    /// Returns the cluster's certificate authority.
    ///
    /// # Errors
    /// When the authority must be created and its creation fails.
    pub fn ca(&self) -> Result<&CertificateAuthority, TlsError> {
        self.core.keys.ca()
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Returns the clock for timestamps.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.core.config.clock
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("revision", &self.revision()).finish_non_exhaustive()
    }
}
