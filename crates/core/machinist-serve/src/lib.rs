//! The HTTP port of a process.
//!
//! ```text
//! accept       accepts connections up to a limit
//! loopback     HTTP for an API that only clients on the same host call
//! door         prepares a connection, for example with TLS, and decides who gets an answer
//! connections  HTTP on a connection: timeouts, a maximum age, an answer by path
//! endpoints    health, readiness, metrics and reasons of a process that implements Inspect
//! profiler     the CPU profile of the process, for `go tool pprof`
//! metrics      the measured values of a process, as Prometheus text
//! summaries    the sums and numbers of values, for metrics
//! ```
//!
//! The crate depends on no other crate of the workspace. So it names no kind of object and no
//! contract: [`Inspect`] is all that it knows about a process.

mod accept;
mod connections;
mod door;
mod endpoints;
mod inspect;
mod loopback;
mod metrics;
mod profiler;
mod summaries;

pub use accept::accept;
pub use connections::{answer_all, answer_behind};
pub use door::{Door, OpenDoor, Rejection};
pub use endpoints::{answer_with_metrics, listen, serve, serve_behind, serve_metrics};
pub use inspect::{Inspect, ProcessReadiness};
pub use loopback::{ListenError, LoopbackApi, LoopbackServer, serve_connection};
pub use metrics::{
    Announced, CHANGE_SECONDS, Counter, Gauge, Histogram, Labels, Metrics, REQUEST_SECONDS, Sample, Summary,
    WAIT_SECONDS, samples_of,
};
pub use profiler::Profiler;
