//! The state that the workers of a process share, and the operations of every pass on it.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use machinist_core::{Reason, Step, Wait, Why};
use machinist_kube::barrier::Charge;
use machinist_kube::lease::Leadership;
use machinist_kube::recorder::{EventType, Recorder};
use machinist_kube::{Cluster, KeyQueue, Skew};
use tokio::sync::{Notify, SetOnce};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use crate::accounts::Accounts;
use crate::activity::Activity;
use crate::clock_steps::ClockSteps;
use crate::contract::Contract;
use crate::feed::Feed;
use crate::gaps::Gaps;
use crate::in_flight::InFlight;
use crate::key::QueueKey;
use crate::kinds::ContractKey as _;
use crate::measurement::Measurement;
use crate::options::{Clients, Options};
use crate::passes::{Count, WhyRecord};
use crate::server_answers::ServerAnswers;
use crate::silence::Told;
use crate::world::{SharedWorld, World};

/// The delay before the retry of a call that may not start now.
pub(crate) const NOT_NOW_AGAIN: Duration = Duration::from_secs(1);
/// The longest time between the sending of a write and its effect. API servers end a request after
/// a minute, including its webhooks.
pub const LAST_WRITES: Duration = Duration::from_secs(60);
/// How long keys that need no deferred kind go on while a deferred kind is not listed.
const DEFERRED_WITHIN: Duration = Duration::from_secs(600);
/// Time after which a key that its contract lets go on does not wait for the target cluster.
const TARGET_ANSWERS_WITHIN: Duration = Duration::from_secs(20);
/// Reason of the Event for a change that the API server rejected.
const CHANGE_REFUSED: &str = "ChangeRefused";

/// The state that the workers of one process share.
pub struct Runtime<C: Contract> {
    /// The options of the process.
    pub options: Options,
    /// Inputs of the contract's kinds beyond the options.
    pub tools: C::Tools,
    /// The clients of the control and the target cluster.
    pub clients: Clients,
    /// Writes Events to the control cluster.
    pub recorder: Recorder,
    /// The open cloud accounts.
    pub accounts: Arc<Accounts>,
    /// The work for which a stopping process waits.
    pub(crate) in_flight: Arc<InFlight>,
    /// The queue of keys for passes.
    pub queue: KeyQueue<C::Key>,
    pub(crate) world: SharedWorld<C>,
    pub(crate) feeds: Vec<Box<dyn Feed<C>>>,
    pub(crate) leadership: Option<Leadership>,
    /// The time at which this value was created.
    pub(crate) began: Instant,
    /// Driver calls and other tasks that outlive a pass. The runtime aborts them at its end.
    pub(crate) tasks: Mutex<JoinSet<()>>,
    /// When the kinds that are not deferred had been listed, and the watches of the deferred kinds
    /// began.
    pub(crate) listed_first: SetOnce<Instant>,
    /// The time at which the stores that are not deferred were first complete. A step of the clock
    /// resets the time, because the runtime treats the step like a restart.
    pub(crate) started: Mutex<Option<Timestamp>>,
    /// Whether the objects showed a former leader at that time.
    had_leader: AtomicBool,
    /// The time at which the stores of the control cluster were first complete.
    control_listed: Mutex<Option<(Instant, Timestamp)>>,
    pub(crate) clock_steps: ClockSteps,
    /// The time that deadlines leave out.
    pub(crate) gaps: Gaps,
    pub(crate) told_silences: Told,
    /// The answers of API servers whose watches are silent.
    pub(crate) server_answers: ServerAnswers,
    /// The passes that run.
    pub(crate) activity: Activity,
    /// Notified when a decision differs from the previous one.
    pub(crate) decided: Notify,
}

