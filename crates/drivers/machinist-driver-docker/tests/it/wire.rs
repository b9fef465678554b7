//! The HTTP of an engine in this process: reads one request per connection, as the driver sends
//! them.

use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::UnboundedReceiver;

/// One request.
pub(crate) struct Request {
    pub(crate) method: String,
    /// The path without the version of the API and without the query.
    pub(crate) path: String,
    /// The query as it was sent.
    pub(crate) query: String,
    pub(crate) body: Vec<u8>,
}

impl Request {
    /// A parameter of the query. The tests use only values that need no escapes.
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        self.query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
    }
}

/// The reply of the engine to a request.
pub(crate) enum Reply {
    /// A status and a body. The status 101 begins a stream, which ends at once.
    Answer(u16, Vec<u8>),
    /// A stream with this output, which ends when its input has ended.
    Stream(Vec<u8>),
    /// An answer without an end: each part is sent once it is there.
    Events(UnboundedReceiver<Vec<u8>>),
    /// The connection breaks without an answer.
    Lost,
}

/// Serves requests until the runtime ends.
pub(crate) fn serve(listener: TcpListener, answer: impl FnMut(&Request) -> Reply + Send + 'static) {
    let answer = Arc::new(std::sync::Mutex::new(answer));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answer = answer.clone();
            tokio::spawn(async move {
                let mut stream = stream;
                let Some(request) = read(&mut stream).await else { return };
                let reply = (answer.lock().expect("no panic"))(&request);
                write(stream, reply).await;
            });
        }
    });
}

async fn read(stream: &mut TcpStream) -> Option<Request> {
    let mut bytes = Vec::new();
    let mut buffer = vec![0; 16 * 1024];
    loop {
        if let Some(request) = parse(&bytes) {
            return Some(request);
        }
        match stream.read(&mut buffer).await {
            Ok(count) if 0 < count => bytes.extend_from_slice(&buffer[..count]),
            _ => return None,
        }
    }
}

/// The request, once all its bytes have arrived.
fn parse(bytes: &[u8]) -> Option<Request> {
    const END: &[u8] = b"\r\n\r\n";
    let end = bytes.windows(END.len()).position(|window| window == END)?;
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    let body = bytes[end + END.len()..].get(..length.unwrap_or_default())?.to_vec();
    let mut words = head.split_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?);
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    // The driver asks for the version without one.
    let path = match path.trim_start_matches('/').split_once('/') {
        Some((_, path)) => format!("/{path}"),
        None => path.to_owned(),
    };
    Some(Request { method, path, query: query.to_owned(), body })
}

async fn write(mut stream: TcpStream, reply: Reply) {
    const UPGRADED: &[u8] = b"HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n";
    let answer = match reply {
        Reply::Lost => return,
        Reply::Events(mut events) => {
            let mut part = b"HTTP/1.1 200 X\r\nConnection: close\r\n\r\n".to_vec();
            while stream.write_all(&part).await.is_ok() {
                let Some(next) = events.recv().await else { return };
                part = next;
            }
            return;
        }
        Reply::Answer(101, _) => UPGRADED.to_vec(),
        Reply::Answer(status, body) => {
            let head =
                format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            [head.into_bytes(), body].concat()
        }
        Reply::Stream(output) => {
            let _ = stream.write_all(UPGRADED).await;
            let _ = stream.read_to_end(&mut Vec::new()).await;
            output
        }
    };
    let _ = stream.write_all(&answer).await;
}
