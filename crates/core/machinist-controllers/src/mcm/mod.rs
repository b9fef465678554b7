//! The machine API of Gardener's machine-controller-manager.
//!
//! ```text
//! contract   watched kinds, keys, and which process decides about which kind
//! seen       the stores and the memory; feeds: which keys a changed object wakes
//! <kind>     collects the facts of a kind and performs its actions; same path as its planner
//! process    the machine controller and the manager; explain: the same without a controller
//! ```

mod adoption;
mod contract;
mod evidence;
mod explain;
mod feeds;
mod freeze;
mod key;
mod kinds;
mod lost_owner;
mod machine;
mod machine_class;
mod machine_deployment;
mod machine_set;
mod memory;
mod options;
mod orphaned_node;
mod process;
mod replacement;
mod seen;

use k8s_openapi::api::core::v1::ObjectReference;
use machinist_kube::ObjectKey;

pub use contract::Mcm;
pub use explain::{ExplainError, Explanation, explain};
pub use key::Key;
pub use options::{Entropy, MachineOptions, Options, Planners};
pub use process::{Inspector, MachineController, Manager, Running};

/// Returns the reference to an object of the machine API for Events.
fn reference(kind: &str, namespace: &str, name: &str, uid: &str) -> ObjectReference {
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
fn object_key(namespace: &str, name: &str) -> ObjectKey {
    ObjectKey::new(namespace, name)
}
