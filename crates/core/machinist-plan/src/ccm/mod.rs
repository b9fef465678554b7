//! The cloud-controller-manager: Nodes, load balancers of Services, and routes.
//!
//! ```text
//! node            initialises a Node, follows its instance, taints it while that is stopped
//! node_removal    deletes the Nodes of missing instances: one decision for all Nodes
//! service         creates, updates and deletes the load balancer of a Service
//! balancer_drift  lists the load balancers, to find those that other programs changed
//! route           routes of the pod networks, and the condition NetworkUnavailable
//! account         lists the instances of the account: all Nodes share the result
//! budget          the remaining calls of the account, and which calls wait for more
//! backends        the Nodes behind load balancers
//! addresses, node_labels, taints, cidr, names             rules without state
//! facts, why      as in each contract
//! ```
//!
//! Each planner has a `Snapshot` with all facts, an `Action` that is one call, and a function
//! `plan`. A Node has one key for `node`; `node_removal`, `route`, `balancer_drift` and `account`
//! have one key each for the whole cluster, because several objects share their limits.
//!
//! Creating Nodes and instances is deliberately absent: the kubelet and the machine API do that.

pub mod account;
pub mod addresses;
pub mod backends;
pub mod balancer_drift;
mod budget;
pub mod cidr;
pub mod facts;
pub mod listed_balancers;
pub mod names;
pub mod node;
pub mod node_labels;
pub mod node_removal;
pub mod route;
pub mod service;
pub mod taints;
mod why;

#[cfg(test)]
mod toy;

pub use why::{BrakeRule, CcmReason, Plan, Reason, Why};
