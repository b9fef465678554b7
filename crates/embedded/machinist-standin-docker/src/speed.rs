//! How fast the engine is, so that a benchmark can compare a program with the limit of its engine.

use std::time::Duration;

use tokio::sync::Semaphore;

/// The duration of each kind of call, and how many calls the engine performs at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Speed {
    /// Number of calls at the same time, at least one. Further calls wait in the order of their
    /// arrival.
    pub at_once: usize,
    /// Creates and starts a container.
    pub create: Duration,
    /// Stops and removes a container.
    pub delete: Duration,
    /// Runs a command in a container.
    pub exec: Duration,
    /// Answers from the memory of the engine, for example a list.
    pub request: Duration,
}

impl Speed {
    /// Close to Docker Engine on a workstation, where four short commands in a container took 0.3 s
    /// and a restart 0.5 s. Docker has no limit of concurrent calls, but its disk and its kernel
    /// have: eight is an assumption.
    pub const WORKSTATION: Self = Self {
        at_once: 8,
        create: Duration::from_millis(400),
        delete: Duration::from_millis(300),
        exec: Duration::from_millis(75),
        request: Duration::from_millis(10),
    };
}

/// The kinds of calls that take different times.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Work {
    Create,
    Delete,
    Exec,
    Request,
}

/// Delays calls.
#[derive(Debug)]
pub(crate) struct Pace {
    speed: Speed,
    slots: Semaphore,
}

impl Pace {
    pub(crate) fn new(speed: Speed) -> Self {
        Self { speed, slots: Semaphore::new(speed.at_once.max(1)) }
    }

    /// Waits for a free slot, and then for the duration of the work.
    pub(crate) async fn perform(&self, work: Work) {
        // Nothing closes the semaphore.
        let _slot = self.slots.acquire().await;
        tokio::time::sleep(match work {
            Work::Create => self.speed.create,
            Work::Delete => self.speed.delete,
            Work::Exec => self.speed.exec,
            Work::Request => self.speed.request,
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn calls_wait_for_a_free_slot() {
        let speed = Speed { at_once: 2, ..Speed::WORKSTATION };
        let pace = Pace::new(speed);
        let began = Instant::now();
        tokio::join!(pace.perform(Work::Create), pace.perform(Work::Create), pace.perform(Work::Exec));
        assert_eq!(began.elapsed(), speed.create + speed.exec);
    }
}
