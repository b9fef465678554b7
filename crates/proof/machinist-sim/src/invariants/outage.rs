//! L8: after an outage of an API server, each process goes on within seconds with the writes that
//! did not reach that server. The same holds after an outage of the cloud for the load balancers of
//! Services ([`crate::ccm`]).

use std::time::Duration;

use super::violation::{Id, Violations};
use crate::actor::Side;
use crate::faults::{LongFault, LongKind, OutageMode, Profile};
use crate::history::{RunState, Undelivered};
use crate::sight::{MACHINES, NODES, PODS};

/// Time from the end of an outage to the next request: five seconds, and the time over which many
/// objects are spread.
pub const RESUMES_WITHIN: Duration = Duration::from_secs(5 + 3);
/// A shorter outage ends before the pauses between attempts have grown.
const SHORTEST: Duration = Duration::from_secs(60);
/// Time after other faults in which late answers and events may still arrive.
const LATE_EFFECTS: Duration = Duration::from_secs(60);
/// Time after which a patch that causes deletions, and has no answer, can no longer take effect.
/// Before, the process does not ask for its outcome. A write that was refused was never sent.
const LAST_EFFECT: Duration = Duration::from_secs(65);

/// Checks the writes that have not reached the server again.
pub fn judge(state: &RunState, side: Side) -> Violations {
    let mut found = Violations::default();
    let of_side = state.undelivered().filter(|(waiting, ..)| waiting.side == side);
    for (waiting, at, absence) in of_side.filter(|(waiting, ..)| is_still_wanted(state, waiting)) {
        let age = Duration::try_from(state.now.duration_since(at)).unwrap_or_default();
        if absence == OutageMode::Refused || LAST_EFFECT <= age {
            let (process, table, key) = (waiting.process, &waiting.table, &waiting.key);
            found.add(
                Id::L8,
                format!(
                    "the {side} server is back for {RESUMES_WITHIN:?}, and the {process} has not gone on with \
                     {table} {key}, which it last tried to write at {at}"
                ),
            );
        }
    }
    found
}

/// Whether the outage alone decides when the processes go on: no other fault happens near its end.
pub fn is_judged(outage: LongFault, profile: &Profile) -> bool {
    outage.kind == LongKind::ServerAway && is_undisturbed(outage, profile)
}

/// Whether no other fault happens near the end of an outage, which lasted long enough.
pub fn is_undisturbed(outage: LongFault, profile: &Profile) -> bool {
    let end = outage.ends();
    let is_near =
        |begins: Duration, ends: Duration| begins <= end + RESUMES_WITHIN && end <= ends + LATE_EFFECTS;
    let delays_writes = |kind: LongKind| match kind {
        LongKind::NoStock | LongKind::ZoneOut | LongKind::ForeignMarks | LongKind::RefusedEvictions => false,
        LongKind::ServerAway
        | LongKind::SilentWatch
        | LongKind::CloudAway
        | LongKind::Suspended
        | LongKind::Down
        | LongKind::RateLimit
        | LongKind::LateWrites
        | LongKind::RefusedTargets
        | LongKind::FinalizersOff
        | LongKind::ControlRestored
        | LongKind::TargetRestored
        | LongKind::SecondReplica
        | LongKind::Crowd
        | LongKind::Restarts => true,
    };
    let others = profile.long.iter().filter(|other| **other != outage && delays_writes(other.kind));
    let chaos = profile.warm_up + profile.chaos;
    SHORTEST <= outage.lasts
        && chaos + LATE_EFFECTS <= end
        && !others.into_iter().any(|other| is_near(other.begins, other.ends()))
}

/// Whether a Machine waits for its instance after a failed call. The deadline that was due in the
/// outage leaves out the outage, so it is no longer due.
fn has_a_later_deadline(state: &RunState, waiting: &Undelivered) -> bool {
    let track = state.track(waiting.side, MACHINES, &waiting.key);
    let machine = track.and_then(|track| track.now());
    machine.is_some_and(|machine| !machine.is_deleting() && machine.phase() == "CrashLoopBackOff")
}

/// Whether a Machine still needs the write. After the forced deletion of a Machine, the user cleans
/// up its Node and pods.
fn is_still_wanted(state: &RunState, waiting: &Undelivered) -> bool {
    let node = match waiting.table.as_str() {
        PODS => state
            .track(waiting.side, PODS, &waiting.key)
            .and_then(|track| track.now())
            .map(|pod| pod.text("/spec/nodeName").to_owned()),
        NODES => Some(waiting.key.clone()),
        MACHINES => return !has_a_later_deadline(state, waiting),
        _ => return true,
    };
    let Some(node) = node else { return true };
    let Some(node) = state.track(waiting.side, NODES, &node).and_then(|track| track.now()) else {
        return true;
    };
    let mut machines = state.objects(Side::Control, MACHINES);
    let id = node.provider_id();
    id.is_empty() || machines.any(|machine| machine.provider_id() == id)
}
