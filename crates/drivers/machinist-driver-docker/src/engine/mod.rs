//! A thin client of the Engine API: one attempt per call, no retries.
//!
//! Each call opens a connection of its own. Sockets are local, so this costs little, and a broken
//! connection always belongs to the present request: the client knows whether the request was sent.
//! `address`, `call`, `failure` and `frames` are pure; only this file and `exec` await.
//!
//! The API version is negotiated: the newest that both sides know, but at least 1.41 (Engine
//! 20.10).

pub(crate) mod address;
pub(crate) mod call;
mod creations;
mod exec;
pub(crate) mod failure;
mod frames;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{fmt, io};

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, HOST, UPGRADE, USER_AGENT};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use machinist_instance::ErrorKind;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

pub use address::{EngineAddress, EngineAddressError};
use call::{Body, Call, Nature};
use creations::Creations;
pub(crate) use exec::{Command, Output, Stdin};
use failure::{Failure, NoAnswer, no_answer, refused, unreadable};

use crate::addresses::Reserved;
use crate::model::Info;

/// Time limit of one attempt. The engine creates and starts a container within seconds.
pub(crate) const ATTEMPT_WITHIN: Duration = Duration::from_secs(20);

/// Timeout for a connection attempt.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// A list of thousands of containers fits, and a broken engine cannot fill the memory.
const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;

/// The oldest API version that has everything this driver uses.
const OLDEST: ApiVersion = ApiVersion(1, 41);
/// The newest API version with which this driver was tested or read.
const NEWEST: ApiVersion = ApiVersion(1, 47);

const AGENT: &str = concat!("machinist/", env!("CARGO_PKG_VERSION"));

/// A connection of any kind.
pub trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

/// Opens the connections to an engine: an [`EngineAddress`], or an engine in memory.
#[async_trait]
pub trait Connector: fmt::Debug + Send + Sync {
    /// Opens one connection, without a time limit.
    ///
    /// # Errors
    /// Only when nothing was sent.
    async fn connect(&self) -> io::Result<Box<dyn Wire>>;
}

/// One engine.
#[derive(Debug)]
pub(crate) struct Engine {
    address: EngineAddress,
    connector: Arc<dyn Connector>,
    /// The negotiated version; absent before the first call, and after the engine was replaced.
    version: Mutex<Option<ApiVersion>>,
    /// The id of the engine; absent until it is first read.
    id: Mutex<Option<String>>,
    /// The creations that the engine has not answered.
    pub(crate) creations: Creations,
    /// Engines before 25 may create two networks of one name, and then refuse the name as
    /// ambiguous. So the calls of a provider wait for each other.
    pub(crate) network_creation: tokio::sync::Mutex<()>,
    /// The addresses that calls of this process have chosen.
    pub(crate) addresses: Reserved,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ApiVersion(u32, u32);

impl ApiVersion {
    fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.split_once('.')?;
        Some(Self(major.parse().ok()?, minor.parse().ok()?))
    }
}

impl Engine {
    pub(crate) fn new(address: EngineAddress, id: Option<String>) -> Self {
        let connector = Arc::new(address.clone());
        Self::over(connector, address, id)
    }

    /// Uses other connections than those to the address. Errors name the address.
    pub(crate) fn over(connector: Arc<dyn Connector>, address: EngineAddress, id: Option<String>) -> Self {
        Self {
            address,
            connector,
            version: Mutex::default(),
            id: Mutex::new(id),
            creations: Creations::default(),
            network_creation: tokio::sync::Mutex::default(),
            addresses: Reserved::default(),
        }
    }

    pub(crate) fn address(&self) -> &EngineAddress {
        &self.address
    }

    /// Reads the id of the engine.
    pub(crate) async fn id(&self) -> Result<String, Failure> {
        let Info { id, .. } = self.json(Call::list("/info")).await?;
        if id.is_empty() {
            let text = format!("the engine at {} has no id: expected Docker Engine", self.address);
            return Err(Failure::new(ErrorKind::Unsupported, text));
        }
        Ok(id)
    }

