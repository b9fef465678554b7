//! The parts that every snapshot is made of: what is known, what the process remembers, what it has asked.
//!
//! A snapshot is frozen, not consistent: facts about a Machine and its Node have different ages, so every rule over
//! two kinds must be safe with either one older. What is remembered here only saves calls: planners stay correct when
//! all of it is empty.

use std::fmt;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use machinist_instance::{AccountId, Error, ErrorKind, Instance, InstanceRef, Promises, Sighting};

/// What is known of something that is looked up.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash)]
pub enum Known<T> {
    /// Nobody has looked.
    #[default]
    Unasked,
    /// Somebody looked, and it was not there.
    Absent,
    /// It was there.
    Present(T),
}

impl<T> Known<T> {
    /// The thing, if it was there.
    pub fn present(&self) -> Option<&T> {
        match self {
            Self::Present(thing) => Some(thing),
            Self::Unasked | Self::Absent => None,
        }
    }

    /// From a complete store: what it does not have is absent.
    pub fn from_store(found: Option<T>) -> Self {
        found.map_or(Self::Absent, Self::Present)
    }
}

/// A sort of call to a cloud, by the name that people read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Call {
    name: &'static str,
    changes: bool,
}

impl Call {
    /// Create, or return the one already made.
    pub const ENSURE: Self = Self::change("ensure");
    /// Look for one.
    pub const FIND: Self = Self::look("find");
    /// Ask for deletion.
    pub const DELETE: Self = Self::change("delete");
    /// Give it another key.
    pub const REKEY: Self = Self::change("rekey");
    /// List what the account shows.
    pub const LIST: Self = Self::look("list");

    /// A call that changes something. Where calls wait for their turn, it goes before looks.
    pub const fn change(name: &'static str) -> Self {
        Self { name, changes: true }
    }

    /// A call that only looks.
    pub const fn look(name: &'static str) -> Self {
        Self { name, changes: false }
    }

    /// Whether it may change something.
    pub const fn changes(self) -> bool {
        self.changes
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// An answer, with the time at which the call was started and the time at which it ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Answered<T> {
    /// When the call was started.
    pub started: Timestamp,
    /// When the answer arrived.
    pub ended: Timestamp,
    /// The account that was asked; absent if it could not be opened. What one account answers says nothing about another.
    pub account: Option<AccountId>,
    /// The answer.
    pub answer: Result<T, Error>,
}

/// An answer to `find`, with what was asked for: an absence by id proves more than one by name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Found {
    /// What was asked for.
    pub by: InstanceRef,
    /// What came back.
    pub answered: Answered<Sighting>,
}

/// What the driver has answered for one instance, in this process.
#[derive(Debug, Clone, Default, Hash)]
pub struct Answers {
    /// The call in flight, and since when. At most one per instance.
    pub in_flight: Option<(Call, Timestamp)>,
    /// Whether this process has ever started an `ensure` for it.
    pub ever_ensured: bool,
    /// The last answer to `ensure`.
    pub ensure: Option<Answered<Instance>>,
    /// The last answer to `find`.
    pub find: Option<Found>,
    /// Whether a `find` by provider id ever showed it.
    pub shown: bool,
    /// The account that last showed this very instance: in an answer to `ensure` or `find`, or in a list.
    pub shown_in: Option<AccountId>,
    /// Where this process may have made it.
    pub made_in: MadeIn,
    /// The first of the absences in a row that an account has answered.
    pub absence: Option<Absence>,
    /// The last answer to `delete`.
    pub delete: Option<Answered<()>>,
    /// The last answer to `rekey`.
    pub rekey: Option<Answered<()>>,
    /// Failures of the last kind of call in a row; 0 after a success.
    pub failures: u32,
    /// What the last call was made from: a fingerprint of class and Secrets. When they change, one that failed is repeated
    /// without waiting.
    pub inputs: Option<u64>,
}

/// In which accounts a process may have made an instance: an `ensure` there had an effect, or may have had one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash)]
pub enum MadeIn {
    /// In none.
    #[default]
    Nowhere,
    /// In this one.
    Account(AccountId),
    /// The credential changed between two calls of unknown outcome.
    Several,
}

