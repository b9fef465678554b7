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
use machinist_core::{Answered, Call};
use machinist_instance::{Error, ErrorKind};
use machinist_kube::Leadership;
use tokio::time::Instant;

use crate::accounts::Account;
use crate::contract::{Contract, Stop};
use crate::in_flight::Work;
use crate::panics;
use crate::pass::program_failed;
use crate::passes::Count;
use crate::runtime::{NOT_NOW_AGAIN, Runtime};

/// One call to a cloud.
pub struct Ask<C: Contract, T> {
    /// The object that the call is about; at most one call per subject is in flight.
    pub subject: String,
    /// Woken by the answer.
    pub key: C::Key,
    /// The sort of call.
    pub call: Call,
    /// The account whose limits the call shares.
    pub account: Arc<Account>,
    /// How long after its start the call may still take effect.
    pub bound: Duration,
    /// The last moment at which the call may begin.
    pub begins_by: Option<Timestamp>,
    /// Whether the object still wants the call, evaluated when it gets its slot. It may note in memory that the call begins.
    pub still_wanted: StillWanted<C>,
    /// Takes in the answer.
    pub remember: Remember<C, T>,
}

/// Asks memory whether a call should still be made.
pub type StillWanted<C> = Box<dyn FnOnce(&mut <C as Contract>::Seen) -> bool + Send>;

/// Takes an answer into memory.
pub type Remember<C, T> = Box<dyn FnOnce(&mut <C as Contract>::Seen, Answered<T>) + Send>;

/// The asks in flight, by subject.
#[derive(Debug, Default)]
pub struct Pending(BTreeMap<String, (Call, Timestamp)>);

impl Pending {
    /// The call in flight for a subject, and since when.
    pub fn of(&self, subject: &str) -> Option<(Call, Timestamp)> {
        self.0.get(subject).copied()
    }

    /// How many calls are in flight or wait for their turn.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }
}

impl<C: Contract> Runtime<C> {
    /// Starts a call. The answer wakes the key; nothing is awaited here. `made` does nothing before it is first polled, which is
    /// when the call gets its slot.
    ///
    /// # Errors
    /// When the call may not be started now.
    pub fn ask<T: Send + 'static>(
        self: &Arc<Self>,
        ask: Ask<C, T>,
        made: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<(), Stop> {
        self.may_begin(ask.begins_by).map_err(Stop::NotNow)?;
        {
            let mut world = self.world.lock();
            if let Some((other, _)) = world.asks.of(&ask.subject) {
                tracing::debug!(key = %ask.key, %other, "A call is in flight already");
                return Ok(());
            }
            world.asks.0.insert(ask.subject.clone(), (ask.call, self.now()));
        }
        let steps = self.clock_steps.count();
        let runtime = self.clone();
        self.spawn(async move { runtime.carry_out(ask, made, steps).await });
        Ok(())
    }

    async fn carry_out<T, F>(self: Arc<Self>, ask: Ask<C, T>, made: F, steps: u64)
    where
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let Ask { subject, key, call, account, bound, begins_by, still_wanted, remember } = ask;
        let may_begin = || self.may_begin_now(&account, begins_by, steps);
        let _slot = match account.admit(call, may_begin).await {
            Ok(slot) => slot,
            Err(reason) => {
                tracing::info!(%key, %call, reason, "Skipped a queued call to the cloud");
                return self.forgo(&subject, key, account.paused_until());
            }
        };
        // Counted before the question, and not counted where the answer is no.
        let begun = self.in_flight.begin(Work::Call);
        if begun.is_none() || self.may_begin(begins_by).is_err() {
            return self.forgo(&subject, key, None);
        }
        match panics::catch(|| still_wanted(&mut self.world.lock().seen)) {
            Ok(true) => {}
            Ok(false) => {
                tracing::info!(%key, %call, "Skipped a queued call to the cloud: the object no longer wants it");
                return self.forgo(&subject, key, None);
            }
            Err(panicked) => {
                self.world.lock().asks.0.remove(&subject);
                let why =
                    program_failed("asking whether a call to the cloud is still wanted failed", panicked);
                return self.note_panic(&key, why);
            }
        }
        let began = self.now();
        let answer = self.answer(&key, call, bound, made).await;
        account.note_end(answer.as_ref().err());
        let answered =
            Answered { started: began, ended: self.now(), account: Some(account.id().clone()), answer };
        let remembered = panics::catch(|| {
            let mut world = self.world.lock();
            world.asks.0.remove(&subject);
            // An answer that was learned across a step of the clock has no moment.
            if self.clock_steps.count() == steps {
                remember(&mut world.seen, answered);
            }
        });
        match remembered {
            Ok(()) => self.queue.wake(key),
            Err(panicked) => {
                self.note_panic(&key, program_failed("taking in an answer of the cloud failed", panicked));
            }
        }
    }

    /// The answer of a call, which is ambiguous once its bound has passed.
    async fn answer<T>(
        &self,
        key: &C::Key,
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
                self.world.lock().passes.count(Count::Panicked, "driver");
                let message = format!("the driver has a bug that shows here: it panicked at {}", panicked.at);
                Err(Error::new(ErrorKind::Bug, message))
            }
        }
    }

    fn may_begin_now(
        &self,
        account: &Account,
        begins_by: Option<Timestamp>,
        steps: u64,
    ) -> Result<(), &'static str> {
        if self.clock_steps.count() != steps {
            return Err("the clock has stepped");
        }
        if account.paused_until().is_some() {
            return Err("the cloud throttles this account");
        }
        self.may_begin(begins_by)
    }

    /// Whether a call may begin now. It may take longer than the lease lasts: the process goes on renewing, and waits for its calls
    /// before it gives the lease back.
    fn may_begin(&self, begins_by: Option<Timestamp>) -> Result<(), &'static str> {
        if self.in_flight.is_draining() {
            return Err("the process is stopping");
        }
        if !self.leadership.as_ref().is_none_or(Leadership::may_start) {
            return Err("the lease was not renewed within its renew deadline");
        }
        if begins_by.is_some_and(|last| last < self.now()) {
            return Err("the permit to delete has expired");
        }
        Ok(())
    }

    /// A call that was asked for is not made after all: its key decides again.
    fn forgo(&self, subject: &str, key: C::Key, paused_until: Option<Instant>) {
        {
            let mut world = self.world.lock();
            world.asks.0.remove(subject);
            // The same facts may lead to the same call. That is no repetition, as the call was not made.
            world.passes.forget_last(&key);
        }
        let soon = Instant::now() + NOT_NOW_AGAIN;
        self.queue.wake_at(key, paused_until.map_or(soon, |until| until.max(soon)));
    }
}
