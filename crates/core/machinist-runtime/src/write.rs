//! Writes to API servers.
//!
//! The runtime opens a charge before it sends a write, and records the outcome from the answer.

use std::collections::BTreeMap;
use std::future::Future;

use either::Either;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::Patch;
use machinist_kube::barrier::{Charge, Expect, Settled, WriteKind};
use machinist_kube::{GuardedPatch, ObjectKey, WriteOutcome};

use crate::collection::{Collection, Written};
use crate::contract::{Contract, Stop};
use crate::feed::Fed;
use crate::runtime::Runtime;

/// One write to an object that this process watches.
pub struct Write<'a, C: Contract> {
    /// The runtime of the writing process.
    pub runtime: &'a Runtime<C>,
    /// The keys that decide from the object. The runtime makes no decision about them before the
    /// store shows the write.
    pub charged: &'a [C::Key],
    /// Namespace and name of the object.
    pub key: ObjectKey,
}

impl<C: Contract> Write<'_, C> {
    /// Patches the object, unless the patch is empty.
    pub fn patch<F: Fed<C>>(&self, patch: GuardedPatch) -> impl Future<Output = Result<(), Stop>> {
        self.patch_object(self.collection::<F>(), WriteKind::Update, patch)
    }

    /// Patches the object, unless the patch is empty. As a result, other objects are deleted, or a
    /// late effect would do harm: the outcome is read only when no effect can follow.
    pub fn patch_that_takes_away<F: Fed<C>>(
        &self,
        patch: GuardedPatch,
    ) -> impl Future<Output = Result<(), Stop>> {
        self.patch_object(self.collection::<F>(), WriteKind::TakeAway, patch)
    }

    /// Patches the status of the object.
    pub fn patch_status<F: Fed<C>>(&self, patch: GuardedPatch) -> impl Future<Output = Result<(), Stop>> {
        self.patch_status_of(self.collection::<F>(), WriteKind::Update, patch.into_kube())
    }

    /// Patches the status of the object. As a result, the object is deleted.
    pub fn patch_status_that_takes_away<F: Fed<C>>(
        &self,
        patch: GuardedPatch,
    ) -> impl Future<Output = Result<(), Stop>> {
        self.patch_status_of(self.collection::<F>(), WriteKind::TakeAway, patch.into_kube())
    }

    /// Patches the status of a built-in object by strategic merge. `patch` contains the UID.
    pub fn merge_status<F: Fed<C>>(
        &self,
        patch: serde_json::Value,
    ) -> impl Future<Output = Result<(), Stop>> {
        self.patch_status_of(self.collection::<F>(), WriteKind::Update, Patch::Strategic(patch))
    }

    /// Creates the object. Its name is fixed, so a repeated POST cannot create a second object.
    pub fn create<F: Fed<C>>(&self, object: &F::Object) -> impl Future<Output = Result<Created, Stop>>
    where
        F::Object: serde::Serialize,
    {
        self.create_object(self.collection::<F>(), serde_json::to_vec(object))
    }

    /// Deletes the object with that UID. Deleting a missing object succeeds.
    pub fn delete<F: Fed<C>>(&self, uid: &str) -> impl Future<Output = Result<(), Stop>> {
        self.delete_if(self.collection::<F>(), WriteKind::Delete, uid, None)
    }

    /// Deletes the object with that UID, which the controller chose among several; if a version is
    /// given, only that version of it. If the answer is lost, the controller chooses again.
    pub fn delete_chosen<F: Fed<C>>(
        &self,
        uid: &str,
        version: Option<&str>,
    ) -> impl Future<Output = Result<(), Stop>> {
        self.delete_if(self.collection::<F>(), WriteKind::DeleteChosen, uid, version)
    }

    /// Deletes the object with that UID, unless a client has changed it since it had that
    /// resourceVersion.
    pub fn delete_unchanged<F: Fed<C>>(
        &self,
        uid: &str,
        resource_version: &str,
    ) -> impl Future<Output = Result<(), Stop>> {
        self.delete_if(self.collection::<F>(), WriteKind::Delete, uid, Some(resource_version))
    }

    async fn patch_object(
        &self,
        collection: Collection,
        kind: WriteKind,
        patch: GuardedPatch,
    ) -> Result<(), Stop> {
        if patch.is_empty() {
            return Ok(());
        }
        let patch = patch.into_kube();
        let charge = self.open(&collection, kind);
        record_patch(charge, collection.patch(&self.key.name, &patch).await)
    }

    async fn patch_status_of(
        &self,
        collection: Collection,
        kind: WriteKind,
        patch: Patch<serde_json::Value>,
    ) -> Result<(), Stop> {
        let charge = self.open(&collection, kind);
        record_patch(charge, collection.patch_status(&self.key.name, &patch).await)
    }

    async fn create_object(
        &self,
        collection: Collection,
        object: serde_json::Result<Vec<u8>>,
    ) -> Result<Created, Stop> {
        let object = object.map_err(|error| Stop::refused(error.to_string()))?;
        let charge = self.open(&collection, WriteKind::Create);
        let result = collection.create(object).await;
        let outcome = WriteOutcome::of(&result);
        match result {
            Ok(made) => {
                charge.record(made.committed());
                let (labels, owners) = made.labels_and_owners();
                Ok(Created::Made { labels, owners })
            }
            Err(_) if outcome == WriteOutcome::AlreadyExists => self.read_existing(&collection, charge).await,
            Err(_) => {
                charge.record(settled_by(&outcome));
                Err(stop(outcome))
            }
        }
    }

    /// Reads the existing object of that name. An earlier POST of this process with a lost answer
    /// or another client created it. The charge stays open until the store shows the object,
    /// because the planner would not count it before.
    async fn read_existing(
        &self,
        collection: &Collection,
        charge: OpenCharge<'_, C>,
    ) -> Result<Created, Stop> {
        match collection.get(&self.key.name).await {
            Ok(Some(existing)) => {
                charge.record(existing.committed());
                Ok(Created::WasThere { owners: existing.labels_and_owners().1 })
            }
            // The object was deleted in between. The next pass may create it.
            Ok(None) => {
                charge.record(Settled::NotCommitted);
                Err(Stop::Stale)
            }
            Err(error) => {
                charge.record(Settled::Unknown);
                Err(Stop::Unanswered(error.to_string()))
            }
        }
    }

    async fn delete_if(
        &self,
        collection: Collection,
        kind: WriteKind,
        uid: &str,
        unchanged_since: Option<&str>,
    ) -> Result<(), Stop> {
        let charge =
            self.open_as(&collection, kind, Some(uid.to_owned()), unchanged_since.map(str::to_owned));
        let result = collection.delete(&self.key.name, uid, unchanged_since).await;
        let outcome = WriteOutcome::of(&result);
        let settled = match &result {
            Ok(Either::Left(object)) => object.committed(),
            Ok(Either::Right(_)) => Settled::Deleted { uid: uid.to_owned() },
            Err(_) if outcome == WriteOutcome::NotFound => Settled::Deleted { uid: uid.to_owned() },
            Err(_) => settled_by(&outcome),
        };
        charge.record(settled);
        match outcome {
            WriteOutcome::Done | WriteOutcome::NotFound => Ok(()),
            other => Err(stop(other)),
        }
    }

    fn collection<F: Fed<C>>(&self) -> Collection {
        Collection::of::<C, F>(self.runtime, &self.key.namespace)
    }

    fn open(&self, collection: &Collection, kind: WriteKind) -> OpenCharge<'_, C> {
        self.open_as(collection, kind, None, None)
    }

    fn open_as(
        &self,
        collection: &Collection,
        kind: WriteKind,
        uid: Option<String>,
        unchanged_since: Option<String>,
    ) -> OpenCharge<'_, C> {
        let (cluster, resource) = (collection.cluster.clone(), collection.resource);
        let expect = Expect { cluster, resource, key: self.key.clone(), kind, uid, unchanged_since };
        let charge = self.runtime.world.lock().barrier.open(self.charged, expect);
        OpenCharge { runtime: self.runtime, charge: Some(charge) }
    }
}

