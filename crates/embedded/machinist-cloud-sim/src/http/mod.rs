//! The cloud as a separate process, over plain HTTP and JSON.
//!
//! | Route | |
//! |---|---|
//! | `POST /v1/OPERATION` | `ensure`, `find`, `list`, `delete`, `rekey`, `tag`, `start`, `stop`, `console`: the body is the params of a [`Request`](crate::Request). The answer is a [`Reply`](crate::Reply) or, with a status other than 200, a [`Refusal`](crate::Refusal) |
//! | `GET /admin/ledger` | every instance ever made |
//! | `GET /admin/commits` | every instance ever made as a commit, then every later commit as it happens, one per line |
//! | `GET /admin/calls` | counts by operation, and the remembered calls |
//! | `GET`, `PATCH /admin/settings` | the settings: projects, quota, stockouts, limit on calls, lag, times, revoked tokens |
//! | `GET`, `POST`, `DELETE /admin/faults`, `DELETE /admin/faults/ID` | the fault rules |
//! | `POST /admin/load` | add an instance that others made |
//! | `POST /admin/kill`, `/admin/power-off`, `/admin/power-on` | `{"id": "sim:///i-1"}` |
//! | `GET /healthz` | `ok` |
//!
//! The server binds to loopback only: user data holds bootstrap tokens, and there is no TLS. A lost
//! answer (a withheld answer, a reset) closes the connection, as a real network would.

mod routes;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use machinist_serve::{UNLIMITED, accept};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

use crate::Cloud;

pub(crate) type Body = BoxBody<Bytes, Infallible>;

/// A bound listener in front of a cloud.
#[derive(Debug)]
pub struct HttpServer {
    cloud: Cloud,
    listener: TcpListener,
    address: SocketAddr,
}

/// Why the cloud cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address is reachable from other hosts.
    #[error(
        "listen address {0}: expected a loopback address such as 127.0.0.1:7070, because the simulated cloud has no TLS"
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
    pub async fn bind(cloud: Cloud, address: SocketAddr) -> Result<Self, ListenError> {
        if !address.ip().is_loopback() {
            return Err(ListenError::NotLoopback(address));
        }
        let bind = |source| ListenError::Bind { address, source };
        let listener = TcpListener::bind(address).await.map_err(bind)?;
        let address = listener.local_addr().map_err(bind)?;
        Ok(Self { cloud, listener, address })
    }

    /// The address of the listener.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL that `--sim-endpoint` takes.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Serves until `stop` ends, then drops all connections. Dropping the future does the same.
    pub async fn serve(self, stop: impl Future<Output = ()>) {
        let serve = |stream: TcpStream| {
            // Send small answers at once. If this fails, answers are only slower.
            let _ = stream.set_nodelay(true);
            serve_connection(self.cloud.clone(), stream)
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
pub async fn serve_connection<Io>(cloud: Cloud, connection: Io)
where
    Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request| routes::answer(cloud.clone(), request));
    let server = auto::Builder::new(TokioExecutor::new());
    // The caller sees a broken connection itself; the server has nothing to do.
    let _ = server.serve_connection(TokioIo::new(connection), service).await;
}
