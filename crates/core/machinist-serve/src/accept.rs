//! The accept loop: connections up to a limit, each served by its own task.
//!
//! The controllers and the simulated clouds share this loop. The embedded API server has its own:
//! it depends on no other crate of the workspace, and a stop waits until its connections have
//! ended.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// No limit of concurrent connections, for a server whose clients all belong to the same user.
pub const UNLIMITED: usize = usize::MAX;
/// The pause after a failed accept, for example without free file descriptors. Meanwhile, other
/// connections can end.
const PAUSE_AFTER_FAILED_ACCEPT: Duration = Duration::from_millis(100);

/// A source of connections. Tests replace the TCP listener.
pub(crate) trait Source {
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    fn next(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

impl Source for TcpListener {
    type Stream = TcpStream;

    async fn next(&self) -> io::Result<TcpStream> {
        Ok(self.accept().await?.0)
    }
}

/// Serves each connection with a task, at most `limit` at a time. If the future is dropped, all
/// connections end. A failed accept is retried.
pub async fn accept<F>(
    listener: &TcpListener,
    limit: usize,
    connection: impl Fn(TcpStream) -> F,
) -> Infallible
where
    F: Future<Output = ()> + Send + 'static,
{
    accept_from(listener, limit, connection).await
}

pub(crate) async fn accept_from<S: Source, F>(
    source: &S,
    limit: usize,
    connection: impl Fn(S::Stream) -> F,
) -> Infallible
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            Some(_ended) = connections.join_next() => {}
            accepted = source.next(), if connections.len() < limit => match accepted {
                Ok(stream) => {
                    connections.spawn(connection(stream));
                }
                Err(error) => {
                    tracing::warn!(%error, "Cannot accept a connection");
                    tokio::time::sleep(PAUSE_AFTER_FAILED_ACCEPT).await;
                }
            },
        }
    }
}
