//! The time in which this process or its predecessors saw nothing, which deadlines leave out.
//!
//! | gap | how it is noticed |
//! |---|---|
//! | no process acted | the last renewal in the Lease, up to the time at which this process began |
//! | this process was suspended | the clocks jumped between two looks |
//! | a watch was silent | its store was not fresh when the watch delivered again |
//!
//! A gap of the last two kinds counts if it is longer than two minutes. The leader writes all gaps
//! into the Lease, in a renewal that is written anyway, together with a silence that still lasts:
//! if this process dies, its successor counts it too.
//!
//! A clock that is set ahead looks like a suspension. When it is corrected, what lies ahead of the
//! present time is forgotten.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use machinist_core::{GAP_AFTER, Unseen};
use machinist_kube::Moment;
use machinist_kube::lease::Inherited;
use tokio::time::Instant;

use crate::contract::Contract;
use crate::feed::Feed;
use crate::runtime::Runtime;

/// The time between two looks at the clocks.
const LOOK_EVERY: Duration = Duration::from_secs(10);

impl<C: Contract> Runtime<C> {
    /// The time that deadlines leave out. A silence that still lasts is not part of it: a deadline
    /// that is due then waits for fresh facts.
    ///
    /// A runtime without workers knows of none: it does not act.
    pub fn unseen(&self) -> Unseen {
        self.begin_to_act();
        self.gaps.lock().unseen.clone()
    }

    /// Records the gap before this process began to act.
    fn begin_to_act(&self) {
        let mut state = self.gaps.lock();
        let may_begin = state.acts && !state.has_begun;
        let Some(started) = self.started().filter(|_| may_begin) else { return };
        state.has_begun = true;
        let before = self.before(self.leading_since().map_or(started, |leading| leading.max(started)));
        state.unseen.add_all(&before);
    }

    /// The unseen time up to a moment before which this process did not act.
    fn before(&self, acting_since: Timestamp) -> Unseen {
        let inherited = self.leadership.as_ref().and_then(|leadership| leadership.inherited());
        unseen_before(inherited.unwrap_or_default(), acting_since, self.now())
    }

    /// Notices that this process was suspended: no watch is believed until it delivers again.
    /// Notices too that the clock was set back.
    pub(crate) fn notice_suspension(&self) {
        let now = Moment::now(Some(&self.options.clock));
        let gap = {
            // Under the world's lock, so that no other worker observes between the two steps.
            let mut world = self.world.lock();
            let mut state = self.gaps.lock();
            let last = state.looked.replace(now).filter(|last| GAP_AFTER < now.since(last));
            let gap = last.and_then(|last| last.wall.zip(now.wall));
            if let Some((from, to)) = gap {
                state.unseen.add(from, to);
                self.feeds.iter().for_each(|feed| feed.doubt(&mut world.seen));
            }
            if let Some(now) = now.wall {
                state.unseen.end_at(now);
            }
            gap
        };
        if let Some((from, to)) = gap {
            tracing::warn!(%from, %to, "This process was suspended, or its clock has stepped; deadlines leave out that time");
        }
    }

    /// Looks at the clocks and keeps the annotation of the Lease up to date, in an endless loop.
    pub(crate) async fn notice_gaps(self: Arc<Self>) {
        loop {
            self.notice_suspension();
            self.begin_to_act();
            self.note_unseen();
            self.tell_silences();
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Sets the annotation of the Lease.
    fn note_unseen(&self) {
        if let Some(leadership) = self.leadership.as_ref().filter(|leadership| leadership.is_held()) {
            leadership.write_unseen(self.unseen_for_successor().to_string());
        }
    }

    /// The gaps that the next process must know if this one ends now.
    ///
    /// Before the stores of the control cluster were listed, nothing is forgotten: the timeouts of
    /// the objects are unknown. Nor may the annotation stay as it is, because a renewal replaces
    /// the time from which the gap before this process is known.
    fn unseen_for_successor(&self) -> Unseen {
        let now = self.now();
        let (silent_since, longest) = {
            let world = self.world.lock();
            let is_awaited = |feed: &dyn Feed<C>| feed.is_deferred() && !feed.is_synced(&world.seen);
            let watched = self.feeds.iter().filter(|feed| feed.has_deadlines() || is_awaited(&***feed));
            let heard = watched.filter(|feed| !feed.is_fresh(&world.seen));
            let silent_since = heard
                .filter_map(|feed| self.silent_from(feed.heard_at(&world.seen), feed.is_deferred()))
                .min();
            let is_listed = self.control_listed_at().is_some();
            let longest = is_listed.then(|| C::longest_timeout(&world.seen, &self.tools));
            (silent_since.map(|heard| self.past(heard)), longest.unwrap_or(Duration::MAX))
        };
        let mut state = self.gaps.lock();
        state.unseen.forget_before(now, longest);
        let mut unseen = state.unseen.clone();
        if !state.has_begun {
            unseen.add_all(&self.before(now));
        }
        if let Some(since) = silent_since {
            unseen.add(since, now);
        }
        unseen.end_at(now);
        unseen.forget_before(now, longest);
        unseen
    }

    /// Since when a watch that is not fresh was silent: a deferred kind that was never listed is
    /// silent since its watch began.
    pub(crate) fn silent_from(&self, heard: Option<Instant>, is_deferred: bool) -> Option<Instant> {
        heard.or_else(|| self.listed_first.get().copied().filter(|_| is_deferred))
    }

    /// Converts an earlier time of the monotonic clock to wall-clock time.
    pub(crate) fn past(&self, at: Instant) -> Timestamp {
        self.now().checked_sub(at.elapsed()).unwrap_or(Timestamp::MIN)
    }
}

/// The unseen time before a process acts, from what the previous leader left.
fn unseen_before(inherited: Inherited, acting_since: Timestamp, now: Timestamp) -> Unseen {
    let Inherited { renewed, unseen } = inherited;
    let mut before = match renewed {
        None => Unseen::known_from(acting_since),
        Some(renewed) => {
            let mut before = unseen.as_deref().map(Unseen::parse).unwrap_or_default();
            before.add(renewed, acting_since);
            before
        }
    };
    before.end_at(now);
    before
}

#[cfg(test)]
mod tests;
