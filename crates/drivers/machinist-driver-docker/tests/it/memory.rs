//! An engine in memory behind real HTTP: containers, volumes, networks, and nodes that run
//! commands. The engine outlives the driver's process, which may end at any request.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use machinist_driver_docker::{DockerOptions, DockerProvider, Privileges};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Notify;

use crate::wire::{Reply, Request, serve};

/// The engine.
pub(crate) struct Memory {
    address: String,
    state: Arc<Mutex<State>>,
    died: Arc<Notify>,
}

/// What happens to one request.
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
    pub(crate) networks: Vec<String>,
    /// The anonymous volumes, by the id of their container.
    pub(crate) volumes: Vec<String>,
    /// Names in the order of the creations.
    pub(crate) created: Vec<String>,
    /// The fault, and the number of requests before it.
    fault: Option<(usize, Fault)>,
    /// Whether the present process has died. Its requests have no effect any more.
    is_dead: bool,
    execs: Vec<(String, String)>,
}

/// A container, by its id.
#[derive(Default)]
pub(crate) struct Container {
    pub(crate) name: String,
    pub(crate) is_running: bool,
    labels: Value,
    image: String,
    network: String,
    address: Option<String>,
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
        if self.is_dead {
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
            ("GET", ["info"]) => ok(json!({"ID": "engine-a", "CgroupVersion": "2"})),
            ("GET", ["images", ..]) => ok(json!({"Id": "image"})),
            ("GET", ["networks"]) => {
                ok(self.networks.iter().map(|name| json!({"Id": name, "Name": name})).collect())
            }
            ("GET", ["networks", name]) if self.networks.iter().any(|it| it == name) => {
                ok(json!({"Id": name}))
            }
            ("GET", ["networks", _]) => refused(404, "network not found"),
            ("POST", ["networks", "create"]) => {
                let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
                let name = body["Name"].as_str().unwrap_or_default().to_owned();
                if self.networks.contains(&name) {
                    return refused(409, "network already exists");
                }
                self.networks.push(name);
                ok(json!({"Id": "network"}))
            }
            ("GET", ["containers", "json"]) => self.list(&request.query),
            ("POST", ["containers", "create"]) => self.create(request),
            ("POST", ["exec", exec, "start"]) => self.run(exec),
            ("GET", ["exec", _, "json"]) => ok(json!({"Running": false, "ExitCode": 0})),
            (method, ["containers", which, rest @ ..]) => self.of_container(method, which, rest, request),
            _ => refused(404, "page not found"),
        }
    }

    fn list(&self, query: &str) -> Reply {
        // The value of each label is part of its filter.
        let is_listed = |container: &&Container| {
            let labels = container.labels.as_object();
            let mut values = labels.into_iter().flatten().filter_map(|(name, value)| {
                let is_asked = query.contains(name.rsplit('/').next().unwrap_or(name));
                is_asked.then(|| value.as_str().unwrap_or_default())
            });
            values.all(|value| query.contains(value))
        };
        let listed = self.containers.values().filter(is_listed);
        ok(listed.map(|it| json!({"Id": it.id(), "Names": [format!("/{}", it.name)], "State": it.status(), "Labels": it.labels})).collect())
    }

    fn create(&mut self, request: &Request) -> Reply {
        let name = request.parameter("name").unwrap_or_default().to_owned();
        if self.containers.values().any(|it| it.name == name) {
            return refused(409, "Conflict. The container name is already in use");
        }
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        self.created.push(name.clone());
        let container = Container {
            name,
            labels: body["Labels"].clone(),
            image: body["Image"].as_str().unwrap_or_default().to_owned(),
            network: body["HostConfig"]["NetworkMode"].as_str().unwrap_or_default().to_owned(),
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
        let container = self.containers.get_mut(&id).expect("found");
        match (method, rest) {
            ("GET", ["json"]) => ok(container.shown()),
            ("POST", ["start"]) => {
                container.is_running = true;
                container.address.get_or_insert(format!("172.18.0.{}", container.number + 1));
                Reply::Answer(204, Vec::new())
            }
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
        if self.is_running { "running" } else { "created" }
    }

    fn shown(&self) -> Value {
        json!({
            "Id": self.id(), "Name": format!("/{}", self.name), "State": {"Status": self.status()},
            "Created": "2026-01-02T03:04:05Z",
            "Config": {"Image": self.image, "Labels": self.labels},
            "HostConfig": {"NetworkMode": self.network},
            "NetworkSettings": {
                "Networks": {self.network.as_str(): {"IPAddress": self.address.as_deref().unwrap_or_default()}},
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
