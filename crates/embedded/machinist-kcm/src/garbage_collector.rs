//! Garbage collection: deletes objects after all of their owners were deleted.
//!
//! ```text
//! owner deleted --------------> each dependent: owners confirmed absent -> DELETE
//! owner deleting, foreground -> each dependent: DELETE; none blocks the owner -> remove finalizer
//! owner deleting, orphan -----> each dependent: remove owner; none left -> remove finalizer
//! ```
//!
//! Owners are identified by UID. Before anything is deleted, an owner that is not in the graph is
//! read from the quorum, and so is the object itself. The deletion names UID and resourceVersion,
//! so exactly the object of the decision is deleted. An object in a namespace can have owners in
//! that namespace or cluster-scoped ones; a cluster-scoped object can only have cluster-scoped
//! owners.
//!
//! The caller lists the collected kinds. On request, the kinds of CustomResourceDefinitions are
//! added and removed as these are.
//!
//! An owner of a kind that is not collected is read every 30 seconds.
//!
//! Deliberately absent: owners of a kind that is not served. Their dependents stay.

pub(crate) mod defined_kinds;
pub(crate) mod graph;
mod verdict;

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Client;
use kube::api::{DeleteParams, PatchParams, Preconditions, PropagationPolicy};
use kube::discovery::Scope;
use machinist_kube::{Change, GuardedPatch, KeyQueue, WatchFatal, WriteOutcome};
use serde_json::json;

use crate::kinds::Kinds;
use crate::view::View;
use crate::work::{Controller, Next};
use defined_kinds::{Collection, DefinedKinds};
use graph::{FOREGROUND, Graph, Item, ItemFacts, ORPHAN, group_of};
use verdict::{Dependents, OwnerState, Verdict, verdict};

const OWNERS: [&str; 2] = ["metadata", "ownerReferences"];

/// Number of absent owners that are remembered, so that one read per owner suffices for its
/// dependents.
const ABSENT_OWNERS_KEPT: usize = 500;

/// Delay before an undecided object is looked at again: its kind may be served, or a view
/// completed, by then. The same delay separates two reads of an owner that no view shows.
const UNDECIDED_PAUSE: Duration = Duration::from_secs(30);

/// Delay if our view of an object is older than the quorum's. The watch usually wakes the object
/// earlier.
const STALE_PAUSE: Duration = Duration::from_secs(1);

/// An object to look at, by UID.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum GarbageKey {
    Item(String),
    /// All objects that name this one as an owner.
    DependentsOf(String),
}

impl fmt::Display for GarbageKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Item(uid) => f.write_str(uid),
            Self::DependentsOf(uid) => write!(f, "dependents of {uid}"),
        }
    }
}

pub(crate) struct GarbageCollector {
    client: Client,
    kinds: Arc<Kinds>,
    queue: KeyQueue<GarbageKey>,
    graph: Graph,
    defined_kinds: Option<DefinedKinds>,
    absent: Mutex<AbsentOwners>,
}

/// Returns a queue for [`listen`].
pub(crate) fn queue(seed: u64) -> KeyQueue<GarbageKey> {
    KeyQueue::new(|_| Duration::ZERO, seed)
}

/// Wakes every object that a change may affect.
pub(crate) fn listen(view: &mut View<ItemFacts>, queue: &KeyQueue<GarbageKey>) {
    let queue = queue.clone();
    view.listen(move |change| {
        for key in concerned(change) {
            queue.wake(key);
        }
    });
}

fn concerned(change: &Change<ItemFacts>) -> Vec<GarbageKey> {
    let mut keys = Vec::new();
    if change.old == change.new {
        return keys;
    }
    // The old owners may wait for this object to be deleted or to lose its owner reference.
    let old_owners = change.old.iter().flat_map(|old| old.owner_uids());
    keys.extend(old_owners.map(|uid| GarbageKey::Item(uid.to_owned())));
    match &change.new {
        None => keys.push(GarbageKey::DependentsOf(change.uid.clone())),
        Some(item) => {
            if item.is_deleting || !item.owners.is_empty() {
                keys.push(GarbageKey::Item(change.uid.clone()));
            }
            if item.waits_for_dependents() {
                keys.push(GarbageKey::DependentsOf(change.uid.clone()));
            }
        }
    }
    keys
}

