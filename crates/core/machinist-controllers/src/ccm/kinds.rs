//! Which kind of the cloud-controller-manager decides about which key.

use super::account::AccountLists;
use super::backends::BackendSets;
use super::balancer_drift::BalancerDrifts;
use super::contract::Ccm;
use super::key::Key;
use super::node::Nodes;
use super::node_removal::NodeRemovals;
use super::route::RouteTables;
use super::service::Services;

machinist_runtime::kinds! {
    Key of Ccm {
        Account => AccountLists,
        Node(name) => Nodes,
        NodeRemoval => NodeRemovals,
        Backends => BackendSets,
        Service(id) => Services,
        BalancerDrift => BalancerDrifts,
        Routes => RouteTables,
    }
}
