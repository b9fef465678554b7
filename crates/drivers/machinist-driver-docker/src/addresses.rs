//! The fixed addresses of a container. kubeadm writes the address of a control plane into its
//! manifests and certificates, so it must not change.
//!
//! An engine deals the addresses of a network out in the order in which containers start, also
//! after each restart of the engine. So a new container asks for an address of its own, which the
//! engine gives to no other container: one outside of the range that the engine deals out. The
//! driver creates its networks with a range for the engine ([`crate::network`]). In other networks,
//! an administrator decides with `docker network create --subnet --ip-range`; without a range, the
//! addresses of the network stay dynamic.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value, json};

use crate::engine::Engine;
use crate::engine::failure::Failure;
use crate::label;
use crate::model::Summary;
use crate::network::{self, Subnet};
use crate::request;

/// Number of free addresses that are tried. Networks are much larger than the clusters in them.
const MAX_TRIED: u128 = 1 << 16;

/// The addresses that a new container asks for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Fixed(pub(crate) Vec<IpAddr>);

impl Fixed {
    /// The settings of the container's endpoint in its network.
    pub(crate) fn endpoint(&self) -> Value {
        let mut config = Map::new();
        for address in &self.0 {
            let field = if address.is_ipv4() { "IPv4Address" } else { "IPv6Address" };
            config.insert(field.to_owned(), json!(address));
        }
        if config.is_empty() { json!({}) } else { json!({ "IPAMConfig": config }) }
    }

    /// The value of the label of the container; absent if it asks for no address.
    pub(crate) fn label(&self) -> Option<String> {
        let texts: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        (!texts.is_empty()).then(|| texts.join(" "))
    }

    /// Writes the addresses into the body of a request that creates a container.
    pub(crate) fn write(&self, body: &mut Value, network: &str) {
        if let Some(label) = self.label() {
            body["NetworkingConfig"]["EndpointsConfig"][network] = self.endpoint();
            body["Labels"][label::ADDRESSES] = json!(label);
        }
    }
}

/// Addresses that calls of this process have chosen, and that the engine may not show yet.
#[derive(Debug, Default)]
pub(crate) struct Reserved {
    /// Of two choices, the second one sees the first.
    choice: tokio::sync::Mutex<()>,
    addresses: Arc<Mutex<BTreeSet<IpAddr>>>,
}

/// Keeps addresses reserved until the engine shows the container, or until its creation failed.
#[derive(Debug, Default)]
pub(crate) struct Reservation {
    pub(crate) fixed: Fixed,
    of: Arc<Mutex<BTreeSet<IpAddr>>>,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut reserved = lock(&self.of);
        for address in &self.fixed.0 {
            reserved.remove(address);
        }
    }
}

fn lock(addresses: &Mutex<BTreeSet<IpAddr>>) -> MutexGuard<'_, BTreeSet<IpAddr>> {
    addresses.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Chooses the addresses of a new container. There are none if the network has no range.
pub(crate) async fn choose(engine: &Engine, network: &str, name: &str) -> Result<Reservation, Failure> {
    let subnets = network::subnets(engine, network).await?;
    if !subnets.iter().any(|subnet| subnet.ip_range.is_some()) {
        return Ok(Reservation::default());
    }
    let _choice = engine.addresses.choice.lock().await;
    // Before the list: a container whose reservation ends in between is in the list.
    let mut used = lock(&engine.addresses.addresses).clone();
    let containers: Vec<Summary> = engine.json(request::list(&[])).await?;
    used.extend(containers.iter().flat_map(|container| addresses_of(container, network)));
    let chosen = subnets.iter().filter_map(|subnet| free(subnet, &used, name)).collect();
    let reservation = Reservation { fixed: Fixed(chosen), of: engine.addresses.addresses.clone() };
    lock(&reservation.of).extend(reservation.fixed.0.iter().copied());
    Ok(reservation)
}

