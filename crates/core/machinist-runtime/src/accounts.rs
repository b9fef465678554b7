//! Cloud accounts: everything that calls to one cloud identity share.
//!
//! An account is a cloud identity, not a list of Secret names ([`Provider::account`]). All classes and controllers of a process
//! that use one account share its slots, its token bucket, its pause after a throttled answer, and what its last list has shown. Otherwise a class with a
//! Secret per roll would get a fresh set of limits with every roll, and the cloud would throttle all of them.
//!
//! Deliberately absent: which calls are made, and what an answer means ([`crate::asks`]).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use machinist_core::Call;
use machinist_driver::{Driver, Provider};
use machinist_instance::{AccountId, CallRate, Credential, Error, ErrorKind, Instance, Promises, ProviderId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// An account that nobody has used for this long is closed: its driver, its connections and its limits are dropped.
const CLOSED_AFTER: Duration = Duration::from_secs(3600);
/// The first pause after a throttled answer without `Retry-After`; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
/// No pause is longer, whatever `Retry-After` says: a wrong number must not stop an installation for days.
const LONGEST_PAUSE: Duration = machinist_core::LONGEST_RETRY_AFTER;

/// The accounts that a process has open.
#[derive(Default)]
pub struct Accounts {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    accounts: BTreeMap<AccountId, Arc<Account>>,
    /// Drivers by the Secrets that opened them, so that no pass reads a credential which was read before.
    opened: BTreeMap<String, Known>,
}

/// A driver that Secrets have opened.
struct Known {
    /// The version of the Secrets.
    version: u64,
    opened: Opened,
    /// When an object of these Secrets was last decided about.
    last_used: Instant,
}

/// A driver, and the account whose limits its calls share.
#[derive(Clone)]
pub struct Opened {
    /// The driver, for calls with this credential.
    pub driver: Arc<dyn Driver>,
    /// The limits that calls with this credential share with all others of the account.
    pub account: Arc<Account>,
}

impl Opened {
    /// What the account's answers prove.
    pub fn promises(&self) -> Promises {
        self.driver.promises()
    }

    /// The account's name: a hash, which tells nothing of the credential.
    pub fn account(&self) -> &AccountId {
        &self.account.id
    }

    /// Until when no call may begin, if the cloud asked for patience.
    pub fn paused_until(&self) -> Option<Instant> {
        self.account.paused_until()
    }
}

/// The limits of one account.
pub struct Account {
    id: AccountId,
    /// Calls in flight at once.
    slots: Arc<Semaphore>,
    /// Held by the call that is next: calls begin in the order in which they were asked for.
    turn: tokio::sync::Mutex<()>,
    /// Held by the one look that waits for its turn. The other looks wait behind it, so that a call which changes something waits
    /// for one of them at most: a permit to delete would expire behind hundreds.
    look: tokio::sync::Mutex<()>,
    pace: Mutex<Pace>,
    sightings: Mutex<Option<Arc<Sightings>>>,
}

/// What a list of an account has shown, and when: one answer for all objects and contracts of a process. It may be old, so it is a hint
/// and never evidence.
#[derive(Debug)]
pub struct Sightings {
    /// When the list began.
    pub started: Timestamp,
    /// When it was answered.
    pub ended: Timestamp,
    instances: BTreeMap<ProviderId, Instance>,
}

impl Sightings {
    /// What a list has shown.
    pub fn new(started: Timestamp, ended: Timestamp, instances: Vec<Instance>) -> Self {
        let instances = instances.into_iter().map(|instance| (instance.id.clone(), instance)).collect();
        Self { started, ended, instances }
    }

    /// The instance of that id, as the cloud spells it.
    pub fn of(&self, id: &ProviderId) -> Option<&Instance> {
        self.instances.get(id)
    }
}

/// When the next call may begin.
struct Pace {
    bucket: Option<Bucket>,
    paused_until: Option<Instant>,
    /// Throttled answers in a row.
    throttled: u32,
    last_used: Instant,
}

impl Accounts {
    /// The driver that these Secrets opened before, at that version of them.
    pub fn opened(&self, secrets: &str, version: u64) -> Option<Opened> {
        let mut state = self.lock();
        let known = state.opened.get_mut(secrets).filter(|known| known.version == version)?;
        known.last_used = Instant::now();
        Some(known.opened.clone())
    }

    /// Opens the account of a credential. Another credential of an account that is open shares its limits.
    ///
    /// # Errors
    /// When the provider cannot use the credential.
    pub fn open(
        &self,
        provider: &dyn Provider,
        calls_at_once: usize,
        secrets: &str,
        version: u64,
        credential: &Credential,
    ) -> Result<Opened, Error> {
        let id = provider.account(credential);
        let driver = provider.open(&id, credential)?;
        let rate = driver.promises().rate;
        let account = self.limits(id, calls_at_once, rate);
        let opened = Opened { driver, account };
        let known = Known { version, opened: opened.clone(), last_used: Instant::now() };
        self.lock().opened.insert(secrets.to_owned(), known);
        Ok(opened)
    }

    /// The limits of an account, for calls that no driver makes.
    pub fn limits(&self, id: AccountId, calls_at_once: usize, rate: Option<CallRate>) -> Arc<Account> {
        let new = || Arc::new(Account::new(id.clone(), calls_at_once, rate));
        let account = self.lock().accounts.entry(id.clone()).or_insert_with(new).clone();
        account.pace().last_used = Instant::now();
        account
    }

    /// Closes the accounts that no call has used for an hour, and the drivers of Secrets that no object has used for as long: a
    /// class with a Secret per roll leaves one behind with each roll.
    pub(crate) fn close_unused(&self) {
        let mut state = self.lock();
        let now = Instant::now();
        state.accounts.retain(|_, account| !account.is_unused(now));
        let State { accounts, opened } = &mut *state;
        opened.retain(|_, known| {
            now < known.last_used + CLOSED_AFTER && accounts.contains_key(&known.opened.account.id)
        });
    }

    /// Forgets what lists have shown: after a step of the wall clock their moments compare with nothing.
    pub(crate) fn forget_moments(&self) {
        for account in self.lock().accounts.values() {
            *account.last_sightings() = None;
        }
    }

    /// How many accounts are open, and how many drivers.
    pub(crate) fn len(&self) -> (usize, usize) {
        let state = self.lock();
        (state.accounts.len(), state.opened.len())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Account {
    fn new(id: AccountId, calls_at_once: usize, rate: Option<CallRate>) -> Self {
        let pace = Pace {
            bucket: rate.map(Bucket::full),
            paused_until: None,
            throttled: 0,
            last_used: Instant::now(),
        };
        let slots = Arc::new(Semaphore::new(calls_at_once));
        let (turn, look) = Default::default();
        Self { id, slots, turn, look, pace: Mutex::new(pace), sightings: Mutex::default() }
    }

    /// The account's name: a hash, which tells nothing of the credential.
    pub fn id(&self) -> &AccountId {
        &self.id
    }

    /// What the last list of the account has shown, if there was one.
    pub fn sightings(&self) -> Option<Arc<Sightings>> {
        self.last_sightings().clone()
    }

    /// Shares what a list has shown. One that began earlier than the last changes nothing, and so does one during which the clock went
    /// back.
    pub fn share(&self, sightings: Sightings) {
        let mut last = self.last_sightings();
        let is_newer = last.as_ref().is_none_or(|last| last.started < sightings.started);
        if is_newer && sightings.started <= sightings.ended {
            *last = Some(Arc::new(sightings));
        }
    }

    /// Until when no call may begin, if the cloud asked for patience.
    pub fn paused_until(&self) -> Option<Instant> {
        self.pace().paused_until.filter(|until| Instant::now() < *until)
    }

    /// Waits for a slot and a token; calls that change something go before looks, and all but one of the looks give way. `may_begin` is asked once the call is next and again when its token is there; a call that may
    /// not begin takes no token, so that calls whose permit has expired do not use up the rate of those behind them.
    ///
    /// # Errors
    /// What `may_begin` says.
    pub(crate) async fn admit<E>(
        &self,
        call: Call,
        may_begin: impl Fn() -> Result<(), E>,
    ) -> Result<OwnedSemaphorePermit, E> {
        let _look = if call.changes() { None } else { Some(self.look.lock().await) };
        let _turn = self.turn.lock().await;
        let slot =
            self.slots.clone().acquire_owned().await.expect("the slots of an account are never closed");
        may_begin()?;
        tokio::time::sleep_until(self.next_token()).await;
        may_begin()?;
        self.take_token();
        Ok(slot)
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

    /// Takes in how a call ended: a throttled answer pauses every call of the account.
    pub(crate) fn note_end(&self, error: Option<&Error>) {
        let now = Instant::now();
        let mut pace = self.pace();
        pace.last_used = now;
        match error.map(|error| error.kind) {
            Some(ErrorKind::Throttled { retry_after }) => {
                let doubled = FIRST_PAUSE * 2u32.pow(pace.throttled.min(10));
                let pause = retry_after.unwrap_or(doubled).clamp(Duration::from_secs(1), LONGEST_PAUSE);
                // Calls that began together are throttled together: that is one pause, not several in a row.
                if pace.paused_until.is_none_or(|until| until <= now) {
                    pace.throttled = pace.throttled.saturating_add(1);
                }
                pace.paused_until = pace.paused_until.max(Some(now + pause));
            }
            None => pace.throttled = 0,
            Some(_) => {}
        }
    }

    fn is_unused(&self, now: Instant) -> bool {
        // A permit that is out holds a clone of the slots.
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

/// A token bucket, kept as the moment at which it will be full again.
#[derive(Debug)]
struct Bucket {
    /// The time in which one token comes back.
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

    /// When the next token is there.
    fn next(&self, now: Instant) -> Instant {
        let after = self.full_at.max(now) + self.every;
        after.checked_sub(self.depth).map_or(now, |at| at.max(now))
    }

    fn take(&mut self, now: Instant) {
        self.full_at = self.full_at.max(now) + self.every;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(rate: Option<CallRate>) -> Account {
        Account::new(AccountId::of([b"a".as_slice()]), 1, rate)
    }

    #[tokio::test(start_paused = true)]
    async fn a_bucket_admits_its_burst_then_its_rate() {
        let account = account(Some(CallRate { per_hour: 3600, burst: 3 }));
        let begun = async |count: u32| {
            let start = Instant::now();
            let mut waits = Vec::new();
            for _ in 0..count {
                drop(account.admit(Call::FIND, || Ok::<(), ()>(())).await);
                waits.push(start.elapsed().as_secs());
            }
            waits
        };
        assert_eq!(begun(6).await, [0, 0, 0, 1, 2, 3]);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(begun(4).await, [0, 0, 0, 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_changes_something_goes_before_looks_and_does_not_shut_them_out() {
        let account = account(Some(CallRate { per_hour: 3600, burst: 1 }));
        let begun = Mutex::new(Vec::new());
        let call = async |name: &'static str, call: Call| {
            drop(account.admit(call, || Ok::<(), ()>(())).await);
            begun.lock().expect("no test panics with it").push(name);
        };
        let looks = || call("look", Call::FIND);
        let changes = || call("change", Call::DELETE);
        tokio::join!(looks(), looks(), looks(), changes(), changes(), changes());
        let begun = begun.into_inner().expect("no test panics with it");
        // The second look was next already when the first change came.
        assert_eq!(begun, ["look", "look", "change", "change", "change", "look"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_may_not_begin_takes_no_token() {
        let account = account(Some(CallRate { per_hour: 3600, burst: 1 }));
        for _ in 0..100 {
            assert_eq!(account.admit(Call::DELETE, || Err("expired")).await.err(), Some("expired"));
        }
        let start = Instant::now();
        assert!(account.admit(Call::FIND, || Ok::<(), ()>(())).await.is_ok());
        assert_eq!(start.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_throttled_answer_pauses_and_the_pause_is_capped() {
        let account = account(None);
        let throttled = |seconds: Option<u64>| {
            let retry_after = seconds.map(Duration::from_secs);
            Error::new(ErrorKind::Throttled { retry_after }, "slow down")
        };
        let left = || account.paused_until().map(|until| (until - Instant::now()).as_secs());
        account.note_end(Some(&throttled(Some(60))));
        assert_eq!(left(), Some(60));
        account.note_end(Some(&throttled(Some(10))));
        assert_eq!(left(), Some(60), "the longer of two pauses holds");
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(left(), None);
        account.note_end(Some(&throttled(Some(1_000_000))));
        assert_eq!(left(), Some(LONGEST_PAUSE.as_secs()));
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_without_retry_after_double_until_a_success() {
        let account = account(None);
        let throttled = Error::new(ErrorKind::Throttled { retry_after: None }, "slow down");
        let mut pauses = Vec::new();
        for _ in 0..3 {
            account.note_end(Some(&throttled));
            let until = account.paused_until().expect("it is paused");
            pauses.push((until - Instant::now()).as_secs());
            tokio::time::advance(until - Instant::now()).await;
        }
        assert_eq!(pauses, [5, 10, 20]);
        account.note_end(None);
        account.note_end(Some(&throttled));
        assert_eq!((account.paused_until().expect("paused") - Instant::now()).as_secs(), 5);
    }

    /// Otherwise a clock that went back would let every later list pass for an older one.
    #[tokio::test(start_paused = true)]
    async fn what_a_list_has_shown_is_forgotten_when_the_clock_steps() {
        let at = |second| Timestamp::from_second(second).expect("a moment");
        let accounts = Accounts::default();
        let account = accounts.limits(AccountId::of([b"a".as_slice()]), 1, None);
        let share = |started, ended| account.share(Sightings::new(at(started), at(ended), Vec::new()));
        let shown = || account.sightings().map(|sightings| sightings.started);
        share(100, 101);
        share(50, 51);
        assert_eq!(shown(), Some(at(100)), "the later one stays");
        accounts.forget_moments();
        assert_eq!(shown(), None);
        share(70, 51);
        assert_eq!(shown(), None, "the clock went back meanwhile");
        share(52, 53);
        assert_eq!(shown(), Some(at(52)));
    }
}
