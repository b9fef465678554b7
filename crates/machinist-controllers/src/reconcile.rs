//! The loop, the same for every kind: take a key, observe, plan, act, come back when told.
//!
//! # Guarantees
//! Nothing is decided about a key that has an own write the stores have not shown. A pass ends at its first call that fails.
//! The same actions planned twice from the same facts are not performed a second time before a pause, which doubles for as long as
//! nothing changes.
//! A panic ends its pass, says so in the object's `why`, and is followed by a pause; other keys go on.

use std::fmt::Display;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use machinist_api::constants::reasons;
use machinist_kube::lease::Leadership;
use machinist_kube::recorder::{EventType, Recorder};
use machinist_kube::{KeyQueue, ObjectKey, Skew};
use machinist_plan::{Plan, Reason, Step, Wait, Why};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::act::{Accounts, Ends};
use crate::clock_steps::ClockSteps;
use crate::memory::{Count, Repetition, WhyRecord};
use crate::panics::{self, Panicked};
use crate::world::{SharedWorld, World};
use crate::{Key, MachineOptions, Options, mcm};

/// How many independent calls of one plan are in flight at once.
const CALLS_AT_ONCE: usize = 16;

/// A call that may not be started now is tried again after this long.
pub(crate) const NOT_NOW_AGAIN: Duration = Duration::from_secs(1);

/// Everything the workers of one process share.
pub(crate) struct Shared {
    pub world: SharedWorld,
    pub queue: KeyQueue<Key>,
    pub options: Options,
    /// Absent in the manager.
    pub machine: Option<MachineOptions>,
    pub control: kube::Client,
    pub target: kube::Client,
    pub recorder: Recorder,
    pub accounts: Accounts,
    pub call_ends: Ends,
    pub leadership: Option<Leadership>,
    /// Driver calls and whatever else outlives a pass; aborted with the process.
    pub tasks: Mutex<JoinSet<()>>,
    /// Which stores must be complete before anything is decided.
    pub is_synced: fn(&World) -> bool,
    /// When they first were; or when the clock last stepped, which is a beginning as well.
    pub started: Mutex<Option<Timestamp>>,
    pub clock_steps: ClockSteps,
    /// Told whenever something is decided otherwise than before, for whoever shows it.
    pub decided: Notify,
}

/// What observing a key came to.
pub(crate) enum Observed<S> {
    /// The facts, and a fingerprint of the versions they are of.
    Ready(S, u64),
    /// Something is missing that will wake the key when it arrives.
    NotYet,
    /// There is no such object.
    Gone,
}

/// Why a pass ended before its plan did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The view was stale; the store will show what changed.
    Stale,
    /// The API server refused, and will refuse again.
    Refused {
        /// What it said.
        message: String,
        /// Whether there was an Event already, in better words than can be found for any change.
        is_told: bool,
    },
    /// The API server did not answer, or asked for patience.
    Unanswered(String),
    /// A call may not be started now.
    NotNow(&'static str),
}

/// How one kind is observed, decided and acted on.
pub(crate) trait Kind: 'static {
    type Snapshot: Send + Sync;
    type Action: Display + Send + Sync;

    /// Collects the facts. Called under the world's lock: no waiting, no calls.
    fn observe(shared: &Shared, world: &World, id: &Self::Id) -> Observed<Self::Snapshot>;
    /// Decides.
    fn plan(shared: &Shared, snapshot: &Self::Snapshot) -> Plan<Self::Action>;
    /// Performs one action.
    fn act(
        shared: &Arc<Shared>,
        snapshot: &Self::Snapshot,
        action: Self::Action,
    ) -> impl Future<Output = Result<(), Stop>> + Send;
    /// Whether this action may be performed beside its neighbours of the same sort.
    fn is_independent(action: &Self::Action) -> bool;
    /// How Events name the object; nothing where a key stands for several.
    fn reference(snapshot: &Self::Snapshot) -> Option<ObjectReference>;
    /// What names one object of the kind.
    type Id: Send + Sync;
}

