//! Table tests of the decisions about a DockerMachine.

mod rows;

use machinist_api::capi::{Beta2, Cluster, DockerCluster, DockerMachine, Machine};
use machinist_core::{Deleted, Found, Unseen};
use machinist_instance::{BootstrapCause, BootstrapFailure, BootstrapState, ErrorKind, Foreign};
use serde_json::{Value, json};

use super::*;
use crate::testing::{self, at};

fn engine() -> AccountId {
    AccountId::of([b"docker".as_slice(), b"a"])
}

/// A claimed worker whose gates are open.
struct Case {
    machine: Value,
    owner: Option<Value>,
    cluster: Option<Value>,
    infrastructure: Option<Value>,
    snapshot: fn(&mut Snapshot),
}

impl Case {
    fn new() -> Self {
        Self {
            machine: json!({
                "metadata": {
                    "name": "c-w", "namespace": "default", "uid": "u1", "resourceVersion": "1",
                    "creationTimestamp": "2027-01-15T08:00:00Z",
                    "finalizers": ["dockermachine.infrastructure.cluster.x-k8s.io"],
                    "labels": {"cluster.x-k8s.io/cluster-name": "c"},
                    "annotations": {
                        "machinist.dev/key": "default/c-w/u1", "machinist.dev/engine": engine().as_str(),
                    },
                    "ownerReferences": [
                        {"apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Machine", "name": "c-w", "uid": "m"},
                    ],
                },
                "spec": {},
            }),
            owner: Some(json!({
                "metadata": {"name": "c-w", "namespace": "default", "labels": {}},
                "spec": {"clusterName": "c", "version": "v1.33.0", "bootstrap": {"dataSecretName": "s"}},
            })),
            cluster: Some(json!({
                "metadata": {"name": "c", "namespace": "default"},
                "spec": {
                    "controlPlaneRef": {"kind": "KubeadmControlPlane"},
                    "infrastructureRef": {
                        "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "DockerCluster", "name": "c",
                    },
                },
                "status": {"initialization": {
                    "infrastructureProvisioned": true, "controlPlaneInitialized": true,
                }},
            })),
            infrastructure: Some(json!({"metadata": {"name": "c", "namespace": "default"}})),
            snapshot: |_| {},
        }
    }

    fn read(&self) -> Snapshot {
        let parse = |value: &Value| value.clone();
        let cluster = self.cluster.as_ref().map(|value| {
            let cluster: Cluster<Beta2> = serde_json::from_value(parse(value)).expect("a Cluster");
            Arc::new(ClusterFacts::parse(&cluster))
        });
        let owner = self.owner.as_ref().map(|value| {
            let machine: Machine<Beta2> = serde_json::from_value(parse(value)).expect("a Machine");
            Arc::new(CoreMachineFacts::parse(&machine))
        });
        let infrastructure = self.infrastructure.as_ref().map(|value| {
            let docker: DockerCluster = serde_json::from_value(parse(value)).expect("a DockerCluster");
            Arc::new(DockerClusterFacts::parse(&docker))
        });
        let machine: DockerMachine = serde_json::from_value(parse(&self.machine)).expect("a DockerMachine");
        let machine = Arc::new(DockerMachineFacts::parse(&machine));
        let has_owner = machine.object.owner("Machine").is_some();
        let mut snapshot = Snapshot {
            now: at(100),
            process: testing::process(0, Duration::from_secs(30), Duration::ZERO),
            gaps: Unseen::default(),
            options: Arc::default(),
            recorded: machine.provider_id().map_or(RecordedId::Unset, RecordedId::any),
            owner: if has_owner { Known::from_store(owner) } else { Known::Unasked },
            cluster,
            infrastructure,
            key_holder: None,
            container_holder: None,
            engine: Some(engine()),
            answers: Answers::default(),
            steps: StepAnswers::default(),
            machine,
        };
        (self.snapshot)(&mut snapshot);
        snapshot
    }

    fn annotations(&mut self) -> &mut serde_json::Map<String, Value> {
        self.machine["metadata"]["annotations"].as_object_mut().expect("a map")
    }

    fn plan(&self) -> Plan<Action> {
        plan(&self.read())
    }

    /// Returns the code of the reason, and the actions without the status.
    fn outcome(&self) -> (String, Vec<String>) {
        let plan = self.plan();
        let actions = plan.actions.iter().filter(|action| !matches!(action, Action::SetStatus(_)));
        (plan.why.reason.code().to_owned(), actions.map(ToString::to_string).collect())
    }

    /// Returns the reason of a condition that the plan writes.
    fn reports(&self, type_: &str) -> String {
        let plan = self.plan();
        let status = plan.actions.iter().find_map(|action| match action {
            Action::SetStatus(status) => Some(status.clone()),
            _ => None,
        });
        let conditions = status.map(|status| status.conditions).unwrap_or_default();
        conditions
            .into_iter()
            .find(|condition| condition.type_ == type_)
            .map(|condition| condition.reason)
            .unwrap_or_default()
    }
}

fn instance() -> Instance {
    Instance {
        native_id: NativeId::new("id-1"),
        key: Some(machinist_instance::InstanceKey::new("u1")),
        cluster: Some("c".to_owned()),
        ..testing::instance("docker:////c-w", "c-w", 90)
    }
}

fn deleted(answered: Answered<()>) -> Option<Box<Deleted>> {
    Some(Box::new(Deleted { id: Some(instance().id), may_lack_key: false, answered }))
}

