//! A small Keystone, Nova, Neutron and Cinder in memory: tokens, servers, ports, volumes, delayed
//! reads and faults. Statuses and bodies are the same as in the real services. The tests of
//! take-overs in machinist-controllers also use it.
//!
//! Deliberately absent: schedulers, images as data, and everything that the driver does not call.

mod actions;
pub(crate) mod server;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;

/// The cloud. Clones share the state.
#[derive(Clone)]
pub(crate) struct Fake(Arc<Mutex<State>>);

pub(crate) struct State {
    began: Instant,
    /// The time at which the cloud began.
    pub(crate) epoch: Timestamp,
    next_id: u32,
    pub(crate) servers: Vec<Server>,
    pub(crate) ports: Vec<Port>,
    pub(crate) volumes: Vec<Volume>,
    /// The project of each user or application credential.
    pub(crate) users: BTreeMap<String, String>,
    /// The project of each token, and when the token expires.
    pub(crate) tokens: BTreeMap<String, (String, Timestamp)>,
    pub(crate) logins: Vec<Value>,
    pub(crate) faults: Vec<Fault>,
    pub(crate) settings: Settings,
    pub(crate) requests: Vec<Request>,
    is_unreachable: bool,
}

/// How the cloud behaves.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// How long Nova does not show a new server.
    pub(crate) lag: Duration,
    /// How long Nova builds a server.
    pub(crate) build: Duration,
    /// How long a server is deleted.
    pub(crate) deletion: Duration,
    /// How long Cinder fills a volume, and how long it detaches one.
    pub(crate) volume: Duration,
    /// The largest number of servers.
    pub(crate) quota: Option<usize>,
    /// The fault of each new server.
    pub(crate) fault: Option<&'static str>,
    /// Whether the credential may write tags and metadata of existing objects.
    pub(crate) may_tag: bool,
    pub(crate) page: usize,
    /// How long a token is valid.
    pub(crate) token: Duration,
    pub(crate) has_volumes: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lag: Duration::ZERO,
            build: Duration::from_secs(1),
            deletion: Duration::from_secs(1),
            volume: Duration::from_secs(1),
            quota: None,
            fault: None,
            may_tag: true,
            page: 1000,
            token: Duration::from_secs(3600),
            has_volumes: true,
        }
    }
}

/// Trouble for the next request of an action, for example `POST /servers`.
#[derive(Debug, Clone)]
pub(crate) struct Fault {
    pub(crate) action: &'static str,
    pub(crate) kind: FaultKind,
}

#[derive(Debug, Clone)]
pub(crate) enum FaultKind {
    /// The request is refused with this status, name of the error, and text.
    Refuse { status: u16, name: &'static str, text: &'static str, retry_after: Option<u64> },
    /// The request takes effect, and is answered with this status.
    EffectThenStatus(u16),
    /// The request takes effect, and no answer arrives.
    EffectThenSilence,
    /// The connection breaks, and the request takes effect later.
    LateEffect(Duration),
    /// The answer is late.
    Slow(Duration),
    /// An answer with this status and a body that is not an answer of the cloud.
    Garbage(u16, &'static str),
}

/// A request that arrived.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// The path below the endpoint of the service.
    pub(crate) path: String,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) body: Value,
    pub(crate) region: String,
    pub(crate) token: String,
    pub(crate) microversion: String,
    pub(crate) if_match: String,
}

impl Request {
    /// The method and the path, with `ID` instead of each id.
    pub(crate) fn action(&self) -> String {
        let is_id = |part: &&str| 30 < part.len();
        let parts: Vec<&str> =
            self.path.split('/').map(|part| if is_id(&part) { "ID" } else { part }).collect();
        format!("{} {}", self.method, parts.join("/"))
    }

    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(one, _)| one == name).map(|(_, value)| value.as_str())
    }
}

/// A server of Nova.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    pub(crate) id: String,
    pub(crate) project: String,
    pub(crate) region: String,
    pub(crate) name: String,
    pub(crate) metadata: BTreeMap<String, String>,
    pub(crate) created: Timestamp,
    pub(crate) visible_at: Instant,
    pub(crate) built_at: Instant,
    pub(crate) fault: Option<&'static str>,
    pub(crate) deleted_at: Option<Instant>,
}

/// A port of Neutron.
#[derive(Debug, Clone)]
pub(crate) struct Port {
    pub(crate) id: String,
    pub(crate) project: String,
    pub(crate) region: String,
    pub(crate) name: String,
    pub(crate) network: String,
    pub(crate) device: String,
    pub(crate) tags: Vec<String>,
    pub(crate) description: String,
    pub(crate) pairs: Vec<Value>,
    pub(crate) revision: u64,
    pub(crate) created: Timestamp,
    /// Whether Nova made the port, and deletes it.
    pub(crate) is_of_nova: bool,
}

