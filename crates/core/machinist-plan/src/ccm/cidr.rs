//! IP addresses and networks in CIDR notation.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use ipnet::IpNet;

/// A network in CIDR notation. Host bits are dropped, so two texts of the same network are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cidr(IpNet);

/// A text that is not a network in CIDR notation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CidrError {
    given: String,
    expected: &'static str,
}

impl fmt::Display for CidrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: expected {}", self.given, self.expected)
    }
}

impl std::error::Error for CidrError {}

impl FromStr for Cidr {
    type Err = CidrError;

    /// # Errors
    /// If the text is not `ADDRESS/BITS`.
    fn from_str(text: &str) -> Result<Self, CidrError> {
        let expected = "a network such as 10.244.0.0/16 or fd00::/48";
        let error = |_| CidrError { given: text.to_owned(), expected };
        text.parse().map(|network: IpNet| Self(network.trunc())).map_err(error)
    }
}

impl Cidr {
    /// Whether the network contains an address. An address of the other family is outside.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address)
    }

    /// Whether the first or the last address of another network is inside this one.
    pub fn touches(&self, other: &Self) -> bool {
        self.contains(other.0.network()) || self.contains(other.0.broadcast())
    }

    /// Whether this is a network of IPv4 addresses.
    pub fn is_ipv4(&self) -> bool {
        matches!(self.0, IpNet::V4(_))
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Parses the flag `--cluster-cidr`: one network, or two of different families.
///
/// # Errors
/// If a part is not a network, or the combination is another one.
pub fn parse_cluster_cidrs(text: &str) -> Result<Vec<Cidr>, CidrError> {
    let all: Vec<Cidr> = text.split(',').map(|part| part.trim().parse()).collect::<Result<_, _>>()?;
    match all.as_slice() {
        [_] => Ok(all),
        [a, b] if a.is_ipv4() != b.is_ipv4() => Ok(all),
        _ => Err(CidrError {
            given: text.to_owned(),
            expected: "one network, or one IPv4 and one IPv6 network",
        }),
    }
}

/// Parses an IP address. Leading zeros in parts of an IPv4 address are tolerated, as Kubernetes
/// does in old objects.
pub fn parse_ip(text: &str) -> Option<IpAddr> {
    text.parse().ok().or_else(|| parse_ipv4_with_zeros(text).map(IpAddr::V4))
}

fn parse_ipv4_with_zeros(text: &str) -> Option<Ipv4Addr> {
    let mut bytes = [0; 4];
    let mut parts = text.split('.');
    for byte in &mut bytes {
        let part = parts.next()?;
        if part.is_empty() || part.len() > 4 || !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        *byte = part.parse().ok()?;
    }
    parts.next().is_none().then(|| Ipv4Addr::from(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cidr(text: &str) -> Cidr {
        text.parse().expect("a network")
    }

    #[test]
    fn a_network_touches_another_by_its_first_or_last_address() {
        for (cluster, route, expected) in [
            ("10.244.0.0/16", "10.244.0.0/24", true),
            ("10.244.0.0/16", "10.244.255.0/24", true),
            ("10.244.0.0/16", "10.224.0.0/24", false),
            ("10.244.0.0/16", "10.255.255.0/24", false),
            ("10.244.0.0/14", "10.247.255.0/24", true),
            ("10.244.0.0/14", "10.248.0.0/24", false),
            ("a00:100::/10", "a00:100::/24", true),
            ("a00:100::/10", "b00:100::/24", false),
            ("10.244.0.0/16", "a00:100::/24", false),
            ("0.0.0.0/0", "10.244.0.0/16", true),
            ("::/0", "a00:100::/24", true),
        ] {
            assert_eq!(cidr(cluster).touches(&cidr(route)), expected, "{route} in {cluster}");
        }
    }

    #[test]
    fn texts_of_the_same_network_are_equal() {
        assert_eq!(cidr("10.244.1.7/24"), cidr("10.244.1.0/24"));
        assert_eq!(cidr("FD00:0::1/64").to_string(), "fd00::/64");
        for wrong in ["10.0.0.0", "10.0.0.0/33", "10.0.0.0/+8", "10.0.0.0/", "x/8", "::/129", ""] {
            assert!(wrong.parse::<Cidr>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn cluster_networks_are_one_or_one_per_family() {
        assert!(parse_cluster_cidrs("10.244.0.0/16").is_ok());
        assert!(parse_cluster_cidrs("10.244.0.0/16,fd00::/48").is_ok());
        for wrong in ["", "10.244.0.0/16,10.245.0.0/16", "10.0.0.0/8,fd00::/48,fd01::/48", "10.0.0.0/8,x"] {
            assert!(parse_cluster_cidrs(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn leading_zeros_of_an_ipv4_address_are_tolerated() {
        assert_eq!(parse_ip("010.001.02.3"), parse_ip("10.1.2.3"));
        assert!(parse_ip("10.1.2.3").is_some());
        for wrong in ["10.1.2", "10.1.2.3.4", "10.1.2.256", " 10.1.2.3", "10.1.2.+3", "invalid-ip", ""] {
            assert_eq!(parse_ip(wrong), None, "{wrong:?}");
        }
    }
}
