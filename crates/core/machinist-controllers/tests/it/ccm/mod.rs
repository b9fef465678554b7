//! The cloud-controller-manager with an embedded server and the stand-in for Hetzner Cloud, under
//! paused time.

mod balancer;
mod circle;
mod doubt;
mod dry_run;
mod late;
mod lifecycle;
mod machines;
mod names;
mod node;
mod process;
mod races;
mod records;
mod restarts;
mod route;
mod stub;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Node, Service};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use machinist_apiserver::{AuditRecord, Config, Identity, Server, Subscription, Verb};
use machinist_controllers::ccm::{CcmOptions, CloudControllerManager, Inspector, Key, Running, Versioned};
use machinist_controllers::{Clients, ProcessOptions};
use machinist_driver_hcloud::{
    AddressFamily, BalancerDefaults, Endpoint, HcloudOptions, HcloudProvider, Http,
};
use machinist_driver_http::pipe::Pipes;
use machinist_instance::Credential;
use machinist_kube::lease::Leadership;
use machinist_kube::{ClientOptions, SharedClock, TokioClock, layer_client};
use machinist_plan::ccm::{route as routes, service};
use machinist_standin_hcloud::{
    Access, HcloudLoadBalancer, Network, NewServer, Settings, Standin, Subnet, http as standin_http,
};
use serde_json::{Value, json};
use tokio::sync::watch;

/// The name of the program in Events, and its User-Agent.
const PROGRAM: &str = "cloud-controller-manager";
const EPOCH: i64 = 1_800_000_000;
const TOKEN: &str = "token-of-the-project";
const OTHER_TOKEN: &str = "token-of-another-project";
const PROJECT: &str = "a";
/// The id of the network of the project.
const NETWORK: i64 = 4711;
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";

/// A Service of type LoadBalancer with these ports.
fn service(ports: &[u16]) -> Service {
    let ports: Vec<Value> =
        ports.iter().map(|port| json!({"name": format!("p{port}"), "port": port})).collect();
    parse(json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"type": "LoadBalancer", "ports": ports, "selector": {"app": "web"}},
    }))
}

struct World {
    server: Server,
    standin: Standin,
    user: kube::Client,
    clock: SharedClock,
    token: watch::Sender<Option<Versioned>>,
}

impl World {
    #[expect(clippy::disallowed_methods, reason = "one task waits for the token")]
    fn new() -> Self {
        let epoch = jiff::Timestamp::from_second(EPOCH).expect("a moment");
        let clock = machinist_apiserver::TokioClock::starting_at(epoch);
        let server = Server::new(Config { clock: Arc::new(clock), ..Config::default() });
        let mut settings = Settings::default();
        settings.tokens.set(TOKEN, PROJECT, Access::ReadWrite);
        settings.tokens.set(OTHER_TOKEN, "b", Access::ReadWrite);
        let standin = Standin::in_memory(settings, machinist_cloud_sim::Clock::starting_at(epoch));
        let mut state = standin.dump();
        state.networks.insert(NETWORK, network());
        standin.load(state).expect("in memory");
        let user = kube::Client::new(server.service_as(Identity::admin()), "default");
        let clock = Arc::new(TokioClock::starting_at(epoch));
        let token = watch::Sender::new(Some(credential(1, TOKEN)));
        Self { server, standin, user, clock, token }
    }

    fn start(&self) -> Running {
        self.start_with(|_| {})
    }

    fn start_with(&self, change: impl FnOnce(&mut CcmOptions)) -> Running {
        self.start_over(self.client(), None, change)
    }

    fn client_options(&self) -> ClientOptions {
        ClientOptions { clock: self.clock.clone(), ..ClientOptions::new(PROGRAM) }
    }

    /// Creates a client of the program.
    fn client(&self) -> kube::Client {
        layer_client(self.server.service_as(Identity::admin()), &self.client_options())
    }

