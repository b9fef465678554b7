//! Accepts connections to the HTTP port of a process, up to a limit.
//!
//! Every client in the network can connect to the port. So no client may end or block the process:
//! a failed accept is retried, the number of connections is limited, and a connection without a
//! request is closed.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// The limit of concurrent connections. Probes and scrapers need few, and the process needs its
/// file descriptors for the API servers.
const MAX_CONNECTIONS: usize = 128;
/// The timeout for the head of each request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause after a failed accept, for example without free file descriptors. Meanwhile, other
/// connections can end.
const PAUSE_AFTER_FAILED_ACCEPT: Duration = Duration::from_millis(100);

/// Answers each request by its path, until the future is dropped.
pub async fn answer_all<A>(listener: &TcpListener, answer: A) -> Infallible
where
    A: Fn(&str) -> Response<Full<Bytes>> + Clone + Send + Sync + 'static,
{
    accept_from(listener, answer).await
}

/// A source of connections. Tests replace the TCP listener.
trait Source {
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    fn next(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

impl Source for TcpListener {
    type Stream = TcpStream;

    async fn next(&self) -> io::Result<TcpStream> {
        Ok(self.accept().await?.0)
    }
}

async fn accept_from<S: Source + Sync, A>(source: &S, answer: A) -> Infallible
where
    A: Fn(&str) -> Response<Full<Bytes>> + Clone + Send + Sync + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            Some(_ended) = connections.join_next() => {}
            accepted = source.next(), if connections.len() < MAX_CONNECTIONS => match accepted {
                Ok(stream) => {
                    connections.spawn(connection(stream, answer.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, "Cannot accept a connection");
                    tokio::time::sleep(PAUSE_AFTER_FAILED_ACCEPT).await;
                }
            },
        }
    }
}

async fn connection<Io, A>(stream: Io, answer: A)
where
    Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    A: Fn(&str) -> Response<Full<Bytes>>,
{
    let service = service_fn(|request: Request<Incoming>| {
        let answer = answer(request.uri().path());
        async move { Ok::<_, Infallible>(answer) }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    if let Err(error) = server.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "Connection ended");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
    use tokio::sync::mpsc;

    use super::*;

    /// A source with the given results. After the last result, no connection arrives.
    struct Script {
        results: Mutex<mpsc::UnboundedReceiver<io::Result<DuplexStream>>>,
    }

    impl Source for Script {
        type Stream = DuplexStream;

        async fn next(&self) -> io::Result<DuplexStream> {
            let next =
                std::future::poll_fn(|context| self.results.lock().expect("unpoisoned").poll_recv(context));
            match next.await {
                Some(result) => result,
                None => std::future::pending().await,
            }
        }
    }

    type Arrivals = mpsc::UnboundedSender<io::Result<DuplexStream>>;

    fn serve() -> Arrivals {
        let (arrivals, results) = mpsc::unbounded_channel();
        let script = Script { results: Mutex::new(results) };
        let answer = |path: &str| Response::new(Full::new(Bytes::from(path.to_owned())));
        tokio::spawn(async move { accept_from(&script, answer).await });
        arrivals
    }

    fn arrive(arrivals: &Arrivals) -> DuplexStream {
        let (ours, theirs) = tokio::io::duplex(4096);
        arrivals.send(Ok(theirs)).expect("the accept loop runs");
        ours
    }

    async fn ask(stream: &mut DuplexStream) -> String {
        stream
            .write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            .await
            .expect("sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).await.expect("answered");
        text
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_accept_is_retried() {
        let arrivals = serve();
        for kind in [io::ErrorKind::ConnectionAborted, io::ErrorKind::Other] {
            arrivals.send(Err(kind.into())).expect("the accept loop runs");
        }
        let answer = ask(&mut arrive(&arrivals)).await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("/healthz"), "{answer}");
    }

    #[tokio::test(start_paused = true)]
    async fn idle_connections_are_closed_for_new_ones() {
        let arrivals = serve();
        let began = tokio::time::Instant::now();
        let idle: Vec<DuplexStream> = (0..MAX_CONNECTIONS).map(|_| arrive(&arrivals)).collect();
        let answer = ask(&mut arrive(&arrivals)).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        // The server accepted no connection above the limit, and closed the idle ones at the
        // timeout.
        assert_eq!(began.elapsed().as_secs(), HEADER_TIMEOUT.as_secs());
        drop(idle);
    }
}
