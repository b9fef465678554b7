//! The program, broken on purpose in ten ways. A named invariant must catch each mutant, on seeds
//! that the correct program passes. An invariant that no mutant violates proves nothing.
//!
//! | mutant | what is broken | caught by |
//! |---|---|---|
//! | uid check | writes have no UID, so they apply to any object of that name | S3 |
//! | own-writes barrier | a process believes at once that its store contains its own write | S4 |
//! | fresh name | a POST with an unknown outcome is repeated under another name | S4 |
//! | early finalizer | the finalizer is removed before the instance is deleted | S3 |
//! | absence without lag | an instance that one read does not show is taken as deleted at once | S3 |
//! | node by name | every Node with the Machine's name is taken as the Machine's Node | S7 |
//! | unbounded requeue | an object is reconciled again at once, for ever | L4 |
//! | replacement limit | each unhealthy Machine is replaced without regard to the others | S13 |
//! | unseen cordon | a Node is taken as cordoned and empty as soon as the store shows no pod | S6 |
//! | ownership proof | every account is taken as the account of the instance | S3 |
//!
//! The product's code is not changed. A mutant rewrites requests and answers in transit
//! ([`Tamper`]), or it calls a planner with altered facts and alters the plan (`Planners`).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Method, Response};
use http_body_util::BodyExt;
use machinist_controllers::Planners;
use machinist_core::{Known, Wait};
use machinist_plan::facts::NodeFacts;
use machinist_plan::mcm::{machine, replacement};
use machinist_plan::{Plan, PodList};
use serde_json::{Value, json};

use crate::ask::Ask;
use crate::faults::answer::{Answer, full};
use crate::invariants::Id;
use crate::sight::MACHINES;

/// Rewrites the requests of a process and their answers.
#[async_trait]
pub trait Tamper: Send + Sync {
    /// Changes a request before it is sent.
    fn request(&self, _ask: &mut Ask) {}

    /// A further request to send after that answer, if any.
    fn again(&self, _ask: &Ask, _answer: &Answer) -> Option<Ask> {
        None
    }

    /// Changes an answer before the process receives it.
    async fn answer(&self, _ask: &Ask, answer: Answer) -> Answer {
        answer
    }
}

/// One way in which the program is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// Writes have no UID, so they apply to any object of that name.
    UidCheck,
    /// A process believes at once that its store contains its own write.
    OwnWritesBarrier,
    /// A POST with an unknown outcome is repeated under another name.
    FreshName,
    /// The finalizer is removed before the instance is deleted.
    EarlyFinalizer,
    /// An instance that one read does not show is taken as deleted at once.
    AbsenceWithoutLag,
    /// Every Node with the Machine's name is taken as the Machine's Node.
    NodeByName,
    /// An object is reconciled again at once, for ever.
    UnboundedRequeue,
    /// Each unhealthy Machine is replaced without regard to the others.
    ReplacementLimit,
    /// A Node is taken as cordoned and empty as soon as the store shows no pod on it.
    UnseenCordon,
    /// Every account is taken as the account of the instance.
    OwnershipProof,
}

impl Mutant {
    /// All ten mutants.
    pub const ALL: [Self; 10] = [
        Self::UidCheck,
        Self::OwnWritesBarrier,
        Self::FreshName,
        Self::EarlyFinalizer,
        Self::AbsenceWithoutLag,
        Self::NodeByName,
        Self::UnboundedRequeue,
        Self::ReplacementLimit,
        Self::UnseenCordon,
        Self::OwnershipProof,
    ];

