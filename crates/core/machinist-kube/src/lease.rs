//! Leadership by a Lease, compatible with client-go's: same fields, same rules, so Go and Rust exclude each other.
//!
//! Whether another holder is alive is judged by when *we* saw its Lease change, on our monotonic clock; clocks of two
//! machines are never compared. How long we lead is counted from *before* the last successful renewal was sent, so we
//! stop before anyone may start.
//!
//! Leadership only keeps two processes from doing the same work; safety rests on guarded writes and on instance keys.
//! A lost Lease is final: the process ends and is started again. There is no way back into leading with a stale memory.
//!
//! ```text
//! Waiting --> Held --> Draining --> Lost
//!    |          |                    ^
//!    +----------+--------------------+
//! ```
//!
//! Two rules tell a process what its Lease permits:
//!
//! * **Starting.** A call may start while [`Leadership::may_start`] says so: the Lease was renewed within the renew deadline, and the
//!   process has not been asked to stop. The call may take longer than the Lease lasts, because the process goes on renewing.
//! * **Stopping.** [`Elector::run_and_drain`] starts nothing more, goes on renewing until the calls in flight have ended, and then
//!   gives the Lease back. So no other process leads while one of our calls may still take effect.
//!
//! A process that dies, or cannot renew, keeps neither promise for the calls it has in flight: only the instance key fences those.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Client;
use kube::api::{Api, ObjectMeta, PostParams};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::backoff::Jitter;
use crate::clock::SharedClock;
use crate::outcome::WriteOutcome;

/// Which Lease, who we are, and how patient everyone is.
#[derive(Clone, Debug)]
pub struct LeaseOptions {
    /// The namespace of the Lease.
    pub namespace: String,
    /// The name of the Lease.
    pub name: String,
    /// Who we are: unique per process, for example the name of the machine and a random UUID.
    pub identity: String,
    /// How long others wait after the last renewal they saw.
    pub lease_duration: Duration,
    /// We stop leading when no renewal has succeeded for this long. Shorter than `lease_duration`.
    pub renew_deadline: Duration,
    /// How often we renew, or look whether the Lease is free.
    pub retry_period: Duration,
    /// The seed of the jitter between looks.
    pub seed: u64,
}

impl LeaseOptions {
    /// 15, 10 and 2 seconds, as all Kubernetes components have them.
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

    /// Checks that the durations can work together.
    ///
    /// # Errors
    /// Names the duration that is wrong and what was expected.
    pub fn validate(&self) -> Result<(), InvalidLeaseOptions> {
        let wrong = |field, expected| Err(InvalidLeaseOptions { field, expected });
        if self.identity.is_empty() {
            return wrong("identity", "a text that no other process has");
        }
        if self.lease_duration < Duration::from_secs(1) {
            return wrong("lease duration", "at least 1s");
        }
        if self.lease_duration <= self.renew_deadline {
            return wrong("renew deadline", "less than the lease duration");
        }
        if self.retry_period.is_zero() || self.renew_deadline <= self.retry_period.mul_f64(1.0 + LOOK_SPREAD)
        {
            return wrong("retry period", "more than 0s, and 1.2 times it less than the renew deadline");
        }
        Ok(())
    }
}

/// Durations or an identity that cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("leader election, {field}: expected {expected}")]
pub struct InvalidLeaseOptions {
    field: &'static str,
    expected: &'static str,
}

/// The share by which a look at the Lease may be late, so that candidates do not look all at once.
const LOOK_SPREAD: f64 = 0.2;

/// How long a Lease is given back for: longer than a request takes on a busy server, shorter than a pod's grace period. A late
/// write does no harm: it names the version it was decided on, so it never takes the Lease from somebody else.
pub const GIVE_BACK_WITHIN: Duration = Duration::from_secs(5);

/// How leadership stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseState {
    /// Someone else leads, or nobody does yet.
    Waiting,
    /// We lead.
    Held(Term),
    /// We hold the Lease and renew it, but start nothing: the process is ending, and waits for its calls in flight.
    Draining(Term),
    /// We led, and do not any more. This is final.
    Lost,
}

/// For how long the Lease is ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    /// Since when we lead.
    pub since: Instant,
    /// Until when a call may start, unless the Lease is renewed: the renew deadline.
    pub start_until: Instant,
    /// Until when no other process leads, unless the Lease is renewed: the lease duration.
    pub until: Instant,
    /// Whether the process that led before has not given the Lease back: what it sent last may still take effect.
    pub ran_out: bool,
}

impl LeaseState {
    /// The term, while the Lease is ours.
    fn term(&self) -> Option<Term> {
        match *self {
            Self::Held(term) | Self::Draining(term) => Some(term),
            Self::Waiting | Self::Lost => None,
        }
    }
}

