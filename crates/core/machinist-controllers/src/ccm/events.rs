//! Events of the cloud-controller-manager, and the objects that they are about.

use k8s_openapi::api::core::v1::ObjectReference;
use machinist_kube::recorder::EventType;
use machinist_plan::{EventText, Severity};

use super::contract::Runtime;
use super::options::SETTINGS_NAMESPACE;

/// Returns the reference to a core object for Events.
pub(super) fn reference(kind: &str, namespace: Option<&str>, name: &str, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some(kind.to_owned()),
        namespace: namespace.map(str::to_owned),
        name: Some(name.to_owned()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    }
}

/// Returns the reference for Events about no single object: the ConfigMap with the settings of this
/// program.
pub(super) fn reference_of_program(runtime: &Runtime) -> ObjectReference {
    let name = &runtime.tools.options.settings_name;
    ObjectReference { uid: None, ..reference("ConfigMap", Some(SETTINGS_NAMESPACE), name, "") }
}

/// Emits an Event, and remembers that it was emitted. `subject` names the object in memory.
pub(super) fn tell(runtime: &Runtime, object: &ObjectReference, subject: &str, event: &EventText) {
    let kind = match event.severity {
        Severity::Normal => EventType::Normal,
        Severity::Warning => EventType::Warning,
    };
    runtime.recorder.record(object, kind, event.reason, &event.message);
    let now = runtime.now();
    runtime.lock().seen.memory.note_emitted(subject, event, now);
}
