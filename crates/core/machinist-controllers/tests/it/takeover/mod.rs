//! Both processes continue what the real Go providers left in a cluster and in a cloud: the
//! situations of `fixtures/go-aws`, `fixtures/go-hcloud` and `fixtures/go-openstack`.
//!
//! A cloud in memory gets the cloud's objects that the fixture shows, and the API server gets the
//! Kubernetes objects. The processes start, and kubelets join. Later a user deletes all Machines.
//! In each situation:
//!
//! - A deletion that Go began ends, and nothing is left of its instance.
//! - The other Machines keep their instances, their ids as Go spelled them, and their Nodes. They
//!   get the phase that the situation names.
//! - No Machine gets a second instance, and the marks of Go's instances stay.
//! - An instance, a part or a Node that no Machine has is not touched.
//! - Nothing is left when all Machines are deleted.

mod aws;
mod hcloud;
mod openstack;

use std::collections::BTreeMap;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Namespace;
use machinist_plan::mcm::facts::TOKEN_NAMESPACE;
use machinist_plan::mcm::orphan;

use super::*;

/// The time between two looks of kubelets that want to join.
const STEP: Duration = Duration::from_secs(10);
/// Longer than a deletion with two looks ten minutes apart, and less than the creation timeout, so
/// that no Machine is replaced.
const A_WHILE: Duration = Duration::from_secs(900);
/// Longer than the creation timeout, a deletion, and the creation of a replacement.
const UNTIL_REPLACED: Duration = Duration::from_secs(3600);
/// Longer than each deletion takes.
const LONG: Duration = Duration::from_secs(3600);

/// The state that Machines reach which Go did not delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// They exist. No kubelet joins.
    Exist,
    /// They run.
    Run,
    /// Their creation is refused with this code.
    Refused(&'static str),
    /// Their set has replaced them, and the replacements run.
    Replaced,
    /// As `Replaced`, but nothing proves that today's Secret opens the account of their instances.
    /// So their deletion waits until a user sets the label `force-deletion`.
    ReplacedInDoubt,
}

impl End {
    fn is_replaced(self) -> bool {
        matches!(self, Self::Replaced | Self::ReplacedInDoubt)
    }

    fn after(self) -> Duration {
        if self.is_replaced() { UNTIL_REPLACED } else { A_WHILE }
    }
}

/// A cloud in memory with the objects that Go left.
trait Counterpart {
    /// A provider without memory.
    fn provider(&self) -> Arc<dyn Provider>;

    /// The instances that the cloud shows, also if they are deleted.
    fn instances(&self) -> Vec<Shown>;

    /// The objects that an instance uses and that can exist without it.
    fn parts(&self) -> Vec<Part>;
}

/// An instance, as the cloud shows it.
#[derive(Debug, Clone)]
struct Shown {
    /// The id of the cloud.
    id: String,
    /// The name of the Machine.
    machine: String,
    is_alive: bool,
    /// Whether it has the marks by which Go's provider finds the instances of the class.
    is_marked: bool,
    marks: BTreeMap<String, String>,
    /// The name of the Node that its kubelet registers.
    node: String,
    /// The provider id of that Node.
    node_id: String,
}

/// An object that an instance uses.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Part {
    text: String,
    /// The name of the Machine, if the instance or the part itself has Go's marks.
    machine: Option<String>,
}

/// A fixture.
struct Left(Value);

/// A Machine of a fixture.
struct LeftMachine {
    name: String,
    id: Option<String>,
    node: Option<String>,
    is_deleting: bool,
}

impl Left {
    fn read(provider: &str, name: &str) -> Self {
        let path = format!("{}/{name}.json", folder(provider));
        let text = std::fs::read_to_string(path).expect("the fixture is checked in");
        Self(serde_json::from_str(&text).expect("JSON"))
    }

    fn items(&self) -> Vec<&Value> {
        list(&self.0["items"])
    }

