//! Cloud accounts: the limits and the memory that all calls with one cloud identity share.
//!
//! An account is a cloud identity, not a list of Secret names ([`Provider::account`]). All classes
//! and controllers of a process that use one account share its slots, its token bucket, its pause
//! after a throttled answer, and the result of its last list. Otherwise a class with a new Secret
//! per rollout would get new limits with every rollout, and the cloud would throttle all of them.
//!
//! Deliberately absent: the choice of calls, and the meaning of answers ([`crate::asks`]).

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use machinist_driver::{Driver, Provider};
use machinist_instance::{
    AccountId, CallRate, CreateGuarantee, Credential, Error, ErrorKind, Instance, KeyTag, NodeName, Place,
    Promises, ProviderId,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::line::{Lane, Line};

/// If no call has used an account for this long, the runtime drops its driver, its connections and
/// its limits.
const CLOSED_AFTER: Duration = Duration::from_secs(3600);
/// The first pause after a throttled answer without `Retry-After`. Each further throttled answer
/// doubles the pause.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
/// The longest pause, even if `Retry-After` is longer. A wrong `Retry-After` must not stop an
/// installation for days.
const MAX_PAUSE: Duration = machinist_core::MAX_RETRY_AFTER;

/// The number of pauses whose times an account remembers. A Machine that waits for longer than this
/// many pauses counts the earlier ones as its own time.
const MAX_PAUSES: usize = 256;

/// The open accounts of a process.
#[derive(Default)]
pub struct Accounts {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    accounts: BTreeMap<AccountId, Arc<Account>>,
    /// Drivers by provider, by the Secrets that opened them, and by place. With this memory, no
    /// pass reads a credential twice.
    opened: BTreeMap<Opener, Known>,
}

/// The name of a provider, the Secrets that open an account, and its place.
type Opener = (String, String, Place);

/// A driver that was opened with Secrets.
struct Known {
    /// The version of the Secrets that opened the driver.
    version: u64,
    opened: Opened,
    /// The last use of the driver by an object.
    last_used: Instant,
}

/// Assumed promises of an account that cannot be opened: cautious enough for every known cloud.
pub(crate) const CAUTIOUS: Promises = Promises {
    visible_within: Duration::from_secs(60),
    call_bound: Duration::from_secs(80),
    calls_outlive_process: true,
    create: CreateGuarantee::FindThenCreate,
    rate: None,
    keys: KeyTag::Fixed,
};

/// A driver and its account. All drivers of an account share its limits.
#[derive(Clone)]
pub struct Opened {
    /// The provider, which reads the ids of the account's instances.
    pub provider: Arc<dyn Provider>,
    /// The driver for calls with this credential.
    pub driver: Arc<dyn Driver>,
    /// The account, whose limits apply to the calls.
    pub account: Arc<Account>,
    /// The place of the cloud in which the account was opened.
    pub place: Place,
}

impl Opened {
    /// The promises of the cloud, from which a caller knows what an answer proves.
    pub fn promises(&self) -> Promises {
        self.driver.promises()
    }

    /// The name of the account: a hash that does not reveal the credential.
    pub fn account(&self) -> &AccountId {
        &self.account.id
    }

    /// The end of the pause, if the cloud throttles the account.
    pub fn paused_until(&self) -> Option<Instant> {
        self.account.paused_until()
    }
}

/// The limits and the memory of one account.
pub struct Account {
    id: AccountId,
    /// The name of the provider, for metrics.
    cloud: Box<str>,
    /// Limits the number of concurrent calls.
    slots: Arc<Semaphore>,
    /// The calls that wait for a slot and a token.
    line: Arc<Line>,
    pace: Mutex<Pace>,
    sightings: Mutex<Option<Arc<Sightings>>>,
}

/// The result and the times of a list call. All objects and contracts of a process share it. The
/// result may be old, so it is a hint and never evidence.
#[derive(Debug)]
pub struct Sightings {
    /// The start of the list call.
    pub started: Timestamp,
    /// The time of the answer.
    pub ended: Timestamp,
    instances: BTreeMap<ProviderId, Arc<Instance>>,
    /// The ids by name; `None` if several instances have the name.
    by_name: BTreeMap<NodeName, Option<ProviderId>>,
}

impl Sightings {
    /// Stores the result of a list call.
    pub fn new(started: Timestamp, ended: Timestamp, instances: Vec<Instance>) -> Self {
        let mut by_name = BTreeMap::new();
        for instance in &instances {
            let id = Some(instance.id.clone());
            by_name.entry(instance.name.clone()).and_modify(|ids| *ids = None).or_insert(id);
        }
        let by_id = |instance: Instance| (instance.id.clone(), Arc::new(instance));
        Self { started, ended, instances: instances.into_iter().map(by_id).collect(), by_name }
    }

    /// The instance with that id, in the spelling of the cloud.
    pub fn of(&self, id: &ProviderId) -> Option<&Arc<Instance>> {
        self.instances.get(id)
    }

    /// The instance with that name, if exactly one has it.
    pub fn named(&self, name: &NodeName) -> Option<&Arc<Instance>> {
        self.of(self.by_name.get(name)?.as_ref()?)
    }

    /// All instances, in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Instance>> {
        self.instances.values()
    }

    /// The number of instances.
    pub fn len(&self) -> usize {
        self.instances.len()
    }

    /// Whether the list was empty.
    pub fn is_empty(&self) -> bool {
        self.instances.is_empty()
    }
}

