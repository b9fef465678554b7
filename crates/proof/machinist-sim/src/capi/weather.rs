//! The long faults that are not on a connection: a provider that does not run, and other writers.

use std::sync::Arc;

use machinist_apiserver::Server;

use super::marks::Marks;
use super::process::{Kind, Provider};
use crate::faults::{LongFault, LongKind};
use crate::lab::Lab;
use crate::seed::Seed;

/// The parts of a world that long faults change.
pub(super) struct Elements {
    pub(super) lab: Arc<Lab>,
    pub(super) management: Server,
    pub(super) provider: Arc<Provider>,
    pub(super) kind: Kind,
    pub(super) seed: Seed,
}

/// Waits for the fault, and lets it happen.
pub(super) async fn happen(elements: Elements, fault: LongFault) {
    let lab = elements.lab.clone();
    lab.endure(fault, "", |until| async move {
        match fault.kind {
            LongKind::Suspended => elements.provider.lives().suspend_until(until).await,
            LongKind::Down => elements.provider.lives().down_until(until).await,
            LongKind::ForeignMarks => {
                let Elements { lab, management, kind, seed, .. } = elements;
                Marks { lab, management, kind, seed }.set_until(fault, until).await;
            }
            // The connections ask the plan.
            LongKind::ServerAway
            | LongKind::SilentWatch
            | LongKind::CloudAway
            | LongKind::LateWrites
            | LongKind::NoStock
            | LongKind::RateLimit
            | LongKind::ZoneOut
            | LongKind::RefusedEvictions
            | LongKind::RefusedTargets
            | LongKind::FinalizersOff
            | LongKind::ControlRestored
            | LongKind::TargetRestored
            | LongKind::SecondReplica
            | LongKind::Crowd => tokio::time::sleep_until(until).await,
        }
    })
    .await;
}