    /// The objects of one kind in the cloud. Fixtures of an empty cloud lack them.
    fn cloud(&self, kind: &str) -> Vec<&Value> {
        list(&self.0["cloud"][kind])
    }

    /// The requests that Go sent to the cloud.
    fn requests(&self) -> Vec<&Value> {
        list(&self.0["requests"])
    }

    /// The namespace of the objects. A fixture may have none.
    fn namespace(&self) -> String {
        let items = self.items();
        let named = items.iter().find_map(|item| item["metadata"]["namespace"].as_str());
        named.unwrap_or("shoot").to_owned()
    }

    /// The moment at which our processes start.
    fn moment(&self) -> jiff::Timestamp {
        let recorded: jiff::Timestamp = text(&self.0["recordedAt"]).parse().expect("a time");
        recorded + SignedDuration::from_secs(5)
    }

    fn machines(&self) -> Vec<LeftMachine> {
        let machines = self.items().into_iter().filter(|item| item["kind"] == "Machine");
        let machine = |item: &Value| LeftMachine {
            name: text(&item["metadata"]["name"]),
            id: item["spec"]["providerID"].as_str().map(str::to_owned),
            node: item["metadata"]["labels"]["node"].as_str().map(str::to_owned),
            is_deleting: !item["metadata"]["deletionTimestamp"].is_null(),
        };
        machines.map(machine).collect()
    }
}

impl LeftMachine {
    /// Whether the Machine has an instance: its id is recorded, or Go was about to record it.
    fn has(&self, shown: &Shown) -> bool {
        let is_it = match &self.id {
            Some(id) => native(id) == shown.id,
            None => shown.is_alive && shown.machine == self.name,
        };
        is_it && shown.is_marked
    }
}

fn folder(provider: &str) -> String {
    format!("{}/../../../fixtures/go-{provider}", env!("CARGO_MANIFEST_DIR"))
}

/// The names of all fixtures of a provider.
fn names(provider: &str) -> BTreeSet<String> {
    let files = std::fs::read_dir(folder(provider)).expect("the fixtures are checked in");
    let name = |file: std::io::Result<std::fs::DirEntry>| {
        let name = file.expect("a file").file_name().into_string().expect("a name");
        name.trim_end_matches(".json").to_owned()
    };
    files.map(name).collect()
}

fn list(value: &Value) -> Vec<&Value> {
    value.as_array().into_iter().flatten().collect()
}

fn text(value: &Value) -> String {
    value.as_str().expect("text").to_owned()
}

/// The texts of an object, for example labels.
fn texts(value: &Value) -> BTreeMap<String, String> {
    serde_json::from_value(value.clone()).expect("an object with texts")
}

/// The cloud's id in a provider id.
fn native(id: &str) -> &str {
    id.rsplit('/').next().unwrap_or_default()
}

/// A cluster and a cloud that continue after Go.
struct After<C> {
    left: Left,
    cloud: C,
    server: Server,
    user: kube::Client,
    clock: SharedClock,
    /// The instances that Go left.
    instances: Vec<Shown>,
    /// The parts that Go left.
    parts: Vec<Part>,
}

impl<C: Counterpart> After<C> {
    async fn of(left: Left, cloud: C) -> Self {
        let now = left.moment();
        let clock = machinist_apiserver::TokioClock::starting_at(now);
        let server = Server::new(Config { clock: Arc::new(clock), ..Config::default() });
        let namespace = left.namespace();
        let user = kube::Client::new(server.service_as(Identity::admin()), namespace.clone());
        let crds: Api<CustomResourceDefinition> = Api::all(user.clone());
        for crd in crd::all_crds() {
            crds.create(&PostParams::default(), &crd).await.expect("the CRD is accepted");
        }
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        let namespaces: Api<Namespace> = Api::all(user.clone());
        namespaces.create(&PostParams::default(), &parse(object)).await.expect("accepted");
        for item in left.items() {
            server.load(item.clone()).expect("the server stores what Go left");
        }
        let (instances, parts) = (cloud.instances(), cloud.parts());
        let clock = Arc::new(TokioClock::starting_at(now));
        Self { left, cloud, server, user, clock, instances, parts }
    }

