//! Texts in `lastOperation.description` and condition messages that programs search for.
//!
//! All other prose is never parsed. These texts are the exception because Go MCM keeps the stage of
//! a deletion in prose: a controller that takes over a half-deleted Machine reads here where to
//! continue. A marker may be behind the actual stage, but never ahead of it.

/// A stage of a Machine's deletion, as its description names it. The variants have the order of the
/// stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeletionMarker {
    /// Look up the instance and its Node.
    FindInstance,
    /// Drain the Node.
    DrainNode,
    /// Delete the volume attachments that remain after a forced drain.
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

    /// Returns the text on the wire, in Go MCM's words.
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

    /// Returns the first marker, in the order of [`Self::ALL`], that the description contains.
    pub fn parse(description: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|marker| description.contains(marker.as_str()))
    }
}

impl std::fmt::Display for DeletionMarker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Description during creation: the instance exists but its initialization failed.
pub const INITIALIZE_INSTANCE: &str = "Initialize VM Instance";
/// Description during an update in place: the Node is drained.
pub const IN_PLACE_DRAIN_SUCCESSFUL: &str = "Node drain successful. Node is ready for update";
/// Description with phase Pending.
pub const CREATING: &str = "Creating machine on cloud provider";
/// Description with phase Available.
pub const CREATED: &str = "Created machine on cloud provider";
/// Description that the MachineSet writes when it deletes a Machine; names no stage.
pub const DELETING: &str = "Deleting machine from cloud provider";
/// Prefix of a description: creation failed. The cloud's message follows.
pub const CREATE_FAILURE_PREFIX: &str = "Cloud provider message - ";
/// Prefix of a description: initialization failed. The cloud's message follows.
pub const INITIALIZE_FAILURE_PREFIX: &str = "Provider error: ";
/// Description: the Node with the instance's name belongs to another instance.
pub const STALE_NODE: &str = "VM using old node obj";

/// Start of the message of the Node condition `Preserved`: the Node was drained.
pub const PRESERVED_NODE_DRAINED: &str = "Preserved node drained successfully.";
/// Start of the message of the Node condition `Preserved`: the Node could not be drained.
pub const PRESERVED_NODE_NOT_DRAINED: &str = "Preserved node could not be drained.";

/// Returns the description of a Machine with a Node that has just joined.
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
