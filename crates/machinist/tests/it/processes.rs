//! Tests of cloud, manager and machine controller as separate processes with Leases.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::wait::{Condition, await_condition};
use kube::{Api, Client};
use machinist_api::{Machine, MachineDeployment, Phase};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::process::{Ended, Process, Stopped, Up, answer, call, free_port, machinist, try_answer};

/// Timeout of every wait, far longer than needed on a slow machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const NAMESPACE: &str = "team";

const LEASES: &str =
    "--leader-elect-lease-duration=3s --leader-elect-renew-deadline=2s --leader-elect-retry-period=500ms";

pub(crate) async fn until<K>(api: Api<K>, name: &str, condition: impl Condition<K>)
where
    K: Clone + std::fmt::Debug + Send + serde::de::DeserializeOwned + kube::Resource + 'static,
{
    tokio::time::timeout(PATIENCE, await_condition(api, name, condition))
        .await
        .unwrap_or_else(|_| panic!("{name} is not as expected after {PATIENCE:?}"))
        .expect("the watch works");
}

pub(crate) async fn apply(client: &Client, path: &str, body: Value) {
    let request = http::Request::post(path).header("content-type", "application/json");
    let request = request.body(body.to_string().into_bytes()).expect("a request");
    client.request::<Value>(request).await.unwrap_or_else(|error| panic!("{path}: {error}"));
}

/// Applies the quick start in a namespace that `up` does not serve.
pub(crate) async fn quick_start(client: &Client) {
    let text = include_str!("../../quickstart.yaml")
        .replace("namespace: default", &format!("namespace: {NAMESPACE}"));
    apply(
        client,
        "/api/v1/namespaces",
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
    )
    .await;
    for object in machinist_api::manifest::parse_manifest(&text).expect("a manifest") {
        let path = match object.kind.as_str() {
            "Secret" => format!("/api/v1/namespaces/{NAMESPACE}/secrets"),
            kind => {
                format!("/apis/machine.sapcloud.io/v1alpha1/namespaces/{NAMESPACE}/{}s", kind.to_lowercase())
                    .replace("classs", "classes")
            }
        };
        apply(client, &path, object.body).await;
    }
}

pub(crate) fn are_ready(count: i32) -> impl Condition<MachineDeployment> {
    move |deployment: Option<&MachineDeployment>| {
        let status = deployment.and_then(|deployment| deployment.status.as_ref());
        status.is_some_and(|status| status.ready_replicas == count && status.replicas == count)
    }
}

fn holder(lease: Option<&Lease>) -> Option<String> {
    let holder = lease?.spec.as_ref()?.holder_identity.clone()?;
    Some(holder).filter(|holder| !holder.is_empty())
}

/// The three processes, on free ports.
pub(crate) struct Fleet {
    cloud: Option<Process>,
    pub cloud_url: String,
    pub kubeconfig: String,
}

impl Fleet {
    pub(crate) fn start(up: &Up) -> Self {
        let data = up.folder.path().join("cloud");
        let ca = up.folder.path().join("ca.crt");
        let mut cloud = Process::start(&mut machinist(&format!(
            "sim-cloud --listen 127.0.0.1:0 --data-dir {} --target-server {} --target-ca {}",
            data.display(),
            up.api_server,
            ca.display()
        )));
        let line = cloud.line_with("Simulated cloud at ");
        let url = line.split_whitespace().find(|word| word.starts_with("http://")).expect("its URL");
        let cloud_url = url.trim_end_matches(',').to_owned();
        Self { cloud: Some(cloud), cloud_url, kubeconfig: up.kubeconfig.display().to_string() }
    }

    pub(crate) fn machine_controller(&self, port: u16) -> Process {
        Process::start(&mut machinist(&format!(
            "machine-controller --provider sim --sim-endpoint {} --target-kubeconfig {} --namespace {NAMESPACE} \
             --address 127.0.0.1 --port {port} {LEASES}",
            self.cloud_url, self.kubeconfig
        )))
    }

    pub(crate) fn manager(&self, port: u16) -> Process {
        Process::start(&mut machinist(&format!(
            "machine-controller-manager --target-kubeconfig {} --namespace {NAMESPACE} --address 127.0.0.1 --port {port} {LEASES}",
            self.kubeconfig
        )))
    }

