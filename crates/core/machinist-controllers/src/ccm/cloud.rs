//! Opens the account of the cloud, and starts its calls.
//!
//! A call is started and not awaited ([`machinist_runtime::Ask`]). Its answer goes to the memory
//! and wakes the key.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use machinist_core::{Answered, Call};
use machinist_driver::Driver;
use machinist_instance::{AccountId, Error, ErrorKind, InstanceRef, NodeName, Place, Sighting};
use machinist_plan::ccm::account::{AccountFacts, BalancerProof, Proof};
use machinist_plan::ccm::facts::CloudNodeFacts;
use machinist_runtime::{Ask, Opened, Remember, Stop};

use super::account::ProofRecorder;
use super::account_proof;
use super::contract::{Ccm, Runtime, World};
use super::key::Key;
use super::seen::{BALANCED, NOT_READY, Seen, UNINITIALIZED, YES};

/// Subject of the list of all instances.
pub(super) const LIST_SUBJECT: &str = "list";
/// Subject of the test request during an outage.
const PROBE_SUBJECT: &str = "probe";
/// A test request that takes longer has failed, so that the next one can follow.
const PROBED_WITHIN: Duration = Duration::from_millis(3500);
/// Name under which the accounts remember the driver.
const CREDENTIAL: &str = "cloud-controller-manager";
/// The cloud returns at most this many instances per page.
const PAGE: usize = 50;
/// The longest time of a call that changes a load balancer or a route. The call consists of several
/// requests.
pub(super) const LONG_CALL: Duration = Duration::from_secs(60);

/// Opens the account of today's credential.
pub(super) fn open(runtime: &Runtime, seen: &Seen) -> Result<Opened, Error> {
    let Some(current) = &seen.credential else {
        return Err(Error::new(ErrorKind::Denied, "the credential of the cloud was not read yet"));
    };
    let options = &runtime.tools.options;
    runtime.accounts.open_once(
        &options.provider,
        options.calls_at_once,
        CREDENTIAL,
        current.version,
        (&current.credential, &Place::WHOLE),
    )
}

/// Returns the state of the account for planners.
pub(super) fn account(runtime: &Runtime, world: &World, opened: Option<&Opened>) -> AccountFacts {
    let memory = &world.seen.memory.account;
    let listed = opened.and_then(|opened| opened.account.sightings());
    let pages = listed.as_ref().map_or(1, |listed| listed.len().div_ceil(PAGE).max(1));
    let provider = &*runtime.tools.options.provider;
    let facts = opened
        .map(|opened| account_proof::proof_facts(&world.seen, opened.account(), provider, listed.is_some()));
    let balancers = opened.filter(|_| facts.is_some_and(|facts| facts.decides_nothing()));
    let is_untried = balancers.is_some_and(|opened| !has_answered(&world.seen, opened));
    AccountFacts {
        id: opened.map(|opened| opened.account().clone()),
        proof: Proof::of(facts),
        balancers: balancers
            .map_or(BalancerProof::Given, |opened| account_proof::balancers(&world.seen, opened.account())),
        is_untried,
        paused_until: opened.and_then(Opened::paused_until).map(|until| runtime.wall(until)),
        is_pause_assumed: opened.is_some_and(|opened| opened.account.is_pause_assumed()),
        list_since: world.asks.of(LIST_SUBJECT).map(|(_, since)| since),
        list_failed: memory.list_failed.clone(),
        outage: memory.outage,
        works_since: memory.works_since,
        list_cost: u32::try_from(pages).unwrap_or(u32::MAX),
        budget: opened.and_then(|opened| opened.driver.budget()),
    }
}

/// Whether a list of the account has ended well, so that the credential is known to work.
fn has_answered(seen: &Seen, opened: &Opened) -> bool {
    let today = Some(opened.account());
    opened.account.sightings().is_some()
        || seen.memory.account.checked.as_ref().map(|(account, _)| account) == today
        || seen.memory.drift.listed.as_ref().is_some_and(|listed| listed.account.as_ref() == today)
}

/// Reads an object from the API server and stores it.
pub(super) type Confirm = BoxFuture<'static, Result<(), kube::Error>>;

/// One call to start.
pub(super) struct Start<T> {
    /// The identity of the object that the call is about. At most one call per subject is in
    /// flight.
    pub subject: String,
    /// The key that the answer wakes.
    pub key: Key,
    pub call: Call,
    /// The account for which a change was decided. In another one, the call would change what
    /// other clusters own. Absent for a call that only reads.
    pub decided_for: Option<AccountId>,
    /// The longest time that the call may take, if it is longer than a call for one instance.
    pub bound: Duration,
    /// The last moment at which the call may begin.
    pub begins_by: Option<Timestamp>,
    /// Reads the object from the API server, before a call that changes something begins. Absent
    /// for a call that only reads.
    pub confirm: Option<Confirm>,
    /// Whether the object still needs the call when the call gets its slot.
    pub still_wanted: Box<dyn FnOnce(&Seen) -> bool + Send>,
    /// Stores the answer.
    pub remember: Remember<Ccm, T>,
}

