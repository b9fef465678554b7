//! Faults on request.

use std::time::Duration;

use http::Method;
use machinist_standin_hcloud::{Fault, FaultRule, Standin};
use serde_json::json;

use crate::client::{Client, instant, names, standin};

const LIST: &str = "/v1/servers";

fn once(standin: &Standin, method: &str, path: &str, fault: Fault) {
    standin.add_fault(FaultRule::once(method, path, fault));
}

fn a_server() -> serde_json::Value {
    json!({"name": "a", "server_type": "cx22", "image": "ubuntu-24.04"})
}

#[tokio::test(start_paused = true)]
async fn an_injected_error_has_no_effect() {
    let standin = standin(instant());
    let client = Client::new(&standin);
    let fault = |code: &str| Fault::Error { code: code.to_owned(), status: None };
    for (code, status) in [("conflict", 409), ("service_error", 503), ("rate_limit_exceeded", 429)] {
        once(&standin, "POST", LIST, fault(code));
        assert_eq!(client.post(LIST, a_server()).await.failure(), (status, code));
    }
    once(&standin, "POST", LIST, Fault::Bare { status: 502 });
    let reply = client.post(LIST, a_server()).await;
    assert_eq!((reply.status.as_u16(), reply.text.as_str()), (502, ""));
    once(&standin, "GET", "/v1/servers/{id}", Fault::Html404);
    let reply = client.get("/v1/servers/7").await;
    assert_eq!((reply.failure(), reply.header("content-type")), ((404, ""), "text/html"));
    assert_eq!(standin.servers_ever().len(), 0);
    assert!(standin.faults().is_empty(), "each rule was used once");
}

#[tokio::test(start_paused = true)]
async fn a_broken_connection_may_hide_an_effect() {
    let standin = standin(instant());
    let client = Client::new(&standin);
    for (fault, made) in
        [(Fault::Reset, 0), (Fault::Hang { span: Duration::from_secs(60) }, 0), (Fault::EffectThenReset, 1)]
    {
        once(&standin, "POST", LIST, fault.clone());
        client.try_send(Method::POST, LIST, Some(a_server())).await.expect_err("no reply");
        assert_eq!(standin.servers_ever().len(), made, "{fault:?}");
    }
    once(&standin, "POST", LIST, Fault::EffectThenError { code: "server_error".to_owned() });
    let second = json!({"name": "b", "server_type": "cx22", "image": "ubuntu-24.04"});
    assert_eq!(client.post(LIST, second).await.failure(), (500, "server_error"));
    assert_eq!(standin.servers_ever().len(), 2);
    assert_eq!(standin.requests().iter().filter(|request| request.status.is_none()).count(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_delayed_request_works_after_its_client_left() {
    let standin = standin(instant());
    let client = Client::new(&standin);
    once(&standin, "POST", LIST, Fault::Delay { by: Duration::from_secs(30) });
    let request = client.try_send(Method::POST, LIST, Some(a_server()));
    tokio::time::timeout(Duration::from_secs(15), request).await.expect_err("the client stops waiting");
    assert_eq!(standin.servers_ever().len(), 0);
    tokio::time::sleep(Duration::from_secs(16)).await;
    assert_eq!(standin.servers_ever().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_body_breaks_off_or_comes_late() {
    let standin = standin(instant());
    let client = Client::new(&standin);
    client.server("a").await;
    once(&standin, "GET", LIST, Fault::Truncate);
    client.try_send(Method::GET, LIST, None).await.expect_err("half of the body is missing");
    once(&standin, "GET", LIST, Fault::SlowBody { span: Duration::from_secs(20) });
    let started = tokio::time::Instant::now();
    assert_eq!(names(&client.get(LIST).await, "servers"), ["a"]);
    assert_eq!(started.elapsed().as_secs(), 20);
}

#[tokio::test(start_paused = true)]
async fn lists_can_be_empty_old_or_incomplete() {
    let standin = standin(instant());
    let client = Client::new(&standin);
    let first = client.server("a").await;
    client.server("b").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    client.server("c").await;
    client.delete(&format!("/v1/servers/{first}")).await;
    for (fault, expected) in [
        (Fault::EmptyList, vec![]),
        (Fault::StaleList { age: Duration::from_secs(30) }, vec!["a", "b"]),
        (Fault::Omit { id: standin.servers_ever()[1].id }, vec!["c"]),
    ] {
        once(&standin, "GET", LIST, fault.clone());
        assert_eq!(names(&client.get(LIST).await, "servers"), expected, "{fault:?}");
    }
    assert_eq!(names(&client.get(LIST).await, "servers"), ["b", "c"]);
    standin.add_fault(FaultRule::always("GET", LIST, Fault::OmitAtPageBoundary));
    let pages = [1, 2].map(|page| format!("{LIST}?per_page=1&page={page}"));
    let mut seen = Vec::new();
    for page in &pages {
        let reply = client.get(page).await;
        assert_eq!(reply.json["meta"]["pagination"]["total_entries"], 2);
        seen.extend(names(&reply, "servers").into_iter().map(str::to_owned));
    }
    assert_eq!(seen, ["b"]);
    standin.clear_faults();
}

#[tokio::test(start_paused = true)]
async fn the_draws_of_a_percentage_depend_on_the_seed() {
    let run = async |seed: u32| {
        let standin = standin(machinist_standin_hcloud::Settings { seed, ..instant() });
        let client = Client::new(&standin);
        let fault = Fault::Bare { status: 503 };
        standin.add_fault(FaultRule { percent: Some(50), ..FaultRule::everywhere(fault) });
        let mut failures = Vec::new();
        for _ in 0..64 {
            failures.push(client.get(LIST).await.status.as_u16() == 503);
        }
        failures
    };
    let first = run(1).await;
    assert_eq!(first, run(1).await);
    assert_ne!(first, run(2).await);
    let count = first.iter().filter(|failed| **failed).count();
    assert!((16..48).contains(&count), "{count} of 64");
}
