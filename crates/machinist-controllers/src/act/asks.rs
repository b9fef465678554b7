//! Asks: calls to a cloud that a pass starts and does not await.
//!
//! At most one ask per subject is in flight, of any sort. An ask waits for a slot and a token of its account. Everything that
//! allowed the call is looked at again when it gets its slot: the lease, the permit, the pause of the account, the clock, and
//! whether the object still wants it. Otherwise an instance could be created for an object that is gone by then.
//!
//! ```text
//! pass -> ask -> in flight -> slot -> token -> still allowed and wanted? -> call -> answer to memory -> the key is woken
//!                                                      | no
//!                                                      +-> not made; the key decides again
//! ```

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use machinist_driver::Driver;
use machinist_instance::{Error, ErrorKind};
use machinist_kube::Leadership;
use machinist_plan::{Answered, Call};
use tokio::time::Instant;

use super::accounts::Opened;
use crate::Key;
use crate::memory::Count;
use crate::panics;
use crate::reconcile::{NOT_NOW_AGAIN, Shared, Stop};
use crate::world::World;

/// One call to a cloud.
pub(crate) struct Ask<T> {
    /// The object that the call is about; at most one call per subject is in flight.
    pub subject: String,
    /// Woken by the answer.
    pub key: Key,
    /// The sort of call.
    pub call: Call,
    /// The driver, and the account whose limits it shares.
    pub opened: Opened,
    /// The last moment at which the call may begin.
    pub begins_by: Option<Timestamp>,
    /// Whether the object still wants the call, evaluated when it gets its slot. It may note in memory that the call begins.
    pub still_wanted: Box<dyn FnOnce(&mut World) -> bool + Send>,
    /// Takes in the answer.
    pub remember: Remember<T>,
}

/// Takes an answer into memory.
pub(crate) type Remember<T> = Box<dyn FnOnce(&mut World, Answered<T>) + Send>;

/// The asks in flight, by subject.
#[derive(Debug, Default)]
pub(crate) struct InFlight(BTreeMap<String, (Call, Timestamp)>);

impl InFlight {
    /// The call in flight for a subject, and since when.
    pub(crate) fn of(&self, subject: &str) -> Option<(Call, Timestamp)> {
        self.0.get(subject).copied()
    }

    /// How many calls are in flight or wait for their turn.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

/// Told when a call ends, for a process that waits for its calls before it stops.
pub(crate) type Ends = tokio::sync::Notify;

impl Shared {
    /// Starts a call. The answer wakes the key; nothing is awaited here.
    ///
    /// # Errors
    /// When the call may not be started now.
    pub(crate) fn ask<T, F>(
        self: &Arc<Self>,
        ask: Ask<T>,
        make: impl FnOnce(Arc<dyn Driver>) -> F,
    ) -> Result<(), Stop>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        self.may_begin(ask.begins_by)?;
        {
            let mut world = self.world.lock();
            if let Some((other, _)) = world.asks.of(&ask.subject) {
                tracing::debug!(key = %ask.key, %other, "A call is in flight already");
                return Ok(());
            }
            world.asks.0.insert(ask.subject.clone(), (ask.call, self.now()));
        }
        let made = make(ask.opened.driver.clone());
        let steps = self.clock_steps.count();
        let shared = self.clone();
        self.spawn(async move { shared.carry_out(ask, made, steps).await });
        Ok(())
    }

    async fn carry_out<T, F>(self: Arc<Self>, ask: Ask<T>, made: F, steps: u64)
    where
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let Ask { subject, key, call, opened, begins_by, still_wanted, remember } = ask;
        let bound = opened.promises().call_bound;
        let may_begin = || self.may_begin_now(&opened, begins_by, steps);
        let _slot = match opened.account.admit(may_begin).await {
            Ok(slot) => slot,
            Err(reason) => {
                tracing::info!(%key, %call, reason, "Skipped a queued call to the cloud");
                return self.forgo(&subject, key, opened.account.paused_until());
            }
        };
        if !still_wanted(&mut self.world.lock()) {
            tracing::info!(%key, %call, "Skipped a queued call to the cloud: the object no longer wants it");
            return self.forgo(&subject, key, None);
        }
        let began = self.now();
        let answer = self.answer(&key, call, bound, made).await;
        opened.account.note_end(answer.as_ref().err());
        let account = Some(opened.account.id().clone());
        let answered = Answered { started: began, ended: self.now(), account, answer };
        {
            let mut world = self.world.lock();
            self.end(&mut world, &subject);
            // An answer that was learned across a step of the clock has no moment.
            if self.clock_steps.count() == steps {
                remember(&mut world, answered);
            }
        }
        self.queue.wake(key);
    }

    /// The answer of a call, which is ambiguous once its bound has passed.
    async fn answer<T>(
        &self,
        key: &Key,
        call: Call,
        bound: Duration,
        made: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        match panics::catch_async(tokio::time::timeout(bound, made)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => {
                let message = format!("{call} was not answered within {} s", bound.as_secs());
                Err(Error::new(ErrorKind::Ambiguous, message))
            }
            // What the driver had sent may take effect: like any other failure, it is settled by repeating the call.
            Err(panicked) => {
                tracing::error!(%key, %call, at = panicked.at, "The driver panicked");
                self.world.lock().memory.count(Count::Panicked, "driver");
                let message = format!("the driver has a bug that shows here: it panicked at {}", panicked.at);
                Err(Error::new(ErrorKind::Bug, message))
            }
        }
    }

    fn may_begin_now(
        &self,
        opened: &Opened,
        begins_by: Option<Timestamp>,
        steps: u64,
    ) -> Result<(), &'static str> {
        if self.clock_steps.count() != steps {
            return Err("the clock has stepped");
        }
        if opened.account.paused_until().is_some() {
            return Err("the cloud throttles this account");
        }
        match self.may_begin(begins_by) {
            Ok(()) => Ok(()),
            Err(Stop::NotNow(reason)) => Err(reason),
            Err(_) => Err("it may not begin now"),
        }
    }

    /// Whether a call may begin now. It may take longer than the lease lasts: the process goes on renewing, and waits for its calls
    /// before it gives the lease back.
    fn may_begin(&self, begins_by: Option<Timestamp>) -> Result<(), Stop> {
        if !self.leadership.as_ref().is_none_or(Leadership::may_start) {
            return Err(Stop::NotNow("this process does not lead, or is about to stop"));
        }
        if begins_by.is_some_and(|last| last < self.now()) {
            return Err(Stop::NotNow("the permit to delete has expired"));
        }
        Ok(())
    }

    fn end(&self, world: &mut World, subject: &str) {
        world.asks.0.remove(subject);
        self.call_ends.notify_waiters();
    }

    /// Completes when no call is in flight, nor waits for its turn.
    pub(crate) async fn calls_ended(&self) {
        loop {
            let ends = self.call_ends.notified();
            tokio::pin!(ends);
            // Registered before the look, so that no end is missed in between.
            ends.as_mut().enable();
            if self.world.lock().asks.len() == 0 {
                return;
            }
            ends.await;
        }
    }

    /// A call that was asked for is not made after all: its key decides again.
    fn forgo(&self, subject: &str, key: Key, paused_until: Option<Instant>) {
        {
            let mut world = self.world.lock();
            self.end(&mut world, subject);
            // The same facts may lead to the same call. That is no repetition, as the call was not made.
            world.memory.last_pass.remove(&key);
        }
        let soon = Instant::now() + NOT_NOW_AGAIN;
        self.queue.wake_at(key, paused_until.map_or(soon, |until| until.max(soon)));
    }
}
