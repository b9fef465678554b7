//! The store: one revision counter, every kept version of every object, and the ordered log of what happened.
//!
//! Lists at a revision, paging, `resourceVersionMatch=Exact`, 410, watch resume and the simulator's stale replicas are all
//! answered from this one structure. Nothing is serialised while its lock is held.
//!
//! With a data folder, `storage` saves each commit before it is shown. The store then has two ends: its head, on which the next
//! write builds, and the newest saved revision, at which everybody reads and up to which watchers are told. A request that changes
//! something is answered when what it saw of the head is saved, a refusal included: it may rest on what nobody has seen yet.

pub(crate) mod commits;
pub(crate) mod event;
pub(crate) mod key;
pub(crate) mod mvcc;
pub(crate) mod page;
pub(crate) mod selector;
pub(crate) mod watch;
