//! Rows of the walkthrough about a DockerCluster, by their ids (`C..`, `K..`).

use machinist_api::capi::{Beta2, Cluster};
use machinist_instance::Balancer;
use serde_json::Value;

use super::*;

/// A claimed DockerCluster whose gates are open.
struct Case {
    docker: Value,
    cluster: Option<Value>,
    snapshot: fn(&mut Snapshot),
}

impl Case {
    fn new() -> Self {
        Self {
            docker: json!({
                "metadata": {
                    "name": "c", "namespace": "default", "uid": "u1", "resourceVersion": "1",
                    "finalizers": ["dockercluster.infrastructure.cluster.x-k8s.io"],
                    "annotations": {
                        "machinist.dev/key": "default/c/u1", "machinist.dev/engine": engine().as_str(),
                    },
                    "ownerReferences": [
                        {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "one", "uid": "c"},
                    ],
                },
                "spec": {},
            }),
            cluster: Some(json!({"metadata": {"name": "one", "namespace": "default"}})),
            snapshot: |_| {},
        }
    }

    fn plan(&self) -> Plan<Action> {
        let docker: DockerCluster = serde_json::from_value(self.docker.clone()).expect("a DockerCluster");
        let docker = Arc::new(DockerClusterFacts::parse(&docker));
        let cluster = self.cluster.clone().map(|cluster| {
            let cluster: Cluster<Beta2> = serde_json::from_value(cluster).expect("a Cluster");
            Arc::new(ClusterFacts::parse(&cluster))
        });
        let has_owner = docker.object.owner("Cluster").is_some();
        let mut s = Snapshot {
            now: at(100),
            process: testing::process(0, Duration::from_secs(30), Duration::ZERO),
            cluster: if has_owner { Known::from_store(cluster) } else { Known::Unasked },
            machines: Vec::new(),
            domains_are_listed: true,
            key_holder: None,
            container_holder: None,
            engine: Some(engine()),
            answers: BalancerAnswers::default(),
            docker,
        };
        (self.snapshot)(&mut s);
        plan(&s)
    }

    /// Returns the code of the reason, and the actions without the status.
    fn outcome(&self) -> (String, Vec<String>) {
        let plan = self.plan();
        let actions = plan.actions.iter().filter(|action| !matches!(action, Action::SetStatus(_)));
        (plan.why.reason.code().to_owned(), actions.map(ToString::to_string).collect())
    }

    fn status(&self) -> Option<DockerClusterStatus> {
        self.plan().actions.into_iter().find_map(|action| match action {
            Action::SetStatus(status) => Some(*status),
            _ => None,
        })
    }

    /// Returns the load balancer that the plan requests.
    fn wanted(&self) -> BalancerSpec {
        let ensured = self.plan().actions.into_iter().find_map(|action| match action {
            Action::Ensure { spec, .. } => Some(*spec),
            _ => None,
        });
        ensured.expect("the load balancer is requested")
    }
}

fn engine() -> AccountId {
    AccountId::of([b"docker".as_slice(), b"a"])
}

/// The engine has the load balancer that is wanted without machines.
fn balanced(s: &mut Snapshot) {
    let cluster = s.cluster.present().expect("an owner").clone();
    let balancer = Balancer {
        id: "one-lb".to_owned(),
        native_id: None,
        key: None,
        name: "one-lb".to_owned(),
        ingress: vec![Ingress::Ip { address: [172, 18, 0, 2].into(), is_proxy: true }],
        ports: vec![6443],
        host_ports: [(6443, 32770)].into(),
        targets: Vec::new(),
        room: None,
        created: None,
        is_protected: false,
    };
    let ensured = Ensured::complete(balancer);
    let inputs = fingerprint(&wanted(s, &cluster));
    s.answers.ensure = Some((inputs, answered(99, Ok(Progress::Done(ensured)))));
}

