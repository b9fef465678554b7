//! The cloud-controller-manager: Nodes, load balancers of Services, and routes.
//!
//! ```text
//! contract    watched kinds, keys, and which controllers run
//! credential  the credential of the cloud; credential_feed: the same as a feed
//! seen        the stores; memory: answers of the cloud; feeds: which keys a changed object wakes
//! cloud       opens the account and starts its calls; account_proof: which account showed what
//! measure     metrics of events
//! <kind>      collects the facts of a kind and performs its actions; same path as its planner
//! process     the process; explain: the same without a controller
//! ```

mod account;
mod account_proof;
mod backends;
mod balancer_drift;
mod cloud;
mod contract;
mod credential;
mod credential_feed;
mod events;
mod explain;
mod feeds;
mod key;
mod kinds;
mod measure;
mod memory;
mod node;
mod node_removal;
mod options;
mod process;
mod route;
mod seen;
mod service;

pub use contract::Ccm;
pub use credential::{CredentialSource, Versioned};
pub use explain::{ExplainError, Explanation, explain};
pub use key::Key;
pub use options::{CcmOptions, Controllers, Planners};
pub use process::{CloudControllerManager, Inspector, Running};
