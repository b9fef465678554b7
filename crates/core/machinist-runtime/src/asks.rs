//! Asks: driver calls that a pass starts and does not await.
//!
//! At most one ask per subject is in flight, of any sort. An ask waits for a slot and a token of
//! its account. When the ask has its slot, the runtime checks all conditions of the call again: the
//! lease, the permit, the pause of the account, the clock, and whether the object still needs the
//! call. Otherwise the runtime could create an instance for an object that was deleted meanwhile.
//!
//! ```text
//! pass -> ask -> in flight -> slot -> token -> confirmed, still allowed and needed?
//!                                              | yes: call -> store the answer -> wake the key
//!                                              | no:  skip the call -> the planner decides again
//! ```
//!
//! A call may send several requests. `begun` checks lease and time again before each change.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use machinist_core::{Answered, Call, Process, READ_WITHIN};
use machinist_instance::{Error, ErrorKind};
use machinist_kube::{Leadership, Moment};
use machinist_serve::{Counter, Histogram, REQUEST_SECONDS};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use crate::accounts::{Account, CAUTIOUS, Opened};
use crate::begun::Begun;
use crate::contract::{Contract, Stop};
use crate::in_flight::Work;
use crate::line::Lane;
use crate::measurement::Measurement;
use crate::panics;
use crate::pass::program_failed;
use crate::passes::Count;
use crate::runtime::{NOT_NOW_AGAIN, Runtime};

/// The object of a call must be read within this time. Meanwhile the ask holds its slot.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(15);

const CALLS: Counter = Counter::new(
    "machinist_cloud_calls_total",
    "Calls to clouds that ended. The result is ok or the kind of the error.",
);
const CALL_DURATION: Histogram = Histogram::new(
    "machinist_cloud_call_duration_seconds",
    "Duration of calls to clouds in seconds.",
    REQUEST_SECONDS,
);

/// One driver call to start.
pub struct Ask<C: Contract, T> {
    /// Identity of the object of the call. At most one call per subject is in flight.
    pub subject: String,
    /// The key that the answer wakes.
    pub key: C::Key,
    /// The type of the call.
    pub call: Call,
    /// The account whose limits the call shares.
    pub account: Arc<Account>,
    /// The longest time between the start of the call and its effect.
    pub bound: Duration,
    /// The latest time at which the call may begin; `None` for no limit.
    pub begins_by: Option<Timestamp>,
    /// Checks whether the object still needs the call. The runtime calls it when the ask has its
    /// slot. The function may record in memory that the call begins.
    pub still_wanted: StillWanted<C>,
    /// Stores the answer.
    pub remember: Remember<C, T>,
}

/// How a call gets its slot.
pub(crate) enum Admission {
    /// The call waits in a lane of the line of its account.
    InLine(Lane),
    /// The call has waited before, and has this slot.
    Slot(OwnedSemaphorePermit),
}

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Checks in memory whether an object still needs a call.
pub type StillWanted<C> = Box<dyn FnOnce(&mut <C as Contract>::Seen) -> bool + Send>;

/// Stores an answer in memory.
pub type Remember<C, T> = Box<dyn FnOnce(&mut <C as Contract>::Seen, Answered<T>) + Send>;

impl<C: Contract> Runtime<C> {
    /// The facts about this process, for decisions about an instance in this account.
    pub fn process_facts(&self, opened: Option<&Opened>) -> Process {
        Process {
            started: self.started().or_else(|| self.control_listed_at()).unwrap_or_else(|| self.now()),
            leading_since: self.leading_since(),
            skew: self.skew(),
            cloud_skew: opened.and_then(|opened| opened.driver.clock_skew()),
            promises: opened.map_or(CAUTIOUS, Opened::promises),
        }
    }

    /// Remembers that no call was made because its account could not be opened: the planner handles
    /// that like a failed call.
    pub fn remember_failure<T>(&self, key: C::Key, remember: Remember<C, T>, error: Error) {
        let now = self.now();
        let answered = Answered { started: now, ended: now, account: None, answer: Err(error) };
        remember(&mut self.lock().seen, answered);
        self.wake(key);
    }

    /// Starts a call without awaiting it. The answer wakes the key. The runtime first polls `made`
    /// when the ask has its slot, so `made` must do nothing before that.
    ///
    /// # Errors
    /// If the call may not start now.
    pub fn ask<T: Send + 'static>(
        self: &Arc<Self>,
        ask: Ask<C, T>,
        made: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<(), Stop> {
        self.ask_confirmed(ask, std::future::ready(Ok(())), made)
    }