/// Whether this process leads, to be read before each act. A clone shares the state.
#[derive(Clone, Debug)]
pub struct Leadership {
    state: watch::Receiver<LeaseState>,
    /// Keeps the channel of a leadership without election open.
    _permanent: Option<Arc<watch::Sender<LeaseState>>>,
}

impl Leadership {
    /// Leadership without election, for a process that is alone by construction.
    pub fn unopposed() -> Self {
        let now = Instant::now();
        // A century: far beyond any process, and far from overflow.
        let until = now + Duration::from_secs(100 * 365 * 24 * 3600);
        let (sender, state) =
            channel(LeaseState::Held(Term { since: now, start_until: until, until, ran_out: false }));
        Self { state, _permanent: Some(Arc::new(sender)) }
    }

    /// How leadership stands, as of now: a lease that ran out is not held, even if the elector has not noticed yet.
    pub fn state(&self) -> LeaseState {
        let state = *self.state.borrow();
        let has_run_out = state.term().is_some_and(|term| term.until <= Instant::now());
        if has_run_out { LeaseState::Lost } else { state }
    }

    /// Whether the Lease is ours, also while the process drains.
    pub fn is_held(&self) -> bool {
        self.held_since().is_some()
    }

    /// Since when we lead; `None` when we do not.
    pub fn held_since(&self) -> Option<Instant> {
        self.state().term().map(|term| term.since)
    }

    /// Since when we lead, if the process that led before has not given the Lease back.
    pub fn taken_over_since(&self) -> Option<Instant> {
        self.state().term().filter(|term| term.ran_out).map(|term| term.since)
    }

    /// Whether a call may start now: we lead, renewed the Lease within the renew deadline, and are not asked to stop.
    ///
    /// The length of the call does not matter, because the process goes on renewing and drains before it gives the Lease back.
    /// To be waited for by [`Elector::run_and_drain`], count a call as in flight *before* you ask, and uncount it if it may not
    /// start: then the drain either sees the call, or keeps it from starting.
    pub fn may_start(&self) -> bool {
        match *self.state.borrow() {
            LeaseState::Held(term) => Instant::now() < term.start_until,
            LeaseState::Waiting | LeaseState::Draining(_) | LeaseState::Lost => false,
        }
    }

    /// How long the Lease is ours for certain, even if no renewal succeeds from now on; zero when it is not ours. This bounds
    /// work that must end before another process can lead; other work asks [`Leadership::may_start`].
    pub fn remaining(&self) -> Duration {
        let term = self.state.borrow().term();
        term.map_or(Duration::ZERO, |term| term.until.saturating_duration_since(Instant::now()))
    }

    /// Waits until we lead. `Err` when that will never be.
    ///
    /// # Errors
    /// When leadership was lost, or the elector has ended.
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
        // An error says that the elector is gone, which is the same to us.
        let _ended = state.wait_for(|state| *state == LeaseState::Lost).await.is_err();
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "those who wait for a lease do not depend on each other's order"
)]
fn channel(state: LeaseState) -> (watch::Sender<LeaseState>, watch::Receiver<LeaseState>) {
    watch::channel(state)
}

/// From leading to draining, if we lead; otherwise nothing changes.
fn begin_draining(state: &watch::Sender<LeaseState>) -> bool {
    state.send_if_modified(|state| match *state {
        LeaseState::Held(term) => {
            *state = LeaseState::Draining(term);
            true
        }
        LeaseState::Waiting | LeaseState::Draining(_) | LeaseState::Lost => false,
    })
}

/// Leadership will not come (back) to this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("leadership was lost")]
pub struct LeadershipLost;

/// How an election ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ElectionEnd {
    /// We were asked to stop, and have given the Lease back if we had it.
    Released,
    /// No renewal succeeded in time, or someone else has the Lease.
    Lost {
        /// What happened.
        reason: String,
    },
}

/// Takes part in one election. Run it with [`Elector::run`]; read the result from [`Leadership`].
pub struct Elector {
    leases: Api<Lease>,
    options: LeaseOptions,
    clock: SharedClock,
    state: watch::Sender<LeaseState>,
    jitter: Jitter,
    /// The Lease as our last write left it; `None` when that is not certain.
    mine: Option<Lease>,
    /// The Lease as last read, and when it first was like this.
    seen: Option<(Lease, Instant)>,
    /// Whether another process held the Lease when we took it.
    ran_out: bool,
}

/// What one attempt came to.
enum Attempt {
    /// We have the Lease; the time before the write was sent.
    Ours(Instant),
    /// Someone else has it.
    Theirs(String),
    /// Nothing is certain.
    Failed(String),
}

