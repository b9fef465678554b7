//! Node: initialises it, keeps its addresses and labels as the cloud shows them, and taints it
//! while its instance is stopped.
//!
//! ```text
//! uninitialized:  look up the instance -> addresses -> provider id, labels and taint in one patch
//! initialized:    addresses, labels, account (from the shared list; no call of its own)
//! not ready:      look up the instance -> shutdown taint, or a row of absences by id
//! ```
//!
//! Addresses are written before the taint is removed, so that no pod starts on a Node without them.
//!
//! Deleting the Node of a missing instance is deliberately absent. All Nodes share the limit on
//! deletions, so [`super::node_removal`] decides it from the absences that this planner collects.

mod initialize;
mod lifecycle;
mod refresh;
mod sight;

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{NodeAddress, Taint};
use machinist_core::ownership::Ownership;
use machinist_core::{Answers, Process, Step};
use machinist_instance::{AccountId, Instance, InstanceRef, ProviderId, RecordedId};

use self::lifecycle::Lifecycle;
use self::refresh::Refresh;
pub use self::sight::{take_listed, take_power};
use super::account::Account;
use super::addresses::NodeIpError;
use super::cidr::Cidr;
use super::{CcmReason, Plan, Reason, Why, names};
use crate::event::{EventText, Told};
use crate::facts::CloudNodeFacts;

/// All facts for one decision about one Node.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The moment of the decision.
    pub now: Timestamp,
    /// The deciding process.
    pub process: Process,
    /// The flags of the node controllers.
    pub options: Arc<Options>,
    /// The Node to decide about.
    pub node: Arc<CloudNodeFacts>,
    /// `spec.providerID` of the Node, as the provider classifies it.
    pub recorded: RecordedId,
    /// The state of today's account.
    pub account: Account,
    /// The result of the account's last list for this Node: by id, or by name while the Node has no
    /// provider id.
    pub listed: Option<Listed>,
    /// Another Node whose provider id names the instance that the cloud shows for this Node.
    pub claimed_by: Option<String>,
    /// How many other Nodes need a lookup.
    pub crowd: Crowd,
    /// The driver's answers for this Node, by its UID. Each list that shows the instance is noted
    /// in them with [`take_listed`].
    pub answers: Answers,
    /// When the first of several answers arrived that all showed the instance as stopped
    /// ([`take_power`]).
    pub stopped_since: Option<Timestamp>,
    /// Evidence whether today's credential opens the account of the instance.
    pub ownership: Ownership,
    /// The Machine of the Node, if the machine controller runs and has one.
    pub owner: Option<Owner>,
    /// Events that were emitted about the Node.
    pub told: Arc<Told>,
    /// Reasons of decisions about all Nodes that concern this one.
    pub shared: SharedReasons,
}

impl Hash for Snapshot {
    /// Hashes everything that determines a decision. Excluded are values that change without news
    /// (the moment, and the settings and measurements of the process), and the shared reasons,
    /// which only explain.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self {
            now: _,
            process: Process { started: _, leading_since: _, skew: _, cloud_skew: _, promises },
            options: _,
            node,
            recorded,
            account,
            listed,
            claimed_by,
            crowd,
            answers,
            stopped_since,
            ownership,
            owner,
            told,
            shared: _,
        } = self;
        (promises, node, recorded, account, listed, claimed_by).hash(state);
        (crowd, answers, stopped_since, ownership, owner, told).hash(state);
    }
}

/// Reasons of decisions about all Nodes, which explain one Node better than its own facts.
#[derive(Debug, Clone, Default)]
pub struct SharedReasons {
    /// Why the Node lacks a route.
    pub unrouted: Option<Why>,
    /// Why the deletion of Nodes is suspended.
    pub brake: Option<Why>,
}

/// The result of the account's last list for one Node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Listed {
    /// When the list began.
    pub started: Timestamp,
    /// When the list was answered.
    pub ended: Timestamp,
    /// The instance, if the list contained exactly one with that id or name.
    pub instance: Option<Arc<Instance>>,
}

/// How many Nodes need a lookup. From a certain number on, one list is cheaper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Crowd {
    /// Number of uninitialised Nodes without a young sighting, including this one.
    pub uninitialized: u32,
    /// When the first of them appeared. The lookup waits a moment for its siblings.
    pub since: Option<Timestamp>,
    /// Number of initialised Nodes that are not ready, including this one.
    pub not_ready: u32,
}

/// The Machine that owns a Node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owner {
    /// `namespace/name` of the Machine.
    pub machine: String,
    /// Whether the Machine is being deleted.
    pub is_deleting: bool,
}

