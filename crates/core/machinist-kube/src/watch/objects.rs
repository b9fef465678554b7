//! The part of a watch that depends on the kind: it parses the objects and passes them on.
//!
//! The loop of a watch sees only [`WatchedObjects`], so it is compiled once and not once per kind.

use kube::Resource;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::wire::{Reader, Unparsed};
use crate::store::{Delta, Entry, ObjectKey, Relist, Unreadable};

/// Receives what a watch reads about the objects of one kind.
pub(super) trait WatchedObjects: Send {
    /// Drops the objects of an unfinished list.
    fn drop_list(&mut self);

    /// Parses an object, and keeps it until the list is whole.
    fn list(&mut self, raw: &RawValue) -> Result<(), Box<Unparsed>>;

    /// The number of objects in the list so far.
    fn listed(&self) -> usize;

    /// Passes the whole list on.
    fn pass_list(&mut self, list: Listed);

    /// Parses an object and passes it on. Returns its resourceVersion.
    fn upsert(&mut self, raw: &RawValue) -> Result<u64, Box<Unparsed>>;

    /// Passes on that an object exists and cannot be parsed.
    fn unreadable(&mut self, key: ObjectKey, resource_version: u64, object: Unreadable);

    /// Passes on that an object was deleted.
    fn delete(&mut self, key: ObjectKey, uid: String, resource_version: u64);

    /// Passes on that the watch has shown everything up to this resourceVersion.
    fn bookmark(&mut self, resource_version: u64);
}

/// A whole list, excluding its readable objects.
pub(super) struct Listed {
    pub(super) unreadable: Vec<(ObjectKey, Unreadable)>,
    pub(super) resource_version: u64,
    /// When the request was sent.
    pub(super) sent: Instant,
}

/// The objects of one kind, whose deltas go to `sink`.
pub(super) struct ObjectsOf<K, F, P, S> {
    pub(super) reader: Reader<K, P>,
    pub(super) listed: Vec<(ObjectKey, Entry<F>)>,
    pub(super) sink: S,
}

impl<K, F, P, S> WatchedObjects for ObjectsOf<K, F, P, S>
where
    K: Resource + DeserializeOwned,
    F: Send + Sync,
    P: Fn(K) -> F + Send,
    S: FnMut(Delta<F>) + Send,
{
    fn drop_list(&mut self) {
        self.listed = Vec::new();
    }

    fn list(&mut self, raw: &RawValue) -> Result<(), Box<Unparsed>> {
        self.listed.push(self.reader.read(raw)?);
        Ok(())
    }

    fn listed(&self) -> usize {
        self.listed.len()
    }

    fn pass_list(&mut self, list: Listed) {
        let Listed { unreadable, resource_version, sent } = list;
        let items = std::mem::take(&mut self.listed);
        (self.sink)(Delta::Relist(Relist { items, unreadable, resource_version, sent }));
    }

    fn upsert(&mut self, raw: &RawValue) -> Result<u64, Box<Unparsed>> {
        let (key, entry) = self.reader.read(raw)?;
        let resource_version = entry.resource_version;
        (self.sink)(Delta::Upsert(key, entry));
        Ok(resource_version)
    }

    fn unreadable(&mut self, key: ObjectKey, resource_version: u64, object: Unreadable) {
        (self.sink)(Delta::Unreadable { key, resource_version, object });
    }

    fn delete(&mut self, key: ObjectKey, uid: String, resource_version: u64) {
        (self.sink)(Delta::Delete { key, uid, resource_version });
    }

    fn bookmark(&mut self, resource_version: u64) {
        (self.sink)(Delta::Bookmark(resource_version));
    }
}