/// One worker: looks at one key after the other, for ever.
pub(crate) async fn work(shared: Arc<Shared>) {
    loop {
        let key = shared.queue.next().await;
        match &key {
            Key::Machine(id) => pass::<mcm::kinds::Machines>(&shared, &key, id).await,
            Key::Class(id) => pass::<mcm::kinds::Classes>(&shared, &key, id).await,
            Key::Secret(id) => pass::<mcm::kinds::Secrets>(&shared, &key, id).await,
            Key::Replacement(id) => pass::<mcm::kinds::Replacements>(&shared, &key, id).await,
            Key::Set(id) => pass::<mcm::kinds::Sets>(&shared, &key, id).await,
            Key::Deployment(id) => pass::<mcm::kinds::Deployments>(&shared, &key, id).await,
        }
        shared.queue.done(&key);
    }
}

async fn pass<K: Kind>(shared: &Arc<Shared>, key: &Key, id: &K::Id) {
    match shared.unknown_writes(key) {
        Unknown::None => {}
        Unknown::Waiting => return,
        Unknown::Some(writes) => return shared.settle_unknown(key, writes),
    }
    shared.heed_clock();
    let observed = panics::catch(|| {
        let world = shared.world.lock();
        // Asked again under this lock: since the key was found free, another worker may have opened a charge on it.
        let may_decide = (shared.is_synced)(&world) && world.barrier.blocked(key).is_none();
        if may_decide { K::observe(shared, &world, id) } else { Observed::NotYet }
    });
    let (snapshot, version) = match observed {
        Err(panicked) => {
            return shared.note_panic(key, program_failed("collecting its facts failed", panicked));
        }
        Ok(Observed::Ready(snapshot, version)) => (snapshot, version),
        Ok(Observed::NotYet) => return,
        Ok(Observed::Gone) => {
            shared.world.lock().memory.forget_key(key);
            shared.decided.notify_one();
            return shared.queue.remove(key);
        }
    };
    let decided = panics::catch(|| {
        let plan = K::plan(shared, &snapshot);
        let rendered: Vec<String> = plan.actions.iter().map(ToString::to_string).collect();
        (plan, rendered)
    });
    let (Plan { actions, why, wait }, rendered) = match decided {
        Ok(decided) => decided,
        Err(panicked) => return shared.note_panic(key, planner_failed(panicked)),
    };
    let repetition = shared.world.lock().memory.repetition(key, version, &rendered);
    if let Repetition::Pausing(until) = repetition {
        return shared.queue.wake_at(key.clone(), until);
    }
    if repetition == Repetition::WithoutEffect {
        let action = rendered.join("; ");
        tracing::warn!(%key, %action, "Doing the same again would change nothing");
        shared.world.lock().memory.count(Count::NoEffect, key.kind());
        shared.note(key, Why::new(Reason::NoEffect { action }, Step::Expect("a pause")), Vec::new());
        let pause = shared.queue.retry(key.clone());
        shared.world.lock().memory.pause(key, Instant::now() + pause);
        return;
    }
    if rendered.is_empty() {
        tracing::debug!(%key, %why, "Nothing to do");
    } else {
        tracing::info!(%key, actions = ?rendered, %why, "Acting");
    }
    shared.note(key, why, rendered);
    let performed = match panics::catch_async(perform::<K>(shared, &snapshot, actions)).await {
        Ok(performed) => performed,
        Err(panicked) => {
            shared.forget_pass(key);
            return shared.note_panic(key, program_failed("acting on it failed", panicked));
        }
    };
    match performed {
        Ok(()) => {
            // What had no effect before is no success until something changes: pauses go on growing.
            if repetition == Repetition::New {
                shared.queue.forget(key);
            }
            shared.come_back(key, wait);
        }
        Err(stop) => {
            let delay = match &stop {
                Stop::Stale => shared.queue.retry(key.clone()),
                Stop::Refused { message, is_told } => {
                    let untold = K::reference(&snapshot).filter(|_| !is_told);
                    shared.tell_refused(key, untold, message);
                    // The end of the refused write wakes the key at once, and it would be refused again.
                    let pause = shared.queue.retry(key.clone());
                    shared.world.lock().memory.pause(key, Instant::now() + pause);
                    pause
                }
                Stop::Unanswered(_) => {
                    shared.forget_pass(key);
                    shared.queue.retry(key.clone())
                }
                // Nobody refused anything: it only was not the moment.
                Stop::NotNow(_) => {
                    shared.forget_pass(key);
                    shared.queue.wake_at(key.clone(), Instant::now() + NOT_NOW_AGAIN);
                    NOT_NOW_AGAIN
                }
            };
            shared.world.lock().memory.count(stop.count(), key.kind());
            tracing::info!(%key, reason = ?stop, ?delay, "Stopped; looking again");
        }
    }
}

