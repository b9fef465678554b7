//! The stand-in over HTTP.
//!
//! `/v1` is the API, and `/_control` has the operator's functions (see [`control`]). The server
//! binds to loopback only: user data holds bootstrap tokens, and there is no TLS. `/_control` needs
//! no token.

pub mod control;
mod request;
mod response;

use std::io;
use std::net::SocketAddr;

use http::{Request, Response};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use machinist_serve::{UNLIMITED, accept};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

use crate::Standin;
pub use response::{Body, Broken};

/// A bound listener in front of a stand-in.
#[derive(Debug)]
pub struct HttpServer {
    standin: Standin,
    listener: TcpListener,
    address: SocketAddr,
}

/// Why the stand-in cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address is reachable from other hosts.
    #[error(
        "listen address {0}: expected a loopback address such as 127.0.0.1:7080, because the stand-in has no TLS"
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

impl HttpServer {
    /// Binds to an address. Port 0 takes any free port.
    ///
    /// # Errors
    /// When the address is not loopback or is in use.
    pub async fn bind(standin: Standin, address: SocketAddr) -> Result<Self, ListenError> {
        if !address.ip().is_loopback() {
            return Err(ListenError::NotLoopback(address));
        }
        let bind = |source| ListenError::Bind { address, source };
        let listener = TcpListener::bind(address).await.map_err(bind)?;
        let address = listener.local_addr().map_err(bind)?;
        Ok(Self { standin, listener, address })
    }

    /// The address of the listener.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The value of `HCLOUD_ENDPOINT` for clients.
    pub fn endpoint(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Serves until `stop` ends, then drops all connections. Dropping the future does the same.
    pub async fn serve(self, stop: impl Future<Output = ()>) {
        let serve = |stream: TcpStream| {
            // Send small answers at once. If this fails, answers are only slower.
            let _ = stream.set_nodelay(true);
            serve_connection(self.standin.clone(), stream)
        };
        tokio::select! {
            biased;
            () = stop => {}
            never = accept(&self.listener, UNLIMITED, serve) => match never {},
        }
    }
}

/// Serves one connection until it ends, for callers with their own connection, such as a pipe under
/// paused time.
pub async fn serve_connection<Io>(standin: Standin, connection: Io)
where
    Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request| {
        let standin = standin.clone();
        async move { answer(&standin, request).await }
    });
    let server = auto::Builder::new(TokioExecutor::new());
    // The caller sees a broken connection itself; the server has nothing to do.
    let _ = server.serve_connection(TokioIo::new(connection), service).await;
}

/// Answers one request without a connection, for clients in the same process.
///
/// # Errors
/// [`Broken`] when a fault breaks the connection instead of an answer.
pub async fn answer<B>(standin: &Standin, request: Request<B>) -> Result<Response<Body>, Broken>
where
    B: http_body::Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    request::answer(standin, request).await
}