/// Determines when the next call may begin.
struct Pace {
    bucket: Option<Bucket>,
    paused_until: Option<Instant>,
    /// The end of the longest pause that the cloud asked for.
    stated_until: Option<Instant>,
    /// The beginning and the end of the last pauses, which do not overlap.
    pauses: VecDeque<(Instant, Instant)>,
    /// The number of consecutive throttled answers.
    throttled: u32,
    last_used: Instant,
}

impl Accounts {
    /// Returns the driver that the provider opened with that version of the Secrets in that place.
    pub fn opened(
        &self,
        provider: &dyn Provider,
        secrets: &str,
        place: &Place,
        version: u64,
    ) -> Option<Opened> {
        let mut state = self.lock();
        let known = state
            .opened
            .get_mut(&opener(provider, secrets, place))
            .filter(|known| known.version == version)?;
        known.last_used = Instant::now();
        Some(known.opened.clone())
    }

    /// Returns the open account of a credential in a place, or opens it. For a caller that has the
    /// credential at hand; [`Self::opened`] spares the others from collecting it.
    ///
    /// # Errors
    /// If the provider cannot use the credential.
    pub fn open_once(
        &self,
        provider: &Arc<dyn Provider>,
        calls_at_once: usize,
        secrets: &str,
        version: u64,
        (credential, place): (&Credential, &Place),
    ) -> Result<Opened, Error> {
        if let Some(opened) = self.opened(&**provider, secrets, place, version) {
            return Ok(opened);
        }
        self.open(provider, calls_at_once, secrets, version, (credential, place))
    }

    /// Opens the account of a credential in a place. If the account is already open, the new driver
    /// shares its limits.
    ///
    /// # Errors
    /// If the provider cannot use the credential.
    pub fn open(
        &self,
        provider: &Arc<dyn Provider>,
        calls_at_once: usize,
        secrets: &str,
        version: u64,
        (credential, place): (&Credential, &Place),
    ) -> Result<Opened, Error> {
        let id = provider.account(credential, place);
        let driver = provider.open(&id, credential, place)?;
        let rate = driver.promises().rate;
        let account = self.limits(provider.name(), id, calls_at_once, rate);
        let opened = Opened { provider: provider.clone(), driver, account, place: place.clone() };
        let known = Known { version, opened: opened.clone(), last_used: Instant::now() };
        self.lock().opened.insert(opener(&**provider, secrets, place), known);
        Ok(opened)
    }

