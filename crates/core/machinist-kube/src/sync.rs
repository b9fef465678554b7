//! The locks, notices and clock that the queue and the barrier use.
//!
//! `tests/interleave` compiles `queue.rs` and `barrier.rs` with its own module of this name. With
//! its locks and notices, the test decides which thread continues. The tests also have their own
//! clock.

pub(crate) use std::sync::{Mutex, MutexGuard};
pub(crate) use tokio::sync::Notify;
pub(crate) use tokio::time::{Instant, sleep_until};
