//! Signatures of whole requests, and the keys of a workload.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use serde_json::json;

use crate::backend::TEMPORARY;
use crate::client::{Reply, Signer, USER, World, run_form};

const ALL: &str = "Action=DescribeInstances&Version=2016-11-15";

async fn code_of(world: &World, signer: Signer<'_>) -> (u16, String) {
    let Reply { status, .. } = world.send_as(signer, ALL).await.expect("an answer");
    let reply = world.send_as(signer, ALL).await.expect("an answer");
    assert_eq!(reply.status, status);
    (status, reply.text("Code").to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_request_needs_the_right_keys() {
    let world = World::new();
    assert_eq!(code_of(&world, USER).await, (200, String::new()));
    let wrong_secret = Signer { secret_key: "another", ..USER };
    assert_eq!(code_of(&world, wrong_secret).await, (403, "SignatureDoesNotMatch".to_owned()));
    let wrong_key = Signer { access_key: "AKIA2", ..USER };
    assert_eq!(code_of(&world, wrong_key).await, (401, "AuthFailure".to_owned()));
    let refused = world.send_as(wrong_secret, &run_form("t", "a")).await.expect("an answer");
    assert_eq!((refused.status, world.backend.ever()), (403, 0));
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_signature_is_refused() {
    let world = World::new();
    let request = Request::post("/").body(Bytes::from_static(ALL.as_bytes())).expect("a request");
    let refused = world.send_request(request).await.expect("an answer");
    assert_eq!((refused.status, refused.text("Code")), (403, "MissingAuthenticationToken"));
}

#[tokio::test(start_paused = true)]
async fn an_old_signature_is_refused() {
    let world = World::new();
    let request = world.signed(USER, ALL);
    tokio::time::advance(Duration::from_secs(16 * 60)).await;
    let refused = world.send_request(request).await.expect("an answer");
    assert_eq!((refused.status, refused.text("Code")), (400, "RequestExpired"));
    assert_eq!(world.answer(ALL).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn the_operator_revokes_and_accepts_keys() {
    let world = World::new();
    world.control("DELETE", "/keys/AKIA1", json!({})).await;
    assert_eq!(code_of(&world, USER).await, (401, "AuthFailure".to_owned()));
    world.control("PUT", "/keys/AKIA1", json!({"secretKey": "another"})).await;
    let another = Signer { secret_key: "another", ..USER };
    assert_eq!(code_of(&world, another).await, (200, String::new()));
}

#[tokio::test(start_paused = true)]
async fn a_workload_gets_keys_that_expire() {
    let world = World::new();
    let (access_key, secret_key, session) = TEMPORARY;
    let temporary = Signer { access_key, secret_key, session: Some(session), ..USER };
    assert_eq!(code_of(&world, temporary).await, (401, "AuthFailure".to_owned()));
    let form = "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&WebIdentityToken=x";
    let request = Request::post("/").body(Bytes::from_static(form.as_bytes())).expect("a request");
    assert_eq!(world.send_request(request).await.expect("an answer").status, 200);
    assert_eq!(code_of(&world, temporary).await, (200, String::new()));
    let without = Signer { session: None, ..temporary };
    assert_eq!(code_of(&world, without).await, (403, "InvalidClientTokenId".to_owned()));
    tokio::time::advance(Duration::from_secs(3600)).await;
    assert_eq!(code_of(&world, temporary).await, (400, "RequestExpired".to_owned()));
}
