//! Drains the Node of a preserved Machine that has failed.
//!
//! The drain begins with the taint, which records its start. It has the rules of the drain of a
//! deletion: pods are evicted, and a pod is deleted without grace only if the Node is dead by a
//! fresh read, if a user sets the label `force-drain`, or after the drain timeout if the pod was
//! tried politely with an answer. Nothing is deleted besides pods, so the wait for volumes is
//! absent.
//!
//! The condition reports a Node as drained only after a list of its pods, which began after the
//! taint was observed.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use machinist_api::constants::{conditions, markers};

use super::{change_taints, reason, set_condition, taint};
use crate::mcm::drain::{Drain, DrainProgress, Manner};
use crate::mcm::facts::{NodeFacts, PodFacts};
use crate::mcm::machine::action::{Action, DRAIN_BLOCKED};
use crate::mcm::machine::delete::{
    DRAIN_TEXT_EVERY, FORCED_DRAIN_TAKES, NODE_IS_DEAD, drain_timeout, given_up_at, is_dead_unread,
    is_lease_needed, max_evictions, shows_pods, tell_forced, tell_impatience, was_tried,
};
use crate::mcm::machine::snapshot::Snapshot;
use crate::mcm::reads::again_at;
use crate::mcm::why::{BlockedPod, McmReason, Plan, Reason, Step, Why};
use machinist_core::{is_past, just_past, plus, since};

/// A pod that was created this long after the taint tolerates the taint. The drain does not wait
/// for such pods, because others would follow them forever.
const LATE_AFTER: Duration = Duration::from_secs(30);

/// Adds the calls of the drain to the plan, until the condition reports the Node as drained.
pub(super) fn attend(
    s: &Snapshot,
    node: &Arc<NodeFacts>,
    until: Timestamp,
    mut plan: Plan<Action>,
) -> Plan<Action> {
    let Some(tainted) = node.preserved_taint() else {
        change_taints(node, &mut plan, |all| all.push(taint(s.now)));
        return plan;
    };
    if is_drained(node) {
        return plan;
    }
    // A taint without a time counts from its observation.
    let seen = s.node_seen.tainted.unwrap_or(s.now);
    let began = tainted.time_added.as_ref().map_or(seen, |time| time.0);
    Draining { s, node, until, began, seen }.step(plan)
}

/// Whether the condition reports that the Node was drained.
pub(super) fn is_drained(node: &NodeFacts) -> bool {
    says(node, "True", markers::PRESERVED_NODE_DRAINED)
}

/// Whether the condition reports that the drain is blocked.
pub(super) fn is_blocked(node: &NodeFacts) -> bool {
    says(node, "False", markers::PRESERVED_NODE_NOT_DRAINED)
}

fn says(node: &NodeFacts, status: &str, marker: &str) -> bool {
    let condition = node.condition(conditions::NODE_PRESERVED);
    condition
        .is_some_and(|condition| condition.status == status && condition.text("message").starts_with(marker))
}

/// The drain of the Node of a preserved Machine.
struct Draining<'s> {
    s: &'s Snapshot,
    node: &'s Arc<NodeFacts>,
    /// Until when the Machine is preserved.
    until: Timestamp,
    /// When the drain began: the time of the taint.
    began: Timestamp,
    /// Since when the taint has been observed without interruption.
    seen: Timestamp,
}

/// How pods are removed, until when, and why.
struct Pressure {
    manner: Manner,
    deadline: Timestamp,
    cause: &'static str,
}

