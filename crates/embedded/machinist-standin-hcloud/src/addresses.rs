//! Addresses and ranges: which are free, and which fit together.
//!
//! The lowest free address is taken, so the address of a deleted server is used again by the next
//! server. That happens in the real cloud, too.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::str::FromStr;

use crate::model::Network;
use crate::store::State;

/// A range of IPv4 addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    first: u32,
    prefix: u32,
}

impl Range {
    /// Parses `10.0.0.0/16`. Bits after the prefix must be zero.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = text.split_once('/')?;
        let (first, prefix) = (u32::from(Ipv4Addr::from_str(address).ok()?), prefix.parse().ok()?);
        let range = Self { first, prefix };
        (prefix <= 32 && first & !range.mask() == 0).then_some(range)
    }

    fn mask(self) -> u32 {
        u32::MAX.checked_shl(32 - self.prefix).unwrap_or(0)
    }

    fn last(self) -> u32 {
        self.first | !self.mask()
    }

    pub(crate) fn prefix(self) -> u32 {
        self.prefix
    }

    pub(crate) fn has(self, address: Ipv4Addr) -> bool {
        let address = u32::from(address);
        self.first <= address && address <= self.last()
    }

    pub(crate) fn contains(self, other: Self) -> bool {
        self.first <= other.first && other.last() <= self.last()
    }

    pub(crate) fn overlaps(self, other: Self) -> bool {
        self.first <= other.last() && other.first <= self.last()
    }

    /// Whether all addresses are private (RFC 1918).
    pub(crate) fn is_private(self) -> bool {
        ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"]
            .iter()
            .filter_map(|text| Self::parse(text))
            .any(|private| private.contains(self))
    }

    /// The router: the first address after the range's own.
    pub(crate) fn gateway(self) -> Ipv4Addr {
        Ipv4Addr::from(self.first.saturating_add(1))
    }

    /// The first part of that prefix length that overlaps no other range.
    pub(crate) fn free_part(self, prefix: u32, others: &[Self]) -> Option<String> {
        let prefix = prefix.max(self.prefix);
        let step = 1_u64 << (32 - prefix);
        (u64::from(self.first)..=u64::from(self.last()))
            .step_by(usize::try_from(step).ok()?)
            .filter_map(|first| u32::try_from(first).ok())
            .map(|first| Self { first, prefix })
            .find(|part| others.iter().all(|other| !other.overlaps(*part)))
            .map(|part| format!("{}/{prefix}", Ipv4Addr::from(part.first)))
    }
}

/// Public IPv4 addresses come from the range for benchmarks (RFC 2544): no real host has one.
const PUBLIC: Range = Range { first: 0xc612_0000, prefix: 15 };

/// The lowest public IPv4 address that no server and no load balancer has.
pub(crate) fn free_public_ipv4(state: &State) -> Option<String> {
    let servers =
        state.servers.values().filter(|server| server.is_alive()).filter_map(|server| server.ipv4.as_ref());
    let balancers = state.load_balancers.values().map(|balancer| &balancer.ipv4);
    let floating = state.floating_ips.values().map(|address| &address.ip);
    let used: BTreeSet<u32> = servers
        .chain(balancers)
        .map(|address| &address.ip)
        .chain(floating)
        .filter_map(|ip| ip.parse::<Ipv4Addr>().ok())
        .map(u32::from)
        .collect();
    lowest_free(PUBLIC.first + 1, PUBLIC.last() - 1, &used).map(|ip| ip.to_string())
}

/// The IPv6 network of a new object. Networks are not used again.
pub(crate) fn public_ipv6(id: i64) -> String {
    let low = id.to_be_bytes();
    format!(
        "2001:db8:{:x}:{:x}::/64",
        u16::from_be_bytes([low[4], low[5]]),
        u16::from_be_bytes([low[6], low[7]])
    )
}

/// Why an object cannot get an address in a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoAddress {
    /// The network has no subnet for servers in that network zone.
    NoSubnet,
    /// The wanted address, or every address, is used or outside of the subnets.
    NotAvailable,
}

