//! The lists of cases.

use futures::future::BoxFuture;

use super::bench::Bench;
use super::ending::Played;

/// A rule, and the function that checks it.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) play: for<'a> fn(&'a Bench<'a>) -> BoxFuture<'a, Played>,
}

/// Builds the list of cases from their functions, so that the name of a rule is written once.
macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        pub(crate) const CASES: &[$crate::contract::case::Case] = &[$(
            $crate::contract::case::Case { name: stringify!($name), play: |bench| Box::pin($name(bench)) }
        ),*];
    };
}
pub(crate) use cases;
