//! Follows the kinds that CustomResourceDefinitions add and remove while the collector runs.
//!
//! ```text
//! definition established -> its kind is watched and collected
//! served version changes -> the kind is watched in the new version
//! definition deleted -----> the watch ends; dependents and owners of its objects are woken
//! ```
//!
//! Kinds that the caller lists by name do not change.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::StreamExt as _;
use futures::future::{AbortHandle, Abortable};
use futures::stream::FuturesUnordered;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, PartialObjectMeta};
use kube::discovery::Scope;
use machinist_kube::{KeyQueue, ObjectKey, WatchFatal};
use tokio::sync::Notify;

use super::graph::{Collected, Graph, ItemFacts, group_of};
use super::{GarbageKey, listen};
use crate::kinds::{Kinds, Resource};
use crate::view::View;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DefinitionFacts {
    /// The resource of the kind; `None` while it is not served.
    served: Option<Resource>,
}

impl DefinitionFacts {
    pub(crate) fn parse(definition: CustomResourceDefinition) -> Self {
        let CustomResourceDefinition { spec, status, .. } = definition;
        let conditions = status.and_then(|status| status.conditions).unwrap_or_default();
        let is_established =
            conditions.iter().any(|condition| condition.type_ == "Established" && condition.status == "True");
        // Metadata is the same in every version. The storage version is usually served the longest.
        let versions = || spec.versions.iter().filter(|version| version.served);
        let version = versions().find(|version| version.storage).or_else(|| versions().next());
        let served = version.filter(|_| is_established).map(|version| Resource {
            api: ApiResource {
                api_version: format!("{}/{}", spec.group, version.name),
                version: version.name.clone(),
                kind: spec.names.kind.clone(),
                plural: spec.names.plural.clone(),
                group: spec.group.clone(),
            },
            scope: if spec.scope == "Namespaced" { Scope::Namespaced } else { Scope::Cluster },
        });
        Self { served }
    }
}

/// Watches the definitions, and adds their kinds to the graph.
pub(crate) struct DefinedKinds {
    pub(crate) definitions: View<DefinitionFacts>,
    changed: Arc<Notify>,
    /// Names of deleted definitions, by the kind that they defined.
    ended: Mutex<BTreeMap<GroupKind, String>>,
}

type GroupKind = (String, String);

/// Dependencies for adding a kind.
pub(crate) struct Collection<'a> {
    pub(crate) client: &'a Client,
    pub(crate) graph: &'a Graph,
    pub(crate) kinds: &'a Kinds,
    pub(crate) queue: &'a KeyQueue<GarbageKey>,
    pub(crate) seed: u64,
}

/// An added kind, and the handle that stops its watch.
struct Added {
    kind: Arc<Collected>,
    watch: AbortHandle,
}

impl DefinedKinds {
    pub(crate) fn new() -> Self {
        let changed = Arc::new(Notify::new());
        let mut definitions = View::new(&[]);
        let to_tell = changed.clone();
        definitions.listen(move |_| to_tell.notify_one());
        Self { definitions, changed, ended: Mutex::default() }
    }

    /// Returns whether every defined kind is in the graph.
    pub(crate) fn are_all_in(&self, graph: &Graph) -> bool {
        let store = self.definitions.store();
        let is_in = |served: &Resource| graph.resource(&served.api.group, &served.api.kind).is_some();
        store.synced() && store.iter().filter_map(|(_, entry)| entry.facts.served.as_ref()).all(is_in)
    }

    /// Returns whether a kind has no objects because its definition was deleted. The watch has to
    /// show the deletion, and the quorum has to confirm it.
    ///
    /// # Errors
    /// If the read from the quorum fails.
    pub(crate) async fn has_ended(
        &self,
        client: &Client,
        owner: &OwnerReference,
    ) -> Result<bool, kube::Error> {
        let kind = (group_of(&owner.api_version).to_owned(), owner.kind.clone());
        let Some(definition) = self.ended().get(&kind).cloned() else { return Ok(false) };
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        Ok(definitions.get_metadata_opt(&definition).await?.is_none())
    }

