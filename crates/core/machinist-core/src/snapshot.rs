//! Parts of every snapshot: known facts, the memory of the process, and the answers of the driver.
//!
//! A snapshot is frozen, not consistent: facts about a Machine and its Node have different ages. So
//! every rule over two kinds must be safe with either one older. The memory here only saves calls:
//! planners stay correct when it is empty.

use std::fmt;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use machinist_instance::{
    AccountId, Boot, Error, ErrorKind, Instance, InstanceRef, KeyScope, Place, Power, Promises, ProviderId,
    Sighting,
};

/// The result of a lookup.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash)]
pub enum Known<T> {
    /// No lookup has been made.
    #[default]
    Unasked,
    /// A lookup found nothing.
    Absent,
    /// A lookup found it.
    Present(T),
}

impl<T> Known<T> {
    /// Returns the value if it was found.
    pub fn present(&self) -> Option<&T> {
        match self {
            Self::Present(thing) => Some(thing),
            Self::Unasked | Self::Absent => None,
        }
    }

    /// Converts a lookup in a complete store, in which a missing entry means absent.
    pub fn from_store(found: Option<T>) -> Self {
        found.map_or(Self::Absent, Self::Present)
    }
}

/// A kind of driver call, with its name for users.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Call {
    name: &'static str,
    changes: bool,
}

impl Call {
    /// Creates the instance, or returns the existing one.
    pub const ENSURE: Self = Self::change("ensure");
    /// Looks up one instance.
    pub const FIND: Self = Self::look("find");
    /// Requests deletion of one instance.
    pub const DELETE: Self = Self::change("delete");
    /// Gives an instance another key.
    pub const REKEY: Self = Self::change("rekey");
    /// Completes an instance that the cloud has created.
    pub const INITIALIZE: Self = Self::change("initialize");
    /// Lists the instances of the account.
    pub const LIST: Self = Self::look("list");
    /// Observes an instance whose Node has not registered.
    pub const BOOT: Self = Self::look("boot");
    /// Looks one instance up during an outage of the cloud, only to notice its end.
    pub const PROBE: Self = Self::look("probe");

    /// A call that changes something. In the queue of an account, such calls come before lookups.
    pub const fn change(name: &'static str) -> Self {
        Self { name, changes: true }
    }

    /// A call that only reads.
    pub const fn look(name: &'static str) -> Self {
        Self { name, changes: false }
    }

    /// Whether the call may change something.
    pub const fn changes(self) -> bool {
        self.changes
    }

    /// The task of the cloud in this call, for a phrase such as "waiting for the cloud to create
    /// the instance".
    pub fn task(self) -> &'static str {
        match self {
            Self::ENSURE => "create the instance",
            Self::FIND => "look up the instance",
            Self::DELETE => "delete the instance",
            Self::REKEY => "change the key of the instance",
            Self::INITIALIZE => "initialize the instance",
            Self::LIST => "list the instances of the account",
            Self::BOOT => "show how the instance boots",
            Self::PROBE => "answer a test request",
            Self { name, .. } => name,
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// An answer of the driver, with the start and the end of the call.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Answered<T> {
    /// When the call started.
    pub started: Timestamp,
    /// When the answer arrived.
    pub ended: Timestamp,
    /// The account that was asked; absent if it could not be opened. An answer from one account
    /// says nothing about another.
    pub account: Option<AccountId>,
    /// The value, or the error.
    pub answer: Result<T, Error>,
}

/// An answer to `find`, with the request: an absence by id proves more than an absence by name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Found {
    /// The request.
    pub by: InstanceRef,
    /// The answer.
    pub answered: Answered<Sighting>,
}

/// An answer to `delete`, with the instance that was asked for: a user may record another one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Deleted {
    /// Provider id of the instance.
    pub id: Option<ProviderId>,
    /// Whether the call was allowed to delete an instance without a key.
    pub may_lack_key: bool,
    /// The answer.
    pub answered: Answered<()>,
}