impl Stop {
    /// The API server refused, and there was no Event yet.
    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self::Refused { message: message.into(), is_told: false }
    }

    fn count(&self) -> Count {
        match self {
            Self::Stale => Count::Stale,
            Self::Refused { .. } => Count::Refused,
            Self::Unanswered(_) => Count::Unanswered,
            Self::NotNow(_) => Count::NotNow,
        }
    }
}

/// A planner panicked. It sees no secret, so what it said may be told.
pub(crate) fn planner_failed(panicked: Panicked) -> Why {
    let message = panicked.message.clone();
    failed("the rule engine failed on this object", panicked, message)
}

/// Something else panicked, which may have had a secret in its hands.
pub(crate) fn program_failed(what: &'static str, panicked: Panicked) -> Why {
    failed(what, panicked, String::new())
}

fn failed(what: &'static str, panicked: Panicked, message: String) -> Why {
    let reason = Reason::ProgramFailed { what, at: panicked.at, message };
    Why::new(reason, Step::Mend("report this bug; until then it is tried again after a pause".to_owned()))
}

/// Performs the actions in order; neighbours that are independent of each other beside each other.
async fn perform<K: Kind>(
    shared: &Arc<Shared>,
    snapshot: &K::Snapshot,
    actions: Vec<K::Action>,
) -> Result<(), Stop> {
    let mut actions = actions.into_iter().peekable();
    while let Some(action) = actions.next() {
        if !K::is_independent(&action) {
            K::act(shared, snapshot, action).await?;
            continue;
        }
        let mut together = vec![action];
        while let Some(action) = actions.next_if(K::is_independent) {
            together.push(action);
        }
        let calls = together.into_iter().map(|action| K::act(shared, snapshot, action));
        let results: Vec<_> = futures::stream::iter(calls).buffered(CALLS_AT_ONCE).collect().await;
        results.into_iter().collect::<Result<(), Stop>>()?;
    }
    Ok(())
}

/// Own writes that keep a key from being decided about.
enum Unknown {
    /// There are none.
    None,
    /// They were answered; the store will show them.
    Waiting,
    /// Nobody knows what became of these.
    Some(Vec<machinist_kube::barrier::Charge>),
}

impl Shared {
    /// The options of the machine controller.
    pub(crate) fn machine_options(&self) -> &MachineOptions {
        self.machine.as_ref().expect("only the machine controller watches Machines' instances")
    }

    /// Wakes a key, if this process decides about its kind.
    pub(crate) fn wake(&self, key: Key) {
        if self.decides_about(&key) {
            self.queue.wake(key);
        }
    }

    pub(crate) fn decides_about(&self, key: &Key) -> bool {
        match key {
            Key::Machine(_) | Key::Class(_) | Key::Secret(_) | Key::Replacement(_) => self.machine.is_some(),
            Key::Set(_) | Key::Deployment(_) => self.machine.is_none(),
        }
    }

    /// The moment, for API timestamps and deadlines.
    pub(crate) fn now(&self) -> Timestamp {
        self.options.clock.now()
    }

