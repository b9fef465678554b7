//! Drain: evicts the pods of a Node and respects disruption budgets until the drain times out.
//!
//! All contracts share this module. One pass decides for every pod and returns without waiting. The
//! pod store shows whether a pod has left, so a drain survives a crash without memory. The
//! remembered eviction attempts only space the next attempts.
//!
//! The cordon and the volumes are deliberately absent: the caller handles them before and after the
//! drain.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::facts::{BudgetFacts, PodFacts};
use crate::why::BlockedPod;
use machinist_core::{Attempts, LONGEST_RETRY_AFTER, is_past, just_past, plus, since};

/// Wait between two eviction attempts for one pod.
const EVICT_AGAIN_AFTER: Duration = Duration::from_secs(20);
/// Wait between two eviction attempts if every budget that covers the pod allows a disruption.
const EVICT_AGAIN_SOONEST: Duration = Duration::from_secs(5);
/// Number of attempts with the shorter wait. A budget with an outdated status may seem to allow an
/// eviction that the API server rejects. Too many attempts end in a forced deletion, so only the
/// first few are made sooner.
const QUICK_ATTEMPTS: u32 = 6;
/// Extra time beyond the grace period after which a forced drain stops waiting for a pod's
/// deletion.
const FORCED_POD_BUFFER: Duration = Duration::from_secs(30);
/// Wait before the next look if a deadline has passed but clock skew forbids its enforcement.
pub(crate) const CLOCKS_AGAIN_AFTER: Duration = Duration::from_secs(60);
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
    /// Number of rejected evictions after which a pod is deleted instead.
    pub max_evictions: u32,
}

/// How a drain removes pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// By eviction, which respects budgets.
    Polite,
    /// By deletion without grace: the Node is dead, the drain timed out, or a user requested it.
    Forced,
}

/// Memory of the eviction attempts for one pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Eviction {
    /// Number of attempts, and the time of the last one.
    pub attempts: Attempts,
    /// Time of the first attempt.
    pub first: Timestamp,
    /// Outcome of the last attempt.
    pub outcome: EvictionOutcome,
}

impl Eviction {
    /// Returns the memory after one more attempt.
    pub fn after(before: Option<&Self>, outcome: EvictionOutcome, now: Timestamp) -> Self {
        // A throttled request says nothing about the pod, so it does not count.
        let counts = !matches!(outcome, EvictionOutcome::Throttled { .. });
        let count = before.map_or(0, |before| before.attempts.count).saturating_add(u32::from(counts));
        let first = before.map_or(now, |before| before.first);
        Self { attempts: Attempts { count, last: now }, first, outcome }
    }
}

/// Outcome of an eviction attempt.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum EvictionOutcome {
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
    /// Rejected for another reason.
    Refused(String),
}

/// One call of a drain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
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

