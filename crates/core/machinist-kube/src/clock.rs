//! The injected wall clock, and the difference between the local clock and the clock of an API
//! server.
//!
//! The wall clock is used only for timestamps in API objects and for deadlines that start at such
//! timestamps. All other code uses `tokio::time::Instant`. Product code receives a [`Clock`] and
//! never reads the clock of the operating system, so a simulation can run days in seconds.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// A source of the wall clock time.
pub trait Clock: Send + Sync {
    /// The current wall clock time.
    fn now(&self) -> Timestamp;
}

/// A clock that several owners share.
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

/// A clock that starts at a given time and advances with tokio's clock, paused or not.
///
/// ```
/// use std::time::Duration;
/// use machinist_kube::{Clock, TokioClock};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let clock = TokioClock::starting_at("2027-01-15T08:00:00Z".parse().expect("a time"));
/// // Under tokio's paused time, a day passes at once.
/// tokio::time::advance(Duration::from_secs(24 * 3600)).await;
/// assert_eq!(clock.now().to_string(), "2027-01-16T08:00:00Z");
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    epoch: Timestamp,
    started: Instant,
}

impl TokioClock {
    /// Creates a clock that shows `epoch` now.
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

/// A time on both clocks of this machine.
///
/// The monotonic clock stands still while the machine is suspended, and the wall clock does not. So
/// a span counts as long as either clock shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Time on the monotonic clock.
    pub at: Instant,
    /// Time on the wall clock; absent without a clock.
    pub wall: Option<Timestamp>,
}

impl Moment {
    /// The present.
    pub fn now(clock: Option<&SharedClock>) -> Self {
        Self { at: Instant::now(), wall: clock.map(|clock| clock.now()) }
    }

    /// The time from `earlier` to this moment: the larger of what both clocks show.
    pub fn since(&self, earlier: &Self) -> Duration {
        let shown = match (earlier.wall, self.wall) {
            (Some(then), Some(now)) => Duration::try_from(now.duration_since(then)).unwrap_or_default(),
            _ => Duration::ZERO,
        };
        shown.max(self.at.saturating_duration_since(earlier.at))
    }

    /// Whether at least this time has passed on one of the clocks.
    pub fn is_older_than(&self, age: Duration, clock: &SharedClock) -> bool {
        age <= Self::now(Some(clock)).since(self)
    }
}

/// Bounds of the difference between the local clock and the clock of a server, from the `Date`
/// headers of its answers.
///
/// A clone shares the bounds. The server writes `Date`, in whole seconds, at some time between our
/// sending and our receiving. So one answer limits "server time minus local time" to an interval.
/// The interval is as wide as the duration of the request plus one second. Answers are combined:
///
/// * Each answer narrows the interval, so a slow answer does not widen the interval of a quick one.
/// * An answer that contradicts the interval replaces it, because one of the clocks was corrected.
/// * A step of the local clock is visible on the monotonic clock and changes the interval at once,
///   before the next answer.
/// * The interval grows with time, by `Skew::DRIFT`, because no two clocks run equally fast.
/// * A bound older than `Skew::TRUSTED_FOR` does not narrow a new answer. After a small correction
///   of the server's clock, slow answers may still agree with the old bound. If no quick answer
///   arrives for so long, the slow answers would otherwise preserve a wrong bound.
///
/// There is deliberately no "best guess": the middle of a wide interval is often near zero and
/// means nothing. A deadline that may destroy something uses [`Skew::at_most`].
///
/// ```
/// use std::time::Duration;
/// use jiff::Timestamp;
/// use machinist_kube::Skew;
///
/// let at = |second: i64| Timestamp::from_second(1_700_000_000 + second).expect("a valid second");
/// let skew = Skew::default();
/// assert_eq!(skew.at_most(at(0)), None, "nothing is known before the first answer");
///
/// // The server is 40 s ahead. The answer took a second, and `Date` has whole seconds.
/// skew.observe(at(41), at(0), at(1));
/// let known = skew.at_most(at(1)).expect("known by now");
/// assert!((Duration::from_secs(40)..Duration::from_secs(43)).contains(&known), "{known:?}");
/// ```
#[derive(Clone, Default)]
pub struct Skew {
    known: Arc<Mutex<Option<Known>>>,
}

