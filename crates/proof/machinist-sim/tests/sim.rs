//! Plays seeds of one contract. `cargo xtask sim` builds and runs this program, and explains its
//! arguments.
//!
//! A test target instead of a binary, because only tests have paused time.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "this program prints a report")]

use std::process::ExitCode;

use machinist_sim::capi::SimulatedCapi;
use machinist_sim::ccm::SimulatedCcm;
use machinist_sim::contract::{Mutation as _, SimulatedContract};
use machinist_sim::mcm::SimulatedMcm;
use machinist_sim::seeds::{self, Order, SeedTally, play_all};
use strum::VariantArray as _;

/// A single-threaded runtime with paused time: its clock moves only when every task waits.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("the runtime can be built")
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let played = Arguments::parse(&arguments).and_then(|arguments| match arguments.contract.as_str() {
        SimulatedMcm::NAME => play::<SimulatedMcm>(&arguments),
        SimulatedCcm::NAME => play::<SimulatedCcm>(&arguments),
        SimulatedCapi::NAME => play::<SimulatedCapi>(&arguments),
        other => Err(format!("unknown contract {other:?}: expected mcm, ccm or capi")),
    });
    match played {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

#[derive(Default)]
struct Arguments {
    contract: String,
    seeds: u64,
    from: u64,
    scenario: Option<String>,
    mutant: Option<String>,
    until: Option<usize>,
    case: Option<String>,
    recorded: bool,
    mutants: bool,
    trace: bool,
    json: bool,
}

impl Arguments {
    fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut parsed = Self { contract: SimulatedMcm::NAME.to_owned(), seeds: 1, ..Self::default() };
        let mut arguments = arguments.iter();
        while let Some(name) = arguments.next() {
            let mut value = || arguments.next().cloned().ok_or(format!("{name} needs a value"));
            match name.as_str() {
                "--contract" => parsed.contract = value()?,
                "--seeds" => parsed.seeds = number(&value()?)?,
                "--from" => parsed.from = number(&value()?)?,
                "--until" => parsed.until = Some(number(&value()?)?),
                "--scenario" => parsed.scenario = Some(value()?),
                "--mutant" => parsed.mutant = Some(value()?),
                "--case" => parsed.case = Some(value()?),
                "--recorded" => parsed.recorded = true,
                "--mutants" => parsed.mutants = true,
                "--trace" => parsed.trace = true,
                "--json" => parsed.json = true,
                _ => return Err(format!("unknown argument {name}")),
            }
        }
        Ok(parsed)
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text:?}: expected a number"))
}

fn play<C: SimulatedContract>(arguments: &Arguments) -> Result<ExitCode, String> {
    if arguments.recorded {
        return replay_recorded::<C>();
    }
    if arguments.mutants {
        return catch_all::<C>(arguments);
    }
    let mutant = arguments.mutant.as_deref().map(C::mutant).transpose()?;
    let named = |name: &str| C::by_name(name).ok_or(format!("{name:?} is not a scenario"));
    let scenario = arguments.scenario.as_deref().map(named).transpose()?;
    if arguments.trace || arguments.case.is_some() {
        return play_one::<C>(arguments, scenario, mutant);
    }
    let end = arguments.from.saturating_add(arguments.seeds);
    let order =
        Order::<C> { seeds: arguments.from..end, scenario, mutant, until: arguments.until, threads: None };
    let is_alone = arguments.seeds == 1;
    let tally = play_all(&order, runtime, |failed, report| {
        if !arguments.json {
            println!("{} ({}) {}\n  {}", failed.seed, failed.case, failed.what, failed.command);
        }
        if is_alone {
            eprintln!("{report}");
        }
    });
    if arguments.json {
        println!("{}", serde_json::to_string(&tally).map_err(|error| error.to_string())?);
    } else {
        print(&tally);
    }
    Ok(match mutant {
        None if tally.violations == 0 => ExitCode::SUCCESS,
        None => ExitCode::FAILURE,
        Some(mutant) => {
            let (invariant, seeds) = (mutant.caught_by(), tally.violated(mutant.caught_by()));
            println!("{mutant} violates {invariant} in {} seeds: {seeds:?}", seeds.len());
            if seeds.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
        }
    })
}

/// Plays the recorded seed of each mutant: with the mutant it must violate the invariant, and
/// without it none.
fn replay_recorded<C: SimulatedContract>() -> Result<ExitCode, String> {
    let mut code = ExitCode::SUCCESS;
    for mutant in C::Mutant::VARIANTS {
        let (id, Some(seed)) = (mutant.caught_by(), mutant.recorded()) else { continue };
        let broken = seeds::case::<C>(seed, None, Some(*mutant)).play(runtime, seeds::depth(seed));
        let whole = seeds::case::<C>(seed, None, None).play(runtime, seeds::depth(seed));
        let (is_caught, is_fine) = (broken.violates(id), whole.is_fine());
        println!("{mutant}: seed {seed} violates {id}: {is_caught}, passes without the mutant: {is_fine}");
        if !is_caught || !is_fine {
            println!("{broken}{whole}");
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}

/// Number of seeds that must catch a mutant. A single seed may be an accident of its trace.
const CAUGHT_OFTEN_ENOUGH: usize = 2;

/// Plays each mutant until enough seeds violate its invariant.
fn catch_all<C: SimulatedContract>(arguments: &Arguments) -> Result<ExitCode, String> {
    let mut code = ExitCode::SUCCESS;
    for mutant in C::Mutant::VARIANTS.iter().filter(|mutant| mutant.recorded().is_some()) {
        let end = arguments.from.saturating_add(arguments.seeds);
        let (seeds, until) = (arguments.from..end, Some(CAUGHT_OFTEN_ENOUGH));
        let order = Order::<C> { seeds, scenario: None, mutant: Some(*mutant), until, threads: None };
        let tally = play_all(&order, runtime, |_, _| {});
        let (id, played) = (mutant.caught_by(), tally.seeds);
        let caught = tally.violated(id);
        println!("{mutant} violates {id} in seeds {caught:?} of {played}");
        if caught.len() < CAUGHT_OFTEN_ENOUGH {
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}

/// Plays one case, and prints its trace.
fn play_one<C: SimulatedContract>(
    arguments: &Arguments,
    scenario: Option<C::Scenario>,
    mutant: Option<C::Mutant>,
) -> Result<ExitCode, String> {
    let case = match &arguments.case {
        Some(text) => text.parse()?,
        None => seeds::case::<C>(arguments.from, scenario, mutant),
    };
    let report = case.play(runtime, seeds::depth(case.seed.0));
    if arguments.trace {
        println!("{}", report.trace.text());
    }
    println!("{case}: {}", case.profile());
    println!("{report}{:?} of simulated time, hash {:016x}", report.took, report.hash());
    Ok(if report.is_fine() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(tally: &SeedTally) {
    let SeedTally { contract, seeds, violations, seeds_per_second, simulated_hours, faults, .. } = tally;
    let faults: Vec<String> = faults.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    println!("faults: {}", faults.join(", "));
    println!(
        "{contract}: {seeds} seeds, {violations} with violations, {seeds_per_second:.1} seeds a second, {simulated_hours:.1} simulated hours"
    );
}
