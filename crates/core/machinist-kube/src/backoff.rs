//! Delays that grow, and jitter from a seed so that a run can be repeated.

use std::time::Duration;

/// A small seeded stream of numbers (SplitMix64). It spreads retries in time and decides nothing else.
#[derive(Clone, Debug)]
pub(crate) struct Jitter {
    state: u64,
}

impl Jitter {
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// `delay`, made longer by a share drawn evenly from `0.0..spread`.
    pub(crate) fn stretch(&mut self, delay: Duration, spread: f64) -> Duration {
        delay.mul_f64(1.0 + spread * self.unit())
    }

    fn unit(&mut self) -> f64 {
        // 53 bits are what an f64 holds exactly.
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

/// Doubling delays between two bounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    pub(crate) first: Duration,
    pub(crate) cap: Duration,
    /// The share by which a delay may be longer than the doubling says.
    pub(crate) spread: f64,
}

impl Backoff {
    /// The delay after the given number of earlier failures; `cap` bounds it with its jitter.
    pub(crate) fn delay(&self, earlier_failures: u32, jitter: &mut Jitter) -> Duration {
        // 2^31 times anything useful is beyond every cap.
        let doubled = self.first.saturating_mul(1 << earlier_failures.min(30));
        jitter.stretch(doubled.min(self.cap), self.spread).min(self.cap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff =
        Backoff { first: Duration::from_secs(1), cap: Duration::from_secs(300), spread: 0.2 };

    #[test]
    fn delays_double_up_to_the_cap() {
        let mut jitter = Jitter::new(7);
        for failures in 0..40 {
            let plain = Duration::from_secs(1 << failures.min(20)).min(BACKOFF.cap);
            let delay = BACKOFF.delay(failures, &mut jitter);
            assert!(plain <= delay && delay <= plain.mul_f64(1.2).min(BACKOFF.cap), "{failures}: {delay:?}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_delays_and_another_seed_others() {
        let draw = |seed| {
            let mut jitter = Jitter::new(seed);
            (0..8).map(|n| BACKOFF.delay(n, &mut jitter)).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }
}
