//! All stored objects. A change marks the object, and [`Store::commit`] writes all marked objects
//! as one line of the journal.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use serde::{Deserialize, Serialize};

use crate::journal::{Change, Journal, Line};
use crate::model::{
    Certificate, FloatingIp, HcloudAction, HcloudLoadBalancer, HcloudServer, Network, SshKey,
};

/// Identifiers begin above 32 bits, so that a client that stores them in fewer bits fails.
pub(crate) const FIRST_ID: i64 = (1 << 33) + 65_537;

/// Finished actions are kept for a while, because clients ask for them. This number is far above
/// what a client remembers.
const MAX_ACTIONS: usize = 20_000;

/// All objects of all projects, as in a dump.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct State {
    /// The last identifier that was given to an object; 0 if there was none.
    pub last_id: i64,
    /// Every server that ever existed.
    pub servers: BTreeMap<i64, HcloudServer>,
    /// The networks.
    pub networks: BTreeMap<i64, Network>,
    /// The load balancers.
    pub load_balancers: BTreeMap<i64, HcloudLoadBalancer>,
    /// The certificates.
    pub certificates: BTreeMap<i64, Certificate>,
    /// The SSH keys.
    pub ssh_keys: BTreeMap<i64, SshKey>,
    /// The floating addresses.
    pub floating_ips: BTreeMap<i64, FloatingIp>,
    /// Actions that run, and the actions that ended last.
    pub actions: BTreeMap<i64, HcloudAction>,
}

/// The sort of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Sort {
    Server,
    Network,
    LoadBalancer,
    Certificate,
    SshKey,
    FloatingIp,
    Action,
}

#[derive(Debug, Default)]
pub(crate) struct Store {
    state: State,
    changed: BTreeSet<(Sort, i64)>,
    journal: Option<Journal>,
    /// The highest sequence number of a machine; its server may be lost.
    last_serial: u64,
}

/// Access to one sort of object. Every access that may change an object marks it.
macro_rules! objects {
    ($put:ident, $edit:ident, $remove:ident, $map:ident, $type:ty, $sort:expr) => {
        pub(crate) fn $put(&mut self, object: $type) {
            self.changed.insert(($sort, object.id));
            self.state.$map.insert(object.id, object);
        }

        #[allow(dead_code, reason = "SSH keys are never changed")]
        pub(crate) fn $edit(&mut self, id: i64) -> Option<&mut $type> {
            self.changed.insert(($sort, id));
            self.state.$map.get_mut(&id)
        }

        #[allow(dead_code, reason = "servers are never removed")]
        pub(crate) fn $remove(&mut self, id: i64) {
            self.changed.insert(($sort, id));
            self.state.$map.remove(&id);
        }
    };
}

impl Store {
    pub(crate) fn new(state: State, journal: Option<Journal>) -> Self {
        Self { state, changed: BTreeSet::new(), journal, last_serial: 0 }
    }

    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    objects!(put_server, edit_server, remove_server, servers, HcloudServer, Sort::Server);
    objects!(put_network, edit_network, remove_network, networks, Network, Sort::Network);
    objects!(
        put_load_balancer,
        edit_load_balancer,
        remove_load_balancer,
        load_balancers,
        HcloudLoadBalancer,
        Sort::LoadBalancer
    );
    objects!(
        put_certificate,
        edit_certificate,
        remove_certificate,
        certificates,
        Certificate,
        Sort::Certificate
    );
    objects!(put_ssh_key, edit_ssh_key, remove_ssh_key, ssh_keys, SshKey, Sort::SshKey);
    objects!(
        put_floating_ip,
        edit_floating_ip,
        remove_floating_ip,
        floating_ips,
        FloatingIp,
        Sort::FloatingIp
    );
    objects!(put_action, edit_action, remove_action, actions, HcloudAction, Sort::Action);

    /// Whether an object changed since the last commit.
    pub(crate) fn has_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// The servers that changed since the last commit.
    pub(crate) fn changed_servers(&self) -> impl Iterator<Item = i64> {
        self.changed.iter().filter(|(sort, _)| *sort == Sort::Server).map(|(_, id)| *id)
    }

