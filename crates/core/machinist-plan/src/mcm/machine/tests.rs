//! Tests of the Machine planner: each test builds a snapshot and checks the plan.

mod proof;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use expect_test::{Expect, expect};
use jiff::Timestamp;
use machinist_api::{Machine, MachineClass, Phase};
use machinist_instance::{
    AccountId, CreateGuarantee, Error, ErrorKind, Instance, InstanceKey, InstanceRef, KeyTag, NodeName,
    Place, Power, Promises, ProviderId, RecordedId, Sighting,
};
use serde_json::{Value, json};

use super::place::PlaceFacts;
use super::*;
use crate::facts::Version;
use crate::mcm::drain::{self, Eviction, EvictionAnswer, NodeVolumes};
use crate::mcm::facts::{
    BudgetFacts, ClassFacts, CreationIntent, MachineFacts, NODE_MARK, NodeFacts, PodFacts, SecretFacts,
    StatusFacts, Token, TokenFacts, token_id,
};
use crate::mcm::reads::{NodeRead, NodeSeen, PodList, Reads};
use crate::mcm::server_freeze::Frozen;
use crate::mcm::why::TokenUse;
use crate::testing::{self, at};
use machinist_core::instance::{Shared, Unkeyed};
use machinist_core::ownership::Ownership;
use machinist_core::{
    Absence, Answered, Answers, Attempts, Call, Deleted, Found, FreshRead, Freshness, InQueue, Known, MadeIn,
    Process, Silence, Unseen, Wait, plus,
};

mod acceptance;
mod boot;
mod evidence;
mod failed_token;
mod force;
mod in_place;
mod initialize;
mod intent;
mod key_scope;
mod known_state;
mod no_target;
mod node_sync;
mod preserve;
mod stale_node;
mod validation;
mod virtual_capacity;
mod volumes;

const UID: &str = "uid-m";

/// A Machine and the objects around it. A test changes them step by step into its situation.
#[derive(Clone)]
struct World {
    machine: Value,
    node: Option<Value>,
    pods: Vec<Value>,
    budgets: Vec<Value>,
    /// Changes the provider's answer. By default every text is an id, and equal texts denote the
    /// same instance.
    provider: fn(&mut MachineIdentity),
    /// Whether the next call has a slot of its account.
    has_slot: bool,
    snapshot: Snapshot,
}

/// A Machine that its set has just created. The class, the Secret and a free token id exist.
fn world() -> World {
    let machine = json!({
        "metadata": {
            "name": "m", "namespace": "ns", "uid": UID, "creationTimestamp": at(-5).to_string(),
            "finalizers": ["machine.sapcloud.io/machine-controller-manager"],
            "labels": {}, "annotations": {"machinepriority.machine.sapcloud.io": "3"},
        },
        "spec": {"class": {"kind": "MachineClass", "name": "c"}, "nodeTemplate": {}},
    });
    let class = json!({
        "metadata": {"name": "c", "namespace": "ns", "uid": "uid-c",
                     "finalizers": ["machine.sapcloud.io/machine-controller-manager"]},
        "provider": "sim", "providerSpec": {"size": "small"}, "secretRef": {"name": "s", "namespace": "ns"},
    });
    let promises = Promises {
        visible_within: Duration::from_secs(10),
        call_bound: Duration::from_secs(5),
        calls_outlive_process: true,
        create: CreateGuarantee::NativeKey,
        rate: None,
        keys: KeyTag::Rekeyable,
    };
    let class: MachineClass = serde_json::from_value(class).expect("a class");
    let snapshot = Snapshot {
        now: at(0),
        process: Process {
            started: at(-60),
            leading_since: None,
            skew: Duration::ZERO,
            cloud_skew: None,
            promises,
        },
        gaps: Unseen::default(),
        nodes_freshness: Freshness::Fresh,
        pods_freshness: Freshness::Fresh,
        frozen: None,
        defaults: Arc::default(),
        target: TargetCluster::Given,
        machine: Arc::new(MachineFacts::parse(&parse::<Machine>(&machine))),
        node_marks: None,
        class: Known::Present(Arc::new(ClassFacts::parse(&class))),
        class_error: None,
        secrets: vec![SecretNeed { name: "ns/s".into(), facts: Known::Present(secret()) }],
        inputs: 1,
        token: Token::Free(token_id(UID, 0)),
        token_use: TokenUse::Unasked,
        node: Known::Absent,
        other_nodes: Vec::new(),
        identity: MachineIdentity {
            recorded: RecordedId::Unset,
            same_instance: false,
            node_id_is_read: false,
            recorded_by: None,
            claimed_by: None,
            held_by: None,
            shared_with: None,
            joined_as: None,
        },
        pods: Vec::new(),
        budgets: Vec::new(),
        evictions: Arc::default(),
        attachments: Vec::new(),
        volumes: NodeVolumes::default(),
        reads: Reads::default(),
        node_seen: NodeSeen::default(),
        answers: Answers::default(),
        observes_boot: false,
        needs_initialization: false,
        paused_until: None,
        waited: Duration::ZERO,
        ownership: Ownership { account: account("a"), recorded: account("a"), ..Ownership::default() },
        place: PlaceFacts { of_class: Some(Place::WHOLE), ..PlaceFacts::default() },
        key_scope: KeyScopeFacts::default(),
        shared: Shared::default(),
        cluster: "ours".to_owned(),
        key_holder: None,
        unkeyed: Unkeyed::default(),
    };
    let (pods, budgets) = (Vec::new(), Vec::new());
    World { machine, node: None, pods, budgets, provider: |_| {}, has_slot: true, snapshot }
}

fn parse<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).expect("test objects are well-formed")
}

fn secret() -> Arc<SecretFacts> {
    let user_data = "I2Nsb3VkLWNvbmZpZyA8PEJPT1RTVFJBUF9UT0tFTj4+";
    Arc::new(SecretFacts::parse(&parse(&json!({
        "metadata": {"name": "s", "namespace": "ns", "uid": "uid-s"}, "data": {"userData": user_data},
    }))))
}

fn account(name: &str) -> Option<AccountId> {
    AccountId::recorded(name)
}

fn deleted(answered: Answered<()>) -> Option<Box<Deleted>> {
    Some(Box::new(Deleted { id: Some(instance().id), may_lack_key: false, answered }))
}

fn answered<T>(started: Timestamp, ended: Timestamp, answer: Result<T, Error>) -> Answered<T> {
    Answered { started, ended, account: account("a"), answer }
}

fn instance() -> Instance {
    Instance {
        cluster: Some("ours".to_owned()),
        key: Some(InstanceKey::new(UID)),
        ..testing::instance("sim:///i-1", "m", -4)
    }
}

/// The memory of the attempts to remove pod `ns/p`. The last request was a deletion, sent and
/// answered `last` seconds from now.
fn tried(count: u32, first: i64, last: i64, outcome: EvictionAnswer) -> Eviction {
    Eviction {
        pod: "ns/p".to_owned(),
        attempts: Attempts { count, last: at(last) },
        first: at(first),
        asked: at(last),
        is_deletion: true,
        undecided_since: None,
        outcome,
    }
}

fn error(kind: ErrorKind, message: &str) -> Error {
    Error::new(kind, message)
}

impl World {
    fn with(mut self, change: impl FnOnce(&mut Snapshot)) -> Self {
        change(&mut self.snapshot);
        self
    }

    fn token(self, expires: i64) -> Self {
        let token = TokenFacts {
            namespace_uid: None,
            version: Version::default(),
            intent: CreationIntent { account: account("a"), ..CreationIntent::default() },
            id: token_id(UID, 0),
            uid: "uid-t".into(),
            created: at(-4),
            expires: Some(at(expires)),
            machine_uid: Some(UID.into()),
            mark: None,
            description: String::new(),
        };
        self.with(|s| s.token = Token::Ours(token.into()))
    }

    fn with_token(self, change: impl FnOnce(&mut TokenFacts)) -> Self {
        self.with(|s| {
            let Token::Ours(token) = &mut s.token else { panic!("the Machine has no token") };
            change(token);
        })
    }

    fn created(mut self, seconds: i64) -> Self {
        self.machine["metadata"]["creationTimestamp"] = at(seconds).to_string().into();
        self
    }

    fn ensured(self, answer: Result<Instance, Error>) -> Self {
        self.with(|s| {
            s.answers.ever_ensured = true;
            s.answers.failures = u32::from(answer.is_err());
            s.answers.inputs = Some(1);
            s.answers.ensure = Some(answered(at(-2), at(-1), answer));
        })
    }

    /// The answer to a `find` by key and name, which began at this second.
    fn found(self, second: i64, answer: Result<Sighting, Error>) -> Self {
        self.with(|s| {
            s.answers.failures = u32::from(answer.is_err());
            let by = InstanceRef {
                key: Some(InstanceKey::new(UID)),
                name: NodeName::new("m"),
                ..InstanceRef::default()
            };
            s.answers.find =
                Some(Box::new(Found { by, answered: answered(at(second), at(second + 1), answer) }));
        })
    }

    fn recorded(mut self) -> Self {
        self.machine["metadata"]["labels"]["node"] = "m".into();
        self.machine["spec"]["providerID"] = "sim:///i-1".into();
        self
    }

    /// The Machine records the account of the call that may create its instance.
    fn intended(mut self) -> Self {
        self.machine["metadata"]["annotations"]["machinist.dev/intended-account"] = "a".into();
        self
    }

    fn phase(mut self, phase: &str, kind: &str, state: &str, description: &str) -> Self {
        self.machine["status"] = json!({
            "currentStatus": {"phase": phase, "lastUpdateTime": at(-30).to_string()},
            "lastOperation": {
                "type": kind, "state": state, "description": description, "lastUpdateTime": at(-40).to_string(),
            },
        });
        self
    }

    fn pending(self) -> Self {
        self.recorded().phase("Pending", "Create", "Processing", "Creating machine on cloud provider")
    }

    fn running(self) -> Self {
        let mut world =
            self.recorded().node("True").synced().phase("Running", "Create", "Successful", "joined");
        world.machine["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
        world
    }

    fn node(mut self, ready: &str) -> Self {
        self.node = Some(json!({
            "metadata": {"name": "m", "uid": "uid-n", "creationTimestamp": at(-3).to_string(), "labels": {"a": "b"}},
            "spec": {"providerID": "sim:///i-1"},
            "status": {"conditions": [
                {"type": "Ready", "status": ready, "lastTransitionTime": at(-3).to_string()},
            ]},
        }));
        self
    }

    fn node_field(mut self, pointer: &str, value: Value) -> Self {
        let node = self.node.as_mut().expect("the test has a Node");
        testing::set(node, pointer, value);
        self
    }

    /// The Node after `NodeSync` was applied.
    fn synced(self) -> Self {
        self.node_field("/metadata/finalizers", json!(["node.machine.sapcloud.io/machine-controller"]))
            .node_field("/metadata/labels", json!({"node.gardener.cloud/machine-name": "m"}))
            .node_field(
                "/metadata/annotations",
                json!({
                    "node.machine.sapcloud.io/last-applied-anno-labels-taints": r#"{"metadata":{},"spec":{}}"#,
                    NODE_MARK: "ours/ns/uid-m",
                }),
            )
    }

    fn deleting(mut self, seconds_ago: i64) -> Self {
        self.machine["metadata"]["deletionTimestamp"] = at(-seconds_ago).to_string().into();
        self
    }

    fn draining(self) -> Self {
        self.running()
            .deleting(10)
            .phase("Terminating", "Delete", "Processing", "Initiate node drain")
            .node_field("/spec/unschedulable", json!(true))
            .node_field(
                "/status/conditions",
                json!([{"type": "Ready", "status": "True"}, {"type": "Terminating", "status": "True"}]),
            )
            .with(|s| s.node_seen.cordoned = Some(at(-8)))
    }

    /// The API server has returned the Node with the Machine's name: its UID, or none.
    fn looked(self, seconds: i64, uid: Option<&str>) -> Self {
        let look = NodeRead { name: "m".into(), started: at(seconds), uid: uid.map(str::to_owned) };
        self.with(|s| s.reads.nodes = vec![look])
    }

    /// A valid list has shown no pod.
    fn listed(self) -> Self {
        self.with(|s| {
            s.reads.pods =
                Some(PodList { node_uid: "uid-n".into(), started: at(-1), leaving: 0, running: 0 });
        })
    }

    /// Sets the provider ids of the Machine and of its Node, if it has a Node.
    fn ids(mut self, machine: &str, node: &str) -> Self {
        self.machine["spec"]["providerID"] = machine.into();
        if self.node.is_some() { self.node_field("/spec/providerID", node.into()) } else { self }
    }

    /// Changes the provider's answer about the ids.
    fn provider(mut self, says: fn(&mut MachineIdentity)) -> Self {
        self.provider = says;
        self
    }

    fn force_deletion(mut self) -> Self {
        self.machine["metadata"]["labels"]["force-deletion"] = "true".into();
        self
    }

    fn pod(mut self, name: &str) -> Self {
        self.pods.push(json!({
            "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}"), "labels": {"app": name}},
            "spec": {"nodeName": "m", "containers": []},
        }));
        self
    }

    /// The call for which the Machine waits has no slot, or is not in the queue at all.
    fn queued(mut self, queued: Option<InQueue>) -> Self {
        self.has_slot = false;
        self.with(|s| s.answers.queued = queued)
    }

    fn plan(mut self) -> Plan<Action> {
        let s = &mut self.snapshot;
        if self.has_slot {
            let is_deleting = self.machine["metadata"].get("deletionTimestamp").is_some();
            let call = if is_deleting { Call::DELETE } else { Call::ENSURE };
            s.answers.queued = Some(InQueue { call, since: at(-1), has_slot: true });
        }
        s.machine = Arc::new(MachineFacts::parse(&parse::<Machine>(&self.machine)));
        if !matches!(s.node, Known::Unasked) {
            let node = self.node.as_ref().map(|node| Arc::new(NodeFacts::parse(&parse(node))));
            s.node = Known::from_store(node);
        }
        let recorded = s.machine.spec.provider_id().unwrap_or_default();
        let named = s.node.present().and_then(|node| node.provider_id());
        s.identity = MachineIdentity {
            recorded: RecordedId::any(recorded),
            same_instance: !recorded.is_empty() && named == Some(recorded),
            node_id_is_read: named.is_some_and(|id| RecordedId::any(id).ours().is_some()),
            recorded_by: None,
            claimed_by: None,
            held_by: None,
            shared_with: None,
            joined_as: None,
        };
        (self.provider)(&mut s.identity);
        s.pods = self.pods.iter().map(|pod| Arc::new(PodFacts::parse(&parse(pod)))).collect();
        s.budgets = self.budgets.iter().map(|b| Arc::new(BudgetFacts::parse(&parse(b)))).collect();
        plan(s)
    }

    fn check(self, expected: Expect) {
        expected.assert_eq(&self.plan().to_string());
    }
}

