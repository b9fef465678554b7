//! Tests of the Node planner: each test builds a snapshot and checks the plan.

mod lifecycle;

use std::sync::Arc;
use std::time::Duration;

use expect_test::{Expect, expect};
use k8s_openapi::api::core::v1::Node;
use machinist_core::ownership::Ownership;
use machinist_core::{Answers, Call, Found, Process};
use machinist_instance::{AccountId, Address, AddressKind, Error, ErrorKind, Instance, Power, Sighting};
use serde_json::{Value, json};

use super::*;
use crate::ccm::account::{AccountFacts, Failure, Proof};
use crate::testing::{answered, at, instance as running_instance, process as process_of, set};

fn account() -> AccountId {
    AccountId::of([&b"sim"[..], b"token"])
}

pub(super) fn process() -> Process {
    process_of(-3600, Duration::from_secs(30), Duration::from_secs(10))
}

/// The classification of a provider whose ids are `sim://` and a name.
fn parse_id(text: &str) -> RecordedId {
    let expected = "sim://NAME".to_owned();
    match text.strip_prefix("sim://") {
        _ if text.is_empty() => RecordedId::Unset,
        Some("" | "x x") => RecordedId::Malformed { expected },
        Some(_) => RecordedId::any(text),
        None if text == "test-provider-id" => RecordedId::any(text),
        None => RecordedId::NotOurs { expected },
    }
}

/// A Node and what is known about it. A test changes it step by step into its situation.
struct World {
    node: Value,
    snapshot: Snapshot,
}

impl World {
    /// Sets a field of the Node, by its JSON pointer. The parent exists.
    fn set(mut self, pointer: &str, value: Value) -> Self {
        set(&mut self.node, pointer, value);
        self
    }

    fn with(mut self, change: impl FnOnce(&mut Snapshot)) -> Self {
        change(&mut self.snapshot);
        self
    }

    /// Answers a lookup that began and ended at these seconds, by the id of the Node if it has one,
    /// else by its name.
    fn found(mut self, second: i64, answer: Result<Sighting, Error>) -> Self {
        let s = self.snapshot();
        let by = s.which().expect("an id of this cloud");
        let answered = answered(second, account(), answer);
        self.snapshot.answers.failures = u32::from(answered.answer.is_err());
        self.snapshot.answers.take_found(Found { by, answered });
        self
    }

    /// The last list showed this instance, or nothing.
    fn listed(mut self, second: i64, instance: Option<Instance>) -> Self {
        let instance = instance.map(Arc::new);
        self.snapshot.listed = Some(ListedNode { started: at(second), ended: at(second), instance });
        self
    }

    fn snapshot(&self) -> Snapshot {
        let node: Node = serde_json::from_value(self.node.clone()).expect("a Node");
        let node = CloudNodeFacts::parse(&node);
        let recorded = parse_id(node.provider_id().unwrap_or_default());
        Snapshot { node: Arc::new(node), recorded, ..self.snapshot.clone() }
    }

    /// Returns the rendered plan, and checks that the Events are not planned twice.
    fn plan(&self) -> String {
        let mut s = self.snapshot();
        let planned = plan(&s);
        let mut emitted = (*s.emitted).clone();
        for action in &planned.actions {
            if let Action::Tell(event) = action {
                emitted.note(event, s.now);
            }
        }
        s.emitted = Arc::new(emitted);
        let repeated = plan(&s);
        let is_warning = |action: &&Action| matches!(action, Action::Tell(event) if event.severity == crate::Severity::Warning);
        assert_eq!(repeated.actions.iter().filter(is_warning).count(), 0, "an Event is planned twice");
        let is_later = !matches!(repeated.wait, machinist_core::Wait::Until(until) if until <= s.now);
        assert!(is_later || !repeated.actions.is_empty(), "called again at once: {repeated}");
        planned.to_string()
    }

    fn check(self, expected: Expect) {
        expected.assert_eq(&self.plan());
    }
}

