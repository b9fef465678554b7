//! Each mutant with a trap must be caught by its invariant, on seeds that the correct program
//! passes.

use machinist_sim::case::{Case, Weather};
use machinist_sim::faults::Fault;
use machinist_sim::faults::Fault::{D2, D3, D4, P1, P8, P9};
use machinist_sim::mutants::Mutant;
use machinist_sim::run::Depth;
use machinist_sim::scenarios;

use crate::paused::{check, play};

/// The scenario and the faults that reveal a mutant.
struct Trap {
    mutant: Mutant,
    scenario: &'static str,
    faults: &'static [(Fault, u32)],
}

/// Number of seeds that must catch a mutant. A single seed may be an accident of its trace.
const CAUGHT_OFTEN_ENOUGH: usize = 2;
/// Maximum number of seeds. A trap that needs more is not reliable.
const SEEDS: u64 = 48;

const TRAPS: &[Trap] = &[
    // A patch for the old object arrives when its name belongs to a new object.
    Trap { mutant: Mutant::UidCheck, scenario: "same-name-again", faults: &[(P8, 500), (P9, 800)] },
    Trap { mutant: Mutant::OwnWritesBarrier, scenario: "burst", faults: &[(P1, 300)] },
    Trap { mutant: Mutant::FreshName, scenario: "burst", faults: &[(P8, 120)] },
    Trap { mutant: Mutant::EarlyFinalizer, scenario: "delete-one", faults: &[(P8, 40)] },
    Trap {
        mutant: Mutant::AbsenceWithoutLag,
        scenario: "delete-while-creating",
        faults: &[(D2, 300), (D3, 300), (D4, 600)],
    },
    Trap { mutant: Mutant::NodeByName, scenario: "foreign-node", faults: &[(P8, 40)] },
    Trap { mutant: Mutant::UnboundedRequeue, scenario: "create-one", faults: &[(P8, 40)] },
    Trap { mutant: Mutant::ReplacementLimit, scenario: "heal-many", faults: &[(P8, 40)] },
    // The scheduler binds a pod before the cordon.
    Trap { mutant: Mutant::UnseenCordon, scenario: "bound-before-the-cordon", faults: &[(P8, 40)] },
    Trap { mutant: Mutant::OwnershipProof, scenario: "exchanged-secret", faults: &[(P8, 40)] },
];

#[test]
fn every_mutant_is_caught_by_its_invariant() {
    // The others need long faults, so `cargo xtask sim` plays them.
    let is_trapped = |mutant: &Mutant| TRAPS.iter().any(|trap| trap.mutant == *mutant);
    let is_played = |mutant: &Mutant| mutant.recorded().is_some();
    let unplayed: Vec<_> =
        Mutant::ALL.iter().filter(|mutant| !is_trapped(mutant) && !is_played(mutant)).collect();
    assert!(unplayed.is_empty(), "mutants without a trap and a recorded seed: {unplayed:?}");
    let mut escaped = Vec::new();
    for Trap { mutant, scenario, faults } in TRAPS {
        let scenario = scenarios::by_name(scenario).expect("a scenario of that name");
        let invariant = mutant.caught_by();
        let mut caught = Vec::new();
        let mut tried = 0;
        for seed in 0..SEEDS {
            if caught.len() == CAUGHT_OFTEN_ENOUGH {
                break;
            }
            tried += 1;
            let whole = Case { weather: Weather::Faults(faults.to_vec()), ..Case::swarm(scenario, seed) };
            check(&whole, Depth::Quiescence);
            let broken = Case { mutant: Some(*mutant), ..whole };
            if play(&broken, Depth::Quiescence).violates(invariant) {
                caught.push(seed);
            }
        }
        println!("{:<20} {invariant:<3} caught by seeds {caught:?} of {tried}", mutant.name());
        if caught.len() < CAUGHT_OFTEN_ENOUGH {
            escaped.push(format!("{} by {invariant}: seeds {caught:?} of {tried}", mutant.name()));
        }
    }
    assert!(escaped.is_empty(), "these mutants were not caught by {CAUGHT_OFTEN_ENOUGH} seeds: {escaped:?}");
}