// === creation ===

#[test]
fn a_machine_of_another_client_gets_its_finalizer_first() {
    let mut world = world();
    world.machine["metadata"]["finalizers"] = json!([]);
    world.check(expect![[r#"
        do    machine: add finalizer
        why   adding the finalizer, which records that an instance may exist
        wait  for a change
    "#]]);
}

#[test]
fn a_token_is_created_before_the_instance() {
    assert_eq!(expiry(world()).to_string(), "2027-01-15T08:21:00Z");
    world().check(expect![[r#"
        do    token i8uopf: create
        why   creating the bootstrap token; next: the controller asks the cloud to create the instance
        wait  for a change
    "#]]);
}

#[test]
fn the_call_waits_in_the_queue_before_its_token_is_made() {
    world().queued(None).check(expect![[r#"
        do    driver: queue ensure
        why   waiting for the cloud to create the instance; next: the cloud answers
        wait  for a change
    "#]]);
    let waiting = InQueue { call: Call::ENSURE, since: at(-3), has_slot: false };
    world().queued(Some(waiting)).check(expect![[r#"
        why   waiting in the queue of the cloud account to create the instance; since 2027-01-15T07:59:57Z; next: the controller makes the call
        wait  for a change
    "#]]);
}

#[test]
fn time_in_the_queue_does_not_count_for_the_creation_timeout() {
    let timed = |waited| {
        let failed = world().created(-1300).ensured(Err(error(ErrorKind::Exhausted, "no stock")));
        let world = failed.phase("CrashLoopBackOff", "Create", "Failed", "no stock");
        world
            .found(-10, Ok(Sighting::Absent))
            .with(|s| s.waited = Duration::from_secs(waited))
            .plan()
            .to_string()
    };
    assert!(timed(0).contains("status: Failed"), "{}", timed(0));
    assert!(!timed(120).contains("status: Failed"), "{}", timed(120));
}

/// After a restart, a Machine whose creation has not failed has waited until now.
#[test]
fn a_machine_that_only_waited_is_not_failed_after_a_restart() {
    let old = || world().created(-4000).with(|s| s.process.started = at(-2));
    old().queued(None).check(expect![[r#"
        do    driver: queue ensure
        why   waiting for the cloud to create the instance; next: the cloud answers
        wait  for a change
    "#]]);
    let failed = old().phase("CrashLoopBackOff", "Create", "Failed", "no stock").plan().to_string();
    assert!(failed.contains("the Machine is marked Failed if it has no instance"), "{failed}");
    let refused = old().ensured(Err(error(ErrorKind::Exhausted, "no stock")));
    let refused = refused.with(|s| s.answers.wanted_since = Some(at(-2))).plan().to_string();
    assert!(refused.contains("status: CrashLoopBackOff"), "{refused}");
}

/// The instance of a Machine that waited for long was made a moment ago.
#[test]
fn the_time_to_join_counts_from_the_instance() {
    let joining = |pending: i64| {
        let mut world = world().created(-4000).pending();
        world.machine["status"]["currentStatus"]["lastUpdateTime"] = at(pending).to_string().into();
        world.plan().to_string()
    };
    assert!(!joining(-30).contains("status: Failed"), "{}", joining(-30));
    assert!(joining(-30).contains("deadline 2027-01-15T08:19:31Z"), "{}", joining(-30));
    // The replacement planner marks the Machine as Failed.
    assert!(!joining(-1300).contains("status:"), "{}", joining(-1300));
}

#[test]
fn creation_waits_for_the_finalizer_of_the_class() {
    let unheld = |s: &mut Snapshot| {
        let class = s.class.present().expect("the class exists");
        let class = ClassFacts { has_finalizer: false, ..(**class).clone() };
        s.class = Known::Present(Arc::new(class));
    };
    world().token(1300).with(unheld).check(expect![[r#"
        why   waiting for the finalizer of MachineClass c, which protects it while machines use it; next: the controller asks the cloud to create the instance
        wait  until 2027-01-15T08:19:56Z
    "#]]);
    // Machines that name another kind do not count as users of the class, so they do not wait.
    let mut other = world().token(1300).with(unheld);
    other.machine["spec"]["class"]["kind"] = "AWSMachineClass".into();
    assert_eq!(other.plan().actions.len(), 1);
}

#[test]
fn t_19_a_class_that_the_autoscaler_cannot_read_is_rejected() {
    let lacking = json!({
        "metadata": {"name": "c", "namespace": "ns", "uid": "uid-c",
                     "finalizers": ["machine.sapcloud.io/machine-controller-manager"]},
        "provider": "sim", "providerSpec": {"size": "small"},
        "nodeTemplate": {"capacity": {"cpu": "1", "memory": "1Gi"}, "instanceType": "s", "region": "r", "zone": "z"},
    });
    let mut without_region = lacking.clone();
    without_region["nodeTemplate"]["capacity"]["gpu"] = "0".into();
    without_region["nodeTemplate"]["region"] = Value::Null;
    let class = ClassFacts::parse(&parse::<MachineClass>(&without_region));
    let plan = world().token(1300).with(|s| s.class = Known::Present(Arc::new(class))).plan().to_string();
    assert!(plan.contains("nodeTemplate.region: expected a region, got nothing"), "{plan}");
    let class = ClassFacts::parse(&parse::<MachineClass>(&lacking));
    world().token(1300).with(|s| s.class = Known::Present(Arc::new(class))).check(expect![[r#"
        do    status: CrashLoopBackOff, Create Failed [InvalidArgument] "Creation is blocked: MachineClass c is invalid: nodeTemplate.capacity.gpu: expected a quantity, got nothing"
        do    warning FailedCreate: Creation is blocked: MachineClass c is invalid: nodeTemplate.capacity.gpu: expected a quantity, got nothing
        why   MachineClass c is invalid: nodeTemplate.capacity.gpu: expected a quantity, got nothing; next: fix the MachineClass; deadline 2027-01-15T08:19:56Z: the Machine is marked Failed
        wait  until 2027-01-15T08:19:56Z
    "#]]);
}

#[test]
fn t_16_a_secret_without_user_data_blocks_creation() {
    let bare = || Known::Present(Arc::new(SecretFacts { has_user_data: false, ..(*secret()).clone() }));
    world().with(|s| s.secrets[0].facts = bare()).check(expect![[r#"
        do    status: CrashLoopBackOff, Create Failed [InvalidArgument] "Creation is blocked: Secret ns/s has no entry \"userData\""
        do    warning FailedCreate: Creation is blocked: Secret ns/s has no entry "userData"
        why   Secret ns/s has no entry "userData"; next: add userData to Secret ns/s; deadline 2027-01-15T08:19:56Z: the Machine is marked Failed
        wait  until 2027-01-15T08:19:56Z
    "#]]);
    let credentials = SecretNeed { name: "ns/credentials".into(), facts: bare() };
    let both = world().token(1300).with(|s| s.secrets.push(credentials));
    assert_eq!(both.plan().actions.len(), 1, "one of two Secrets is enough");
    assert_eq!(
        world().with(|s| s.secrets.clear()).plan().actions.len(),
        1,
        "a class without Secrets needs no user data"
    );
}

#[test]
fn a_secret_in_an_unread_namespace_is_not_reported_missing() {
    let elsewhere = |s: &mut Snapshot| {
        s.secrets[0] = SecretNeed { name: "other/s".into(), facts: Known::Unasked };
    };
    world().with(elsewhere).check(expect![[r#"
        do    status: CrashLoopBackOff, Create Failed [NotFound] "Creation is blocked: Secret other/s of MachineClass c is not readable: the controller reads only namespace ns"
        do    warning FailedCreate: Creation is blocked: Secret other/s of MachineClass c is not readable: the controller reads only namespace ns
        why   Secret other/s of MachineClass c is not readable: the controller reads only namespace ns; next: create the Secret in namespace ns, and change the reference in the MachineClass; deadline 2027-01-15T08:19:56Z: the Machine is marked Failed
        wait  until 2027-01-15T08:19:56Z
    "#]]);
    drained().with(elsewhere).check(expect![[r#"
        do    status: Delete Failed "Deletion is blocked: the instance cannot be deleted without Secret other/s (the controller reads only namespace ns). Initiate VM deletion"
        do    warning FailedDelete: Deletion is blocked: the instance cannot be deleted without Secret other/s (the controller reads only namespace ns). Initiate VM deletion
        why   the instance cannot be deleted without Secret other/s (the controller reads only namespace ns); since 2027-01-15T07:59:50Z; next: let MachineClass c refer to a Secret in namespace ns, or set label force-deletion=true to leave the instance behind
        wait  for a change
    "#]]);
}

#[test]
fn with_a_token_the_driver_is_called() {
    world().token(1300).check(expect![[r#"
        do    driver: ensure
        why   waiting for the cloud to create the instance; next: the cloud answers
        wait  for a change
    "#]]);
}

#[test]
fn a_token_that_would_expire_during_boot_is_replaced() {
    world().token(10).check(expect![[r#"
        do    token i8uopf: delete
        why   deleting the bootstrap token, which expires too soon; next: the controller asks the cloud to create the instance
        wait  for a change
    "#]]);
}

/// Otherwise a pass would not recognize that it repeats an action, and would repeat it without a
/// pause while the API server does not answer.
#[test]
fn the_creation_of_a_token_is_the_same_action_in_each_pass() {
    let planned = |now| world().with(|s| s.now = now).plan().to_string();
    assert!(planned(at(0)).contains("token i8uopf: create"));
    assert_eq!(planned(at(0)), planned(at(1)));
}

fn expiry(world: World) -> Timestamp {
    let plan = world.plan();
    let created = plan.actions.iter().find_map(|action| match action {
        Action::CreateToken { expires, .. } => Some(*expires),
        _ => None,
    });
    created.expect("a token is created")
}

/// Otherwise the controller would delete each new token at once, and create it again.
#[test]
fn no_creation_timeout_is_too_short_for_a_token() {
    for timeout in ["0s", "1s", "59s", "9m"] {
        let timed = || {
            let mut world = world();
            world.machine["metadata"]["creationTimestamp"] = at(0).to_string().into();
            world.machine["spec"]["creationTimeout"] = timeout.into();
            world
        };
        assert_eq!(expiry(timed()).to_string(), "2027-01-15T08:11:00Z", "{timeout}");
        let plan = timed().token(660).plan().to_string();
        assert!(plan.contains("driver: ensure"), "{timeout}: {plan}");
    }
}

#[test]
fn a_token_that_an_instance_may_use_is_replaced_later() {
    let asked = |expires| {
        let world = world().token(expires);
        world.with(|s| s.answers.made_in = MadeIn::Nowhere.and(&account("a").expect("an account")))
    };
    assert!(asked(601).plan().to_string().contains("driver: ensure"));
    assert!(asked(599).plan().to_string().contains("machine: record the account"));
    assert!(asked(599).intended().plan().to_string().contains("token i8uopf: delete"));
}

/// A user edited the class twice: first to another account, and then back.
#[test]
fn a_call_in_another_account_outweighs_the_intent() {
    let made_in = |name: &str| {
        let made_in = MadeIn::Nowhere.and(&account(name).expect("an account"));
        world().token(1300).with(|s| s.answers.made_in = made_in).plan().to_string()
    };
    assert!(made_in("a").contains("driver: ensure"));
    assert!(!made_in("b").contains("driver: ensure"), "{}", made_in("b"));
}

#[test]
fn user_data_without_a_placeholder_needs_no_token() {
    let bare = || Arc::new(SecretFacts { wants_token: false, ..(*secret()).clone() });
    let world = || world().with(move |s| s.secrets[0].facts = Known::Present(bare()));
    world().check(expect![[r#"
            do    machine: record the account and place of the creation
            why   recording where the instance is created; next: the controller asks the cloud to create the instance
            wait  for a change
        "#]]);
    world().intended().check(expect![[r#"
            do    driver: ensure
            why   waiting for the cloud to create the instance; next: the cloud answers
            wait  for a change
        "#]]);
}

#[test]
fn a_call_in_flight_is_waited_for() {
    world().token(1300).with(|s| s.answers.in_flight = Some((Call::ENSURE, at(-1)))).check(expect![[r#"
        why   waiting for the cloud to create the instance; since 2027-01-15T07:59:59Z; next: the cloud answers
        wait  until 2027-01-15T08:00:04Z
    "#]]);
}

#[test]
fn an_answer_is_recorded_and_reported_in_one_pass() {
    world().token(1300).ensured(Ok(instance())).check(expect![[r#"
        do    machine: record node m and sim:///i-1
        do    status: Pending, Create Processing "Creating machine on cloud provider"
        why   recording the instance; next: the Node joins
        wait  for a change
    "#]]);
}

#[test]
fn t_09_quota_is_reported_with_the_code_the_autoscaler_knows() {
    world().token(1300).ensured(Err(error(ErrorKind::Exhausted, "quota of 2 instances reached"))).check(expect![[r#"
        do    status: CrashLoopBackOff, Create Failed [ResourceExhausted] "Cloud provider message - machine codes error: code = [ResourceExhausted] message = [quota of 2 instances reached]"
        do    warning FailedCreate: Cloud provider message - machine codes error: code = [ResourceExhausted] message = [quota of 2 instances reached]
        why   the cloud failed once to create the instance (exhausted): quota of 2 instances reached; since 2027-01-15T07:59:59Z; next: try again to create the instance at 2027-01-15T08:09:59Z; deadline 2027-01-15T08:19:56Z: the Machine is marked Failed
        wait  until 2027-01-15T08:09:59Z
    "#]]);
}

#[test]
fn a_failure_that_is_reported_already_only_waits() {
    world()
        .token(1300)
        .ensured(Err(error(ErrorKind::Unavailable, "no")))
        .phase(
            "CrashLoopBackOff",
            "Create",
            "Failed",
            "Cloud provider message - machine codes error: code = [Unavailable] message = [no]",
        )
        .with(|_| {})
        .check_with_code("Unavailable", expect![[r#"
            why   the cloud failed once to create the instance (unavailable): no; since 2027-01-15T07:59:59Z; next: try again to create the instance at 2027-01-15T08:00:04Z; deadline 2027-01-15T08:19:56Z: the Machine is marked Failed
            wait  until 2027-01-15T08:00:04Z
        "#]]);
}

#[test]
fn a_changed_class_is_retried_at_once() {
    world().token(1300).ensured(Err(error(ErrorKind::Denied, "no"))).with(|s| s.inputs = 2).check(expect![[
        r#"
            do    driver: ensure
            why   waiting for the cloud to create the instance; next: the cloud answers
            wait  for a change
        "#
    ]]);
}

#[test]
fn a_missing_class_is_named() {
    world().with(|s| s.class = Known::Absent).check(expect![[r#"
        do    status: CrashLoopBackOff, Create Failed [NotFound] "Creation is blocked: MachineClass c not found"
        do    warning FailedCreate: Creation is blocked: MachineClass c not found
        why   MachineClass c not found; next: create MachineClass ns/c, or change spec.class.name; deadline 2027-01-15T08:19:56Z: the Machine is marked Failed
        wait  until 2027-01-15T08:19:56Z
    "#]]);
}

#[test]
fn a_missing_secret_is_named() {
    world().with(|s| s.secrets[0].facts = Known::Absent).check(expect![[r#"
        do    status: CrashLoopBackOff, Create Failed [NotFound] "Creation is blocked: Secret ns/s not found (used by MachineClass c)"
        do    warning FailedCreate: Creation is blocked: Secret ns/s not found (used by MachineClass c)
        why   Secret ns/s not found (used by MachineClass c); next: create Secret ns/s; deadline 2027-01-15T08:19:56Z: the Machine is marked Failed
        wait  until 2027-01-15T08:19:56Z
    "#]]);
}

/// The freeze while the target cluster does not answer.
fn frozen() -> Frozen {
    let server = "the API server of the target cluster".to_owned();
    Frozen { silence: Silence { server, since: at(-300), read: FreshRead::Possible } }
}

/// A token that cannot be written to a cluster that is away is not the fault of the Machine.
#[test]
fn t_56_no_creation_times_out_while_the_controller_is_frozen() {
    let failed = || {
        let failed = world().created(-1300).ensured(Err(error(ErrorKind::Exhausted, "no stock")));
        failed.phase("CrashLoopBackOff", "Create", "Failed", "no stock").found(-10, Ok(Sighting::Absent))
    };
    failed().with(|s| s.frozen = Some(frozen())).check(expect![[r#"
        why   the API server of the target cluster is silent; a deadline has passed and waits for its answer; since 2027-01-15T07:55:00Z; next: the controller reads the current state from the API server
        wait  until 2027-01-15T08:00:10Z
    "#]]);
    let after = failed().plan();
    assert!(after.actions.iter().any(|action| action.to_string().starts_with("status: Failed")), "{after}");
}

#[test]
fn t_10_creation_that_times_out_fails() {
    let failed = world().created(-1300).ensured(Err(error(ErrorKind::Exhausted, "no stock")));
    let failed = failed.phase("CrashLoopBackOff", "Create", "Failed", "no stock");
    failed.found(-10, Ok(Sighting::Absent)).check(expect![[r#"
        do    status: Failed, Create Failed [ResourceExhausted] "Machine m was not created in time. Cloud provider message - machine codes error: code = [ResourceExhausted] message = [no stock]"
        why   waiting for the MachineSet to replace this machine: Machine m was not created in time. Cloud provider message - machine codes error: code = [ResourceExhausted] message = [no stock]; next: the MachineSet deletes the Machine
        wait  for a change
    "#]]);
}

/// A Machine that is older than its creation timeout and records no instance.
fn late() -> World {
    world().created(-1300).token(1000).phase("CrashLoopBackOff", "Create", "Failed", "no stock")
}

#[test]
fn an_instance_is_looked_for_before_creation_times_out() {
    late().check(expect![[r#"
        do    driver: find m
        why   waiting for the cloud to look up the instance; next: the Machine is marked Failed if it has no instance
        wait  until 2027-01-15T08:12:40Z
    "#]]);
    late().found(-5, Ok(Sighting::Present(instance()))).check(expect![[r#"
        do    machine: record node m and sim:///i-1
        do    status: Pending, Create Processing "Creating machine on cloud provider"
        why   recording the instance; next: the Node joins
        wait  until 2027-01-15T08:12:40Z
    "#]]);
    late().found(-3, Err(error(ErrorKind::Unavailable, "no"))).check(expect![[r#"
        why   the cloud failed once to look up the instance (unavailable): no; since 2027-01-15T07:59:58Z; next: try again to look up the instance at 2027-01-15T08:00:03Z
        wait  until 2027-01-15T08:00:03Z
    "#]]);
    let is_asked_again = |world: World| world.plan().to_string().starts_with("do    driver: find");
    assert!(is_asked_again(late().found(-50, Ok(Sighting::Absent))), "a call of the last leader may be late");
    let another = Instance { key: Some(InstanceKey::new("other")), ..instance() };
    let fails = |world: World| world.plan().to_string().starts_with("do    status: Failed");
    assert!(fails(late().found(-5, Ok(Sighting::Present(another)))));
    assert!(!fails(late().with(|s| s.ownership.account = None)), "the cloud cannot be asked");
    assert!(fails(late().with(|s| s.process.started = at(-1400))), "no call asked for an instance");
    let unsure = |s: &mut Snapshot| {
        s.process.started = at(-1400);
        s.answers.unsure_since = Some(at(-100));
    };
    assert!(is_asked_again(late().with(unsure)));
    late().with(|s| s.process.started = at(-3)).check(expect![[r#"
        why   waiting for the cloud to look up the instance; next: the Machine is marked Failed if it has no instance
        wait  until 2027-01-15T08:00:12Z
    "#]]);
}

/// The credential was swapped: the absence in its account says nothing about the instance.
#[test]
fn an_absence_in_another_account_gives_no_machine_up() {
    let swapped = || {
        late().found(-5, Ok(Sighting::Absent)).with(|s| {
            s.ownership.recorded = None;
            s.ownership.others = machinist_core::ownership::Others::AsOld;
            s.ownership.list = machinist_core::ownership::List::Ended(at(600));
        })
    };
    swapped().check(expect![[r#"
        why   instance m not found: the credential in Secret ns/s seems to open another account, because the cloud shows no other instance from that time either; next: restore the credential in Secret ns/s, or delete the Machine
        wait  until 2027-01-15T08:10:00Z
    "#]]);
    let elsewhere = swapped().with(|s| {
        let found = s.answers.find.as_mut().expect("an answer");
        found.answered.account = account("b");
    });
    assert!(elsewhere.plan().to_string().starts_with("do    driver: find"), "today's account is asked");
    let own = swapped().with(|s| s.process.started = at(-1400));
    assert!(own.plan().to_string().starts_with("do    status: Failed"), "no call asked for an instance");
}

/// No other Machine shows whether this is the account of the instance.
#[test]
fn without_comparison_two_absences_give_a_machine_up() {
    let alone = |first: i64, looked: i64| {
        late().found(looked, Ok(Sighting::Absent)).with(|s| {
            s.ownership.recorded = None;
            let account = account("a").expect("a name");
            s.answers.absence = Some(Absence { account, first: at(first), id: None });
        })
    };
    alone(-5, -5).check(expect![[r#"
        why   instance m not found: checking a second time, because no other Machine confirms the account; next: the controller looks up the instance again; deadline 2027-01-15T08:09:55Z: the Machine is marked Failed if the instance is still absent
        wait  until 2027-01-15T08:09:55Z
    "#]]);
    let due = alone(-601, -601).plan().to_string();
    assert!(due.starts_with("do    driver: find"), "{due}");
    let twice = alone(-605, -5).plan().to_string();
    assert!(twice.starts_with("do    status: Failed"), "{twice}");
    let elsewhere = alone(-605, -5).with(|s| {
        let absence = s.answers.absence.as_mut().expect("an absence");
        absence.account = account("b").expect("a name");
    });
    let plan = elsewhere.plan().to_string();
    assert!(!plan.starts_with("do    status: Failed"), "another account was asked first: {plan}");
}

#[test]
fn the_creation_timeout_leaves_out_unseen_time() {
    let mut gaps = Unseen::default();
    gaps.add(at(-600), at(-400));
    let plan = late().with(|s| s.gaps = gaps).plan().to_string();
    let gives_up = ["do    driver: find", "do    status: Failed"].iter().any(|start| plan.starts_with(start));
    assert!(!gives_up, "{plan}");
}

#[test]
fn no_deadline_is_enforced_while_clocks_disagree() {
    let failed = world().created(-1300).phase("CrashLoopBackOff", "Create", "Failed", "no stock");
    failed.with(|s| s.process.skew = Duration::from_secs(31)).check(expect![[r#"
            why   clock skew: this process may differ from the API server by 31 s; next: synchronize the clocks
            wait  until 2027-01-15T08:01:00Z
        "#]]);
}

#[test]
fn an_existing_instance_is_recorded_after_the_timeout() {
    world().created(-1300).ensured(Ok(instance())).check(expect![[r#"
        do    machine: record node m and sim:///i-1
        do    status: Pending, Create Processing "Creating machine on cloud provider"
        why   recording the instance; next: the Node joins
        wait  for a change
    "#]]);
}

// === joining and health ===

/// `machinist why` without `--target-kubeconfig`, on split clusters.
#[test]
fn a_node_that_was_not_looked_up_is_not_missing() {
    for phase in ["Running", "Unknown"] {
        let joined = || world().recorded().phase(phase, "Create", "Successful", "joined");
        let plan = joined().with(|s| s.node = Known::Unasked).plan();
        assert_eq!(
            (plan.why.reason.code(), plan.why.next.to_string().as_str()),
            ("NodeNotAsked", "name the cluster of the Nodes with --target-kubeconfig"),
            "{phase}"
        );
        assert_eq!(plan.actions.len(), 0, "{phase}");
        let missing = joined().plan();
        assert_eq!(missing.why.reason.code(), "Unhealthy", "{phase}");
    }
    // The Node of a Pending Machine may not exist yet, so nothing is known about it.
    let plan = world().pending().with(|s| s.node = Known::Unasked).plan();
    assert_eq!(plan.why.reason.code(), "Joining");
}

#[test]
fn without_a_node_it_waits_up_to_the_creation_timeout() {
    world().pending().check(expect![[r#"
        why   waiting for Node m to register; since 2027-01-15T07:59:30Z; next: the instance boots and its kubelet registers; deadline 2027-01-15T08:19:31Z: the Machine is marked Failed
        wait  until 2027-01-15T08:01:00Z
    "#]]);
}

#[test]
fn an_unused_token_is_reported() {
    world().pending().with(|s| s.token_use = TokenUse::NeverUsed).check(expect![[r#"
        why   waiting for Node m to register (its bootstrap token was never used); since 2027-01-15T07:59:30Z; next: the instance boots and its kubelet registers; deadline 2027-01-15T08:19:31Z: the Machine is marked Failed
        wait  until 2027-01-15T08:01:00Z
    "#]]);
}

#[test]
fn a_new_node_gets_everything_in_one_patch() {
    let mut world = world().pending().node("False");
    world.machine["spec"]["nodeTemplate"] = json!({
        "metadata": {"labels": {"pool": "w"}},
        "spec": {"taints": [{"key": "dedicated", "value": "w", "effect": "NoSchedule"}]},
    });
    world.check(expect![[r#"
        do    node m: sync finalizer, labels machine-name pool, annotations machine last-applied-anno-labels-taints, 1 taints
        why   Node m is unhealthy: Ready is False; since 2027-01-15T07:59:30Z; next: the instance boots and its kubelet registers; deadline 2027-01-15T08:19:31Z: the Machine is marked Failed
        wait  until 2027-01-15T08:19:31Z
    "#]]);
}

#[test]
fn a_node_is_synced_without_a_label_that_is_too_long() {
    let mut world = world().pending().node("True");
    world.machine["metadata"]["name"] = "y".repeat(64).into();
    let plan = world.plan().to_string().replace(&"y".repeat(64), "LONG");
    expect![[r#"
        do    node m: sync finalizer, annotations machine last-applied-anno-labels-taints
        do    status: Running, Create Successful "Machine LONG successfully joined the cluster", 1 conditions
        do    event MachineJoined: Machine LONG successfully joined the cluster after 5 s
        why   up to date; since 2027-01-15T07:59:30Z
        wait  for a change
    "#]]
    .assert_eq(&plan);
}

#[test]
fn a_restored_or_moved_machine_renews_the_mark_of_its_node() {
    let written = |mark: &str, id: Option<&str>| {
        let mut world = world().running().node("True").synced();
        world.machine["spec"]["providerID"] = id.into();
        world.node.as_mut().expect("a Node")["metadata"]["annotations"]["machinist.dev/machine"] =
            mark.into();
        let plan = world.plan();
        let sync = plan.actions.into_iter().find_map(|action| match action {
            Action::SyncNode(sync) => Some(sync),
            _ => None,
        });
        sync.and_then(|mut sync| sync.annotations.remove("machinist.dev/machine")).flatten()
    };
    let recorded = Some("sim:///i-1");
    let current = written("ours/ns/old-uid", recorded).expect("the mark is renewed");
    assert!(current.starts_with("ours/ns/") && current != "ours/ns/old-uid", "{current}");
    assert_eq!(written(&current, recorded), None, "nothing is left to write");
    for elsewhere in ["other/ns/old-uid", "ours/other/old-uid"] {
        assert_eq!(written(elsewhere, recorded).as_ref(), Some(&current), "the Machine records the instance");
        assert_eq!(written(elsewhere, None), None, "the Node of another installation");
    }
}

#[test]
fn a_healthy_node_makes_it_running_and_deletes_the_token() {
    world().pending().node("True").synced().token(1300).check(expect![[r#"
        do    status: Running, Create Successful "Machine m successfully joined the cluster", 1 conditions
        do    event MachineJoined: Machine m successfully joined the cluster after 5 s
        do    token i8uopf: delete
        why   up to date; since 2027-01-15T07:59:30Z
        wait  for a change
    "#]]);
}

#[test]
fn t_27_critical_components_keep_it_pending() {
    world()
        .pending()
        .node("True")
        .synced()
        .node_field(
            "/spec/taints",
            json!([{"key": "node.gardener.cloud/critical-components-not-ready", "effect": "NoSchedule"}]),
        )
        .check(expect![[r#"
            why   critical components of Node m are not ready; since 2027-01-15T07:59:30Z; next: the instance boots and its kubelet registers; deadline 2027-01-15T08:19:31Z: the Machine is marked Failed
            wait  until 2027-01-15T08:19:31Z
        "#]]);
}

#[test]
fn t_07_a_running_machine_with_a_healthy_node_needs_nothing() {
    world().running().check(expect![[r#"
        why   up to date; since 2027-01-15T07:59:30Z
        wait  for a change
    "#]]);
}

#[test]
fn t_23_a_node_that_is_not_ready_makes_it_unknown() {
    world().running().node("Unknown").synced().check(expect![[r#"
        do    status: Unknown, HealthCheck Processing "Machine m is unhealthy - changing MachineState to Unknown. Ready is Unknown", 1 conditions
        do    warning NodeUnhealthy: Machine m is unhealthy - changing MachineState to Unknown. Ready is Unknown
        why   Node m is unhealthy: Ready is Unknown; since 2027-01-15T07:59:30Z; next: the Node recovers; deadline 2027-01-15T08:09:31Z: the Machine is marked Failed, unless --replacements-at-once is reached
        wait  for a change
    "#]]);
}

#[test]
fn t_24_a_node_that_went_missing_makes_it_unknown() {
    let mut world = world().running();
    world.node = None;
    world.check(expect![[r#"
        do    status: Unknown, HealthCheck Processing "Node object went missing. Machine m is unhealthy - changing MachineState to Unknown"
        do    warning NodeUnhealthy: Node object went missing. Machine m is unhealthy - changing MachineState to Unknown
        why   Node m is unhealthy: the Node object went missing; since 2027-01-15T07:59:30Z; next: the Node recovers; deadline 2027-01-15T08:09:31Z: the Machine is marked Failed, unless --replacements-at-once is reached
        wait  for a change
    "#]]);
}

#[test]
fn an_older_node_of_another_instance_is_not_joined() {
    world()
        .pending()
        .node("True")
        .ids("sim:///i-1", "sim:///i-0")
        .node_field("/metadata/creationTimestamp", at(-500).to_string().into())
        .check(expect![[r#"
            why   Node m does not belong to this machine (it is older than this machine, and its provider id is sim:///i-0); waiting for its deletion; since 2027-01-15T07:59:30Z; next: the instance boots and its kubelet registers; deadline 2027-01-15T08:19:31Z: the Machine is marked Failed
            wait  until 2027-01-15T08:19:31Z
        "#]]);
}

#[test]
fn an_older_node_of_that_name_is_not_joined() {
    world()
        .pending()
        .node("True")
        .node_field("/spec/providerID", Value::Null)
        .node_field("/metadata/creationTimestamp", at(-500).to_string().into())
        .check(expect![[r#"
            why   Node m does not belong to this machine (it is older than this machine); waiting for its deletion; since 2027-01-15T07:59:30Z; next: the instance boots and its kubelet registers; deadline 2027-01-15T08:19:31Z: the Machine is marked Failed
            wait  until 2027-01-15T08:19:31Z
        "#]]);
}

#[test]
fn a_node_of_another_machine_is_reported() {
    let other = |identity: &mut MachineIdentity| identity.claimed_by = Some("other".to_owned());
    let mut world = world().running().ids("sim:///i-1", "sim:///i-2").provider(other);
    world.machine["status"]["currentStatus"]["phase"] = "Unknown".into();
    world.check(expect![[r#"
        why   Node m is unhealthy: the Node object does not belong to this machine (its label names machine other); since 2027-01-15T07:59:30Z; next: the Node recovers; deadline 2027-01-15T08:09:31Z: the Machine is marked Failed, unless --replacements-at-once is reached
        wait  for a change
    "#]]);
}

#[test]
fn deleting_the_node_deletes_the_machine() {
    world().running().node_field("/metadata/deletionTimestamp", at(-1).to_string().into()).check(expect![[
        r#"
            do    machine: delete
            why   waiting for the deletion of Node m; next: the Machine is deleted
            wait  for a change
        "#
    ]]);
}

#[test]
fn deleting_an_unmanaged_node_removes_its_finalizer() {
    let unmanaged = || {
        let annotations = json!({"node.machine.sapcloud.io/not-managed-by-mcm": "1"});
        world()
            .running()
            .node_field("/metadata/annotations", annotations)
            .node_field("/metadata/deletionTimestamp", at(-1).to_string().into())
    };
    unmanaged().check(expect![[r#"
        do    node m: remove finalizer
        why   removing the finalizer of the Node
        wait  for a change
    "#]]);
    let released = unmanaged().node_field("/metadata/finalizers", json!(["example.com/other"])).plan();
    assert!(released.actions.is_empty(), "{released}");
}

/// Added condition: the annotation may be a user's wish, so it stays for a while.
#[test]
fn t_59_the_node_of_a_machine_is_managed_again_after_a_while() {
    const PERIOD: i64 = 900;
    const KEY: &str = "node.machine.sapcloud.io/not-managed-by-mcm";
    let seen = |since: Option<i64>, mark: &str, period: Option<u64>| {
        let annotations = json!({KEY: "1", "machinist.dev/machine": mark});
        let world = world().running().node_field("/metadata/annotations", annotations);
        let world = world.provider(|identity| identity.same_instance = false);
        world.with(|s| {
            s.node_seen.not_managed = since.map(|seconds| at(-seconds));
            let orphan_period = period.map(Duration::from_secs);
            s.defaults = Arc::new(Defaults { orphan_period, ..Defaults::default() });
        })
    };
    let removes = |plan: Plan<Action>| {
        let is_removal = |action: &Action| match action {
            Action::SyncNode(sync) => sync.annotations.get(KEY) == Some(&None),
            _ => false,
        };
        plan.actions.iter().filter(|action| is_removal(action)).count()
    };
    let own = format!("{}/ns/uid-m", world().snapshot.cluster);
    assert_eq!(removes(seen(Some(PERIOD + 1), &own, Some(900)).plan()), 1, "one patch");
    for early in [None, Some(PERIOD)] {
        let plan = seen(early, &own, Some(900)).plan();
        assert_eq!(plan.wait, machinist_core::Wait::Until(at(PERIOD + 1 - early.unwrap_or(0))), "{plan}");
        assert_eq!(removes(plan), 0, "{early:?}");
    }
    assert_eq!(removes(seen(Some(9999), &own, None).plan()), 0, "the feature is off");
    assert_eq!(removes(seen(Some(9999), "prod/other/uid-m", Some(900)).plan()), 0, "another installation");
}

#[test]
fn a_preserved_failed_machine_reports_its_expiry() {
    let failed = |recorded: bool| {
        let world = if recorded { world().recorded() } else { world() };
        let mut world = world.phase("Failed", "HealthCheck", "Failed", "it failed");
        world.machine["status"]["currentStatus"]["preserveExpiryTime"] = at(100).to_string().into();
        world.machine["metadata"]["annotations"]["node.machine.sapcloud.io/preserve"] = "now".into();
        world
    };
    failed(true).check(expect![[r#"
        why   Machine m has failed and is preserved until 2027-01-15T08:01:40Z; since 2027-01-15T07:59:30Z; next: the Node recovers; deadline 2027-01-15T08:01:41Z: the MachineSet deletes and replaces the Machine
        wait  until 2027-01-15T08:01:41Z
    "#]]);
    assert_eq!(failed(true).plan().why, failed(false).plan().why);
}

#[test]
fn a_preservation_outlives_every_phase_except_the_last() {
    let mut world = world().running();
    world.machine["status"]["currentStatus"]["preserveExpiryTime"] = at(100).to_string().into();
    let status = MachineFacts::parse(&parse::<Machine>(&world.machine)).status;
    assert_eq!(status.preserve_until, Some(at(100)));
    for phase in [Phase::Pending, Phase::CrashLoopBackOff, Phase::Running, Phase::Unknown, Phase::Failed] {
        assert!(StatusFacts::keeps_promise_in(&phase), "{phase:?}");
    }
    assert!(!StatusFacts::keeps_promise_in(&Phase::Terminating));
}

// === deletion ===

#[test]
fn t_36_deletion_begins_with_its_marker() {
    world().running().deleting(1).check(expect![[r#"
        do    status: Terminating, Delete Processing "Initiate node drain"
        why   starting the deletion; since 2027-01-15T07:59:59Z; next: the Node is drained
        wait  for a change
    "#]]);
}

#[test]
fn a_machine_without_a_node_label_begins_with_the_first_marker() {
    world().deleting(1).check(expect![[r#"
        do    status: Terminating, Delete Processing "Set machine status to termination. Now, getting VM Status"
        why   starting the deletion; since 2027-01-15T07:59:59Z; next: the Node is drained
        wait  for a change
    "#]]);
}

#[test]
fn a_drain_cordons_before_it_evicts() {
    world()
        .running()
        .deleting(1)
        .phase("Terminating", "Delete", "Processing", "Initiate node drain")
        .pod("p")
        .check(expect![[r#"
            do    node m: Terminating, ScaleDown
            do    node m: cordon
            do    pod ns/p: evict
            why   waiting for 1 pod to leave the Node; since 2027-01-15T07:59:59Z; next: the pods leave the Node; deadline 2027-01-15T10:00:00Z: the pods are deleted without grace
            wait  until 2027-01-15T08:00:29Z
        "#]]);
}

#[test]
fn outdated_budgets_do_not_force_a_pod_out_sooner() {
    let budget = |name: &str, allowed: i32| {
        json!({
            "metadata": {"name": name, "namespace": "ns", "generation": 1},
            "spec": {"selector": {"matchLabels": {"app": "p"}}},
            "status": {"observedGeneration": 1, "expectedPods": 2, "currentHealthy": 2, "desiredHealthy": 1,
                       "disruptionsAllowed": allowed},
        })
    };
    let due = |attempts: u32, budgets: &[serde_json::Value]| {
        let held = tried(attempts, -7200, 0, EvictionAnswer::Held("no".into()));
        let mut world = world().draining().pod("p");
        world.budgets.extend(budgets.iter().cloned());
        world.with(|s| s.evictions = Arc::new(BTreeMap::from([("uid-p".to_owned(), held)]))).plan().wait
    };
    let both = [budget("a", 1), budget("b", 1)];
    assert_eq!(
        due(1, &both),
        machinist_core::Wait::Until(at(5)),
        "the budgets seem to allow the eviction: a quick retry"
    );
    assert_eq!(due(20, &both), machinist_core::Wait::Until(at(20)), "too many attempts for a quick retry");
    assert_eq!(
        due(1, &[budget("a", 1), budget("b", 0)]),
        machinist_core::Wait::Until(at(20)),
        "one budget does not allow the eviction"
    );
    assert_eq!(due(1, &[]), machinist_core::Wait::Until(at(20)), "the blocking budget is unknown");
}

/// Some attempts are quick, because a budget seems to allow an eviction that the API server
/// rejects.
#[test]
fn quick_attempts_do_not_bring_force_forward() {
    let removed = |count, first: i64| {
        let held = tried(count, first, -20, EvictionAnswer::Held("no".into()));
        let mut world = world().draining().pod("p");
        world.machine["spec"]["drainTimeout"] = "2m".into();
        let evictions = Arc::new(BTreeMap::from([("uid-p".to_owned(), held)]));
        world.with(|s| s.evictions = evictions).plan().to_string()
    };
    assert!(removed(6, -30).contains("pod ns/p: evict"), "{}", removed(6, -30));
    assert!(removed(6, -100).contains("pod ns/p: evict"), "the drain timeout has not passed");
    assert!(removed(6, -120).contains("pod ns/p: delete without grace"), "{}", removed(6, -120));
}

/// The controller was suspended, or its API server was away: meanwhile a budget may have changed.
#[test]
fn unseen_time_uses_up_no_patience() {
    let removed = |last: i64, outcome, gaps: Unseen| {
        let mut world = world().draining().pod("p");
        world.machine["spec"]["drainTimeout"] = "2m".into();
        let evictions = Arc::new(BTreeMap::from([("uid-p".to_owned(), tried(6, -600, last, outcome))]));
        let change = |s: &mut Snapshot| (s.evictions, s.gaps) = (evictions, gaps);
        world.with(change).plan().to_string()
    };
    let held = || EvictionAnswer::Held("no".into());
    let is_deleted = |plan: &str| plan.contains("pod ns/p: delete without grace");
    let mut gaps = Unseen::default();
    let seen = removed(-30, held(), gaps.clone());
    assert!(is_deleted(&seen), "{seen}");
    let old = removed(-300, held(), gaps.clone());
    assert!(
        !is_deleted(&old) && old.contains("pod ns/p: evict"),
        "an old rejection does not count as evidence: {old}"
    );
    let lost = removed(-30, EvictionAnswer::Unanswered("reset".into()), gaps.clone());
    assert!(!is_deleted(&lost), "the last attempt has no answer: {lost}");
    gaps.add(at(-550), at(-40));
    let unseen = removed(-30, held(), gaps);
    assert!(!is_deleted(&unseen), "{unseen}");
}

#[test]
fn a_blocked_pod_is_named_with_its_budget() {
    let held = tried(1, -2, -2, EvictionAnswer::Held("no".into()));
    let mut world = world().draining().pod("p").pod("q");
    world.budgets.push(json!({
        "metadata": {"name": "pdb", "namespace": "ns", "generation": 1},
        "spec": {"selector": {"matchLabels": {"app": "p"}}},
        "status": {"observedGeneration": 1, "expectedPods": 1, "currentHealthy": 1, "desiredHealthy": 1,
                   "disruptionsAllowed": 0},
    }));
    world
        .with(|s| s.evictions = Arc::new(BTreeMap::from([("uid-p".to_owned(), held)])))
        .check(expect![[r#"
            do    status: Delete Failed "Drain is blocked: waiting for 2 pods to leave the Node; PodDisruptionBudget ns/pdb never allows the eviction of pod ns/p. Initiate node drain"
            do    warning DrainBlocked: Drain is blocked: waiting for 2 pods to leave the Node; PodDisruptionBudget ns/pdb never allows the eviction of pod ns/p. Initiate node drain
            do    pod ns/q: evict
            why   waiting for 2 pods to leave the Node; PodDisruptionBudget ns/pdb never allows the eviction of pod ns/p; since 2027-01-15T07:59:50Z; next: change PodDisruptionBudget ns/pdb to allow a disruption; deadline 2027-01-15T09:59:51Z: the pods are deleted without grace
            wait  until 2027-01-15T08:00:18Z
        "#]]);
}

#[test]
fn daemons_and_mirrors_do_not_block_a_drain() {
    let mut world = world().draining().listed().pod("daemon").pod("mirror");
    world.pods[0]["metadata"]["ownerReferences"] = json!([
        {"kind": "DaemonSet", "name": "d", "uid": "d", "apiVersion": "apps/v1", "controller": true}
    ]);
    world.pods[1]["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
    world.check(expect![[r#"
        do    driver: delete sim:///i-1 because node m, cordoned since 2027-01-15T07:59:52Z, had no pod to evict at 2027-01-15T07:59:59Z
        why   waiting for the cloud to delete the instance; since 2027-01-15T07:59:50Z; next: the Node and the finalizer are removed
        wait  for a change
    "#]]);
}

#[test]
fn after_the_drain_timeout_pods_are_deleted_without_grace() {
    let held = tried(9, -7000, -20, EvictionAnswer::Held("no".into()));
    let evictions = Arc::new(BTreeMap::from([("uid-p".to_owned(), held)]));
    world().draining().deleting(7202).pod("p").with(|s| s.evictions = evictions).check(expect![[r#"
        do    pod ns/p: delete without grace
        why   waiting for 1 pod to leave the Node; since 2027-01-15T05:59:58Z; next: the pods leave the Node; deadline 2027-01-15T08:00:59Z: the instance is deleted
        wait  until 2027-01-15T08:00:05Z
    "#]]);
}

#[test]
fn the_drain_timeout_leaves_out_unseen_time() {
    let mut gaps = Unseen::default();
    gaps.add(at(-5000), at(-4000));
    let is_forced = |gaps: &Unseen, deleting: i64| {
        let held = tried(9, -7000, -20, EvictionAnswer::Held("no".into()));
        let evictions = Arc::new(BTreeMap::from([("uid-p".to_owned(), held)]));
        let change = |s: &mut Snapshot| (s.evictions, s.gaps) = (evictions, gaps.clone());
        let plan = world().draining().deleting(deleting).pod("p").with(change).plan().to_string();
        plan.contains("delete without grace")
    };
    assert!(is_forced(&Unseen::default(), 7202));
    assert!(!is_forced(&gaps, 7202));
    assert!(is_forced(&gaps, 8202));
}

#[test]
fn an_old_view_of_a_node_forces_no_drain() {
    let drain = |freshness: Freshness| {
        let conditions = json!([
            {"type": "Ready", "status": "Unknown", "lastTransitionTime": at(-301).to_string()},
            {"type": "Terminating", "status": "True"},
        ]);
        let world = world().draining().node_field("/status/conditions", conditions).pod("p");
        world.with(|s| s.nodes_freshness = freshness)
    };
    let unread = drain(Freshness::Fresh).plan();
    assert!(matches!(unread.actions.as_slice(), [Action::LookForNode(_)]), "the watch may lag: {unread}");
    let drain = |freshness| drain(freshness).looked(-1, Some("uid-n")).plan().to_string();
    let stale = |read| {
        let server = "the API server of the target cluster".to_owned();
        Freshness::Stale(machinist_core::Silence { server, since: at(-200), read })
    };
    assert!(drain(Freshness::Fresh).contains("delete without grace"));
    let plan = drain(stale(machinist_core::FreshRead::Possible));
    assert!(plan.starts_with("do    nodes: list them at the API server\n"), "{plan}");
    assert!(!plan.contains("delete without grace"), "{plan}");
    let plan = drain(stale(machinist_core::FreshRead::Failed(at(20))));
    assert!(!plan.contains("delete without grace") && !plan.contains("list them"), "{plan}");
}

#[test]
fn pods_of_a_node_dead_for_five_minutes_are_deleted() {
    world()
        .draining()
        .node_field(
            "/status/conditions",
            json!([
                {"type": "Ready", "status": "Unknown", "lastTransitionTime": at(-301).to_string()},
                {"type": "Terminating", "status": "True"},
            ]),
        )
        .looked(-1, Some("uid-n"))
        .pod("p")
        .check(expect![[r#"
            do    pod ns/p: delete without grace
            why   waiting for 1 pod to leave the Node; since 2027-01-15T07:59:50Z; next: the pods leave the Node; deadline 2027-01-15T08:01:00Z: the instance is deleted
            wait  until 2027-01-15T08:00:05Z
        "#]]);
}

#[test]
fn a_rejected_pod_deletion_does_not_block_a_dead_node_for_ever() {
    let refused = tried(9, -180, -1, EvictionAnswer::Refused("no".into()));
    world()
        .draining()
        .deleting(200)
        .node_field(
            "/status/conditions",
            json!([
                {"type": "Ready", "status": "Unknown", "lastTransitionTime": at(-9000).to_string()},
                {"type": "Terminating", "status": "True"},
            ]),
        )
        .pod("p")
        .listed()
        .with(|s| s.evictions = Arc::new(BTreeMap::from([("uid-p".to_owned(), refused)])))
        .check(expect![[r#"
            do    status: Delete Processing "Delete Volume Attachments"
            do    warning DrainForced: The drain ended by force: the Node is dead. Pods left on the Node, because their deletion was rejected: ns/p
            why   ending the drain by force; since 2027-01-15T07:56:40Z; next: the VolumeAttachments are deleted
            wait  for a change
        "#]]);
}

#[test]
fn during_clock_skew_an_overdue_drain_stays_polite() {
    let evicted = tried(1, 0, 0, EvictionAnswer::Accepted);
    let mut world = world().draining().deleting(7300).pod("p").pod("going");
    world.pods[1]["metadata"]["deletionTimestamp"] = at(-5).to_string().into();
    world
        .with(|s| {
            s.process.skew = Duration::from_secs(31);
            s.evictions = Arc::new(BTreeMap::from([("uid-p".to_owned(), evicted)]));
        })
        .check(expect![[r#"
            do    status: Delete Processing "Drain in progress: waiting for 2 pods to leave the Node. Initiate node drain"
            why   waiting for 2 pods to leave the Node; since 2027-01-15T05:58:20Z; next: the pods leave the Node; deadline 2027-01-15T07:58:21Z: the pods are deleted without grace
            wait  until 2027-01-15T08:01:00Z
        "#]]);
}

#[test]
fn t_38_a_drain_is_reported_with_the_accepted_deletion() {
    world().draining().listed().check(expect![[r#"
        do    driver: delete sim:///i-1 because node m, cordoned since 2027-01-15T07:59:52Z, had no pod to evict at 2027-01-15T07:59:59Z
        why   waiting for the cloud to delete the instance; since 2027-01-15T07:59:50Z; next: the Node and the finalizer are removed
        wait  for a change
    "#]]);
    let accepted =
        |world: World| world.with(|s| s.answers.delete = deleted(answered(at(-2), at(-1), Ok(()))));
    accepted(world().draining().pod("late")).check(expect![[r#"
        do    status: Delete Processing "Initiate VM deletion"
        do    driver: find sim:///i-1
        why   waiting for the cloud to look up the instance; since 2027-01-15T07:59:50Z; next: the Node and the finalizer are removed
        wait  for a change
    "#]]);
    let without_node =
        accepted(world().recorded().deleting(10)).phase("Terminating", "Delete", "Failed", "-");
    assert_eq!(statuses(&without_node.plan()), [""; 0], "another process would drain nothing");
}

/// Meanwhile a user may make the Node schedulable again, and pods start.
#[test]
fn a_failed_deletion_needs_new_evidence() {
    let failed = |ended, kind| {
        let answer = answered(at(ended - 1), at(ended), Err(error(kind, "no")));
        world().draining().pod("late").with(|s| {
            s.answers.delete = deleted(answer);
            s.answers.failures = 1;
        })
    };
    let plan = failed(-1, ErrorKind::Unavailable).plan().to_string();
    assert!(plan.contains("message = [no]. Initiate node drain") && !plan.contains("evict"), "{plan}");
    for kind in [ErrorKind::Unavailable, ErrorKind::Ambiguous] {
        let plan = failed(-3600, kind).plan().to_string();
        assert!(plan.contains("pod ns/late: evict") && !plan.contains("driver: delete"), "{plan}");
    }
}

#[test]
fn a_node_that_go_has_drained_is_not_drained_again() {
    world()
        .running()
        .deleting(10)
        .phase("Terminating", "Delete", "Processing", "Drain successful. Initiate VM deletion")
        .pod("left-behind")
        .check(expect![[r#"
            do    driver: delete sim:///i-1 because the drain has ended: Initiate VM deletion
            why   waiting for the cloud to delete the instance; since 2027-01-15T07:59:50Z; next: the Node and the finalizer are removed
            wait  for a change
        "#]]);
}

/// The permit may not be older than the slot of the call.
#[test]
fn a_deletion_waits_in_the_queue_before_its_evidence_counts() {
    let empty = || world().draining().listed();
    empty().queued(None).check(expect![[r#"
        do    driver: queue delete
        why   waiting for the cloud to delete the instance; next: the cloud answers
        wait  for a change
    "#]]);
    let waiting = Some(InQueue { call: Call::DELETE, since: at(-60), has_slot: false });
    let in_queue = |world: World| world.queued(waiting).plan();
    for world in [empty(), world().draining(), drained()] {
        let plan = in_queue(world);
        assert!(plan.actions.is_empty(), "{plan}");
        assert_eq!(plan.why.reason.code(), "Queued", "{plan}");
    }
    let slot = world().draining().plan().to_string();
    assert!(slot.contains("list its pods"), "the old list is not evidence: {slot}");
    let slot = empty().plan().to_string();
    assert!(slot.contains("driver: delete"), "{slot}");
}

/// A call to create the instance waits in the queue when the Machine is deleted.
#[test]
fn a_deletion_does_not_wait_for_a_queued_creation() {
    let waiting = Some(InQueue { call: Call::ENSURE, since: at(-60), has_slot: false });
    let world = world().deleting(1).phase("Terminating", "Delete", "Processing", "Getting VM from provider");
    let plan = world.queued(waiting).plan().to_string();
    assert!(plan.contains("machine: remove finalizer"), "{plan}");
}

fn drained() -> World {
    world().draining().phase("Terminating", "Delete", "Processing", "Initiate VM deletion")
}

#[test]
fn after_the_deletion_the_instance_is_looked_up() {
    drained()
        .with(|s| s.answers.delete = deleted(answered(at(-2), at(-1), Ok(()))))
        .check(expect![[r#"
            do    driver: find sim:///i-1
            why   waiting for the cloud to look up the instance; since 2027-01-15T07:59:50Z; next: the Node and the finalizer are removed
            wait  for a change
        "#]]);
}

fn seen(answer: Sighting, by_id: bool) -> Option<Box<Found>> {
    let id = by_id.then(|| instance().id);
    let by = InstanceRef {
        id,
        key: Some(InstanceKey::new(UID)),
        name: NodeName::new("m"),
        ..InstanceRef::default()
    };
    Some(Box::new(Found { by, answered: answered(at(0), at(0), Ok(answer)) }))
}

#[test]
fn an_instance_that_still_exists_is_looked_up_again_later() {
    drained()
        .with(|s| {
            s.answers.delete = deleted(answered(at(-2), at(-1), Ok(())));
            s.answers.find = seen(Sighting::Present(Instance { power: Power::Deleting, ..instance() }), true);
        })
        .check(expect![[r#"
            why   waiting for the cloud to delete instance sim:///i-1; since 2027-01-15T07:59:50Z; next: the Node and the finalizer are removed
            wait  until 2027-01-15T08:00:01Z
        "#]]);
}

#[test]
fn node_and_finalizer_are_removed_in_one_pass() {
    drained()
        .with(|s| {
            s.answers.delete = deleted(answered(at(-2), at(-1), Ok(())));
            s.answers.find = seen(Sighting::Absent, true);
        })
        .check(expect![[r#"
            do    node m: remove finalizer
            do    node m: delete
            do    machine: remove finalizer
            why   removing the Node and the finalizer; since 2027-01-15T07:59:50Z
            wait  for a change
        "#]]);
}

#[test]
fn a_late_node_is_looked_up_at_the_api_server() {
    let mut world = drained().with(|s| {
        s.answers.delete = deleted(answered(at(-2), at(-1), Ok(())));
        s.answers.find = seen(Sighting::Absent, true);
    });
    world.node = None;
    world.check(expect![[r#"
        do    node m: look for it at the API server
        why   waiting for the deletion of Node m; since 2027-01-15T07:59:50Z; next: the finalizer is removed
        wait  for a change
    "#]]);
}

#[test]
fn a_machine_without_any_request_is_deleted_without_a_call() {
    world().deleting(1).phase("Terminating", "Delete", "Processing", "x").check(expect![[r#"
        do    machine: remove finalizer
        why   removing the Node and the finalizer; since 2027-01-15T07:59:59Z
        wait  for a change
    "#]]);
}

#[test]
fn an_absence_counts_only_after_the_visibility_lag() {
    world()
        .created(-100)
        .deleting(1)
        .phase("Terminating", "Delete", "Processing", "x")
        .with(|s| {
            s.process.started = at(-5);
            s.answers.find = seen(Sighting::Absent, false);
        })
        .check(expect![[r#"
            do    machine: record the wait for earlier calls
            why   checking that instance m does not exist: the cloud may not show it yet; since 2027-01-15T07:59:59Z; next: the Node and the finalizer are removed
            wait  until 2027-01-15T08:00:10.001Z
        "#]]);
}

/// A process that restarts every minute would otherwise never release the Machine.
#[test]
fn the_visibility_lag_goes_on_after_a_restart() {
    let mut world = world().created(-600).deleting(300).phase("Terminating", "Delete", "Processing", "x");
    let since = at(-200).to_string();
    world.machine["metadata"]["annotations"] = serde_json::json!({crate::facts::EARLIER_CALLS_SINCE: since});
    world
        .with(|s| {
            s.process.started = at(-5);
            s.answers.find = seen(Sighting::Absent, false);
        })
        .check(expect![[r#"
            do    node m: look for it at the API server
            why   waiting for the deletion of Node m; since 2027-01-15T07:55:00Z; next: the finalizer is removed
            wait  for a change
        "#]]);
}

#[test]
fn without_its_class_deletion_waits_and_reports_it() {
    drained().with(|s| s.class = Known::Absent).check(expect![[r#"
        do    status: Delete Failed "Deletion is blocked: the instance cannot be deleted without MachineClass c. Initiate VM deletion"
        do    warning FailedDelete: Deletion is blocked: the instance cannot be deleted without MachineClass c. Initiate VM deletion
        why   the instance cannot be deleted without MachineClass c; since 2027-01-15T07:59:50Z; next: create MachineClass c again, or set label force-deletion=true to leave the instance behind
        wait  for a change
    "#]]);
}

#[test]
fn without_its_place_deletion_waits_and_reports_it() {
    drained().with(|s| s.place = PlaceFacts::default()).check(expect![[r#"
        do    status: Delete Failed "Deletion is blocked: the instance cannot be deleted without the place of the instance in MachineClass c. Initiate VM deletion"
        do    warning FailedDelete: Deletion is blocked: the instance cannot be deleted without the place of the instance in MachineClass c. Initiate VM deletion
        why   the instance cannot be deleted without the place of the instance in MachineClass c; since 2027-01-15T07:59:50Z; next: correct provider and providerSpec of MachineClass c, or set label force-deletion=true to leave the instance behind
        wait  for a change
    "#]]);
}

#[test]
fn force_deletion_abandons_an_instance_without_its_class() {
    let mut world = drained().with(|s| s.class = Known::Absent);
    world.machine["metadata"]["labels"]["force-deletion"] = "true".into();
    world.check(expect![[r#"
        do    warning InstanceLeftBehind: Instance sim:///i-1 may be left behind: MachineClass c is missing, and label force-deletion is set
        do    node m: remove finalizer
        do    node m: delete
        do    machine: remove finalizer
        why   removing the Node and the finalizer; since 2027-01-15T07:59:50Z
        wait  for a change
    "#]]);
}

#[test]
fn a_failed_deletion_reports_its_code_and_keeps_its_marker() {
    drained()
        .with(|s| {
            let answer = Err(error(ErrorKind::Unavailable, "busy"));
            s.answers.failures = 1;
            s.answers.delete = deleted(answered(at(-2), at(-1), answer));
        })
        .check(expect![[r#"
            do    status: Delete Failed [Unavailable] "machine codes error: code = [Unavailable] message = [busy]. Initiate VM deletion"
            do    warning FailedDelete: machine codes error: code = [Unavailable] message = [busy]. Initiate VM deletion
            why   the cloud failed once to delete the instance (unavailable): busy; since 2027-01-15T07:59:50Z; next: try again to delete the instance at 2027-01-15T08:00:04Z
            wait  until 2027-01-15T08:00:04Z
        "#]]);
}

/// A Machine with a Secret that exists and is rejected by the cloud.
fn refused() -> World {
    drained().with(|s| {
        let message = "the account of MachineClass c, by Secret ns/s, cannot be opened: token: expected text";
        s.answers.failures = 7;
        s.answers.inputs = Some(1);
        let refused = Err(error(ErrorKind::Denied, message));
        // A credential that cannot be opened has no account.
        s.ownership.account = None;
        s.answers.delete = deleted(Answered { account: None, ..answered(at(-100), at(-99), refused) });
    })
}

#[test]
fn a_rejected_credential_is_reported_and_retried_after_a_fix() {
    refused().check(expect![[r#"
        do    status: Delete Failed [PermissionDenied] "machine codes error: code = [PermissionDenied] message = [the account of MachineClass c, by Secret ns/s, cannot be opened: token: expected text]. Initiate VM deletion"
        do    warning FailedDelete: machine codes error: code = [PermissionDenied] message = [the account of MachineClass c, by Secret ns/s, cannot be opened: token: expected text]. Initiate VM deletion
        why   the cloud failed 7 times to delete the instance (denied): the account of MachineClass c, by Secret ns/s, cannot be opened: token: expected text; since 2027-01-15T07:59:50Z; next: try again to delete the instance at 2027-01-15T08:08:21Z
        wait  until 2027-01-15T08:08:21Z
    "#]]);
    assert_eq!(refused().with(|s| s.inputs = 2).plan().actions.len(), 1);
}

#[test]
fn force_deletion_does_not_skip_a_rejected_credential() {
    let mut world = refused();
    world.machine["metadata"]["labels"]["force-deletion"] = "true".into();
    let actions = world.plan().actions;
    assert!(!actions.iter().any(|action| matches!(action, Action::RemoveFinalizer)), "{actions:?}");
}

impl World {
    fn check_with_code(mut self, code: &str, expected: Expect) {
        self.machine["status"]["lastOperation"]["errorCode"] = code.into();
        self.check(expected);
    }
}

/// All Machines of a restored deployment have the age of the restore, so the creation timeout ends
/// for all of them at once.
#[test]
fn a_restored_machine_does_not_fail_for_not_joining() {
    let restored = |node: i64| {
        let mut world = world().running().phase("Pending", "Create", "Processing", "Creating machine");
        world.machine["status"]["currentStatus"]["lastUpdateTime"] = at(-1300).to_string().into();
        world.created(-1300).node_field("/metadata/creationTimestamp", json!(at(node).to_string()))
    };
    let unready = |world: World| world.node_field("/status/conditions/0/status", json!("Unknown"));
    let plan = unready(restored(-90_000)).plan().to_string();
    assert!(plan.contains("changing MachineState to Unknown"), "{plan}");
    let plan = unready(restored(-1200)).plan().to_string();
    assert!(
        plan.contains("the instance boots and its kubelet registers"),
        "the Node is younger than its Machine: {plan}"
    );
}

#[test]
fn a_throttled_account_makes_no_call_before_its_pause_ends() {
    let paused = |s: &mut Snapshot| s.paused_until = Some(at(30));
    world().token(1300).with(paused).check(expect![[r#"
        why   the cloud throttles this account; its calls are paused; next: the controller makes the call; deadline 2027-01-15T08:00:30Z: the pause ends
        wait  until 2027-01-15T08:00:30Z
    "#]]);
    world()
        .recorded()
        .deleting(10)
        .phase("Terminating", "Delete", "Processing", "Initiate VM deletion")
        .with(paused)
        .check(expect![[r#"
            why   the cloud throttles this account; its calls are paused; next: the controller makes the call; deadline 2027-01-15T08:00:30Z: the pause ends
            wait  until 2027-01-15T08:00:30Z
        "#]]);
    world().token(1300).with(|s| s.paused_until = Some(at(0))).check(expect![[r#"
        do    driver: ensure
        why   waiting for the cloud to create the instance; next: the cloud answers
        wait  for a change
    "#]]);
}

#[test]
fn a_new_leader_waits_for_calls_of_its_predecessor() {
    let find_then_create = |s: &mut Snapshot| {
        s.process.promises.create = CreateGuarantee::FindThenCreate;
        s.process.leading_since = Some(at(-3));
    };
    world().token(1300).with(find_then_create).check(expect![[r#"
        why   waiting for the last calls of the previous leader to end; since 2027-01-15T07:59:57Z; next: the controller asks the cloud to create the instance
        wait  until 2027-01-15T08:00:12Z
    "#]]);
    let settled = |s: &mut Snapshot| s.now = plus(at(-3), s.process.promises.absence_takes());
    world().token(1300).with(find_then_create).with(settled).check(expect![[r#"
        do    driver: ensure
        why   waiting for the cloud to create the instance; next: the cloud answers
        wait  until 2027-01-15T08:17:40Z
    "#]]);
    let young = world().created(-1).token(1300).with(find_then_create).plan();
    assert!(matches!(young.actions[..], [Action::Ensure { .. }]), "no predecessor knew it: {young:?}");
}

/// Go's provider for OpenStack makes two servers of one name after a lost answer.
#[test]
fn an_unanswered_creation_is_not_repeated_before_it_is_visible() {
    let unanswered = |create| {
        world().token(1300).with(move |s| {
            s.process.promises.create = create;
            s.answers.ever_ensured = true;
            s.answers.take_ensure(answered(at(-2), at(-1), Err(error(ErrorKind::Ambiguous, "no answer"))));
            // The class was changed, so that a failed call is repeated at once.
            s.answers.inputs = Some(0);
        })
    };
    let waits = unanswered(CreateGuarantee::FindThenCreate).plan();
    assert!(waits.actions.iter().all(|action| !matches!(action, Action::Ensure { .. })), "{waits:?}");
    let text = "checking that instance m does not exist: the cloud may not show it yet";
    assert_eq!(waits.why.reason.to_string(), text);
    let settled = |s: &mut Snapshot| s.now = plus(at(-2), s.process.promises.absence_takes());
    let repeats = unanswered(CreateGuarantee::FindThenCreate).with(settled).plan();
    assert!(matches!(repeats.actions[..], [Action::Ensure { .. }]), "{repeats:?}");
    let at_once = unanswered(CreateGuarantee::NativeKey).plan();
    assert!(matches!(at_once.actions[..], [Action::Ensure { .. }]), "{at_once:?}");
}

// === identity ===

fn statuses(plan: &Plan<Action>) -> Vec<String> {
    plan.actions.iter().filter(|a| matches!(a, Action::SetStatus(_))).map(ToString::to_string).collect()
}

/// A Running Machine with a Node that spells the id differently, as on AWS.
fn spelled_otherwise() -> World {
    world().running().ids("aws:///eu-west-1/i-1", "aws:///eu-west-1a/i-1")
}

#[test]
fn a_differently_spelled_id_does_not_harm_a_machine() {
    let unlabelled = || spelled_otherwise().node_field("/metadata/labels", json!({}));
    let older = || spelled_otherwise().node_field("/metadata/creationTimestamp", at(-500).to_string().into());
    let same: fn(&mut MachineIdentity) = |identity| identity.same_instance = true;
    for (what, world) in [
        ("it carries our label", spelled_otherwise()),
        ("it is younger than the Machine", unlabelled()),
        ("it carries our label and is older: the Machine was restored", older()),
        ("the provider knows both", unlabelled().provider(same)),
    ] {
        assert_eq!(statuses(&world.plan()), Vec::<String>::new(), "{what}");
    }
}

#[test]
fn a_node_is_not_joined_by_its_name_alone() {
    let unlabelled = || spelled_otherwise().node_field("/metadata/labels", json!({}));
    let older = unlabelled().node_field("/metadata/creationTimestamp", at(-500).to_string().into());
    let others = spelled_otherwise()
        .node_field("/metadata/labels", json!({"node.gardener.cloud/machine-name": "gone"}));
    let going = unlabelled().node_field("/metadata/deletionTimestamp", at(-1).to_string().into());
    let earlier =
        spelled_otherwise().node_field("/metadata/deletionTimestamp", at(-10_000).to_string().into());
    let mut unnamed = unlabelled();
    unnamed.machine["metadata"]["labels"] = json!({});
    let claimed: fn(&mut MachineIdentity) = |identity| identity.claimed_by = Some("other".to_owned());
    for (evidence, world) in [
        ("it is older than this machine, and its provider id is aws:///eu-west-1a/i-1", older),
        ("its label names machine gone", others),
        ("it is being deleted", going),
        ("its deletion began before this machine was created", earlier),
        ("the machine has no label node that names it", unnamed),
        ("its label names machine other", spelled_otherwise().provider(claimed)),
    ] {
        let plan = world.plan();
        assert_eq!(plan.actions.len(), 2, "{plan}");
        assert!(
            plan.to_string().contains(&format!("does not belong to this machine ({evidence})")),
            "{plan}"
        );
    }
}

/// Another program labels all Nodes alike.
#[test]
fn a_wrong_label_of_the_same_instance_is_corrected() {
    let label = json!({"node.gardener.cloud/machine-name": "other"});
    let world = world().running().node_field("/metadata/labels", label);
    let plan = world.provider(|identity| identity.claimed_by = Some("other".to_owned())).plan();
    assert!(matches!(plan.actions.as_slice(), [Action::SyncNode(_)]), "{plan}");
}

#[test]
fn a_leftover_label_does_not_hide_the_machines_own_node() {
    let world =
        world().running().node_field("/metadata/labels", json!({"node.gardener.cloud/machine-name": "gone"}));
    world.check(expect![[r#"
        do    node m: sync labels machine-name
        why   up to date; since 2027-01-15T07:59:30Z
        wait  for a change
    "#]]);
}

/// Several Machines record one instance, and `old` is the oldest.
#[test]
fn the_mark_of_the_node_counts_more_than_label_and_age() {
    let machine = |name: &str, created: i64| {
        let mut value = world().running().machine;
        value["metadata"]["name"] = name.into();
        value["metadata"]["uid"] = format!("uid-{name}").into();
        value["metadata"]["creationTimestamp"] = at(created).to_string().into();
        MachineFacts::parse(&parse::<Machine>(&value))
    };
    let machines = [machine("young", -10), machine("old", -30), machine("between", -20)];
    let node = |label: &str, marked: &str| {
        let value = json!({"metadata": {
            "name": "m", "uid": "uid-n",
            "labels": {"node.gardener.cloud/machine-name": label},
            "annotations": {NODE_MARK: format!("c/ns/{marked}")},
        }});
        NodeFacts::parse(&parse(&value))
    };
    let unknown = node("gone", "uid-gone");
    let labelled = node("between", "uid-gone");
    let marked = node("between", "uid-young");
    for (nodes, expected, is_shown) in [
        (vec![], "old", false),
        (vec![&unknown], "old", false),
        (vec![&unknown, &labelled], "between", true),
        (vec![&marked], "young", true),
        (vec![&labelled, &marked], "young", true),
    ] {
        let owner = owner(machines.iter(), &nodes).expect("a Machine");
        assert_eq!((&*owner.machine.name, owner.is_shown), (expected, is_shown), "{nodes:?}");
    }
}

#[test]
fn a_machine_that_does_not_own_its_instance_writes_no_mark() {
    let label = json!({"node.gardener.cloud/machine-name": "gone"});
    for says in
        [(|identity| identity.held_by = Some("owner".to_owned())) as fn(&mut MachineIdentity), |identity| {
            identity.shared_with = Some("other".to_owned())
        }]
    {
        let plan = world().running().node_field("/metadata/labels", label.clone()).provider(says).plan();
        assert!(!plan.actions.iter().any(|action| matches!(action, Action::SyncNode(_))), "{plan}");
    }
}

/// The other Machine may be the owner: only the age speaks against it.
#[test]
fn a_node_is_not_drained_for_a_machine_that_is_only_older() {
    let plan = world()
        .draining()
        .pod("p")
        .provider(|identity| identity.shared_with = Some("other".to_owned()))
        .plan();
    let touches =
        |action: &Action| matches!(action, Action::Drain(_) | Action::Cordon(_) | Action::Delete(_));
    assert!(!plan.actions.iter().any(touches), "{plan}");
    assert!(plan.why.to_string().contains("machine other records the same instance"), "{plan}");
}

/// Returns the actions on the Node of a Machine that is being deleted and no longer has an
/// instance.
fn done_to_node(world: World) -> Vec<String> {
    let id = world.machine["spec"]["providerID"].as_str().and_then(|id| ProviderId::parse(id).ok());
    let gone =
        world.deleting(10).phase("Terminating", "Delete", "Processing", "Initiate VM deletion").with(|s| {
            let answered = Answered { started: at(-2), ended: at(-1), account: account("a"), answer: Ok(()) };
            s.answers.delete = Some(Box::new(Deleted { id: id.clone(), may_lack_key: false, answered }));
            s.answers.find = seen(Sighting::Absent, true);
            s.answers.find.as_mut().expect("an answer").by.id = id;
        });
    let plan = gone.plan();
    plan.actions.iter().map(ToString::to_string).filter(|action| action.starts_with("node")).collect()
}

#[test]
fn a_node_of_another_instance_is_never_deleted() {
    let same: fn(&mut MachineIdentity) = |identity| identity.same_instance = true;
    let both = ["node m: remove finalizer", "node m: delete"];
    assert_eq!(done_to_node(spelled_otherwise().provider(same)), both, "the provider confirms the instance");
    assert_eq!(done_to_node(world().running().node_field("/spec/providerID", "".into())), both);
    let unlabelled = world().running().node_field("/spec/providerID", Value::Null);
    let unlabelled = unlabelled.node_field("/metadata/labels", json!({}));
    assert_eq!(done_to_node(unlabelled), Vec::<String>::new(), "a name alone proves nothing");
    // The Machine was judged by this Node, so the Node has our finalizer. Only the finalizer is
    // removed.
    assert_eq!(done_to_node(spelled_otherwise()), ["node m: remove finalizer"]);
}

#[test]
fn a_node_is_drained_only_with_strong_proof() {
    let drains = |world: World| {
        let marker = "Initiate node drain";
        let world = world.deleting(10).phase("Terminating", "Delete", "Processing", marker).pod("p");
        world.plan().actions.iter().any(|action| matches!(action, Action::Drain(_) | Action::Cordon(_)))
    };
    let same: fn(&mut MachineIdentity) = |identity| identity.same_instance = true;
    assert!(drains(spelled_otherwise().provider(same)));
    assert!(drains(world().running().node_field("/spec/providerID", Value::Null)));
    assert!(!drains(spelled_otherwise()));
}

#[test]
fn a_bare_provider_id_counts_as_recorded() {
    let bare = || world().token(1300).ids("machine-m", "");
    let plan = bare().plan();
    assert!(!plan.actions.iter().any(|action| matches!(action, Action::Ensure { .. })), "{plan}");
    let deleted =
        bare().deleting(10).phase("Terminating", "Delete", "Processing", "Initiate VM deletion").plan();
    let [Action::Delete(permit)] = deleted.actions.as_slice() else { panic!("{deleted}") };
    assert_eq!(permit.which().id.as_ref().map(ProviderId::as_str), Some("machine-m"));
}

fn not_ours(identity: &mut MachineIdentity) {
    identity.recorded = RecordedId::NotOurs { expected: "sim:///IDENTITY".to_owned() };
}

fn malformed(identity: &mut MachineIdentity) {
    identity.recorded = RecordedId::Malformed { expected: "sim:///IDENTITY".to_owned() };
}

#[test]
fn an_id_of_another_provider_causes_no_action() {
    world().running().ids("aws:///z/i-1", "x").provider(not_ours).check(expect![[r#"
        why   spec.providerID belongs to another provider: expected sim:///IDENTITY, got "aws:///z/i-1"; next: run the controller of the provider that created this id, or correct spec.providerID
        wait  for a change
    "#]]);
    world().token(1300).ids("sim://", "").provider(malformed).check(expect![[r#"
        why   spec.providerID is malformed: expected sim:///IDENTITY, got "sim://"; next: set spec.providerID to the id of the machine's instance
        wait  for a change
    "#]]);
}

#[test]
fn a_deletion_waits_while_the_id_cannot_be_parsed() {
    let leaving = |says| world().draining().ids("aws:///z/i-1", "aws:///z/i-1").pod("p").provider(says);
    leaving(not_ours).check(expect![[r#"
        do    status: Delete Failed "Deletion is blocked: spec.providerID belongs to another provider: expected sim:///IDENTITY, got \"aws:///z/i-1\". Initiate node drain"
        do    warning FailedDelete: Deletion is blocked: spec.providerID belongs to another provider: expected sim:///IDENTITY, got "aws:///z/i-1". Initiate node drain
        why   spec.providerID belongs to another provider: expected sim:///IDENTITY, got "aws:///z/i-1"; since 2027-01-15T07:59:50Z; next: run the controller of the provider that created this id, or correct spec.providerID, or set label force-deletion=true to leave the instance behind
        wait  for a change
    "#]]);
    leaving(malformed).check(expect![[r#"
        do    status: Delete Failed "Deletion is blocked: spec.providerID is malformed: expected sim:///IDENTITY, got \"aws:///z/i-1\". Initiate node drain"
        do    warning FailedDelete: Deletion is blocked: spec.providerID is malformed: expected sim:///IDENTITY, got "aws:///z/i-1". Initiate node drain
        why   spec.providerID is malformed: expected sim:///IDENTITY, got "aws:///z/i-1"; since 2027-01-15T07:59:50Z; next: set spec.providerID to the id of the machine's instance, or set label force-deletion=true to leave the instance behind
        wait  for a change
    "#]]);
}

#[test]
fn force_deletion_deletes_a_machine_with_an_unreadable_id() {
    let leaving = || {
        drained().ids("aws:///z/i-1", "aws:///z/i-1").provider(|identity| {
            not_ours(identity);
            identity.same_instance = true;
        })
    };
    leaving().force_deletion().check(expect![[r#"
        do    warning InstanceLeftBehind: Instance aws:///z/i-1 may be left behind: label force-deletion is set although deletion was blocked: spec.providerID belongs to another provider: expected sim:///IDENTITY, got "aws:///z/i-1"
        do    node m: remove finalizer
        do    node m: delete
        do    machine: remove finalizer
        why   removing the Node and the finalizer; since 2027-01-15T07:59:50Z
        wait  for a change
    "#]]);
}

// === in-place updates ===

#[test]
fn a_machine_that_is_updated_in_place_keeps_its_phase() {
    for phase in ["InPlaceUpdating", "InPlaceUpdateFailed"] {
        let updated = || {
            let mut world = world().running().phase(phase, "InPlaceUpdate", "Processing", "x");
            world.machine["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
            world
        };
        let unhealthy = updated().node("False").synced();
        let mut missing = updated();
        missing.node = None;
        let mut unrecorded = updated();
        unrecorded.machine["spec"].as_object_mut().expect("a spec").remove("providerID");
        for (what, world) in [
            ("healthy", updated()),
            ("unhealthy", unhealthy),
            ("without a Node", missing),
            ("without an id", unrecorded),
        ] {
            let plan = world.plan();
            let phases = plan.actions.iter().filter(|action| {
                matches!(action, Action::SetStatus(write) if write.phase.is_some() || write.operation.is_some())
            });
            assert_eq!(phases.count(), 0, "{phase}, {what}: {plan}");
            assert!(!plan.actions.iter().any(|action| matches!(action, Action::Ensure { .. })), "{plan}");
            assert_eq!(plan.why.reason.code(), "UpdatedInPlace", "{phase}, {what}");
        }
    }
}

#[test]
fn the_node_of_a_machine_updated_in_place_is_synced() {
    let mut world = world().running().phase("InPlaceUpdating", "InPlaceUpdate", "Processing", "x");
    world.machine["spec"]["nodeTemplate"] = json!({"metadata": {"labels": {"pool": "w"}}});
    world.machine["status"]["conditions"] = json!([
        {"type": "Ready", "status": "True"},
        {"type": "InPlaceUpdate", "status": "True", "reason": "DrainSuccessful"},
    ]);
    let conditions = json!([
        {"type": "Ready", "status": "True"},
        {"type": "InPlaceUpdate", "status": "True", "reason": "ReadyForUpdate"},
    ]);
    world.node_field("/status/conditions", conditions).check(expect![[r#"
        do    node m: sync labels pool, annotations last-applied-anno-labels-taints
        do    status: 2 conditions
        why   Machine m is being updated in place: it is InPlaceUpdating; since 2027-01-15T07:59:30Z; next: the program on the Node reports the result of the update; deadline 2027-01-15T08:19:31Z: the phase becomes InPlaceUpdateFailed
        wait  until 2027-01-15T08:19:31Z
    "#]]);
}

#[test]
fn a_machine_that_is_updated_in_place_can_be_deleted() {
    let updated = || world().running().phase("InPlaceUpdateFailed", "InPlaceUpdate", "Failed", "x");
    assert!(matches!(updated().deleting(1).plan().actions.as_slice(), [Action::SetStatus(_)]));
    let going = updated().node_field("/metadata/deletionTimestamp", at(-1).to_string().into());
    assert!(matches!(going.plan().actions.as_slice(), [Action::DeleteMachine]));
}

#[test]
fn the_deletion_of_another_instances_node_deletes_no_machine() {
    let going = || world().running().node_field("/metadata/deletionTimestamp", at(-1).to_string().into());
    assert!(matches!(going().plan().actions.as_slice(), [Action::DeleteMachine]));
    let other = going().ids("sim:///i-1", "sim:///i-9").plan();
    assert!(matches!(other.actions.as_slice(), [Action::RemoveNodeFinalizer(_)]), "{other}");
}

#[test]
fn an_update_in_place_that_succeeded_ends_in_running() {
    let world = world().running().phase("InPlaceUpdateSuccessful", "InPlaceUpdate", "Successful", "x");
    assert_eq!(statuses(&world.plan()).len(), 1);
}

// === tokens and adoption ===

#[test]
fn a_machine_without_a_free_token_id_reports_it() {
    world().with(|s| s.token = Token::Exhausted).check(expect![[r#"
        do    status: CrashLoopBackOff, Create Failed [FailedPrecondition] "Creation is blocked: no free bootstrap token id: other Secrets use every id that this machine may take"
        do    warning FailedCreate: Creation is blocked: no free bootstrap token id: other Secrets use every id that this machine may take
        why   no free bootstrap token id: other Secrets use every id that this machine may take; next: delete unused Secrets bootstrap-token-* in namespace kube-system; deadline 2027-01-15T08:19:56Z: the Machine is marked Failed
        wait  until 2027-01-15T08:19:56Z
    "#]]);
}

/// Returns the adoption tolerance for instances without a key, in seconds before the creation of
/// the Machine.
fn adoption_tolerance(cloud_skew: Option<i64>) -> i64 {
    let world = world().token(1300);
    let plan = world.with(|s| s.process.cloud_skew = cloud_skew.map(jiff::SignedDuration::from_secs)).plan();
    let [Action::Ensure { adopt_made_since }] = plan.actions.as_slice() else { panic!("{plan}") };
    at(-5).duration_since(*adopt_made_since).as_secs()
}

#[test]
fn adoption_tolerates_a_cloud_whose_clock_differs() {
    assert_eq!(adoption_tolerance(None), 60, "the skew was not measured");
    assert_eq!((adoption_tolerance(Some(7)), adoption_tolerance(Some(-7))), (67, 67));
    assert_eq!(adoption_tolerance(Some(-3600)), 90, "a clock that is an hour off proves nothing");
}

/// A Machine that is being deleted, while the cloud shows an instance with its name and without a
/// key.
fn going_with_a_namesake(made: i64) -> World {
    world().created(-100).deleting(1).phase("Terminating", "Delete", "Processing", "x").with(|s| {
        s.process.started = at(-50);
        s.answers.find =
            seen(Sighting::Present(Instance { key: None, created: at(made), ..instance() }), false);
    })
}

#[test]
fn an_instance_of_a_skewed_clock_is_deleted_with_its_machine() {
    let plan = going_with_a_namesake(-103).plan();
    assert!(matches!(plan.actions.as_slice(), [Action::Record { .. }]), "{plan}");
}

#[test]
fn a_namesake_is_reported_when_its_machine_is_deleted() {
    going_with_a_namesake(-161)
        .with(|s| s.reads.nodes = vec![NodeRead { name: "m".into(), started: at(0), uid: None }])
        .check(expect![[r#"
        do    warning InstanceNotOurs: The deletion leaves instance sim:///i-1 alone, which has the name of this machine: it has no key and was created at 2027-01-15T07:57:19Z, the machine at 2027-01-15T07:58:20Z
        do    machine: remove finalizer
        why   checking that this machine has no instance: instance sim:///i-1 has its name but another owner (it has no key and was created at 2027-01-15T07:57:19Z, the machine at 2027-01-15T07:58:20Z); since 2027-01-15T07:59:59Z
        wait  for a change
    "#]]);
    let waiting = going_with_a_namesake(-161).with(|s| s.process.started = at(-5));
    waiting.check(expect![[r#"
        do    machine: record the wait for earlier calls
        why   checking that this machine has no instance: instance sim:///i-1 has its name but another owner (it has no key and was created at 2027-01-15T07:57:19Z, the machine at 2027-01-15T07:58:20Z); since 2027-01-15T07:59:59Z; next: the Node and the finalizer are removed
        wait  until 2027-01-15T08:00:10.001Z
    "#]]);
}
