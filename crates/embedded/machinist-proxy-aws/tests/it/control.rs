//! The operator's functions: what they show, and the errors of wrong requests.

use serde_json::json;

use crate::client::World;

#[tokio::test(start_paused = true)]
async fn the_operator_sees_requests_rules_and_the_backend() {
    let world = World::new();
    world.run("t", "a").await.expect("an answer");
    world.run("t", "a").await.expect("an answer");
    world.answer("Action=DescribeInstances&Version=2016-11-15").await;
    let shown = world.control("GET", "", json!({})).await;
    let requests = json!({"RunInstances": 2, "DescribeInstances": 1});
    assert_eq!(shown, json!({"backend": "http://backend", "tokens": 1, "requests": requests}));
    let rule = json!({"action": "RunInstances", "skip": 0, "times": 2, "fault": {"kind": "effectThenError"}});
    world.control("POST", "/faults", rule.clone()).await;
    assert_eq!(world.control("GET", "/faults", json!({})).await, json!([rule]));
    world.control("DELETE", "/faults", json!({})).await;
    assert_eq!(world.control("GET", "/faults", json!({})).await, json!([]));
}

#[tokio::test(start_paused = true)]
async fn a_wrong_request_of_the_operator_names_its_field() {
    let world = World::new();
    let day = 24 * 3600;
    let late = |seconds: i64| json!({"kind": "closeThenEffect", "seconds": seconds});
    let rule = |fault| json!({"action": "RunInstances", "fault": fault}).to_string();
    for (method, path, body, expected) in [
        ("POST", "/advance", json!({"seconds": day + 1}).to_string(), "seconds: expected at most 86400"),
        ("PUT", "/delay", json!({"byIdSeconds": day + 1}).to_string(), "byIdSeconds: expected at most"),
        ("PUT", "/delay", json!({"another": 1}).to_string(), "body: expected JSON"),
        ("POST", "/faults", rule(late(day + 1)), "fault.seconds: expected at most"),
        ("POST", "/faults", rule(json!({"kind": "refuse", "code": "x", "status": 200})), "fault.status: "),
        ("POST", "/faults", json!({"action": "x", "times": 0, "fault": late(1)}).to_string(), "times: "),
        ("POST", "/faults", rule(json!({"kind": "another"})), "body: expected JSON"),
    ] {
        let reply = world.try_control(method, path, &body).await;
        assert_eq!(reply.status, 400, "{path} {body}");
        assert!(reply.body.contains(expected), "{path} {body}: {}", reply.body);
    }
    assert_eq!(world.try_control("PUT", "/another", "{}").await.status, 404);
    let reply = world.try_control("PUT", "/keys/AKIA1", "{\"secretKey\": \"canary").await;
    assert!(reply.status == 400 && !reply.body.contains("canary"), "{}", reply.body);
}
