//! Tests of the processes with an embedded server and a simulated cloud, under paused time.
//!
//! These tests only check that the two processes work together. Faults, crashes and invariants are
//! tested in machinist-sim.

#![expect(clippy::expect_used, reason = "a test that cannot continue reports the reason")]

mod accounts;
mod asks;
mod boot;
mod capacity;
mod ccm;
mod chosen;
mod clouds;
mod drain;
mod driver_inputs;
mod freeze;
mod gate;
mod identity;
mod in_place;
mod initialization;
mod late;
mod leadership;
mod logs;
mod namespace;
mod newer_crd;

mod orphans;
mod outage;
mod over_sim;
mod preserve;
mod queue;
mod rejected;
mod replacement;
mod rollout;
mod silent;
mod slow_webhook;
mod split;
mod stale_nodes;
mod strays;
mod takeover;
mod timeouts;
mod tokens;
mod unmanaged;
mod volumes;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Node, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use machinist_api::{Machine, MachineClass, MachineDeployment, MachineSet, OperationState, Phase, crd};
use machinist_apiserver::{ApiService, Config, Identity, Server};
use machinist_cloud_sim::{Cloud, Foreigner, Settings};
use machinist_controllers::mcm::{
    Key, MachineController, MachineOptions, Manager, Options, Planners, Running, explain,
};
use machinist_controllers::{Clients, ProcessOptions};
use machinist_driver::{Driver, Provider};
use machinist_driver_sim::SimProvider;
use machinist_instance::{AccountId, Credential, Error, ErrorKind, NodeName, Place, UserData};
use machinist_kube::{ClientOptions, ObjectKey, SharedClock, TokioClock, layer_client};
use machinist_plan::mcm::Plan;
use machinist_plan::mcm::{machine, machine_deployment};
use serde_json::{Value, json};

use over_sim::{Over, OverSim};

const NAMESPACE: &str = "default";
const EPOCH: i64 = 1_800_000_000;

struct World {
    /// The namespace of the machine objects.
    namespace: &'static str,
    server: Server,
    cloud: Cloud,
    user: kube::Client,
    clock: SharedClock,
}

impl World {
    async fn new() -> Self {
        Self::of(Config::default(), NAMESPACE).await
    }

    /// Creates a world with this server and this namespace for the machine objects.
    async fn of(config: Config, namespace: &'static str) -> Self {
        let epoch = jiff::Timestamp::from_second(EPOCH).expect("a moment");
        let clock = machinist_apiserver::TokioClock::starting_at(epoch);
        let server = Server::new(Config { clock: Arc::new(clock), ..config });
        let cloud = Cloud::in_memory(Settings::default(), machinist_cloud_sim::Clock::starting_at(epoch));
        let user = kube::Client::new(server.service_as(Identity::admin()), NAMESPACE);
        let crds: Api<CustomResourceDefinition> = Api::all(user.clone());
        for crd in crd::all_crds() {
            crds.create(&PostParams::default(), &crd).await.expect("the CRD is accepted");
        }
        Self { namespace, server, cloud, user, clock: Arc::new(TokioClock::starting_at(epoch)) }
    }

    fn client(&self, name: &str) -> kube::Client {
        layer_client(self.service(), &self.client_options(name))
    }

    fn service(&self) -> ApiService {
        self.server.service_as(Identity::admin())
    }

    fn client_options(&self, name: &str) -> ClientOptions {
        ClientOptions { clock: self.clock.clone(), ..ClientOptions::new(name) }
    }

    fn options(&self, component: &'static str) -> ProcessOptions {
        ProcessOptions { clock: self.clock.clone(), ..ProcessOptions::new(NAMESPACE, component) }
    }

    fn start(&self) -> (Running, Running) {
        self.start_with(|_| {})
    }

    /// Starts the processes and waits a minute, so that a new Machine is certainly younger than
    /// they are, even with different clocks.
    async fn start_long_ago(&self) -> (Running, Running) {
        let processes = self.start();
        tokio::time::sleep(Duration::from_secs(60)).await;
        processes
    }

    fn start_with(&self, change: impl FnOnce(&mut MachineOptions)) -> (Running, Running) {
        let clients = |name| Clients { control: self.client(name), target: self.client(name) };
        let provider = Arc::new(SimProvider::in_process(self.cloud.clone()));
        let mut options = MachineOptions::new(provider, "test");
        change(&mut options);
        let machine_controller = MachineController::start(
            clients("machine-controller"),
            self.options("machine-controller"),
            options,
            None,
        );
        let manager = Manager::start(clients("manager"), self.options("manager"), None);
        (machine_controller, manager)
    }

