//! Connections to the HTTP port of a process: accepted for as long as the process lives, and no more than it can bear.
//!
//! The port is open to anyone who reaches it, so nothing that a caller does may end the process or hold it up: an accept that
//! fails is repeated, connections are counted, and whoever sends no request is sent away.

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

/// Most connections at a time. Probes and scrapers are few; the file descriptors are needed for the API servers.
const MAX_CONNECTIONS: usize = 128;
/// How long a caller may take to send the head of a request, the first or a later one.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Accepting fails when file descriptors run out: connections get time to end.
const PAUSE_AFTER_FAILED_ACCEPT: Duration = Duration::from_millis(100);

/// Answers each request by its path, until it is dropped.
pub async fn answer_all<A>(listener: &TcpListener, answer: A) -> Infallible
where
    A: Fn(&str) -> Response<Full<Bytes>> + Clone + Send + Sync + 'static,
{
    accept_from(listener, answer).await
}

/// Where connections come from.
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

    /// What each accept comes to, in turn; then nobody comes any more.
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
        arrivals.send(Ok(theirs)).expect("somebody accepts");
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
    async fn an_accept_that_fails_is_repeated() {
        let arrivals = serve();
        for kind in [io::ErrorKind::ConnectionAborted, io::ErrorKind::Other] {
            arrivals.send(Err(kind.into())).expect("somebody accepts");
        }
        let answer = ask(&mut arrive(&arrivals)).await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("/healthz"), "{answer}");
    }

    #[tokio::test(start_paused = true)]
    async fn idle_connections_make_room_for_others() {
        let arrivals = serve();
        let began = tokio::time::Instant::now();
        let idle: Vec<DuplexStream> = (0..MAX_CONNECTIONS).map(|_| arrive(&arrivals)).collect();
        let answer = ask(&mut arrive(&arrivals)).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        // Nobody was accepted beyond the limit, and nobody kept a place by saying nothing.
        assert_eq!(began.elapsed().as_secs(), HEADER_TIMEOUT.as_secs());
        drop(idle);
    }
}