impl<C: Contract> Runtime<C> {
    /// Creates a runtime whose watches have not started.
    pub(crate) fn new(
        clients: Clients,
        options: Options,
        tools: C::Tools,
        leadership: Option<Leadership>,
    ) -> Self {
        Self {
            queue: KeyQueue::new(C::Key::min_interval, options.seed),
            recorder: Recorder::new(options.component, options.instance.clone(), options.clock.clone()),
            accounts: options.accounts.clone(),
            in_flight: Arc::default(),
            world: SharedWorld::new(),
            feeds: C::feeds(&tools),
            leadership,
            began: Instant::now(),
            tasks: Mutex::new(JoinSet::new()),
            listed_first: SetOnce::new(),
            started: Mutex::default(),
            had_leader: AtomicBool::default(),
            control_listed: Mutex::default(),
            clock_steps: ClockSteps::default(),
            gaps: Gaps::default(),
            told_silences: Told::default(),
            server_answers: ServerAnswers::default(),
            activity: Activity::default(),
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
        if key.is_decided(&self.tools) {
            self.queue.wake(key);
        }
    }

    /// Locks the memory of the process. The caller must not await while it has the lock.
    pub fn lock(&self) -> MutexGuard<'_, World<C>> {
        self.world.lock()
    }

    /// Whether every watched kind has been listed.
    pub(crate) fn is_synced(&self, seen: &C::Seen) -> bool {
        self.feeds.iter().all(|feed| feed.is_synced(seen))
    }

    /// Whether every watched kind has been listed that decisions about the key need.
    pub fn is_synced_for(&self, seen: &C::Seen, key: &C::Key) -> bool {
        self.is_synced(seen) || (self.may_go_on_without_deferred() && !C::needs_deferred(seen, key))
    }

    /// Whether keys that need no deferred kind do not wait for those kinds. If a deferred kind is
    /// never listed, objects can be created and never be deleted, so this ends.
    fn may_go_on_without_deferred(&self) -> bool {
        self.listed_first.get().is_some_and(|listed| listed.elapsed() < DEFERRED_WITHIN)
    }

    /// Whether a decision about the key waits only for the first list of a deferred kind.
    pub(crate) fn awaits_deferred(&self, world: &World<C>, key: &C::Key) -> bool {
        let is_held = !self.is_synced_for(&world.seen, key) && world.barrier.blocked(key).is_none();
        is_held && self.listed_first.initialized()
    }

    /// Whether every watched kind that is not deferred has been listed.
    fn is_synced_first(&self, seen: &C::Seen) -> bool {
        self.feeds.iter().all(|feed| feed.is_deferred() || feed.is_synced(seen))
    }

    /// The time at which the stores of the control cluster were first complete.
    pub fn control_listed_at(&self) -> Option<Timestamp> {
        self.control_listed().map(|(_, at)| at)
    }

