//! Time in which no process acted, or in which the deciding process saw nothing.
//!
//! A deadline says how long an object may stay in a state while a controller watches it. If no
//! controller watches, the object may leave that state and enter it again unseen. So a deadline
//! leaves out the time that was not seen, and nothing else. It is moved, never started again: a
//! process that restarts every hour still ends a drain of two hours.
//!
//! The runtime records the gaps and keeps them in an annotation of the Lease, so that the next
//! process knows them too.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::snapshot::plus;

/// A pause of the process, or a silence of a watch, counts as a gap if it is longer than this. API
/// servers send a bookmark about every minute.
pub const GAP_AFTER: Duration = Duration::from_secs(120);

/// If nothing is known about the time before a process acts, deadlines that passed earlier end this
/// long after the process began to act.
pub const GRACE_AFTER_UNKNOWN: Duration = Duration::from_secs(120);

/// Maximum number of kept gaps. With more, the oldest two become one gap of the same total length.
const MAX_GAPS: usize = 100;

/// The time that deadlines leave out.
///
/// ```
/// use std::time::Duration;
/// use jiff::Timestamp;
/// use machinist_core::Unseen;
///
/// let at = |minute: i64| Timestamp::from_second(minute * 60).expect("a valid time");
/// let hour = Duration::from_secs(3600);
/// let mut unseen = Unseen::default();
/// assert_eq!(unseen.deadline(at(0), hour), at(60));
///
/// // No process watched for ten minutes.
/// unseen.add(at(30), at(40));
/// assert_eq!(unseen.deadline(at(0), hour), at(70));
/// assert_eq!(unseen.deadline(at(35), hour), at(100), "only the gap after the start counts");
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unseen {
    /// Gaps in order, which neither overlap nor touch.
    gaps: Arc<Vec<Gap>>,
    /// Nothing is known about the time before this moment.
    known_from: Option<Timestamp>,
}

/// A period in which no process saw anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Gap {
    from: Timestamp,
    to: Timestamp,
}

impl Gap {
    fn length(self) -> SignedDuration {
        self.to.duration_since(self.from)
    }
}

impl Unseen {
    /// Nothing is known about the time before this moment.
    #[must_use]
    pub fn known_from(moment: Timestamp) -> Self {
        Self { gaps: Arc::default(), known_from: Some(moment) }
    }

    /// Returns when a state that began at `from` has been seen for this long.
    pub fn deadline(&self, from: Timestamp, timeout: Duration) -> Timestamp {
        let deadline = self.moved(from, timeout);
        match self.known_from {
            Some(known_from) if deadline < known_from => self.moved(known_from, GRACE_AFTER_UNKNOWN),
            _ => deadline,
        }
    }

    fn moved(&self, from: Timestamp, timeout: Duration) -> Timestamp {
        let mut deadline = plus(from, timeout);
        for gap in self.gaps.iter() {
            let begins = gap.from.max(from);
            if deadline <= begins {
                break;
            }
            let unseen = gap.to.duration_since(begins);
            if unseen.is_positive() {
                deadline = deadline.checked_add(unseen).unwrap_or(Timestamp::MAX);
            }
        }
        deadline
    }

    /// Adds a gap. A gap of no length is ignored, and overlapping gaps become one.
    pub fn add(&mut self, from: Timestamp, to: Timestamp) {
        if to <= from {
            return;
        }
        let mut added = Gap { from, to };
        let gaps = Arc::make_mut(&mut self.gaps);
        gaps.retain(|gap| {
            let touches = gap.from <= added.to && added.from <= gap.to;
            if touches {
                added = Gap { from: added.from.min(gap.from), to: added.to.max(gap.to) };
            }
            !touches
        });
        let place = gaps.partition_point(|gap| gap.from < added.from);
        gaps.insert(place, added);
        while MAX_GAPS < gaps.len() {
            // The total stays the same, so only deadlines that began in between are inexact.
            let oldest = gaps.remove(0).length();
            let next = &mut gaps[0];
            next.from = next.from.checked_sub(oldest).unwrap_or(Timestamp::MIN);
        }
    }

    /// Adds everything that `other` knows.
    pub fn add_all(&mut self, other: &Self) {
        self.known_from = self.known_from.max(other.known_from);
        other.gaps.iter().for_each(|gap| self.add(gap.from, gap.to));
    }

