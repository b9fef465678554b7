//! A controller's view of one kind: a store that follows a watch, and listeners that receive each
//! change.
//!
//! Several controllers may share one view. Listeners only wake keys; the pass for a key reads the
//! store.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::{Api, Resource};
use machinist_kube::store::IndexFn;
use machinist_kube::{Change, ObjectKey, Store, WatchFatal, WatchNote, WatchOptions, run_watch};
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio::time::Instant;

/// If the watch has not shown our own write for this long, the controller decides without it. Every
/// write is guarded, so the worst result is a rejected write.
pub(crate) const OVERDUE_AFTER: Duration = Duration::from_secs(10);

/// Beyond this many own writes, overdue ones are forgotten.
const OWN_WRITES_KEPT: usize = 256;

type Listener<F> = Box<dyn Fn(&Change<F>) + Send + Sync>;

/// The last observed state of one kind.
pub(crate) struct View<F> {
    store: Mutex<Store<F>>,
    listeners: Vec<Listener<F>>,
    /// Our own writes that the watch has not shown yet: their resourceVersion, and the time of the
    /// response.
    own_writes: Mutex<BTreeMap<ObjectKey, (u64, Instant)>>,
    /// Wakes waiting tasks in the order of their arrival, so that a simulation is repeatable.
    listed: Notify,
}

impl<F> View<F> {
    /// Creates an empty view with these indexes.
    pub(crate) fn new(indexes: &[(&'static str, IndexFn<F>)]) -> Self {
        Self {
            store: Mutex::new(Store::new(indexes)),
            listeners: Vec::new(),
            own_writes: Mutex::default(),
            listed: Notify::new(),
        }
    }

    /// Calls `listener` for every change from now on.
    pub(crate) fn listen(&mut self, listener: impl Fn(&Change<F>) + Send + Sync + 'static) {
        self.listeners.push(Box::new(listener));
    }

    /// Keeps the view up to date. Returns only if the watch can never succeed.
    pub(crate) async fn follow<K>(
        &self,
        api: Api<K>,
        field_selector: Option<&str>,
        seed: u64,
        parse: fn(K) -> F,
    ) -> WatchFatal
    where
        K: Resource + DeserializeOwned,
        F: Send + Sync,
    {
        let url = api.resource_url().to_owned();
        let options = WatchOptions {
            field_selector: field_selector.map(str::to_owned),
            seed,
            observer: Some(std::sync::Arc::new(move |note| log_trouble(&url, &note))),
            ..WatchOptions::default()
        };
        let sink = |delta| {
            let (changes, is_synced) = {
                let mut store = self.store();
                (store.apply(delta), store.synced())
            };
            for change in &changes {
                for listener in &self.listeners {
                    listener(change);
                }
            }
            if is_synced {
                self.listed.notify_waiters();
            }
        };
        run_watch(api, options, parse, sink).await
    }

    /// Returns the locked store. The lock is never held across an await.
    pub(crate) fn store(&self) -> MutexGuard<'_, Store<F>> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns once the kind was listed. Before that, the absence of an object means nothing.
    pub(crate) async fn synced(&self) {
        loop {
            // Registered before the check, so that a list in between is not missed.
            let mut listed = pin!(self.listed.notified());
            listed.as_mut().enable();
            if self.store().synced() {
                return;
            }
            listed.await;
        }
    }

    /// Notes our own write of an object. The object is not decided on until the watch has shown
    /// this write.
    pub(crate) fn note_written(&self, key: ObjectKey, resource_version: Option<&str>) {
        let Some(written) = resource_version.and_then(|text| text.parse().ok()) else { return };
        let mut own_writes = self.own_writes();
        // No further pass asks for the writes of deleted objects.
        if OWN_WRITES_KEPT <= own_writes.len() {
            own_writes.retain(|_, (_, at)| at.elapsed() < OVERDUE_AFTER);
        }
        own_writes.insert(key, (written, Instant::now()));
    }

    /// Returns whether the watch has not shown our last write of this object yet. The watch wakes
    /// the key when it does.
    pub(crate) fn lacks_own_write(&self, key: &ObjectKey) -> bool {
        let observed = self.store().observed_rv();
        let mut own_writes = self.own_writes();
        let Some((written, at)) = own_writes.get(key) else { return false };
        let lacks = observed < *written && at.elapsed() < OVERDUE_AFTER;
        if !lacks {
            own_writes.remove(key);
        }
        lacks
    }

    fn own_writes(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, (u64, Instant)>> {
        self.own_writes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn log_trouble(url: &str, note: &WatchNote) {
    match note {
        WatchNote::Listed { objects } => tracing::debug!(url, objects, "Listed"),
        WatchNote::Opened => tracing::trace!(url, "Watching"),
        WatchNote::Undecodable { key, error } => {
            let key = key.as_ref().map(ToString::to_string).unwrap_or_default();
            tracing::warn!(url, key, error, "Ignoring an object that cannot be parsed");
        }
        WatchNote::Retrying { after, error, .. } => {
            tracing::debug!(url, ?after, error, "The watch was interrupted and is resumed");
        }
    }
}
