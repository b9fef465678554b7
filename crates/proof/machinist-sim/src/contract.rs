//! The contracts that can be simulated. Cases, runs, sweeps and the draws of a seed are the same
//! for each of them.

use std::fmt;

use crate::case::CaseOf;
use crate::faults::{Fault, LongKind, Victims};
pub use crate::mutation::Mutation;
use crate::run::{Depth, RunReport};

/// One contract: its scenarios, its faults, and the world that plays them.
pub trait SimulatedContract: Copy + fmt::Debug + Send + Sync + 'static {
    /// A scenario of the contract.
    type Scenario: Named + Send + Sync;
    /// A way in which the programs of the contract are broken on purpose.
    type Mutant: Mutation;

    /// Name of the contract on the command line.
    const NAME: &'static str;
    /// The beginning of the text of each case.
    const PREFIX: &'static str;
    /// The kinds of faults that a seed draws from. The order decides what a seed draws.
    const FAULTS: &'static [Fault];
    /// The kinds of faults that only runs with long faults draw from, in addition to the others.
    /// Their draws are separate, so they do not change what a seed draws otherwise.
    const FURTHER_FAULTS: &'static [Fault] = &[];
    /// The kinds of long faults that a seed draws from.
    const LONG_FAULTS: &'static [LongKind];
    /// Further kinds of long faults. Their draws are separate, so they do not change what a seed
    /// draws otherwise.
    const FURTHER_LONG_FAULTS: &'static [LongKind] = &[];
    /// The processes that die in a sweep, in turn.
    const VICTIMS: &'static [Victims];

    /// The mutant of that name.
    ///
    /// # Errors
    /// When no mutant has that name.
    fn mutant(name: &str) -> Result<Self::Mutant, String> {
        name.parse().map_err(|_| format!("{name:?} is not a mutant"))
    }

    /// All scenarios. The order decides what a seed draws.
    fn scenarios() -> &'static [Self::Scenario];

    /// Further scenarios. A separate draw decides whether a seed plays one of them.
    fn further_scenarios() -> &'static [Self::Scenario] {
        &[]
    }

    /// Scenarios that no seed draws.
    fn undrawn_scenarios() -> &'static [Self::Scenario] {
        &[]
    }

    /// Plays a case in a runtime with paused time.
    fn run(case: &CaseOf<Self>, depth: Depth) -> impl Future<Output = RunReport>;

    /// The scenario of that name.
    fn by_name(name: &str) -> Option<Self::Scenario> {
        let mut all =
            Self::scenarios().iter().chain(Self::further_scenarios()).chain(Self::undrawn_scenarios());
        all.find(|scenario| scenario.name() == name).copied()
    }
}

/// A value with a name in cases and reports.
pub trait Named: Copy + fmt::Debug {
    /// The name.
    fn name(&self) -> &'static str;

    /// Whether the scenario can end although this long fault happens.
    fn endures(&self, _: LongKind) -> bool {
        true
    }

    /// The long faults that the scenario is about. Most of its seeds draw one of them.
    fn is_about(&self) -> &'static [LongKind] {
        &[]
    }
}
