//! S22: of several replicas of a process, only the replica that holds the Lease writes.
//!
//! C10: a replica that took over from a leader that did not release the Lease deletes no Node for a
//! minute. Requests of that leader may still take effect, and deletions of Nodes are limited by
//! their number.

use std::time::Duration;

use http::Method;
use jiff::SignedDuration;

use super::violation::{Id, Violations};
use crate::actor::{Side, TestedProcess};
use crate::ask::WholeRequest;
use crate::history::RunState;
use crate::sight::{LEASES, NODES};

/// A restored Lease may name an older holder. The newer one notices it at its next renewal.
const AFTER_RESTORE: Duration = Duration::from_secs(60);
/// The time in which requests of an earlier leader may take effect, less the second by which the
/// clock of the process may drift.
const ALONE_AFTER: SignedDuration = SignedDuration::from_secs(59);

/// Checks a write that a replica with this identity sends now.
pub fn judge(state: &RunState, process: TestedProcess, identity: &str, ask: &WholeRequest) -> Violations {
    let mut found = Violations::default();
    if !ask.is_write() || ask.about.table.starts_with(LEASES) {
        return found;
    }
    let side = side_of(process);
    let mut leases = state.objects(side, LEASES);
    let Some(lease) = leases.find(|lease| lease.name() == process.user_agent()) else { return found };
    let holder = lease.text("/spec/holderIdentity");
    let is_restored = state.restored_at().is_some_and(|at| {
        Duration::try_from(state.now.duration_since(at)).is_ok_and(|age| age < AFTER_RESTORE)
    });
    if !holder.is_empty() && holder != identity && !is_restored {
        let (verb, about) = (ask.verb(), &ask.about);
        found.add(Id::S22, format!("{identity} sends {verb} {about}, and {holder} holds the Lease"));
    }
    let deletes_a_node = ask.parts.method == Method::DELETE && ask.about.table == NODES;
    if process == TestedProcess::CloudController
        && deletes_a_node
        && let Some(since) = state.taken_over(process, identity)
        && state.now.duration_since(since) < ALONE_AFTER
    {
        let about = &ask.about;
        found.add(Id::C10, format!("{identity} deletes {about}, and took over without a release at {since}"));
    }
    found
}

/// The server with the Lease of a process.
pub fn side_of(process: TestedProcess) -> Side {
    match process {
        TestedProcess::Manager | TestedProcess::MachineController | TestedProcess::Provider => Side::Control,
        // It has one server, which has the Nodes.
        TestedProcess::CloudController => Side::Target,
    }
}
