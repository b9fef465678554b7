//! Tests of the Service planner: each test builds a snapshot and checks the plan.

use expect_test::{Expect, expect};
use k8s_openapi::api::core::v1::{Node, Service};
use machinist_instance::{AccountId, BalancerKey, BalancerNote, ErrorKind, ProviderId, RecordedId};
use serde_json::{Value, json};

use super::*;
use crate::facts::CloudNodeFacts;

const NOW: i64 = 1_800_000_000;

fn at(seconds_from_now: i64) -> Timestamp {
    Timestamp::from_second(NOW + seconds_from_now).expect("a moment of this century")
}

fn account() -> AccountId {
    AccountId::of([&b"sim"[..], b"token"])
}

/// A Service and what is known about it. A test changes it step by step into its situation.
struct World {
    service: Value,
    snapshot: Snapshot,
}

impl World {
    fn set(mut self, pointer: &str, value: Value) -> Self {
        let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
        self.service.pointer_mut(parent).expect("the parent exists")[key] = value;
        self
    }

    fn with(mut self, change: impl FnOnce(&mut Snapshot)) -> Self {
        change(&mut self.snapshot);
        self
    }

    fn snapshot(&self) -> Snapshot {
        let service: Service = serde_json::from_value(self.service.clone()).expect("a Service");
        Snapshot { service: Arc::new(ServiceFacts::parse(&service)), ..self.snapshot.clone() }
    }

    /// Answers the `ensure` that the Service plans now.
    fn ensured(mut self, second: i64, answer: Result<Progress<Ensured>, Error>) -> Self {
        let inputs =
            wanted::of(&self.snapshot()).map(|wanted| wanted.inputs).unwrap_or_else(|text| panic!("{text}"));
        let answered = answered(second, answer);
        self.snapshot.answers.take_ensure(inputs, answered);
        self
    }

    fn deleted(mut self, second: i64, answer: Result<Progress<BalancerDeletion>, Error>) -> Self {
        self.snapshot.answers.take_delete(answered(second, answer));
        self
    }

    /// Performs the Events of the plan, as the controller does.
    fn told(mut self) -> Self {
        let mut told = (*self.snapshot.told).clone();
        for action in plan(&self.snapshot()).actions {
            if let Action::Tell(event) = action {
                told.note(&event, self.snapshot.now);
            }
        }
        self.snapshot.told = Arc::new(told);
        self
    }

    /// The moment of the decision is later.
    fn later(self, second: i64) -> Self {
        self.with(|s| s.now = at(second))
    }

    fn plan(&self) -> String {
        let plan = plan(&self.snapshot());
        let is_later = !matches!(plan.wait, machinist_core::Wait::Until(until) if until <= self.snapshot.now);
        assert!(is_later || !plan.actions.is_empty(), "called again at once: {plan}");
        plan.to_string()
    }

    fn check(self, expected: Expect) {
        expected.assert_eq(&self.plan());
    }
}

/// A process that started at that second.
fn process(started: i64) -> Process {
    let promises = machinist_instance::Promises {
        visible_within: Duration::from_secs(10),
        call_bound: Duration::from_secs(60),
        calls_outlive_process: true,
        create: machinist_instance::CreateGuarantee::UniqueName,
        rate: None,
        keys: machinist_instance::KeyTag::Fixed,
    };
    Process { started: at(started), leading_since: None, skew: Duration::ZERO, cloud_skew: None, promises }
}

fn answered<T>(second: i64, answer: Result<T, Error>) -> Answered<T> {
    Answered { started: at(second), ended: at(second), account: Some(account()), answer }
}

fn node(name: &str, change: impl FnOnce(&mut Value)) -> CloudNodeFacts {
    let mut node = json!({
        "metadata": {"name": name, "uid": name, "labels": {"pool": name}},
        "spec": {"providerID": format!("sim://{name}")},
    });
    change(&mut node);
    let node: Node = serde_json::from_value(node).expect("a Node");
    CloudNodeFacts::parse(&node)
}

fn backends(nodes: &[CloudNodeFacts]) -> Arc<Backends> {
    let recorded = |node: &CloudNodeFacts| RecordedId::any(node.provider_id().unwrap_or_default());
    Arc::new(Backends::of(nodes.iter().map(|node| (node, recorded(node)))))
}

/// A Service of type LoadBalancer that a user has just created, in a cluster of two Nodes.
fn new_service() -> World {
    let service = json!({
        "metadata": {"namespace": "default", "name": "web", "uid": "0a-1b", "annotations": {}},
        "spec": {
            "type": "LoadBalancer",
            "ports": [{"name": "http", "protocol": "TCP", "port": 80, "nodePort": 30080, "targetPort": 8080}],
        },
        "status": {"loadBalancer": {}},
    });
    let parsed: Service = serde_json::from_value(service.clone()).expect("a Service");
    let options = Options { class: "machinist.dev/sim".to_owned(), prefix: "balancer.sim/".to_owned() };
    let snapshot = Snapshot {
        now: at(0),
        process: process(-86_400),
        options: Arc::new(options),
        service: Arc::new(ServiceFacts::parse(&parsed)),
        backends: backends(&[node("a", |_| {}), node("b", |_| {})]),
        account: Account { id: Some(account()), ..Account::default() },
        answers: BalancerAnswers::default(),
        listed: None,
        served: Served::default(),
        told: Arc::default(),
    };
    World { service, snapshot }
}

