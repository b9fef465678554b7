//! Changes the controller of an object, provided that its owner references did not change since
//! they were read.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use machinist_kube::outcome::existing;
use machinist_kube::{GuardedPatch, ObjectKey};
use serde_json::Value;

use crate::contract::{Contract, Stop};
use crate::feed::Fed;
use crate::runtime::Runtime;
use crate::take_in::refresh;

/// Checks with the API server that an object exists and is not being deleted, before it adopts
/// another object.
///
/// The store may be older than a deletion with orphaned children. If the object adopted an orphaned
/// child again, the garbage collector would delete the child with it.
pub async fn stays<C: Contract, F: Fed<C>>(
    runtime: &Runtime<C>,
    key: &ObjectKey,
    uid: &str,
) -> Result<(), Stop> {
    match refresh::<C, F>(runtime, key).await {
        Ok(Some(entry)) if entry.uid == uid && !entry.deleting => Ok(()),
        Ok(_) => Err(Stop::Stale),
        Err(error) => Err(Stop::Unanswered(error.to_string())),
    }
}

/// Reads the metadata of a child from the API server, and returns its resourceVersion if the child
/// with that UID still has that controller. A child that is gone or was released returns `None`.
///
/// The store may be older than a deletion with orphaned children. A DELETE with this
/// resourceVersion as its precondition cannot reach a child that was released since.
pub async fn version_if_owned<C: Contract, F: Fed<C>>(
    runtime: &Runtime<C>,
    key: &ObjectKey,
    uid: &str,
    owner_uid: &str,
) -> Result<Option<String>, Stop> {
    let api = F::api(runtime, &key.namespace);
    let read = existing(api.get_metadata(&key.name).await);
    let read = read.map_err(|error| Stop::Unanswered(error.to_string()))?;
    let metadata = read.map(|object| object.metadata);
    let Some(metadata) = metadata.filter(|metadata| metadata.uid.as_deref() == Some(uid)) else {
        return Ok(None);
    };
    let controls = |owner: &OwnerReference| owner.controller == Some(true) && owner.uid == owner_uid;
    if !metadata.owner_references.iter().flatten().any(controls) {
        tracing::info!(object = %key, "Kept an object that its deleted owner has released");
        return Ok(None);
    }
    metadata.resource_version.map(Some).ok_or(Stop::Stale)
}

/// Creates the patch that makes `controller` the controller of the object, or removes the
/// controller if it is `None`. `read` contains all owner references, as they were read.
///
/// The patch keeps the references of owners that are not controllers, because other clients rely on
/// them.
pub fn controlled_by(uid: &str, read: Option<&Value>, controller: Option<&OwnerReference>) -> GuardedPatch {
    let path = ["metadata", "ownerReferences"];
    let others = read.and_then(Value::as_array).into_iter().flatten().filter(|reference| {
        let controls = reference.get("controller").and_then(Value::as_bool) == Some(true);
        let is_the_same = controller.is_some_and(|new| {
            reference.get("uid").and_then(Value::as_str).is_some_and(|owner| owner == new.uid)
        });
        !controls && !is_the_same
    });
    let controller = controller.and_then(|controller| serde_json::to_value(controller).ok());
    let all: Vec<Value> = others.cloned().chain(controller).collect();
    GuardedPatch::new(uid).test(&path, read).add(&path, Value::Array(all))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn reference(uid: &str, controller: Option<bool>) -> OwnerReference {
        OwnerReference {
            api_version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            name: format!("the-{uid}"),
            uid: uid.to_owned(),
            controller,
            block_owner_deletion: None,
        }
    }

    fn wire(patch: GuardedPatch) -> Value {
        let kube::api::Patch::Json(patch) = patch.into_kube() else { panic!("a JSON patch") };
        serde_json::to_value(patch).expect("a patch is JSON")
    }

    fn value(references: &[OwnerReference]) -> Value {
        serde_json::to_value(references).expect("references are JSON")
    }

    #[test]
    fn a_controller_is_added_if_there_are_no_owners() {
        let ours = reference("ours", Some(true));
        assert_eq!(
            wire(controlled_by("u1", None, Some(&ours))),
            json!([
                { "op": "test", "path": "/metadata/uid", "value": "u1" },
                { "op": "test", "path": "/metadata/ownerReferences", "value": null },
                { "op": "add", "path": "/metadata/ownerReferences", "value": value(&[ours]) },
            ])
        );
    }

    #[test]
    fn other_owners_are_tested_and_kept() {
        let (ours, theirs) = (reference("ours", Some(true)), reference("theirs", None));
        let read = value(&[theirs.clone(), reference("ours", Some(false))]);
        assert_eq!(
            wire(controlled_by("u1", Some(&read), Some(&ours))),
            json!([
                { "op": "test", "path": "/metadata/uid", "value": "u1" },
                { "op": "test", "path": "/metadata/ownerReferences", "value": read },
                { "op": "add", "path": "/metadata/ownerReferences", "value": value(&[theirs, ours]) },
            ])
        );
    }

    #[test]
    fn release_removes_only_the_controller() {
        let (ours, theirs) = (reference("ours", Some(true)), reference("theirs", Some(false)));
        let read = value(&[ours, theirs.clone()]);
        let patch = wire(controlled_by("u1", Some(&read), None));
        assert_eq!(patch[2]["value"], value(&[theirs]));
    }
}
