//! Measures the two controllers, and kills them.
//!
//! ```text
//! scale   0 -> N machines -> 0: how long it takes, and what it costs the API server
//! kill    3 -> 50 -> 0 while either controller is killed at drawn points: what must come out all the same
//! ```
//!
//! Both are judged from outside: by what API servers recorded ([`requests`]), by the objects, and by the cloud's ledger. Nothing is
//! asked of the controllers. Real clusters are started by xtask, which describes them in a variable ([`clusters`]).
//!
//! Deliberately absent: verdicts on behaviour under faults (machinist-sim has those, in simulated time) and figures that are not the API
//! server's or the operating system's.

pub mod clusters;
pub mod kill;
pub mod requests;
pub mod scale;

mod cluster_state;
mod loopback;
mod objects;
mod program;