    /// Starts the process with that client and leadership.
    fn start_over(
        &self,
        client: kube::Client,
        leadership: Option<Leadership>,
        change: impl FnOnce(&mut CcmOptions),
    ) -> Running {
        let clients = Clients { control: client.clone(), target: client };
        let provider = self.provider(Some(NETWORK));
        let services = service::Options::new("machinist.dev/hcloud", "load-balancer.hetzner.cloud/");
        let routes = routes::Options {
            cluster: vec!["10.244.0.0/16".parse().expect("a network")],
            period: Duration::from_secs(300),
            follows_addresses: true,
        };
        let mut options = CcmOptions::new(Arc::new(provider), self.token.subscribe(), services, routes);
        change(&mut options);
        let process =
            ProcessOptions { clock: self.clock.clone(), ..ProcessOptions::new("kube-system", PROGRAM) };
        CloudControllerManager::start(clients, process, options, leadership)
    }

    /// The provider, with the network of that id.
    fn provider(&self, network: Option<i64>) -> HcloudProvider {
        self.provider_of(network, AddressFamily::Ipv4)
    }

    fn provider_of(&self, network: Option<i64>, address_family: AddressFamily) -> HcloudProvider {
        let cloud = HcloudOptions {
            address_family,
            endpoint: Endpoint::parse("http://stand-in/v1").expect("a URL"),
            network: network.map(|id| id.to_string()),
            balancer_defaults: BalancerDefaults {
                location: Some("fsn1".to_owned()),
                balancer_type: Some("lb11".to_owned()),
                ..BalancerDefaults::default()
            },
            ..HcloudOptions::default()
        };
        let (clock, standin) = (self.standin.clone(), self.standin.clone());
        let serve = move |far| Ok(standin_http::serve_connection(standin.clone(), far));
        HcloudProvider::over(Arc::new(Http::over(Pipes(serve))), cloud).with_clock(move || clock.now())
    }

    /// Changes the token, as a user changes the Secret.
    fn set_token(&self, version: u64, token: &str) {
        self.token.send_replace(Some(credential(version, token)));
    }

    /// Creates a server that is attached to the network, and returns its id.
    fn server(&self, name: &str) -> i64 {
        let new = NewServer { networks: vec![NETWORK], ..NewServer::new(PROJECT, name) };
        self.standin.create_server(&new).expect("a server").id
    }

