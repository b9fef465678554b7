//! The targets that a load balancer lacks, and when the driver is asked about them again.
//!
//! The cause decides. If the cloud's own data explain it, another try costs nothing until these
//! data change. If the cloud rejected the target without a visible reason, the controller tries
//! again after a wait that grows.

use std::time::Duration;

use jiff::Timestamp;
use machinist_core::{Answered, Step, plus};
use machinist_instance::{Ensured, SkipCause, SkippedTarget};

use super::action::ENSURE_BALANCER;
use super::events::joined;
use super::snapshot::Snapshot;
use crate::ccm::why::{CcmReason, Why};

/// First and longest wait before another try of a target that the cloud rejected.
const AGAIN: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(600));

/// Returns when the driver is asked again about skipped targets.
pub(super) fn due_at<T>(s: &Snapshot, ensured: &Ensured, last: &Answered<T>) -> Option<Timestamp> {
    let retry_at = plus(last.ended, wait(s.answers.refusals));
    let due_at = |skipped: &SkippedTarget| match &skipped.cause {
        SkipCause::Refused => Some(retry_at),
        SkipCause::Full => has_room(s, last.started).then_some(last.ended),
        SkipCause::Shown(addresses) => {
            let listed = s.targets.as_ref().filter(|listed| last.started < listed.started)?;
            (listed.addresses.get(&skipped.instance) != addresses.as_ref()).then_some(last.ended)
        }
    };
    ensured.skipped.iter().filter_map(due_at).min()
}

/// Whether a list that began after the last call shows room for another target.
fn has_room(s: &Snapshot, since: Timestamp) -> bool {
    let listed = s.listed.as_ref().filter(|listed| since < listed.started);
    let balancer = listed.and_then(|listed| listed.balancer.as_ref());
    balancer.is_some_and(|balancer| balancer.room.is_some_and(|room| 0 < room))
}

fn wait(refusals: u32) -> Duration {
    (AGAIN.0 * 2u32.pow(refusals.saturating_sub(1).min(10))).min(AGAIN.1)
}

/// Returns the reason for a load balancer that lacks targets.
pub(super) fn why(skipped: &[SkippedTarget], due_at: Option<Timestamp>) -> Option<Why> {
    let messages: Vec<String> =
        skipped.iter().map(|skipped| format!("Node {}: {}", skipped.node, skipped.message)).collect();
    let reason = CcmReason::TargetsSkipped { nodes: skipped.len(), messages: joined(&messages)? };
    let next = match due_at {
        Some(due_at) => Step::Repeat(ENSURE_BALANCER, due_at),
        None => Step::Fix("change what the message names; the controller adds the Node then".to_owned()),
    };
    Some(Why::new(reason, next))
}
