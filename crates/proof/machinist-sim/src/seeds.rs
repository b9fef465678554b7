//! Many seeds, played in parallel. Each seed is one run: it draws the scenario, the workload and
//! the faults.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::runtime::Runtime;

use crate::case::CaseOf;
use crate::contract::{Mutation as _, Named as _, SimulatedContract};
use crate::invariants::Id;
use crate::run::{Depth, RunReport};

/// One of this many seeds also runs through the quiet window, which takes as long as all the rest.
const QUIET_EVERY: u64 = 4;

/// The seeds to play, and with which program.
#[derive(Debug, Clone)]
pub struct Order<C: SimulatedContract> {
    /// The seeds.
    pub seeds: Range<u64>,
    /// The scenario of all seeds; by default each seed draws one.
    pub scenario: Option<C::Scenario>,
    /// The mutant of the program.
    pub mutant: Option<C::Mutant>,
    /// Number of violations after which no further seed starts.
    pub until: Option<usize>,
    /// Number of threads; by default one for each core.
    pub threads: Option<NonZeroUsize>,
}

/// The sum of all runs.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SeedTally {
    /// Name of the contract.
    pub contract: &'static str,
    /// Number of seeds that were played.
    pub seeds: u64,
    /// Number of seeds that violated an invariant, or whose scenario failed.
    pub violations: usize,
    /// Seeds per second of real time, on all threads together.
    pub seeds_per_second: f64,
    /// Simulated time of all runs.
    pub simulated_hours: f64,
    /// Number of injected faults, by kind.
    pub faults: BTreeMap<String, usize>,
    /// Number of runs of each scenario.
    pub scenarios: BTreeMap<&'static str, u64>,
    /// The runs that failed, by seed.
    pub failed: Vec<Failed>,
}

/// A run that failed.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Failed {
    /// The seed.
    pub seed: u64,
    /// The text of the case.
    pub case: String,
    /// The violated invariants; empty if only the scenario failed.
    pub invariants: Vec<String>,
    /// The first violation in one line, or the error of the scenario.
    pub what: String,
    /// The command that repeats the run.
    pub command: String,
}

/// The depth at which a seed is played.
pub fn depth(seed: u64) -> Depth {
    if seed.is_multiple_of(QUIET_EVERY) { Depth::Quiescence } else { Depth::EndState }
}

/// The case of a seed, with a mutant of the program or without one. Without a scenario, the seed
/// draws it.
pub fn case<C: SimulatedContract>(
    seed: u64,
    scenario: Option<C::Scenario>,
    mutant: Option<C::Mutant>,
) -> CaseOf<C> {
    let drawn = CaseOf::drawn(seed);
    CaseOf { scenario: scenario.unwrap_or(drawn.scenario), mutant, ..drawn }
}

/// The command that repeats the run of a seed.
fn command<C: SimulatedContract>(case: &CaseOf<C>) -> String {
    let (seed, name) = (case.seed, case.scenario.name());
    let is_drawn = CaseOf::<C>::drawn(seed.0).scenario.name() == name;
    let scenario = if is_drawn { String::new() } else { format!(" --scenario {name}") };
    let mutant = case.mutant.map(|mutant| format!(" --mutant {mutant}")).unwrap_or_default();
    format!("cargo xtask sim --contract {} --from {seed} --seeds 1{scenario}{mutant}", C::NAME)
}

/// Plays the seeds on several threads. Calls `failed` for each run that failed, as soon as it ends.
pub fn play_all<C: SimulatedContract>(
    order: &Order<C>,
    runtime: fn() -> Runtime,
    failed: impl Fn(&Failed, &RunReport) + Sync,
) -> SeedTally {
    let next = AtomicU64::new(order.seeds.start);
    let enough = AtomicBool::new(false);
    let tally = Mutex::new(SeedTally { contract: C::NAME, ..SeedTally::default() });
    #[expect(clippy::disallowed_methods, reason = "the rate of seeds is in real time")]
    let began = std::time::Instant::now();
    let threads = order.threads.or(std::thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !enough.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if order.seeds.end <= seed {
                        break;
                    }
                    let case = case::<C>(seed, order.scenario, order.mutant);
                    let report = case.play(runtime, depth(seed));
                    let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
                    tally.add(&case, &report);
                    if !report.is_fine() {
                        let run = Failed::of(&case, &report);
                        failed(&run, &report);
                        tally.failed.push(run);
                        // Only violations of the mutant's invariant count.
                        let violated = match order.mutant {
                            None => tally.failed.len(),
                            Some(mutant) => tally.violated(mutant.caught_by()).len(),
                        };
                        if order.until.is_some_and(|until| until <= violated) {
                            enough.store(true, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    let mut tally = tally.into_inner().unwrap_or_else(PoisonError::into_inner);
    tally.failed.sort_by_key(|failed| failed.seed);
    tally.violations = tally.failed.len();
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    let seeds = tally.seeds as f64;
    tally.seeds_per_second =
        seeds / began.elapsed().as_secs_f64().max(Duration::from_millis(1).as_secs_f64());
    tally
}

impl SeedTally {
    fn add<C: SimulatedContract>(&mut self, case: &CaseOf<C>, report: &RunReport) {
        const SECONDS_PER_HOUR: f64 = 3600.0;
        self.seeds += 1;
        self.simulated_hours += report.took.as_secs_f64() / SECONDS_PER_HOUR;
        *self.scenarios.entry(case.scenario.name()).or_default() += 1;
        for (kind, count) in &report.faults {
            *self.faults.entry(kind.clone()).or_default() += count;
        }
    }

    /// The seeds that violated that invariant.
    pub fn violated(&self, id: Id) -> Vec<u64> {
        let id = id.to_string();
        self.failed
            .iter()
            .filter(|failed| failed.invariants.contains(&id))
            .map(|failed| failed.seed)
            .collect()
    }
}

impl Failed {
    fn of<C: SimulatedContract>(case: &CaseOf<C>, report: &RunReport) -> Self {
        let mut invariants: Vec<String> =
            report.violations.iter().map(|violation| violation.id.to_string()).collect();
        invariants.dedup();
        let what = match (report.violations.first(), &report.trouble) {
            (Some(violation), _) => format!("{}: {}", violation.id, violation.what),
            (None, Some(trouble)) => trouble.to_string().lines().next().unwrap_or_default().to_owned(),
            (None, None) => String::new(),
        };
        Self { seed: case.seed.0, case: case.to_string(), invariants, what, command: command(case) }
    }
}
