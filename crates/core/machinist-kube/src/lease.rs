//! Leader election by a Lease, compatible with client-go: it uses the same fields and rules, so a
//! Go process and a Rust process exclude each other.
//!
//! An elector decides whether another holder is alive by the time at which the elector saw the
//! Lease change, on its own monotonic clock. It never compares the clocks of two machines. Our term
//! is counted from *before* we sent the last successful renewal, so we stop before another process
//! may start. The monotonic clock stands still while the machine is suspended, so the term also
//! counts the time on our wall clock: the larger of both spans has passed.
//!
//! Leadership only prevents two processes from doing the same work; guarded writes and instance
//! keys provide the safety. A lost Lease is final: the process ends and is started again, so a
//! leader never has a stale memory.
//!
//! ```text
//! Waiting --> Held --> Draining --> Lost
//!    |          |                    ^
//!    +----------+--------------------+
//! ```
//!
//! Three rules define what a Lease permits:
//!
//! * **Starting.** A call may start while [`Leadership::may_start`] is true: the process renewed
//!   the Lease within the renew deadline and has not been told to stop. The call may take longer
//!   than the Lease lasts, because the process continues to renew.
//! * **Continuing.** A call that consists of several requests sends a change only while
//!   [`Leadership::may_continue`] is true. So a process that was paused during a call changes
//!   nothing when it continues.
//! * **Stopping.** After the stop signal, [`Elector::run_and_drain`] permits no new calls. It
//!   renews the Lease until the calls in flight have ended, and then releases the Lease. So no
//!   other process leads while one of our calls may still take effect.
//!
//! While the namespace of the Lease is being deleted, no process can create a Lease there. If the
//! Lease is deleted with its namespace, the process that led last continues: each rejected attempt
//! to create the Lease again proves that no other process leads. No process begins to lead. When
//! the namespace is gone, the term ends.
//!
//! A client that deletes the Lease does not stop the leader, which creates the Lease again. Another
//! process waits until the deleted Lease would have expired.
//!
//! If a process dies or cannot renew, these rules do not protect its calls in flight. Only the
//! instance key does.

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Client;
use kube::api::{Api, ObjectMeta, PostParams};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::backoff::Jitter;
use crate::clock::{SharedClock, TokioClock};
use crate::outcome::WriteOutcome;

/// The Lease of an election, the identity of this process, and the durations.
///
/// ```
/// use std::time::Duration;
/// use machinist_kube::LeaseOptions;
///
/// let mut options = LeaseOptions::new("default", "machine-controller", "host-1_7f3a");
/// assert_eq!(options.validate(), Ok(()));
///
/// options.renew_deadline = options.lease_duration;
/// let error = options.validate().expect_err("a leader could still act after its lease");
/// assert!(error.to_string().contains("renew deadline"), "{error}");
/// ```
#[derive(Clone, Debug)]
pub struct LeaseOptions {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Identity of this process, unique per process: for example the name of the machine and a
    /// random UUID.
    pub identity: String,
    /// How long another process waits after the last renewal that it saw, before it takes the
    /// Lease.
    pub lease_duration: Duration,
    /// We stop leading if no renewal has succeeded for this long. Shorter than `lease_duration`.
    pub renew_deadline: Duration,
    /// Interval at which the leader renews the Lease, and another process checks whether the Lease
    /// is free.
    pub retry_period: Duration,
    /// Seed of the jitter between two checks.
    pub seed: u64,
}

impl LeaseOptions {
    /// Options with the durations of all Kubernetes components: 15, 10 and 2 seconds.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>, identity: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            identity: identity.into(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            seed: 0,
        }
    }

    /// Checks the identity, and that the durations fit together.
    ///
    /// # Errors
    /// The error names the invalid option and the expected value.
    pub fn validate(&self) -> Result<(), InvalidLeaseOptions> {
        let wrong = |field, expected| Err(InvalidLeaseOptions { field, expected });
        if self.identity.is_empty() {
            return wrong("identity", "a text that is unique per process");
        }
        if self.lease_duration < Duration::from_secs(1) {
            return wrong("lease duration", "at least 1s");
        }
        if self.lease_duration <= self.renew_deadline {
            return wrong("renew deadline", "less than the lease duration");
        }
        if self.retry_period.is_zero() || self.renew_deadline <= self.retry_period.mul_f64(1.0 + LOOK_SPREAD)
        {
            return wrong("retry period", "more than 0s and less than the renew deadline divided by 1.2");
        }
        Ok(())
    }
}