    /// Starts a call like [`Runtime::ask`]. It waits in that lane of the line of its account.
    ///
    /// # Errors
    /// If the call may not start now.
    pub fn ask_in<T: Send + 'static>(
        self: &Arc<Self>,
        lane: Lane,
        ask: Ask<C, T>,
        made: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<(), Stop> {
        self.begin_ask(ask, Admission::InLine(lane), std::future::ready(Ok(())), made)
    }

    /// Starts a call like [`Runtime::ask`]. When the ask has its slot, `confirm` reads the object
    /// of the call from the API server and stores it ([`crate::refresh`]). Then `still_wanted`
    /// decides from that, and not from a store whose watch may lag behind. If the read fails, the
    /// runtime skips the call.
    ///
    /// # Errors
    /// If the call may not start now.
    pub fn ask_confirmed<T: Send + 'static>(
        self: &Arc<Self>,
        ask: Ask<C, T>,
        confirm: impl Future<Output = Result<(), kube::Error>> + Send + 'static,
        made: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<(), Stop> {
        let lane = Lane::of(ask.call);
        self.begin_ask(ask, Admission::InLine(lane), confirm, made)
    }

    pub(crate) fn begin_ask<T: Send + 'static>(
        self: &Arc<Self>,
        ask: Ask<C, T>,
        admission: Admission,
        confirm: impl Future<Output = Result<(), kube::Error>> + Send + 'static,
        made: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<(), Stop> {
        self.may_begin(ask.begins_by).map_err(Stop::NotNow)?;
        {
            let mut world = self.world.lock();
            if let Some((other, _)) = world.asks.of(&ask.subject) {
                tracing::debug!(key = %ask.key, %other, "A driver call for this object is already in flight");
                return Ok(());
            }
            world.asks.insert(&ask.subject, ask.call, self.now());
        }
        let steps = self.clock_steps.count();
        let runtime = self.clone();
        // Thousands of calls may wait in line. Boxed futures keep each of them small.
        let (confirm, made) = (Box::pin(confirm), Box::pin(made));
        self.spawn(async move { runtime.carry_out(ask, admission, confirm, made, steps).await });
        Ok(())
    }

