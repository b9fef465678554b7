//! S22: of several replicas of a process, only the one that holds the Lease writes.

use std::time::Duration;

use super::{Id, Violations};
use crate::actor::{Process, Side};
use crate::ask::Ask;
use crate::history::State;
use crate::sight::LEASES;

/// A restored Lease may name an older holder. The newer one notices it at its next renewal.
const AFTER_RESTORE: Duration = Duration::from_secs(60);

/// Checks a write that a replica with this identity sends now.
pub fn judge(state: &State, process: Process, identity: &str, ask: &Ask) -> Violations {
    let mut found = Violations::default();
    if !ask.is_write() || ask.about.table.starts_with(LEASES) {
        return found;
    }
    let mut leases = state.objects(Side::Control, LEASES);
    let Some(lease) = leases.find(|lease| lease.name() == process.user_agent()) else { return found };
    let holder = lease.text("/spec/holderIdentity");
    let is_restored = state.restored_at().is_some_and(|at| {
        Duration::try_from(state.now.duration_since(at)).is_ok_and(|age| age < AFTER_RESTORE)
    });
    if !holder.is_empty() && holder != identity && !is_restored {
        let (verb, about) = (ask.verb(), &ask.about);
        found.add(Id::S22, format!("{identity} sends {verb} {about}, and {holder} holds the Lease"));
    }
    found
}
