//! Calls to drivers. The only module that holds one.
//!
//! A call is started and not awaited: that it is in flight is a fact, its answer goes to memory and wakes the Machine. Each
//! account has a bounded number of calls in flight; each call has the bound that the driver promised, and one that passes
//! it is ambiguous.
//!
//! A call may wait long for its slot. So what allows it is looked at when it begins, not only when it was asked for: the Lease
//! must outlast it, and leave to delete must not have expired.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use machinist_driver::Driver;
use machinist_instance::{
    AccountId, Credential, Error, ErrorKind, Instance, InstanceRef, InstanceSpec, Promises, Sighting,
};
use machinist_plan::facts::{ClassFacts, MachineFacts};
use machinist_plan::{Answered, Answers, Call, Found, Permit};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::Key;
use crate::memory::Count;
use crate::panics;
use crate::reconcile::{NOT_NOW_AGAIN, Shared, Stop, object_key};

/// The drivers of one process, one per account.
#[derive(Default)]
pub(crate) struct DriverPool {
    accounts: Mutex<BTreeMap<String, Account>>,
}

/// One account: its driver, opened with the credential of that fingerprint.
#[derive(Clone)]
pub(crate) struct Account {
    id: AccountId,
    fingerprint: u64,
    driver: Arc<dyn Driver>,
    calls: Arc<Semaphore>,
}

/// The place of a class's account in the pool: the names of the Secrets that open it.
pub(crate) fn place_of(class: &ClassFacts) -> String {
    let names: Vec<_> = class.secrets.iter().map(|(namespace, name)| format!("{namespace}/{name}")).collect();
    names.join("+")
}

impl DriverPool {
    /// The account, if it was opened with that credential before.
    pub(crate) fn opened(&self, place: &str, fingerprint: u64) -> Option<Account> {
        let accounts = self.accounts.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        accounts.get(place).filter(|open| open.fingerprint == fingerprint).cloned()
    }

    /// Opens an account, or returns it as it was opened with the same credential before.
    pub(crate) fn open(
        &self,
        shared: &Shared,
        place: &str,
        credential: &Credential,
        fingerprint: u64,
    ) -> Result<Account, Error> {
        let options = shared.machine_options();
        let mut accounts = self.accounts.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(open) = accounts.get(place)
            && open.fingerprint == fingerprint
        {
            return Ok(open.clone());
        }
        let id = options.provider.account(credential);
        let driver = options.provider.open(&id, credential)?;
        // A new credential keeps the account's limit: calls made with the old one still count.
        let calls = accounts.get(place).map(|open| open.calls.clone());
        let calls = calls.unwrap_or_else(|| Arc::new(Semaphore::new(options.calls_per_account)));
        let open = Account { id, fingerprint, driver, calls };
        accounts.insert(place.to_owned(), open.clone());
        Ok(open)
    }
}

impl Account {
    /// The cloud account that the credential opens.
    pub(crate) fn id(&self) -> &AccountId {
        &self.id
    }

    /// What its answers prove.
    pub(crate) fn promises(&self) -> Promises {
        self.driver.promises()
    }
}

/// Who asks, and from what.
pub(crate) struct Asking<'a> {
    pub shared: &'a Arc<Shared>,
    pub machine: &'a MachineFacts,
    /// A fingerprint of class and Secrets.
    pub inputs: u64,
    /// The account; or why it cannot be opened, which is remembered like a call that failed.
    pub account: Result<Account, Error>,
}

/// Asks for the instance.
pub(crate) fn ensure(asking: Asking<'_>, spec: InstanceSpec) -> Result<(), Stop> {
    let call = |driver: Arc<dyn Driver>| async move { driver.instances().ensure(&spec).await };
    start(asking, Call::Ensure, None, call, |answers, answered: Answered<Instance>| {
        answers.ensure = Some(answered);
    })
}

/// Asks where the instance is.
pub(crate) fn find(asking: Asking<'_>, which: InstanceRef) -> Result<(), Stop> {
    let by = which.clone();
    let call = |driver: Arc<dyn Driver>| async move { driver.instances().find(&which).await };
    start(asking, Call::Find, None, call, move |answers, answered: Answered<Sighting>| {
        answers.shown |= by.id.is_some() && matches!(answered.answer, Ok(Sighting::Present(_)));
        answers.find = Some(Found { by, answered });
    })
}

