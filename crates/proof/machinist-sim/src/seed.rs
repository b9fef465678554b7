//! Random draws from one number: independent streams by name, the same in every process.
//!
//! A stream is named after the decision it draws (`requests/manager`, `watch/machines`), so that
//! one more draw in one place does not change the other decisions of the run.

use std::fmt;
use std::hash::Hasher;
use std::ops::Range;
use std::time::Duration;

use fnv::FnvHasher;
use tokio::time::Instant;

/// The number that determines all draws of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seed(pub u64);

impl Seed {
    /// The stream of that name.
    pub fn stream(self, name: &str) -> Stream {
        Stream { state: self.0 ^ fnv(name.as_bytes()) }
    }
}

impl fmt::Display for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A sequence of draws. The algorithm is SplitMix64: small, well mixed, and part of this crate, so
/// that no release of a library changes a run.
#[derive(Debug, Clone)]
pub struct Stream {
    state: u64,
}

impl Stream {
    /// Draws 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Draws a number below `end`; 0 if `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.bits().checked_rem(end).unwrap_or(0)
    }

    /// True in `per_mille` of a thousand draws.
    pub fn happens(&mut self, per_mille: u32) -> bool {
        self.below(1000) < u64::from(per_mille)
    }

    /// Picks one of the values; `None` if there are none.
    pub fn pick<T: Copy>(&mut self, among: &[T]) -> Option<T> {
        let index = self.below(u64::try_from(among.len()).unwrap_or(0));
        among.get(usize::try_from(index).ok()?).copied()
    }

    /// Waits for a drawn time, at most until that moment. Returns whether the moment is still to
    /// come.
    pub async fn pause(&mut self, range: Range<Duration>, until: Instant) -> bool {
        tokio::time::sleep_until(until.min(Instant::now() + self.within(range))).await;
        Instant::now() < until
    }

    /// Draws a time within the range, in whole microseconds.
    pub fn within(&mut self, range: Range<Duration>) -> Duration {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let (start, end) = (micros(range.start), micros(range.end));
        Duration::from_micros(start + self.below(end.saturating_sub(start)))
    }

    /// Fills a buffer with random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let drawn = self.bits().to_le_bytes();
            chunk.copy_from_slice(&drawn[..chunk.len()]);
        }
    }
}

/// FNV-1a, for the names of streams and the hashes of traces.
pub fn fnv(bytes: &[u8]) -> u64 {
    let mut hasher = FnvHasher::default();
    hasher.write(bytes);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_differ_by_name_and_repeat_by_seed() {
        let draw = |seed: u64, name: &str| Seed(seed).stream(name).bits();
        assert_eq!(draw(1, "a"), draw(1, "a"));
        assert_ne!(draw(1, "a"), draw(1, "b"));
        assert_ne!(draw(1, "a"), draw(2, "a"));
    }

    #[test]
    fn a_rate_is_roughly_met() {
        let mut stream = Seed(7).stream("rate");
        let hits = (0..10_000).filter(|_| stream.happens(100)).count();
        assert!((800..1200).contains(&hits), "{hits}");
    }

    #[test]
    fn times_stay_within_their_range() {
        let mut stream = Seed(7).stream("times");
        let range = Duration::from_millis(5)..Duration::from_millis(9);
        assert!((0..1000).all(|_| range.contains(&stream.within(range.clone()))));
    }
}
