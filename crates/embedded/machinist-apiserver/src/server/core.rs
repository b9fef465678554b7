//! The state that every request works on: the store, the served kinds, the keys.

use crate::access::authz::{Authorization, Authorizer, roles};
use crate::access::keys::Keys;
use crate::log::origin::Origin;
use crate::schema::fields::track::OwnWrites;
use crate::schema::kinds::rows::BUILT_INS;
use crate::schema::kinds::scheduling;
use crate::schema::kinds::service::{self, addresses};
use crate::schema::resource::{Registry, split_api_version};
use crate::server::audit::AuditFeed;
use crate::server::config::Config;
use crate::server::openapi::Documents;
use crate::storage::Folder;
use crate::store::mvcc::{Change, Store};
use crate::values::clock::rfc3339_seconds;
use crate::values::key::Key;
use crate::values::object::MANAGED_FIELDS;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use tokio::runtime::Handle;
use tokio::time::Instant;

/// State that all requests share.
pub(crate) struct Core {
    pub(crate) store: Store,
    /// Whether the server continues the state of an earlier server.
    pub(crate) is_continued: bool,
    /// Data folder, locked for as long as the store may write to it. Must come after the store,
    /// which writes while it is dropped.
    pub(crate) folder: Option<Folder>,
    pub(crate) config: Config,
    pub(crate) audit: AuditFeed,
    registry: RwLock<Arc<Registry>>,
    /// The last OpenAPI documents, with the registry that they describe.
    described: Mutex<Option<(Arc<Registry>, Arc<Documents>)>>,
    pub(crate) keys: Keys,
    /// Written Events, oldest first.
    written_events: Mutex<VecDeque<WrittenEvent>>,
    /// Addresses and ports that are being allocated to Services.
    pub(crate) service_addresses: addresses::Reserved,
    /// Runtime of the server's own tasks, independent of the caller's runtime.
    pub(crate) tasks: Handle,
}

/// One write of an Event. The Event's time to live starts at this write.
struct WrittenEvent {
    at: Instant,
    key: Key,
    revision: u64,
}

/// Limit on the expired Events that one write deletes. Later writes delete the rest.
const MAX_EXPIRED_AT_ONCE: usize = 64;

/// Namespaces that exist from the start. Each has a default ServiceAccount.
const INITIAL_NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

impl Core {
    /// A core on a store. Must be called within a tokio runtime, on which its tasks then run.
    pub(crate) fn new(config: Config, store: Store, folder: Option<Folder>) -> Self {
        Core {
            is_continued: 0 < store.head(),
            store,
            folder,
            audit: AuditFeed::default(),
            registry: RwLock::new(Arc::new(Registry::of(BUILT_INS))),
            described: Mutex::default(),
            keys: Keys::new(config.clock.clone(), config.ca.clone(), config.token_key.clone()),
            written_events: Mutex::default(),
            service_addresses: addresses::Reserved::default(),
            tasks: Handle::current(),
            config,
        }
    }

    pub(crate) fn registry(&self) -> Arc<Registry> {
        self.registry.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the registry of served resources.
    pub(crate) fn update_registry(&self, change: impl FnOnce(&mut Registry)) {
        let mut held = self.registry.write().unwrap_or_else(PoisonError::into_inner);
        let mut next = held.as_ref().clone();
        change(&mut next);
        *held = Arc::new(next);
    }

    /// Returns the OpenAPI documents of the served resources. They are created when a client first
    /// requests them.
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

    /// Returns the current time as `metav1.Time`.
    pub(crate) fn now(&self) -> String {
        rfc3339_seconds(self.config.clock.now())
    }

    /// Decides what users may do.
    pub(crate) fn authorizer(&self) -> Authorizer<'_> {
        Authorizer { mode: self.config.authorization, store: &self.store }
    }

    /// The server itself as a writer, now.
    pub(crate) fn own_writes(&self) -> OwnWrites {
        OwnWrites { registry: self.registry(), now: self.now() }
    }

    /// Records the write of an Event, and deletes expired Events that were not written again.
    /// Events need no timer this way: they expire only when new ones arrive.
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
        let collection: Arc<str> = "events".into();
        for event in over {
            if let Some(read) =
                self.store.get(&collection, &event.key).filter(|held| held.revision() == event.revision)
            {
                // A concurrent write won the race, so the Event stays.
                let _raced =
                    self.store.commit(&collection, &event.key, Change::Delete { read }, &Origin::default());
            }
        }
    }

    /// Creates the objects that kube-apiserver and its controllers create in a new cluster, as far
    /// as they are served here.
    pub(crate) fn bootstrap(&self) {
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
                scheduling::COLLECTION,
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
                self.seed(initial.collection, initial.namespace, initial.object.clone());
                self.renew(initial);
            }
        }
        // The first revisions are compacted before any client can read them.
        self.store.compact(None);
    }

    fn seed(&self, collection: &str, namespace: &str, mut object: Value) {
        let name = crate::values::object::meta_str(&object, "name").to_owned();
        let key = Key::new(namespace, &name);
        // The object exists from an earlier run.
        if self.store.get(collection, &key).is_some() {
            return;
        }
        let (group, version) = split_api_version(object["apiVersion"].as_str().unwrap_or_default());
        let served =
            self.registry().find(group, version, collection).cloned().expect("a built-in kind is served");
        // Fields that every write of the kind sets have no field owner.
        let mut said = object.clone();
        for given in ["spec", "status"] {
            crate::values::object::drop_field(&mut said, given);
        }
        let owners = self.own_writes().created(&served, &said);
        crate::values::object::set_meta(&mut object, MANAGED_FIELDS, Some(json!(owners.text())));
        crate::values::object::set_meta(&mut object, "uid", Some(json!(self.config.ids.uid())));
        crate::values::object::set_meta(&mut object, "creationTimestamp", Some(json!(self.now())));
        let done =
            self.store.commit(&Arc::from(collection), &key, Change::Create(object), &Origin::default());
        done.expect("no other writer uses the store yet");
    }

    /// Updates a role or binding that exists from an earlier run.
    fn renew(&self, initial: &roles::Initial) {
        let key = Key::new(initial.namespace, crate::values::object::meta_str(&initial.object, "name"));
        let read = self.store.get(initial.collection, &key).expect("the object was seeded");
        let Some(mut value) = roles::renewed(read.value(), &initial.object) else { return };
        let (group, version) = split_api_version(initial.object["apiVersion"].as_str().unwrap_or_default());
        let registry = self.registry();
        let served = registry.find(group, version, initial.collection).expect("a built-in kind is served");
        self.own_writes().changed(served, &read, &mut value);
        let change = Change::Update { read, value };
        let done = self.store.commit(&Arc::from(initial.collection), &key, change, &Origin::default());
        done.expect("no other writer uses the store yet");
    }
}
