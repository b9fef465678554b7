//! Driver calls about the instance of a Machine. This is the only module that turns a permit into a
//! deletion.
//!
//! A call is started and not awaited ([`machinist_runtime::Ask`]). The store of calls in flight
//! records it, and its result wakes the Machine. `ensure` and `delete` wait in the queue of the
//! account first ([`queue`]).

use std::sync::Arc;
use std::time::Duration;

use machinist_api::Phase;
use machinist_driver::Driver;
use machinist_instance::{
    Boot, Error, ErrorKind, Instance, InstanceKey, InstanceRef, InstanceSpec, ProviderId, Scope, Sighting,
};
use machinist_plan::mcm::facts::MachineFacts;
use machinist_plan::mcm::machine::creation_failed;

use super::proof_recorder::ProofRecorder;
use crate::mcm::contract::{Mcm, Runtime};
use crate::mcm::key::Key;
use crate::mcm::reference::object_key;
use crate::mcm::seen::Seen;
use machinist_core::{Answered, Answers, Call, Deleted, Found, Permit, since};
use machinist_runtime::{Ask, Lane, Opened, QueuedCall, Remember, Stop};

/// The Machine that a call is about, and the inputs of the call.
pub(crate) struct Asking<'a> {
    pub runtime: &'a Arc<Runtime>,
    pub machine: &'a MachineFacts,
    /// The recorded id of the instance, as the provider parsed it.
    pub id: Option<ProviderId>,
    /// Fingerprint of the class and its Secrets.
    pub inputs: u64,
    /// The account, or the error of opening it. The error is remembered like a failed call.
    pub opened: Result<Opened, Error>,
}

/// Records since when the process wants to create the instance, unless an earlier call failed: then
/// the time counts from the Machine's creation.
pub(crate) fn note_wanted(runtime: &Runtime, machine: &MachineFacts) {
    if creation_failed(machine) {
        return;
    }
    let (now, mut world) = (runtime.now(), runtime.lock());
    if world.seen.has_machine(&machine.uid) {
        let answers = world.seen.memory.answers.entry(machine.uid.clone()).or_default();
        answers.wanted_since.get_or_insert(now);
    }
}

/// Lets `ensure` or `delete` wait in the queue of the account. Another call of the Machine that
/// waits there leaves the queue.
pub(crate) fn queue(asking: Asking<'_>, call: Call) -> Result<(), Stop> {
    let Asking { runtime, machine, id: recorded, inputs, opened } = asking;
    let account = match opened {
        Ok(opened) => opened.account,
        Err(error) => {
            // The error is remembered like a failed call.
            let asking = Asking { runtime, machine, id: recorded.clone(), inputs, opened: Err(error) };
            let line = Line::Lane(Lane::of(call));
            return match call {
                Call::ENSURE => start(asking, call, line, None, |_| false, not_made, Answers::take_ensure),
                _ => start(
                    asking,
                    call,
                    line,
                    None,
                    |_| false,
                    not_made,
                    |answers, answered| {
                        let deleted = Deleted { id: recorded, may_lack_key: false, answered };
                        answers.delete = Some(Box::new(deleted));
                    },
                ),
            };
        }
    };
    let id = object_key(&machine.namespace, &machine.name);
    let (uid, key) = (machine.uid.clone(), Key::Machine(id.clone()));
    let still_wanted = {
        let uid = uid.clone();
        Box::new(move |seen: &Seen| {
            let is_wanted: fn(&MachineFacts) -> bool =
                if call == Call::ENSURE { wants_instance } else { is_deleting };
            seen.machines.get(&id).is_some_and(|machine| machine.uid == uid && is_wanted(&machine.facts))
        })
    };
    let waited = {
        let uid = uid.clone();
        Box::new(move |seen: &mut Seen, waited| {
            if call == Call::ENSURE && seen.has_machine(&uid) {
                seen.memory.answers.entry(uid).or_default().waited += waited;
            }
        })
    };
    runtime.queue_call(QueuedCall { subject: uid, key, call, account, still_wanted, waited })
}

/// Whether a Machine still needs an instance.
fn wants_instance(machine: &MachineFacts) -> bool {
    let is_living = machine.has_finalizer && machine.deleting_since.is_none();
    is_living && machine.provider_id.is_none() && machine.status.phase != Phase::Failed
}

fn is_deleting(machine: &MachineFacts) -> bool {
    machine.deleting_since.is_some()
}

/// Calls `ensure`, which creates the instance if it does not exist.
pub(crate) fn ensure(asking: Asking<'_>, spec: InstanceSpec) -> Result<(), Stop> {
    let key = Key::Machine(object_key(&asking.machine.namespace, &asking.machine.name));
    asking.runtime.require_fresh::<MachineFacts>(&key, "the watch of Machines is silent")?;
    let recorder = ProofRecorder::of(&asking);
    let call = |driver: Arc<dyn Driver>| async move {
        let before = recorder.may_be_made(&spec);
        let made = driver.instances().ensure(&spec).await;
        recorder.ensured(&made, before);
        made
    };
    start(
        asking,
        Call::ENSURE,
        Line::Queue,
        None,
        wants_instance,
        call,
        |answers, answered: Answered<Instance>| {
            if answered.answer.is_ok() {
                answers.shown_in.clone_from(&answered.account);
            }
            answers.take_ensure(answered);
        },
    )
}

