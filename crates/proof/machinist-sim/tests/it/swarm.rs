//! Plays every scenario under the faults that its seed draws. Each run is repeated in a second
//! process and must have the same trace.

use std::collections::BTreeMap;
use std::ops::Range;
use std::process::{Child, Command, Stdio};

use machinist_sim::case::Case;
use machinist_sim::run::{Depth, RunReport};
use machinist_sim::scenarios;

use crate::paused::play;

const SEEDS: &str = "MACHINIST_SEEDS";
const SCENARIO: &str = "MACHINIST_SCENARIO";
/// Set in the second process: what it must print.
const TWIN: &str = "MACHINIST_TWIN";
const TWIN_LINE: &str = "twin: ";
const TWIN_TEST: &str = "swarm::the_same_runs_in_another_process";

/// One of this many seeds also runs through the quiet window, which takes as long as all the rest.
const SILENCE_EVERY: u64 = 4;

#[test]
fn every_seed_passes_and_repeats() {
    let twin = spawn_twin("hashes");
    let mut failures: BTreeMap<String, Vec<Case>> = BTreeMap::new();
    let mut hashes = BTreeMap::new();
    for scenario in chosen() {
        let (mut faults, mut runs) = (0, 0);
        for seed in seeds() {
            let case = Case::swarm(scenario, seed);
            let report = play(&case, depth(&case));
            (faults, runs) = (faults + report.injected(), runs + 1);
            hashes.insert(case.to_string(), report.hash());
            if !report.is_fine() {
                println!("{case} failed\n{report}\nRepeat it with:\n  {}", case.command());
                failures.entry(complaint(&report)).or_default().push(case);
            }
        }
        println!("{:<24} {runs} runs, {faults} faults", scenario.name);
    }
    for (what, cases) in &failures {
        let cases: Vec<String> = cases.iter().map(ToString::to_string).collect();
        println!("{} times {what}: {}", cases.len(), cases.join(" "));
    }
    assert!(failures.is_empty(), "{} runs failed, see above", failures.values().map(Vec::len).sum::<usize>());
    let printed = twin.wait_with_output().expect("the second process runs");
    let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
    let theirs: BTreeMap<String, String> = printed
        .lines()
        .filter_map(|line| line.split_once(TWIN_LINE)?.1.split_once(' '))
        .map(|(case, hash)| (case.to_owned(), hash.to_owned()))
        .collect();
    assert_eq!(theirs.len(), hashes.len(), "the second process did not play all runs:\n{printed}");
    let differs = hashes.iter().find(|(case, hash)| theirs.get(*case) != Some(&hash.to_string()));
    if let Some((case, _)) = differs {
        panic!("{case} has another trace in another process: {}", first_difference(case));
    }
}

/// Runs in the second process: plays the same runs and prints their hashes.
#[test]
fn the_same_runs_in_another_process() {
    match std::env::var(TWIN).as_deref() {
        Err(_) => println!("this test runs only in a process that another test starts"),
        Ok("hashes") => {
            for scenario in chosen() {
                for seed in seeds() {
                    let case = Case::swarm(scenario, seed);
                    println!("\n{TWIN_LINE}{case} {}", play(&case, depth(&case)).hash());
                }
            }
        }
        Ok(named) => {
            let case: Case = named.parse().expect("a case");
            print!("\n{TWIN_LINE}\n{}", play(&case, depth(&case)).trace.text());
        }
    }
}

fn spawn_twin(what: &str) -> Child {
    let this = std::env::current_exe().expect("a test knows its own program");
    Command::new(this)
        .args([TWIN_TEST, "--exact", "--nocapture"])
        .env(TWIN, what)
        .stdout(Stdio::piped())
        .spawn()
        .expect("a second process can be started")
}

fn first_difference(named: &str) -> String {
    let case: Case = named.parse().expect("a case of ours");
    let ours = play(&case, depth(&case)).trace.text();
    let theirs = spawn_twin(named).wait_with_output().expect("the second process runs").stdout;
    let theirs = String::from_utf8_lossy(&theirs).into_owned();
    let theirs = theirs.split_once(&format!("{TWIN_LINE}\n")).map_or("", |(_, trace)| trace);
    let mut lines = ours.lines().zip(theirs.lines()).enumerate();
    match lines.find(|(_, (ours, theirs))| ours != theirs) {
        Some((number, (ours, theirs))) => format!("line {number}\n  here  {ours}\n  there {theirs}"),
        None => {
            "no line differs, so the traces differ in length, or the run does not repeat within one process"
                .to_owned()
        }
    }
}

fn complaint(report: &RunReport) -> String {
    let violation = report.violations.first().map(|violation| violation.id.to_string());
    violation.or(report.trouble.as_ref().map(|_| "trouble".to_owned())).unwrap_or_default()
}

fn depth(case: &Case) -> Depth {
    if case.seed.0.is_multiple_of(SILENCE_EVERY) { Depth::Quiescence } else { Depth::EndState }
}

fn chosen() -> Vec<scenarios::Scenario> {
    named(std::env::var(SCENARIO).ok().as_deref()).unwrap_or_else(|expected| panic!("{expected}"))
}

/// The scenario of that name; all without a name. An unknown name is an error, because otherwise no
/// scenario would run and the test would pass.
fn named(only: Option<&str>) -> Result<Vec<scenarios::Scenario>, String> {
    let all = scenarios::ALL.iter().chain(scenarios::UNDRAWN).copied();
    let Some(only) = only else { return Ok(all.collect()) };
    let found: Vec<_> = all.clone().filter(|scenario| scenario.name == only).collect();
    if found.is_empty() {
        let known: Vec<_> = all.map(|scenario| scenario.name).collect();
        return Err(format!("{SCENARIO}: expected one of {}, got {only}", known.join(", ")));
    }
    Ok(found)
}

#[test]
fn an_unknown_scenario_is_an_error_with_the_known_names() {
    let known = named(None).expect("all").len();
    assert_eq!(known, scenarios::ALL.len() + scenarios::UNDRAWN.len());
    assert_eq!(named(Some(scenarios::ALL[0].name)).expect("one").len(), 1);
    let error = named(Some("rolout")).map(|found| found.len()).expect_err("an unknown scenario");
    assert!(error.contains(scenarios::ALL[0].name) && error.ends_with("got rolout"), "{error}");
}

/// The seeds that the user chose, or two without a quiet window, to keep the test short. `.ci/run`
/// plays more seeds in a step of its own, every fourth with a quiet window.
fn seeds() -> Range<u64> {
    seeds_or(1..3)
}

/// The seeds that the user chose, or the usual ones.
pub(crate) fn seeds_or(usual: Range<u64>) -> Range<u64> {
    let Ok(text) = std::env::var(SEEDS) else { return usual };
    let parsed = text.split_once("..").and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
    parsed.expect("MACHINIST_SEEDS: expected a range, for example 0..64")
}
