//! Drain: evicts the pods of a Node and respects disruption budgets until the drain times out.
//!
//! All contracts share this module. One pass decides for every pod and returns without waiting. The
//! pod store shows whether a pod has left, so a drain survives a crash without memory. The
//! remembered eviction attempts only space the next attempts.
//!
//! The cordon is deliberately absent: the caller cordons the Node before the drain. `volumes` has
//! the rules for pods with volumes.
//!
//! A drain ends by force only with answers. After the force began, the API server must have
//! accepted or rejected the deletion of each pod that is left. A request without an answer, a
//! throttled request and an error of the server do not count.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::mcm::facts::{BudgetFacts, PodFacts};
use crate::mcm::why::{BlockedPod, RejectedRequest};
use machinist_core::{Attempts, MAX_RETRY_AFTER, Unseen, is_past, just_past, plus, since};

#[cfg(test)]
mod tests;
mod volumes;

pub use volumes::{
    AwaitedVolume, DrainVolumes, NodeVolumes, SeenVolume, VolumeLimits, VolumeStep, VolumeTurn, VolumeWait,
};

/// Wait between two eviction attempts for one pod.
const EVICT_AGAIN_AFTER: Duration = Duration::from_secs(20);
/// Wait between two eviction attempts if every budget that covers the pod allows a disruption.
const EVICT_AGAIN_SOONEST: Duration = Duration::from_secs(5);
/// Wait before a pod that the API server has agreed to delete is evicted once more. The watch may
/// lag far behind the deletion of thousands of pods. If the cluster was restored, the pod is back.
const LEAVES_AGAIN_AFTER: Duration = Duration::from_secs(120);
/// Lifetime of a rejected eviction as evidence that the pod cannot be evicted. After that, or after
/// an attempt without an answer, the pod is evicted once more before it is deleted.
const REJECTION_VALID: Duration = Duration::from_secs(60);
/// Number of attempts with the shorter wait. A budget with an outdated status may seem to allow an
/// eviction that the API server rejects. Too many attempts end in a forced deletion, so only the
/// first few are made sooner.
const QUICK_ATTEMPTS: u32 = 6;
/// Extra time beyond the grace period after which a forced drain stops waiting for a pod's
/// deletion.
const FORCED_POD_BUFFER: Duration = Duration::from_secs(30);
/// Wait before the next look if a deadline has passed but clock skew forbids its enforcement.
const CLOCKS_AGAIN_AFTER: Duration = Duration::from_secs(60);
/// Time after which a drain that a user forces no longer waits for an answer about a pod.
pub(crate) const UNANSWERED_FOR: Duration = Duration::from_secs(20);
/// Maximum number of calls per pass. The next calls follow after these are answered.
const CALLS_PER_PASS: usize = 20;

/// The facts of one drain.
#[derive(Debug)]
pub struct Drain<'s> {
    /// The moment of the decision.
    pub now: Timestamp,
    /// Every pod on the node.
    pub pods: &'s [Arc<PodFacts>],
    /// Budgets of the namespaces of those pods.
    pub budgets: &'s [Arc<BudgetFacts>],
    /// Eviction attempts by pod UID. Memory: may be empty at any moment.
    pub attempts: &'s BTreeMap<String, Eviction>,
    /// When the drain times out.
    pub deadline: Timestamp,
    /// Whether pods are evicted or deleted without grace.
    pub manner: Manner,
    /// Whether a user gives up the pods. Then the drain waits for an answer about each pod only for
    /// a while.
    pub gives_up: bool,
    /// Whether the API server did not answer the last request. Then single calls find out when it
    /// answers again.
    pub is_silent: bool,
    /// The time that deadlines leave out.
    pub unseen: &'s Unseen,
    /// Number of rejected evictions after which a pod is deleted instead.
    pub max_evictions: u32,
    /// The volumes of those pods.
    pub volumes: DrainVolumes<'s>,
}

/// How a drain removes pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// By eviction, which respects budgets.
    Polite,
    /// By deletion without grace: the Node is dead, the drain timed out, or a user requested it.
    Forced {
        /// When the force began. Only later requests count.
        since: Timestamp,
    },
}

