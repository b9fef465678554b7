//! The kinds of the machine API: one row each, and the queue key that they make.

use machinist_kube::ObjectKey;

use super::contract::Mcm;
use super::lost_owner::LostOwners;
use super::machine::Machines;
use super::machine_class::{Classes, Secrets};
use super::machine_deployment::Deployments;
use super::machine_set::Sets;
use super::orphaned_node::OrphanedNodes;
use super::replacement::Replacements;

machinist_runtime::kinds! {
    /// An object to decide about. Keys of all kinds share one queue.
    pub enum Key of Mcm {
        /// A Machine.
        Machine(id: ObjectKey) => Machines,
        /// A MachineClass.
        Class(id: ObjectKey) => Classes,
        /// A Secret of the control cluster.
        Secret(id: ObjectKey) => Secrets,
        /// The replacements among the Machines of one MachineDeployment, by its UID. For a
        /// MachineSet without a MachineDeployment, this is the UID of the set.
        Replacement(uid: String) => Replacements,
        /// A Machine whose MachineSet is unknown.
        Owner(id: ObjectKey) => LostOwners,
        /// A Node that is being deleted and that no Machine has, by its name.
        Node(name: String) => OrphanedNodes,
        /// A MachineSet.
        Set(id: ObjectKey) => Sets,
        /// A MachineDeployment.
        Deployment(id: ObjectKey) => Deployments,
    }
}
