//! Faults that last for minutes to hours. Each is one stretch of time, drawn from the seed before
//! the run begins. They happen in every scenario, alone and together.
//!
//! | fault | what happens |
//! |---|---|
//! | server-away | the processes cannot reach one of the two API servers: refused, hanging, or 5xx |
//! | silent-watch | watches stay connected and deliver nothing |
//! | cloud-away | the processes cannot reach the cloud: refused, hanging, or 5xx |
//! | suspended | a process makes no progress while the clock runs on (SIGSTOP) |
//! | down | a process does not run |
//! | no-stock | the cloud cannot create instances |
//! | zone-out | all instances of a zone have no power |
//! | rate-limit | the cloud allows few calls per hour |
//! | foreign-marks | a user or an autoscaler sets taints, labels, annotations and finalizers, and takes them off |
//! | refused-evictions | the API server refuses evictions: 403, 500, or a webhook |
//! | refused-targets | the cloud refuses targets of load balancers |
//! | late-writes | writes take effect up to a minute late |
//! | finalizers-off | another actor takes our finalizers off, puts old labels and annotations back on, and replaces Machines |
//! | control-restored | the cluster of the Machines is restored from a backup, and the cloud stays as it is |
//! | target-restored | the same for the cluster of the Nodes, and of the Services |
//! | second-replica | each process has a second replica; the leader is suspended or killed, and continues later |
//! | crowd | a deployment of hundreds, or many Services, wait at a low rate limit of the cloud |
//! | restarts | the process is killed again and again, each time soon after its start |

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::actor::{Side, TestedProcess};
use crate::seed::{Seed, Stream, fnv};

/// A kind of long fault.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, strum::Display, strum::EnumString, strum::VariantArray,
)]
#[strum(serialize_all = "kebab-case")]
#[expect(missing_docs, reason = "the table at the top of this module describes each of them")]
pub enum LongKind {
    ServerAway,
    SilentWatch,
    CloudAway,
    Suspended,
    Down,
    NoStock,
    ZoneOut,
    RateLimit,
    ForeignMarks,
    RefusedEvictions,
    LateWrites,
    RefusedTargets,
    FinalizersOff,
    ControlRestored,
    TargetRestored,
    SecondReplica,
    Crowd,
    Restarts,
}

impl LongKind {
    /// The kinds that the worlds of the cloud-controller-manager draw from.
    pub const OF_CCM: [Self; 10] = [
        Self::ServerAway,
        Self::SilentWatch,
        Self::CloudAway,
        Self::Suspended,
        Self::Down,
        Self::ZoneOut,
        Self::RateLimit,
        Self::ForeignMarks,
        Self::LateWrites,
        Self::RefusedTargets,
    ];
    /// Further kinds of these worlds. Their draws are separate, so they do not change what a seed
    /// draws otherwise.
    pub const FURTHER_OF_CCM: [Self; 5] =
        [Self::FinalizersOff, Self::TargetRestored, Self::SecondReplica, Self::Crowd, Self::Restarts];
    /// The kinds that the worlds of Cluster API draw from.
    pub const OF_CAPI: [Self; 8] = [
        Self::ServerAway,
        Self::SilentWatch,
        Self::CloudAway,
        Self::Suspended,
        Self::Down,
        Self::NoStock,
        Self::ForeignMarks,
        Self::LateWrites,
    ];
    /// Further kinds of these worlds, as above.
    pub const FURTHER_OF_CAPI: [Self; 4] =
        [Self::FinalizersOff, Self::ControlRestored, Self::SecondReplica, Self::Restarts];
    /// The kinds that the worlds of the machine API draw from.
    pub const OF_MCM: [Self; 11] = [
        Self::ServerAway,
        Self::SilentWatch,
        Self::CloudAway,
        Self::Suspended,
        Self::Down,
        Self::NoStock,
        Self::ZoneOut,
        Self::RateLimit,
        Self::ForeignMarks,
        Self::RefusedEvictions,
        Self::LateWrites,
    ];
    /// Further kinds of the worlds of the machine API. Their draws are separate, so they do not
    /// change what a seed draws otherwise.
    pub const FURTHER_OF_MCM: [Self; 5] =
        [Self::FinalizersOff, Self::ControlRestored, Self::TargetRestored, Self::SecondReplica, Self::Crowd];
}