    /// Returns the account with its limits, for calls without a driver. `cloud` is the name of the
    /// provider, or of the API that is called.
    pub fn limits(
        &self,
        cloud: &str,
        id: AccountId,
        calls_at_once: usize,
        rate: Option<CallRate>,
    ) -> Arc<Account> {
        let new = || Arc::new(Account::new(cloud, id.clone(), calls_at_once, rate));
        let account = self.lock().accounts.entry(id.clone()).or_insert_with(new).clone();
        account.pace().last_used = Instant::now();
        account
    }

    /// Closes the accounts that no call has used for an hour, and the drivers that no object has
    /// used for an hour. A class with a new Secret per rollout leaves a driver behind with each
    /// rollout.
    pub(crate) fn close_unused(&self) {
        let mut state = self.lock();
        let now = Instant::now();
        state.accounts.retain(|_, account| !account.is_unused(now));
        let State { accounts, opened } = &mut *state;
        opened.retain(|_, known| {
            now < known.last_used + CLOSED_AFTER && accounts.contains_key(&known.opened.account.id)
        });
    }

    /// Forgets the results of list calls. After a step of the wall clock, their times have no
    /// meaning.
    pub(crate) fn forget_moments(&self) {
        for account in self.lock().accounts.values() {
            *account.last_sightings() = None;
        }
    }