    async fn apply(&self, replicas: u32) {
        let secrets: Api<Secret> = Api::namespaced(self.user.clone(), self.namespace);
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"},
            "stringData": {"userData": "token: <<BOOTSTRAP_TOKEN>> name: <<MACHINE_NAME>>"},
        });
        secrets.create(&PostParams::default(), &parse(secret)).await.expect("the Secret is accepted");
        let classes: Api<MachineClass> = Api::namespaced(self.user.clone(), self.namespace);
        let class = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass", "metadata": {"name": "c"},
            "provider": "sim", "providerSpec": {"size": "small"}, "secretRef": {"name": "s", "namespace": self.namespace},
        });
        classes.create(&PostParams::default(), &parse(class)).await.expect("the class is accepted");
        let deployment = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment", "metadata": {"name": "w"},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"name": "w"}},
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
                "template": {
                    "metadata": {"labels": {"name": "w"}},
                    "spec": {
                        "class": {"kind": "MachineClass", "name": "c"},
                        "nodeTemplate": {"metadata": {"labels": {"pool": "w"}}},
                    },
                },
            },
        });
        self.deployments()
            .create(&PostParams::default(), &parse(deployment))
            .await
            .expect("the deployment is accepted");
    }

    fn deployments(&self) -> Api<MachineDeployment> {
        Api::namespaced(self.user.clone(), self.namespace)
    }

    /// Changes the number of Machines of the deployment.
    async fn scale(&self, replicas: u32) {
        let scale = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        self.deployments().patch("w", &PatchParams::default(), &scale).await.expect("scaled");
    }

    /// Creates a Machine with this name and without an owner.
    async fn make_machine(&self, name: &str) -> Api<Machine> {
        self.make_machine_of(name, "c").await
    }

    /// Creates a Machine of this class, without an owner.
    async fn make_machine_of(&self, name: &str, class: &str) -> Api<Machine> {
        let machines: Api<Machine> = Api::namespaced(self.user.clone(), NAMESPACE);
        let machine = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine", "metadata": {"name": name},
            "spec": {"class": {"kind": "MachineClass", "name": class}},
        });
        machines.create(&PostParams::default(), &parse(machine)).await.expect("the Machine is accepted");
        machines
    }

    /// Returns the Events with this reason.
    async fn events(&self, reason: &str) -> Vec<Event> {
        let events: Api<Event> = Api::namespaced(self.user.clone(), NAMESPACE);
        let mut events = events.list(&ListParams::default()).await.expect("a list").items;
        events.retain(|event| event.reason.as_deref() == Some(reason));
        events
    }

    async fn machines(&self) -> Vec<Machine> {
        let machines: Api<Machine> = Api::namespaced(self.user.clone(), self.namespace);
        machines.list(&ListParams::default()).await.expect("a list").items
    }

    /// Waits until this many instances exist, lets their Nodes join, and waits until the Machines
    /// run.
    async fn until_running(&self, count: usize) {
        self.until(&format!("{count} instances exist"), async |w| w.cloud.alive() == count).await;
        self.join().await;
        self.until(&format!("{count} machines run"), async |w| running(w).await == count).await;
    }

    /// Acts as the kubelets: creates a ready Node for each instance without one.
    async fn join(&self) {
        let nodes: Api<Node> = Api::all(self.user.clone());
        let listed = nodes.list_metadata(&ListParams::default()).await.expect("an answer").items;
        self.join_all_but(&mut listed.into_iter().filter_map(|node| node.metadata.name).collect()).await;
    }

    /// Acts as the kubelets of the instances without a Node, and adds their names to those that
    /// have joined.
    async fn join_all_but(&self, joined: &mut BTreeSet<String>) {
        let nodes: Api<Node> = Api::all(self.user.clone());
        for entry in self.cloud.ledger().alive() {
            let name = entry.name.as_str();
            if !joined.insert(name.to_owned()) {
                continue;
            }
            let node = json!({
                "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
                "spec": {"providerID": entry.id.as_str()},
            });
            nodes.create(&PostParams::default(), &parse(node)).await.expect("the Node is accepted");
            let status = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
            nodes
                .patch_status(name, &PatchParams::default(), &Patch::Strategic(status))
                .await
                .expect("the status is accepted");
        }
    }

    /// Lets time pass, one second at a time, until the condition holds.
    async fn until(&self, what: &str, is_so: impl AsyncFn(&Self) -> bool) {
        for _ in 0..600 {
            if is_so(self).await {
                return;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let machines = self.machines().await;
        panic!("timed out after ten minutes: {what}\n{machines:#?}");
    }
}

fn parse<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("test objects are well-formed")
}