/// One long fault. Its text is `KIND:BEGINS:LASTS:PICK`, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LongFault {
    /// The kind.
    pub kind: LongKind,
    /// Time from the beginning of the part of interest to the fault.
    pub begins: Duration,
    /// Duration of the fault.
    pub lasts: Duration,
    /// A number that decides the details: which server, which process, which answer.
    pub pick: u64,
}

/// How an API server or a cloud is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutageMode {
    /// Connections are refused.
    Refused,
    /// Requests get no answer, and watches stay open.
    Hanging,
    /// A proxy answers 503.
    Unavailable,
}

/// The picks below this number are equally likely.
const PICKS: u64 = 5040;
/// The share of runs with a further long fault, per thousand.
const WITH_A_FURTHER: u32 = 350;
/// The share of these in which the further fault is the only one.
const FURTHER_ALONE: u32 = 300;
/// The longest further fault. A longer one shows nothing more, and takes most of the time of a run.
const FURTHER_LASTS: Duration = Duration::from_secs(20 * 60);

impl LongFault {
    /// Draws the long faults of a run from its seed.
    pub fn draw(seed: Seed, kinds: &[LongKind]) -> Vec<Self> {
        let mut stream = seed.stream("long faults");
        let count = match stream.below(10) {
            0 => 0,
            1..5 => 1,
            5..8 => 2,
            _ => 3,
        };
        let mut drawn: Vec<Self> = Vec::new();
        for _ in 0..count {
            let Some(kind) = stream.pick(kinds) else { break };
            let fault = Self::drawn(kind, &mut stream);
            drawn.push(fault);
            // A zone without power is often a zone without stock.
            if kind == LongKind::ZoneOut && kinds.contains(&LongKind::NoStock) && stream.happens(500) {
                drawn.push(Self { kind: LongKind::NoStock, ..fault });
            }
        }
        drawn
    }

    /// Draws the long faults of a run, and in some runs one of the further kinds: alone, or in
    /// addition to the others.
    pub fn draw_with_further(seed: Seed, kinds: &[LongKind], further: &[LongKind]) -> Vec<Self> {
        let others = Self::draw(seed, kinds);
        let mut stream = seed.stream("further long faults");
        if !stream.happens(WITH_A_FURTHER) {
            return others;
        }
        let Some(kind) = stream.pick(further) else { return others };
        let is_alone = stream.happens(FURTHER_ALONE);
        let drawn = Self::drawn(kind, &mut stream);
        let fault = Self { lasts: drawn.lasts.min(FURTHER_LASTS), ..drawn };
        let others = if is_alone { Vec::new() } else { others };
        others.into_iter().chain([fault]).collect()
    }

    /// Draws one of the long faults that a scenario is about, in most runs: alone, or in addition
    /// to the others.
    pub fn with_own(seed: Seed, kinds: &[LongKind], others: Vec<Self>) -> Vec<Self> {
        const WITH_OWN: u32 = 800;
        const ALONE: u32 = 500;
        let mut stream = seed.stream("own long fault");
        let Some(kind) = stream.pick(kinds).filter(|_| stream.happens(WITH_OWN)) else { return others };
        let others = if stream.happens(ALONE) { Vec::new() } else { others };
        others.into_iter().chain([Self::drawn(kind, &mut stream)]).collect()
    }

    fn drawn(kind: LongKind, stream: &mut Stream) -> Self {
        const MINUTE: Duration = Duration::from_secs(60);
        let begins = match stream.below(10) {
            0..3 => Duration::ZERO..MINUTE / 6,
            3..8 => Duration::ZERO..MINUTE * 3,
            _ => MINUTE * 3..MINUTE * 30,
        };
        let lasts = match stream.below(10) {
            0..5 => MINUTE * 2..MINUTE * 10,
            5..9 => MINUTE * 10..MINUTE * 40,
            _ => MINUTE * 40..MINUTE * 150,
        };
        let whole = |time: Duration| Duration::from_secs(time.as_secs());
        let (begins, lasts) = (whole(stream.within(begins)), whole(stream.within(lasts)));
        Self { kind, begins, lasts, pick: stream.below(PICKS) }
    }

    /// Time from the beginning of the part of interest to the end of the fault.
    pub fn ends(self) -> Duration {
        self.begins + self.lasts
    }

