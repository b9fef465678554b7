//! One write: charged before it is sent, and settled by what its answer means.

use std::future::Future;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Resource, ResourceExt};
use machinist_kube::barrier::{Charge, Expect, Settled, WriteKind};
use machinist_kube::{GuardedPatch, ObjectKey, WriteOutcome};

use crate::contract::{Contract, Stop};
use crate::feed::{Fed, resource_version};
use crate::runtime::Runtime;

/// One write of an object that this process watches.
pub struct Write<'a, C: Contract> {
    /// The process that writes.
    pub runtime: &'a Runtime<C>,
    /// The keys that count what it changes: none of them is decided about before the store shows it.
    pub charged: &'a [C::Key],
    /// The object.
    pub key: ObjectKey,
}

impl<C: Contract> Write<'_, C> {
    /// Patches the object, if the patch changes anything.
    pub async fn patch<F: Fed<C>>(&self, patch: GuardedPatch) -> Result<(), Stop> {
        self.patch_as::<F>(WriteKind::Update, patch).await
    }

    /// Patches the object so that others are deleted for it, if the patch changes anything.
    pub async fn patch_that_takes_away<F: Fed<C>>(&self, patch: GuardedPatch) -> Result<(), Stop> {
        self.patch_as::<F>(WriteKind::TakeAway, patch).await
    }

    /// Patches the status of the object.
    pub async fn patch_status<F: Fed<C>>(&self, patch: GuardedPatch) -> Result<(), Stop> {
        self.patch_status_as::<F>(WriteKind::Update, patch).await
    }

    /// Patches the status of the object so that it is deleted.
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

    /// Patches the status of a built-in object by strategic merge; `patch` names the UID.
    pub async fn merge_status<F: Fed<C>>(&self, patch: serde_json::Value) -> Result<(), Stop> {
        let api = self.api::<F>();
        let params = PatchParams::default();
        let patch = Patch::Strategic(patch);
        self.send::<F>(WriteKind::Update, api.patch_status(&self.key.name, &params, &patch)).await
    }

    /// Creates the object. Its name is fixed, so a repeated POST cannot make a second one.
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
        charge.settle(settled);
        match outcome {
            WriteOutcome::Done => Ok(Created::Made),
            other => Err(stop(other)),
        }
    }

    /// There is an object of that name already: of an earlier POST of ours, whose answer was lost, or somebody else's. The charge
    /// stays open until the store shows it, or whoever counts would miss it.
    async fn read_existing<K>(&self, api: &Api<K>, charge: OpenCharge<'_, C>) -> Result<Created, Stop>
    where
        K: Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
    {
        match api.get_opt(&self.key.name).await {
            Ok(Some(existing)) => {
                charge.settle(committed(&existing));
                Ok(Created::WasThere { owners: existing.owner_references().to_vec() })
            }
            // It went in between: the next pass may make it.
            Ok(None) => {
                charge.settle(Settled::NotCommitted);
                Err(Stop::Stale)
            }
            Err(error) => {
                charge.settle(Settled::Unknown);
                Err(Stop::Unanswered(error.to_string()))
            }
        }
    }

    /// Deletes the object of that UID; deleting what is gone succeeds.
    pub async fn delete<F: Fed<C>>(&self, uid: &str) -> Result<(), Stop> {
        let api = self.api::<F>();
        let params = by_uid(uid);
        let charge = self.open::<F>(WriteKind::Delete, Some(uid.to_owned()));
        let result = api.delete(&self.key.name, &params).await;
        let outcome = WriteOutcome::of(&result);
        let settled = match &result {
            Ok(either::Either::Left(object)) => committed(object),
            Ok(either::Either::Right(_)) => Settled::Deleted { uid: uid.to_owned() },
            Err(_) if outcome == WriteOutcome::NotFound => Settled::Deleted { uid: uid.to_owned() },
            Err(_) if outcome.is_without_effect() => Settled::NotCommitted,
            Err(_) => Settled::Unknown,
        };
        charge.settle(settled);
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
        charge.settle(settled);
        match outcome {
            WriteOutcome::Done => Ok(()),
            other => Err(stop(other)),
        }
    }

    fn api<F: Fed<C>>(&self) -> Api<F::Object> {
        F::api(self.runtime, &self.key.namespace)
    }

    fn open<F: Fed<C>>(&self, kind: WriteKind, uid: Option<String>) -> OpenCharge<'_, C> {
        let expect =
            Expect { cluster: F::cluster(), resource: F::RESOURCE, key: self.key.clone(), kind, uid };
        let charge = self.runtime.world.lock().barrier.open(self.charged, expect);
        OpenCharge { runtime: self.runtime, charge: Some(charge) }
    }
}

/// Deletes an object only if it has that UID.
pub(crate) fn by_uid(uid: &str) -> DeleteParams {
    let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() }
}

/// A charge that is settled once. Whoever panics before that leaves an unknown outcome behind, which is settled by repeating the
/// write; a charge that stayed open would hold its keys for ever.
struct OpenCharge<'a, C: Contract> {
    runtime: &'a Runtime<C>,
    charge: Option<Charge>,
}

impl<C: Contract> OpenCharge<'_, C> {
    fn settle(mut self, settled: Settled) {
        self.settle_once(settled);
    }

    fn settle_once(&mut self, settled: Settled) {
        let Some(charge) = self.charge.take() else { return };
        self.runtime.settle_charge(charge, settled);
    }
}

impl<C: Contract> Drop for OpenCharge<'_, C> {
    fn drop(&mut self) {
        self.settle_once(Settled::Unknown);
    }
}

/// What a POST came to.
#[derive(Debug, Clone, PartialEq)]
pub enum Created {
    /// It made the object.
    Made,
    /// There was one of that name. Whose it is must be looked at.
    WasThere {
        /// Its owners.
        owners: Vec<OwnerReference>,
    },
}

/// Whether this write was the object's last: nothing holds it any more.
fn is_removed(object: &impl Resource) -> bool {
    object.meta().deletion_timestamp.is_some() && object.finalizers().is_empty()
}

pub(crate) fn committed(object: &impl Resource) -> Settled {
    Settled::Committed {
        uid: object.uid().unwrap_or_default(),
        resource_version: resource_version(object.resource_version().as_deref()),
    }
}

/// What a write that did not succeed means for the pass.
fn stop(outcome: WriteOutcome) -> Stop {
    match outcome {
        WriteOutcome::Done | WriteOutcome::Stale | WriteOutcome::AlreadyExists | WriteOutcome::NotFound => {
            Stop::Stale
        }
        WriteOutcome::Invalid { message, .. } | WriteOutcome::Denied { message } => Stop::refused(message),
        WriteOutcome::Throttled { .. } => {
            Stop::Unanswered("the API server cannot be reached, or asks for patience".to_owned())
        }
        WriteOutcome::Unknown { message } => Stop::Unanswered(message),
    }
}
