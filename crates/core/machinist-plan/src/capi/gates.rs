//! The conditions before any work on an object: its owner, its Cluster, and the claim.
//!
//! A claim is one patch with the finalizer, the key and the engine. It is the intent: no call that
//! creates something begins before the claim was read back. Key and engine are in annotations,
//! because these survive a move or a restore, after which the object has another UID.

use machinist_api::capi::constants;
use machinist_core::Step;
use machinist_instance::AccountId;

use crate::capi::facts::{ClusterFacts, ObjectFacts};
use crate::capi::why::{CapiReason, Why};

/// The finalizer and the annotations that record that something of an object may exist outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The finalizer.
    pub finalizer: &'static str,
    /// Value of the annotation [`constants::KEY_ANNOTATION`].
    pub key: String,
    /// Value of the annotation [`constants::ENGINE_ANNOTATION`].
    pub engine: String,
}

/// Returns the claim to write; absent if the object is claimed.
///
/// An object that records an engine keeps it, also if today's engine is another one.
pub(super) fn claim(object: &ObjectFacts, finalizer: &'static str, engine: &AccountId) -> Option<Claim> {
    let recorded = recorded_engine(object);
    let is_claimed = object.has_finalizer(finalizer) && object.recorded_key().is_some() && recorded.is_some();
    if is_claimed {
        return None;
    }
    let key = object.recorded_key().map(|unique| format!("{}/{}/{unique}", object.namespace, object.name));
    Some(Claim {
        finalizer,
        key: key.unwrap_or_else(|| object.new_key()),
        engine: recorded.unwrap_or_else(|| engine.clone()).as_str().to_owned(),
    })
}

/// Whether the object was restored or moved after its claim. Then it is newer than what its key
/// names.
pub(super) fn has_another_birth(object: &ObjectFacts) -> bool {
    object.recorded_key() != Some(object.uid.as_str())
}

/// Returns why nothing is created for one of two objects with the same key or container.
pub(super) fn key_taken(other: &str) -> Why {
    let fix = format!(
        "remove the annotations {} and {} from the copied object",
        constants::KEY_ANNOTATION,
        constants::CONTAINER_ID_ANNOTATION
    );
    Why::new(CapiReason::KeyTaken { object: other.to_owned() }, Step::Fix(fix))
}

/// Returns why nothing is deleted for one of two objects with the same key or container. Only a
/// user knows which of them is the copy.
pub(super) fn deleted_with_key_taken(other: &str) -> Why {
    let fix = format!(
        "if this object is the copy, set annotation {}=true; otherwise remove the annotations {} and {} from {other}",
        constants::ABANDON_ANNOTATION,
        constants::KEY_ANNOTATION,
        constants::CONTAINER_ID_ANNOTATION
    );
    Why::new(CapiReason::KeyTaken { object: other.to_owned() }, Step::Fix(fix))
}

/// Returns the engine on which a container of the object may exist.
pub(super) fn recorded_engine(object: &ObjectFacts) -> Option<AccountId> {
    AccountId::recorded(object.annotation(constants::ENGINE_ANNOTATION)?)
}

/// Whether a user has given up the containers of the object.
pub(super) fn is_abandoned(object: &ObjectFacts) -> bool {
    object.annotation(constants::ABANDON_ANNOTATION) == Some("true")
}

/// Whether the object or its Cluster is paused.
pub fn is_paused(object: &ObjectFacts, cluster: Option<&ClusterFacts>) -> bool {
    object.is_paused() || cluster.is_some_and(|cluster| cluster.is_paused)
}