impl Controller for GarbageCollector {
    type Key = GarbageKey;

    const NAME: &'static str = "garbage-collector";

    fn queue(&self) -> &KeyQueue<GarbageKey> {
        &self.queue
    }

    async fn pass(&self, key: &GarbageKey) -> Next {
        match key {
            GarbageKey::DependentsOf(uid) => {
                for dependent in self.graph.dependents(uid) {
                    self.queue.wake(GarbageKey::Item(dependent.facts.uid.clone()));
                }
                Next::Idle
            }
            GarbageKey::Item(uid) => match self.graph.find(uid) {
                None => Next::Idle,
                Some(item) if item.kind.view.lacks_own_write(&item.key) => {
                    Next::In(crate::view::OVERDUE_AFTER)
                }
                Some(item) if item.facts.is_deleting => self.pass_deleting(&item).await,
                Some(item) => self.pass_owned(&item).await,
            },
        }
    }
}

impl GarbageCollector {
    pub(crate) fn new(
        client: Client,
        kinds: Arc<Kinds>,
        queue: KeyQueue<GarbageKey>,
        graph: Graph,
        defined_kinds: Option<DefinedKinds>,
    ) -> Self {
        Self { client, kinds, queue, graph, defined_kinds, absent: Mutex::default() }
    }

    pub(crate) fn graph(&self) -> &Graph {
        &self.graph
    }

    pub(crate) fn defined_kinds(&self) -> Option<&DefinedKinds> {
        self.defined_kinds.as_ref()
    }

    /// Collects the kinds of CustomResourceDefinitions, too, if the configuration asks for it.
    pub(crate) async fn collect_defined_kinds(&self, seed: u64) -> WatchFatal {
        let Self { client, kinds, queue, graph, defined_kinds, .. } = self;
        match defined_kinds {
            Some(defined) => defined.run(Collection { client, graph, kinds, queue, seed }).await,
            None => std::future::pending().await,
        }
    }

    /// Returns whether every object that may have an owner was seen.
    fn sees_all(&self) -> bool {
        let are_in = |defined: &DefinedKinds| defined.are_all_in(&self.graph);
        self.graph.is_complete() && self.defined_kinds.as_ref().is_none_or(are_in)
    }

    /// Handles an object that is being deleted: depending on its finalizers it orphans its
    /// dependents, or waits for them.
    async fn pass_deleting(&self, item: &Item) -> Next {
        let (orphans, waits) = (item.facts.has_finalizer(ORPHAN), item.facts.waits_for_dependents());
        if !orphans && !waits {
            return Next::Idle;
        }
        if !self.sees_all() {
            return Next::In(UNDECIDED_PAUSE);
        }
        let dependents = self.graph.dependents(&item.facts.uid);
        if orphans && dependents.is_empty() {
            return self.remove_finalizer(item, ORPHAN).await;
        }
        if orphans {
            return self.release_all(item, &dependents).await;
        }
        // Each dependent finds out in its own pass that its owner waits. The deletion of a
        // dependent wakes this object again.
        if dependents.iter().any(|dependent| dependent.facts.blocks(&item.facts.uid)) {
            return Next::Idle;
        }
        self.remove_finalizer(item, FOREGROUND).await
    }

    async fn release_all(&self, owner: &Item, dependents: &[Item]) -> Next {
        let mut next = Next::Idle;
        // The watch will show dependents that are released already.
        for dependent in
            dependents.iter().filter(|dependent| !dependent.kind.view.lacks_own_write(&dependent.key))
        {
            let owners = [owner.facts.uid.clone()].into();
            next = next.sooner(self.release(dependent, &dependent.facts.owners, &owners).await);
        }
        next
    }

    async fn pass_owned(&self, item: &Item) -> Next {
        let mut states = Vec::with_capacity(item.facts.owners.len());
        for owner in &item.facts.owners {
            match self.state_of(owner, item).await {
                Ok(state) => states.push(state),
                Err(error) => return Next::after_failed_read("look for an owner", &error),
            }
        }
        let undecided = states.contains(&OwnerState::Unknown);
        match verdict(&item.facts, &states, self.dependents_of(item)) {
            Verdict::Keep if undecided || self.lacks_an_owner(item) => Next::In(UNDECIDED_PAUSE),
            Verdict::Keep => Next::Idle,
            decided => self.carry_out(item, &states, decided).await,
        }
    }

