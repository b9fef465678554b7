//! Writes to API servers.
//!
//! The runtime opens a charge before it sends a write, and records the outcome from the answer.

use std::future::Future;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Resource, ResourceExt};
use machinist_kube::barrier::{Charge, Expect, Settled, WriteKind};
use machinist_kube::{GuardedPatch, ObjectKey, WriteOutcome};

use crate::contract::{Contract, Stop};
use crate::feed::Fed;
use crate::runtime::Runtime;
use crate::take_in::resource_version;

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
    pub async fn patch<F: Fed<C>>(&self, patch: GuardedPatch) -> Result<(), Stop> {
        self.patch_as::<F>(WriteKind::Update, patch).await
    }

    /// Patches the object, unless the patch is empty. As a result, other objects are deleted.
    pub async fn patch_that_takes_away<F: Fed<C>>(&self, patch: GuardedPatch) -> Result<(), Stop> {
        self.patch_as::<F>(WriteKind::TakeAway, patch).await
    }

    /// Patches the status of the object.
    pub async fn patch_status<F: Fed<C>>(&self, patch: GuardedPatch) -> Result<(), Stop> {
        self.patch_status_as::<F>(WriteKind::Update, patch).await
    }

    /// Patches the status of the object. As a result, the object is deleted.
    pub async fn patch_status_that_takes_away<F: Fed<C>>(&self, patch: GuardedPatch) -> Result<(), Stop> {
        self.patch_status_as::<F>(WriteKind::TakeAway, patch).await
    }

    async fn patch_as<F: Fed<C>>(&self, kind: WriteKind, patch: GuardedPatch) -> Result<(), Stop> {
        if patch.is_empty() {
            return Ok(());
        }
        let (api, params, patch) = (self.api::<F>(), PatchParams::default(), patch.into_kube());
        self.send::<F>(kind, api.patch(&self.key.name, &params, &patch)).await
    }

    async fn patch_status_as<F: Fed<C>>(&self, kind: WriteKind, patch: GuardedPatch) -> Result<(), Stop> {
        let (api, params, patch) = (self.api::<F>(), PatchParams::default(), patch.into_kube());
        self.send::<F>(kind, api.patch_status(&self.key.name, &params, &patch)).await
    }

    /// Patches the status of a built-in object by strategic merge. `patch` contains the UID.
    pub async fn merge_status<F: Fed<C>>(&self, patch: serde_json::Value) -> Result<(), Stop> {
        let api = self.api::<F>();
        let params = PatchParams::default();
        let patch = Patch::Strategic(patch);
        self.send::<F>(WriteKind::Update, api.patch_status(&self.key.name, &params, &patch)).await
    }

    /// Creates the object. Its name is fixed, so a repeated POST cannot create a second object.
    pub async fn create<F: Fed<C>>(&self, object: &F::Object) -> Result<Created, Stop>
    where
        F::Object: serde::Serialize,
    {
        let api = self.api::<F>();
        let charge = self.open::<F>(WriteKind::Create, None);
        let params = PostParams::default();
        let result = api.create(&params, object).await;
        let outcome = WriteOutcome::of(&result);
        if outcome == WriteOutcome::AlreadyExists {
            return self.read_existing(&api, charge).await;
        }
        let settled = match &result {
            Ok(made) => committed(made),
            Err(_) if outcome.is_without_effect() => Settled::NotCommitted,
            Err(_) => Settled::Unknown,
        };
        charge.record(settled);
        match outcome {
            WriteOutcome::Done => Ok(Created::Made),
            other => Err(stop(other)),
        }
    }

    /// Reads the existing object of that name. An earlier POST of this process with a lost answer
    /// or another client created it. The charge stays open until the store shows the object,
    /// because the planner would not count it before.
    async fn read_existing<K>(&self, api: &Api<K>, charge: OpenCharge<'_, C>) -> Result<Created, Stop>
    where
        K: Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
    {
        match api.get_opt(&self.key.name).await {
            Ok(Some(existing)) => {
                charge.record(committed(&existing));
                Ok(Created::WasThere { owners: existing.owner_references().to_vec() })
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

    /// Deletes the object with that UID. Deleting a missing object succeeds.
    pub async fn delete<F: Fed<C>>(&self, uid: &str) -> Result<(), Stop> {
        self.delete_if::<F>(WriteKind::Delete, uid, None).await
    }

    /// Deletes the object with that UID, which the controller chose among several; if a version is
    /// given, only that version of it. If the answer is lost, the controller chooses again.
    pub async fn delete_chosen<F: Fed<C>>(&self, uid: &str, version: Option<&str>) -> Result<(), Stop> {
        self.delete_if::<F>(WriteKind::DeleteChosen, uid, version).await
    }

    /// Deletes the object with that UID, unless a client has changed it since it had that
    /// resourceVersion.
    pub async fn delete_unchanged<F: Fed<C>>(&self, uid: &str, resource_version: &str) -> Result<(), Stop> {
        self.delete_if::<F>(WriteKind::Delete, uid, Some(resource_version)).await
    }

    async fn delete_if<F: Fed<C>>(
        &self,
        kind: WriteKind,
        uid: &str,
        unchanged_since: Option<&str>,
    ) -> Result<(), Stop> {
        let api = self.api::<F>();
        let params = preconditions(uid, unchanged_since);
        let unchanged_since = unchanged_since.map(str::to_owned);
        let charge = self.open_as::<F>(kind, Some(uid.to_owned()), unchanged_since);
        let result = api.delete(&self.key.name, &params).await;
        let outcome = WriteOutcome::of(&result);
        let settled = match &result {
            Ok(either::Either::Left(object)) => committed(object),
            Ok(either::Either::Right(_)) => Settled::Deleted { uid: uid.to_owned() },
            Err(_) if outcome == WriteOutcome::NotFound => Settled::Deleted { uid: uid.to_owned() },
            Err(_) if outcome.is_without_effect() => Settled::NotCommitted,
            Err(_) => Settled::Unknown,
        };
        charge.record(settled);
        match outcome {
            WriteOutcome::Done | WriteOutcome::NotFound => Ok(()),
            other => Err(stop(other)),
        }
    }

    async fn send<F: Fed<C>>(
        &self,
        kind: WriteKind,
        request: impl Future<Output = Result<F::Object, kube::Error>>,
    ) -> Result<(), Stop> {
        let charge = self.open::<F>(kind, None);
        let result = request.await;
        let outcome = WriteOutcome::of(&result);
        let settled = match &result {
            Ok(object) if is_removed(object) => Settled::Gone { uid: object.uid().unwrap_or_default() },
            Ok(object) => committed(object),
            Err(_) if outcome.is_without_effect() => Settled::NotCommitted,
            Err(_) => Settled::Unknown,
        };
        charge.record(settled);
        match outcome {
            WriteOutcome::Done => Ok(()),
            other => Err(stop(other)),
        }
    }

    fn api<F: Fed<C>>(&self) -> Api<F::Object> {
        F::api(self.runtime, &self.key.namespace)
    }

    fn open<F: Fed<C>>(&self, kind: WriteKind, uid: Option<String>) -> OpenCharge<'_, C> {
        self.open_as::<F>(kind, uid, None)
    }

    fn open_as<F: Fed<C>>(
        &self,
        kind: WriteKind,
        uid: Option<String>,
        unchanged_since: Option<String>,
    ) -> OpenCharge<'_, C> {
        let key = self.key.clone();
        let expect = Expect { cluster: F::cluster(), resource: F::RESOURCE, key, kind, uid, unchanged_since };
        let charge = self.runtime.world.lock().barrier.open(self.charged, expect);
        OpenCharge { runtime: self.runtime, charge: Some(charge) }
    }
}

/// Parameters that delete an object only if it has that UID, and that resourceVersion if one is
/// given.
pub(crate) fn preconditions(uid: &str, unchanged_since: Option<&str>) -> DeleteParams {
    let preconditions =
        Preconditions { uid: Some(uid.to_owned()), resource_version: unchanged_since.map(str::to_owned) };
    DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() }
}

/// A charge that is settled exactly once.
///
/// After a panic, dropping the charge settles it as an unknown outcome, which the runtime resolves
/// later ([`crate::outcomes`]). A charge that stays open would block its keys for ever.
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
    /// The API server created the object.
    Made,
    /// An object of that name existed. The caller must check its owners.
    WasThere {
        /// The owner references of the existing object.
        owners: Vec<OwnerReference>,
    },
}

/// Whether the write removed the object: it is being deleted and has no finalizers left.
fn is_removed(object: &impl Resource) -> bool {
    object.meta().deletion_timestamp.is_some() && object.finalizers().is_empty()
}

pub(crate) fn committed(object: &impl Resource) -> Settled {
    Settled::Committed {
        uid: object.uid().unwrap_or_default(),
        resource_version: resource_version(object.resource_version().as_deref()),
    }
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
