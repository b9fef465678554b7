//! Until when calls that were made earlier can still create the load balancer.

use std::time::Duration;

use jiff::Timestamp;
use machinist_core::{Answered, READ_WITHIN, plus};
use machinist_instance::{BalancerDeletion, Progress};

use super::served::Served;
use super::snapshot::Snapshot;

/// Returns the moment from which no call of this process can still create the load balancer, and
/// lists show it if it exists. A request without an answer may still take effect. Without this wait
/// and the wait for other processes, the load balancer would stay forever, because its Service no
/// longer exists.
pub(super) fn own_calls_end(s: &Snapshot) -> Timestamp {
    let visible_within = s.process.promises.visible_within;
    let by_us = s.answers.ensured_at.map(|ended| plus(ended, visible_within));
    by_us.unwrap_or(Timestamp::MIN).max(own_creations_end(s))
}

/// Returns the moment from which no call of this process without an answer can still create the
/// load balancer, and lists show it if it exists.
pub(super) fn own_creations_end(s: &Snapshot) -> Timestamp {
    let late = s.process.promises.absence_takes();
    s.answers.unsure_at.map_or(Timestamp::MIN, |ended| plus(ended, late))
}

/// Returns the moment from which no call of another process can still create the load balancer.
pub(super) fn others_end(s: &Snapshot, last: &Answered<Progress<BalancerDeletion>>) -> Timestamp {
    let is_absent = matches!(last.answer, Ok(Progress::Done(BalancerDeletion::Absent)));
    earlier_calls_end(s).max(if is_absent { others_until(s) } else { Timestamp::MIN })
}

/// Returns when no call of an earlier process can still create the load balancer.
///
/// Earlier processes have ended before this one began to act. A process creates a load balancer
/// only if it read the Service shortly before. So the requests of all processes end a certain time
/// after one of them has recorded that the Service wants none.
pub(super) fn earlier_calls_end(s: &Snapshot) -> Timestamp {
    if s.process.saw_creation_of(s.service.created) {
        return Timestamp::MIN;
    }
    let late = s.process.promises.absence_takes();
    let own = plus(s.process.acting_since(), late);
    let recorded = s.service.no_creation_since();
    let recorded = recorded.map(|since| plus(since, late + READ_WITHIN + s.process.skew));
    recorded.map_or(own, |recorded| recorded.min(own))
}

/// Returns until when a Service that no longer has the type LoadBalancer is left to other programs.
/// The API server removes the class together with the type, so a process that has just begun does
/// not know whose finalizer it sees. A program of another class removes its own within this time.
fn others_until(s: &Snapshot) -> Timestamp {
    let is_unknown = !s.service.is_load_balancer && s.served == Served::Unseen;
    let from = s.process.acting_since();
    // The type had changed before an earlier process recorded its wait.
    let from = s.service.no_creation_since().map_or(from, |recorded| recorded.min(from));
    if is_unknown { plus(from, OTHERS_RELEASE_WITHIN) } else { Timestamp::MIN }
}

/// A program of another class deletes its load balancer and removes its finalizer within this time.
const OTHERS_RELEASE_WITHIN: Duration = Duration::from_secs(300);
