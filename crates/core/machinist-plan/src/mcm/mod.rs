//! The machine API of Gardener's machine-controller-manager.

mod deletion_order;
pub mod late_adoption;
mod live;
pub mod lost_owner;
pub mod machine;
pub mod machine_class;
pub mod machine_deployment;
pub mod machine_set;
pub mod orphaned_node;
pub mod refusal;
pub mod replacement;
pub mod rollout;
pub mod status;

#[cfg(test)]
mod toy;
