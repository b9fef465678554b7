//! An engine in memory behind real HTTP: containers, volumes, networks, and nodes that run
//! commands. The engine outlives the driver's process, which may end at any request.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard};

use machinist_driver_docker::{DockerOptions, DockerProvider, Privileges};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::wire::{Reply, Request, serve};

/// The subnet that the engine chooses.
const SUBNET: &str = "172.18.0.0/16";

/// The engine.
pub(crate) struct Memory {
    address: String,
    state: Arc<Mutex<State>>,
    died: Arc<Notify>,
}

/// A fault that happens to one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The process dies before it sends the request.
    DiesBefore,
    /// The process dies before it reads the answer.
    DiesAfter,
    /// The engine refuses the request.
    Refuses,
    /// The connection breaks before the request arrives.
    LosesRequest,
    /// The connection breaks after the engine has carried the request out.
    LosesAnswer,
}

impl Fault {
    fn is_death(self) -> bool {
        matches!(self, Self::DiesBefore | Self::DiesAfter)
    }

    fn has_effect(self) -> bool {
        matches!(self, Self::DiesAfter | Self::LosesAnswer)
    }
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) containers: BTreeMap<String, Container>,
    /// The body of the request that created each network, by name.
    pub(crate) networks: BTreeMap<String, Value>,
    /// Whether the engine does not answer.
    is_away: bool,
    /// The connections that follow the events.
    followers: Vec<UnboundedSender<Vec<u8>>>,
    /// Names of the containers that requests started.
    pub(crate) starts: Vec<String>,
    /// Number of requests for the identity of the engine.
    pub(crate) infos: usize,
    /// The anonymous volumes, by the id of their container.
    pub(crate) volumes: Vec<String>,
    /// Names in the order of the creations.
    pub(crate) created: Vec<String>,
    /// The fault, and the number of requests before it.
    fault: Option<(usize, Fault)>,
    /// Whether the present process has died. Its requests no longer have an effect.
    is_dead: bool,
    execs: Vec<(String, String)>,
}

/// A container, by its id.
#[derive(Default)]
pub(crate) struct Container {
    pub(crate) name: String,
    pub(crate) is_running: bool,
    has_run: bool,
    labels: Value,
    image: String,
    network: String,
    /// The address while the container runs.
    pub(crate) address: Option<Ipv4Addr>,
    /// The address that the container asked for.
    requested: Option<Ipv4Addr>,
    number: usize,
    /// Files of the configuration of a load balancer: the blocks of an archive, by name.
    files: BTreeMap<String, Vec<u8>>,
    is_staged: bool,
    /// How often the supervisor began its steps.
    pub(crate) bootstraps: usize,
}

impl Memory {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = format!("tcp://{}", listener.local_addr().expect("bound"));
        let (state, died) = (Arc::<Mutex<State>>::default(), Arc::new(Notify::new()));
        let (served, death) = (state.clone(), died.clone());
        serve(listener, move |request| {
            let mut state = served.lock().expect("no panic");
            let reply = state.reply(request);
            if state.is_dead {
                death.notify_one();
            }
            reply
        });
        Self { address, state, died }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic")
    }

    /// Sets a fault at a later request, counted from 0.
    pub(crate) fn fails_at(&self, request: usize, fault: Fault) {
        self.state().fault = Some((request, fault));
    }

    /// Whether the fault has not happened yet.
    pub(crate) fn has_fault(&self) -> bool {
        self.state().fault.is_some()
    }

    /// Returns once the present process has died.
    pub(crate) async fn died(&self) {
        self.died.notified().await;
    }

    /// A new process, without memory.
    pub(crate) fn process(&self) -> DockerProvider {
        self.state().is_dead = false;
        DockerProvider::new(DockerOptions {
            engine: self.address.parse().expect("an address"),
            privileges: Privileges::None,
            ..DockerOptions::default()
        })
    }
}

fn ok(body: Value) -> Reply {
    Reply::Answer(200, body.to_string().into_bytes())
}

fn refused(status: u16, message: &str) -> Reply {
    Reply::Answer(status, json!({ "message": message }).to_string().into_bytes())
}

