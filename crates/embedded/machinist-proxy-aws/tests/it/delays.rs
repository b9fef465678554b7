//! New instances that reads do not show yet.

use serde_json::json;

use crate::client::World;

const ALL: &str = "Action=DescribeInstances&Version=2016-11-15";
const BY_ID: &str = "Action=DescribeInstances&Version=2016-11-15&InstanceId.1=i-0";
const BY_TOKEN: &str =
    "Action=DescribeInstances&Version=2016-11-15&Filter.1.Name=client-token&Filter.1.Value.1=t";

#[tokio::test(start_paused = true)]
async fn lists_show_a_new_instance_later() {
    let world = World::new();
    world.control("PUT", "/delay", json!({"inListsSeconds": 300})).await;
    assert_eq!(world.run("t", "a").await.expect("an answer").ids(), ["i-0"]);
    for form in [ALL, BY_TOKEN] {
        let shown = world.answer(form).await;
        assert_eq!((shown.status, shown.ids()), (200, vec![]));
    }
    assert_eq!(world.answer(BY_ID).await.ids(), ["i-0"]);
    // The token is not a read: it knows the instance at once.
    assert_eq!(world.run("t", "a").await.expect("an answer").ids(), ["i-0"]);
    world.advance(299).await;
    assert!(world.answer(ALL).await.ids().is_empty());
    world.advance(1).await;
    assert_eq!(world.answer(ALL).await.ids(), ["i-0"]);
    assert_eq!(world.answer(BY_TOKEN).await.ids(), ["i-0"]);
}

#[tokio::test(start_paused = true)]
async fn a_read_by_id_does_not_find_a_new_instance() {
    let world = World::new();
    world.control("PUT", "/delay", json!({"byIdSeconds": 10})).await;
    world.run("t", "a").await.expect("an answer");
    let absent = world.answer(BY_ID).await;
    assert_eq!((absent.status, absent.text("Code")), (400, "InvalidInstanceID.NotFound"));
    assert_eq!(world.answer(ALL).await.ids(), ["i-0"]);
    world.control("DELETE", "/delay", json!({})).await;
    assert_eq!(world.answer(BY_ID).await.ids(), ["i-0"]);
}

#[tokio::test(start_paused = true)]
async fn instances_that_existed_before_are_shown() {
    let world = World::new();
    world.run("t", "a").await.expect("an answer");
    world.control("PUT", "/delay", json!({"inListsSeconds": 300, "byIdSeconds": 300})).await;
    world.answer("Action=RunInstances&Version=2016-11-15").await;
    assert_eq!(world.answer(ALL).await.ids(), ["i-0"]);
}