/// Calls `find`, which looks the instance up.
pub(crate) fn find(asking: Asking<'_>, which: InstanceRef) -> Result<(), Stop> {
    let by = which.clone();
    let recorder = ProofRecorder::of(&asking);
    let call = |driver: Arc<dyn Driver>| async move {
        let sighting = driver.instances().find(&which).await;
        recorder.found(&sighting);
        sighting
    };
    let lane = match (asking.machine.deleting_since, &by.id) {
        (Some(_), Some(_)) => Lane::Deletion,
        // No instance is known, so nothing waits for its deletion.
        (Some(_), None) => Lane::Idle,
        (None, _) => Lane::Look,
    };
    start(
        asking,
        Call::FIND,
        Line::Lane(lane),
        None,
        |_| true,
        call,
        move |answers, answered: Answered<Sighting>| {
            answers.take_found(Found { by, answered });
        },
    )
}

/// Calls `boot`, which shows how the instance boots.
pub(crate) fn observe_boot(asking: Asking<'_>, which: InstanceRef) -> Result<(), Stop> {
    let call = |driver: Arc<dyn Driver>| async move {
        match driver.bootstrap() {
            Some(bootstrap) => bootstrap.boot(&which).await,
            None => Err(Error::unsupported("boot")),
        }
    };
    let still_joins = |machine: &MachineFacts| machine.deleting_since.is_none();
    let line = Line::Lane(Lane::Look);
    start(asking, Call::BOOT, line, None, still_joins, call, |answers, answered: Answered<Boot>| {
        answers.boot = Some(Box::new(answered));
    })
}

/// Calls `initialize`, which completes an instance that the cloud has created. `done` gets the
/// duration of a call that succeeds.
pub(crate) fn initialize(
    asking: Asking<'_>,
    id: ProviderId,
    provider_spec: Arc<serde_json::Value>,
    done: impl FnOnce(Duration) + Send + 'static,
) -> Result<(), Stop> {
    let (owner, of) = (asking.machine.key(), id.clone());
    let call = |driver: Arc<dyn Driver>| async move {
        match driver.initialization() {
            Some(initialization) => initialization.initialize(&id, &owner, &provider_spec).await,
            None => Err(Error::unsupported("initialize")),
        }
    };
    let lives = |machine: &MachineFacts| machine.deleting_since.is_none();
    let line = Line::Lane(Lane::of(Call::INITIALIZE));
    start(asking, Call::INITIALIZE, line, None, lives, call, move |answers, answered: Answered<()>| {
        if answered.answer.is_ok() {
            done(since(answered.ended, answered.started));
        }
        answers.initialized = Some(Box::new((of, answered)));
    })
}

/// Calls `rekey`, which replaces the key of an instance.
pub(crate) fn rekey(asking: Asking<'_>, id: ProviderId, from: InstanceKey) -> Result<(), Stop> {
    let to = asking.machine.key();
    let call = |driver: Arc<dyn Driver>| async move { driver.instances().rekey(&id, &from, &to).await };
    start(
        asking,
        Call::REKEY,
        Line::Lane(Lane::Deletion),
        None,
        |_| true,
        call,
        |answers, answered: Answered<()>| {
            if answered.answer.is_ok() {
                answers.shown_in.clone_from(&answered.account);
            }
            answers.rekey = Some(Box::new(answered));
        },
    )
}

/// Calls `list`, unless another Machine has started a list of this account recently.
pub(crate) fn list(asking: Asking<'_>) -> Result<(), Stop> {
    let recorder = ProofRecorder::of(&asking);
    if !recorder.may_list() {
        return Ok(());
    }
    let call = |driver: Arc<dyn Driver>| async move {
        let started = recorder.lists();
        recorder.listed(started, driver.instances().list(&Scope::Visible).await)
    };
    start(asking, Call::LIST, Line::Lane(Lane::Look), None, |_| true, call, |_, _: Answered<()>| {})
}

/// Calls `delete` for the instance, with a permit.
pub(crate) fn delete(asking: Asking<'_>, permit: Permit) -> Result<(), Stop> {
    let (valid_until, id) = (permit.valid_until(), permit.which().id.clone());
    let may_lack_key = permit.which().may_lack_key;
    #[expect(clippy::disallowed_methods, reason = "the one place where a permit becomes a deletion")]
    let call = |driver: Arc<dyn Driver>| async move {
        driver.instances().delete(permit.which(), permit.owner()).await
    };
    let by = Some(valid_until);
    start(asking, Call::DELETE, Line::Queue, by, is_deleting, call, move |answers, answered: Answered<()>| {
        answers.delete = Some(Box::new(Deleted { id, may_lack_key, answered }));
    })
}

/// The call about an instance whose account could not be opened.
async fn not_made<T>(_: Arc<dyn Driver>) -> Result<T, Error> {
    Err(Error::new(ErrorKind::Bug, "no call is made"))
}

/// Where a call waits for its slot.
enum Line {
    /// In that lane of the line of the account, from now on.
    Lane(Lane),
    /// In the queue of the account, where it has waited before.
    Queue,
}

fn start<T: Send + 'static, F: Future<Output = Result<T, Error>> + Send + 'static>(
    asking: Asking<'_>,
    call: Call,
    line: Line,
    begins_by: Option<jiff::Timestamp>,
    still_wanted: fn(&MachineFacts) -> bool,
    make: impl FnOnce(Arc<dyn Driver>) -> F,
    remember: impl FnOnce(&mut Answers, Answered<T>) + Send + 'static,
) -> Result<(), Stop> {
    let Asking { runtime, machine, id: _, inputs, opened } = asking;
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
            runtime.remember_failure(key, remember, error);
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
    let ask = Ask { subject: uid, key, call, account, bound, begins_by, still_wanted, remember };
    match line {
        Line::Lane(lane) => runtime.ask_in(lane, ask, made),
        Line::Queue => runtime.ask_queued(ask, made),
    }
}
