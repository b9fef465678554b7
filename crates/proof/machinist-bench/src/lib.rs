//! Measures the two controllers, and kills them; measures the embedded API server.
//!
//! ```text
//! scale   0 -> N machines -> 0: how long it takes, and what it costs the API server
//! kill    3 -> 50 -> 0 while either controller is killed at drawn points: what must come out all the same
//! apiserver   one mix of requests to the embedded API server and to kube-apiserver with etcd, side by side
//! ```
//!
//! The first two are judged from outside: by what API servers recorded ([`requests`]), by the objects, and by the cloud's ledger. Nothing is
//! asked of the controllers. Real clusters are started by xtask, which describes them in a variable ([`clusters`]).
//!
//! Deliberately absent: verdicts on behaviour under faults (machinist-sim has those, in simulated time) and figures that are not the API
//! server's or the operating system's.

pub mod apiserver;
pub mod clusters;
pub mod kill;
pub mod requests;
pub mod scale;

mod cluster_state;
mod loopback;
mod objects;
mod program;
