//! Single rules about a machine, most of them from Cluster API's tutorial.

use machinist_api::capi::ConditionV1;
use machinist_instance::{Address, AddressKind};

use super::*;

impl Case {
    /// Returns the status that the plan writes.
    fn status(&self) -> Option<DockerMachineStatus> {
        self.plan().actions.into_iter().find_map(|action| match action {
            Action::SetStatus(status) => Some(*status),
            _ => None,
        })
    }

    /// Returns a condition of the contract v1beta1 that the plan writes.
    fn v1(&self, type_: &str) -> ConditionV1 {
        let deprecated = self.status().and_then(|status| status.deprecated?.v1_beta1);
        let found =
            deprecated.into_iter().flat_map(|v1| v1.conditions).find(|condition| condition.type_ == type_);
        found.unwrap_or_else(|| panic!("no condition {type_} of v1beta1"))
    }

    /// Returns the reason and the severity of a condition of the contract v1beta1.
    fn v1_reason(&self, type_: &str) -> (String, String) {
        let found = self.v1(type_);
        (found.reason.unwrap_or_default(), found.severity.unwrap_or_default())
    }

    fn owner(&mut self) -> &mut Value {
        self.owner.as_mut().expect("an owner")
    }

    fn is_control_plane(&mut self) {
        self.owner()["metadata"]["labels"] = json!({"cluster.x-k8s.io/control-plane": ""});
    }
}

fn provider_spec(case: &Case) -> Value {
    let ensured = case.plan().actions.into_iter().find_map(|action| match action {
        Action::Ensure(spec) => Some(spec.provider_spec),
        _ => None,
    });
    ensured.expect("the container is requested")
}

/// A container has no mounts, unless its DockerMachine names them.
#[test]
fn a_container_has_image_role_and_failure_domain() {
    let mut case = Case::new();
    let worker = json!({"image": "kindest/node:v1.33.0", "role": "worker", "cluster": "c"});
    assert_eq!(provider_spec(&case), worker);
    case.is_control_plane();
    case.owner()["spec"]["failureDomain"] = json!("fd2");
    case.machine["spec"]["customImage"] = json!("example.com/node:1");
    let expected = json!({
        "image": "example.com/node:1", "role": "control-plane", "cluster": "c", "failureDomain": "fd2",
    });
    assert_eq!(provider_spec(&case), expected);
}

#[test]
fn the_missing_label_is_named() {
    let mut case = Case::new();
    case.cluster = None;
    let text = format!("{:?}", case.plan().why.next);
    assert!(text.contains("cluster.x-k8s.io/cluster-name"), "{text}");
}

/// A deletion waits for the end of the pause, as a creation does.
#[test]
fn a_paused_deletion_waits_too() {
    let mut case = deleting();
    case.snapshot = |_| {};
    assert!(case.outcome().1[0].starts_with("delete "), "without a pause the container is deleted");
    for pause in [
        (|case: &mut Case| case.cluster.as_mut().expect("a Cluster")["spec"]["paused"] = json!(true))
            as fn(&mut Case),
        |case| case.annotations().extend([("cluster.x-k8s.io/paused".to_owned(), json!(""))]),
    ] {
        let mut case = deleting();
        case.snapshot = |_| {};
        pause(&mut case);
        assert_eq!(case.outcome(), ("Paused".to_owned(), Vec::new()));
        assert_eq!(case.reports("Paused"), "Paused");
    }
}

/// Each wait has a condition in both versions of the contract.
#[test]
fn each_wait_has_a_condition_of_severity_info() {
    for (change, reason, v1) in [
        (
            (|case| case.cluster.as_mut().expect("a Cluster")["status"] = json!({})) as fn(&mut Case),
            "WaitingForClusterInfrastructureReady",
            "WaitingForClusterInfrastructure",
        ),
        (
            |case| {
                case.owner()["spec"]["bootstrap"] = json!({});
                case.cluster.as_mut().expect("a Cluster")["status"] =
                    json!({"initialization": {"infrastructureProvisioned": true}});
            },
            "WaitingForControlPlaneInitialized",
            "WaitingForControlPlaneAvailable",
        ),
        (
            |case| case.owner()["spec"]["bootstrap"] = json!({}),
            "WaitingForBootstrapData",
            "WaitingForBootstrapData",
        ),
    ] {
        let mut case = Case::new();
        change(&mut case);
        assert_eq!(case.reports("ContainerProvisioned"), reason);
        let info = |reason: &str| (reason.to_owned(), "Info".to_owned());
        assert_eq!(case.v1_reason("ContainerProvisioned"), info(v1));
        assert_eq!(case.v1_reason("Ready"), info(v1));
    }
}