fn answered<T>(second: i64, answer: Result<T, Error>) -> Answered<T> {
    testing::answered(second, engine(), answer)
}

/// The container is recorded, and the last look shows it.
fn recorded() -> Case {
    let mut case = Case::new();
    case.machine["spec"]["providerID"] = json!("docker:////c-w");
    case.machine["metadata"]["annotations"]["machinist.dev/container-id"] = json!("default/c-w/id-1");
    case.snapshot = shown;
    case
}

fn shown(s: &mut Snapshot) {
    shown_at(s, 99);
}

#[test]
fn the_gates_wait_without_an_action() {
    let none: Vec<String> = Vec::new();
    let outcome = |change: fn(&mut Case)| {
        let mut case = Case::new();
        change(&mut case);
        case.outcome()
    };
    for (row, change, code) in [
        (
            "no owner reference",
            (|case| case.machine["metadata"]["ownerReferences"] = json!([])) as fn(&mut Case),
            "OwnerUnset",
        ),
        ("an unknown owner", |case| case.owner = None, "OwnerMissing"),
        ("an unknown Cluster", |case| case.cluster = None, "ClusterUnknown"),
        ("an unknown DockerCluster", |case| case.infrastructure = None, "InfrastructureMissing"),
        (
            "a paused Cluster",
            |case| case.cluster.as_mut().expect("a Cluster")["spec"]["paused"] = json!(true),
            "Paused",
        ),
        (
            "a paused DockerMachine",
            |case| case.machine["metadata"]["annotations"]["cluster.x-k8s.io/paused"] = json!(""),
            "Paused",
        ),
        (
            "the infrastructure is not ready",
            |case| case.cluster.as_mut().expect("a Cluster")["status"] = json!({}),
            "InfrastructureNotReady",
        ),
        (
            "no bootstrap data",
            |case| case.owner.as_mut().expect("an owner")["spec"]["bootstrap"] = json!({}),
            "BootstrapDataMissing",
        ),
        (
            "no version",
            |case| case.owner.as_mut().expect("an owner")["spec"]["version"] = json!(null),
            "VersionMissing",
        ),
        (
            "engine",
            |case| case.snapshot = |s| s.engine = Some(AccountId::of([b"b".as_slice()])),
            "OtherEngine",
        ),
        ("copy", |case| case.snapshot = |s| s.key_holder = Some("default/b".to_owned()), "KeyTaken"),
    ] {
        assert_eq!(outcome(change), (code.to_owned(), none.clone()), "{row}");
    }
}

#[test]
fn the_intent_comes_before_the_container() {
    let mut case = Case::new();
    case.machine["metadata"]["finalizers"] = json!([]);
    case.machine["metadata"]["annotations"] = json!({});
    let (_, actions) = case.outcome();
    let engine = engine();
    assert_eq!(
        actions,
        [format!("claim on engine {}", engine.as_str())],
        "the finalizer, the key and the engine come before any call"
    );
    let (code, actions) = Case::new().outcome();
    assert_eq!(
        (code.as_str(), actions),
        ("Calling", vec!["ensure c-w".to_owned()]),
        "then the container is created"
    );
}

#[test]
fn a_copied_key_is_not_used() {
    let mut case = Case::new();
    case.machine["metadata"]["annotations"]["machinist.dev/key"] = json!("default/other/u0");
    let plan = case.plan();
    assert!(matches!(&plan.actions[0], Action::Claim(claim) if claim.key == "default/c-w/u1"));
}

#[test]
fn a_copied_object_does_not_own_the_container() {
    let mut case = deleting();
    case.machine["metadata"]["namespace"] = json!("copies");
    case.machine["metadata"]["uid"] = json!("u9");
    case.snapshot = |_| {};
    let s = case.read();
    assert_eq!((s.native_id(), s.machine.object.key().as_str()), (None, "u9"));
    case.snapshot = container_of_another_object;
    assert_eq!(case.outcome(), ("ContainerNotOurs".to_owned(), Vec::new()));
}

#[test]
fn a_moved_container_is_kept() {
    let mut case = recorded();
    case.machine["metadata"]["uid"] = json!("u2");
    assert_eq!(case.read().native_id(), NativeId::new("id-1"));
}

#[test]
fn a_moved_key_is_kept() {
    let mut case = Case::new();
    case.machine["metadata"]["uid"] = json!("u2");
    assert_eq!(case.read().machine.object.key().as_str(), "u1");
    assert_eq!(case.outcome().1, ["ensure c-w"]);
}

#[test]
fn a_worker_waits_for_the_control_plane() {
    let mut case = Case::new();
    case.owner.as_mut().expect("an owner")["spec"]["bootstrap"] = json!({});
    case.cluster.as_mut().expect("a Cluster")["status"] =
        json!({"initialization": {"infrastructureProvisioned": true}});
    assert_eq!(
        case.outcome().0,
        "ControlPlaneNotInitialized",
        "a worker waits until the control plane is initialized"
    );
    assert_eq!(
        case.reports("ContainerProvisioned"),
        "WaitingForControlPlaneInitialized",
        "a condition names the wait"
    );
    case.owner.as_mut().expect("an owner")["metadata"]["labels"] =
        json!({"cluster.x-k8s.io/control-plane": ""});
    assert_eq!(case.outcome().0, "BootstrapDataMissing", "the label makes it a machine of the control plane");
}

