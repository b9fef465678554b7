//! Facts of the Machine of a Node.

use jiff::Timestamp;
use machinist_api::Machine;
use machinist_instance::NodeName;

/// The fields of a Machine that a decision about its Node reads: the machine API deletes the Node
/// of a Machine itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwningMachineFacts {
    /// Name of its Node. Until the Machine records it, a Node would have the name of the Machine.
    pub node_name: String,
    /// Deletion timestamp; absent unless the Machine is being deleted.
    pub deleting_since: Option<Timestamp>,
}

impl OwningMachineFacts {
    /// Reads a Machine.
    pub fn parse(machine: &Machine) -> Self {
        let metadata = &machine.metadata;
        let recorded = machine.node_name().and_then(NodeName::new).map(|name| name.to_string());
        Self {
            node_name: recorded.or_else(|| metadata.name.clone()).unwrap_or_default(),
            deleting_since: metadata.deletion_timestamp.as_ref().map(|time| time.0),
        }
    }
}