    fn start(&self) -> (Running, Running) {
        let namespace = self.left.namespace();
        let clients = |name: &str| {
            let options = ClientOptions { clock: self.clock.clone(), ..ClientOptions::new(name) };
            let client = layer_client(self.server.service_as(Identity::admin()), &options);
            Clients { control: client.clone(), target: client }
        };
        let process = |name| {
            let clock = self.clock.clone();
            ProcessOptions { clock, ..ProcessOptions::new(namespace.as_str(), name) }
        };
        let mut options = MachineOptions::new(self.cloud.provider(), namespace.as_str());
        options.orphans = Some(orphan::OrphanOptions::default());
        let name = "machine-controller";
        let machine_controller = MachineController::start(clients(name), process(name), options, None);
        let name = "machine-controller-manager";
        (machine_controller, Manager::start(clients(name), process(name), None))
    }

    async fn machines(&self) -> Vec<Machine> {
        let machines: Api<Machine> = Api::default_namespaced(self.user.clone());
        machines.list(&ListParams::default()).await.expect("a list").items
    }

    async fn nodes(&self) -> Vec<Node> {
        let nodes: Api<Node> = Api::all(self.user.clone());
        nodes.list(&ListParams::default()).await.expect("a list").items
    }

    async fn tokens(&self) -> Vec<Secret> {
        let secrets: Api<Secret> = Api::namespaced(self.user.clone(), TOKEN_NAMESPACE);
        secrets.list(&ListParams::default()).await.expect("a list").items
    }

    /// Acts as the kubelets of the instances that Machines record.
    async fn join(&self) {
        let machines = self.machines().await;
        let nodes: Api<Node> = Api::all(self.user.clone());
        for shown in self.cloud.instances() {
            let has_it = |machine: &Machine| {
                let id = machine.spec.provider_id.as_deref().unwrap_or_default();
                machine.metadata.deletion_timestamp.is_none() && native(id) == shown.id
            };
            let exists = async || nodes.get_opt(&shown.node).await.expect("an answer").is_some();
            if !shown.is_alive || !machines.iter().any(has_it) || exists().await {
                continue;
            }
            let node = json!({
                "apiVersion": "v1", "kind": "Node", "metadata": {"name": shown.node},
                "spec": {"providerID": shown.node_id},
            });
            nodes.create(&PostParams::default(), &parse(node)).await.expect("the Node is accepted");
            let status = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
            let patch = Patch::Strategic(status);
            nodes.patch_status(&shown.node, &PatchParams::default(), &patch).await.expect("accepted");
        }
    }

    /// Lets processes and kubelets work. Returns the instances that were created meanwhile, by the
    /// name of the Machine.
    async fn work(&self, end: End) -> BTreeMap<String, BTreeSet<String>> {
        let mut made = BTreeMap::<String, BTreeSet<String>>::new();
        let until = tokio::time::Instant::now() + end.after();
        while tokio::time::Instant::now() < until {
            if end != End::Exist {
                self.join().await;
            }
            let shown = self.cloud.instances().into_iter();
            for new in shown.filter(|shown| self.instances.iter().all(|left| left.id != shown.id)) {
                made.entry(new.machine).or_default().insert(new.id);
            }
            tokio::time::sleep(STEP).await;
        }
        made
    }

    /// Deletes all machine objects, as a user who gives the workers up.
    async fn delete_all(&self) {
        let deployments: Api<MachineDeployment> = Api::default_namespaced(self.user.clone());
        let sets: Api<MachineSet> = Api::default_namespaced(self.user.clone());
        let machines: Api<Machine> = Api::default_namespaced(self.user.clone());
        let (all, listed) = (DeleteParams::default(), ListParams::default());
        deployments.delete_collection(&all, &listed).await.expect("deleted");
        sets.delete_collection(&all, &listed).await.expect("deleted");
        machines.delete_collection(&all, &listed).await.expect("deleted");
    }

