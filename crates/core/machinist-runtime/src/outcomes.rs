//! Reads the outcomes of writes without an answer, and of writes that the watch does not show in
//! time.
//!
//! - **POST or patch without an answer:** the runtime reads the object. A later effect does no
//!   harm: a POST has a fixed name, and a patch tests the values of its decision.
//! - **Patch that causes deletions:** the runtime reads the object a minute after it sent the
//!   patch, because the patch cannot take effect later. An earlier read might show the object
//!   before the effect.
//! - **DELETE without an answer:** the request may hang in a webhook, and take effect after the
//!   controller has deleted another object for the same limit. So for one minute the runtime
//!   repeats the DELETE for the same UID: the first request may take effect in that time anyway.
//!   Later a repetition would act on an old decision, so the runtime only reads the object. An
//!   object that is not being deleted a minute after the last request stays, and the next pass
//!   decides about it again. Until the outcome is known, the keys that count the object stay
//!   charged, and the controller deletes no other object for that limit.
//! - **DELETE of an object that a controller chose among several:** it is not repeated at all. The
//!   runtime reads the object a minute after it sent the DELETE, and the controller chooses again.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use machinist_core::{Reason, Step, Why};
use machinist_kube::barrier::{Charge, Expect, Settled, Unanswered, WriteKind};
use machinist_kube::{Cluster, WriteOutcome};
use tokio::time::Instant;

use crate::collection::Collection;
use crate::contract::Contract;
use crate::feed::{Fed, Question};
use crate::panics;
use crate::pass::program_failed;
use crate::runtime::{LAST_WRITES, Runtime};
use crate::take_in::refresh;

/// The interval of the checks for overdue writes.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl<C: Contract> Runtime<C> {
    /// Starts a task that reads the outcomes of unanswered writes, so that passes can decide about
    /// their key again. A slow webhook blocks no worker, because the task awaits the answers.
    pub(crate) fn begin_reading_outcomes(self: &Arc<Self>, key: &C::Key, charges: Vec<Charge>) {
        let mine: Vec<Unanswered> = {
            let mut world = self.world.lock();
            let unsettled = charges.into_iter().filter(|charge| world.outcomes_being_read.insert(*charge));
            let mine: Vec<Charge> = unsettled.collect();
            mine.into_iter().filter_map(|charge| world.barrier.unanswered(charge)).collect()
        };
        let Some(first) = mine.first().map(|write| &write.expect) else { return };
        let write = format!("{} of {} {}", verb(first.kind), first.resource, first.key);
        let sent = mine.iter().map(|write| write.sent).min().unwrap_or_else(Instant::now);
        let since = self.now().checked_sub(sent.elapsed()).ok();
        let why = Why::new(
            Reason::WriteUnsettled { write },
            Step::Expect("the controller reads the outcome from the API server"),
        );
        let why = why.since(since);
        self.note(key, why.clone(), Vec::new());
        let (runtime, key) = (self.clone(), key.clone());
        let asking = self.in_flight.ask();
        self.spawn(async move {
            let _asking = asking;
            let charges: Vec<Charge> = mine.iter().map(|write| write.charge).collect();
            let settled = panics::catch_async(runtime.read_outcomes(mine)).await;
            runtime.world.lock().outcomes_being_read.retain(|charge| !charges.contains(charge));
            match settled {
                Ok(None) => runtime.queue.wake(key),
                Ok(Some(silent)) => {
                    // The first answer of that server wakes the key earlier.
                    let delay = runtime.queue.retry(key.clone());
                    let again_at = runtime.wall(Instant::now() + delay);
                    let again =
                        Step::Expect("the controller tries again, or earlier if the API server answers");
                    runtime.note(&key, why.deadline(again_at, again), Vec::new());
                    runtime.world.lock().outages.await_answer(silent, key);
                }
                Err(panicked) => {
                    runtime.note_panic(&key, program_failed("reading a write's outcome failed", panicked));
                }
            }
        });
    }

    /// Reads the outcomes of the unanswered writes that cause deletions. Returns when all of them
    /// are known.
    pub(crate) async fn read_outcomes_of_losses(&self) {
        loop {
            let unknown = self.world.lock().barrier.unknown_losses();
            let questions = unknown.into_iter().map(async |write| {
                if !self.read_outcome(&write).await {
                    tokio::time::sleep(LOOK_EVERY).await;
                }
            });
            if join_all(questions).await.is_empty() {
                return;
            }
        }
    }

    /// Records the outcome of a write, and wakes the keys that waited only for it.
    pub(crate) fn record_outcome(&self, charge: Charge, settled: Settled) {
        let woken = self.world.lock().barrier.record_outcome(charge, settled);
        woken.into_iter().for_each(|key| self.queue.wake(key));
    }

    /// Reads the outcomes of the writes. Returns the cluster whose server did not show an outcome.
    async fn read_outcomes(&self, writes: Vec<Unanswered>) -> Option<Cluster> {
        for write in writes {
            if !self.read_outcome(&write).await {
                return Some(write.expect.cluster);
            }
        }
        None
    }

    /// Reads the outcome of one write. Returns whether it is known now.
    async fn read_outcome(&self, write: &Unanswered) -> bool {
        let settled = match write.expect.kind {
            WriteKind::Delete if write.sent.elapsed() < LAST_WRITES => {
                self.world.lock().barrier.repeated(write.charge);
                self.ask_about(&write.expect, Question::UnknownAndRecent).await
            }
            WriteKind::Delete => self.outcome_of_old_delete(write).await,
            WriteKind::TakeAway | WriteKind::DeleteChosen => {
                tokio::time::sleep_until(write.sent + LAST_WRITES).await;
                self.ask_about(&write.expect, Question::Unknown).await
            }
            WriteKind::Create | WriteKind::Update => self.ask_about(&write.expect, Question::Unknown).await,
        };
        let Some(settled) = settled else { return false };
        tracing::info!(write = ?write.expect, ?settled, "Read the outcome of an unanswered write");
        self.record_outcome(write.charge, settled);
        true
    }

    /// Reads the outcome of a DELETE that is no longer repeated. An object that is not being
    /// deleted yet is read again when the last request can no longer take effect.
    async fn outcome_of_old_delete(&self, write: &Unanswered) -> Option<Settled> {
        let asked = Instant::now();
        let settled = self.ask_about(&write.expect, Question::Unknown).await?;
        let effective_until = write.last_sent + LAST_WRITES;
        if settled != Settled::NotCommitted || effective_until <= asked {
            return Some(settled);
        }
        tokio::time::sleep_until(effective_until).await;
        self.ask_about(&write.expect, Question::Unknown).await
    }

    /// Reads the writes that the watches have not shown in time, in an endless loop.
    pub(crate) async fn tend_barrier(self: Arc<Self>) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let overdue = self.world.lock().barrier.overdue();
            for late in overdue {
                if self.ask_about(&late.expect, Question::Overdue).await.is_some() {
                    tracing::warn!(
                        write = ?late.expect,
                        "A watch did not show this write in time; read the object instead"
                    );
                    let woken = self.world.lock().barrier.verified(late.charge);
                    woken.into_iter().for_each(|key| self.queue.wake(key));
                }
            }
        }
    }

    async fn ask_about(&self, expect: &Expect, question: Question) -> Option<Settled> {
        match self.feeds.iter().find(|feed| feed.resource() == expect.resource) {
            Some(feed) => feed.ask_about(self, expect, question).await,
            // Only watched kinds have charges. A charge of another kind would never close, so it is
            // closed here.
            None => Some(Settled::NotCommitted),
        }
    }
}

