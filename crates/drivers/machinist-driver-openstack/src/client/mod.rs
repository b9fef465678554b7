//! A thin client of Nova, Neutron and Cinder: one attempt per call, no retries.
//!
//! `call` and `failure` are pure. `session` logs in at Keystone and reads the service catalogue,
//! `tls` builds connections with the certificates of a Secret. The header `Date` of answers
//! measures the clock of the cloud.
//!
//! Only one answer is repeated: `401` means that the token is no longer accepted, and that the
//! request had no effect. The client then logs in again, once.
//!
//! Deliberately absent: retries, waits for a state, and a cache of answers. The runtime does all
//! of these.

pub(crate) mod call;
pub(crate) mod failure;
mod session;
pub(crate) mod tls;

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, IF_MATCH, USER_AGENT};
use http::{HeaderValue, Request, Response, StatusCode};
use machinist_driver_http::{AGENT, HttpCall, HttpCaller, Nature, header};
use machinist_instance::ErrorKind;
use percent_encoding::percent_decode_str;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::Instant;

use crate::secret::Login;
use call::{Call, Service};
use failure::{Failure, Refusal, refused, unreadable};
use session::Session;

/// Time limit of one attempt. Nova may take several seconds to accept a server.
pub(crate) const ATTEMPT_WITHIN: Duration = Duration::from_secs(20);

/// Largest number of pages of a list: 100,000 servers with the usual limit of Nova.
const MAX_PAGES: usize = 100;

/// The APIs of one account in one region.
pub(crate) struct Client {
    pub(crate) caller: HttpCaller,
    pub(crate) region: String,
    login: Login,
    session: session::Remembered,
}

impl Client {
    pub(crate) fn new(caller: HttpCaller, region: String, login: Login) -> Self {
        Self { caller, region, login, session: session::Remembered::default() }
    }

    /// Makes one attempt, and parses the answer. A login may come before.
    pub(crate) async fn call<T: DeserializeOwned>(&self, call: &Call) -> Result<T, Failure> {
        let answer = self.accepted(call).await?;
        serde_json::from_slice(&answer).map_err(|_| unreadable(call.nature(), &call.action()))
    }

    /// Makes one attempt of whose answer nothing is read.
    pub(crate) async fn acknowledged(&self, call: &Call) -> Result<(), Failure> {
        self.accepted(call).await.map(drop)
    }