impl State {
    fn reply(&mut self, request: &Request) -> Reply {
        let fault = match &mut self.fault {
            Some((0, fault)) => Some(*fault),
            Some((left, _)) => {
                *left -= 1;
                None
            }
            None => None,
        };
        if self.is_dead || self.is_away {
            return Reply::Lost;
        }
        let Some(fault) = fault else { return self.carry_out(request) };
        self.fault = None;
        self.is_dead = fault.is_death();
        if fault.has_effect() {
            self.carry_out(request);
        }
        match fault {
            Fault::Refuses => refused(500, "boom"),
            _ => Reply::Lost,
        }
    }

    fn carry_out(&mut self, request: &Request) -> Reply {
        let path: Vec<&str> = request.path.trim_start_matches('/').split('/').collect();
        match (request.method.as_str(), path.as_slice()) {
            ("GET", ["version"]) => ok(json!({"ApiVersion": "1.47"})),
            ("GET", ["info"]) => {
                self.infos += 1;
                ok(json!({"ID": "engine-a", "CgroupVersion": "2"}))
            }
            ("GET", ["images", ..]) => ok(json!({"Id": "image"})),
            ("GET", ["networks"]) => {
                ok(self.networks.keys().map(|name| json!({"Id": name, "Name": name})).collect())
            }
            (method, ["networks", name]) if *name != "create" => match self.networks.get(*name).cloned() {
                None => refused(404, "network not found"),
                Some(_) if method == "DELETE" => {
                    self.networks.remove(*name);
                    Reply::Answer(204, Vec::new())
                }
                Some(network) => {
                    let (ipam, labels) = (&network["IPAM"], &network["Labels"]);
                    ok(json!({"Id": name, "IPAM": ipam, "Labels": labels, "Containers": self.members(name)}))
                }
            },
            ("GET", ["_ping"]) => Reply::Answer(200, b"OK".to_vec()),
            ("GET", ["events"]) => {
                let (follower, events) = unbounded_channel();
                self.followers.push(follower);
                Reply::Events(events)
            }
            ("POST", ["networks", "create"]) => {
                let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
                let name = body["Name"].as_str().unwrap_or_default().to_owned();
                if self.networks.contains_key(&name) {
                    return refused(409, "network already exists");
                }
                let mut body = body;
                let has_subnet = !body["IPAM"]["Config"][0]["Subnet"].is_null();
                body["HasOwnSubnet"] = json!(has_subnet);
                if !has_subnet {
                    body["IPAM"] = json!({"Config": [{"Subnet": SUBNET}]});
                }
                self.networks.insert(name, body);
                ok(json!({"Id": "network"}))
            }
            ("GET", ["containers", "json"]) => self.list(request),
            ("POST", ["containers", "create"]) => self.create(request),
            ("POST", ["exec", exec, "start"]) => self.run(exec),
            ("GET", ["exec", _, "json"]) => ok(json!({"Running": false, "ExitCode": 0})),
            (method, ["containers", which, rest @ ..]) => self.of_container(method, which, rest, request),
            _ => refused(404, "page not found"),
        }
    }

    /// Runs a container of another program. Returns its id.
    pub(crate) fn runs(&mut self, name: &str, labels: Value) -> String {
        self.created.push(name.to_owned());
        let (name, number, network) = (name.to_owned(), self.created.len(), "kind".to_owned());
        let container = Container {
            name,
            number,
            network,
            labels,
            is_running: true,
            has_run: true,
            ..Container::default()
        };
        let id = container.id();
        self.containers.insert(id.clone(), container);
        id
    }

    /// Has a container of another program, which does not run.
    pub(crate) fn exits(&mut self, name: &str) {
        let id = self.runs(name, json!({}));
        self.containers.get_mut(&id).expect("it was created").stop();
    }