/// Reads the outcome of a write to an object of that kind from the API server.
pub(crate) async fn ask_api<C: Contract, F: Fed<C>>(
    runtime: &Runtime<C>,
    expect: &Expect,
    question: Question,
) -> Option<Settled> {
    match (question, expect.kind, &expect.uid) {
        (Question::UnknownAndRecent, WriteKind::Delete, Some(uid)) => {
            let collection = Collection::of::<C, F>(runtime, &expect.key.namespace);
            match delete_again(&collection, expect, uid).await {
                DeletedAgain::Known(settled) => Some(settled),
                DeletedAgain::Changed => read::<C, F>(runtime, expect).await,
                DeletedAgain::Unknown => None,
            }
        }
        _ => read::<C, F>(runtime, expect).await,
    }
}

async fn read<C: Contract, F: Fed<C>>(runtime: &Runtime<C>, expect: &Expect) -> Option<Settled> {
    let found = match refresh::<C, F>(runtime, &expect.key).await {
        Ok(found) => found,
        Err(error) => {
            tracing::info!(object = %expect.key, %error, "Cannot read the outcome of a write; retrying");
            return None;
        }
    };
    let is_delete = matches!(expect.kind, WriteKind::Delete | WriteKind::DeleteChosen);
    Some(match (found, expect.uid.as_ref().filter(|_| is_delete)) {
        (Some(entry), Some(uid)) if entry.uid == *uid && !entry.deleting => Settled::NotCommitted,
        (Some(entry), Some(uid)) if entry.uid != *uid => Settled::Deleted { uid: uid.clone() },
        (None, Some(uid)) => Settled::Deleted { uid: uid.clone() },
        (Some(entry), _) => Settled::Committed { uid: entry.uid, resource_version: entry.resource_version },
        (None, None) => Settled::NotCommitted,
    })
}

/// Repeats a DELETE with a lost answer. The deadline of the request is longer than a webhook may
/// take. So the first DELETE has ended when the API server answers the second one.
async fn delete_again(collection: &Collection, expect: &Expect, uid: &str) -> DeletedAgain {
    let result = collection.delete(&expect.key.name, uid, expect.unchanged_since.as_deref()).await;
    match (WriteOutcome::of(&result), &result) {
        (WriteOutcome::Done, Ok(either::Either::Left(object))) => DeletedAgain::Known(object.committed()),
        // The object has another UID, or a client has changed it since the first DELETE.
        (WriteOutcome::Stale, _) if expect.unchanged_since.is_some() => DeletedAgain::Changed,
        // Stale means that an object of that name has another UID.
        (WriteOutcome::Done | WriteOutcome::NotFound | WriteOutcome::Stale, _) => {
            DeletedAgain::Known(Settled::Deleted { uid: uid.to_owned() })
        }
        (WriteOutcome::Denied { .. } | WriteOutcome::Invalid { .. } | WriteOutcome::AlreadyExists, _) => {
            DeletedAgain::Known(Settled::NotCommitted)
        }
        (WriteOutcome::Throttled { .. } | WriteOutcome::Unknown { .. }, _) => {
            tracing::info!(object = %expect.key, "The outcome of a DELETE is still unknown; retrying");
            DeletedAgain::Unknown
        }
    }
}

/// The outcome of a DELETE, as far as a repetition shows it.
enum DeletedAgain {
    Known(Settled),
    /// The object changed since the first DELETE, so only a read shows whether it is being deleted.
    Changed,
    Unknown,
}

fn verb(kind: WriteKind) -> &'static str {
    match kind {
        WriteKind::Create => "POST",
        WriteKind::Update | WriteKind::TakeAway => "PATCH",
        WriteKind::Delete | WriteKind::DeleteChosen => "DELETE",
    }
}