/// The driver's answers for one instance, as this process remembers them. Most instances have few
/// of them, so the rare ones are boxed.
#[derive(Debug, Clone, Default, Hash)]
pub struct Answers {
    /// The call in flight and its start. At most one call per instance is in flight.
    pub in_flight: Option<(Call, Timestamp)>,
    /// The call that waits in the queue of the account, or has its slot.
    pub queued: Option<InQueue>,
    /// How long calls to create this instance waited in the queue of the account.
    pub waited: Duration,
    /// When this process first wanted to create the instance, if no call of another process had
    /// failed before. All time before was spent waiting.
    pub wanted_since: Option<Timestamp>,
    /// Whether this process has ever started an `ensure` for this instance.
    pub ever_ensured: bool,
    /// The last answer to `ensure`.
    pub ensure: Option<Answered<Instance>>,
    /// Start of the last `ensure` whose effect is unknown. The cloud may still carry it out, even
    /// if a later call has succeeded.
    pub unsure_since: Option<Timestamp>,
    /// The last answer to `find`.
    pub find: Option<Box<Found>>,
    /// The provider id by which a `find` last showed an instance.
    pub shown: Option<ProviderId>,
    /// The account that last showed this instance: in an answer to `ensure` or `find`, or in a
    /// list.
    pub shown_in: Option<AccountId>,
    /// The accounts in which this process may have created the instance.
    pub made_in: MadeIn,
    /// The place of the first call of this process that may have created the instance.
    pub called_in: Option<Place>,
    /// The key scope of the last call of this process that may have created the instance.
    pub called_within: Option<KeyScope>,
    /// The current row of absences that an account has reported.
    pub absence: Option<Absence>,
    /// Since when each `find` has shown the instance neither running nor stopped.
    pub changing_since: Option<Timestamp>,
    /// The last answer to `delete`.
    pub delete: Option<Box<Deleted>>,
    /// The last answer to `rekey`.
    pub rekey: Option<Box<Answered<()>>>,
    /// The last answer to `initialize`, with the id of the instance.
    pub initialized: Option<Box<(ProviderId, Answered<()>)>>,
    /// The last answer about an instance whose Node has not registered.
    pub boot: Option<Box<Answered<Boot>>>,
    /// Consecutive failures of the last kind of call; 0 after a success.
    pub failures: u32,
    /// Fingerprint of the class and Secrets that the last call used. When they change, a failed
    /// call is repeated without waiting.
    pub inputs: Option<u64>,
}

/// A call that waits in the queue of its account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct InQueue {
    /// The call.
    pub call: Call,
    /// Since when the call waits.
    pub since: Timestamp,
    /// Whether the call has a slot of its account and may be made now.
    pub has_slot: bool,
}

/// The accounts in which a process may have created an instance: an `ensure` there had an effect,
/// or may have had one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash)]
pub enum MadeIn {
    /// In no account.
    #[default]
    Nowhere,
    /// In this account.
    Account(AccountId),
    /// The credential changed between two calls of unknown outcome.
    Several,
}

impl MadeIn {
    /// Returns the value after one more call in `account`.
    #[must_use]
    pub fn and(&self, account: &AccountId) -> Self {
        match self {
            Self::Nowhere => Self::Account(account.clone()),
            Self::Account(before) if before == account => self.clone(),
            Self::Account(_) | Self::Several => Self::Several,
        }
    }
}

/// Consecutive absences that one account has reported.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Absence {
    /// The account that answered.
    pub account: AccountId,
    /// When the first lookup of the row began.
    pub first: Timestamp,
    /// The provider id by which the lookups were made, if any.
    pub id: Option<ProviderId>,
}

/// Wait before the next look at a call that exceeded its bound. The call waits for a free slot of
/// its account.
const SLOT_AWAITED: Duration = Duration::from_secs(10);

impl Answers {
    /// Returns the call in flight, its start, and when to look again if no answer arrives.
    pub fn waiting(&self, process: &Process, now: Timestamp) -> Option<(Call, Timestamp, Timestamp)> {
        let (call, since) = self.in_flight?;
        let bound = plus(since, process.promises.call_bound);
        Some((call, since, if now < bound { bound } else { plus(now, SLOT_AWAITED) }))
    }

    /// Whether a call of this process may have created the instance or a part of it. It did not if
    /// the cloud was at a limit in each call.
    pub fn may_have_created(&self) -> bool {
        let rejected = |ensured: &Answered<Instance>| {
            let error = ensured.answer.as_ref().err().filter(|error| !error.may_have_effect());
            let kind = error.map(|error| error.kind);
            matches!(kind, Some(ErrorKind::Exhausted | ErrorKind::Throttled { .. }))
        };
        let was_rejected = self.ensure.as_ref().is_some_and(rejected) && self.unsure_since.is_none();
        self.ever_ensured && !(was_rejected && self.made_in == MadeIn::Nowhere)
    }

