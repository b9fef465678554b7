//! Takes changes into the world: stores them, closes the writes that they show, and wakes the keys
//! that decide from them.

use std::sync::Arc;

use kube::Resource;
use kube::api::ListParams;
use machinist_core::{GAP_AFTER, Succession};
use machinist_kube::outcome::existing;
use machinist_kube::watch::WatchOptions;
use machinist_kube::{Delta, Entry, ObjectKey, list_once};
use tokio::time::Instant;

use crate::contract::Contract;
use crate::feed::Fed;
use crate::runtime::Runtime;

/// Lists a kind once. The store drops the list if the watch has overtaken it.
pub(crate) async fn read_kind<C: Contract, F: Fed<C>>(runtime: &Runtime<C>) -> Result<(), kube::Error> {
    let (api, options) = F::watched(runtime);
    let WatchOptions { field_selector, label_selector, .. } = options;
    let params = ListParams { field_selector, label_selector, ..ListParams::default() };
    // The list is parsed item by item, because an invalid object must not hide the others.
    let list = list_once(api, &params, |object: F::Object| F::parse(&object)).await?;
    take_in::<C, F>(runtime, Delta::ListedOnce(list));
    Ok(())
}

/// Applies a delta to the store, closes the writes that it shows, and wakes the keys that decide
/// from it.
pub fn take_in<C: Contract, F: Fed<C>>(runtime: &Runtime<C>, delta: Delta<F>) {
    let mut wake = Vec::new();
    // Only a watch shows every version. A list or a read may skip versions.
    let version = if matches!(delta, Delta::Upsert(..)) { Succession::Next } else { Succession::Later };
    {
        let mut world = runtime.world.lock();
        let world = &mut *world;
        let was_synced = F::store(&world.seen).synced();
        let (was_fresh, heard_before) = (F::store(&world.seen).is_fresh(), F::store(&world.seen).heard_at());
        let changes = F::store_mut(&mut world.seen).apply(delta);
        let observed = F::store(&world.seen).observed_rv();
        wake.extend(world.barrier.observe(F::cluster(), F::RESOURCE, observed, &changes));
        for change in &changes {
            F::route(&world.seen, change, &mut wake);
            F::learn(&mut world.seen, change, version, runtime.now());
            if runtime.may_report() {
                F::report(runtime, &world.seen, change);
            }
            if change.new.is_none() {
                F::forget(&mut world.seen, &change.uid);
            }
        }
        if !was_fresh && F::store(&world.seen).is_fresh() {
            wake.extend(world.fresh_reads.heard(F::RESOURCE));
            let silent_from = runtime.silent_from(heard_before, F::IS_DEFERRED);
            // The keys that need a deferred kind were not decided about before its first list.
            let is_first_list = F::IS_DEFERRED && heard_before.is_none();
            let is_gap = |from: &Instant| F::HAS_DEADLINES && GAP_AFTER < from.elapsed();
            let silent_since = silent_from.filter(|from| is_first_list || is_gap(from));
            if let Some(since) = silent_since {
                runtime.gaps.add(runtime.past(since), runtime.now());
            }
        }
        if !was_synced && F::store(&world.seen).synced() {
            runtime.note_synced(world);
        }
    }
    for key in wake {
        runtime.wake(key);
    }
}

/// Reads one object from the API server and stores it. Used if a watch does not show a write in
/// time.
///
/// # Errors
/// If the request fails.
pub async fn refresh<C: Contract, F: Fed<C>>(
    runtime: &Runtime<C>,
    key: &ObjectKey,
) -> Result<Option<Entry<F>>, kube::Error> {
    // The UID is read before the request. When the answer arrives, the watch may have shown a new
    // object of that name, which is not absent.
    let known = F::store(&runtime.world.lock().seen).get(key).map(|entry| entry.uid.clone());
    let api = F::api(runtime, &key.namespace);
    let Some(object) = existing(api.get(&key.name).await)? else {
        if let Some(uid) = known {
            take_in::<C, F>(runtime, Delta::Absent { key: key.clone(), uid });
        }
        return Ok(None);
    };
    let entry = entry_of::<C, F>(&object);
    take_in::<C, F>(runtime, Delta::Fetched(key.clone(), entry.clone()));
    Ok(Some(entry))
}

/// Converts an object to an entry of the store.
pub fn entry_of<C: Contract, F: Fed<C>>(object: &F::Object) -> Entry<F> {
    let metadata = object.meta();
    Entry {
        uid: metadata.uid.clone().unwrap_or_default(),
        resource_version: resource_version(metadata.resource_version.as_deref()),
        deleting: metadata.deletion_timestamp.is_some(),
        facts: Arc::new(F::parse(object)),
    }
}

/// Parses a resourceVersion; 0 if it is not a number.
pub(crate) fn resource_version(text: Option<&str>) -> u64 {
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}
