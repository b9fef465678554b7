//! Which faults a run meets. Each seed draws a few kinds (swarm testing: many seeds with few kinds find more than few seeds with
//! all), each with a rate of its own, so that some runs are battered and others barely touched.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::actor::Process;
use crate::ask::Ask;
use crate::seed::{Seed, Stream};

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the table at the top of the parent module says what each is")]
pub enum Fault {
    P1,
    P4,
    P5,
    P7,
    P8,
    P9,
    P10,
    D2,
    D3,
    D4,
}

impl Fault {
    /// All kinds.
    pub const ALL: [Self; 10] =
        [Self::P1, Self::P4, Self::P5, Self::P7, Self::P8, Self::P9, Self::P10, Self::D2, Self::D3, Self::D4];

    /// How often it may happen, per thousand chances: the rates that a seed draws from.
    fn rates(self) -> &'static [u32] {
        match self {
            // A chance is one line of a watch.
            Self::P1 => &[10, 50, 150],
            Self::P4 => &[2, 5, 15],
            // A chance is one look at the clock, every second of chaos.
            Self::P5 => &[50, 100],
            // A chance is one request, or one write.
            Self::P7 => &[10, 40, 120],
            Self::P8 => &[10, 40, 120],
            Self::P9 => &[10, 40, 120],
            // A chance is one request or driver call.
            Self::P10 => &[2, 5, 10],
            // A chance is one driver call.
            Self::D2 | Self::D3 | Self::D4 => &[100, 300, 600],
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// Which faults, how often, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// Rates per thousand chances.
    pub rates: BTreeMap<Fault, u32>,
    /// How long nothing goes wrong at first.
    pub warm_up: Duration,
    /// How long things go wrong then.
    pub chaos: Duration,
}

/// The usual length of chaos: a rollout of three is in the middle of it from its first second to its last.
const CHAOS: Duration = Duration::from_secs(150);
/// Some runs are disturbed from the first request on, some in the middle of things.
const WARM_UPS: [Duration; 4] =
    [Duration::ZERO, Duration::from_millis(50), Duration::from_secs(1), Duration::from_secs(8)];

impl Profile {
    /// Nothing goes wrong.
    pub fn calm() -> Self {
        Self { rates: BTreeMap::new(), warm_up: Duration::ZERO, chaos: Duration::ZERO }
    }

    /// What a seed draws: each kind with an even chance.
    pub fn swarm(seed: Seed) -> Self {
        let mut stream = seed.stream("profile");
        let mut rates = BTreeMap::new();
        for fault in Fault::ALL {
            if stream.happens(500)
                && let Some(rate) = stream.pick(fault.rates())
            {
                rates.insert(fault, rate);
            }
        }
        let warm_up = stream.pick(&WARM_UPS).unwrap_or_default();
        Self { rates, warm_up, chaos: CHAOS }
    }

    /// These kinds at these rates, from the first request on.
    pub fn of(rates: &[(Fault, u32)]) -> Self {
        Self { rates: rates.iter().copied().collect(), warm_up: Duration::ZERO, chaos: CHAOS }
    }

    fn rate(&self, fault: Fault) -> u32 {
        self.rates.get(&fault).copied().unwrap_or(0)
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.rates.is_empty() {
            return f.write_str("calm");
        }
        let kinds: Vec<_> = self.rates.iter().map(|(fault, rate)| format!("{fault}:{rate}")).collect();
        f.write_str(&kinds.join(" "))
    }
}

/// What becomes of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Nothing special.
    Pass,
    /// P7: no effect.
    Reject(Loss),
    /// P8: it takes effect, and this is the answer.
    Unknown(Loss),
    /// P9: it takes effect this much later.
    Late(Duration),
}

/// What is answered in place of the truth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// An HTTP status.
    Code(u16),
    /// A broken connection.
    Reset,
    /// Nothing, ever.
    Silence,
}

/// What becomes of one line of a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineFate {
    /// Delivered.
    Deliver,
    /// P1: delivered this much later, and everything behind it.
    Hold(Duration),
    /// P4: the stream ends here; it may be opened again after this long, and by then the past is forgotten.
    Close(Duration),
}

/// The faults of one run.
#[derive(Debug)]
pub struct FaultPlan {
    profile: Profile,
    seed: Seed,
    began: OnceLock<Instant>,
    drawn: Mutex<Drawn>,
}

#[derive(Debug, Default)]
struct Drawn {
    streams: BTreeMap<String, Stream>,
    injected: BTreeMap<Fault, usize>,
}

impl FaultPlan {
    /// The faults that a seed draws within a profile.
    pub fn new(seed: Seed, profile: Profile) -> Self {
        Self { profile, seed, began: OnceLock::new(), drawn: Mutex::default() }
    }

    /// The interesting part of the run begins: the phases count from here. Before, nothing goes wrong.
    pub fn begin(&self) {
        // Only the first call counts: a scenario has one beginning.
        let _ = self.began.set(Instant::now());
    }