/// The summary of the contract v1beta1 counts the steps until the provider id is recorded.
#[test]
fn the_old_summary_counts_steps_until_the_id() {
    // A state is written only if it lasts.
    let mut case = Case::new();
    case.snapshot = |s| s.answers.in_flight = Some((Call::ENSURE, at(40)));
    assert_eq!(case.v1("Ready").message.as_deref(), Some("0 of 2 completed"));
    case.annotations().insert("machinist.dev/container-id".to_owned(), json!("default/c-w/id-1"));
    case.snapshot = |s| {
        shown(s);
        for second in [80, 99] {
            let booting = Ok(Readiness::Booting("systemd".to_owned()));
            s.steps.take_readiness(answered(second, booting));
        }
    };
    assert_eq!(case.v1("Ready").message.as_deref(), Some("1 of 2 completed"));
    let mut case = recorded();
    case.snapshot = |s| {
        shown(s);
        for second in [80, 99] {
            let running = BootstrapState::Running { step: 3, steps: 17 };
            s.steps
                .take_progress(answered(second, Ok(BootstrapStatus { state: running, ignored: Vec::new() })));
        }
    };
    let message = case.v1("Ready").message.unwrap_or_default();
    assert!(message.contains("3 of 17"), "{message}");
}

/// The contract v1beta1 has the flag. A worker has none.
#[test]
fn the_old_flag_follows_the_load_balancer() {
    let flag = |case: &Case| case.status().expect("a status").load_balancer_configured;
    let mut case = recorded();
    assert_eq!(flag(&case), None, "a worker");
    case.is_control_plane();
    assert_eq!(flag(&case), Some(false));
    case.infrastructure.as_mut().expect("a DockerCluster")["status"] =
        json!({"loadBalancer": {"backends": ["c-w"]}});
    assert_eq!(flag(&case), Some(true));
}

/// A bootstrap that the object records is not repeated, even by another provider.
#[test]
fn a_recorded_bootstrap_is_not_repeated() {
    let condition = |type_: &str| json!({"conditions": [{"type": type_, "status": "True", "reason": "x"}]});
    for (spec, status, action) in [
        (json!({"bootstrapped": true}), json!({}), "complete Node c-w of Cluster c: docker:////c-w"),
        (json!({}), condition("BootstrapCompleted"), "record: bootstrapped"),
        (json!({}), condition("BootstrapExecSucceeded"), "record: bootstrapped"),
        (json!({}), condition("ContainerProvisioned"), "observe the bootstrap of docker:////c-w"),
    ] {
        let mut case = recorded();
        case.machine["spec"] = spec;
        case.machine["spec"]["providerID"] = json!("docker:////c-w");
        case.machine["status"] = status;
        assert_eq!(case.outcome().1, [action]);
    }
}

/// The bootstrap has the timeout of its machine, or else the timeout of the provider.
#[test]
fn a_bootstrap_has_the_timeout_of_its_machine() {
    for (text, seconds) in [(json!(null), 300), (json!("90s"), 90), (json!("0s"), 300)] {
        let mut case = recorded();
        case.machine["spec"]["bootstrapTimeout"] = text;
        case.snapshot = |s| {
            shown(s);
            s.steps.progress = state(BootstrapState::NotStarted);
        };
        let started = case.plan().actions.into_iter().find_map(|action| match action {
            Action::StartBootstrap { timeout, .. } => Some(timeout.as_secs()),
            _ => None,
        });
        assert_eq!(started, Some(seconds));
    }
}

/// Bootstrap data that cannot be used has its own reason.
#[test]
fn unusable_bootstrap_data_is_reported() {
    for (kind, reason) in
        [(ErrorKind::InvalidSpec, "InvalidBootstrapData"), (ErrorKind::Unavailable, "NotCompleted")]
    {
        let mut case = recorded();
        case.snapshot = match kind {
            ErrorKind::InvalidSpec => |s| refused(s, ErrorKind::InvalidSpec),
            _ => |s| refused(s, ErrorKind::Unavailable),
        };
        assert_eq!(case.outcome().0, "CallFailed");
        assert_eq!(case.reports("BootstrapCompleted"), reason);
        let warning = ("BootstrapFailed".to_owned(), "Warning".to_owned());
        assert_eq!(case.v1_reason("BootstrapExecSucceeded"), warning);
    }
}

