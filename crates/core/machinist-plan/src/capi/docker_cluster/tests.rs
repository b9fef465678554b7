//! Table tests of the decisions about a DockerCluster.

mod rows;

use machinist_api::capi::{Beta2, Cluster, DockerCluster};
use machinist_instance::{Balancer, BalancerNote, Error, ErrorKind};
use serde_json::json;

use super::*;
use crate::testing::{self, at};

fn member(name: &str, is_control_plane: bool, is_draining: bool) -> Member {
    Member {
        name: name.to_owned(),
        is_control_plane,
        is_deleting: false,
        is_draining,
        container: ProviderId::parse(&format!("docker:////{name}")).ok(),
    }
}

fn weights(machines: &[Member]) -> Vec<(String, u8)> {
    targets(machines).into_iter().map(|target| (target.node, target.weight)).collect()
}

#[test]
fn only_the_control_plane_is_balanced() {
    let machines = [member("a", true, false), member("b", false, false)];
    assert_eq!(weights(&machines), [("a".to_owned(), 100)], "a worker is left out");
    let created = Member { container: None, ..member("a", true, false) };
    assert_eq!(weights(&[created]), [], "a machine without a container is left out");
}

#[test]
fn a_drained_machine_gets_no_new_connections() {
    let machines = [member("a", true, true), member("b", true, false)];
    assert_eq!(weights(&machines), [("a".to_owned(), 0), ("b".to_owned(), 100)]);
    assert_eq!(weights(&[member("a", true, true)]), [("a".to_owned(), 100)], "the only one keeps its weight");
    let deleted = Member { is_deleting: true, ..member("a", true, true) };
    assert_eq!(
        weights(&[deleted, member("b", true, false)]),
        [("b".to_owned(), 100)],
        "a deleted machine is left out"
    );
}

fn answered<T>(second: i64, answer: Result<T, Error>) -> Answered<T> {
    testing::answered(second, None, answer)
}

/// A DockerCluster that is deleted at second 100. At second 99 the load balancer was absent.
fn leaving() -> Snapshot {
    let engine = AccountId::of([b"docker".as_slice(), b"a"]);
    let docker: DockerCluster = serde_json::from_value(json!({
        "metadata": {
            "name": "c", "namespace": "default", "uid": "u1", "resourceVersion": "1",
            "creationTimestamp": "2027-01-15T08:00:50Z", "deletionTimestamp": "2027-01-15T08:01:30Z",
            "finalizers": ["dockercluster.infrastructure.cluster.x-k8s.io"],
            "annotations": {"machinist.dev/key": "default/c/u1", "machinist.dev/engine": engine.as_str()},
        },
        "spec": {},
    }))
    .expect("a DockerCluster");
    let gone = answered(99, Ok(Progress::Done(BalancerDeletion::Gone)));
    Snapshot {
        now: at(100),
        process: testing::process(0, Duration::from_secs(30), Duration::ZERO),
        docker: Arc::new(DockerClusterFacts::parse(&docker)),
        cluster: Known::Unasked,
        machines: Vec::new(),
        domains_are_listed: true,
        key_holder: None,
        container_holder: None,
        engine: Some(engine),
        answers: BalancerAnswers { delete: Some(gone), ..BalancerAnswers::default() },
    }
}

fn deleted(change: impl FnOnce(&mut Snapshot)) -> String {
    let mut s = leaving();
    change(&mut s);
    let plan = plan(&s);
    let actions = plan.actions.iter().filter(|action| !matches!(action, Action::SetStatus(_)));
    actions.map(ToString::to_string).collect()
}

/// The load balancer was requested at that second, without an answer.
fn unknown_at(s: &mut Snapshot, second: i64) {
    s.answers.take_ensure(0, answered(second, Err(Error::new(ErrorKind::Ambiguous, "no answer"))));
}

#[test]
fn an_absence_waits_for_a_call_of_unknown_effect() {
    assert_eq!(deleted(|_| {}), "remove the finalizer", "nothing was requested");
    assert_eq!(deleted(|s| unknown_at(s, 60)), "remove the finalizer");
    assert_eq!(deleted(|s| unknown_at(s, 80)), "", "the call may still take effect");
    let repeated = deleted(|s| {
        unknown_at(s, 80);
        s.answers.take_ensure(0, answered(85, Ok(Progress::Working("creating".to_owned()))));
    });
    assert_eq!(repeated, "", "the first call may still take effect");
}

/// The process is older than the object, and the load balancer was absent at second 60.
fn early(s: &mut Snapshot) {
    s.process.started = at(40);
    s.answers.delete = Some(answered(60, Ok(Progress::Done(BalancerDeletion::Gone))));
    s.now = at(61);
}

