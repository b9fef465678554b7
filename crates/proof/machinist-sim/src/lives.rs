//! The lives of the one process of a world: it is started, killed at a call, and started again with
//! no state except the state in the API and the cloud. During some long faults it has a second
//! replica, and a Lease says which one acts.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use jiff::{SignedDuration, Timestamp};
use machinist_apiserver::Server;
use machinist_kube::lease::{ElectionEnd, Elector, Leadership, LeaseOptions};
use machinist_kube::{Clock, SharedClock};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::actor::TestedProcess;
use crate::faults::crash::{Life, Victims};
use crate::faults::{Fault, Gate, LongFault};
use crate::lab::{Lab, RunClock};
use crate::seed::Seed;
use crate::sight::{LEASES, NAMESPACE, SeenObject};

/// Time between death and restart. It is as short as a restart can be, because a longer gap would
/// hide errors of a quick successor.
const DEAD_FOR: Duration = Duration::from_millis(500);
/// Interval in which each object is reconciled at least once.
pub const RESYNC: Duration = Duration::from_secs(600);

/// The replicas of a process. Without an election there is only the first one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Replica {
    /// The replica that always exists.
    First,
    /// A replica that takes over when the first one no longer holds its Lease.
    Second,
}

/// The lives of a process. `R` runs until it is dropped.
pub struct Lives<R> {
    process: TestedProcess,
    lab: Arc<Lab>,
    /// The server with the Lease, if the process takes part in an election.
    election: Option<Server>,
    running: Mutex<BTreeMap<Replica, Live<R>>>,
    begun: Mutex<u32>,
    held: Mutex<Option<Instant>>,
    standby: Mutex<Standby>,
}

/// One life of a replica.
struct Live<R> {
    life: Arc<Life>,
    gate: Gate,
    // Dropped first, so that the process ends before its election.
    running: R,
    _election: Option<JoinSet<()>>,
}

/// Whether a second replica that dies is started again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Standby {
    #[default]
    Unwanted,
    Wanted,
}

impl<R> Lives<R> {
    /// A process that was never started. It takes part in an election if `election` is the server
    /// with its Lease.
    pub fn new(process: TestedProcess, lab: Arc<Lab>, election: Option<Server>) -> Self {
        let (running, begun, held, standby) = Default::default();
        Self { process, lab, election, running, begun, held, standby }
    }

    /// Begins a new life. `begin` starts the process, with its tasks behind the gate.
    pub fn start(&self, replica: Replica, begin: impl FnOnce(&Arc<Life>, &Gate) -> Begun<R>) {
        let number = {
            let mut begun = lock(&self.begun);
            *begun += 1;
            *begun - 1
        };
        let life = Arc::new(Life::new(self.process, number));
        self.lab.points.born(life.clone());
        if number != 0 {
            self.lab.history.note(format!("the {} starts again", self.process));
        }
        let gate = Gate::with_fuse(self.lab.fuse.clone());
        let Begun { running, election } = begin(&life, &gate);
        lock(&self.running).insert(replica, Live { life, gate, running, _election: election });
    }

    /// Runs forever: drops the killed replicas, and begins their next lives.
    pub async fn tend(
        &self,
        mut deaths: mpsc::UnboundedReceiver<Victims>,
        begin: impl Fn(&Arc<Life>, &Gate) -> Begun<R>,
    ) {
        let mut restarts = FuturesUnordered::new();
        loop {
            let victims = tokio::select! {
                biased;
                Some(()) = restarts.next() => continue,
                victims = deaths.recv() => victims,
            };
            let Some(victims) = victims else { return };
            if !victims.include(self.process) {
                continue;
            }
            let dead = |(of, live): (&Replica, &Live<R>)| (!live.life.is_alive()).then_some(*of);
            let struck: Vec<Replica> = lock(&self.running).iter().filter_map(dead).collect();
            for replica in struck {
                let buried = lock(&self.running).remove(&replica);
                drop(buried);
                self.lab.history.note(format!("the {} is dead", self.process));
                restarts.push(self.restart(replica, &begin));
            }
        }
    }

    async fn restart(&self, replica: Replica, begin: impl Fn(&Arc<Life>, &Gate) -> Begun<R>) {
        tokio::time::sleep(DEAD_FOR).await;
        while let Some(until) = self.down(replica) {
            tokio::time::sleep_until(until).await;
        }
        if replica == Replica::First || *lock(&self.standby) == Standby::Wanted {
            self.start(replica, begin);
        }
    }

    /// The end of the time in which a replica must not run.
    fn down(&self, replica: Replica) -> Option<Instant> {
        let down = match replica {
            Replica::First => self.lab.plan.down(self.process),
            Replica::Second => None,
        };
        down.max(lock(&self.held).filter(|until| Instant::now() < *until))
    }

