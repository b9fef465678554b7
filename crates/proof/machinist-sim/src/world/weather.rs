//! The long faults that are not on a connection: processes that do not run, a cloud without stock,
//! zones without power, and other writers.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use machinist_apiserver::Server;
use machinist_cloud_sim::{Cloud, Stockout};
use machinist_instance::ProviderId;
use tokio::time::Instant;

use super::marks::Marks;
use super::processes::Processes;
use crate::actor::{Process, Side};
use crate::faults::crash::Victims;
use crate::faults::{LongFault, LongKind};
use crate::lab::Lab;
use crate::seed::Seed;

/// The parts of a world that long faults change.
pub(super) struct Elements {
    pub(super) lab: Arc<Lab>,
    pub(super) control: Server,
    pub(super) target: Server,
    pub(super) cloud: Cloud,
    pub(super) processes: Arc<Processes>,
    pub(super) seed: Seed,
}

/// Waits for the fault, and lets it happen.
pub(super) async fn happen(elements: Elements, fault: LongFault) {
    let lab = elements.lab.clone();
    lab.endure(fault, &describe(fault), |until| async move {
        match fault.kind {
            // The connections ask the plan.
            LongKind::ServerAway
            | LongKind::SilentWatch
            | LongKind::CloudAway
            | LongKind::RefusedEvictions
            | LongKind::LateWrites
            | LongKind::RefusedTargets => tokio::time::sleep_until(until).await,
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
}

fn describe(fault: LongFault) -> String {
    match fault.kind {
        LongKind::ServerAway => format!(": the {} server is {:?}", fault.side(), fault.absence()),
        LongKind::SilentWatch => format!(": watches of the {} server", fault.side()),
        LongKind::Suspended | LongKind::Down => {
            fault.process(&Process::ALL).map_or_else(String::new, |process| format!(": the {process}"))
        }
        LongKind::CloudAway => format!(": {:?}", fault.absence()),
        LongKind::NoStock
        | LongKind::ZoneOut
        | LongKind::RateLimit
        | LongKind::ForeignMarks
        | LongKind::RefusedEvictions
        | LongKind::LateWrites
        | LongKind::RefusedTargets => String::new(),
    }
}

impl Elements {
    async fn suspend(&self, fault: LongFault, until: Instant) {
        let Some(process) = fault.process(&Process::ALL) else { return };
        self.processes.suspend(process);
        tokio::time::sleep_until(until).await;
        self.processes.resume(process);
    }

    async fn kill(&self, fault: LongFault, until: Instant) {
        let Some(process) = fault.process(&Process::ALL) else { return };
        self.lab.points.strike(Victims::from(process));
        tokio::time::sleep_until(until).await;
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
