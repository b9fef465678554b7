//! HTTP over pipes in memory: all of HTTP except the sockets, so that tests can pause time.

use std::future::{Ready, ready};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf, duplex};
use tower::Service;

/// Size of the buffer of each direction.
const PIPE_BYTES: usize = 64 * 1024;

/// Connects to a stand-in of a cloud through a new pipe per connection. The function returns the
/// task that serves the far end of a pipe, or why the stand-in accepts no connection.
#[derive(Debug, Clone)]
pub struct Pipes<F>(pub F);

impl<F, T> Service<Uri> for Pipes<F>
where
    F: Fn(DuplexStream) -> io::Result<T>,
    T: Future<Output: Send> + Send + 'static,
{
    type Response = TokioIo<Pipe>;
    type Error = io::Error;
    type Future = Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let (near, far) = duplex(PIPE_BYTES);
        ready((self.0)(far).map(|serving| {
            tokio::spawn(serving);
            TokioIo::new(Pipe(near))
        }))
    }
}

/// One end of a pipe.
#[derive(Debug)]
pub struct Pipe(DuplexStream);

impl Connection for Pipe {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for Pipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