    /// A moment of the monotonic clock as the wall clock will show it, rounded up to a second.
    pub(crate) fn wall(&self, at: Instant) -> Timestamp {
        let ahead = at.saturating_duration_since(Instant::now());
        let shown = self.now().checked_add(ahead).unwrap_or(Timestamp::MAX);
        Timestamp::from_second(shown.as_second().saturating_add(1)).unwrap_or(Timestamp::MAX)
    }

    /// When this process began to decide; `None` before all stores are complete.
    pub(crate) fn started(&self) -> Option<Timestamp> {
        *self.started.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins anew, as far as the cloud is concerned, when the clock has stepped.
    fn heed_clock(&self) {
        let now = self.now();
        if !self.clock_steps.look(now) {
            return;
        }
        tracing::warn!(%now, "The clock has stepped; what the cloud answered before proves nothing any more");
        self.world.lock().memory.forget_moments(now);
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        *started = started.map(|_| now);
    }

    /// How far our clock may be from the worse of the two clusters', as far as is known: never less than it is.
    pub(crate) fn skew(&self) -> Duration {
        let now = self.now();
        let of = |skew: &Skew| skew.at_most(now).unwrap_or_default();
        of(&self.options.skew).max(of(&self.options.target_skew))
    }

    /// Remembers that all stores are complete, and wakes everybody when they are.
    pub(crate) fn note_synced(&self, world: &World) {
        if !(self.is_synced)(world) {
            return;
        }
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        if started.is_none() {
            *started = Some(self.now());
            tracing::info!(machines = world.machines.len(), "All stores are complete");
        }
        for key in mcm::all_keys(world) {
            self.wake(key);
        }
    }

    /// What was last decided about a key.
    pub(crate) fn note(&self, key: &Key, why: Why, actions: Vec<String>) {
        let at = self.now();
        let mut world = self.world.lock();
        let is_other = world.memory.whys.get(key).is_none_or(|before| before.why != why);
        world.memory.whys.insert(key.clone(), WhyRecord { at, why, actions });
        if is_other {
            self.decided.notify_one();
        }
    }

    /// Says where people look that the API server refused a change: otherwise it would only be seen that nothing happens.
    fn tell_refused(&self, key: &Key, object: Option<ObjectReference>, message: &str) {
        if let Some(object) = object {
            self.recorder.record(&object, EventType::Warning, reasons::CHANGE_REFUSED, message);
        }
        let reason = Reason::ChangeRefused { message: message.to_owned() };
        self.note(key, Why::new(reason, Step::Expect("another attempt after a pause")), Vec::new());
    }

    /// Says that a pass panicked, counts it, and looks again after a pause.
    pub(crate) fn note_panic(&self, key: &Key, why: Why) {
        tracing::error!(%key, reason = %why.reason, "Panicked; looking again after a pause");
        self.world.lock().memory.count(Count::Panicked, key.kind());
        self.note(key, why, Vec::new());
        self.queue.retry(key.clone());
    }

    fn unknown_writes(&self, key: &Key) -> Unknown {
        match self.world.lock().barrier.blocked(key) {
            None => Unknown::None,
            Some(blocked) if blocked.unknown.is_empty() => Unknown::Waiting,
            Some(blocked) => Unknown::Some(blocked.unknown),
        }
    }

    fn forget_pass(&self, key: &Key) {
        self.world.lock().memory.last_pass.remove(key);
    }

    fn come_back(&self, key: &Key, wait: Wait) {
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

/// A fingerprint of versions: which versions of which objects a decision was made from.
#[derive(Debug)]
pub(crate) struct Versions(u64);

impl Versions {
    pub(crate) fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    pub(crate) fn add(&mut self, version: u64) {
        self.0 = (self.0 ^ version).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(17);
    }

    pub(crate) fn add_text(&mut self, text: &str) {
        for byte in text.bytes() {
            self.add(u64::from(byte));
        }
    }

    pub(crate) fn done(self) -> u64 {
        self.0
    }
}

/// Name and namespace of the key of an object.
pub(crate) fn object_key(namespace: &str, name: &str) -> ObjectKey {
    ObjectKey::new(namespace, name)
}
