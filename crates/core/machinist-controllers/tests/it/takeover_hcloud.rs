//! Both processes continue what the real Go provider of 23technologies left in Hetzner Cloud:
//! `fixtures/go-hcloud`, 29 situations with their objects, servers and floating addresses.

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Namespace;
use machinist_driver_hcloud::{Endpoint, HcloudOptions, HcloudProvider, Http};
use machinist_driver_http::pipe::Pipes;
use machinist_standin_hcloud::{
    Access, FloatingIp, HcloudServer, Network, Settings, SshKey, Standin, Subnet, http as standin_http,
};

use super::*;

const SHOOT: &str = "shoot--foo--hc";
const PROJECT: &str = "shoot";
/// The token in the Secrets of the fixtures.
const TOKEN: &str = "redacted";
/// The id of the network in the fixtures, and its name in the classes.
const NETWORK: (i64, &str) = (8_590_000_130, "shoot--foo--hc-workers");
/// The id of the key whose fingerprint the classes have.
const KEY: i64 = 0x2_0001_0001;
/// Less than the creation timeout, so that no Machine is replaced.
const A_WHILE: Duration = Duration::from_secs(600);
/// Longer than each deletion takes, with two looks ten minutes apart.
const LONG: Duration = Duration::from_secs(3600);

/// The objects that Go left in a cluster and in the cloud.
struct Left {
    items: Vec<Value>,
    servers: Vec<Value>,
    addresses: Vec<Value>,
}

/// What a fixture says about one Machine.
struct LeftMachine {
    name: String,
    id: Option<String>,
    is_deleting: bool,
}

/// A cluster and a project that continue after Go.
struct After {
    server: Server,
    standin: Standin,
    user: kube::Client,
    clock: SharedClock,
}

impl Left {
    fn read(name: &str) -> Self {
        let path = format!("{}/../../../fixtures/go-hcloud/{name}.json", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).expect("the fixture is checked in");
        let fixture: Value = serde_json::from_str(&text).expect("JSON");
        let list = |of: &Value| of.as_array().expect("a list").clone();
        Self {
            items: list(&fixture["items"]),
            servers: list(&fixture["cloud"]["servers"]),
            addresses: list(&fixture["cloud"]["floatingIps"]),
        }
    }

    /// A moment after everything in the fixture.
    fn moment(&self) -> jiff::Timestamp {
        let times = self.items.iter().flat_map(|item| {
            [&item["metadata"]["creationTimestamp"], &item["metadata"]["deletionTimestamp"]]
                .into_iter()
                .chain([&item["status"]["lastOperation"]["lastUpdateTime"]])
        });
        let times = times.chain(self.servers.iter().chain(&self.addresses).map(|one| &one["created"]));
        let last = times.filter_map(|time| time.as_str()?.parse().ok()).max();
        last.unwrap_or(jiff::Timestamp::UNIX_EPOCH) + SignedDuration::from_secs(5)
    }

    fn machines(&self) -> Vec<LeftMachine> {
        let machines = self.items.iter().filter(|item| item["kind"] == "Machine");
        let machine = |item: &Value| LeftMachine {
            name: text(&item["metadata"]["name"]),
            id: item["spec"]["providerID"].as_str().map(str::to_owned),
            is_deleting: !item["metadata"]["deletionTimestamp"].is_null(),
        };
        machines.map(machine).collect()
    }

    /// The ids and names of the servers that no Machine has, or that do not carry the marks of the
    /// provider.
    fn servers_of_others(&self) -> BTreeMap<i64, String> {
        let machines: BTreeSet<String> = self.machines().into_iter().map(|machine| machine.name).collect();
        let is_of_other = |server: &&Value| {
            let is_marked = server["labels"]["mcm.gardener.cloud/role"] == "node";
            !is_marked || !machines.contains(server["name"].as_str().unwrap_or_default())
        };
        let server = |server: &Value| (server["id"].as_i64().expect("an id"), text(&server["name"]));
        self.servers.iter().filter(is_of_other).map(server).collect()
    }

    /// The addresses that are assigned to the server of no Machine.
    fn addresses_of_others(&self) -> BTreeSet<i64> {
        let servers: Vec<_> = self.machines().iter().map(|machine| self.server_of(&machine.name)).collect();
        let is_free = |address: &&Value| {
            let server = address["server"].as_i64();
            server.is_none() || !servers.contains(&server)
        };
        self.addresses.iter().filter(is_free).filter_map(|address| address["id"].as_i64()).collect()
    }