/// The flags of the node controllers.
#[derive(Debug, Clone)]
pub struct Options {
    /// Whether this process initialises Nodes (`cloud-node-controller`).
    pub initializes: bool,
    /// Whether this process taints and deletes Nodes (`cloud-node-lifecycle-controller`).
    pub follows_lifecycle: bool,
    /// Whether labels for type, zone and region follow the instance after the initialisation.
    pub follows_labels: bool,
    /// `--trusted-node-cidrs`: networks of addresses that need no confirmation by the cloud.
    pub trusted: Vec<Cidr>,
    /// `--node-status-update-frequency`
    pub status_period: Duration,
    /// `--node-monitor-period`
    pub monitor_period: Duration,
    /// `--node-deletion-confirm-period`: the time between the two absences that prove that an
    /// instance does not exist.
    pub confirm_period: Duration,
    /// `--node-deletion-min-age`: younger Nodes are not deleted.
    pub min_age: Duration,
    /// `--shutdown-out-of-service`: whether the Node of an instance that two answers showed as
    /// stopped gets the taint `out-of-service`.
    pub out_of_service: bool,
    /// How long the deletion of a Node is left to the machine controller.
    pub owner_grace: Duration,
    /// `--node-deletion-brake`: the limit on missing instances above which no Node is deleted.
    pub brake: Option<Brake>,
}

/// The limit on missing instances above which no Node is deleted: the larger of two numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Brake {
    /// This number of Nodes may always be missing.
    pub nodes: u32,
    /// This part of the Nodes may be missing, in percent.
    pub percent: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            initializes: true,
            follows_lifecycle: true,
            follows_labels: true,
            trusted: Vec::new(),
            status_period: Duration::from_secs(300),
            monitor_period: Duration::from_secs(5),
            confirm_period: Duration::from_secs(15),
            min_age: Duration::from_secs(60),
            out_of_service: false,
            owner_grace: Duration::from_secs(120),
            brake: Some(Brake { nodes: 3, percent: 20 }),
        }
    }
}

/// One call for one Node.
#[derive(Debug)]
pub enum Action {
    /// Asks the driver to list the account. All Nodes of the account share the answer.
    List,
    /// Asks the driver to look up the instance.
    Find(InstanceRef),
    /// Replaces `status.addresses` of the Node, guarded by the UID and the list as it was read.
    SetAddresses {
        /// The Node as it was read.
        node: Arc<CloudNodeFacts>,
        /// The new list.
        addresses: Vec<NodeAddress>,
    },
    /// Patches the Node.
    Patch(Box<NodePatch>),
    /// Emits an Event on the Node.
    Tell(EventText),
}

/// One patch of a Node. Parts that are absent need no change. Each changed field is guarded by its
/// value as it was read.
#[derive(Debug, Clone)]
pub struct NodePatch {
    /// The Node as it was read.
    pub node: Arc<CloudNodeFacts>,
    /// The provider id of a Node that has none.
    pub provider_id: Option<ProviderId>,
    /// The labels to set.
    pub labels: BTreeMap<String, String>,
    /// The account to record in the annotation [`crate::facts::ACCOUNT`].
    pub account: Option<AccountId>,
    /// All new taints.
    pub taints: Option<Vec<Taint>>,
}

/// Decides the next actions for one Node.
pub fn plan(s: &Snapshot) -> Plan<Action> {
    let mut plan = plan_alone(s);
    let is_unrouted = plan.why.reason == Reason::Settled || plan.why.reason == Reason::Awaiting(NO_ROUTES);
    let is_removable = matches!(plan.why.reason, Reason::Contract(CcmReason::NodeRemovable { .. }));
    let shared = match (is_unrouted, is_removable) {
        (true, _) => s.shared.unrouted.clone(),
        (false, true) => s.shared.brake.clone(),
        (false, false) => None,
    };
    plan.why = shared.unwrap_or(plan.why);
    plan
}

/// Decides from the facts about the Node alone.
fn plan_alone(s: &Snapshot) -> Plan<Action> {
    if s.node.deleting_since.is_some() {
        let next = Step::Expect("the Node is deleted");
        return Plan::idle(Why::new(Reason::Awaiting(OTHER_FINALIZERS), next).since(s.node.deleting_since));
    }
    if s.node.is_uninitialized() {
        return match s.options.initializes {
            true => initialize::plan(s),
            false => {
                let next = Step::Expect("the other program initializes the Node");
                Plan::idle(Why::new(Reason::Awaiting(OTHER_INITIALIZER), next))
            }
        };
    }
    let refresh = if s.options.initializes { refresh::needed(s) } else { Refresh::default() };
    let Lifecycle { taints, mut plan } = match s.options.follows_lifecycle {
        true => lifecycle::plan(s),
        false => Lifecycle { taints: None, plan: Plan::idle(Why::settled()) },
    };
    let mut writes = refresh.events;
    if let Some(addresses) = refresh.addresses {
        writes.push(Action::SetAddresses { node: s.node.clone(), addresses });
    }
    if taints.is_some() || !refresh.labels.is_empty() || refresh.account.is_some() {
        let patch = NodePatch {
            node: s.node.clone(),
            provider_id: None,
            labels: refresh.labels,
            account: refresh.account,
            taints,
        };
        writes.push(Action::Patch(Box::new(patch)));
    }
    let is_writing = writes.iter().any(|action| !matches!(action, Action::Tell(_)));
    if is_writing && plan.why.reason == Reason::Settled {
        plan.why = Why::new(Reason::Writing("updating the Node from its instance"), Step::Nothing);
    }
    if plan.why.reason == Reason::Settled && lacks_routes(&s.node) {
        let next = Step::Expect("the route controller of the cluster creates the routes");
        plan.why = Why::new(Reason::Awaiting(NO_ROUTES), next)
            .since(s.node.network.as_ref().and_then(|it| it.since));
    }
    plan.actions.splice(0..0, writes);
    plan
}

