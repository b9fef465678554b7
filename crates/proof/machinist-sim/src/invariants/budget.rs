//! S24: while many Machines wait for their creation, most calls of the cloud create something. A
//! lookup that changes no decision takes a call from an account with few of them.

use std::collections::VecDeque;

use machinist_cloud_sim::Operation;

use super::violation::{Id, Violations};
use crate::actor::Side;
use crate::history::{Event, Invariant, RunState};
use crate::sight::MACHINES;

/// Counts the last calls.
#[derive(Default)]
pub(super) struct CreationsFirst {
    calls: VecDeque<Operation>,
}

/// So many Machines without an instance wait in every case of the rule.
const WAITING: usize = 20;
/// The number of calls that are judged together.
const CALLS: usize = 24;

impl Invariant for CreationsFirst {
    fn see(&mut self, state: &RunState, event: &Event<'_>, found: &mut Violations) {
        let Event::Called(operation) = event else { return };
        let machines = || state.objects(Side::Control, MACHINES);
        let are_deleted = machines().any(|machine| machine.is_deleting());
        let waiting = machines().filter(|machine| machine.provider_id().is_empty()).count();
        if are_deleted || waiting < WAITING {
            self.calls.clear();
            return;
        }
        self.calls.push_back(*operation);
        if self.calls.len() < CALLS {
            return;
        }
        let lookups = self.calls.iter().filter(|call| **call == Operation::Find).count();
        if CALLS / 3 < lookups {
            found.add(
                Id::S24,
                format!("{lookups} of {CALLS} calls were lookups while {waiting} Machines waited for their creation"),
            );
        }
        self.calls.clear();
    }
}