    fn server_of(&self, machine: &str) -> Option<i64> {
        let server = self.servers.iter().find(|server| server["name"] == machine)?;
        server["id"].as_i64()
    }
}

fn text(value: &Value) -> String {
    value.as_str().expect("text").to_owned()
}

fn labels(value: &Value) -> BTreeMap<String, String> {
    serde_json::from_value(value.clone()).expect("labels")
}

fn server(shown: &Value, serial: u64) -> HcloudServer {
    let created = text(&shown["created"]).parse().expect("a time");
    HcloudServer {
        id: shown["id"].as_i64().expect("an id"),
        serial,
        project: PROJECT.to_owned(),
        name: text(&shown["name"]),
        status: serde_json::from_value(shown["status"].clone()).expect("a status"),
        created,
        server_type: text(&shown["server_type"]["name"]),
        image: shown["image"]["id"].as_i64(),
        location: text(&shown["location"]["name"]),
        labels: labels(&shown["labels"]),
        ipv4: None,
        ipv6: None,
        private_net: Vec::new(),
        primary_disk_size: 40,
        protected: false,
        visible_by_id_at: created,
        visible_in_lists_at: created,
        deleted: None,
    }
}

fn address(shown: &Value) -> FloatingIp {
    FloatingIp {
        id: shown["id"].as_i64().expect("an id"),
        project: PROJECT.to_owned(),
        name: text(&shown["name"]),
        created: text(&shown["created"]).parse().expect("a time"),
        labels: labels(&shown["labels"]),
        ip: text(&shown["ip"]),
        location: text(&shown["home_location"]["name"]),
        server: shown["server"].as_i64(),
    }
}