#[test]
fn a_forgotten_or_older_call_may_still_take_effect() {
    assert_eq!(deleted(early), "remove the finalizer", "nothing was requested");
    let forgotten = deleted(|s| {
        early(s);
        s.answers.ever_ensured = true;
    });
    assert_eq!(forgotten, RECORD, "the clock has stepped since the call");
    let restored = deleted(|s| {
        early(s);
        let mut docker = DockerClusterFacts::clone(&s.docker);
        docker.object.uid = "u2".to_owned();
        s.docker = Arc::new(docker);
    });
    assert_eq!(restored, RECORD, "the key is older than the object");
}

const RECORD: &str = "record the wait for earlier calls";

/// A process that restarts again and again does not begin the wait again.
#[test]
fn a_recorded_wait_is_not_begun_again() {
    // The process began to act at second 61, and looked at second 300.
    let restarted = |change: fn(&mut Snapshot)| {
        deleted(|s| {
            s.process.started = at(61);
            s.answers.delete = Some(answered(300, Ok(Progress::Done(BalancerDeletion::Absent))));
            s.now = at(301);
            change(s);
        })
    };
    assert_eq!(restarted(|_| {}), "remove the finalizer");
    assert_eq!(restarted(|s| s.process.started = at(290)), RECORD);
    fn recorded(s: &mut Snapshot, second: i64) {
        let mut docker = DockerClusterFacts::clone(&s.docker);
        let value = format!("default/c/{}", at(second));
        docker
            .object
            .annotations
            .get_or_insert_default()
            .insert(crate::facts::EARLIER_CALLS_SINCE.into(), value);
        s.docker = Arc::new(docker);
        s.process.started = at(290);
    }
    assert_eq!(restarted(|s| recorded(s, 140)), "remove the finalizer", "160 s later no call is left");
    assert_eq!(restarted(|s| recorded(s, 200)), "", "the wait is recorded, and not over");
}

/// A DockerCluster with this endpoint, whose status shows a load balancer with this address.
fn with_endpoint(host: &str, shown: Option<&str>) -> Snapshot {
    let mut s = leaving();
    let mut docker = DockerClusterFacts::clone(&s.docker);
    docker.spec.control_plane_endpoint = Some(Endpoint { host: host.to_owned(), port: Some(6443) });
    let shown = shown.map(|ip| LoadBalancerStatus { ips: vec![ip.to_owned()], ..Default::default() });
    docker.status = Some(DockerClusterStatus { load_balancer: shown, ..Default::default() });
    s.docker = Arc::new(docker);
    s
}

fn asked_address(s: &Snapshot) -> Option<String> {
    wanted(s, &cluster()).options.get(ADDRESS_OPTION).cloned()
}

#[test]
fn a_changed_endpoint_does_not_move_the_load_balancer() {
    let asked = |host: &str, shown: Option<&str>| asked_address(&with_endpoint(host, shown));
    let address = || Some("172.18.0.2".to_owned());
    assert_eq!(asked("172.18.0.2", Some("172.18.0.2")), address());
    assert_eq!(asked("172.18.0.2", None), address(), "a new load balancer gets the wanted address");
    assert_eq!(asked("1.2.3.4", Some("172.18.0.2")), None, "a user changed the endpoint");
}

/// Carries out the write of the status in a plan, and returns the reason of the condition.
fn written(s: &mut Snapshot, plan: Plan<Action>) -> Option<String> {
    let status = plan.actions.into_iter().find_map(|action| match action {
        Action::SetStatus(status) => Some(*status),
        _ => None,
    })?;
    let mut docker = DockerClusterFacts::clone(&s.docker);
    let shown = status.conditions.iter().find(|condition| condition.type_ == LOAD_BALANCER_AVAILABLE);
    let reason = shown.map(|shown| shown.reason.clone());
    docker.status = Some(status);
    s.docker = Arc::new(docker);
    reason
}

fn at_address(address: &str) -> Ensured {
    let ingress = Ingress::Ip { address: address.parse().expect("an address"), is_proxy: false };
    Ensured::complete(balancer(ingress))
}

#[test]
fn an_error_does_not_hide_a_lost_address() {
    let mut s = with_endpoint("172.18.0.2", Some("172.18.0.2"));
    let moved = at_address("172.18.0.7");
    let plan = available(&s, &moved);
    assert_eq!(written(&mut s, plan).as_deref(), Some(ADDRESS_CHANGED));
    let plan = failing(&s, Plan::idle(Why::up_to_date()), NOT_AVAILABLE, "no answer".to_owned());
    assert_eq!(written(&mut s, plan).as_deref(), Some(NOT_AVAILABLE));
    assert_eq!(asked_address(&s).as_deref(), Some("172.18.0.2"), "it gets its old address back");
    let plan = available(&s, &moved);
    assert_eq!(written(&mut s, plan).as_deref(), Some(ADDRESS_CHANGED), "it is not available");
    let plan = available(&s, &at_address("172.18.0.2"));
    assert_eq!(written(&mut s, plan).as_deref(), Some("Available"));
}