async fn running(world: &World) -> usize {
    world.machines().await.iter().filter(|machine| machine.phase() == Phase::Running).count()
}

#[tokio::test(start_paused = true)]
async fn a_deployment_is_created_scaled_and_deleted() {
    let world = World::new().await;
    let _processes = world.start();
    world.apply(3).await;
    world.until_running(3).await;
    assert_eq!(world.cloud.ledger().ever().len(), 3);

    world.scale(5).await;
    world.until_running(5).await;
    world.scale(2).await;
    world.until("2 are left", async |w| w.machines().await.len() == 2 && w.cloud.alive() == 2).await;
    assert_eq!(world.cloud.ledger().ever().len(), 5);

    world.deployments().delete("w", &DeleteParams::default()).await.expect("deleted");
    world.until("nothing is left", async |w| w.machines().await.is_empty() && w.cloud.alive() == 0).await;
    let nodes: Api<Node> = Api::all(world.user.clone());
    let left = nodes.list(&ListParams::default()).await.expect("a list").items;
    assert!(left.is_empty(), "{left:#?}");
    world
        .until("the deployment is deleted", async |w| {
            w.deployments().get_opt("w").await.expect("an answer").is_none()
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn queued_deletions_are_decided_again_and_complete() {
    let world = World::new().await;
    // One call at a time, and each takes longer than a deletion permit is valid.
    world.cloud.configure(|settings| {
        settings.latency = Duration::from_secs(15);
        settings.call_bound = Duration::from_secs(20);
    });
    let _processes = world.start_with(|options| options.calls_per_account = 1);
    world.apply(3).await;
    world.until_running(3).await;
    world.deployments().delete("w", &DeleteParams::default()).await.expect("deleted");
    world.until("nothing is left", async |w| w.machines().await.is_empty() && w.cloud.alive() == 0).await;
    assert_eq!(world.cloud.ledger().ever().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_adopted_set_keeps_its_other_owners() {
    let world = World::new().await;
    let sets: Api<MachineSet> = Api::namespaced(world.user.clone(), NAMESPACE);
    let theirs =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "inventory", "uid": "uid-of-the-inventory"});
    // A deployment's set that remains after a deletion without its dependents.
    let set = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet",
        "metadata": {"name": "w-left", "labels": {"name": "w"}, "ownerReferences": [theirs]},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"name": "w"}},
            "template": {
                "metadata": {"labels": {"name": "w"}},
                "spec": {
                    "class": {"kind": "MachineClass", "name": "c"},
                    "nodeTemplate": {"metadata": {"labels": {"pool": "w"}}},
                },
            },
        },
    });
    sets.create(&PostParams::default(), &parse(set)).await.expect("the set is accepted");
    let _processes = world.start();
    world.apply(1).await;
    world.until_running(1).await;

    let all = sets.list(&ListParams::default()).await.expect("a list").items;
    let [set] = all.as_slice() else { panic!("one set of that template, not another: {all:#?}") };
    let owners = set.metadata.owner_references.clone().unwrap_or_default();
    let owners: Vec<_> = owners.iter().map(|owner| (owner.kind.as_str(), owner.controller)).collect();
    assert_eq!(owners, [("ConfigMap", None), ("MachineDeployment", Some(true))]);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_waits_for_replacement_gives_the_reason() {
    let world = World::new().await;
    let sets: Api<MachineSet> = Api::namespaced(world.user.clone(), NAMESPACE);
    let set = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet",
        "metadata": {"name": "w", "labels": {"freeze": "True"}},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"name": "w"}},
            "template": {"metadata": {"labels": {"name": "w"}}, "spec": {"class": {"kind": "MachineClass", "name": "c"}}},
        },
    });
    let set = sets.create(&PostParams::default(), &parse(set)).await.expect("the set is accepted");
    let machines: Api<Machine> = Api::namespaced(world.user.clone(), NAMESPACE);
    for name in ["a", "b"] {
        let machine = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": {
                "name": name, "labels": {"name": "w", "node": name},
                "finalizers": ["machine.sapcloud.io/machine-controller-manager"],
                "ownerReferences": [{
                    "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet", "name": "w",
                    "uid": set.metadata.uid, "controller": true,
                }],
            },
            "spec": {"class": {"kind": "MachineClass", "name": "c"}, "providerID": format!("sim:///{name}")},
        });
        machines.create(&PostParams::default(), &parse(machine)).await.expect("the Machine is accepted");
        let since = jiff::Timestamp::from_second(EPOCH - 3600).expect("a moment");
        let status =
            json!({"status": {"currentStatus": {"phase": "Unknown", "lastUpdateTime": since.to_string()}}});
        let params = PatchParams::default();
        machines.patch_status(name, &params, &Patch::Merge(status)).await.expect("its status is accepted");
    }
    let clients = Clients { control: world.client("why"), target: world.client("why") };
    let machine = MachineOptions::new(Arc::new(SimProvider::in_process(world.cloud.clone())), "test");
    let key = Key::Machine(ObjectKey::new(NAMESPACE, "a"));
    let explained = explain(clients, world.options("why"), machine, &key).await.expect("explained");
    assert_eq!(
        explained.why.to_string(),
        "replacement waits: the deployment wants 3 machines and has 2; MachineSet w is frozen; \
         since 2027-01-15T07:10:00Z; next: set the annotation safety.machine.sapcloud.io/unfreeze on MachineSet w"
    );

    // Without a manager, which would end the freeze of a set with so few Machines.
    let (machine_controller, manager) = world.start();
    drop(manager);
    let inspector = machine_controller.inspector();
    // The controller gives the same reason once it has decided about all Machines, and notifies
    // listeners.
    while inspector.waits().get(&key).map(|why| &why.reason) != Some(&explained.why.reason) {
        tokio::time::timeout(Duration::from_secs(300), inspector.decided())
            .await
            .expect("the controller decides");
    }
}

