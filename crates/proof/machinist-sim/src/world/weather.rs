//! The long faults that are not on a connection: processes that do not run, a cloud without stock,
//! zones without power, and other writers.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use machinist_apiserver::Server;
use machinist_cloud_sim::{Cloud, Stockout};
use machinist_instance::ProviderId;
use tokio::time::Instant;

use super::built_in::BuiltIn;
use super::marks::Marks;
use super::operator::Operator;
use super::processes::Processes;
use super::restore;
use super::stranger::Stranger;
use crate::actor::{Side, TestedProcess};
use crate::faults::{LongFault, LongKind};
use crate::invariants::outage;
use crate::lab::Lab;
use crate::lives::Replica;
use crate::seed::Seed;

/// The parts of a world that long faults change.
pub(super) struct Elements {
    pub(super) lab: Arc<Lab>,
    pub(super) control: Server,
    pub(super) target: Server,
    pub(super) cloud: Cloud,
    pub(super) processes: Arc<Processes>,
    pub(super) built_in: Arc<BuiltIn>,
    pub(super) seed: Seed,
}

/// Waits for the fault, and lets it happen.
pub(super) async fn happen(elements: Elements, fault: LongFault) {
    let lab = elements.lab.clone();
    let shared = lab.clone();
    lab.endure(fault, &describe(fault), |until| async move {
        match fault.kind {
            // The connections ask the plan.
            LongKind::ServerAway
            | LongKind::SilentWatch
            | LongKind::CloudAway
            | LongKind::RefusedEvictions
            | LongKind::LateWrites
            | LongKind::RefusedTargets
            // The draws of this world do not contain it.
            | LongKind::Restarts => tokio::time::sleep_until(until).await,
            LongKind::FinalizersOff => {
                let Elements { lab, control, target, seed, .. } = elements;
                Stranger { lab, control, target, seed }.interfere_until(fault, until).await;
            }
            LongKind::ControlRestored => restore::happen(&elements, Side::Control, fault, until).await,
            LongKind::TargetRestored => restore::happen(&elements, Side::Target, fault, until).await,
            LongKind::SecondReplica => elements.replicate(fault, until).await,
            LongKind::Crowd => elements.crowd(fault, until).await,
            LongKind::Suspended => elements.suspend(fault, until).await,
            LongKind::Down => elements.kill(fault, until).await,
            LongKind::NoStock => elements.sell_out(until).await,
            LongKind::ZoneOut => elements.cut_power(fault, until).await,
            LongKind::RateLimit => elements.limit(fault, until).await,
            LongKind::ForeignMarks => {
                let servers =
                    [(Side::Control, elements.control.clone()), (Side::Target, elements.target.clone())];
                Marks { lab: elements.lab.clone(), servers: BTreeMap::from(servers), seed: elements.seed }
                    .set_until(fault, until)
                    .await;
            }
        }
    })
    .await;
    if outage::is_judged(fault, shared.plan.profile()) {
        tokio::time::sleep(outage::RESUMES_WITHIN).await;
        for (id, what) in shared.history.look(|state| outage::judge(state, fault.side())).into_inner() {
            shared.history.violate(id, what);
        }
    }
}

fn describe(fault: LongFault) -> String {
    match fault.kind {
        LongKind::ServerAway => format!(": the {} server is {:?}", fault.side(), fault.absence()),
        LongKind::SilentWatch => format!(": watches of the {} server", fault.side()),
        LongKind::Suspended | LongKind::Down => {
            fault.process(&TestedProcess::ALL).map_or_else(String::new, |process| format!(": the {process}"))
        }
        LongKind::CloudAway => format!(": {:?}", fault.absence()),
        LongKind::NoStock
        | LongKind::ZoneOut
        | LongKind::RateLimit
        | LongKind::ForeignMarks
        | LongKind::RefusedEvictions
        | LongKind::LateWrites
        | LongKind::RefusedTargets
        | LongKind::FinalizersOff
        | LongKind::ControlRestored
        | LongKind::TargetRestored
        | LongKind::SecondReplica
        | LongKind::Crowd
        | LongKind::Restarts => String::new(),
    }
}

