//! The program, broken on purpose in ten ways: each breakage must be caught, by the invariant that is there for it, on seeds
//! that the whole program passes. Invariants that nothing can violate prove nothing.
//!
//! | mutant | what is broken | caught by |
//! |---|---|---|
//! | uid check | no write says which object of a name it means | S3 |
//! | own-writes barrier | whoever wrote believes at once that it has seen its write | S4 |
//! | fresh name | a POST whose outcome is unknown is repeated under another name | S4 |
//! | early finalizer | the finalizer leaves before the instance does | S3 |
//! | absence without lag | an instance that a read does not show is believed gone at once | S3 |
//! | node by name | whatever Node has the name is the Machine's | S7 |
//! | unbounded requeue | an object is looked at again at once, for ever | L4 |
//! | replacement limit | every unhealthy Machine is given up by itself | S13 |
//! | unseen cordon | a Node counts as closed and empty as soon as the store shows no pod | S6 |
//! | ownership proof | every account is believed to be the one of the instance | S3 |
//!
//! Nothing of the product is changed for this: requests and answers are rewritten on their way ([`Tamper`]), or a planner is asked
//! with altered facts and its plan altered (`Planners`).

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
use crate::faults::wire::{Answer, full};
use crate::invariants::Id;
use crate::sight::MACHINES;

/// Rewrites what a process sends and gets.
#[async_trait]
pub trait Tamper: Send + Sync {
    /// Before it is sent.
    fn request(&self, _ask: &mut Ask) {}

    /// What is sent after that answer, if anything.
    fn again(&self, _ask: &Ask, _answer: &Answer) -> Option<Ask> {
        None
    }

    /// Before it is received.
    async fn answer(&self, _ask: &Ask, answer: Answer) -> Answer {
        answer
    }
}

/// One way in which the program is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// No write says which object of a name it means.
    UidCheck,
    /// Whoever wrote believes at once that it has seen its write.
    OwnWritesBarrier,
    /// A POST whose outcome is unknown is repeated under another name.
    FreshName,
    /// The finalizer leaves before the instance does.
    EarlyFinalizer,
    /// An instance that a read does not show is believed gone at once.
    AbsenceWithoutLag,
    /// Whatever Node has the name is the Machine's.
    NodeByName,
    /// An object is looked at again at once, for ever.
    UnboundedRequeue,
    /// Every unhealthy Machine is given up by itself.
    ReplacementLimit,
    /// A Node counts as closed and empty as soon as the store shows no pod on it.
    UnseenCordon,
    /// Every account is believed to be the one of the instance.
    OwnershipProof,
}

impl Mutant {
    /// All ten.
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

    /// Its name.
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

    /// The invariant that is there for it.
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

    /// What it does to requests and answers.
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

    /// What it does to planners.
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
        Self::ALL.into_iter().find(|mutant| mutant.name() == text).ok_or(format!("{text:?} is no mutant"))
    }
}

/// Takes `test` of uids out of patches and preconditions out of deletions.
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

/// Makes every answer to a write say that it happened long ago: then the store has "seen" it already.
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

/// Repeats a POST of a Machine under a fresh name, as a client does that retries `generateName`.
struct FreshNames;

/// After so many attempts even that client gives up.
const ATTEMPTS: usize = 3;
/// Added to the name at each attempt.
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

/// Closes the Node, and takes it for closed, and for empty if the store shows no pod, in the same pass.
fn unseen_cordon(s: &machine::Snapshot) -> Plan<machine::Action> {
    let Known::Present(node) = &s.node else { return machine::plan(s) };
    let mut hasty = s.clone();
    let closed = NodeFacts { unschedulable: Some(true), ..(**node).clone() };
    hasty.node_seen.cordoned = Some(s.now);
    hasty.looks.pods = Some(PodList { node_uid: node.uid.clone(), started: s.now, leaving: 0 });
    hasty.node = Known::Present(Arc::new(closed));
    let mut plan = machine::plan(&hasty);
    // Everything that says anything to the Node says it before: it is what the Node is closed with.
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
        // Without sets nothing is missing, or one Machine alone would be a gap by itself.
        let alone = replacement::Snapshot { machines: vec![machine.clone()], sets: Vec::new(), ..s.clone() };
        replacement::plan(&alone)
    });
    let mut whole = replacement::plan(s);
    whole.actions = alone.flat_map(|plan| plan.actions).collect();
    whole
}
