//! Client tokens: one creation per token, and what a repeated request gets.

use futures::future::{join, join_all};
use tokio::io::{AsyncWriteExt as _, duplex};

use crate::backend::id;
use crate::client::{Signer, USER, World, run_form};

const ALL: &str = "Action=DescribeInstances&Version=2016-11-15";

#[tokio::test(start_paused = true)]
async fn a_repeated_token_shows_the_instance_as_it_is_now() {
    let world = World::new();
    let first = world.run("t", "a").await.expect("an answer");
    assert_eq!((first.status, first.ids()), (200, vec!["i-0"]));
    assert_eq!(first.text("clientToken"), "t");
    world.backend.set_state(0, "stopped");
    let again = world.run("t", "a").await.expect("an answer");
    assert_eq!((again.status, again.ids(), again.text("name")), (200, vec!["i-0"], "stopped"));
    assert!(again.body.starts_with("<RunInstancesResponse"), "{}", again.body);
    assert_eq!(again.text("clientToken"), "t");
    assert_eq!(world.backend.ever(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_token_with_other_parameters_is_refused() {
    let world = World::new();
    world.run("t", "a").await.expect("an answer");
    let refused = world.run("t", "b").await.expect("an answer");
    assert_eq!((refused.status, refused.text("Code")), (400, "IdempotentParameterMismatch"));
    let created = world.run("u", "b").await.expect("an answer");
    assert_eq!((created.ids(), world.backend.ever()), (vec!["i-1"], 2));
}

#[tokio::test(start_paused = true)]
async fn a_token_of_a_terminated_instance_is_refused() {
    let world = World::new();
    world.run("t", "a").await.expect("an answer");
    for state in ["terminated", "forgotten"] {
        world.backend.set_state(0, state);
        for data in ["a", "b"] {
            let refused = world.run("t", data).await.expect("an answer");
            assert_eq!((refused.status, refused.text("Code")), (400, "IdempotentInstanceTerminated"));
        }
    }
    assert_eq!(world.backend.ever(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_token_counts_per_region() {
    let world = World::new();
    world.run("t", "a").await.expect("an answer");
    let elsewhere = Signer { region: "us-east-1", ..USER };
    let created = world.send_as(elsewhere, &run_form("t", "a")).await.expect("an answer");
    assert_eq!(created.ids(), ["i-1"]);
}

/// The documentation of EC2: a repeated request may have another zone.
#[tokio::test(start_paused = true)]
async fn a_token_counts_per_zone_of_the_named_subnet() {
    let world = World::new();
    let run = async |subnet: &str| {
        let form = format!("{}&NetworkInterface.1.SubnetId={subnet}", run_form("t", "a"));
        world.answer(&form).await
    };
    assert_eq!(run("subnet-a-1").await.ids(), ["i-0"]);
    assert_eq!(run("subnet-a-1").await.ids(), ["i-0"]);
    assert_eq!(run("subnet-a-2").await.text("Code"), "IdempotentParameterMismatch");
    assert_eq!(run("subnet-b-1").await.ids(), ["i-1"]);
    let placed = format!("{}&Placement.AvailabilityZone=c", run_form("t", "a"));
    assert_eq!(world.answer(&placed).await.ids(), ["i-2"]);
    let by_token = format!("{ALL}&Filter.1.Name=client-token&Filter.1.Value.1=t");
    assert_eq!(world.answer(&by_token).await.ids(), ["i-0", "i-1", "i-2"]);
    world.backend.refuse_next_creation("InvalidSubnetID.NotFound");
    assert_eq!(run("unknown").await.text("Code"), "InvalidSubnetID.NotFound");
}

#[tokio::test(start_paused = true)]
async fn requests_at_the_same_time_create_one_instance() {
    let world = World::new();
    world.backend.gate.forget_permits(usize::MAX);
    let requests = join_all((0..10).map(|_| world.run("t", "a")));
    let release = async {
        world.backend.begun.acquire().await.expect("open").forget();
        world.backend.gate.add_permits(100);
    };
    for reply in join(requests, release).await.0 {
        assert_eq!(reply.expect("an answer").ids(), ["i-0"]);
    }
    assert_eq!(world.backend.ever(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_refused_creation_leaves_its_token_free() {
    let world = World::new();
    world.backend.refuse_next_creation("InvalidSubnetID.NotFound");
    let refused = world.run("t", "a").await.expect("an answer");
    assert_eq!((refused.status, refused.text("Code")), (400, "InvalidSubnetID.NotFound"));
    assert_eq!(world.run("t", "b").await.expect("an answer").ids(), ["i-0"]);
}

#[tokio::test(start_paused = true)]
async fn a_creation_without_a_token_is_never_repeated() {
    let world = World::new();
    let form = "Action=RunInstances&Version=2016-11-15";
    assert_eq!(world.answer(form).await.ids(), ["i-0"]);
    assert_eq!(world.answer(form).await.ids(), ["i-1"]);
}

#[tokio::test(start_paused = true)]
async fn the_filter_client_token_finds_its_instance() {
    let world = World::new();
    world.run("t", "a").await.expect("an answer");
    world.run("u", "a").await.expect("an answer");
    let by = |token: &str| format!("{ALL}&Filter.1.Name=client-token&Filter.1.Value.1={token}");
    let found = world.answer(&by("u")).await;
    assert_eq!((found.ids(), found.text("clientToken")), (vec!["i-1"], "u"));
    assert!(world.answer(&by("another")).await.ids().is_empty());
    let elsewhere = Signer { region: "us-east-1", ..USER };
    assert!(world.send_as(elsewhere, &by("u")).await.expect("an answer").ids().is_empty());
    assert_eq!(world.answer(ALL).await.ids(), ["i-0", "i-1"]);
}

/// A client that is killed during its request does not end the request.
#[tokio::test(start_paused = true)]
async fn a_client_that_ends_leaves_a_known_token() {
    let world = World::new();
    world.backend.gate.forget_permits(usize::MAX);
    let request = world.signed(USER, &run_form("t", "a"));
    let mut bytes = format!("POST / HTTP/1.1\r\ncontent-length: {}\r\n", request.body().len());
    for (name, value) in request.headers() {
        bytes.push_str(&format!("{name}: {}\r\n", value.to_str().expect("text")));
    }
    bytes.push_str("\r\n");
    bytes.push_str(std::str::from_utf8(request.body()).expect("text"));

    let (mut client, far) = duplex(64 * 1024);
    let serving = tokio::spawn(machinist_serve::serve_connection(world.proxy.clone(), far));
    client.write_all(bytes.as_bytes()).await.expect("written");
    world.backend.begun.acquire().await.expect("open").forget();
    drop(client);
    serving.await.expect("the connection ended");
    world.backend.gate.add_permits(100);

    let again = world.run("t", "a").await.expect("an answer");
    assert_eq!((again.ids(), world.backend.ever()), (vec![id(0).as_str()], 1));
}