/// A provider with accounts that open only with an entry `token`.
struct Locked(SimProvider);

impl OverSim for Locked {
    fn sim(&self) -> &SimProvider {
        &self.0
    }

    fn open(
        &self,
        account: &AccountId,
        credential: &Credential,
        place: &Place,
    ) -> Result<Arc<dyn Driver>, Error> {
        if credential.text("token").is_none() {
            return Err(Error::new(ErrorKind::Denied, "token: expected text"));
        }
        self.0.open(account, credential, place)
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_continues_after_its_secret_is_corrected() {
    let world = World::new().await;
    let locked = Arc::new(Over(Locked(SimProvider::in_process(world.cloud.clone()))));
    let (machine_controller, _manager) = world.start_with(|options| options.providers = locked.into());
    let secrets: Api<Secret> = Api::namespaced(world.user.clone(), NAMESPACE);
    let token = async |token: Value| {
        let patch = Patch::Merge(json!({"data": {"token": token}}));
        secrets.patch("s", &PatchParams::default(), &patch).await.expect("the Secret is accepted");
    };
    world.apply(1).await;
    token(json!("dG9rZW4=")).await;
    world.until_running(1).await;

    token(Value::Null).await;
    world.deployments().delete("w", &DeleteParams::default()).await.expect("deleted");
    let failed = |machine: &Machine| {
        let operation = machine.status.as_ref().and_then(|status| status.last_operation.as_ref());
        operation.is_some_and(|operation| operation.state == Some(OperationState::Failed))
    };
    world.until("the Machine reports the failure", async |w| w.machines().await.iter().any(failed)).await;
    let machine = world.machines().await.remove(0);
    let operation = machine.status.as_ref().and_then(|status| status.last_operation.clone());
    assert_eq!(
        operation.expect("the Machine has a last operation").description(),
        "machine codes error: code = [PermissionDenied] message = [cannot open the account of MachineClass c with Secret \
         default/s: token: expected text]. Initiate node drain"
    );
    let name = machine.metadata.name.clone().unwrap_or_default();
    let key = Key::Machine(ObjectKey::new(NAMESPACE, name.as_str()));
    let inspector = machine_controller.inspector();
    let why = inspector.why(&key).expect("it was decided about").why.to_string();
    assert!(why.contains("with Secret default/s: token: expected text"), "{why}");
    let passes = || {
        let all = inspector.metrics();
        all.into_iter().find(|(name, _)| name == "machinist_queue_passes_total").expect("the metric exists").1
    };
    let before = passes();
    tokio::time::sleep(Duration::from_secs(600)).await;
    let made = passes() - before;
    assert!(made < 30.0, "{made} passes in ten minutes");
    let events: Api<Event> = Api::namespaced(world.user.clone(), NAMESPACE);
    let events = events.list(&ListParams::default()).await.expect("a list").items;
    let failures = events.iter().filter(|event| event.reason.as_deref() == Some("FailedDelete"));
    assert_eq!(failures.count(), 1, "{events:#?}");

    // Without the change of the Secret, the next attempt would be minutes away.
    token(json!("dG9rZW4=")).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!((world.machines().await.len(), world.cloud.alive()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_machine_waits_for_user_data_in_its_secret() {
    let world = World::new().await;
    let _processes = world.start();
    let secrets: Api<Secret> = Api::namespaced(world.user.clone(), NAMESPACE);
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "empty"}});
    secrets.create(&PostParams::default(), &parse(secret)).await.expect("the Secret is accepted");
    let classes: Api<MachineClass> = Api::namespaced(world.user.clone(), NAMESPACE);
    let class = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass", "metadata": {"name": "empty"},
        "provider": "sim", "providerSpec": {"size": "small"}, "secretRef": {"name": "empty", "namespace": NAMESPACE},
    });
    classes.create(&PostParams::default(), &parse(class)).await.expect("the class is accepted");
    let machines: Api<Machine> = Api::namespaced(world.user.clone(), NAMESPACE);
    let machine = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine", "metadata": {"name": "m"},
        "spec": {"class": {"kind": "MachineClass", "name": "empty"}},
    });
    machines.create(&PostParams::default(), &parse(machine)).await.expect("the Machine is accepted");
    let waits = |machine: &Machine| machine.phase() == Phase::CrashLoopBackOff;
    world.until("it waits", async |w| w.machines().await.iter().any(waits)).await;
    let status = world.machines().await.remove(0).status.unwrap_or_default();
    assert_eq!(
        status.last_operation.expect("the Machine has a last operation").description(),
        "Creation is blocked: Secret default/empty has no entry \"userData\""
    );
    assert_eq!(world.cloud.ledger().ever().len(), 0);

    let patch = Patch::Merge(json!({"stringData": {"userData": "hello"}}));
    secrets.patch("empty", &PatchParams::default(), &patch).await.expect("the Secret is accepted");
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(world.cloud.alive(), 1);
}