    /// Returns whether only a read showed one of the owners. Its deletion wakes nothing: its kind
    /// may not be collected, or the first list of its kind may begin after the deletion.
    fn lacks_an_owner(&self, item: &Item) -> bool {
        item.facts.owners.iter().any(|owner| self.graph.owner(owner, &item.key.namespace).is_none())
    }

    fn dependents_of(&self, item: &Item) -> Dependents {
        let dependents = self.graph.dependents(&item.facts.uid);
        match (
            dependents.is_empty(),
            dependents.iter().any(|dependent| dependent.facts.waits_for_dependents()),
        ) {
            (true, _) => Dependents::None,
            (false, true) => Dependents::Waiting,
            (false, false) => Dependents::Some,
        }
    }

    async fn state_of(&self, owner: &OwnerReference, item: &Item) -> Result<OwnerState, kube::Error> {
        let namespace = &item.key.namespace;
        if let Some(known) = self.graph.owner(owner, namespace) {
            return Ok(presence(&known.facts));
        }
        let absent = Reference::new(owner, namespace);
        if self.absent().contains(&absent) {
            return Ok(OwnerState::Absent);
        }
        // The version in the reference may no longer be served.
        let collected = self.graph.resource(group_of(&owner.api_version), &owner.kind);
        let resource = match collected {
            Some(resource) => Some(resource),
            None => self.kinds.resource(&owner.api_version, &owner.kind).await?,
        };
        let Some(resource) = resource else {
            let has_ended = match &self.defined_kinds {
                Some(defined) => defined.has_ended(&self.client, owner).await?,
                None => false,
            };
            return Ok(if has_ended { OwnerState::Absent } else { OwnerState::Unknown });
        };
        if namespace.is_empty() && resource.scope == Scope::Namespaced {
            return Ok(OwnerState::Unknown);
        }
        let found = match resource.api(&self.client, namespace).get_metadata_opt(&owner.name).await {
            // The kind is no longer served. Its definition shows the reason.
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(OwnerState::Unknown),
            found => found?,
        };
        let found = found.map(ItemFacts::parse).filter(|found| found.uid == owner.uid);
        if found.is_none() {
            self.absent().remember(absent);
        }
        Ok(found.map_or(OwnerState::Absent, |found| presence(&found)))
    }

    /// Performs the decision if the quorum shows the object unchanged.
    async fn carry_out(&self, item: &Item, states: &[OwnerState], decided: Verdict) -> Next {
        let api = item.kind.resource.api(&self.client, &item.key.namespace);
        let current = match api.get_metadata_opt(&item.key.name).await {
            Ok(Some(current)) => current,
            Ok(None) => return Next::Idle,
            Err(error) => return Next::after_failed_read("read the object", &error),
        };
        let resource_version = current.metadata.resource_version.clone().unwrap_or_default();
        if ItemFacts::parse(current) != *item.facts {
            return Next::In(STALE_PAUSE);
        }
        match decided {
            Verdict::Keep => Next::Idle,
            Verdict::Release { owners } => self.release(item, &item.facts.owners, &owners).await,
            Verdict::Delete(policy) => self.delete(item, resource_version, policy).await,
            Verdict::UnblockAndDelete => self.unblock(item, states).await,
        }
    }

    /// Removes these owner references from the object.
    async fn release(&self, item: &Item, read: &[OwnerReference], owners: &BTreeSet<String>) -> Next {
        let left: Vec<&OwnerReference> = read.iter().filter(|owner| !owners.contains(&owner.uid)).collect();
        let patch = GuardedPatch::new(&item.facts.uid).test(&OWNERS, Some(&json!(read)));
        let patch = if left.is_empty() { patch.remove(&OWNERS) } else { patch.replace(&OWNERS, json!(left)) };
        self.patch(item, "remove an owner reference", patch).await
    }

