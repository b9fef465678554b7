//! Equal simulations have equal requests.

use std::time::Duration;

use crate::world::{TOKEN, World};

async fn trace() -> Vec<String> {
    let mut world = World::new().await;
    for number in 0..5 {
        world.make(&format!("w-{number}"), TOKEN).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.bind_pod("p", "w-3", 30).await;
    let victim = world.cloud.ledger().ever()[1].id.clone();
    world.cloud.kill(&victim).expect("the instance exists");
    tokio::time::sleep(Duration::from_secs(90)).await;
    let requests = world.audit.drain();
    requests
        .iter()
        .map(|r| {
            format!(
                "{} {} {}/{} {} {} {:?}",
                r.user, r.verb, r.resource, r.subresource, r.name, r.code, r.revision
            )
        })
        .collect()
}

#[test]
fn two_runs_have_the_same_trace() {
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(trace())
    };
    let (first, second) = (run(), run());
    assert!(!first.is_empty());
    for (number, (left, right)) in first.iter().zip(&second).enumerate() {
        assert_eq!(left, right, "request {number}");
    }
    assert_eq!(first.len(), second.len());
}
