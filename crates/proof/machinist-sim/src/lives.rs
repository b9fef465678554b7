//! The lives of the one process of a world: it is started, killed at a call, and started again with
//! no state except that of the API and the cloud.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use machinist_kube::Clock;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::actor::Process;
use crate::faults::crash::{Life, Victims};
use crate::faults::{Fault, Gate};
use crate::lab::{Lab, RunClock};

/// Time between death and restart. It is as short as a restart can be, because a longer gap would
/// hide errors of a quick successor.
const DEAD_FOR: Duration = Duration::from_millis(500);
/// Interval in which each object is reconciled at least once.
pub const RESYNC: Duration = Duration::from_secs(600);

/// The lives of a process. `R` runs until it is dropped.
pub struct Lives<R> {
    process: Process,
    lab: Arc<Lab>,
    running: Mutex<Option<R>>,
    gate: Mutex<Gate>,
    begun: Mutex<u32>,
}

impl<R> Lives<R> {
    /// A process that was never started.
    pub fn new(process: Process, lab: Arc<Lab>) -> Self {
        Self { process, lab, running: Mutex::default(), gate: Mutex::default(), begun: Mutex::default() }
    }

    /// Begins a new life. `begin` starts the process, with its tasks behind the gate.
    pub fn start(&self, begin: impl FnOnce(&Arc<Life>, &Gate) -> R) {
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
        *lock(&self.gate) = gate.clone();
        let running = begin(&life, &gate);
        *lock(&self.running) = Some(running);
    }

    /// Runs for ever: drops the killed process, and begins its next life.
    pub async fn tend(
        &self,
        mut deaths: mpsc::UnboundedReceiver<Victims>,
        begin: impl Fn(&Arc<Life>, &Gate) -> R,
    ) {
        while let Some(victims) = deaths.recv().await {
            if !victims.include(self.process) {
                continue;
            }
            let buried = lock(&self.running).take();
            drop(buried);
            self.lab.history.note(format!("the {} is dead", self.process));
            tokio::time::sleep(DEAD_FOR).await;
            while let Some(until) = self.lab.plan.down(self.process) {
                tokio::time::sleep_until(until).await;
            }
            self.start(&begin);
        }
    }

    /// Stops the process in the middle of its work until then.
    pub async fn suspend_until(&self, until: Instant) {
        lock(&self.gate).close();
        tokio::time::sleep_until(until).await;
        lock(&self.gate).open();
    }

    /// Kills the process, which is not started again before that moment.
    pub async fn down_until(&self, until: Instant) {
        self.lab.points.strike(Victims::from(self.process));
        tokio::time::sleep_until(until).await;
    }

    /// Looks at the process while it runs.
    pub fn look<T>(&self, look: impl FnOnce(&R) -> T) -> Option<T> {
        lock(&self.running).as_ref().map(look)
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
    pub async fn step(self: Arc<Self>, process: Process, lab: Arc<Lab>) {
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
