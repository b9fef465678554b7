//! The queue and the barrier under every order in which a few threads can take turns.
//!
//! The simulation runs on one thread, so it never sees two threads meet inside the queue. Here `loom` does: it runs a scenario again
//! and again, and at each lock and each notice lets another thread go on, until it has tried every order with at most
//! [`sync::PREEMPTIONS`] interruptions. A lost wake shows itself as threads that all wait for ever, which loom reports.
//! `LOOM_MAX_PREEMPTIONS=3 cargo test -p machinist-kube --test interleave` tries more, for minutes.
//!
//! The files under test are the product's own: this target compiles `src/queue.rs` and `src/barrier.rs` with [`sync`] in the place of the
//! product's `src/sync.rs`. Everything else (store, tokio's `Notify`) is what the product uses.
//!
//! loom and not shuttle: shuttle draws orders at random and needs `rand`; loom tries them all, which is possible because the code under
//! test is a few short critical sections.

#![expect(dead_code, unreachable_pub, reason = "files of the library, of which the scenarios need a part")]

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

/// What the barrier reads of a store.
mod store {
    pub(crate) use machinist_kube::store::{Change, ObjectKey};
}

mod barriers;
mod queues;