#[test]
fn a_recorded_container_is_never_created_again() {
    let mut case = recorded();
    case.snapshot = |_| {};
    assert_eq!(case.outcome().1, ["find docker:////c-w"]);
    case.snapshot = |s| {
        let by = InstanceRef { id: Some(instance().id), ..InstanceRef::default() };
        s.answers.take_found(Found { by, answered: answered(99, Ok(Sighting::Absent)) });
    };
    assert_eq!(case.outcome(), ("ContainerMissing".to_owned(), Vec::new()));
    assert_eq!(case.reports("ContainerProvisioned"), "NotProvisioned");
}

#[test]
fn the_provider_id_comes_after_the_images() {
    let mut case = recorded();
    case.machine["spec"] = json!({"preLoadImages": ["app:1"]});
    assert_eq!(case.outcome().1, ["observe the start of docker:////c-w"]);
    case.snapshot = |s| {
        shown(s);
        s.steps.readiness = Some(answered(99, Ok(Readiness::Ready)));
    };
    assert_eq!(case.outcome().1, ["load 1 images into docker:////c-w"]);
    case.snapshot = |s| {
        shown(s);
        s.steps.readiness = Some(answered(99, Ok(Readiness::Ready)));
        s.steps.images = Some(answered(99, Ok(Progress::Done(()))));
    };
    assert_eq!(case.outcome().1, ["record docker:////c-w"]);
}

/// The reasons of the conditions that are written while the operating system has been starting for
/// some seconds.
fn starting_for(seconds: i64, shown: Value) -> String {
    let mut case = recorded();
    case.machine["spec"] = json!({});
    case.machine["status"] = shown;
    let mut s = case.read();
    shown_at(&mut s, 100 + seconds);
    s.steps.take_readiness(answered(100, Ok(Readiness::Booting("systemd".to_owned()))));
    s.steps.take_readiness(answered(100 + seconds, Ok(Readiness::Booting("systemd".to_owned()))));
    s.now = at(100 + seconds);
    let plan = plan(&s);
    assert_eq!(plan.why.reason.code(), "ContainerStarting");
    let status = plan.actions.iter().find_map(|action| match action {
        Action::SetStatus(status) => Some(status.clone()),
        _ => None,
    });
    let conditions = status.map(|status| status.conditions).unwrap_or_default();
    conditions
        .into_iter()
        .find(|condition| condition.type_ == "CGroupsReady")
        .map(|condition| condition.reason)
        .unwrap_or_default()
}

#[test]
fn a_state_is_written_only_if_it_lasts() {
    assert_eq!(starting_for(9, Value::Null), "");
    assert_eq!(starting_for(10, Value::Null), "NotReady");
    let paused = json!({"conditions": [{
        "type": "Paused", "status": "True", "reason": "Paused", "message": "",
        "lastTransitionTime": "2027-01-15T08:00:00Z",
    }]});
    assert_eq!(starting_for(0, paused), "NotReady", "a pause that has ended is no longer shown");
}

#[test]
fn quiet_work_is_observed_less_often() {
    let due = |seconds: i64| {
        let since = at(100);
        let why = Why::up_to_date();
        let mut s = recorded().read();
        s.now = at(100 + seconds);
        let plan = observe(&s, since, at(100 + seconds), why, || Action::Release);
        assert!(plan.actions.is_empty());
        plan.wait
    };
    let after =
        |millis: i64| machinist_core::Wait::Until(at(100) + jiff::SignedDuration::from_millis(millis));
    assert_eq!([due(0), due(3), due(60)], [after(300), after(4_000), after(62_000)]);
}

#[test]
fn a_pull_in_progress_is_no_failure() {
    let mut s = Case::new().read();
    s.answers.take(0, answered(99, Err(Error::in_progress("pulling image a"))), |answers, answered| {
        answers.ensure = Some(answered);
    });
    let pulls = plan(&s);
    assert_eq!((pulls.why.reason.code(), s.answers.failures), ("ContainerStarting", 0));
    assert_eq!(pulls.wait, machinist_core::Wait::Until(at(101)), "the engine is asked again soon");
    s.now = at(101);
    assert_eq!(plan(&s).actions.iter().map(ToString::to_string).collect::<Vec<_>>(), ["ensure c-w"]);
}

/// Returns the reason of a condition that the plan for a snapshot writes.
fn reason_of(s: &Snapshot, type_: &str) -> String {
    let status = plan(s).actions.into_iter().find_map(|action| match action {
        Action::SetStatus(status) => Some(status),
        _ => None,
    });
    let conditions = status.map(|status| status.conditions).unwrap_or_default();
    conditions
        .into_iter()
        .find(|condition| condition.type_ == type_)
        .map(|condition| condition.reason)
        .unwrap_or_default()
}

#[test]
fn a_closed_engine_differs_from_a_slow_one() {
    let refused = |error: Error| {
        let mut s = Case::new().read();
        s.answers.ensure = Some(answered(99, Err(error)));
        reason_of(&s, "ContainerProvisioned")
    };
    assert_eq!(refused(Error::closed("no engine answers")), "EngineClosed");
    assert_eq!(refused(Error::new(ErrorKind::Unavailable, "no answer in time")), "NotProvisioned");
}

