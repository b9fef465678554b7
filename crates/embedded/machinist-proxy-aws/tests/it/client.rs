//! A client of the proxy, with a signer of its own.

use bytes::Bytes;
use http::{Request, Response};
use jiff::{SignedDuration, Timestamp};
use machinist_proxy_aws::{AnswerLost, Proxy};
use ring::{digest, hmac};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::backend::Memory;

pub(crate) const ACCESS_KEY: &str = "AKIA1";
pub(crate) const SECRET_KEY: &str = "the secret key";
pub(crate) const REGION: &str = "eu-west-1";

/// The proxy, its backend, and the clock of signatures.
pub(crate) struct World {
    pub(crate) proxy: Proxy<Memory>,
    pub(crate) backend: Memory,
    began: Instant,
}

/// The result of a request: the status, the body and the header `Retry-After`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body: String,
    pub(crate) retry_after: Option<String>,
}

impl Reply {
    /// The text of the first element of a name.
    pub(crate) fn text(&self, element: &str) -> &str {
        let rest = self.body.split_once(&format!("<{element}>")).map(|(_, rest)| rest);
        rest.and_then(|rest| rest.split_once('<')).map(|(text, _)| text).unwrap_or_default()
    }

    /// The ids of all instances.
    pub(crate) fn ids(&self) -> Vec<&str> {
        let parts = self.body.split("<instanceId>").skip(1);
        parts.filter_map(|part| part.split_once('<')).map(|(id, _)| id).collect()
    }
}

/// The keys and the region with which a request is signed.
#[derive(Clone, Copy)]
pub(crate) struct Signer<'a> {
    pub(crate) access_key: &'a str,
    pub(crate) secret_key: &'a str,
    pub(crate) session: Option<&'a str>,
    pub(crate) region: &'a str,
}

pub(crate) const USER: Signer<'static> =
    Signer { access_key: ACCESS_KEY, secret_key: SECRET_KEY, session: None, region: REGION };

impl World {
    pub(crate) fn new() -> Self {
        let (backend, began) = (Memory::new(), Instant::now());
        let proxy = Proxy::with_clock(backend.clone(), move || time(began));
        proxy.accept(ACCESS_KEY, SECRET_KEY);
        Self { proxy, backend, began }
    }

    /// Sends a signed form.
    pub(crate) async fn send(&self, form: &str) -> Result<Reply, AnswerLost> {
        self.send_as(USER, form).await
    }

    /// Sends a signed form that must be answered.
    pub(crate) async fn answer(&self, form: &str) -> Reply {
        self.send(form).await.expect("an answer")
    }

    pub(crate) async fn send_as(&self, signer: Signer<'_>, form: &str) -> Result<Reply, AnswerLost> {
        self.send_request(self.signed(signer, form)).await
    }

    pub(crate) async fn send_request(&self, request: Request<Bytes>) -> Result<Reply, AnswerLost> {
        Ok(reply(self.proxy.answer(request).await?))
    }

    /// Creates an instance with a token.
    pub(crate) async fn run(&self, token: &str, data: &str) -> Result<Reply, AnswerLost> {
        self.send(&run_form(token, data)).await
    }

    /// Uses a function of the operator, which must succeed.
    pub(crate) async fn control(&self, method: &str, path: &str, body: Value) -> Value {
        let reply = self.try_control(method, path, &body.to_string()).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        serde_json::from_str(&reply.body).expect("JSON")
    }

    pub(crate) async fn try_control(&self, method: &str, path: &str, body: &str) -> Reply {
        let request = Request::builder().method(method).uri(format!("/_control{path}"));
        let request = request.body(Bytes::from(body.to_owned())).expect("a request");
        self.send_request(request).await.expect("an answer")
    }

    /// Injects a fault for the next request of an action.
    pub(crate) async fn fault_once(&self, action: &str, fault: Value) {
        self.control("POST", "/faults", json!({"action": action, "times": 1, "fault": fault})).await;
    }

    pub(crate) async fn advance(&self, seconds: u64) {
        self.control("POST", "/advance", json!({"seconds": seconds})).await;
    }

    pub(crate) fn signed(&self, signer: Signer<'_>, form: &str) -> Request<Bytes> {
        let at = time(self.began).strftime("%Y%m%dT%H%M%SZ").to_string();
        let scope = format!("{}/{}/ec2/aws4_request", &at[..8], signer.region);
        let mut headers = vec![("host", "proxy".to_owned()), ("x-amz-date", at.clone())];
        headers.extend(signer.session.map(|token| ("x-amz-security-token", token.to_owned())));
        let names = headers.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
        let lines: String = headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
        let canonical = format!("POST\n/\n\n{lines}\n{names}\n{}", hash(form));
        let text = format!("AWS4-HMAC-SHA256\n{at}\n{scope}\n{}", hash(&canonical));
        let first = format!("AWS4{}", signer.secret_key).into_bytes();
        let key = [&at[..8], signer.region, "ec2", "aws4_request"]
            .iter()
            .fold(first, |key, part| keyed(&key, part).as_ref().to_vec());
        let signature = hex(keyed(&key, &text).as_ref());
        let credential = format!("{}/{scope}", signer.access_key);
        let authorization =
            format!("AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, Signature={signature}");
        headers.push(("authorization", authorization));
        let mut request = Request::post("/").body(Bytes::from(form.to_owned())).expect("a request");
        for (name, value) in headers {
            request.headers_mut().insert(name, value.parse().expect("a header"));
        }
        request
    }
}

pub(crate) fn run_form(token: &str, data: &str) -> String {
    format!("Action=RunInstances&Version=2016-11-15&UserData={data}&ClientToken={token}")
}

pub(crate) fn reply(answer: Response<Bytes>) -> Reply {
    let retry_after = answer.headers().get("retry-after");
    Reply {
        status: answer.status().as_u16(),
        retry_after: retry_after.map(|value| value.to_str().expect("text").to_owned()),
        body: String::from_utf8(answer.into_body().into()).expect("text"),
    }
}

/// The wall clock of paused time.
fn time(began: Instant) -> Timestamp {
    let epoch: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
    let since = SignedDuration::try_from(began.elapsed()).expect("short");
    epoch.checked_add(since).expect("a time")
}

fn hash(text: &str) -> String {
    hex(digest::digest(&digest::SHA256, text.as_bytes()).as_ref())
}

fn keyed(key: &[u8], text: &str) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
