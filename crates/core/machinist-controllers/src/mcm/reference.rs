//! References to objects of the machine API: for Events, and for the queue.

use k8s_openapi::api::core::v1::ObjectReference;
use machinist_kube::ObjectKey;
use machinist_plan::mcm::facts::MachineFacts;

/// Returns the reference to a Machine for Events.
pub(super) fn machine_reference(machine: &MachineFacts) -> ObjectReference {
    reference("Machine", &machine.namespace, &machine.name, &machine.uid)
}

/// Returns the reference to an object of the machine API for Events.
pub(super) fn reference(kind: &str, namespace: &str, name: &str, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("machine.sapcloud.io/v1alpha1".to_owned()),
        kind: Some(kind.to_owned()),
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    }
}

/// Returns the key of an object.
pub(super) fn object_key(namespace: &str, name: &str) -> ObjectKey {
    ObjectKey::new(namespace, name)
}