/// Progress of a drain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// Every pod that a drain evicts has left.
    Done,
    /// Pods were deleted by force, and the drain does not wait for them.
    GivenUp {
        /// Number of pods left.
        left: usize,
    },
    /// Pods are leaving.
    Leaving {
        /// The calls to make now.
        calls: Vec<Call>,
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
    pub fn progress(&self) -> Progress {
        let leaving: Vec<_> = self.pods.iter().filter(|pod| pod.leaves_in_a_drain()).collect();
        if leaving.is_empty() {
            return Progress::Done;
        }
        match self.manner {
            Manner::Polite => self.politely(&leaving),
            Manner::Forced => self.by_force(&leaving),
        }
    }

    fn politely(&self, leaving: &[&Arc<PodFacts>]) -> Progress {
        let mut calls = Vec::new();
        let mut blocked = None;
        let ends = just_past(self.deadline);
        let mut look_at = if self.now < ends { ends } else { plus(self.now, CLOCKS_AGAIN_AFTER) };
        for pod in leaving {
            if pod.deleting_since.is_some() {
                continue;
            }
            let covering = self.budgets.iter().filter(|budget| budget.covers(pod));
            let budget = covering.min_by_key(|budget| budget.disruptions_allowed);
            let seems_to_allow = budget.is_some_and(|tightest| 0 < tightest.disruptions_allowed);
            let attempt = self.attempts.get(&pod.uid);
            let due = attempt.map_or(self.now, |attempt| self.next_attempt(attempt, seems_to_allow));
            if due <= self.now && calls.len() < CALLS_PER_PASS {
                calls.push(self.call_for(pod, attempt));
            } else {
                look_at = look_at.min(due);
            }
            let held = matches!(attempt.map(|a| &a.outcome), Some(EvictionOutcome::Held(_)));
            if held && blocked.is_none() {
                blocked = Some(BlockedPod {
                    pod: pod.full_name(),
                    budget: budget.map(|budget| budget.full_name()),
                    never: budget.is_some_and(|budget| budget.never_allows),
                });
            }
        }
        Progress::Leaving { calls, left: leaving.len(), blocked, look_at }
    }

    fn call_for(&self, pod: &PodFacts, attempt: Option<&Eviction>) -> Call {
        let is_over = attempt.is_some_and(|attempt| {
            // The time that Go MCM needs for this number of attempts, because some attempts here
            // are made sooner.
            let patience = EVICT_AGAIN_AFTER * self.max_evictions.saturating_sub(1);
            self.max_evictions <= attempt.attempts.count && patience <= since(self.now, attempt.first)
        });
        if is_over { Call::Delete(pod_ref(pod)) } else { Call::Evict(pod_ref(pod)) }
    }

    fn next_attempt(&self, eviction: &Eviction, seems_to_allow: bool) -> Timestamp {
        let wait = match &eviction.outcome {
            EvictionOutcome::Throttled { retry_after } => (*retry_after).min(LONGEST_RETRY_AFTER),
            EvictionOutcome::Held(_) if eviction.attempts.count <= QUICK_ATTEMPTS && seems_to_allow => {
                EVICT_AGAIN_SOONEST
            }
            EvictionOutcome::Accepted
            | EvictionOutcome::Deleted
            | EvictionOutcome::Held(_)
            | EvictionOutcome::Refused(_) => EVICT_AGAIN_AFTER,
        };
        plus(eviction.attempts.last, wait)
    }

    fn by_force(&self, leaving: &[&Arc<PodFacts>]) -> Progress {
        // One deletion per pod is enough: the drain does not wait for pods of an abandoned Node.
        let unasked: Vec<_> = leaving.iter().filter(|pod| !self.is_settled(pod)).collect();
        if unasked.is_empty() {
            return Progress::GivenUp { left: leaving.len() };
        }
        let tried_just_now = |pod: &PodFacts| {
            self.attempts.get(&pod.uid).is_some_and(|attempt| {
                matches!(attempt.outcome, EvictionOutcome::Refused(_) | EvictionOutcome::Throttled { .. })
                    && since(self.now, attempt.attempts.last) < EVICT_AGAIN_SOONEST
            })
        };
        let due = unasked.into_iter().filter(|pod| !tried_just_now(pod)).take(CALLS_PER_PASS);
        let calls = due.map(|pod| Call::Delete(pod_ref(pod))).collect();
        let look_at = plus(self.now, EVICT_AGAIN_SOONEST);
        Progress::Leaving { calls, left: leaving.len(), blocked: None, look_at }
    }

    /// Whether a pod of an abandoned Node needs no more calls. Either the pod was deleted, or the
    /// API server has rejected the deletion for so long that the instance is deleted anyway.
    fn is_settled(&self, pod: &PodFacts) -> bool {
        self.attempts.get(&pod.uid).is_some_and(|attempt| {
            attempt.outcome == EvictionOutcome::Deleted
                || is_past(self.now, plus(self.deadline, FORCED_POD_BUFFER + pod.grace))
        })
    }
}

fn pod_ref(pod: &PodFacts) -> PodRef {
    PodRef { namespace: pod.namespace.clone(), name: pod.name.clone(), uid: pod.uid.clone() }
}
