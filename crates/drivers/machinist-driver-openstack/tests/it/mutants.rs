//! Breaks the driver between its client and the cloud. A named rule of the contract must notice
//! each mutant, so the contract can fail.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{Method, Request, Response, StatusCode};
use machinist_driver::contract::run;
use machinist_driver_http::{NoAnswer, Transport};

use crate::cloud::Cloud;
use crate::pipe;
use crate::subject::settings;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mutant {
    /// The search for a port finds none, so each creation makes another one.
    NoLock,
    /// A list ends after its first page.
    FirstPageOnly,
    /// A lost answer counts as a request that was not sent.
    LostIsNotSent,
    /// A refused read counts as an empty list.
    RefusedIsEmpty,
    /// The wait that the cloud asks for is ignored.
    NoWait,
    /// The deletion of a server is never sent.
    NoDeletion,
    /// The deletion of a port is never sent.
    NoDeletionOfParts,
    /// Every region is the first one.
    OneRegion,
}

struct Broken {
    http: Arc<dyn Transport>,
    mutant: Mutant,
}

#[async_trait]
impl Transport for Broken {
    async fn send(&self, mut request: Request<Bytes>) -> Result<Response<Bytes>, NoAnswer> {
        let path = request.uri().path().to_owned();
        let (is_read, is_deletion) = (request.method() == Method::GET, request.method() == Method::DELETE);
        let is_skipped = match self.mutant {
            Mutant::NoDeletion => is_deletion && path.contains("/servers/"),
            Mutant::NoDeletionOfParts => is_deletion && path.contains("/ports/"),
            _ => false,
        };
        if is_skipped {
            return Ok(empty(StatusCode::NO_CONTENT, ""));
        }
        if self.mutant == Mutant::NoLock && is_read && path.ends_with("/ports") {
            return Ok(empty(StatusCode::OK, "{\"ports\": []}"));
        }
        if self.mutant == Mutant::OneRegion {
            let uri = request.uri().to_string().replace("eu-de-2", "eu-nl-1");
            *request.uri_mut() = uri.parse().expect("a URL");
        }
        match (self.mutant, self.http.send(request).await) {
            (Mutant::LostIsNotSent, Err(lost)) => Err(NoAnswer::NotSent(lost.to_string())),
            (Mutant::RefusedIsEmpty, Ok(answer)) if is_read && !answer.status().is_success() => {
                Ok(empty(StatusCode::OK, "{\"servers\": [], \"ports\": [], \"volumes\": []}"))
            }
            (Mutant::FirstPageOnly, Ok(answer)) => {
                Ok(answer.map(|body| replaced(&body, "servers_links", "ignored")))
            }
            (Mutant::NoWait, Ok(mut answer)) => {
                answer.headers_mut().remove(RETRY_AFTER);
                Ok(answer)
            }
            (_, answer) => answer,
        }
    }
}

fn empty(status: StatusCode, body: &'static str) -> Response<Bytes> {
    Response::builder().status(status).body(body.into()).expect("a response")
}

fn replaced(body: &Bytes, from: &str, to: &str) -> Bytes {
    std::str::from_utf8(body).expect("text").replace(from, to).into()
}

/// The rules that a mutant breaks.
async fn broken_rules(mutant: Mutant) -> Vec<&'static str> {
    let mut cloud = Cloud::with(settings());
    let http = pipe::http(cloud.fake.clone());
    cloud.provider = cloud.provider.clone().over(Arc::new(Broken { http, mutant }));
    run(&cloud).await.failed().map(|(rule, _)| rule).collect()
}

#[tokio::test(start_paused = true)]
async fn the_contract_notices_each_mutant() {
    let cases = [
        (Mutant::NoLock, "ensure_with_a_late_effect_creates_one_instance"),
        (Mutant::FirstPageOnly, "list_is_complete_and_filters_by_cluster"),
        (Mutant::LostIsNotSent, "ensure_with_a_late_effect_creates_one_instance"),
        (Mutant::RefusedIsEmpty, "an_outage_is_unavailable_and_has_no_effect"),
        (Mutant::NoWait, "throttling_returns_retry_after"),
        (Mutant::NoDeletion, "a_deleted_instance_becomes_absent"),
        (Mutant::NoDeletionOfParts, "parts_of_a_failed_creation_are_deleted"),
        (Mutant::OneRegion, "another_place_cannot_see_the_instance"),
    ];
    for (mutant, rule) in cases {
        let broken = broken_rules(mutant).await;
        assert!(broken.contains(&rule), "{mutant:?} must break {rule}, and breaks {broken:?}");
    }
}