    fn list(&self, request: &Request) -> Reply {
        let filters = request.parameter("filters").map(|text| percent_decode_str(text).decode_utf8_lossy());
        let filters: Value = filters.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
        let asked: Vec<&str> =
            filters["label"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let is_listed = |container: &&Container| {
            asked.iter().all(|asked| match asked.split_once('=') {
                Some((name, value)) => container.labels[name] == value,
                None => !container.labels[*asked].is_null(),
            })
        };
        let listed = self.containers.values().filter(is_listed);
        ok(listed.map(|container| json!({"Id": container.id(), "Names": [format!("/{}", container.name)], "State": container.status(), "Labels": container.labels})).collect())
    }

    fn create(&mut self, request: &Request) -> Reply {
        let name = request.parameter("name").unwrap_or_default().to_owned();
        if self.containers.values().any(|container| container.name == name) {
            return refused(409, "Conflict. The container name is already in use");
        }
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        self.created.push(name.clone());
        let container = Container {
            name,
            labels: body["Labels"].clone(),
            image: body["Image"].as_str().unwrap_or_default().to_owned(),
            network: body["HostConfig"]["NetworkMode"].as_str().unwrap_or_default().to_owned(),
            requested: body["NetworkingConfig"]["EndpointsConfig"].as_object().and_then(|endpoints| {
                endpoints.values().next()?["IPAMConfig"]["IPv4Address"].as_str()?.parse().ok()
            }),
            number: self.created.len(),
            ..Container::default()
        };
        let id = container.id();
        self.volumes.push(id.clone());
        self.containers.insert(id.clone(), container);
        Reply::Answer(201, json!({"Id": id}).to_string().into_bytes())
    }

    fn of_container(&mut self, method: &str, which: &str, rest: &[&str], request: &Request) -> Reply {
        let found = self.containers.iter().find(|(id, it)| *id == which || it.name == which);
        let Some(id) = found.map(|(id, _)| id.clone()) else { return refused(404, "No such container") };
        if method == "DELETE" {
            self.containers.remove(&id);
            if request.parameter("v") == Some("true") {
                self.volumes.retain(|volume| *volume != id);
            }
            return Reply::Answer(204, Vec::new());
        }
        if (method, rest) == ("POST", &["start"]) {
            self.starts.push(self.containers[&id].name.clone());
            return match self.start_container(&id) {
                Ok(()) => Reply::Answer(204, Vec::new()),
                Err(refusal) => refused(403, refusal),
            };
        }
        let container = self.containers.get_mut(&id).expect("found");
        match (method, rest) {
            ("GET", ["json"]) => ok(container.shown()),
            ("POST", ["kill"]) => Reply::Answer(204, Vec::new()),
            ("PUT", ["archive"]) => {
                container.files.extend(files(&request.body));
                ok(Value::Null)
            }
            ("GET", ["archive"]) => {
                let blocks: Vec<u8> = container.files.values().flatten().copied().collect();
                Reply::Answer(200, [blocks, vec![0; 1024]].concat())
            }
            ("POST", ["exec"]) => {
                let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
                self.execs.push((id, body["Cmd"].to_string()));
                ok(json!({"Id": (self.execs.len() - 1).to_string()}))
            }
            _ => refused(404, "page not found"),
        }
    }

    /// Starts a container as Docker does: it gets the first free address of the range that its
    /// network deals out, or the address that it asked for.
    fn start_container(&mut self, id: &str) -> Result<(), &'static str> {
        let container = &self.containers[id];
        if container.is_running {
            return Ok(());
        }
        let network = self.networks.get(&container.network).cloned().unwrap_or_default();
        let config = &network["IPAM"]["Config"][0];
        let range = config["IPRange"].as_str().or(config["Subnet"].as_str()).unwrap_or(SUBNET);
        let first: Ipv4Addr =
            range.split('/').next().and_then(|address| address.parse().ok()).expect("a subnet");
        let used = |address: &Ipv4Addr| {
            let others = self.containers.values().filter(|other| other.network == container.network);
            others.filter_map(|other| other.address).any(|used| used == *address)
        };
        let address = match container.requested {
            Some(_) if network["HasOwnSubnet"] != true => {
                return Err(
                    "user specified IP address is supported only when connecting to networks with user configured subnets",
                );
            }
            Some(requested) if used(&requested) => return Err("Address already in use"),
            Some(requested) => requested,
            // The first one is the gateway.
            None => (2..)
                .map(|step| Ipv4Addr::from(u32::from(first) + step))
                .find(|address| !used(address))
                .expect("free"),
        };
        let container = self.containers.get_mut(id).expect("found");
        (container.is_running, container.has_run, container.address) = (true, true, Some(address));
        self.emit("start", id);
        Ok(())
    }

    /// Ends a container while the engine answers.
    pub(crate) fn ends(&mut self, name: &str) {
        let id = self.containers.values().find(|container| container.name == name).expect("a container").id();
        self.containers.get_mut(&id).expect("found").stop();
        self.emit("die", &id);
    }

    fn emit(&mut self, action: &str, id: &str) {
        let event = json!({"Type": "container", "Action": action, "Actor": {"ID": id}}).to_string() + "\n";
        self.followers.retain(|follower| follower.send(event.clone().into_bytes()).is_ok());
    }

