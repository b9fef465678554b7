//! Who controls an object: taken and left, only while its owners are as they were read.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use machinist_kube::{GuardedPatch, ObjectKey};
use serde_json::Value;

use crate::contract::{Contract, Stop};
use crate::feed::{Fed, refresh};
use crate::runtime::Runtime;

/// Makes sure, at the API server itself, that an object is still there and not on its way out, before it adopts another.
///
/// Our view may be older than a deletion that means to leave the children behind. Adopted again, they would go with it.
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

/// Makes `controller` the controller of the object, or nobody; `read` are all its owner references, as they were read.
///
/// References of others that control nothing stay, whoever made them: they keep the object, or are told by it, and both is
/// their business.
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
    fn an_object_without_owners_is_taken_while_it_has_none() {
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
    fn owners_that_control_nothing_are_tested_as_they_were_read_and_kept() {
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
    fn leaving_takes_away_nothing_but_the_controller() {
        let (ours, theirs) = (reference("ours", Some(true)), reference("theirs", Some(false)));
        let read = value(&[ours, theirs.clone()]);
        let patch = wire(controlled_by("u1", Some(&read), None));
        assert_eq!(patch[2]["value"], value(&[theirs]));
    }
}