    /// Whether the fault concerns connections of that process to that server.
    pub fn is_between(self, process: TestedProcess, side: Side) -> bool {
        match process {
            TestedProcess::Manager | TestedProcess::MachineController => self.side() == side,
            // The cloud-controller-manager has one server.
            TestedProcess::CloudController => true,
            // The provider decides from the objects of the management cluster.
            TestedProcess::Provider => self.side() != side,
        }
    }

    /// The server that is away or has silent watches.
    pub fn side(self) -> Side {
        // Most deadlines depend on the server of the Nodes.
        if self.pick.is_multiple_of(3) { Side::Control } else { Side::Target }
    }

    /// How the server is away.
    pub fn absence(self) -> OutageMode {
        match self.pick / 3 % 3 {
            0 => OutageMode::Refused,
            1 => OutageMode::Hanging,
            _ => OutageMode::Unavailable,
        }
    }

    /// One of the processes.
    pub fn process(self, among: &[TestedProcess]) -> Option<TestedProcess> {
        let index = self.pick / 3 % u64::try_from(among.len()).unwrap_or(1).max(1);
        among.get(usize::try_from(index).ok()?).copied()
    }

    /// Whether the fault concerns the watches of that table: all tables of the side, or one in two.
    pub fn is_about(self, table: &str) -> bool {
        (self.pick / 9).is_multiple_of(2) || fnv(table.as_bytes()) % 2 == self.pick / 18 % 2
    }

    /// Whether watches are silent that begin during the fault.
    pub fn lasts_over_reconnects(self) -> bool {
        (self.pick / 36).is_multiple_of(2)
    }

    /// Whether the fault concerns that name: all names, or the names of one zone of two.
    pub fn is_in_zone(self, name: &str) -> bool {
        self.pick.is_multiple_of(3) || fnv(name.as_bytes()) % 2 == self.pick / 3 % 2
    }
}

impl fmt::Display for LongFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, begins, lasts, pick } = self;
        write!(f, "{kind}:{}:{}:{pick}", begins.as_secs(), lasts.as_secs())
    }
}

impl FromStr for LongFault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected =
            || format!("{text:?}: expected KIND:BEGINS:LASTS:PICK, for example server-away:60:1800:0");
        let parts: Vec<&str> = text.split(':').collect();
        let [kind, begins, lasts, pick] = parts.as_slice() else { return Err(expected()) };
        let kind = kind.parse().map_err(|_| expected())?;
        let number = |text: &str| text.parse::<u64>().map_err(|_| expected());
        Ok(Self {
            kind,
            begins: Duration::from_secs(number(begins)?),
            lasts: Duration::from_secs(number(lasts)?),
            pick: number(pick)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use strum::VariantArray as _;

    use super::*;

    #[test]
    fn a_printed_fault_parses_to_the_same_fault() {
        let text = "server-away:60:1800:7";
        assert_eq!(text.parse::<LongFault>().map(|fault| fault.to_string()), Ok(text.to_owned()));
        assert!("server-away:60".parse::<LongFault>().is_err_and(|error| error.contains("expected KIND")));
    }

    #[test]
    fn a_few_seeds_draw_every_kind_alone_and_together() {
        let drawn: Vec<Vec<LongFault>> =
            (0..400).map(|seed| LongFault::draw(Seed(seed), LongKind::VARIANTS)).collect();
        let alone: BTreeSet<LongKind> =
            drawn.iter().filter(|faults| faults.len() == 1).map(|faults| faults[0].kind).collect();
        assert_eq!(alone.len(), LongKind::VARIANTS.len());
        assert!(drawn.iter().any(Vec::is_empty) && drawn.iter().any(|faults| 3 <= faults.len()));
    }

    #[test]
    fn a_further_fault_is_alone_or_beside_the_drawn_ones() {
        let (kinds, further) = (&LongKind::OF_MCM, &LongKind::FURTHER_OF_MCM);
        let (mut alone, mut beside) = (BTreeSet::new(), BTreeSet::new());
        for seed in (0..1000).map(Seed) {
            let all = LongFault::draw_with_further(seed, kinds, further);
            match all.split_last() {
                Some((last, [])) if further.contains(&last.kind) => _ = alone.insert(last.kind),
                Some((last, others)) if further.contains(&last.kind) => {
                    assert_eq!(others, LongFault::draw(seed, kinds));
                    beside.insert(last.kind);
                }
                _ => assert_eq!(all, LongFault::draw(seed, kinds)),
            }
        }
        assert_eq!((alone.len(), beside.len()), (further.len(), further.len()));
    }
}
