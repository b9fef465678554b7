//! The kinds of faults in a run. Each seed draws a few kinds, each with its own rate, so that some
//! runs meet many faults and others few. This is swarm testing: many seeds with few kinds find more
//! than few seeds with all kinds.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::long::{LongFault, LongKind, OutageMode};
use crate::actor::{Side, TestedProcess};
use crate::ask::WholeRequest;
use crate::seed::{Seed, Stream};

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the table at the top of the parent module describes each of them")]
pub enum Fault {
    P1,
    P4,
    P5,
    P7,
    P8,
    P9,
    P10,
    P13,
    D1,
    D2,
    D3,
    D4,
    D10,
    D11,
}

impl Fault {
    /// All kinds.
    pub const ALL: [Self; 14] = [
        Self::P1,
        Self::P4,
        Self::P5,
        Self::P7,
        Self::P8,
        Self::P9,
        Self::P10,
        Self::P13,
        Self::D1,
        Self::D2,
        Self::D3,
        Self::D4,
        Self::D10,
        Self::D11,
    ];
    /// The kinds that the worlds of the machine API draw from. The order decides what a seed draws.
    pub const OF_MCM: [Self; 10] =
        [Self::P1, Self::P4, Self::P5, Self::P7, Self::P8, Self::P9, Self::P10, Self::D2, Self::D3, Self::D4];
    /// The kinds that the worlds of the cloud-controller-manager draw from.
    pub const OF_CCM: [Self; 13] = [
        Self::P1,
        Self::P4,
        Self::P7,
        Self::P8,
        Self::P9,
        Self::P10,
        Self::P13,
        Self::D1,
        Self::D2,
        Self::D3,
        Self::D4,
        Self::D10,
        Self::D11,
    ];

    /// The kinds that the worlds of Cluster API draw from.
    pub const OF_CAPI: [Self; 11] = [
        Self::P1,
        Self::P4,
        Self::P7,
        Self::P8,
        Self::P9,
        Self::P10,
        Self::P13,
        Self::D1,
        Self::D2,
        Self::D3,
        Self::D4,
    ];

    /// The rates per thousand chances that a seed draws from.
    fn rates(self) -> &'static [u32] {
        match self {
            // One chance per line of a watch.
            Self::P1 => &[10, 50, 150],
            Self::P4 => &[2, 5, 15],
            // One chance every second of chaos.
            Self::P13 => &[20, 60],
            Self::P5 => &[50, 100],
            // One chance per request, or per write.
            Self::P7 => &[10, 40, 120],
            Self::P8 => &[10, 40, 120],
            Self::P9 => &[10, 40, 120],
            // One chance per request or driver call.
            Self::P10 => &[2, 5, 10],
            // One chance per driver call.
            Self::D1 | Self::D2 | Self::D3 | Self::D4 | Self::D10 => &[100, 300, 600],
            Self::D11 => &[10, 50],
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// Kinds, rates and duration of a run's faults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// Rates per thousand chances.
    pub rates: BTreeMap<Fault, u32>,
    /// Duration of the warm-up without faults.
    pub warm_up: Duration,
    /// Duration of the chaos that follows.
    pub chaos: Duration,
    /// The long faults, which may begin and end after the chaos.
    pub long: Vec<LongFault>,
}

/// The rate of late writes during the long fault of that name.
const LATE_WRITES: u32 = 300;
/// The usual length of chaos, which covers a rollout of three from its first second to its last.
const CHAOS: Duration = Duration::from_secs(150);
/// In some runs faults begin with the first request, in others in the middle of the scenario.
const WARM_UPS: [Duration; 4] =
    [Duration::ZERO, Duration::from_millis(50), Duration::from_secs(1), Duration::from_secs(8)];

impl Profile {
    /// A profile without faults.
    pub fn calm() -> Self {
        Self { rates: BTreeMap::new(), warm_up: Duration::ZERO, chaos: Duration::ZERO, long: Vec::new() }
    }

