//! The change and the origin of one commit: the types that the store and the storage share.
//!
//! Lists of commits are deliberately absent. The store keeps the event log, and the storage keeps
//! the queue of commits that are not on disk yet.

pub(crate) mod event;
pub(crate) mod origin;
