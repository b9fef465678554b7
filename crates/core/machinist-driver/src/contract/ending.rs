//! How a case ends.

/// The return type of a case. The operator `?` ends a case early.
pub(crate) type Played<T = ()> = Result<T, Ending>;

/// The reason why a case ends early.
#[derive(Debug)]
pub(crate) enum Ending {
    Skip(String),
    Fail(String),
}
