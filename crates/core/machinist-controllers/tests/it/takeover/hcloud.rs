//! The provider of 23technologies for Hetzner Cloud: `fixtures/go-hcloud`, 29 situations with their
//! objects, servers and floating addresses.

use machinist_driver_hcloud::{Endpoint, HcloudOptions, HcloudProvider, Http};
use machinist_driver_http::pipe::Pipes;
use machinist_standin_hcloud::{
    Access, FloatingIp, HcloudServer, Network, Settings, SshKey, Standin, Subnet, http as standin_http,
};

use super::*;

const PROJECT: &str = "shoot";
/// The token in the Secrets of the fixtures.
const TOKEN: &str = "redacted";
/// The id of the network in the fixtures, and its name in the classes.
const NETWORK: (i64, &str) = (8_590_000_130, "shoot--foo--hc-workers");
/// The id of the key whose fingerprint the classes have.
const KEY: i64 = 0x2_0001_0001;

impl Counterpart for Standin {
    fn provider(&self) -> Arc<dyn Provider> {
        let standin = self.clone();
        let transport =
            Http::over(Pipes(move |far| Ok(standin_http::serve_connection(standin.clone(), far))));
        let endpoint = Endpoint::parse("http://stand-in/v1").expect("a URL");
        let options = HcloudOptions { endpoint, ..HcloudOptions::default() };
        let clock = self.clone();
        let provider = HcloudProvider::over(Arc::new(transport), options).with_clock(move || clock.now());
        Arc::new(provider.with_machine_ids())
    }

    fn instances(&self) -> Vec<Shown> {
        let shown = |server: HcloudServer| Shown {
            id: server.id.to_string(),
            is_alive: server.is_alive(),
            is_marked: server.labels.get("mcm.gardener.cloud/role").is_some_and(|role| role == "node"),
            node_id: server.provider_id(),
            node: server.name.clone(),
            machine: server.name,
            marks: server.labels,
        };
        self.servers_ever().into_iter().map(shown).collect()
    }

    fn parts(&self) -> Vec<Part> {
        let servers = self.instances();
        let user = |address: &FloatingIp| {
            let id = address.server?.to_string();
            servers.iter().find(|server| server.id == id && server.is_marked)
        };
        let part = |address: FloatingIp| Part {
            text: format!("floating address {}", address.id),
            machine: user(&address).map(|server| server.machine.clone()),
        };
        self.dump().floating_ips.into_values().map(part).collect()
    }
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
        labels: texts(&shown["labels"]),
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
        labels: texts(&shown["labels"]),
        ip: text(&shown["ip"]),
        location: text(&shown["home_location"]["name"]),
        server: shown["server"].as_i64(),
    }
}

/// The project with everything that the fixture shows.
fn project(left: &Left) -> Standin {
    let now = left.moment();
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
    for (serial, shown) in (1..).zip(left.cloud("servers")) {
        let server = server(shown, serial);
        state.last_id = state.last_id.max(server.id);
        state.servers.insert(server.id, server);
    }
    for shown in left.cloud("floatingIps") {
        let address = address(shown);
        state.floating_ips.insert(address.id, address);
    }
    standin.load(state).expect("in memory");
    standin
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
    let left = Left::read("hcloud", "orphan");
    let standin = project(&left);
    let after = After::of(left, standin).await;
    let _processes = after.start();
    tokio::time::sleep(LONG).await;
    let messages = after.orphans().await;
    let machines = after.left.machines();
    for shown in &after.instances {
        let is_expected = shown.is_marked && machines.iter().all(|machine| machine.name != shown.machine);
        let is_reported = messages.iter().any(|message| message.contains(&shown.id));
        assert_eq!(is_reported, is_expected, "{shown:?}: {messages:#?}");
    }
    assert_eq!(after.lost_of_others().await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn every_situation_of_hetzner_is_taken_over() {
    assert_eq!(BTreeSet::from(SITUATIONS.map(str::to_owned)), names("hcloud"));
    let mut all = Vec::new();
    for name in SITUATIONS {
        let left = Left::read("hcloud", name);
        let standin = project(&left);
        let wrong = taken_over(left, standin, End::Exist).await;
        all.extend(wrong.into_iter().map(|wrong| format!("{name}: {wrong}")));
    }
    assert!(all.is_empty(), "\n{}", all.join("\n"));
}
