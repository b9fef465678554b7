//! Texts in `lastOperation.description` and condition messages that programs search for.
//!
//! Prose is otherwise never parsed. These are the exception because Go MCM keeps the stage of a deletion in prose: whoever
//! takes over a half-deleted Machine finds out here where to go on. A marker may lag reality, never lead it.

/// A stage of a Machine's deletion, as its description names it. The order is the order of the stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeletionMarker {
    /// Find out which Node the instance has.
    FindInstance,
    /// Drain the Node.
    DrainNode,
    /// Delete the volume attachments that a forced drain left.
    DeleteVolumeAttachments,
    /// Delete the instance.
    DeleteInstance,
    /// Delete the Node.
    DeleteNode,
    /// Remove the Machine's finalizer.
    RemoveFinalizer,
}

impl DeletionMarker {
    /// All markers, in the order in which a description is searched for them.
    pub const ALL: [Self; 6] = [
        Self::FindInstance,
        Self::DrainNode,
        Self::DeleteVolumeAttachments,
        Self::DeleteInstance,
        Self::DeleteNode,
        Self::RemoveFinalizer,
    ];

    /// The text on the wire. Its words are Go MCM's.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::FindInstance => "Set machine status to termination. Now, getting VM Status",
            Self::DrainNode => "Initiate node drain",
            Self::DeleteVolumeAttachments => "Delete Volume Attachments",
            Self::DeleteInstance => "Initiate VM deletion",
            Self::DeleteNode => "Initiate node object deletion",
            Self::RemoveFinalizer => "Initiate machine object finalizer removal",
        }
    }

    /// The first marker, in the order of [`Self::ALL`], that the description contains.
    pub fn parse(description: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|marker| description.contains(marker.as_str()))
    }
}

impl std::fmt::Display for DeletionMarker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Creation: the instance exists but its initialisation failed.
pub const INITIALIZE_INSTANCE: &str = "Initialize VM Instance";
/// Update in place: drained.
pub const IN_PLACE_DRAIN_SUCCESSFUL: &str = "Node drain successful. Node is ready for update";
/// With phase Pending.
pub const CREATING: &str = "Creating machine on cloud provider";
/// With phase Available.
pub const CREATED: &str = "Created machine on cloud provider";
/// Written by the set that deletes a Machine; names no stage.
pub const DELETING: &str = "Deleting machine from cloud provider";
/// Prefix: creation failed, the cloud's answer follows.
pub const CREATE_FAILURE_PREFIX: &str = "Cloud provider message - ";
/// Prefix: initialisation failed, the cloud's answer follows.
pub const INITIALIZE_FAILURE_PREFIX: &str = "Provider error: ";
/// The instance found a Node of its name that is not its own.
pub const STALE_NODE: &str = "VM using old node obj";
/// The health timeout started again because an API server could not be reached.
pub const HEALTH_TIMEOUT_RESET: &str = "Machine Health Timeout was reset due to APIServer being unreachable";

/// Message of the Node condition `Preserved` begins with this: drained.
pub const PRESERVED_NODE_DRAINED: &str = "Preserved node drained successfully.";
/// Message of the Node condition `Preserved` begins with this: not drained.
pub const PRESERVED_NODE_NOT_DRAINED: &str = "Preserved node could not be drained.";

/// Description of a Machine whose Node has just joined.
pub fn joined(machine: &str) -> String {
    format!("Machine {machine} successfully joined the cluster")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_searched_in_the_order_of_the_stages() {
        for (description, expected) in [
            ("Drain successful. Initiate VM deletion", Some(DeletionMarker::DeleteInstance)),
            (
                "Drain failed due to - eviction of Initiate VM deletion. Will retry. Initiate node drain",
                Some(DeletionMarker::DrainNode),
            ),
            (
                "Deletion of Node Object \"w-1\" is successful. Initiate machine object finalizer removal",
                Some(DeletionMarker::RemoveFinalizer),
            ),
            (DELETING, None),
            (CREATING, None),
            ("", None),
        ] {
            assert_eq!(DeletionMarker::parse(description), expected, "for {description:?}");
        }
        for marker in DeletionMarker::ALL {
            assert_eq!(DeletionMarker::parse(marker.as_str()), Some(marker));
        }
    }
}
