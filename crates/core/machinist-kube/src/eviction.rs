//! Evictions that reach one pod and no other of its name.
//!
//! `kube::Api::evict` writes the options of the deletion under a name that no server knows, so a precondition among them would guard nothing.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::Eviction;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ObjectMeta, Preconditions};
use kube::api::PostParams;
use kube::{Api, Error};
use serde_json::Value;

/// Asks for the eviction of the pod `name`, if it still has this UID.
///
/// # Errors
/// Those of the request; [`EvictionOutcome`](crate::outcome::EvictionOutcome) says what they mean. A pod of another UID is a conflict.
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