    /// A profile drawn from a seed, in which each of these kinds has an even chance.
    pub fn drawn(seed: Seed, kinds: &[Fault]) -> Self {
        let mut stream = seed.stream("profile");
        let mut rates = BTreeMap::new();
        for fault in kinds.iter().copied() {
            if stream.happens(500)
                && let Some(rate) = stream.pick(fault.rates())
            {
                rates.insert(fault, rate);
            }
        }
        let warm_up = stream.pick(&WARM_UPS).unwrap_or_default();
        Self { rates, warm_up, chaos: CHAOS, long: Vec::new() }
    }

    /// The same profile with further kinds, each of which has an even chance.
    #[must_use]
    pub fn with_drawn(mut self, seed: Seed, kinds: &[Fault]) -> Self {
        let mut stream = seed.stream("further faults");
        for fault in kinds.iter().copied() {
            if stream.happens(500)
                && let Some(rate) = stream.pick(fault.rates())
            {
                self.rates.insert(fault, rate);
            }
        }
        self
    }

    /// A profile of these kinds at these rates, from the first request on.
    pub fn of(rates: &[(Fault, u32)]) -> Self {
        let rates = rates.iter().copied().collect();
        Self { rates, warm_up: Duration::ZERO, chaos: CHAOS, long: Vec::new() }
    }

    fn rate(&self, fault: Fault) -> u32 {
        self.rates.get(&fault).copied().unwrap_or(0)
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.rates.is_empty() && self.long.is_empty() {
            return f.write_str("calm");
        }
        let short = self.rates.iter().map(|(fault, rate)| format!("{fault}:{rate}"));
        let kinds: Vec<_> = short.chain(self.long.iter().map(ToString::to_string)).collect();
        f.write_str(&kinds.join(" "))
    }
}

/// The fate of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The request is delivered without a fault.
    Pass,
    /// P7: the request has no effect, and this is its answer.
    Reject(Loss),
    /// P8: the request takes effect, and this is its answer.
    Unknown(Loss),
    /// P9: the request takes effect this much later.
    Late(Duration),
}

/// The answer that replaces the real one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// An HTTP status.
    Code(u16),
    /// A broken connection.
    Reset,
    /// No answer.
    Silence,
}

/// The fate of one line of a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineFate {
    /// The line is delivered at once.
    Deliver,
    /// P1: the line and all later lines are delivered this much later.
    Hold(Duration),
    /// P4: the stream ends here. It may be opened again after this time, when the server has
    /// compacted its history.
    Close(Duration),
}

/// The faults of one run.
#[derive(Debug)]
pub struct FaultPlan {
    profile: Profile,
    seed: Seed,
    began: watch::Sender<Option<Instant>>,
    drawn: Mutex<Drawn>,
}

#[derive(Debug, Default)]
struct Drawn {
    streams: BTreeMap<String, Stream>,
    injected: BTreeMap<Fault, usize>,
    long: BTreeMap<LongKind, usize>,
    cut_off: BTreeMap<Side, Instant>,
}

impl FaultPlan {
    /// Creates the faults that a seed draws within a profile.
    #[expect(clippy::disallowed_methods, reason = "the order in which waiting tasks wake changes nothing")]
    pub fn new(seed: Seed, profile: Profile) -> Self {
        Self { profile, seed, began: watch::Sender::new(None), drawn: Mutex::default() }
    }

    /// Starts the phases, at the beginning of the part of interest. No fault happens before.
    pub fn begin(&self) {
        // Only the first call counts, because a scenario has one beginning.
        self.began.send_if_modified(|began| {
            let is_first = began.is_none();
            began.get_or_insert_with(Instant::now);
            is_first
        });
    }

    fn began(&self) -> Option<Instant> {
        *self.began.borrow()
    }

    /// Waits for the beginning of the part of interest, and returns its time.
    pub async fn beginning(&self) -> Instant {
        let mut began = self.began.subscribe();
        match began.wait_for(Option::is_some).await.map(|began| *began) {
            Ok(Some(began)) => began,
            // The sender lives as long as this plan.
            Ok(None) | Err(_) => std::future::pending().await,
        }
    }

