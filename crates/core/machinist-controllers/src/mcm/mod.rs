//! The machine API of Gardener's machine-controller-manager.
//!
//! ```text
//! contract   watched kinds, keys, and which process decides about which kind
//! seen       the stores and the memory; feeds: which keys a changed object wakes
//! <kind>     collects the facts of a kind and performs its actions; same path as its planner
//! measure    the metrics of Go's machine-controller-manager
//! process    the machine controller and the manager; explain: the same without a controller
//! ```

mod account_proof;
mod adoption;
mod contract;
mod explain;
mod feeds;
mod freeze;
mod key;
mod kinds;
mod lost_owner;
mod machine;
mod machine_class;
mod machine_deployment;
mod machine_list;
mod machine_set;
mod measure;
mod memory;
mod namespace;
mod options;
mod orphan;
mod orphaned_node;
mod orphaned_token;
mod process;
mod reference;
mod replacement;
mod seen;
mod server_freeze;

pub use contract::Mcm;
pub use explain::{ExplainError, Explanation, explain};
pub use key::Key;
pub use measure::{announce_machine_controller, announce_manager};
pub use options::{Entropy, MachineOptions, Options, Planners, ServerLimits};
pub use process::{Inspector, MachineController, Manager, Observing, Running};
