//! Tests of the output of `machinist why` in clusters with a problem.

use std::time::Duration;

use expect_test::{Expect, expect};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::runtime::wait::{Condition, await_condition};
use kube::{Api, Client};
use machinist_api::{GoDuration, Machine, MachineDeployment, Phase};
use serde_json::{Value, json};

use crate::process::{Ended, Up, machinist};

/// Timeout of every wait, far longer than needed on a slow machine.
const PATIENCE: Duration = Duration::from_secs(60);

const MACHINES: &str = "/apis/machine.sapcloud.io/v1alpha1/namespaces/default";

/// A cluster with the quick start in it.
struct World {
    up: Up,
    client: Client,
}

impl World {
    async fn new() -> Self {
        let up = Up::start(None);
        let client = up.client().await;
        let world = Self { up, client };
        let ready = |deployment: Option<&MachineDeployment>| {
            deployment
                .and_then(|deployment| deployment.status.as_ref())
                .is_some_and(|status| status.ready_replicas == 3)
        };
        world.until::<MachineDeployment>("workers", ready).await;
        world
    }

    async fn post(&self, path: &str, body: Value) {
        let request = http::Request::post(path).header("content-type", "application/json");
        let request = request.body(body.to_string().into_bytes()).expect("a request");
        self.client.request::<Value>(request).await.unwrap_or_else(|error| panic!("{path}: {error}"));
    }

    async fn class(&self, name: &str, secret: &str) {
        let class = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass", "metadata": {"name": name}, "provider": "sim",
            "providerSpec": {"instanceType": "small"}, "secretRef": {"name": secret, "namespace": "default"}
        });
        self.post(&format!("{MACHINES}/machineclasses"), class).await;
    }

    async fn machine(&self, name: &str, class: &str) {
        let machine = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine", "metadata": {"name": name},
            "spec": {"class": {"kind": "MachineClass", "name": class}}
        });
        self.post(&format!("{MACHINES}/machines"), machine).await;
    }

    async fn until<K>(&self, name: &str, condition: impl Condition<K>)
    where
        K: Clone
            + std::fmt::Debug
            + Send
            + serde::de::DeserializeOwned
            + kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
            + 'static,
    {
        let api = Api::<K>::namespaced(self.client.clone(), "default");
        tokio::time::timeout(PATIENCE, await_condition(api, name, condition))
            .await
            .unwrap_or_else(|_| panic!("{name} is not as expected after {PATIENCE:?}"))
            .expect("the watch works");
    }

    /// Returns the name of a Machine of the quick start.
    async fn some_machine(&self) -> String {
        let machines: Api<Machine> = Api::namespaced(self.client.clone(), "default");
        let machines = machines.list(&Default::default()).await.expect("listed");
        machines.items[0].metadata.name.clone().expect("a name")
    }

    /// Asserts the text output, with masked times, addresses and names of the quick start's
    /// Machines.
    fn why(&self, object: &str, expected: Expect) {
        let mut command = machinist("why");
        let ended = Ended::of(command.arg(object).env("KUBECONFIG", &self.up.kubeconfig));
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        expected.assert_eq(&masked(&ended.stdout));
    }
}

/// Masks the parts that differ from run to run.
fn masked(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let words = line.split(' ').map(|word| {
            let inner = word.trim_start_matches('(').trim_end_matches([',', ':', ';', ')']);
            let masked = if inner.parse::<Timestamp>().is_ok() {
                "TIME"
            } else if !inner.is_empty() && inner.parse::<GoDuration>().is_ok() {
                "SPAN"
            } else if inner.starts_with("http://") {
                "URL"
            } else if let Some((kind, _)) = inner.split_once("workers-") {
                return word.replace(inner, &format!("{kind}WORKER"));
            } else {
                inner
            };
            if inner.is_empty() { word.to_owned() } else { word.replace(inner, masked) }
        });
        words.collect::<Vec<_>>().join(" ")
    });
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