/// The problems that a plan would report, which become Events.
fn problems(s: &mut Snapshot, plan: Plan<Action>) -> Vec<String> {
    let old = s.docker.status.clone().and_then(|status| status.deprecated);
    written(s, plan);
    let new = s.docker.status.clone().and_then(|status| status.deprecated);
    let new_problems = conditions::new_problems(old.as_ref(), new.as_ref());
    new_problems.iter().map(|trouble| trouble.message.to_owned()).collect()
}

#[test]
fn a_pull_is_no_problem_and_a_failed_one_is_reported_once() {
    let mut s = with_endpoint("172.18.0.2", None);
    let idle = || Plan::idle(Why::up_to_date());
    let pulls = |s: &Snapshot| creating(s, idle(), "pulling image i".to_owned());
    let fails = |s: &Snapshot| failing(s, idle(), NOT_AVAILABLE, "image i: not found".to_owned());
    let none: &[&str] = &[];
    for (attempt, plan, expected) in [
        ("first pull", &pulls as &dyn Fn(&Snapshot) -> Plan<Action>, none),
        ("it fails", &fails, &["image i: not found"]),
        ("second pull", &pulls, none),
        ("it fails again", &fails, none),
    ] {
        let plan = plan(&s);
        assert_eq!(problems(&mut s, plan), expected, "{attempt}");
    }
}

#[test]
fn the_load_balancer_of_a_copied_object_is_not_deleted() {
    assert_eq!(deleted(|s| s.key_holder = Some("default/b".to_owned())), "");
}

#[test]
fn the_holder_of_a_lost_address_is_named() {
    let s = with_endpoint("172.18.0.2", Some("172.18.0.2"));
    let ingress = Ingress::Ip { address: "172.18.0.7".parse().expect("an address"), is_proxy: false };
    let note = BalancerNote { reason: "AddressMoved", message: "container x has that address".to_owned() };
    let plan =
        available(&s, &Ensured { balancer: balancer(ingress), notes: vec![note], skipped: Vec::new() });
    let Step::Fix(fix) = &plan.why.next else { panic!("{:?}", plan.why) };
    assert!(fix.ends_with("; container x has that address"), "{fix}");
    let shown = plan.actions.iter().find_map(|action| match action {
        Action::SetStatus(status) => {
            status.conditions.iter().find(|condition| condition.reason == ADDRESS_CHANGED)
        }
        _ => None,
    });
    assert!(shown.expect("a condition").message.contains("container x has that address"));
}

fn cluster() -> ClusterFacts {
    let cluster: Cluster<Beta2> =
        serde_json::from_value(json!({"metadata": {"name": "c"}})).expect("a Cluster");
    ClusterFacts::parse(&cluster)
}

fn balancer(ingress: Ingress) -> Balancer {
    Balancer {
        id: "c-lb".to_owned(),
        native_id: None,
        key: None,
        name: "c-lb".to_owned(),
        ingress: vec![ingress],
        ports: vec![6443],
        host_ports: [].into(),
        targets: Vec::new(),
        room: None,
        created: None,
        is_protected: false,
    }
}

/// The status that is written about a load balancer with these targets and notes.
fn status_with(targets: &[&str], note: Option<&str>) -> DockerClusterStatus {
    let mut s = with_endpoint("172.18.0.2", None);
    s.machines = vec![member("a", true, false), member("b", true, false)];
    let ingress = Ingress::Ip { address: "172.18.0.2".parse().expect("an address"), is_proxy: false };
    let targets = targets.iter().filter_map(|name| member(name, true, false).container).collect();
    let balancer = Balancer { targets, ..balancer(ingress) };
    let note = note.map(|text| BalancerNote { reason: "TargetSkipped", message: text.to_owned() });
    let plan = available(&s, &Ensured { balancer, notes: note.into_iter().collect(), skipped: Vec::new() });
    let status = plan.actions.into_iter().find_map(|action| match action {
        Action::SetStatus(status) => Some(*status),
        _ => None,
    });
    status.expect("a status")
}

#[test]
fn a_machine_that_the_driver_skipped_is_no_backend() {
    let backends = |targets: &[&str]| status_with(targets, None).load_balancer.expect("shown").backends;
    assert_eq!(backends(&["a", "b"]), ["a", "b"]);
    assert_eq!(backends(&["b"]), ["b"], "container a does not run");
    let status = status_with(&["b"], Some("Node a is skipped: container a is exited"));
    let shown = status
        .conditions
        .iter()
        .find(|condition| condition.type_ == "LoadBalancerAvailable")
        .expect("a condition");
    assert_eq!(
        (shown.reason.as_str(), shown.message.as_str()),
        ("Available", "Node a is skipped: container a is exited")
    );
}
