//! Ranges of IP addresses in CIDR notation. Pure functions.

use std::net::IpAddr;

pub(crate) const EXPECTED: &str = "a range in CIDR notation, for example 10.0.1.0/24";

/// Parses a range into its address and the length of its prefix. The bits after the prefix may be
/// set, as in `10.0.1.5/24`.
pub(crate) fn parse(text: &str) -> Option<(IpAddr, u8)> {
    let (address, bits) = text.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let longest = if address.is_ipv4() { 32 } else { 128 };
    let is_plain = bits.bytes().all(|byte| byte.is_ascii_digit());
    let bits: u8 = bits.parse().ok().filter(|bits| is_plain && *bits <= longest)?;
    Some((address, bits))
}

/// Whether a range contains an address. A malformed range contains none.
pub(crate) fn contains(range: &str, address: IpAddr) -> bool {
    let shifted = |address: IpAddr, bits: u8| match address {
        IpAddr::V4(address) => u128::from(address.to_bits().checked_shr(32 - u32::from(bits)).unwrap_or(0)),
        IpAddr::V6(address) => address.to_bits().checked_shr(128 - u32::from(bits)).unwrap_or(0),
    };
    parse(range).is_some_and(|(start, bits)| {
        start.is_ipv4() == address.is_ipv4() && shifted(start, bits) == shifted(address, bits)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_an_address_and_a_length() {
        assert_eq!(parse("10.0.1.0/24"), Some((IpAddr::from([10, 0, 1, 0]), 24)));
        assert!(parse("2001:db8::/64").is_some_and(|(address, bits)| address.is_ipv6() && bits == 64));
        for text in ["", "10.0.1.0", "10.0.1.0/33", "10.0.1.0/+8", "10.0.1/24", "::/129", "10.0.1.0/"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_range_contains_the_addresses_of_its_prefix() {
        let is_in = |range: &str, address: &str| contains(range, address.parse().expect("an address"));
        assert!(is_in("10.0.1.0/24", "10.0.1.255") && is_in("10.0.1.7/24", "10.0.1.0"));
        assert!(is_in("0.0.0.0/0", "10.0.1.5") && is_in("10.0.1.5/32", "10.0.1.5"));
        assert!(is_in("2001:db8::/64", "2001:db8::7") && is_in("::/0", "2001:db8::7"));
        let cases =
            [("10.0.1.0/24", "10.0.2.0"), ("10.0.1.0/33", "10.0.1.1"), ("0.0.0.0/0", "::1"), ("", "::1")];
        for (range, address) in cases {
            assert!(!is_in(range, address), "{range} {address}");
        }
    }
}
