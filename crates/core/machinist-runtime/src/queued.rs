//! Calls that wait in the queue of their account before a pass makes them.
//!
//! A call that a pass starts at once ([`crate::asks`]) is prepared before it waits. For some calls
//! that is too early: a permit to delete and a bootstrap token expire. These calls wait here first.
//! When it has a slot and a token of its account, its key is woken, and the next pass prepares and
//! makes the call.
//!
//! ```text
//! pass -> queue -> slot and token -> wake the key -> pass -> ask with the slot
//! ```
//!
//! The slot is held for seconds only. If no pass uses it in time, another call gets it.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use machinist_core::Call;
use machinist_instance::Error;
use tokio::time::Instant;

use crate::accounts::Account;
use crate::asks::{Admission, Ask};
use crate::contract::{Contract, Stop};
use crate::line::Lane;
use crate::runtime::{NOT_NOW_AGAIN, Runtime};
use crate::world::{Waiting, World};

/// A slot is held this long for the pass that makes the call: long enough for a few requests to an
/// API server that is slow.
const SLOT_HELD: Duration = Duration::from_secs(15);

/// A call that waits for longer than this is shown as waiting.
const SHOWN_AFTER: Duration = Duration::from_secs(1);

/// Checks in memory, as often as needed, whether an object still needs a call.
pub type StillInNeed<C> = Box<dyn Fn(&<C as Contract>::Seen) -> bool + Send + Sync>;

/// Stores how long a call waited.
pub type NoteWait<C> = Box<dyn FnOnce(&mut <C as Contract>::Seen, Duration) + Send>;

/// One call that shall wait in the queue of its account.
pub struct QueuedCall<C: Contract> {
    /// Identity of the object of the call. At most one call per subject waits.
    pub subject: String,
    /// The key that is woken when the call has a slot.
    pub key: C::Key,
    /// The type of the call.
    pub call: Call,
    /// The account whose limits the call shares.
    pub account: Arc<Account>,
    /// Checks whether the object still needs the call. If not, the call leaves the queue without
    /// its slot.
    pub still_wanted: StillInNeed<C>,
    /// Stores how long the call waited.
    pub waited: NoteWait<C>,
}

impl<C: Contract> Runtime<C> {
    /// Lets a call wait for a slot of its account. Then its key is woken, and the pass that makes
    /// the call uses [`Runtime::ask_queued`]. An earlier call of the subject leaves the queue.
    ///
    /// # Errors
    /// If no call may start now.
    pub fn queue_call(self: &Arc<Self>, entry: QueuedCall<C>) -> Result<(), Stop> {
        self.may_begin(None).map_err(Stop::NotNow)?;
        let mut world = self.world.lock();
        let (subject, call, account) = (entry.subject.clone(), entry.call, entry.account.id().clone());
        if world.queued.waits(&subject, call, &account) {
            return Ok(());
        }
        let number = world.queued.next_number();
        let task = self.spawn(self.clone().stand_in_line(entry, number));
        let (since, since_wall) = (Instant::now(), self.now());
        let waiting = Waiting { call, account, since, since_wall, number, task, slot: None };
        world.queued.insert(subject, waiting);
        Ok(())
    }

    /// Starts a call with the slot for which it waited in the queue. See [`Runtime::ask`].
    ///
    /// # Errors
    /// If the call has no slot, or may not start now.
    pub fn ask_queued<T: Send + 'static>(
        self: &Arc<Self>,
        ask: Ask<C, T>,
        made: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<(), Stop> {
        let slot = self.world.lock().queued.take_slot(&ask.subject, ask.call, ask.account.id());
        let slot = slot.ok_or(Stop::NotNow("the call has no slot of its account"))?;
        self.begin_ask(ask, Admission::Slot(slot), std::future::ready(Ok(())), made)
    }

    async fn stand_in_line(self: Arc<Self>, entry: QueuedCall<C>, number: u64) {
        let QueuedCall { subject, key, call, account, still_wanted, waited } = entry;
        let steps = self.clock_steps.count();
        let may_begin = || {
            self.may_begin_now(&account, call, None, steps)?;
            let is_wanted = still_wanted(&self.world.lock().seen);
            if is_wanted { Ok(()) } else { Err("the object no longer needs it") }
        };
        let mut admission = std::pin::pin!(account.admit(Lane::of(call), may_begin));
        let admitted = match tokio::time::timeout(SHOWN_AFTER, &mut admission).await {
            Ok(admitted) => admitted,
            Err(_) => {
                // The next pass says that the object waits in the queue.
                self.queue.wake(key.clone());
                admission.await
            }
        };
        {
            let mut world = self.world.lock();
            let world = &mut *world;
            let Some(mine) = world.queued.mine(&subject, number) else {
                return admitted.map_or((), |_| account.give_back());
            };
            waited(&mut world.seen, mine.since.elapsed());
            match admitted {
                Ok(slot) => mine.slot = Some(slot),
                Err(reason) => {
                    tracing::debug!(%key, %call, reason, "A call left the queue of its account");
                    self.leave(world, &subject, &key);
                    let soon = Instant::now() + NOT_NOW_AGAIN;
                    let until = account.paused_until();
                    return self.queue.wake_at(key, until.map_or(soon, |until| until.max(soon)));
                }
            }
        }
        self.queue.wake(key.clone());
        tokio::time::sleep(SLOT_HELD).await;
        {
            let mut world = self.world.lock();
            if world.queued.mine(&subject, number).is_none() {
                return;
            }
            tracing::info!(%key, %call, "The slot of a queued call was not used in time");
            account.give_back();
            self.leave(&mut world, &subject, &key);
        }
        self.queue.wake(key);
    }

    /// Removes a call from the queue. The planner may plan the same again from the same facts,
    /// which does not count as a repetition.
    fn leave(&self, world: &mut World<C>, subject: &str, key: &C::Key) {
        world.queued.remove(subject);
        world.passes.forget_last(key);
    }
}
