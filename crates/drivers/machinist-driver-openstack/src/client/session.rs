//! A login at Keystone: the token, and the endpoints of one region.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use http::{HeaderValue, Request, StatusCode};
use jiff::Timestamp;
use machinist_driver_http::{AGENT, Endpoint, Nature, header};
use machinist_instance::ErrorKind;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::Client;
use super::call::Service;
use super::failure::{Failure, Refusal, refused, unreadable};
use crate::model::{CatalogService, LoginAnswer};
use crate::secret::{Method, User};
use crate::spec::Named;

/// A token is renewed this long before it expires, or after half of its life if that is later: no
/// call takes longer.
const RENEWED_BEFORE: Duration = Duration::from_secs(300);

/// The name of the request in errors.
const ACTION: &str = "Keystone: POST /v3/auth/tokens";

/// The name of the request in counters.
const ENDPOINT: &str = "identity/v3/auth/tokens";

/// A token, and the endpoints of the region.
pub(super) struct Session {
    token: HeaderValue,
    /// By the clock of this process.
    renew_at: Timestamp,
    endpoints: [(Service, Option<String>); 3],
    regions: BTreeSet<String>,
    /// Whether any region has a service for volumes.
    has_volume_service: bool,
}

/// The last login of an account.
#[derive(Default)]
pub(super) struct Remembered(Mutex<Option<Arc<Session>>>);

impl Remembered {
    /// Forgets a session whose token is no longer accepted.
    pub(super) async fn forget(&self, session: &Arc<Session>) {
        let mut remembered = self.0.lock().await;
        if remembered.as_ref().is_some_and(|one| Arc::ptr_eq(one, session)) {
            *remembered = None;
        }
    }
}

impl Session {
    pub(super) fn token(&self) -> HeaderValue {
        self.token.clone()
    }

    /// The URL of a service, without a slash at its end.
    pub(super) fn url(&self, service: Service) -> Option<&str> {
        self.endpoints.iter().find(|(of, _)| *of == service)?.1.as_deref()
    }

    /// Whether the catalogue has a service for volumes that this region does not offer.
    pub(super) fn has_volumes_elsewhere(&self) -> bool {
        self.has_volume_service && self.url(Service::Volume).is_none()
    }

    /// The regions of the catalogue, for messages.
    pub(super) fn regions(&self) -> String {
        self.regions.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
    }
}

impl Client {
    /// The present session. Concurrent calls wait for one login.
    pub(super) async fn session(&self) -> Result<Arc<Session>, Failure> {
        let mut remembered = self.session.0.lock().await;
        if let Some(session) = remembered.as_ref().filter(|session| self.caller.now() < session.renew_at) {
            return Ok(session.clone());
        }
        let session = Arc::new(self.log_in().await?);
        *remembered = Some(session.clone());
        Ok(session)
    }

    async fn log_in(&self) -> Result<Session, Failure> {
        let cannot = |_| Failure::new(ErrorKind::Denied, "authURL: expected a URL".to_owned());
        let request = Request::post(self.login.keystone.uri("/v3/auth/tokens"))
            .header(USER_AGENT, AGENT)
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/json")
            .body(Bytes::from(body(&self.login.method).to_string()))
            .map_err(cannot)?;
        // A token changes nothing in the cloud.
        let answer = self.send(request, Nature::Reads, ACTION, ENDPOINT.to_owned()).await?;
        let status = answer.status();
        if !status.is_success() {
            let retry_after = header::retry_after(answer.headers());
            let refusal = Refusal { action: ACTION, status, body: answer.body(), retry_after };
            let failure = refused(Nature::Reads, &refusal);
            tracing::info!(status = status.as_u16(), error = %failure.error, "Keystone rejected a login");
            return Err(of_login(status, failure));
        }
        let garbled = || unreadable(Nature::Reads, ACTION);
        let mut token = answer.headers().get("x-subject-token").ok_or_else(garbled)?.clone();
        token.set_sensitive(true);
        let body: LoginAnswer = serde_json::from_slice(answer.body()).map_err(|_| garbled())?;
        let now = self.caller.now();
        let issued = body.token.issued_at.unwrap_or(now);
        // The two times are of one clock, so the skew of this process does not matter.
        let life = Duration::try_from(body.token.expires_at.duration_since(issued)).unwrap_or_default();
        let renewed_after = life.saturating_sub(RENEWED_BEFORE).max(life / 2);
        let catalog = &body.token.catalog;
        let url = |service: Service| (service, endpoint(catalog, service, &self.region));
        Ok(Session {
            token,
            renew_at: now.saturating_add(renewed_after).unwrap_or(now),
            endpoints: [Service::Compute, Service::Network, Service::Volume].map(url),
            regions: regions(catalog),
            has_volume_service: catalog
                .iter()
                .any(|one| Service::Volume.types().contains(&one.sort.as_str())),
        })
    }
}

/// A refused login proves nothing about an instance.
fn of_login(status: StatusCode, failure: Failure) -> Failure {
    let mut error = failure.error;
    if status == StatusCode::UNAUTHORIZED || status == StatusCode::NOT_FOUND {
        error.kind = ErrorKind::Denied;
        error.message.truncate(error.message.trim_end_matches('.').len());
        error.message.push_str(". Check authURL, and the user or application credential of the Secret");
    }
    Failure { error, status: None }
}

