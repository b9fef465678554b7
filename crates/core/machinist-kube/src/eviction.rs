//! Evictions of a pod by name and UID, so that another pod of the same name is never evicted.
//!
//! `kube::Api::evict` is not used: it writes the delete options into a field that API servers
//! ignore, so a precondition in the options would have no effect.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::Eviction;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ObjectMeta, Preconditions};
use kube::api::PostParams;
use kube::{Api, Error};
use serde_json::Value;

/// Requests the eviction of the pod `name` if the pod has this UID.
///
/// # Errors
/// Returns the error of the request. [`EvictionOutcome`](crate::outcome::EvictionOutcome)
/// classifies the error. If the pod has another UID, the error is a conflict.
pub async fn evict(pods: &Api<Pod>, name: &str, uid: &str) -> Result<(), Error> {
    let eviction = Eviction {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        delete_options: Some(DeleteOptions {
            preconditions: Some(Preconditions { uid: Some(uid.to_owned()), ..Preconditions::default() }),
            ..DeleteOptions::default()
        }),
    };
    let _done: Value = pods.create_subresource("eviction", name, &PostParams::default(), &eviction).await?;
    Ok(())
}
