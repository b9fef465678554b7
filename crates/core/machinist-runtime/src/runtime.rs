//! What the workers of one process share, and what every pass asks of it.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use machinist_core::{Reason, Step, Wait, Why};
use machinist_kube::lease::Leadership;
use machinist_kube::recorder::{EventType, Recorder};
use machinist_kube::{KeyQueue, Skew};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::accounts::Accounts;
use crate::clock_steps::ClockSteps;
use crate::contract::{Contract, QueueKey};
use crate::feed::Feed;
use crate::in_flight::InFlight;
use crate::options::{Clients, Options};
use crate::pass::Unknown;
use crate::passes::{Count, WhyRecord};
use crate::world::{SharedWorld, World};

/// A call that may not be started now is tried again after this long.
pub(crate) const NOT_NOW_AGAIN: Duration = Duration::from_secs(1);
/// So long after it was sent a write may take effect: API servers end requests after a minute, webhooks included.
pub(crate) const LAST_WRITES: Duration = Duration::from_secs(60);
/// Reason of the Event that says that the API server refused a change.
const CHANGE_REFUSED: &str = "ChangeRefused";

/// Everything the workers of one process share.
pub struct Runtime<C: Contract> {
    /// What the process was told.
    pub options: Options,
    /// What the contract's kinds need beyond that.
    pub tools: C::Tools,
    /// The clients of its clusters.
    pub clients: Clients,
    /// Where Events go.
    pub recorder: Recorder,
    /// The cloud accounts that are open.
    pub accounts: Accounts,
    /// What a process that stops waits for.
    pub(crate) in_flight: Arc<InFlight>,
    /// Which key to look at next.
    pub queue: KeyQueue<C::Key>,
    pub(crate) world: SharedWorld<C>,
    pub(crate) feeds: Vec<Box<dyn Feed<C>>>,
    pub(crate) leadership: Option<Leadership>,
    /// Calls to clouds and other tasks that outlive a pass; aborted with the process.
    pub(crate) tasks: Mutex<JoinSet<()>>,
    /// When all stores were first complete; or when the clock last stepped, which is a beginning as well.
    pub(crate) started: Mutex<Option<Timestamp>>,
    pub(crate) clock_steps: ClockSteps,
    /// Told whenever a decision differs from the one before.
    pub(crate) decided: Notify,
}

impl<C: Contract> Runtime<C> {
    /// A runtime that watches nothing yet.
    pub(crate) fn new(
        clients: Clients,
        options: Options,
        tools: C::Tools,
        leadership: Option<Leadership>,
    ) -> Self {
        Self {
            queue: KeyQueue::new(C::Key::min_interval, options.seed),
            recorder: Recorder::new(options.component, options.instance.clone(), options.clock.clone()),
            accounts: Accounts::default(),
            in_flight: Arc::default(),
            world: SharedWorld::new(),
            feeds: C::feeds(&tools),
            leadership,
            tasks: Mutex::new(JoinSet::new()),
            started: Mutex::default(),
            clock_steps: ClockSteps::default(),
            decided: Notify::default(),
            clients,
            options,
            tools,
        }
    }
}

impl<C: Contract> Runtime<C> {
    /// Wakes a key, if this process decides about it.
    pub fn wake(&self, key: C::Key) {
        if C::decides_about(&self.tools, &key) {
            self.queue.wake(key);
        }
    }