/// A free address in a network: the wanted one, or the lowest in the subnets (or in one of them).
/// An address that a running action will give away is not free.
pub(crate) fn free_private(
    state: &State,
    network: &Network,
    network_zone: &str,
    wanted: Option<&str>,
    subnet: Option<&str>,
) -> Result<String, NoAddress> {
    let ranges: Vec<Range> = network
        .subnets
        .iter()
        .filter(|candidate| candidate.kind != "vswitch" && candidate.network_zone == network_zone)
        .filter(|candidate| subnet.is_none_or(|subnet| candidate.ip_range == subnet))
        .filter_map(|candidate| Range::parse(&candidate.ip_range))
        .collect();
    if ranges.is_empty() {
        return Err(NoAddress::NoSubnet);
    }
    let mut used = used_private(state, network.id);
    if let Some(range) = Range::parse(&network.ip_range) {
        used.insert(u32::from(range.gateway()));
    }
    if let Some(wanted) = wanted {
        let address = wanted.parse::<Ipv4Addr>().map_err(|_| NoAddress::NotAvailable)?;
        let is_free = ranges.iter().any(|range| range.has(address)) && !used.contains(&u32::from(address));
        return if is_free { Ok(address.to_string()) } else { Err(NoAddress::NotAvailable) };
    }
    ranges
        .iter()
        .find_map(|range| lowest_free(range.first + 2, range.last().saturating_sub(1), &used))
        .map(|ip| ip.to_string())
        .ok_or(NoAddress::NotAvailable)
}

/// Private addresses in use or reserved in a network.
fn used_private(state: &State, network: i64) -> BTreeSet<u32> {
    let servers =
        state.servers.values().filter(|server| server.is_alive()).flat_map(|server| &server.private_net);
    let servers = servers.filter(|net| net.network == network);
    let servers = servers.flat_map(|net| net.alias_ips.iter().chain([&net.ip]).map(String::as_str));
    let balancers = state.load_balancers.values().flat_map(|balancer| &balancer.private_net);
    let balancers = balancers.filter(|net| net.network == network).map(|net| net.ip.as_str());
    let reserved = state.actions.values().filter(|action| action.finished.is_none());
    let reserved = reserved.filter_map(|action| action.effect.reserves());
    let reserved = reserved.filter(|(of, _)| *of == network).map(|(_, ip)| ip);
    servers
        .chain(balancers)
        .chain(reserved)
        .filter_map(|ip| ip.parse::<Ipv4Addr>().ok())
        .map(u32::from)
        .collect()
}

fn lowest_free(first: u32, last: u32, used: &BTreeSet<u32>) -> Option<Ipv4Addr> {
    let mut candidate = first;
    for taken in used.range(first..=last.max(first)) {
        if candidate < *taken {
            break;
        }
        candidate = taken + 1;
    }
    (candidate <= last).then(|| Ipv4Addr::from(candidate))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> Range {
        Range::parse(text).expect("a range")
    }

    #[test]
    fn a_range_needs_zero_bits_after_its_prefix() {
        assert_eq!(Range::parse("10.0.0.1/16"), None);
        assert_eq!(Range::parse("10.0.0.0/33"), None);
        assert_eq!(Range::parse("10.0.0.0"), None);
        assert!(range("10.0.0.0/8").contains(range("10.244.3.0/24")));
        assert!(range("0.0.0.0/0").overlaps(range("10.0.0.0/8")));
        assert!(!range("10.0.0.0/24").overlaps(range("10.0.1.0/24")));
    }

    #[test]
    fn the_lowest_free_address_is_taken_again() {
        assert_eq!(lowest_free(5, 7, &BTreeSet::from([5, 7])), Some(Ipv4Addr::from(6)));
        assert_eq!(lowest_free(5, 7, &BTreeSet::from([5, 6, 7])), None);
        assert_eq!(lowest_free(5, 7, &BTreeSet::from([9])), Some(Ipv4Addr::from(5)));
    }

    #[test]
    fn a_free_part_skips_the_used_ranges() {
        let part = range("10.0.0.0/16").free_part(24, &[range("10.0.0.0/23")]);
        assert_eq!(part.as_deref(), Some("10.0.2.0/24"));
        assert_eq!(range("10.0.0.0/24").free_part(24, &[range("10.0.0.0/24")]), None);
    }
}
