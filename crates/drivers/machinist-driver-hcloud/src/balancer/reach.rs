//! Whether a server can be a target, from what the cloud has shown about its servers. Pure.
//!
//! The knowledge saves refused calls. A server that is not known counts as a possible target, and
//! the cloud decides.

use std::collections::BTreeMap;

use machinist_instance::{Address, SkipCause, SkippedTarget};

use super::wanted::{Wanted, WantedTarget};
use crate::id;
use crate::model::Server;
use crate::options::AddressFamily;
use crate::reply::{self, View};

/// The servers that the cloud has shown, as far as they matter to targets.
#[derive(Debug, Clone)]
pub(crate) struct Reach {
    servers: BTreeMap<i64, Shown>,
    /// The addresses of instances that callers see. They contain an IPv4 address only in some
    /// families.
    family: AddressFamily,
    /// Whether the running call has read the list, so that other servers do not exist.
    is_current: bool,
}

/// One server, as far as it matters to targets.
#[derive(Debug, Clone)]
struct Shown {
    has_ipv4: bool,
    /// The networks of the server. A network without an address is being attached, so the cloud
    /// decides.
    networks: Vec<i64>,
    addresses: Vec<Address>,
}

/// Why a target is left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Skip {
    pub(crate) cause: SkipCause,
    pub(crate) message: String,
}

/// The targets to leave out, by the id of the server.
pub(crate) type Skips = BTreeMap<i64, Skip>;

impl Reach {
    /// Nothing is known.
    pub(crate) fn unknown(family: AddressFamily) -> Self {
        Self { servers: BTreeMap::new(), family, is_current: false }
    }

    /// The knowledge from a list of all servers.
    pub(crate) fn of(view: View, servers: &[Server]) -> Self {
        let shown = |server: &Server| Shown {
            has_ipv4: server.public_net.ipv4.as_ref().is_some_and(|ip| !ip.ip.is_empty()),
            networks: server.private_net.iter().map(|net| net.network).collect(),
            addresses: reply::addresses(view, server),
        };
        let servers = servers.iter().map(|server| (server.id, shown(server))).collect();
        Self { servers, family: view.family, is_current: false }
    }

    /// The same knowledge, read by the running call.
    pub(crate) fn current(self) -> Self {
        Self { is_current: true, ..self }
    }

    pub(crate) fn is_current(&self) -> bool {
        self.is_current
    }

    /// The wanted targets that the cloud would reject.
    pub(crate) fn skips(&self, wanted: &Wanted) -> Skips {
        let targets = wanted.targets.iter();
        targets.filter_map(|target| Some((target.server, self.skip(wanted, target.server)?))).collect()
    }

    fn skip(&self, wanted: &Wanted, server: i64) -> Option<Skip> {
        let Some(shown) = self.servers.get(&server) else {
            let message = format!("server {server} does not exist");
            return self.is_current.then_some(Skip { cause: SkipCause::Shown(None), message });
        };
        let addresses = SkipCause::Shown(Some(shown.addresses.clone()));
        match wanted.network.filter(|_| wanted.settings.use_private_ip) {
            Some(network) if !shown.networks.contains(&network) => {
                let message = format!(
                    "server {server} is not attached to network {network}, and use-private-ip is true"
                );
                Some(Skip { cause: addresses, message })
            }
            None if !shown.has_ipv4 => {
                let message =
                    format!("server {server} has no public IPv4 address, and use-private-ip is not true");
                // A new address must be visible to the caller, who waits for it.
                let is_visible = match self.family {
                    AddressFamily::Ipv4 | AddressFamily::DualStack => true,
                    AddressFamily::Ipv6 => false,
                };
                Some(Skip { cause: if is_visible { addresses } else { SkipCause::Refused }, message })
            }
            Some(_) | None => None,
        }
    }
}

impl WantedTarget {
    /// The result for a target that is left out.
    pub(crate) fn skipped(&self, skip: Skip) -> SkippedTarget {
        let Skip { cause, message } = skip;
        SkippedTarget { node: self.node.clone(), instance: id::of(self.server), cause, message }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::balancer::wanted::tests::{spec, wanted};

    fn reach(family: AddressFamily, servers: Value) -> Reach {
        let servers: Vec<Server> = serde_json::from_value(servers).expect("servers");
        Reach::of(View { family, has_zone: false, network: Some(1), spells_zone: false }, &servers)
    }

    fn servers() -> Value {
        json!([
            {"id": 7, "name": "both", "public_net": {"ipv4": {"ip": "192.0.2.7"}},
             "private_net": [{"network": 1, "ip": "10.0.0.7"}]},
            {"id": 8, "name": "public", "public_net": {"ipv4": {"ip": "192.0.2.8"}},
             "private_net": [{"network": 2, "ip": "10.9.0.8"}]},
            {"id": 9, "name": "private", "public_net": {"ipv4": null},
             "private_net": [{"network": 1, "ip": null}]},
        ])
    }

    fn skipped(reach: &Reach, options: &[(&str, &str)]) -> Vec<i64> {
        let ids = ["hcloud://7", "hcloud://8", "hcloud://9", "hcloud://10"];
        let wanted = wanted(&spec(&ids, options), Some(1)).expect("valid");
        reach.skips(&wanted).into_keys().collect()
    }

    #[test]
    fn the_sort_of_address_decides_about_a_server() {
        let reach = reach(AddressFamily::Ipv4, servers());
        assert_eq!(skipped(&reach, &[]), [9]);
        assert_eq!(skipped(&reach, &[("use-private-ip", "true")]), [8], "9 is being attached");
        assert_eq!(skipped(&reach.current(), &[]), [9, 10], "the list lacks 10");
        assert_eq!(skipped(&Reach::unknown(AddressFamily::Ipv4), &[]), [0; 0]);
    }

    #[test]
    fn a_cause_is_visible_to_the_caller() {
        let wanted = wanted(&spec(&["hcloud://9"], &[]), Some(1)).expect("valid");
        let cause = |family| reach(family, servers()).skips(&wanted).remove(&9).expect("skipped").cause;
        assert!(matches!(cause(AddressFamily::DualStack), SkipCause::Shown(Some(_))));
        assert_eq!(cause(AddressFamily::Ipv6), SkipCause::Refused);
    }
}