#[test]
fn a_closed_engine_makes_the_state_unknown() {
    let seen = |failures: u32| {
        let mut s = recorded().read();
        s.answers.failures = failures;
        let by = InstanceRef { id: Some(instance().id), ..InstanceRef::default() };
        s.answers.take_found(Found { by, answered: answered(99, Err(Error::closed("no engine answers"))) });
        reason_of(&s, "ContainerProvisioned")
    };
    assert_eq!(seen(1), "", "the engine may only be restarted");
    assert_eq!(seen(2), "EngineClosed");
}

/// The reason of the condition about the Node.
fn node_reason(failures: u32, answer: Result<NodeCompletion, Error>, shown: Value) -> String {
    let mut case = recorded();
    case.owner.as_mut().expect("an owner")["status"] = json!({"nodeRef": {"name": "c-w"}});
    case.machine["spec"]["bootstrapped"] = json!(true);
    case.machine["status"] = json!({"conditions": shown});
    let mut s = case.read();
    shown_at(&mut s, 99);
    s.steps.failures = failures;
    s.steps.node = Some(answered(99, answer));
    reason_of(&s, "NodeInitialized")
}

#[test]
fn a_problem_with_the_node_is_a_condition() {
    let unreachable = || Err(Error::new(ErrorKind::Ambiguous, "timed out"));
    assert_eq!(node_reason(2, unreachable(), json!([])), "", "the API server may only be starting");
    assert_eq!(node_reason(3, unreachable(), json!([])), "WorkloadClusterUnreachable");
    let other = || Ok(NodeCompletion::OtherId("kind://a".to_owned()));
    assert_eq!(node_reason(0, other(), json!([])), "NodeProviderIDMismatch");
    assert_eq!(node_reason(0, Ok(NodeCompletion::Complete), json!([])), "", "no write without a problem");
    let earlier = json!([{
        "type": "NodeInitialized", "status": "False", "reason": "WorkloadClusterUnreachable",
        "message": "", "lastTransitionTime": "2027-01-15T08:00:00Z",
    }]);
    assert_eq!(node_reason(0, Ok(NodeCompletion::Complete), earlier), "Initialized");
}

#[test]
fn a_complete_node_is_looked_at_again() {
    let mut case = recorded();
    case.owner.as_mut().expect("an owner")["status"] = json!({"nodeRef": {"name": "c-w"}});
    case.machine["spec"]["bootstrapped"] = json!(true);
    let looks = |second: i64| {
        let mut s = case.read();
        s.now = at(second);
        shown_at(&mut s, second);
        s.steps.node = Some(answered(99, Ok(NodeCompletion::Complete)));
        plan(&s).actions.iter().any(|action| matches!(action, Action::CompleteNode { .. }))
    };
    assert_eq!((looks(698), looks(699)), (false, true), "a deleted Node registers again without its id");
}

#[test]
fn the_creation_of_a_container_writes_no_status_at_first() {
    let case = Case::new();
    assert_eq!(case.reports("ContainerProvisioned"), "");
    let mut s = case.read();
    s.answers.in_flight = Some((Call::ENSURE, at(40)));
    let written = |s: &Snapshot| plan(s).actions.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(written(&s), ["status: NotReady"], "the creation lasts");
    s.answers.in_flight = Some((Call::ENSURE, at(41)));
    assert!(written(&s).is_empty());
}

#[test]
fn a_step_of_the_bootstrap_is_written_only_if_it_lasts() {
    let written = |seconds: i64| {
        let mut case = recorded();
        case.machine["status"] = json!({"initialization": {"provisioned": true}, "ready": true});
        let mut s = case.read();
        shown_at(&mut s, 100 + seconds);
        let running =
            || BootstrapStatus { state: BootstrapState::Running { step: 3, steps: 17 }, ignored: Vec::new() };
        s.steps.take_progress(answered(100, Ok(running())));
        s.steps.take_progress(answered(100 + seconds, Ok(running())));
        s.now = at(100 + seconds);
        let plan = plan(&s);
        let Some(Action::SetStatus(status)) = plan.actions.into_iter().next() else { panic!("a status") };
        let mut conditions = status.conditions.into_iter();
        conditions.find(|condition| condition.type_ == "BootstrapCompleted").expect("a condition").message
    };
    assert_eq!(written(9), "");
    assert!(written(10).contains("3 of 17"), "{}", written(10));
}

/// The last look shows the container at that second.
fn shown_at(s: &mut Snapshot, second: i64) {
    let by = InstanceRef { id: Some(instance().id), ..InstanceRef::default() };
    s.answers.take_found(Found { by, answered: answered(second, Ok(Sighting::Present(instance()))) });
}

fn state(state: BootstrapState) -> Option<Answered<BootstrapStatus>> {
    Some(answered(99, Ok(BootstrapStatus { state, ignored: Vec::new() })))
}