    /// Stops the cloud.
    pub(crate) fn stop(self) {
        self.cloud.map(Process::terminate).expect("it runs").cleanly();
    }

    pub(crate) fn ledger(&self) -> Vec<Value> {
        let ledger = call(&self.cloud_url, "GET", "/admin/ledger", "");
        ledger["entries"].as_array().expect("entries").clone()
    }
}

#[tokio::test]
async fn controllers_and_cloud_work_as_separate_processes() {
    let up = Up::start(Some("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: nothing-to-do}\n"));
    let client = up.client().await;
    quick_start(&client).await;
    let fleet = Fleet::start(&up);
    let (controller_port, manager_port) = (free_port(), free_port());
    let controller = fleet.machine_controller(controller_port);
    let manager = fleet.manager(manager_port);
    let deployments: Api<MachineDeployment> = Api::namespaced(client.clone(), NAMESPACE);
    until(deployments.clone(), "workers", are_ready(3)).await;
    assert_eq!(fleet.ledger().len(), 3, "each machine has one instance");

    // The HTTP endpoints of the controller.
    let controller_url = format!("http://127.0.0.1:{controller_port}");
    assert_eq!(call(&controller_url, "GET", "/healthz", ""), "OK");
    assert_eq!(call(&controller_url, "GET", "/readyz", ""), "OK");
    let leases: Api<Lease> = Api::namespaced(client.clone(), NAMESPACE);
    for name in ["machine-controller", "machine-controller-manager"] {
        let lease = leases.get(name).await.expect("the Lease");
        assert!(holder(Some(&lease)).is_some(), "the Lease {name} has no holder");
    }

    // A second machine controller waits. When the first one stops, the second takes over the same
    // machines.
    let second_port = free_port();
    let second = fleet.machine_controller(second_port);
    let first_holder = holder(leases.get("machine-controller").await.ok().as_ref());
    controller.terminate().cleanly();
    let other = move |lease: Option<&Lease>| holder(lease).is_some() && holder(lease) != first_holder;
    until(leases.clone(), "machine-controller", other).await;
    let patch = json!({"spec": {"replicas": 4}});
    deployments.patch("workers", &PatchParams::default(), &Patch::Merge(patch)).await.expect("scaled");
    until(deployments.clone(), "workers", are_ready(4)).await;
    assert_eq!(fleet.ledger().len(), 4);

    // `why` asks the controllers at the URLs of --controller.
    let machines: Api<Machine> = Api::namespaced(client.clone(), NAMESPACE);
    let name = machines.list(&Default::default()).await.expect("listed").items[0]
        .metadata
        .name
        .clone()
        .expect("a name");
    let why = Ended::of(&mut machinist(&format!(
        "why machine/{name} -n {NAMESPACE} --kubeconfig {} --controller http://127.0.0.1:{second_port} -o json",
        fleet.kubeconfig
    )));
    let why = why.result();
    assert_eq!(
        (&why["reason"], &why["source"]["component"]),
        (&"Settled".into(), &"machine-controller".into())
    );

    // Everything is deleted, and a stopped process releases its Lease.
    deployments.delete("workers", &Default::default()).await.expect("deleted");
    until(deployments, "workers", |deployment: Option<&MachineDeployment>| deployment.is_none()).await;
    assert!(fleet.ledger().iter().all(|entry| !entry["deleted"].is_null()), "an instance is still alive");
    for (name, process) in [("machine-controller-manager", manager), ("machine-controller", second)] {
        let log = process.terminate().cleanly();
        let lease = leases.get(name).await.expect("the Lease");
        assert_eq!(holder(Some(&lease)), None, "{name} did not release its Lease. Its log:\n{log}");
    }
    fleet.cloud.map(Process::terminate).expect("it runs").cleanly();
}

