//! The way to an API server: counts requests, and breaks as a test asks.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};
use kube::client::Body;
use machinist_apiserver::{Identity, Server};
use machinist_kube::{ClientOptions, layer_client};
use serde_json::{Value, json};
use tower::{BoxError, Service as _};

type Answer = Response<UnsyncBoxBody<bytes::Bytes, BoxError>>;

/// A fault that happens to one request.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// The request takes effect, and the answer is an error of the server.
    EffectThenError,
    /// The request takes effect, and no answer arrives.
    EffectThenSilence,
    /// The connection breaks, and the request takes effect after this time.
    LateEffect(Duration),
    /// No answer arrives, and there is no effect.
    Silence,
    /// Nothing listens.
    Unreachable,
    /// The server refuses the request with this Status.
    Refuse(Value),
}

/// Changes the answer to a request.
pub(crate) type Change = fn(&str, u16, Value) -> (u16, Value);

#[derive(Default)]
struct State {
    /// All requests, as verb and resource, for example `POST pods`.
    requests: Vec<String>,
    /// The fault of the next request of each sort.
    faults: VecDeque<(String, Fault)>,
    /// The refusal of all requests of each sort.
    refusals: Vec<(String, Value)>,
    /// Requests of these sorts are answered as if they had succeeded, and not sent.
    swallowed: Vec<String>,
    change: Option<Change>,
}

/// A pipe to one server. Clones share its faults.
#[derive(Clone)]
pub(crate) struct Pipe {
    server: Server,
    state: Arc<Mutex<State>>,
}

impl Pipe {
    pub(crate) fn to(server: Server) -> Self {
        Self { server, state: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Breaks the next request of that sort.
    pub(crate) fn once(&self, sort: &str, fault: Fault) {
        self.lock().faults.push_back((sort.to_owned(), fault));
    }

    /// Refuses all requests whose sort begins with this text.
    pub(crate) fn refuse(&self, sort: &str, status: Value) {
        self.lock().refusals.push((sort.to_owned(), status));
    }

    /// Answers requests of that sort, and does not send them.
    pub(crate) fn swallow(&self, sort: &str) {
        self.lock().swallowed.push(sort.to_owned());
    }

    /// Changes all answers.
    pub(crate) fn change(&self, change: Change) {
        self.lock().change = Some(change);
    }

    /// Ends all trouble.
    pub(crate) fn clear_trouble(&self) {
        let mut state = self.lock();
        state.faults.clear();
        state.refusals.clear();
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.lock().requests.clone()
    }

    pub(crate) fn count(&self, sort: &str) -> usize {
        self.requests().iter().filter(|request| *request == sort).count()
    }

    /// A client of that user.
    pub(crate) fn client(&self, identity: Identity, options: &ClientOptions) -> kube::Client {
        let pipe = self.clone();
        let serve = tower::service_fn(move |request| pipe.clone().serve(identity.clone(), request));
        layer_client(serve, options)
    }

    async fn serve(self, identity: Identity, request: Request<Body>) -> Result<Answer, BoxError> {
        let sort = sort(&request);
        let (fault, refusal, is_swallowed, change) = {
            let mut state = self.lock();
            state.requests.push(sort.clone());
            let at = state.faults.iter().position(|(of, _)| *of == sort);
            let fault = at.and_then(|at| state.faults.remove(at)).map(|(_, fault)| fault);
            let refusal = state.refusals.iter().find(|(of, _)| sort.starts_with(of.as_str()));
            let refusal = refusal.map(|(_, status)| status.clone());
            (fault, refusal, state.swallowed.contains(&sort), state.change)
        };
        let answer = if let Some(status) = refusal {
            refused(&status)
        } else if is_swallowed {
            refused(&json!({"kind": "Status", "apiVersion": "v1", "status": "Success", "code": 200}))
        } else {
            self.play(fault, identity, request).await?
        };
        match change {
            Some(change) => changed(&sort, answer, change).await,
            None => Ok(answer),
        }
    }

    async fn play(
        self,
        fault: Option<Fault>,
        identity: Identity,
        request: Request<Body>,
    ) -> Result<Answer, BoxError> {
        match fault {
            None => self.ask(identity, request).await,
            Some(Fault::EffectThenError) => {
                self.ask(identity, request).await?;
                Ok(refused(&failure(500, "InternalError", "etcdserver: request timed out")))
            }
            Some(Fault::EffectThenSilence) => {
                self.ask(identity, request).await?;
                std::future::pending().await
            }
            Some(Fault::LateEffect(after)) => {
                tokio::spawn(async move {
                    tokio::time::sleep(after).await;
                    self.ask(identity, request).await.map(drop)
                });
                Err(io::Error::from(io::ErrorKind::ConnectionReset).into())
            }
            Some(Fault::Silence) => std::future::pending().await,
            Some(Fault::Unreachable) => Err(io::Error::from(io::ErrorKind::ConnectionRefused).into()),
            Some(Fault::Refuse(status)) => Ok(refused(&status)),
        }
    }

    async fn ask(&self, identity: Identity, request: Request<Body>) -> Result<Answer, BoxError> {
        let answer = self.server.service_as(identity).call(request).await?;
        Ok(answer.map(|body| body.map_err(Into::into).boxed_unsync()))
    }
}

/// A refusal of an API server.
pub(crate) fn failure(code: u16, reason: &str, message: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message,
    })
}

/// Verb and resource of a request.
fn sort(request: &Request<Body>) -> String {
    let segments: Vec<&str> = request.uri().path().split('/').filter(|part| !part.is_empty()).collect();
    // api/v1/namespaces/NAMESPACE/RESOURCE/NAME/SUBRESOURCE
    let resource = match segments.as_slice() {
        ["api", "v1", "namespaces", _, resource, ..] => resource,
        [.., last] => last,
        [] => "",
    };
    format!("{} {resource}", request.method())
}

fn refused(status: &Value) -> Answer {
    let code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok()).unwrap_or(500);
    let code = StatusCode::from_u16(code).expect("a code");
    response(code, status)
}

fn response(code: StatusCode, body: &Value) -> Answer {
    let body = Full::new(bytes::Bytes::from(body.to_string())).map_err(|never| match never {}).boxed_unsync();
    let response = Response::builder().status(code).header("content-type", "application/json");
    response.body(body).expect("a response")
}

async fn changed(sort: &str, answer: Answer, change: Change) -> Result<Answer, BoxError> {
    let (parts, body) = answer.into_parts();
    let bytes = body.collect().await?.to_bytes();
    let body: Value = serde_json::from_slice(&bytes)?;
    let (code, body) = change(sort, parts.status.as_u16(), body);
    Ok(response(StatusCode::from_u16(code)?, &body))
}
