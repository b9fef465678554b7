//! Garbage collection: objects go when their owners have gone.
//!
//! ```text
//! owner gone -----------------> each dependent: owners confirmed absent --> DELETE
//! owner deleting, foreground --> each dependent: DELETE; none blocks any more --> finalizer off
//! owner deleting, orphan -----> each dependent: owner reference off; none left --> finalizer off
//! ```
//!
//! Owners are known by UID. One that is not in the graph is looked for in the quorum before anything is deleted, and the
//! object itself is read there too: what is deleted is exactly what was decided on, by UID and resourceVersion. An object
//! in a namespace has owners in that namespace or in none; an object in none has owners in none.
//!
//! Which kinds there are, the caller lists; on request those of CustomResourceDefinitions join and leave as these do.
//!
//! Deliberately absent: owners of a kind that is not served, whose dependents simply stay.

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

/// Absent owners that are remembered: enough for the dependents of the last few to be settled by one read each.
const ABSENT_OWNERS_KEPT: usize = 500;

/// How long what cannot be decided now is left alone: a kind may be served later, a view completed.
const UNDECIDED_PAUSE: Duration = Duration::from_secs(30);

/// When our view of an object is older than the quorum's, the watch will soon wake it.
const STALE_PAUSE: Duration = Duration::from_secs(1);

/// What to look at, by UID.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    /// One object.
    Item(String),
    /// Whatever names this one as its owner.
    DependentsOf(String),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Item(uid) => f.write_str(uid),
            Self::DependentsOf(uid) => write!(f, "dependents of {uid}"),
        }
    }
}

/// The controller.
pub(crate) struct GarbageCollector {
    client: Client,
    kinds: Arc<Kinds>,
    queue: KeyQueue<Key>,
    graph: Graph,
    defined_kinds: Option<DefinedKinds>,
    absent: Mutex<AbsentOwners>,
}

/// A queue for [`listen`] to wake.
pub(crate) fn queue(seed: u64) -> KeyQueue<Key> {
    KeyQueue::new(|_| Duration::ZERO, seed)
}

/// Wakes whatever a change of an object may decide.
pub(crate) fn listen(view: &mut View<ItemFacts>, queue: &KeyQueue<Key>) {
    let queue = queue.clone();
    view.listen(move |change| {
        for key in concerned(change) {
            queue.wake(key);
        }
    });
}

fn concerned(change: &Change<ItemFacts>) -> Vec<Key> {
    let mut keys = Vec::new();
    if change.old == change.new {
        return keys;
    }
    // Who was waiting for it to go, or to let go.
    let old_owners = change.old.iter().flat_map(|old| old.owner_uids());
    keys.extend(old_owners.map(|uid| Key::Item(uid.to_owned())));
    match &change.new {
        None => keys.push(Key::DependentsOf(change.uid.clone())),
        Some(item) => {
            if item.is_deleting || !item.owners.is_empty() {
                keys.push(Key::Item(change.uid.clone()));
            }
            if item.waits_for_dependents() {
                keys.push(Key::DependentsOf(change.uid.clone()));
            }
        }
    }
    keys
}

impl Controller for GarbageCollector {
    type Key = Key;

    const NAME: &'static str = "garbage-collector";

    fn queue(&self) -> &KeyQueue<Key> {
        &self.queue
    }