/// The body of a login.
fn body(method: &Method) -> Value {
    let credential = |credential: Value| {
        let of = "application_credential";
        json!({"auth": {"identity": {"methods": [of], of: credential}}})
    };
    match method {
        Method::Password { user, password, project, domain } => {
            let mut user = user_json(user);
            user["password"] = password.as_str().into();
            let project = match project {
                Named::Id(id) => json!({"id": id}),
                Named::Name(name) => json!({"name": name, "domain": named_json(domain)}),
            };
            let identity = json!({"methods": ["password"], "password": {"user": user}});
            json!({"auth": {"identity": identity, "scope": {"project": project}}})
        }
        Method::ApplicationId { id, secret } => credential(json!({"id": id, "secret": secret})),
        Method::ApplicationName { name, user, secret } => {
            credential(json!({"name": name, "user": user_json(user), "secret": secret}))
        }
    }
}

fn user_json(user: &User) -> Value {
    json!({"name": user.name, "domain": named_json(&user.domain)})
}

fn named_json(named: &Named) -> Value {
    match named {
        Named::Id(id) => json!({"id": id}),
        Named::Name(name) => json!({"name": name}),
    }
}

/// The public endpoint of a service in a region.
fn endpoint(catalog: &[CatalogService], service: Service, region: &str) -> Option<String> {
    let of_type = |sort: &&str| {
        let services = catalog.iter().filter(|service| service.sort == **sort);
        let endpoint = services.flat_map(|service| &service.endpoints).find(|endpoint| {
            let is_in_region =
                [&endpoint.region_id, &endpoint.region].iter().any(|of| of.as_deref() == Some(region));
            endpoint.interface == "public" && is_in_region
        });
        endpoint.map(|endpoint| endpoint.url.clone())
    };
    let url = service.types().iter().find_map(of_type)?;
    let url = Endpoint::parse(&url).ok()?.to_string();
    Some(match service.version() {
        Some(version) if !url.ends_with(version) => format!("{url}{version}"),
        Some(_) | None => url,
    })
}

fn regions(catalog: &[CatalogService]) -> BTreeSet<String> {
    let endpoints = catalog.iter().flat_map(|service| &service.endpoints);
    endpoints.filter_map(|endpoint| endpoint.region_id.clone().or_else(|| endpoint.region.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user() -> User {
        User { name: "u".to_owned(), domain: Named::Id("d".to_owned()) }
    }

    /// The bodies that were recorded of Go's provider, and those with ids or with an application
    /// credential, which it cannot send.
    #[test]
    fn o_4_every_sort_of_login_has_its_body() {
        let named = |text: &str| Named::Name(text.to_owned());
        let password = Method::Password {
            user: User { name: "user".to_owned(), domain: named("Default") },
            password: "pass".to_owned(),
            project: named("shoot-project"),
            domain: named("Default"),
        };
        let expected = json!({"auth": {
            "identity": {"methods": ["password"], "password": {
                "user": {"domain": {"name": "Default"}, "name": "user", "password": "pass"},
            }},
            "scope": {"project": {"domain": {"name": "Default"}, "name": "shoot-project"}},
        }});
        assert_eq!(body(&password), expected);

        let by_id = Method::ApplicationId { id: "acid".to_owned(), secret: "acsecret".to_owned() };
        let expected = json!({"auth": {"identity": {
            "application_credential": {"id": "acid", "secret": "acsecret"},
            "methods": ["application_credential"],
        }}});
        assert_eq!(body(&by_id), expected);

        let by_name = Method::ApplicationName { name: "a".to_owned(), user: user(), secret: "s".to_owned() };
        let credential = &body(&by_name)["auth"]["identity"]["application_credential"];
        assert_eq!(
            *credential,
            json!({"name": "a", "secret": "s", "user": {"name": "u", "domain": {"id": "d"}}})
        );

        let by_ids = Method::Password {
            user: user(),
            password: "p".to_owned(),
            project: Named::Id("p1".to_owned()),
            domain: Named::Id("d".to_owned()),
        };
        assert_eq!(body(&by_ids)["auth"]["scope"], json!({"project": {"id": "p1"}}));
    }

    #[test]
    fn endpoints_are_public_and_of_the_region() {
        let catalog: Vec<CatalogService> = serde_json::from_value(json!([
            {"type": "compute", "endpoints": [
                {"interface": "internal", "region": "r1", "region_id": "r1", "url": "http://internal"},
                {"interface": "public", "region": "r2", "region_id": "r2", "url": "http://two/v2.1"},
                {"interface": "public", "region": "r1", "region_id": "r1", "url": "http://one/v2.1/"},
            ]},
            {"type": "network", "endpoints": [
                {"interface": "public", "region": "r1", "url": "http://n:9696/"},
                {"interface": "public", "region": "r2", "url": "http://n2/v2.0/"},
            ]},
            {"type": "volumev2", "endpoints": [{"interface": "public", "region": "r1", "url": "http://v2"}]},
            {"type": "volumev3", "endpoints": [{"interface": "public", "region": "r1", "url": "http://v3/p"}]},
        ]))
        .expect("a catalogue");
        let of = |service, region| endpoint(&catalog, service, region);
        assert_eq!(of(Service::Compute, "r1").as_deref(), Some("http://one/v2.1"));
        assert_eq!(of(Service::Network, "r1").as_deref(), Some("http://n:9696/v2.0"));
        assert_eq!(of(Service::Network, "r2").as_deref(), Some("http://n2/v2.0"));
        assert_eq!(of(Service::Volume, "r1").as_deref(), Some("http://v3/p"));
        assert_eq!(of(Service::Volume, "r2"), None);
        assert_eq!(regions(&catalog).into_iter().collect::<Vec<_>>(), ["r1", "r2"]);
    }
}
