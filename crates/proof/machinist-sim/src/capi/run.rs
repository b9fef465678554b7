//! Cluster API as a contract of the simulator: how one of its runs is played and judged.

use std::time::Duration;

use super::Case;
use super::mutants::Mutant;
use super::process::ProviderKind;
use super::realm::{ProviderSetup, ProviderWorld};
use super::scenarios::{self, Scenario};
use super::settled::{self, Persons};
use super::tables::MAILGUN_MACHINES;
use crate::actor::Side;
use crate::contract::{Named, SimulatedContract};
use crate::faults::{Fault, LongKind, Victims};
use crate::invariants::Violations;
use crate::run::{Court, Depth, RunReport, run};
use crate::sight::DOCKER_MACHINES;
use crate::stage::ScenarioStage;

/// Cluster API.
#[derive(Debug, Clone, Copy)]
pub struct SimulatedCapi;

impl SimulatedContract for SimulatedCapi {
    type Scenario = Scenario;
    type Mutant = Mutant;

    const NAME: &'static str = "capi";
    const PREFIX: &'static str = super::PREFIX;
    const FAULTS: &'static [Fault] = &Fault::OF_CAPI;
    const LONG_FAULTS: &'static [LongKind] = &LongKind::OF_CAPI;
    const FURTHER_LONG_FAULTS: &'static [LongKind] = &LongKind::FURTHER_OF_CAPI;
    const VICTIMS: &'static [Victims] = &[Victims::Provider];

    fn scenarios() -> &'static [Scenario] {
        scenarios::ALL
    }

    async fn run(case: &Case, depth: Depth) -> RunReport {
        let setup = ProviderSetup {
            seed: case.seed,
            profile: case.profile(),
            crash: case.crash,
            mutant: case.mutant,
            kind: case.scenario.kind,
        };
        run(ProviderWorld::new(&setup).await, async |realm| (case.scenario.play)(realm).await, depth).await
    }
}

impl Named for Scenario {
    fn name(&self) -> &'static str {
        self.name
    }

    fn endures(&self, fault: LongKind) -> bool {
        match fault {
            // Requests by mail have no finalizer.
            LongKind::FinalizersOff => self.kind == ProviderKind::Docker,
            // A user changes the engine or a request, and does not repeat that.
            LongKind::ControlRestored => {
                !["docker-foreign", "docker-lost", "mail-rejected"].contains(&self.name)
            }
            LongKind::ServerAway
            | LongKind::SilentWatch
            | LongKind::CloudAway
            | LongKind::Suspended
            | LongKind::Down
            | LongKind::NoStock
            | LongKind::ZoneOut
            | LongKind::RateLimit
            | LongKind::ForeignMarks
            | LongKind::RefusedEvictions
            | LongKind::LateWrites
            | LongKind::RefusedTargets
            | LongKind::TargetRestored
            | LongKind::SecondReplica
            | LongKind::Crowd
            | LongKind::Restarts => true,
        }
    }
}

/// Time after the end state in which requests of dead processes may still arrive.
const LATE_REQUESTS: Duration = Duration::from_secs(90);

impl Court for ProviderWorld {
    fn stage(&self) -> &ScenarioStage {
        Self::stage(self)
    }

    fn missing(&self) -> Violations {
        let takes_off = |kind: LongKind| kind == LongKind::ForeignMarks;
        let persons = if self.lab().plan.profile().long.iter().any(|fault| takes_off(fault.kind)) {
            Persons::MayHaveToAct
        } else {
            Persons::HaveNothingToDo
        };
        settled::judge(&self.look(), persons)
    }

    fn show(&self) -> String {
        self.look().to_string()
    }

    fn aftermath(&self) -> Duration {
        LATE_REQUESTS
    }

    async fn quiet(&self) -> Violations {
        let changes = || self.lab().history.look(|state| state.outside().changes());
        self.stage().quiet(changes).await
    }

    fn sum_up(&self) -> Violations {
        self.missing()
    }

    fn made(&self) -> String {
        self.lab().history.look(|state| {
            let births = |table| state.births(Side::Control, table);
            format!(
                "{} containers ever, {} mails, DockerMachines [{}], MailgunMachines [{}]",
                state.outside().containers().count(),
                state.outside().mails().len(),
                births(DOCKER_MACHINES),
                births(MAILGUN_MACHINES)
            )
        })
    }
}