/// An option of an election that cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("leader election: invalid {field}; set it to {expected}")]
pub struct InvalidLeaseOptions {
    field: &'static str,
    expected: &'static str,
}

/// Share of the retry period by which a check of the Lease may be late, so that candidates do not
/// all check at once.
const LOOK_SPREAD: f64 = 0.2;

/// Timeout for releasing the Lease: longer than a request takes on a busy server, shorter than a
/// pod's grace period. A late write is harmless: it names the resourceVersion that it is based on,
/// so it cannot take the Lease from another process.
pub const GIVE_BACK_WITHIN: Duration = Duration::from_secs(5);

/// Annotation of a Lease: the time in which no process acted, which deadlines leave out. The leader
/// writes it in a renewal that is written anyway. Go's leader election keeps it.
pub const UNSEEN: &str = "machinist.dev/unseen";

/// The last renewal and the annotation that the previous leader left in the Lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inherited {
    /// The last renewal, by the clock of the previous leader; absent if there was no Lease.
    pub renewed: Option<Timestamp>,
    /// The annotation [`UNSEEN`].
    pub unseen: Option<String>,
}

/// The annotation of the Lease: as the previous leader left it, and as we write it.
#[derive(Debug, Default)]
struct Annotation {
    inherited: Option<Inherited>,
    /// Absent before this process knows the value.
    next: Option<String>,
}

/// State of the leadership of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseState {
    /// Another process leads, or no process leads yet.
    Waiting,
    /// This process leads.
    Held(Term),
    /// We hold and renew the Lease, but start no call: the process is ending and waits for its
    /// calls in flight.
    Draining(Term),
    /// We no longer lead. This state is final.
    Lost,
}

/// The period in which we hold the Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    /// Start of our leadership.
    pub since: Instant,
    /// Time until which a call may start if no renewal succeeds: the renew deadline.
    pub start_until: Instant,
    /// Time until which no other process leads if no renewal succeeds: the end of the lease
    /// duration.
    pub until: Instant,
    /// Whether the previous leader did not release the Lease, so that its last requests may still
    /// take effect.
    pub ran_out: bool,
    /// Whether no Lease existed, and this process has never seen one. A user may have deleted the
    /// Lease of a leader that still runs.
    pub is_first: bool,
    /// Time before the elector sent the last successful renewal.
    pub renewed: Sent,
}

/// A time on both clocks of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Time on the monotonic clock.
    pub at: Instant,
    /// Time on the wall clock.
    pub wall: Timestamp,
}

impl Sent {
    fn now(clock: &SharedClock) -> Self {
        Self { at: Instant::now(), wall: clock.now() }
    }

    /// The present on the monotonic clock, as if that clock had not stood still since this time.
    /// A correction of the wall clock forwards looks like a pause, which is harmless: the next
    /// renewal ends it.
    fn present(&self, clock: &SharedClock) -> Instant {
        let shown = Duration::try_from(clock.now().duration_since(self.wall)).unwrap_or(Duration::ZERO);
        self.at.checked_add(shown).map_or_else(Instant::now, |shown| shown.max(Instant::now()))
    }
}

impl LeaseState {
    /// The term, if we hold the Lease.
    fn term(&self) -> Option<Term> {
        match *self {
            Self::Held(term) | Self::Draining(term) => Some(term),
            Self::Waiting | Self::Lost => None,
        }
    }
}

