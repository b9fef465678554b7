//! Answers requests on the connections of a port.
//!
//! Every client in the network can connect to the port. So no client may end or block the process:
//! the number of connections is limited, and a connection without a request is closed. A busy
//! client cannot keep a connection forever: at a maximum age, it has to connect again, behind the
//! clients that wait.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

use crate::accept::{Source, accept_from};
use crate::door::{Door, OpenDoor, Rejection};
use crate::profiler::Profiler;

/// The limit of concurrent connections. Probes and scrapers need few, and the process needs its
/// file descriptors for the API servers.
const MAX_CONNECTIONS: usize = 128;
/// The timeout for the head of each request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// The age at which a connection ends after its current request.
const MAX_AGE: Duration = Duration::from_secs(60);
/// The time for that request. A client that does not read its answer loses the connection.
const ENDS_WITHIN: Duration = Duration::from_secs(5);

/// Answers each request by its path, until the future is dropped.
pub async fn answer_all<A>(listener: &TcpListener, answer: A) -> Infallible
where
    A: Fn(&str) -> Response<Full<Bytes>> + Clone + Send + Sync + 'static,
{
    answer_from(listener, OpenDoor, Profiler::Off, at_once(answer)).await
}

/// Answers each request that the door admits, by its path or with the profiler, until the future is
/// dropped.
pub async fn answer_behind<D, A>(listener: &TcpListener, door: D, profiler: Profiler, answer: A) -> Infallible
where
    D: Door<TcpStream>,
    A: Fn(&str) -> Response<Full<Bytes>> + Clone + Send + Sync + 'static,
{
    answer_from(listener, door, profiler, at_once(answer)).await
}

/// The same for answers that take a moment.
pub(crate) async fn answer_later_behind<D, A>(
    listener: &TcpListener,
    door: D,
    profiler: Profiler,
    answer: A,
) -> Infallible
where
    D: Door<TcpStream>,
    A: Answer,
{
    answer_from(listener, door, profiler, answer).await
}

/// Answers a request by its path.
pub(crate) trait Answer:
    Fn(&str) -> BoxFuture<'static, Response<Full<Bytes>>> + Clone + Send + Sync + 'static
{
}

impl<A> Answer for A where
    A: Fn(&str) -> BoxFuture<'static, Response<Full<Bytes>>> + Clone + Send + Sync + 'static
{
}

fn at_once(answer: impl Fn(&str) -> Response<Full<Bytes>> + Clone + Send + Sync + 'static) -> impl Answer {
    move |path: &str| -> BoxFuture<'static, Response<Full<Bytes>>> {
        Box::pin(std::future::ready(answer(path)))
    }
}

async fn answer_from<S: Source, D, A>(source: &S, door: D, profiler: Profiler, answer: A) -> Infallible
where
    D: Door<S::Stream>,
    A: Answer,
{
    let never = std::future::pending();
    accept_from(source, MAX_CONNECTIONS, never, |stream| {
        connection(stream, door.clone(), profiler, answer.clone())
    })
    .await
}

async fn connection<Io, D, A>(stream: Io, door: D, profiler: Profiler, answer: A)
where
    Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    D: Door<Io>,
    A: Answer,
{
    let (stream, peer) = match tokio::time::timeout(HEADER_TIMEOUT, door.open(stream)).await {
        Ok(Ok(opened)) => opened,
        Ok(Err(error)) => {
            tracing::debug!(%error, "Cannot prepare a connection");
            return;
        }
        Err(_) => return,
    };
    let (door, peer, answer) = (&door, &peer, &answer);
    let service = service_fn(move |request: Request<Incoming>| async move {
        let (head, _) = request.into_parts();
        Ok::<_, Infallible>(match door.admit(peer, &head).await {
            Ok(()) if profiler.answers(head.uri.path()) => profiler.answer(&head.uri).await,
            Ok(()) => answer(head.uri.path()).await,
            Err(Rejection { status, message }) => {
                let mut response = Response::new(Full::new(Bytes::from(message)));
                *response.status_mut() = status;
                response
            }
        })
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    let mut serving = std::pin::pin!(server.serve_connection(TokioIo::new(stream), service));
    let ended = match tokio::time::timeout(MAX_AGE, serving.as_mut()).await {
        Ok(ended) => ended,
        Err(_) => {
            serving.as_mut().graceful_shutdown();
            let Ok(ended) = tokio::time::timeout(ENDS_WITHIN, serving).await else { return };
            ended
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "Connection ended");
    }
}

#[cfg(test)]
mod tests {
    use std::io;
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
        tokio::spawn(async move { answer_from(&script, OpenDoor, Profiler::Off, at_once(answer)).await });
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

    /// Asks again and again over one connection, until the server closes it.
    async fn keep_asking(mut stream: DuplexStream) {
        let mut buffer = [0; 1024];
        let request = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
        while stream.write_all(request).await.is_ok() && stream.read(&mut buffer).await.is_ok_and(|n| 0 < n) {
            tokio::time::sleep(HEADER_TIMEOUT / 2).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn busy_connections_end_for_new_ones() {
        let arrivals = serve();
        let began = tokio::time::Instant::now();
        for _ in 0..MAX_CONNECTIONS {
            tokio::spawn(keep_asking(arrive(&arrivals)));
        }
        let answer = ask(&mut arrive(&arrivals)).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let waited = began.elapsed();
        assert!(MAX_AGE <= waited && waited <= MAX_AGE + ENDS_WITHIN, "{waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_loses_its_place() {
        let arrivals = serve();
        let began = tokio::time::Instant::now();
        // Long answers fill the buffers of the server soon.
        let request = format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(8000));
        for _ in 0..MAX_CONNECTIONS {
            let (mut stream, request) = (arrive(&arrivals), request.clone());
            tokio::spawn(async move { while stream.write_all(request.as_bytes()).await.is_ok() {} });
        }
        let answer = ask(&mut arrive(&arrivals)).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert_eq!(began.elapsed(), MAX_AGE + ENDS_WITHIN);
    }
}