/// Whether the condition of a Node shows that its routes do not exist. With another reason, the
/// condition belongs to a network plugin.
fn lacks_routes(node: &CloudNodeFacts) -> bool {
    node.network.as_ref().is_some_and(|it| it.status == "True" && it.reason == NO_ROUTE_CREATED)
}

/// Reason of the condition NetworkUnavailable of a Node whose routes do not exist.
const NO_ROUTE_CREATED: &str = "NoRouteCreated";
/// The reason if only that condition shows the missing routes. The route controller knows more.
const NO_ROUTES: &str = "waiting for the routes of the Node: its condition NetworkUnavailable is True with the reason NoRouteCreated";
const OTHER_FINALIZERS: &str = "waiting for other clients to remove their finalizers";
const OTHER_INITIALIZER: &str =
    "waiting for another program to initialize the Node: the cloud-node-controller is disabled here";

impl Snapshot {
    /// Returns today's account if the Node does not record it.
    fn account_to_record(&self) -> Option<AccountId> {
        self.account.id.clone().filter(|today| self.node.account().as_ref() != Some(today))
    }
}

/// Leaves a Node alone whose provider id is not one of this cloud.
fn other_id(s: &Snapshot) -> Plan<Action> {
    let id = s.node.provider_id().unwrap_or_default().to_owned();
    match &s.recorded {
        RecordedId::NotOurs { expected } => Plan::idle(Why::new(
            CcmReason::NodeOfAnotherCloud { id, expected: expected.clone() },
            Step::Expect("another program takes care of the Node"),
        )),
        RecordedId::Malformed { expected } => {
            let reason = CcmReason::NodeIdMalformed { id, expected: expected.clone() };
            let event = EventText::warning(names::PROVIDER_ID_MALFORMED, reason.to_string());
            let next = "delete the Node and let its kubelet register it again".to_owned();
            let mut plan = Plan::idle(Why::new(reason, Step::Fix(next)));
            plan.actions.extend(s.told.if_new(event).map(Action::Tell));
            plan
        }
        RecordedId::Unset | RecordedId::Ours(_) => {
            let next = "delete the Node and let its kubelet register it again".to_owned();
            Plan::idle(Why::new(CcmReason::NodeWithoutId, Step::Fix(next)))
        }
    }
}

fn tell(s: &Snapshot, event: EventText) -> Option<Action> {
    s.told.if_due(event, s.now).map(Action::Tell)
}

/// Returns the Event and the reason for an annotation that does not fit the instance.
fn ip_mismatch(error: &NodeIpError) -> (EventText, Why) {
    let reason = CcmReason::NodeIpMismatch { message: error.to_string() };
    let next = "start the kubelet with an address of the instance in --node-ip, connect the instance to that \
                network, or start this program with --trusted-node-cidrs";
    let event = EventText::warning(names::NODE_IP_MISMATCH, format!("{error}. To fix it, {next}."));
    (event, Why::new(reason, Step::Fix(next.to_owned())))
}

/// Returns the Event for addresses that are accepted although the cloud does not offer them.
fn trusted_event(s: &Snapshot, trusted: &[NodeIpError]) -> Option<Action> {
    let first = trusted.first()?;
    let message = format!("{first}. It is accepted because --trusted-node-cidrs contains it.");
    tell(s, EventText::warning(names::NODE_IP_MISMATCH, message))
}

fn label_events(s: &Snapshot, refused: &[String]) -> Option<Action> {
    if refused.is_empty() {
        return None;
    }
    let message = format!("Labels of the instance were not added to the Node: {}", refused.join("; "));
    tell(s, EventText::warning(names::INVALID_NODE_LABEL, message))
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::List => f.write_str("driver: list"),
            Self::Find(which) => write!(f, "driver: find {which}"),
            Self::SetAddresses { addresses, .. } => {
                let all: Vec<_> = addresses.iter().map(|it| format!("{} {}", it.type_, it.address)).collect();
                write!(f, "node/status: addresses {}", all.join(", "))
            }
            Self::Patch(patch) => patch.fmt(f),
            Self::Tell(event) => event.fmt(f),
        }
    }
}

impl fmt::Display for NodePatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if let Some(id) = &self.provider_id {
            parts.push(format!("provider id {id}"));
        }
        if !self.labels.is_empty() {
            let all: Vec<_> = self.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
            parts.push(format!("labels {}", all.join(" ")));
        }
        if let Some(account) = &self.account {
            parts.push(format!("account {account}"));
        }
        if let Some(taints) = &self.taints {
            let all: Vec<_> = taints.iter().map(|taint| format!("{}:{}", taint.key, taint.effect)).collect();
            parts.push(format!("taints [{}]", all.join(" ")));
        }
        write!(f, "node: {}", parts.join(", "))
    }
}

#[cfg(test)]
mod tests;