    /// Acts as the kubelet of a server: registers its Node.
    async fn join(&self, name: &str) -> Node {
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "spec": {"taints": [{"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"}]},
        });
        let node = self.nodes().create(&PostParams::default(), &parse(node)).await.expect("accepted");
        let addresses = json!({"status": {"addresses": [{"type": "Hostname", "address": name}]}});
        self.patch_node_status(name, addresses).await;
        self.set_ready(name, true).await;
        node
    }

    /// Creates servers and Nodes of these names, and waits until the Nodes are initialised.
    async fn nodes_with_servers(&self, names: &[&str]) -> BTreeMap<String, i64> {
        let mut ids = BTreeMap::new();
        for name in names {
            ids.insert((*name).to_owned(), self.server(name));
        }
        // A kubelet registers after its server has booted.
        tokio::time::sleep(Duration::from_secs(10)).await;
        for name in names {
            self.join(name).await;
        }
        self.until("all Nodes are initialised", async |w| {
            let all = w.nodes().list(&ListParams::default()).await.expect("a list").items;
            all.iter().all(|node| !has_taint(node, UNINITIALIZED))
        })
        .await;
        ids
    }

    async fn set_ready(&self, name: &str, is_ready: bool) {
        let status = if is_ready { "True" } else { "False" };
        let since = format!("{:.0}", self.standin.now());
        let ready = json!({"type": "Ready", "status": status, "lastTransitionTime": since});
        self.patch_node_status(name, json!({"status": {"conditions": [ready]}})).await;
    }

    async fn patch_node_status(&self, name: &str, status: Value) {
        let params = PatchParams::default();
        self.nodes().patch_status(name, &params, &Patch::Strategic(status)).await.expect("accepted");
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.user.clone())
    }

    fn services(&self) -> Api<Service> {
        Api::namespaced(self.user.clone(), "default")
    }

    async fn node(&self, name: &str) -> Option<Node> {
        self.nodes().get_opt(name).await.expect("an answer")
    }

    /// Returns the messages of all Events with this reason.
    async fn events(&self, reason: &str) -> Vec<String> {
        let events: Api<Event> = Api::all(self.user.clone());
        let events = events.list(&ListParams::default()).await.expect("a list").items;
        let events = events.into_iter().filter(|event| event.reason.as_deref() == Some(reason));
        events.filter_map(|event| event.message).collect()
    }

    /// Number of requests to the cloud whose label is counted, for example `GET /v1/servers`.
    fn requests(&self, is_counted: impl Fn(&str) -> bool) -> u64 {
        let counters = self.standin.counters();
        counters.iter().filter(|(label, _)| is_counted(label)).map(|(_, count)| count).sum()
    }

    /// Number of requests that change the cloud.
    fn changes(&self) -> u64 {
        self.requests(|label| !label.starts_with("GET"))
    }

    async fn until(&self, what: &str, is_so: impl AsyncFn(&Self) -> bool) {
        for _ in 0..600 {
            if is_so(self).await {
                return;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let nodes = self.nodes().list(&ListParams::default()).await.expect("a list").items;
        panic!("timed out after ten minutes: {what}\n{nodes:#?}\n{:#?}", self.standin.counters());
    }
}

/// Counts the writes of the program to Nodes with that verb since the last
/// look at the log.
fn node_writes(log: &mut Subscription<Arc<AuditRecord>>, verb: Verb) -> usize {
    let is_counted = |request: &Arc<AuditRecord>| {
        request.user_agent == PROGRAM && request.resource == "nodes" && request.verb == verb
    };
    log.drain().into_iter().filter(is_counted).count()
}

/// The annotation by which a Service names its load balancer.
const NAME: &str = "load-balancer.hetzner.cloud/name";

fn balancers(world: &World) -> Vec<HcloudLoadBalancer> {
    world.standin.dump().load_balancers.into_values().collect()
}

/// Returns the names of the load balancers, in order.
fn names(world: &World) -> Vec<String> {
    let mut names: Vec<String> = balancers(world).into_iter().map(|balancer| balancer.name).collect();
    names.sort();
    names
}

/// Returns what a key waits for.
fn why(inspector: &Inspector, key: &Key) -> String {
    inspector.why(key).map(|record| record.why.to_string()).unwrap_or_default()
}

fn credential(version: u64, token: &str) -> Versioned {
    let data = BTreeMap::from([("token".to_owned(), token.as_bytes().to_vec())]);
    Versioned { version, credential: Credential::new(data) }
}

fn network() -> Network {
    Network {
        id: NETWORK,
        project: PROJECT.to_owned(),
        name: "cluster".to_owned(),
        created: jiff::Timestamp::from_second(EPOCH).expect("a moment"),
        ip_range: "10.0.0.0/8".to_owned(),
        subnets: vec![Subnet {
            kind: "cloud".to_owned(),
            ip_range: "10.0.0.0/16".to_owned(),
            network_zone: "eu-central".to_owned(),
            gateway: "10.0.0.1".to_owned(),
            vswitch_id: None,
        }],
        routes: Vec::new(),
        labels: BTreeMap::new(),
        protected: false,
        expose_routes_to_vswitch: false,
    }
}

fn parse<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("test objects are well-formed")
}

fn has_taint(node: &Node, key: &str) -> bool {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.into_iter().any(|taint| taint.key == key)
}

fn addresses(node: &Node) -> Vec<(String, String)> {
    let status = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    status.map(|address| (address.type_.clone(), address.address.clone())).collect()
}