    /// Watches the kinds of all definitions until one of the watches can never succeed.
    pub(crate) async fn run(&self, collection: Collection<'_>) -> WatchFatal {
        let Collection { client, graph, kinds, queue, seed } = collection;
        let by_name: Vec<Arc<Collected>> = graph.kinds();
        let mut added: BTreeMap<ObjectKey, Added> = BTreeMap::new();
        let mut watches = FuturesUnordered::new();
        loop {
            let wanted = self.wanted(&by_name);
            let is_wanted = |key: &ObjectKey, added: &Added| wanted.get(key) == Some(&added.kind.resource);
            for (key, Added { kind, watch }) in added.extract_if(.., |key, added| !is_wanted(key, added)) {
                watch.abort();
                graph.remove(&kind);
                let ApiResource { group, kind: name, .. } = &kind.resource.api;
                kinds.forget(group, name);
                if self.definitions.store().get(&key).is_none() {
                    self.ended().insert((group.clone(), name.clone()), key.name);
                    wake_relatives(&kind, graph, queue);
                }
            }
            for (key, resource) in wanted {
                if added.contains_key(&key) {
                    continue;
                }
                self.ended().remove(&(resource.api.group.clone(), resource.api.kind.clone()));
                let mut view = Graph::view();
                listen(&mut view, queue);
                let api = Api::<PartialObjectMeta<DynamicObject>>::all_with(client.clone(), &resource.api);
                let kind = Arc::new(Collected { resource, view: Arc::new(view) });
                graph.add(kind.clone());
                let (watch, registration) = AbortHandle::new_pair();
                let view = kind.view.clone();
                let follow = async move { view.follow(api, None, seed, ItemFacts::parse).await };
                watches.push(Abortable::new(follow, registration));
                added.insert(key, Added { kind, watch });
            }
            tokio::select! {
                biased;
                () = self.changed.notified() => {}
                Some(ended) = watches.next() => if let Ok(fatal) = ended { return fatal },
            }
        }
    }

    /// Returns the kinds to watch, by definition.
    fn wanted(&self, by_name: &[Arc<Collected>]) -> BTreeMap<ObjectKey, Resource> {
        let is_named = |api: &ApiResource| {
            by_name
                .iter()
                .map(|defined| &defined.resource.api)
                .any(|known| (&known.group, &known.kind) == (&api.group, &api.kind))
        };
        let store = self.definitions.store();
        let served = store.iter().filter_map(|(key, entry)| Some((key, entry.facts.served.as_ref()?)));
        let others = served.filter(|(_, resource)| !is_named(&resource.api));
        others.map(|(key, resource)| (key.clone(), resource.clone())).collect()
    }

    fn ended(&self) -> MutexGuard<'_, BTreeMap<GroupKind, String>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes the dependents of a deleted kind's objects, and the owners of these objects. The server
/// deletes the objects together with the definition, and the watch may have ended before it showed
/// that.
fn wake_relatives(gone: &Collected, graph: &Graph, queue: &KeyQueue<GarbageKey>) {
    let ApiResource { group, kind, .. } = &gone.resource.api;
    for collected in graph.kinds() {
        let store = collected.view.store();
        for (_, entry) in store.iter() {
            let is_of_kind =
                |owner: &OwnerReference| owner.kind == *kind && group_of(&owner.api_version) == group;
            if entry.facts.owners.iter().any(is_of_kind) {
                queue.wake(GarbageKey::Item(entry.facts.uid.clone()));
            }
        }
    }
    let store = gone.view.store();
    for (_, entry) in store.iter() {
        for owner in entry.facts.owner_uids() {
            queue.wake(GarbageKey::Item(owner.to_owned()));
        }
    }
}