    /// Whether the run is in its chaos phase.
    pub fn is_chaos(&self) -> bool {
        let Some(began) = self.began() else { return false };
        let elapsed = began.elapsed();
        self.profile.warm_up <= elapsed && elapsed < self.profile.warm_up + self.profile.chaos
    }

    /// Whether the chaos phase is over.
    pub fn is_over(&self) -> bool {
        self.began().is_some_and(|began| self.profile.warm_up + self.profile.chaos <= began.elapsed())
    }

    /// Time until the calm phase, as far as it is known.
    pub fn calm_in(&self) -> Duration {
        let long = self.profile.long.iter().map(|fault| fault.ends()).max().unwrap_or_default();
        let whole = (self.profile.warm_up + self.profile.chaos).max(long);
        self.began().map_or(whole, |began| whole.saturating_sub(began.elapsed()))
    }

    /// The long faults of that kind that happen now, each with its end.
    pub fn long(&self, kind: LongKind) -> impl Iterator<Item = (LongFault, Instant)> {
        let (began, now) = (self.began(), Instant::now());
        let of_kind = self.profile.long.iter().filter(move |fault| fault.kind == kind);
        of_kind.filter_map(move |fault| {
            let began = began?;
            let happens = began + fault.begins <= now && now < began + fault.ends();
            happens.then(|| (*fault, began + fault.ends()))
        })
    }

    /// Counts a long fault that begins.
    pub fn strike_long(&self, kind: LongKind) {
        *self.lock().long.entry(kind).or_default() += 1;
    }

    /// Lets a server give no answer to any process for that time.
    pub fn cut_off(&self, side: Side, lasts: Duration) {
        self.lock().cut_off.insert(side, Instant::now() + lasts);
    }

    /// How a server is away now for a process, and until when.
    pub fn away(&self, process: TestedProcess, side: Side) -> Option<(OutageMode, Instant)> {
        let mut faults = self.long(LongKind::ServerAway);
        if let Some((fault, until)) = faults.find(|(fault, _)| fault.is_between(process, side)) {
            return Some((fault.absence(), until));
        }
        let until = self.lock().cut_off.get(&side).copied()?;
        (Instant::now() < until).then_some((OutageMode::Hanging, until))
    }

    /// How the cloud is away now, and until when.
    pub fn cloud_away(&self) -> Option<(OutageMode, Instant)> {
        let (fault, until) = self.long(LongKind::CloudAway).next()?;
        Some((fault.absence(), until))
    }

    /// The end of the silence of a watch that was opened at that time; `None` if it is not silent.
    pub fn silence(
        &self,
        process: TestedProcess,
        side: Side,
        table: &str,
        opened: Instant,
    ) -> Option<Instant> {
        let hangs = self.away(process, side).filter(|(absence, _)| *absence == OutageMode::Hanging);
        let silent = self.long(LongKind::SilentWatch).filter(|(fault, until)| {
            let is_old = opened + fault.lasts <= *until;
            fault.is_between(process, side)
                && fault.process(among(process)) == Some(process)
                && fault.is_about(table)
                && (is_old || fault.lasts_over_reconnects())
        });
        hangs.map(|(_, until)| until).into_iter().chain(silent.map(|(_, until)| until)).max()
    }

