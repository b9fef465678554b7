//! The long faults that are not on a connection: a provider that does not run or runs twice, a
//! management cluster that is restored, and other writers.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use machinist_api::capi::constants::{DOCKER_CLUSTER_FINALIZER, DOCKER_MACHINE_FINALIZER};
use machinist_apiserver::Server;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::marks::Marks;
use super::process::{ProviderKind, ProviderProcess};
use super::tables::{CLUSTERS, MACHINES, MAILGUN_CLUSTERS, MAILGUN_MACHINES};
use super::wishes::Wishes;
use crate::actor::STRANGER;
use crate::backup::{Backup, grow_old};
use crate::faults::{Gate, LongFault, LongKind};
use crate::lab::Lab;
use crate::objects::api_of;
use crate::seed::Seed;
use crate::sight::{DOCKER_CLUSTERS, DOCKER_MACHINES};
use crate::sight::{LEASES, SECRETS, SeenObject};

/// The parts of a world that long faults change.
pub(super) struct Elements {
    pub(super) lab: Arc<Lab>,
    pub(super) management: Server,
    pub(super) provider: Arc<ProviderProcess>,
    /// The gate of the core controllers.
    pub(super) others: Gate,
    pub(super) wishes: Wishes,
    pub(super) kind: ProviderKind,
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
            LongKind::FinalizersOff => elements.release_until(fault, until).await,
            LongKind::ControlRestored => elements.restore(fault, until).await,
            LongKind::SecondReplica => elements.provider.replicate_until(fault, until).await,
            LongKind::Restarts => elements.provider.lives().restart_until(elements.seed, fault, until).await,
            // The connections ask the plan, or no seed of this contract draws them.
            LongKind::ServerAway
            | LongKind::SilentWatch
            | LongKind::CloudAway
            | LongKind::LateWrites
            | LongKind::NoStock
            | LongKind::RateLimit
            | LongKind::ZoneOut
            | LongKind::RefusedEvictions
            | LongKind::RefusedTargets
            | LongKind::TargetRestored
            | LongKind::Crowd => tokio::time::sleep_until(until).await,
        }
    })
    .await;
}

impl Elements {
    /// Restores the management cluster from a backup. Then users repeat their requests.
    async fn restore(&self, fault: LongFault, until: Instant) {
        const TABLES: [&str; 8] = [
            SECRETS,
            CLUSTERS,
            MACHINES,
            DOCKER_CLUSTERS,
            DOCKER_MACHINES,
            MAILGUN_CLUSTERS,
            MAILGUN_MACHINES,
            LEASES,
        ];
        let Self { lab, management, provider, others, .. } = self;
        let backup = Backup::of(management, &TABLES);
        lab.history.note("a backup of the management cluster is made");
        let age = grow_old(self.seed, fault, |until| provider.lives().hold_until(until)).await;
        others.close();
        // Their last requests take effect.
        tokio::time::sleep(Duration::from_secs(1)).await;
        lab.history.note(format!("the management cluster is restored to its state {age:?} before the stop"));
        backup.restore(management, &Backup::of(management, &TABLES), lab).await;
        others.open();
        tokio::spawn(self.wishes.clone().repeat());
        tokio::time::sleep_until(until).await;
    }

    /// Takes the finalizers of the provider off, mostly of objects that are being deleted.
    async fn release_until(&self, fault: LongFault, until: Instant) {
        const PAUSE: Range<Duration> = Duration::from_secs(3)..Duration::from_secs(60);
        const LOOK_EVERY: Duration = Duration::from_millis(200);
        const PATIENCE: Duration = Duration::from_secs(120);
        /// The share of objects that are being deleted, per thousand.
        const DELETED: u32 = 700;
        let mut stream = self.seed.stream(&format!("stranger/{}", fault.pick));
        while stream.pause(PAUSE, until).await {
            let (table, finalizer) = stream
                .pick(&[
                    (DOCKER_MACHINES, DOCKER_MACHINE_FINALIZER),
                    (DOCKER_MACHINES, DOCKER_MACHINE_FINALIZER),
                    (DOCKER_CLUSTERS, DOCKER_CLUSTER_FINALIZER),
                ])
                .unwrap_or((DOCKER_MACHINES, DOCKER_MACHINE_FINALIZER));
            let (of_deleted, which) = (stream.happens(DELETED), stream.bits());
            let end = if of_deleted { until.min(Instant::now() + PATIENCE) } else { Instant::now() };
            let chosen = loop {
                let mut objects = self.management.snapshot(table);
                objects.retain(|object| SeenObject(object.value()).is_deleting() || !of_deleted);
                let count = u64::try_from(objects.len()).unwrap_or(u64::MAX);
                let index = which.checked_rem(count).and_then(|index| usize::try_from(index).ok());
                match index {
                    Some(index) => break Some(objects.swap_remove(index)),
                    None if end <= Instant::now() => break None,
                    None => tokio::time::sleep(LOOK_EVERY).await,
                }
            };
            let Some(object) = chosen else { continue };
            let seen = SeenObject(object.value());
            let all = seen.list("/metadata/finalizers");
            let others: Vec<&Value> = all.iter().filter(|other| *other != finalizer).collect();
            let revision = seen.text("/metadata/resourceVersion");
            let patch = json!({"metadata": {"finalizers": others, "resourceVersion": revision}});
            self.lab.history.note(format!("another actor patches {table} {}: {patch}", seen.name()));
            let api = api_of(&self.management, table, object.value(), STRANGER);
            // The object may have changed meanwhile.
            let _ = api.patch(seen.name(), &PatchParams::default(), &Patch::Merge(patch)).await;
        }
    }
}
