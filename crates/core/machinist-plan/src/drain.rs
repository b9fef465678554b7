//! Drain: moving the pods of a node away, respecting budgets for as long as there is time.
//!
//! Shared by all front ends. One pass decides for every pod at once and returns; nothing waits inside. Whether a pod has gone
//! is seen in the pod store, so a drain survives a crash without memory: what is remembered (eviction attempts) only
//! spaces the next attempts.
//!
//! Deliberately absent: the cordon and the volumes, which are the caller's steps before and after.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::facts::{BudgetFacts, PodFacts};
use crate::why::BlockedPod;
use machinist_core::{Attempts, LONGEST_RETRY_AFTER, is_past, just_past, plus, since};

/// Between two attempts to evict one pod, if nothing suggests that the next may succeed.
const EVICT_AGAIN_AFTER: Duration = Duration::from_secs(20);
/// The same, once every budget that covers it allows a disruption.
const EVICT_AGAIN_SOONEST: Duration = Duration::from_secs(5);
/// Budgets may seem to allow what the API server refuses, for as long as nobody brings their status up to date. Attempts are counted, and
/// the count ends in force, so only the first few are made sooner.
const QUICK_ATTEMPTS: u32 = 6;
/// How long a pod may take beyond its grace before its deletion is repeated by force, once forced.
const FORCED_POD_BUFFER: Duration = Duration::from_secs(30);
/// Patience has ended but nothing may be done about it, as clocks disagree: look again after this long.
pub(crate) const CLOCKS_AGAIN_AFTER: Duration = Duration::from_secs(60);
/// The most calls that one pass makes: the rest follows when these have been answered.
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
    /// Attempts at evicting pods, by pod UID. Memory: may be empty at any moment.
    pub attempts: &'s BTreeMap<String, Eviction>,
    /// When patience ends.
    pub deadline: Timestamp,
    /// Whether pods are evicted, or deleted at once.
    pub manner: Manner,
    /// After so many refusals a pod is deleted instead of evicted.
    pub max_evictions: u32,
}

/// How pods are made to leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// By eviction, respecting budgets.
    Polite,
    /// By deletion without grace: the node is dead, time is up, or a person asked for it.
    Forced,
}

/// What is remembered about the eviction of one pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Eviction {
    /// How often it was tried, and when last.
    pub attempts: Attempts,
    /// When it was first tried.
    pub first: Timestamp,
    /// What the last attempt came to.
    pub outcome: EvictionOutcome,
}

impl Eviction {
    /// What is remembered after one more attempt.
    pub fn after(before: Option<&Self>, outcome: EvictionOutcome, now: Timestamp) -> Self {
        // Being asked for patience is not the pod's fault.
        let counts = !matches!(outcome, EvictionOutcome::Throttled { .. });
        let count = before.map_or(0, |before| before.attempts.count).saturating_add(u32::from(counts));
        let first = before.map_or(now, |before| before.first);
        Self { attempts: Attempts { count, last: now }, first, outcome }
    }
}

/// What an attempt to evict came to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum EvictionOutcome {
    /// Accepted: the pod is on its way.
    Accepted,
    /// Deleted without grace.
    Deleted,
    /// Held by a budget; the API server's words.
    Held(String),
    /// The API server asked for patience: not counted against the pod.
    Throttled {
        /// For how long.
        retry_after: Duration,
    },
    /// Refused for another reason.
    Refused(String),
}

/// One call of a drain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// POST an eviction.
    Evict(PodRef),
    /// DELETE without grace.
    Delete(PodRef),
}

/// Which pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodRef {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID: a pod of the same name is another pod.
    pub uid: String,
}

/// How far a drain is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// Every pod that leaves in a drain has left.
    Done,
    /// Pods were deleted by force and need not be waited for.
    GivenUp {
        /// How many were left.
        left: usize,
    },
    /// Pods are leaving.
    Leaving {
        /// Calls to make now.
        calls: Vec<Call>,
        /// How many pods are left.
        left: usize,
        /// The first that may not leave.
        blocked: Option<BlockedPod>,
        /// When to look again if nothing happens.
        look_at: Timestamp,
    },
}

impl Drain<'_> {
    /// Decides how the drain goes on.
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
            // As long as that many attempts take with Go MCM: some of ours are made sooner.
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
        // One deletion each is enough: nobody waits for pods of a node that is given up.
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

    /// Whether a pod of a node that is given up needs no more calls: it was deleted, or the API server has refused for so
    /// long that the instance goes anyway.
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
