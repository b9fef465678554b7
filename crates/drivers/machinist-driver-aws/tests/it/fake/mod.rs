//! A small EC2 and STS in memory: instances, client tokens, tags, delayed reads and faults.
//!
//! It follows the documentation of EC2 where moto, the counterpart of `real`, does not: a repeated
//! client token creates nothing, with other parameters it is refused, and after a termination it is
//! refused, too; in another zone it creates another instance. The tests of take-overs in
//! machinist-controllers also use it. Deliberately absent: signatures, which are tested with the
//! signatures of botocore.

mod actions;
pub(crate) mod server;
mod xml;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

pub(crate) type Parameters = BTreeMap<String, String>;

/// The image that exists.
pub(crate) const IMAGE: &str = "ami-760aaa0f";

/// The subnets that exist, and their zones: the subnets of the tests, and the subnet of the
/// recorded classes.
const SUBNETS: [(&str, &str); 3] = [("subnet-1", "a"), ("subnet-2", "b"), ("subnet-5fcd567594cbc9a6f", "a")];

/// The token of a workload that STS accepts.
pub(crate) const WORKLOAD_TOKEN: &str = "token-of-the-workload";

/// The cloud. Clones share the state.
#[derive(Clone)]
pub(crate) struct Fake(Arc<Mutex<State>>);

pub(crate) struct State {
    began: Instant,
    /// The time at which the cloud began.
    pub(crate) epoch: Timestamp,
    pub(crate) instances: Vec<Machine>,
    /// The creations by account, zone and client token. A token counts in one zone.
    tokens: BTreeMap<(String, String, String), (Parameters, usize)>,
    /// The account of each access key.
    pub(crate) access_keys: BTreeMap<String, String>,
    /// The session token of each temporary access key, and when the key expires.
    sessions: BTreeMap<String, (String, Timestamp)>,
    pub(crate) faults: Vec<Fault>,
    pub(crate) settings: Settings,
    pub(crate) requests: Vec<Request>,
    is_unreachable: bool,
}

/// How the cloud behaves.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// How long reads do not show a new instance.
    pub(crate) lag: Duration,
    /// How long an instance is deleted.
    pub(crate) deletion: Duration,
    /// The largest number of instances.
    pub(crate) quota: Option<usize>,
    pub(crate) has_stock: bool,
    /// Whether the credential may write tags of existing instances.
    pub(crate) may_tag: bool,
    pub(crate) page: usize,
    /// Whether the private DNS name of an instance is its tag `Name`. EC2 derives it from the
    /// address; the contract of drivers expects the name of the spec.
    pub(crate) names_by_tag: bool,
    /// Whether an interface is shown only after some time.
    pub(crate) shows_interfaces: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lag: Duration::ZERO,
            deletion: Duration::from_secs(1),
            quota: None,
            has_stock: true,
            may_tag: true,
            page: 1000,
            names_by_tag: false,
            shows_interfaces: true,
        }
    }
}

/// Trouble for the next request of an action.
#[derive(Debug, Clone)]
pub(crate) struct Fault {
    pub(crate) action: &'static str,
    pub(crate) kind: FaultKind,
}

#[derive(Debug, Clone)]
pub(crate) enum FaultKind {
    /// The request is refused.
    Refuse { status: u16, code: &'static str, retry_after: Option<u64> },
    /// The request takes effect, and is answered with this status.
    EffectThenStatus(u16),
    /// The request takes effect, and no answer arrives.
    EffectThenSilence,
    /// The connection breaks, and the request takes effect later.
    LateEffect(Duration),
    /// A success status with a body that is not an answer of the cloud.
    Garbage(&'static str),
}

/// A request that arrived.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) action: String,
    pub(crate) parameters: Parameters,
    pub(crate) region: String,
    pub(crate) access_key: String,
}

/// An instance.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    pub(crate) id: String,
    pub(crate) account: String,
    pub(crate) region: String,
    /// The letter of its zone.
    pub(crate) zone: String,
    pub(crate) tags: BTreeMap<String, String>,
    pub(crate) token: String,
    pub(crate) launched: Timestamp,
    pub(crate) visible_at: Instant,
    pub(crate) terminated_at: Option<Instant>,
    pub(crate) is_stopped: bool,
    pub(crate) private_dns_name: String,
    pub(crate) interfaces: Vec<Interface>,
}

/// A network interface.
#[derive(Debug, Clone)]
pub(crate) struct Interface {
    pub(crate) id: String,
    pub(crate) card: i32,
    pub(crate) device: i32,
    pub(crate) of_type: String,
    pub(crate) has_check: bool,
    pub(crate) prefixes: usize,
}

impl Machine {
    pub(crate) fn state(&self, now: Instant) -> &'static str {
        match self.terminated_at {
            Some(at) if at <= now => "terminated",
            Some(_) => "shutting-down",
            None if self.is_stopped => "stopped",
            None => "running",
        }
    }
}

impl Fake {
    pub(crate) fn new(settings: Settings) -> Self {
        Self(Arc::new(Mutex::new(State {
            began: Instant::now(),
            epoch: "2026-01-01T00:00:00Z".parse().expect("a time"),
            instances: Vec::new(),
            tokens: BTreeMap::new(),
            access_keys: BTreeMap::new(),
            sessions: BTreeMap::new(),
            faults: Vec::new(),
            settings,
            requests: Vec::new(),
            is_unreachable: false,
        })))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
        self.lock().requests.iter().map(|request| request.action.clone()).collect()
    }

    /// Number of requests so far of an action.
    pub(crate) fn count(&self, action: &str) -> usize {
        self.actions().iter().filter(|one| *one == action).count()
    }

    /// Number of instances with a tag that are not terminated.
    pub(crate) fn alive(&self, tag: &str, value: &str) -> usize {
        let state = self.lock();
        let is_it = |machine: &&Machine| {
            let has_tag = machine.tags.get(tag).is_some_and(|tag| tag == value);
            has_tag && machine.state(Instant::now()) != "terminated"
        };
        state.instances.iter().filter(is_it).count()
    }

    /// Creates an instance as another program would, and returns its id.
    pub(crate) fn create(&self, account: &str, region: &str, tags: &[(&str, &str)]) -> String {
        let tags = tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let token = "d212389b-3647-40bf-8abd-629b42790648".to_owned();
        let mut state = self.lock();
        let interfaces = vec![state.interface(0, 0, 0, "interface")];
        let index = state.add(account, region, "a", token, tags, interfaces);
        state.instances[index].id.clone()
    }

    /// Changes an instance.
    pub(crate) fn change(&self, id: &str, change: impl FnOnce(&mut Machine)) {
        let mut state = self.lock();
        let machine = state.instances.iter_mut().find(|machine| machine.id == id).expect("it exists");
        change(machine);
    }

    /// An instance as it is now.
    pub(crate) fn machine(&self, id: &str) -> Machine {
        let state = self.lock();
        state.instances.iter().find(|machine| machine.id == id).expect("it exists").clone()
    }
}

impl State {
    pub(crate) fn now(&self) -> Timestamp {
        self.epoch.checked_add(Instant::now().duration_since(self.began)).expect("a time")
    }
}