#[test]
fn the_gates_of_a_cluster_wait_without_an_action() {
    for (row, change, code) in [
        (
            "no owner reference",
            (|case| case.docker["metadata"]["ownerReferences"] = json!([])) as fn(&mut Case),
            "OwnerUnset",
        ),
        ("an unknown owner", |case| case.cluster = None, "OwnerMissing"),
        (
            "a paused Cluster",
            |case| case.cluster.as_mut().expect("an owner")["spec"] = json!({"paused": true}),
            "Paused",
        ),
        (
            "a paused DockerCluster",
            |case| case.docker["metadata"]["annotations"] = json!({"cluster.x-k8s.io/paused": "x"}),
            "Paused",
        ),
        (
            "managed by another program",
            |case| case.docker["metadata"]["annotations"] = json!({"cluster.x-k8s.io/managed-by": ""}),
            "ManagedExternally",
        ),
    ] {
        let mut case = Case::new();
        change(&mut case);
        assert_eq!(case.outcome(), (code.to_owned(), Vec::new()), "{row}");
    }
}

/// The annotation was set after the claim. The load balancer stays until a user decides.
#[test]
fn a_claimed_cluster_of_another_program_waits_for_a_user() {
    let mut case = Case::new();
    case.docker["metadata"]["annotations"]["cluster.x-k8s.io/managed-by"] = json!("");
    case.docker["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:01:30Z");
    assert_eq!(case.outcome(), ("ManagedExternally".to_owned(), Vec::new()));
    assert!(matches!(case.plan().why.next, Step::Fix(_)), "{:?}", case.plan().why);
    case.docker["metadata"]["annotations"]["machinist.dev/abandon-containers"] = json!("true");
    assert_eq!(case.outcome().1, ["remove the finalizer"]);
    case.docker["metadata"]["finalizers"] = json!(["example.com/other"]);
    assert_eq!(case.outcome(), ("ManagedExternally".to_owned(), Vec::new()), "the finalizer is not ours");
}

/// The finalizer comes first, together with the key.
#[test]
fn the_intent_comes_before_the_load_balancer() {
    let mut case = Case::new();
    case.docker["metadata"]["finalizers"] = json!([]);
    case.docker["metadata"]["annotations"] = json!({});
    let claim = case.plan().actions.into_iter().next();
    assert!(matches!(&claim, Some(Action::Claim(claim)) if claim.key == "default/c/u1"), "{claim:?}");
    assert_eq!(
        Case::new().outcome().1,
        ["ensure load balancer one-lb:"],
        "then the load balancer is created"
    );
}

/// A registry, a tag or a whole name replaces that part of the default image.
#[test]
fn the_image_of_the_load_balancer_can_be_chosen() {
    let image = |spec: Value| {
        let mut case = Case::new();
        case.docker["spec"] = spec;
        case.wanted().options.get("image").cloned().unwrap_or_default()
    };
    assert_eq!(image(json!({})), "", "the default of the engine");
    let tag = "v20230606-42a2262b";
    assert_eq!(
        image(json!({"loadBalancer": {"imageRepository": "example.com"}})),
        format!("example.com/haproxy:{tag}")
    );
    assert_eq!(image(json!({"loadBalancer": {"imageTag": "v2"}})), "kindest/haproxy:v2");
    assert_eq!(image(json!({"loadbalancerImage": "example.com/lb:1"})), "example.com/lb:1");
}

/// The endpoint is written before the cluster counts as provisioned, because the
/// core controller copies the endpoint only once.
#[test]
fn the_endpoint_comes_before_provisioned() {
    let mut case = Case::new();
    case.snapshot = balanced;
    assert_eq!(case.outcome().1, ["endpoint: 172.18.0.2:6443"], "address and port of the load balancer");
    assert_eq!(
        case.status().and_then(|status| status.initialization),
        None,
        "not provisioned without the endpoint"
    );
    case.docker["spec"]["controlPlaneEndpoint"] = json!({"host": "172.18.0.2", "port": 6443});
    let status = case.status().expect("a status");
    assert_eq!(status.ready, Some(true), "ready with the endpoint");
    assert_eq!(status.initialization.and_then(|initialization| initialization.provisioned), Some(true));
}

/// A user may choose the address. The contract v1beta1 spells an unset port as 0.
#[test]
fn an_address_of_a_user_is_kept() {
    let mut case = Case::new();
    case.snapshot = balanced;
    case.docker["spec"]["controlPlaneEndpoint"] = json!({"host": "api.example.com", "port": 0});
    assert_eq!(case.outcome().1, ["endpoint: api.example.com:6443"]);
    case.docker["spec"]["controlPlaneEndpoint"] = json!({"host": "", "port": 7443});
    assert_eq!(case.outcome().1, ["endpoint: 172.18.0.2:7443"]);
}