/// A planner with a bug for one Machine.
fn buggy(s: &machine::Snapshot) -> Plan<machine::Action> {
    assert!(s.machine.name != "bug-in-planner", "no rule for this");
    machine::plan(s)
}

/// A provider with bugs for some classes: in the collection of facts, and in a call.
struct Buggy(SimProvider);

impl OverSim for Buggy {
    fn sim(&self) -> &SimProvider {
        &self.0
    }

    fn validate(&self, provider_spec: &Value) -> Result<(), Error> {
        assert!(provider_spec["size"] != "bug", "hunter2");
        self.0.validate(provider_spec)
    }
}

#[tokio::test(start_paused = true)]
async fn a_bug_with_one_object_does_not_affect_other_objects() {
    let world = World::new().await;
    let clients = |name| Clients { control: world.client(name), target: world.client(name) };
    let planners = Planners { machine: buggy, ..Planners::default() };
    let options = Options { planners, ..Options::from(world.options("machine-controller")) };
    let provider = Arc::new(Over(Buggy(SimProvider::in_process(world.cloud.clone()))));
    let mut machine = MachineOptions::new(provider, "test");
    // Generating the first secret part of a token fails.
    let draws = std::sync::atomic::AtomicU32::new(0);
    machine.entropy = Arc::new(move |bytes| {
        assert!(draws.fetch_add(1, std::sync::atomic::Ordering::Relaxed) > 0, "hunter2");
        bytes.fill(7);
    });
    let controller = MachineController::start(clients("machine-controller"), options, machine, None);
    world.apply(0).await;
    let classes: Api<MachineClass> = Api::namespaced(world.user.clone(), NAMESPACE);
    let class = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass", "metadata": {"name": "bug"},
        "provider": "sim", "providerSpec": {"size": "bug"}, "secretRef": {"name": "s", "namespace": NAMESPACE},
    });
    classes.create(&PostParams::default(), &parse(class)).await.expect("the class is accepted");
    let machines: Api<Machine> = Api::namespaced(world.user.clone(), NAMESPACE);
    let make = async |name: &str, class: &str| {
        let machine = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine", "metadata": {"name": name},
            "spec": {"class": {"kind": "MachineClass", "name": class}},
        });
        machines.create(&PostParams::default(), &parse(machine)).await.expect("the Machine is accepted");
    };
    let inspector = controller.inspector();
    let why = |name: &str| {
        let key = Key::Machine(ObjectKey::new(NAMESPACE, name));
        inspector.why(&key).map(|record| record.why.to_string()).unwrap_or_default()
    };
    make("bug-in-planner", "c").await;
    make("bug-in-observing", "bug").await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let in_planner = why("bug-in-planner");
    assert!(
        in_planner
            .starts_with("internal error (please report it): the rule engine failed on this object at ")
            && in_planner.contains("tests/it/main.rs:")
            && in_planner.contains(": no rule for this; next: report this bug"),
        "{in_planner}"
    );
    let observing = why("bug-in-observing");
    assert!(
        observing.contains("reading the object's state failed at ") && !observing.contains("hunter2"),
        "{observing}"
    );

    make("fine", "c").await;
    world.until("the valid machine has its instance", async |w| w.cloud.alive() == 1).await;
    let total = |start: &str| -> f64 {
        let all = inspector.metrics();
        all.iter().filter(|(name, _)| name.starts_with(start)).map(|(_, value)| value).sum()
    };
    // Two Machines several times each, and once the generation of a token.
    assert!(3.0 <= total("machinist_passes_panicked_total{kind=\"machine\"}"), "{:?}", inspector.metrics());
    assert!(total("machinist_passes_panicked_total") < 100.0, "{:?}", inspector.metrics());
    // Correcting the class also corrects its Machine.
    let patch = Patch::Merge(json!({"providerSpec": {"size": "small"}}));
    classes.patch("bug", &PatchParams::default(), &patch).await.expect("the class is accepted");
    world.until("the other machine has its instance, too", async |w| w.cloud.alive() == 2).await;
}

