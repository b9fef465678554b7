//! Events of the providers, and the objects that they are about.

use k8s_openapi::api::core::v1::ObjectReference;
use machinist_kube::ObjectKey;
use machinist_kube::recorder::EventType;
use machinist_plan::capi::conditions::Problem;
use machinist_plan::capi::facts::ObjectFacts;

use super::contract::Runtime;

/// Returns the key of an object.
pub(super) fn key_of(object: &ObjectFacts) -> ObjectKey {
    ObjectKey::new(&object.namespace, &object.name)
}

/// Returns the reference to an object for Events.
pub(super) fn reference(kind: &str, object: &ObjectFacts) -> ObjectReference {
    ObjectReference {
        api_version: Some(machinist_api::capi::API_VERSION.to_owned()),
        kind: Some(kind.to_owned()),
        namespace: Some(object.namespace.clone()),
        name: Some(object.name.clone()),
        uid: Some(object.uid.clone()),
        ..ObjectReference::default()
    }
}

/// Writes an Event and a line of the log for each problem that a written status is the first to
/// report.
pub(super) fn report_problems(runtime: &Runtime, about: &ObjectReference, new_problems: &[Problem<'_>]) {
    for Problem { reason, message } in new_problems {
        tracing::warn!(
            kind = about.kind,
            namespace = about.namespace,
            name = about.name,
            reason,
            message,
            "A problem began"
        );
        runtime.recorder.record(about, EventType::Warning, reason, message);
    }
}
