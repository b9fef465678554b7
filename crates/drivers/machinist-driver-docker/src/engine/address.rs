//! The address of an engine: `DOCKER_HOST`. Pure.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The socket that Docker Engine uses without configuration.
const DEFAULT_SOCKET: &str = "/var/run/docker.sock";
const DEFAULT_PORT: u16 = 2375;

/// The socket of an engine.
///
/// ```
/// use machinist_driver_docker::EngineAddress;
///
/// let local: EngineAddress = "unix:///run/docker.sock".parse()?;
/// assert_eq!(local.to_string(), "unix:///run/docker.sock");
/// let remote: EngineAddress = "tcp://10.0.0.7".parse()?;
/// assert_eq!(remote.to_string(), "tcp://10.0.0.7:2375");
/// assert!("https://10.0.0.7".parse::<EngineAddress>().is_err());
/// # Ok::<(), machinist_driver_docker::EngineAddressError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum EngineAddress {
    /// A socket in the file system.
    Unix(PathBuf),
    /// Plain HTTP over TCP: host and port.
    Tcp(String, u16),
}

impl Default for EngineAddress {
    fn default() -> Self {
        Self::Unix(PathBuf::from(DEFAULT_SOCKET))
    }
}

/// A text that is not the address of an engine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?}: expected unix:///PATH or tcp://HOST[:PORT]; TLS is not supported")]
pub struct EngineAddressError(String);

impl FromStr for EngineAddress {
    type Err = EngineAddressError;

    fn from_str(text: &str) -> Result<Self, EngineAddressError> {
        let wrong = || EngineAddressError(text.to_owned());
        match text.split_once("://").ok_or_else(wrong)? {
            ("unix", path) if path.starts_with('/') => Ok(Self::Unix(PathBuf::from(path))),
            ("tcp" | "http", rest) => {
                let rest = rest.trim_end_matches('/');
                let (host, port) = match rest.rsplit_once(':') {
                    Some((host, port)) if !port.ends_with(']') => (host, port.parse().map_err(|_| wrong())?),
                    _ => (rest, DEFAULT_PORT),
                };
                let is_host = !host.is_empty() && !host.contains('/');
                if is_host { Ok(Self::Tcp(host.to_owned(), port)) } else { Err(wrong()) }
            }
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for EngineAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Tcp(host, port) => write!(f, "tcp://{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sockets_and_plain_tcp_are_addresses() {
        let shown = |text: &str| text.parse::<EngineAddress>().map(|address| address.to_string());
        assert_eq!(shown("unix:///run/d.sock").as_deref(), Ok("unix:///run/d.sock"));
        assert_eq!(shown("tcp://h:1").as_deref(), Ok("tcp://h:1"));
        assert_eq!(shown("http://h/").as_deref(), Ok("tcp://h:2375"));
        assert_eq!(shown("tcp://[::1]:7").as_deref(), Ok("tcp://[::1]:7"));
        assert_eq!(shown("tcp://[::1]").as_deref(), Ok("tcp://[::1]:2375"));
        for text in ["", "/run/d.sock", "unix://d.sock", "tcp://", "tcp://h:port", "https://h", "ssh://h"] {
            assert!(shown(text).is_err(), "{text}");
        }
    }
}
