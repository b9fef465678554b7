//! Faults: which requests they meet, and whether the request takes effect.

use machinist_proxy_aws::AnswerLost;
use serde_json::json;

use crate::client::World;

const ALL: &str = "Action=DescribeInstances&Version=2016-11-15";

#[tokio::test(start_paused = true)]
async fn a_refused_request_has_no_effect() {
    let world = World::new();
    for (code, status) in [("RequestLimitExceeded", 503), ("InsufficientInstanceCapacity", 500)] {
        world.fault_once("RunInstances", json!({"kind": "refuse", "code": code})).await;
        let refused = world.run("t", "a").await.expect("an answer");
        assert_eq!((refused.status, refused.text("Code")), (status, code));
    }
    let with_wait = json!({"kind": "refuse", "code": "Throttling", "status": 400, "retryAfterSeconds": 7});
    world.fault_once("RunInstances", with_wait).await;
    let refused = world.run("t", "a").await.expect("an answer");
    assert_eq!((refused.status, refused.retry_after.as_deref()), (400, Some("7")));
    assert_eq!(world.backend.ever(), 0);
    assert_eq!(world.run("t", "a").await.expect("an answer").ids(), ["i-0"]);
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_had_its_effect() {
    let world = World::new();
    world.fault_once("RunInstances", json!({"kind": "effectThenClose"})).await;
    assert_eq!(world.run("t", "a").await, Err(AnswerLost));
    world.fault_once("RunInstances", json!({"kind": "effectThenError"})).await;
    let lost = world.run("u", "a").await.expect("an answer");
    assert_eq!((lost.status, lost.text("Code")), (500, "InternalError"));
    assert_eq!(world.backend.ever(), 2);
    assert_eq!(world.run("t", "a").await.expect("an answer").ids(), ["i-0"]);
    assert_eq!(world.run("u", "a").await.expect("an answer").ids(), ["i-1"]);
    assert_eq!(world.backend.ever(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_late_effect_comes_when_its_time_has_come() {
    let world = World::new();
    world.fault_once("RunInstances", json!({"kind": "closeThenEffect", "seconds": 60})).await;
    assert_eq!(world.run("t", "a").await, Err(AnswerLost));
    world.advance(59).await;
    assert!(world.answer(ALL).await.ids().is_empty());
    tokio::time::advance(std::time::Duration::from_secs(1)).await;
    assert_eq!(world.answer(ALL).await.ids(), ["i-0"]);
}

#[tokio::test(start_paused = true)]
async fn a_late_effect_of_a_used_token_creates_nothing() {
    let world = World::new();
    world.fault_once("RunInstances", json!({"kind": "closeThenEffect", "seconds": 60})).await;
    assert_eq!(world.run("t", "a").await, Err(AnswerLost));
    assert_eq!(world.run("t", "a").await.expect("an answer").ids(), ["i-0"]);
    world.advance(60).await;
    assert_eq!(world.backend.ever(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_fault_meets_only_its_action_and_its_number() {
    let world = World::new();
    let rule = json!({"action": "RunInstances", "skip": 1, "times": 1, "fault": {"kind": "effectThenClose"}});
    world.control("POST", "/faults", rule).await;
    assert_eq!(world.answer(ALL).await.status, 200);
    assert!(world.run("t", "a").await.is_ok());
    assert!(world.run("u", "a").await.is_err());
    assert!(world.run("v", "a").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn an_absent_backend_is_an_internal_error() {
    let world = World::new();
    world.backend.go_away();
    let answer = world.answer(ALL).await;
    assert_eq!((answer.status, answer.text("Code")), (500, "InternalError"));
    assert!(answer.text("Message").contains("behind the proxy"), "{}", answer.body);
}
