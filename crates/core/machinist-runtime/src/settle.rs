//! Writes whose outcome is unknown, and writes that the watch does not show in time.
//!
//! A POST or a patch without an answer is settled by reading the object. If it takes effect later, it does no harm: a POST has a
//! fixed name, and a patch tests what it was decided from. A patch for which others are deleted is read a minute after it was sent,
//! when it can have no more effect: until then its object might look as it did when that was decided. A DELETE is different: it may hang in a webhook and take effect after
//! another object was deleted for the same limit. So a DELETE is repeated, for the same UID, until an answer says what became of
//! the object. Until then the keys that count the object stay charged, so nothing else is deleted for that limit.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use machinist_core::{Reason, Step, Why};
use machinist_kube::WriteOutcome;
use machinist_kube::barrier::{Charge, Expect, Settled, WriteKind};
use tokio::time::Instant;

use crate::contract::Contract;
use crate::feed::{Fed, refresh};
use crate::panics;
use crate::pass::program_failed;
use crate::runtime::{LAST_WRITES, Runtime};
use crate::write::{by_uid, committed};

/// How often overdue writes are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What is asked about a write.
#[derive(Clone, Copy)]
pub enum Question {
    /// Nobody knows whether it took effect.
    Unknown,
    /// It took effect, and the watch has not shown it.
    Overdue,
}

impl<C: Contract> Runtime<C> {
    /// Starts to find out what became of writes without an answer, so that their key may be decided about again. A slow webhook
    /// holds no worker: the answers are awaited by a task of their own.
    pub(crate) fn settle_unknown(self: &Arc<Self>, key: &C::Key, charges: Vec<Charge>) {
        let mine: Vec<(Charge, Expect, Instant)> = {
            let mut world = self.world.lock();
            let unsettled = charges.into_iter().filter(|charge| world.settling.insert(*charge));
            let mine: Vec<Charge> = unsettled.collect();
            let expected = |charge| {
                let (expect, sent) = world.barrier.expected(charge)?;
                Some((charge, expect.clone(), sent))
            };
            mine.into_iter().filter_map(expected).collect()
        };
        let Some((_, first, _)) = mine.first() else { return };
        let write = format!("{} of {} {}", verb(first.kind), first.resource, first.key);
        let why = Why::new(
            Reason::WriteUnsettled { write },
            Step::Expect("the controller reads the outcome from the API server"),
        );
        self.note(key, why.since(self.now()), Vec::new());
        let (runtime, key) = (self.clone(), key.clone());
        let asking = self.in_flight.ask();
        self.spawn(async move {
            let _asking = asking;
            let charges: Vec<Charge> = mine.iter().map(|(charge, ..)| *charge).collect();
            let settled = panics::catch_async(runtime.settle(mine)).await;
            runtime.world.lock().settling.retain(|charge| !charges.contains(charge));
            match settled {
                Ok(true) => runtime.queue.wake(key),
                Ok(false) => drop(runtime.queue.retry(key)),
                Err(panicked) => {
                    runtime.note_panic(&key, program_failed("settling a write of it failed", panicked));
                }
            }
        });
    }

    /// Asks what became of the writes without an answer that take something away, until that is known of all of them.
    pub(crate) async fn settle_losses(&self) {
        loop {
            let unknown = self.world.lock().barrier.unknown_losses();
            let questions = unknown.into_iter().map(async |(charge, expect, sent)| {
                if !self.settle_one(charge, &expect, sent).await {
                    tokio::time::sleep(LOOK_EVERY).await;
                }
            });
            if join_all(questions).await.is_empty() {
                return;
            }
        }
    }

    /// Takes in what became of a write, and wakes the keys that have waited for nothing else.
    pub(crate) fn settle_charge(&self, charge: Charge, settled: Settled) {
        let woken = self.world.lock().barrier.settle(charge, settled);
        woken.into_iter().for_each(|key| self.queue.wake(key));
    }

