//! A thin client of the Hetzner Cloud API: one attempt per call, no retries.
//!
//! The client sees every header. `RateLimit-*` and `Retry-After` become the wait of a throttled
//! call, `Date` measures the cloud's clock, and the log has the `X-Correlation-Id` of each refusal.
//! `call`, `failure`, `page` and `rate` are pure; only this file awaits.
//!
//! Deliberately absent: retries, a token bucket and a cache. The runtime does all of these.

pub(crate) mod call;
pub(crate) mod failure;
mod page;
mod rate;

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request, Response};
use machinist_driver_http::{AGENT, Endpoint, HttpCall, HttpCaller, Nature, header};
use machinist_instance::{AccountId, ErrorKind};
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use rate::{RateState, Rates};

use call::Call;
use failure::{Failure, Refusal, refused, unreadable};
use page::{AfterPage, Meta, PER_PAGE, Pages, SORT};

/// Time limit of one attempt.
pub(crate) const ATTEMPT_WITHIN: Duration = Duration::from_secs(15);

/// Number of attempts to read a list whose pages agree.
const LIST_ATTEMPTS: usize = 2;

/// The API of one project.
pub(crate) struct Client {
    pub(crate) caller: HttpCaller,
    pub(crate) endpoint: Endpoint,
    /// The header `Authorization`, marked as sensitive.
    pub(crate) authorization: HeaderValue,
    pub(crate) account: AccountId,
    pub(crate) rates: Rates,
}

/// The JSON document of a successful answer.
pub(crate) struct Document {
    value: Value,
    nature: Nature,
}

impl Document {
    /// Removes one member and parses it.
    pub(crate) fn take<T: DeserializeOwned>(&mut self, member: &str) -> Result<T, Failure> {
        let value = self.value.get_mut(member).map(Value::take).unwrap_or_default();
        serde_json::from_value(value)
            .map_err(|error| unreadable(self.nature, &format!("the member {member} ({error})")))
    }

    /// The ids of the objects in a list.
    fn ids(&self, member: &str) -> Vec<i64> {
        let objects = self.value.get(member).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        objects.iter().filter_map(|object| object.get("id")?.as_i64()).collect()
    }
}

impl Client {
    /// The header `Authorization` for a token. `None` if the token has characters that a header
    /// must not have.
    pub(crate) fn authorization(token: &str) -> Option<HeaderValue> {
        let mut value = HeaderValue::from_str(&format!("Bearer {token}")).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    /// Makes one attempt.
    pub(crate) async fn call(&self, call: Call) -> Result<Document, Failure> {
        let (nature, label) = (call.nature(), call.label());
        let request = self.request(&call)?;
        let about = HttpCall { nature, action: &label, endpoint: call.endpoint.into() };
        let answer = self.caller.send(request, about).await?;
        self.observe(answer.headers());
        self.read(nature, &label, &answer)
    }

    /// Reads the object with an id. `None` if the cloud proves its absence.
    pub(crate) async fn find<T: DeserializeOwned>(
        &self,
        call: Call,
        member: &str,
    ) -> Result<Option<T>, Failure> {
        match self.call(call).await {
            Ok(mut document) => document.take(member).map(Some),
            Err(failure) if failure.is_absence() => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Reads all pages of a list. The result is complete or an error.
    pub(crate) async fn list<T: DeserializeOwned>(
        &self,
        call: &Call,
        member: &str,
    ) -> Result<Vec<T>, Failure> {
        for _ in 0..LIST_ATTEMPTS {
            if let Some(entries) = self.pages(call, member).await? {
                return Ok(entries);
            }
        }
        Err(Failure::new(ErrorKind::Unavailable, "a list of the cloud changed between its pages"))
    }

    /// Reads the pages once. `None` if they do not agree.
    async fn pages<T: DeserializeOwned>(&self, call: &Call, member: &str) -> Result<Option<Vec<T>>, Failure> {
        let mut pages = Pages::default();
        let mut number = 1;
        loop {
            let page =
                call.clone().with("sort", SORT).with("per_page", PER_PAGE).with("page", &number.to_string());
            let mut document = self.call(page).await?;
            let Meta { pagination } = document.take("meta")?;
            let ids = document.ids(member);
            match pages.add(document.take(member)?, &ids, pagination) {
                AfterPage::Next(next) => number = next,
                AfterPage::Complete => return Ok(Some(pages.into_entries())),
                AfterPage::Inconsistent => return Ok(None),
            }
        }
    }

    fn request(&self, call: &Call) -> Result<Request<Bytes>, Failure> {
        let body = call.body.as_ref().map(|body| Bytes::from(body.to_string()));
        let mut builder = Request::builder()
            .method(call.method.clone())
            .uri(self.endpoint.uri(&call.path))
            .header(AUTHORIZATION, self.authorization.clone())
            .header(ACCEPT, "application/json")
            .header(USER_AGENT, AGENT);
        if body.is_some() {
            builder = builder.header(CONTENT_TYPE, "application/json");
        }
        builder
            .body(body.unwrap_or_default())
            .map_err(|error| Failure::new(ErrorKind::InvalidSpec, format!("cannot build a request: {error}")))
    }

    fn observe(&self, headers: &HeaderMap) {
        if let Some(rate) = rate::state(headers) {
            let budget = rate::budget(rate, self.caller.now(), self.caller.cloud_time());
            self.rates.note(&self.account, rate, budget);
        }
    }

    fn read(&self, nature: Nature, call: &str, answer: &Response<Bytes>) -> Result<Document, Failure> {
        let (status, body) = (answer.status(), answer.body());
        if !status.is_success() {
            let is_throttled = status.as_u16() == 429;
            let retry_after =
                is_throttled.then(|| rate::retry_after(answer.headers(), self.caller.cloud_time())).flatten();
            let failure = refused(nature, &Refusal { status, body, retry_after });
            // The operator of the cloud finds the request by this id.
            let correlation = header::text(answer.headers(), "x-correlation-id");
            let (status, error) = (status.as_u16(), &failure.error);
            if failure.is_absence() {
                tracing::debug!(call, status, correlation, %error, "The cloud rejected a request");
            } else {
                tracing::info!(call, status, correlation, %error, "The cloud rejected a request");
            }
            return Err(failure);
        }
        let value = match body.as_ref() {
            [] => Value::Null,
            body => serde_json::from_slice(body).map_err(|_| unreadable(nature, "a JSON document"))?,
        };
        Ok(Document { value, nature })
    }
}
