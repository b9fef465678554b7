//! Allocates the addresses and node ports of Services. Each belongs to one Service only.

use std::collections::{BTreeSet, HashMap};
use std::net::Ipv4Addr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::schema::kinds::Context;

/// Network of the Services: 10.96.0.0/16, the beginning of kubeadm's range for Services.
const NETWORK: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 0);
/// Usable host numbers: the network's first address is its name, and its last address reaches all
/// hosts.
const HOSTS: std::ops::RangeInclusive<u32> = 1..=65_534;
const NODE_PORTS: std::ops::RangeInclusive<u32> = 30_000..=32_767;
/// Address of the API server itself.
pub(crate) const OF_API_SERVER: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
/// How long an allocation is reserved while it is not stored. A write takes far less.
const RESERVED_FOR: Duration = Duration::from_secs(10);

/// Allocations for Services that may not be stored yet.
#[derive(Debug, Default)]
pub(crate) struct Reserved(Mutex<HashMap<String, Instant>>);

/// Returns a free address for the Service with this UID.
pub(crate) fn allocate_address(context: &Context<'_>, uid: &str) -> Option<Ipv4Addr> {
    let taken = taken_addresses(context);
    let text = |host: u32| Ipv4Addr::from_bits(NETWORK.to_bits() + host).to_string();
    let host = context.addresses.take(HOSTS, uid, &taken, text)?;
    Some(Ipv4Addr::from_bits(NETWORK.to_bits() + host))
}

/// Returns a free node port for port number `index` of the Service with this UID.
pub(crate) fn allocate_node_port(context: &Context<'_>, uid: &str, index: usize) -> Option<u32> {
    let taken = taken_node_ports(context);
    context.addresses.take(NODE_PORTS, &format!("{uid}/{index}"), &taken, |port| port.to_string())
}

pub(crate) fn is_node_port(port: i64) -> bool {
    u32::try_from(port).is_ok_and(|port| NODE_PORTS.contains(&port))
}

/// Whether an address can be given to a Service.
pub(crate) fn in_network(address: Ipv4Addr) -> bool {
    address.to_bits().checked_sub(NETWORK.to_bits()).is_some_and(|host| HOSTS.contains(&host))
}

/// Returns the addresses of all stored Services.
pub(crate) fn taken_addresses(context: &Context<'_>) -> BTreeSet<String> {
    taken(context, |spec| spec["clusterIPs"].as_array().cloned().unwrap_or_default())
}

/// Returns the node ports of all stored Services.
pub(crate) fn taken_node_ports(context: &Context<'_>) -> BTreeSet<String> {
    taken(context, |spec| {
        let ports = spec["ports"].as_array().into_iter().flatten();
        ports.filter_map(|port| port.get("nodePort").cloned()).collect()
    })
}

/// Collects values of all stored Services. At most as many Services have an address as the network
/// has addresses.
fn taken(context: &Context<'_>, of: impl Fn(&Value) -> Vec<Value>) -> BTreeSet<String> {
    let stored = context.store.slice("services", "", None, None).map(|slice| slice.items).unwrap_or_default();
    let values = stored.iter().flat_map(|(_, service)| of(&service.glance()["spec"]));
    values.map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned)).collect()
}

impl Reserved {
    /// Reserves a free number of the range. The search starts at a position derived from `who`, so
    /// most searches succeed at once.
    fn take(
        &self,
        range: std::ops::RangeInclusive<u32>,
        who: &str,
        taken: &BTreeSet<String>,
        text: impl Fn(u32) -> String,
    ) -> Option<u32> {
        let mut reserved = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        reserved.retain(|_, since| now.duration_since(*since) < RESERVED_FOR);
        let (first, count) = (*range.start(), range.end() - range.start() + 1);
        let begin = who.bytes().fold(0_u32, |sum, byte| (sum * 31 + u32::from(byte)) % count);
        let free = (0..count).map(|step| first + (begin + step) % count).find(|number| {
            let text = text(*number);
            !taken.contains(&text) && !reserved.contains_key(&text)
        })?;
        reserved.insert(text(free), now);
        Some(free)
    }
}