/// The addresses that a container has, or will have when it runs again.
fn addresses_of(container: &Summary, network: &str) -> Vec<IpAddr> {
    let endpoint = container.network_settings.networks.get(network);
    let requested = endpoint.and_then(|endpoint| endpoint.requested.as_ref());
    let of_engine =
        endpoint.map(|endpoint| [&endpoint.ip_address, &endpoint.global_ipv6_address]).into_iter().flatten();
    let of_request = requested.map(|requested| [&requested.ipv4, &requested.ipv6]).into_iter().flatten();
    let label = label::get(&container.labels, label::ADDRESSES).unwrap_or_default();
    let texts = of_engine.chain(of_request).map(String::as_str).chain(label.split(' '));
    texts.filter_map(|text| text.parse().ok()).collect()
}

/// A free address of a subnet, outside of the range that the engine deals out. The same name begins
/// the search at the same place, so calls of several processes rarely choose the same address.
fn free(subnet: &Subnet, used: &BTreeSet<IpAddr>, name: &str) -> Option<IpAddr> {
    let range = subnet.ip_range.as_ref()?;
    let whole = &subnet.subnet;
    if whole.start.is_ipv4() != range.start.is_ipv4() || whole.bits >= range.bits {
        return None;
    }
    let skipped = if range.start == whole.start { range.size() } else { 1 };
    // The last address of an IPv4 subnet is for broadcasts.
    let count = (whole.size() - 1).saturating_sub(skipped).min(MAX_TRIED);
    let first = u128::from(hash(name)).checked_rem(count)?;
    let offsets = (0..count).map(|step| skipped + (first + step) % count);
    let mut candidates = offsets.filter_map(|offset| whole.at(offset));
    candidates
        .find(|address| !range.has(*address) && !used.contains(address) && subnet.gateway != Some(*address))
}

/// FNV-1a: the same number in every process and release.
pub(crate) fn hash(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// A range of addresses: `172.18.0.0/16`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) start: IpAddr,
    /// Number of bits that all addresses have in common.
    pub(crate) bits: u32,
}

impl Range {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (start, bits) = text.split_once('/')?;
        let range = Self { start: start.parse().ok()?, bits: bits.parse().ok()? };
        (range.bits <= range.width()).then_some(range)
    }

    fn width(self) -> u32 {
        if self.start.is_ipv4() { 32 } else { 128 }
    }

    /// Number of addresses. The number of all IPv6 addresses is one too low.
    fn size(self) -> u128 {
        1_u128.checked_shl(self.width() - self.bits).unwrap_or(u128::MAX)
    }

    pub(crate) fn has(self, address: IpAddr) -> bool {
        let host = self.width() - self.bits;
        let same = |a: u128, b: u128| host == 128 || (a ^ b) >> host == 0;
        match (self.start, address) {
            (IpAddr::V4(a), IpAddr::V4(b)) => same(u32::from(a).into(), u32::from(b).into()),
            (IpAddr::V6(a), IpAddr::V6(b)) => same(a.into(), b.into()),
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }

    /// The address with that number in the range.
    fn at(self, offset: u128) -> Option<IpAddr> {
        if self.size() <= offset {
            return None;
        }
        Some(match self.start {
            IpAddr::V4(start) => Ipv4Addr::from(u32::from(start) + u32::try_from(offset).ok()?).into(),
            IpAddr::V6(start) => Ipv6Addr::from(u128::from(start) + offset).into(),
        })
    }

    /// The part of a subnet that the engine deals out: the first half of an IPv4 subnet, and the
    /// first 65,536 addresses of an IPv6 subnet. The rest is for fixed addresses. Absent if the
    /// subnet is too small.
    pub(crate) fn dealt_out(self) -> Option<Self> {
        let bits = match self.start {
            IpAddr::V4(_) => self.bits + 1,
            IpAddr::V6(_) => self.bits.max(111) + 1,
        };
        (bits + 2 <= self.width()).then_some(Self { bits, ..self })
    }
}

