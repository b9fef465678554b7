//! Keys of the work queue: one row per kind.

use std::time::Duration;

use machinist_kube::ObjectKey;

machinist_runtime::keys! {
    /// Something to decide about. Keys of all kinds share one queue.
    pub enum Key {
        /// The list of the account's instances.
        Account = "account" every Duration::from_millis(100),
        /// A Node, by its name.
        Node(name: String) = "node",
        /// The deletion of Nodes, all in one decision.
        NodeRemoval = "noderemoval" every Duration::from_millis(100),
        /// The set of Nodes behind all load balancers.
        Backends = "backends" every Duration::from_secs(2),
        /// A Service.
        Service(id: ObjectKey) = "service",
        /// The list of the account's load balancers.
        BalancerDrift = "balancerdrift" every Duration::from_millis(100),
        /// All routes.
        Routes = "routes" every Duration::from_secs(1),
    }
}
