//! Changes of the memory about a Machine.

use machinist_plan::mcm::facts::MachineFacts;

use crate::mcm::contract::Runtime;
use crate::mcm::key::Key;
use crate::mcm::memory::Memory;
use crate::mcm::reference::object_key;

/// Changes the memory about a Machine if the Machine exists, and wakes its key.
pub(super) fn remember(runtime: &Runtime, machine: &MachineFacts, change: impl FnOnce(&mut Memory)) {
    let mut world = runtime.lock();
    if !world.seen.has_machine(&machine.uid) {
        return;
    }
    change(&mut world.seen.memory);
    drop(world);
    runtime.queue.wake(Key::Machine(object_key(&machine.namespace, &machine.name)));
}