/// The load balancer is created again with its address and its port on the host, because both are
/// in kubeconfigs.
#[test]
fn a_new_load_balancer_gets_the_old_address() {
    let mut case = Case::new();
    case.docker["spec"]["controlPlaneEndpoint"] = json!({"host": "172.18.0.2", "port": 6443});
    case.docker["status"] = json!({"loadBalancer": {"hostPort": 32770}});
    let options = case.wanted().options;
    assert_eq!(options["ip"], "172.18.0.2");
    assert_eq!(options["host-port.6443"], "32770");
}

/// A load balancer of another Docker provider of Cluster API has no key. A user records its id.
#[test]
fn a_load_balancer_of_another_provider_is_continued() {
    let mut case = Case::new();
    assert_eq!(case.wanted().native_id, None);
    case.docker["metadata"]["annotations"]["machinist.dev/container-id"] = json!("default/c/id-9");
    assert_eq!(case.wanted().native_id, NativeId::new("id-9"));
    case.docker["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:01:30Z");
    let deleted = case.plan().actions.into_iter().find_map(|action| match action {
        Action::Delete(which) => Some(which),
        _ => None,
    });
    let deleted = deleted.expect("the load balancer is deleted");
    assert_eq!((deleted.id.as_deref(), deleted.native_id), (Some("one-lb"), NativeId::new("id-9")));
    case.docker["metadata"]["annotations"]["machinist.dev/container-id"] = json!("copies/c/id-9");
    assert_eq!(case.outcome().1, ["delete the load balancer"], "an id that was copied has no effect");
}

/// The name of the ConfigMap is read from the spec.
#[test]
fn the_template_of_a_user_is_named_by_the_spec() {
    let name = |spec: Value| {
        let docker = json!({"metadata": {"name": "c"}, "spec": {"loadBalancer": spec}});
        let docker: DockerCluster = serde_json::from_value(docker).expect("a DockerCluster");
        DockerClusterFacts::parse(&docker).balancer_template().map(str::to_owned)
    };
    assert_eq!(name(json!({})), None);
    assert_eq!(name(json!({"customHAProxyConfigTemplateRef": {"name": ""}})), None);
    let template = json!({"customHAProxyConfigTemplateRef": {"name": "lb"}});
    assert_eq!(name(template).as_deref(), Some("lb"));
}

/// Another DockerCluster records the same load balancer.
fn recorded_twice(s: &mut Snapshot) {
    s.container_holder = Some("copies/c".to_owned());
}

#[test]
fn the_original_of_two_records_goes_on_by_its_key() {
    let mut case = Case::new();
    case.snapshot = recorded_twice;
    case.docker["metadata"]["annotations"]["machinist.dev/container-id"] = json!("default/c/id-9");
    assert_eq!(case.outcome().1, ["ensure load balancer one-lb:"], "its UID is its key");
    assert_eq!(case.wanted().native_id, None, "the record alone proves nothing");
    let annotations = case.docker["metadata"]["annotations"].clone();
    case.docker["metadata"]["annotations"]["machinist.dev/key"] = json!("default/c/u9");
    assert_eq!(case.outcome(), ("KeyTaken".to_owned(), Vec::new()), "the copy waits");

    case.docker["metadata"]["annotations"] = annotations;
    case.docker["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:01:30Z");
    assert_eq!(case.outcome().1, ["delete the load balancer"]);
    case.snapshot = |s| {
        recorded_twice(s);
        s.answers.take_delete(answered(99, Ok(Progress::Done(BalancerDeletion::Gone))));
    };
    assert_eq!(case.outcome().1, ["remove the finalizer"]);
    case.snapshot = |s| {
        recorded_twice(s);
        s.answers.take_delete(answered(99, Ok(Progress::Done(BalancerDeletion::Absent))));
    };
    assert_eq!(case.outcome(), ("KeyTaken".to_owned(), Vec::new()), "its load balancer may have no key");
}
