//! The cloud-controller-manager as a contract of the simulator: how one of its runs is played and
//! judged.

use std::time::Duration;

use super::cluster::{ServiceSetup, ServiceWorld};
use super::mutants::Mutant;
use super::scenarios::{self, Scenario};
use super::{Case, settled};
use crate::actor::Side;
use crate::contract::{Named, SimulatedContract};
use crate::faults::{Fault, LongKind, Victims};
use crate::invariants::Violations;
use crate::run::{Court, Depth, RunReport, run};
use crate::sight::NODES;
use crate::sight::SERVICES;
use crate::stage::ScenarioStage;

/// The cloud-controller-manager.
#[derive(Debug, Clone, Copy)]
pub struct SimulatedCcm;

impl SimulatedContract for SimulatedCcm {
    type Scenario = Scenario;
    type Mutant = Mutant;

    const NAME: &'static str = "ccm";
    const PREFIX: &'static str = super::PREFIX;
    const FAULTS: &'static [Fault] = &Fault::OF_CCM;
    const LONG_FAULTS: &'static [LongKind] = &LongKind::OF_CCM;
    const FURTHER_LONG_FAULTS: &'static [LongKind] = &LongKind::FURTHER_OF_CCM;
    const VICTIMS: &'static [Victims] = &[Victims::CloudController];

    fn scenarios() -> &'static [Scenario] {
        scenarios::ALL
    }

    fn further_scenarios() -> &'static [Scenario] {
        scenarios::FURTHER
    }

    async fn run(case: &Case, depth: Depth) -> RunReport {
        let setup = ServiceSetup {
            seed: case.seed,
            profile: case.profile(),
            crash: case.crash,
            mutant: case.mutant,
            has_machines: case.scenario.has_machines,
        };
        run(ServiceWorld::new(&setup).await, async |cluster| (case.scenario.play)(cluster).await, depth).await
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
        match fault {
            // The machine controller replaces servers that are silent for long, so their Nodes
            // change. Its cluster is restored in its own world.
            LongKind::ZoneOut => !self.has_machines,
            LongKind::TargetRestored => !self.has_machines && !self.names_balancers,
            // A load balancer that lost its Service keeps the name that another one wants.
            LongKind::FinalizersOff => !self.names_balancers,
            LongKind::ServerAway
            | LongKind::SilentWatch
            | LongKind::CloudAway
            | LongKind::Suspended
            | LongKind::Down
            | LongKind::NoStock
            | LongKind::RateLimit
            | LongKind::ForeignMarks
            | LongKind::RefusedEvictions
            | LongKind::LateWrites
            | LongKind::RefusedTargets
            | LongKind::ControlRestored
            | LongKind::SecondReplica
            | LongKind::Crowd
            | LongKind::Restarts => true,
        }
    }
}

/// Time after the end state in which requests of dead processes may still arrive.
const LATE_REQUESTS: Duration = Duration::from_secs(90);

impl Court for ServiceWorld {
    fn stage(&self) -> &ScenarioStage {
        Self::stage(self)
    }

    fn missing(&self) -> Violations {
        settled::judge(&self.look())
    }

    fn show(&self) -> String {
        self.look().to_string()
    }

    fn aftermath(&self) -> Duration {
        LATE_REQUESTS
    }

    async fn quiet(&self) -> Violations {
        let changes = || {
            let counters = self.standin().counters();
            let changes = counters.iter().filter(|(label, _)| !label.starts_with("GET"));
            changes.map(|(_, count)| count).sum::<u64>()
        };
        self.stage().quiet(changes).await
    }

    fn sum_up(&self) -> Violations {
        self.missing()
    }

    fn made(&self) -> String {
        self.lab().history.look(|state| {
            let births = |table| state.births(Side::Target, table);
            format!(
                "{} load balancers ever, Nodes [{}], Services [{}]",
                state.project().balancers_ever(),
                births(NODES),
                births(SERVICES)
            )
        })
    }
}
