//! Tests of the identity of a Machine's instance, Node and token, where names and ids alone are
//! ambiguous.

use k8s_openapi::api::core::v1::Pod;
use machinist_apiserver::Verb;
use machinist_cloud_sim::LedgerEntry;
use machinist_instance::ProviderId;
use machinist_plan::mcm::facts::TOKEN_NAMESPACE;

use super::*;

const FINALIZER: &str = "machine.sapcloud.io/machine-controller-manager";

impl World {
    fn machines_api(&self) -> Api<Machine> {
        Api::namespaced(self.user.clone(), NAMESPACE)
    }

    /// Creates a Machine as another program does: with its finalizer, its label and this id.
    pub(super) async fn leave_machine(&self, name: &str, provider_id: &str) -> Machine {
        let machine = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": {"name": name, "labels": {"node": name}, "finalizers": [FINALIZER]},
            "spec": {"class": {"kind": "MachineClass", "name": "c"}, "providerID": provider_id},
        });
        let machine = parse(machine);
        self.machines_api().create(&PostParams::default(), &machine).await.expect("the Machine is accepted")
    }

    /// Creates an instance as another program does: without a key, created this many seconds from
    /// now.
    pub(super) fn leave_instance(&self, name: &str, id: Option<&str>, seconds: i64) -> LedgerEntry {
        let foreigner = Foreigner {
            project: String::new(),
            id: id.map(|id| ProviderId::parse(id).expect("not empty")),
            name: NodeName::new(name).expect("a name"),
            key: None,
            created: self.clock.now() + jiff::SignedDuration::from_secs(seconds),
            instance_type: "small".to_owned(),
            user_data: UserData::default(),
        };
        self.cloud.load(&foreigner).expect("the instance is accepted")
    }

    pub(super) async fn delete_machine(&self, name: &str) {
        self.machines_api().delete(name, &DeleteParams::default()).await.expect("deleted");
    }

    async fn tokens(&self) -> Vec<String> {
        let secrets: Api<Secret> = Api::namespaced(self.user.clone(), TOKEN_NAMESPACE);
        let all = secrets.list(&ListParams::default()).await.expect("a list").items;
        all.into_iter().filter_map(|secret| secret.metadata.name).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_with_another_spelling_is_joined_and_deleted() {
    let world = World::new().await;
    world.apply(0).await;
    let _processes = world.start();
    world.make_machine("m").await;
    world.until("the instance exists", async |w| w.cloud.alive() == 1).await;
    let nodes: Api<Node> = Api::all(world.user.clone());
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "m"}, "spec": {"providerID": "sim:///sim-1a/i-1"},
    });
    nodes.create(&PostParams::default(), &parse(node)).await.expect("the Node is accepted");
    let status = Patch::Strategic(json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}));
    nodes.patch_status("m", &PatchParams::default(), &status).await.expect("the status is accepted");
    world.until("it runs", async |w| running(w).await == 1).await;
    tokio::time::sleep(Duration::from_secs(30 * 60)).await;
    assert_eq!(running(&world).await, 1, "the Machine stays healthy");
    let mut requests = world.server.audit();
    world.delete_machine("m").await;
    world
        .until("Machine and instance are deleted", async |w| {
            w.machines().await.is_empty() && w.cloud.alive() == 0
        })
        .await;
    assert_eq!(nodes.get_opt("m").await.expect("an answer"), None);
    let cordoned = requests.drain().into_iter().any(|request| {
        request.user_agent == "machine-controller"
            && request.resource == "nodes"
            && request.verb == Verb::Patch
    });
    assert!(cordoned);
}