#[tokio::test]
async fn a_controller_that_loses_its_lease_exits_with_an_error() {
    let up = Up::start(Some("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: nothing-to-do}\n"));
    let client = up.client().await;
    quick_start(&client).await;
    let fleet = Fleet::start(&up);
    let controller = fleet.machine_controller(free_port());
    let manager = fleet.manager(free_port());
    let machines: Api<MachineDeployment> = Api::namespaced(client.clone(), NAMESPACE);
    until(machines, "workers", are_ready(3)).await;

    let leases: Api<Lease> = Api::namespaced(client, NAMESPACE);
    let taken = json!({"spec": {"holderIdentity": "another-holder", "leaseDurationSeconds": 3600}});
    leases.patch("machine-controller", &PatchParams::default(), &Patch::Merge(taken)).await.expect("taken");
    let Stopped { code, stderr } = controller.wait();
    assert_eq!(code, Some(1));
    let last = stderr.lines().last().unwrap_or_default();
    assert!(last.starts_with("error: machine-controller: leadership was lost: "), "{stderr}");
    manager.terminate().cleanly();
}

#[tokio::test]
async fn the_error_for_missing_kinds_shows_the_command() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let server = machinist_apiserver::Server::new(machinist_apiserver::Config::default());
    let serving = server.serve(([127, 0, 0, 1], 0).into(), folder.path()).await.expect("served");
    let kubeconfig = serving.kubeconfig.display().to_string();
    let line = format!(
        "machine-controller-manager --target-kubeconfig {kubeconfig} --address 127.0.0.1 --port {}",
        free_port()
    );
    let ended =
        tokio::task::spawn_blocking(move || Ended::of(&mut machinist(&line))).await.expect("it ended");
    assert_eq!(ended.code, Some(1));
    let expected = format!(
        "error: control and target cluster (kubeconfig {kubeconfig}, cluster machinist at {}): the API server does not serve \
         machines of machine.sapcloud.io/v1alpha1. Install the kinds: machinist crds | kubectl apply -f -\n",
        serving.url()
    );
    assert!(ended.stderr.ends_with(&expected), "{}", ended.stderr);
}

#[tokio::test]
async fn a_machine_is_pending_until_its_instance_boots() {
    let up = Up::start(None);
    let client = up.client().await;
    until(Api::<MachineDeployment>::namespaced(client.clone(), "default"), "workers", are_ready(3)).await;
    up.cloud("PATCH", "/admin/settings", r#"{"bootSeconds": 3600}"#);
    let machine = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine", "metadata": {"name": "slow"},
        "spec": {"class": {"kind": "MachineClass", "name": "workers"}}
    });
    let machines: Api<Machine> = Api::namespaced(client, "default");
    let machine = serde_json::from_value(machine).expect("a Machine");
    machines.create(&PostParams::default(), &machine).await.expect("created");
    until(machines, "slow", |machine: Option<&Machine>| {
        machine.is_some_and(|machine| machine.phase() == Phase::Pending)
    })
    .await;
    up.process.terminate().cleanly();
}

/// Starts a machine controller with one Machine and a cloud that does not answer. Also returns the
/// connection of the pending call.
async fn controller_with_a_call_in_flight(up: &Up, client: &Client) -> (Process, tokio::net::TcpStream) {
    quick_start(client).await;
    let cloud = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", cloud.local_addr().expect("an address"));
    // The test acts as the cloud.
    let fleet = Fleet { cloud_url: url, kubeconfig: up.kubeconfig.display().to_string(), cloud: None };
    let controller = fleet.machine_controller(free_port());
    let machine = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine", "metadata": {"name": "one"},
        "spec": {"class": {"kind": "MachineClass", "name": "workers"}}
    });
    let machines: Api<Machine> = Api::namespaced(client.clone(), NAMESPACE);
    let machine = serde_json::from_value(machine).expect("a Machine");
    machines.create(&PostParams::default(), &machine).await.expect("created");
    let (call, _) = tokio::time::timeout(PATIENCE, cloud.accept())
        .await
        .expect("the controller calls the cloud")
        .expect("accepted");
    call.readable().await.expect("a request");
    (controller, call)
}

#[tokio::test]
async fn a_lease_is_released_after_calls_in_flight_have_ended() {
    let up = Up::start(Some("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: nothing-to-do}\n"));
    let client = up.client().await;
    let (mut controller, _call) = controller_with_a_call_in_flight(&up, &client).await;
    let began = Instant::now();
    controller.ask_to_stop();
    let leases: Api<Lease> = Api::namespaced(client, NAMESPACE);
    until(leases, "machine-controller", |lease: Option<&Lease>| lease.is_some() && holder(lease).is_none())
        .await;
    let held = began.elapsed();
    let log = controller.wait().cleanly();
    // The cloud does not answer, so the call may take effect until its bound. The call began a
    // moment before it arrived.
    let bound = machinist_driver_sim::PROMISES.call_bound;
    assert!(bound / 2 < held, "released after {held:?}, while the call may take effect for {bound:?}: {log}");
    assert!(
        log.contains("Waiting for driver calls and writes in flight") && log.contains("calls=1"),
        "{log}"
    );
}