/// Bounds of "server time minus local time". The two bounds may come from different answers.
#[derive(Clone, Copy, Debug)]
struct Known {
    at_least: Bound,
    at_most: Bound,
}

/// One bound, with the times at which it was measured.
#[derive(Clone, Copy, Debug)]
struct Bound {
    offset: SignedDuration,
    /// Local wall clock time of the measurement.
    shown: Timestamp,
    /// Time of the measurement on the monotonic clock.
    at: Instant,
}

impl Bound {
    /// The bound relative to a local clock that shows `shown` now. Subtracts a step of the local
    /// clock since the measurement.
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
    /// The current lower and upper bound.
    fn bounds(self, shown: Timestamp, at: Instant) -> (SignedDuration, SignedDuration) {
        let Self { at_least, at_most } = self;
        (
            at_least.against(shown, at).saturating_sub(at_least.drift(at)),
            at_most.against(shown, at).saturating_add(at_most.drift(at)),
        )
    }

    /// Combines the bounds with the bounds of an answer that has just arrived.
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

    /// Number of seconds in which the difference of two clocks may change by one second. A quartz
    /// clock drifts by less than a second in an hour. The value also allows for a time server that
    /// adjusts one of the clocks.
    const DRIFT: i32 = 600;

    /// Maximum age of a trusted bound. With a healthy server, answers are more frequent: each watch
    /// is reopened at least every 6 minutes.
    const TRUSTED_FOR: SignedDuration = SignedDuration::from_mins(10);

    /// Processes one answer that has just arrived: its `Date` header, and the local times of
    /// sending and receiving.
    pub fn observe(&self, server_date: Timestamp, sent: Timestamp, received: Timestamp) {
        let at = Instant::now();
        let bound = |offset| Bound { offset, shown: received, at };
        let low = server_date.duration_since(received);
        let high = server_date.duration_since(sent).saturating_add(Self::DATE_RESOLUTION);
        if high < low {
            // The local clock stepped back while we waited, so this answer is not usable.
            return;
        }
        let answer = Known { at_least: bound(low), at_most: bound(high) };
        let mut known = self.lock();
        *known = Some(known.map_or(answer, |known| known.and(answer)));
    }

    /// Processes the text of a `Date` header. Ignores a text that is not an HTTP date.
    pub fn observe_header(&self, date: &str, sent: Timestamp, received: Timestamp) {
        if let Ok(server_date) = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(date) {
            self.observe(server_date, sent, received);
        }
    }

    /// Maximum difference between the two clocks, in either direction, when the local clock shows
    /// `now`. `None` before the first answer with a `Date`. With a healthy clock and answers within
    /// a second, the result is below 3 s.
    pub fn at_most(&self, now: Timestamp) -> Option<Duration> {
        let (low, high) = self.lock().as_ref()?.bounds(now, Instant::now());
        Some(low.unsigned_abs().max(high.unsigned_abs()))
    }

