//! One run, named by a line of text. A failure prints this line, and the line repeats the run.
//!
//! ```text
//! rollout/17                       the scenario in the world that seed 17 draws
//! rollout/17/calm                  without faults
//! rollout/1/calm/crash=after:9:both     with both processes killed at that point
//! rollout/17/mutant=uid-check      with that mutant of the program
//! rollout/17/long                  with the workload and the long faults that seed 17 draws
//! rollout/17/long=down:60:1800:0+no-stock:0:600:0     with these long faults
//! ccm/ip-reuse/17                  a scenario of the cloud-controller-manager
//! ```

use std::fmt;
use std::str::FromStr;

use machinist_core::reverted;
use tokio::runtime::Runtime;

use crate::contract::{Mutation as _, Named, SimulatedContract};
use crate::faults::{Crash, Fault, LongFault, Profile, Victims};
use crate::mcm::SimulatedMcm;
use crate::run::{Depth, RunReport};
use crate::seed::Seed;
use crate::sweep::{Sweepable, SweptRun};

/// The variable that names a run to repeat.
pub const REPLAY: &str = "MACHINIST_REPLAY";

/// The full description of one run of the machine API.
pub type Case = CaseOf<SimulatedMcm>;

/// The full description of one run.
#[derive(Debug, Clone)]
pub struct CaseOf<C: SimulatedContract> {
    /// The scenario.
    pub scenario: C::Scenario,
    /// The seed of all draws.
    pub seed: Seed,
    /// The faults.
    pub weather: Weather,
    /// The long faults.
    pub long: Long,
    /// The planned crash.
    pub crash: Option<Crash>,
    /// The mutant of the program.
    pub mutant: Option<C::Mutant>,
}

/// The faults of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Weather {
    /// No faults.
    Calm,
    /// Faults drawn from the seed.
    Swarm,
    /// These faults, at these rates per thousand.
    Faults(Vec<(Fault, u32)>),
}

/// The long faults of a run, and its workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Long {
    /// No long faults, and the usual workload.
    None,
    /// Long faults and a workload drawn from the seed.
    Drawn,
    /// These long faults, and a workload drawn from the seed.
    These(Vec<LongFault>),
}

/// The share of seeds that play a further scenario, per thousand.
const FURTHER_SCENARIOS: u32 = 250;

impl<C: SimulatedContract> CaseOf<C> {
    /// A scenario in a world without faults.
    pub fn calm(scenario: C::Scenario, seed: u64) -> Self {
        let (seed, weather, long) = (Seed(seed), Weather::Calm, Long::None);
        Self { scenario, seed, weather, long, crash: None, mutant: None }
    }

    /// A scenario in the world that a seed draws.
    pub fn swarm(scenario: C::Scenario, seed: u64) -> Self {
        Self { weather: Weather::Swarm, ..Self::calm(scenario, seed) }
    }

    /// The case that a seed draws: its scenario, its workload, and the faults of its world.
    pub fn drawn(seed: u64) -> Self {
        let mut stream = Seed(seed).stream("further scenario");
        let further =
            stream.happens(FURTHER_SCENARIOS).then(|| stream.pick(C::further_scenarios())).flatten();
        let drawn = further.or_else(|| Seed(seed).stream("scenario").pick(C::scenarios()));
        let scenario = drawn.expect("a contract has scenarios");
        Self { long: Long::Drawn, ..Self::swarm(scenario, seed) }
    }

    /// The faults of the run.
    pub fn profile(&self) -> Profile {
        let profile = match &self.weather {
            Weather::Calm => Profile::calm(),
            Weather::Swarm if self.long == Long::None => Profile::drawn(self.seed, C::FAULTS),
            Weather::Swarm => Profile::drawn(self.seed, C::FAULTS).with_drawn(self.seed, C::FURTHER_FAULTS),
            Weather::Faults(rates) => Profile::of(rates),
        };
        let long = match &self.long {
            Long::None => Vec::new(),
            Long::Drawn => {
                let further = C::FURTHER_LONG_FAULTS.iter().copied();
                let further: Vec<_> = further.filter(|kind| self.scenario.endures(*kind)).collect();
                let mut drawn = LongFault::draw_with_further(self.seed, C::LONG_FAULTS, &further);
                drawn.retain(|fault| self.scenario.endures(fault.kind));
                LongFault::with_own(self.seed, self.scenario.is_about(), drawn)
            }
            Long::These(faults) => faults.clone(),
        };
        Profile { long, ..profile }
    }

    /// Plays the case in a new runtime.
    pub fn play(&self, runtime: impl Fn() -> Runtime, depth: Depth) -> RunReport {
        reverted::revert(self.mutant.and_then(C::Mutant::reverts));
        let report = runtime().block_on(C::run(self, depth));
        reverted::revert(None);
        report
    }

    /// The command that repeats the run.
    pub fn command(&self) -> String {
        format!("{REPLAY}={self} cargo test -p machinist-sim --test it replay -- --nocapture")
    }
}

impl<C: SimulatedContract> Sweepable for CaseOf<C> {
    fn name(&self) -> &str {
        self.scenario.name()
    }

