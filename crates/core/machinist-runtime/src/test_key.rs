//! A queue key for the tests of this crate.

use std::fmt;

use crate::key::QueueKey;

/// A key that is a name or a number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TestKey<T>(pub(crate) T);

impl<T: Clone + Ord + fmt::Debug + fmt::Display + Send + Sync + 'static> QueueKey for TestKey<T> {
    fn kind(&self) -> &'static str {
        "test"
    }

    fn named(_: &str, _: &str, _: &str) -> Option<Self> {
        None
    }
}

impl<T: fmt::Display> fmt::Display for TestKey<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
