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
}