    /// Returns the last answer to the deletion of the instance with that id.
    pub fn deleted(&self, id: Option<&ProviderId>) -> Option<&Answered<()>> {
        self.delete.as_ref().filter(|deleted| deleted.id.as_ref() == id).map(|deleted| &deleted.answered)
    }

    /// Whether no call of any process has had an effect for an object of that creation time: this
    /// process has watched the object since then, and each of its own calls was rejected.
    pub fn knows_no_creation(&self, process: &Process, created: Timestamp) -> bool {
        self.made_in == MadeIn::Nowhere && process.saw_creation_of(created)
    }

    /// Returns the place of that call in the queue of its account.
    pub fn queued_for(&self, call: Call) -> Option<&InQueue> {
        self.queued.as_ref().filter(|queued| queued.call == call)
    }

    /// Stores an answer. Counts consecutive failures and remembers the fingerprint of the inputs. A
    /// call that waits for work of the cloud has not failed.
    pub fn take<T>(
        &mut self,
        inputs: u64,
        answered: Answered<T>,
        remember: impl FnOnce(&mut Self, Answered<T>),
    ) {
        self.failures = match &answered.answer {
            Ok(_) => 0,
            Err(error) if error.is_in_progress() => self.failures,
            Err(_) => self.failures.saturating_add(1),
        };
        self.inputs = Some(inputs);
        remember(self, answered);
    }

    /// Stores an answer to `ensure`.
    pub fn take_ensure(&mut self, answered: Answered<Instance>) {
        if matches!(&answered.answer, Err(error) if error.kind.may_have_effect()) {
            self.unsure_since = Some(answered.started);
        }
        self.ensure = Some(answered);
    }

    /// Stores an answer to `find`, and since when the account has shown nothing.
    pub fn take_found(&mut self, found: Found) {
        let Answered { started, account, answer, .. } = &found.answered;
        let id = &found.by.id;
        let by_id = id.is_some();
        if let Ok(sighting) = answer {
            let is_changing =
                matches!(sighting, Sighting::Present(instance) if instance.power == Power::Changing);
            self.changing_since = is_changing.then(|| self.changing_since.unwrap_or(found.answered.ended));
        }
        let is_shown = match answer {
            Err(_) => {
                self.find = Some(Box::new(found));
                return;
            }
            // An instance that matches only by name may belong to another owner.
            Ok(Sighting::Present(instance)) => {
                by_id || (instance.key.is_some() && instance.key == found.by.key)
            }
            Ok(Sighting::Foreign(_)) => by_id,
            // Parts carry the key, so they belong to this account.
            Ok(Sighting::Parts(_)) => true,
            Ok(Sighting::Absent | Sighting::Ended) => false,
        };
        if is_shown {
            self.absence = None;
        } else if let Some(account) = account {
            let goes_on = |row: &Absence| row.account == *account && row.id == *id;
            if !self.absence.as_ref().is_some_and(goes_on) {
                self.absence = Some(Absence { account: account.clone(), first: *started, id: id.clone() });
            }
        }
        if is_shown && matches!(answer, Ok(Sighting::Present(_) | Sighting::Parts(_))) {
            if by_id && matches!(answer, Ok(Sighting::Present(_))) {
                self.shown.clone_from(id);
            }
            self.shown_in.clone_from(account);
        }
        if by_id && matches!(answer, Ok(Sighting::Ended)) {
            // The account showed the instance, although it exists no longer.
            self.shown.clone_from(id);
            self.shown_in.clone_from(account);
        }
        self.find = Some(Box::new(found));
    }

    /// Whether the class or the Secrets have changed since the last call, so that a failed call may
    /// succeed now.
    pub fn is_fixed(&self, inputs: u64) -> bool {
        self.inputs.is_some_and(|last| last != inputs)
    }

    /// Returns the error and its time if the latest answer of that call was a failure.
    pub fn failure<T>(answered: Option<&Answered<T>>) -> Option<(&Error, Timestamp)> {
        answered.and_then(|a| a.answer.as_ref().err().map(|e| (e, a.ended)))
    }
}

/// Attempts at one operation outside the driver: an eviction, or a write that keeps failing.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Attempts {
    /// Number of attempts.
    pub count: u32,
    /// When the last attempt ended.
    pub last: Timestamp,
}

/// Properties of the deciding process.
#[derive(Debug, Clone)]
pub struct Process {
    /// When the stores of the process were first complete.
    pub started: Timestamp,
    /// When the process acquired its current Lease; absent without leader election.
    pub leading_since: Option<Timestamp>,
    /// Upper bound of the difference between the wall clock and the API server's clock.
    pub skew: Duration,
    /// The cloud's time minus the local time, if the driver has measured it.
    pub cloud_skew: Option<SignedDuration>,
    /// The promises of the driver for this object's account.
    pub promises: Promises,
}