    /// A new identifier.
    pub(crate) fn next_id(&mut self, seed: u32) -> i64 {
        let first = FIRST_ID + i64::from(seed) * 1_000_000;
        self.state.last_id = (self.state.last_id + 1).max(first);
        self.state.last_id
    }

    /// The sequence number of the next server.
    pub(crate) fn next_serial(&self) -> u64 {
        let serials = self.state.servers.values().map(|server| server.serial);
        serials.chain([self.last_serial]).max().unwrap_or(0) + 1
    }

    /// Prevents that an id and a sequence number are given to a new server.
    pub(crate) fn reserve(&mut self, id: i64, serial: u64) {
        self.state.last_id = self.state.last_id.max(id);
        self.last_serial = self.last_serial.max(serial);
    }

    /// Replaces everything, as from a dump.
    pub(crate) fn replace(&mut self, state: State) -> io::Result<()> {
        if let Some(journal) = &mut self.journal {
            journal.rewrite(&state)?;
        }
        self.state = state;
        self.changed.clear();
        Ok(())
    }

    /// Writes the marked objects to the journal. After an error they stay marked, and the next
    /// commit writes them.
    pub(crate) fn commit(&mut self) -> io::Result<()> {
        if self.changed.is_empty() {
            return Ok(());
        }
        self.forget_old_actions();
        if let Some(journal) = &mut self.journal {
            let changes = self.changed.iter().map(|(sort, id)| self.state.change(*sort, *id)).collect();
            journal.append(&Line { last_id: self.state.last_id, changes })?;
        }
        self.changed.clear();
        Ok(())
    }

    fn forget_old_actions(&mut self) {
        while MAX_ACTIONS < self.state.actions.len() {
            let ended = self.state.actions.values().find(|action| action.finished.is_some());
            let Some(id) = ended.map(|action| action.id) else { return };
            self.remove_action(id);
        }
    }
}

impl State {
    fn change(&self, sort: Sort, id: i64) -> Change {
        let removed = Change::Removed { sort, id };
        match sort {
            Sort::Server => {
                self.servers.get(&id).cloned().map_or(removed, |server| Change::Server(Box::new(server)))
            }
            Sort::Network => self.networks.get(&id).cloned().map_or(removed, Change::Network),
            Sort::LoadBalancer => self
                .load_balancers
                .get(&id)
                .cloned()
                .map_or(removed, |balancer| Change::LoadBalancer(Box::new(balancer))),
            Sort::Certificate => self.certificates.get(&id).cloned().map_or(removed, Change::Certificate),
            Sort::SshKey => self.ssh_keys.get(&id).cloned().map_or(removed, Change::SshKey),
            Sort::FloatingIp => self.floating_ips.get(&id).cloned().map_or(removed, Change::FloatingIp),
            Sort::Action => {
                self.actions.get(&id).cloned().map_or(removed, |action| Change::Action(Box::new(action)))
            }
        }
    }

    pub(crate) fn apply(&mut self, line: Line) {
        self.last_id = line.last_id;
        for change in line.changes {
            match change {
                Change::Server(server) => drop(self.servers.insert(server.id, *server)),
                Change::Network(network) => drop(self.networks.insert(network.id, network)),
                Change::LoadBalancer(balancer) => drop(self.load_balancers.insert(balancer.id, *balancer)),
                Change::Certificate(certificate) => {
                    drop(self.certificates.insert(certificate.id, certificate))
                }
                Change::SshKey(key) => drop(self.ssh_keys.insert(key.id, key)),
                Change::FloatingIp(address) => drop(self.floating_ips.insert(address.id, address)),
                Change::Action(action) => drop(self.actions.insert(action.id, *action)),
                Change::Removed { sort, id } => match sort {
                    Sort::Server => drop(self.servers.remove(&id)),
                    Sort::Network => drop(self.networks.remove(&id)),
                    Sort::LoadBalancer => drop(self.load_balancers.remove(&id)),
                    Sort::Certificate => drop(self.certificates.remove(&id)),
                    Sort::SshKey => drop(self.ssh_keys.remove(&id)),
                    Sort::FloatingIp => drop(self.floating_ips.remove(&id)),
                    Sort::Action => drop(self.actions.remove(&id)),
                },
            }
        }
    }
}
