//! The base URL of an API.

use std::fmt;

use http::Uri;

/// The base URL of an API: scheme, host and path, for example `http://127.0.0.1:5000`.
///
/// ```
/// use machinist_driver_aws::Endpoint;
///
/// let endpoint = Endpoint::parse("http://127.0.0.1:5000/")?;
/// assert_eq!(endpoint.to_string(), "http://127.0.0.1:5000");
/// assert!(Endpoint::parse("ec2.eu-west-1.amazonaws.com").is_err());
/// # Ok::<(), machinist_driver_aws::EndpointError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    base: String,
    is_https: bool,
}

/// The text is not the base URL of an API.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected http://HOST/PATH or https://HOST/PATH")]
pub struct EndpointError;

impl Endpoint {
    /// Parses a URL. Nothing is sent.
    ///
    /// # Errors
    /// If the URL is not HTTP or HTTPS, has no host, or has user information or a query.
    pub fn parse(url: &str) -> Result<Self, EndpointError> {
        let uri: Uri = url.parse().map_err(|_| EndpointError)?;
        let is_https = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(EndpointError),
        };
        let has_user = uri.authority().is_none_or(|authority| authority.as_str().contains('@'));
        if has_user || uri.query().is_some() {
            return Err(EndpointError);
        }
        Ok(Self { base: url.trim_end_matches('/').to_owned(), is_https })
    }

    pub(crate) fn is_https(&self) -> bool {
        self.is_https
    }

    /// The URL to which requests are sent.
    pub(crate) fn url(&self) -> String {
        format!("{}/", self.base)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.base)
    }
}

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
pub(crate) fn of_region(service: &str, region: &str) -> String {
    let of_partition = DOMAINS.iter().find(|(beginning, _)| region.starts_with(beginning));
    let domain = of_partition.map_or("amazonaws.com", |(_, domain)| domain);
    format!("https://{service}.{region}.{domain}/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_has_a_scheme_and_a_host() {
        for url in ["https://ec2.eu-west-1.amazonaws.com", "http://127.0.0.1:5000/", "http://[::1]:80/a"] {
            let endpoint = Endpoint::parse(url).expect(url);
            assert_eq!(endpoint.url(), format!("{}/", url.trim_end_matches('/')));
        }
        for url in ["", "ec2.amazonaws.com", "ftp://a/v1", "http://user:secret@host", "http://host?a=b"] {
            assert_eq!(Endpoint::parse(url), Err(EndpointError), "{url}");
        }
    }

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
            assert_eq!(of_region("ec2", region), url);
        }
    }
}