/// A planner that repeats a write which changes nothing.
fn stubborn(s: &machine_deployment::Snapshot) -> Plan<machine_deployment::Action> {
    let wanted = s.deployment.annotations.clone().unwrap_or_default();
    let why = machinist_plan::mcm::Why::new(
        machinist_plan::mcm::Reason::Writing("writing an unchanged value"),
        machinist_core::Step::Nothing,
    );
    Plan::act(machine_deployment::Action::Annotate(wanted), why)
}

#[tokio::test(start_paused = true)]
async fn writes_without_effect_are_retried_with_backoff() {
    let world = World::new().await;
    world.apply(0).await;
    let annotate = Patch::Merge(json!({"metadata": {"annotations": {"a": "b"}}}));
    world.deployments().patch("w", &PatchParams::default(), &annotate).await.expect("annotated");
    let mut requests = world.server.audit();
    let clients = Clients { control: world.client("manager"), target: world.client("manager") };
    let planners = Planners { machine_deployment: stubborn, ..Planners::default() };
    let manager =
        Manager::start(clients, Options { planners, ..Options::from(world.options("manager")) }, None);
    // Sets of other owners wake the deployment, because it may have to adopt them.
    let sets: Api<MachineSet> = Api::namespaced(world.user.clone(), NAMESPACE);
    for minute in 0..30 {
        let set = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet", "metadata": {"name": format!("s{minute}")},
            "spec": {"replicas": 0, "selector": {"matchLabels": {"name": "s"}}, "template": {}},
        });
        sets.create(&PostParams::default(), &parse(set)).await.expect("the set is accepted");
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    let is_attempt = |request: &Arc<machinist_apiserver::AuditRecord>| {
        request.user_agent == "manager"
            && request.resource == "machinedeployments"
            && request.verb == machinist_apiserver::Verb::Patch
    };
    let attempts = requests.drain().into_iter().filter(is_attempt).count();
    // Pauses of 1, 2, 4 ... 256 seconds, then of five minutes.
    assert!((8..=16).contains(&attempts), "{attempts} attempts in half an hour");
    let explained =
        manager.inspector().why(&Key::Deployment(ObjectKey::new(NAMESPACE, "w"))).expect("a reason");
    assert_eq!(explained.why.reason.code(), "NoEffect");
}