    /// Forgets what lies after `now`: the clock was ahead when that was recorded, and has been
    /// corrected.
    pub fn end_at(&mut self, now: Timestamp) {
        self.known_from = self.known_from.map(|known_from| known_from.min(now));
        if self.gaps.last().is_some_and(|gap| now < gap.to) {
            let gaps = Arc::make_mut(&mut self.gaps);
            gaps.retain(|gap| gap.from < now);
            if let Some(last) = gaps.last_mut() {
                last.to = last.to.min(now);
            }
        }
    }

    /// Forgets what no deadline of at most this length depends on: what ended so long ago, counted
    /// in seen time.
    pub fn forget_before(&mut self, now: Timestamp, longest: Duration) {
        let longest = SignedDuration::try_from(longest).unwrap_or(SignedDuration::MAX);
        let is_old = |moment: Timestamp| {
            let later = self.gaps.iter().filter(|gap| moment < gap.to);
            let unseen = later.fold(SignedDuration::ZERO, |total, gap| {
                total.saturating_add(gap.to.duration_since(gap.from.max(moment)))
            });
            longest <= now.duration_since(moment).saturating_sub(unseen)
        };
        let old = self.gaps.partition_point(|gap| is_old(gap.to));
        let is_known_long = self.known_from.is_some_and(is_old);
        if is_known_long {
            self.known_from = None;
        }
        if 0 < old {
            Arc::make_mut(&mut self.gaps).drain(..old);
        }
    }

    /// The total length of the known gaps.
    pub fn total(&self) -> Duration {
        let total = self.gaps.iter().fold(SignedDuration::ZERO, |sum, gap| sum.saturating_add(gap.length()));
        total.unsigned_abs()
    }

    /// Reads the text that [`fmt::Display`] writes. Parts that are not an interval are ignored: a
    /// gap that is lost only shortens a wait.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut unseen = Self::default();
        for part in text.split(',') {
            let Some((from, to)) = part.trim().split_once('/') else { continue };
            let Ok(to) = to.parse::<Timestamp>() else { continue };
            match from {
                OPEN => unseen.known_from = Some(to),
                from => {
                    if let Ok(from) = from.parse::<Timestamp>() {
                        unseen.add(from, to);
                    }
                }
            }
        }
        unseen
    }
}

/// The start of an interval with an unknown start, as in ISO 8601.
const OPEN: &str = "..";