/// A volume of Cinder.
#[derive(Debug, Clone)]
pub(crate) struct Volume {
    pub(crate) id: String,
    pub(crate) project: String,
    pub(crate) region: String,
    pub(crate) name: String,
    pub(crate) metadata: BTreeMap<String, String>,
    pub(crate) server: String,
    /// Until this time the volume is filled or detached.
    pub(crate) busy_until: Instant,
    pub(crate) is_detached: bool,
    pub(crate) deleted_at: Option<Instant>,
    /// A state that Cinder does not leave.
    pub(crate) state: Option<&'static str>,
}

impl Volume {
    pub(crate) fn status(&self, now: Instant) -> &'static str {
        match self.state {
            Some(state) => state,
            None if self.deleted_at.is_some() => "deleting",
            None if !self.server.is_empty() => "in-use",
            None if now < self.busy_until && self.is_detached => "detaching",
            None if now < self.busy_until => "creating",
            None => "available",
        }
    }
}

impl Fake {
    pub(crate) fn new(settings: Settings) -> Self {
        Self(Arc::new(Mutex::new(State {
            began: Instant::now(),
            epoch: "2026-01-01T00:00:00Z".parse().expect("a time"),
            next_id: 0,
            servers: Vec::new(),
            ports: Vec::new(),
            volumes: Vec::new(),
            users: BTreeMap::new(),
            tokens: BTreeMap::new(),
            logins: Vec::new(),
            faults: Vec::new(),
            settings,
            requests: Vec::new(),
            is_unreachable: false,
        })))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state after everything that has happened until now.
    pub(crate) fn at_now(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        state.end_due();
        state
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.lock().now()
    }

    pub(crate) fn is_unreachable(&self) -> bool {
        self.lock().is_unreachable
    }

    /// Refuses or accepts new connections.
    pub(crate) fn set_unreachable(&self, is_unreachable: bool) {
        self.lock().is_unreachable = is_unreachable;
    }

    /// Injects trouble for the next request of an action.
    pub(crate) fn inject(&self, action: &'static str, kind: FaultKind) {
        self.lock().faults.push(Fault { action, kind });
    }

    /// The actions of all requests so far, in their order.
    pub(crate) fn actions(&self) -> Vec<String> {
        self.lock().requests.iter().map(Request::action).collect()
    }

    /// Number of requests so far of an action.
    pub(crate) fn count(&self, action: &str) -> usize {
        self.actions().iter().filter(|one| *one == action).count()
    }

    /// Number of servers of a key that exist.
    pub(crate) fn alive(&self, key: &str) -> usize {
        let state = self.at_now();
        let is_it = |server: &&Server| server.metadata.get("machinist.dev-key").is_some_and(|one| one == key);
        state.servers.iter().filter(is_it).count()
    }

    /// Number of ports and of volumes that exist.
    pub(crate) fn parts(&self) -> (usize, usize) {
        let state = self.at_now();
        (state.ports.len(), state.volumes.len())
    }

    /// Changes a server.
    pub(crate) fn change_server(&self, id: &str, change: impl FnOnce(&mut Server)) {
        let mut state = self.lock();
        change(state.servers.iter_mut().find(|server| server.id == id).expect("it exists"));
    }
}

impl State {
    pub(crate) fn now(&self) -> Timestamp {
        self.epoch.checked_add(Instant::now().duration_since(self.began)).expect("a time")
    }

    /// A new id in the form of the cloud.
    pub(crate) fn id(&mut self) -> String {
        self.next_id += 1;
        format!("00000000-0000-4000-8000-{:012x}", self.next_id)
    }

    /// Ends deletions, and frees the parts of servers that are gone.
    pub(crate) fn end_due(&mut self) {
        let now = Instant::now();
        let detach = self.settings.volume;
        let is_over = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        let gone: Vec<(String, Instant)> = self
            .servers
            .iter()
            .filter(|server| is_over(server.deleted_at))
            .filter_map(|server| Some((server.id.clone(), server.deleted_at?)))
            .collect();
        self.servers.retain(|server| !is_over(server.deleted_at));
        for (server, at) in gone {
            self.ports.retain(|port| port.device != server || !port.is_of_nova);
            for port in self.ports.iter_mut().filter(|port| port.device == server) {
                port.device.clear();
            }
            for volume in self.volumes.iter_mut().filter(|volume| volume.server == server) {
                volume.server.clear();
                (volume.is_detached, volume.busy_until) = (true, at + detach);
            }
        }
        self.volumes.retain(|volume| !is_over(volume.deleted_at));
    }
}

/// An error document of Nova, Cinder or Keystone; of Neutron if the name is the type of its error.
pub(crate) fn refusal(status: u16, name: &str, text: &str) -> Value {
    if name.starts_with(|letter: char| letter.is_ascii_uppercase()) {
        return json!({"NeutronError": {"type": name, "message": text, "detail": ""}});
    }
    json!({name: {"code": status, "message": text}})
}
