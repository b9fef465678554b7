//! Opens the engine, and starts its calls.
//!
//! A call is started and not awaited ([`machinist_runtime::Ask`]). Its answer goes to the memory
//! and wakes the key.

use std::sync::Arc;

use machinist_core::Call;
use machinist_driver::Driver;
use machinist_instance::{Credential, Error, ErrorKind};
use machinist_runtime::{Ask, Opened, Remember, StillWanted, Stop};

use super::contract::{Capi, Runtime};
use super::key::Key;

/// Name under which the accounts remember the engine.
const ENGINE: &str = "engine";
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

/// Returns the number of consecutive failures after an answer. A call that waits for work of the
/// engine has not failed.
pub(super) fn next_failures<T>(failures: u32, answer: &Result<T, Error>) -> u32 {
    match answer {
        Ok(_) => 0,
        Err(error) if error.is_in_progress() => failures,
        Err(_) => failures.saturating_add(1),
    }
}
