//! The cloud-controller-manager: Nodes, load balancers of Services, and routes.
//!
//! ```text
//! contract    watched kinds, keys, and which controllers run
//! credential  the credential of the cloud, as a feed
//! seen        the stores; memory: answers of the cloud; feeds: which keys a changed object wakes
//! cloud       opens the account and starts its calls; evidence: which account showed what
//! measure     metrics of events
//! <kind>      collects the facts of a kind and performs its actions; same path as its planner
//! process     the process; explain: the same without a controller
//! ```

mod account;
mod backends;
mod balancer_drift;
mod cloud;
mod contract;
mod credential;
mod evidence;
mod explain;
mod feeds;
mod key;
mod kinds;
mod measure;
mod memory;
mod node;
mod node_removal;
mod options;
mod process;
mod route;
mod seen;
mod service;

use k8s_openapi::api::core::v1::ObjectReference;
use machinist_kube::recorder::EventType;
use machinist_plan::{EventText, Severity};

use contract::Runtime;

pub use contract::Ccm;
pub use credential::{CredentialSource, Versioned};
pub use explain::{ExplainError, Explanation, explain};
pub use key::Key;
pub use options::{CcmOptions, Controllers, Planners};
pub use process::{CloudControllerManager, Inspector, Running};

/// Returns the reference to a core object for Events.
fn reference(kind: &str, namespace: Option<&str>, name: &str, uid: &str) -> ObjectReference {
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
fn reference_of_program(runtime: &Runtime) -> ObjectReference {
    let name = &runtime.tools.options.settings_name;
    ObjectReference { uid: None, ..reference("ConfigMap", Some(options::SETTINGS_NAMESPACE), name, "") }
}

/// Emits an Event, and remembers that it was emitted. `subject` names the object in memory.
fn tell(runtime: &Runtime, object: &ObjectReference, subject: &str, event: &EventText) {
    let kind = match event.severity {
        Severity::Normal => EventType::Normal,
        Severity::Warning => EventType::Warning,
    };
    runtime.recorder.record(object, kind, event.reason, &event.message);
    let now = runtime.now();
    runtime.lock().seen.memory.note_told(subject, event, now);
}
