//! Sources of time and randomness.
//!
//! Both are injected, so a simulation under tokio's paused clock repeats exactly. Timestamps follow
//! tokio's time from a fixed epoch. Uids and name suffixes come from a seeded sequence.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;

/// The wall clock as the server sees it.
pub trait Clock: Debug + Send + Sync {
    /// Returns the current time.
    fn now(&self) -> Timestamp;
}

/// The machine's own wall clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    // The only place in this crate that reads the wall clock. All other code uses `Clock`.
    #[allow(clippy::disallowed_methods)]
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// An epoch plus the time elapsed on tokio's clock. Under a paused clock this is simulated time.
#[derive(Debug, Clone, Copy)]
pub struct TokioClock {
    epoch: Timestamp,
    start: tokio::time::Instant,
}

impl TokioClock {
    /// Returns a clock that shows `epoch` now and advances with tokio's clock.
    #[allow(clippy::disallowed_methods)]
    pub fn starting_at(epoch: Timestamp) -> Self {
        TokioClock { epoch, start: tokio::time::Instant::now() }
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        self.epoch.checked_add(self.start.elapsed()).unwrap_or(Timestamp::MAX)
    }
}

/// Source of uids and of the random suffixes of generated names.
pub trait Ids: Debug + Send + Sync {
    /// Returns 64 fresh bits.
    fn bits(&self) -> u64;

    /// Returns a fresh uid in the form of a version 4 UUID.
    fn uid(&self) -> String {
        let (high, low) = (self.bits(), self.bits());
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xfff,
            0x8000 | (low >> 48) & 0x3fff,
            low & 0xffff_ffff_ffff
        )
    }

    /// Returns a five-character suffix for `generateName`. The alphabet has no vowels, so a suffix
    /// spells no words.
    fn suffix(&self) -> String {
        let mut bits = self.bits();
        (0..SUFFIX_LENGTH)
            .map(|_| {
                let index = usize::try_from(bits % SUFFIX_LETTERS.len() as u64).unwrap_or_default();
                bits /= SUFFIX_LETTERS.len() as u64;
                char::from(SUFFIX_LETTERS[index])
            })
            .collect()
    }
}

/// Length of the random suffix of a generated name, as in kube-apiserver.
const SUFFIX_LENGTH: usize = 5;
/// Letters of the random suffix of a generated name, as in kube-apiserver.
const SUFFIX_LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Whether a text can be the random suffix of a name that the server generates for `generateName`.
pub fn is_generated_suffix(text: &str) -> bool {
    text.len() == SUFFIX_LENGTH && text.bytes().all(|letter| SUFFIX_LETTERS.contains(&letter))
}

/// Unpredictable ids from the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct RandomIds;

impl Ids for RandomIds {
    fn bits(&self) -> u64 {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes).expect("the operating system has a random source");
        u64::from_le_bytes(bytes)
    }
}

/// Seeded ids: the same seed gives the same ids in the same order.
#[derive(Debug)]
pub struct SeededIds(AtomicU64);

impl SeededIds {
    /// Creates the sequence for `seed`.
    pub fn new(seed: u64) -> Self {
        SeededIds(AtomicU64::new(seed))
    }
}

impl Ids for SeededIds {
    fn bits(&self) -> u64 {
        // SplitMix64: every counter value gives a well-mixed output, so an atomic counter is the
        // only state.
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut z = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// Formats a `metav1.Time`: UTC, in seconds.
pub(crate) fn rfc3339_seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