/// The call that starts the bootstrap has failed just now.
fn refused(s: &mut Snapshot, kind: ErrorKind) {
    shown(s);
    s.steps.progress = state(BootstrapState::NotStarted);
    s.steps.start = Some(answered(99, Err(Error::new(kind, "Secret s: expected the key value"))));
    s.steps.failures = 3;
}

/// The condition has the severity Warning, and names the file that is missing.
#[test]
fn a_missing_success_file_is_named() {
    let mut case = recorded();
    case.snapshot = |s| {
        shown(s);
        s.steps.progress = state(BootstrapState::Failed(BootstrapFailure {
            cause: BootstrapCause::SuccessFileMissing,
            kubeadm_started: true,
            stdout: String::new(),
            stderr: "no etcd".to_owned(),
        }));
    };
    let warning = ("BootstrapFailed".to_owned(), "Warning".to_owned());
    assert_eq!(case.v1_reason("BootstrapExecSucceeded"), warning);
    let message = case.v1("BootstrapExecSucceeded").message.unwrap_or_default();
    assert!(message.contains("/run/cluster-api/bootstrap-success.complete"), "{message}");
    assert!(message.contains("no etcd"), "the output is shown: {message}");
}

/// The addresses are the host name, then each address as an internal and an external one.
#[test]
fn addresses_begin_with_the_host_name() {
    let mut case = recorded();
    case.snapshot = |s| shown_with(s, &["fd00::3", "172.18.0.3", "172.18.0.3", "invalid IP"]);
    let status = case.status().expect("a status");
    let all: Vec<String> =
        status.addresses.iter().map(|address| format!("{} {}", address.type_, address.address)).collect();
    assert_eq!(
        all,
        [
            "Hostname c-w",
            "InternalIP 172.18.0.3",
            "ExternalIP 172.18.0.3",
            "InternalIP fd00::3",
            "ExternalIP fd00::3",
        ]
    );
}

/// A missing address is not an error. The container is looked at again after 5 seconds.
#[test]
fn a_missing_address_is_looked_up_again_soon() {
    let mut case = recorded();
    case.machine["spec"]["bootstrapped"] = json!(true);
    case.machine["status"] = json!({"addresses": [{"type": "Hostname", "address": "c-w"}]});
    let done = |s: &mut Snapshot| s.steps.node = Some(answered(99, Ok(NodeCompletion::Complete)));
    case.snapshot = |s| {
        shown(s);
        s.steps.node = Some(answered(99, Ok(NodeCompletion::Complete)));
    };
    let plan = case.plan();
    assert_eq!((plan.why.reason.code(), plan.wait), ("Settled", machinist_core::Wait::Until(at(104))));
    assert_eq!(case.status().expect("a status").addresses.len(), 1, "known addresses are kept");
    let mut s = case.read();
    done(&mut s);
    s.now = at(104);
    assert_eq!(actions(&plan_of(&s)), ["find docker:////c-w"]);
    let mut with_address = case.read();
    shown_with(&mut with_address, &["172.18.0.3"]);
    done(&mut with_address);
    with_address.now = at(104);
    assert_eq!(actions(&plan_of(&with_address)), Vec::<String>::new());
}

fn plan_of(s: &Snapshot) -> Plan<Action> {
    plan(s)
}

fn actions(plan: &Plan<Action>) -> Vec<String> {
    let actions = plan.actions.iter().filter(|action| !matches!(action, Action::SetStatus(_)));
    actions.map(ToString::to_string).collect()
}

/// A container that does not run is an error for the user, and nothing is done in it.
#[test]
fn a_stopped_container_is_reported() {
    let mut case = recorded();
    case.snapshot = |s| {
        let stopped = Instance { power: Power::Stopped, ..instance() };
        let by = InstanceRef { id: Some(stopped.id.clone()), ..InstanceRef::default() };
        s.answers.take_found(Found { by, answered: answered(99, Ok(Sighting::Present(stopped))) });
    };
    assert_eq!(case.outcome(), ("ContainerStopped".to_owned(), Vec::new()));
    assert_eq!(case.reports("ContainerProvisioned"), "ContainerStopped");
    let status = case.status().expect("a status");
    assert_eq!(status.initialization, None, "the mark is neither set nor removed");
}

