//! Facts of the Nodes and Services that the cloud-controller-manager serves, and of the Machines
//! that have Nodes.

mod balancer_record;
mod machine;
mod node;
mod service;

pub use balancer_record::BalancerRecord;
pub use machine::OwningMachineFacts;
pub use node::{CloudNodeFacts, NodeConditionFacts};
pub use service::{ServiceFacts, ServicePortFacts};

use crate::facts::hash_by_version;

hash_by_version!(CloudNodeFacts, ServiceFacts);
