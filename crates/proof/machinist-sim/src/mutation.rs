//! The properties of the mutants of all contracts.

use std::fmt;
use std::str::FromStr;

use machinist_core::reverted::Fix;
use strum::VariantArray;

use crate::invariants::Id;

/// One way in which the programs of a contract are broken on purpose.
pub trait Mutation:
    Copy + fmt::Debug + fmt::Display + FromStr + PartialEq + Send + Sync + VariantArray
{
    /// The invariant that must catch the mutant.
    fn caught_by(self) -> Id;

    /// A seed of `cargo xtask sim` that catches the mutant; none if no plain seed catches it.
    fn recorded(self) -> Option<u64>;

    /// The fix outside of the planners that the mutant takes back.
    fn reverts(self) -> Option<Fix> {
        None
    }
}
