//! Names of condition types.

/// On a Node, written by its kubelet.
pub const NODE_READY: &str = "Ready";
/// On a Node, written by the node-problem-detector.
pub const NODE_READONLY_FILESYSTEM: &str = "ReadonlyFilesystem";
/// On a Node: the Node is drained for its deletion.
pub const NODE_TERMINATING: &str = "Terminating";
/// On a Node: progress of an update in place.
pub const NODE_IN_PLACE_UPDATE: &str = "InPlaceUpdate";
/// On a Node: whether the Node is preserved.
pub const NODE_PRESERVED: &str = "Preserved";

/// On a MachineDeployment: enough Machines are available.
pub const AVAILABLE: &str = "Available";
/// On a MachineDeployment: the rollout makes progress or is complete.
pub const PROGRESSING: &str = "Progressing";
/// On MachineSets and MachineDeployments: creating or deleting a Machine failed.
pub const REPLICA_FAILURE: &str = "ReplicaFailure";
/// On MachineSets and MachineDeployments: no more Machines are created.
pub const FROZEN: &str = "Frozen";