/// A Node that has just registered. One list takes two calls, and no other Node waits.
fn new_node() -> World {
    let node = json!({
        "metadata": {
            "name": "n", "uid": "uid-n", "resourceVersion": "7", "creationTimestamp": at(-5).to_string(),
            "labels": {}, "annotations": {},
        },
        "spec": {"taints": [
            {"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"},
            {"key": "other", "effect": "NoExecute"},
        ]},
        "status": {"addresses": [{"type": "Hostname", "address": "n"}], "conditions": []},
    });
    let account = AccountFacts { id: Some(account()), list_cost: 2, ..AccountFacts::default() };
    let snapshot = Snapshot {
        now: at(0),
        process: process(),
        options: Arc::default(),
        node: Arc::new(CloudNodeFacts::parse(&Node::default())),
        recorded: RecordedId::Unset,
        stopped_since: None,
        ownership: Ownership { account: account.id.clone(), ..Ownership::default() },
        account,
        listed: None,
        claimed_by: None,
        crowd: Crowd { uninitialized: 1, since: Some(at(-5)), not_ready: 0 },
        answers: Answers::default(),
        owner: None,
        emitted: Arc::default(),
        shared: SharedReasons::default(),
    };
    World { node, snapshot }
}

/// The instance of the Node.
fn instance() -> Instance {
    let address = |kind, address: &str| Address { kind, address: address.to_owned() };
    Instance {
        addresses: vec![
            address(AddressKind::InternalIP, "10.0.0.1"),
            address(AddressKind::ExternalIP, "132.143.154.163"),
        ],
        instance_type: Some("small".to_owned()),
        zone: Some("z1".to_owned()),
        ..running_instance("sim://1", "n", -60)
    }
}

/// A Node after its initialisation with [`instance`]; it is ready.
fn initialized() -> World {
    let mut world = new_node();
    world.node["metadata"]["labels"] = json!({
        "node.kubernetes.io/instance-type": "small", "beta.kubernetes.io/instance-type": "small",
        "topology.kubernetes.io/zone": "z1", "failure-domain.beta.kubernetes.io/zone": "z1",
    });
    world.node["metadata"]["annotations"] = json!({"machinist.dev/account": account().as_str()});
    world.node["metadata"]["creationTimestamp"] = json!(at(-3000).to_string());
    world.node["spec"] = json!({"providerID": "sim://1"});
    world.node["status"] = json!({
        "addresses": [
            {"type": "InternalIP", "address": "10.0.0.1"},
            {"type": "ExternalIP", "address": "132.143.154.163"},
            {"type": "Hostname", "address": "n"},
        ],
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": at(-2000).to_string()}],
    });
    world.snapshot.crowd = Crowd { uninitialized: 0, since: None, not_ready: 1 };
    world.snapshot.answers.shown_in = Some(account());
    world
}

fn error(kind: ErrorKind) -> Error {
    Error::new(kind, "the message of the cloud")
}

const UNINITIALIZED: &str = "/spec/taints";