    /// Allows the waiting owners to be deleted before this object. The object is looked at again
    /// once the watch shows the change.
    async fn unblock(&self, item: &Item, states: &[OwnerState]) -> Next {
        let read = &item.facts.owners;
        let mut unblocked = read.clone();
        for (owner, _) in unblocked.iter_mut().zip(states).filter(|(_, state)| **state == OwnerState::Waiting)
        {
            owner.block_owner_deletion = Some(false);
        }
        let unblocked_already = unblocked == *read;
        if unblocked_already {
            let current = item.kind.view.store().get(&item.key).map(|entry| entry.resource_version);
            let Some(current) = current else { return Next::Idle };
            return self.delete(item, current.to_string(), PropagationPolicy::Foreground).await;
        }
        let patch = GuardedPatch::new(&item.facts.uid)
            .test(&OWNERS, Some(&json!(read)))
            .replace(&OWNERS, json!(unblocked));
        self.patch(item, "unblock the deletion of an owner", patch).await
    }

    async fn remove_finalizer(&self, item: &Item, finalizer: &str) -> Next {
        let read = item.facts.finalizers.as_deref();
        let patch = GuardedPatch::new(&item.facts.uid).remove_finalizer(read, finalizer);
        self.patch(item, "remove a finalizer", patch).await
    }

    async fn patch(&self, item: &Item, what: &str, patch: GuardedPatch) -> Next {
        tracing::debug!(kind = item.kind.resource.api.kind, object = %item.key, "About to {what}");
        let api = item.kind.resource.api(&self.client, &item.key.namespace);
        let patch = kube::api::Patch::<()>::Json(patch.build());
        let result = api.patch_metadata(&item.key.name, &PatchParams::default(), &patch).await;
        if let Ok(written) = &result {
            item.kind.view.note_written(item.key.clone(), written.metadata.resource_version.as_deref());
        }
        Next::after_write(what, WriteOutcome::of(&result))
    }

    async fn delete(&self, item: &Item, resource_version: String, policy: PropagationPolicy) -> Next {
        let kind = &item.kind.resource.api.kind;
        tracing::info!(kind, object = %item.key, ?policy, "Deleting an object because its owners were deleted");
        let preconditions = Some(Preconditions {
            uid: Some(item.facts.uid.clone()),
            resource_version: Some(resource_version),
        });
        let params =
            DeleteParams { preconditions, propagation_policy: Some(policy), ..DeleteParams::default() };
        let api = item.kind.resource.api(&self.client, &item.key.namespace);
        let result = api.delete(&item.key.name, &params).await;
        Next::after_write("delete an object without owners", WriteOutcome::of(&result))
    }

    fn absent(&self) -> std::sync::MutexGuard<'_, AbsentOwners> {
        self.absent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn presence(owner: &ItemFacts) -> OwnerState {
    if owner.waits_for_dependents() { OwnerState::Waiting } else { OwnerState::Present }
}

/// An owner reference as it is looked up: by its names, from a namespace. The UID alone does not
/// suffice, since a reference may have a correct UID and wrong names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Reference {
    uid: String,
    api_version: String,
    kind: String,
    name: String,
    from_namespace: String,
}

impl Reference {
    fn new(owner: &OwnerReference, from_namespace: &str) -> Self {
        Self {
            uid: owner.uid.clone(),
            api_version: owner.api_version.clone(),
            kind: owner.kind.clone(),
            name: owner.name.clone(),
            from_namespace: from_namespace.to_owned(),
        }
    }
}

/// Owners that were found absent. UIDs are never reused, so absence is permanent.
#[derive(Default)]
struct AbsentOwners {
    known: BTreeSet<Reference>,
    oldest_first: VecDeque<Reference>,
}

impl AbsentOwners {
    fn contains(&self, owner: &Reference) -> bool {
        self.known.contains(owner)
    }

    fn remember(&mut self, owner: Reference) {
        if self.known.insert(owner.clone()) {
            self.oldest_first.push_back(owner);
        }
        if ABSENT_OWNERS_KEPT < self.oldest_first.len()
            && let Some(oldest) = self.oldest_first.pop_front()
        {
            self.known.remove(&oldest);
        }
    }
}
