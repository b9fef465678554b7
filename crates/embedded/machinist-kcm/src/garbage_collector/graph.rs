//! The owner graph over all collected kinds.
//!
//! Only the metadata that decisions need is kept of each object. Objects are found by UID; requests
//! need names, and names may be reused.

use std::sync::{Arc, PoisonError, RwLock};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DynamicObject, PartialObjectMeta};
use kube::discovery::Scope;
use machinist_kube::ObjectKey;

use crate::kinds::Resource;
use crate::view::View;

/// Finalizer that the server sets on an object to delete its dependents first.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";

/// Finalizer that the server sets on an object to keep its dependents.
pub(crate) const ORPHAN: &str = "orphan";

/// The ownership fields of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ItemFacts {
    pub(crate) uid: String,
    pub(crate) is_deleting: bool,
    pub(crate) owners: Vec<OwnerReference>,
    /// Finalizers as they were read; `None` means that the field is absent.
    pub(crate) finalizers: Option<Vec<String>>,
}

impl ItemFacts {
    pub(crate) fn parse(object: PartialObjectMeta<DynamicObject>) -> Self {
        let metadata = object.metadata;
        Self {
            uid: metadata.uid.unwrap_or_default(),
            is_deleting: metadata.deletion_timestamp.is_some(),
            owners: metadata.owner_references.unwrap_or_default(),
            finalizers: metadata.finalizers,
        }
    }

    pub(crate) fn has_finalizer(&self, name: &str) -> bool {
        self.finalizers.iter().flatten().any(|finalizer| finalizer == name)
    }

    /// Returns whether the object is being deleted and waits for the deletion of its dependents.
    pub(crate) fn waits_for_dependents(&self) -> bool {
        self.is_deleting && self.has_finalizer(FOREGROUND)
    }

    pub(crate) fn owner_uids(&self) -> impl Iterator<Item = &str> {
        self.owners.iter().map(|owner| owner.uid.as_str())
    }

    /// Returns whether the owner with this UID must not be deleted before this object.
    pub(crate) fn blocks(&self, owner_uid: &str) -> bool {
        self.owners.iter().any(|owner| owner.uid == owner_uid && owner.block_owner_deletion == Some(true))
    }
}

pub(crate) struct Collected {
    pub(crate) resource: Resource,
    pub(crate) view: Arc<View<ItemFacts>>,
}

#[derive(Clone)]
pub(crate) struct Item {
    pub(crate) kind: Arc<Collected>,
    pub(crate) key: ObjectKey,
    pub(crate) facts: Arc<ItemFacts>,
}

/// Returns the group of `group/version`.
pub(crate) fn group_of(api_version: &str) -> &str {
    api_version.rsplit_once('/').map_or("", |(group, _)| group)
}

/// All collected kinds.
pub(crate) struct Graph {
    kinds: RwLock<Vec<Arc<Collected>>>,
}

impl Graph {
    const BY_UID: &'static str = "uid";
    const BY_OWNER: &'static str = "owner";

    /// Returns an empty view with the indexes that the graph needs.
    pub(crate) fn view() -> View<ItemFacts> {
        View::new(&[
            (Self::BY_UID, |item, values| values.push(item.uid.clone())),
            (Self::BY_OWNER, |item, values| values.extend(item.owner_uids().map(str::to_owned))),
        ])
    }

    pub(crate) fn new(kinds: Vec<Collected>) -> Self {
        Self { kinds: RwLock::new(kinds.into_iter().map(Arc::new).collect()) }
    }

    /// Returns the kinds that are collected now.
    pub(crate) fn kinds(&self) -> Vec<Arc<Collected>> {
        self.kinds.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Starts collecting a kind.
    pub(crate) fn add(&self, kind: Arc<Collected>) {
        self.kinds.write().unwrap_or_else(PoisonError::into_inner).push(kind);
    }

    /// Stops collecting a kind.
    pub(crate) fn remove(&self, kind: &Arc<Collected>) {
        self.kinds.write().unwrap_or_else(PoisonError::into_inner).retain(|other| !Arc::ptr_eq(other, kind));
    }

    /// Returns the resource of a collected kind, in any of its versions.
    pub(crate) fn resource(&self, group: &str, kind: &str) -> Option<Resource> {
        let kinds = self.kinds();
        let found =
            kinds.iter().find(|known| known.resource.api.group == group && known.resource.api.kind == kind);
        found.map(|kind| kind.resource.clone())
    }

    /// Returns the object with this UID.
    pub(crate) fn find(&self, uid: &str) -> Option<Item> {
        self.by_index(Self::BY_UID, uid).into_iter().next()
    }

    /// Returns the objects that name this UID as an owner.
    pub(crate) fn dependents(&self, uid: &str) -> Vec<Item> {
        self.by_index(Self::BY_OWNER, uid)
    }

    /// Returns whether every kind was listed. Before that, an object may have unseen dependents.
    pub(crate) fn is_complete(&self) -> bool {
        self.kinds().iter().all(|kind| kind.view.store().synced())
    }

    /// Returns the object that an owner reference in this namespace names, if it is known and all
    /// fields of the reference match.
    pub(crate) fn owner(&self, owner: &OwnerReference, namespace: &str) -> Option<Item> {
        let found = self.find(&owner.uid)?;
        let Resource { api, scope } = &found.kind.resource;
        let group = group_of(&owner.api_version);
        let is_reachable = *scope == Scope::Cluster || found.key.namespace == namespace;
        let fits =
            api.group == group && api.kind == owner.kind && found.key.name == owner.name && is_reachable;
        fits.then_some(found)
    }

    fn by_index(&self, index: &'static str, value: &str) -> Vec<Item> {
        let kinds = self.kinds();
        let found = kinds.iter().flat_map(|kind| {
            let store = kind.view.store();
            let found: Vec<Item> = store
                .by_index(index, value)
                .map(|(key, entry)| Item { kind: kind.clone(), key: key.clone(), facts: entry.facts.clone() })
                .collect();
            found
        });
        found.collect()
    }
}