    async fn carry_out<T: Send + 'static>(
        self: Arc<Self>,
        ask: Ask<C, T>,
        admission: Admission,
        confirm: Boxed<Result<(), kube::Error>>,
        made: Boxed<Result<T, Error>>,
        steps: u64,
    ) {
        let Ask { subject, key, call, account, bound, begins_by, still_wanted, remember } = ask;
        let may_begin = || self.may_begin_now(&account, call, begins_by, steps);
        let admitted = match admission {
            _ if call == Call::PROBE => account.admit_probe(may_begin).map(|()| None),
            Admission::InLine(lane) => account.admit(lane, may_begin).await.map(Some),
            Admission::Slot(slot) => may_begin().map(|()| Some(slot)),
        };
        let _slot = match admitted {
            Ok(slot) => slot,
            Err(reason) => {
                tracing::info!(
                    %key,
                    %call,
                    reason,
                    "Skipped queued driver call: the lease, the permit, the account or the clock changed"
                );
                return self.forgo(&subject, key, account.paused_until());
            }
        };
        let read = Moment::now(Some(&self.options.clock));
        match panics::catch_async(tokio::time::timeout(CONFIRMED_WITHIN, confirm)).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => {
                tracing::info!(%key, %call, %error, "Skipped driver call: cannot read its object");
                return self.forgo(&subject, key, None);
            }
            Ok(Err(_)) => {
                tracing::info!(%key, %call, "Skipped driver call: the API server did not answer in time");
                return self.forgo(&subject, key, None);
            }
            Err(panicked) => {
                self.world.lock().asks.remove(&subject);
                let why = program_failed("reading the object of a driver call failed", panicked);
                return self.note_panic(&key, why);
            }
        }
        // The call is counted before the check, so that a stopping process waits for it.
        let begun = self.in_flight.begin(Work::Call);
        // The process may have been suspended since the read, which the Lease need not show.
        let is_old = read.is_older_than(READ_WITHIN, &self.options.clock);
        if begun.is_none() || is_old || self.may_begin(begins_by).is_err() {
            return self.forgo(&subject, key, None);
        }
        match panics::catch(|| still_wanted(&mut self.world.lock().seen)) {
            Ok(true) => {}
            Ok(false) => {
                tracing::info!(%key, %call, "Skipped queued driver call: the object no longer needs it");
                return self.forgo(&subject, key, None);
            }
            Err(panicked) => {
                self.world.lock().asks.remove(&subject);
                let why = program_failed("checking whether a driver call is still needed failed", panicked);
                return self.note_panic(&key, why);
            }
        }
        let (began, sent) = (self.now(), Instant::now());
        let answer = self.answer(&key, call, bound, read, made).await;
        account.note_end(answer.as_ref().err());
        if call == Call::PROBE && answer.is_ok() {
            account.end_assumed_pause();
        }
        self.measure(account.cloud(), call, sent.elapsed(), answer.as_ref().err());
        let answered =
            Answered { started: began, ended: self.now(), account: Some(account.id().clone()), answer };
        let remembered = panics::catch(|| {
            let mut world = self.world.lock();
            world.asks.remove(&subject);
            // If the clock stepped during the call, the time of the answer has no meaning.
            if self.clock_steps.count() == steps {
                remember(&mut world.seen, answered);
            }
        });
        match remembered {
            Ok(()) => self.queue.wake(key),
            Err(panicked) => {
                self.note_panic(&key, program_failed("storing an answer of the cloud failed", panicked));
            }
        }
    }

    fn measure(&self, cloud: &str, call: Call, took: Duration, error: Option<&Error>) {
        self.note_measurement(&Measurement::Call { cloud, call, took, error });
        let (call, metrics) = (call.to_string(), &self.options.metrics);
        let result = error.map_or_else(|| "ok".to_owned(), |error| error.kind.to_string());
        metrics.count(&CALLS, &[("call", &call), ("result", &result)]);
        let labels = [("call", call.as_str())];
        metrics.observe(&CALL_DURATION, &labels, took);
    }

    /// Awaits the answer of a call, behind a fence. If no answer arrives within the bound, the
    /// outcome is ambiguous.
    async fn answer<T>(
        &self,
        key: &C::Key,
        call: Call,
        bound: Duration,
        read: Moment,
        made: Boxed<Result<T, Error>>,
    ) -> Result<T, Error> {
        let begun = Begun::now(self.leadership.clone(), self.options.clock.clone(), bound).after_read(read);
        let made = begun.fence().around(made);
        match panics::catch_async(tokio::time::timeout(bound, made)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => {
                let message = format!("the cloud did not answer {call} within {} s", bound.as_secs());
                Err(Error::new(ErrorKind::Ambiguous, message))
            }
            // A request that the driver sent before the panic may take effect. Repeating the call
            // determines the outcome, as after any other failure.
            Err(panicked) => {
                tracing::error!(%key, %call, at = panicked.at, "The driver panicked");
                self.world.lock().passes.count(Count::Panicked, "driver");
                let message =
                    format!("internal error (please report it): the driver panicked at {}", panicked.at);
                Err(Error::new(ErrorKind::Bug, message))
            }
        }
    }

    pub(crate) fn may_begin_now(
        &self,
        account: &Account,
        call: Call,
        begins_by: Option<Timestamp>,
        steps: u64,
    ) -> Result<(), &'static str> {
        if self.clock_steps.count() != steps {
            return Err("the system clock has stepped");
        }
        let ignores_pause = call == Call::PROBE && account.is_pause_assumed();
        if account.paused_until().is_some() && !ignores_pause {
            return Err("the cloud throttles this account");
        }
        self.may_begin(begins_by)
    }

    /// Checks whether a call may begin now. A call may last longer than the lease: the process
    /// keeps renewing the lease, and waits for its calls before it releases the lease.
    pub(crate) fn may_begin(&self, begins_by: Option<Timestamp>) -> Result<(), &'static str> {
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

    /// Drops an ask without making its call, and wakes the key for a new decision.
    fn forgo(&self, subject: &str, key: C::Key, paused_until: Option<Instant>) {
        {
            let mut world = self.world.lock();
            world.asks.remove(subject);
            // The planner may plan the same call from the same facts. That does not count as a
            // repetition, because the call was not made.
            world.passes.forget_last(&key);
        }
        let soon = Instant::now() + NOT_NOW_AGAIN;
        self.queue.wake_at(key, paused_until.map_or(soon, |until| until.max(soon)));
    }
}