    /// Ends the engine, and its containers with it.
    pub(crate) fn goes_away(&mut self) {
        self.is_away = true;
        self.containers.values_mut().for_each(Container::stop);
        self.followers.clear();
    }

    /// Starts the engine, which starts its containers in this order; the others stay Exited.
    pub(crate) fn comes_back(&mut self, order: &[&str]) {
        self.is_away = false;
        for name in order {
            let id =
                self.containers.values().find(|container| container.name == *name).expect("a container").id();
            // A container whose address is taken stays Exited.
            let _ = self.start_container(&id);
        }
    }

    /// The number of connections that follow the events.
    pub(crate) fn followers(&mut self) -> usize {
        self.followers.retain(|follower| !follower.is_closed());
        self.followers.len()
    }

    /// The addresses of the running containers, by name.
    pub(crate) fn addresses(&self) -> BTreeMap<String, Ipv4Addr> {
        self.containers
            .values()
            .filter_map(|container| Some((container.name.clone(), container.address?)))
            .collect()
    }

    /// The running containers of a network.
    fn members(&self, network: &str) -> Value {
        let members = self.containers.values().filter(|member| member.network == network);
        let members = members.filter_map(|member| {
            Some((
                member.id(),
                json!({"Name": member.name, "IPv4Address": format!("{}/16", member.address?)}),
            ))
        });
        Value::Object(members.collect())
    }

    /// Runs a command as a node does: at most one supervisor, of the bundle that was staged first.
    fn run(&mut self, exec: &str) -> Reply {
        let found = exec.parse::<usize>().ok().and_then(|number| self.execs.get(number).cloned());
        let Some((id, command)) = found else { return refused(404, "No such exec instance") };
        let Some(container) = self.containers.get_mut(&id) else { return refused(404, "No such container") };
        let state = if command.contains("bootstrap/supervisor") {
            // The claim is a hard link, so one supervisor runs.
            container.bootstraps += usize::from(container.is_staged && container.bootstraps == 0);
            return Reply::Answer(200, Vec::new());
        } else if command.contains("incoming") {
            container.is_staged = true;
            ""
        } else if command.contains("steps.count") {
            match (container.is_staged, container.bootstraps) {
                (false, _) => "state absent\n\n",
                (true, 0) => "state staged\nsteps 1\n\n",
                (true, _) => "state succeeded\nsteps 1\nstep 1\n\n",
            }
        } else {
            ""
        };
        let length = u32::try_from(state.len()).expect("short").to_be_bytes();
        Reply::Stream([&[1, 0, 0, 0][..], &length, state.as_bytes()].concat())
    }
}

impl Container {
    fn id(&self) -> String {
        format!("id-{}", self.number)
    }

    fn status(&self) -> &'static str {
        match (self.is_running, self.has_run) {
            (true, _) => "running",
            (false, true) => "exited",
            (false, false) => "created",
        }
    }

    fn stop(&mut self) {
        (self.is_running, self.address) = (false, None);
    }

    fn shown(&self) -> Value {
        json!({
            "Id": self.id(), "Name": format!("/{}", self.name), "State": {"Status": self.status()},
            "Created": "2026-01-02T03:04:05Z",
            "Config": {"Image": self.image, "Labels": self.labels},
            "HostConfig": {"NetworkMode": self.network},
            "NetworkSettings": {
                "Networks": {self.network.as_str(): {
                    "IPAddress": self.address.map(|address| address.to_string()).unwrap_or_default(),
                    "IPAMConfig": self.requested.map(|address| json!({"IPv4Address": address})),
                }},
                "Ports": {},
            },
        })
    }
}

/// The regular files of an archive, by name, with their blocks.
fn files(archive: &[u8]) -> Vec<(String, Vec<u8>)> {
    const BLOCK: usize = 512;
    let mut files = Vec::new();
    let mut rest = archive;
    while let Some(header) = rest.get(..BLOCK).filter(|header| header[0] != 0) {
        let text = |field: &[u8]| String::from_utf8_lossy(field).trim_end_matches('\0').trim().to_owned();
        let (path, size) = (text(&header[..100]), text(&header[124..136]));
        let size = usize::from_str_radix(&size, 8).unwrap_or_default().next_multiple_of(BLOCK);
        let Some(entry) = rest.get(..BLOCK + size) else { break };
        if header[156] == b'0' {
            files.push((path.rsplit('/').next().unwrap_or_default().to_owned(), entry.to_vec()));
        }
        rest = &rest[BLOCK + size..];
    }
    files
}