fn has_failed_operation(machine: Option<&Machine>) -> bool {
    machine.is_some_and(|machine| machine.phase() == Phase::CrashLoopBackOff)
}

#[tokio::test]
async fn reasons_that_block_the_creation_of_a_machine() {
    let world = World::new().await;

    world.class("no-secret", "absent").await;
    world.machine("a", "no-secret").await;
    world.until::<Machine>("a", has_failed_operation).await;
    world.why("machine/a", expect![[r#"
        machine/default/a: Secret default/absent not found (used by MachineClass no-secret)
          next      create Secret default/absent
          deadline  TIME, in SPAN: the Machine is marked Failed
          status    Create failed: Creation is blocked: Secret default/absent not found (used by MachineClass no-secret) (SPAN ago)
          known     from the machine-controller at URL, which decided this SPAN ago
          more      docs/src/stuck.md#secret-missing
    "#]]);

    world.machine("b", "absent").await;
    world.until::<Machine>("b", has_failed_operation).await;
    world.why(
        "machine/b",
        expect![[r#"
        machine/default/b: MachineClass absent not found
          next      create MachineClass default/absent, or change spec.class.name
          deadline  TIME, in SPAN: the Machine is marked Failed
          status    Create failed: Creation is blocked: MachineClass absent not found (SPAN ago)
          known     from the machine-controller at URL, which decided this SPAN ago
          more      docs/src/stuck.md#class-missing
    "#]],
    );

    world.up.cloud("PATCH", "/admin/settings", r#"{"quota": 3}"#);
    world.machine("c", "workers").await;
    world.until::<Machine>("c", has_failed_operation).await;
    world.why("machine/c", expect![[r#"
        machine/default/c: the cloud failed once to create the instance (exhausted): quota exceeded: quota of 3 instances is used up
          since     TIME, SPAN ago
          next      try again to create the instance at TIME
          deadline  TIME, in SPAN: the Machine is marked Failed
          status    Create failed: Cloud provider message - machine codes error: code = [ResourceExhausted] message = [quota exceeded: quota of 3 instances is used up] (SPAN ago)
          known     from the machine-controller at URL, which decided this SPAN ago
          more      docs/src/stuck.md#call-failed
    "#]]);
}

#[tokio::test]
async fn a_bootstrap_token_that_was_never_used() {
    let world = World::new().await;
    world.up.cloud("POST", "/admin/faults", r#"{"operation": "ensure", "fault": {"kind": "neverBoots"}}"#);
    world.machine("silent", "workers").await;
    world
        .until("silent", |machine: Option<&Machine>| {
            machine.is_some_and(|machine| machine.phase() == Phase::Pending)
        })
        .await;
    world.why(
        "machine/silent",
        expect![[r#"
            machine/default/silent: waiting for Node silent to register (its bootstrap token was never used)
              since     TIME, SPAN ago
              next      the instance boots and its kubelet registers
              deadline  TIME, in SPAN: the Machine is marked Failed
              known     from the API server; the controller at URL reports less
              more      docs/src/stuck.md#joining
        "#]],
    );
}

#[tokio::test]
async fn a_pod_that_a_disruption_budget_blocks() {
    let world = World::new().await;
    let machine = world.some_machine().await;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {"nodeName": machine, "containers": [{"name": "web", "image": "web"}]}
    });
    world.post("/api/v1/namespaces/default/pods", pod).await;
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    });
    world.post("/apis/policy/v1/namespaces/default/poddisruptionbudgets", budget).await;
    let is_judged = |budget: Option<&PodDisruptionBudget>| {
        let status = budget.and_then(|budget| budget.status.as_ref());
        status.is_some_and(|status| status.current_healthy == 1 && status.disruptions_allowed == 0)
    };
    world.until("web", is_judged).await;
    let machines: Api<Machine> = Api::namespaced(world.client.clone(), "default");
    machines.delete(&machine, &DeleteParams::default()).await.expect("deletion begins");
    let is_blocked = |machine: Option<&Machine>| {
        let last = machine.and_then(Machine::last_operation);
        last.and_then(|last| last.description.as_deref())
            .is_some_and(|text| text.contains("PodDisruptionBudget"))
    };
    world.until(&machine, is_blocked).await;
    world.why(&format!("machine/{machine}"), expect![[r#"
        machine/default/WORKER: waiting for 1 pod to leave the Node; PodDisruptionBudget default/web never allows the eviction of pod default/web
          since     TIME, SPAN ago
          next      change PodDisruptionBudget default/web to allow a disruption
          deadline  TIME, in SPAN: the pods are deleted without grace
          status    Delete failed: Drain is blocked: waiting for 1 pod to leave the Node; PodDisruptionBudget default/web never allows the eviction of pod default/web. Initiate node drain (SPAN ago)
          known     from the machine-controller at URL, which decided this SPAN ago
          more      docs/src/stuck.md#draining
    "#]]);
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), "default");
    assert!(pods.get("web").await.is_ok(), "the pod was evicted");
}

#[tokio::test]
async fn a_rollout_that_reached_its_surge() {
    let world = World::new().await;
    // The next machine never boots, so the rollout waits for it.
    world.up.cloud("POST", "/admin/faults", r#"{"operation": "ensure", "fault": {"kind": "neverBoots"}}"#);
    let patch = json!({"spec": {"template": {"metadata": {"annotations": {"rolled": "once"}}}}});
    let deployments: Api<MachineDeployment> = Api::namespaced(world.client.clone(), "default");
    deployments.patch("workers", &PatchParams::default(), &Patch::Merge(patch)).await.expect("patched");
    let is_rolling = |deployment: Option<&MachineDeployment>| {
        deployment
            .and_then(|deployment| deployment.status.as_ref())
            .is_some_and(|status| status.replicas == 4 && status.updated_replicas == 1)
    };
    world.until("workers", is_rolling).await;
    world.why("machinedeployment/workers", expect![[r#"
        machinedeployment/default/workers: rollout limited by maxSurge: 4 machines exist, at most 4 allowed; waiting for WORKER
          next      an old Machine is deleted after a new one becomes Running
          known     from the machine-controller-manager at URL, which decided this SPAN ago
          more      docs/src/stuck.md#surge-bound

        machine/default/WORKER: waiting for Node WORKER to register (its bootstrap token was never used)
          since     TIME, SPAN ago
          next      the instance boots and its kubelet registers
          deadline  TIME, in SPAN: the Machine is marked Failed
          known     from the API server; the controller at URL reports less
          more      docs/src/stuck.md#joining
    "#]]);
}

#[tokio::test]
async fn the_answer_without_a_controller() {
    let world = World::new().await;
    world.up.cloud("PATCH", "/admin/settings", r#"{"quota": 3}"#);
    world.machine("a", "workers").await;
    world.until::<Machine>("a", has_failed_operation).await;
    let mut command = machinist("why machine/a --controller http://127.0.0.1:1 --kubeconfig");
    let ended = Ended::of(command.arg(&world.up.kubeconfig));
    expect![[r#"
        machine/default/a: the cloud failed to create the instance (exhausted): quota exceeded: quota of 3 instances is used up
          since     TIME, SPAN ago
          next      a running machine controller retries the call after a backoff
          status    Create failed: Cloud provider message - machine codes error: code = [ResourceExhausted] message = [quota exceeded: quota of 3 instances is used up] (SPAN ago)
          known     from the API server; no controller answers at URL, so calls in flight and the cloud's last answers are unknown
          more      docs/src/stuck.md#call-failed
    "#]].assert_eq(&masked(&ended.stdout));

    // The provider is known without its controller.
    let class = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass", "metadata": {"name": "engine"},
        "provider": "docker", "providerSpec": {"image": "node"}
    });
    world.post(&format!("{MACHINES}/machineclasses"), class).await;
    let machine = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine", "metadata": {"name": "container"},
        "spec": {"class": {"kind": "MachineClass", "name": "engine"}, "providerID": "docker:////container"}
    });
    world.post(&format!("{MACHINES}/machines"), machine).await;
    let mut command = machinist("why machine/container --controller http://127.0.0.1:1");
    let ended = Ended::of(command.env("KUBECONFIG", &world.up.kubeconfig));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(!ended.stdout.contains("belongs to another provider"), "{}", ended.stdout);

    // A provider of another program is not taken for one of this program.
    let class = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass", "metadata": {"name": "elsewhere"},
        "provider": "Azure", "providerSpec": {}
    });
    world.post(&format!("{MACHINES}/machineclasses"), class).await;
    world.machine("elsewhere", "elsewhere").await;
    let mut command = machinist("why machine/elsewhere --controller http://127.0.0.1:1");
    let ended = Ended::of(command.env("KUBECONFIG", &world.up.kubeconfig));
    let expected = "cannot explain machine/default/elsewhere: the provider \"Azure\" is not compiled into \
                    this program, which has sim, hcloud, docker";
    assert_eq!(ended.code, Some(1), "{}", ended.stdout);
    assert!(ended.stderr.contains(expected), "{}", ended.stderr);

    // A class without a provider is not explained as one of the simulated cloud.
    let class = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass", "metadata": {"name": "unnamed"},
        "providerSpec": {"instanceType": "small"}
    });
    world.post(&format!("{MACHINES}/machineclasses"), class).await;
    world.machine("unnamed", "unnamed").await;
    let mut command = machinist("why machine/unnamed --controller http://127.0.0.1:1");
    let ended = Ended::of(command.env("KUBECONFIG", &world.up.kubeconfig));
    assert_eq!(ended.code, Some(1), "{}", ended.stdout);
    let expected = "the class names no provider, so only its controller can explain it";
    assert!(ended.stderr.contains(expected), "{}", ended.stderr);

    // The deepest allowed object. A parser of whole lists would fail on it.
    let deep = (0..125).fold(json!(1), |below, _| json!({"k": below}));
    let class = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass", "metadata": {"name": "deep"}, "provider": "sim",
        "providerSpec": deep
    });
    world.post(&format!("{MACHINES}/machineclasses"), class).await;
    let mut command = machinist("why machine/a");
    let ended = Ended::of(command.env("KUBECONFIG", &world.up.kubeconfig));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);

    let absent = Ended::of(machinist("why machine/absent").env("KUBECONFIG", &world.up.kubeconfig));
    assert_eq!(absent.code, Some(1));
    assert_eq!(absent.stderr, "error: machine/default/absent not found; check the name and the namespace\n");
}

#[tokio::test]
async fn a_namespace_that_no_controller_serves() {
    let mut world = World::new().await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}});
    world.post("/api/v1/namespaces", namespace).await;
    let deployment = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment", "metadata": {"name": "w"},
        "spec": {"replicas": 1, "template": {}}
    });
    world.post("/apis/machine.sapcloud.io/v1alpha1/namespaces/team/machinedeployments", deployment).await;
    let line = world.up.process.line_with("NamespaceNotServed");
    assert!(line.contains("MachineDeployment w in namespace team: no controller acts on it"), "{line}");

    let ended = Ended::of(machinist("why md/w --namespace team").env("KUBECONFIG", &world.up.kubeconfig));
    expect![[r#"
        machinedeployment/team/w: no running controller serves namespace team (the machine-controller serves default, the machine-controller-manager serves default)
          next      run controllers with --namespace team, or create the object in a served namespace
          known     from the API server
          more      docs/src/stuck.md#namespace-not-served
    "#]].assert_eq(&masked(&ended.stdout));
    let silent = "why md/w -n team --controller http://127.0.0.1:1";
    let ended = Ended::of(machinist(silent).env("KUBECONFIG", &world.up.kubeconfig));
    assert!(
        !ended.stdout.contains("serves namespace"),
        "no controller reported its namespace\n{}",
        ended.stdout
    );
}