    async fn pass(&self, key: &Key) -> Next {
        match key {
            Key::DependentsOf(uid) => {
                for dependent in self.graph.dependents(uid) {
                    self.queue.wake(Key::Item(dependent.facts.uid.clone()));
                }
                Next::Idle
            }
            Key::Item(uid) => match self.graph.find(uid) {
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
        queue: KeyQueue<Key>,
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

    /// Has the kinds of definitions collected, too, if that was asked for.
    pub(crate) async fn collect_defined_kinds(&self, seed: u64) -> WatchFatal {
        let Self { client, kinds, queue, graph, defined_kinds, .. } = self;
        match defined_kinds {
            Some(defined) => defined.run(Collection { client, graph, kinds, queue, seed }).await,
            None => std::future::pending().await,
        }
    }

    /// Whether every object that may have an owner was seen.
    fn sees_all(&self) -> bool {
        let are_in = |defined: &DefinedKinds| defined.are_all_in(&self.graph);
        self.graph.is_complete() && self.defined_kinds.as_ref().is_none_or(are_in)
    }

    /// An object on its way out may leave its dependents, or wait for them.
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
        // Each dependent finds out by itself that its owner waits; its end wakes this object again.
        if dependents.iter().any(|dependent| dependent.facts.blocks(&item.facts.uid)) {
            return Next::Idle;
        }
        self.remove_finalizer(item, FOREGROUND).await
    }

    async fn release_all(&self, owner: &Item, dependents: &[Item]) -> Next {
        let mut next = Next::Idle;
        // What we have released already, the watch will show.
        for dependent in dependents.iter().filter(|it| !it.kind.view.lacks_own_write(&it.key)) {
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
            Verdict::Keep if undecided => Next::In(UNDECIDED_PAUSE),
            Verdict::Keep => Next::Idle,
            decided => self.carry_out(item, &states, decided).await,
        }
    }

    fn dependents_of(&self, item: &Item) -> Dependents {
        let dependents = self.graph.dependents(&item.facts.uid);
        match (dependents.is_empty(), dependents.iter().any(|it| it.facts.waits_for_dependents())) {
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
        // The version in a reference may be served no more.
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
            // The kind is served no more; why, its definition will tell.
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(OwnerState::Unknown),
            found => found?,
        };
        let found = found.map(ItemFacts::parse).filter(|found| found.uid == owner.uid);
        if found.is_none() {
            self.absent().remember(absent);
        }
        Ok(found.map_or(OwnerState::Absent, |found| presence(&found)))
    }

    /// Does what was decided, provided that the quorum shows the object as it was decided on.
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

    /// Takes these owners off the object.
    async fn release(&self, item: &Item, read: &[OwnerReference], owners: &BTreeSet<String>) -> Next {
        let left: Vec<&OwnerReference> = read.iter().filter(|owner| !owners.contains(&owner.uid)).collect();
        let patch = GuardedPatch::new(&item.facts.uid).test(&OWNERS, Some(&json!(read)));
        let patch = if left.is_empty() { patch.remove(&OWNERS) } else { patch.replace(&OWNERS, json!(left)) };
        self.patch(item, "take an owner off an object", patch).await
    }

    /// Lets the waiting owners go before this object. Once that is seen, the object is looked at again.
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
        self.patch(item, "let an owner go first", patch).await
    }

    async fn remove_finalizer(&self, item: &Item, finalizer: &str) -> Next {
        let read = item.facts.finalizers.as_deref();
        let patch = GuardedPatch::new(&item.facts.uid).remove_finalizer(read, finalizer);
        self.patch(item, "take a finalizer off an object", patch).await
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
        tracing::info!(kind, object = %item.key, ?policy, "Deleting an object whose owners are gone");
        let preconditions = Some(Preconditions {
            uid: Some(item.facts.uid.clone()),
            resource_version: Some(resource_version),
        });
        let params =
            DeleteParams { preconditions, propagation_policy: Some(policy), ..DeleteParams::default() };
        let api = item.kind.resource.api(&self.client, &item.key.namespace);
        let result = api.delete(&item.key.name, &params).await;
        Next::after_write("delete an object whose owners are gone", WriteOutcome::of(&result))
    }

    fn absent(&self) -> std::sync::MutexGuard<'_, AbsentOwners> {
        self.absent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn presence(owner: &ItemFacts) -> OwnerState {
    if owner.waits_for_dependents() { OwnerState::Waiting } else { OwnerState::Present }
}

/// An owner as it is looked for: by the names in the reference, from a namespace. The UID alone would not do, since a
/// reference may have it right and the rest wrong.
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

/// Owners that were found absent. UIDs never come back, so absence is for good.
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