/// The effect of a failed write, as far as its outcome shows it.
fn settled_by(outcome: &WriteOutcome) -> Settled {
    if outcome.is_without_effect() { Settled::NotCommitted } else { Settled::Unknown }
}

/// Records the outcome of a patch.
fn record_patch<C: Contract>(
    charge: OpenCharge<'_, C>,
    result: Result<Written, kube::Error>,
) -> Result<(), Stop> {
    let outcome = WriteOutcome::of(&result);
    let settled = match &result {
        Ok(object) if object.is_removed() => Settled::Gone { uid: object.uid() },
        Ok(object) => object.committed(),
        Err(_) => settled_by(&outcome),
    };
    charge.record(settled);
    match outcome {
        WriteOutcome::Done => Ok(()),
        other => Err(stop(other)),
    }
}

/// A charge that is settled exactly once.
///
/// After a panic, dropping the charge settles it as an unknown outcome, which the runtime resolves
/// later ([`crate::outcomes`]). A charge that stays open would block its keys until the process
/// ends.
struct OpenCharge<'a, C: Contract> {
    runtime: &'a Runtime<C>,
    charge: Option<Charge>,
}

impl<C: Contract> OpenCharge<'_, C> {
    fn record(mut self, settled: Settled) {
        self.record_once(settled);
    }

    fn record_once(&mut self, settled: Settled) {
        let Some(charge) = self.charge.take() else { return };
        self.runtime.record_outcome(charge, settled);
    }
}

impl<C: Contract> Drop for OpenCharge<'_, C> {
    fn drop(&mut self) {
        self.record_once(Settled::Unknown);
    }
}

/// The result of a POST.
#[derive(Debug, Clone, PartialEq)]
pub enum Created {
    /// The API server created the object, and returned it. Admission webhooks may have changed it.
    Made {
        /// The labels of the new object.
        labels: BTreeMap<String, String>,
        /// The owner references of the new object.
        owners: Vec<OwnerReference>,
    },
    /// An object of that name existed. The caller must check its owners.
    WasThere {
        /// The owner references of the existing object.
        owners: Vec<OwnerReference>,
    },
}

/// Converts the outcome of a failed write to the end of the pass.
fn stop(outcome: WriteOutcome) -> Stop {
    match outcome {
        WriteOutcome::Done | WriteOutcome::Stale | WriteOutcome::AlreadyExists | WriteOutcome::NotFound => {
            Stop::Stale
        }
        WriteOutcome::Invalid { message, .. } | WriteOutcome::Denied { message } => Stop::refused(message),
        WriteOutcome::Throttled { .. } => {
            Stop::Unanswered("the API server is unreachable or throttles this client".to_owned())
        }
        WriteOutcome::Unknown { message } => Stop::Unanswered(message),
    }
}