#[tokio::test(start_paused = true)]
async fn rejected_writes_are_reported_and_retried_with_backoff() {
    let world = World::new().await;
    // A validation rule of the cluster that rejects our writes.
    let crds: Api<CustomResourceDefinition> = Api::all(world.user.clone());
    let rule = Patch::<Value>::Json(parse(json!([{
        "op": "add",
        "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/x-kubernetes-validations",
        "value": [{"rule": "!has(self.providerID)", "message": "no ids in this cluster"}],
    }])));
    let name = "machines.machine.sapcloud.io";
    crds.patch(name, &PatchParams::default(), &rule).await.expect("the rule is accepted");
    world.apply(0).await;
    let mut requests = world.server.audit();
    let (machine_controller, _manager) = world.start();
    world.make_machine("m").await;
    tokio::time::sleep(Duration::from_secs(30 * 60)).await;
    let is_refused = |request: &Arc<machinist_apiserver::AuditRecord>| {
        request.user_agent == "machine-controller" && request.code == 422
    };
    let refused = requests.drain().into_iter().filter(is_refused).count();
    // Pauses of 1, 2, 4 ... 256 seconds, then of five minutes.
    assert!((8..=20).contains(&refused), "{refused} rejections in half an hour");
    let key = Key::Machine(ObjectKey::new(NAMESPACE, "m"));
    let why = machine_controller.inspector().why(&key).expect("a reason").why;
    assert_eq!(why.reason.code(), "ChangeRefused");
    assert!(why.to_string().contains("no ids in this cluster"), "{why}");
    let [event] = world.events("ChangeRefused").await.try_into().expect("one Event");
    assert!(event.message.unwrap_or_default().contains("no ids in this cluster"));
    assert_eq!(event.involved_object.name.as_deref(), Some("m"));
}

/// A Machine's name becomes a label value, and 64 characters are too long for one.
#[tokio::test(start_paused = true)]
async fn a_machine_with_a_too_long_name_gets_no_instance() {
    let world = World::new().await;
    world.apply(0).await;
    let _processes = world.start_long_ago().await;
    let name = "y".repeat(64);
    let machines = world.make_machine(&name).await;
    let waits = |machine: &Machine| machine.phase() == Phase::CrashLoopBackOff;
    world.until("the Machine waits", async |w| w.machines().await.iter().any(waits)).await;
    let status = world.machines().await.remove(0).status.unwrap_or_default();
    assert_eq!(
        status.last_operation.expect("the Machine has a last operation").description(),
        "Creation is blocked: invalid spec: metadata.name: expected at most 63 characters, since it becomes the value \
         of a label, got 64 characters"
    );
    assert_eq!(world.cloud.ledger().ever().len(), 0);
    machines.delete(&name, &DeleteParams::default()).await.expect("deleted");
    world.until("the Machine is deleted", async |w| w.machines().await.is_empty()).await;
}