/// The same Service with its finalizer.
fn held_service() -> World {
    new_service().set("/metadata/finalizers", json!(["service.kubernetes.io/load-balancer-cleanup"]))
}

fn balancer() -> Balancer {
    Balancer {
        id: "7".to_owned(),
        native_id: None,
        key: Some(BalancerKey::new("0a-1b")),
        name: "a0a1b".to_owned(),
        ingress: vec![Ingress::Ip { address: "8.8.8.8".parse().expect("an address"), is_proxy: false }],
        ports: vec![80],
        host_ports: Default::default(),
        targets: ["sim://a", "sim://b"].map(|id| ProviderId::parse(id).expect("not empty")).to_vec(),
        is_protected: false,
    }
}

fn done() -> Result<Progress<Ensured>, Error> {
    Ok(Progress::Done(Ensured { balancer: balancer(), notes: Vec::new() }))
}

fn shown_status() -> Value {
    json!([{"ip": "8.8.8.8", "ipMode": "VIP"}])
}

/// A Service whose load balancer exists and is shown.
fn settled() -> World {
    held_service().set("/status/loadBalancer/ingress", shown_status()).ensured(-100, done())
}

/// TS-01
#[test]
fn a_service_without_a_balancer_needs_no_call() {
    let world = new_service().set("/spec/type", json!("ClusterIP"));
    world.check(expect![[r#"
        why   up to date
        wait  for a change
    "#]]);
}

/// TS-02, SC-01: the finalizer is written before the first call.
#[test]
fn the_finalizer_precedes_every_call() {
    new_service().check(expect![[r#"
        do    service: add finalizer
        why   adding the finalizer, which records that a load balancer may exist; next: the cloud creates the load balancer
        wait  for a change
    "#]]);
    held_service().check(expect![[r#"
        do    event EnsuringLoadBalancer: Ensuring load balancer
        do    driver: ensure balancer 0a-1b, ports 80/TCP, nodes [a b]
        why   waiting for the cloud to ensure the load balancer; next: the cloud answers
        wait  for a change
    "#]]);
    for protocol in ["TCP", "UDP", "SCTP"] {
        let planned = held_service().set("/spec/ports/0/protocol", json!(protocol)).plan();
        assert!(planned.contains(&format!("ports 80/{protocol}")), "{planned}");
    }
}

/// TS-03
#[test]
fn another_class_belongs_to_another_program() {
    let other = |class: &str| new_service().set("/spec/loadBalancerClass", json!(class)).plan();
    assert!(other("custom-loadbalancer").starts_with("why   another program provides"), "no patch, no call");
    assert!(other("machinist.dev/sim").contains("service: add finalizer"), "our own class");
}

/// TS-06
#[test]
fn the_status_shows_the_balancer() {
    held_service().told().ensured(1, done()).later(2).check(expect![[r#"
        do    status: [8.8.8.8]
        do    event EnsuredLoadBalancer: Ensured load balancer
        why   updating the addresses in the status
        wait  for a change
    "#]]);
}

/// TS-15, SC-11
#[test]
fn the_status_is_written_only_if_it_differs() {
    assert!(settled().plan().starts_with("why   up to date"), "{}", settled().plan());
    let differs = |status: Value| settled().set("/status/loadBalancer/ingress", status).plan();
    assert!(differs(json!([])).contains("do    status: [8.8.8.8]"));
    assert!(differs(json!([{"ip": "8.8.8.8", "ipMode": "Proxy"}])).contains("do    status: [8.8.8.8]"));
    assert!(
        differs(json!([{"ip": "8.8.8.8"}])).contains("do    status: [8.8.8.8]"),
        "an absent mode is another"
    );
    assert!(differs(json!([{"hostname": "h"}])).contains("do    status: [8.8.8.8]"));
    let empty = Ensured { balancer: Balancer { ingress: Vec::new(), ..balancer() }, notes: Vec::new() };
    let world = held_service().ensured(-1, Ok(Progress::Done(empty)));
    assert!(!world.plan().contains("status:"), "cleared and empty are equal");
}

/// TS-04
#[test]
fn another_type_deletes_the_balancer() {
    let changed = || settled().set("/spec/type", json!("ClusterIP"));
    changed().check(expect![[r#"
        do    event DeletingLoadBalancer: Deleting load balancer
        do    driver: delete balancer 0a-1b
        why   waiting for the cloud to delete the load balancer; next: the cloud answers
        wait  for a change
    "#]]);
    let gone = changed().told().deleted(20, Ok(Progress::Done(BalancerDeletion::Gone))).later(21);
    gone.check(expect![[r#"
        do    service: remove finalizer, clear status
        do    event DeletedLoadBalancer: Deleted load balancer
        why   removing the finalizer
        wait  for a change
    "#]]);
}

/// TS-05, SC-02: the finalizer stays until the load balancer does not exist any more.
#[test]
fn a_deleted_service_deletes_its_balancer_first() {
    let deleted = || settled().set("/metadata/deletionTimestamp", json!(at(-1).to_string()));
    assert!(deleted().plan().contains("do    driver: delete balancer 0a-1b\n"));
    let working = deleted().deleted(0, Ok(Progress::Working("delete".to_owned())));
    assert!(working.plan().starts_with("why   waiting for the cloud to change the load balancer: delete"));
    assert!(working.later(1).plan().contains("driver: delete balancer 0a-1b"));
    let gone = deleted().deleted(20, Ok(Progress::Done(BalancerDeletion::Gone))).later(21);
    assert!(gone.plan().contains("do    service: remove finalizer, clear status\n"));
    let without = new_service().set("/metadata/deletionTimestamp", json!(at(-1).to_string()));
    assert!(without.plan().starts_with("why   up to date"), "TS-20: never had a load balancer");
}

/// SC-01, SC-02: other programs use the finalizer of the same name.
#[test]
fn the_finalizer_of_another_class_is_kept() {
    let deletion = json!(at(-1).to_string());
    for is_deleting in [false, true] {
        let foreign = || {
            let foreign = settled().set("/spec/loadBalancerClass", json!("other"));
            if is_deleting { foreign.set("/metadata/deletionTimestamp", deletion.clone()) } else { foreign }
        };
        foreign().check(expect![[r#"
            do    driver: delete balancer 0a-1b
            why   waiting for the cloud to delete the load balancer; next: the cloud answers
            wait  for a change
        "#]]);
        let absent = || foreign().deleted(20, Ok(Progress::Done(BalancerDeletion::Absent)));
        let kept = absent().later(3600).plan();
        assert!(kept.starts_with("why   another program provides load balancers of class other; "), "{kept}");
        let next = if is_deleting { "removes its finalizer" } else { "creates the load balancer" };
        assert!(kept.contains(&format!("next: the other program {next}\nwait  for a change\n")), "{kept}");
        let working = foreign().deleted(20, Ok(Progress::Working("delete".to_owned())));
        working.deleted(22, Ok(Progress::Done(BalancerDeletion::Absent))).later(23).check(expect![[r#"
            do    service: remove finalizer
            do    event DeletedLoadBalancer: Deleted load balancer
            why   removing the finalizer
            wait  for a change
        "#]]);
    }
}

/// An earlier process may have created the load balancer a moment ago.
#[test]
fn a_handed_over_service_is_looked_at_twice() {
    let absent = |second| {
        let foreign = settled().set("/spec/loadBalancerClass", json!("other"));
        let young = foreign.with(|s| s.process = process(-20));
        young.deleted(second, Ok(Progress::Done(BalancerDeletion::Absent)))
    };
    let waiting = absent(-1).plan();
    assert!(waiting.contains(&format!("wait  until {}\n", at(50))), "{waiting}");
    assert!(absent(-1).later(50).plan().contains("do    driver: delete balancer 0a-1b\n"));
    let left = absent(50).later(50).plan();
    assert!(left.starts_with("why   another program provides load balancers of class other"), "{left}");
}

/// SC-02: a change of the type removes the class, and the other program still needs its finalizer.
#[test]
fn the_finalizer_of_another_class_outlasts_the_type() {
    let inner = |served: Served| {
        let inner = held_service().set("/spec/type", json!("ClusterIP"));
        inner.with(|s| s.served = served).deleted(-1, Ok(Progress::Done(BalancerDeletion::Absent)))
    };
    let by_other = || inner(Served::ByOther("other".to_owned()));
    by_other().later(3600).check(expect![[r#"
        why   another program provides load balancers of class other; next: the other program removes its finalizer
        wait  for a change
    "#]]);
    let both = by_other().deleted(-1, Ok(Progress::Done(BalancerDeletion::Gone)));
    assert!(both.plan().starts_with("why   another program provides"), "{}", both.plan());
    assert!(inner(Served::Ours).plan().contains("do    service: remove finalizer, clear status\n"));

    // A process that has just begun does not know the class, and the other program needs minutes.
    let unseen = |second| {
        let unseen = inner(Served::Unseen).with(|s| s.process = process(-20));
        unseen.deleted(second, Ok(Progress::Done(BalancerDeletion::Absent)))
    };
    assert!(unseen(-1).plan().contains(&format!("wait  until {}\n", at(280))), "{}", unseen(-1).plan());
    assert!(unseen(280).later(280).plan().contains("do    service: remove finalizer"));
    let ours = unseen(-1).deleted(60, Ok(Progress::Done(BalancerDeletion::Gone))).later(60);
    assert!(ours.plan().contains("do    service: remove finalizer"), "it had a load balancer of ours");
}

/// The driver recognises a load balancer without its label by these.
#[test]
fn a_deletion_names_the_traces_of_the_balancer() {
    let world = settled()
        .set("/metadata/annotations", json!({"balancer.sim/name": "edge"}))
        .set("/metadata/deletionTimestamp", json!(at(-1).to_string()));
    let traces = plan(&world.snapshot())
        .actions
        .into_iter()
        .find_map(|action| if let Action::Delete(which) = action { which.trace } else { None });
    let traces = traces.expect("a deletion");
    assert_eq!(traces.name, "a0a1b");
    assert_eq!(traces.options.get("name").map(String::as_str), Some("edge"));
    assert_eq!(traces.addresses, ["8.8.8.8".parse::<std::net::IpAddr>().expect("an address")]);
}

/// 4.6: another program may have made them targets by their addresses.
#[test]
fn nodes_of_other_clouds_are_named_to_the_driver() {
    let robot = |name: &str| node(name, |it| it["spec"]["providerID"] = json!("robot://1"));
    let recorded = |node: &CloudNodeFacts| match node.provider_id() {
        Some(id) if id.starts_with("robot:") => RecordedId::NotOurs { expected: "sim://NAME".to_owned() },
        id => RecordedId::any(id.unwrap_or_default()),
    };
    let with = |nodes: &[CloudNodeFacts]| {
        let backends = Backends::of(nodes.iter().map(|node| (node, recorded(node))));
        held_service().with(|s| s.backends = Arc::new(backends))
    };
    let mixed = with(&[node("a", |_| {}), robot("r")]);
    let wanted = wanted::of(&mixed.snapshot()).unwrap_or_else(|text| panic!("{text}"));
    let targets: Vec<&str> = wanted.spec.targets.iter().map(|target| target.instance.as_str()).collect();
    assert_eq!(targets, ["sim://a", "robot://1"]);
    let none = with(&[robot("r")]).plan();
    assert!(none.contains("warning UnAvailableLoadBalancer"), "they receive no traffic from us: {none}");
}

/// SC-12
#[test]
fn a_protected_balancer_is_kept_and_reported() {
    let deleted = settled().set("/metadata/deletionTimestamp", json!(at(-1).to_string()));
    let retained = deleted.deleted(-1, Ok(Progress::Done(BalancerDeletion::Retained)));
    retained.check(expect![[r#"
        do    service: remove finalizer, clear status
        do    warning LoadBalancerRetained: The load balancer is protected against deletion in the cloud, so it was kept. Its label was removed; delete it there if it is not needed.
        why   removing the finalizer
        wait  for a change
    "#]]);
}

/// An earlier process, or a call without an answer, may still create the load balancer.
#[test]
fn an_absence_counts_when_no_call_can_create_it() {
    let deleting = || {
        let at = Value::from(at(-1).to_string());
        held_service().set("/metadata/deletionTimestamp", at)
    };
    let gone = || Ok(Progress::Done(BalancerDeletion::Gone));
    let releases =
        |world: World| plan(&world.snapshot()).actions.iter().any(|it| matches!(it, Action::Release));
    let is_asked_again =
        |world: World| plan(&world.snapshot()).actions.iter().any(|it| matches!(it, Action::Delete(_)));
    // An old process that called `ensure` long ago, or never, needs no second look.
    assert!(releases(deleting().deleted(-1, gone())));

    // The Service is older than the process: 60 s for the call, 10 s until lists show its effect.
    let young = || deleting().with(|s| s.process = process(-20)).deleted(-1, gone());
    assert!(!releases(young()));
    assert!(!releases(young().later(49)) && !is_asked_again(young().later(49)));
    assert!(is_asked_again(young().later(50)));
    assert!(releases(young().deleted(50, gone()).later(50)));

    let lost = || Err(Error::new(ErrorKind::Ambiguous, "no answer"));
    let unsure = || deleting().ensured(-30, lost()).deleted(-1, gone());
    assert!(!releases(unsure()));
    assert!(releases(unsure().deleted(40, gone()).later(40)));

    // The cloud refused the creation, so only the time until lists show an earlier one is left.
    let refused = || Err(Error::new(ErrorKind::InvalidSpec, "location: no"));
    let corrected = || deleting().ensured(-11, refused()).deleted(-1, gone());
    assert!(releases(corrected()));
    let both = deleting().ensured(-30, lost()).ensured(-20, refused()).deleted(-1, gone());
    assert!(!releases(both), "an earlier call has no answer yet");

    let just_made = || deleting().ensured(-5, Ok(Progress::Working("create".to_owned()))).deleted(-1, gone());
    assert!(!releases(just_made()));
    assert!(releases(just_made().deleted(5, gone()).later(5)));
}

/// The load balancer was created long ago, as its status shows.
#[test]
fn a_restart_does_not_delay_a_usual_deletion() {
    let deleting = |ended| {
        held_service()
            .set("/metadata/deletionTimestamp", json!(at(-1).to_string()))
            .set("/status/loadBalancer/ingress", shown_status())
            .with(|s| s.process = process(-5))
            .deleted(-1, Ok(Progress::Done(ended)))
    };
    let planned = deleting(BalancerDeletion::Gone).plan();
    assert!(planned.contains("do    service: remove finalizer"), "{planned}");
    let planned = deleting(BalancerDeletion::Absent).plan();
    assert!(planned.contains(&format!("wait  until {}\n", at(65))), "nothing was deleted: {planned}");
}

/// A user corrects the Service or its load balancer after a refusal.
#[test]
fn a_changed_service_is_deleted_at_once() {
    let deleted = settled().set("/metadata/deletionTimestamp", json!(at(-9).to_string()));
    let refused = deleted.deleted(-1, Err(Error::new(ErrorKind::InvalidSpec, "no label")));
    let before = shape(&refused.snapshot().service);
    let refused = refused.with(|s| s.answers.deleted_shape = Some(before));
    assert!(!refused.plan().contains("driver: delete"), "{}", refused.plan());
    let changed = refused.set("/metadata/annotations", json!({"balancer.sim/name": "edge"}));
    assert!(changed.plan().contains("driver: delete balancer 0a-1b"), "{}", changed.plan());
}

/// In the account of another project, a second load balancer would be created, and the first one
/// would look deleted.
#[test]
fn nothing_is_done_in_an_unproven_account() {
    let in_account = |world: World, proof| plan(&world.with(|s| s.account.proof = proof).snapshot());
    let calls = |plan: &Plan<Action>| plan.actions.iter().any(|it| !matches!(it, Action::Tell(_)));
    let deleting = || {
        let deleting = held_service().set("/metadata/deletionTimestamp", json!(at(-1).to_string()));
        deleting.deleted(20, Ok(Progress::Done(BalancerDeletion::Gone))).later(21)
    };
    assert!(calls(&in_account(deleting(), Proof::Given)) && calls(&in_account(held_service(), Proof::Given)));
    for world in [held_service, deleting] {
        let unlisted = in_account(world(), Proof::Unlisted);
        assert!(unlisted.actions.is_empty(), "{unlisted}");
        let missing = in_account(world(), Proof::Missing);
        assert!(!calls(&missing), "{missing}");
        assert!(missing.to_string().contains("warning CloudAccountUnproven"), "{missing}");
    }
}

/// A rejected token says nothing about the project, so the reason is the answer of the cloud.
#[test]
fn a_rejected_token_is_no_wrong_project() {
    let rejected = |world: World| {
        world.with(|s| {
            let error = Error::new(ErrorKind::Denied, "unauthorized: the token is invalid");
            s.account.proof = Proof::Unlisted;
            s.account.list_failed = Some(Failure { error, ended: at(-1), count: 1 });
        })
    };
    let planned = rejected(held_service()).plan();
    let told =
        "warning SyncLoadBalancerFailed: Error syncing load balancer: unauthorized: the token is invalid";
    assert!(planned.contains(told), "{planned}");
    assert!(
        planned.contains("why   the cloud failed once to list the instances of the account (denied): unau"),
        "{planned}"
    );
    assert!(!planned.contains("project"), "{planned}");
    let deleted = settled().set("/metadata/deletionTimestamp", json!(at(-1).to_string()));
    let planned = rejected(deleted).plan();
    assert!(planned.contains("warning DeleteLoadBalancerFailed: "), "{planned}");
    let unlisted = held_service().with(|s| s.account.proof = Proof::Unlisted).plan();
    assert!(!unlisted.contains("project"), "nothing was listed yet: {unlisted}");
}

/// The load balancer exists and has an address, and no connection works.
#[test]
fn a_service_without_a_usable_port_is_not_up_to_date() {
    let without_ports = Ensured { balancer: Balancer { ports: Vec::new(), ..balancer() }, notes: Vec::new() };
    let udp = held_service()
        .set("/spec/ports/0/protocol", json!("UDP"))
        .set("/status/loadBalancer/ingress", shown_status())
        .ensured(-100, Ok(Progress::Done(without_ports)));
    let planned = udp.plan();
    assert!(
        planned.starts_with("why   the load balancer forwards no port of the Service; next: "),
        "{planned}"
    );
}

/// TS-20
#[test]
fn a_failed_deletion_is_reported_and_retried() {
    let deleted = settled().set("/metadata/deletionTimestamp", json!(at(-9).to_string()));
    let failed = deleted.deleted(-1, Err(Error::new(ErrorKind::Unavailable, "no")));
    failed.check(expect![[r#"
        do    warning DeleteLoadBalancerFailed: Error deleting load balancer: no
        why   the cloud failed once to delete the load balancer (unavailable): no; next: try again to delete the load balancer at 2027-01-15T08:00:04Z
        wait  until 2027-01-15T08:00:04Z
    "#]]);
}

/// TS-13
#[test]
fn cleanup_needs_the_finalizer() {
    let deleting = |world: World| world.set("/metadata/deletionTimestamp", json!(at(0).to_string()));
    let cluster_ip = |world: World| world.set("/spec/type", json!("ClusterIP"));
    for (world, expected) in [
        (new_service(), false),
        (held_service(), false),
        (cluster_ip(held_service()), true),
        (deleting(held_service()), true),
        (cluster_ip(new_service()), false),
        (deleting(new_service()), false),
    ] {
        assert_eq!(needs_cleanup(&world.snapshot().service), expected, "{}", world.service);
    }
}

/// TS-14
#[test]
fn only_relevant_changes_lead_to_another_call() {
    let asks = |pointer: &str, value: Value| settled().set(pointer, value).plan().contains("driver: ensure");
    for (pointer, value) in [
        ("/spec/loadBalancerSourceRanges", json!(["10.0.0.0/8"])),
        ("/spec/ports/0/name", json!("web")),
        ("/spec/ports/0/protocol", json!("UDP")),
        ("/spec/ports/0/port", json!(81)),
        ("/spec/ports/0/nodePort", json!(30081)),
        ("/spec/ports/0/targetPort", json!("http")),
        ("/spec/ports/0/appProtocol", json!("h2c")),
        ("/spec/ports", json!([])),
        ("/spec/sessionAffinity", json!("ClientIP")),
        ("/spec/sessionAffinityConfig", json!({"clientIP": {"timeoutSeconds": 5}})),
        ("/spec/loadBalancerIP", json!("1.2.3.4")),
        ("/spec/externalIPs", json!(["1.2.3.4"])),
        ("/metadata/annotations", json!({"balancer.sim/algorithm": "random"})),
        ("/spec/externalTrafficPolicy", json!("Local")),
        ("/spec/healthCheckNodePort", json!(30090)),
        ("/spec/ipFamilies", json!(["IPv4", "IPv6"])),
    ] {
        assert!(asks(pointer, value), "{pointer}");
    }
    for (pointer, value) in [
        ("/metadata/labels", json!({"a": "b"})),
        ("/spec/selector", json!({"a": "b"})),
        ("/spec/allocateLoadBalancerNodePorts", json!(true)),
        ("/metadata/annotations", json!({"kubectl.kubernetes.io/last-applied-configuration": "{}"})),
        ("/metadata/annotations", json!({"other.example/a": "b"})),
    ] {
        assert!(!asks(pointer, value), "{pointer}");
    }
    let with_protocol = || settled().set("/spec/ports/0/appProtocol", json!("h2c")).ensured(-10, done());
    let equal = with_protocol().set("/spec/ports/0/appProtocol", json!("h2c"));
    assert!(!equal.plan().contains("driver"), "{}", equal.plan());
    let other = with_protocol().set("/spec/ports/0/appProtocol", json!("h2"));
    assert!(other.plan().contains("driver: ensure"), "{}", other.plan());
    let two = settled().set("/spec/ipFamilies", json!(["IPv4"])).ensured(-10, done());
    assert!(
        !two.set("/spec/ipFamilies", json!(["IPv6"])).plan().contains("driver"),
        "only the number counts"
    );
}

/// TS-07, TS-10, TS-18, SC-25
#[test]
fn other_nodes_update_the_balancer() {
    let three = backends(&[node("a", |_| {}), node("b", |_| {}), node("c", |_| {})]);
    let grown = || settled().with(|s| s.backends = three.clone());
    grown().check(expect![[r#"
        do    event EnsuringLoadBalancer: Ensuring load balancer
        do    driver: ensure balancer 0a-1b, ports 80/TCP, nodes [a b c]
        why   waiting for the cloud to ensure the load balancer; next: the cloud answers
        wait  for a change
    "#]]);
    let failed = grown().ensured(-1, Err(Error::new(ErrorKind::Unavailable, "no"))).later(10);
    assert!(failed.plan().contains("nodes [a b c]"), "TS-10: {}", failed.plan());
    let failed = grown().ensured(-1, Err(Error::new(ErrorKind::Unavailable, "no")));
    let told = "warning UpdateLoadBalancerFailed: Error changing the Nodes behind the load balancer: no";
    assert!(failed.plan().contains(told), "SC-25: {}", failed.plan());
    let checked = settled().ensured(-1, Err(Error::new(ErrorKind::Unavailable, "no")));
    let planned = checked.plan();
    assert!(planned.contains("warning SyncLoadBalancerFailed"), "the Nodes did not change: {planned}");
    let four = backends(&["a", "b", "c", "d"].map(|name| node(name, |_| {})));
    let newer = grown().with(|s| s.answers.in_flight = Some((ENSURE_BALANCER, at(-1))));
    let newer = newer.with(|s| s.backends = four.clone());
    assert!(newer.plan().starts_with("why   waiting for the cloud to ensure the load balancer"));
    let answered = grown().ensured(1, done()).with(|s| s.backends = four);
    assert!(answered.plan().contains("nodes [a b c d]"), "TS-18: the newest set wins");
    let updated = grown().told().ensured(1, done()).later(2);
    assert!(updated.plan().contains("event UpdatedLoadBalancer"), "{}", updated.plan());
}

/// TS-09, TS-21, SC-20 to SC-22, SC-27
#[test]
fn some_nodes_receive_no_traffic() {
    let excluded = |value: &str| {
        let value = value.to_owned();
        move |node: &mut Value| node["metadata"]["labels"][names::EXCLUDE_FROM_BALANCERS] = json!(value)
    };
    let tainted = |key: &str| {
        let key = key.to_owned();
        move |node: &mut Value| node["spec"]["taints"] = json!([{"key": key, "effect": "NoSchedule"}])
    };
    let is_target = |node: CloudNodeFacts| !backends(&[node]).targets(&Default::default()).is_empty();
    for value in ["", "true", "1", "abc"] {
        assert!(!is_target(node("a", excluded(value))), "{value:?}");
    }
    for value in ["false", "0", "F"] {
        assert!(is_target(node("a", excluded(value))), "{value:?}");
    }
    assert!(!is_target(node("a", tainted("ToBeDeletedByClusterAutoscaler"))));
    assert!(!is_target(node("a", |node| node["metadata"]["deletionTimestamp"] = json!(at(0).to_string()))));
    assert!(!is_target(node("a", |node| node["spec"] = json!({}))), "SC-27: no provider id");
    assert!(is_target(node("a", tainted(names::SHUTDOWN_TAINT))), "SC-22");
    assert!(is_target(node("a", tainted(names::UNINITIALIZED_TAINT))), "SC-22");
    assert!(is_target(node("a", |node| node["spec"]["unschedulable"] = json!(true))), "SC-22");
}

/// TS-08, TS-11, TS-12
#[test]
fn only_some_changes_of_a_node_matter() {
    use crate::ccm::backends::is_affected_by;
    let plain = || node("a", |_| {});
    let excluded =
        || node("a", |node| node["metadata"]["labels"][names::EXCLUDE_FROM_BALANCERS] = json!("true"));
    assert!(is_affected_by(&plain(), &excluded()) && is_affected_by(&excluded(), &plain()));
    assert!(is_affected_by(&node("a", |node| node["spec"] = json!({})), &plain()), "TS-11");
    assert!(is_affected_by(&plain(), &node("a", |node| node["spec"]["providerID"] = json!("sim://x"))));
    let change: [fn(&mut Value); 4] = [
        |node| node["status"] = json!({"conditions": [{"type": "Ready", "status": "False"}]}),
        |node| {
            node["spec"]["taints"] =
                json!([{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}])
        },
        |node| node["metadata"]["deletionTimestamp"] = json!(at(0).to_string()),
        |node| node["metadata"]["annotations"] = json!({"a": "b"}),
    ];
    for change in change {
        assert!(!is_affected_by(&plain(), &node("a", change)), "{:?}", node("a", change));
    }
    // A Service may select Nodes by a label, so the set is computed again, but not each balancer
    // changes.
    let labelled = node("a", |node| node["metadata"]["labels"]["team"] = json!("blue"));
    let labelled = backends(&[labelled, node("b", |_| {})]);
    let planned = settled().with(|s| s.backends = labelled).plan();
    assert!(planned.starts_with("why   up to date"), "{planned}");
}

/// SC-26, 4.4 step 1
#[test]
fn an_annotation_selects_the_nodes() {
    let selecting = |text: &str| {
        held_service()
            .set("/metadata/annotations", json!({"balancer.sim/node-selector": text, "balancer.sim/x": "y"}))
    };
    let planned = selecting("pool=b").plan();
    assert!(planned.contains("nodes [b]"), "{planned}");
    let wanted = wanted::of(&selecting("pool=b").snapshot()).unwrap_or_else(|text| panic!("{text}"));
    assert_eq!(wanted.spec.options.into_iter().collect::<Vec<_>>(), [("x".to_owned(), "y".to_owned())]);
    selecting("pool in b").check(expect![[r#"
        do    warning SyncLoadBalancerFailed: Error syncing load balancer: annotation balancer.sim/node-selector "pool in b": expected a label selector such as pool=web,!retired,zone in (a,b)
        why   annotation balancer.sim/node-selector "pool in b": expected a label selector such as pool=web,!retired,zone in (a,b); next: correct the annotation of the Service
        wait  for a change
    "#]]);
    assert!(selecting("pool=c").plan().contains("warning UnAvailableLoadBalancer"), "no Node is left");
}

/// TS-17, CI-26
#[test]
fn the_cloud_chooses_the_time_of_a_retry() {
    let asked = ErrorKind::Throttled { retry_after: Some(Duration::from_secs(42)) };
    let world = held_service().ensured(0, Err(Error::new(asked, "later")));
    assert_eq!(world.snapshot.answers.failures, 0, "the wait of other failures does not grow");
    assert!(world.plan().contains(&format!("wait  until {}", at(42))), "{}", world.plan());
    assert!(world.later(42).plan().contains("driver: ensure"));
}

/// A user sees at the Service why nothing happens.
#[test]
fn a_limit_of_the_cloud_is_reported_at_the_service() {
    let paused = |world: World| world.with(|s| s.account.paused_until = Some(at(30)));
    paused(held_service()).check(expect![[r#"
        do    warning SyncLoadBalancerFailed: Error syncing load balancer: the cloud limits the rate of calls
        why   the cloud throttles this account; its calls are paused; next: the controller makes the call; deadline 2027-01-15T08:00:30Z: the pause ends
        wait  until 2027-01-15T08:00:30Z
    "#]]);
    assert!(!paused(held_service()).told().plan().contains("warning"), "it is said once");
    assert!(!paused(settled()).plan().contains("warning"), "nothing is to be done");
    let deleted = || settled().set("/metadata/deletionTimestamp", json!(at(-1).to_string()));
    let planned = paused(deleted()).plan();
    let expected =
        "warning DeleteLoadBalancerFailed: Error deleting load balancer: the cloud limits the rate";
    assert!(planned.contains(expected), "{planned}");
    let full_at = at(3500);
    let budget = machinist_instance::CallBudget { limit: 3600, remaining: 100, seen_at: at(0), full_at };
    let scarce = held_service().with(|s| s.account.budget = Some(budget)).plan();
    let expected =
        "warning SyncLoadBalancerFailed: Error syncing load balancer: few calls of the account are";
    assert!(scarce.contains(expected), "{scarce}");
}

/// SC-05
#[test]
fn failures_are_retried_less_and_less_often() {
    let mut world = held_service();
    for wait in [5, 10, 20, 40, 80, 160, 300, 300] {
        world = world.ensured(0, Err(Error::new(ErrorKind::Exhausted, "no")));
        assert!(world.plan().contains(&format!("wait  until {}", at(wait))), "{wait}: {}", world.plan());
    }
    let fixed = world.set("/metadata/annotations", json!({"balancer.sim/location": "here"}));
    assert!(fixed.plan().contains("driver: ensure"), "a change of the Service may fix it");
    let again = fixed.ensured(0, Err(Error::new(ErrorKind::Exhausted, "no")));
    assert!(again.plan().contains(&format!("wait  until {}", at(5))), "a new cause: {}", again.plan());
    let told =
        held_service().ensured(0, Err(Error::new(ErrorKind::InvalidSpec, "balancer.sim/type: no"))).told();
    assert!(!told.plan().contains("warning"), "the Event is not repeated at once");
}

#[test]
fn a_slow_change_holds_no_worker() {
    let working = |second| held_service().ensured(second, Ok(Progress::Working("attach".to_owned())));
    working(0).check(expect![[r#"
        why   waiting for the cloud to change the load balancer: attach; since 2027-01-15T08:00:00Z; next: the controller asks again
        wait  until 2027-01-15T08:00:01Z
    "#]]);
    assert!(working(-1).plan().contains("driver: ensure"));
    let long = working(-60).ensured(-2, Ok(Progress::Working("attach".to_owned())));
    assert!(long.plan().contains(&format!("wait  until {}", at(3))), "{}", long.plan());
}

#[test]
fn what_the_driver_skipped_is_reported_once() {
    let notes = ["a", "b"].map(|node| BalancerNote {
        reason: "MaxTargetsReached",
        message: format!("Node {node} is not behind the load balancer"),
    });
    let ensured = Ensured { balancer: balancer(), notes: notes.to_vec() };
    let world = settled().ensured(-1, Ok(Progress::Done(ensured)));
    let planned = world.plan();
    let expected = "warning MaxTargetsReached: Node a is not behind the load balancer; Node b is not behind";
    assert!(planned.contains(expected), "one Event of each reason is shown: {planned}");
    assert_eq!(world.told().plan().matches("warning").count(), 0);
    let many: Vec<String> = (1..=7).map(|number| format!("m{number}")).collect();
    assert_eq!(joined(&many).as_deref(), Some("m1; m2; m3; m4; m5; and 2 more"));
    let no_port = settled().set("/spec/ports", json!([{"port": 80, "protocol": "TCP"}]));
    assert!(no_port.plan().contains("warning LoadBalancerPortSkipped: port 80: it has no node port"));
}

/// SC-04
#[test]
fn a_balancer_that_another_program_changed_is_repaired() {
    let listed = |change: fn(&mut Balancer)| {
        let mut balancer = balancer();
        change(&mut balancer);
        settled()
            .with(|s| s.listed = Some(ListedBalancer { started: at(-1), balancer: Some(balancer) }))
            .plan()
    };
    assert!(listed(|_| {}).starts_with("why   up to date"));
    assert!(listed(|it| it.targets.reverse()).starts_with("why   up to date"), "the order does not matter");
    assert!(listed(|it| it.is_protected = true).starts_with("why   up to date"));
    assert!(listed(|it| it.ports.push(443)).contains("driver: ensure"));
    assert!(listed(|it| it.targets.clear()).contains("driver: ensure"));
    assert!(listed(|it| it.name.clear()).contains("event EnsuringLoadBalancer"));
    let gone = settled().with(|s| s.listed = Some(ListedBalancer { started: at(-1), balancer: None }));
    assert!(gone.plan().contains("driver: ensure"));
    let older = settled().with(|s| s.listed = Some(ListedBalancer { started: at(-200), balancer: None }));
    assert!(older.plan().starts_with("why   up to date"), "the list is older than the last call");
}

/// SC-13: after a restart every load balancer is checked, without Events.
#[test]
fn a_check_after_a_restart_is_silent() {
    let restarted = || held_service().set("/status/loadBalancer/ingress", shown_status());
    let planned = restarted().plan();
    assert!(planned.starts_with("do    driver: ensure"), "{planned}");
    assert!(restarted().ensured(1, done()).plan().starts_with("why   up to date"));
}

#[test]
fn the_spec_names_the_balancer() {
    let uid = "0a1b2c3d-0000-1111-2222-333344445555";
    let world = held_service().set("/metadata/uid", json!(uid));
    let wanted = wanted::of(&world.snapshot()).unwrap_or_else(|text| panic!("{text}"));
    assert_eq!(wanted.spec.name, "a0a1b2c3d00001111222233334444555");
    assert_eq!(wanted.spec.key, BalancerKey::new(uid));
}