    /// Whether all of them could be settled.
    async fn settle(&self, charges: Vec<(Charge, Expect, Instant)>) -> bool {
        for (charge, expect, sent) in charges {
            if !self.settle_one(charge, &expect, sent).await {
                return false;
            }
        }
        true
    }

    async fn settle_one(&self, charge: Charge, expect: &Expect, sent: Instant) -> bool {
        if expect.kind == WriteKind::TakeAway {
            tokio::time::sleep_until(sent + LAST_WRITES).await;
        }
        let Some(settled) = self.ask_about(expect, Question::Unknown).await else { return false };
        tracing::info!(write = ?expect, ?settled, "Settled a write that had no answer");
        self.settle_charge(charge, settled);
        true
    }

    /// For ever: reads what own writes the watches have not shown in time.
    pub(crate) async fn tend_barrier(self: Arc<Self>) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let overdue = self.world.lock().barrier.overdue();
            for late in overdue {
                if self.ask_about(&late.expect, Question::Overdue).await.is_some() {
                    tracing::warn!(write = ?late.expect, "A watch has not shown this write in time; it was read instead");
                    let woken = self.world.lock().barrier.verified(late.charge);
                    woken.into_iter().for_each(|key| self.queue.wake(key));
                }
            }
        }
    }

    async fn ask_about(&self, expect: &Expect, question: Question) -> Option<Settled> {
        match self.feeds.iter().find(|feed| feed.resource() == expect.resource) {
            Some(feed) => feed.ask_about(self, expect, question).await,
            // No other kind is ever charged; an unknown name would wait for ever, so its charge is closed.
            None => Some(Settled::NotCommitted),
        }
    }
}

/// Asks the API server what became of a write of that kind.
pub(crate) async fn ask_api<C: Contract, F: Fed<C>>(
    runtime: &Runtime<C>,
    expect: &Expect,
    question: Question,
) -> Option<Settled> {
    match (question, expect.kind, &expect.uid) {
        (Question::Unknown, WriteKind::Delete, Some(uid)) => delete_again::<C, F>(runtime, expect, uid).await,
        _ => read::<C, F>(runtime, expect).await,
    }
}

async fn read<C: Contract, F: Fed<C>>(runtime: &Runtime<C>, expect: &Expect) -> Option<Settled> {
    match refresh::<C, F>(runtime, &expect.key).await {
        Ok(Some(entry)) if expect.kind == WriteKind::Delete && !entry.deleting => Some(Settled::NotCommitted),
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

/// Repeats a DELETE whose answer was lost. Its deadline is longer than a webhook may take, so the first one has ended by the
/// time at which this one is answered.
async fn delete_again<C: Contract, F: Fed<C>>(
    runtime: &Runtime<C>,
    expect: &Expect,
    uid: &str,
) -> Option<Settled> {
    let api = F::api(runtime, &expect.key.namespace);
    let result = api.delete(&expect.key.name, &by_uid(uid)).await;
    match (WriteOutcome::of(&result), &result) {
        (WriteOutcome::Done, Ok(either::Either::Left(object))) => Some(committed(object)),
        // Stale: an object of that name exists and has another UID.
        (WriteOutcome::Done | WriteOutcome::NotFound | WriteOutcome::Stale, _) => {
            Some(Settled::Deleted { uid: uid.to_owned() })
        }
        (WriteOutcome::Denied { .. } | WriteOutcome::Invalid { .. } | WriteOutcome::AlreadyExists, _) => {
            Some(Settled::NotCommitted)
        }
        (WriteOutcome::Throttled { .. } | WriteOutcome::Unknown { .. }, _) => {
            tracing::info!(object = %expect.key, "Cannot find out yet what became of a DELETE");
            None
        }
    }
}

fn verb(kind: WriteKind) -> &'static str {
    match kind {
        WriteKind::Create => "POST",
        WriteKind::Update | WriteKind::TakeAway => "PATCH",
        WriteKind::Delete => "DELETE",
    }
}
