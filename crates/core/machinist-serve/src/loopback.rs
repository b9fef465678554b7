//! HTTP for an API that only clients on the same host call: a simulated cloud, or a stand-in for a
//! service. The API has no TLS, and its requests contain credentials.

use std::error::Error;
use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;

use crate::accept::{UNLIMITED, accept};

/// An API that only clients on the same host call. Clones are the same API.
pub trait LoopbackApi: Clone + Send + Sync + 'static {
    /// The part of the URL after the address, which all clients need.
    const PATH: &'static str = "";

    /// Body of an answer.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static;
    /// Breaks the connection instead of an answer.
    type Broken: Into<Box<dyn Error + Send + Sync>>;

    /// Answers one request.
    ///
    /// # Errors
    /// If the connection breaks instead of an answer.
    fn respond(
        self,
        request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response<Self::Body>, Self::Broken>> + Send + 'static;
}

/// A bound listener in front of an API.
#[derive(Debug)]
pub struct LoopbackServer<A> {
    api: A,
    listener: TcpListener,
    address: SocketAddr,
}

/// Why an API cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address is reachable from other hosts.
    #[error(
        "listen address {0}: expected a loopback address such as 127.0.0.1:7070, because this server has no TLS"
    )]
    NotLoopback(SocketAddr),
    /// The operating system returned an error.
    #[error("cannot listen on {address}")]
    Bind {
        /// The address to listen on.
        address: SocketAddr,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
}

impl<A: LoopbackApi> LoopbackServer<A> {
    /// Binds to an address. Port 0 takes any free port.
    ///
    /// # Errors
    /// When the address is not loopback or is in use.
    pub async fn bind(api: A, address: SocketAddr) -> Result<Self, ListenError> {
        if !address.ip().is_loopback() {
            return Err(ListenError::NotLoopback(address));
        }
        let bind = |source| ListenError::Bind { address, source };
        let listener = TcpListener::bind(address).await.map_err(bind)?;
        let address = listener.local_addr().map_err(bind)?;
        Ok(Self { api, listener, address })
    }

    /// The address of the listener.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL for clients.
    pub fn url(&self) -> String {
        format!("http://{}{}", self.address, A::PATH)
    }

    /// Serves until `stop` ends, then ends all connections. Dropping the future does the same.
    pub async fn serve(self, stop: impl Future<Output = ()>) {
        let connection = |stream| serve_connection(self.api.clone(), stream);
        accept(&self.listener, UNLIMITED, stop, connection).await;
    }
}

/// Serves one connection until it ends, for callers with their own connection, such as a pipe under
/// paused time.
pub async fn serve_connection<A, Io>(api: A, connection: Io)
where
    A: LoopbackApi,
    Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request| api.clone().respond(request));
    let server = auto::Builder::new(TokioExecutor::new());
    // The caller sees a broken connection itself; the server has nothing to do.
    let _ = server.serve_connection(TokioIo::new(connection), service).await;
}
