//! The time of day, injected, and how far ours is from an API server's.
//!
//! The wall clock is only for timestamps in API objects and for deadlines that start at such a timestamp; everything
//! else counts with `tokio::time::Instant`. Product code never asks the operating system: it is handed a [`Clock`], so
//! that a simulation can run days in seconds.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Where the time of day comes from.
pub trait Clock: Send + Sync {
    /// The time of day, now.
    fn now(&self) -> Timestamp;
}

/// A clock as it is handed around.
pub type SharedClock = Arc<dyn Clock>;

/// The operating system's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl SystemClock {
    /// The system clock as a [`SharedClock`].
    pub fn shared() -> SharedClock {
        Arc::new(Self)
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that may read the system clock")]
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// A clock that starts at a given time and advances with tokio's, paused or not.
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    epoch: Timestamp,
    started: Instant,
}

impl TokioClock {
    /// A clock that shows `epoch` now.
    pub fn starting_at(epoch: Timestamp) -> Self {
        Self { epoch, started: Instant::now() }
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        let elapsed = SignedDuration::try_from(self.started.elapsed()).unwrap_or(SignedDuration::MAX);
        self.epoch.saturating_add(elapsed).unwrap_or(Timestamp::MAX)
    }
}

/// How far the local clock may be from a server's, learned from the `Date` header of its answers.
///
/// A clone shares what is known. `Date` has whole seconds and was written somewhere between sending and receiving, so one answer says
/// that "server time minus local time" lies in an interval, about as wide as the answer took plus a second. Answers are combined:
///
/// * Each answer narrows what is known, so a slow one takes nothing away from what a quick one has shown.
/// * An answer that contradicts what is known replaces it: one of the clocks was corrected.
/// * A step of the local clock shows against the monotonic clock, and counts at once, before the next answer.
/// * What is known becomes less exact with time, by `Skew::DRIFT`, because no two clocks run equally fast.
/// * What is older than `Skew::TRUSTED_FOR` narrows no new answer. A small correction of the server's clock need not contradict slow
///   answers; were there no quick one for so long, they would otherwise confirm what has become wrong.
///
/// There is deliberately no "best guess". Whether a deadline may destroy something is a question for [`Skew::at_most`]: the middle
/// of a wide interval is often near zero, and says nothing.
#[derive(Clone, Default)]
pub struct Skew {
    known: Arc<Mutex<Option<Known>>>,
}

/// Bounds of "server time minus local time", perhaps of two different answers.
#[derive(Clone, Copy, Debug)]
struct Known {
    at_least: Bound,
    at_most: Bound,
}

/// One bound, as it was learned.
#[derive(Clone, Copy, Debug)]
struct Bound {
    offset: SignedDuration,
    /// What the local clock showed then.
    shown: Timestamp,
    /// The moment, on the clock that does not step.
    at: Instant,
}

impl Bound {
    /// The bound against a local clock that shows `shown` now: a step forward since then takes it from the offset.
    fn against(self, shown: Timestamp, at: Instant) -> SignedDuration {
        let step = shown.duration_since(self.shown).saturating_sub(self.age(at));
        self.offset.saturating_sub(step)
    }

    fn drift(self, at: Instant) -> SignedDuration {
        self.age(at) / Skew::DRIFT
    }

    fn age(self, at: Instant) -> SignedDuration {
        SignedDuration::try_from(at.saturating_duration_since(self.at)).unwrap_or(SignedDuration::MAX)
    }

    fn is_trusted(self, at: Instant) -> bool {
        self.age(at) <= Skew::TRUSTED_FOR
    }
}

impl Known {
    /// Lower and upper bound, now.
    fn bounds(self, shown: Timestamp, at: Instant) -> (SignedDuration, SignedDuration) {
        let Self { at_least, at_most } = self;
        (
            at_least.against(shown, at).saturating_sub(at_least.drift(at)),
            at_most.against(shown, at).saturating_add(at_most.drift(at)),
        )
    }

    /// What is known after another answer, which has just come.
    fn and(self, answer: Self) -> Self {
        let Bound { shown, at, .. } = answer.at_least;
        let (low, high) = self.bounds(shown, at);
        let (answer_low, answer_high) = (answer.at_least.offset, answer.at_most.offset);
        let contradicts = high < answer_low || answer_high < low;
        if contradicts {
            return answer;
        }
        let keeps_low = self.at_least.is_trusted(at) && answer_low < low;
        let keeps_high = self.at_most.is_trusted(at) && high < answer_high;
        Self {
            at_least: if keeps_low { self.at_least } else { answer.at_least },
            at_most: if keeps_high { self.at_most } else { answer.at_most },
        }
    }
}

