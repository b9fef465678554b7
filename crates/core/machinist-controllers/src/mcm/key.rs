//! Keys of the work queue: one row per kind.

use std::time::Duration;

use machinist_kube::ObjectKey;

machinist_runtime::keys! {
    /// An object to decide about. Keys of all kinds share one queue.
    pub enum Key {
        /// A Machine.
        Machine(id: ObjectKey) = "machine",
        /// A MachineClass.
        Class(id: ObjectKey) = "machineclass" every Duration::from_millis(100),
        /// A Secret of the control cluster.
        Secret(id: ObjectKey) = "secret",
        /// The replacements among the Machines of one MachineDeployment, by its UID. For a
        /// MachineSet without a MachineDeployment, this is the UID of the set.
        Replacement(uid: String) = "replacement" every Duration::from_millis(100),
        /// A Machine whose MachineSet is unknown.
        Owner(id: ObjectKey) = "owner" every Duration::from_millis(100),
        /// A Node that is being deleted and that no Machine has, by its name.
        Node(name: String) = "node" every Duration::from_millis(100),
        /// The orphans of the account of a MachineClass. The name is the name of Go's queue.
        Orphans(class: ObjectKey) = "machinesafetyorphanvms" every Duration::from_secs(1),
        /// A bootstrap token whose Machine is gone, by its id.
        Token(id: String) = "token" every Duration::from_millis(100),
        /// A MachineSet.
        Set(id: ObjectKey) = "machineset" every Duration::from_millis(100),
        /// A MachineDeployment.
        Deployment(id: ObjectKey) = "machinedeployment" every Duration::from_millis(100),
    }
}
