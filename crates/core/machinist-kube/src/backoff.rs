//! Growing delays, with jitter from a seed so that a run is repeatable.

use std::time::Duration;

/// A seeded stream of pseudo-random numbers (SplitMix64), used only to spread requests in time.
#[derive(Clone, Debug)]
pub(crate) struct Jitter {
    state: u64,
}

impl Jitter {
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Returns `delay`, extended by a uniformly random share from `0.0..spread`.
    pub(crate) fn stretch(&mut self, delay: Duration, spread: f64) -> Duration {
        delay.mul_f64(1.0 + spread * self.unit())
    }

    fn unit(&mut self) -> f64 {
        // An f64 holds 53 bits exactly.
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
    /// Maximum share by which jitter extends a delay.
    pub(crate) spread: f64,
}

impl Backoff {
    /// The delay after the given number of earlier failures. With its jitter, the delay is at most
    /// `cap`.
    pub(crate) fn delay(&self, earlier_failures: u32, jitter: &mut Jitter) -> Duration {
        // 2^30 times a useful first delay exceeds every cap.
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
    fn delays_depend_only_on_the_seed() {
        let draw = |seed| {
            let mut jitter = Jitter::new(seed);
            (0..8).map(|n| BACKOFF.delay(n, &mut jitter)).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }
}