impl MadeIn {
    /// The same, after one more call in that account.
    #[must_use]
    pub fn and(&self, account: &AccountId) -> Self {
        match self {
            Self::Nowhere => Self::Account(account.clone()),
            Self::Account(before) if before == account => self.clone(),
            Self::Account(_) | Self::Several => Self::Several,
        }
    }
}

/// A row of absences.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Absence {
    /// The account that answered.
    pub account: AccountId,
    /// When the first look of the row began.
    pub first: Timestamp,
    /// Whether the looks were by provider id.
    pub by_id: bool,
}

/// A call that is in flight longer than its bound waits for a free slot of its account; look again after this long.
const SLOT_AWAITED: Duration = Duration::from_secs(10);

impl Answers {
    /// The call in flight, since when, and when to look again if its answer does not come.
    pub fn waiting(&self, process: &Process, now: Timestamp) -> Option<(Call, Timestamp, Timestamp)> {
        let (call, since) = self.in_flight?;
        let bound = plus(since, process.promises.call_bound);
        Some((call, since, if now < bound { bound } else { plus(now, SLOT_AWAITED) }))
    }

    /// Takes in an answer: counts failures in a row, and remembers what the call was made from.
    pub fn take<T>(
        &mut self,
        inputs: u64,
        answered: Answered<T>,
        remember: impl FnOnce(&mut Self, Answered<T>),
    ) {
        self.failures = if answered.answer.is_ok() { 0 } else { self.failures.saturating_add(1) };
        self.inputs = Some(inputs);
        remember(self, answered);
    }

    /// Takes in an answer to `find`: what it shows, and since when nothing is shown.
    pub fn take_found(&mut self, found: Found) {
        let Answered { started, account, answer, .. } = &found.answered;
        let by_id = found.by.id.is_some();
        let is_shown = match answer {
            Err(_) => {
                self.find = Some(found);
                return;
            }
            // An instance that has only the name may be another owner's.
            Ok(Sighting::Present(instance)) => {
                by_id || (instance.key.is_some() && instance.key == found.by.key)
            }
            Ok(Sighting::Foreign(_)) => by_id,
            Ok(Sighting::Absent) => false,
        };
        if is_shown {
            self.absence = None;
        } else if let Some(account) = account {
            let goes_on = |row: &Absence| row.account == *account && row.by_id == by_id;
            if !self.absence.as_ref().is_some_and(goes_on) {
                self.absence = Some(Absence { account: account.clone(), first: *started, by_id });
            }
        }
        if is_shown && matches!(answer, Ok(Sighting::Present(_))) {
            self.shown |= by_id;
            self.shown_in.clone_from(account);
        }
        self.find = Some(found);
    }

    /// Whether class or Secrets have changed since the last call, so that one that failed may succeed now.
    pub fn is_mended(&self, inputs: u64) -> bool {
        self.inputs.is_some_and(|last| last != inputs)
    }

    /// The last failure, if the latest answer of that call was one.
    pub fn failure<T>(answered: Option<&Answered<T>>) -> Option<(&Error, Timestamp)> {
        answered.and_then(|a| a.answer.as_ref().err().map(|e| (e, a.ended)))
    }
}

/// Attempts at one thing outside the driver: an eviction, a write that keeps failing.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Attempts {
    /// How many.
    pub count: u32,
    /// When the last one ended.
    pub last: Timestamp,
}

/// What the deciding process is and may do.
#[derive(Debug, Clone)]
pub struct Process {
    /// When its stores were first complete.
    pub started: Timestamp,
    /// When it took the lease it holds; absent without leader election.
    pub leading_since: Option<Timestamp>,
    /// How far the wall clock is from the API server's, at most.
    pub skew: Duration,
    /// The cloud's time minus ours, where the driver has measured it.
    pub cloud_skew: Option<SignedDuration>,
    /// What the account of this object promises.
    pub promises: Promises,
}

