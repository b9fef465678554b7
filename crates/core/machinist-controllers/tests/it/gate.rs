//! A connection of a process to its API server that a test cuts, freezes or lets fail.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::{StreamExt as _, TryStreamExt as _};
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use kube::client::Body;
use machinist_apiserver::ApiService;
use tokio::sync::watch;
use tower::{BoxError, ServiceExt as _, service_fn};

use super::*;

/// How requests to the API server end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    /// All requests are answered.
    Up,
    /// No connection can be made, and open watches end.
    Refused,
    /// Requests are never answered, and open watches end.
    Hanging,
    /// Requests are never answered, and open watches stay open and silent.
    Frozen,
    /// Open watches stay open and silent. Other requests are answered.
    SilentWatches,
    /// The connection of each request breaks. Watches that are open go on.
    Reset,
    /// The server rejects all requests with this code. Watches that are open go on.
    Denied(u16),
    /// The server answers requests with this method and part of the path with an error.
    Rejects { method: &'static Method, path: &'static str, code: u16 },
}

impl Link {
    fn ends_watches(self) -> bool {
        matches!(self, Self::Refused | Self::Hanging)
    }

    fn silences_watches(self) -> bool {
        matches!(self, Self::Frozen | Self::SilentWatches)
    }
}

/// Sets the link of all clients that were made with it.
#[derive(Clone)]
pub(crate) struct Switch(watch::Sender<Link>, Arc<AtomicUsize>);

impl Switch {
    #[expect(clippy::disallowed_methods, reason = "a request waits alone for its own link")]
    pub(crate) fn new() -> Self {
        Self(watch::channel(Link::Up).0, Arc::default())
    }

    pub(crate) fn set(&self, link: Link) {
        self.0.send_replace(link);
    }

    /// Creates a client of a process behind the link.
    pub(crate) fn client(&self, world: &World, name: &str) -> kube::Client {
        let service = world.server.service_as(Identity::admin());
        let mut options = ClientOptions::new(name);
        options.clock = world.clock.clone();
        let (link, refused_writes) = (self.0.subscribe(), self.1.clone());
        let gate = Gate { service, link, refused_writes };
        layer_client(service_fn(move |request| gate.clone().pass(request)), &options)
    }

    /// The number of writes for which no connection could be made.
    pub(crate) fn refused_writes(&self) -> usize {
        self.1.load(Ordering::Relaxed)
    }
}

#[derive(Clone)]
struct Gate {
    service: ApiService,
    link: watch::Receiver<Link>,
    refused_writes: Arc<AtomicUsize>,
}

impl Gate {
    async fn pass(
        self,
        request: Request<Body>,
    ) -> Result<Response<UnsyncBoxBody<Bytes, BoxError>>, BoxError> {
        let Self { service, link, refused_writes } = self;
        let now = *link.borrow();
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        match now {
            Link::Refused => {
                if request.method() != Method::GET {
                    refused_writes.fetch_add(1, Ordering::Relaxed);
                }
                // A refusal takes time, so that no loop runs forever in one instant.
                tokio::time::sleep(Duration::from_millis(1)).await;
                return Err(io::Error::from(io::ErrorKind::ConnectionRefused).into());
            }
            Link::Reset => return Err(io::Error::from(io::ErrorKind::ConnectionReset).into()),
            Link::Hanging | Link::Frozen => return std::future::pending().await,
            Link::Denied(code) => return rejection(code),
            Link::SilentWatches if is_watch => return std::future::pending().await,
            Link::Rejects { method, path, code }
                if request.method() == method && request.uri().path().contains(path) =>
            {
                return rejection(code);
            }
            Link::Up | Link::SilentWatches | Link::Rejects { .. } => {}
        }
        let (parts, body) = service.oneshot(request).await?.into_parts();
        let (mut cut, silent) = (link.clone(), link);
        let is_cut = async move {
            let _ = cut.wait_for(|link| link.ends_watches()).await;
        };
        let delivered = move |frame| {
            let mut silent = silent.clone();
            async move {
                if is_watch {
                    let _ = silent.wait_for(|link| !link.silences_watches()).await;
                }
                frame
            }
        };
        let frames = body.into_data_stream().map_ok(Frame::data).map_err(BoxError::from);
        let frames = frames.then(delivered).take_until(Box::pin(is_cut));
        Ok(Response::from_parts(parts, StreamBody::new(frames).boxed_unsync()))
    }
}

fn rejection(code: u16) -> Result<Response<UnsyncBoxBody<Bytes, BoxError>>, BoxError> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
        "reason": match code {
            401 => "Unauthorized",
            403 => "Forbidden",
            _ => "InternalError",
        },
        "message": "webhook pods.example.com says no",
    });
    let body = Full::new(Bytes::from(status.to_string())).map_err(Into::into).boxed_unsync();
    Ok(Response::builder().status(code).body(body)?)
}
