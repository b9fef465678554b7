//! Tests of the Service planner: each test builds a snapshot and checks the plan.

use std::sync::Arc;

use expect_test::{Expect, expect};
use k8s_openapi::api::core::v1::{Node, Service};
use machinist_core::{Process, Silence};
use machinist_instance::{
    AccountId, Address, AddressKind, BalancerKey, BalancerNote, ErrorKind, ProviderId, RecordedId, SkipCause,
    SkippedTarget,
};
use serde_json::{Value, json};

use super::*;
use crate::ccm::account::AccountFacts;
use crate::ccm::backends::Backends;
use crate::ccm::facts::CloudNodeFacts;
use crate::ccm::listed_balancers::ListedBalancer;
use crate::testing::{self, at};

mod elsewhere;
mod late_calls;

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
        testing::set(&mut self.service, pointer, value);
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

    /// Answers the `ensure` that the plan contains with a load balancer as planned.
    fn ensured_as_planned(mut self, second: i64) -> Self {
        let snapshot = self.snapshot();
        let planned = plan(&snapshot).actions.into_iter().find_map(|action| match action {
            Action::Ensure { spec, inputs } => Some((spec, inputs)),
            _ => None,
        });
        let (spec, inputs) = planned.expect("a call is planned");
        let targets = spec.targets.into_iter().map(|target| target.instance).collect();
        let ensured = Ensured::complete(Balancer { targets, ..balancer() });
        self.snapshot.answers.take_ensure(inputs, answered(second, Ok(Progress::Done(ensured))));
        self
    }

    fn deleted(mut self, second: i64, answer: Result<Progress<BalancerDeletion>, Error>) -> Self {
        self.snapshot.answers.take_delete(answered(second, answer));
        self
    }

    /// Performs the Events of the plan, as the controller does.
    fn emitted(mut self) -> Self {
        let mut emitted = (*self.snapshot.emitted).clone();
        for action in plan(&self.snapshot()).actions {
            if let Action::Tell(event) = action {
                emitted.note(&event, self.snapshot.now);
            }
        }
        self.snapshot.emitted = Arc::new(emitted);
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
    testing::process(started, Duration::from_secs(60), Duration::from_secs(10))
}

fn answered<T>(second: i64, answer: Result<T, Error>) -> Answered<T> {
    testing::answered(second, account(), answer)
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
    let options = Options::new("machinist.dev/sim", "balancer.sim/");
    let snapshot = Snapshot {
        now: at(0),
        process: process(-86_400),
        options: Arc::new(options),
        service: Arc::new(ServiceFacts::parse(&parsed)),
        backends: backends(&[node("a", |_| {}), node("b", |_| {})]),
        nodes_silence: None,
        account: AccountFacts { id: Some(account()), ..AccountFacts::default() },
        answers: ServiceAnswers::default(),
        listed: None,
        list_failed: None,
        targets: None,
        served: Served::default(),
        rivals: Vec::new(),
        emitted: Arc::default(),
        rehearsal: None,
    };
    World { service, snapshot }
}

/// The same Service with its finalizer and the record of its account.
fn held_service() -> World {
    let held =
        new_service().set("/metadata/finalizers", json!(["service.kubernetes.io/load-balancer-cleanup"]));
    held.set("/metadata/annotations", noted(json!({})))
}

/// These annotations, and the record of the account.
fn noted(mut annotations: Value) -> Value {
    annotations[names::BALANCER_RECORD] = json!(format!("? in {} for 0a-1b", account().as_str()));
    annotations
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
        room: None,
        created: Some(at(-86_400)),
        is_protected: false,
    }
}

fn done() -> Result<Progress<Ensured>, Error> {
    Ok(Progress::Done(Ensured::complete(balancer())))
}

fn shown_status() -> Value {
    json!([{"ip": "8.8.8.8", "ipMode": "VIP"}])
}

/// A Service whose load balancer exists and is shown.
fn settled() -> World {
    held_service()
        .set("/status/loadBalancer/ingress", shown_status())
        .set("/metadata/annotations", recorded())
        .ensured(-100, done())
}

/// The annotations of a Service whose load balancer is recorded.
fn recorded() -> Value {
    json!({names::BALANCER_RECORD: format!("7 in {} for 0a-1b", account().as_str())})
}

