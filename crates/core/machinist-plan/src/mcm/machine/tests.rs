//! Claims about a Machine's life, each a snapshot and the plan it must lead to.

mod proof;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use expect_test::{Expect, expect};
use jiff::Timestamp;
use machinist_api::{Machine, MachineClass, Phase};
use machinist_instance::{
    AccountId, CreateGuarantee, Error, ErrorKind, Instance, InstanceRef, KeyTag, NodeName, Power, Promises,
    ProviderId, RecordedId, Sighting,
};
use serde_json::{Value, json};

use super::*;
use crate::drain::EvictionOutcome;
use crate::facts::{StatusFacts, Version, token_id};
use crate::looks::{NodeLook, PodList};
use machinist_core::{Answered, Attempts, Call, Found};

mod evidence;

const NOW: i64 = 1_800_000_000;
const UID: &str = "uid-m";

fn at(seconds_from_now: i64) -> Timestamp {
    Timestamp::from_second(NOW + seconds_from_now).expect("a moment of this century")
}

/// A Machine and its surroundings, changed step by step into the situation of a test.
struct World {
    machine: Value,
    node: Option<Value>,
    pods: Vec<Value>,
    budgets: Vec<Value>,
    /// What the provider says; by itself it takes every text for an id, and equal texts for one instance.
    provider: fn(&mut Identity),
    snapshot: Snapshot,
}

/// A Machine that its set has just created; class, Secret and a free token id are there.
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
        defaults: Arc::default(),
        machine: Arc::new(MachineFacts::parse(&parse::<Machine>(&machine))),
        class: Known::Present(Arc::new(ClassFacts::parse(&class))),
        class_error: None,
        secrets: vec![SecretNeed { name: "ns/s".into(), facts: Known::Present(secret()) }],
        inputs: 1,
        token: Token::Free(token_id(UID, 0)),
        token_use: TokenUse::Unasked,
        node: Known::Absent,
        identity: Identity {
            recorded: RecordedId::Unset,
            same_instance: false,
            claimed_by: None,
            held_by: None,
        },
        pods: Vec::new(),
        budgets: Vec::new(),
        evictions: Arc::default(),
        attachments: Vec::new(),
        looks: Looks::default(),
        node_seen: NodeSeen::default(),
        answers: Answers::default(),
        paused_until: None,
        ownership: Ownership { account: account("a"), recorded: account("a"), ..Ownership::default() },
        shared: Shared::default(),
        cluster: "ours".to_owned(),
        key_holder: None,
    };
    World { machine, node: None, pods: Vec::new(), budgets: Vec::new(), provider: |_| {}, snapshot }
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

fn answered<T>(started: Timestamp, ended: Timestamp, answer: Result<T, Error>) -> Answered<T> {
    Answered { started, ended, account: account("a"), answer }
}

