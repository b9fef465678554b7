//! The machine API of Gardener's machine-controller-manager.
//!
//! ```text
//! machine             creates, joins, watches, drains and deletes one Machine
//! machine_set         the Machines of a set; deletion_order: which go first
//! machine_deployment  the sets of a deployment; rollout: the steps between two templates
//! replacement         which unhealthy Machines of a deployment are replaced: one key for all
//! machine_class       holds a class and its Secret while Machines use them
//! orphan              deletes instances that no Machine has
//! orphaned_node       releases a Node whose Machine is gone
//! orphaned_token      deletes a bootstrap token whose Machine is gone
//! late_adoption, lost_owner, live, refusal, status   rules that several kinds share
//! node_choice         which Node is the Node of a Machine
//! drain               which pods leave a Node, and how
//! reads               reads from the API server, because a store may be older
//! facts, why          as in each contract
//! ```

mod deletion_order;
pub mod drain;
pub mod facts;
pub mod late_adoption;
mod live;
pub mod lost_owner;
pub mod machine;
pub mod machine_class;
pub mod machine_deployment;
pub mod machine_set;
pub mod node_choice;
pub mod orphan;
pub mod orphaned_node;
pub mod orphaned_token;
mod reads;
pub mod refusal;
pub mod replacement;
pub mod rollout;
pub mod server_freeze;
pub mod status;
#[cfg(test)]
mod toy;
mod why;

pub use reads::{LeaseRead, NodeRead, NodeSeen, PodList, Reads, Renewal, TargetSilence};
pub use why::{Deadline, McmReason, Plan, Reason, Step, TokenUse, Why};
