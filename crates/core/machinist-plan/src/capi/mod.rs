//! The infrastructure providers of Cluster API: containers, and requests by mail.
//!
//! ```text
//! docker_cluster     the load balancer and the failure domains of a cluster
//! docker_machine     one container: creation, bootstrap, its Node, deletion
//! mailgun_cluster, mailgun_machine   when a request is sent, and when it is fulfilled
//! mail               sends a request at most once, even if processes crash
//! gates              owner, pause, claim: what comes before any work
//! conditions         conditions in both formats, and their summary
//! kubeconfig, node   access to a workload cluster, and the Node of a container
//! retry              when a failed call of the engine is repeated
//! facts, why         as in each contract
//! ```
//!
//! Core controllers (Cluster, Machine) and the providers only share API objects. So a decision
//! rests on objects that may be older than each other, or missing: a restored or moved object has
//! another UID and no status.
//!
//! Deliberately absent: decisions about the number of machines, drains and rollouts. The core
//! controllers of Cluster API make them.

mod calls;
pub mod conditions;
pub mod docker_cluster;
pub mod docker_machine;
pub mod facts;
mod gates;
pub mod kubeconfig;
pub mod mail;
pub mod mailgun_cluster;
pub mod mailgun_machine;
pub mod node;
mod retry;
mod why;

pub use gates::{Claim, is_paused};
pub use why::{CapiReason, Plan, Reason, Why};