/// Reports whether this process leads. Read it before each action. A clone shares the state.
///
/// ```
/// use machinist_kube::Leadership;
/// use machinist_kube::lease::LeaseState;
///
/// // A process that is alone needs no election, and asks in the same way.
/// let leadership = Leadership::unopposed();
/// assert!(leadership.is_held() && leadership.may_start());
/// assert!(matches!(leadership.state(), LeaseState::Held(_)));
/// assert_eq!(leadership.taken_over_since(), None);
/// ```
#[derive(Clone)]
pub struct Leadership {
    state: watch::Receiver<LeaseState>,
    clock: SharedClock,
    /// Whether the last attempt showed another holder.
    is_theirs: Arc<AtomicBool>,
    annotation: Arc<Mutex<Annotation>>,
    /// Keeps the channel open if there is no election.
    _permanent: Option<Arc<watch::Sender<LeaseState>>>,
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Leadership").field(&self.state()).finish()
    }
}

impl Leadership {
    /// Leadership without an election, for a process that is alone by construction.
    pub fn unopposed() -> Self {
        let now = Instant::now();
        // A century is longer than any process runs, and far from overflow.
        let until = now + Duration::from_secs(100 * 365 * 24 * 3600);
        // Without an election, no other process can lead during a pause.
        let clock: SharedClock = Arc::new(TokioClock::starting_at(Timestamp::UNIX_EPOCH));
        let renewed = Sent::now(&clock);
        let (sender, state) = channel(LeaseState::Held(Term {
            since: now,
            start_until: until,
            until,
            ran_out: false,
            is_first: false,
            renewed,
        }));
        Self {
            state,
            clock,
            is_theirs: Arc::default(),
            annotation: Arc::default(),
            _permanent: Some(Arc::new(sender)),
        }
    }

    /// The facts that the previous leader left in the Lease; absent without an election, or before
    /// we lead.
    pub fn inherited(&self) -> Option<Inherited> {
        lock(&self.annotation).inherited.clone()
    }

    /// Sets the annotation [`UNSEEN`] for all further renewals. Sends no request.
    pub fn write_unseen(&self, unseen: String) {
        lock(&self.annotation).next = Some(unseen);
    }

    /// Whether this process waits because another process holds the Lease. False before the first
    /// answer of the API server.
    pub fn is_standby(&self) -> bool {
        self.state() == LeaseState::Waiting && self.is_theirs.load(Ordering::Relaxed)
    }

    /// The state of the leadership now. An expired Lease counts as lost, even if the elector has
    /// not noticed yet.
    ///
    /// If only the wall clock shows that the Lease expired, as after a suspension of the machine,
    /// the elector still tries to renew. A success proves that no other process has led meanwhile,
    /// because a renewal names the version of the Lease that it replaces.
    pub fn state(&self) -> LeaseState {
        let state = *self.state.borrow();
        let has_run_out = state.term().is_some_and(|term| term.until <= self.present(&term));
        if has_run_out { LeaseState::Lost } else { state }
    }

    /// Whether we hold the Lease. The result is also true while the process drains.
    pub fn is_held(&self) -> bool {
        self.held_since().is_some()
    }

    /// Start of our leadership; `None` if we do not lead.
    pub fn held_since(&self) -> Option<Instant> {
        self.state().term().map(|term| term.since)
    }

    /// Start of our leadership, if the previous leader did not release the Lease.
    pub fn taken_over_since(&self) -> Option<Instant> {
        self.state().term().filter(|term| term.ran_out).map(|term| term.since)
    }

    /// Start of our leadership, if we created the Lease and know of no leader before us.
    pub fn first_since(&self) -> Option<Instant> {
        self.state().term().filter(|term| term.is_first).map(|term| term.since)
    }

    /// Whether a call may start now: we lead, renewed the Lease within the renew deadline, and were
    /// not told to stop.
    ///
    /// The length of the call does not matter, because the process continues to renew and drains
    /// before it releases the Lease. [`Elector::run_and_drain`] waits for calls that are counted as
    /// in flight. Count a call *before* you call this method, and uncount the call if the result is
    /// false. Then the drain either sees the call or prevents its start.
    pub fn may_start(&self) -> bool {
        match *self.state.borrow() {
            LeaseState::Held(term) => self.present(&term) < term.start_until,
            LeaseState::Waiting | LeaseState::Draining(_) | LeaseState::Lost => false,
        }
    }

    /// Whether a call that has started may still send a request that changes something: the process
    /// renewed the Lease within the renew deadline. The result is also true while the process
    /// drains, because it waits for its calls.
    pub fn may_continue(&self) -> bool {
        self.state.borrow().term().is_some_and(|term| self.present(&term) < term.start_until)
    }

