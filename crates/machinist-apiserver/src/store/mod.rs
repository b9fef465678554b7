//! The store: one revision counter, every kept version of every object, and the ordered log of what happened.
//!
//! Lists at a revision, paging, `resourceVersionMatch=Exact`, 410, watch resume and the simulator's stale replicas are all
//! answered from this one structure. Nothing is serialised while its lock is held. Persistence is absent; it would hook
//! into [`mvcc::Store::commit`].

pub(crate) mod mvcc;
pub(crate) mod page;
pub(crate) mod selector;
pub(crate) mod watch;