/// Above this skew no deadline may destroy anything.
pub const SKEW_LIMIT: Duration = Duration::from_secs(30);
/// A cloud's clock that is further off than this is no measure of anything.
const CLOUD_SKEW_LIMIT: Duration = Duration::from_secs(30);
/// Moments of the cloud and of an API server are compared with this much tolerance at least: the skew is only estimated, and
/// before the first answer of the cloud not even that.
const CLOUD_TOLERANCE: Duration = Duration::from_secs(60);

impl Process {
    /// Since when this process has been the only one to act.
    pub fn acting_since(&self) -> Timestamp {
        self.leading_since.map_or(self.started, |lease| lease.max(self.started))
    }

    /// Whether clocks agree well enough for a deadline to destroy something.
    pub fn may_enforce_deadlines(&self) -> bool {
        self.skew <= SKEW_LIMIT
    }

    /// Whether an object was certainly created after this process began to act, so that nobody else can have made
    /// a call for it.
    pub fn saw_the_birth_of(&self, created: Timestamp) -> bool {
        // Creation timestamps are cut to whole seconds: the object is no older than it says.
        created > plus(self.acting_since(), self.skew)
    }

    /// Since when an instance of a machine's name that carries no key counts as made for that machine.
    ///
    /// The cloud says when the instance was made, an API server when the machine was, and their clocks differ. Creation and
    /// deletion both ask here: an instance that is refused on creation must not be deleted, and one that is left alone
    /// on deletion must have been refused.
    pub fn adopts_since(&self, created: Timestamp) -> Timestamp {
        let skew = self.cloud_skew.map_or(Duration::ZERO, |skew| skew.unsigned_abs());
        let tolerance = CLOUD_TOLERANCE + skew.min(CLOUD_SKEW_LIMIT);
        created.checked_sub(tolerance).unwrap_or(Timestamp::MIN)
    }
}

/// Adds a span to a moment, staying at the end of time rather than failing.
pub fn plus(at: Timestamp, span: Duration) -> Timestamp {
    at.checked_add(span).unwrap_or(Timestamp::MAX)
}

/// How long since, never negative.
pub fn since(now: Timestamp, then: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(then)).unwrap_or(Duration::ZERO)
}

/// Deadlines compare whole seconds, plus one: API timestamps are cut to seconds.
pub fn is_past(now: Timestamp, deadline: Timestamp) -> bool {
    now.as_second() > deadline.as_second()
}

/// The first moment at which [`is_past`] holds.
pub fn just_past(deadline: Timestamp) -> Timestamp {
    Timestamp::from_second(deadline.as_second() + 1).unwrap_or(Timestamp::MAX)
}

/// The last moment for which [`is_past`] holds already at `moment`.
pub fn just_before(moment: Timestamp) -> Timestamp {
    Timestamp::from_second(moment.as_second() - 1).unwrap_or(Timestamp::MIN)
}

/// No `Retry-After` of a cloud or an API server is obeyed for longer: a wrong number must not stop an object for days.
pub const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(600);

/// How long to wait after a failed driver call before the next one: doubling per failure, bounded by what the kind of
/// failure can profit from. `exhausted` is the retry period that users set for quota and stock.
pub fn retry_after(kind: ErrorKind, failures: u32, exhausted: Duration) -> Duration {
    let (first, most) = match kind {
        ErrorKind::Throttled { retry_after: Some(asked) } => return asked.min(LONGEST_RETRY_AFTER),
        ErrorKind::Exhausted => return exhausted,
        ErrorKind::Ambiguous => (Duration::from_secs(1), Duration::from_secs(60)),
        ErrorKind::Unavailable | ErrorKind::Throttled { retry_after: None } => {
            (Duration::from_secs(5), Duration::from_secs(300))
        }
        ErrorKind::InvalidSpec | ErrorKind::Denied | ErrorKind::Unsupported | ErrorKind::Bug => {
            (Duration::from_secs(30), Duration::from_secs(600))
        }
    };
    let doublings = failures.saturating_sub(1).min(10);
    (first * 2u32.pow(doublings)).min(most)
}

/// How a version of an object follows on the one that was seen before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// It is the next one: the watch showed both.
    Next,
    /// It is some later one, or the first: what was between them was not seen.
    Later,
}