    /// Time for which we certainly hold the Lease, even if no further renewal succeeds; zero if we
    /// do not hold the Lease. Work that must end before another process can lead uses this limit;
    /// other work uses [`Leadership::may_start`].
    pub fn remaining(&self) -> Duration {
        let term = self.state.borrow().term();
        term.map_or(Duration::ZERO, |term| term.until.saturating_duration_since(self.present(&term)))
    }

    fn present(&self, term: &Term) -> Instant {
        term.renewed.present(&self.clock)
    }

    /// Waits until we lead.
    ///
    /// # Errors
    /// Fails if leadership was lost, if the process drains, or if the elector has ended.
    pub async fn acquired(&self) -> Result<(), LeadershipLost> {
        let mut state = self.state.clone();
        let settled = state.wait_for(|state| *state != LeaseState::Waiting).await;
        match settled.as_deref() {
            Ok(LeaseState::Held(_)) => Ok(()),
            Ok(LeaseState::Waiting | LeaseState::Draining(_) | LeaseState::Lost) | Err(_) => {
                Err(LeadershipLost)
            }
        }
    }

    /// Waits until leadership is lost, or the elector has ended. Then the process should end too.
    pub async fn lost(&self) {
        let mut state = self.state.clone();
        // An error means that the elector has ended, which has the same consequence.
        let _ended = state.wait_for(|state| *state == LeaseState::Lost).await.is_err();
    }
}

fn lock(annotation: &Mutex<Annotation>) -> std::sync::MutexGuard<'_, Annotation> {
    annotation.lock().unwrap_or_else(PoisonError::into_inner)
}

#[expect(clippy::disallowed_methods, reason = "the tasks that wait for a Lease may wake in any order")]
fn channel(state: LeaseState) -> (watch::Sender<LeaseState>, watch::Receiver<LeaseState>) {
    watch::channel(state)
}

/// Changes the state from leading to draining and returns true. If we do not lead, changes nothing.
fn begin_draining(state: &watch::Sender<LeaseState>) -> bool {
    state.send_if_modified(|state| match *state {
        LeaseState::Held(term) => {
            *state = LeaseState::Draining(term);
            true
        }
        LeaseState::Waiting | LeaseState::Draining(_) | LeaseState::Lost => false,
    })
}

/// This process will not start to lead: leadership was lost, or the process is stopping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("leadership was lost")]
pub struct LeadershipLost;

/// The end of an election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ElectionEnd {
    /// The process was told to stop. If it held the Lease, it tried to release it.
    Released,
    /// No renewal succeeded in time, or another process holds the Lease.
    Lost {
        /// The reason, for logs.
        reason: String,
    },
}

/// Takes part in one election. Start it with [`Elector::run`] and read the state from
/// [`Leadership`].
pub struct Elector {
    leases: Api<Lease>,
    options: LeaseOptions,
    clock: SharedClock,
    state: watch::Sender<LeaseState>,
    is_theirs: Arc<AtomicBool>,
    annotation: Arc<Mutex<Annotation>>,
    jitter: Jitter,
    /// The Lease after our last write; `None` if that is not certain.
    mine: Option<Lease>,
    /// The Lease of the last read, and when we first read it in this version.
    seen: Option<(Lease, Instant)>,
    /// Whether the Lease named another holder when we took it, or was deleted before.
    ran_out: bool,
    /// Whether we created the Lease, and have seen none before.
    is_first: bool,
    /// Whether we took the Lease. From then on we take it from no other process again.
    has_led: bool,
    /// Whether this process leads although the Lease was deleted with its namespace.
    namespace_ends: bool,
}

/// Name, in a message, of a holder that has released the Lease again.
const RELEASED: &str = "another process (which has released it since)";

/// Result of one attempt.
enum Attempt {
    /// We hold the Lease. Contains the time before we sent the write.
    Ours(Sent),
    /// Another process holds the Lease. Contains its identity.
    Theirs(String),
    /// The attempt failed, and the holder is not certain. Contains the reason.
    Failed(String),
}

