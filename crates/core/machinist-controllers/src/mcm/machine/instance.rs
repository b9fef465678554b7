//! Driver calls about the instance of a Machine. This is the only module that turns a permit into a
//! deletion.
//!
//! A call is started and not awaited ([`machinist_runtime::Ask`]). The store of calls in flight
//! records it, and its result wakes the Machine.

use std::sync::Arc;

use machinist_driver::Driver;
use machinist_instance::{
    Error, Instance, InstanceKey, InstanceRef, InstanceSpec, ProviderId, Scope, Sighting,
};
use machinist_plan::facts::MachineFacts;

use super::super::contract::{Mcm, Runtime};
use super::super::key::Key;
use super::super::object_key;
use super::super::seen::Seen;
use super::witness::Witness;
use machinist_core::{Answered, Answers, Call, Found, Permit};
use machinist_runtime::{Ask, Opened, Remember, Stop};

/// The Machine that a call is about, and the inputs of the call.
pub(crate) struct Asking<'a> {
    pub runtime: &'a Arc<Runtime>,
    pub machine: &'a MachineFacts,
    /// Fingerprint of the class and its Secrets.
    pub inputs: u64,
    /// The account, or the error of opening it. The error is remembered like a failed call.
    pub opened: Result<Opened, Error>,
}

/// Calls `ensure`, which creates the instance if it does not exist.
pub(crate) fn ensure(asking: Asking<'_>, spec: InstanceSpec) -> Result<(), Stop> {
    let witness = Witness::of(&asking);
    let call = |driver: Arc<dyn Driver>| async move {
        let before = witness.may_be_made();
        let made = driver.instances().ensure(&spec).await;
        witness.ensured(&made, before);
        made
    };
    let still_wanted = |machine: &MachineFacts| machine.has_finalizer && machine.deleting_since.is_none();
    start(asking, Call::ENSURE, None, still_wanted, call, |answers, answered: Answered<Instance>| {
        if answered.answer.is_ok() {
            answers.shown_in.clone_from(&answered.account);
        }
        answers.take_ensure(answered);
    })
}

/// Calls `find`, which looks the instance up.
pub(crate) fn find(asking: Asking<'_>, which: InstanceRef) -> Result<(), Stop> {
    let by = which.clone();
    let witness = Witness::of(&asking);
    let call = |driver: Arc<dyn Driver>| async move {
        let sighting = driver.instances().find(&which).await;
        witness.found(&sighting);
        sighting
    };
    start(
        asking,
        Call::FIND,
        None,
        |_| true,
        call,
        move |answers, answered: Answered<Sighting>| {
            answers.take_found(Found { by, answered });
        },
    )
}

/// Calls `rekey`, which replaces the key of an instance.
pub(crate) fn rekey(asking: Asking<'_>, id: ProviderId, from: InstanceKey) -> Result<(), Stop> {
    let to = asking.machine.key();
    let call = |driver: Arc<dyn Driver>| async move { driver.instances().rekey(&id, &from, &to).await };
    start(
        asking,
        Call::REKEY,
        None,
        |_| true,
        call,
        |answers, answered: Answered<()>| {
            if answered.answer.is_ok() {
                answers.shown_in.clone_from(&answered.account);
            }
            answers.rekey = Some(answered);
        },
    )
}

/// Calls `list`, unless another Machine has started a list of this account recently.
pub(crate) fn list(asking: Asking<'_>) -> Result<(), Stop> {
    let witness = Witness::of(&asking);
    if !witness.may_list() {
        return Ok(());
    }
    let call = |driver: Arc<dyn Driver>| async move {
        let started = witness.lists();
        witness.listed(started, driver.instances().list(&Scope::Visible).await)
    };
    start(asking, Call::LIST, None, |_| true, call, |_, _: Answered<()>| {})
}

/// Calls `delete` for the instance, with a permit.
pub(crate) fn delete(asking: Asking<'_>, permit: Permit) -> Result<(), Stop> {
    let valid_until = permit.valid_until();
    #[expect(clippy::disallowed_methods, reason = "the one place where a permit becomes a deletion")]
    let call = |driver: Arc<dyn Driver>| async move {
        driver.instances().delete(permit.which(), permit.owner()).await
    };
    let still_wanted = |machine: &MachineFacts| machine.deleting_since.is_some();
    start(asking, Call::DELETE, Some(valid_until), still_wanted, call, |answers, answered: Answered<()>| {
        answers.delete = Some(answered);
    })
}

fn start<T: Send + 'static, F: Future<Output = Result<T, Error>> + Send + 'static>(
    asking: Asking<'_>,
    call: Call,
    begins_by: Option<jiff::Timestamp>,
    still_wanted: fn(&MachineFacts) -> bool,
    make: impl FnOnce(Arc<dyn Driver>) -> F,
    remember: impl FnOnce(&mut Answers, Answered<T>) + Send + 'static,
) -> Result<(), Stop> {
    let Asking { runtime, machine, inputs, opened } = asking;
    let id = object_key(&machine.namespace, &machine.name);
    let (uid, key) = (machine.uid.clone(), Key::Machine(id.clone()));
    let remember: Remember<Mcm, T> = {
        let uid = uid.clone();
        Box::new(move |seen: &mut Seen, answered| {
            // The Machine may have been deleted. In this case no pass needs the result, and memory
            // must not grow.
            if seen.has_machine(&uid) {
                seen.memory.answers.entry(uid).or_default().take(inputs, answered, remember);
            }
        })
    };
    let opened = match opened {
        Ok(opened) => opened,
        Err(error) => {
            let now = runtime.now();
            let answered = Answered { started: now, ended: now, account: None, answer: Err(error) };
            remember(&mut runtime.lock().seen, answered);
            runtime.queue.wake(key);
            return Ok(());
        }
    };
    let still_wanted = {
        let uid = uid.clone();
        Box::new(move |seen: &mut Seen| {
            let wanted = seen
                .machines
                .get(&id)
                .is_some_and(|machine| machine.uid == uid && still_wanted(&machine.facts));
            if wanted && call == Call::ENSURE {
                seen.memory.answers.entry(uid).or_default().ever_ensured = true;
            }
            wanted
        })
    };
    let (account, bound) = (opened.account.clone(), opened.promises().call_bound);
    let made = make(opened.driver.clone());
    runtime.ask(Ask { subject: uid, key, call, account, bound, begins_by, still_wanted, remember }, made)
}