#[tokio::test]
async fn a_second_signal_stops_a_process_and_its_lease_expires() {
    let up = Up::start(Some("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: nothing-to-do}\n"));
    let client = up.client().await;
    let (mut controller, _call) = controller_with_a_call_in_flight(&up, &client).await;
    // Two equal signals might be merged into one.
    controller.send("-INT");
    controller.send("-TERM");
    let Stopped { code, stderr } = controller.wait();
    assert_eq!(code, Some(1), "{stderr}");
    let last = stderr.lines().last().unwrap_or_default();
    let expected =
        "error: machine-controller: stopped at once by a second signal with 1 call, 0 passes and 0 DELETEs";
    assert!(last.starts_with(expected), "{stderr}");
    let lease =
        Api::<Lease>::namespaced(client, NAMESPACE).get("machine-controller").await.expect("the Lease");
    assert!(holder(Some(&lease)).is_some(), "the Lease was released");
}

/// Without the cluster of the Nodes, a Machine can still be deleted with `force-deletion`.
#[tokio::test]
async fn both_programs_start_without_the_target_cluster() {
    let up = Up::start(Some("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: nothing-to-do}\n"));
    quick_start(&up.client().await).await;
    let control = std::fs::read_to_string(&up.kubeconfig).expect("a kubeconfig");
    let target = up.folder.path().join("target.kubeconfig");
    let nowhere = control.replace(&up.api_server, &format!("https://127.0.0.1:{}", free_port()));
    assert_ne!(nowhere, control);
    std::fs::write(&target, nowhere).expect("written");
    let cloud = Fleet::start(&up);
    // The manager watches nothing in the target cluster.
    for (program, expected) in [
        ("machine-controller-manager".to_owned(), "OK"),
        (format!("machine-controller --provider sim --sim-endpoint {}", cloud.cloud_url), "target cluster"),
    ] {
        let port = free_port();
        let process = Process::start(&mut machinist(&format!(
            "{program} --control-kubeconfig {} --target-kubeconfig {} --namespace {NAMESPACE} --address 127.0.0.1 \
             --port {port} {LEASES}",
            cloud.kubeconfig,
            target.display()
        )));
        let address = format!("127.0.0.1:{port}");
        let named = async {
            let mut again = tokio::time::interval(Duration::from_millis(100));
            loop {
                again.tick().await;
                let ready = try_answer(&format!("http://{address}"), "/readyz");
                if ready.is_ok_and(|(_, text)| text.contains(expected)) {
                    break;
                }
            }
        };
        tokio::time::timeout(PATIENCE, named)
            .await
            .unwrap_or_else(|_| panic!("/readyz of {program} does not say {expected:?}"));
        process.terminate().cleanly();
    }
}

/// Before the engine answers, its id is not known, and nothing can be decided.
#[tokio::test]
async fn a_process_without_its_engine_is_alive_and_can_be_stopped() {
    let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let engine = format!("tcp://{}", socket.local_addr().expect("an address"));
    let port = free_port();
    let address = format!("127.0.0.1:{port}");
    for line in [
        format!("capi-docker --kubeconfig missing.yaml --health-addr {address}"),
        format!(
            "machine-controller --provider docker --target-kubeconfig missing.yaml --address 127.0.0.1 --port {port}"
        ),
    ] {
        let process = Process::start(machinist(&line).env("DOCKER_HOST", &engine));
        // The test acts as an engine that does not answer.
        let (request, _) = tokio::time::timeout(PATIENCE, socket.accept())
            .await
            .expect("the process asks the engine")
            .expect("accepted");
        assert_eq!(call(&format!("http://{address}"), "GET", "/healthz", ""), "OK", "{line}");
        let (status, text) = answer(&format!("http://{address}"), "/readyz");
        assert_eq!(status, 503, "{line}");
        assert!(text.contains("the engine has not answered yet"), "{line}: {text}");
        process.terminate().cleanly();
        drop(request);
    }
}
