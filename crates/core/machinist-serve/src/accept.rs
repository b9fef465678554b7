//! The accept loop: connections up to a limit, each served by its own task.
//!
//! Every server of the workspace uses this loop: the controllers, the embedded API server, the
//! simulated cloud and the stand-ins.

use std::io;
use std::pin::pin;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// No limit of concurrent connections, for a server whose clients all belong to the same user.
pub(crate) const UNLIMITED: usize = usize::MAX;
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
        let (stream, _peer) = self.accept().await?;
        // Small answers must not wait for more data. If this fails, answers are only slower.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "Cannot set TCP_NODELAY");
        }
        Ok(stream)
    }
}

/// Serves each connection with a task, at most `limit` at a time, until `stop` ends. Then it stops
/// all connections and waits until they have ended. If the future is dropped, all connections end.
/// A failed accept is retried.
pub async fn accept<F, T>(
    listener: &TcpListener,
    limit: usize,
    stop: impl Future<Output = T>,
    connection: impl Fn(TcpStream) -> F,
) -> T
where
    F: Future<Output = ()> + Send + 'static,
{
    accept_from(listener, limit, stop, connection).await
}

pub(crate) async fn accept_from<S: Source, F, T>(
    source: &S,
    limit: usize,
    stop: impl Future<Output = T>,
    connection: impl Fn(S::Stream) -> F,
) -> T
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut stop = pin!(stop);
    let mut connections = JoinSet::new();
    let stopped = loop {
        tokio::select! {
            biased;
            stopped = &mut stop => break stopped,
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
    };
    connections.shutdown().await;
    stopped
}