#[test]
fn the_bootstrap_starts_once_and_is_observed() {
    let mut case = recorded();
    assert_eq!(
        case.outcome().1,
        ["observe the bootstrap of docker:////c-w"],
        "the success file is looked for before anything runs"
    );
    case.snapshot = |s| {
        shown(s);
        s.steps.progress = state(BootstrapState::NotStarted);
    };
    assert_eq!(case.outcome().1, ["bootstrap docker:////c-w from Secret s"], "no bootstrap is recorded");
    assert_eq!(
        case.reports("BootstrapCompleted"),
        "NotCompleted",
        "the condition is written before the bootstrap starts"
    );
    case.snapshot = |s| {
        shown(s);
        s.steps.progress = state(BootstrapState::NotStarted);
        s.steps.start = Some(answered(99, Ok(())));
    };
    let looks = ["observe the bootstrap of docker:////c-w"];
    assert_eq!(case.outcome().1, looks, "an accepted start is observed, not repeated");
    case.snapshot = |s| {
        shown(s);
        s.steps.progress = state(BootstrapState::Failed(BootstrapFailure {
            cause: BootstrapCause::SuccessFileMissing,
            kubeadm_started: true,
            stdout: String::new(),
            stderr: String::new(),
        }));
    };
    assert_eq!(case.outcome(), ("BootstrapFailed".to_owned(), Vec::new()), "a failure is reported");
    assert_eq!(
        case.reports("BootstrapCompleted"),
        "SentinelMissing",
        "the success file decides, not the exit code"
    );
    case.snapshot = |s| {
        shown(s);
        s.steps.progress = state(BootstrapState::Succeeded);
    };
    assert_eq!(case.outcome().1, ["record: bootstrapped"], "the end of the bootstrap is recorded");
    case.machine["spec"]["bootstrapped"] = json!(true);
    assert_eq!(case.reports("Ready"), "Ready");
    assert_eq!(
        case.outcome().1,
        ["complete Node c-w of Cluster c: docker:////c-w"],
        "then the Node gets its provider id"
    );
}

#[test]
fn a_machine_with_a_node_is_not_bootstrapped() {
    let mut case = recorded();
    case.owner.as_mut().expect("an owner")["status"] = json!({"nodeRef": {"name": "c-w"}});
    assert_eq!(case.outcome().1, ["record: bootstrapped"]);
    case.machine["spec"]["bootstrapped"] = json!(true);
    assert_eq!(
        case.outcome().1,
        ["complete Node c-w of Cluster c: docker:////c-w"],
        "a machine with a Node was bootstrapped"
    );
}

#[test]
fn a_control_plane_starts_behind_its_load_balancer() {
    let mut case = recorded();
    case.owner.as_mut().expect("an owner")["metadata"]["labels"] =
        json!({"cluster.x-k8s.io/control-plane": ""});
    case.snapshot = |s| {
        shown(s);
        s.steps.progress = state(BootstrapState::NotStarted);
    };
    assert_eq!(
        case.outcome(),
        ("LoadBalancerPending".to_owned(), Vec::new()),
        "the load balancer forwards to the machine first"
    );
    case.infrastructure.as_mut().expect("a DockerCluster")["status"] =
        json!({"loadBalancer": {"backends": ["c-w"]}});
    assert_eq!(case.outcome().1, ["bootstrap docker:////c-w from Secret s"]);
}

fn deleting() -> Case {
    let mut case = recorded();
    case.machine["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:01:00Z");
    case
}

#[test]
fn the_finalizer_is_removed_after_the_container() {
    let mut case = deleting();
    case.snapshot = |_| {};
    let (_, actions) = case.outcome();
    assert!(actions[0].starts_with("delete docker:////c-w"), "{actions:?}");
    case.snapshot = |s| {
        let error = Error::new(ErrorKind::Unavailable, "busy");
        s.answers.delete = deleted(answered(99, Err(error)));
    };
    assert_eq!(case.outcome().0, "CallFailed", "a failed deletion keeps the finalizer");
    case.snapshot = |s| s.answers.delete = deleted(answered(98, Ok(())));
    assert_eq!(case.outcome().1, ["find docker:////c-w"]);
    case.snapshot = |s| {
        s.answers.delete = deleted(answered(98, Ok(())));
        let by = InstanceRef { id: Some(instance().id), native_id: s.native_id(), ..InstanceRef::default() };
        s.answers.take_found(Found { by, answered: answered(99, Ok(Sighting::Absent)) });
    };
    assert_eq!(case.outcome().1, ["remove the finalizer"], "the finalizer is removed last");
}

#[test]
fn a_deletion_waits_for_a_call_beyond_its_bound() {
    let mut s = deleting().read();
    let mut waits = |asked: i64| {
        s.answers.in_flight = Some((Call::FIND, at(asked)));
        plan(&s).wait
    };
    assert_eq!(waits(90), machinist_core::Wait::Until(at(120)), "30 s after its start");
    // A wait that has ended would let the object be decided about again and again.
    assert_eq!(
        waits(60),
        machinist_core::Wait::Until(at(110)),
        "it has waited for its slot, or the clock stepped"
    );
}

#[test]
fn the_load_balancer_gets_its_time_after_a_pause() {
    let mut case = deleting();
    case.infrastructure.as_mut().expect("a DockerCluster")["status"] =
        json!({"loadBalancer": {"backends": ["c-w"]}});
    assert!(case.outcome().1[0].starts_with("delete docker:////c-w"), "30 s passed");
    case.snapshot = |s| s.gaps.add(at(70), at(95));
    let plan = case.plan();
    assert_eq!(plan.why.reason.code(), "Awaiting");
    assert_eq!(plan.wait, machinist_core::Wait::Until(at(115)), "no process acted for 25 s");
    case.snapshot = |s| s.gaps = Unseen::known_from(at(99));
    assert_eq!(case.plan().wait, machinist_core::Wait::Until(at(99 + 120)), "there is no Lease");
}

