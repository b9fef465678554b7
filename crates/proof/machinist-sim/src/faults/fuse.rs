//! A fuse against livelock. Under paused time the clock moves only when every task waits, so a loop
//! that never waits would run for ever. After too many events in one instant the fuse blows: it
//! stops the loop, and the run has failed.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

/// More events than any burst of a scenario, and less than a second of computing.
const EVENTS_PER_INSTANT: u64 = 20_000;

/// Counts events in one instant.
#[derive(Debug)]
pub struct Fuse(Mutex<Count>);

#[derive(Debug)]
struct Count {
    instant: Instant,
    events: u64,
    blown: Option<String>,
}

impl Default for Fuse {
    fn default() -> Self {
        Self(Mutex::new(Count { instant: Instant::now(), events: 0, blown: None }))
    }
}

impl Fuse {
    /// Counts one event. Returns false if there were too many: the caller must then stop.
    pub fn holds(&self, what: &str) -> bool {
        let mut count = self.lock();
        let now = Instant::now();
        if count.instant != now {
            count.instant = now;
            count.events = 0;
        }
        count.events += 1;
        if count.blown.is_none() && EVENTS_PER_INSTANT < count.events {
            count.blown =
                Some(format!("livelock: {EVENTS_PER_INSTANT} events in one instant, the last {what}"));
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