/// Asks for the deletion of the instance, with leave to do so.
pub(crate) fn delete(asking: Asking<'_>, permit: Permit) -> Result<(), Stop> {
    let valid_until = permit.valid_until();
    #[expect(clippy::disallowed_methods, reason = "the one place where a permit becomes a deletion")]
    let call = |driver: Arc<dyn Driver>| async move {
        driver.instances().delete(permit.which(), permit.owner()).await
    };
    start(asking, Call::Delete, Some(valid_until), call, |answers, answered: Answered<()>| {
        answers.delete = Some(answered);
    })
}

fn start<T: Send + 'static, F: Future<Output = Result<T, Error>> + Send + 'static>(
    asking: Asking<'_>,
    call: Call,
    begins_by: Option<Timestamp>,
    make: impl FnOnce(Arc<dyn Driver>) -> F,
    remember: impl FnOnce(&mut Answers, Answered<T>) + Send + 'static,
) -> Result<(), Stop> {
    let Asking { shared, machine, inputs, account } = asking;
    let (uid, key) = (machine.uid.clone(), Key::Machine(object_key(&machine.namespace, &machine.name)));
    let account = match account {
        Ok(account) => account,
        Err(error) => {
            let now = shared.now();
            let mut world = shared.world.lock();
            if world.has_machine(&uid) {
                let answers = world.memory.answers.entry(uid).or_default();
                answers.take(inputs, Answered { started: now, ended: now, answer: Err(error) }, remember);
            }
            drop(world);
            shared.queue.wake(key);
            return Ok(());
        }
    };
    let bound = account.promises().call_bound;
    shared.may_begin(bound, begins_by)?;
    let started = shared.now();
    {
        let mut world = shared.world.lock();
        if !world.has_machine(&uid) {
            // Its Machine went after the pass began; nobody would forget the answer.
            return Ok(());
        }
        let answers = world.memory.answers.entry(uid.clone()).or_default();
        if let Some((other, _)) = answers.in_flight {
            tracing::debug!(machine = machine.name, %other, "A call is in flight already");
            return Ok(());
        }
        answers.in_flight = Some((call, started));
        answers.ever_ensured |= call == Call::Ensure;
    }
    let made = make(account.driver.clone());
    let steps = shared.clock_steps.count();
    let task = {
        let shared = shared.clone();
        async move {
            let _slot = account.calls.acquire_owned().await;
            let may_begin = shared.may_begin(bound, begins_by);
            if may_begin.is_err() || shared.clock_steps.count() != steps {
                tracing::info!(machine = %key, %call, reason = ?may_begin.err(), "Its turn came too late");
                return shared.forgo(&uid, key);
            }
            let began = shared.now();
            let answer = match panics::catch_async(tokio::time::timeout(bound, made)).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(_)) => {
                    let message = format!("{call} was not answered within {} s", bound.as_secs());
                    Err(Error::new(ErrorKind::Ambiguous, message))
                }
                // What it had sent may take effect: like any other failure, it is settled by repeating the call.
                Err(panicked) => {
                    tracing::error!(machine = %key, %call, at = panicked.at, "The driver panicked");
                    shared.world.lock().memory.count(Count::Panicked, "driver");
                    let message =
                        format!("the driver has a bug that shows here: it panicked at {}", panicked.at);
                    Err(Error::new(ErrorKind::Bug, message))
                }
            };
            let answered = Answered { started: began, ended: shared.now(), answer };
            // The Machine may be gone by now; then nobody needs the answer, and nothing may grow.
            if let Some(answers) = shared.world.lock().memory.answers.get_mut(&uid) {
                answers.in_flight = None;
                // What was learned across a step of the clock has no moment.
                if shared.clock_steps.count() == steps {
                    answers.take(inputs, answered, remember);
                }
            }
            shared.queue.wake(key);
        }
    };
    shared.spawn(task);
    Ok(())
}

impl Shared {
    /// Whether a call that takes effect within `bound` may begin now.
    fn may_begin(&self, bound: Duration, begins_by: Option<Timestamp>) -> Result<(), Stop> {
        let leads = self.leadership.as_ref().is_none_or(|leadership| bound < leadership.remaining());
        if !leads {
            return Err(Stop::NotNow("the lease ends before this call would"));
        }
        if begins_by.is_some_and(|last| last < self.now()) {
            return Err(Stop::NotNow("the permit to delete has expired"));
        }
        Ok(())
    }

    /// A call that was asked for is not made after all: whoever asked decides again.
    fn forgo(&self, uid: &str, key: Key) {
        let mut world = self.world.lock();
        if let Some(answers) = world.memory.answers.get_mut(uid) {
            answers.in_flight = None;
        }
        // The same facts may lead to the same call: that is no repetition, as it was not made.
        world.memory.last_pass.remove(&key);
        drop(world);
        self.queue.wake_at(key, Instant::now() + NOT_NOW_AGAIN);
    }
}
