//! One run, named by a line of text. A failure prints this line, and the line repeats the run.
//!
//! ```text
//! rollout/17                       the scenario in the world that seed 17 draws
//! rollout/17/calm                  without faults
//! rollout/1/calm/crash=after:9:both     with both processes killed at that point
//! rollout/17/mutant=uid-check      with that mutant of the program
//! ```

use std::fmt;
use std::str::FromStr;

use crate::faults::{Crash, Fault, Profile};
use crate::mutants::Mutant;
use crate::run::{Depth, Report, run};
use crate::scenarios::{self, Scenario};
use crate::seed::Seed;
use crate::world::simulated::Setup;

/// The variable that names a run to repeat.
pub const REPLAY: &str = "MACHINIST_REPLAY";

/// The full description of one run.
#[derive(Debug, Clone)]
pub struct Case {
    /// The scenario.
    pub scenario: Scenario,
    /// The seed of all draws.
    pub seed: Seed,
    /// The faults.
    pub weather: Weather,
    /// The planned crash.
    pub crash: Option<Crash>,
    /// The mutant of the program.
    pub mutant: Option<Mutant>,
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

impl Case {
    /// A scenario in a world without faults.
    pub fn calm(scenario: Scenario, seed: u64) -> Self {
        Self { scenario, seed: Seed(seed), weather: Weather::Calm, crash: None, mutant: None }
    }

    /// A scenario in the world that a seed draws.
    pub fn swarm(scenario: Scenario, seed: u64) -> Self {
        Self { weather: Weather::Swarm, ..Self::calm(scenario, seed) }
    }

    /// The setup of the run's world.
    pub fn setup(&self) -> Setup {
        let setup = match &self.weather {
            Weather::Calm => Setup::calm(self.seed),
            Weather::Swarm => Setup::swarm(self.seed, Profile::swarm(self.seed)),
            Weather::Faults(rates) => Setup::swarm(self.seed, Profile::of(rates)),
        };
        Setup { crash: self.crash, mutant: self.mutant, ..setup }
    }

    /// Plays the case in a new runtime.
    pub fn play(&self, runtime: impl Fn() -> tokio::runtime::Runtime, depth: Depth) -> Report {
        runtime().block_on(run(self.scenario, &self.setup(), depth))
    }

    /// The command that repeats the run.
    pub fn command(&self) -> String {
        format!("{REPLAY}={self} cargo test -p machinist-sim --test it replay -- --nocapture")
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.scenario.name, self.seed)?;
        match &self.weather {
            Weather::Swarm => {}
            Weather::Calm => f.write_str("/calm")?,
            Weather::Faults(rates) => {
                let rates: Vec<_> = rates.iter().map(|(fault, rate)| format!("{fault}:{rate}")).collect();
                write!(f, "/faults={}", rates.join(","))?;
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

impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split('/');
        let name = parts.next().unwrap_or_default();
        let scenario = scenarios::by_name(name).ok_or(format!("{name:?} is not a scenario"))?;
        let seed = parts.next().unwrap_or_default();
        let seed = seed.parse().map_err(|_| format!("seed {seed:?}: expected a number"))?;
        let mut case = Self::swarm(scenario, seed);
        for part in parts {
            match part.split_once('=') {
                None if part == "calm" => case.weather = Weather::Calm,
                Some(("faults", rates)) => {
                    let rates: Result<_, String> = rates.split(',').map(parse_rate).collect();
                    case.weather = Weather::Faults(rates?);
                }
                Some(("crash", crash)) => case.crash = Some(crash.parse()?),
                Some(("mutant", mutant)) => case.mutant = Some(mutant.parse()?),
                _ => return Err(format!("{part:?}: expected calm, faults=, crash= or mutant=")),
            }
        }
        Ok(case)
    }
}

pub(crate) fn parse_rate(text: &str) -> Result<(Fault, u32), String> {
    let expected = || format!("{text:?}: expected FAULT:RATE, for example P8:100");
    let (fault, rate) = text.split_once(':').ok_or_else(expected)?;
    let fault = Fault::ALL.into_iter().find(|known| known.to_string() == fault).ok_or_else(expected)?;
    Ok((fault, rate.parse().map_err(|_| expected())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_case_parses_to_the_same_case() {
        for text in [
            "rollout/17",
            "create-one/1/calm/crash=after:9:both",
            "heal/3/faults=P8:100,D4:300/mutant=uid-check",
        ] {
            let case: Case = text.parse().expect(text);
            assert_eq!(case.to_string(), text);
        }
        assert!("nothing/1".parse::<Case>().is_err());
        assert!(
            "rollout/1/faults=P99:1"
                .parse::<Case>()
                .is_err_and(|error| error.contains("expected FAULT:RATE"))
        );
    }
}