/// Go MCM with provider-local creates such Machines.
#[tokio::test(start_paused = true)]
async fn an_instance_with_a_bare_id_is_adopted() {
    let world = World::new().await;
    world.cloud.configure(|settings| settings.scheme = String::new());
    world.apply(0).await;
    world.leave_machine("m", "machine-m").await;
    world.leave_instance("m", Some("machine-m"), 0);
    let _processes = world.start();
    world.until_running(1).await;
    assert_eq!(world.cloud.ledger().ever().len(), 1);
    world.delete_machine("m").await;
    world.until("both are deleted", async |w| w.machines().await.is_empty() && w.cloud.alive() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn for_invalid_ids_no_driver_call_happens_before_the_label() {
    let world = World::new().await;
    world.apply(0).await;
    let (machine_controller, _manager) = world.start();
    let inspector = machine_controller.inspector();
    for (name, id, code) in [
        ("theirs", "aws:///eu-west-1a/i-1", "ProviderIdNotOurs"),
        ("broken", "sim:///", "ProviderIdMalformed"),
    ] {
        world.leave_machine(name, id).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        let why = || {
            let key = Key::Machine(ObjectKey::new(NAMESPACE, name));
            inspector.why(&key).map(|record| record.why).expect("the machine has a decision")
        };
        assert_eq!(why().reason.code(), code);
        world.delete_machine(name).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(world.machines().await.len(), 1, "{name} waits");
        assert!(why().to_string().contains("force-deletion=true"), "{}", why());
        let force = Patch::Merge(json!({"metadata": {"labels": {"force-deletion": "true"}}}));
        world.machines_api().patch(name, &PatchParams::default(), &force).await.expect("labelled");
        world.until("the Machine is deleted", async |w| w.machines().await.is_empty()).await;
    }
    assert_eq!(world.cloud.calls(), []);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let events = world.events("InstanceLeftBehind").await;
    let left = events
        .iter()
        .filter_map(|event| event.message.as_deref())
        .filter(|message| message.contains("left behind"));
    assert_eq!(left.count(), 2, "{events:#?}");
}

#[tokio::test(start_paused = true)]
async fn an_instance_with_the_time_of_a_late_clock_is_adopted() {
    let world = World::new().await;
    world.apply(0).await;
    world.make_machine("m").await;
    let theirs = world.leave_instance("m", None, -3);
    let _processes = world.start();
    world.until_running(1).await;
    let machine = world.machines().await.remove(0);
    assert_eq!(machine.spec.provider_id(), Some(theirs.id.as_str()));
    assert_eq!(world.cloud.ledger().ever().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_instance_of_a_late_clock_is_deleted_with_its_machine() {
    let world = World::new().await;
    world.apply(0).await;
    let finalizers = Patch::Merge(json!({"metadata": {"finalizers": [FINALIZER]}}));
    world.make_machine("m").await.patch("m", &PatchParams::default(), &finalizers).await.expect("patched");
    world.leave_instance("m", None, -3);
    world.delete_machine("m").await;
    let _processes = world.start();
    world.until("both are deleted", async |w| w.machines().await.is_empty() && w.cloud.alive() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn an_older_instance_stays_and_is_named_in_an_event() {
    let world = World::new().await;
    world.apply(0).await;
    let pet = world.leave_instance("m", None, -3600);
    let _processes = world.start_long_ago().await;
    world.make_machine("m").await;
    let refused = |machine: &Machine| machine.phase() == Phase::CrashLoopBackOff;
    world.until("the creation fails", async |w| w.machines().await.iter().any(refused)).await;
    world.delete_machine("m").await;
    world.until("the Machine is deleted", async |w| w.machines().await.is_empty()).await;
    assert_eq!(world.cloud.alive(), 1);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let [event] = world.events("InstanceNotOurs").await.try_into().expect("one Event");
    let message = event.message.unwrap_or_default();
    assert!(message.contains(pet.id.as_str()), "{message}");
}

#[tokio::test(start_paused = true)]
async fn two_machines_with_the_same_name_suffix_get_two_tokens() {
    let world = World::new().await;
    world.apply(0).await;
    let _processes = world.start();
    world.make_machine("a-bjhxp").await;
    world.make_machine("b-bjhyy").await;
    world.until("both instances exist", async |w| w.cloud.alive() == 2).await;
    let tokens = world.tokens().await;
    assert_eq!(tokens.len(), 2, "{tokens:?}");
    assert!(
        tokens.contains(&"bootstrap-token-626a68".to_owned()),
        "the token id that Go derives: {tokens:?}"
    );
    world.until_running(2).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(world.tokens().await, Vec::<String>::new());
}

/// The spelling of an id with the zone.
fn with_zone(id: &str) -> String {
    id.replace("sim:///", "sim:///sim-1a/")
}

/// Starts a world in which Machine "m" runs, and "copy" names its instance in another spelling.
async fn running_with_a_copy() -> (World, (Running, Running)) {
    let world = World::new().await;
    world.apply(0).await;
    let instance = world.leave_instance("m", None, 0).id;
    world.leave_machine("m", instance.as_str()).await;
    let processes = world.start();
    world.until_running(1).await;
    // Creation times are cut to whole seconds.
    tokio::time::sleep(Duration::from_secs(2)).await;
    world.leave_machine("copy", &with_zone(instance.as_str())).await;
    (world, processes)
}

#[tokio::test(start_paused = true)]
async fn deleting_a_copy_keeps_the_instance_of_the_original() {
    let (world, _processes) = running_with_a_copy().await;
    let label = Patch::Merge(json!({"metadata": {"labels": {"node": "m"}}}));
    world.machines_api().patch("copy", &PatchParams::default(), &label).await.expect("labelled");
    world.delete_machine("copy").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let force = Patch::Merge(json!({"metadata": {"labels": {"force-deletion": "true"}}}));
    world.machines_api().patch("copy", &PatchParams::default(), &force).await.expect("labelled");
    world.until("the copy is deleted", async |w| w.machines().await.len() == 1).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((running(&world).await, world.cloud.alive()), (1, 1), "the original keeps its instance");
    let nodes: Api<Node> = Api::all(world.user.clone());
    let node = nodes.get("m").await.expect("the Node exists");
    assert_eq!(node.spec.and_then(|spec| spec.unschedulable), None, "the Node was not cordoned");
}

#[tokio::test(start_paused = true)]
async fn a_copy_is_deleted_after_its_original() {
    let (world, _processes) = running_with_a_copy().await;
    world.delete_machine("copy").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.machines().await.len(), 2, "the copy waits");
    world.delete_machine("m").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((world.machines().await.len(), world.cloud.alive()), (0, 0));
}

/// Deletes a Machine whose label `node` has this value, and which has the Node "ip-1".
async fn delete_with_label(label: Value) {
    let world = World::new().await;
    world.apply(0).await;
    let instance = world.leave_instance("ip-1", None, 0).id;
    world.leave_machine("m", &with_zone(instance.as_str())).await;
    let labelled = Patch::Merge(json!({"metadata": {"labels": {"node": label}}}));
    world.machines_api().patch("m", &PatchParams::default(), &labelled).await.expect("patched");
    let nodes: Api<Node> = Api::all(world.user.clone());
    world.join().await;
    let _processes = world.start();
    let mut requests = world.server.audit();
    world.delete_machine("m").await;
    world
        .until("Machine and instance are deleted", async |w| {
            w.machines().await.is_empty() && w.cloud.alive() == 0
        })
        .await;
    assert_eq!(nodes.get_opt("ip-1").await.expect("an answer"), None, "the Node is deleted");
    let listed = requests.drain().into_iter().any(|request| {
        request.user_agent == "machine-controller" && request.resource == "pods" && request.verb == Verb::List
    });
    assert!(listed, "the Node was drained");
}

/// The cloud chooses Node names, and tools and restores may remove labels.
#[tokio::test(start_paused = true)]
async fn a_node_without_a_label_is_found_by_its_id() {
    delete_with_label(Value::Null).await;
}

/// A user may overwrite labels, and a kubelet may register under another name.
#[tokio::test(start_paused = true)]
async fn a_node_with_a_wrong_label_is_found_by_its_id() {
    delete_with_label(json!("wrong")).await;
}

/// A kubelet that starts with another name registers a second Node. Pods are on both.
#[tokio::test(start_paused = true)]
async fn each_node_of_an_instance_is_drained() {
    let (world, _processes, machine, name) = one_machine().await;
    rename(&world, &machine, "Unknown").await;
    world.bind_pod("on-ready", &name).await;
    world.bind_pod("on-renamed", "renamed").await;
    world.delete_machine(&name).await;
    for pod in ["on-ready", "on-renamed"] {
        until_evicted(&world, pod).await;
        assert!(is_alive(&world, &name), "the instance runs until {pod} has left");
        leaves(&world, pod).await;
    }
    world.until("the instance is deleted", async |w| !is_alive(w, &name)).await;
}

/// Starts both processes, with one Machine that runs.
async fn one_machine() -> (World, (Running, Running), Machine, String) {
    let world = World::new().await;
    let processes = world.start();
    world.apply(1).await;
    world.until_running(1).await;
    let machine = world.machines().await.remove(0);
    let name = machine.metadata.name.clone().expect("a name");
    (world, processes, machine, name)
}

/// Waits until a pod has been evicted. No kubelet ends it.
async fn until_evicted(world: &World, pod: &str) {
    let pods: Api<Pod> = Api::namespaced(world.user.clone(), NAMESPACE);
    let is_leaving =
        async |_: &World| pods.get(pod).await.expect("the pod").metadata.deletion_timestamp.is_some();
    world.until(&format!("{pod} is evicted"), is_leaving).await;
}

/// Ends a pod, as its kubelet would.
async fn leaves(world: &World, pod: &str) {
    let pods: Api<Pod> = Api::namespaced(world.user.clone(), NAMESPACE);
    pods.delete(pod, &DeleteParams::default().grace_period(0)).await.expect("the pod has left");
}

fn is_alive(world: &World, instance: &str) -> bool {
    world.cloud.ledger().alive().any(|alive| alive.name.as_str() == instance)
}

/// Creates another Node of the instance of a Machine.
async fn rename(world: &World, machine: &Machine, ready: &str) {
    // A creation timestamp has whole seconds.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let id = machine.spec.provider_id.clone().expect("an instance");
    let second = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "renamed"}, "spec": {"providerID": id},
    });
    let nodes: Api<Node> = Api::all(world.user.clone());
    nodes.create(&PostParams::default(), &parse(second)).await.expect("the second Node is created");
    let now = format!("{:.0}", world.clock.now());
    world.ready("renamed", json!({"type": "Ready", "status": ready, "lastTransitionTime": now})).await;
}

/// A kubelet that registered once under another name leaves a Node that is not Ready.
#[tokio::test(start_paused = true)]
async fn of_two_nodes_of_an_instance_the_ready_one_counts() {
    let (world, _processes, machine, name) = one_machine().await;
    rename(&world, &machine, "False").await;
    world.bind_pod("p", &name).await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(running(&world).await, 1, "the Machine is healthy");
    world.delete_machine(&name).await;
    until_evicted(&world, "p").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(is_alive(&world, &name), "the pod still runs");
    leaves(&world, "p").await;
    let nodes: Api<Node> = Api::all(world.user.clone());
    let no_node =
        async |_: &World| nodes.list(&ListParams::default()).await.expect("a list").items.is_empty();
    world.until("instance and both Nodes are deleted", no_node).await;
    assert!(!is_alive(&world, &name));
}

#[tokio::test(start_paused = true)]
async fn a_user_can_delete_the_other_node_of_an_instance() {
    let (world, _processes, machine, _) = one_machine().await;
    rename(&world, &machine, "True").await;
    let nodes: Api<Node> = Api::all(world.user.clone());
    let has_finalizer =
        async |_: &World| nodes.get("renamed").await.expect("the Node").metadata.finalizers.is_some();
    world.until("the newer Node has our finalizer", has_finalizer).await;
    // The kubelet registers under its former name again.
    world.ready("renamed", json!({"type": "Ready", "status": "False"})).await;
    nodes.delete("renamed", &DeleteParams::default()).await.expect("the deletion begins");
    let is_gone = async |_: &World| nodes.get_opt("renamed").await.expect("an answer").is_none();
    world.until("the other Node is gone", is_gone).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let left = world.machines().await.remove(0);
    assert_eq!((left.metadata.uid, running(&world).await), (machine.metadata.uid, 1));
}

/// A kubelet registers under another name, and that Node is not Ready at first. Meanwhile the
/// leftover still looks Ready.
#[tokio::test(start_paused = true)]
async fn a_deleted_leftover_node_deletes_no_machine() {
    let (world, _processes, machine, name) = one_machine().await;
    rename(&world, &machine, "False").await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let nodes: Api<Node> = Api::all(world.user.clone());
    nodes.delete(&name, &DeleteParams::default()).await.expect("the deletion begins");
    world.ready("renamed", json!({"type": "Ready", "status": "True"})).await;
    let is_gone = async |_: &World| nodes.get_opt(&name).await.expect("an answer").is_none();
    world.until("the leftover is gone", is_gone).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let left = world.machines().await.remove(0);
    assert_eq!((&left.metadata.uid, running(&world).await), (&machine.metadata.uid, 1));
    // The last Node of the instance stands for the Machine.
    nodes.delete("renamed", &DeleteParams::default()).await.expect("the deletion begins");
    world
        .until("another Machine exists", async |w| {
            let all = w.machines().await;
            all.iter().all(|other| other.metadata.uid != left.metadata.uid)
        })
        .await;
}

/// A finalizer keeps the pods on both Nodes after their deletion was accepted.
#[tokio::test(start_paused = true)]
async fn a_drain_by_force_ends_on_all_nodes() {
    let (world, _processes, machine, name) = one_machine().await;
    rename(&world, &machine, "Unknown").await;
    world.bind_pod("on-ready", &name).await;
    world.bind_pod("on-renamed", "renamed").await;
    let pods: Api<Pod> = Api::namespaced(world.user.clone(), NAMESPACE);
    for pod in ["on-ready", "on-renamed"] {
        let kept = Patch::Merge(json!({"metadata": {"finalizers": ["example.com/job"]}}));
        pods.patch(pod, &PatchParams::default(), &kept).await.expect("the finalizer is accepted");
    }
    let short = Patch::Merge(json!({"spec": {"template": {"spec": {"drainTimeout": "3m"}}}}));
    world.deployments().patch("w", &PatchParams::default(), &short).await.expect("patched");
    let is_short = async |w: &World| w.machines().await[0].spec.configuration.drain_timeout().is_some();
    world.until("the Machine has the timeout", is_short).await;
    world.delete_machine(&name).await;
    world.until("the instance is deleted", async |w| !is_alive(w, &name)).await;
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_removed_by_hand_is_reported() {
    let world = World::new().await;
    let _processes = world.start();
    world.apply(2).await;
    world.until_running(2).await;
    let [first, second] = world.machines().await.try_into().expect("two Machines");
    let name = first.metadata.name.expect("a name");
    world.delete_machine(&name).await;
    let without = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    world.machines_api().patch(&name, &PatchParams::default(), &without).await.expect("patched");
    world.until("the loss is reported", async |w| w.events("FinalizerLost").await.len() == 1).await;
    let id = first.spec.provider_id.expect("an instance");
    let message = world.events("FinalizerLost").await.remove(0).message.unwrap_or_default();
    assert!(message.contains(&name) && message.contains(&id), "{message}");

    let other = second.metadata.name.expect("a name");
    world.delete_machine(&other).await;
    let api = world.machines_api();
    let is_gone = async |_: &World| api.get_opt(&other).await.expect("an answer").is_none();
    world.until("the other Machine is gone", is_gone).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(world.events("FinalizerLost").await.len(), 1, "the controller removed this finalizer");
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_removed_before_the_deletion_is_reported() {
    let world = World::new().await;
    let _processes = world.start();
    world.apply(1).await;
    world.until_running(1).await;
    let name = world.machines().await.remove(0).metadata.name.expect("a name");
    let without = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    // Together, so that the controller cannot add the finalizer again in between.
    let (api, params) = (world.machines_api(), PatchParams::default());
    let (patched, ()) = tokio::join!(api.patch(&name, &params, &without), world.delete_machine(&name));
    patched.expect("patched");
    let reports = async |w: &World| w.events("FinalizerLost").await.len();
    world.until("the loss is reported", async |w| reports(w).await == 1).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(reports(&world).await, 1, "once");
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_machine_counts_after_a_restart() {
    let world = World::new().await;
    let (_machine_controller, manager) = world.start();
    world.apply(3).await;
    world.until_running(3).await;
    drop(manager);
    let name = world.machines().await.remove(0).metadata.name.expect("a name");
    let resource = kube::api::ApiResource::erase::<Machine>(&());
    let raw: Api<kube::api::DynamicObject> = Api::namespaced_with(world.user.clone(), NAMESPACE, &resource);
    let odd =
        |labels: Value| Patch::Merge(json!({"spec": {"nodeTemplate": {"metadata": {"labels": labels}}}}));
    let params = PatchParams::default();
    raw.patch(&name, &params, &odd(json!({"pool": 5}))).await.expect("the API server accepts it");
    let clients = Clients { control: world.client("manager"), target: world.client("manager") };
    let _manager = Manager::start(clients, world.options("manager"), None);
    let count = async || raw.list_metadata(&ListParams::default()).await.expect("a list").items.len();
    for _ in 0..120 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(count().await, 3, "the Machine is there, and no other is made in its place");
    }
    // Its deletion is noticed, too.
    raw.delete(&name, &DeleteParams::default()).await.expect("deleted");
    let without = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    raw.patch(&name, &params, &without).await.expect("patched");
    world.until("another Machine is made", async |w| w.machines().await.len() == 3).await;
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_machine_keeps_class_and_secret() {
    let world = World::new().await;
    world.apply(0).await;
    let machine = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine", "metadata": {"name": "odd"},
        "spec": {
            "class": {"kind": "MachineClass", "name": "c"}, "providerID": "sim:///i-1",
            "nodeTemplate": {"metadata": {"labels": {"pool": 5}}},
        },
    });
    let resource = kube::api::ApiResource::erase::<Machine>(&());
    let raw: Api<kube::api::DynamicObject> = Api::namespaced_with(world.user.clone(), NAMESPACE, &resource);
    raw.create(&PostParams::default(), &parse(machine)).await.expect("the API server accepts it");
    let classes: Api<MachineClass> = Api::namespaced(world.user.clone(), NAMESPACE);
    // An earlier process could parse the Machine.
    let held = Patch::Merge(json!({"metadata": {"finalizers": [FINALIZER]}}));
    classes.patch("c", &PatchParams::default(), &held).await.expect("patched");
    let (machine_controller, _manager) = world.start();
    classes.delete("c", &DeleteParams::default()).await.expect("deleted");
    tokio::time::sleep(Duration::from_secs(30 * 60)).await;
    let why = machine_controller.inspector().why(&Key::Class(ObjectKey::new(NAMESPACE, "c")));
    assert_eq!(why.expect("a reason").why.reason.to_string(), "Machine odd may use it, and cannot be parsed");
    raw.delete("odd", &DeleteParams::default()).await.expect("deleted");
    world
        .until("the class is gone", async |_| classes.get_opt("c").await.expect("an answer").is_none())
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_machine_is_gone_can_be_deleted() {
    let world = World::new().await;
    let (machine_controller, _manager) = world.start();
    world.apply(1).await;
    world.until_running(1).await;
    let name = world.machines().await.remove(0).metadata.name.expect("a name");
    let nodes: Api<Node> = Api::all(world.user.clone());
    let has_finalizer = async |_: &World| {
        let node = nodes.get(&name).await.expect("the Node exists");
        node.metadata.finalizers.is_some_and(|all| !all.is_empty())
    };
    world.until("the Node has the finalizer", has_finalizer).await;
    // The Machine goes while no controller runs.
    drop(machine_controller);
    world.scale(0).await;
    let without = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    world.machines_api().patch(&name, &PatchParams::default(), &without).await.expect("patched");
    world.until("the Machine is gone", async |w| w.machines().await.is_empty()).await;

    let provider = Arc::new(SimProvider::in_process(world.cloud.clone()));
    let clients = Clients { control: world.client("mc"), target: world.client("mc") };
    let options = MachineOptions::new(provider, "test");
    let _successor = MachineController::start(clients, world.options("mc"), options, None);
    tokio::time::sleep(Duration::from_secs(30)).await;
    nodes.delete(&name, &DeleteParams::default()).await.expect("deleted");
    let is_gone = async |_: &World| nodes.get_opt(&name).await.expect("an answer").is_none();
    world.until("the Node is gone", is_gone).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_of_another_installation_keeps_its_finalizer() {
    let world = World::new().await;
    let _processes = world.start();
    let nodes: Api<Node> = Api::all(world.user.clone());
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": "n", "finalizers": ["node.machine.sapcloud.io/machine-controller"],
            "annotations": {"machinist.dev/machine": "another/default/7ece3c7f"},
        },
    });
    nodes.create(&PostParams::default(), &parse(node)).await.expect("created");
    nodes.delete("n", &DeleteParams::default()).await.expect("deleted");
    tokio::time::sleep(Duration::from_secs(3600)).await;
    nodes.get("n").await.expect("it stays until that installation releases it");
}

#[tokio::test(start_paused = true)]
async fn a_machine_whose_owner_does_not_exist_is_reported() {
    let world = World::new().await;
    let (machine_controller, _manager) = world.start();
    world.apply(1).await;
    world.until_running(1).await;
    let machine = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
        "metadata": {
            "name": "restored", "finalizers": [FINALIZER],
            "ownerReferences": [{
                "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet", "name": "w-1", "uid": "old",
                "controller": true,
            }],
        },
        "spec": {"class": {"kind": "MachineClass", "name": "c"}},
    });
    world.machines_api().create(&PostParams::default(), &parse(machine)).await.expect("accepted");
    world.until("the Event is there", async |w| !w.events("OwnerMissing").await.is_empty()).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let [event] =
        world.events("OwnerMissing").await.try_into().expect("one Event, and none of other Machines");
    assert_eq!(event.involved_object.name.as_deref(), Some("restored"));
    let key = Key::Machine(ObjectKey::new(NAMESPACE, "restored"));
    let why = machine_controller.inspector().waits().remove(&key).expect("a reason");
    assert_eq!(why.reason.to_string(), "owner MachineSet w-1 not found");
}