impl Elements {
    async fn suspend(&self, fault: LongFault, until: Instant) {
        let Some(process) = fault.process(&TestedProcess::ALL) else { return };
        self.processes.suspend(process, Replica::First);
        tokio::time::sleep_until(until).await;
        self.processes.resume(process, Replica::First);
    }

    async fn kill(&self, fault: LongFault, until: Instant) {
        let Some(process) = fault.process(&TestedProcess::ALL) else { return };
        self.processes.kill(process, Replica::First);
        tokio::time::sleep_until(until).await;
    }

    /// Runs a second replica of each process, and suspends or kills leaders.
    async fn replicate(&self, fault: LongFault, until: Instant) {
        const PAUSE: Range<Duration> = Duration::from_secs(10)..Duration::from_secs(150);
        // Some end before another replica may take the Lease, most end after it.
        const SUSPENDED: Range<Duration> = Duration::from_secs(20)..Duration::from_secs(300);
        let mut stream = self.seed.stream(&format!("second replica/{}", fault.pick));
        self.processes.add_standbys();
        while stream.pause(PAUSE, until).await {
            let process = stream.pick(&TestedProcess::ALL).unwrap_or(TestedProcess::Manager);
            let (is_killed, suspended) = (stream.happens(300), stream.within(SUSPENDED));
            let Some(leader) = self.processes.leader(process) else { continue };
            let deed = if is_killed { "killed" } else { "suspended" };
            self.lab.history.note(format!("the {leader:?} replica of the {process} is {deed}"));
            if is_killed {
                self.processes.kill(process, leader);
            } else {
                self.processes.suspend(process, leader);
                tokio::time::sleep_until(until.min(Instant::now() + suspended)).await;
                self.processes.resume(process, leader);
                self.lab.history.note(format!("the {leader:?} replica of the {process} continues"));
            }
        }
        self.processes.remove_standbys();
    }

    /// Another user scales up a deployment of hundreds while the cloud allows few calls, and
    /// deletes it at the end.
    async fn crowd(&self, fault: LongFault, until: Instant) {
        const FEWEST: u64 = 100;
        const MORE: u64 = 200;
        const CALLS: [u32; 4] = [10, 20, 40, 80];
        const DELETED_BEFORE: Duration = Duration::from_secs(10);
        let replicas = FEWEST + fault.pick % MORE;
        let calls = CALLS.get(usize::try_from(fault.pick / 7 % 4).unwrap_or(0)).copied();
        self.cloud.configure(|settings| settings.calls_per_hour = calls.and_then(NonZeroU32::new));
        let operator = Operator { control: &self.control };
        operator.create_crowd(replicas).await;
        // The end state is awaited from the end of the fault on, so the deletion begins before.
        tokio::time::sleep_until(until.checked_sub(DELETED_BEFORE).unwrap_or(until)).await;
        operator.delete_crowd().await;
        tokio::time::sleep_until(until).await;
        self.cloud.configure(|settings| settings.calls_per_hour = None);
    }

    async fn sell_out(&self, until: Instant) {
        self.cloud.configure(|settings| settings.stockouts.push(Stockout::default()));
        tokio::time::sleep_until(until).await;
        // All entries are equal, so it does not matter which one belongs to this fault.
        self.cloud.configure(|settings| drop(settings.stockouts.pop()));
    }

    async fn cut_power(&self, fault: LongFault, until: Instant) {
        let alive = self.cloud.ledger();
        let hit: Vec<ProviderId> = alive
            .alive()
            .filter(|entry| fault.is_in_zone(entry.name.as_str()))
            .map(|entry| entry.id.clone())
            .collect();
        for id in &hit {
            // The instance may have been deleted in this instant.
            let _ = self.cloud.power_off(id);
        }
        tokio::time::sleep_until(until).await;
        for id in &hit {
            let _ = self.cloud.power_on(id);
        }
    }

    async fn limit(&self, fault: LongFault, until: Instant) {
        const FEWEST: u64 = 20;
        const MORE: u64 = 200;
        let calls = u32::try_from(FEWEST + fault.pick % MORE).ok().and_then(NonZeroU32::new);
        self.cloud.configure(|settings| settings.calls_per_hour = calls);
        tokio::time::sleep_until(until).await;
        self.cloud.configure(|settings| settings.calls_per_hour = None);
    }
}
