//! Plays the scenarios and the takeovers from Go MCM on two real clusters, which `cargo xtask real
//! --lane scenarios` provides. A scenario that cannot run there is reported as skipped. Arguments
//! select scenarios by name; without arguments, all run.
//!
//! A separate program instead of a test harness, so that each result is printed as soon as it is
//! known.

#![expect(clippy::print_stdout, reason = "this program prints a report")]

use std::process::ExitCode;

use machinist_sim::fixtures::{self, Continuation, Fixture};
use machinist_sim::scenarios::{self, Scenario};
use machinist_sim::world::real::{Real, RealClusters};
use machinist_sim::world::{Ability, MachineWorld, Outcome, ScenarioError};
use tokio::time::Instant;

/// Abilities of the simulated world that a real world never has.
const SKIPPED_THROUGHOUT: &[Ability] =
    &[Ability::JudgeCommits, Ability::CrashAtCalls, Ability::InjectFaults, Ability::StoreVerbatim];

enum Played {
    Passed,
    Skipped(Ability),
}

#[tokio::main]
async fn main() -> ExitCode {
    let clusters = match RealClusters::from_env() {
        Ok(clusters) => clusters,
        Err(trouble) => {
            println!("FAILED  {trouble}");
            return ExitCode::FAILURE;
        }
    };
    println!("kube-apiserver {}", clusters.version());
    // Ignore flags, which are for a test runner.
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|wanted| wanted == name);
    let mut failed = Vec::new();
    for scenario in scenarios::ALL.iter().filter(|scenario| is_wanted(scenario.name)) {
        let started = Instant::now();
        let played = play(&clusters, *scenario).await;
        report(scenario.name, started, played, &mut failed);
    }
    for continuation in fixtures::ALL.iter().filter(|continuation| is_wanted(continuation.name)) {
        let started = Instant::now();
        let played = take_over(&clusters, *continuation).await.map(|()| Played::Passed);
        report(continuation.name, started, played, &mut failed);
    }
    for ability in SKIPPED_THROUGHOUT {
        println!("SKIPPED throughout: a real cluster cannot {ability}");
    }
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("failed: {}", failed.join(", "));
    ExitCode::FAILURE
}

fn report(
    name: &'static str,
    started: Instant,
    played: Result<Played, ScenarioError>,
    failed: &mut Vec<&'static str>,
) {
    match played {
        Ok(Played::Passed) => println!("PASSED  {name} ({:.0?})", started.elapsed()),
        Ok(Played::Skipped(ability)) => println!("SKIPPED {name}: a real cluster cannot {ability}"),
        Err(trouble) => {
            println!("FAILED  {name}: {trouble}");
            failed.push(name);
        }
    }
}

async fn play(clusters: &RealClusters, scenario: Scenario) -> Result<Played, ScenarioError> {
    let world = Real::new(clusters, |settings| settings).await?;
    if let Some(ability) = scenario.needs.iter().find(|ability| !world.can(**ability)) {
        return Ok(Played::Skipped(*ability));
    }
    world.start_processes().await?;
    let played: Outcome = (scenario.play)(&world).await;
    // Clean up after a failure too, so that the next scenario starts with empty clusters.
    let cleaned = world.clean_up().await;
    played.and(world.judge()).and(cleaned).map(|()| Played::Passed)
}

async fn take_over(clusters: &RealClusters, continuation: Continuation) -> Outcome {
    let path = format!("{}/../../../fixtures/go-mcm/{}.json", env!("CARGO_MANIFEST_DIR"), continuation.file);
    let text = std::fs::read_to_string(&path).map_err(|error| ScenarioError(format!("{path}: {error}")))?;
    let fixture = Fixture::parse(&text)?;
    let world = Real::new(clusters, fixtures::cloud).await?;
    let played = fixtures::play(&world, continuation, &fixture).await;
    let cleaned = world.clean_up().await;
    played.and(cleaned)
}
