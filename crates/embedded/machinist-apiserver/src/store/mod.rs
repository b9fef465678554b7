//! The store: one revision counter, every kept version of every object, and the ordered event log.
//!
//! This one structure answers lists at a revision, paging, `resourceVersionMatch=Exact`, 410, watch
//! resume and the simulator's stale replicas. Nothing is serialised while the store's lock is held.
//!
//! With a data folder, `storage` saves each commit before it is shown. The store then has two ends.
//! The next write builds on its head; all reads and watches stop at the newest saved revision. The
//! answer to a write is sent when the part of the head that the request saw is saved. This includes
//! rejections, because they may rest on commits that are not visible yet.

pub(crate) mod commits;
pub(crate) mod mvcc;
pub(crate) mod node_index;
pub(crate) mod page;
pub(crate) mod selector;
pub(crate) mod watch;