#[test]
fn a_failed_deletion_is_a_problem_in_the_status() {
    let mut case = deleting();
    case.snapshot = |s| {
        let error = Error::new(ErrorKind::Denied, "container c-w was not created by this driver");
        s.answers.delete = deleted(answered(99, Err(error)));
    };
    let plan = case.plan();
    let Some(Action::SetStatus(status)) = plan.actions.first() else { panic!("{:?}", plan.actions) };
    let problems = crate::capi::conditions::new_problems(None, status.deprecated.as_ref());
    assert_eq!((problems.len(), problems[0].reason), (1, "DeletionFailed"));
    assert_eq!(problems[0].message, "container c-w was not created by this driver");
}

impl Case {
    /// Carries out the write of the status, and returns the problems that become Events.
    fn problems(&mut self) -> Vec<String> {
        let snapshot = self.read();
        let plan = plan(&snapshot);
        let Some(Action::SetStatus(new)) = plan.actions.first() else { return Vec::new() };
        let old = snapshot.machine.status.as_ref().and_then(|status| status.deprecated.as_ref());
        let new_problems = crate::capi::conditions::new_problems(old, new.deprecated.as_ref());
        let problems = new_problems.iter().map(|trouble| trouble.reason.to_owned()).collect();
        self.machine["status"] = serde_json::to_value(new).expect("a status");
        problems
    }
}

#[test]
fn each_failed_attempt_is_the_same_problem() {
    let mut case = Case::new();
    let fails = |s: &mut Snapshot| {
        s.answers.failures = 1;
        s.answers.ensure = Some(answered(99, Err(Error::new(ErrorKind::Unavailable, "image i: no answer"))));
    };
    let pulls = |s: &mut Snapshot| {
        s.answers.failures = 1;
        s.answers.ensure = Some(answered(99, Err(Error::in_progress("the engine pulls image i"))));
    };
    let none: &[&str] = &[];
    for (attempt, snapshot, expected) in [
        ("first", pulls as fn(&mut Snapshot), none),
        ("first", fails, &["ContainerProvisioningFailed"]),
        ("second", pulls, none),
        ("second", fails, none),
    ] {
        case.snapshot = snapshot;
        assert_eq!(case.problems(), expected, "{attempt} attempt");
    }
}

#[test]
fn an_error_before_the_deletion_is_no_failed_deletion() {
    fn look_failed(s: &mut Snapshot, second: i64) {
        let by = InstanceRef { id: Some(instance().id), native_id: s.native_id(), ..InstanceRef::default() };
        let answer = Err(Error::new(ErrorKind::Unavailable, "the engine restarts"));
        s.answers.take_found(Found { by, answered: answered(second, answer) });
    }
    let mut case = deleting();
    case.snapshot = |s| look_failed(s, 50);
    assert_eq!(case.problems(), [""; 0], "the machine was still wanted");
    case.snapshot = |s| {
        s.answers.delete = deleted(answered(98, Ok(())));
        s.answers.failures = 1;
        look_failed(s, 99);
    };
    assert_eq!(case.problems(), [""; 0], "one failed look after the deletion");
    case.snapshot = |s| {
        s.answers.delete = deleted(answered(99, Err(Error::new(ErrorKind::Denied, "not ours"))));
        s.answers.failures = 1;
    };
    assert_eq!(case.problems(), ["DeletionFailed"]);
    case.snapshot = |s| {
        s.answers.delete = deleted(answered(98, Err(Error::new(ErrorKind::Denied, "not ours"))));
        let by = InstanceRef { id: Some(instance().id), native_id: s.native_id(), ..InstanceRef::default() };
        s.answers.take_found(Found { by, answered: answered(99, Ok(Sighting::Present(instance()))) });
    };
    assert_eq!(case.problems(), [""; 0], "the look after a refused deletion is not news");
    case.snapshot = |_| {};
    assert_eq!(case.problems(), [""; 0]);
    let status = case.machine["status"].to_string();
    assert!(status.contains("DeletionFailed"), "a restarted process keeps it until an answer: {status}");
}

#[test]
fn one_restart_of_a_container_is_no_failure() {
    let mut case = recorded();
    // The machine has waited for a long time before.
    case.machine["status"] = json!({"conditions": [{
        "type": "ContainerProvisioned", "status": "False", "reason": "WaitingForBootstrapData", "message": "",
        "lastTransitionTime": "2027-01-15T08:00:00Z",
    }]});
    fn restarting(s: &mut Snapshot, looks: &[i64]) {
        for look in looks {
            let by = InstanceRef { native_id: s.native_id(), ..InstanceRef::default() };
            let shown = Instance { power: Power::Changing, ..instance() };
            s.answers.take_found(Found { by, answered: answered(*look, Ok(Sighting::Present(shown))) });
            s.now = at(look + 1);
        }
    }
    case.snapshot = |s| restarting(s, &[99]);
    assert_eq!(case.problems(), [""; 0], "it may run a moment later");
    case.snapshot = |s| restarting(s, &[99, 104]);
    assert_eq!(case.problems(), [""; 0]);
    case.snapshot = |s| restarting(s, &[99, 104, 110]);
    assert_eq!(case.problems(), ["ContainerProvisioningFailed"]);
    case.snapshot = |s| restarting(s, &[99, 104, 110, 112]);
    assert_eq!(case.problems(), [""; 0], "the problem lasts");
}

