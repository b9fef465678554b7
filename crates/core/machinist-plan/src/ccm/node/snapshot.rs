//! All facts for one decision about one Node.

use crate::ccm::account::AccountFacts;
use crate::ccm::cidr::Cidr;
use crate::ccm::facts::CloudNodeFacts;
use crate::ccm::why::Why;
use crate::event::EmittedEvents;
use jiff::Timestamp;
use machinist_core::ownership::Ownership;
use machinist_core::{Answers, Process};
use machinist_instance::{AccountId, Instance, RecordedId};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

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
    pub account: AccountFacts,
    /// The result of the account's last list for this Node: by id, or by name while the Node has no
    /// provider id.
    pub listed: Option<ListedNode>,
    /// Another Node whose provider id names the instance that the cloud shows for this Node.
    pub claimed_by: Option<String>,
    /// How many other Nodes need a lookup.
    pub crowd: Crowd,
    /// The driver's answers for this Node, by its UID. Each list that shows the instance is noted
    /// in them with [`take_listed`](super::take_listed).
    pub answers: Answers,
    /// When the first of several answers arrived that all showed the instance as stopped
    /// ([`take_power`](super::take_power)).
    pub stopped_since: Option<Timestamp>,
    /// Evidence whether today's credential opens the account of the instance.
    pub ownership: Ownership,
    /// The Machine of the Node, if the machine controller runs and has one.
    pub owner: Option<Owner>,
    /// Events that were emitted about the Node.
    pub emitted: Arc<EmittedEvents>,
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
            emitted,
            shared: _,
        } = self;
        (promises, node, recorded, account, listed, claimed_by).hash(state);
        (crowd, answers, stopped_since, ownership, owner, emitted).hash(state);
    }
}

impl Snapshot {
    /// Returns today's account if the Node does not record it.
    pub(super) fn account_to_record(&self) -> Option<AccountId> {
        self.account.id.clone().filter(|today| self.node.account().as_ref() != Some(today))
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
pub struct ListedNode {
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
