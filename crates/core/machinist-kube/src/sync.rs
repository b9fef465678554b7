//! What the queue and the barrier use of threads and of time.
//!
//! They take it from here, so that `tests/interleave` can compile the same two files with other things of these names: locks and
//! notices at which it decides which thread goes on, and a clock of its own.

pub(crate) use std::sync::{Mutex, MutexGuard};
pub(crate) use tokio::sync::Notify;
pub(crate) use tokio::time::{Instant, sleep_until};