impl fmt::Display for Unseen {
    /// Renders ISO 8601 intervals, separated by commas.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        if let Some(known_from) = self.known_from {
            write!(f, "{OPEN}/{known_from:.3}")?;
            separator = ",";
        }
        for Gap { from, to } in self.gaps.iter() {
            write!(f, "{separator}{from:.3}/{to:.3}")?;
            separator = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    fn gaps(all: &[(i64, i64)]) -> Unseen {
        let mut unseen = Unseen::default();
        all.iter().for_each(|&(from, to)| unseen.add(at(from), at(to)));
        unseen
    }

    #[test]
    fn a_deadline_moves_by_the_gaps_before_it() {
        let unseen = gaps(&[(10, 20), (30, 45), (500, 600)]);
        for (from, timeout, expected) in [
            (0, 5, 5),
            (0, 10, 10),
            (0, 11, 21),
            (0, 20, 30),
            (0, 21, 46),
            (15, 10, 30),
            (12, 11, 46),
            (50, 100, 150),
            (600, 10, 610),
        ] {
            assert_eq!(unseen.deadline(at(from), seconds(timeout)), at(expected), "{timeout} s from {from}");
        }
    }

    #[test]
    fn overlapping_gaps_become_one() {
        assert_eq!(gaps(&[(10, 20), (15, 30), (30, 40), (50, 50), (60, 55)]), gaps(&[(10, 40)]));
        assert_eq!(gaps(&[(50, 60), (10, 20)]), gaps(&[(10, 20), (50, 60)]));
    }

    #[test]
    fn without_records_a_passed_deadline_gets_two_minutes() {
        let mut unseen = Unseen::known_from(at(1000));
        assert_eq!(unseen.deadline(at(0), seconds(100)), at(1120));
        assert_eq!(unseen.deadline(at(0), seconds(1000)), at(1000), "it passes while the process acts");
        assert_eq!(unseen.deadline(at(990), seconds(600)), at(1590), "it is not started again");
        unseen.add(at(1060), at(1300));
        assert_eq!(unseen.deadline(at(0), seconds(100)), at(1360), "a later gap moves it");
    }

    #[test]
    fn a_drain_of_two_hours_ends_with_a_restart_every_hour() {
        let mut unseen = Unseen::default();
        let (mut now, deletion) = (at(0), at(0));
        // Each restart takes 30 s. Without a Lease, each process only knows when it began to act.
        for hour in 1.. {
            let restarted = at(hour * 3600 + 30);
            unseen.add(at(hour * 3600), restarted);
            unseen.forget_before(restarted, seconds(7200));
            if unseen.deadline(deletion, seconds(7200)) <= now {
                break;
            }
            assert!(hour < 4, "the drain never ends");
            now = at(hour * 3600 + 3600);
        }
        assert_eq!(unseen.deadline(deletion, seconds(7200)), at(7200 + 60));
        let alone = Unseen::known_from(at(3 * 3600));
        assert_eq!(alone.deadline(deletion, seconds(7200)), at(3 * 3600 + 120));
    }

    #[test]
    fn forgotten_gaps_matter_to_no_deadline() {
        let all = [(0, 100), (150, 1000), (1010, 1020), (1500, 4000)];
        let longest = 600;
        for now in (0..6000).step_by(7) {
            let past: Vec<_> = all.into_iter().filter(|(_, to)| *to <= now).collect();
            let whole = gaps(&past);
            let mut kept = whole.clone();
            kept.forget_before(at(now), seconds(longest));
            for from in (0..now).step_by(13) {
                for timeout in [1, 59, 300, longest] {
                    let is_due = |unseen: &Unseen| unseen.deadline(at(from), seconds(timeout)) <= at(now);
                    assert_eq!(is_due(&whole), is_due(&kept), "{timeout} s from {from} at {now}");
                }
            }
        }
        let mut old = Unseen::known_from(at(0));
        old.forget_before(at(599), seconds(600));
        assert_ne!(old, Unseen::default());
        old.forget_before(at(600), seconds(600));
        assert_eq!(old, Unseen::default());
    }

    #[test]
    fn nothing_unseen_lies_ahead_of_a_corrected_clock() {
        const DAY: i64 = 24 * 3600;
        let mut unseen = gaps(&[(-50, -40), (0, 30 * DAY), (31 * DAY, 32 * DAY)]);
        unseen.end_at(at(60));
        assert_eq!(unseen, gaps(&[(-50, -40), (0, 60)]));
        assert_eq!(unseen.deadline(at(0), seconds(600)), at(660));

        let mut unseen = Unseen::known_from(at(30 * DAY));
        unseen.end_at(at(60));
        assert_eq!(unseen.deadline(at(0), seconds(600)), at(600), "it passes while the process acts");
        assert_eq!(unseen.deadline(at(0), seconds(30)), at(180));

        let mut unseen = gaps(&[(10, 20), (30, 40)]);
        let before = unseen.clone();
        unseen.end_at(at(40));
        assert_eq!(unseen, before);
    }

    #[test]
    fn the_number_of_gaps_has_a_limit() {
        let mut unseen = Unseen::default();
        for restart in 0..1000 {
            unseen.add(at(restart * 10), at(restart * 10 + 3));
        }
        assert_eq!(unseen.gaps.len(), MAX_GAPS);
        assert_eq!(unseen.total(), seconds(3000));
        assert!(unseen.to_string().len() < 10_000);
    }

    #[test]
    fn the_text_of_the_annotation_is_read_again() {
        let mut unseen = Unseen::known_from(at(5));
        assert_eq!(Unseen::parse(&unseen.to_string()), unseen);
        unseen.add(at(10), at(20));
        unseen.add(at(30), at(45));
        assert_eq!(
            unseen.to_string(),
            "../2027-01-15T08:00:05.000Z,\
             2027-01-15T08:00:10.000Z/2027-01-15T08:00:20.000Z,\
             2027-01-15T08:00:30.000Z/2027-01-15T08:00:45.000Z"
        );
        assert_eq!(Unseen::parse(&unseen.to_string()), unseen);
        for nonsense in ["", "x", "/", "a/b,c", "2027-01-15T08:00:10Z"] {
            assert_eq!(Unseen::parse(nonsense), Unseen::default(), "{nonsense}");
        }
    }
}
