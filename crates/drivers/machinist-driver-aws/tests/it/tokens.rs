//! Adds client tokens to a counterpart that has none, as the documentation of EC2 describes them: a
//! repeated creation returns the first instance, one with other parameters is refused, and so is
//! one whose instance was terminated. The filter `client-token` finds the instance.

use std::collections::BTreeMap;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};
use hyper_util::client::legacy::connect::HttpConnector;
use machinist_driver_aws::{Http, NoAnswer, Transport};
use tokio::sync::Mutex;

use crate::fake::server::parse;
use crate::fake::{Parameters, refusal};

/// A transport to the counterpart.
pub(crate) struct Tokens {
    http: Http<HttpConnector>,
    /// The parameters and the instance of each token. The lock is held during a creation, so that
    /// concurrent requests of one token create one instance.
    known: Mutex<BTreeMap<String, (Parameters, String)>>,
}

impl Tokens {
    pub(crate) fn new() -> Self {
        Self { http: Http::plain(), known: Mutex::default() }
    }

    async fn run(&self, request: Request<Bytes>, parameters: Parameters) -> Answer {
        let token = parameters["ClientToken"].clone();
        let mut known = self.known.lock().await;
        if let Some((before, id)) = known.get(&token) {
            let shown = self.http.send(describing(&request, id)).await?;
            let body = String::from_utf8_lossy(shown.body()).into_owned();
            if body.contains("<name>terminated</name>") || body.contains("InvalidInstanceID.NotFound") {
                return Ok(refused("IdempotentInstanceTerminated"));
            }
            if *before != parameters {
                return Ok(refused("IdempotentParameterMismatch"));
            }
            let set = between(&body, "<instancesSet>", "</instancesSet>").expect("an instance");
            let body =
                format!("<RunInstancesResponse><instancesSet>{set}</instancesSet></RunInstancesResponse>");
            return Ok(Response::new(body.into()));
        }
        let answer = self.http.send(request).await?;
        let body = String::from_utf8_lossy(answer.body()).into_owned();
        if let Some(id) = between(&body, "<instanceId>", "</instanceId>") {
            known.insert(token, (parameters, id.to_owned()));
        }
        Ok(answer)
    }

    async fn find(&self, request: Request<Bytes>, token: &str) -> Answer {
        let id = self.known.lock().await.get(token).map(|(_, id)| id.clone());
        if let Some(id) = id {
            let shown = self.http.send(describing(&request, &id)).await?;
            // Another region does not know the id, and its list is empty.
            if shown.status().is_success() {
                return Ok(shown);
            }
        }
        let page = "<DescribeInstancesResponse><reservationSet/></DescribeInstancesResponse>";
        Ok(Response::new(Bytes::from_static(page.as_bytes())))
    }
}

type Answer = Result<Response<Bytes>, NoAnswer>;

#[async_trait]
impl Transport for Tokens {
    async fn send(&self, request: Request<Bytes>) -> Answer {
        let parsed = parse(request.headers(), request.body());
        let is_by_token = parsed.parameters.get("Filter.1.Name").is_some_and(|name| name == "client-token");
        if parsed.action == "RunInstances" {
            return self.run(request, parsed.parameters).await;
        }
        if is_by_token {
            return self.find(request, &parsed.parameters["Filter.1.Value.1"]).await;
        }
        self.http.send(request).await
    }
}

/// The same request for one instance.
fn describing(request: &Request<Bytes>, id: &str) -> Request<Bytes> {
    let form = format!("Action=DescribeInstances&Version=2016-11-15&InstanceId.1={id}");
    let mut other = Request::new(Bytes::from(form));
    *other.method_mut() = request.method().clone();
    *other.uri_mut() = request.uri().clone();
    *other.headers_mut() = request.headers().clone();
    other
}

fn refused(code: &str) -> Response<Bytes> {
    Response::builder().status(400).body(refusal(code).into()).expect("a response")
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    Some(text.split_once(before)?.1.split_once(after)?.0)
}
