//! Breaks the driver between its client and the cloud. A named rule of the contract must notice
//! each mutant, so the contract can fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{Request, Response};
use machinist_driver::contract::run;
use machinist_driver_aws::{AwsOptions, AwsProvider, NoAnswer, Transport};

use crate::cloud::Cloud;
use crate::pipe;
use crate::subject::settings;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mutant {
    /// Each creation has another client token, as in Go's provider.
    RandomToken,
    /// A list ends after its first page.
    FirstPageOnly,
    /// A lost answer counts as a request that was not sent.
    LostIsNotSent,
    /// A refused read counts as an empty list.
    RefusedIsEmpty,
    /// The wait that the cloud asks for is ignored.
    NoWait,
    /// A deletion is never sent.
    NoDeletion,
    /// Every region is the first one.
    OneRegion,
}

struct Broken {
    http: Arc<dyn Transport>,
    mutant: Mutant,
    tokens: AtomicUsize,
}

#[async_trait]
impl Transport for Broken {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, NoAnswer> {
        let request = self.change(request);
        let is_deletion = is_action(&request, "TerminateInstances");
        if self.mutant == Mutant::NoDeletion && is_deletion {
            return Ok(Response::new("<R><requestId>r</requestId></R>".into()));
        }
        let is_read = is_action(&request, "DescribeInstances");
        match (self.mutant, self.http.send(request).await) {
            (Mutant::LostIsNotSent, Err(lost)) => Err(NoAnswer::NotSent(lost.to_string())),
            (Mutant::RefusedIsEmpty, Ok(answer)) if is_read && !answer.status().is_success() => {
                Ok(Response::new("<R><reservationSet/></R>".into()))
            }
            (Mutant::FirstPageOnly, Ok(answer)) => {
                Ok(answer.map(|body| replaced(&body, "nextToken", "ignored")))
            }
            (Mutant::NoWait, Ok(mut answer)) => {
                answer.headers_mut().remove(RETRY_AFTER);
                Ok(answer)
            }
            (_, answer) => answer,
        }
    }
}

impl Broken {
    fn change(&self, mut request: Request<Bytes>) -> Request<Bytes> {
        match self.mutant {
            Mutant::RandomToken => {
                let number = self.tokens.fetch_add(1, Ordering::Relaxed);
                request.map(|body| replaced(&body, "ClientToken=", &format!("ClientToken={number}-")))
            }
            Mutant::OneRegion => {
                for value in request.headers_mut().values_mut() {
                    let text = value.to_str().expect("text").replace("us-gov-west-1", "eu-west-1");
                    *value = text.parse().expect("a header");
                }
                request
            }
            _ => request,
        }
    }
}

fn is_action(request: &Request<Bytes>, action: &str) -> bool {
    request.body().starts_with(format!("Action={action}&").as_bytes())
}

fn replaced(body: &Bytes, from: &str, to: &str) -> Bytes {
    std::str::from_utf8(body).expect("text").replace(from, to).into()
}

/// The rules that a mutant breaks.
async fn broken_rules(mutant: Mutant) -> Vec<&'static str> {
    let mut cloud = Cloud::with(settings(), AwsOptions::default());
    let http = pipe::http(cloud.fake.clone());
    let broken = Broken { http, mutant, tokens: AtomicUsize::new(0) };
    let clock = cloud.fake.clone();
    cloud.provider =
        AwsProvider::over(Arc::new(broken), cloud.options.clone()).with_clock(move || clock.now());
    run(&cloud).await.failed().map(|(rule, _)| rule).collect()
}

#[tokio::test(start_paused = true)]
async fn the_contract_notices_each_mutant() {
    let cases = [
        (Mutant::RandomToken, "concurrent_ensure_calls_create_one_instance"),
        (Mutant::RandomToken, "ensure_with_a_late_effect_creates_one_instance"),
        (Mutant::FirstPageOnly, "list_is_complete_and_filters_by_cluster"),
        (Mutant::LostIsNotSent, "ensure_with_a_late_effect_creates_one_instance"),
        (Mutant::RefusedIsEmpty, "a_revoked_credential_is_denied"),
        (Mutant::NoWait, "throttling_returns_retry_after"),
        (Mutant::NoDeletion, "a_deleted_instance_becomes_absent"),
        (Mutant::OneRegion, "another_place_cannot_see_the_instance"),
    ];
    for (mutant, rule) in cases {
        let broken = broken_rules(mutant).await;
        assert!(broken.contains(&rule), "{mutant:?} must break {rule}, and breaks {broken:?}");
    }
}