    /// Name of the mutant in cases and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::UidCheck => "uid-check",
            Self::OwnWritesBarrier => "own-writes-barrier",
            Self::FreshName => "fresh-name",
            Self::EarlyFinalizer => "early-finalizer",
            Self::AbsenceWithoutLag => "absence-without-lag",
            Self::NodeByName => "node-by-name",
            Self::UnboundedRequeue => "unbounded-requeue",
            Self::ReplacementLimit => "replacement-limit",
            Self::UnseenCordon => "unseen-cordon",
            Self::OwnershipProof => "ownership-proof",
        }
    }

    /// The invariant that must catch the mutant.
    pub fn caught_by(self) -> Id {
        match self {
            Self::UidCheck | Self::EarlyFinalizer | Self::AbsenceWithoutLag | Self::OwnershipProof => Id::S3,
            Self::OwnWritesBarrier | Self::FreshName => Id::S4,
            Self::NodeByName => Id::S7,
            Self::UnboundedRequeue => Id::L4,
            Self::ReplacementLimit => Id::S13,
            Self::UnseenCordon => Id::S6,
        }
    }

    /// The mutant's changes to requests and answers.
    pub fn tamper(self) -> Option<Arc<dyn Tamper>> {
        match self {
            Self::UidCheck => Some(Arc::new(WithoutUids)),
            Self::OwnWritesBarrier => Some(Arc::new(OldRevisions)),
            Self::FreshName => Some(Arc::new(FreshNames)),
            Self::EarlyFinalizer
            | Self::AbsenceWithoutLag
            | Self::NodeByName
            | Self::UnboundedRequeue
            | Self::ReplacementLimit
            | Self::UnseenCordon
            | Self::OwnershipProof => None,
        }
    }

    /// The mutant's planners.
    pub fn planners(self) -> Planners {
        let sound = Planners::default();
        match self {
            Self::EarlyFinalizer => Planners { machine: early_finalizer, ..sound },
            Self::AbsenceWithoutLag => Planners { machine: absence_without_lag, ..sound },
            Self::NodeByName => Planners { machine: node_by_name, ..sound },
            Self::UnboundedRequeue => Planners { machine: unbounded_requeue, ..sound },
            Self::OwnershipProof => Planners { machine: no_ownership_proof, ..sound },
            Self::ReplacementLimit => Planners { replacement: no_replacement_limit, ..sound },
            Self::UnseenCordon => Planners { machine: unseen_cordon, ..sound },
            Self::UidCheck | Self::OwnWritesBarrier | Self::FreshName => sound,
        }
    }
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Mutant {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|mutant| mutant.name() == text).ok_or(format!("{text:?} is not a mutant"))
    }
}

/// Removes the `test` of the uid from patches, and the preconditions from deletions.
struct WithoutUids;

impl Tamper for WithoutUids {
    fn request(&self, ask: &mut Ask) {
        let Some(mut body) = ask.json() else { return };
        match (&ask.parts.method, &mut body) {
            (&Method::PATCH, Value::Array(operations)) => {
                operations.retain(|operation| operation["path"] != "/metadata/uid");
            }
            (&Method::PATCH, patch) => {
                if let Some(metadata) = patch.get_mut("metadata").and_then(Value::as_object_mut) {
                    metadata.remove("uid");
                }
            }
            (&Method::DELETE, options) => {
                if let Some(options) = options.as_object_mut() {
                    options.remove("preconditions");
                }
            }
            _ => return,
        }
        ask.body = Bytes::from(body.to_string());
    }
}

/// Gives every answer to a write an old revision, so that the store takes the write as already
/// seen.
struct OldRevisions;

#[async_trait]
impl Tamper for OldRevisions {
    async fn answer(&self, ask: &Ask, answer: Answer) -> Answer {
        if !ask.is_write() {
            return answer;
        }
        let (parts, body) = answer?.into_parts();
        let bytes = body.collect().await?.to_bytes();
        let Ok(mut value) = serde_json::from_slice::<Value>(&bytes) else {
            return Ok(Response::from_parts(parts, full(bytes)));
        };
        if let Some(revision) = value.pointer_mut("/metadata/resourceVersion") {
            *revision = json!("1");
        }
        Ok(Response::from_parts(parts, full(Bytes::from(value.to_string()))))
    }
}

/// Repeats a POST of a Machine under a new name, like a client that retries `generateName`.
struct FreshNames;

/// Maximum number of attempts.
const ATTEMPTS: usize = 3;
/// Suffix that each attempt adds to the name.
const FRESH: &str = "-x";