/// Memory of the eviction attempts for one pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Eviction {
    /// `namespace/name` of the pod.
    pub pod: String,
    /// Number of attempts with an answer about the pod, and the time of the last attempt.
    pub attempts: Attempts,
    /// Time of the first attempt with an answer about the pod.
    pub first: Timestamp,
    /// When the last request began.
    pub asked: Timestamp,
    /// When the first of the last requests without a decision about the pod began.
    pub undecided_since: Option<Timestamp>,
    /// Whether the last request was a deletion without grace, not an eviction.
    pub is_deletion: bool,
    /// Outcome of the last attempt.
    pub outcome: EvictionAnswer,
}

impl Eviction {
    /// Returns the memory after one more call, whose request began at `asked`.
    pub fn after(
        before: Option<&Self>,
        call: &PodCall,
        outcome: EvictionAnswer,
        asked: Timestamp,
        now: Timestamp,
    ) -> Self {
        let count = before.map_or(0, |before| before.attempts.count);
        let first = before.filter(|_| 0 < count).map_or(now, |before| before.first);
        let (pod, is_deletion) = match call {
            PodCall::Evict(pod) => (pod, false),
            PodCall::Delete(pod) => (pod, true),
        };
        let undecided_since = before.and_then(|before| before.undecided_since).unwrap_or(asked);
        Self {
            pod: format!("{}/{}", pod.namespace, pod.name),
            attempts: Attempts {
                count: count.saturating_add(u32::from(outcome.is_about_the_pod())),
                last: now,
            },
            first,
            asked,
            is_deletion,
            undecided_since: (!outcome.decides()).then_some(undecided_since),
            outcome,
        }
    }

    /// Whether the last request was a deletion that the API server accepted or rejected.
    pub fn is_answered_deletion(&self) -> bool {
        self.is_deletion && matches!(self.outcome, EvictionAnswer::Deleted | EvictionAnswer::Refused(_))
    }
}

/// Outcome of an eviction attempt.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum EvictionAnswer {
    /// Accepted: the pod is terminating.
    Accepted,
    /// Deleted without grace.
    Deleted,
    /// Blocked by a budget, with the API server's message.
    Held(String),
    /// The API server throttled the request. This attempt does not count.
    Throttled {
        /// The requested wait.
        retry_after: Duration,
    },
    /// Rejected for another reason, with the API server's message.
    Refused(String),
    /// The API server had an internal error: a webhook or its storage did not answer. A pod whose
    /// eviction failed is shown to users. A pod whose deletion failed still needs an answer.
    Failed(String),
    /// No answer arrived, so nothing is known about the pod. This attempt does not count.
    Unanswered(String),
}

impl EvictionAnswer {
    /// Whether the request was accepted or rejected.
    fn decides(&self) -> bool {
        match self {
            Self::Accepted | Self::Deleted | Self::Held(_) | Self::Refused(_) => true,
            Self::Failed(_) | Self::Throttled { .. } | Self::Unanswered(_) => false,
        }
    }

    /// Whether the answer is about the pod, so that it uses up the patience of a polite drain. A
    /// webhook that does not answer counts as a rejection, and so does a webhook that rejects with
    /// a server error. A server whose storage fails, a throttled request and a lost one say nothing
    /// about the pod.
    pub fn is_about_the_pod(&self) -> bool {
        match self {
            Self::Accepted | Self::Deleted | Self::Held(_) | Self::Refused(_) => true,
            Self::Failed(message) => {
                ["failed calling webhook", "denied the request"].iter().any(|text| message.contains(text))
            }
            Self::Throttled { .. } | Self::Unanswered(_) => false,
        }
    }

    /// Whether the API server answered that it could not carry out the request.
    pub fn is_failure(&self) -> bool {
        matches!(self, Self::Failed(_))
    }
}

/// One call of a drain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PodCall {
    /// POSTs an eviction.
    Evict(PodRef),
    /// DELETEs a pod without grace.
    Delete(PodRef),
}

/// Reference to one pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodRef {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub name: String,
    /// UID, because a later pod may have the same name.
    pub uid: String,
}

/// DrainProgress of a drain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DrainProgress {
    /// Every pod that a drain evicts has left.
    Done,
    /// The API server has answered the deletion of each pod that is left, after the force began.
    /// The drain does not wait for these pods.
    GivenUp {
        /// Number of pods left.
        left: usize,
    },
    /// Pods are leaving.
    Leaving {
        /// The calls to make now.
        calls: Vec<PodCall>,
        /// Number of pods left.
        left: usize,
        /// The first pod that cannot be evicted.
        blocked: Option<BlockedPod>,
        /// When to look again if nothing changes.
        look_at: Timestamp,
    },
}

