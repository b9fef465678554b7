//! A fuse against livelock. Under paused time the clock moves only when every task waits, so a loop
//! that never waits would run forever, and a loop that waits for milliseconds would run for hours.
//! After too many events in one minute of simulated time, or too many polls of tasks in one
//! instant, the fuse blows: it stops the loop, and the run has failed.

use std::fmt::Arguments;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// More events than any burst of a scenario, and about a second of computing.
const EVENTS: u64 = 20_000;
/// The simulated time in which these events count.
const WINDOW: Duration = Duration::from_secs(60);
/// More polls of the tasks of a process than those events need. A loop may decide without events.
const POLLS_PER_INSTANT: u64 = 200_000;

/// Counts the events of one minute, and the polls of one instant.
#[derive(Debug)]
pub struct Fuse(Mutex<Count>);

#[derive(Debug)]
struct Count {
    began: Instant,
    events: u64,
    instant: Instant,
    polls: u64,
    blown: Option<String>,
}

impl Default for Fuse {
    fn default() -> Self {
        let now = Instant::now();
        Self(Mutex::new(Count { began: now, events: 0, instant: now, polls: 0, blown: None }))
    }
}

impl Fuse {
    /// Counts one event. Returns false if there were too many: the caller must then stop.
    pub fn holds(&self, what: Arguments<'_>) -> bool {
        let mut count = self.lock();
        let now = Instant::now();
        if WINDOW <= now.duration_since(count.began) {
            count.began = now;
            count.events = 0;
        }
        count.events += 1;
        if count.blown.is_none() && EVENTS < count.events {
            count.blown = Some(format!("livelock: {EVENTS} events within {WINDOW:?}, the last {what}"));
        }
        count.blown.is_none()
    }

    /// Counts one poll of a task. Returns false if there were too many: the caller must then stop.
    pub fn holds_poll(&self) -> bool {
        let mut count = self.lock();
        let now = Instant::now();
        if count.instant != now {
            count.instant = now;
            count.polls = 0;
        }
        count.polls += 1;
        if count.blown.is_none() && POLLS_PER_INSTANT < count.polls {
            count.blown = Some(format!("livelock: {POLLS_PER_INSTANT} polls of tasks in one instant"));
        }
        count.blown.is_none()
    }

    /// The error, if the fuse has blown.
    pub fn blown(&self) -> Option<String> {
        self.lock().blown.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Count> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_waits_for_milliseconds_blows_the_fuse() {
        let fuse = Fuse::default();
        for _ in 0..EVENTS {
            assert!(fuse.holds(format_args!("a request")));
            tokio::time::advance(Duration::from_millis(2)).await;
        }
        assert!(!fuse.holds(format_args!("another request")));
        assert!(fuse.blown().is_some_and(|text| text.ends_with("the last another request")));
    }

    #[tokio::test(start_paused = true)]
    async fn many_events_of_a_long_run_do_not_blow_the_fuse() {
        let fuse = Fuse::default();
        for _ in 0..EVENTS * 2 {
            assert!(fuse.holds(format_args!("a request")));
            tokio::time::advance(Duration::from_millis(4)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_without_events_blows_the_fuse() {
        let fuse = Fuse::default();
        let polls = |count: u64| (0..count).all(|_| fuse.holds_poll());
        assert!(polls(POLLS_PER_INSTANT));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(polls(POLLS_PER_INSTANT), "the time has moved");
        assert!(!polls(1));
        assert!(fuse.blown().is_some_and(|error| error.contains("livelock")));
    }
}