impl After {
    async fn new(left: &Left) -> Self {
        let now = left.moment();
        let clock = machinist_apiserver::TokioClock::starting_at(now);
        let server = Server::new(Config { clock: Arc::new(clock), ..Config::default() });
        let user = kube::Client::new(server.service_as(Identity::admin()), SHOOT);
        let crds: Api<CustomResourceDefinition> = Api::all(user.clone());
        for crd in crd::all_crds() {
            crds.create(&PostParams::default(), &crd).await.expect("the CRD is accepted");
        }
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SHOOT}});
        let namespaces: Api<Namespace> = Api::all(user.clone());
        namespaces.create(&PostParams::default(), &parse(namespace)).await.expect("accepted");
        for item in &left.items {
            server.load(item.clone()).expect("the server stores what Go left");
        }
        let standin = project(left, now);
        Self { server, standin, user, clock: Arc::new(TokioClock::starting_at(now)) }
    }

    fn start(&self) -> (Running, Running) {
        let clients = |name: &str| {
            let options = ClientOptions { clock: self.clock.clone(), ..ClientOptions::new(name) };
            let client = layer_client(self.server.service_as(Identity::admin()), &options);
            Clients { control: client.clone(), target: client }
        };
        let process = |name| ProcessOptions { clock: self.clock.clone(), ..ProcessOptions::new(SHOOT, name) };
        let standin = self.standin.clone();
        let transport =
            Http::over(Pipes(move |far| Ok(standin_http::serve_connection(standin.clone(), far))));
        let endpoint = Endpoint::parse("http://stand-in/v1").expect("a URL");
        let options = HcloudOptions { endpoint, ..HcloudOptions::default() };
        let clock = self.standin.clone();
        let provider = HcloudProvider::over(Arc::new(transport), options).with_clock(move || clock.now());
        let mut options = MachineOptions::new(Arc::new(provider.with_machine_ids()), SHOOT);
        options.orphans = Some(machinist_plan::mcm::orphan::Settings::default());
        let name = "machine-controller";
        let machine_controller = MachineController::start(clients(name), process(name), options, None);
        let name = "machine-controller-manager";
        (machine_controller, Manager::start(clients(name), process(name), None))
    }

    async fn machines(&self) -> Vec<Machine> {
        let machines: Api<Machine> = Api::namespaced(self.user.clone(), SHOOT);
        machines.list(&ListParams::default()).await.expect("a list").items
    }

    /// Deletes all machine objects, as a user who gives the workers up.
    async fn delete_all(&self) {
        let deployments: Api<MachineDeployment> = Api::namespaced(self.user.clone(), SHOOT);
        let sets: Api<MachineSet> = Api::namespaced(self.user.clone(), SHOOT);
        let machines: Api<Machine> = Api::namespaced(self.user.clone(), SHOOT);
        let (all, listed) = (DeleteParams::default(), ListParams::default());
        deployments.delete_collection(&all, &listed).await.expect("deleted");
        sets.delete_collection(&all, &listed).await.expect("deleted");
        machines.delete_collection(&all, &listed).await.expect("deleted");
    }

    fn alive(&self) -> Vec<HcloudServer> {
        self.standin.servers_ever().into_iter().filter(HcloudServer::is_alive).collect()
    }

    /// What is wrong after the processes have worked for a while.
    async fn wrong_while_living(&self, left: &Left) -> Vec<String> {
        let mut wrong = Vec::new();
        let machines = self.machines().await;
        for before in left.machines() {
            let now = machines.iter().find(|one| one.metadata.name.as_ref() == Some(&before.name));
            let server = left.server_of(&before.name);
            let is_alive = server.is_some_and(|id| self.alive().iter().any(|server| server.id == id));
            let name = &before.name;
            match (before.is_deleting, now) {
                (true, Some(_)) => wrong.push(format!("{name} is still being deleted")),
                (true, None) if is_alive => wrong.push(format!("the server of {name} was left")),
                (false, None) => wrong.push(format!("{name} was lost")),
                (false, Some(now)) => {
                    if server.is_some() && !is_alive {
                        wrong.push(format!("the server of {name} was deleted"));
                    }
                    let id = now.spec.provider_id.as_deref();
                    if is_alive && id.is_none() {
                        wrong.push(format!("{name} does not record its server"));
                    }
                    if before.id.is_some() && before.id.as_deref() != id {
                        wrong.push(format!("{name}: {:?} became {id:?}", before.id));
                    }
                }
                (true, None) => {}
            }
        }
        let mut named = BTreeMap::<String, usize>::new();
        for server in self.standin.servers_ever() {
            *named.entry(server.name).or_default() += 1;
        }
        wrong.extend(
            named
                .iter()
                .filter(|(_, count)| 1 < **count)
                .map(|(name, count)| format!("{name} had {count} servers")),
        );
        wrong.extend(self.lost_of_others(left));
        wrong
    }

    fn addresses(&self) -> BTreeSet<i64> {
        self.standin.dump().floating_ips.into_keys().collect()
    }

    /// The servers and addresses of others that are gone.
    fn lost_of_others(&self, left: &Left) -> Vec<String> {
        let alive: BTreeSet<i64> = self.alive().into_iter().map(|server| server.id).collect();
        let lost = left.servers_of_others().into_iter().filter(|(id, _)| !alive.contains(id));
        let addresses = self.addresses();
        let free = left.addresses_of_others().into_iter().filter(|id| !addresses.contains(id));
        lost.map(|(_, name)| format!("the server {name} belongs to no Machine, and was deleted"))
            .chain(free.map(|id| format!("the address {id} belongs to no Machine, and was deleted")))
            .collect()
    }
}

/// The project with everything that the fixture shows.
fn project(left: &Left, now: jiff::Timestamp) -> Standin {
    let mut settings = Settings::default();
    settings.tokens.set(TOKEN, PROJECT, Access::ReadWrite);
    let standin = Standin::in_memory(settings, machinist_cloud_sim::Clock::starting_at(now));
    let mut state = standin.dump();
    let (id, name) = NETWORK;
    let network = Network {
        id,
        project: PROJECT.to_owned(),
        name: name.to_owned(),
        created: now,
        ip_range: "10.250.0.0/16".to_owned(),
        subnets: vec![Subnet {
            kind: "cloud".to_owned(),
            ip_range: "10.250.0.0/16".to_owned(),
            network_zone: "eu-central".to_owned(),
            gateway: "10.250.0.1".to_owned(),
            vswitch_id: None,
        }],
        routes: Vec::new(),
        labels: BTreeMap::new(),
        protected: false,
        expose_routes_to_vswitch: false,
    };
    state.networks.insert(id, network);
    let key = SshKey {
        id: KEY,
        project: PROJECT.to_owned(),
        name: "key".to_owned(),
        created: now,
        labels: BTreeMap::new(),
        public_key: "ssh-ed25519 AAAA".to_owned(),
    };
    state.ssh_keys.insert(KEY, key);
    for (serial, shown) in (1..).zip(&left.servers) {
        let server = server(shown, serial);
        state.last_id = state.last_id.max(server.id);
        state.servers.insert(server.id, server);
    }
    for shown in &left.addresses {
        let address = address(shown);
        state.floating_ips.insert(address.id, address);
    }
    standin.load(state).expect("in memory");
    standin
}