impl Skew {
    /// The resolution of the `Date` header.
    const DATE_RESOLUTION: SignedDuration = SignedDuration::from_secs(1);

    /// After this many seconds two clocks may be another second apart. A clock of quartz drifts by less than a second in an hour; this
    /// allows for a time server that adjusts one of them, too.
    const DRIFT: i32 = 600;

    /// A process that is served well gets an answer more often: its watches are opened again every 6 minutes at the latest.
    const TRUSTED_FOR: SignedDuration = SignedDuration::from_mins(10);

    /// Takes in one answer, which has just come: its `Date` header, and the local time before sending and after receiving.
    pub fn observe(&self, server_date: Timestamp, sent: Timestamp, received: Timestamp) {
        let at = Instant::now();
        let bound = |offset| Bound { offset, shown: received, at };
        let low = server_date.duration_since(received);
        let high = server_date.duration_since(sent).saturating_add(Self::DATE_RESOLUTION);
        if high < low {
            // The local clock stepped back while we waited. The next answer tells more.
            return;
        }
        let answer = Known { at_least: bound(low), at_most: bound(high) };
        let mut known = self.lock();
        *known = Some(known.map_or(answer, |known| known.and(answer)));
    }

    /// Takes in the text of a `Date` header; text that is no HTTP date is ignored.
    pub fn observe_header(&self, date: &str, sent: Timestamp, received: Timestamp) {
        if let Ok(server_date) = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(date) {
            self.observe(server_date, sent, received);
        }
    }

    /// How far apart the clocks are at most, in either direction, while the local one shows `now`; `None` before the first answer
    /// with a `Date`. With a healthy clock and answers within a second, this is below 3 s.
    pub fn at_most(&self, now: Timestamp) -> Option<Duration> {
        let (low, high) = self.lock().as_ref()?.bounds(now, Instant::now());
        Some(low.unsigned_abs().max(high.unsigned_abs()))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Skew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Skew").field(&*self.lock()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + seconds).expect("a valid second")
    }

    #[tokio::test(start_paused = true)]
    async fn the_tokio_clock_follows_paused_time() {
        let clock = TokioClock::starting_at(at(0));
        tokio::time::advance(Duration::from_secs(90)).await;
        assert_eq!(clock.now(), at(90));
    }

    const SECOND: Duration = Duration::from_secs(1);

    /// A server, the local clock, and how far they are apart.
    struct Clocks {
        skew: Skew,
        local: TokioClock,
        /// By how much the local clock has stepped since the start.
        stepped: SignedDuration,
        /// Server time minus local time at the start.
        ahead: SignedDuration,
    }

    impl Clocks {
        fn ahead_by(seconds: i64) -> Self {
            Self {
                skew: Skew::default(),
                local: TokioClock::starting_at(at(0)),
                stepped: SignedDuration::ZERO,
                ahead: SignedDuration::from_secs(seconds),
            }
        }

        fn now(&self) -> Timestamp {
            self.local.now() + self.stepped
        }

        /// A request whose answer is written after `there`, and arrives after `back` more.
        async fn ask(&self, there: Duration, back: Duration) {
            let sent = self.now();
            tokio::time::advance(there).await;
            let date = (self.local.now() + self.ahead).as_second();
            tokio::time::advance(back).await;
            self.skew.observe(Timestamp::from_second(date).expect("a valid second"), sent, self.now());
        }

        fn at_most(&self) -> Duration {
            self.skew.at_most(self.now()).expect("there was an answer")
        }

        fn really(&self) -> Duration {
            (self.ahead - self.stepped).unsigned_abs()
        }
    }

