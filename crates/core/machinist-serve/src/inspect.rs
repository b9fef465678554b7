//! The state of a process that the endpoints show.

use serde_json::Value;

/// A process whose state the endpoints show. Clones show the same process.
pub trait Inspect: Clone + Send + Sync + 'static {
    /// The component name of the process, as in Events.
    fn component(&self) -> &str;

    /// The namespace that the process serves.
    fn namespace(&self) -> &str;

    /// Whether the process is ready, with the text for a user.
    fn readiness(&self) -> ProcessReadiness;

    /// Which loop of the process does not turn, if one does not. Waiting for a server is not a
    /// stall.
    fn stall(&self) -> Option<String> {
        None
    }

    /// The effective configuration; absent if the process shows none. It contains no secret.
    fn config(&self) -> Option<Value> {
        None
    }

    /// All metrics of the process, in the text format of Prometheus.
    fn metrics(&self) -> String;

    /// The last decisions about all objects, rendered.
    fn decisions(&self) -> Vec<Value>;

    /// The last decision about one object, rendered; `None` if there was none yet. The process
    /// may ask the cloud of the object whether it answers. Kinds of which there is one object have
    /// an empty name.
    fn decision(&self, kind: &str, name: &str) -> impl Future<Output = Option<Value>> + Send;
}

/// Whether a process is ready, with the body of the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcessReadiness {
    /// The process works, or can take over at any moment.
    Ready(String),
    /// The process does not work yet.
    NotReady(String),
}
