//! The infrastructure providers of Cluster API: containers, and requests by mail.
//!
//! ```text
//! contract    watched kinds, keys, and which provider runs
//! core        Cluster and Machine in the version that the cluster serves
//! seen        the stores and the memory; feeds: which keys a changed object wakes
//! engine      opens the engine and starts its calls; workload: access to workload clusters
//! mail        starts the calls of the mail service; own_calls: remembers these calls
//! patch       patches of status and claim
//! <kind>      collects the facts of a kind and performs its actions; same path as its planner
//! process     the process; explain: the same without a controller
//! ```

mod contract;
mod core;
mod docker_cluster;
mod docker_machine;
mod engine;
mod explain;
mod feeds;
mod key;
mod kinds;
mod mail;
mod mailgun_cluster;
mod mailgun_machine;
mod options;
mod own_calls;
mod patch;
mod process;
mod seen;
mod workload;

use k8s_openapi::api::core::v1::ObjectReference;
use machinist_kube::ObjectKey;
use machinist_kube::recorder::EventType;
use machinist_plan::capi::conditions::Trouble;
use machinist_plan::capi::facts::ObjectFacts;

pub use contract::Capi;
pub use explain::{ExplainError, Explanation, explain};
pub use key::Key;
pub use options::{CapiOptions, CoreApi, DockerOptions, MailOptions, Planners, Serves};
pub use process::{CapiProvider, Inspector, Running};
pub use workload::{KubeWorkloads, WorkloadClusters};

/// Returns the key of an object.
fn key_of(object: &ObjectFacts) -> ObjectKey {
    ObjectKey::new(&object.namespace, &object.name)
}

/// Returns the reference to an object for Events.
fn reference(kind: &str, object: &ObjectFacts) -> ObjectReference {
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
fn report_problems(runtime: &contract::Runtime, about: &ObjectReference, troubles: &[Trouble<'_>]) {
    for Trouble { reason, message } in troubles {
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