impl Drain<'_> {
    /// Decides the next step of the drain.
    pub fn progress(&self) -> DrainProgress {
        let leaving: Vec<_> = self.pods.iter().filter(|pod| pod.leaves_in_a_drain()).collect();
        if leaving.is_empty() {
            return DrainProgress::Done;
        }
        match self.manner {
            Manner::Polite => self.politely(&leaving),
            Manner::Forced { since } => self.by_force(&leaving, since),
        }
    }

    fn politely(&self, leaving: &[&Arc<PodFacts>]) -> DrainProgress {
        let mut calls = Vec::new();
        let mut blocked = None;
        let ends = just_past(self.deadline);
        let mut look_at = end_or_later(self.now, ends);
        let pause = self.pause();
        let mut turns = self.turns();
        if let Some(first) = self.awaited_volumes().first() {
            look_at = look_at.min(first.until);
        }
        let mut in_order = leaving.to_vec();
        in_order.sort_by_key(|pod| Reverse(pod.priority));
        for pod in in_order {
            if pod.deleting_since.is_some() {
                continue;
            }
            let covering = self.budgets.iter().filter(|budget| budget.covers(pod));
            let budget = covering.min_by_key(|budget| budget.disruptions_allowed);
            let seems_to_allow = budget.is_some_and(|tightest| 0 < tightest.disruptions_allowed);
            let attempt = self.attempts.get(&pod.uid);
            let due = attempt.map_or(self.now, |attempt| self.next_attempt(attempt, seems_to_allow));
            let is_due = due <= self.now && pause.is_none() && calls.len() < self.calls_per_pass();
            if is_due && turns.take(pod) {
                calls.push(self.call_for(pod, attempt));
            } else if !is_due {
                look_at = look_at.min(pause.map_or(due, |pause| due.max(pause)));
            }
            let rejection = match attempt.map(|attempt| &attempt.outcome) {
                Some(EvictionAnswer::Held(_)) => None,
                Some(EvictionAnswer::Refused(message) | EvictionAnswer::Failed(message)) => {
                    let is_deletion = attempt.is_some_and(|attempt| attempt.is_deletion);
                    let kind =
                        if is_deletion { RejectedRequest::Deletion } else { RejectedRequest::Eviction };
                    Some(kind(message.clone()))
                }
                _ => continue,
            };
            blocked.get_or_insert_with(|| {
                let budget = budget.filter(|_| rejection.is_none());
                BlockedPod {
                    pod: pod.full_name(),
                    budget: budget.map(|budget| budget.full_name()),
                    never: budget.is_some_and(|budget| budget.never_allows),
                    rejection,
                }
            });
        }
        DrainProgress::Leaving { calls, left: leaving.len(), blocked, look_at }
    }

    fn call_for(&self, pod: &PodFacts, attempt: Option<&Eviction>) -> PodCall {
        let is_over = attempt.is_some_and(|attempt| {
            // The time that Go MCM needs for this number of attempts, because some attempts here
            // are made sooner.
            let patience = EVICT_AGAIN_AFTER * self.max_evictions;
            let was_rejected = attempt.outcome.is_about_the_pod()
                && since(self.now, attempt.attempts.last) <= REJECTION_VALID;
            was_rejected
                && self.max_evictions <= attempt.attempts.count
                && self.unseen.deadline(attempt.first, patience) <= self.now
        });
        if is_over { PodCall::Delete(pod_ref(pod)) } else { PodCall::Evict(pod_ref(pod)) }
    }

    fn next_attempt(&self, eviction: &Eviction, seems_to_allow: bool) -> Timestamp {
        let wait = match &eviction.outcome {
            EvictionAnswer::Throttled { retry_after } => (*retry_after).min(MAX_RETRY_AFTER),
            EvictionAnswer::Held(_) if eviction.attempts.count <= QUICK_ATTEMPTS && seems_to_allow => {
                EVICT_AGAIN_SOONEST
            }
            EvictionAnswer::Accepted | EvictionAnswer::Deleted => LEAVES_AGAIN_AFTER,
            EvictionAnswer::Held(_) | EvictionAnswer::Refused(_) | EvictionAnswer::Failed(_) => {
                EVICT_AGAIN_AFTER
            }
            EvictionAnswer::Unanswered(_) => EVICT_AGAIN_SOONEST,
        };
        plus(eviction.attempts.last, wait)
    }

    fn by_force(&self, leaving: &[&Arc<PodFacts>], since: Timestamp) -> DrainProgress {
        // One answered deletion per pod is enough: the drain does not wait for pods of an abandoned
        // Node.
        let unsettled: Vec<_> = leaving.iter().filter(|pod| !self.is_settled(pod, since)).collect();
        if unsettled.is_empty() {
            return DrainProgress::GivenUp { left: leaving.len() };
        }
        let last = |pod: &PodFacts| self.deleted(pod, since);
        let tried_just_now = |pod: &PodFacts| {
            last(pod).is_some_and(|attempt| {
                let wait = match &attempt.outcome {
                    EvictionAnswer::Throttled { retry_after } => (*retry_after).min(MAX_RETRY_AFTER),
                    EvictionAnswer::Refused(_)
                    | EvictionAnswer::Failed(_)
                    | EvictionAnswer::Unanswered(_) => EVICT_AGAIN_SOONEST,
                    EvictionAnswer::Accepted | EvictionAnswer::Deleted | EvictionAnswer::Held(_) => {
                        return false;
                    }
                };
                machinist_core::since(self.now, attempt.attempts.last) < wait
            })
        };
        let blocked = unsettled.iter().find_map(|pod| match &last(pod)?.outcome {
            EvictionAnswer::Refused(message) | EvictionAnswer::Failed(message) => Some(BlockedPod {
                pod: pod.full_name(),
                budget: None,
                never: false,
                rejection: Some(RejectedRequest::Deletion(message.clone())),
            }),
            _ => None,
        });
        let pause = self.pause();
        let at_once = if pause.is_some() { 0 } else { self.calls_per_pass() };
        let due = unsettled.into_iter().filter(|pod| !tried_just_now(pod)).take(at_once);
        let calls = due.map(|pod| PodCall::Delete(pod_ref(pod))).collect();
        let look_at = pause.unwrap_or_else(|| plus(self.now, EVICT_AGAIN_SOONEST));
        DrainProgress::Leaving { calls, left: leaving.len(), blocked, look_at }
    }

    /// Whether a pod of an abandoned Node needs no more calls: after the force began, the API
    /// server has accepted the deletion, or has rejected it for so long that the instance is
    /// deleted anyway.
    fn is_settled(&self, pod: &PodFacts, since: Timestamp) -> bool {
        self.deleted(pod, since).is_some_and(|attempt| match attempt.outcome {
            EvictionAnswer::Deleted => true,
            EvictionAnswer::Refused(_) => {
                self.gives_up || is_past(self.now, plus(self.deadline, FORCED_POD_BUFFER + pod.grace))
            }
            EvictionAnswer::Throttled { .. } | EvictionAnswer::Failed(_) | EvictionAnswer::Unanswered(_) => {
                let waited = attempt.undecided_since.map(|since| machinist_core::since(self.now, since));
                self.gives_up && waited.is_some_and(|waited| UNANSWERED_FOR <= waited)
            }
            EvictionAnswer::Accepted | EvictionAnswer::Held(_) => false,
        })
    }

    /// Returns the last attempt to remove a pod, if it was a deletion that began at `since` or
    /// later.
    fn deleted(&self, pod: &PodFacts, since: Timestamp) -> Option<&Eviction> {
        self.attempts.get(&pod.uid).filter(|attempt| attempt.is_deletion && since <= attempt.asked)
    }

    fn calls_per_pass(&self) -> usize {
        if self.is_silent { 1 } else { CALLS_PER_PASS }
    }

    /// Returns the end of the pause after a call that the API server did not answer.
    fn pause(&self) -> Option<Timestamp> {
        let lost = self
            .attempts
            .values()
            .filter(|attempt| self.is_silent && matches!(attempt.outcome, EvictionAnswer::Unanswered(_)));
        let last = lost.map(|attempt| attempt.attempts.last).max()?;
        Some(plus(last, EVICT_AGAIN_SOONEST)).filter(|pause| self.now < *pause)
    }
}

/// Returns when to look at a deadline that ends at `ends`. After its end, something forbids its
/// enforcement.
pub(crate) fn end_or_later(now: Timestamp, ends: Timestamp) -> Timestamp {
    if now < ends { ends } else { plus(now, CLOCKS_AGAIN_AFTER) }
}

fn pod_ref(pod: &PodFacts) -> PodRef {
    PodRef { namespace: pod.namespace.clone(), name: pod.name.clone(), uid: pod.uid.clone() }
}