    /// Likely time of the API server minus the local time, when the local clock shows `now`: the
    /// middle between the bounds. `None` before the first answer with a `Date`.
    pub fn likely(&self, now: Timestamp) -> Option<SignedDuration> {
        let (low, high) = self.lock().as_ref()?.bounds(now, Instant::now());
        Some(low.saturating_add(high) / 2)
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

    /// The local clock, the clock of a server, and the difference between them.
    struct Clocks {
        skew: Skew,
        local: TokioClock,
        /// Sum of the steps of the local clock since the start.
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

        /// Sends a request. The server writes the answer after `there`, and the answer arrives
        /// `back` later.
        async fn ask(&self, there: Duration, back: Duration) {
            let sent = self.now();
            tokio::time::advance(there).await;
            let date = (self.local.now() + self.ahead).as_second();
            tokio::time::advance(back).await;
            self.skew.observe(Timestamp::from_second(date).expect("a valid second"), sent, self.now());
        }

        fn at_most(&self) -> Duration {
            self.skew.at_most(self.now()).expect("an answer has arrived")
        }

        fn really(&self) -> Duration {
            (self.ahead - self.stepped).unsigned_abs()
        }
    }

    #[test]
    fn the_skew_is_unknown_before_the_first_answer() {
        assert_eq!(Skew::default().at_most(at(0)), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_skew_in_either_direction_is_measured() {
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
            // The longest duration of a watch.
            tokio::time::advance(SECOND * 360).await;
            assert!(clocks.at_most() <= SECOND * 3, "{:?}", clocks.skew);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_answer_alone_does_not_prove_a_small_skew() {
        let clocks = Clocks::ahead_by(35);
        // The middle of the interval of this answer is 3 s.
        clocks.ask(SECOND * 8, SECOND * 72).await;
        assert!(SECOND * 35 <= clocks.at_most(), "{:?}", clocks.skew);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_answer_does_not_widen_the_interval() {
        let clocks = Clocks::ahead_by(0);
        clocks.ask(SECOND / 10, SECOND / 10).await;
        clocks.ask(SECOND * 30, SECOND * 30).await;
        assert!(clocks.at_most() < SECOND * 2, "{:?}", clocks.skew);
    }

    #[tokio::test(start_paused = true)]
    async fn a_quick_answer_narrows_the_interval_of_a_slow_one() {
        let clocks = Clocks::ahead_by(0);
        clocks.ask(SECOND * 30, SECOND * 30).await;
        assert!(SECOND * 30 <= clocks.at_most(), "{:?}", clocks.skew);
        clocks.ask(SECOND / 10, SECOND / 10).await;
        assert!(clocks.at_most() < SECOND * 2, "{:?}", clocks.skew);
    }

    #[tokio::test(start_paused = true)]
    async fn a_correction_of_the_server_clock_counts_at_once() {
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
    async fn slow_answers_do_not_confirm_an_old_bound() {
        let mut clocks = Clocks::ahead_by(0);
        clocks.ask(SECOND / 10, SECOND / 10).await;
        clocks.ahead = SignedDuration::from_secs(35);
        for _ in 0..12 {
            clocks.ask(SECOND * 30, SECOND * 30).await;
        }
        assert!(SECOND * 35 <= clocks.at_most(), "{:?}", clocks.skew);
    }

    #[tokio::test(start_paused = true)]
    async fn the_real_skew_never_exceeds_at_most() {
        for seed in 0..200 {
            let mut draw = crate::backoff::Jitter::new(seed);
            let mut seconds = |most: u32| draw.stretch(SECOND, f64::from(most)) - SECOND;
            let mut clocks = Clocks::ahead_by(i64::try_from(seconds(80).as_secs()).expect("few") - 40);
            for _ in 0..50 {
                clocks.ask(seconds(3), seconds(3)).await;
                assert!(clocks.really() <= clocks.at_most(), "seed {seed}: {:?}", clocks.skew);
                tokio::time::advance(seconds(900)).await;
                // The server's clock is slightly faster than ours, and ours is set occasionally.
                clocks.ahead += SignedDuration::try_from(seconds(1) / 10).expect("little");
                if seconds(10) < SECOND {
                    clocks.stepped -= SignedDuration::try_from(seconds(60)).expect("little");
                }
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_during_a_step_back_is_ignored() {
        let skew = Skew::default();
        skew.observe(at(0), at(60), at(1));
        assert_eq!(skew.at_most(at(1)), None);
    }

    #[test]
    fn date_headers_are_parsed_and_invalid_ones_ignored() {
        let skew = Skew::default();
        skew.observe_header("yesterday, perhaps", at(0), at(0));
        assert_eq!(skew.at_most(at(0)), None);
        skew.observe_header("Tue, 14 Nov 2023 22:14:20 GMT", at(0), at(0));
        assert!(SECOND * 60 <= skew.at_most(at(0)).expect("known"), "{skew:?}");
    }
}
