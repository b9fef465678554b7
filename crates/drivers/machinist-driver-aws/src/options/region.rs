//! The public endpoints of AWS.

/// The beginnings of regions outside the largest partition of AWS, and the domains of their APIs.
const DOMAINS: [(&str, &str); 6] = [
    ("cn-", "amazonaws.com.cn"),
    ("us-isob-", "sc2s.sgov.gov"),
    ("us-isof-", "csp.hci.ic.gov"),
    ("us-iso-", "c2s.ic.gov"),
    ("eu-isoe-", "cloud.adc-e.uk"),
    ("eusc-", "amazonaws.eu"),
];

/// The public endpoint of a service in a region.
pub(crate) fn endpoint_of(service: &str, region: &str) -> String {
    let of_partition = DOMAINS.iter().find(|(beginning, _)| region.starts_with(beginning));
    let domain = of_partition.map_or("amazonaws.com", |(_, domain)| domain);
    format!("https://{service}.{region}.{domain}/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_region_names_the_domain() {
        let cases = [
            ("eu-west-1", "https://ec2.eu-west-1.amazonaws.com/"),
            ("us-gov-west-1", "https://ec2.us-gov-west-1.amazonaws.com/"),
            ("cn-north-1", "https://ec2.cn-north-1.amazonaws.com.cn/"),
            ("us-isob-east-1", "https://ec2.us-isob-east-1.sc2s.sgov.gov/"),
            ("eusc-de-east-1", "https://ec2.eusc-de-east-1.amazonaws.eu/"),
        ];
        for (region, url) in cases {
            assert_eq!(endpoint_of("ec2", region), url);
        }
    }
}