impl Elector {
    /// Creates an elector, and the leadership that it updates.
    pub fn new(client: Client, options: LeaseOptions, clock: SharedClock) -> (Self, Leadership) {
        let (sender, state) = channel(LeaseState::Waiting);
        let (is_theirs, annotation) = <(Arc<AtomicBool>, Arc<Mutex<Annotation>>)>::default();
        let elector = Self {
            is_theirs: is_theirs.clone(),
            annotation: annotation.clone(),
            clock: clock.clone(),
            leases: Api::namespaced(client, &options.namespace),
            jitter: Jitter::new(options.seed),
            state: sender,
            mine: None,
            seen: None,
            ran_out: false,
            is_first: false,
            has_led: false,
            namespace_ends: false,
            options,
        };
        (elector, Leadership { state, clock, is_theirs, annotation, _permanent: None })
    }

    /// Takes part until leadership is lost or `stop` completes. Then releases the Lease at once, so
    /// that the next process need not wait until the Lease expires. For a process without calls
    /// that can outlive the process.
    pub async fn run(self, stop: impl Future<Output = ()>) -> ElectionEnd {
        self.run_and_drain(stop, std::future::ready(()), Duration::ZERO).await
    }

    /// Takes part until leadership is lost or `stop` completes. After `stop`, in this order:
    ///
    /// 1. [`Leadership::may_start`] becomes false and stays false.
    /// 2. The elector polls `in_flight` for the first time. `in_flight` completes when no call is
    ///    in flight. Meanwhile the elector renews the Lease.
    /// 3. The wait ends after `at_most`, the longest duration of a call: by then each call has had
    ///    its effect or never will.
    /// 4. The elector releases the Lease.
    ///
    /// A process that does not lead when `stop` completes has nothing to wait for. If the Lease is
    /// lost during the drain, the drain ends too, with [`ElectionEnd::Lost`].
    pub async fn run_and_drain(
        mut self,
        stop: impl Future<Output = ()>,
        in_flight: impl Future<Output = ()>,
        at_most: Duration,
    ) -> ElectionEnd {
        let state = self.state.clone();
        let lost = {
            let elect = self.elect();
            tokio::pin!(elect);
            let asked_to_stop = tokio::select! {
                biased;
                () = stop => None,
                reason = &mut elect => Some(reason),
            };
            match asked_to_stop {
                None if begin_draining(&state) => tokio::select! {
                    biased;
                    () = in_flight => None,
                    () = tokio::time::sleep(at_most) => {
                        tracing::warn!(?at_most, "Calls in flight did not end in time; releasing the Lease anyway");
                        None
                    }
                    reason = &mut elect => Some(reason),
                },
                ended => ended,
            }
        };
        // This process acts no more from now on. Only after that may another process start.
        let before = state.send_replace(LeaseState::Lost);
        match lost {
            Some(reason) => {
                tracing::error!(lease = %self.options.name, %reason, "Leadership lost");
                ElectionEnd::Lost { reason }
            }
            None => {
                if before.term().is_some() {
                    self.release().await;
                }
                ElectionEnd::Released
            }
        }
    }

    /// Waits for the Lease, then renews it. Returns the reason why the Lease was lost.
    async fn elect(&mut self) -> String {
        let mut renewed = self.acquire().await;
        self.has_led = true;
        let since = Instant::now();
        self.state.send_replace(LeaseState::Held(self.term(since, renewed)));
        tracing::info!(lease = %self.options.name, identity = %self.options.identity, "Leading");
        if self.ran_out {
            let lease = &self.options.name;
            tracing::info!(%lease, "The previous leader did not release the Lease; deletions that depend on a count of objects wait a minute");
        }
        loop {
            tokio::time::sleep(self.options.retry_period).await;
            match self.renew(renewed.at + self.options.renew_deadline).await {
                Ok(at) => renewed = at,
                Err(reason) => return reason,
            }
            let renewed_term = self.term(since, renewed);
            self.state.send_modify(|state| match state {
                LeaseState::Held(term) | LeaseState::Draining(term) => *term = renewed_term,
                LeaseState::Waiting | LeaseState::Lost => {}
            });
        }
    }