/// A process reads an object at most this long before it begins to create something for it. So no
/// process creates anything for an object later than this after one of them has recorded on the
/// object that nothing more is created.
pub const READ_WITHIN: Duration = Duration::from_secs(120);

/// Above this clock skew, no deadline may trigger a deletion.
pub const SKEW_LIMIT: Duration = Duration::from_secs(30);
/// Upper bound for the cloud's clock skew. A larger difference is not trusted.
const CLOUD_SKEW_LIMIT: Duration = Duration::from_secs(30);
/// Minimum tolerance when times of the cloud and of an API server are compared: the skew is only
/// estimated, and it is unknown before the first answer of the cloud.
const CLOUD_TOLERANCE: Duration = Duration::from_secs(60);

impl Process {
    /// Returns since when this process has been the only one to act.
    pub fn acting_since(&self) -> Timestamp {
        self.leading_since.map_or(self.started, |lease| lease.max(self.started))
    }

    /// Whether the clocks agree well enough for a deadline to trigger a deletion.
    pub fn may_enforce_deadlines(&self) -> bool {
        self.skew <= SKEW_LIMIT
    }

    /// Whether an object was certainly created after this process began to act. Then no other
    /// process can have made a call for it.
    pub fn saw_creation_of(&self, created: Timestamp) -> bool {
        // Creation timestamps are truncated to whole seconds, so the object is no older than its
        // timestamp.
        created > plus(self.acting_since(), self.skew)
    }

    /// Returns the earliest creation time at which an instance with the machine's name and no key
    /// counts as created for it.
    ///
    /// The instance has the cloud's creation time, and the machine has an API server's. Their
    /// clocks differ. Creation and deletion both use this rule: an instance that creation rejects
    /// must not be deleted, and an instance that deletion leaves alone must have been rejected.
    pub fn adopts_since(&self, created: Timestamp) -> Timestamp {
        minus(created, self.cloud_tolerance())
    }

    /// How far the cloud's clock may be from ours.
    pub fn cloud_tolerance(&self) -> Duration {
        let skew = self.cloud_skew.map_or(Duration::ZERO, |skew| skew.unsigned_abs());
        CLOUD_TOLERANCE + skew.min(CLOUD_SKEW_LIMIT)
    }
}

/// Adds a span to a moment and saturates at the maximum.
pub fn plus(at: Timestamp, span: Duration) -> Timestamp {
    at.checked_add(span).unwrap_or(Timestamp::MAX)
}

/// Subtracts a span from a moment and saturates at the minimum.
pub fn minus(at: Timestamp, span: Duration) -> Timestamp {
    at.checked_sub(span).unwrap_or(Timestamp::MIN)
}

/// Returns the time from `then` to `now`, never negative.
pub fn since(now: Timestamp, then: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(then)).unwrap_or(Duration::ZERO)
}

/// Whether a deadline has passed. Compares whole seconds, plus one, because API timestamps are
/// truncated to seconds.
pub fn is_past(now: Timestamp, deadline: Timestamp) -> bool {
    now.as_second() > deadline.as_second()
}

/// Returns the first moment at which [`is_past`] is true for `deadline`.
pub fn just_past(deadline: Timestamp) -> Timestamp {
    Timestamp::from_second(deadline.as_second() + 1).unwrap_or(Timestamp::MAX)
}

/// Returns the last deadline for which [`is_past`] is true at `moment`.
pub fn just_before(moment: Timestamp) -> Timestamp {
    Timestamp::from_second(moment.as_second() - 1).unwrap_or(Timestamp::MIN)
}

/// Upper bound for a `Retry-After` of a cloud or an API server: a wrong number must not stop an
/// object for days.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(600);

/// Returns how long to wait after a failed driver call. The wait doubles per failure, up to a bound
/// that fits the kind of failure. `exhausted` is the retry period that users set for quota and
/// stock.
pub fn retry_after(kind: ErrorKind, failures: u32, exhausted: Duration) -> Duration {
    let (first, most) = match kind {
        ErrorKind::Throttled { retry_after: Some(asked) } => return asked.min(MAX_RETRY_AFTER),
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

/// How a version of an object relates to the version that was seen before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Succession {
    /// The next version: the watch showed both.
    Next,
    /// A later version, or the first: versions in between were not seen.
    Later,
}
