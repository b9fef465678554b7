//! The objects of the stand-in of Hetzner Cloud, as the history records them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;
use machinist_standin_hcloud::State;

/// The label of a load balancer with the UID of its Service.
pub(super) const SERVICE_UID: &str = "hcloud-ccm/service-uid";
/// The finalizer of a Service that may have a load balancer.
pub(crate) const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

/// All servers and load balancers that ever existed, and the lookups of servers by id.
#[derive(Debug, Default)]
pub struct Project {
    servers: BTreeMap<i64, ServerTrack>,
    balancers: BTreeMap<i64, HcloudBalancerTrack>,
    lookups: Vec<Lookup>,
}

/// One server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerTrack {
    /// All names that the server ever had.
    pub names: BTreeSet<String>,
    /// All public addresses that the server ever had.
    pub addresses: BTreeSet<String>,
    /// When the server ceased to exist.
    pub gone: Option<Timestamp>,
}

/// One load balancer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HcloudBalancerTrack {
    /// UID of the Service; empty if no label names one.
    pub service: String,
    /// Name of the load balancer.
    pub name: String,
    /// Listen ports and servers, for the trace.
    content: String,
    /// Whether the load balancer exists.
    pub exists: bool,
}

/// A lookup of a server by id, with the answer of the stand-in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lookup {
    /// Number of the life of the process that asked.
    pub life: u32,
    /// Id of the server.
    pub server: i64,
    /// When the process asked.
    pub asked: Timestamp,
    /// When the stand-in answered.
    pub answered: Timestamp,
    /// Whether the answer was the server.
    pub is_shown: bool,
}

/// A change of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProjectChange {
    /// A server was created.
    ServerMade(i64),
    /// The name or the addresses of a server changed.
    ServerChanged(i64),
    /// A server ceased to exist.
    ServerGone(i64),
    /// A load balancer was created, or got another label of a Service.
    BalancerLabelled {
        /// Id of the load balancer.
        id: i64,
        /// UID of the Service; empty if no label names one.
        service: String,
    },
    /// The content of a load balancer changed.
    BalancerChanged(i64, String),
    /// A load balancer ceased to exist.
    BalancerGone(i64),
}

impl Project {
    /// The server with that provider id.
    pub fn server(&self, provider_id: &str) -> Option<&ServerTrack> {
        self.servers.get(&server_of(provider_id)?)
    }

    /// The load balancers that exist.
    pub fn balancers(&self) -> impl Iterator<Item = (i64, &HcloudBalancerTrack)> {
        self.balancers.iter().filter(|(_, track)| track.exists).map(|(id, track)| (*id, track))
    }

    /// The load balancer with that id, also if it no longer exists.
    pub fn balancer(&self, id: i64) -> Option<&HcloudBalancerTrack> {
        self.balancers.get(&id)
    }

    /// Number of load balancers that ever existed.
    pub fn balancers_ever(&self) -> usize {
        self.balancers.len()
    }

    /// The lookups of the server with that provider id, oldest first.
    pub fn lookups(&self, provider_id: &str) -> impl DoubleEndedIterator<Item = &Lookup> {
        let server = server_of(provider_id);
        self.lookups.iter().filter(move |lookup| Some(lookup.server) == server)
    }

    pub(crate) fn looked_up(&mut self, lookup: Lookup) {
        self.lookups.push(lookup);
    }

    /// Takes over all objects, and returns the changes.
    pub(crate) fn take(&mut self, state: &State, now: Timestamp) -> Vec<ProjectChange> {
        let mut changes = Vec::new();
        for (id, server) in &state.servers {
            let addresses = [&server.ipv4, &server.ipv6].into_iter().flatten().map(|ip| ip.ip.clone());
            let is_new = !self.servers.contains_key(id);
            let track = self.servers.entry(*id).or_insert_with(|| ServerTrack {
                names: BTreeSet::new(),
                addresses: BTreeSet::new(),
                gone: None,
            });
            let mut has_changed = track.names.insert(server.name.clone());
            for address in addresses {
                has_changed |= track.addresses.insert(address);
            }
            if is_new {
                changes.push(ProjectChange::ServerMade(*id));
            } else if has_changed {
                changes.push(ProjectChange::ServerChanged(*id));
            }
            if track.gone.is_none() && server.deleted.is_some() {
                track.gone = Some(now);
                changes.push(ProjectChange::ServerGone(*id));
            }
        }
        for (id, track) in &mut self.balancers {
            if track.exists && !state.load_balancers.contains_key(id) {
                track.exists = false;
                changes.push(ProjectChange::BalancerGone(*id));
            }
        }
        for (id, balancer) in &state.load_balancers {
            let service = balancer.labels.get(SERVICE_UID).cloned().unwrap_or_default();
            let ports: Vec<u16> = balancer.services.iter().map(|service| service.listen_port).collect();
            let targets = balancer.targets.len();
            let content = format!("ports {ports:?}, {targets} targets");
            let now = HcloudBalancerTrack {
                service: service.clone(),
                name: balancer.name.clone(),
                content: content.clone(),
                exists: true,
            };
            let before = self.balancers.insert(*id, now);
            if before.as_ref().is_none_or(|before| before.service != service) {
                changes.push(ProjectChange::BalancerLabelled { id: *id, service });
            }
            if before.is_none_or(|before| before.content != content) {
                changes.push(ProjectChange::BalancerChanged(*id, content));
            }
        }
        changes
    }
}

/// The id of the server that a provider id names.
fn server_of(provider_id: &str) -> Option<i64> {
    provider_id.strip_prefix("hcloud://")?.parse().ok()
}

impl fmt::Display for ProjectChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ServerMade(id) => write!(f, "cloud + server {id}"),
            Self::ServerChanged(id) => write!(f, "cloud ~ server {id}"),
            Self::ServerGone(id) => write!(f, "cloud - server {id}"),
            Self::BalancerLabelled { id, service } => {
                write!(f, "cloud + load balancer {id} of Service {service:?}")
            }
            Self::BalancerChanged(id, content) => write!(f, "cloud ~ load balancer {id}: {content}"),
            Self::BalancerGone(id) => write!(f, "cloud - load balancer {id}"),
        }
    }
}

impl fmt::Display for Lookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { life, server, asked: _, answered: _, is_shown } = self;
        let answer = if *is_shown { "shown" } else { "absent" };
        write!(f, "lookup of server {server} by life {life}: {answer}")
    }
}
