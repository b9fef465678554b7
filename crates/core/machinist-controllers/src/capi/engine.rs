//! Opens the engine, and starts its calls.
//!
//! A call is started and not awaited ([`machinist_runtime::Ask`]). Its answer goes to the memory
//! and wakes the key.

use std::sync::Arc;
use std::time::Duration;

use machinist_core::{Call, Process};
use machinist_driver::Driver;
use machinist_instance::{CreateGuarantee, Credential, Error, ErrorKind, KeyTag, Promises};
use machinist_runtime::{Ask, Opened, Remember, StillWanted, Stop};

use super::contract::{Capi, Runtime};
use super::key::Key;

/// Name under which the accounts remember the engine.
const ENGINE: &str = "engine";
/// Assumed promises of an engine that cannot be opened.
const CAUTIOUS: Promises = Promises {
    visible_within: Duration::from_secs(60),
    call_bound: Duration::from_secs(80),
    calls_outlive_process: true,
    create: CreateGuarantee::FindThenCreate,
    rate: None,
    keys: KeyTag::Fixed,
};

/// Opens the engine. The socket of an engine needs no credential.
pub(super) fn open(runtime: &Runtime) -> Result<Opened, Error> {
    let Some(docker) = runtime.tools.docker() else {
        return Err(Error::new(ErrorKind::Denied, "this process has no engine"));
    };
    if let Some(opened) = runtime.accounts.opened(ENGINE, 0) {
        return Ok(opened);
    }
    let (at_once, nothing) = (docker.calls_at_once, Credential::default());
    runtime.accounts.open(&*docker.provider, at_once, ENGINE, 0, &nothing)
}

/// Returns the facts about this process.
pub(super) fn process(runtime: &Runtime, opened: Option<&Opened>) -> Process {
    Process {
        started: runtime.started().unwrap_or_else(|| runtime.now()),
        leading_since: runtime.leading_since(),
        skew: runtime.skew(),
        cloud_skew: opened.and_then(|opened| opened.driver.clock_skew()),
        promises: opened.map_or(CAUTIOUS, Opened::promises),
    }
}

/// One call to start.
pub(super) struct Start<T> {
    /// The UID of the object that the call is about.
    pub subject: String,
    /// The key that the answer wakes.
    pub key: Key,
    pub call: Call,
    /// The last moment at which the call may begin.
    pub begins_by: Option<jiff::Timestamp>,
    /// Whether the object still needs the call when the call gets its slot.
    pub still_wanted: StillWanted<Capi>,
    /// Stores the answer.
    pub remember: Remember<Capi, T>,
}

/// Starts a call of the engine.
pub(super) fn start<T: Send + 'static, F>(
    runtime: &Arc<Runtime>,
    start: Start<T>,
    made: impl FnOnce(Arc<dyn Driver>) -> F,
) -> Result<(), Stop>
where
    F: Future<Output = Result<T, Error>> + Send + 'static,
{
    let Start { subject, key, call, begins_by, still_wanted, remember } = start;
    let Ok(opened) = open(runtime) else { return Err(Stop::NotNow("the engine cannot be opened")) };
    let (account, bound) = (opened.account.clone(), opened.promises().call_bound);
    let made = made(opened.driver.clone());
    runtime.ask::<T>(Ask { subject, key, call, account, bound, begins_by, still_wanted, remember }, made)
}