    /// Takes the lock of all that was seen. The caller must not await while it holds it.
    pub fn lock(&self) -> MutexGuard<'_, World<C>> {
        self.world.lock()
    }

    /// Whether every watched kind has been listed.
    pub fn is_synced(&self, seen: &C::Seen) -> bool {
        self.feeds.iter().all(|feed| feed.is_synced(seen))
    }

    /// Since when this process leads, in wall-clock time.
    pub fn leading_since(&self) -> Option<Timestamp> {
        let held = self.leadership.as_ref()?.held_since()?;
        self.now().checked_sub(Instant::now().duration_since(held)).ok()
    }

    /// Until when a write of the former leader may still take effect, if it has died: an API server ends each request by then.
    pub(crate) fn alone_from(&self) -> Option<Instant> {
        let taken_over = self.leadership.as_ref()?.taken_over_since()?;
        Some(taken_over + LAST_WRITES).filter(|alone_from| Instant::now() < *alone_from)
    }

    /// The moment, for API timestamps and deadlines.
    pub fn now(&self) -> Timestamp {
        self.options.clock.now()
    }

    /// A moment of the monotonic clock as the wall clock will show it, rounded up to a second.
    pub fn wall(&self, at: Instant) -> Timestamp {
        let ahead = at.saturating_duration_since(Instant::now());
        let shown = self.now().checked_add(ahead).unwrap_or(Timestamp::MAX);
        Timestamp::from_second(shown.as_second().saturating_add(1)).unwrap_or(Timestamp::MAX)
    }

    /// When this process began to decide; `None` before all stores are complete.
    pub fn started(&self) -> Option<Timestamp> {
        *self.started.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins anew, as far as the cloud is concerned, when the clock has stepped.
    pub(crate) fn heed_clock(&self) {
        let now = self.now();
        if !self.clock_steps.look(now) {
            return;
        }
        tracing::warn!(%now, "The clock has stepped; what the cloud answered before proves nothing any more");
        C::forget_moments(&mut self.world.lock().seen, now);
        self.accounts.forget_moments();
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        *started = started.map(|_| now);
    }

    /// How far our clock may be from the worse of the two clusters', as far as is known: never less than it is.
    pub fn skew(&self) -> Duration {
        let now = self.now();
        let of = |skew: &Skew| skew.at_most(now).unwrap_or_default();
        of(&self.options.skew).max(of(&self.options.target_skew))
    }

    /// Remembers that all stores are complete, and wakes everybody when they are.
    pub(crate) fn note_synced(&self, world: &World<C>) {
        if !self.is_synced(&world.seen) {
            return;
        }
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        if started.is_none() {
            *started = Some(self.now());
            tracing::info!("All stores are complete");
        }
        for key in C::keys(&world.seen, &self.tools) {
            self.wake(key);
        }
    }

    /// What was last decided about a key.
    pub(crate) fn note(&self, key: &C::Key, why: Why<C::Reason>, actions: Vec<String>) {
        let at = self.now();
        let mut world = self.world.lock();
        let is_other = world.passes.whys.get(key).is_none_or(|before| before.why != why);
        world.passes.whys.insert(key.clone(), WhyRecord { at, why, actions });
        if is_other {
            self.decided.notify_one();
        }
    }

    /// Says where people look that the API server refused a change: otherwise it would only be seen that nothing happens.
    pub(crate) fn tell_refused(&self, key: &C::Key, object: Option<ObjectReference>, message: &str) {
        if let Some(object) = object {
            self.recorder.record(&object, EventType::Warning, CHANGE_REFUSED, message);
        }
        let reason = Reason::ChangeRefused { message: message.to_owned() };
        self.note(
            key,
            Why::new(reason, Step::Expect("the controller tries again after a pause")),
            Vec::new(),
        );
    }

    /// Says that a pass panicked, counts it, and looks again after a pause.
    pub(crate) fn note_panic(&self, key: &C::Key, why: Why<C::Reason>) {
        tracing::error!(%key, reason = %why.reason, "Panicked; looking again after a pause");
        self.world.lock().passes.count(Count::Panicked, key.kind());
        self.note(key, why, Vec::new());
        self.queue.retry(key.clone());
    }

    pub(crate) fn unknown_writes(&self, key: &C::Key) -> Unknown {
        match self.world.lock().barrier.blocked(key) {
            None => Unknown::None,
            Some(blocked) if blocked.unknown.is_empty() => Unknown::Waiting,
            Some(blocked) => Unknown::Some(blocked.unknown),
        }
    }

    pub(crate) fn forget_pass(&self, key: &C::Key) {
        self.world.lock().passes.forget_last(key);
    }

    pub(crate) fn come_back(&self, key: &C::Key, wait: Wait) {
        let resync = Instant::now() + self.options.resync;
        let at = match wait {
            Wait::Idle => resync,
            Wait::Until(at) => {
                let left = Duration::try_from(at.duration_since(self.now())).unwrap_or(Duration::ZERO);
                (Instant::now() + left).min(resync)
            }
        };
        self.queue.wake_at(key.clone(), at);
    }

    /// Starts a task that ends with the process.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }
}
