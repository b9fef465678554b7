//! The door of an HTTP port: prepares connections, and decides which requests are answered.

use std::io;

use http::StatusCode;
use http::request::Parts;
use tokio::io::{AsyncRead, AsyncWrite};

/// Prepares connections of the type `S`, and decides which requests are answered.
pub trait Door<S>: Clone + Send + Sync + 'static {
    /// A prepared connection.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;
    /// The client of a connection, as far as it is known.
    type Peer: Clone + Send + Sync + 'static;

    /// Prepares a connection, for example with a TLS handshake.
    fn open(&self, stream: S) -> impl Future<Output = io::Result<(Self::Stream, Self::Peer)>> + Send;

    /// Decides about one request.
    ///
    /// # Errors
    /// If the client may not send the request.
    fn admit(&self, peer: &Self::Peer, request: &Parts)
    -> impl Future<Output = Result<(), Rejection>> + Send;
}

/// The answer to a request that is not admitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// The HTTP status.
    pub status: StatusCode,
    /// The body.
    pub message: String,
}

/// Plain HTTP for every client.
#[derive(Debug, Clone, Copy)]
pub struct OpenDoor;

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Door<S> for OpenDoor {
    type Stream = S;
    type Peer = ();

    async fn open(&self, stream: S) -> io::Result<(S, ())> {
        Ok((stream, ()))
    }

    async fn admit(&self, (): &(), _: &Parts) -> Result<(), Rejection> {
        Ok(())
    }
}
