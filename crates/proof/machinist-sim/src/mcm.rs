//! The machine API as a contract of the simulator: how one of its runs is played and judged.

use std::collections::BTreeMap;

use machinist_cloud_sim::Operation;

use crate::actor::{Side, TestedProcess};
use crate::case::{Case, Long};
use crate::contract::{Named, SimulatedContract};
use crate::faults::{Fault, LongKind, Victims};
use crate::invariants::{Disturbed, EndState, Quiet, Spent, Violations};
use crate::lab::AnswerRecord;
use crate::mutants::Mutant;
use crate::passes;
use crate::run::{Court, Depth, RunReport, run};
use crate::scenarios::{self, Scenario};
use crate::sight::{MACHINE_CLASSES, MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES, NODES, SECRETS};
use crate::stage::ScenarioStage;
use crate::world::processes::RESYNC;
use crate::world::simulated::{MachineSetup, Simulated};
use crate::world::workload::Election;
use crate::world::{MachineWorld, Workload};

/// The machine API.
#[derive(Debug, Clone, Copy)]
pub struct SimulatedMcm;

impl SimulatedContract for SimulatedMcm {
    type Scenario = Scenario;
    type Mutant = Mutant;

    const NAME: &'static str = "mcm";
    const PREFIX: &'static str = "";
    const FAULTS: &'static [Fault] = &Fault::OF_MCM;
    const FURTHER_FAULTS: &'static [Fault] = &[Fault::D1];
    const LONG_FAULTS: &'static [LongKind] = &LongKind::OF_MCM;
    const FURTHER_LONG_FAULTS: &'static [LongKind] = &LongKind::FURTHER_OF_MCM;
    const VICTIMS: &'static [Victims] = &Victims::ALL;

    fn scenarios() -> &'static [Scenario] {
        scenarios::EVERY
    }

    fn further_scenarios() -> &'static [Scenario] {
        scenarios::FURTHER
    }

    fn undrawn_scenarios() -> &'static [Scenario] {
        scenarios::UNDRAWN
    }

    async fn run(case: &Case, depth: Depth) -> RunReport {
        let world = Simulated::new(&setup_of(case)).await;
        run(world, async |world| (case.scenario.play)(world).await, depth).await
    }
}

impl Named for Scenario {
    fn name(&self) -> &'static str {
        self.name
    }

    fn is_about(&self) -> &'static [LongKind] {
        self.is_about
    }

    fn endures(&self, fault: LongKind) -> bool {
        let has_sets = !scenarios::WITHOUT_SETS.contains(&self.name);
        let has_safety = scenarios::WITH_SAFETY.contains(&self.name);
        match fault {
            // A Machine without a set that is given up is never replaced.
            LongKind::NoStock | LongKind::RateLimit | LongKind::CloudAway | LongKind::ZoneOut => {
                // An orphan that gets its power back registers its Node again, and is kept.
                let revives_orphans = fault == LongKind::ZoneOut && has_safety;
                has_sets && !revives_orphans
            }
            // Two writers would choose different Machines. A Node that another client keeps blocks
            // its name, and a kubelet does not register a second time.
            LongKind::ForeignMarks => self.name != "scale-by-choice" && self.name != "same-name-again",
            // The Machine may be given up before it reports the foreign instance.
            LongKind::ServerAway | LongKind::SilentWatch | LongKind::Suspended | LongKind::Down => {
                let is_silent = fault == LongKind::ServerAway && scenarios::SILENT.contains(&self.name);
                self.name != "foreign-instance" && !is_silent
            }
            LongKind::RefusedEvictions
            | LongKind::LateWrites
            | LongKind::RefusedTargets
            | LongKind::Restarts => true,
            // A Machine that another actor releases is deleted at once, with its Node and its pod.
            // An operator deletes all orphans.
            LongKind::FinalizersOff => {
                // The set does not replace a Machine that it has lost.
                let alone = ["heal-with-a-pod", "preserved", "relabelled"];
                has_sets && !has_safety && !alone.contains(&self.name)
            }
            LongKind::ControlRestored => scenarios::RESTORABLE.contains(&self.name),
            // Their pods and Nodes would be lost, and the user does not create them again.
            LongKind::TargetRestored => {
                let has_own = [
                    "drain",
                    "drain-of-a-crowd",
                    "volumes",
                    "in-place",
                    "in-place-by-hand",
                    "heal-with-a-pod",
                    "preserved",
                    "bound-before-the-cordon",
                ];
                has_sets && !has_safety && !has_own.contains(&self.name)
            }
            // The scenario stops the processes itself. A second manager has not seen which Machines
            // the first one lost.
            LongKind::SecondReplica => !["restored", "relabelled"].contains(&self.name),
            // The user erases, orphans or changes all objects, or counts the instances of the
            // account.
            LongKind::Crowd => {
                let counts = ["restored", "orphan", "exchanged-secret", "relabelled"];
                has_sets && !has_safety && !counts.contains(&self.name)
            }
        }
    }
}

