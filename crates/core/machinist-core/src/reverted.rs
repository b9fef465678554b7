//! Fixes that the simulator takes back, to prove that it would find their bugs again.
//!
//! Most fixes are in planners, and the simulator replaces those. Other code asks here. Without the
//! feature `reverts`, which no shipped program has, each answer is a constant.

/// A fix outside of the planners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fix {
    /// A Node that gets or loses the taint of the autoscaler changes the targets of load balancers:
    /// at once, and in the check every ten minutes.
    TaintsChangeTargets,
    /// A key pauses when its actions repeat in a circle.
    CirclesPause,
    /// After a leader that did not release its Lease, deletions that depend on a count of objects
    /// wait a minute.
    TakeoverWaits,
    /// The place in which an instance was created wins over the place that its class names now.
    PlacesAreRecorded,
    /// A list of an account leaves out the instances of other namespaces.
    NamespacesAreCompared,
    /// The call that deletes an orphan looks for its Node once more.
    NodesKeepInstances,
}

#[cfg(feature = "reverts")]
mod switch {
    use std::cell::Cell;

    thread_local! {
        // Each simulated run has one thread.
        pub(super) static REVERTED: Cell<Option<super::Fix>> = const { Cell::new(None) };
    }
}

/// Whether this thread takes the fix back.
#[cfg(feature = "reverts")]
pub fn is_reverted(fix: Fix) -> bool {
    switch::REVERTED.get() == Some(fix)
}

/// Whether this thread takes the fix back: no shipped program does.
#[cfg(not(feature = "reverts"))]
pub const fn is_reverted(_: Fix) -> bool {
    false
}

/// Takes a fix back on this thread, or none. Without the feature `reverts`, it has no effect.
pub fn revert(fix: Option<Fix>) {
    #[cfg(feature = "reverts")]
    switch::REVERTED.set(fix);
    #[cfg(not(feature = "reverts"))]
    let _ = fix;
}
