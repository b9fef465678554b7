//! Writes whose outcome nobody knows, and writes that the watch does not show: both are settled by reading the object from
//! the API server itself.

use std::sync::Arc;
use std::time::Duration;

use machinist_kube::barrier::{Charge, Expect, Settled, WriteKind};
use machinist_plan::facts::{
    BudgetFacts, ClassFacts, MachineDeploymentFacts, MachineFacts, MachineSetFacts, NodeFacts, PodFacts,
};

use crate::Key;
use crate::feed::{Fed, refresh};
use crate::reconcile::Shared;
use crate::world::{SecretEntry, TokenEntry};

/// How often overdue writes are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl Shared {
    /// Finds out what became of writes without an answer, so that their key may be decided about again.
    ///
    /// A write that has not taken effect by now may still do so. That is safe: a POST has a fixed name, and a patch names what
    /// it was decided from.
    pub(crate) async fn settle_unknown(&self, key: &Key, charges: Vec<Charge>) {
        for charge in charges {
            let Some(expect) = self.world.lock().barrier.expected(charge).cloned() else { continue };
            let Some(settled) = self.look(&expect).await else {
                self.queue.retry(key.clone());
                return;
            };
            tracing::info!(%key, write = ?expect, ?settled, "Settled a write that had no answer");
            let woken = self.world.lock().barrier.settle(charge, settled);
            woken.into_iter().for_each(|key| self.queue.wake(key));
        }
        self.queue.wake(key.clone());
    }

    /// For ever: reads what own writes the watches have not shown in time.
    pub(crate) async fn tend_barrier(self: Arc<Self>) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let overdue = self.world.lock().barrier.overdue();
            for late in overdue {
                if self.look(&late.expect).await.is_some() {
                    tracing::warn!(write = ?late.expect, "A watch has not shown this write in time; it was read instead");
                    let woken = self.world.lock().barrier.verified(late.charge);
                    woken.into_iter().for_each(|key| self.queue.wake(key));
                }
            }
        }
    }

    async fn look(&self, expect: &Expect) -> Option<Settled> {
        match expect.resource {
            MachineFacts::RESOURCE => self.look_at::<MachineFacts>(expect).await,
            MachineSetFacts::RESOURCE => self.look_at::<MachineSetFacts>(expect).await,
            MachineDeploymentFacts::RESOURCE => self.look_at::<MachineDeploymentFacts>(expect).await,
            ClassFacts::RESOURCE => self.look_at::<ClassFacts>(expect).await,
            SecretEntry::RESOURCE => self.look_at::<SecretEntry>(expect).await,
            TokenEntry::RESOURCE => self.look_at::<TokenEntry>(expect).await,
            NodeFacts::RESOURCE => self.look_at::<NodeFacts>(expect).await,
            PodFacts::RESOURCE => self.look_at::<PodFacts>(expect).await,
            BudgetFacts::RESOURCE => self.look_at::<BudgetFacts>(expect).await,
            // Nothing else is ever charged; an unknown name would wait for ever, so it is let go.
            _ => Some(Settled::NotCommitted),
        }
    }

    async fn look_at<F: Fed>(&self, expect: &Expect) -> Option<Settled> {
        match refresh::<F>(self, F::api(self, &expect.key.namespace), &expect.key).await {
            Ok(Some(entry)) if expect.kind == WriteKind::Delete && !entry.deleting => {
                Some(Settled::NotCommitted)
            }
            Ok(Some(entry)) => {
                Some(Settled::Committed { uid: entry.uid, resource_version: entry.resource_version })
            }
            Ok(None) => Some(Settled::NotCommitted),
            Err(error) => {
                tracing::info!(object = %expect.key, %error, "Cannot read what became of a write");
                None
            }
        }
    }
}