/// Starts a call. Without an account, the error is remembered like a failed call.
pub(super) fn start<T: Send + 'static, F>(
    runtime: &Arc<Runtime>,
    start: Start<T>,
    made: impl FnOnce(Arc<dyn Driver>) -> F,
) -> Result<(), Stop>
where
    F: Future<Output = Result<T, Error>> + Send + 'static,
{
    let Start { subject, key, call, decided_for, bound, begins_by, confirm, still_wanted, remember } = start;
    let (opened, version) = {
        let world = runtime.lock();
        (open(runtime, &world.seen), world.seen.credential.as_ref().map(|credential| credential.version))
    };
    let today = opened.as_ref().ok().map(Opened::account);
    if decided_for.as_ref().is_some_and(|decided_for| today != Some(decided_for)) {
        return Err(Stop::NotNow("the credential was replaced after the decision"));
    }
    let waker = runtime.clone();
    let remember: Remember<Ccm, T> = Box::new(move |seen: &mut Seen, answered: Answered<T>| {
        let has_recovered = seen.memory.account.note(&answered);
        remember(seen, answered);
        if has_recovered {
            // Calls that failed during an outage are repeated at once.
            waiting(seen).into_iter().for_each(|key| waker.wake(key));
        } else if seen.memory.account.outage.is_some() {
            // The list of the account decides about test requests.
            waker.wake(Key::Account);
        }
    });
    let opened = match opened {
        Ok(opened) => opened,
        Err(error) => {
            runtime.remember_failure(key, remember, error);
            return Ok(());
        }
    };
    let (account, bound) = (opened.account.clone(), opened.promises().call_bound.max(bound));
    let made = made(opened.driver.clone());
    // A call that waited for its slot must not begin with a credential that was replaced meanwhile.
    let still_wanted = Box::new(move |seen: &mut Seen| {
        seen.credential.as_ref().map(|credential| credential.version) == version && still_wanted(seen)
    });
    let ask = Ask { subject, key, call, account, bound, begins_by, still_wanted, remember };
    match confirm {
        Some(confirm) => runtime.ask_confirmed::<T>(ask, confirm, made),
        None => runtime.ask::<T>(ask, made),
    }
}

/// Returns the keys that wait for the cloud.
pub(super) fn waiting(seen: &Seen) -> Vec<Key> {
    let node =
        |index: &'static str| seen.nodes.by_index(index, YES).map(|(key, _)| Key::Node(key.name.clone()));
    let services = seen.services.by_index(BALANCED, YES);
    let services = services.map(|(key, _)| Key::Service(key.clone()));
    let shared = [Key::Account, Key::NodeRemoval, Key::Routes, Key::BalancerDrift];
    node(UNINITIALIZED).chain(node(NOT_READY)).chain(services).chain(shared).collect()
}

/// Starts a lookup whose answer only shows whether the cloud answers again.
pub(super) fn probe(runtime: &Arc<Runtime>) -> Result<(), Stop> {
    let which = {
        let mut world = runtime.lock();
        let (now, provider) = (runtime.now(), &runtime.tools.options.provider);
        if let Some(outage) = &mut world.seen.memory.account.outage {
            outage.probed = Some(now);
        }
        let id = |node: &CloudNodeFacts| provider.parse_id(node.provider_id()?).ours().cloned();
        let known = world.seen.nodes.iter().find_map(|(_, node)| id(&node.facts));
        // Without a known instance, the name of any Node serves as well.
        let name = || world.seen.nodes.iter().find_map(|(key, _)| NodeName::new(&key.name));
        match known {
            Some(id) => Some(InstanceRef { id: Some(id), ..InstanceRef::default() }),
            None => name().map(|name| InstanceRef { name: Some(name), ..InstanceRef::default() }),
        }
    };
    let Some(which) = which else { return list(runtime, Key::Account) };
    let start_probe = Start {
        subject: PROBE_SUBJECT.to_owned(),
        key: Key::Account,
        call: Call::PROBE,
        decided_for: None,
        bound: Duration::ZERO,
        begins_by: None,
        confirm: None,
        still_wanted: Box::new(|_: &Seen| true),
        // The content of the answer does not matter.
        remember: Box::new(|_: &mut Seen, _: Answered<Sighting>| {}),
    };
    start(runtime, start_probe, |driver| async move {
        match tokio::time::timeout(PROBED_WITHIN, driver.instances().find(&which)).await {
            Ok(answer) => answer,
            Err(_) => Err(Error::new(ErrorKind::Unavailable, "the cloud does not answer a test request")),
        }
    })
}

/// Starts a list of all instances, unless one is in flight. All Nodes share its result.
pub(super) fn list(runtime: &Arc<Runtime>, key: Key) -> Result<(), Stop> {
    let account = {
        let world = runtime.lock();
        if world.asks.of(LIST_SUBJECT).is_some() {
            return Ok(());
        }
        open(runtime, &world.seen).ok().map(|opened| opened.account)
    };
    let recorder = ProofRecorder { runtime: runtime.clone(), account };
    let remember = {
        let recorder = recorder.clone();
        Box::new(move |seen: &mut Seen, answered| recorder.ended(seen, answered))
    };
    let start_list = Start {
        subject: LIST_SUBJECT.to_owned(),
        key,
        call: Call::LIST,
        decided_for: None,
        bound: Duration::ZERO,
        begins_by: None,
        confirm: None,
        still_wanted: Box::new(|_: &Seen| true),
        remember,
    };
    start(runtime, start_list, |driver| async move {
        recorder.begins();
        driver.instances().list(&machinist_instance::Scope::Visible).await
    })
}
