//! One run, named by a line of text, as in [`crate::case`]: `ccm/ip-reuse/17/mutant=list-alone`.

use std::fmt;
use std::str::FromStr;

use tokio::runtime::Runtime;

use super::cluster::Setup;
use super::mutants::Mutant;
use super::run::{Report, run};
use super::scenarios::{self, Scenario};
use crate::case::{REPLAY, Weather, parse_rate};
use crate::faults::{Crash, Fault, Profile, Victims};
use crate::run::Depth;
use crate::seed::Seed;
use crate::sweep::{Played, Sweepable};

/// The beginning of the text of each case.
pub const PREFIX: &str = "ccm/";

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

impl Case {
    /// A scenario in a world without faults.
    pub fn calm(scenario: Scenario, seed: u64) -> Self {
        Self { scenario, seed: Seed(seed), weather: Weather::Calm, crash: None, mutant: None }
    }

    /// A scenario in the world that a seed draws.
    pub fn swarm(scenario: Scenario, seed: u64) -> Self {
        Self { weather: Weather::Swarm, ..Self::calm(scenario, seed) }
    }

    /// Plays the case in a new runtime.
    pub fn play(&self, runtime: impl Fn() -> Runtime, depth: Depth) -> Report {
        let profile = match &self.weather {
            Weather::Calm => Profile::calm(),
            Weather::Swarm => Profile::drawn(self.seed, &Fault::OF_CCM),
            Weather::Faults(rates) => Profile::of(rates),
        };
        let has_machines = self.scenario.has_machines;
        let setup = Setup { seed: self.seed, profile, crash: self.crash, mutant: self.mutant, has_machines };
        runtime().block_on(run(self.scenario, &setup, depth))
    }

    /// The command that repeats the run.
    pub fn command(&self) -> String {
        format!("{REPLAY}={self} cargo test -p machinist-sim --test it replay -- --nocapture")
    }
}

impl Sweepable for Case {
    fn name(&self) -> &str {
        self.scenario.name
    }

    fn victims(&self) -> &'static [Victims] {
        &[Victims::CloudController]
    }

    fn play(&self, crash: Option<Crash>, runtime: fn() -> Runtime) -> Played {
        let report = Self { crash, ..self.clone() }.play(runtime, Depth::EndState);
        Played {
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

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}/{}", self.scenario.name, self.seed)?;
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
        let rest = text.strip_prefix(PREFIX).ok_or(format!("{text:?}: expected {PREFIX}SCENARIO/SEED"))?;
        let mut parts = rest.split('/');
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_case_parses_to_the_same_case() {
        for text in [
            "ccm/ip-reuse/17",
            "ccm/node-init/1/calm/crash=after:9:ccm",
            "ccm/renamed-server/3/faults=P8:100,D10:300/mutant=absent-by-name",
        ] {
            let case: Case = text.parse().expect(text);
            assert_eq!(case.to_string(), text);
        }
        assert!("ip-reuse/1".parse::<Case>().is_err_and(|error| error.contains("expected ccm/")));
    }
}
