//! Functions of the cloud for its operator and for observers: tests, scenarios and the simulated
//! machines.

use std::collections::BTreeMap;
use std::sync::Arc;

use machinist_instance::{ProviderId, UserData};
use tokio::sync::{mpsc, watch};

use crate::effect::{self, Effect, Facts};
use crate::{
    CallRecord, Clock, Cloud, CloudRefusal, Disk, Faults, Foreigner, Ledger, LedgerCommit, LedgerEntry,
    Operation, Schedule, Settings,
};

/// The state of all instances at one moment, and every commit after it.
#[derive(Debug)]
pub struct Following {
    /// Every instance ever made until then.
    pub entries: Vec<LedgerEntry>,
    /// Every later commit, in order.
    pub commits: mpsc::UnboundedReceiver<Arc<LedgerCommit>>,
}

impl Cloud {
    /// The clock that the cloud uses.
    pub fn clock(&self) -> &Clock {
        &self.0.clock
    }

    /// The fault rules.
    pub fn faults(&self) -> &Faults {
        &self.0.faults
    }

    /// Sets the schedule that decides faults call by call, and replaces any earlier one.
    pub fn set_schedule(&self, schedule: Arc<dyn Schedule>) {
        self.lock().schedule = Some(schedule);
    }

    /// The current settings.
    pub fn settings(&self) -> Settings {
        self.lock().settings.clone()
    }

    /// Changes the settings, from the next call on.
    pub fn configure(&self, change: impl FnOnce(&mut Settings)) {
        change(&mut self.lock().settings);
    }

    /// The error that prevents writes to the ledger, while it lasts. Until then every call that
    /// would change something is refused, and the next call retries the write. A new subscriber is
    /// also notified of an error that began earlier.
    pub fn ledger_trouble(&self) -> watch::Receiver<Option<Arc<str>>> {
        let mut trouble = self.lock().trouble.subscribe();
        let has_begun = trouble.borrow().is_some();
        if has_begun {
            trouble.mark_changed();
        }
        trouble
    }

    /// The ledger now: every instance that exists or ever existed.
    pub fn ledger(&self) -> Ledger {
        let mut books = self.lock();
        let at = self.0.clock.now();
        books.commit_ended(at);
        Ledger { at, entries: books.state.ever().cloned().collect() }
    }

    /// The ledger's entry for one instance.
    pub fn entry(&self, id: &ProviderId) -> Option<LedgerEntry> {
        self.lock().state.by_id(id).cloned()
    }

    /// Number of instances that exist: [`Ledger::alive`] counted, without a copy of the ledger.
    pub fn alive(&self) -> usize {
        let mut books = self.lock();
        books.commit_ended(self.0.clock.now());
        books.state.existing().count()
    }

    /// The calls so far, oldest first.
    pub fn calls(&self) -> Vec<CallRecord> {
        self.lock().calls.records()
    }

    /// Number of calls by operation, including calls that are no longer remembered one by one.
    pub fn call_counts(&self) -> BTreeMap<Operation, u64> {
        self.lock().calls.counts()
    }

    /// All entries, and every commit after them.
    pub fn follow(&self) -> Following {
        let mut books = self.lock();
        let (follower, commits) = mpsc::unbounded_channel();
        books.followers.push(follower);
        Following { entries: books.state.ever().cloned().collect(), commits }
    }

    /// Calls the observer at every commit, before the cloud answers the call. The observer runs
    /// under the cloud's lock, so it must not call the cloud.
    pub fn observe(&self, observer: impl Fn(&LedgerCommit) + Send + 'static) {
        self.lock().observers.push(Box::new(observer));
    }

    /// Adds an instance that others made.
    ///
    /// # Errors
    /// When its id or key is already used, or the ledger cannot be written.
    pub fn load(&self, foreigner: &Foreigner) -> Result<LedgerEntry, CloudRefusal> {
        let effect = self.operate(|facts| effect::load(facts, foreigner), foreigner.user_data.clone())?;
        let id = effect.about.expect("loading makes an instance");
        Ok(self.entry(&id).expect("it was just made"))
    }

    /// Kills an instance at once, without a delete request. It does not come back.
    ///
    /// # Errors
    /// When no instance has that id, or the ledger cannot be written.
    pub fn kill(&self, id: &ProviderId) -> Result<(), CloudRefusal> {
        let gone = |facts: Facts<'_>| {
            let at = facts.now;
            effect::change(facts, id, |_| Ok(Some(LedgerCommit::Gone { id: id.clone(), at })))
        };
        self.operate(gone, UserData::default()).map(drop)
    }

    /// Powers an instance off; the instance remains.
    ///
    /// # Errors
    /// When no instance has that id, or the ledger cannot be written.
    pub fn power_off(&self, id: &ProviderId) -> Result<(), CloudRefusal> {
        let off = |facts: Facts<'_>| effect::stop(facts, id);
        self.operate(off, UserData::default()).map(drop)
    }

    /// Powers an instance on again.
    ///
    /// # Errors
    /// When no instance has that id, or the ledger cannot be written.
    pub fn power_on(&self, id: &ProviderId) -> Result<(), CloudRefusal> {
        let on = |facts: Facts<'_>| effect::start(facts, id);
        self.operate(on, UserData::default()).map(drop)
    }

    /// Commits a change that another API in front of this cloud decided. The commit must fit the
    /// ledger: a new instance has an unused id and serial number, and every other commit names an
    /// instance that exists.
    ///
    /// # Errors
    /// When the commit does not fit, or the ledger cannot be written.
    pub fn commit(&self, commit: LedgerCommit, user_data: UserData) -> Result<(), CloudRefusal> {
        let fits = |facts: Facts<'_>| effect::outside(facts, commit);
        self.operate(fits, user_data).map(drop)
    }

    /// User data of an instance, for the instance's own simulated machine only.
    pub fn user_data(&self, id: &ProviderId) -> Option<UserData> {
        self.lock().user_data.get(id).cloned()
    }

    /// The disk of an instance.
    pub fn disk(&self, id: &ProviderId) -> Disk {
        self.lock().disk(id)
    }

    /// Prints a line on the console of an instance.
    pub fn print(&self, id: &ProviderId, line: impl Into<String>) {
        let mut books = self.lock();
        if books.state.by_id(id).is_some_and(|entry| entry.deleted.is_none()) {
            books.consoles.entry(id.clone()).or_default().print(line.into());
        }
    }

    /// The last lines that an instance printed.
    pub fn console(&self, id: &ProviderId, lines: usize) -> Vec<String> {
        self.lock().consoles.get(id).map(|console| console.tail(lines)).unwrap_or_default()
    }

    fn operate(
        &self,
        decide: impl FnOnce(Facts<'_>) -> Result<Effect, CloudRefusal>,
        user_data: UserData,
    ) -> Result<Effect, CloudRefusal> {
        let mut books = self.lock();
        let now = self.0.clock.now();
        books.commit_ended(now);
        let effect = decide(books.facts(now))?;
        books.carry_out(&effect, user_data)?;
        Ok(effect)
    }
}