    /// Whether things go wrong now.
    pub fn is_chaos(&self) -> bool {
        let Some(began) = self.began.get() else { return false };
        let elapsed = began.elapsed();
        self.profile.warm_up <= elapsed && elapsed < self.profile.warm_up + self.profile.chaos
    }

    /// How long until nothing goes wrong any more, as far as that is known.
    pub fn calm_in(&self) -> Duration {
        let whole = self.profile.warm_up + self.profile.chaos;
        self.began.get().map_or(whole, |began| whole.saturating_sub(began.elapsed()))
    }

    /// What a run meets.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// How many faults there were.
    pub fn injected(&self) -> usize {
        self.lock().injected.values().sum()
    }

    /// How long a request travels before its server sees it. It always takes a moment: without any, a loop could run for ever
    /// in one instant.
    pub fn latency(&self, process: Process) -> Duration {
        const MILLISECOND: Duration = Duration::from_millis(1);
        if !self.is_chaos() {
            return MILLISECOND;
        }
        let mut drawn = self.lock();
        let stream = drawn.stream(self.seed, format!("latency/{process}"));
        match stream.below(100) {
            0..80 => stream.within(MILLISECOND..MILLISECOND * 10),
            80..98 => stream.within(MILLISECOND * 10..MILLISECOND * 200),
            _ => stream.within(MILLISECOND * 1000..MILLISECOND * 8000),
        }
    }

    /// What becomes of a request.
    pub fn fate(&self, process: Process, ask: &Ask) -> Fate {
        if !self.is_chaos() {
            return Fate::Pass;
        }
        let mut drawn = self.lock();
        let stream = drawn.stream(self.seed, format!("requests/{process}"));
        // Every request draws the same number of times, so that one fault more does not move all that follow.
        let [reject, unknown, late] =
            [Fault::P7, Fault::P8, Fault::P9].map(|fault| stream.happens(self.profile.rate(fault)));
        let code = stream.pick(&[409, 422, 429, 500, 503]);
        let lost = stream.pick(&[Loss::Code(500), Loss::Code(504), Loss::Reset, Loss::Silence]);
        let broken = stream.below(7);
        let by = stream.within(Duration::from_millis(100)..Duration::from_secs(30));
        let is_write = ask.is_write();
        let (fault, fate) = match (reject, unknown && is_write, late && is_write) {
            (true, ..) => {
                let loss = match broken {
                    0 => Loss::Reset,
                    1 => Loss::Silence,
                    // Reads are not refused for conflicts.
                    _ if !is_write => Loss::Code(503),
                    _ => Loss::Code(code.unwrap_or(500)),
                };
                (Fault::P7, Fate::Reject(loss))
            }
            (_, true, _) => (Fault::P8, Fate::Unknown(lost.unwrap_or(Loss::Reset))),
            (_, _, true) => (Fault::P9, Fate::Late(by)),
            (false, false, false) => return Fate::Pass,
        };
        *drawn.injected.entry(fault).or_default() += 1;
        fate
    }

    /// What becomes of a line of a watch of that table.
    pub fn line(&self, process: Process, table: &str) -> LineFate {
        if !self.is_chaos() {
            return LineFate::Deliver;
        }
        let mut drawn = self.lock();
        let stream = drawn.stream(self.seed, format!("watch/{process}/{table}"));
        let [hold, close] = [Fault::P1, Fault::P4].map(|fault| stream.happens(self.profile.rate(fault)));
        let held = stream.within(Duration::from_millis(50)..Duration::from_secs(15));
        let closed = stream.within(Duration::from_millis(50)..Duration::from_secs(10));
        let (fault, fate) = match (close, hold) {
            (true, _) => (Fault::P4, LineFate::Close(closed)),
            (false, true) => (Fault::P1, LineFate::Hold(held)),
            (false, false) => return LineFate::Deliver,
        };
        *drawn.injected.entry(fault).or_default() += 1;
        fate
    }

    /// Whether a fault of that kind happens now, at a place of that name.
    pub fn strikes(&self, fault: Fault, place: &str) -> bool {
        if !self.is_chaos() {
            return false;
        }
        let mut drawn = self.lock();
        let strikes = drawn.stream(self.seed, format!("{fault}/{place}")).happens(self.profile.rate(fault));
        if strikes {
            *drawn.injected.entry(fault).or_default() += 1;
        }
        strikes
    }

    /// A time within the range, for a fault at a place of that name.
    pub fn span(&self, fault: Fault, place: &str, range: std::ops::Range<Duration>) -> Duration {
        self.lock().stream(self.seed, format!("{fault}/{place}/span")).within(range)
    }

    fn lock(&self) -> MutexGuard<'_, Drawn> {
        self.drawn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drawn {
    fn stream(&mut self, seed: Seed, name: String) -> &mut Stream {
        let fresh = seed.stream(&name);
        self.streams.entry(name).or_insert(fresh)
    }
}
