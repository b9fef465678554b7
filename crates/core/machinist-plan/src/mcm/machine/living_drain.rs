//! Drains the Node of a Machine that stays: it has failed and is preserved, or it is updated in
//! place.
//!
//! The drain has the rules of the drain of a deletion: pods are evicted, and a pod is deleted
//! without grace only if the Node is dead by a fresh read, if a user sets the label `force-drain`,
//! or after the drain timeout if the pod was tried politely with an answer. Nothing is deleted
//! besides pods, so the wait for the VolumeAttachments that a forced drain leaves is absent.
//!
//! A Node counts as drained only after a list of its pods, which began after the watch showed that
//! the Node takes no new pods, and only while that watch is fresh.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::action::Action;
use super::delete::{
    Pressure, drain_timeout, is_dead_unread, is_lease_needed, is_list_missing, max_evictions, tell_forced,
    tell_impatience, was_tried, what_lets_pods_leave,
};
use super::snapshot::Snapshot;
use crate::mcm::drain::{Drain, DrainProgress, DrainVolumes, Manner};
use crate::mcm::facts::{NodeFacts, PodFacts};
use crate::mcm::reads::again_at;
use crate::mcm::why::{BlockedPod, McmReason, Plan, Reason, Step, Why};
use machinist_core::{Wait, is_past, just_past, plus};

/// A pod that was created this long after the drain began tolerates that the Node takes no new
/// pods. The drain does not wait for such pods, because others would follow them forever.
const LATE_AFTER: Duration = Duration::from_secs(30);

/// The drain of the Node of a Machine that stays.
pub(super) struct LivingDrain<'s> {
    pub s: &'s Snapshot,
    pub node: &'s Arc<NodeFacts>,
    /// When the drain began, according to a record on the Node.
    pub began: Timestamp,
    /// Since when the Node takes no new pods, by an unbroken sequence of seen versions.
    pub closed: Timestamp,
    /// Returns the reason of the drain for a number of pods that are left.
    pub reason: &'s dyn Fn(usize, Option<BlockedPod>) -> McmReason,
}

/// The result of one pass of a drain.
pub(super) enum DrainState {
    /// No pod is left, with the Events about a drain by force.
    Drained(Vec<Action>),
    /// A pod blocks the drain, for this reason.
    Blocked(McmReason),
    /// The drain goes on.
    Draining,
}

impl LivingDrain<'_> {
    /// Adds the next calls of the drain to the plan.
    pub(super) fn step(&self, plan: &mut Plan<Action>) -> DrainState {
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
        if is_due && is_list_missing(s, node) {
            plan.actions.push(Action::ListPods(node.clone()));
        }
        let drain = self.drain(&pods, manner, deadline);
        if !is_forced {
            let waits = drain.volume_waits();
            plan.actions.extend((waits != *s.volumes.waits).then_some(Action::NoteVolumes(waits)));
        }
        match drain.progress() {
            DrainProgress::Done | DrainProgress::GivenUp { .. } => self.confirm(plan, manner, cause),
            DrainProgress::Leaving { calls, left, blocked, look_at } => {
                let reason = (self.reason)(left, blocked.clone());
                if !is_forced {
                    plan.actions.extend(tell_impatience(&calls));
                }
                plan.actions.extend(calls.into_iter().map(Action::Drain));
                let is_blocked = blocked.is_some() && s.reads.silence.is_none();
                let next = what_lets_pods_leave(blocked);
                plan.why = Why::new(reason.clone(), next).since(self.began);
                if !is_forced {
                    let then = Step::Expect("the pods are deleted without grace");
                    plan.why = plan.why.clone().deadline(just_past(deadline), then);
                }
                plan.wait = plan.wait.earliest(Wait::Until(look_at));
                if is_blocked { DrainState::Blocked(reason) } else { DrainState::Draining }
            }
        }
    }

    /// Waits for a read that the drain needs.
    fn reading(&self, plan: &mut Plan<Action>, what: &'static str) -> DrainState {
        plan.why = Why::new(Reason::Looking(what), Step::Expect("the Node is drained")).since(self.began);
        DrainState::Draining
    }

    fn drain<'d>(&'d self, pods: &'d [Arc<PodFacts>], manner: Manner, deadline: Timestamp) -> Drain<'d> {
        let s = self.s;
        Drain {
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
            volumes: DrainVolumes { node: self.node, seen: &s.volumes, limits: s.defaults.volume_limits() },
        }
    }

    fn pressure(&self, pods: &[Arc<PodFacts>]) -> Pressure {
        let s = self.s;
        let request = s.machine.wants_force_drain().then_some("the label force-drain is set");
        let patience_ends = s.gaps.deadline(self.began, drain_timeout(s));
        Pressure::of(s, self.node, request, self.began, patience_ends, || {
            let mut leaving = pods.iter().filter(|pod| pod.leaves_in_a_drain());
            leaving.all(|pod| was_tried(s, pod, patience_ends, false))
        })
    }

    fn came_late(&self, pod: &PodFacts) -> bool {
        plus(self.began.max(self.closed), LATE_AFTER + self.s.process.skew) < pod.created
    }

    /// The Node is drained if a list has just shown that no pod is left. Otherwise requests the
    /// list.
    fn confirm(&self, plan: &mut Plan<Action>, manner: Manner, cause: &str) -> DrainState {
        let (s, node) = (self.s, self.node);
        let late = s.pods.iter().filter(|pod| pod.leaves_in_a_drain() && self.came_late(pod)).count();
        let earliest = match manner {
            Manner::Polite => self.closed,
            Manner::Forced { since } => self.closed.max(since),
        };
        let list = s.reads.pods_since(&node.uid, earliest, s.now);
        // The planner has judged each pod of a drain by force. The store shows the listed pods.
        let is_confirmed = |leaving: usize| manner != Manner::Polite || leaving <= late;
        if list.is_some_and(|list| is_confirmed(list.leaving)) {
            // Another actor may have uncordoned the Node since the store last changed.
            if let Some(wait) = s.nodes_freshness.obstacle(|| Action::ReadNodes) {
                plan.actions.extend(wait.actions);
                plan.wait = plan.wait.earliest(wait.wait);
                plan.why = wait.why;
                return DrainState::Draining;
            }
            let events = match manner {
                Manner::Polite => None,
                Manner::Forced { since } => tell_forced(s, since, cause),
            };
            return DrainState::Drained(events.into_iter().collect());
        }
        let left = list.map_or(0, |list| list.leaving);
        let reason = McmReason::ConfirmingDrain { node: node.name.clone(), left };
        plan.why = Why::new(reason, Step::Expect("the Node counts as drained")).since(self.began);
        match list.map(|list| again_at(list.started)) {
            // The store will show these pods soon.
            Some(again) if s.now < again => {
                plan.wait = plan.wait.earliest(Wait::Until(again));
            }
            _ => plan.actions.push(Action::ListPods(node.clone())),
        }
        DrainState::Draining
    }
}