impl Court for Simulated {
    fn stage(&self) -> &ScenarioStage {
        Self::stage(self)
    }

    fn missing(&self) -> Violations {
        self.lab().history.look(EndState::judge)
    }

    fn show(&self) -> String {
        self.view().to_string()
    }

    async fn quiet(&self) -> Violations {
        let window = self.pace().watch_for;
        let (answers, calls, passes) = (self.answers().len(), calls(self), passes::counts());
        tokio::time::sleep(window).await;
        let mut quiet = Quiet { window, ..Quiet::default() };
        for answer in &self.answers()[answers..] {
            if answer.ends_quiet() {
                *quiet
                    .writes
                    .entry(format!("{} {} {}", answer.process, answer.verb, answer.about))
                    .or_default() += 1;
            }
        }
        quiet.calls = u32::try_from(self::calls(self) - calls).unwrap_or(u32::MAX);
        quiet.passes = passes::counts();
        for (kind, before) in passes {
            quiet.passes.entry(kind).and_modify(|after| *after -= before);
        }
        quiet.judge(&objects(self), RESYNC)
    }

    fn sum_up(&self) -> Violations {
        let lab = self.lab();
        // Under long faults, writes are repeated for hours.
        if !lab.plan.profile().long.is_empty() {
            return Violations::default();
        }
        let writes = self.answers().iter().filter(|answer| is_budgeted(answer)).count();
        let spent = lab.history.look(|state| Spent::of(state, writes));
        let disturbances = lab.plan.injected() + usize::from(lab.points.happened()) * PER_CRASH;
        let disturbed = if disturbances == 0 { Disturbed::Never } else { Disturbed::Times(disturbances) };
        spent.judge(disturbed)
    }

    fn made(&self) -> String {
        let machines: usize = self
            .lab()
            .history
            .look(|state| state.table(Side::Control, MACHINES).map(|(_, track)| track.births()).sum());
        let (ever, alive) = (self.cloud().ledger().ever().len(), self.cloud().alive());
        format!("{machines} Machines ever, {ever} instances ever, {alive} instances")
    }
}

/// A restarted process repeats a few writes, because it never saw their answers.
const PER_CRASH: usize = 8;

/// Whether an answer counts against the budget of writes. Only Machines, Nodes and tokens have a
/// budget. Classes and their Secrets are marked once, independent of the number of Machines. Events
/// and evictions are counted separately.
fn is_budgeted(answer: &AnswerRecord) -> bool {
    let is_machines = match answer.side {
        Side::Control => answer.about.table == MACHINES,
        Side::Target => answer.about.table == NODES || answer.about.table == SECRETS,
    };
    answer.process == TestedProcess::MachineController && !answer.is_read() && is_machines
}

/// Number of driver calls, without the lists that are due from time to time.
fn calls(world: &Simulated) -> u64 {
    let counts = world.cloud().call_counts().into_iter();
    let is_due = |operation| world.has_safety() && operation == Operation::List;
    counts.filter(|(operation, _)| !is_due(*operation)).map(|(_, count)| count).sum()
}

fn objects(world: &Simulated) -> BTreeMap<&'static str, u64> {
    let count = |table| {
        let count = world.server(Side::Control).snapshot(table).len();
        u64::try_from(count).unwrap_or(u64::MAX)
    };
    BTreeMap::from([
        ("machine", count(MACHINES)),
        ("machineset", count(MACHINE_SETS)),
        ("machinedeployment", count(MACHINE_DEPLOYMENTS)),
        ("machineclass", count(MACHINE_CLASSES)),
        ("secret", count(SECRETS)),
        ("lost owner", count(MACHINES)),
        (
            "orphaned node",
            u64::try_from(world.server(Side::Target).snapshot(NODES).len()).unwrap_or(u64::MAX),
        ),
        ("replacement", count(MACHINE_DEPLOYMENTS) + count(MACHINES)),
    ])
}

/// The setup of the world of a case.
fn setup_of(case: &Case) -> MachineSetup {
    let setup = MachineSetup::swarm(case.seed, case.profile());
    let workload = match case.long {
        Long::None => Workload::USUAL,
        Long::Drawn | Long::These(_) => Workload::draw(case.seed),
    };
    // Two replicas without an election are a mistake of the user.
    let is_replicated = setup.profile.long.iter().any(|fault| fault.kind == LongKind::SecondReplica);
    let election = if is_replicated { Election::Lease } else { workload.election };
    let workload = Workload { election, ..workload };
    let has_safety = scenarios::WITH_SAFETY.contains(&case.scenario.name);
    MachineSetup { crash: case.crash, mutant: case.mutant, workload, has_safety, ..setup }
}
