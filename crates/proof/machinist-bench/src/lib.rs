//! Benchmarks and crash tests of the controllers, and a benchmark of the embedded API server.
//!
//! ```text
//! scale   0 -> N machines -> 0: the time it takes, and the load on the API server
//! kill    scaling, rollouts and drains while either controller is killed at drawn points: the result must be correct all the same
//! ccm     N Nodes that the cloud controller manager initialises, then an idle hour: its writes and calls
//! capi    N containers of Cluster API, against the limit of their engine: the time it takes, and the requests
//! apiserver   one mix of requests to the embedded API server and to kube-apiserver with etcd, side by side
//! ```
//!
//! The first four judge from outside: from the requests that API servers recorded (`requests`),
//! from the objects, and from the cloud. They do not query the controllers. xtask starts
//! real clusters and describes them in a variable (`clusters`).
//!
//! Deliberately absent: verdicts on behaviour under faults (machinist-sim has those, in simulated
//! time), and figures that come from neither the API server nor the operating system.

pub mod apiserver;
pub mod capi;
pub mod ccm;
pub mod kill;
pub mod scale;

mod cluster_state;
mod clusters;
mod embedded;
mod loopback;
mod objects;
mod pair;
mod program;
mod progress;
mod report;
mod requests;