    /// Checks that this is still the same engine. Another engine can have the same address, and
    /// shows none of the containers. So the driver checks this after each absence, and before it
    /// creates something.
    pub(crate) async fn confirm(&self) -> Result<(), Failure> {
        let id = self.id().await?;
        let known =
            self.id.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| id.clone()).clone();
        if id == known {
            return Ok(());
        }
        let text = format!(
            "another engine answers at {}: expected the engine with id {known}, got {id}. Start the engine \
             that has the containers",
            self.address
        );
        Err(Failure::new(ErrorKind::Unavailable, text))
    }

    /// Makes one attempt and parses the JSON answer.
    pub(crate) async fn json<T: DeserializeOwned>(&self, call: Call) -> Result<T, Failure> {
        let (nature, label) = (call.nature, call.label());
        let answer = self.call(call).await?;
        serde_json::from_slice(answer.body())
            .map_err(|error| unreadable(nature, &label, &format!("a JSON document ({error})")))
    }

    /// Reads the object with a name. `None` if the engine says that it does not exist.
    pub(crate) async fn find<T: DeserializeOwned>(&self, call: Call) -> Result<Option<T>, Failure> {
        match self.json(call).await {
            Ok(found) => Ok(Some(found)),
            Err(failure) if failure.proves_absence() => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Makes one attempt. The answer has a success status.
    pub(crate) async fn call(&self, call: Call) -> Result<Response<Bytes>, Failure> {
        let (nature, label, creates) = (call.nature, call.label(), call.creates);
        let attempt = async {
            let (parts, body) = self.open(call).await?.into_parts();
            let body = whole(body).await.map_err(|lost| no_answer(nature, &label, lost))?;
            Ok(Response::from_parts(parts, body))
        };
        let attempt = within(nature, &label, attempt);
        if creates { self.creations.follow(attempt).await } else { attempt.await }
    }

    /// Sends a request and returns the answer while its body still arrives, without a time limit.
    pub(crate) async fn open(&self, call: Call) -> Result<Response<Incoming>, Failure> {
        let version = self.negotiated().await?;
        let (nature, label) = (call.nature, call.label());
        if nature == Nature::Changes {
            machinist_driver::may_change()
                .map_err(|error| Failure::new(error.kind, format!("{label}: {}", error.message)))?;
        }
        let path = format!("/v{}.{}{}", version.0, version.1, call.path);
        let request = request(&call, &path)?;
        let answer = self.send(request).await.map_err(|lost| no_answer(nature, &label, lost))?;
        let status = answer.status();
        if status.is_success()
            || status == StatusCode::NOT_MODIFIED
            || status == StatusCode::SWITCHING_PROTOCOLS
        {
            return Ok(answer);
        }
        if status == StatusCode::BAD_REQUEST {
            *self.version.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
        let body = whole(answer.into_body()).await.unwrap_or_default();
        Err(refused(nature, &label, status, &body))
    }

    /// The API version for the calls.
    async fn negotiated(&self) -> Result<ApiVersion, Failure> {
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Version {
            api_version: String,
        }
        let known = *self.version.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(version) = known {
            return Ok(version);
        }
        let call = Call::list("/version");
        let label = call.label();
        let lost = |lost| no_answer(Nature::Reads, &label, lost);
        let answer = self.send(request(&call, &call.path)?).await.map_err(lost)?;
        let status = answer.status();
        let body = whole(answer.into_body()).await.map_err(lost)?;
        if !status.is_success() {
            return Err(refused(Nature::Reads, &label, status, &body));
        }
        let expected = || unreadable(Nature::Reads, &label, "an API version, for example 1.41");
        let newest = serde_json::from_slice::<Version>(&body).map_err(|_| expected())?;
        let newest = ApiVersion::parse(&newest.api_version).ok_or_else(expected)?;
        if newest < OLDEST {
            let text = format!(
                "the engine at {} has API version {}.{}: expected at least {}.{} (Engine 20.10)",
                self.address, newest.0, newest.1, OLDEST.0, OLDEST.1
            );
            return Err(Failure::new(ErrorKind::Unsupported, text));
        }
        let version = newest.min(NEWEST);
        *self.version.lock().unwrap_or_else(PoisonError::into_inner) = Some(version);
        Ok(version)
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, NoAnswer> {
        let connecting = tokio::time::timeout(CONNECT_WITHIN, self.connector.connect());
        let wire = match connecting.await {
            Ok(Ok(wire)) => wire,
            Ok(Err(error)) if error.kind() == io::ErrorKind::PermissionDenied => {
                let text = format!("no permission to use {}: {error}", self.address);
                return Err(NoAnswer::NotPermitted(text));
            }
            Ok(Err(error)) => {
                let text = format!(
                    "no engine runs at {}: {error}. Start Docker, or correct DOCKER_HOST",
                    self.address
                );
                return Err(NoAnswer::NoEngine(text));
            }
            Err(_) => {
                let text = format!(
                    "the engine at {} accepts no connection within {} s; it may be overloaded",
                    self.address,
                    CONNECT_WITHIN.as_secs()
                );
                return Err(NoAnswer::Busy(text));
            }
        };
        let broke =
            |error: hyper::Error| NoAnswer::Lost(format!("the connection to the engine broke: {error}"));
        let (mut sender, connection) = http1::handshake(TokioIo::new(wire)).await.map_err(broke)?;
        tokio::spawn(connection.with_upgrades());
        sender.send_request(request).await.map_err(broke)
    }
}

#[async_trait]
impl Connector for EngineAddress {
    async fn connect(&self) -> io::Result<Box<dyn Wire>> {
        Ok(match self {
            EngineAddress::Unix(path) => Box::new(UnixStream::connect(path).await?),
            EngineAddress::Tcp(host, port) => {
                let host = host.trim_start_matches('[').trim_end_matches(']');
                let stream = TcpStream::connect((host, *port)).await?;
                stream.set_nodelay(true)?;
                Box::new(stream)
            }
        })
    }
}

/// Limits an attempt to [`ATTEMPT_WITHIN`].
pub(crate) async fn within<T>(
    nature: Nature,
    label: &str,
    attempt: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    tokio::time::timeout(ATTEMPT_WITHIN, attempt).await.unwrap_or_else(|_| {
        let text = format!(
            "the engine runs, but did not answer within {} s; it may be overloaded",
            ATTEMPT_WITHIN.as_secs()
        );
        Err(no_answer(nature, label, NoAnswer::Slow(text)))
    })
}

async fn whole(body: Incoming) -> Result<Bytes, NoAnswer> {
    let body = Limited::new(body, MAX_ANSWER_BYTES).collect().await;
    let body = body.map_err(|_| NoAnswer::Lost("the connection broke during the answer".to_owned()))?;
    Ok(body.to_bytes())
}

fn request(call: &Call, path: &str) -> Result<Request<Full<Bytes>>, Failure> {
    let (kind, body) = match &call.body {
        Body::None => (None, Bytes::new()),
        Body::Json(body) => (Some("application/json"), Bytes::from(body.to_string())),
        Body::Tar(tar) => (Some("application/x-tar"), Bytes::from(tar.clone())),
    };
    let mut builder = Request::builder()
        .method(call.method.clone())
        .uri(path)
        .header(HOST, "docker")
        .header(USER_AGENT, AGENT);
    if let Some(kind) = kind {
        builder = builder.header(CONTENT_TYPE, kind);
    }
    if call.is_upgraded {
        builder = builder.header(CONNECTION, "Upgrade").header(UPGRADE, "tcp");
    }
    builder.body(Full::new(body)).map_err(|error| {
        Failure::new(ErrorKind::InvalidSpec, format!("{}: cannot build the request: {error}", call.label()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn failure_at(address: &str) -> Failure {
        let address = address.parse().expect("an address");
        Engine::new(address, None).call(Call::list("/containers/json")).await.expect_err("no engine")
    }

    #[tokio::test]
    async fn a_missing_socket_is_unavailable_and_nothing_was_sent() {
        let failure = failure_at("unix:///nonexistent/docker.sock").await;
        assert_eq!(failure.error.kind, ErrorKind::Unavailable);
        let expected = "no engine runs at unix:///nonexistent/docker.sock: ";
        assert!(failure.error.message.contains(expected), "{}", failure.error.message);
        assert!(failure.error.message.ends_with("Start Docker, or correct DOCKER_HOST"));
        assert!(failure.error.is_closed());
    }

    #[tokio::test]
    async fn a_refused_socket_and_a_slow_engine_differ() {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("docker.sock");
        let listener = tokio::net::UnixListener::bind(&socket).expect("a socket");
        let address = format!("unix://{}", socket.display());
        tokio::time::pause();
        // The kernel accepts the connection for the process that never answers.
        let slow = failure_at(&address).await.error;
        assert!(slow.message.contains("runs, but did not answer within 20 s"), "{slow}");
        assert!(!slow.is_closed());
        drop(listener);
        let refused = failure_at(&address).await.error;
        assert!(refused.message.contains("no engine runs at unix://"), "{refused}");
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        let version = |text| ApiVersion::parse(text).expect(text);
        assert!(version("1.9") < version("1.41") && version("1.41") < version("2.0"));
        assert_eq!(ApiVersion::parse("latest"), None);
    }
}