/// Plays a situation, and returns what is wrong. Machines and their servers must stay as Go left
/// them, deletions must end, and nothing of another owner is touched, also when all Machines are
/// deleted.
async fn taken_over(name: &str) -> Vec<String> {
    let left = Left::read(name);
    let after = After::new(&left).await;
    let _processes = after.start();
    tokio::time::sleep(A_WHILE).await;
    let mut wrong = after.wrong_while_living(&left).await;
    after.delete_all().await;
    tokio::time::sleep(LONG).await;
    let of_others = left.servers_of_others();
    for machine in after.machines().await {
        let name = machine.metadata.name.unwrap_or_default();
        let operation = machine.status.unwrap_or_default().last_operation.unwrap_or_default();
        let said = operation.description.unwrap_or_default();
        // A user must say whose server it is.
        if !(of_others.values().any(|other| *other == name) && said.contains("has no key")) {
            wrong.push(format!("{name} stays: {said}"));
        }
    }
    let extra = after.alive().into_iter().filter(|server| !of_others.contains_key(&server.id));
    wrong.extend(extra.map(|server| format!("the server {} is left", server.name)));
    let of_others = left.addresses_of_others();
    let extra = after.addresses().into_iter().filter(|address| !of_others.contains(address));
    wrong.extend(extra.map(|address| format!("the address {address} is left")));
    wrong.extend(after.lost_of_others(&left));
    wrong.sort();
    wrong.dedup();
    wrong
}

const SITUATIONS: [&str; 29] = [
    "create-answer-lost",
    "create-datacenter-ignored",
    "create-exhausted",
    "create-floating-without-group",
    "create-refused",
    "create-refused-deleted",
    "create-refused-image",
    "create-unauthorized",
    "creating",
    "creating-adopted",
    "creating-floating",
    "creating-killed",
    "deleted",
    "deleted-already-gone",
    "deleted-floating",
    "deleting-unavailable",
    "draining",
    "floating-left",
    "id-of-ccm",
    "id-of-ccm-deleting",
    "id-of-ccm-sweep",
    "id-of-ccm-swept",
    "name-taken",
    "name-taken-deleted",
    "orphan",
    "orphan-swept",
    "running",
    "vm-deletion",
    "vm-deletion-failing",
];

/// Go's sweep deletes the first three. Ours cannot know whose they are.
#[tokio::test(start_paused = true)]
async fn servers_of_go_without_a_machine_are_reported() {
    let left = Left::read("orphan");
    let after = After::new(&left).await;
    let _processes = after.start();
    tokio::time::sleep(LONG).await;
    let events: Api<Event> = Api::namespaced(after.user.clone(), SHOOT);
    let events = events.list(&ListParams::default()).await.expect("a list").items;
    let orphaned = events.iter().filter(|event| event.reason.as_deref() == Some("OrphanedInstance"));
    let messages: Vec<&str> = orphaned.filter_map(|event| event.message.as_deref()).collect();
    for server in &left.servers {
        let (name, id) = (text(&server["name"]), server["id"].to_string());
        let is_marked = server["labels"]["mcm.gardener.cloud/role"] == "node";
        let is_expected = is_marked && left.machines().iter().all(|machine| machine.name != name);
        let is_reported = messages.iter().any(|message| message.contains(&id));
        assert_eq!(is_reported, is_expected, "{name}: {messages:#?}");
    }
    assert_eq!(after.alive().len(), left.servers.len());
}

#[tokio::test(start_paused = true)]
async fn every_situation_of_the_provider_is_taken_over() {
    let mut all = Vec::new();
    for name in SITUATIONS {
        all.extend(taken_over(name).await.into_iter().map(|wrong| format!("{name}: {wrong}")));
    }
    assert!(all.is_empty(), "\n{}", all.join("\n"));
}