impl Tamper for FreshNames {
    fn again(&self, ask: &Ask, answer: &Answer) -> Option<Ask> {
        let is_unknown = match answer {
            Ok(response) => response.status().is_server_error(),
            Err(_) => true,
        };
        let is_birth = ask.parts.method == Method::POST && ask.about.table == MACHINES;
        if !is_unknown || !is_birth || ATTEMPTS <= ask.about.name.matches(FRESH).count() {
            return None;
        }
        let mut body = ask.json()?;
        let name = format!("{}{FRESH}", ask.about.name);
        body["metadata"]["name"] = json!(name);
        let mut about = ask.about.clone();
        about.name = name;
        let parts = ask.again().into_parts().0;
        Some(Ask { parts, body: Bytes::from(body.to_string()), about })
    }
}

fn early_finalizer(s: &machine::Snapshot) -> Plan<machine::Action> {
    let mut plan = machine::plan(s);
    if let Some(delete) = plan.actions.iter().position(|action| matches!(action, machine::Action::Delete(_)))
    {
        plan.actions.truncate(delete);
        plan.actions.push(machine::Action::RemoveFinalizer);
    }
    plan
}

fn absence_without_lag(s: &machine::Snapshot) -> Plan<machine::Action> {
    let mut s = s.clone();
    s.process.promises.visible_within = Duration::ZERO;
    s.process.promises.call_bound = Duration::ZERO;
    machine::plan(&s)
}

fn no_ownership_proof(s: &machine::Snapshot) -> Plan<machine::Action> {
    let mut s = s.clone();
    s.ownership.recorded = s.ownership.account.clone();
    machine::plan(&s)
}

fn node_by_name(s: &machine::Snapshot) -> Plan<machine::Action> {
    let mut s = s.clone();
    if let Known::Present(node) = &mut s.node {
        let node = Arc::make_mut(node);
        node.provider_id = s.machine.provider_id.as_ref().map(|id| id.as_str().to_owned());
        node.created = node.created.max(s.machine.created);
        s.identity.same_instance = true;
        s.identity.claimed_by = None;
    }
    machine::plan(&s)
}

fn unbounded_requeue(s: &machine::Snapshot) -> Plan<machine::Action> {
    let mut plan = machine::plan(s);
    plan.wait = Wait::Until(s.now);
    plan
}

/// Cordons the Node, and in the same pass takes it as cordoned, and as empty if the store shows no
/// pod.
fn unseen_cordon(s: &machine::Snapshot) -> Plan<machine::Action> {
    let Known::Present(node) = &s.node else { return machine::plan(s) };
    let mut hasty = s.clone();
    let closed = NodeFacts { unschedulable: Some(true), ..(**node).clone() };
    hasty.node_seen.cordoned = Some(s.now);
    hasty.looks.pods = Some(PodList { node_uid: node.uid.clone(), started: s.now, leaving: 0 });
    hasty.node = Known::Present(Arc::new(closed));
    let mut plan = machine::plan(&hasty);
    // The correct plan also writes the Terminating condition directly before it cordons the Node.
    let is_open = node.unschedulable != Some(true);
    let told =
        plan.actions.iter().position(|action| matches!(action, machine::Action::SetTerminating { .. }));
    if let Some(told) = told.filter(|_| is_open) {
        plan.actions.insert(told + 1, machine::Action::Cordon(node.clone()));
    }
    plan
}

fn no_replacement_limit(s: &replacement::Snapshot) -> Plan<replacement::Action> {
    let alone = s.machines.iter().map(|machine| {
        // Without its set, no Machine counts as missing. Otherwise each single Machine would leave
        // a gap in its set.
        let alone = replacement::Snapshot { machines: vec![machine.clone()], sets: Vec::new(), ..s.clone() };
        replacement::plan(&alone)
    });
    let mut whole = replacement::plan(s);
    whole.actions = alone.flat_map(|plan| plan.actions).collect();
    whole
}
