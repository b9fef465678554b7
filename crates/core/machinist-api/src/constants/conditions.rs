//! Condition types.

/// On a Node, from its kubelet.
pub const NODE_READY: &str = "Ready";
/// On a Node, from the node-problem-detector.
pub const NODE_READONLY_FILESYSTEM: &str = "ReadonlyFilesystem";
/// On a Node: it is being drained for its deletion.
pub const NODE_TERMINATING: &str = "Terminating";
/// On a Node: how far an update in place is.
pub const NODE_IN_PLACE_UPDATE: &str = "InPlaceUpdate";
/// On a Node: whether it is preserved.
pub const NODE_PRESERVED: &str = "Preserved";

/// On a MachineDeployment: enough Machines are available.
pub const AVAILABLE: &str = "Available";
/// On a MachineDeployment: the rollout goes on or is done.
pub const PROGRESSING: &str = "Progressing";
/// On MachineSets and MachineDeployments: Machines could not be made or deleted.
pub const REPLICA_FAILURE: &str = "ReplicaFailure";
/// On MachineSets and MachineDeployments: no more Machines are made.
pub const FROZEN: &str = "Frozen";
