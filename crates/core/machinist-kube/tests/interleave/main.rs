//! Tests the queue and the barrier in all orders in which a few threads can take turns.
//!
//! The simulation runs on one thread, so two of its threads never meet inside the queue. These
//! tests use `loom`, which runs a scenario repeatedly. At each lock and each notice, loom continues
//! with another thread, until it has tried all orders with at most [`sync::PREEMPTIONS`]
//! interruptions. After a lost wake all threads wait forever, and loom reports that.
//! `LOOM_MAX_PREEMPTIONS=3 cargo test -p machinist-kube --test interleave` tries more orders and
//! takes minutes.
//!
//! The tests use the files of the product: this target compiles `src/queue.rs` and `src/barrier.rs`
//! with [`sync`] in place of the product's `src/sync.rs`. All other code (the store, tokio's
//! `Notify`) is the same as in the product.
//!
//! The tests use loom and not shuttle, because shuttle chooses random orders and needs `rand`. loom
//! can try all orders, because the code under test consists of a few short critical sections.

#![expect(dead_code, unreachable_pub, reason = "the scenarios use only a part of these files of the library")]

#[path = "../../src/backoff.rs"]
mod backoff;
#[path = "../../src/barrier.rs"]
mod barrier;
#[path = "../../src/queue.rs"]
mod queue;
mod sync;

mod cluster {
    pub(crate) use machinist_kube::cluster::Cluster;
}

/// The types of the store that the barrier uses.
mod store {
    pub(crate) use machinist_kube::store::{Change, ObjectKey};
}

mod barriers;
mod queues;