    fn victims(&self) -> &'static [Victims] {
        C::VICTIMS
    }

    fn play(&self, crash: Option<Crash>, runtime: fn() -> Runtime) -> SweptRun {
        let report = Self { crash, ..self.clone() }.play(runtime, Depth::EndState);
        SweptRun {
            complaint: (!report.is_fine()).then(|| report.to_string()),
            points: report.points,
            crashed: report.crashed,
            made: report.made,
        }
    }

    fn command(&self, crash: Crash) -> String {
        Self { crash: Some(crash), ..self.clone() }.command()
    }
}

impl<C: SimulatedContract> fmt::Display for CaseOf<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}/{}", C::PREFIX, self.scenario.name(), self.seed)?;
        match &self.weather {
            Weather::Swarm => {}
            Weather::Calm => f.write_str("/calm")?,
            Weather::Faults(rates) => {
                let rates: Vec<_> = rates.iter().map(|(fault, rate)| format!("{fault}:{rate}")).collect();
                write!(f, "/faults={}", rates.join(","))?;
            }
        }
        match &self.long {
            Long::None => {}
            Long::Drawn => f.write_str("/long")?,
            Long::These(faults) => {
                let faults: Vec<_> = faults.iter().map(ToString::to_string).collect();
                write!(f, "/long={}", faults.join("+"))?;
            }
        }
        if let Some(crash) = self.crash {
            write!(f, "/crash={crash}")?;
        }
        if let Some(mutant) = self.mutant {
            write!(f, "/mutant={mutant}")?;
        }
        Ok(())
    }
}

impl<C: SimulatedContract> FromStr for CaseOf<C> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("{text:?}: expected {}SCENARIO/SEED", C::PREFIX);
        let mut parts = text.strip_prefix(C::PREFIX).ok_or_else(expected)?.split('/');
        let name = parts.next().unwrap_or_default();
        let scenario = C::by_name(name).ok_or(format!("{name:?} is not a scenario"))?;
        let seed = parts.next().unwrap_or_default();
        let seed = seed.parse().map_err(|_| format!("seed {seed:?}: expected a number"))?;
        let mut case = Self::swarm(scenario, seed);
        for part in parts {
            match part.split_once('=') {
                None if part == "calm" => case.weather = Weather::Calm,
                None if part == "long" => case.long = Long::Drawn,
                Some(("long", faults)) => {
                    let faults = faults.split('+').filter(|fault| !fault.is_empty()).map(str::parse);
                    case.long = Long::These(faults.collect::<Result<_, String>>()?);
                }
                Some(("faults", rates)) => {
                    let rates: Result<_, String> = rates.split(',').map(parse_rate).collect();
                    case.weather = Weather::Faults(rates?);
                }
                Some(("crash", crash)) => case.crash = Some(crash.parse()?),
                Some(("mutant", mutant)) => case.mutant = Some(C::mutant(mutant)?),
                _ => return Err(format!("{part:?}: expected calm, faults=, long, long=, crash= or mutant=")),
            }
        }
        Ok(case)
    }
}

fn parse_rate(text: &str) -> Result<(Fault, u32), String> {
    let expected = || format!("{text:?}: expected FAULT:RATE, for example P8:100");
    let (fault, rate) = text.split_once(':').ok_or_else(expected)?;
    let fault = Fault::ALL.into_iter().find(|known| known.to_string() == fault).ok_or_else(expected)?;
    Ok((fault, rate.parse().map_err(|_| expected())?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ccm;

    #[test]
    fn a_printed_case_parses_to_the_same_case() {
        for text in [
            "rollout/17",
            "create-one/1/calm/crash=after:9:both",
            "create-one/1/long",
            "create-one/1/calm/long=",
            "create-one/1/long=down:60:1800:0+no-stock:0:600:0",
            "heal/3/faults=P8:100,D4:300/mutant=uid-check",
        ] {
            let case: Case = text.parse().expect(text);
            assert_eq!(case.to_string(), text);
        }
        for text in [
            "ccm/ip-reuse/17",
            "ccm/node-init/1/calm/crash=after:9:ccm",
            "ccm/renamed-server/3/faults=P8:100,D10:300/mutant=absent-by-name",
        ] {
            let case: ccm::Case = text.parse().expect(text);
            assert_eq!(case.to_string(), text);
        }
        assert!("nothing/1".parse::<Case>().is_err());
        assert!(
            "rollout/1/faults=P99:1"
                .parse::<Case>()
                .is_err_and(|error| error.contains("expected FAULT:RATE"))
        );
        assert!("ip-reuse/1".parse::<ccm::Case>().is_err_and(|error| error.contains("expected ccm/")));
    }

    #[test]
    fn every_scenario_is_drawn_by_one_of_a_few_seeds() {
        let drawn: std::collections::BTreeSet<_> =
            (0..400).map(|seed| Case::drawn(seed).scenario.name()).collect();
        assert_eq!(drawn.len(), SimulatedMcm::scenarios().len() + SimulatedMcm::further_scenarios().len());
    }
}
