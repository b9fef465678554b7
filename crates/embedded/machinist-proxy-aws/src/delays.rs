//! New instances that reads do not show yet, and the clock of delays.
//!
//! A test moves the clock instead of waiting. The clock of signatures is another one: the clock of
//! the computer, as for every client.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// Longest delay, and largest step of the clock.
pub(crate) const MAX_SPAN: Duration = Duration::from_secs(24 * 3600);

/// How far a test may move the clock altogether.
const MAX_AHEAD: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// How long reads do not show a new instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Delay {
    /// In lists, which may have filters.
    pub(crate) in_lists: Duration,
    /// In reads that name the instance.
    pub(crate) by_id: Duration,
}

/// The clock, and the instances that are hidden.
#[derive(Debug, Default)]
pub(crate) struct Delays {
    /// The delay of instances that are created from now on.
    pub(crate) delay: Delay,
    /// How far the clock is ahead of real time.
    ahead: Duration,
    hidden: BTreeMap<String, Hidden>,
}

/// When reads show an instance.
#[derive(Debug)]
struct Hidden {
    in_lists_until: Instant,
    by_id_until: Instant,
}

impl Delays {
    /// The present time of the clock.
    pub(crate) fn now(&self) -> Instant {
        Instant::now() + self.ahead
    }

    /// Moves the clock. Returns whether it could.
    pub(crate) fn advance(&mut self, by: Duration) -> bool {
        let ahead = self.ahead.saturating_add(by);
        let is_possible = by <= MAX_SPAN && ahead <= MAX_AHEAD;
        if is_possible {
            self.ahead = ahead;
        }
        is_possible
    }

    /// Hides an instance that was created now.
    pub(crate) fn hide(&mut self, id: &str) {
        let now = self.now();
        self.hidden.retain(|_, hidden| now < hidden.in_lists_until.max(hidden.by_id_until));
        if self.delay != Delay::default() {
            let Delay { in_lists, by_id } = self.delay;
            let hidden = Hidden { in_lists_until: now + in_lists, by_id_until: now + by_id };
            self.hidden.insert(id.to_owned(), hidden);
        }
    }

    /// Shows all instances.
    pub(crate) fn show_all(&mut self) {
        self.hidden.clear();
    }

    /// Whether lists do not show an instance.
    pub(crate) fn is_hidden_in_lists(&self, id: &str) -> bool {
        let now = self.now();
        self.hidden.get(id).is_some_and(|hidden| now < hidden.in_lists_until)
    }

    /// Whether a read that names an instance does not show it.
    pub(crate) fn is_hidden_by_id(&self, id: &str) -> bool {
        let now = self.now();
        self.hidden.get(id).is_some_and(|hidden| now < hidden.by_id_until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[tokio::test(start_paused = true)]
    async fn an_instance_appears_when_its_delay_ends() {
        let mut delays = Delays::default();
        delays.hide("i-0");
        delays.delay = Delay { in_lists: seconds(10), by_id: seconds(3) };
        delays.hide("i-1");
        let shown = |delays: &Delays, id: &str| (!delays.is_hidden_in_lists(id), !delays.is_hidden_by_id(id));
        assert_eq!(shown(&delays, "i-0"), (true, true));
        assert_eq!(shown(&delays, "i-1"), (false, false));
        tokio::time::advance(seconds(3)).await;
        assert_eq!(shown(&delays, "i-1"), (false, true));
        assert!(delays.advance(seconds(6)));
        assert_eq!(shown(&delays, "i-1"), (false, true));
        assert!(delays.advance(seconds(1)));
        assert_eq!(shown(&delays, "i-1"), (true, true));
        delays.hide("i-2");
        assert_eq!(delays.hidden.len(), 1, "what is shown again is forgotten");
    }

    #[test]
    fn the_clock_cannot_be_moved_too_far() {
        let mut delays = Delays::default();
        assert!(!delays.advance(MAX_SPAN + seconds(1)));
        delays.ahead = MAX_AHEAD;
        assert!(!delays.advance(seconds(1)) && delays.advance(Duration::ZERO));
    }
}
