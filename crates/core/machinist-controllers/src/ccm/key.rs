//! The kinds of the cloud-controller-manager: one row each, and the queue key that they make.

use machinist_kube::ObjectKey;

use super::account::AccountLists;
use super::backends::BackendSets;
use super::balancer_drift::BalancerDrifts;
use super::contract::Ccm;
use super::node::Nodes;
use super::node_removal::NodeRemovals;
use super::route::RouteTables;
use super::service::Services;

machinist_runtime::kinds! {
    /// Something to decide about. Keys of all kinds share one queue.
    pub enum Key of Ccm {
        /// The list of the account's instances.
        Account => AccountLists,
        /// A Node, by its name.
        Node(name: String) => Nodes,
        /// The deletion of Nodes, all in one decision.
        NodeRemoval => NodeRemovals,
        /// The set of Nodes behind all load balancers.
        Backends => BackendSets,
        /// A Service.
        Service(id: ObjectKey) => Services,
        /// The list of the account's load balancers.
        BalancerDrift => BalancerDrifts,
        /// All routes.
        Routes => RouteTables,
    }
}