#[test]
fn a_deletion_needs_no_other_object() {
    let mut case = deleting();
    (case.owner, case.cluster, case.infrastructure) = (None, None, None);
    case.snapshot = |_| {};
    assert!(
        case.outcome().1[0].starts_with("delete docker:////c-w"),
        "Machine, Cluster and DockerCluster do not exist"
    );
    case.machine["metadata"]["ownerReferences"] = json!([]);
    assert!(
        case.outcome().1[0].starts_with("delete docker:////c-w"),
        "without an owner reference the container is deleted, too"
    );
}

#[test]
fn a_deletion_on_another_engine_waits() {
    let mut case = deleting();
    case.snapshot = |s| s.engine = Some(AccountId::of([b"b".as_slice()]));
    assert_eq!(case.outcome(), ("OtherEngine".to_owned(), Vec::new()));
    case.machine["metadata"]["annotations"]["machinist.dev/abandon-containers"] = json!("true");
    assert_eq!(case.outcome().1, ["remove the finalizer"]);
}

#[test]
fn the_container_of_a_copied_object_is_not_deleted() {
    let mut case = deleting();
    case.snapshot = |s| s.key_holder = Some("default/b".to_owned());
    assert_eq!(case.outcome(), ("KeyTaken".to_owned(), Vec::new()), "it may be of the other object");
    case.annotations().insert("machinist.dev/abandon-containers".to_owned(), json!("true"));
    assert_eq!(case.outcome().1, ["remove the finalizer"]);
}

/// The container of an answer, with the key of this object or of another one.
fn shown_with_key(s: &mut Snapshot, key: &str) {
    s.container_holder = Some("default/b".to_owned());
    let by = InstanceRef { id: Some(instance().id), native_id: s.native_id(), ..InstanceRef::default() };
    let shown = Instance { key: Some(machinist_instance::InstanceKey::new(key)), ..instance() };
    s.answers.take_found(Found { by, answered: answered(99, Ok(Sighting::Present(shown))) });
}

#[test]
fn our_key_counts_although_another_object_records_the_id() {
    let mut case = recorded();
    case.snapshot = |s| shown_with_key(s, "u1");
    assert_eq!(case.outcome().1, ["observe the bootstrap of docker:////c-w"]);
    case.snapshot = |s| shown_with_key(s, "u9");
    assert_eq!(case.outcome(), ("KeyTaken".to_owned(), Vec::new()));
    assert_eq!(case.reports("ContainerProvisioned"), "KeyTaken");
    let mut case = deleting();
    case.snapshot = |s| shown_with_key(s, "u1");
    assert!(case.outcome().1[0].starts_with("delete docker:////c-w"), "{:?}", case.outcome());
    case.snapshot = |s| s.container_holder = Some("default/b".to_owned());
    assert_eq!(case.outcome().1, ["find docker:////c-w"], "its key is not known yet");
    case.snapshot = |s| shown_with_key(s, "u9");
    assert_eq!(case.outcome(), ("KeyTaken".to_owned(), Vec::new()));
    assert_eq!(case.reports("ContainerProvisioned"), "KeyTaken");
}

#[test]
fn the_id_in_an_answer_is_no_recorded_id() {
    let case = recorded();
    let mut s = case.read();
    assert_eq!(s.which_is(&instance()).native_id, NativeId::new("id-1"));
    let mut bare = recorded();
    bare.annotations().remove("machinist.dev/container-id");
    s = bare.read();
    assert_eq!(s.which_is(&instance()).native_id, NativeId::new("id-1"), "the container has our key");
    for key in [None, Some(machinist_instance::InstanceKey::new("u9"))] {
        let theirs = Instance { key, ..instance() };
        assert_eq!(s.which_is(&theirs).native_id, None);
    }
    assert_eq!(s.which_is(&instance()).cluster.as_deref(), Some("c"));
}

/// Another object of a Cluster with the same name has created a container with the same name.
fn container_of_another_object(s: &mut Snapshot) {
    let foreign = Foreign {
        id: instance().id,
        key: Some(machinist_instance::InstanceKey::new("u9")),
        cluster: Some("c".to_owned()),
        created: instance().created,
    };
    s.answers.delete = deleted(answered(97, Err(Error::new(ErrorKind::Denied, "another key"))));
    let by = InstanceRef { id: Some(instance().id), native_id: s.native_id(), ..InstanceRef::default() };
    s.answers.take_found(Found { by, answered: answered(99, Ok(Sighting::Foreign(foreign))) });
}

/// Another provider created a container of this name, and recorded nothing at the object.
fn container_of_another_provider(s: &mut Snapshot) {
    let foreign = Foreign { id: instance().id, key: None, cluster: None, created: instance().created };
    let by = InstanceRef { name: machinist_instance::NodeName::new("c-w"), ..InstanceRef::default() };
    s.answers.take_found(Found { by, answered: answered(99, Ok(Sighting::Foreign(foreign))) });
}

#[test]
fn a_container_of_another_provider_is_not_left_behind() {
    let mut case = deleting();
    case.machine["spec"] = json!({});
    let recorded = case.annotations().remove("machinist.dev/container-id").expect("a recorded container");
    case.snapshot = container_of_another_provider;
    assert_eq!(case.outcome(), ("ContainerUnrecorded".to_owned(), Vec::new()), "a user decides");
    case.annotations().insert("machinist.dev/container-id".to_owned(), recorded);
    assert_eq!(case.outcome().1, ["find c-w"], "the lookup was made before the id was recorded");
    case.snapshot = |s| {
        let by = InstanceRef { native_id: s.native_id(), ..InstanceRef::default() };
        let recorded = Instance { key: None, created: at(-9_000), native_id: s.native_id(), ..instance() };
        s.answers.take_found(Found { by, answered: answered(99, Ok(Sighting::Present(recorded))) });
    };
    assert_eq!(case.outcome().1, ["record docker:////c-w"], "it is older than the object, and recorded");
}

