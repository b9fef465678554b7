//! A plain HTTP client over a pipe.

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use machinist_cloud_sim::Clock;
use machinist_standin_hcloud::http::serve_connection;
use machinist_standin_hcloud::{Access, Settings, Standin};
use serde_json::{Value, json};

pub(crate) const TOKEN: &str = "token-a";
pub(crate) const READ_ONLY: &str = "token-a-read";
pub(crate) const OTHER: &str = "token-b";

pub(crate) fn epoch() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().expect("a time")
}

/// Settings with the projects `a` and `b`, and actions that take a second.
pub(crate) fn settings() -> Settings {
    let mut settings = Settings::default();
    settings.tokens.set(TOKEN, "a", Access::ReadWrite);
    settings.tokens.set(READ_ONLY, "a", Access::ReadOnly);
    settings.tokens.set(OTHER, "b", Access::ReadWrite);
    settings
}

/// As [`settings`], and actions have ended when they are answered.
pub(crate) fn instant() -> Settings {
    Settings { tokens: settings().tokens, ..Settings::instant() }
}

pub(crate) fn standin(settings: Settings) -> Standin {
    Standin::in_memory(settings, Clock::starting_at(epoch()))
}

/// A reply: status, headers and JSON (null if the body is something else).
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) json: Value,
    pub(crate) text: String,
}

impl Reply {
    /// The error code.
    pub(crate) fn code(&self) -> &str {
        self.json["error"]["code"].as_str().unwrap_or_default()
    }

    /// Status and error code.
    pub(crate) fn failure(&self) -> (u16, &str) {
        (self.status.as_u16(), self.code())
    }

    /// The names of the fields in an `invalid_input`.
    pub(crate) fn fields(&self) -> Vec<&str> {
        let fields = self.json["error"]["details"]["fields"].as_array();
        fields.into_iter().flatten().filter_map(|field| field["name"].as_str()).collect()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

/// A client with one token.
#[derive(Clone)]
pub(crate) struct Client {
    standin: Standin,
    token: Option<&'static str>,
}

impl Client {
    pub(crate) fn new(standin: &Standin) -> Self {
        Self::with_token(standin, TOKEN)
    }

    pub(crate) fn with_token(standin: &Standin, token: &'static str) -> Self {
        Self { standin: standin.clone(), token: Some(token) }
    }

    pub(crate) fn without_token(standin: &Standin) -> Self {
        Self { standin: standin.clone(), token: None }
    }

    /// Sends a request; an error means that the connection broke.
    pub(crate) async fn try_send(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<Reply, hyper::Error> {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let server = tokio::spawn(serve_connection(self.standin.clone(), theirs));
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(ours)).await?;
        let connection = tokio::spawn(connection);
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "stand-in")
            .header(header::USER_AGENT, "test/1");
        if let Some(token) = self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let body = body.map_or_else(Bytes::new, |body| body.to_string().into());
        let request = request.body(Full::new(body)).expect("a request");
        let result = async {
            let (parts, body) = sender.send_request(request).await?.into_parts();
            let bytes = body.collect().await?.to_bytes();
            Ok(Reply {
                status: parts.status,
                headers: parts.headers,
                json: serde_json::from_slice(&bytes).unwrap_or_default(),
                text: String::from_utf8_lossy(&bytes).into_owned(),
            })
        };
        let result = result.await;
        connection.abort();
        server.abort();
        // Until the task has ended, it holds the stand-in and its folder.
        let _ = server.await;
        result
    }

    async fn send(&self, method: Method, path: &str, body: Option<Value>) -> Reply {
        self.try_send(method, path, body).await.expect("the connection does not break")
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.send(Method::GET, path, None).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Reply {
        self.send(Method::POST, path, Some(body)).await
    }

    pub(crate) async fn put(&self, path: &str, body: Value) -> Reply {
        self.send(Method::PUT, path, Some(body)).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Reply {
        self.send(Method::DELETE, path, None).await
    }

    /// Creates a server, and returns its id.
    pub(crate) async fn server(&self, name: &str) -> i64 {
        self.server_with(name, json!({})).await
    }

    /// Creates a server with further fields, and returns its id.
    pub(crate) async fn server_with(&self, name: &str, fields: Value) -> i64 {
        let mut body = json!({"name": name, "server_type": "cx22", "image": "ubuntu-24.04"});
        body.as_object_mut().expect("an object").extend(fields.as_object().expect("an object").clone());
        let reply = self.post("/v1/servers", body).await;
        assert_eq!(reply.status, StatusCode::CREATED, "{}", reply.text);
        reply.json["server"]["id"].as_i64().expect("an id")
    }
}

/// The names of the objects in a list.
pub(crate) fn names<'a>(reply: &'a Reply, list: &str) -> Vec<&'a str> {
    let items = reply.json[list].as_array().unwrap_or_else(|| panic!("no {list} in {}", reply.text));
    items.iter().filter_map(|item| item["name"].as_str()).collect()
}
