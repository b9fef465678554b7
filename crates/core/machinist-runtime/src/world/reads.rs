//! The reads that end the silence of a watch, by kind: which keys wait for them, and when the next
//! one may begin.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::key::QueueKey;

/// The longest time that a read may take.
pub(crate) const ANSWERED_WITHIN: Duration = Duration::from_secs(20);
/// The time in which the end of a read is recorded.
const ENDS_WITHIN: Duration = Duration::from_secs(1);
/// The pause after the first read without an answer.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
/// The longest pause between two reads.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// The reads of a process, by kind.
#[derive(Debug)]
pub(crate) struct FreshReads<K>(BTreeMap<&'static str, Reading<K>>);

#[derive(Debug)]
struct Reading<K> {
    /// The keys that wait for fresh facts.
    waiting: BTreeSet<K>,
    /// When the read in flight began.
    began: Option<Instant>,
    failures: u32,
    /// No read begins earlier.
    next: Option<Instant>,
}

impl<K> Default for FreshReads<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K> Default for Reading<K> {
    fn default() -> Self {
        Self { waiting: BTreeSet::new(), began: None, failures: 0, next: None }
    }
}

impl<K: QueueKey> FreshReads<K> {
    /// Lets a key wait for a kind. Returns whether a read of the kind begins.
    pub(crate) fn begin(&mut self, resource: &'static str, key: K) -> bool {
        let may_begin = matches!(self.state(resource), ReadState::Possible);
        let reading = self.0.entry(resource).or_default();
        reading.waiting.insert(key);
        if may_begin {
            reading.began = Some(Instant::now());
        }
        may_begin
    }

    /// Ends the read in flight without a fresh answer, and returns the keys that look again.
    pub(crate) fn fail(&mut self, resource: &'static str) -> BTreeSet<K> {
        let reading = self.0.entry(resource).or_default();
        let pause = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(reading.failures)).min(MAX_PAUSE);
        reading.failures = reading.failures.saturating_add(1);
        reading.began = None;
        reading.next = Some(Instant::now() + pause);
        reading.waiting.clone()
    }

    /// The kind is fresh again: returns the keys that waited for it.
    pub(crate) fn heard(&mut self, resource: &'static str) -> BTreeSet<K> {
        self.0.remove(resource).map(|reading| reading.waiting).unwrap_or_default()
    }

    /// The API server answers again: the next read may begin at once. Returns the waiting keys.
    pub(crate) fn answered(&mut self, resource: &'static str) -> BTreeSet<K> {
        let Some(reading) = self.0.get_mut(resource) else { return BTreeSet::new() };
        reading.next = None;
        reading.waiting.clone()
    }

    pub(crate) fn state(&self, resource: &'static str) -> ReadState {
        let Some(reading) = self.0.get(resource) else { return ReadState::Possible };
        let is_ahead = |at: &Instant| Instant::now() < *at;
        // A read that has not ended by then never will: its task panicked.
        let ends = reading.began.map(|began| began + ANSWERED_WITHIN + ENDS_WITHIN);
        match (ends.filter(is_ahead), reading.next.filter(is_ahead)) {
            (Some(ends), _) => ReadState::InFlight(ends),
            (None, Some(next)) => ReadState::Failed(next),
            (None, None) => ReadState::Possible,
        }
    }
}

/// Whether the next read may begin; a `FreshRead` on the monotonic clock.
pub(crate) enum ReadState {
    /// The next read may begin now.
    Possible,
    /// A read is in flight, until this time at the latest.
    InFlight(Instant),
    /// The last read failed. The next one may begin at this time.
    Failed(Instant),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_key::TestKey;

    #[tokio::test(start_paused = true)]
    async fn keys_share_a_read_and_pauses_grow() {
        let mut reads = FreshReads::default();
        assert!(reads.begin("nodes", TestKey("a")));
        assert!(!reads.begin("nodes", TestKey("b")), "one read is in flight");
        assert!(reads.begin("pods", TestKey("a")), "kinds are independent");
        let mut pauses = Vec::new();
        for _ in 0..6 {
            assert_eq!(reads.fail("nodes"), [TestKey("a"), TestKey("b")].into());
            let ReadState::Failed(next) = reads.state("nodes") else { panic!("a pause") };
            assert!(!reads.begin("nodes", TestKey("a")));
            pauses.push(next.duration_since(Instant::now()).as_secs());
            tokio::time::sleep_until(next).await;
            assert!(reads.begin("nodes", TestKey("a")));
        }
        assert_eq!(pauses, [5, 10, 20, 40, 60, 60]);
        reads.fail("nodes");
        assert_eq!(reads.answered("nodes"), [TestKey("a"), TestKey("b")].into());
        assert!(reads.begin("nodes", TestKey("a")), "the server answers again");
        assert_eq!(reads.heard("nodes"), [TestKey("a"), TestKey("b")].into());
        assert!(reads.heard("nodes").is_empty());
    }
}