    /// The instance of a Machine, when the processes started.
    fn instance_of(&self, machine: &LeftMachine) -> Option<&Shown> {
        self.instances.iter().find(|shown| machine.has(shown))
    }

    fn is_alive(&self, id: &str) -> bool {
        self.cloud.instances().iter().any(|shown| shown.id == id && shown.is_alive)
    }

    /// The instances that Go left, and that no Machine has.
    fn of_others(&self) -> Vec<&Shown> {
        let machines = self.left.machines();
        let is_of_other =
            |shown: &&Shown| shown.is_alive && !machines.iter().any(|machine| machine.has(shown));
        self.instances.iter().filter(is_of_other).collect()
    }

    /// The parts that Go left, and that no Machine has.
    fn parts_of_others(&self) -> Vec<&Part> {
        let machines = self.left.machines();
        let is_machine = |name: &String| machines.iter().any(|machine| machine.name == *name);
        self.parts.iter().filter(|part| !part.machine.as_ref().is_some_and(is_machine)).collect()
    }

    /// The names of the Nodes that Go left, and that belong to no Machine.
    fn nodes_of_others(&self) -> BTreeSet<String> {
        let machines = self.left.machines();
        let owned: Vec<&str> = machines.iter().filter_map(|one| one.id.as_deref()).map(native).collect();
        let nodes = self.left.items().into_iter().filter(|item| item["kind"] == "Node");
        nodes
            .filter(|node| !owned.contains(&native(node["spec"]["providerID"].as_str().unwrap_or_default())))
            .map(|node| text(&node["metadata"]["name"]))
            .collect()
    }

    /// Finds mistakes after the processes have worked for a while.
    async fn wrong_while_living(&self, end: End) -> Vec<String> {
        let made = self.work(end).await;
        let mut wrong = Vec::new();
        if end == End::ReplacedInDoubt {
            wrong.extend(self.end_doubt().await);
        }
        let machines = self.machines().await;
        for before in self.left.machines() {
            let now = machines.iter().find(|one| one.metadata.name.as_ref() == Some(&before.name));
            match (before.is_deleting, now) {
                (true, Some(now)) => {
                    wrong.push(format!("{} is still being deleted: {}", before.name, said(now)));
                }
                (true, None) => wrong.extend(self.left_of_deleted(&before).await),
                (false, None) if end.is_replaced() => {}
                (false, None) => wrong.push(format!("{} was lost", before.name)),
                (false, Some(now)) => wrong.extend(self.changed(&before, now)),
            }
        }
        for machine in &machines {
            wrong.extend(wrong_phase(machine, end));
        }
        let living = self.left.machines().iter().filter(|machine| !machine.is_deleting).count();
        let now = machines.iter().filter(|one| one.metadata.deletion_timestamp.is_none()).count();
        if now != living {
            wrong.push(format!("{now} Machines instead of {living}"));
        }
        wrong.extend(self.wrongly_made(&made, &machines, end));
        wrong.extend(self.lost_marks());
        wrong.extend(self.lost_of_others().await);
        wrong
    }

    /// Acts as a user who knows that the instances of blocked Machines are deleted.
    async fn end_doubt(&self) -> Vec<String> {
        let machines: Api<Machine> = Api::default_namespaced(self.user.clone());
        let mut wrong = Vec::new();
        for before in self.left.machines() {
            let blocked = machines.get(&before.name).await.expect("the Machine exists");
            if !said(&blocked).contains("seems to open another account") {
                wrong.push(format!("{} is not in doubt: {}", before.name, said(&blocked)));
            }
            let forced = Patch::Merge(json!({"metadata": {"labels": {"force-deletion": "True"}}}));
            machines.patch(&before.name, &PatchParams::default(), &forced).await.expect("accepted");
        }
        tokio::time::sleep(A_WHILE).await;
        wrong
    }