#[test]
fn a_container_of_another_object_is_never_deleted() {
    let mut case = deleting();
    case.snapshot = container_of_another_object;
    assert_eq!(case.outcome().1, ["remove the finalizer"], "the recorded container is absent");
    case.annotations().remove("machinist.dev/container-id");
    assert_eq!(case.outcome(), ("ContainerNotOurs".to_owned(), Vec::new()), "no container is recorded");
}

#[test]
fn an_unrecorded_container_is_looked_up_first() {
    let mut case = deleting();
    case.machine["spec"] = json!({});
    case.annotations().remove("machinist.dev/container-id");
    case.snapshot = |_| {};
    assert_eq!(case.outcome().1, ["find c-w"]);
}

#[test]
fn a_restored_object_is_released_only_after_a_look() {
    let mut case = deleting();
    case.machine["spec"] = json!({});
    case.machine["metadata"]["creationTimestamp"] = json!("2027-01-15T08:00:50Z");
    case.snapshot = |_| {};
    assert_eq!(case.outcome().1, ["find c-w"], "a container is recorded");
    case.annotations().remove("machinist.dev/container-id");
    assert_eq!(case.outcome().1, ["remove the finalizer"], "nothing was ever requested");
    case.annotations().insert("machinist.dev/key".to_owned(), json!("default/c-w/u0"));
    assert_eq!(case.outcome().1, ["find c-w"], "the key is older than the object");
}

#[test]
fn names_follow_the_cluster() {
    assert_eq!(container_name("c", "c-w"), "c-w");
    assert_eq!(container_name("c", "worker"), "c-worker");
}

/// An object that never had a container.
fn without_container() -> Case {
    let mut case = deleting();
    case.machine["spec"] = json!({});
    case.annotations().remove("machinist.dev/container-id");
    case.snapshot = |_| {};
    case
}

#[test]
fn an_object_whose_birth_was_seen_is_deleted_at_once() {
    let mut case = without_container();
    case.machine["metadata"]["creationTimestamp"] = json!("2027-01-15T08:00:30Z");
    assert_eq!(case.outcome().1, ["remove the finalizer"], "no call was sent");
    case.snapshot = |s| s.answers.ever_ensured = true;
    assert!(case.outcome().1[0].starts_with("find "), "{:?}", case.outcome());
}

#[test]
fn the_wait_for_earlier_calls_is_recorded_once() {
    fn absent(s: &mut Snapshot) {
        let by = InstanceRef { native_id: s.native_id(), ..InstanceRef::default() };
        s.answers.take_found(Found { by, answered: answered(99, Ok(Sighting::Absent)) });
        s.process.started = at(90);
    }
    let mut case = without_container();
    case.snapshot = absent;
    assert_eq!(
        case.outcome(),
        ("AbsenceNotProven".to_owned(), vec!["record the wait for earlier calls".to_owned()])
    );
    let since = format!("default/c-w/{}", at(90));
    case.annotations().insert("machinist.dev/earlier-calls-since".to_owned(), json!(since));
    assert_eq!(case.outcome().1, [""; 0]);
    case.machine["metadata"]["deletionTimestamp"] = json!("2027-01-15T07:50:00Z");
    let since = format!("default/c-w/{}", at(-100));
    case.annotations().insert("machinist.dev/earlier-calls-since".to_owned(), json!(since));
    assert_eq!(case.outcome().1, ["remove the finalizer"], "an earlier process has waited");
}

/// An image that ends at once.
#[test]
fn a_container_that_restarts_says_why() {
    fn restarts(s: &mut Snapshot, boot: Option<machinist_instance::BootTrouble>) {
        let by = InstanceRef { native_id: s.native_id(), ..InstanceRef::default() };
        let shown = Instance { power: Power::Changing, ..instance() };
        s.answers.take_found(Found { by, answered: answered(99, Ok(Sighting::Present(shown))) });
        s.steps.boot = boot.map(|trouble| answered(99, Ok(Boot::Trouble(trouble))));
    }
    fn trouble() -> machinist_instance::BootTrouble {
        machinist_instance::BootTrouble {
            cause: "container c-w restarts again and again; its first process exits with code 7".to_owned(),
            output: vec!["no init".to_owned()],
            see: "docker logs c-w".to_owned(),
            is_final: true,
        }
    }
    let mut case = recorded();
    case.snapshot = |s| restarts(s, None);
    assert_eq!(case.outcome().1, ["observe why docker:////c-w does not run"]);
    case.snapshot = |s| restarts(s, Some(trouble()));
    let message = case.plan().why.reason.to_string();
    for part in ["exits with code 7", "no init", "docker logs c-w"] {
        assert!(message.contains(part), "expected {part:?} in {message}");
    }
    assert_eq!(case.problems(), ["ContainerProvisioningFailed"], "at once");
    case.snapshot =
        |s| restarts(s, Some(machinist_instance::BootTrouble { output: Vec::new(), ..trouble() }));
    assert_eq!(case.problems(), [""; 0], "another output is not news");
    assert!(case.plan().actions.iter().all(|action| !matches!(action, Action::SetStatus(_))));
}
