//! The cloud-controller-manager: without faults, under faults, killed at their calls, and with
//! mutants.

use machinist_sim::ccm::mutants::Mutant;
use machinist_sim::ccm::{SimulatedCcm, scenarios};
use machinist_sim::faults::Fault::{D1, D2, D4, D10, P8};
use machinist_sim::run::Depth;

use crate::contracts::{Trap, catch, pass_and_repeat, pass_without_faults, survive_crashes};

#[test]
fn every_scenario_of_the_ccm_passes_without_faults() {
    pass_without_faults::<SimulatedCcm>(scenarios::ALL);
}

#[test]
fn crashes_of_the_ccm_are_survived() {
    survive_crashes::<SimulatedCcm>(&scenarios::SWEPT);
}

#[test]
fn every_seed_of_the_ccm_passes_and_repeats() {
    pass_and_repeat::<SimulatedCcm>(scenarios::ALL, 0..2);
}

const TRAPS: &[Trap<Mutant>] = &[
    Trap { mutant: Mutant::ListAlone, scenario: "unlisted-server", faults: &[(P8, 40)] },
    Trap { mutant: Mutant::AbsentByName, scenario: "renamed-server", faults: &[(P8, 40), (D1, 100)] },
    Trap { mutant: Mutant::HastyRelease, scenario: "balancer-flap", faults: &[(D2, 600), (D4, 600)] },
    Trap { mutant: Mutant::TaintFirst, scenario: "node-init", faults: &[(P8, 40)] },
    Trap { mutant: Mutant::PresentByName, scenario: "ip-reuse", faults: &[(P8, 40), (D10, 100)] },
];

#[test]
fn every_mutant_of_the_ccm_is_caught_by_its_invariant() {
    catch::<SimulatedCcm>(TRAPS, 3, Depth::EndState);
}