    /// Finds remains of a Machine that was deleted.
    async fn left_of_deleted(&self, machine: &LeftMachine) -> Vec<String> {
        let name = &machine.name;
        let instance = self.instance_of(machine).filter(|shown| self.is_alive(&shown.id));
        let id = machine.id.as_deref().map(native);
        let is_its = |node: &Node| {
            let of_node = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
            of_node.map(native) == id && id.is_some()
        };
        let nodes = self.nodes().await;
        let instance = instance.map(|shown| format!("the instance {} of {name} was left", shown.id));
        let node = nodes.iter().any(is_its).then(|| format!("the Node of {name} was left"));
        instance.into_iter().chain(node).collect()
    }

    /// Finds changes of a Machine that must not change.
    fn changed(&self, before: &LeftMachine, now: &Machine) -> Vec<String> {
        let mut wrong = Vec::new();
        let name = &before.name;
        let instance = self.instance_of(before).filter(|shown| shown.is_alive);
        let is_alive = instance.is_some_and(|shown| self.is_alive(&shown.id));
        if instance.is_some() && !is_alive {
            wrong.push(format!("the instance of {name} was deleted"));
        }
        let id = now.spec.provider_id.as_deref();
        if is_alive && id.is_none() {
            wrong.push(format!("{name} does not record its instance"));
        }
        if before.id.is_some() && before.id.as_deref() != id {
            wrong.push(format!("{name}: {:?} became {id:?}", before.id));
        }
        let node = now.metadata.labels.as_ref().and_then(|labels| labels.get("node"));
        if before.node.is_some() && before.node.as_ref() != node {
            wrong.push(format!("{name}: the Node {:?} became {node:?}", before.node));
        }
        wrong
    }

    /// Finds instances that should not have been created.
    fn wrongly_made(
        &self,
        made: &BTreeMap<String, BTreeSet<String>>,
        machines: &[Machine],
        end: End,
    ) -> Vec<String> {
        let left = self.left.machines();
        let mut wrong = Vec::new();
        for (name, ids) in made {
            let had = left.iter().filter(|machine| machine.name == *name);
            let had = had.filter_map(|machine| self.instance_of(machine)).filter(|shown| shown.is_alive);
            let count = ids.len() + had.count();
            if 1 < count {
                wrong.push(format!("{name} had {count} instances"));
            }
            let exists = machines.iter().any(|machine| machine.metadata.name.as_ref() == Some(name));
            if !exists && !end.is_replaced() {
                wrong.push(format!("{ids:?} were created for {name}, which does not exist"));
            }
        }
        let unmarked = self
            .cloud
            .instances()
            .into_iter()
            .filter(|shown| made.values().flatten().any(|id| *id == shown.id) && !shown.is_marked);
        wrong.extend(unmarked.map(|shown| format!("{shown:?} has no marks of Go")));
        wrong
    }

    /// Finds marks that Go's instances have lost.
    fn lost_marks(&self) -> Vec<String> {
        let now = self.cloud.instances();
        let mut wrong = Vec::new();
        for before in &self.instances {
            let Some(now) = now.iter().find(|shown| shown.id == before.id && shown.is_alive) else {
                continue;
            };
            let lost = before.marks.iter().filter(|(name, value)| now.marks.get(*name) != Some(*value));
            wrong.extend(lost.map(|(name, _)| format!("{} lost the mark {name}", before.id)));
        }
        wrong
    }