/// The taint is removed last, so pods never start on a Node without addresses. Other taints stay.
#[test]
fn a_new_node_gets_addresses_then_everything_else() {
    new_node().found(-1, Ok(Sighting::Present(instance()))).check(expect![[r#"
        do    node/status: addresses InternalIP 10.0.0.1, ExternalIP 132.143.154.163, Hostname n
        do    node: provider id sim://1, labels beta.kubernetes.io/instance-type=small failure-domain.beta.kubernetes.io/zone=z1 node.kubernetes.io/instance-type=small topology.kubernetes.io/zone=z1, account 64b4b5ce852512812aa755f4, taints [other:NoExecute]
        do    event Synced: Node synced successfully
        why   initializing the Node; next: pods may start on the Node
        wait  for a change
    "#]]);
}

/// A server of another project may have the name. The account that the Node would record
/// would then count as proven.
#[test]
fn a_node_is_not_initialised_by_name_in_an_unproven_account() {
    let by_name = |proof| {
        let found = new_node().found(-1, Ok(Sighting::Present(instance())));
        found.with(|s| s.account.proof = proof).plan()
    };
    assert!(by_name(Proof::Given).contains("provider id sim://1"));
    let unlisted = by_name(Proof::Unlisted);
    assert!(unlisted.starts_with("why   waiting for the cloud to list the instances"), "{unlisted}");
    let missing = by_name(Proof::Missing);
    assert!(missing.starts_with("do    warning CloudAccountUnproven: "), "{missing}");
    assert!(!missing.contains("node: ") && !missing.contains("driver: "), "{missing}");
    let by_id = new_node()
        .set("/spec/providerID", json!("sim://1"))
        .found(-1, Ok(Sighting::Present(instance())))
        .with(|s| s.account.proof = Proof::Missing)
        .plan();
    assert!(by_id.contains("account 64b4b5ce852512812aa755f4"), "an id proves the account: {by_id}");
}

#[test]
fn the_hostname_of_the_cloud_wins() {
    let mut instance = instance();
    instance.addresses.insert(0, hostname("node0.cloud.internal"));
    let planned = new_node().found(-1, Ok(Sighting::Present(instance))).plan();
    let addresses =
        "addresses Hostname node0.cloud.internal, InternalIP 10.0.0.1, ExternalIP 132.143.154.163\n";
    assert!(planned.contains(addresses), "{planned}");
}

#[test]
fn a_node_keeps_its_own_provider_id() {
    let planned = new_node()
        .set("/spec/providerID", json!("test-provider-id"))
        .found(-1, Ok(Sighting::Present(instance())))
        .plan();
    assert!(planned.contains("node: labels "), "{planned}");
    assert!(!planned.contains("provider id"), "{planned}");
}

#[test]
fn an_initialized_node_makes_no_call() {
    initialized().check(expect![[r#"
        why   up to date
        wait  for a change
    "#]]);
}

/// The cloud may show a new instance late, so the wait begins short. After a minute, an Event says
/// that the instance is missing.
#[test]
fn a_missing_instance_is_looked_up_again_soon() {
    let absent = |second| new_node().found(second, Ok(Sighting::Absent));
    // Attempts of a Node that is 5 s old, 8 s and 60 s old.
    absent(0).check(expect![[r#"
        why   the cloud shows no instance n; since 2027-01-15T07:59:55Z; next: the cloud shows the instance
        wait  until 2027-01-15T08:00:05Z
    "#]]);
    assert!(absent(-3).plan().contains("do    driver: find n"), "the wait of 2 s has passed");
    let old = absent(-10).set("/metadata/creationTimestamp", json!(at(-600).to_string()));
    old.check(expect![[r#"
        do    warning CloudInstanceLookupFailed: the cloud shows no instance n. Expected an instance with the name or provider id of the Node.
        why   the cloud shows no instance n; since 2027-01-15T07:50:00Z; next: the cloud shows the instance
        wait  until 2027-01-15T08:00:20Z
    "#]]);
}

/// If the cloud names the time of the next call, that time counts.
#[test]
fn a_failed_lookup_is_reported_and_repeated() {
    let failed = |second, kind| new_node().found(second, Err(error(kind)));
    failed(-1, ErrorKind::Unavailable).check(expect![[r#"
        do    warning CloudInstanceLookupFailed: Could not look up the instance of the Node: the message of the cloud
        why   the cloud failed once to look up the instance (unavailable): the message of the cloud; next: try again to look up the instance at 2027-01-15T08:00:03Z
        wait  until 2027-01-15T08:00:03Z
    "#]]);
    assert!(failed(-4, ErrorKind::Unavailable).plan().contains("driver: find"));
    let asked = ErrorKind::Throttled { retry_after: Some(Duration::from_secs(42)) };
    assert!(failed(-41, asked).plan().contains(&format!("wait  until {}", at(1))));
}

/// During an outage, the calls of all Nodes together stay rare. When one call works, all Nodes
/// continue.
#[test]
fn all_new_nodes_continue_when_an_outage_ends() {
    let crowd = Crowd { uninitialized: 20, since: Some(at(-600)), not_ready: 0 };
    let failure = Failure { error: error(ErrorKind::Unavailable), ended: at(-1), count: 9 };
    let down = || {
        new_node().with(|s| {
            s.crowd = crowd;
            s.account.list_failed = Some(failure.clone());
        })
    };
    let waiting = down().plan();
    assert!(waiting.contains(&format!("wait  until {}", at(7))), "{waiting}");
    let works = down().with(|s| s.account.works_since = Some(at(0)));
    assert!(works.plan().contains("do    driver: list"), "{}", works.plan());
    let found = |kind| new_node().found(-1, Err(error(kind))).with(|s| s.account.works_since = Some(at(0)));
    assert!(found(ErrorKind::Unavailable).plan().contains("do    driver: find n"));
    assert!(!found(ErrorKind::Denied).plan().contains("driver: find"), "another call proves nothing");
}

/// A single Node is looked up at once. Several that wait for their initialisation share a list.
#[test]
fn several_new_nodes_share_one_list() {
    let crowd = |uninitialized, since| Crowd { uninitialized, since: Some(since), not_ready: 0 };
    let plan = |crowd| new_node().with(|s| s.crowd = crowd).plan();
    assert!(plan(crowd(1, at(-1))).contains("do    driver: find n"));
    assert!(plan(crowd(2, at(-1))).contains("do    driver: list"));
    expect![[r#"
        why   waiting a moment to look up several new Nodes at once; next: the controller asks the cloud
        wait  until 2027-01-15T08:00:00.25Z
    "#]]
    .assert_eq(&plan(crowd(1, at(0))));
    let in_flight = new_node().with(|s| {
        s.crowd = crowd(2, at(-1));
        s.account.list_since = Some(at(-1));
    });
    assert!(in_flight.plan().starts_with("why   waiting for the cloud to list"), "{}", in_flight.plan());
    let listed = new_node().listed(-59, Some(instance()));
    assert!(listed.plan().contains("provider id sim://1"), "a young list needs no lookup");
    let old = new_node().listed(-61, Some(instance()));
    assert!(old.plan().contains("do    driver: find n"));
}

/// A list that lacks the instances of two Nodes answers the question of both.
#[test]
fn a_list_without_the_instance_is_not_repeated_at_once() {
    let two = Crowd { uninitialized: 2, since: Some(at(-5)), not_ready: 0 };
    let unlisted = |second| new_node().with(|s| s.crowd = two).listed(second, None).plan();
    let waiting = unlisted(-1);
    assert!(!waiting.contains("driver"), "{waiting}");
    assert!(waiting.contains(&format!("wait  until {}", at(3))), "the wait of 4 s: {waiting}");
    assert!(unlisted(-3).contains("do    driver: list\n"), "{}", unlisted(-3));
}

/// The tests of `addresses` have all cases of the filter.
#[test]
fn a_node_ip_that_does_not_fit_writes_nothing() {
    let with_ip = |ip: &str| {
        new_node()
            .set("/metadata/annotations", json!({"alpha.kubernetes.io/provided-node-ip": ip}))
            .found(-1, Ok(Sighting::Present(instance())))
    };
    with_ip("10.0.0.2").check(expect![[r#"
        do    warning NodeIPMismatch: --node-ip 10.0.0.2 is not an address of the instance, which has: InternalIP 10.0.0.1, ExternalIP 132.143.154.163, Hostname n. To fix it, start the kubelet with an address of the instance in --node-ip, connect the instance to that network, or start this program with --trusted-node-cidrs.
        why   --node-ip 10.0.0.2 is not an address of the instance, which has: InternalIP 10.0.0.1, ExternalIP 132.143.154.163, Hostname n; next: start the kubelet with an address of the instance in --node-ip, connect the instance to that network, or start this program with --trusted-node-cidrs
        wait  until 2027-01-15T08:01:00Z
    "#]]);
    assert!(!with_ip("invalid-ip").plan().contains("node:"), "{}", with_ip("invalid-ip").plan());
    assert!(with_ip("10.0.0.1").plan().contains("Synced"), "an address of the instance is accepted");
    let trusting = with_ip("10.0.0.2").with(|s| {
        let trusted = vec!["10.0.0.0/8".parse().expect("a network")];
        s.options = Arc::new(Options { trusted, ..Options::default() });
    });
    let planned = trusting.plan();
    assert!(planned.contains("addresses InternalIP 10.0.0.2, ExternalIP"), "{planned}");
    assert!(planned.contains("warning NodeIPMismatch"), "{planned}");
}

/// The tests of `node_labels` have all cases.
#[test]
fn an_invalid_label_does_not_stop_the_initialization() {
    let mut instance = instance();
    instance.node_labels.insert("bad".to_owned(), "not valid".to_owned());
    let planned = new_node().found(-1, Ok(Sighting::Present(instance))).plan();
    assert!(planned.contains("warning InvalidNodeLabel: "), "{planned}");
    assert!(planned.contains("event Synced"), "{planned}");
}

#[test]
fn an_instance_belongs_to_one_node() {
    let claimed = new_node().found(-1, Ok(Sighting::Present(instance())));
    claimed.with(|s| s.claimed_by = Some("other".to_owned())).check(expect![[r#"
        do    warning InstanceClaimed: instance sim://1 already belongs to Node other
        why   instance sim://1 already belongs to Node other; next: delete Node other or Node n, so that each instance has one Node
        wait  until 2027-01-15T08:01:00Z
    "#]]);
}

/// An answer about another name, another id or another account proves nothing.
#[test]
fn an_answer_to_another_question_does_not_count() {
    let by_name = new_node().found(-1, Ok(Sighting::Present(instance())));
    let by_id = by_name.set("/spec/providerID", json!("sim://2"));
    assert!(by_id.plan().contains("do    driver: find sim://2"), "{}", by_id.plan());
    let other = new_node().found(-1, Ok(Sighting::Present(instance())));
    let other = other.with(|s| s.account.id = Some(AccountId::of([&b"sim"[..], b"other"])));
    assert!(other.plan().contains("do    driver: find n"), "another account");
}

#[test]
fn nodes_of_other_clouds_are_left_alone() {
    for world in [new_node(), initialized().set("/status/conditions", json!([]))] {
        let planned = world.set("/spec/providerID", json!("k3s://n")).plan();
        assert!(planned.starts_with("why   provider id k3s://n belongs to another cloud"), "{planned}");
    }
    let malformed = new_node().set("/spec/providerID", json!("sim://"));
    malformed.check(expect![[r#"
        do    warning ProviderIDMalformed: provider id "sim://" is malformed: expected sim://NAME
        why   provider id "sim://" is malformed: expected sim://NAME; next: delete the Node and let its kubelet register it again
        wait  for a change
    "#]]);
}

#[test]
fn a_paused_account_or_a_missing_credential_waits() {
    let paused = new_node().with(|s| s.account.paused_until = Some(at(30)));
    assert!(paused.plan().contains("why   the cloud throttles this account"), "{}", paused.plan());
    assert!(paused.plan().contains("the cloud limits the rate of calls"), "the user sees an Event");
    let closed = new_node().with(|s| s.account.id = None);
    assert!(closed.plan().starts_with("why   the credential of the cloud cannot be used"));
    let calling = new_node().with(|s| s.answers.in_flight = Some((Call::FIND, at(-1))));
    assert!(calling.plan().starts_with("why   waiting for the cloud to look up the instance"));
}

#[test]
fn a_disabled_controller_leaves_its_part() {
    let off = |initializes, follows_lifecycle| {
        Arc::new(Options { initializes, follows_lifecycle, ..Options::default() })
    };
    let ignored =
        new_node().found(-1, Ok(Sighting::Present(instance()))).with(|s| s.options = off(false, true));
    assert!(ignored.plan().starts_with("why   waiting for another program"), "{}", ignored.plan());
    let unready = initialized().set("/status/conditions", json!([])).with(|s| s.options = off(true, false));
    assert!(unready.plan().starts_with("why   up to date"), "{}", unready.plan());
}

/// Without a controller, the condition is the only trace of a missing route.
#[test]
fn a_node_names_its_missing_routes() {
    let with = |status: &str, reason: &str| {
        let ready = json!({"type": "Ready", "status": "True"});
        let network = json!({"type": "NetworkUnavailable", "status": status, "reason": reason});
        initialized().set("/status/conditions", json!([ready, network])).plan()
    };
    let missing = with("True", "NoRouteCreated");
    assert!(missing.starts_with("why   waiting for the routes of the Node: "), "{missing}");
    assert!(with("False", "RouteCreated").starts_with("why   up to date"));
    assert!(with("True", "PluginIsDown").starts_with("why   up to date"), "another program's condition");
}

/// Addresses and labels are written if they differ: in value, type, number or order. An instance
/// without addresses changes nothing.
#[test]
fn an_initialized_node_follows_its_instance() {
    let listed = |change: fn(&mut Instance)| {
        let mut instance = instance();
        change(&mut instance);
        initialized().listed(-10, Some(instance)).plan()
    };
    assert!(listed(|_| {}).starts_with("why   up to date"), "no write if nothing differs");
    expect![[r#"
        do    node/status: addresses InternalIP 10.0.0.1, ExternalIP 1.2.3.4, Hostname n
        do    node: labels beta.kubernetes.io/instance-type=large node.kubernetes.io/instance-type=large
        why   updating the Node from its instance
        wait  for a change
    "#]]
    .assert_eq(&listed(|instance| {
        instance.instance_type = Some("large".to_owned());
        instance.addresses[1].address = "1.2.3.4".to_owned();
    }));
    assert!(
        listed(|instance| instance.addresses.swap(0, 1)).contains("addresses ExternalIP"),
        "the order of the addresses counts"
    );
    assert!(
        listed(|instance| instance.addresses.clear()).starts_with("why   up to date"),
        "an instance without addresses changes nothing"
    );
    assert!(
        listed(|instance| {
            instance.addresses.pop();
        })
        .contains("addresses InternalIP 10.0.0.1, Hostname n\n")
    );
    let appeared = listed(|instance| instance.addresses.push(hostname("cloud.example")));
    let shown = "addresses InternalIP 10.0.0.1, ExternalIP 132.143.154.163, Hostname cloud.example\n";
    assert!(appeared.contains(shown), "the hostname of the cloud wins: {appeared}");
    let first = json!([
        {"type": "Hostname", "address": "cloud.example"},
        {"type": "InternalIP", "address": "10.0.0.1"},
        {"type": "ExternalIP", "address": "132.143.154.163"},
    ]);
    let gone = initialized().set("/status/addresses", first).listed(-10, Some(instance())).plan();
    assert!(gone.contains(shown), "the Node keeps its hostname, at the end: {gone}");
    let swapped = listed(|instance| {
        instance.addresses[0].kind = AddressKind::ExternalIP;
        instance.addresses[1].kind = AddressKind::InternalIP;
    });
    let shown = "addresses ExternalIP 10.0.0.1, InternalIP 132.143.154.163, Hostname n\n";
    assert!(swapped.contains(shown), "the types count: {swapped}");
}

fn hostname(name: &str) -> Address {
    Address { kind: AddressKind::Hostname, address: name.to_owned() }
}

/// After both addresses are written, the same list writes nothing.
#[test]
fn two_addresses_of_one_type_are_no_change() {
    let mut instance = instance();
    instance.addresses.push(Address { kind: AddressKind::ExternalIP, address: "2001:db8::1".to_owned() });
    let node = initialized().listed(-10, Some(instance));
    assert!(node.plan().contains("node/status: addresses"), "the first time");
    let addresses = json!([
        {"type": "InternalIP", "address": "10.0.0.1"},
        {"type": "ExternalIP", "address": "132.143.154.163"},
        {"type": "ExternalIP", "address": "2001:db8::1"},
        {"type": "Hostname", "address": "n"},
    ]);
    assert!(node.set("/status/addresses", addresses).plan().starts_with("why   up to date"));
}

/// The tests of `node_labels` have all cases.
#[test]
fn the_older_labels_win_for_an_unknown_instance() {
    let labels = json!({"failure-domain.beta.kubernetes.io/zone": "z2", "topology.kubernetes.io/zone": "z1"});
    let unknown = || initialized().set("/metadata/labels", labels.clone());
    let planned = unknown().plan();
    assert!(planned.contains("do    node: labels topology.kubernetes.io/zone=z2\n"), "{planned}");
    let known = unknown().listed(-10, Some(instance())).plan();
    assert!(known.contains("failure-domain.beta.kubernetes.io/zone=z1"), "the cloud is right: {known}");
    let fixed = Arc::new(Options { follows_labels: false, ..Options::default() });
    let kept = unknown().listed(-10, Some(instance())).with(|s| s.options = fixed).plan();
    assert!(kept.contains("do    node: labels topology.kubernetes.io/zone=z2\n"), "{kept}");
}

/// A Node that waits for its initialisation gets no addresses from a list that is too old.
#[test]
fn an_uninitialized_node_gets_no_refresh() {
    let planned = new_node().listed(-100, Some(instance())).plan();
    assert!(!planned.contains("addresses"), "{planned}");
}

#[test]
fn the_account_is_recorded_when_it_shows_the_instance() {
    let unrecorded = initialized().set("/metadata/annotations", json!({}));
    assert!(unrecorded.plan().starts_with("why   up to date"), "nothing shows the instance");
    let shown = unrecorded.listed(-10, Some(instance())).plan();
    assert!(shown.contains(&format!("do    node: account {}\n", account())), "{shown}");
}

/// The lookup ended after a client had deleted the Node.
#[test]
fn a_node_being_deleted_is_left_alone() {
    let gone = new_node().set("/metadata/deletionTimestamp", json!(at(-1).to_string()));
    let planned = gone.found(-1, Ok(Sighting::Present(instance()))).plan();
    assert!(planned.starts_with("why   waiting for other clients"), "{planned}");
}

/// The plan of a Node after all its writes contains no further write.
#[test]
fn an_initialized_node_needs_no_second_write() {
    let s = new_node().found(-1, Ok(Sighting::Present(instance()))).snapshot();
    let mut node = new_node();
    for action in plan(&s).actions {
        match action {
            Action::SetAddresses { addresses, .. } => {
                node.node["status"]["addresses"] = serde_json::to_value(addresses).expect("addresses");
            }
            Action::Patch(patch) => {
                node.node["metadata"]["labels"] = json!(patch.labels);
                node.node["metadata"]["annotations"] =
                    json!({"machinist.dev/account": patch.account.expect("recorded").as_str()});
                node.node["spec"]["providerID"] = json!(patch.provider_id.expect("set").as_str());
                *node.node.pointer_mut(UNINITIALIZED).expect("taints") =
                    json!(patch.taints.expect("removed"));
            }
            Action::Tell(_) => {}
            Action::List | Action::Find(_) => panic!("no call is needed: {action}"),
        }
    }
    let node = node.set(
        "/status/conditions",
        json!([{"type": "Ready", "status": "True", "lastTransitionTime": at(-1).to_string()}]),
    );
    let planned = node.found(0, Ok(Sighting::Present(instance()))).plan();
    assert!(planned.starts_with("why   up to date"), "{planned}");
}