    /// Reads one object. `None` if the cloud proves its absence.
    pub(crate) async fn optional<T: DeserializeOwned>(&self, call: &Call) -> Result<Option<T>, Failure> {
        match self.call(call).await {
            Ok(found) => Ok(Some(found)),
            Err(failure) if failure.is_absence() => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Reads all pages of a list. The result is complete or an error.
    pub(crate) async fn list<T: DeserializeOwned>(&self, call: &Call, name: &str) -> Result<Vec<T>, Failure> {
        let mut all = Vec::new();
        let mut marker: Option<String> = None;
        for _ in 0..MAX_PAGES {
            let page = match &marker {
                Some(marker) => call.clone().with("marker", marker),
                None => call.clone(),
            };
            let garbled = || unreadable(Nature::Reads, &call.action());
            let mut page: Value = self.call(&page).await?;
            let Some(Value::Array(items)) = page.get_mut(name).map(Value::take) else {
                return Err(garbled());
            };
            for item in items {
                all.push(serde_json::from_value(item).map_err(|_| garbled())?);
            }
            let Some(next) = next_page(&page, name) else { return Ok(all) };
            marker = Some(marker_of(next).ok_or_else(garbled)?);
        }
        let text = format!("{}: the list has more than {MAX_PAGES} pages", call.action());
        Err(Failure::new(ErrorKind::Unavailable, text))
    }

    /// Whether the region has a service for volumes.
    pub(crate) async fn has_volumes(&self) -> Result<bool, Failure> {
        let session = self.session().await?;
        if session.has_volumes_elsewhere() {
            let text = format!(
                "the service catalogue has volumes, but no public endpoint for them in region {}; it has the \
                 regions {}",
                self.region,
                session.regions()
            );
            return Err(Failure::new(ErrorKind::Unavailable, text));
        }
        Ok(session.url(Service::Volume).is_some())
    }

    /// Sends a call, and again after another login if the token is no longer accepted.
    async fn accepted(&self, call: &Call) -> Result<Bytes, Failure> {
        let session = self.session().await?;
        let mut answer = self.attempt(call, &session).await?;
        if answer.status() == StatusCode::UNAUTHORIZED {
            self.session.forget(&session).await;
            let renewed = self.session().await?;
            answer = self.attempt(call, &renewed).await?;
        }
        read(call, answer)
    }

    async fn attempt(&self, call: &Call, session: &Session) -> Result<Response<Bytes>, Failure> {
        let request = self.request(call, session)?;
        // A login may have taken some time.
        if call.deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            let text = format!("{}: not sent, because earlier requests took too long", call.action());
            return Err(Failure::new(ErrorKind::Unavailable, text));
        }
        self.send(request, call.nature(), &call.action(), call.label()).await
    }

    /// Sends a request. Each error names the service, because a call of the driver uses several.
    async fn send(
        &self,
        request: Request<Bytes>,
        nature: Nature,
        action: &str,
        endpoint: String,
    ) -> Result<Response<Bytes>, Failure> {
        let about = HttpCall { nature, action, endpoint: endpoint.into() };
        self.caller.send(request, about).await.map_err(|mut error| {
            error.message.insert_str(0, &format!("{action}: "));
            Failure::from(error)
        })
    }

    fn request(&self, call: &Call, session: &Session) -> Result<Request<Bytes>, Failure> {
        let name = call.service.name();
        let Some(base) = session.url(call.service) else {
            let text = format!(
                "region {}: the service catalogue has no public endpoint of {name}; the catalogue has the \
                 regions {}",
                self.region,
                session.regions()
            );
            return Err(Failure::new(ErrorKind::InvalidSpec, text));
        };
        let mut request = Request::builder()
            .method(call.method.clone())
            .uri(format!("{base}{}", call.path))
            .header(USER_AGENT, AGENT)
            .header(ACCEPT, "application/json")
            .header("x-auth-token", session.token());
        if let Some(version) = call.service.microversion() {
            request = request.header("openstack-api-version", version);
        }
        if let Some(revision) = call.revision {
            request = request.header(IF_MATCH, format!("revision_number={revision}"));
        }
        let body = match &call.body {
            Some(body) => {
                request = request.header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                Bytes::from(body.to_string())
            }
            None => Bytes::new(),
        };
        let cannot = |_| Failure::new(ErrorKind::Denied, format!("the catalogue's URL of {name} is invalid"));
        request.body(body).map_err(cannot)
    }
}

fn read(call: &Call, answer: Response<Bytes>) -> Result<Bytes, Failure> {
    let status = answer.status();
    if status.is_success() {
        return Ok(answer.into_body());
    }
    let action = call.action();
    let refusal = Refusal {
        action: &action,
        status,
        body: answer.body(),
        retry_after: header::retry_after(answer.headers()),
    };
    let failure = refused(call.nature(), &refusal);
    // The operator of the cloud finds the request by this id.
    let request = header::text(answer.headers(), "x-openstack-request-id");
    let (call, status, error) = (&action, status.as_u16(), &failure.error);
    if failure.is_absence() {
        tracing::debug!(call, status, request, %error, "The cloud rejected a request");
    } else {
        tracing::info!(call, status, request, %error, "The cloud rejected a request");
    }
    Err(failure)
}

/// The link to the next page of a list.
fn next_page<'a>(page: &'a Value, name: &str) -> Option<&'a str> {
    let links = page.get(format!("{name}_links"))?.as_array()?;
    let next = links.iter().find(|link| link.get("rel").and_then(Value::as_str) == Some("next"))?;
    // A link that cannot be read is not the end of the list.
    Some(next.get("href").and_then(Value::as_str).unwrap_or_default())
}

/// The marker in a link. Behind a proxy the rest of the link may name a host that cannot be
/// reached.
fn marker_of(link: &str) -> Option<String> {
    let (_, query) = link.split_once('?')?;
    let marker = query.split('&').find_map(|pair| pair.strip_prefix("marker="))?;
    Some(percent_decode_str(marker).decode_utf8().ok()?.into_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_marker_of_the_next_page_is_read() {
        let link = "http://nova.internal/v2.1/servers/detail?limit=2&marker=a%2Db&name=x";
        let page = json!({"servers": [], "servers_links": [{"rel": "self"}, {"rel": "next", "href": link}]});
        assert_eq!(next_page(&page, "servers").and_then(marker_of).as_deref(), Some("a-b"));
        assert_eq!(next_page(&json!({"servers": []}), "servers"), None);
        assert_eq!(marker_of("http://nova/servers"), None);
    }
}