    /// Stops the first replica in the middle of its work until then.
    pub async fn suspend_until(&self, until: Instant) {
        self.suspend(Replica::First);
        tokio::time::sleep_until(until).await;
        self.resume(Replica::First);
    }

    fn suspend(&self, replica: Replica) {
        if let Some(live) = lock(&self.running).get(&replica) {
            live.gate.close();
        }
    }

    fn resume(&self, replica: Replica) {
        if let Some(live) = lock(&self.running).get(&replica) {
            live.gate.open();
        }
    }

    /// Kills the first replica, which is not started again before that moment.
    pub async fn down_until(&self, until: Instant) {
        self.kill(Replica::First);
        tokio::time::sleep_until(until).await;
    }

    /// Kills a replica. It is started again soon, unless a fault keeps it down.
    pub fn kill(&self, replica: Replica) {
        let life = lock(&self.running).get(&replica).map(|live| live.life.clone());
        if let Some(life) = life {
            self.lab.points.strike_life(&life);
        }
    }

    /// Kills all replicas, and starts none before that moment.
    pub fn hold_until(&self, until: Instant) {
        *lock(&self.held) = Some(until);
        self.lab.points.strike(Victims::from(self.process));
    }

    /// Kills the first replica again and again.
    pub async fn restart_until(&self, seed: Seed, fault: LongFault, until: Instant) {
        const RUNS: Range<Duration> = Duration::from_secs(12)..Duration::from_secs(60);
        let mut stream = seed.stream(&format!("restarts/{}", fault.pick));
        loop {
            self.kill(Replica::First);
            if !stream.pause(RUNS, until).await {
                return;
            }
        }
    }

    /// Runs a second replica, and suspends or kills leaders.
    pub async fn replicate_until(
        &self,
        seed: Seed,
        fault: LongFault,
        until: Instant,
        begin: impl FnOnce(&Arc<Life>, &Gate) -> Begun<R>,
    ) {
        const PAUSE: Range<Duration> = Duration::from_secs(10)..Duration::from_secs(150);
        // Some end before another replica may take the Lease, most end after it.
        const SUSPENDED: Range<Duration> = Duration::from_secs(10)..Duration::from_secs(180);
        let mut stream = seed.stream(&format!("second replica/{}", fault.pick));
        *lock(&self.standby) = Standby::Wanted;
        self.start(Replica::Second, begin);
        while stream.pause(PAUSE, until).await {
            let (is_killed, suspended) = (stream.happens(500), stream.within(SUSPENDED));
            let Some(leader) = self.leader() else { continue };
            let process = self.process;
            if is_killed {
                self.lab.history.note(format!("the {leader:?} replica of the {process} is killed"));
                self.kill(leader);
            } else {
                self.lab.history.note(format!("the {leader:?} replica of the {process} is suspended"));
                self.suspend(leader);
                tokio::time::sleep_until(until.min(Instant::now() + suspended)).await;
                self.resume(leader);
                self.lab.history.note(format!("the {leader:?} replica of the {process} continues"));
            }
        }
        *lock(&self.standby) = Standby::Unwanted;
        self.kill(Replica::Second);
    }

    /// The replica that holds the Lease, as the Lease on the server says.
    fn leader(&self) -> Option<Replica> {
        let leases = self.election.as_ref()?.snapshot(LEASES);
        let lease = leases.iter().map(|lease| SeenObject(lease.value()));
        let holder = lease
            .filter(|lease| lease.name() == self.process.user_agent())
            .map(|lease| lease.text("/spec/holderIdentity"))
            .next()?;
        let running = lock(&self.running);
        let mut replicas = running.iter();
        replicas.find(|(_, live)| live.life.identity() == holder).map(|(replica, _)| *replica)
    }

    /// Looks at the replica that acts.
    pub fn look<T>(&self, look: impl FnOnce(&R) -> T) -> Option<T> {
        let replica = match self.election {
            None => Replica::First,
            Some(_) => self.leader()?,
        };
        lock(&self.running).get(&replica).map(|live| look(&live.running))
    }
}

/// A life that has begun.
pub struct Begun<R> {
    /// The process.
    pub running: R,
    /// The tasks that take part in an election for the process.
    pub election: Option<JoinSet<()>>,
}

/// Starts the election of a life. The process dies when it loses its Lease.
pub fn elect(
    lab: &Arc<Lab>,
    seed: Seed,
    life: &Arc<Life>,
    gate: &Gate,
    client: kube::Client,
    terms: Terms,
) -> (Leadership, JoinSet<()>) {
    let agent = life.process.user_agent();
    let options = LeaseOptions {
        lease_duration: terms.lasts,
        renew_deadline: terms.renewed_within,
        retry_period: terms.renewed_every,
        seed: seed.stream(&format!("election/{agent}/{}", life.number)).bits(),
        ..LeaseOptions::new(NAMESPACE, agent, life.identity())
    };
    let (elector, leadership) = Elector::new(client, options, terms.clock);
    let (lab, life) = (lab.clone(), life.clone());
    let election = async move {
        if let ElectionEnd::Lost { reason } = elector.run(std::future::pending()).await {
            lab.history.note(format!("the {} ends: {reason}", life.process));
            lab.points.strike_life(&life);
        }
    };
    let mut tasks = JoinSet::new();
    tasks.spawn(gate.around(election));
    (leadership, tasks)
}

