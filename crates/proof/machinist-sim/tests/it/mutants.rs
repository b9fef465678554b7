//! Each mutant with a trap must be caught by its invariant, on seeds that the correct program
//! passes.

use machinist_sim::faults::Fault::{D2, D3, D4, P1, P8, P9};
use machinist_sim::mcm::SimulatedMcm;
use machinist_sim::mutants::Mutant;
use machinist_sim::run::Depth;

use crate::contracts::{Trap, catch};

const TRAPS: &[Trap<Mutant>] = &[
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
    Trap { mutant: Mutant::OrphanAtFirstSight, scenario: "orphans", faults: &[(P8, 40)] },
    Trap { mutant: Mutant::OrphanAtAnyAge, scenario: "young-orphan", faults: &[(P8, 40)] },
    Trap { mutant: Mutant::OrphanDespiteItsNode, scenario: "orphans", faults: &[(P8, 40)] },
    Trap { mutant: Mutant::OrphanOfAnyNamespace, scenario: "orphans", faults: &[(P8, 40)] },
    Trap { mutant: Mutant::MarksOfAnyNamespace, scenario: "shared-cluster", faults: &[(P8, 40)] },
    Trap { mutant: Mutant::HastyAnnotation, scenario: "shared-cluster", faults: &[(P8, 40)] },
    Trap { mutant: Mutant::FailedInitialization, scenario: "initialized", faults: &[(D2, 300), (D3, 300)] },
    Trap { mutant: Mutant::ForgottenPreservation, scenario: "preserved", faults: &[(P8, 40)] },
    Trap { mutant: Mutant::ForgottenStrays, scenario: "relabelled", faults: &[(P8, 40)] },
    Trap { mutant: Mutant::HastySelection, scenario: "in-place", faults: &[(P8, 40)] },
    Trap { mutant: Mutant::ForgottenVolumes, scenario: "volumes", faults: &[(P8, 40)] },
    // The answer is lost, and reads do not show the instance yet.
    Trap {
        mutant: Mutant::ForgottenZone,
        scenario: "moved-zone",
        faults: &[(D2, 300), (D3, 300), (D4, 600)],
    },
    Trap { mutant: Mutant::MovedInstances, scenario: "moved-class", faults: &[(P8, 40)] },
];

#[test]
fn every_mutant_is_caught_by_its_invariant() {
    catch::<SimulatedMcm>(TRAPS, 2, Depth::Quiescence);
}