fn instance() -> Instance {
    Instance {
        cluster: Some("ours".to_owned()),
        id: ProviderId::parse("sim:///i-1").expect("well-formed"),
        key: Some(InstanceKey::new(UID)),
        name: NodeName::new("m").expect("not empty"),
        power: Power::Running,
        addresses: Vec::new(),
        instance_type: None,
        zone: None,
        region: None,
        tags: BTreeMap::new(),
        created: at(-4),
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
            version: Version::default(),
            account: None,
            id: token_id(UID, 0),
            uid: "uid-t".into(),
            created: at(-4),
            expires: Some(at(expires)),
            machine_uid: Some(UID.into()),
            description: String::new(),
        };
        self.with(|s| s.token = Token::Ours(token))
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

    fn recorded(mut self) -> Self {
        self.machine["metadata"]["labels"]["node"] = "m".into();
        self.machine["spec"]["providerID"] = "sim:///i-1".into();
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
        let (parent, field) = pointer.rsplit_once('/').expect("a JSON pointer");
        node.pointer_mut(parent).expect("the parent exists")[field] = value;
        self
    }

    /// The Node as `NodeSync` leaves it.
    fn synced(self) -> Self {
        self.node_field("/metadata/finalizers", json!(["node.machine.sapcloud.io/machine-controller"]))
            .node_field("/metadata/labels", json!({"node.gardener.cloud/machine-name": "m"}))
            .node_field(
                "/metadata/annotations",
                json!({"node.machine.sapcloud.io/last-applied-anno-labels-taints": r#"{"metadata":{},"spec":{}}"#}),
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

    /// The list that counts has shown no pod.
    fn listed(self) -> Self {
        self.with(|s| {
            s.looks.pods = Some(PodList { node_uid: "uid-n".into(), started: at(-1), leaving: 0 });
        })
    }

    /// Sets the Machine's provider id, and its Node's, if it has one.
    fn ids(mut self, machine: &str, node: &str) -> Self {
        self.machine["spec"]["providerID"] = machine.into();
        if self.node.is_some() { self.node_field("/spec/providerID", node.into()) } else { self }
    }

    /// Lets the provider say something about the ids.
    fn provider(mut self, says: fn(&mut Identity)) -> Self {
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

    fn plan(mut self) -> Plan<Action> {
        let s = &mut self.snapshot;
        s.machine = Arc::new(MachineFacts::parse(&parse::<Machine>(&self.machine)));
        s.node = Known::from_store(self.node.as_ref().map(|node| Arc::new(NodeFacts::parse(&parse(node)))));
        let recorded = s.machine.spec.provider_id().unwrap_or_default();
        let named = s.node.present().and_then(|node| node.provider_id());
        s.identity = Identity {
            recorded: RecordedId::any(recorded),
            same_instance: !recorded.is_empty() && named == Some(recorded),
            claimed_by: None,
            held_by: None,
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
fn a_machine_that_others_made_gets_its_finalizer_first() {
    let mut world = world();
    world.machine["metadata"]["finalizers"] = json!([]);
    world.check(expect![[r#"
        do    machine: add finalizer
        why   waits for its finalizer, the record that an instance may exist
        wait  for a change
    "#]]);
}

#[test]
fn a_token_is_made_before_the_instance() {
    world().check(expect![[r#"
        do    token i8uopf: create, expires 2027-01-15T08:20:00Z
        why   waits for its bootstrap token; next: the driver is asked for its instance
        wait  for a change
    "#]]);
}

#[test]
fn nothing_is_made_from_a_class_that_could_still_go() {
    let unheld = |s: &mut Snapshot| {
        let class = s.class.present().expect("it is there");
        let class = ClassFacts { has_finalizer: false, ..(**class).clone() };
        s.class = Known::Present(Arc::new(class));
    };
    world().token(1000).with(unheld).check(expect![[r#"
        why   waits for MachineClass c to get its finalizer, without which it might go first; next: the driver is asked for its instance
        wait  until 2027-01-15T08:19:56Z
    "#]]);
    // Nobody counts Machines that name another kind, so for them there is nothing to wait for.
    let mut other = world().token(1000).with(unheld);
    other.machine["spec"]["class"]["kind"] = "AWSMachineClass".into();
    assert_eq!(other.plan().actions.len(), 1);
}

#[test]
fn a_class_that_the_autoscaler_could_not_read_is_refused() {
    let lacking = json!({
        "metadata": {"name": "c", "namespace": "ns", "uid": "uid-c",
                     "finalizers": ["machine.sapcloud.io/machine-controller-manager"]},
        "provider": "sim", "providerSpec": {"size": "small"},
        "nodeTemplate": {"capacity": {"cpu": "1", "memory": "1Gi"}, "instanceType": "s", "region": "r", "zone": "z"},
    });
    let class = ClassFacts::parse(&parse::<MachineClass>(&lacking));
    world().token(1000).with(|s| s.class = Known::Present(Arc::new(class))).check(expect![[r#"
        do    status: CrashLoopBackOff, Create Failed [InvalidArgument] "Creation waits for MachineClass c to be mended: nodeTemplate.capacity.gpu: expected a quantity, got nothing"
        do    warning FailedCreate: Creation waits for MachineClass c to be mended: nodeTemplate.capacity.gpu: expected a quantity, got nothing
        why   waits for MachineClass c to be mended: nodeTemplate.capacity.gpu: expected a quantity, got nothing; next: mend the class; by 2027-01-15T08:19:56Z: the Machine is marked Failed
        wait  until 2027-01-15T08:19:56Z
    "#]]);
}

#[test]
fn a_secret_without_user_data_is_reported_before_anything_boots_from_it() {
    let bare = || Known::Present(Arc::new(SecretFacts { has_user_data: false, ..(*secret()).clone() }));
    world().with(|s| s.secrets[0].facts = bare()).check(expect![[r#"
        do    status: CrashLoopBackOff, Create Failed [InvalidArgument] "Creation waits for Secret ns/s to have an entry \"userData\""
        do    warning FailedCreate: Creation waits for Secret ns/s to have an entry "userData"
        why   waits for Secret ns/s to have an entry "userData"; next: add userData to Secret ns/s; by 2027-01-15T08:19:56Z: the Machine is marked Failed
        wait  until 2027-01-15T08:19:56Z
    "#]]);
    let credentials = SecretNeed { name: "ns/credentials".into(), facts: bare() };
    let both = world().token(1000).with(|s| s.secrets.push(credentials));
    assert_eq!(both.plan().actions.len(), 1, "one of two Secrets is enough");
    assert_eq!(
        world().with(|s| s.secrets.clear()).plan().actions.len(),
        1,
        "nobody said that there should be any"
    );
}

#[test]
fn a_secret_that_is_not_read_is_not_said_to_be_missing() {
    let elsewhere = |s: &mut Snapshot| {
        s.secrets[0] = SecretNeed { name: "other/s".into(), facts: Known::Unasked };
    };
    world().with(elsewhere).check(expect![[r#"
        do    status: CrashLoopBackOff, Create Failed [NotFound] "Creation waits for Secret other/s, which MachineClass c refers to: only Secrets of namespace ns are read"
        do    warning FailedCreate: Creation waits for Secret other/s, which MachineClass c refers to: only Secrets of namespace ns are read
        why   waits for Secret other/s, which MachineClass c refers to: only Secrets of namespace ns are read; next: put the Secret into namespace ns, and let the class refer to that one; by 2027-01-15T08:19:56Z: the Machine is marked Failed
        wait  until 2027-01-15T08:19:56Z
    "#]]);
    drained().with(elsewhere).check(expect![[r#"
        do    status: Delete Failed "Deletion waits for Secret other/s (only namespace ns is read), without which its instance cannot be deleted. Initiate VM deletion"
        do    warning FailedDelete: Deletion waits for Secret other/s (only namespace ns is read), without which its instance cannot be deleted. Initiate VM deletion
        why   waits for Secret other/s (only namespace ns is read), without which its instance cannot be deleted; since 2027-01-15T07:59:50Z; next: let MachineClass c refer to one of namespace ns, or set label force-deletion=true to leave the instance behind
        wait  for a change
    "#]]);
}

#[test]
fn with_a_token_the_driver_is_asked() {
    world().token(1000).check(expect![[r#"
        do    driver: ensure
        why   waits for the cloud to answer ensure; next: the answer
        wait  for a change
    "#]]);
}

#[test]
fn a_token_that_would_expire_during_boot_is_replaced() {
    world().token(10).check(expect![[r#"
        do    token i8uopf: delete
        why   waits for a bootstrap token that lasts; next: the driver is asked for its instance
        wait  for a change
    "#]]);
}

#[test]
fn user_data_without_a_placeholder_needs_no_token() {
    let bare = SecretFacts { wants_token: false, ..(*secret()).clone() };
    world().with(|s| s.secrets[0].facts = Known::Present(Arc::new(bare))).check(expect![[r#"
            do    driver: ensure
            why   waits for the cloud to answer ensure; next: the answer
            wait  for a change
        "#]]);
}

#[test]
fn a_call_in_flight_is_waited_for() {
    world().token(1000).with(|s| s.answers.in_flight = Some((Call::ENSURE, at(-1)))).check(expect![[r#"
        why   waits for the cloud to answer ensure; since 2027-01-15T07:59:59Z; next: the answer
        wait  until 2027-01-15T08:00:04Z
    "#]]);
}

#[test]
fn an_answer_is_recorded_and_said_in_one_pass() {
    world().token(1000).ensured(Ok(instance())).check(expect![[r#"
        do    machine: record node m and sim:///i-1
        do    status: Pending, Create Processing "Creating machine on cloud provider"
        why   waits for the record of its instance; next: its Node joins
        wait  for a change
    "#]]);
}

#[test]
fn quota_is_reported_with_the_code_the_autoscaler_knows() {
    world().token(1000).ensured(Err(error(ErrorKind::Exhausted, "quota of 2 instances reached"))).check(expect![[r#"
        do    status: CrashLoopBackOff, Create Failed [ResourceExhausted] "Cloud provider message - machine codes error: code = [ResourceExhausted] message = [quota of 2 instances reached]"
        do    warning FailedCreate: Cloud provider message - machine codes error: code = [ResourceExhausted] message = [quota of 2 instances reached]
        why   waits for the cloud: ensure failed once, exhausted: quota of 2 instances reached; since 2027-01-15T07:59:59Z; next: ensure again at 2027-01-15T08:09:59Z; by 2027-01-15T08:19:56Z: the Machine is marked Failed
        wait  until 2027-01-15T08:09:59Z
    "#]]);
}

#[test]
fn a_refusal_that_is_reported_already_only_waits() {
    world()
        .token(1000)
        .ensured(Err(error(ErrorKind::Unavailable, "no")))
        .phase(
            "CrashLoopBackOff",
            "Create",
            "Failed",
            "Cloud provider message - machine codes error: code = [Unavailable] message = [no]",
        )
        .with(|_| {})
        .check_with_code("Unavailable", expect![[r#"
            why   waits for the cloud: ensure failed once, unavailable: no; since 2027-01-15T07:59:59Z; next: ensure again at 2027-01-15T08:00:04Z; by 2027-01-15T08:19:56Z: the Machine is marked Failed
            wait  until 2027-01-15T08:00:04Z
        "#]]);
}

#[test]
fn a_mended_class_is_tried_at_once() {
    world().token(1000).ensured(Err(error(ErrorKind::Denied, "no"))).with(|s| s.inputs = 2).check(expect![[
        r#"
            do    driver: ensure
            why   waits for the cloud to answer ensure; next: the answer
            wait  for a change
        "#
    ]]);
}

#[test]
fn a_missing_class_is_named() {
    world().with(|s| s.class = Known::Absent).check(expect![[r#"
        do    status: CrashLoopBackOff, Create Failed [NotFound] "Creation waits for MachineClass c, which does not exist"
        do    warning FailedCreate: Creation waits for MachineClass c, which does not exist
        why   waits for MachineClass c, which does not exist; next: create MachineClass ns/c; by 2027-01-15T08:19:56Z: the Machine is marked Failed
        wait  until 2027-01-15T08:19:56Z
    "#]]);
}

#[test]
fn a_missing_secret_is_named() {
    world().with(|s| s.secrets[0].facts = Known::Absent).check(expect![[r#"
        do    status: CrashLoopBackOff, Create Failed [NotFound] "Creation waits for Secret ns/s, which MachineClass c refers to and which does not exist"
        do    warning FailedCreate: Creation waits for Secret ns/s, which MachineClass c refers to and which does not exist
        why   waits for Secret ns/s, which MachineClass c refers to and which does not exist; next: create Secret ns/s; by 2027-01-15T08:19:56Z: the Machine is marked Failed
        wait  until 2027-01-15T08:19:56Z
    "#]]);
}

#[test]
fn creation_that_takes_too_long_has_failed() {
    world().created(-1300).token(1000).ensured(Err(error(ErrorKind::Exhausted, "no stock"))).check(expect![[r#"
        do    status: Failed, Create Failed [ResourceExhausted] "Machine m was not created in time. Cloud provider message - machine codes error: code = [ResourceExhausted] message = [no stock]"
        why   waits for its set to replace it: Machine m was not created in time. Cloud provider message - machine codes error: code = [ResourceExhausted] message = [no stock]; next: its set deletes it
        wait  for a change
    "#]]);
}

#[test]
fn no_deadline_is_enforced_while_clocks_disagree() {
    world()
        .created(-1300)
        .with(|s| s.process.skew = Duration::from_secs(31))
        .check(expect![[r#"
            why   waits for clocks to agree: this process is 31 s off the API server's time; next: synchronise the clocks
            wait  until 2027-01-15T08:01:00Z
        "#]]);
}

#[test]
fn an_instance_that_exists_after_all_is_recorded_even_when_time_is_up() {
    world().created(-1300).ensured(Ok(instance())).check(expect![[r#"
        do    machine: record node m and sim:///i-1
        do    status: Pending, Create Processing "Creating machine on cloud provider"
        why   waits for the record of its instance; next: its Node joins
        wait  for a change
    "#]]);
}

// === joining and health ===

#[test]
fn without_a_node_it_waits_up_to_the_creation_timeout() {
    world().pending().check(expect![[r#"
        why   waits for Node m to register; since 2027-01-15T07:59:30Z; next: the instance boots and its kubelet registers; by 2027-01-15T08:19:56Z: the Machine is marked Failed
        wait  until 2027-01-15T08:19:56Z
    "#]]);
}

#[test]
fn a_token_that_was_never_used_is_said() {
    world().pending().with(|s| s.token_use = TokenUse::NeverUsed).check(expect![[r#"
        why   waits for Node m to register; its bootstrap token was never used; since 2027-01-15T07:59:30Z; next: the instance boots and its kubelet registers; by 2027-01-15T08:19:56Z: the Machine is marked Failed
        wait  until 2027-01-15T08:19:56Z
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
        do    node m: sync finalizer, labels machine-name pool, annotations last-applied-anno-labels-taints, 1 taints
        why   waits for Node m to become healthy: Ready is False; since 2027-01-15T07:59:30Z; next: the instance boots and its kubelet registers; by 2027-01-15T08:19:56Z: the Machine is marked Failed
        wait  until 2027-01-15T08:19:56Z
    "#]]);
}

#[test]
fn the_node_of_a_machine_whose_name_is_no_label_gets_everything_else() {
    let mut world = world().pending().node("True");
    world.machine["metadata"]["name"] = "y".repeat(64).into();
    let plan = world.plan().to_string().replace(&"y".repeat(64), "LONG");
    expect![[r#"
        do    node m: sync finalizer, annotations last-applied-anno-labels-taints
        do    status: Running, Create Successful "Machine LONG successfully joined the cluster", 1 conditions
        do    event MachineJoined: Machine LONG successfully joined the cluster
        why   waits for nothing: it is as it should be; since 2027-01-15T07:59:30Z
        wait  for a change
    "#]]
    .assert_eq(&plan);
}

#[test]
fn a_healthy_node_makes_it_running_and_its_token_goes() {
    world().pending().node("True").synced().token(1000).check(expect![[r#"
        do    status: Running, Create Successful "Machine m successfully joined the cluster", 1 conditions
        do    event MachineJoined: Machine m successfully joined the cluster
        do    token i8uopf: delete
        why   waits for nothing: it is as it should be; since 2027-01-15T07:59:30Z
        wait  for a change
    "#]]);
}

#[test]
fn critical_components_keep_it_pending() {
    world()
        .pending()
        .node("True")
        .synced()
        .node_field(
            "/spec/taints",
            json!([{"key": "node.gardener.cloud/critical-components-not-ready", "effect": "NoSchedule"}]),
        )
        .check(expect![[r#"
            why   waits for the critical components of Node m; since 2027-01-15T07:59:30Z; next: the instance boots and its kubelet registers; by 2027-01-15T08:19:56Z: the Machine is marked Failed
            wait  until 2027-01-15T08:19:56Z
        "#]]);
}

#[test]
fn a_running_machine_with_a_healthy_node_needs_nothing() {
    world().running().check(expect![[r#"
        why   waits for nothing: it is as it should be; since 2027-01-15T07:59:30Z
        wait  for a change
    "#]]);
}

#[test]
fn a_node_that_is_not_ready_makes_it_unknown() {
    world().running().node("Unknown").synced().check(expect![[r#"
        do    status: Unknown, HealthCheck Processing "Machine m is unhealthy - changing MachineState to Unknown. Ready is Unknown", 1 conditions
        do    warning NodeUnhealthy: Machine m is unhealthy - changing MachineState to Unknown. Ready is Unknown
        why   waits for Node m to become healthy: Ready is Unknown; since 2027-01-15T07:59:30Z; next: the Node recovers; by 2027-01-15T08:09:31Z: the Machine is marked Failed, one at a time
        wait  for a change
    "#]]);
}

#[test]
fn a_node_that_went_missing_makes_it_unknown() {
    let mut world = world().running();
    world.node = None;
    world.check(expect![[r#"
        do    status: Unknown, HealthCheck Processing "Node object went missing. Machine m is unhealthy - changing MachineState to Unknown"
        do    warning NodeUnhealthy: Node object went missing. Machine m is unhealthy - changing MachineState to Unknown
        why   waits for Node m to become healthy: the Node object went missing; since 2027-01-15T07:59:30Z; next: the Node recovers; by 2027-01-15T08:09:31Z: the Machine is marked Failed, one at a time
        wait  for a change
    "#]]);
}

#[test]
fn an_older_node_of_another_instance_is_not_taken() {
    world()
        .pending()
        .node("True")
        .ids("sim:///i-1", "sim:///i-0")
        .node_field("/metadata/creationTimestamp", at(-500).to_string().into())
        .check(expect![[r#"
            why   waits for Node m to go: it is not this machine's (it is older than this machine, and its provider id is sim:///i-0); since 2027-01-15T07:59:30Z; next: the instance boots and its kubelet registers; by 2027-01-15T08:19:56Z: the Machine is marked Failed
            wait  until 2027-01-15T08:19:56Z
        "#]]);
}

#[test]
fn an_older_node_of_that_name_is_not_taken() {
    world()
        .pending()
        .node("True")
        .node_field("/spec/providerID", Value::Null)
        .node_field("/metadata/creationTimestamp", at(-500).to_string().into())
        .check(expect![[r#"
            why   waits for Node m to go: it is not this machine's (it is older than this machine); since 2027-01-15T07:59:30Z; next: the instance boots and its kubelet registers; by 2027-01-15T08:19:56Z: the Machine is marked Failed
            wait  until 2027-01-15T08:19:56Z
        "#]]);
}

#[test]
fn a_machine_whose_node_is_another_machines_says_so() {
    let other = |identity: &mut Identity| identity.claimed_by = Some("other".to_owned());
    let mut world = world().running().ids("sim:///i-1", "sim:///i-2").provider(other);
    world.machine["status"]["currentStatus"]["phase"] = "Unknown".into();
    world.check(expect![[r#"
        why   waits for Node m to become healthy: the Node object of that name is not this machine's (its label names machine other); since 2027-01-15T07:59:30Z; next: the Node recovers; by 2027-01-15T08:09:31Z: the Machine is marked Failed, one at a time
        wait  for a change
    "#]]);
}

#[test]
fn deleting_the_node_deletes_the_machine() {
    world().running().node_field("/metadata/deletionTimestamp", at(-1).to_string().into()).check(expect![[
        r#"
            do    machine: delete
            why   waits for Node m to be removed; next: the Machine is deleted
            wait  for a change
        "#
    ]]);
}

#[test]
fn a_failed_machine_that_is_preserved_says_until_when() {
    let failed = |recorded: bool| {
        let world = if recorded { world().recorded() } else { world() };
        let mut world = world.phase("Failed", "HealthCheck", "Failed", "it failed");
        world.machine["status"]["currentStatus"]["preserveExpiryTime"] = at(100).to_string().into();
        world
    };
    failed(true).check(expect![[r#"
        why   waits for Machine m, which has failed and is preserved until 2027-01-15T08:01:40Z; since 2027-01-15T07:59:30Z; next: its Node recovers; by 2027-01-15T08:01:41Z: its set deletes and replaces it
        wait  for a change
    "#]]);
    assert_eq!(failed(true).plan().why, failed(false).plan().why);
    let mut annotated = world().recorded().phase("Failed", "HealthCheck", "Failed", "it failed");
    annotated.machine["metadata"]["annotations"]["node.machine.sapcloud.io/preserve"] = "now".into();
    annotated.check(expect![[r#"
        why   waits for Machine m, which has failed and is preserved by its annotation node.machine.sapcloud.io/preserve; since 2027-01-15T07:59:30Z; next: remove the annotation node.machine.sapcloud.io/preserve to have it replaced
        wait  for a change
    "#]]);
}

#[test]
fn a_promise_to_preserve_outlives_every_phase_but_the_last() {
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
fn deletion_begins_with_its_marker() {
    world().running().deleting(1).check(expect![[r#"
        do    status: Terminating, Delete Processing "Initiate node drain"
        why   waits for its deletion to begin; since 2027-01-15T07:59:59Z; next: its node is drained
        wait  for a change
    "#]]);
}

#[test]
fn a_machine_without_a_node_label_begins_with_the_first_marker() {
    world().deleting(1).check(expect![[r#"
        do    status: Terminating, Delete Processing "Set machine status to termination. Now, getting VM Status"
        why   waits for its deletion to begin; since 2027-01-15T07:59:59Z; next: its node is drained
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
            why   waits for 1 pod to leave the node; since 2027-01-15T07:59:59Z; next: the pods leave; by 2027-01-15T10:00:00Z: the pods are deleted without grace
            wait  until 2027-01-15T10:00:00Z
        "#]]);
}

#[test]
fn a_pod_whose_budgets_only_seem_to_allow_it_is_not_forced_out_sooner() {
    let budget = |name: &str, allowed: i32| {
        json!({
            "metadata": {"name": name, "namespace": "ns", "generation": 1},
            "spec": {"selector": {"matchLabels": {"app": "p"}}},
            "status": {"observedGeneration": 1, "expectedPods": 2, "currentHealthy": 2, "desiredHealthy": 1,
                       "disruptionsAllowed": allowed},
        })
    };
    let due = |attempts: u32, budgets: &[serde_json::Value]| {
        let held = Eviction {
            attempts: Attempts { count: attempts, last: at(0) },
            first: at(-7200),
            outcome: EvictionOutcome::Held("no".into()),
        };
        let mut world = world().draining().pod("p");
        world.budgets.extend(budgets.iter().cloned());
        world.with(|s| s.evictions = Arc::new(BTreeMap::from([("uid-p".to_owned(), held)]))).plan().wait
    };
    let both = [budget("a", 1), budget("b", 1)];
    assert_eq!(due(1, &both), machinist_core::Wait::Until(at(5)), "they seem to allow it: soon again");
    assert_eq!(due(20, &both), machinist_core::Wait::Until(at(20)), "they have seemed so for long");
    assert_eq!(
        due(1, &[budget("a", 1), budget("b", 0)]),
        machinist_core::Wait::Until(at(20)),
        "one of them does not"
    );
    assert_eq!(due(1, &[]), machinist_core::Wait::Until(at(20)), "nobody knows why it was held");
}

/// Some attempts are made soon after one another, where a budget seems to allow what the API server refuses.
#[test]
fn quick_attempts_do_not_bring_force_forward() {
    let tried = |count, first: i64| {
        let attempts = Attempts { count, last: at(-20) };
        let held = Eviction { attempts, first: at(first), outcome: EvictionOutcome::Held("no".into()) };
        let mut world = world().draining().pod("p");
        world.machine["spec"]["drainTimeout"] = "2m".into();
        let evictions = Arc::new(BTreeMap::from([("uid-p".to_owned(), held)]));
        world.with(|s| s.evictions = evictions).plan().to_string()
    };
    assert!(tried(6, -30).contains("pod ns/p: evict"), "{}", tried(6, -30));
    assert!(tried(6, -100).contains("pod ns/p: delete without grace"), "{}", tried(6, -100));
}

#[test]
fn a_held_pod_is_named_with_its_budget() {
    let held = Eviction {
        attempts: Attempts { count: 1, last: at(-2) },
        first: at(-2),
        outcome: EvictionOutcome::Held("no".into()),
    };
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
            do    status: Delete Failed "Drain waits for 2 pods to leave the node; ns/p is held by PodDisruptionBudget ns/pdb, which allows none of its pods to go. Initiate node drain"
            do    warning DrainBlocked: Drain waits for 2 pods to leave the node; ns/p is held by PodDisruptionBudget ns/pdb, which allows none of its pods to go. Initiate node drain
            do    pod ns/q: evict
            why   waits for 2 pods to leave the node; ns/p is held by PodDisruptionBudget ns/pdb, which allows none of its pods to go; since 2027-01-15T07:59:50Z; next: let PodDisruptionBudget ns/pdb allow one of its pods to go; by 2027-01-15T09:59:51Z: the pods are deleted without grace
            wait  until 2027-01-15T08:00:18Z
        "#]]);
}

#[test]
fn daemons_and_mirrors_do_not_hold_a_drain_up() {
    let mut world = world().draining().listed().pod("daemon").pod("mirror");
    world.pods[0]["metadata"]["ownerReferences"] = json!([
        {"kind": "DaemonSet", "name": "d", "uid": "d", "apiVersion": "apps/v1", "controller": true}
    ]);
    world.pods[1]["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
    world.check(expect![[r#"
        do    status: Delete Processing "Initiate VM deletion"
        do    driver: delete sim:///i-1 because node m, closed since 2027-01-15T07:59:52Z, had no pod to evict at 2027-01-15T07:59:59Z
        why   waits for the cloud to answer delete; since 2027-01-15T07:59:50Z; next: its Node and its finalizer are removed
        wait  for a change
    "#]]);
}

#[test]
fn when_time_is_up_pods_are_deleted_without_grace() {
    world().draining().deleting(7202).pod("p").check(expect![[r#"
        do    pod ns/p: delete without grace
        why   waits for 1 pod to leave the node; since 2027-01-15T05:59:58Z; next: the pods leave; by 2027-01-15T08:00:59Z: the instance is deleted
        wait  until 2027-01-15T08:00:05Z
    "#]]);
}

#[test]
fn pods_of_a_node_that_is_dead_for_five_minutes_are_given_up() {
    world()
        .draining()
        .node_field(
            "/status/conditions",
            json!([
                {"type": "Ready", "status": "Unknown", "lastTransitionTime": at(-301).to_string()},
                {"type": "Terminating", "status": "True"},
            ]),
        )
        .pod("p")
        .check(expect![[r#"
            do    pod ns/p: delete without grace
            why   waits for 1 pod to leave the node; since 2027-01-15T07:59:50Z; next: the pods leave; by 2027-01-15T08:01:00Z: the instance is deleted
            wait  until 2027-01-15T08:00:05Z
        "#]]);
}

#[test]
fn a_pod_whose_deletion_is_refused_does_not_hold_a_dead_node_up_for_ever() {
    let refused = Eviction {
        attempts: Attempts { count: 9, last: at(-1) },
        first: at(-180),
        outcome: EvictionOutcome::Refused("no".into()),
    };
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
        .with(|s| s.evictions = Arc::new(BTreeMap::from([("uid-p".to_owned(), refused)])))
        .check(expect![[r#"
            do    status: Delete Processing "Delete Volume Attachments"
            why   waits for its drain to be ended by force; since 2027-01-15T07:56:40Z; next: its VolumeAttachments are deleted
            wait  for a change
        "#]]);
}

#[test]
fn while_clocks_disagree_an_overdue_drain_stays_polite_and_is_looked_at_now_and_then() {
    let evicted = Eviction {
        attempts: Attempts { count: 1, last: at(0) },
        first: at(0),
        outcome: EvictionOutcome::Accepted,
    };
    let mut world = world().draining().deleting(7300).pod("p").pod("going");
    world.pods[1]["metadata"]["deletionTimestamp"] = at(-5).to_string().into();
    world
        .with(|s| {
            s.process.skew = Duration::from_secs(31);
            s.evictions = Arc::new(BTreeMap::from([("uid-p".to_owned(), evicted)]));
        })
        .check(expect![[r#"
            why   waits for 2 pods to leave the node; since 2027-01-15T05:58:20Z; next: the pods leave; by 2027-01-15T07:58:21Z: the pods are deleted without grace
            wait  until 2027-01-15T08:00:20Z
        "#]]);
}

#[test]
fn a_drained_node_is_said_and_its_instance_deleted_in_one_pass() {
    world().draining().listed().check(expect![[r#"
        do    status: Delete Processing "Initiate VM deletion"
        do    driver: delete sim:///i-1 because node m, closed since 2027-01-15T07:59:52Z, had no pod to evict at 2027-01-15T07:59:59Z
        why   waits for the cloud to answer delete; since 2027-01-15T07:59:50Z; next: its Node and its finalizer are removed
        wait  for a change
    "#]]);
}

#[test]
fn what_go_drained_is_not_drained_again() {
    world()
        .running()
        .deleting(10)
        .phase("Terminating", "Delete", "Processing", "Drain successful. Initiate VM deletion")
        .pod("left-behind")
        .check(expect![[r#"
            do    driver: delete sim:///i-1 because its drain has ended: Initiate VM deletion
            why   waits for the cloud to answer delete; since 2027-01-15T07:59:50Z; next: its Node and its finalizer are removed
            wait  for a change
        "#]]);
}

fn drained() -> World {
    world().draining().phase("Terminating", "Delete", "Processing", "Initiate VM deletion")
}

#[test]
fn after_the_deletion_the_instance_is_looked_for() {
    drained()
        .with(|s| s.answers.delete = Some(answered(at(-2), at(-1), Ok(()))))
        .check(expect![[r#"
            do    driver: find sim:///i-1
            why   waits for the cloud to answer find; since 2027-01-15T07:59:50Z; next: its Node and its finalizer are removed
            wait  for a change
        "#]]);
}

fn seen(answer: Sighting, by_id: bool) -> Option<Found> {
    let id = by_id.then(|| instance().id);
    let by = InstanceRef { id, key: Some(InstanceKey::new(UID)), name: NodeName::new("m") };
    Some(Found { by, answered: answered(at(0), at(0), Ok(answer)) })
}

#[test]
fn an_instance_that_lingers_is_looked_at_again_later() {
    drained()
        .with(|s| {
            s.answers.delete = Some(answered(at(-2), at(-1), Ok(())));
            s.answers.find = seen(Sighting::Present(Instance { power: Power::Deleting, ..instance() }), true);
        })
        .check(expect![[r#"
            why   waits for the cloud to delete instance sim:///i-1; since 2027-01-15T07:59:50Z; next: its Node and its finalizer are removed
            wait  until 2027-01-15T08:00:01Z
        "#]]);
}

#[test]
fn once_it_is_gone_node_and_finalizer_go_in_one_pass() {
    drained()
        .with(|s| {
            s.answers.delete = Some(answered(at(-2), at(-1), Ok(())));
            s.answers.find = seen(Sighting::Absent, true);
        })
        .check(expect![[r#"
            do    node m: remove finalizer
            do    node m: delete
            do    machine: remove finalizer
            why   waits for its Node and its finalizer to be removed; since 2027-01-15T07:59:50Z
            wait  for a change
        "#]]);
}

#[test]
fn a_node_that_may_have_registered_late_is_looked_for_at_the_server() {
    let mut world = drained().with(|s| {
        s.answers.delete = Some(answered(at(-2), at(-1), Ok(())));
        s.answers.find = seen(Sighting::Absent, true);
    });
    world.node = None;
    world.check(expect![[r#"
        do    node m: look for it at the API server
        why   waits for Node m to be removed; since 2027-01-15T07:59:50Z; next: the finalizer is removed
        wait  for a change
    "#]]);
}

#[test]
fn a_machine_that_nobody_made_anything_for_goes_without_a_call() {
    world().deleting(1).phase("Terminating", "Delete", "Processing", "x").check(expect![[r#"
        do    machine: remove finalizer
        why   waits for its Node and its finalizer to be removed; since 2027-01-15T07:59:59Z
        wait  for a change
    "#]]);
}

#[test]
fn a_machine_older_than_this_process_is_looked_for_until_the_lag_has_passed() {
    world()
        .created(-100)
        .deleting(1)
        .phase("Terminating", "Delete", "Processing", "x")
        .with(|s| {
            s.process.started = at(-5);
            s.answers.find = seen(Sighting::Absent, false);
        })
        .check(expect![[r#"
            why   waits for proof that instance m does not exist: the cloud may not show it yet; since 2027-01-15T07:59:59Z; next: its Node and its finalizer are removed
            wait  until 2027-01-15T08:00:10.001Z
        "#]]);
}

#[test]
fn without_its_class_deletion_waits_and_says_so() {
    drained().with(|s| s.class = Known::Absent).check(expect![[r#"
        do    status: Delete Failed "Deletion waits for MachineClass c, without which its instance cannot be deleted. Initiate VM deletion"
        do    warning FailedDelete: Deletion waits for MachineClass c, without which its instance cannot be deleted. Initiate VM deletion
        why   waits for MachineClass c, without which its instance cannot be deleted; since 2027-01-15T07:59:50Z; next: create MachineClass c again, or set label force-deletion=true to leave the instance behind
        wait  for a change
    "#]]);
}

#[test]
fn force_deletion_gives_up_an_instance_that_cannot_be_deleted() {
    let mut world = drained().with(|s| s.class = Known::Absent);
    world.machine["metadata"]["labels"]["force-deletion"] = "true".into();
    world.check(expect![[r#"
        do    warning FailedDelete: Instance sim:///i-1 may be left behind: MachineClass c is missing, and label force-deletion is set
        do    node m: remove finalizer
        do    node m: delete
        do    machine: remove finalizer
        why   waits for its Node and its finalizer to be removed; since 2027-01-15T07:59:50Z
        wait  for a change
    "#]]);
}

#[test]
fn a_failed_deletion_is_reported_with_its_code_and_keeps_its_marker() {
    drained()
        .with(|s| {
            let answer = Err(error(ErrorKind::Unavailable, "busy"));
            s.answers.failures = 1;
            s.answers.delete = Some(answered(at(-2), at(-1), answer));
        })
        .check(expect![[r#"
            do    status: Delete Failed [Unavailable] "machine codes error: code = [Unavailable] message = [busy]. Initiate VM deletion"
            do    warning FailedDelete: machine codes error: code = [Unavailable] message = [busy]. Initiate VM deletion
            why   waits for the cloud: delete failed once, unavailable: busy; since 2027-01-15T07:59:50Z; next: delete again at 2027-01-15T08:00:04Z
            wait  until 2027-01-15T08:00:04Z
        "#]]);
}

/// A Machine whose Secret is there and refused.
fn refused() -> World {
    drained().with(|s| {
        let message = "the account of MachineClass c, by Secret ns/s, cannot be opened: token: expected text";
        s.answers.failures = 7;
        s.answers.inputs = Some(1);
        let refused = Err(error(ErrorKind::Denied, message));
        // An account that cannot be opened is none.
        s.ownership.account = None;
        s.answers.delete = Some(Answered { account: None, ..answered(at(-100), at(-99), refused) });
    })
}

#[test]
fn a_refused_credential_is_reported_and_tried_again_when_somebody_mends_it() {
    refused().check(expect![[r#"
        do    status: Delete Failed [PermissionDenied] "machine codes error: code = [PermissionDenied] message = [the account of MachineClass c, by Secret ns/s, cannot be opened: token: expected text]. Initiate VM deletion"
        do    warning FailedDelete: machine codes error: code = [PermissionDenied] message = [the account of MachineClass c, by Secret ns/s, cannot be opened: token: expected text]. Initiate VM deletion
        why   waits for the cloud: delete failed 7 times, denied: the account of MachineClass c, by Secret ns/s, cannot be opened: token: expected text; since 2027-01-15T07:59:50Z; next: delete again at 2027-01-15T08:08:21Z
        wait  until 2027-01-15T08:08:21Z
    "#]]);
    assert_eq!(refused().with(|s| s.inputs = 2).plan().actions.len(), 1);
}

#[test]
fn force_deletion_does_not_leave_an_instance_behind_because_of_a_refused_credential() {
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

/// All Machines of a restored deployment are as old as the restore: the time to join is over for all of them at once.
#[test]
fn a_machine_that_was_restored_is_not_given_up_for_not_joining() {
    let restored = |node: i64| {
        let world = world().running().phase("Pending", "Create", "Processing", "Creating machine");
        world.created(-1300).node_field("/metadata/creationTimestamp", json!(at(node).to_string()))
    };
    let unready = |world: World| world.node_field("/status/conditions/0/status", json!("Unknown"));
    let plan = unready(restored(-90_000)).plan().to_string();
    assert!(plan.contains("changing MachineState to Unknown"), "{plan}");
    let plan = unready(restored(-1200)).plan().to_string();
    assert!(plan.contains("failed to join the cluster in time"), "it is younger than its Machine: {plan}");
}

#[test]
fn a_throttled_account_makes_no_call_before_its_pause_ends() {
    let paused = |s: &mut Snapshot| s.paused_until = Some(at(30));
    world().token(1000).with(paused).check(expect![[r#"
        why   waits for the cloud, which throttles this account; next: the call to the cloud is made; by 2027-01-15T08:00:30Z: the pause ends
        wait  until 2027-01-15T08:00:30Z
    "#]]);
    world()
        .recorded()
        .deleting(10)
        .phase("Terminating", "Delete", "Processing", "Initiate VM deletion")
        .with(paused)
        .check(expect![[r#"
            why   waits for the cloud, which throttles this account; next: the call to the cloud is made; by 2027-01-15T08:00:30Z: the pause ends
            wait  until 2027-01-15T08:00:30Z
        "#]]);
    world().token(1000).with(|s| s.paused_until = Some(at(0))).check(expect![[r#"
        do    driver: ensure
        why   waits for the cloud to answer ensure; next: the answer
        wait  for a change
    "#]]);
}

#[test]
fn a_new_leader_waits_for_calls_of_its_predecessor() {
    let find_then_create = |s: &mut Snapshot| {
        s.process.promises.create = CreateGuarantee::FindThenCreate;
        s.process.leading_since = Some(at(-3));
    };
    world().token(1000).with(find_then_create).check(expect![[r#"
        why   waits for calls of the former leader to end: this process has just begun to lead; since 2027-01-15T07:59:57Z; next: the driver is asked for its instance
        wait  until 2027-01-15T08:00:02Z
    "#]]);
    world().token(1000).with(find_then_create).with(|s| s.now = at(3)).check(expect![[r#"
        do    driver: ensure
        why   waits for the cloud to answer ensure; next: the answer
        wait  for a change
    "#]]);
}

// === identity ===

fn statuses(plan: &Plan<Action>) -> Vec<String> {
    plan.actions.iter().filter(|a| matches!(a, Action::SetStatus(_))).map(ToString::to_string).collect()
}

/// A Running Machine whose Node spells the id otherwise than the Machine, as on AWS.
fn spelled_otherwise() -> World {
    world().running().ids("aws:///eu-west-1/i-1", "aws:///eu-west-1a/i-1")
}

#[test]
fn an_id_spelled_otherwise_leaves_a_healthy_machine_alone() {
    let unlabelled = || spelled_otherwise().node_field("/metadata/labels", json!({}));
    let older = || spelled_otherwise().node_field("/metadata/creationTimestamp", at(-500).to_string().into());
    let same: fn(&mut Identity) = |identity| identity.same_instance = true;
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
    let mut unnamed = unlabelled();
    unnamed.machine["metadata"]["labels"] = json!({});
    let claimed: fn(&mut Identity) = |identity| {
        identity.same_instance = true;
        identity.claimed_by = Some("other".to_owned());
    };
    for (evidence, world) in [
        ("it is older than this machine, and its provider id is aws:///eu-west-1a/i-1", older),
        ("its label names machine gone", others),
        ("it is being deleted", going),
        ("no label node names it", unnamed),
        ("its label names machine other", spelled_otherwise().provider(claimed)),
    ] {
        let plan = world.plan();
        assert_eq!(plan.actions.len(), 2, "{plan}");
        assert!(plan.to_string().contains(&format!("is not this machine's ({evidence})")), "{plan}");
    }
}

#[test]
fn a_leftover_label_does_not_hide_the_machines_own_node() {
    let world =
        world().running().node_field("/metadata/labels", json!({"node.gardener.cloud/machine-name": "gone"}));
    world.check(expect![[r#"
        do    node m: sync labels machine-name
        why   waits for nothing: it is as it should be; since 2027-01-15T07:59:30Z
        wait  for a change
    "#]]);
}

/// What is done to the Node of a Machine that is deleted and whose instance is gone.
fn done_to_node(world: World) -> Vec<String> {
    let gone =
        world.deleting(10).phase("Terminating", "Delete", "Processing", "Initiate VM deletion").with(|s| {
            s.answers.delete =
                Some(Answered { started: at(-2), ended: at(-1), account: account("a"), answer: Ok(()) });
            s.answers.find = seen(Sighting::Absent, true);
        });
    let plan = gone.plan();
    plan.actions.iter().map(ToString::to_string).filter(|action| action.starts_with("node")).collect()
}

#[test]
fn a_node_of_another_instance_is_never_deleted() {
    let same: fn(&mut Identity) = |identity| identity.same_instance = true;
    let both = ["node m: remove finalizer", "node m: delete"];
    assert_eq!(done_to_node(spelled_otherwise().provider(same)), both, "the provider says so");
    assert_eq!(done_to_node(world().running().node_field("/spec/providerID", "".into())), both);
    let unlabelled = world().running().node_field("/spec/providerID", Value::Null);
    let unlabelled = unlabelled.node_field("/metadata/labels", json!({}));
    assert_eq!(done_to_node(unlabelled), Vec::<String>::new(), "a name alone proves nothing");
    // The Machine was judged by it, so our finalizer is on it: taking that off is all that is certain.
    assert_eq!(done_to_node(spelled_otherwise()), ["node m: remove finalizer"]);
}

#[test]
fn a_node_is_drained_only_if_it_is_certainly_the_machines() {
    let drains = |world: World| {
        let marker = "Initiate node drain";
        let world = world.deleting(10).phase("Terminating", "Delete", "Processing", marker).pod("p");
        world.plan().actions.iter().any(|action| matches!(action, Action::Drain(_) | Action::Cordon(_)))
    };
    let same: fn(&mut Identity) = |identity| identity.same_instance = true;
    assert!(drains(spelled_otherwise().provider(same)));
    assert!(drains(world().running().node_field("/spec/providerID", Value::Null)));
    assert!(!drains(spelled_otherwise()));
}

#[test]
fn a_bare_provider_id_counts_as_recorded() {
    let bare = || world().token(1000).ids("machine-m", "");
    let plan = bare().plan();
    assert!(!plan.actions.iter().any(|action| matches!(action, Action::Ensure { .. })), "{plan}");
    let deleted =
        bare().deleting(10).phase("Terminating", "Delete", "Processing", "Initiate VM deletion").plan();
    let [Action::Delete(permit)] = deleted.actions.as_slice() else { panic!("{deleted}") };
    assert_eq!(permit.which().id.as_ref().map(ProviderId::as_str), Some("machine-m"));
}

fn not_ours(identity: &mut Identity) {
    identity.recorded = RecordedId::NotOurs { expected: "sim:///IDENTITY".to_owned() };
}

fn malformed(identity: &mut Identity) {
    identity.recorded = RecordedId::Malformed { expected: "sim:///IDENTITY".to_owned() };
}

#[test]
fn for_an_id_of_another_provider_nothing_is_done() {
    world().running().ids("aws:///z/i-1", "x").provider(not_ours).check(expect![[r#"
        why   waits for an id of this provider in spec.providerID: expected sim:///IDENTITY, got "aws:///z/i-1"; next: run the controller of the provider that the id is of, or correct spec.providerID
        wait  for a change
    "#]]);
    world().token(1000).ids("sim://", "").provider(malformed).check(expect![[r#"
        why   waits for a complete id in spec.providerID: expected sim:///IDENTITY, got "sim://"; next: set spec.providerID to the id of the machine's instance
        wait  for a change
    "#]]);
}

#[test]
fn a_deletion_waits_while_the_id_cannot_be_read() {
    let leaving = |says| world().draining().ids("aws:///z/i-1", "aws:///z/i-1").pod("p").provider(says);
    leaving(not_ours).check(expect![[r#"
        do    status: Delete Failed "Deletion waits for an id of this provider in spec.providerID: expected sim:///IDENTITY, got \"aws:///z/i-1\". Initiate node drain"
        do    warning FailedDelete: Deletion waits for an id of this provider in spec.providerID: expected sim:///IDENTITY, got "aws:///z/i-1". Initiate node drain
        why   waits for an id of this provider in spec.providerID: expected sim:///IDENTITY, got "aws:///z/i-1"; since 2027-01-15T07:59:50Z; next: run the controller of the provider that the id is of, or correct spec.providerID, or set label force-deletion=true to leave the instance behind
        wait  for a change
    "#]]);
    leaving(malformed).check(expect![[r#"
        do    status: Delete Failed "Deletion waits for a complete id in spec.providerID: expected sim:///IDENTITY, got \"aws:///z/i-1\". Initiate node drain"
        do    warning FailedDelete: Deletion waits for a complete id in spec.providerID: expected sim:///IDENTITY, got "aws:///z/i-1". Initiate node drain
        why   waits for a complete id in spec.providerID: expected sim:///IDENTITY, got "aws:///z/i-1"; since 2027-01-15T07:59:50Z; next: set spec.providerID to the id of the machine's instance, or set label force-deletion=true to leave the instance behind
        wait  for a change
    "#]]);
}

#[test]
fn force_deletion_lets_a_machine_go_whose_id_cannot_be_read() {
    let leaving = || {
        drained().ids("aws:///z/i-1", "aws:///z/i-1").provider(|identity| {
            not_ours(identity);
            identity.same_instance = true;
        })
    };
    leaving().force_deletion().check(expect![[r#"
        do    warning FailedDelete: Instance aws:///z/i-1 may be left behind: label force-deletion is set, and deletion waited for an id of this provider in spec.providerID: expected sim:///IDENTITY, got "aws:///z/i-1"
        do    node m: remove finalizer
        do    node m: delete
        do    machine: remove finalizer
        why   waits for its Node and its finalizer to be removed; since 2027-01-15T07:59:50Z
        wait  for a change
    "#]]);
}

// === updates in place ===

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
fn the_node_of_a_machine_that_is_updated_in_place_is_kept_up() {
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
        why   waits for Machine m, which is InPlaceUpdating: updates in place are not supported yet; since 2027-01-15T07:59:30Z; next: let Go's machine-controller-manager finish the update, or delete the Machine
        wait  for a change
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
fn an_update_in_place_that_succeeded_ends_in_running() {
    let world = world().running().phase("InPlaceUpdateSuccessful", "InPlaceUpdate", "Successful", "x");
    assert_eq!(statuses(&world.plan()).len(), 1);
}

// === tokens and adoption ===

#[test]
fn when_every_token_id_is_taken_the_machine_says_so() {
    world().with(|s| s.token = Token::Exhausted).check(expect![[r#"
        do    status: CrashLoopBackOff, Create Failed [FailedPrecondition] "Creation waits for a free bootstrap token id: other Secrets have every id it may use"
        do    warning FailedCreate: Creation waits for a free bootstrap token id: other Secrets have every id it may use
        why   waits for a free bootstrap token id: other Secrets have every id it may use; next: delete Secrets bootstrap-token-* of namespace kube-system that nothing needs; by 2027-01-15T08:19:56Z: the Machine is marked Failed
        wait  until 2027-01-15T08:19:56Z
    "#]]);
}

/// Since when instances without a key are adopted, in seconds before the Machine was created.
fn adoption_tolerance(cloud_skew: Option<i64>) -> i64 {
    let world = world().token(1000);
    let plan = world.with(|s| s.process.cloud_skew = cloud_skew.map(jiff::SignedDuration::from_secs)).plan();
    let [Action::Ensure { adopt_made_since }] = plan.actions.as_slice() else { panic!("{plan}") };
    at(-5).duration_since(*adopt_made_since).as_secs()
}

#[test]
fn adoption_tolerates_a_cloud_whose_clock_differs() {
    assert_eq!(adoption_tolerance(None), 60, "it was not measured");
    assert_eq!((adoption_tolerance(Some(7)), adoption_tolerance(Some(-7))), (67, 67));
    assert_eq!(adoption_tolerance(Some(-3600)), 90, "a clock that is an hour off proves nothing");
}

/// A Machine that goes, and of whose name the cloud shows an instance without a key.
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
fn a_refused_instance_is_named_when_its_machine_goes() {
    going_with_a_namesake(-161)
        .with(|s| s.looks.node = Some(NodeLook { name: "m".into(), started: at(0), uid: None }))
        .check(expect![[r#"
        do    warning InstanceNotOurs: The deletion leaves instance sim:///i-1 alone, which has the name of this machine: it carries no key and was made at 2027-01-15T07:57:19Z, the machine at 2027-01-15T07:58:20Z
        do    machine: remove finalizer
        why   waits for proof that the cloud has no instance of it: instance sim:///i-1 has its name and is not its own (it carries no key and was made at 2027-01-15T07:57:19Z, the machine at 2027-01-15T07:58:20Z); since 2027-01-15T07:59:59Z
        wait  for a change
    "#]]);
    let waiting = going_with_a_namesake(-161).with(|s| s.process.started = at(-5));
    waiting.check(expect![[r#"
        why   waits for proof that the cloud has no instance of it: instance sim:///i-1 has its name and is not its own (it carries no key and was made at 2027-01-15T07:57:19Z, the machine at 2027-01-15T07:58:20Z); since 2027-01-15T07:59:59Z; next: its Node and its finalizer are removed
        wait  until 2027-01-15T08:00:10.001Z
    "#]]);
}