    /// The numbers of open accounts and drivers.
    pub(crate) fn len(&self) -> (usize, usize) {
        let state = self.lock();
        (state.accounts.len(), state.opened.len())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn opener(provider: &dyn Provider, secrets: &str, place: &Place) -> Opener {
    (provider.name().to_owned(), secrets.to_owned(), place.clone())
}

impl Account {
    fn new(cloud: &str, id: AccountId, calls_at_once: usize, rate: Option<CallRate>) -> Self {
        let pace = Pace {
            bucket: rate.map(Bucket::full),
            paused_until: None,
            stated_until: None,
            pauses: VecDeque::new(),
            throttled: 0,
            last_used: Instant::now(),
        };
        let slots = Arc::new(Semaphore::new(calls_at_once));
        let (line, sightings) = (Arc::default(), Mutex::default());
        Self { id, cloud: cloud.into(), slots, line, pace: Mutex::new(pace), sightings }
    }

    /// The name of the provider, or of the API that is called.
    pub(crate) fn cloud(&self) -> &str {
        &self.cloud
    }

    /// The name of the account: a hash that does not reveal the credential.
    pub fn id(&self) -> &AccountId {
        &self.id
    }

    /// The result of the last list call, if there was one.
    pub fn sightings(&self) -> Option<Arc<Sightings>> {
        self.last_sightings().clone()
    }

    /// Stores the result of a list call. A result is ignored if its call began before the call of
    /// the stored result, or if the clock stepped back during the call.
    pub fn share(&self, sightings: Sightings) {
        let mut last = self.last_sightings();
        let is_newer = last.as_ref().is_none_or(|last| last.started < sightings.started);
        if is_newer && sightings.started <= sightings.ended {
            *last = Some(Arc::new(sightings));
        }
    }

    /// The end of the pause, if the cloud throttles the account.
    pub fn paused_until(&self) -> Option<Instant> {
        self.pace().paused_until.filter(|until| Instant::now() < *until)
    }

    /// Whether the cloud did not say how long the pause lasts. A call `probe` may begin in a pause
    /// of unknown length, and its success ends the pause.
    pub fn is_pause_assumed(&self) -> bool {
        self.pace().stated_until.is_none_or(|until| until <= Instant::now())
    }

    /// Lets a probe begin without a slot: during an outage, the calls that hang have all slots.
    pub(crate) fn admit_probe<E>(&self, may_begin: impl Fn() -> Result<(), E>) -> Result<(), E> {
        may_begin()?;
        self.take_token();
        Ok(())
    }

    /// Ends a pause of an assumed length, after a probe.
    pub(crate) fn end_assumed_pause(&self) {
        let mut pace = self.pace();
        pace.paused_until = pace.stated_until;
        let ended = pace.paused_until.max(Some(Instant::now()));
        if let (Some(ended), Some(last)) = (ended, pace.pauses.back_mut()) {
            last.1 = last.1.min(ended);
        }
    }

    /// How long the account was paused since that time.
    pub fn paused_since(&self, since: Instant) -> Duration {
        let now = Instant::now();
        let within = |(from, until): &(Instant, Instant)| {
            (*until).min(now).saturating_duration_since((*from).max(since))
        };
        self.pace().pauses.iter().map(within).sum()
    }

    /// Waits for a slot and a token, in the order of the lanes. The function calls `may_begin` when
    /// the call is next, and again when its token is available. A call that may not begin takes no
    /// token, so calls with an expired permit do not use up the rate of the calls behind them.
    ///
    /// # Errors
    /// The error of `may_begin`.
    pub(crate) async fn admit<E>(
        &self,
        lane: Lane,
        may_begin: impl Fn() -> Result<(), E>,
    ) -> Result<OwnedSemaphorePermit, E> {
        let mut first = self.line.enter(lane).await;
        loop {
            let slot = self.slots.clone().acquire_owned().await;
            let slot = slot.expect("the slots of an account are never closed");
            may_begin()?;
            tokio::time::sleep_until(self.next_token()).await;
            if first.is_overtaken() {
                drop(slot);
                first = first.step_back().await;
                continue;
            }
            may_begin()?;
            self.take_token();
            first.begin();
            return Ok(slot);
        }
    }

    /// Returns the token of a call that was admitted and not made.
    pub(crate) fn give_back(&self) {
        if let Some(bucket) = &mut self.pace().bucket {
            bucket.give_back();
        }
    }

    fn next_token(&self) -> Instant {
        let now = Instant::now();
        let mut pace = self.pace();
        pace.last_used = now;
        pace.bucket.as_ref().map_or(now, |bucket| bucket.next(now))
    }

    fn take_token(&self) {
        if let Some(bucket) = &mut self.pace().bucket {
            bucket.take(Instant::now());
        }
    }

    /// Records the end of a call. A throttled answer pauses all calls of the account.
    pub(crate) fn note_end(&self, error: Option<&Error>) {
        let now = Instant::now();
        let mut pace = self.pace();
        pace.last_used = now;
        match error.map(|error| error.kind) {
            Some(ErrorKind::Throttled { retry_after }) => {
                let doubled = FIRST_PAUSE * 2u32.pow(pace.throttled.min(10));
                let pause = retry_after.unwrap_or(doubled).clamp(Duration::from_secs(1), MAX_PAUSE);
                // The cloud throttles concurrent calls together. That counts as one pause, not as
                // several consecutive ones.
                if pace.paused_until.is_none_or(|until| until <= now) {
                    pace.throttled = pace.throttled.saturating_add(1);
                }
                pace.paused_until = pace.paused_until.max(Some(now + pause));
                if retry_after.is_some() {
                    pace.stated_until = pace.stated_until.max(Some(now + pause));
                }
                pace.note_pause(now, now + pause);
            }
            None => pace.throttled = 0,
            Some(_) => {}
        }
    }

    fn is_unused(&self, now: Instant) -> bool {
        // The permit of a call in flight has a clone of `slots`.
        let no_call_in_flight = Arc::strong_count(&self.slots) == 1;
        no_call_in_flight && self.pace().last_used + CLOSED_AFTER <= now
    }

    fn last_sightings(&self) -> MutexGuard<'_, Option<Arc<Sightings>>> {
        self.sightings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pace(&self) -> MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pace {
    fn note_pause(&mut self, from: Instant, until: Instant) {
        if let Some((_, last)) = self.pauses.back_mut().filter(|(_, last)| from <= *last) {
            *last = (*last).max(until);
            return;
        }
        if MAX_PAUSES <= self.pauses.len() {
            self.pauses.pop_front();
        }
        self.pauses.push_back((from, until));
    }
}

/// A token bucket, stored as the time at which the bucket will be full again.
#[derive(Debug)]
struct Bucket {
    /// The time in which the bucket regains one token.
    every: Duration,
    /// The time in which an empty bucket fills.
    depth: Duration,
    full_at: Instant,
}

impl Bucket {
    fn full(rate: CallRate) -> Self {
        let every = Duration::from_secs(3600) / rate.per_hour.max(1);
        Self { every, depth: every * rate.burst.max(1), full_at: Instant::now() }
    }

    /// The time of the next available token.
    fn next(&self, now: Instant) -> Instant {
        let after = self.full_at.max(now) + self.every;
        after.checked_sub(self.depth).map_or(now, |at| at.max(now))
    }

    fn take(&mut self, now: Instant) {
        self.full_at = self.full_at.max(now) + self.every;
    }

    fn give_back(&mut self) {
        self.full_at = self.full_at.checked_sub(self.every).unwrap_or(self.full_at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(rate: Option<CallRate>) -> Account {
        Account::new("sim", AccountId::of([b"a".as_slice()]), 1, rate)
    }

    #[tokio::test(start_paused = true)]
    async fn a_bucket_admits_its_burst_then_its_rate() {
        let account = account(Some(CallRate { per_hour: 3600, burst: 3 }));
        let begun = async |count: u32| {
            let start = Instant::now();
            let mut waits = Vec::new();
            for _ in 0..count {
                drop(account.admit(Lane::Look, || Ok::<(), ()>(())).await);
                waits.push(start.elapsed().as_secs());
            }
            waits
        };
        assert_eq!(begun(6).await, [0, 0, 0, 1, 2, 3]);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(begun(4).await, [0, 0, 0, 1]);
    }

    /// Returns the order in which three looks and three other calls begin that arrive together.
    async fn order(account: Account, others: Lane) -> Vec<&'static str> {
        let begun = Mutex::new(Vec::new());
        let call = async |name: &'static str, lane: Lane| {
            let slot = account.admit(lane, || Ok::<(), ()>(())).await;
            begun.lock().expect("no test panics while it has the lock").push(name);
            tokio::time::sleep(Duration::from_secs(1)).await;
            drop(slot);
        };
        let looks = || call("look", Lane::Look);
        let others = || call("other", others);
        tokio::join!(looks(), looks(), looks(), others(), others(), others());
        begun.into_inner().expect("no test panics while it has the lock")
    }

    #[tokio::test(start_paused = true)]
    async fn looks_and_changes_take_turns() {
        for rate in [None, Some(CallRate { per_hour: 3600, burst: 1 })] {
            // The second look was already next when the first change arrived.
            let begun = order(account(rate), Lane::Change).await;
            assert_eq!(begun, ["look", "look", "other", "look", "other", "other"]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn deletions_go_before_all_other_calls() {
        for rate in [None, Some(CallRate { per_hour: 3600, burst: 1 })] {
            let begun = order(account(rate), Lane::Deletion).await;
            assert_eq!(begun, ["look", "other", "other", "other", "look", "look"]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn lookups_that_nothing_waits_for_come_last_but_come() {
        let account = account(Some(CallRate { per_hour: 3600, burst: 1 }));
        let begun = Mutex::new(Vec::new());
        let call = async |lane: Lane| {
            drop(account.admit(lane, || Ok::<(), ()>(())).await);
            begun.lock().expect("no test panics while it has the lock").push(lane);
        };
        let idle = async || futures::future::join_all((0..3).map(|_| call(Lane::Idle))).await;
        let changes = async || futures::future::join_all((0..20).map(|_| call(Lane::Change))).await;
        tokio::join!(changes(), idle());
        let begun = begun.into_inner().expect("no test panics while it has the lock");
        let first_idle = begun.iter().position(|lane| *lane == Lane::Idle);
        assert_eq!((begun.len(), first_idle), (23, Some(8)));
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_are_measured_once() {
        let account = account(None);
        let throttled = |seconds| {
            let retry_after = Some(Duration::from_secs(seconds));
            account.note_end(Some(&Error::new(ErrorKind::Throttled { retry_after }, "slow down")));
        };
        let start = Instant::now();
        throttled(30);
        tokio::time::advance(Duration::from_secs(10)).await;
        throttled(30);
        assert_eq!(account.paused_since(start).as_secs(), 10, "the rest is in the future");
        tokio::time::advance(Duration::from_secs(100)).await;
        throttled(5);
        tokio::time::advance(Duration::from_secs(100)).await;
        assert_eq!(account.paused_since(start).as_secs(), 45);
        assert_eq!(account.paused_since(start + Duration::from_secs(20)).as_secs(), 25);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_may_not_begin_takes_no_token() {
        let account = account(Some(CallRate { per_hour: 3600, burst: 1 }));
        for _ in 0..100 {
            assert_eq!(account.admit(Lane::Deletion, || Err("expired")).await.err(), Some("expired"));
        }
        let start = Instant::now();
        assert!(account.admit(Lane::Look, || Ok::<(), ()>(())).await.is_ok());
        assert_eq!(start.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_throttled_answer_starts_a_pause_of_limited_length() {
        let account = account(None);
        let throttled = |seconds: Option<u64>| {
            let retry_after = seconds.map(Duration::from_secs);
            Error::new(ErrorKind::Throttled { retry_after }, "slow down")
        };
        let left = || account.paused_until().map(|until| (until - Instant::now()).as_secs());
        account.note_end(Some(&throttled(Some(60))));
        assert_eq!(left(), Some(60));
        account.note_end(Some(&throttled(Some(10))));
        assert_eq!(left(), Some(60), "the longer of two pauses applies");
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(left(), None);
        account.note_end(Some(&throttled(Some(1_000_000))));
        assert_eq!(left(), Some(MAX_PAUSE.as_secs()));
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_without_retry_after_double_until_a_success() {
        let account = account(None);
        let throttled = Error::new(ErrorKind::Throttled { retry_after: None }, "slow down");
        let mut pauses = Vec::new();
        for _ in 0..3 {
            account.note_end(Some(&throttled));
            let until = account.paused_until().expect("the account is paused");
            pauses.push((until - Instant::now()).as_secs());
            tokio::time::advance(until - Instant::now()).await;
        }
        assert_eq!(pauses, [5, 10, 20]);
        account.note_end(None);
        account.note_end(Some(&throttled));
        assert_eq!((account.paused_until().expect("the account is paused") - Instant::now()).as_secs(), 5);
    }

    /// Otherwise, after a step back, the account would ignore every later list as an older one.
    #[tokio::test(start_paused = true)]
    async fn list_results_are_forgotten_when_the_clock_steps() {
        let at = |second| Timestamp::from_second(second).expect("a valid time");
        let accounts = Accounts::default();
        let account = accounts.limits("sim", AccountId::of([b"a".as_slice()]), 1, None);
        let share = |started, ended| account.share(Sightings::new(at(started), at(ended), Vec::new()));
        let shown = || account.sightings().map(|sightings| sightings.started);
        share(100, 101);
        share(50, 51);
        assert_eq!(shown(), Some(at(100)), "the later result stays");
        accounts.forget_moments();
        assert_eq!(shown(), None);
        share(70, 51);
        assert_eq!(shown(), None, "the clock stepped back during the call");
        share(52, 53);
        assert_eq!(shown(), Some(at(52)));
    }
}