/// Another program that does not reject such names created this Machine.
#[tokio::test(start_paused = true)]
async fn an_instance_with_a_too_long_name_is_deleted() {
    let world = World::new().await;
    world.apply(0).await;
    let name = "y".repeat(64);
    let machines = world.make_machine(&name).await;
    let foreigner = Foreigner {
        id: None,
        name: NodeName::new(&name).expect("a name"),
        key: None,
        project: String::new(),
        created: world.clock.now(),
        instance_type: "small".to_owned(),
        user_data: UserData::default(),
    };
    world.cloud.load(&foreigner).expect("the instance is accepted");
    let finalizers = json!({"metadata": {"finalizers": ["machine.sapcloud.io/machine-controller-manager"]}});
    machines.patch(&name, &PatchParams::default(), &Patch::Merge(finalizers)).await.expect("patched");
    let _processes = world.start();
    machines.delete(&name, &DeleteParams::default()).await.expect("deleted");
    world.until("both are deleted", async |w| w.machines().await.is_empty() && w.cloud.alive() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn deleting_a_class_or_secret_in_use_emits_one_event() {
    let world = World::new().await;
    let (machine_controller, _manager) = world.start();
    world.apply(2).await;
    world.until_running(2).await;
    let classes: Api<MachineClass> = Api::namespaced(world.user.clone(), NAMESPACE);
    let secrets: Api<Secret> = Api::namespaced(world.user.clone(), NAMESPACE);
    classes.delete("c", &DeleteParams::default()).await.expect("deleted");
    secrets.delete("s", &DeleteParams::default()).await.expect("deleted");
    // Every object has another pass after ten minutes.
    tokio::time::sleep(Duration::from_secs(30 * 60)).await;
    let first = world.machines().await.iter().filter_map(|machine| machine.metadata.name.clone()).min();
    let first = first.expect("a Machine");
    let events = world.events("StillInUse").await;
    assert!(events.iter().all(|event| event.count.unwrap_or(1) == 1), "{events:#?}");
    let messages: Vec<_> = events.into_iter().map(|event| event.message.unwrap_or_default()).collect();
    assert_eq!(
        messages,
        [
            format!(
                "Deletion is blocked: in use by 2 machines; the first is {first}. To unblock it: delete these machines, or \
                 replace them with machines of another class. This class creates no new machines."
            ),
            "Deletion is blocked: in use by MachineClass c. To unblock it: change the classes to refer to another Secret, or \
             delete them."
                .to_owned(),
        ]
    );
    let why = |key| machine_controller.inspector().why(&key).expect("a reason").why.reason.code();
    assert_eq!(why(Key::Class(ObjectKey::new(NAMESPACE, "c"))), "InUse");
    assert_eq!(why(Key::Secret(ObjectKey::new(NAMESPACE, "s"))), "InUse");

    world.deployments().delete("w", &DeleteParams::default()).await.expect("deleted");
    world
        .until("class and Secret are deleted", async |_| {
            let class = classes.get_opt("c").await.expect("an answer");
            class.is_none() && secrets.get_opt("s").await.expect("an answer").is_none()
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_remembered_about_deleted_objects() {
    let world = World::new().await;
    let (machine_controller, manager) = world.start();
    world.apply(2).await;
    world.until_running(2).await;
    let gauge = |running: &Running, name: &str| {
        let all = running.inspector().metrics();
        all.into_iter().find(|(metric, _)| metric == name).expect("a gauge").1
    };
    assert_eq!(gauge(&machine_controller, "machinist_remembered_machines"), 2.0);
    assert_eq!(gauge(&manager, "machinist_remembered_owners"), 2.0);

    // A user removes all finalizers before the controllers do.
    let deployments = world.deployments();
    let sets: Api<MachineSet> = Api::namespaced(world.user.clone(), NAMESPACE);
    let machines: Api<Machine> = Api::namespaced(world.user.clone(), NAMESPACE);
    let bare = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    let params = PatchParams::default();
    let gone = DeleteParams::default();
    deployments.delete("w", &gone).await.expect("deleted");
    deployments.patch("w", &params, &bare).await.expect("patched");
    for set in sets.list(&ListParams::default()).await.expect("a list") {
        let name = set.metadata.name.expect("a name");
        sets.delete(&name, &gone).await.expect("deleted");
        sets.patch(&name, &params, &bare).await.expect("patched");
    }
    for machine in world.machines().await {
        let name = machine.metadata.name.expect("a name");
        machines.delete(&name, &gone).await.expect("deleted");
        machines.patch(&name, &params, &bare).await.expect("patched");
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(world.machines().await.is_empty());
    assert_eq!(gauge(&machine_controller, "machinist_remembered_machines"), 0.0);
    assert_eq!(gauge(&manager, "machinist_remembered_owners"), 0.0);
}

#[tokio::test(start_paused = true)]
async fn an_empty_selector_is_a_condition_and_an_event() {
    let world = World::new().await;
    let _processes = world.start();
    let deployment = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment", "metadata": {"name": "w"},
        "spec": {
            "replicas": 1, "selector": {},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            "template": {"spec": {"class": {"kind": "MachineClass", "name": "c"}}},
        },
    });
    world
        .deployments()
        .create(&PostParams::default(), &parse(deployment))
        .await
        .expect("the deployment is accepted");
    tokio::time::sleep(Duration::from_secs(30)).await;
    let status =
        world.deployments().get("w").await.expect("the deployment exists").status.unwrap_or_default();
    let conditions: Vec<_> = status
        .conditions
        .iter()
        .map(|condition| {
            format!(
                "{} {} {}",
                condition.type_,
                condition.status,
                condition.reason.as_deref().unwrap_or_default()
            )
        })
        .collect();
    assert_eq!(
        conditions,
        [
            "Progressing False SelectingAll",
            "Available False MinimumReplicasUnavailable",
            "ReplicaFailure True SelectingAll",
        ]
    );
    let events: Api<Event> = Api::namespaced(world.user.clone(), NAMESPACE);
    let events = events.list(&ListParams::default()).await.expect("a list").items;
    let [event] = events.as_slice() else { panic!("one Event: {events:#?}") };
    assert_eq!((event.reason.as_deref(), event.type_.as_deref()), (Some("SelectingAll"), Some("Warning")));
    assert_eq!(event.count.unwrap_or(1), 1, "the Event is emitted once");
}
