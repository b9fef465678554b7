//! The base URL of an API.

use std::fmt;

use http::Uri;

/// The base URL of an API: scheme, host and path, for example `https://api.hetzner.cloud/v1`.
///
/// ```
/// use machinist_driver_http::Endpoint;
///
/// let endpoint = Endpoint::parse("http://127.0.0.1:7070/v1/")?;
/// assert_eq!(endpoint.to_string(), "http://127.0.0.1:7070/v1");
/// assert!(Endpoint::parse("api.hetzner.cloud").is_err());
/// # Ok::<(), machinist_driver_http::EndpointError>(())
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

    /// Whether connections use TLS.
    pub fn is_https(&self) -> bool {
        self.is_https
    }

    /// The URL of one request: the base, followed by a path that begins with `/`.
    pub fn uri(&self, path_and_query: &str) -> String {
        format!("{}{path_and_query}", self.base)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_has_a_scheme_and_a_host() {
        for url in ["https://api.hetzner.cloud/v1", "http://127.0.0.1:7070/v1/", "http://[::1]:80"] {
            let endpoint = Endpoint::parse(url).expect(url);
            assert_eq!(endpoint.uri("/servers"), format!("{}/servers", url.trim_end_matches('/')));
        }
        let wrong =
            ["", "api.hetzner.cloud", "ftp://a/v1", "http://user:secret@host/v1", "http://host/v1?a=b"];
        for url in wrong {
            assert_eq!(Endpoint::parse(url), Err(EndpointError), "{url}");
        }
    }
}