impl std::fmt::Display for Range {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.start, self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> Range {
        Range::parse(text).expect("a range")
    }

    fn subnet(whole: &str) -> Subnet {
        let whole = range(whole);
        Subnet { subnet: whole, ip_range: whole.dealt_out(), gateway: whole.at(1) }
    }

    #[test]
    fn a_range_has_its_addresses() {
        for (range, address, expected) in [
            ("172.18.0.0/16", "172.18.9.9", true),
            ("172.18.0.0/16", "172.19.0.1", false),
            ("172.18.0.0/16", "fd00::1", false),
            ("0.0.0.0/0", "1.2.3.4", true),
            ("10.0.0.4/32", "10.0.0.5", false),
            ("fd00::/64", "fd00::2", true),
            ("::/0", "fd00::2", true),
        ] {
            let found = Range::parse(range).expect("a range").has(address.parse().expect("an address"));
            assert_eq!(found, expected, "{range} {address}");
        }
        assert_eq!((Range::parse("10.0.0.0/99"), Range::parse("")), (None, None));
    }

    #[test]
    fn the_engine_deals_out_a_part_of_the_subnet() {
        let part = |whole: &str| range(whole).dealt_out().map(|part| part.to_string());
        assert_eq!(part("172.18.0.0/16").as_deref(), Some("172.18.0.0/17"));
        assert_eq!(part("10.0.0.0/29").as_deref(), Some("10.0.0.0/30"));
        assert_eq!(part("10.0.0.0/30"), None, "too small");
        assert_eq!(part("fd00::/64").as_deref(), Some("fd00::/112"));
    }

    #[test]
    fn a_fixed_address_is_free_and_never_dealt_out() {
        for whole in ["172.18.0.0/16", "172.18.0.0/24", "10.0.0.0/28", "fd00:1::/64"] {
            let subnet = subnet(whole);
            let mut used = BTreeSet::new();
            for number in 0..7 {
                let name = format!("c-w-{number}");
                let address = free(&subnet, &used, &name).expect("a free address");
                assert!(subnet.subnet.has(address), "{whole}: {address}");
                assert!(!subnet.ip_range.expect("a range").has(address), "{whole}: {address}");
                assert!(used.insert(address), "{whole}: {address} is taken");
            }
        }
        let small = subnet("10.0.0.0/29");
        let all: BTreeSet<IpAddr> = (4..8).filter_map(|offset| small.subnet.at(offset)).collect();
        assert_eq!(free(&small, &all, "a"), None, "no address is left");
        let last = small.subnet.at(7).expect("an address");
        let others: BTreeSet<IpAddr> = all.into_iter().filter(|address| *address != last).collect();
        assert_eq!(free(&small, &others, "a"), None, "the last one is the broadcast address");
        assert_eq!(free(&Subnet { ip_range: None, ..small }, &BTreeSet::new(), "a"), None);
    }

    #[test]
    fn addresses_are_written_into_the_request() {
        let fixed = Fixed(vec!["172.18.128.7".parse().expect("v4"), "fd00::1:7".parse().expect("v6")]);
        let mut body = json!({"Labels": {"a": "b"}, "NetworkingConfig": {"EndpointsConfig": {"kind": {}}}});
        let before = body.clone();
        Fixed::default().write(&mut body, "kind");
        assert_eq!(body, before);
        fixed.write(&mut body, "kind");
        let endpoint = &body["NetworkingConfig"]["EndpointsConfig"]["kind"];
        let expected = json!({"IPAMConfig": {"IPv4Address": "172.18.128.7", "IPv6Address": "fd00::1:7"}});
        assert_eq!(*endpoint, expected);
        assert_eq!(body["Labels"]["machinist.dev/addresses"], "172.18.128.7 fd00::1:7");
    }
}