    fn term(&self, since: Instant, renewed: Sent) -> Term {
        let LeaseOptions { lease_duration, renew_deadline, .. } = self.options;
        let until = renewed.at + lease_duration;
        let (start_until, ran_out, is_first) = (renewed.at + renew_deadline, self.ran_out, self.is_first);
        Term { since, start_until, until, ran_out, is_first, renewed }
    }

    async fn acquire(&mut self) -> Sent {
        let lease = self.options.name.clone();
        loop {
            let attempt = self.attempt(self.options.renew_deadline).await;
            self.is_theirs.store(matches!(attempt, Attempt::Theirs(_)), Ordering::Relaxed);
            match attempt {
                Attempt::Ours(at) => return at,
                Attempt::Theirs(holder) => tracing::debug!(%lease, %holder, "Waiting for the Lease"),
                Attempt::Failed(reason) => tracing::warn!(%lease, %reason, "Cannot get the Lease"),
            }
            let pause = self.jitter.stretch(self.options.retry_period, LOOK_SPREAD);
            tokio::time::sleep(pause).await;
        }
    }

    /// Tries until a renewal succeeds or the deadline passes.
    async fn renew(&mut self, deadline: Instant) -> Result<Sent, String> {
        let mut last = "the process was not running".to_owned();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(format!(
                    "the Lease was not renewed within {:?}: {last}",
                    self.options.renew_deadline
                ));
            }
            match self.attempt(left).await {
                Attempt::Ours(at) => return Ok(at),
                Attempt::Theirs(holder) => return Err(format!("the Lease was taken by {holder}")),
                Attempt::Failed(reason) => last = reason,
            }
            tokio::time::sleep_until(deadline.min(Instant::now() + self.options.retry_period)).await;
        }
    }

    /// Tries once to get or keep the Lease. The attempt is short enough for a second one within the
    /// renew deadline.
    async fn attempt(&mut self, at_most: Duration) -> Attempt {
        let bound = at_most.min(self.options.renew_deadline / 2);
        let attempt = timeout(bound, self.try_once()).await;
        attempt.unwrap_or_else(|_| Attempt::Failed(format!("the API server did not answer within {bound:?}")))
    }

    async fn try_once(&mut self) -> Attempt {
        // Taken, not borrowed: if this attempt is cancelled, only a read can show whether the write
        // took effect.
        if let Some(mine) = self.mine.take() {
            match self.write(mine).await {
                // The object has changed: another client wrote it, or we did in a renewal whose
                // answer was lost.
                Err(Refusal::Changed) => {}
                Err(Refusal::NamespaceEnds(_, reason) | Refusal::Other(reason)) => {
                    return Attempt::Failed(reason);
                }
                Ok(sent) => return Attempt::Ours(sent),
            }
        }
        let written = match self.leases.get_opt(&self.options.name).await {
            Err(error) => return Attempt::Failed(error.to_string()),
            Ok(None) => match self.last_holder() {
                Some(holder) => return Attempt::Theirs(holder),
                None => {
                    // Before the call: if its answer is lost, the next attempt finds our own Lease.
                    self.is_first |= !self.has_led && !self.ran_out;
                    self.create().await
                }
            },
            Ok(Some(lease)) => match self.opponent(&lease) {
                Some(holder) => return Attempt::Theirs(holder),
                None => {
                    let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
                    let is_other =
                        holder.is_some_and(|holder| !holder.is_empty() && holder != self.options.identity);
                    self.ran_out |= is_other;
                    self.is_first &= !is_other;
                    self.write(lease).await
                }
            },
        };
        match written {
            Ok(sent) => Attempt::Ours(sent),
            Err(Refusal::NamespaceEnds(sent, _)) if self.has_led => {
                if !std::mem::replace(&mut self.namespace_ends, true) {
                    let namespace = &self.options.namespace;
                    tracing::warn!(%namespace, "The namespace is being deleted; leading without a Lease until it is gone");
                }
                Attempt::Ours(sent)
            }
            Err(Refusal::NamespaceEnds(_, reason)) => Attempt::Failed(reason),
            Err(Refusal::Changed) => {
                Attempt::Failed("another client changed the Lease at the same time".to_owned())
            }
            Err(Refusal::Other(reason)) => Attempt::Failed(reason),
        }
    }

    /// The holder of a Lease that was deleted. A client that deletes a Lease does not stop the
    /// holder, so the Lease counts until it would have expired. If we have seen the Lease, its last
    /// holder did not release it to us.
    fn last_holder(&mut self) -> Option<String> {
        let (lease, _) = self.seen.clone().filter(|_| !self.has_led)?;
        self.ran_out = true;
        self.opponent(&lease)
    }

    /// The holder of this Lease, if it is another process and the Lease has not expired since we
    /// saw it change. After we have led, any other process counts.
    fn opponent(&mut self, lease: &Lease) -> Option<String> {
        let now = Instant::now();
        let unchanged = self.seen.as_ref().filter(|(seen, _)| seen == lease);
        let since = unchanged.map_or(now, |(_, since)| *since);
        self.seen = Some((lease.clone(), since));

        let spec = lease.spec.as_ref()?;
        let holder = spec.holder_identity.as_ref()?;
        if *holder == self.options.identity {
            return None;
        }
        // Another process led while we did not renew, and our memory is older than its writes.
        if self.has_led {
            return Some(if holder.is_empty() { RELEASED.to_owned() } else { holder.clone() });
        }
        let has_run_out = since + self.duration_of(spec) <= now;
        (!holder.is_empty() && !has_run_out).then(|| holder.clone())
    }

    /// The lease duration that the holder wrote into the Lease.
    fn duration_of(&self, spec: &LeaseSpec) -> Duration {
        let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        // A released Lease has 1 s. With less, the Lease would exclude no process.
        seconds.map_or(self.options.lease_duration, |seconds| Duration::from_secs(seconds.max(1)))
    }

    /// Remembers what the holder before us left. A Lease with our identity shows our own write: its
    /// answer was lost.
    fn inherit(&self, lease: &Lease) {
        let spec = lease.spec.as_ref();
        let holder = spec.and_then(|spec| spec.holder_identity.as_deref());
        let mut annotation = lock(&self.annotation);
        if annotation.inherited.is_some() && holder == Some(self.options.identity.as_str()) {
            return;
        }
        let unseen = lease.metadata.annotations.as_ref().and_then(|all| all.get(UNSEEN)).cloned();
        let renewed = spec.and_then(|spec| spec.renew_time.as_ref()).map(|time| time.0);
        annotation.inherited = Some(Inherited { renewed, unseen });
    }

    /// Sets the annotation of a Lease that is about to be written.
    fn annotate(&self, lease: &mut Lease) {
        let Some(next) = lock(&self.annotation).next.clone() else { return };
        let annotations = lease.metadata.annotations.get_or_insert_default();
        if next.is_empty() {
            annotations.remove(UNSEEN);
        } else {
            annotations.insert(UNSEEN.to_owned(), next);
        }
    }

    async fn create(&mut self) -> Result<Sent, Refusal> {
        lock(&self.annotation).inherited = Some(Inherited::default());
        let metadata = ObjectMeta {
            name: Some(self.options.name.clone()),
            namespace: Some(self.options.namespace.clone()),
            ..ObjectMeta::default()
        };
        let lease = Lease { metadata, spec: Some(self.next_spec(None)) };
        let sent = Sent::now(&self.clock);
        match self.leases.create(&PostParams::default(), &lease).await {
            // The namespace is gone. So another process may lead in a new namespace of this name.
            Err(error) if WriteOutcome::of_error(&error) == WriteOutcome::NotFound => {
                Err(Refusal::Other(error.to_string()))
            }
            result => self.keep_written(result, sent),
        }
    }

    /// Writes our identity into the Lease, if no client has changed the Lease since it was read.
    async fn write(&mut self, mut lease: Lease) -> Result<Sent, Refusal> {
        if !self.has_led {
            self.inherit(&lease);
        }
        lease.spec = Some(self.next_spec(lease.spec.as_ref()));
        self.annotate(&mut lease);
        let sent = Sent::now(&self.clock);
        let result = self.leases.replace(&self.options.name, &PostParams::default(), &lease).await;
        self.keep_written(result, sent)
    }

    /// Keeps the Lease that a write returned, or says why the write failed.
    fn keep_written(&mut self, result: Result<Lease, kube::Error>, sent: Sent) -> Result<Sent, Refusal> {
        match (WriteOutcome::of(&result), result) {
            (_, Ok(lease)) => {
                self.mine = Some(lease);
                Ok(sent)
            }
            (WriteOutcome::Stale | WriteOutcome::AlreadyExists | WriteOutcome::NotFound, Err(_)) => {
                Err(Refusal::Changed)
            }
            (_, Err(error)) if is_namespace_ending(&error) => {
                Err(Refusal::NamespaceEnds(sent, error.to_string()))
            }
            (_, Err(error)) => Err(Refusal::Other(error.to_string())),
        }
    }

    fn next_spec(&self, old: Option<&LeaseSpec>) -> LeaseSpec {
        let now = MicroTime(self.clock.now());
        let old = old.cloned().unwrap_or_default();
        let was_ours = old.holder_identity.as_deref() == Some(self.options.identity.as_str());
        let had_holder = old.acquire_time.is_some();
        let transitions = old.lease_transitions.unwrap_or_default();
        LeaseSpec {
            holder_identity: Some(self.options.identity.clone()),
            lease_duration_seconds: Some(whole_seconds(self.options.lease_duration)),
            acquire_time: old.acquire_time.filter(|_| was_ours).or_else(|| Some(now.clone())),
            renew_time: Some(now),
            lease_transitions: Some(if had_holder && !was_ours {
                transitions.saturating_add(1)
            } else {
                transitions
            }),
            ..old
        }
    }

    /// Releases the Lease if we hold it. A failure is harmless, because the Lease expires.
    async fn release(&mut self) {
        let lease = &self.options.name;
        match timeout(GIVE_BACK_WITHIN, self.give_back()).await {
            Ok(Ok(())) => tracing::info!(%lease, "Released the Lease"),
            Ok(Err(error)) => tracing::warn!(%lease, %error, "Cannot release the Lease; it will expire"),
            Err(_) => {
                tracing::warn!(%lease, "Cannot release the Lease within {GIVE_BACK_WITHIN:?}; it will expire");
            }
        }
    }

    /// Clears the holder if it is still this process. A renewal that was in flight at the stop
    /// signal may have changed the Lease meanwhile. In that case the elector reads the Lease again.
    async fn give_back(&self) -> Result<(), kube::Error> {
        let mut known = self.mine.clone();
        loop {
            let lease = match known.take() {
                Some(mine) => mine,
                None => self.leases.get(&self.options.name).await?,
            };
            let spec = lease.spec.clone().unwrap_or_default();
            if spec.holder_identity.as_deref() != Some(self.options.identity.as_str()) {
                return Ok(());
            }
            let now = MicroTime(self.clock.now());
            let spec = LeaseSpec {
                holder_identity: Some(String::new()),
                lease_duration_seconds: Some(1),
                acquire_time: Some(now.clone()),
                renew_time: Some(now),
                ..spec
            };
            let mut lease = Lease { spec: Some(spec), ..lease };
            self.annotate(&mut lease);
            match self.leases.replace(&self.options.name, &PostParams::default(), &lease).await {
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                result => return result.map(|_| ()),
            }
        }
    }
}

/// Reason why the Lease was not written.
enum Refusal {
    /// The Lease has changed since we read it.
    Changed,
    /// The namespace is being deleted, so no process can create the Lease. Contains the time before
    /// we sent the write.
    NamespaceEnds(Sent, String),
    /// Another error. The write may have taken effect.
    Other(String),
}

/// Whether the API server rejected a creation because the namespace is being deleted.
fn is_namespace_ending(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 403 && causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}

impl fmt::Debug for Elector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Elector").field("options", &self.options).finish_non_exhaustive()
    }
}

/// Rounds up to the whole seconds of a Lease, so that other processes wait at least as long as we
/// expect.
fn whole_seconds(duration: Duration) -> i32 {
    let seconds = duration.as_secs() + u64::from(0 < duration.subsec_nanos());
    i32::try_from(seconds).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests;