/// A Node with another provider id is never changed.
#[test]
fn a_node_with_another_id_is_reported() {
    let mut case = recorded();
    case.machine["spec"]["bootstrapped"] = json!(true);
    case.snapshot = |s| {
        shown(s);
        s.steps.node = Some(answered(99, Ok(NodeCompletion::OtherId("kind://docker/c/c-w".to_owned()))));
    };
    assert_eq!(case.outcome(), ("NodeIdMismatch".to_owned(), Vec::new()));
    case.snapshot = |s| {
        shown(s);
        s.steps.node = Some(answered(99, Ok(NodeCompletion::Missing)));
    };
    let plan = case.plan();
    assert_eq!((plan.why.reason.code(), plan.wait), ("NodeMissing", machinist_core::Wait::Until(at(104))));
}

/// A restart of the engine gave the container another address. etcd cannot bind to its own.
#[test]
fn a_moved_control_plane_is_no_success() {
    let shows = |is_control_plane: bool, address: fn(&mut Snapshot)| {
        let mut case = recorded();
        case.owner()["status"] = json!({"nodeRef": {"name": "c-w"}});
        if is_control_plane {
            case.owner()["metadata"]["labels"] = json!({"cluster.x-k8s.io/control-plane": ""});
        }
        case.machine["spec"]["bootstrapped"] = json!(true);
        case.machine["status"] = json!({"addresses": [
            {"type": "Hostname", "address": "c-w"}, {"type": "InternalIP", "address": "172.18.0.3"},
            {"type": "ExternalIP", "address": "172.18.0.3"},
        ]});
        case.snapshot = address;
        case
    };
    let moved = shows(true, |s| shown_with(s, &["172.18.0.5"]));
    assert_eq!(moved.outcome(), ("ContainerMoved".to_owned(), Vec::new()));
    let plan = moved.plan();
    assert!(matches!(&plan.why.next, Step::Fix(fix) if fix.contains("172.18.0.3")), "{:?}", plan.why);
    assert_eq!(moved.reports("ContainerProvisioned"), "AddressChanged");
    let Some(Action::SetStatus(status)) = plan.actions.first() else { panic!("{:?}", plan.actions) };
    assert_eq!(status.addresses[1].address, "172.18.0.3", "the lost address stays");
    for (is_control_plane, address) in [
        (true, (|s| shown_with(s, &["172.18.0.3"])) as fn(&mut Snapshot)),
        (true, |s| shown_with(s, &["172.18.0.5", "172.18.0.3"])),
        (true, |s| shown_with(s, &[])),
        (false, |s| shown_with(s, &["172.18.0.5"])),
    ] {
        assert_ne!(shows(is_control_plane, address).outcome().0, "ContainerMoved");
    }
}

/// A container of another Docker provider of Cluster API has no key. A user records its id.
#[test]
fn a_container_of_another_provider_is_continued() {
    let mut case = recorded();
    case.annotations().remove("machinist.dev/key");
    case.annotations().remove("machinist.dev/engine");
    let claim = case.plan().actions.into_iter().next();
    assert!(matches!(&claim, Some(Action::Claim(claim)) if claim.key == "default/c-w/u1"), "{claim:?}");
    let mut case = recorded();
    case.owner()["status"] = json!({"nodeRef": {"name": "c-w"}});
    case.snapshot = |s| {
        let theirs = Instance { key: None, cluster: None, ..instance() };
        let by = InstanceRef { id: Some(theirs.id.clone()), ..InstanceRef::default() };
        s.answers.take_found(Found { by, answered: answered(99, Ok(Sighting::Present(theirs))) });
    };
    assert_eq!(case.outcome().1, ["record: bootstrapped"]);
    case.machine["spec"]["bootstrapped"] = json!(true);
    assert_eq!(case.reports("Ready"), "Ready");
}

/// The last look shows the container with these addresses.
fn shown_with(s: &mut Snapshot, addresses: &[&str]) {
    let address = |text: &&str| Address { kind: AddressKind::InternalIP, address: (*text).to_owned() };
    let shown = Instance { addresses: addresses.iter().map(address).collect(), ..instance() };
    let by = InstanceRef { id: Some(shown.id.clone()), ..InstanceRef::default() };
    s.answers.take_found(Found { by, answered: answered(99, Ok(Sighting::Present(shown))) });
}