    #[test]
    fn nothing_is_known_before_the_first_answer() {
        assert_eq!(Skew::default().at_most(at(0)), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_skew_in_either_direction_is_known() {
        for ahead in [40, -40] {
            let clocks = Clocks::ahead_by(ahead);
            clocks.ask(SECOND / 2, SECOND / 2).await;
            assert!(SECOND * 40 <= clocks.at_most() && clocks.at_most() <= SECOND * 42, "{:?}", clocks.skew);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_healthy_clock_stays_far_below_any_limit() {
        let clocks = Clocks::ahead_by(0);
        for _ in 0..1_000 {
            clocks.ask(SECOND / 2, SECOND / 2).await;
            assert!(clocks.at_most() <= SECOND * 2, "{:?}", clocks.skew);
            // As long as a watch lasts at most.
            tokio::time::advance(SECOND * 360).await;
            assert!(clocks.at_most() <= SECOND * 3, "{:?}", clocks.skew);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_answer_alone_vouches_for_nothing() {
        let clocks = Clocks::ahead_by(35);
        // The middle of what this says is 3 s.
        clocks.ask(SECOND * 8, SECOND * 72).await;
        assert!(SECOND * 35 <= clocks.at_most(), "{:?}", clocks.skew);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_answer_hides_nothing_that_a_quick_one_showed() {
        let clocks = Clocks::ahead_by(0);
        clocks.ask(SECOND / 10, SECOND / 10).await;
        clocks.ask(SECOND * 30, SECOND * 30).await;
        assert!(clocks.at_most() < SECOND * 2, "{:?}", clocks.skew);
    }

    #[tokio::test(start_paused = true)]
    async fn a_quick_answer_narrows_what_a_slow_one_left_open() {
        let clocks = Clocks::ahead_by(0);
        clocks.ask(SECOND * 30, SECOND * 30).await;
        assert!(SECOND * 30 <= clocks.at_most(), "{:?}", clocks.skew);
        clocks.ask(SECOND / 10, SECOND / 10).await;
        assert!(clocks.at_most() < SECOND * 2, "{:?}", clocks.skew);
    }

    #[tokio::test(start_paused = true)]
    async fn a_corrected_server_clock_counts_with_its_first_answer() {
        let mut clocks = Clocks::ahead_by(40);
        clocks.ask(SECOND / 2, SECOND / 2).await;
        clocks.ahead = SignedDuration::ZERO;
        clocks.ask(SECOND / 2, SECOND / 2).await;
        assert!(clocks.at_most() <= SECOND * 2, "{:?}", clocks.skew);
    }

    #[tokio::test(start_paused = true)]
    async fn a_step_of_the_local_clock_counts_before_any_answer() {
        for step in [-3600, 3600] {
            let mut clocks = Clocks::ahead_by(0);
            clocks.ask(SECOND / 2, SECOND / 2).await;
            tokio::time::advance(SECOND * 60).await;
            clocks.stepped = SignedDuration::from_secs(step);
            assert!(SECOND * 3598 <= clocks.at_most(), "{:?}", clocks.skew);
            clocks.stepped = SignedDuration::ZERO;
            assert!(clocks.at_most() < SECOND * 3, "stepped back: {:?}", clocks.skew);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn slow_answers_do_not_confirm_for_ever_what_is_wrong_by_now() {
        let mut clocks = Clocks::ahead_by(0);
        clocks.ask(SECOND / 10, SECOND / 10).await;
        clocks.ahead = SignedDuration::from_secs(35);
        for _ in 0..12 {
            clocks.ask(SECOND * 30, SECOND * 30).await;
        }
        assert!(SECOND * 35 <= clocks.at_most(), "{:?}", clocks.skew);
    }

    #[tokio::test(start_paused = true)]
    async fn the_skew_is_never_more_than_at_most() {
        for seed in 0..200 {
            let mut draw = crate::backoff::Jitter::new(seed);
            let mut seconds = |most: u32| draw.stretch(SECOND, f64::from(most)) - SECOND;
            let mut clocks = Clocks::ahead_by(i64::try_from(seconds(80).as_secs()).expect("few") - 40);
            for _ in 0..50 {
                clocks.ask(seconds(3), seconds(3)).await;
                assert!(clocks.really() <= clocks.at_most(), "seed {seed}: {:?}", clocks.skew);
                tokio::time::advance(seconds(900)).await;
                // The server's clock is a little faster than ours, and ours is set from time to time.
                clocks.ahead += SignedDuration::try_from(seconds(1) / 10).expect("little");
                if seconds(10) < SECOND {
                    clocks.stepped -= SignedDuration::try_from(seconds(60)).expect("little");
                }
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_set_back_during_a_request_tells_nothing() {
        let skew = Skew::default();
        skew.observe(at(0), at(60), at(1));
        assert_eq!(skew.at_most(at(1)), None);
    }

    #[test]
    fn the_date_header_is_read_and_nonsense_is_ignored() {
        let skew = Skew::default();
        skew.observe_header("yesterday, perhaps", at(0), at(0));
        assert_eq!(skew.at_most(at(0)), None);
        skew.observe_header("Tue, 14 Nov 2023 22:14:20 GMT", at(0), at(0));
        assert!(SECOND * 60 <= skew.at_most(at(0)).expect("known"), "{skew:?}");
    }
}
