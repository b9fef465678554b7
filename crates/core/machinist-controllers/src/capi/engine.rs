//! Opens the engine, and starts its calls.
//!
//! A call is started and not awaited ([`machinist_runtime::Ask`]). Its answer goes to the memory
//! and wakes the key.

use std::sync::Arc;

use machinist_core::{Answered, Call};
use machinist_driver::{Balancers, Bootstrap, Driver};
use machinist_instance::{Credential, Error, ErrorKind, Place};
use machinist_kube::ObjectKey;
use machinist_runtime::{Ask, Fed, Opened, Remember, StillWanted, Stop};

use super::contract::{Capi, Runtime};
use super::key::Key;
use super::seen::{Memory, Seen};

/// Name under which the accounts remember the engine.
const ENGINE: &str = "engine";

/// Opens the engine. The socket of an engine needs no credential.
pub(super) fn open(runtime: &Runtime) -> Result<Opened, Error> {
    let Some(docker) = runtime.tools.docker() else {
        return Err(Error::new(ErrorKind::Denied, "this process has no engine"));
    };
    let (at_once, nothing) = (docker.calls_at_once, Credential::default());
    runtime.accounts.open_once(&docker.provider, at_once, ENGINE, 0, (&nothing, &Place::WHOLE))
}

/// The object that a call is about, and when the call is made.
pub(super) struct About<F> {
    /// Namespace and name of the object.
    pub id: ObjectKey,
    /// The UID of the object.
    pub uid: String,
    /// The key that the answer wakes.
    pub key: Key,
    pub call: Call,
    /// For a call that creates something: how the memory notes that it begins. The watch of the
    /// object must be fresh then.
    pub creates: Option<Creation>,
    /// The last moment at which the call may begin.
    pub begins_by: Option<jiff::Timestamp>,
    /// Whether the object needs the call.
    pub is_wanted: fn(&F) -> bool,
    /// Whether the object or its Cluster is paused.
    pub is_paused: fn(&Seen, &F) -> bool,
}

/// A call that creates something.
pub(super) struct Creation {
    /// Why the call is not made while the watch is silent.
    pub silent: &'static str,
    /// Notes for an object, by its UID, that the call begins.
    pub note: fn(&mut Memory, String),
}

/// Starts a call of the engine. `take` stores the answer for the UID of the object.
pub(super) fn start<F: Fed<Capi>, T: Send + 'static, M>(
    runtime: &Arc<Runtime>,
    about: About<F>,
    made: impl FnOnce(Arc<dyn Driver>) -> M,
    take: impl FnOnce(&mut Memory, String, Answered<T>) + Send + 'static,
) -> Result<(), Stop>
where
    M: Future<Output = Result<T, Error>> + Send + 'static,
{
    let About { id, uid, key, call, creates, begins_by, is_wanted, is_paused } = about;
    if let Some(creation) = &creates {
        runtime.require_fresh::<F>(&key, creation.silent)?;
    }
    let still_wanted: StillWanted<Capi> = {
        let (id, uid) = (id.clone(), uid.clone());
        Box::new(move |seen: &mut Seen| {
            // While the call waited for its slot, the object or its Cluster may have been paused,
            // and its watch may have become silent.
            let is_seen = creates.is_none() || F::store(seen).is_fresh();
            let wanted = F::store(seen).get(&id).is_some_and(|entry| {
                is_seen && entry.uid == uid && is_wanted(&entry.facts) && !is_paused(seen, &entry.facts)
            });
            if let (true, Some(creation)) = (wanted, creates) {
                (creation.note)(&mut seen.memory, uid);
            }
            wanted
        })
    };
    let remember: Remember<Capi, T> = {
        let uid = uid.clone();
        Box::new(move |seen: &mut Seen, answered| {
            // The object may have been deleted, and memory must not grow.
            if F::store(seen).get(&id).is_some_and(|entry| entry.uid == uid) {
                take(&mut seen.memory, uid, answered);
            }
        })
    };
    let Ok(opened) = open(runtime) else { return Err(Stop::NotNow("the engine cannot be opened")) };
    let (account, bound) = (opened.account.clone(), opened.promises().call_bound);
    let made = made(opened.driver.clone());
    runtime.ask::<T>(Ask { subject: uid, key, call, account, bound, begins_by, still_wanted, remember }, made)
}

/// The calls of a driver about the bootstrap in a container.
pub(super) fn bootstrap(driver: &dyn Driver) -> Result<&dyn Bootstrap, Error> {
    driver.bootstrap().ok_or_else(|| Error::unsupported("the bootstrap of containers"))
}

/// The calls of a driver about load balancers.
pub(super) fn balancers(driver: &dyn Driver) -> Result<&dyn Balancers, Error> {
    driver.balancers().ok_or_else(|| Error::unsupported("load balancers"))
}

/// Returns the number of consecutive failures after an answer. A call that waits for work of the
/// engine has not failed.
pub(super) fn next_failures<T>(failures: u32, answer: &Result<T, Error>) -> u32 {
    match answer {
        Ok(_) => 0,
        Err(error) if error.is_in_progress() => failures,
        Err(_) => failures.saturating_add(1),
    }
}