    /// Returns as soon as a server is away for a process and has ended its connections.
    pub async fn disconnected(&self, process: TestedProcess, side: Side) {
        let ends = |fault: &&LongFault| {
            fault.kind == LongKind::ServerAway
                && fault.is_between(process, side)
                && fault.absence() != OutageMode::Hanging
        };
        if !self.profile.long.iter().any(|fault| ends(&fault)) {
            return std::future::pending().await;
        }
        let began = self.beginning().await;
        let now = Instant::now();
        let faults = self.profile.long.iter().filter(ends);
        let next = faults.filter(|fault| now < began + fault.ends()).map(|fault| began + fault.begins).min();
        match next {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    /// Whether evictions are refused now, and with which answer.
    pub fn refuses_evictions(&self) -> Option<u16> {
        let (fault, _) = self.long(LongKind::RefusedEvictions).next()?;
        // A webhook that denies a request answers 400 unless it says otherwise.
        [403, 500, 400].get(usize::try_from(fault.pick % 3).unwrap_or(0)).copied()
    }

    /// The end of the time in which a process must not run.
    pub fn down(&self, process: TestedProcess) -> Option<Instant> {
        let mut faults = self.long(LongKind::Down);
        let is_its = |fault: LongFault| fault.process(among(process)) == Some(process);
        faults.find(|(fault, _)| is_its(*fault)).map(|(_, until)| until)
    }

    /// Whether no chaos and no long fault happened since then, except the faults of which it is
    /// true; `began` is the beginning of the part of interest.
    pub fn was_calm_since(&self, began: Instant, since: Instant, except: fn(LongFault) -> bool) -> bool {
        let happened =
            |begins: Duration, ends: Duration| began + begins <= Instant::now() && since < began + ends;
        let chaos_ends = self.profile.warm_up + self.profile.chaos;
        let is_chaotic = !self.profile.rates.is_empty() && happened(Duration::ZERO, chaos_ends);
        let others = self.profile.long.iter().filter(|fault| !except(**fault));
        !is_chaotic && !others.into_iter().any(|fault| happened(fault.begins, fault.ends()))
    }

    /// The profile of the run.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Number of injected faults.
    pub fn injected(&self) -> usize {
        let drawn = self.lock();
        drawn.injected.values().chain(drawn.long.values()).sum()
    }

    /// Number of injected faults, by kind.
    pub fn injected_by_kind(&self) -> BTreeMap<String, usize> {
        let drawn = self.lock();
        let short = drawn.injected.iter().map(|(fault, count)| (fault.to_string(), *count));
        short.chain(drawn.long.iter().map(|(kind, count)| (kind.to_string(), *count))).collect()
    }

    /// The time that a request takes to its server. It is never zero, because otherwise a loop
    /// could run forever in one instant.
    pub fn latency(&self, process: TestedProcess) -> Duration {
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

    /// Draws the fate of a request.
    pub fn fate(&self, process: TestedProcess, ask: &WholeRequest) -> Fate {
        if ask.is_write() && self.long(LongKind::LateWrites).next().is_some() {
            const LATEST: Duration = Duration::from_secs(60);
            let mut drawn = self.lock();
            let stream = drawn.stream(self.seed, format!("late writes/{process}"));
            if stream.happens(LATE_WRITES) {
                return Fate::Late(stream.within(Duration::ZERO..LATEST));
            }
        }
        if !self.is_chaos() {
            return Fate::Pass;
        }
        let mut drawn = self.lock();
        let stream = drawn.stream(self.seed, format!("requests/{process}"));
        // Every request draws the same number of times, so that an additional fault does not change
        // all later draws.
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
                    // Reads get no conflicts.
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

    /// Draws the fate of a line of a watch of that table.
    pub fn line(&self, process: TestedProcess, table: &str) -> LineFate {
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

    /// Whether a fault of that kind happens now at that place.
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

    /// Draws a time within the range, for a fault at that place.
    pub fn span(&self, fault: Fault, place: &str, range: std::ops::Range<Duration>) -> Duration {
        self.lock().stream(self.seed, format!("{fault}/{place}/span")).within(range)
    }

    fn lock(&self) -> MutexGuard<'_, Drawn> {
        self.drawn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The processes of the contract of a process.
fn among(process: TestedProcess) -> &'static [TestedProcess] {
    match process {
        TestedProcess::Manager | TestedProcess::MachineController => &TestedProcess::ALL,
        TestedProcess::CloudController => &[TestedProcess::CloudController],
        TestedProcess::Provider => &[TestedProcess::Provider],
    }
}

impl Drawn {
    fn stream(&mut self, seed: Seed, name: String) -> &mut Stream {
        let fresh = seed.stream(&name);
        self.streams.entry(name).or_insert(fresh)
    }
}