    /// Finds instances, parts and Nodes of others that were deleted.
    async fn lost_of_others(&self) -> Vec<String> {
        let lost = self.of_others().into_iter().filter(|shown| !self.is_alive(&shown.id));
        let instances = lost.map(|shown| format!("{shown:?} belongs to no Machine, and was deleted"));
        let parts = self.cloud.parts();
        let lost = self.parts_of_others().into_iter().filter(|part| !parts.contains(part));
        let parts = lost.map(|part| format!("the {} belongs to no Machine, and was deleted", part.text));
        let nodes: Vec<Option<String>> =
            self.nodes().await.into_iter().map(|node| node.metadata.name).collect();
        let lost = self.nodes_of_others().into_iter().filter(|name| !nodes.contains(&Some(name.clone())));
        let nodes = lost.map(|name| format!("the Node {name} belongs to no Machine, and was deleted"));
        instances.chain(parts).chain(nodes).collect()
    }

    /// Finds mistakes a long time after all Machines were deleted.
    async fn wrong_after_deletion(&self) -> Vec<String> {
        self.delete_all().await;
        tokio::time::sleep(LONG).await;
        let of_others: BTreeSet<&str> = self.of_others().into_iter().map(|shown| shown.id.as_str()).collect();
        let mut wrong = Vec::new();
        for machine in self.machines().await {
            let id = machine.spec.provider_id.as_deref().map(native);
            // A user must say whose instance it is.
            let is_in_doubt =
                id.is_some_and(|id| of_others.contains(id)) && said(&machine).contains("has no key");
            if !is_in_doubt {
                wrong.push(format!("{:?} stays: {}", machine.metadata.name, said(&machine)));
            }
        }
        let alive = self.cloud.instances().into_iter().filter(|shown| shown.is_alive);
        let extra = alive.filter(|shown| !of_others.contains(shown.id.as_str()));
        wrong.extend(extra.map(|shown| format!("the instance {} of {} is left", shown.id, shown.machine)));
        let of_others = self.parts_of_others();
        let parts = self.cloud.parts();
        let extra = parts.iter().filter(|part| !of_others.contains(part));
        wrong.extend(extra.map(|part| format!("the {} is left", part.text)));
        let of_others = self.nodes_of_others();
        let nodes = self.nodes().await.into_iter().filter_map(|node| node.metadata.name);
        wrong.extend(
            nodes.filter(|name| !of_others.contains(name)).map(|name| format!("the Node {name} is left")),
        );
        let tokens = self.tokens().await.into_iter().filter_map(|token| token.metadata.name);
        wrong.extend(tokens.map(|name| format!("the token {name} is left")));
        wrong.extend(self.lost_of_others().await);
        wrong
    }

    /// The messages of the Events about instances without a Machine.
    async fn orphans(&self) -> Vec<String> {
        let events: Api<Event> = Api::default_namespaced(self.user.clone());
        let events = events.list(&ListParams::default()).await.expect("a list").items;
        let orphaned = events.into_iter().filter(|event| event.reason.as_deref() == Some("OrphanedInstance"));
        orphaned.filter_map(|event| event.message).collect()
    }
}

/// The description of the last operation of a Machine.
fn said(machine: &Machine) -> &str {
    machine.last_operation().map(|operation| operation.description()).unwrap_or_default()
}

fn wrong_phase(machine: &Machine, end: End) -> Option<String> {
    let phase = machine.phase();
    let code = machine.last_operation().and_then(|operation| operation.error_code.as_deref());
    let is_so = match end {
        End::Exist => true,
        End::Run | End::Replaced | End::ReplacedInDoubt => phase == Phase::Running,
        End::Refused(expected) => phase == Phase::CrashLoopBackOff && code == Some(expected),
    };
    let name = machine.metadata.name.as_deref().unwrap_or_default();
    (!is_so).then(|| format!("{name} is {phase} with the code {code:?}: {}", said(machine)))
}

/// Plays a situation, and returns the mistakes.
async fn taken_over(left: Left, cloud: impl Counterpart, end: End) -> Vec<String> {
    let after = After::of(left, cloud).await;
    let _processes = after.start();
    let mut wrong = after.wrong_while_living(end).await;
    wrong.extend(after.wrong_after_deletion().await);
    wrong.sort();
    wrong.dedup();
    wrong
}