#[test]
fn a_service_without_a_balancer_needs_no_call() {
    let world = new_service().set("/spec/type", json!("ClusterIP"));
    world.check(expect![[r#"
        why   up to date
        wait  for a change
    "#]]);
}

/// The finalizer is written before the first call.
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

#[test]
fn another_class_belongs_to_another_program() {
    let other = |class: &str| new_service().set("/spec/loadBalancerClass", json!(class)).plan();
    assert!(other("custom-loadbalancer").starts_with("why   another program provides"), "no patch, no call");
    assert!(other("machinist.dev/sim").contains("service: add finalizer"), "our own class");
}

#[test]
fn the_status_shows_the_balancer() {
    held_service().emitted().ensured(1, done()).later(2).check(expect![[r#"
        do    status: [8.8.8.8]
        do    event EnsuredLoadBalancer: Ensured load balancer
        do    service: record 7 in 64b4b5ce852512812aa755f4 for 0a-1b
        why   updating the addresses in the status
        wait  for a change
    "#]]);
}

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
    let empty = Ensured::complete(Balancer { ingress: Vec::new(), ..balancer() });
    let world = held_service().ensured(-1, Ok(Progress::Done(empty)));
    assert!(!world.plan().contains("status:"), "cleared and empty are equal");
}

/// New Nodes may be missing among the targets.
#[test]
fn a_silent_watch_of_nodes_is_no_settled_state() {
    let read = machinist_core::FreshRead::Failed(at(5));
    let silence = Silence { server: "the API server".to_owned(), since: at(-700), read };
    let silent = |world: World| world.with(|s| s.nodes_silence = Some(silence));
    assert!(settled().plan().starts_with("why   up to date"));
    let planned = plan(&silent(settled()).snapshot());
    assert_eq!(planned.why.reason.code(), "ServerSilent", "{planned}");
    assert!(planned.actions.is_empty(), "{planned}");
}

#[test]
fn another_type_deletes_the_balancer() {
    let changed = || settled().set("/spec/type", json!("ClusterIP"));
    changed().check(expect![[r#"
        do    event DeletingLoadBalancer: Deleting load balancer
        do    driver: delete balancer 0a-1b
        why   waiting for the cloud to delete the load balancer; next: the cloud answers
        wait  for a change
    "#]]);
    let gone = changed().emitted().deleted(20, Ok(Progress::Done(BalancerDeletion::Gone))).later(21);
    gone.check(expect![[r#"
        do    service: remove finalizer, clear status
        do    event DeletedLoadBalancer: Deleted load balancer
        why   removing the finalizer
        wait  for a change
    "#]]);
}

/// The finalizer stays until the load balancer is deleted.
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
    assert!(without.plan().starts_with("why   up to date"), "never had a load balancer");
}

/// Other programs use the finalizer of the same name.
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

/// A change of the type removes the class, and the other program still needs its finalizer.
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
        .set("/metadata/annotations", noted(json!({"balancer.sim/name": "edge"})))
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
    let robot = |name: &str| node(name, |node| node["spec"]["providerID"] = json!("robot://1"));
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
    // Otherwise its targets would go, and this driver cannot add them again.
    let leaving = node("r", |node| {
        node["spec"]["providerID"] = json!("robot://1");
        node["spec"]["taints"] = json!([{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]);
    });
    let tainted = with(&[node("a", |_| {}), leaving]);
    let still = wanted::of(&tainted.snapshot()).unwrap_or_else(|text| panic!("{text}"));
    assert_eq!(still.spec.targets, wanted.spec.targets);
    let none = with(&[robot("r")]).plan();
    assert!(none.contains("warning UnAvailableLoadBalancer"), "they receive no traffic from us: {none}");
}

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
        |world: World| plan(&world.snapshot()).actions.iter().any(|action| matches!(action, Action::Release));
    let is_asked_again = |world: World| {
        plan(&world.snapshot()).actions.iter().any(|action| matches!(action, Action::Delete(_)))
    };
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

/// A status that was restored or edited does not show that a creation has ended.
#[test]
fn a_published_address_proves_no_end_of_a_creation() {
    for ended in [BalancerDeletion::Gone, BalancerDeletion::Absent] {
        let deleting = held_service()
            .set("/metadata/deletionTimestamp", json!(at(-1).to_string()))
            .set("/status/loadBalancer/ingress", shown_status())
            .with(|s| s.process = process(-5))
            .deleted(-1, Ok(Progress::Done(ended)));
        let planned = deleting.plan();
        assert!(planned.contains(&format!("wait  until {}\n", at(65))), "{planned}");
        assert!(!planned.contains("remove finalizer"), "{planned}");
    }
}

fn absent() -> Result<Progress<BalancerDeletion>, Error> {
    Ok(Progress::Done(BalancerDeletion::Absent))
}

/// A process that restarts every minute would otherwise keep the Service forever.
#[test]
fn a_wait_for_earlier_calls_goes_on_after_a_restart() {
    let deleting = || {
        held_service()
            .set("/metadata/deletionTimestamp", json!(at(-30).to_string()))
            .with(|s| s.process = process(-5))
            .deleted(-1, absent())
    };
    deleting().check(expect![[r#"
        do    service: record the wait for earlier calls
        do    event AwaitingEarlierCalls: The load balancer does not exist. A call of an earlier process may still create it, so the finalizer stays until 2027-01-15T08:01:05Z.
        why   waiting until no earlier call can still create the load balancer; next: the controller looks for the load balancer again
        wait  until 2027-01-15T08:01:05Z
    "#]]);
    // 60 s for the call, 10 s until lists show its effect, and the age of a reading.
    let recorded = |second: i64| {
        deleting().set("/metadata/annotations", json!({names::EARLIER_CALLS_SINCE: at(second).to_string()}))
    };
    let planned = recorded(-20).plan();
    assert!(!planned.contains("record the wait"), "{planned}");
    assert!(
        planned.contains(&format!("wait  until {}\n", at(65))),
        "this process was not restarted: {planned}"
    );
    let restarted = |second: i64| recorded(-20).with(|s| s.process = process(165)).deleted(second, absent());
    let planned = restarted(168).later(169).plan();
    assert!(planned.contains(&format!("wait  until {}\n", at(170))), "{planned}");
    let planned = restarted(170).later(171).plan();
    assert!(planned.contains("do    service: remove finalizer, clear status"), "{planned}");
    assert!(!planned.contains("DeletedLoadBalancer"), "there was none: {planned}");
    // A record from before the deletion belongs to an earlier state of the Service.
    let old = recorded(-9_000).with(|s| s.process = process(155)).deleted(158, absent()).later(159);
    assert!(old.plan().contains(&format!("wait  until {}\n", at(160))), "{}", old.plan());
}

/// The program of the other class has five minutes from the first process that saw the change.
#[test]
fn a_change_of_type_is_settled_after_a_restart() {
    let changed = |recorded: i64| {
        held_service()
            .set("/spec/type", json!("ClusterIP"))
            .set("/metadata/annotations", json!({names::EARLIER_CALLS_SINCE: at(recorded).to_string()}))
            .with(|s| s.process = process(-20))
            .deleted(-1, absent())
    };
    let waiting = changed(-299).plan();
    assert!(waiting.contains(&format!("wait  until {}\n", at(1))), "{waiting}");
    let released = changed(-301).plan();
    assert!(released.contains("do    service: remove finalizer"), "{released}");
}

/// The name is claimed before the creation: the second Service costs nothing and says why.
#[test]
fn a_second_service_with_a_name_gets_no_balancer() {
    let named =
        |world: World| world.set("/metadata/annotations", noted(json!({"balancer.sim/name": "edge"})));
    let created = |second: i64, world: World| {
        named(world).set("/metadata/creationTimestamp", json!(at(second).to_string()))
    };
    let rival = |balancer_name: Option<&str>| Rival {
        service: "default/first".to_owned(),
        uid: "first".to_owned(),
        created: at(-100),
        balancer_name: balancer_name.map(str::to_owned),
        has_begun: false,
    };
    let against = |name: Option<&str>, world: World| world.with(|s| s.rivals = vec![rival(name)]);
    let claim = |world: World| {
        let actions = plan(&world.snapshot()).actions.into_iter();
        actions
            .filter_map(|action| match action {
                Action::Ensure { spec, .. } => Some(spec.claim.held_by),
                _ => None,
            })
            .next()
    };
    against(None, created(-99, new_service())).check(expect![[r#"
        do    warning SyncLoadBalancerFailed: Error syncing load balancer: Service default/first has the name for the load balancer, so none is created
        why   Service default/first has the name for the load balancer, so none is created; next: choose another name for the load balancer in the annotation of the Service
        wait  until 2027-01-15T08:00:30Z
    "#]]);
    let none = ListedBalancer { started: at(-1), balancer: None };
    let held = || created(-99, held_service());
    let planned = against(None, held()).plan();
    assert!(!planned.contains("do "), "a list shows first whether it has one: {planned}");
    let planned = against(None, held().with(|s| s.listed = Some(none.clone()))).plan();
    assert!(planned.contains("why   Service default/first has the name"), "{planned}");
    // The older Service has the name, and so has one whose load balancer has it already.
    let older = || created(-101, held_service());
    assert_eq!(claim(against(None, older())), Some(None));
    let planned = against(Some("edge"), older().with(|s| s.listed = Some(none.clone()))).plan();
    assert!(planned.contains("why   Service default/first has the name"), "{planned}");
    // Creation times are whole seconds, so a Service that came second may look like the first one.
    let begun = older().with(|s| {
        s.listed = Some(none.clone());
        s.rivals = vec![Rival { has_begun: true, ..rival(None) }];
    });
    assert!(begun.plan().contains("why   Service default/first has the name"), "{}", begun.plan());
    // An address that clients use stays, with its load balancer, under its old name.
    let published = held().set("/status/loadBalancer/ingress", shown_status());
    assert_eq!(claim(against(None, published)), Some(Some("Service default/first".to_owned())));
    let own = Balancer { name: "edge".to_owned(), ..balancer() };
    let own = ListedBalancer { started: at(-1), balancer: Some(own) };
    assert_eq!(claim(against(None, held().with(|s| s.listed = Some(own)))), Some(None), "it has the name");
}

/// `--adopt-load-balancers-in`
#[test]
fn a_namespace_may_be_excluded_from_adoptions() {
    let adopts = |all: Option<&[&str]>| {
        let options = Options {
            adopts_in: all.map(|all| all.iter().map(|name| (*name).to_owned()).collect()),
            ..Options::new("machinist.dev/sim", "balancer.sim/")
        };
        let world = held_service().with(|s| s.options = Arc::new(options));
        wanted::of(&world.snapshot()).map(|wanted| wanted.spec.claim).unwrap_or_else(|text| panic!("{text}"))
    };
    assert!(adopts(None).adopts && adopts(Some(&["edge", "default"])).adopts);
    assert!(!adopts(Some(&["edge"])).adopts && !adopts(Some(&[])).adopts);
    assert_eq!(adopts(None).invited_as.as_deref(), Some("default.web"));
}

/// With a wrong first credential, the load balancer was created in the account of another project.
#[test]
fn a_balancer_of_another_account_is_named() {
    let record = |id: &str, account: &str, uid: &str| {
        settled().set(
            "/metadata/annotations",
            json!({names::BALANCER_RECORD: format!("{id} in {account} for {uid}")}),
        )
    };
    let account = account();
    let unrecorded =
        held_service().set("/status/loadBalancer/ingress", shown_status()).ensured(-100, done()).plan();
    let writes = format!("do    service: record 7 in {} for 0a-1b\n", account.as_str());
    assert!(unrecorded.starts_with(&writes), "{unrecorded}");
    let left_over = record("6", "another", "0a-1b").plan();
    assert!(
        left_over.starts_with("do    warning LoadBalancerLeftOver: Load balancer 6 was created"),
        "{left_over}"
    );
    assert!(!left_over.contains("service: record"), "the record is the only trace: {left_over}");
    // A renewed credential of the same project, a load balancer that was created again, and a copy.
    for (id, account, uid) in
        [("7", "another", "0a-1b"), ("6", account.as_str(), "0a-1b"), ("6", "another", "other")]
    {
        let planned = record(id, account, uid).plan();
        assert!(planned.starts_with(&writes), "{planned}");
    }
}

/// The record says that no process creates the load balancer, so it is removed before a creation.
#[test]
fn a_service_that_wants_a_balancer_again_loses_the_record() {
    let again = settled().set("/metadata/annotations", json!({names::EARLIER_CALLS_SINCE: "yesterday"}));
    let planned = again.plan();
    assert!(planned.starts_with("do    service: remove the record of the wait\n"), "{planned}");
    assert!(!planned.contains("driver"), "{planned}");
}

/// A user corrects the Service or its load balancer after a refusal.
#[test]
fn a_changed_service_is_deleted_at_once() {
    let deleted = settled().set("/metadata/deletionTimestamp", json!(at(-9).to_string()));
    let refused = deleted.deleted(-1, Err(Error::new(ErrorKind::InvalidSpec, "no label")));
    let before = shape(&refused.snapshot().service);
    let refused = refused.with(|s| s.answers.deleted_shape = Some(before));
    assert!(!refused.plan().contains("driver: delete"), "{}", refused.plan());
    let changed = refused.set("/metadata/annotations", noted(json!({"balancer.sim/name": "edge"})));
    assert!(changed.plan().contains("driver: delete balancer 0a-1b"), "{}", changed.plan());
}

/// In the account of another project, a second load balancer would be created, and the first one
/// would look deleted.
#[test]
fn nothing_is_done_in_an_unproven_account() {
    let in_account = |world: World, proof| plan(&world.with(|s| s.account.proof = proof).snapshot());
    let calls = |plan: &Plan<Action>| plan.actions.iter().any(|action| !matches!(action, Action::Tell(_)));
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
    let message =
        "warning SyncLoadBalancerFailed: Error syncing load balancer: unauthorized: the token is invalid";
    assert!(planned.contains(message), "{planned}");
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
fn a_service_without_a_usable_port_has_no_address() {
    let without_ports = || Ensured::complete(Balancer { ports: Vec::new(), ..balancer() });
    let udp = |shown: Value| {
        held_service()
            .set("/spec/ports/0/protocol", json!("UDP"))
            .set("/status/loadBalancer/ingress", shown)
            .set("/metadata/annotations", recorded())
            .ensured(-100, Ok(Progress::Done(without_ports())))
            .plan()
    };
    let planned = udp(json!([]));
    assert!(
        planned.starts_with("why   the load balancer forwards no port of the Service; next: "),
        "nothing is published: {planned}"
    );
    assert!(udp(shown_status()).contains("do    status: []\n"), "{}", udp(shown_status()));
}

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

/// A Service with the finalizer needs cleanup if it is deleted or changes its type.
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
        ("/metadata/annotations", noted(json!({"balancer.sim/algorithm": "random"}))),
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
        ("/metadata/annotations", noted(json!({"kubectl.kubernetes.io/last-applied-configuration": "{}"}))),
        ("/metadata/annotations", noted(json!({"other.example/a": "b"}))),
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

/// Each call names all Nodes of its time, also after a failure or a change during a call.
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
    assert!(failed.plan().contains("nodes [a b c]"), "the next call names all Nodes: {}", failed.plan());
    let failed = grown().ensured(-1, Err(Error::new(ErrorKind::Unavailable, "no")));
    let message = "warning UpdateLoadBalancerFailed: Error changing the Nodes behind the load balancer: no";
    assert!(failed.plan().contains(message), "{}", failed.plan());
    let checked = settled().ensured(-1, Err(Error::new(ErrorKind::Unavailable, "no")));
    let planned = checked.plan();
    assert!(planned.contains("warning SyncLoadBalancerFailed"), "the Nodes did not change: {planned}");
    let four = backends(&["a", "b", "c", "d"].map(|name| node(name, |_| {})));
    let newer = grown().with(|s| s.answers.in_flight = Some((ENSURE_BALANCER, at(-1))));
    let newer = newer.with(|s| s.backends = four.clone());
    assert!(newer.plan().starts_with("why   waiting for the cloud to ensure the load balancer"));
    let answered = grown().ensured(1, done()).with(|s| s.backends = four);
    assert!(answered.plan().contains("nodes [a b c d]"), "the newest set of Nodes wins");
    let updated = grown().emitted().ensured(1, done()).later(2);
    assert!(updated.plan().contains("event UpdatedLoadBalancer"), "{}", updated.plan());
}

/// Excluded Nodes, Nodes that leave and Nodes without an id receive none. Other Nodes do, also if
/// they are not ready: the health checks of the load balancer decide.
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
    assert!(!is_target(node("a", |node| node["spec"] = json!({}))), "no provider id");
    assert!(is_target(node("a", tainted(names::SHUTDOWN_TAINT))), "stopped");
    assert!(is_target(node("a", tainted(names::UNINITIALIZED_TAINT))), "new");
    assert!(is_target(node("a", |node| node["spec"]["unschedulable"] = json!(true))), "cordoned");
}

#[test]
fn only_some_changes_of_a_node_matter() {
    use crate::ccm::backends::is_affected_by;
    let plain = || node("a", |_| {});
    let excluded =
        || node("a", |node| node["metadata"]["labels"][names::EXCLUDE_FROM_BALANCERS] = json!("true"));
    assert!(is_affected_by(&plain(), &excluded()) && is_affected_by(&excluded(), &plain()));
    assert!(is_affected_by(&node("a", |node| node["spec"] = json!({})), &plain()), "the provider id is set");
    assert!(is_affected_by(&plain(), &node("a", |node| node["spec"]["providerID"] = json!("sim://x"))));
    let tainted = |key: &str| {
        let taints = json!([{"key": key, "effect": "NoSchedule"}]);
        node("a", |node| node["spec"]["taints"] = taints)
    };
    let leaving = || tainted("ToBeDeletedByClusterAutoscaler");
    assert!(is_affected_by(&plain(), &leaving()), "the autoscaler drains the Node");
    assert!(is_affected_by(&leaving(), &plain()), "the autoscaler keeps the Node after all");
    let deleted = node("a", |node| node["metadata"]["deletionTimestamp"] = json!(at(0).to_string()));
    assert!(is_affected_by(&plain(), &deleted));
    assert!(!is_affected_by(&plain(), &tainted("example.com/other")));
    let change: [fn(&mut Value); 2] = [
        |node| node["status"] = json!({"conditions": [{"type": "Ready", "status": "False"}]}),
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

#[test]
fn an_annotation_selects_the_nodes() {
    let selecting = |text: &str| {
        held_service().set(
            "/metadata/annotations",
            noted(json!({"balancer.sim/node-selector": text, "balancer.sim/x": "y"})),
        )
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

/// The Nodes are replaced while the annotation is wrong.
#[test]
fn targets_follow_the_nodes_whatever_the_annotation_says() {
    let wrong = || {
        let annotations = noted(json!({"balancer.sim/node-selector": "pool in b"}));
        settled().set("/metadata/annotations", annotations)
    };
    let in_pool = |name: &str, pool: &str| {
        let label = json!(pool);
        node(name, |node| node["metadata"]["labels"]["pool"] = label)
    };
    let replaced = || backends(&[in_pool("c", "web"), in_pool("d", "db")]);
    let because = "why   annotation balancer.sim/node-selector \"pool in b\": expected";
    let by_memory = wrong().with(|s| {
        s.backends = replaced();
        s.answers.selector = "pool=web".parse().ok();
    });
    let planned = by_memory.plan();
    assert!(planned.contains("nodes [c]") && planned.contains(because), "{planned}");
    let done = by_memory.ensured_as_planned(1).later(2).plan();
    assert!(!done.contains("driver") && done.contains(because), "{done}");

    // The process has seen no valid annotation.
    let listed = |nodes: Arc<Backends>| {
        let listed = ListedBalancer { started: at(-1), balancer: Some(balancer()) };
        wrong().with(|s| (s.backends, s.listed) = (nodes, Some(listed))).plan()
    };
    let one_left = listed(backends(&[in_pool("b", "web"), in_pool("c", "db")]));
    assert!(one_left.contains("nodes [b]"), "the load balancer shows b: {one_left}");
    let none_left = listed(replaced());
    assert!(none_left.contains("nodes [c d]"), "{none_left}");
    assert!(!wrong().with(|s| s.backends = replaced()).plan().contains("driver"), "nothing is known");
}

/// A user sees who rejected the annotation.
#[test]
fn the_cloud_rejects_no_annotation_that_it_never_saw() {
    let failing = |error: Error| {
        let mut world = held_service();
        for second in [-30, -20, -10] {
            world = world.ensured(second, Err(error.clone()));
        }
        world.plan()
    };
    let planned = failing(Error::by_driver("balancer.sim/location: expected a location"));
    assert!(planned.contains("why   balancer.sim/location: expected a location; next: correct"), "{planned}");
    assert!(planned.contains("warning SyncLoadBalancerFailed"), "{planned}");
    let planned = failing(Error::new(ErrorKind::InvalidSpec, "location unknown"));
    assert!(planned.contains("why   the cloud failed 3 times"), "{planned}");
}

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
    assert!(!paused(held_service()).emitted().plan().contains("warning"), "it is said once");
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

/// Users look at the Service, and its load balancer is no longer checked.
#[test]
fn a_failing_list_of_balancers_is_named_first() {
    let failed = |world: World| {
        let failure = Failure { error: Error::new(ErrorKind::Unavailable, "no"), ended: at(-1), count: 3 };
        world.with(|s| s.list_failed = Some(failure))
    };
    let why = "why   the cloud failed 3 times to list the load balancers (unavailable): no; next: ";
    let again = format!("{why}try again to list the load balancers at {}\n", at(119));
    let deleted = settled().set("/metadata/deletionTimestamp", json!(at(-1).to_string()));
    let own_failure = settled().ensured(-1, Err(Error::new(ErrorKind::Unavailable, "own")));
    for world in [new_service(), held_service(), settled(), deleted, own_failure] {
        let planned = failed(world).plan();
        assert!(planned.contains(&again), "{planned}");
    }
    let invalid = held_service().ensured(-1, Err(Error::by_driver("balancer.sim/location: expected one")));
    let planned = failed(invalid).plan();
    let fix = format!("{why}for the Service itself, correct what the message names; a change of the Service");
    assert!(planned.contains(&fix) && planned.contains("location: expected one"), "{planned}");
    for pointer in ["/spec/type", "/spec/loadBalancerClass"] {
        let other = failed(new_service().set(pointer, json!("Other"))).plan();
        assert!(!other.contains("to list"), "it has no load balancer of ours: {other}");
    }
    let paused = failed(held_service()).with(|s| s.account.paused_until = Some(at(30))).plan();
    assert!(paused.contains("why   the cloud throttles"), "{paused}");
}

/// Only failures that an outage may cause are repeated when the cloud answers again.
#[test]
fn the_end_of_an_outage_repeats_no_refusal() {
    let recovered = |kind| {
        let failed = || Err(Error::new(kind, "no"));
        let works = |world: World| world.with(|s| s.account.works_since = Some(at(0)));
        let deleted = settled().set("/metadata/deletionTimestamp", json!(at(-9).to_string()));
        let ensure = works(settled().ensured(-1, failed())).plan().contains("driver: ensure");
        let delete = deleted.deleted(-1, Err(Error::new(kind, "no")));
        assert_eq!(works(delete).plan().contains("driver: delete"), ensure, "{kind}");
        let before = settled().ensured(1, failed()).later(2);
        assert!(!works(before).plan().contains("driver:"), "{kind}: it failed after the outage");
        ensure
    };
    for kind in [
        ErrorKind::Unavailable,
        ErrorKind::Ambiguous,
        ErrorKind::Throttled { retry_after: None },
        ErrorKind::Throttled { retry_after: Some(Duration::from_secs(60)) },
    ] {
        assert!(recovered(kind), "{kind}");
    }
    for kind in [
        ErrorKind::Exhausted,
        ErrorKind::Denied,
        ErrorKind::InvalidSpec,
        ErrorKind::Unsupported,
        ErrorKind::Bug,
    ] {
        assert!(!recovered(kind), "{kind}");
    }
}

#[test]
fn failures_are_retried_less_and_less_often() {
    let mut world = held_service();
    for wait in [5, 10, 20, 40, 80, 160, 300, 300] {
        world = world.ensured(0, Err(Error::new(ErrorKind::Exhausted, "no")));
        assert!(world.plan().contains(&format!("wait  until {}", at(wait))), "{wait}: {}", world.plan());
    }
    let fixed = world.set("/metadata/annotations", noted(json!({"balancer.sim/location": "here"})));
    assert!(fixed.plan().contains("driver: ensure"), "a change of the Service may fix it");
    let again = fixed.ensured(0, Err(Error::new(ErrorKind::Exhausted, "no")));
    assert!(again.plan().contains(&format!("wait  until {}", at(5))), "a new cause: {}", again.plan());
    let emitted =
        held_service().ensured(0, Err(Error::new(ErrorKind::InvalidSpec, "balancer.sim/type: no"))).emitted();
    assert!(!emitted.plan().contains("warning"), "the Event is not repeated at once");
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
    let ensured = Ensured { balancer: balancer(), notes: notes.to_vec(), skipped: Vec::new() };
    let world = settled().ensured(-1, Ok(Progress::Done(ensured)));
    let planned = world.plan();
    let expected = "warning MaxTargetsReached: Node a is not behind the load balancer; Node b is not behind";
    assert!(planned.contains(expected), "one Event of each reason is shown: {planned}");
    assert_eq!(world.emitted().plan().matches("warning").count(), 0);
    let many: Vec<String> = (1..=7).map(|number| format!("m{number}")).collect();
    assert_eq!(joined(&many).as_deref(), Some("m1; m2; m3; m4; m5; and 2 more"));
    let no_port = settled().set("/spec/ports", json!([{"port": 80, "protocol": "TCP"}]));
    assert!(no_port.plan().contains("warning LoadBalancerPortSkipped: port 80: it has no node port"));
}

/// The load balancer without its second Node, and the answer of `ensure` about that.
fn lacking(second: i64, cause: SkipCause) -> World {
    let instance = ProviderId::parse("sim://b").expect("not empty");
    let skipped = SkippedTarget { node: "b".to_owned(), instance, cause, message: "no address".to_owned() };
    let balancer = Balancer { targets: balancer().targets[..1].to_vec(), ..balancer() };
    let ensured = Ensured { skipped: vec![skipped], ..Ensured::complete(balancer) };
    settled().ensured(second, Ok(Progress::Done(ensured)))
}

/// A refused target is tried again, and the Service is not up to date meanwhile.
#[test]
fn a_refused_target_is_tried_less_and_less_often() {
    lacking(0, SkipCause::Refused).check(expect![[r#"
        why   a Node is not a target of the load balancer as the Service asks: Node b: no address; next: try again to ensure the load balancer at 2027-01-15T08:01:00Z
        wait  until 2027-01-15T08:01:00Z
    "#]]);
    let mut world = lacking(0, SkipCause::Refused);
    let answer = world.snapshot.answers.ensure.as_ref().map(|(_, last)| last.answer.clone());
    let answer = answer.expect("answered");
    for wait in [120, 240, 480, 600, 600] {
        world = world.ensured(0, answer.clone());
        assert!(world.plan().contains(&format!("wait  until {}", at(wait))), "{wait}: {}", world.plan());
    }
    let due = lacking(0, SkipCause::Refused).later(60).plan();
    assert!(due.starts_with("do    driver: ensure"), "no Event announces another try: {due}");
}

/// The cloud's data explain the refusal, so only a change of them makes another try useful.
#[test]
fn an_explained_refusal_waits_for_other_data() {
    let address = |text: &str| Address { kind: AddressKind::InternalIP, address: text.to_owned() };
    let shown = || SkipCause::Shown(Some(Vec::new()));
    let listed = |second: i64, addresses: Vec<Address>| {
        let instance = ProviderId::parse("sim://b").expect("not empty");
        let addresses = [(instance, addresses)].into();
        lacking(0, shown())
            .later(86_400)
            .with(|s| s.targets = Some(ListedTargets { started: at(second), addresses }))
            .plan()
    };
    let waits = lacking(0, shown()).later(86_400).plan();
    assert!(waits.ends_with("wait  for a change\n") && !waits.contains("driver"), "{waits}");
    assert!(!listed(9, Vec::new()).contains("driver"), "nothing has changed");
    assert!(!listed(-9, vec![address("10.0.0.2")]).contains("driver"), "the list is older");
    assert!(listed(9, vec![address("10.0.0.2")]).starts_with("do    driver: ensure"));
    let absent = lacking(0, SkipCause::Shown(None));
    let instance = ProviderId::parse("sim://b").expect("not empty");
    let appeared = ListedTargets { started: at(9), addresses: [(instance, Vec::new())].into() };
    let planned = absent.later(10).with(|s| s.targets = Some(appeared)).plan();
    assert!(planned.starts_with("do    driver: ensure"), "the cloud shows the instance now: {planned}");
}

#[test]
fn a_full_balancer_costs_no_call_until_it_has_room() {
    let listed = |room: usize| {
        let balancer = Balancer { targets: balancer().targets[..1].to_vec(), room: Some(room), ..balancer() };
        let listed = ListedBalancer { started: at(9), balancer: Some(balancer) };
        lacking(0, SkipCause::Full).later(600).with(|s| s.listed = Some(listed)).plan()
    };
    assert!(!listed(0).contains("driver"), "{}", listed(0));
    assert!(listed(1).starts_with("do    driver: ensure"), "a user chose a larger type: {}", listed(1));
}

/// The list of all load balancers shows the difference. A target whose absence is known and
/// reported is none.
#[test]
fn a_balancer_that_lacks_a_target_has_drifted() {
    let lacks = Balancer { targets: balancer().targets[..1].to_vec(), ..balancer() };
    let listed = ListedBalancer { started: at(9), balancer: Some(lacks.clone()) };
    // The answer contains no word about the target that the balancer lacks.
    let world = settled().ensured(0, Ok(Progress::Done(Ensured::complete(lacks))));
    let planned = world.later(10).with(|s| s.listed = Some(listed.clone())).plan();
    assert!(planned.contains("driver: ensure"), "{planned}");
    let known = lacking(0, SkipCause::Shown(None)).later(10).with(|s| s.listed = Some(listed)).plan();
    assert!(!known.contains("driver"), "{known}");
}

/// The list of all load balancers shows the change.
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
    assert!(
        listed(|balancer| balancer.targets.reverse()).starts_with("why   up to date"),
        "the order does not matter"
    );
    assert!(listed(|balancer| balancer.is_protected = true).starts_with("why   up to date"));
    assert!(listed(|balancer| balancer.ports.push(443)).contains("driver: ensure"));
    assert!(listed(|balancer| balancer.targets.clear()).contains("driver: ensure"));
    assert!(listed(|balancer| balancer.name.clear()).contains("event EnsuringLoadBalancer"));
    let gone = settled().with(|s| s.listed = Some(ListedBalancer { started: at(-1), balancer: None }));
    assert!(gone.plan().contains("driver: ensure"));
    let older = settled().with(|s| s.listed = Some(ListedBalancer { started: at(-200), balancer: None }));
    assert!(older.plan().starts_with("why   up to date"), "the list is older than the last call");
}

/// After a restart every load balancer is checked, without Events.
#[test]
fn a_check_after_a_restart_is_silent() {
    let restarted = || {
        let held = held_service().set("/status/loadBalancer/ingress", shown_status());
        held.set("/metadata/annotations", recorded())
    };
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