impl Elector {
    /// An elector and the leadership it decides.
    pub fn new(client: Client, options: LeaseOptions, clock: SharedClock) -> (Self, Leadership) {
        let (sender, state) = channel(LeaseState::Waiting);
        let elector = Self {
            leases: Api::namespaced(client, &options.namespace),
            jitter: Jitter::new(options.seed),
            clock,
            state: sender,
            mine: None,
            seen: None,
            ran_out: false,
            options,
        };
        (elector, Leadership { state, _permanent: None })
    }

    /// Takes part until leadership is lost, or until `stop` completes; then the Lease is given back at once, so that the next
    /// process need not wait for it to run out. For a process without calls that outlive it.
    pub async fn run(self, stop: impl Future<Output = ()>) -> ElectionEnd {
        self.run_and_drain(stop, std::future::ready(()), Duration::ZERO).await
    }

    /// Takes part until leadership is lost, or until `stop` completes. Then, in this order:
    ///
    /// 1. [`Leadership::may_start`] turns false for good.
    /// 2. `in_flight` is polled for the first time; it completes when no call is in flight. Meanwhile the Lease is renewed.
    /// 3. After `at_most`, the bound of a call, the wait ends in any case: by then each call has had its effect, or never will.
    /// 4. The Lease is given back.
    ///
    /// A process that does not lead when it is asked to stop has nothing to wait for. If the Lease is lost during the drain, the
    /// drain ends too, with [`ElectionEnd::Lost`].
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
                        tracing::warn!(?at_most, "Calls in flight have not ended within their bound");
                        None
                    }
                    reason = &mut elect => Some(reason),
                },
                ended => ended,
            }
        };
        // Nothing of this process acts from now on: only then may another one start.
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

    /// Waits for the Lease, then keeps it. Returns why it could not be kept.
    async fn elect(&mut self) -> String {
        let mut renewed = self.acquire().await;
        let since = Instant::now();
        self.state.send_replace(LeaseState::Held(self.term(since, renewed)));
        tracing::info!(lease = %self.options.name, identity = %self.options.identity, "Leading");
        if self.ran_out {
            let lease = &self.options.name;
            tracing::info!(%lease, "The former leader has not given the Lease back: nothing is taken away for a minute");
        }
        loop {
            tokio::time::sleep(self.options.retry_period).await;
            match self.renew(renewed + self.options.renew_deadline).await {
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

    fn term(&self, since: Instant, renewed: Instant) -> Term {
        let LeaseOptions { lease_duration, renew_deadline, .. } = self.options;
        let until = renewed + lease_duration;
        Term { since, start_until: renewed + renew_deadline, until, ran_out: self.ran_out }
    }

    async fn acquire(&mut self) -> Instant {
        let lease = self.options.name.clone();
        loop {
            match self.attempt(self.options.renew_deadline).await {
                Attempt::Ours(at) => return at,
                Attempt::Theirs(holder) => tracing::debug!(%lease, %holder, "Waiting for the lease"),
                Attempt::Failed(reason) => tracing::warn!(%lease, %reason, "Cannot get the lease"),
            }
            let pause = self.jitter.stretch(self.options.retry_period, LOOK_SPREAD);
            tokio::time::sleep(pause).await;
        }
    }

    /// Tries until a renewal succeeds, or the deadline has passed.
    async fn renew(&mut self, deadline: Instant) -> Result<Instant, String> {
        let mut last = "the process was not running".to_owned();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(format!("not renewed within {:?}: {last}", self.options.renew_deadline));
            }
            match self.attempt(left).await {
                Attempt::Ours(at) => return Ok(at),
                Attempt::Theirs(holder) => return Err(format!("{holder} has the lease")),
                Attempt::Failed(reason) => last = reason,
            }
            tokio::time::sleep_until(deadline.min(Instant::now() + self.options.retry_period)).await;
        }
    }

    /// One attempt to get or keep the Lease, short enough for a second one within the renew deadline.
    async fn attempt(&mut self, at_most: Duration) -> Attempt {
        let bound = at_most.min(self.options.renew_deadline / 2);
        let attempt = timeout(bound, self.try_once()).await;
        attempt.unwrap_or_else(|_| Attempt::Failed(format!("no answer within {bound:?}")))
    }

    async fn try_once(&mut self) -> Attempt {
        // Taken, not borrowed: when this attempt breaks off, only a read can tell what became of it.
        if let Some(mine) = self.mine.take() {
            match self.write(mine).await {
                // The object was changed: by others, or by a renewal of ours whose answer was lost.
                Err(Refusal::Changed) => {}
                Err(Refusal::Other(reason)) => return Attempt::Failed(reason),
                Ok(sent) => return Attempt::Ours(sent),
            }
        }
        let written = match self.leases.get_opt(&self.options.name).await {
            Err(error) => return Attempt::Failed(error.to_string()),
            Ok(None) => self.create().await,
            Ok(Some(lease)) => match self.opponent(&lease) {
                Some(holder) => return Attempt::Theirs(holder),
                None => {
                    let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
                    let is_other = holder.is_some_and(|it| !it.is_empty() && it != self.options.identity);
                    self.ran_out |= is_other;
                    self.write(lease).await
                }
            },
        };
        match written {
            Ok(sent) => Attempt::Ours(sent),
            Err(Refusal::Changed) => Attempt::Failed("someone else was faster".to_owned()),
            Err(Refusal::Other(reason)) => Attempt::Failed(reason),
        }
    }

    /// Who has this Lease, if it is someone else whose time has not run out since we saw it change.
    fn opponent(&mut self, lease: &Lease) -> Option<String> {
        let now = Instant::now();
        let unchanged = self.seen.as_ref().filter(|(seen, _)| seen == lease);
        let since = unchanged.map_or(now, |(_, since)| *since);
        self.seen = Some((lease.clone(), since));

        let spec = lease.spec.as_ref()?;
        let holder = spec.holder_identity.as_ref()?;
        let has_run_out = since + self.duration_of(spec) <= now;
        let is_opponent = !holder.is_empty() && *holder != self.options.identity && !has_run_out;
        is_opponent.then(|| holder.clone())
    }

    /// How long the holder asked others to wait.
    fn duration_of(&self, spec: &LeaseSpec) -> Duration {
        let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        // A Lease that was given back says 1 s; less would be no lease at all.
        seconds.map_or(self.options.lease_duration, |seconds| Duration::from_secs(seconds.max(1)))
    }

    async fn create(&mut self) -> Result<Instant, Refusal> {
        let metadata = ObjectMeta {
            name: Some(self.options.name.clone()),
            namespace: Some(self.options.namespace.clone()),
            ..ObjectMeta::default()
        };
        let lease = Lease { metadata, spec: Some(self.next_spec(None)) };
        let sent = Instant::now();
        let result = self.leases.create(&PostParams::default(), &lease).await;
        self.settle(result, sent)
    }

    /// Writes our name into the Lease, provided that nobody changed it since it was read.
    async fn write(&mut self, mut lease: Lease) -> Result<Instant, Refusal> {
        lease.spec = Some(self.next_spec(lease.spec.as_ref()));
        let sent = Instant::now();
        let result = self.leases.replace(&self.options.name, &PostParams::default(), &lease).await;
        self.settle(result, sent)
    }

    fn settle(&mut self, result: Result<Lease, kube::Error>, sent: Instant) -> Result<Instant, Refusal> {
        match (WriteOutcome::of(&result), result) {
            (_, Ok(lease)) => {
                self.mine = Some(lease);
                Ok(sent)
            }
            (WriteOutcome::Stale | WriteOutcome::AlreadyExists | WriteOutcome::NotFound, Err(_)) => {
                Err(Refusal::Changed)
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

    /// Gives the Lease back, if it is ours. Failing to is no harm: it runs out.
    async fn release(&mut self) {
        let lease = &self.options.name;
        match timeout(GIVE_BACK_WITHIN, self.give_back()).await {
            Ok(Ok(())) => tracing::info!(%lease, "Lease given back"),
            Ok(Err(error)) => tracing::warn!(%lease, %error, "Lease not given back, it will run out"),
            Err(_) => {
                tracing::warn!(%lease, "Lease not given back within {GIVE_BACK_WITHIN:?}, it will run out");
            }
        }
    }

    /// Empties the holder, if it is still us. A renewal that was on its way when we were asked to stop may have changed the
    /// Lease meanwhile; then it is read again.
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
            let lease = Lease { spec: Some(spec), ..lease };
            match self.leases.replace(&self.options.name, &PostParams::default(), &lease).await {
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                result => return result.map(|_| ()),
            }
        }
    }
}

/// Why the Lease was not written.
enum Refusal {
    /// It is not as it was when we read it.
    Changed,
    /// Anything else; whether it was written may be unknown.
    Other(String),
}

impl fmt::Debug for Elector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Elector").field("options", &self.options).finish_non_exhaustive()
    }
}

/// A Lease counts in whole seconds; others must not wait less than we count on.
fn whole_seconds(duration: Duration) -> i32 {
    let seconds = duration.as_secs() + u64::from(0 < duration.subsec_nanos());
    i32::try_from(seconds).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests;
