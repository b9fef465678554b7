//! A small world for the two planners that delete Nodes: a cloud, its accounts, and Nodes.
//!
//! Each seed plays another story. Lists miss instances, lookups fail, the credential is replaced by
//! one of another project and back, instances are stopped and deleted. After each deletion of a
//! Node, the world checks that its instance does not exist.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use machinist_core::ownership::{List, Others, Ownership};
use machinist_core::{Answered, Answers, Found, Process, Wait};
use machinist_instance::{
    AccountId, Error, ErrorKind, Instance, InstanceRef, Power, ProviderId, RecordedId, Sighting,
};
use serde_json::json;

use super::account::AccountFacts;
use super::node::{self, Crowd, ListedNode, Options, SharedReasons, take_listed};
use super::node_removal::{self, Suspect};
use crate::ccm::facts::{CloudNodeFacts, NodeConditionFacts};
use crate::ccm::why::Plan;
use crate::event::EmittedEvents;
use crate::testing::{self, at};

const NODES: u32 = 10;
const SECONDS: i64 = 400;

/// Random numbers that are the same for a seed in every process.
struct Dice(u64);

impl Dice {
    /// Returns true once in that many times, on average.
    fn once_in(&mut self, times: u64) -> bool {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.is_multiple_of(times)
    }
}

/// The real state of one Node, and the memory of the controller.
struct Member {
    id: ProviderId,
    node: CloudNodeFacts,
    /// Whether the instance exists; the kubelet of a running one keeps the Node ready.
    exists: bool,
    power: Power,
    unready_since: Option<i64>,
    has_node: bool,
    answers: Answers,
    listed: Option<ListedNode>,
    emitted: EmittedEvents,
}

struct World {
    dice: Dice,
    now: i64,
    /// Whether the credential opens the account of the instances.
    is_right_account: bool,
    list: List,
    last_list: Option<(i64, AccountId)>,
    members: Vec<Member>,
    removed: Vec<Timestamp>,
    /// Without the brake in half of the stories, so that the evidence alone must suffice.
    options: Arc<Options>,
    /// Number of Nodes that were deleted.
    deletions: u32,
}

fn account(is_right: bool) -> AccountId {
    AccountId::of([&b"toy"[..], if is_right { b"right" } else { b"wrong" }])
}

fn process() -> Process {
    testing::process(0, Duration::from_secs(30), Duration::from_secs(10))
}

/// A Node after its initialisation.
fn node(number: u32) -> CloudNodeFacts {
    let node = json!({
        "metadata": {
            "name": format!("n{number}"), "uid": format!("uid-{number}"), "resourceVersion": "1",
            "creationTimestamp": at(-3600).to_string(),
            "annotations": {"machinist.dev/account": account(true).as_str()},
        },
        "spec": {"providerID": format!("toy://{number}")},
    });
    let node: Node = serde_json::from_value(node).expect("a Node");
    CloudNodeFacts::parse(&node)
}

impl World {
    fn new(seed: u64) -> Self {
        let member = |number: u32| Member {
            id: ProviderId::parse(&format!("toy://{number}")).expect("not empty"),
            node: node(number),
            exists: true,
            power: Power::Running,
            unready_since: None,
            has_node: true,
            answers: Answers::default(),
            listed: None,
            emitted: EmittedEvents::default(),
        };
        let options = Options { follows_labels: false, ..Options::default() };
        let brake = options.brake;
        Self {
            dice: Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            now: 0,
            is_right_account: true,
            list: List::NotAsked,
            last_list: None,
            members: (0..NODES).map(member).collect(),
            removed: Vec::new(),
            options: Arc::new(Options { brake: brake.filter(|_| seed.is_multiple_of(2)), ..options }),
            deletions: 0,
        }
    }

    fn play(mut self) -> Self {
        while self.now < SECONDS {
            self.now += 1;
            self.happen();
            for index in 0..self.members.len() {
                if self.members[index].has_node {
                    self.decide(index);
                }
            }
            self.remove();
        }
        self
    }

    /// Changes the real world.
    fn happen(&mut self) {
        let dice = &mut self.dice;
        if dice.once_in(80) {
            self.is_right_account = !self.is_right_account;
        }
        for member in &mut self.members {
            if member.exists && dice.once_in(400) {
                member.exists = false;
            }
            if dice.once_in(100) {
                member.power = if member.power == Power::Running { Power::Stopped } else { Power::Running };
            }
            let is_running = member.exists && member.power == Power::Running && !dice.once_in(50);
            member.unready_since = if is_running { None } else { member.unready_since.or(Some(self.now)) };
        }
    }

    fn facts(&self, index: usize) -> Arc<CloudNodeFacts> {
        let member = &self.members[index];
        let (status, since) = match member.unready_since {
            None => ("True", 0),
            Some(since) => ("Unknown", since),
        };
        let ready =
            NodeConditionFacts { status: status.to_owned(), reason: String::new(), since: Some(at(since)) };
        Arc::new(CloudNodeFacts { ready: Some(ready), ..member.node.clone() })
    }

    fn account(&self) -> AccountFacts {
        AccountFacts { id: Some(account(self.is_right_account)), list_cost: 1, ..AccountFacts::default() }
    }

    fn ownership(&self) -> Ownership {
        Ownership {
            account: Some(account(self.is_right_account)),
            recorded: Some(account(true)),
            others: Others::AsOld,
            list: self.list,
            ..Ownership::default()
        }
    }

    /// The list of today's account for one Node.
    fn listed(&self, index: usize) -> Option<ListedNode> {
        let (_, listed_account) = self.last_list.as_ref()?;
        let listed = self.members[index].listed.clone();
        listed.filter(|_| *listed_account == account(self.is_right_account))
    }

