//! Names of finalizers.

/// On Machines (from before an instance may exist until it is deleted), on MachineClasses in use,
/// and on MachineSets and MachineDeployments.
pub const MACHINE_CONTROLLER_MANAGER: &str = "machine.sapcloud.io/machine-controller-manager";
/// On Secrets of the control cluster that a MachineClass refers to.
pub const SECRET: &str = "machine.sapcloud.io/machine-controller";
/// On Nodes that belong to a Machine.
pub const NODE: &str = "node.machine.sapcloud.io/machine-controller";
/// Of the garbage collector, on objects that are deleted without their children.
pub const ORPHAN: &str = "orphan";

/// Whether the garbage collector still has to release the children of an object that is being
/// deleted.
pub fn has_orphan(finalizers: Option<&[String]>) -> bool {
    finalizers.unwrap_or_default().iter().any(|finalizer| finalizer == ORPHAN)
}