/// The times of a Lease, and the clock of its holder.
pub struct Terms {
    /// Another process takes a Lease that was not renewed for this time.
    pub lasts: Duration,
    /// The holder ends if it could not renew within this time.
    pub renewed_within: Duration,
    /// Time between two renewals.
    pub renewed_every: Duration,
    /// The wall clock of the holder.
    pub clock: SharedClock,
}

impl Terms {
    /// Long times. Renewals of hours take most of the time of a run, so they are rare.
    pub fn long(clock: SharedClock) -> Self {
        let [lasts, renewed_within, renewed_every] = [60, 40, 10].map(Duration::from_secs);
        Self { lasts, renewed_within, renewed_every, clock }
    }

    /// Times that are a little longer than the usual ones.
    pub fn short(clock: SharedClock) -> Self {
        let [lasts, renewed_within, renewed_every] = [20, 14, 4].map(Duration::from_secs);
        Self { lasts, renewed_within, renewed_every, clock }
    }
}

/// The wall clock of the host of the process. It may step.
pub struct HostClock {
    clock: RunClock,
    /// Each step, with its time. The last one is in force.
    steps: Mutex<Vec<(Timestamp, SignedDuration)>>,
}

impl HostClock {
    /// A clock without a step.
    pub fn new(clock: RunClock) -> Self {
        Self { clock, steps: Mutex::default() }
    }

    fn step_to(&self, step: SignedDuration) {
        lock(&self.steps).push((self.clock.time(), step));
    }

    /// How far the clock was ahead at most since that time.
    pub fn most_ahead_since(&self, since: Timestamp) -> SignedDuration {
        let steps = lock(&self.steps);
        let before = steps.partition_point(|(at, _)| *at <= since);
        let in_force = steps[before.saturating_sub(1)..].iter().map(|(_, step)| *step);
        in_force.fold(SignedDuration::ZERO, SignedDuration::max)
    }

    /// P13: steps the clock from time to time during the chaos, and back.
    pub async fn step(self: Arc<Self>, process: TestedProcess, lab: Arc<Lab>) {
        const LOOK_EVERY: Duration = Duration::from_secs(1);
        const LONGEST: Duration = Duration::from_secs(25);
        const LARGEST: Duration = Duration::from_secs(240);
        if !lab.plan.profile().rates.contains_key(&Fault::P13) {
            return;
        }
        let place = process.to_string();
        while !lab.plan.is_over() {
            tokio::time::sleep(LOOK_EVERY).await;
            if lab.plan.strikes(Fault::P13, &place) {
                // Back by at most two minutes, or forward.
                let drawn = lab.plan.span(Fault::P13, &place, Duration::ZERO..LARGEST).as_secs();
                let seconds = i64::try_from(drawn).unwrap_or(0) - 120;
                lab.history.note(format!("fault P13: the clock of the {process} steps by {seconds} s"));
                self.step_to(SignedDuration::from_secs(seconds));
                tokio::time::sleep(lab.plan.span(Fault::P13, &place, LOOK_EVERY..LONGEST)).await;
                lab.history.note(format!("the clock of the {process} is right again"));
                self.step_to(SignedDuration::ZERO);
            }
        }
    }
}

impl Clock for HostClock {
    fn now(&self) -> Timestamp {
        let step = lock(&self.steps).last().map_or(SignedDuration::ZERO, |(_, step)| *step);
        self.clock.time().saturating_add(step).unwrap_or(Timestamp::MAX)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_clock_was_ahead_by_its_largest_step() {
        let clock = RunClock::start();
        let host = HostClock::new(clock);
        let (second, start) = (Duration::from_secs(1), clock.time());
        let ahead = |seconds| SignedDuration::from_secs(seconds);
        assert_eq!(host.most_ahead_since(start), ahead(0));
        tokio::time::advance(second).await;
        host.step_to(ahead(50));
        tokio::time::advance(second).await;
        let stepped = clock.time();
        host.step_to(ahead(-30));
        assert_eq!(host.now(), clock.time() - ahead(30));
        assert_eq!(host.most_ahead_since(start), ahead(50));
        tokio::time::advance(second).await;
        assert_eq!(host.most_ahead_since(stepped), ahead(0), "a clock that is behind is not ahead");
    }
}
