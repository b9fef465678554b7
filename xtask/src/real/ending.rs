//! The result of a lane that gets no clusters: it passed, or it cannot run on this computer.

/// How a lane without clusters ended.
pub(super) enum Ending {
    Passed,
    Skipped(String),
}