impl Draining<'_> {
    fn step(&self, mut plan: Plan<Action>) -> Plan<Action> {
        let (s, node) = (self.s, self.node);
        let pods: Vec<_> = s.pods.iter().filter(|pod| !self.came_late(pod)).cloned().collect();
        let Pressure { manner, deadline, cause } = self.pressure(&pods);
        let is_forced = manner != Manner::Polite;
        if !is_forced && is_lease_needed(s, node) {
            plan.actions.push(Action::LookAtLease(node.clone()));
            return self.reading(plan, "the Lease of the Node, which shows the last kubelet heartbeat,");
        }
        if is_dead_unread(s, node, manner, cause) {
            plan.actions.push(Action::LookForNode(node.name.clone()));
            return self.reading(plan, "the Node");
        }
        let is_due = !is_forced && is_past(s.now, deadline) && s.process.may_enforce_deadlines();
        if is_due && s.nodes_freshness.may_be_read() {
            plan.actions.push(Action::ReadNodes);
        }
        if is_due && s.nodes_freshness.is_fresh() && !shows_pods(s, node) {
            plan.actions.push(Action::ListPods(node.clone()));
        }
        match self.progress(&pods, manner, deadline) {
            DrainProgress::Done | DrainProgress::GivenUp { .. } => self.confirm(plan, manner, cause),
            DrainProgress::Leaving { calls, left, blocked, look_at } => {
                let reason = self.reason(left, blocked.clone());
                if !is_forced {
                    plan.actions.extend(tell_impatience(&calls));
                }
                plan.actions.extend(calls.into_iter().map(Action::Drain));
                if blocked.is_some() && s.reads.silence.is_none() {
                    plan.actions.extend(self.say_blocked(&reason));
                }
                let never = blocked.filter(|blocked| blocked.never).and_then(|blocked| blocked.budget);
                let next = match never {
                    Some(budget) => {
                        Step::Fix(format!("change PodDisruptionBudget {budget} to allow a disruption"))
                    }
                    None => Step::Expect("the pods leave the Node"),
                };
                let then = Step::Expect("the pods are deleted without grace");
                let mut why = Why::new(reason, next).since(self.began);
                if !is_forced {
                    why = why.deadline(just_past(deadline), then);
                }
                plan.why = why;
                plan.no_later_than(look_at)
            }
        }
    }

    /// Waits for a read that the drain needs.
    fn reading(&self, mut plan: Plan<Action>, what: &'static str) -> Plan<Action> {
        plan.why = Why::new(Reason::Looking(what), Step::Expect("the Node is drained")).since(self.began);
        plan
    }

    fn reason(&self, left: usize, blocked: Option<BlockedPod>) -> McmReason {
        let machine = self.s.machine.name.clone();
        McmReason::PreservedDraining { machine, until: self.until, left, blocked }
    }

    fn progress(&self, pods: &[Arc<PodFacts>], manner: Manner, deadline: Timestamp) -> DrainProgress {
        let s = self.s;
        let drain = Drain {
            now: s.now,
            pods,
            budgets: &s.budgets,
            attempts: &s.evictions,
            deadline,
            manner,
            gives_up: s.machine.wants_force_drain(),
            is_silent: s.reads.silence.is_some(),
            unseen: &s.gaps,
            max_evictions: max_evictions(s),
        };
        drain.progress()
    }

    fn pressure(&self, pods: &[Arc<PodFacts>]) -> Pressure {
        let s = self.s;
        let forced = |since: Timestamp, cause| {
            let deadline = plus(since, FORCED_DRAIN_TAKES);
            Pressure { manner: Manner::Forced { since }, deadline, cause }
        };
        let polite = |deadline| Pressure { manner: Manner::Polite, deadline, cause: "" };
        if s.machine.wants_force_drain() {
            return forced(self.began, "the label force-drain is set");
        }
        // In an old view, a Node that has recovered looks dead, and unseen time still counts.
        let may_force = s.process.may_enforce_deadlines() && s.nodes_freshness.is_fresh();
        let patience_ends = s.gaps.deadline(self.began, drain_timeout(s));
        match given_up_at(s, self.node) {
            Some(given_up_at) if may_force && is_past(s.now, given_up_at) => {
                forced(self.began.max(given_up_at), NODE_IS_DEAD)
            }
            _ if may_force
                && is_past(s.now, patience_ends)
                && shows_pods(s, self.node)
                && pods
                    .iter()
                    .filter(|pod| pod.leaves_in_a_drain())
                    .all(|pod| was_tried(s, pod, patience_ends, false)) =>
            {
                forced(patience_ends, "the drain timed out")
            }
            Some(given_up_at) => polite(given_up_at.min(patience_ends)),
            None => polite(patience_ends),
        }
    }

    fn came_late(&self, pod: &PodFacts) -> bool {
        plus(self.began, LATE_AFTER + self.s.process.skew) < pod.created
    }

    /// Reports the Node as drained if a list has just shown that no pod is left. Otherwise requests
    /// the list.
    fn confirm(&self, mut plan: Plan<Action>, manner: Manner, cause: &str) -> Plan<Action> {
        let (s, node) = (self.s, self.node);
        let late = s.pods.iter().filter(|pod| pod.leaves_in_a_drain() && self.came_late(pod)).count();
        let earliest = match manner {
            Manner::Polite => self.seen,
            Manner::Forced { since } => self.seen.max(since),
        };
        let list = s.reads.pods_since(&node.uid, earliest, s.now);
        // The planner has judged each pod of a drain by force. The store shows the listed pods.
        let is_confirmed = |leaving: usize| manner != Manner::Polite || leaving <= late;
        if list.is_some_and(|list| is_confirmed(list.leaving)) {
            let events = match manner {
                Manner::Polite => None,
                Manner::Forced { since } => tell_forced(s, since, cause),
            };
            let message =
                format!("{} Machine preserved until {:.0}.", markers::PRESERVED_NODE_DRAINED, self.until);
            plan.actions.push(set_condition(node, "True", reason(s), message));
            plan.actions.extend(events);
            return plan;
        }
        let left = list.map_or(0, |list| list.leaving);
        let reason = McmReason::ConfirmingDrain { node: node.name.clone(), left };
        plan.why = Why::new(reason, Step::Expect("the Node counts as drained")).since(self.began);
        match list.map(|list| again_at(list.started)) {
            // The store will show these pods soon.
            Some(again) if s.now < again => plan.no_later_than(again),
            _ => {
                plan.actions.push(Action::ListPods(node.clone()));
                plan
            }
        }
    }

    /// Reports a blocked drain in the condition and by an Event, at most every 30 seconds.
    fn say_blocked(&self, reason_of_drain: &McmReason) -> Vec<Action> {
        let message = format!("{} {reason_of_drain}", markers::PRESERVED_NODE_NOT_DRAINED);
        let current = self.node.condition(conditions::NODE_PRESERVED);
        let written = current.and_then(|condition| condition.text("lastHeartbeatTime").parse().ok());
        let is_recent = written.is_some_and(|at: Timestamp| since(self.s.now, at) < DRAIN_TEXT_EVERY);
        let is_said = current.is_some_and(|condition| condition.text("message") == message);
        if is_blocked(self.node) && (is_recent || is_said) {
            return Vec::new();
        }
        let said = set_condition(self.node, "False", reason(self.s), message.clone());
        vec![said, Action::warn(DRAIN_BLOCKED, message)]
    }
}
