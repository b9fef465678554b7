//! The infrastructure providers of Cluster API: containers, and requests by mail.
//!
//! ```text
//! contract    watched kinds, keys, and which provider runs
//! versioned   Cluster and Machine in the version that the cluster serves
//! seen        the stores and the memory; feeds: which keys a changed object wakes
//! engine      opens the engine and starts its calls
//! workload    completes Nodes in workload clusters; workload_clusters: their clients
//! mail        starts the calls of the mail service; own_calls: remembers these calls
//! patch       patches of status and claim
//! <kind>      collects the facts of a kind and performs its actions; same path as its planner
//! process     the process; explain: the same without a controller
//! ```

mod contract;
mod docker_cluster;
mod docker_machine;
mod engine;
mod events;
mod explain;
mod feeds;
mod key;
mod kinds;
mod mail;
mod mailgun_cluster;
mod mailgun_machine;
mod options;
mod own_calls;
mod patch;
mod process;
mod seen;
mod versioned;
mod workload;
mod workload_clusters;

pub use contract::Capi;
pub use explain::{ExplainError, Explanation, explain};
pub use key::Key;
pub use options::{CapiOptions, CoreApi, DockerOptions, MailOptions, Planners, Serves};
pub use process::{CapiProvider, Inspector, Running};
pub use workload_clusters::{KubeWorkloads, WorkloadClusters};