    fn decide(&mut self, index: usize) {
        let member = &self.members[index];
        let snapshot = node::Snapshot {
            now: at(self.now),
            process: process(),
            options: self.options.clone(),
            node: self.facts(index),
            recorded: RecordedId::Ours(member.id.clone()),
            account: self.account(),
            listed: self.listed(index),
            claimed_by: None,
            crowd: Crowd { uninitialized: 0, since: None, not_ready: 1 },
            answers: member.answers.clone(),
            stopped_since: None,
            ownership: self.ownership(),
            owner: None,
            emitted: Arc::new(member.emitted.clone()),
            shared: SharedReasons::default(),
        };
        let plan = node::plan(&snapshot);
        self.check_wait(&plan);
        for action in plan.actions {
            match action {
                node::Action::Find(which) => self.find(index, which),
                node::Action::List => self.list(),
                node::Action::Tell(event) => self.members[index].emitted.note(&event, at(self.now)),
                node::Action::Patch(_) | node::Action::SetAddresses { .. } => {}
            }
        }
    }

    /// A plan without actions waits for a later moment. Otherwise the planner would be called again
    /// at once, without an end.
    fn check_wait<A: std::fmt::Display>(&self, plan: &Plan<A>) {
        let is_later = !matches!(plan.wait, Wait::Until(until) if until <= at(self.now));
        assert!(is_later || !plan.actions.is_empty(), "{plan}");
    }

    fn find(&mut self, index: usize, by: InstanceRef) {
        let is_shown = self.is_right_account && self.members[index].exists;
        let answer = if self.dice.once_in(5) {
            Err(Error::new(ErrorKind::Unavailable, "try later"))
        } else if is_shown {
            Ok(Sighting::Present(self.instance(index)))
        } else {
            Ok(Sighting::Absent)
        };
        let now = at(self.now);
        let answered = Answered { started: now, ended: now, account: self.account().id, answer };
        self.members[index].answers.take_found(Found { by, answered });
    }

    /// A list may miss instances: they moved to another page while the pages were read.
    fn list(&mut self) {
        let today = account(self.is_right_account);
        self.list = List::Ended(at(self.now + 30));
        self.last_list = Some((self.now, today.clone()));
        for index in 0..self.members.len() {
            let is_shown = self.is_right_account && self.members[index].exists && !self.dice.once_in(4);
            let instance = is_shown.then(|| Arc::new(self.instance(index)));
            if instance.is_some() {
                take_listed(&mut self.members[index].answers, &today, at(self.now));
            }
            let listed = ListedNode { started: at(self.now), ended: at(self.now), instance };
            self.members[index].listed = Some(listed);
        }
    }

    fn instance(&self, index: usize) -> Instance {
        let member = &self.members[index];
        let name = format!("n{index}");
        Instance { id: member.id.clone(), power: member.power, ..testing::instance("sim://1", &name, -3600) }
    }

    fn remove(&mut self) {
        let with_node: BTreeSet<usize> =
            (0..self.members.len()).filter(|index| self.members[*index].has_node).collect();
        let is_suspect = |index: &usize| self.members[*index].answers.absence.is_some();
        let suspects = with_node.iter().copied().filter(is_suspect);
        let suspects = suspects.map(|index| Suspect {
            node: self.facts(index),
            recorded: RecordedId::Ours(self.members[index].id.clone()),
            answers: self.members[index].answers.clone(),
            listed: self.listed(index),
            ownership: self.ownership(),
            owner: None,
            refused: None,
        });
        let shown = |index: &&usize| self.listed(**index).is_some_and(|listed| listed.instance.is_some());
        let today = account(self.is_right_account);
        let last_list = self.last_list.as_ref().filter(|(_, listed)| *listed == today);
        let snapshot = node_removal::Snapshot {
            now: at(self.now),
            process: process(),
            options: self.options.clone(),
            account: self.account(),
            nodes: u32::try_from(with_node.len()).expect("few Nodes"),
            shown: last_list.map(|(second, _)| {
                (at(*second), u32::try_from(with_node.iter().filter(shown).count()).expect("few Nodes"))
            }),
            suspects: suspects.collect(),
            removed: self.removed.clone(),
            allowed_until: None,
            allowed_on: "".into(),
            emitted: Arc::default(),
        };
        let plan = node_removal::plan(&snapshot);
        self.check_wait(&plan);
        for action in plan.actions {
            match action {
                node_removal::Action::List => self.list(),
                node_removal::Action::Tell { .. } => {}
                node_removal::Action::Delete(removal) => {
                    let number = removal.node().name.strip_prefix('n').expect("the letter n and a number");
                    let index: usize = number.parse().expect("a number");
                    let member = &mut self.members[index];
                    assert!(!member.exists, "at {}: n{index} is deleted, but its instance exists", self.now);
                    assert_eq!(removal.absences().account, account(true), "asked in its own account");
                    member.has_node = false;
                    self.deletions += 1;
                    self.removed.push(at(self.now));
                }
            }
        }
    }
}

/// For all answers of the cloud, only Nodes of missing instances are deleted. In all stories
/// together, many of them are.
#[test]
fn no_node_of_an_existing_instance_is_deleted() {
    let worlds: Vec<World> = (1..=60).map(|seed| World::new(seed).play()).collect();
    let deletions: u32 = worlds.iter().map(|world| world.deletions).sum();
    let missing: usize =
        worlds.iter().flat_map(|world| &world.members).filter(|member| !member.exists).count();
    assert!(100 < deletions, "{deletions} Nodes of {missing} missing instances were deleted");
}