    fn control_listed(&self) -> Option<(Instant, Timestamp)> {
        *self.control_listed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time from which a pass may decide about the key without the target cluster; `None` if
    /// the key waits for that cluster, or for the control cluster.
    ///
    /// The pass does not wait for stores of the target cluster that were never filled, nor for
    /// writes to it whose outcome is not known.
    pub(crate) fn goes_on_from(&self, world: &World<C>, key: &C::Key) -> Option<Instant> {
        if !key.goes_on_without_target(&world.seen) {
            return None;
        }
        let (listed, _) = self.control_listed()?;
        let listed = self.listed_first.get().copied().unwrap_or(listed);
        let unfilled = (!self.is_synced_for(&world.seen, key)).then_some(listed);
        let mut writes = Vec::new();
        for (expect, sent) in world.barrier.open_writes(key) {
            if expect.cluster == Cluster::Control {
                return None;
            }
            writes.push(sent);
        }
        let last = writes.into_iter().chain(unfilled).max();
        Some(last.map_or_else(Instant::now, |last| last + TARGET_ANSWERS_WITHIN))
    }

    /// The start of this process's leadership, in wall-clock time.
    pub fn leading_since(&self) -> Option<Timestamp> {
        let held = self.leadership.as_ref()?.held_since()?;
        self.now().checked_sub(Instant::now().duration_since(held)).ok()
    }

    /// If the previous leader did not release the Lease: the end of the time in which its writes
    /// may take effect. By then, API servers have ended each of its requests. If there was no
    /// Lease, the objects show whether there was a leader: a user may have deleted its Lease.
    pub fn alone_from(&self) -> Option<Instant> {
        let leadership = self.leadership.as_ref()?;
        let first = || leadership.first_since().filter(|_| self.had_leader.load(Ordering::Relaxed));
        let taken_over = leadership.taken_over_since().or_else(first)?;
        Some(taken_over + LAST_WRITES).filter(|alone_from| Instant::now() < *alone_from)
    }

    /// Whether this process is the only one whose writes the watches show.
    pub(crate) fn may_report(&self) -> bool {
        self.leadership.as_ref().is_none_or(Leadership::is_held) && self.alone_from().is_none()
    }

    /// The current time, for API timestamps and deadlines.
    pub fn now(&self) -> Timestamp {
        self.options.clock.now()
    }

    /// Converts a time of the monotonic clock to wall-clock time, rounded up to a second.
    pub fn wall(&self, at: Instant) -> Timestamp {
        let ahead = at.saturating_duration_since(Instant::now());
        let shown = self.now().checked_add(ahead).unwrap_or(Timestamp::MAX);
        Timestamp::from_second(shown.as_second().saturating_add(1)).unwrap_or(Timestamp::MAX)
    }

    /// The time at which this process began to decide; `None` before all stores are complete that
    /// are not deferred.
    pub fn started(&self) -> Option<Timestamp> {
        *self.started.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets the answers of the cloud if the clock has stepped.
    pub(crate) fn heed_clock(&self) {
        let now = self.now();
        if !self.clock_steps.look(now) {
            return;
        }
        tracing::warn!(%now, "The system clock has stepped; forgetting earlier answers of the cloud");
        C::forget_moments(&mut self.world.lock().seen, now);
        self.accounts.forget_moments();
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        *started = started.map(|_| now);
    }

    /// The upper bound of the known clock skew between this process and the two clusters.
    pub fn skew(&self) -> Duration {
        let now = self.now();
        let of = |skew: &Skew| skew.at_most(now).unwrap_or_default();
        of(&self.options.skew).max(of(&self.options.target_skew))
    }

    /// Checks whether stores have become complete, and wakes the keys that waited for them. Records
    /// the time at which the process begins to decide.
    pub fn note_synced(&self, world: &World<C>) {
        let mut control = self.feeds.iter().filter(|feed| feed.cluster() == Some(Cluster::Control));
        if control.all(|feed| feed.is_synced(&world.seen)) {
            let mut listed = self.control_listed.lock().unwrap_or_else(PoisonError::into_inner);
            if listed.is_none() {
                *listed = Some((Instant::now(), self.now()));
                C::Key::all(&world.seen, &self.tools)
                    .into_iter()
                    .filter(|key| key.goes_on_without_target(&world.seen))
                    .for_each(|key| self.wake(key));
            }
        }
        let is_synced = self.is_synced(&world.seen);
        if is_synced {
            tracing::info!("All stores are complete");
        }
        if self.begin_to_decide(world) {
            C::Key::all(&world.seen, &self.tools).into_iter().for_each(|key| self.wake(key));
        } else if is_synced {
            let goes_on = self.may_go_on_without_deferred();
            let waits = |key: &C::Key| !goes_on || C::needs_deferred(&world.seen, key);
            C::Key::all(&world.seen, &self.tools).into_iter().filter(waits).for_each(|key| self.wake(key));
        }
    }

    /// Records the time at which the stores that are not deferred are first complete. Returns
    /// whether that is now.
    fn begin_to_decide(&self, world: &World<C>) -> bool {
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        if started.is_some() || !self.is_synced_first(&world.seen) {
            return false;
        }
        *started = Some(self.now());
        self.had_leader.store(C::shows_former_leader(&world.seen), Ordering::Relaxed);
        // Another call may have set it: a step of the clock resets only the time.
        let _ = self.listed_first.set(Instant::now());
        true
    }

    /// Records a decision about a key.
    pub(crate) fn note(&self, key: &C::Key, why: Why<C::Reason>, actions: Vec<String>) {
        let at = self.now();
        let mut world = self.world.lock();
        let is_other = world.passes.whys.get(key).is_none_or(|before| before.why != why);
        world.passes.whys.insert(key.clone(), WhyRecord { at, why, actions });
        if is_other {
            self.decided.notify_one();
        }
    }

    /// Reports in `why` that actions got no answer, about an object that is up to date otherwise.
    pub(crate) fn note_unanswered(&self, key: &C::Key, actions: &[String]) {
        let again = Step::Expect("the controller tries again after a pause");
        let reason = Reason::Writing("the API server did not answer the last change");
        self.note(key, Why::new(reason, again), actions.to_vec());
    }

    /// Reports a rejected change in an Event and in `why`. Otherwise users would only see that the
    /// object does not change.
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

    /// Records that actions were repeated without effect, and counts them.
    pub(crate) fn note_no_effect(&self, key: &C::Key, actions: &[String]) {
        let action = actions.join("; ");
        tracing::warn!(%key, %action, "Repeated action had no effect; pausing");
        self.count_retry(Count::NoEffect, key);
        let reason = Reason::NoEffect { action };
        let again = Step::Expect("the controller tries again after a pause");
        self.note(key, Why::new(reason, again), Vec::new());
    }

    /// Counts a pass that failed and is tried again.
    pub(crate) fn count_retry(&self, count: Count, key: &C::Key) {
        let mut world = self.world.lock();
        let queue = C::queue_of(&world.seen, key);
        world.passes.count_retry(count, key.kind(), queue);
    }

    /// Records that actions were performed in a circle, and decides again after the pause.
    pub(crate) fn note_circle(&self, key: &C::Key, actions: &[String], pause: Duration) {
        self.note_no_effect(key, actions);
        self.queue.wake_at(key.clone(), Instant::now() + pause);
    }

    /// Records the panic of a pass, counts it, and retries after a pause.
    pub(crate) fn note_panic(&self, key: &C::Key, why: Why<C::Reason>) {
        tracing::error!(%key, reason = %why.reason, "Pass panicked; retrying after a pause");
        self.count_retry(Count::Panicked, key);
        self.note(key, why, Vec::new());
        self.queue.retry(key.clone());
    }

    pub(crate) fn unknown_writes(&self, key: &C::Key) -> UnknownWrites {
        match self.world.lock().barrier.blocked(key) {
            None => UnknownWrites::None,
            Some(blocked) if blocked.unknown.is_empty() => UnknownWrites::Waiting,
            Some(blocked) => UnknownWrites::Some(blocked.unknown),
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

    /// Returns which loop of the process does not turn, if one does not. Waiting for an API server
    /// or for a cloud is not a stall.
    pub(crate) fn stall(&self) -> Option<String> {
        self.activity.stall(self.queue.metrics().lag, &self.options.pulse)
    }

    /// Records a measured event.
    pub(crate) fn note_measurement(&self, measurement: &Measurement<'_>) {
        C::note(&self.tools, measurement, &self.options.metrics);
    }

    /// Starts a task that ends with the process.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        let mut tasks = self.tasks.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(self.options.wrap.around(task))
    }
}

/// Writes of this process that block decisions about a key.
pub(crate) enum UnknownWrites {
    /// No write blocks the key.
    None,
    /// The API server answered all writes, and the store will show them.
    Waiting,
    /// The outcomes of these writes are unknown.
    Some(Vec<Charge>),
}
