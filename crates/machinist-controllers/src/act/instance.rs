//! Calls about the instance of a Machine. The only module that turns a permit into a deletion.
//!
//! A call is started and not awaited ([`super::asks`]): that it is in flight is a fact, and its answer wakes the Machine.

use std::sync::Arc;

use machinist_driver::Driver;
use machinist_instance::{Error, Instance, InstanceRef, InstanceSpec, Sighting};
use machinist_plan::facts::{ClassFacts, MachineFacts};
use machinist_plan::{Answered, Answers, Call, Found, Permit};

use super::accounts::Opened;
use super::asks::{Ask, Remember};
use crate::Key;
use crate::reconcile::{Shared, Stop, object_key};
use crate::world::World;

/// The Secrets of a class, as one text: what its account was opened with.
pub(crate) fn secrets_of(class: &ClassFacts) -> String {
    let names: Vec<_> = class.secrets.iter().map(|(namespace, name)| format!("{namespace}/{name}")).collect();
    names.join("+")
}

/// The Machine that asks, and what its calls are made from.
pub(crate) struct Asking<'a> {
    pub shared: &'a Arc<Shared>,
    pub machine: &'a MachineFacts,
    /// A fingerprint of class and Secrets.
    pub inputs: u64,
    /// The account; or why it cannot be opened, which is remembered like a call that failed.
    pub opened: Result<Opened, Error>,
}

/// Asks for the instance.
pub(crate) fn ensure(asking: Asking<'_>, spec: InstanceSpec) -> Result<(), Stop> {
    let call = |driver: Arc<dyn Driver>| async move { driver.instances().ensure(&spec).await };
    let still_wanted = |machine: &MachineFacts| machine.has_finalizer && machine.deleting_since.is_none();
    start(asking, Call::Ensure, None, still_wanted, call, |answers, answered: Answered<Instance>| {
        answers.ensure = Some(answered);
    })
}

/// Asks where the instance is.
pub(crate) fn find(asking: Asking<'_>, which: InstanceRef) -> Result<(), Stop> {
    let by = which.clone();
    let call = |driver: Arc<dyn Driver>| async move { driver.instances().find(&which).await };
    start(
        asking,
        Call::Find,
        None,
        |_| true,
        call,
        move |answers, answered: Answered<Sighting>| {
            answers.shown |= by.id.is_some() && matches!(answered.answer, Ok(Sighting::Present(_)));
            answers.find = Some(Found { by, answered });
        },
    )
}

/// Asks for the deletion of the instance, with a permit.
pub(crate) fn delete(asking: Asking<'_>, permit: Permit) -> Result<(), Stop> {
    let valid_until = permit.valid_until();
    #[expect(clippy::disallowed_methods, reason = "the one place where a permit becomes a deletion")]
    let call = |driver: Arc<dyn Driver>| async move {
        driver.instances().delete(permit.which(), permit.owner()).await
    };
    let still_wanted = |machine: &MachineFacts| machine.deleting_since.is_some();
    start(asking, Call::Delete, Some(valid_until), still_wanted, call, |answers, answered: Answered<()>| {
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
    let Asking { shared, machine, inputs, opened } = asking;
    let id = object_key(&machine.namespace, &machine.name);
    let (uid, key) = (machine.uid.clone(), Key::Machine(id.clone()));
    let remember: Remember<T> = {
        let uid = uid.clone();
        Box::new(move |world: &mut World, answered| {
            // The Machine may be gone by now. Then no pass needs the answer, and memory must not grow.
            if world.has_machine(&uid) {
                world.memory.answers.entry(uid).or_default().take(inputs, answered, remember);
            }
        })
    };
    let opened = match opened {
        Ok(opened) => opened,
        Err(error) => {
            let now = shared.now();
            remember(&mut shared.world.lock(), Answered { started: now, ended: now, answer: Err(error) });
            shared.queue.wake(key);
            return Ok(());
        }
    };
    let still_wanted = {
        let uid = uid.clone();
        Box::new(move |world: &mut World| {
            let wanted = world
                .machines
                .get(&id)
                .is_some_and(|machine| machine.uid == uid && still_wanted(&machine.facts));
            if wanted && call == Call::Ensure {
                world.memory.answers.entry(uid).or_default().ever_ensured = true;
            }
            wanted
        })
    };
    shared.ask(Ask { subject: uid, key, call, opened, begins_by, still_wanted, remember }, make)
}
