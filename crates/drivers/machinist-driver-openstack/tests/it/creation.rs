//! The steps of a creation: names of objects, regions without volumes, parts in use.

use machinist_instance::{ErrorKind, Sighting};
use serde_json::{Value, json};

use crate::cloud::{Cloud, class, class_with_volume, ensure, instance_spec, native, of_machine, with};
use crate::fake::Settings;

async fn refusal(cloud: &Cloud, class: Value) -> (ErrorKind, String) {
    let error = ensure(&*cloud.driver(), &instance_spec("w-1", class)).await.expect_err("refused");
    (error.kind, error.message)
}

#[tokio::test(start_paused = true)]
async fn names_become_ids() {
    let cloud = Cloud::new();
    let mut class = with("networkID", Value::Null);
    class["spec"]["networks"] = json!([{"id": "net-1"}, {"name": "pods", "podNetwork": true}]);
    class["spec"]["imageID"] = Value::Null;
    class["spec"]["imageName"] = json!("gardenlinux");
    ensure(&*cloud.driver(), &instance_spec("w-1", class)).await.expect("created");
    let requests = cloud.fake.lock().requests.clone();
    let created = requests.iter().find(|request| request.action() == "POST /servers").expect("one");
    let server = &created.body["server"];
    assert_eq!(server["networks"], json!([{"uuid": "net-1"}, {"uuid": "network-0-pods"}]));
    assert_eq!(server["imageRef"], json!("image-0-gardenlinux"));
    assert_eq!(server["flavorRef"], json!("f1"));
    assert_eq!(server["security_groups"], json!([{"name": "shoot--foo--os"}]));
    assert_eq!(cloud.fake.count("POST /ports"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_name_without_an_object_is_named_before_a_creation() {
    let cloud = Cloud::new();
    let invalid = ErrorKind::InvalidSpec;
    let mut by_name = with("imageID", Value::Null);
    by_name["spec"]["imageName"] = json!("none");
    let (kind, text) = refusal(&cloud, by_name.clone()).await;
    assert_eq!(kind, invalid);
    assert!(
        text.starts_with("providerSpec.spec.imageName: expected the name of one of the images"),
        "{text}"
    );
    by_name["spec"]["imageName"] = json!("two images");
    let (_, text) = refusal(&cloud, by_name).await;
    assert!(text.contains("expected a unique name, but 2 images are called two images"), "{text}");
    let (_, text) = refusal(&cloud, with("securityGroups", json!(["none"]))).await;
    assert!(text.starts_with("providerSpec.spec.securityGroups: expected names"), "{text}");
    // Go's provider and Gardener count a flavor that was withdrawn as used up.
    let (kind, text) = refusal(&cloud, with("flavorName", json!("m1.none"))).await;
    assert_eq!(kind, ErrorKind::Exhausted);
    assert!(text.contains("m1.none does not exist"), "{text}");
    let mut class = class_with_volume();
    class["spec"]["securityGroups"] = json!(["two groups"]);
    assert!(refusal(&cloud, class).await.1.contains("two groups has 2"));
    assert_eq!(cloud.fake.parts(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_region_without_volumes_is_served() {
    let cloud = Cloud::with(Settings { has_volumes: false, ..Settings::default() });
    let spec = instance_spec("w-1", class());
    let made = ensure(&*cloud.driver(), &spec).await.expect("created");
    crate::cloud::delete(&*cloud.driver(), &of_machine(&spec, Some(&made.id)), &spec.key).await;
    let (kind, text) = refusal(&cloud, class_with_volume()).await;
    assert_eq!(kind, ErrorKind::InvalidSpec);
    let expected = "providerSpec.spec.rootDiskType: expected nothing, because the region has no Cinder";
    assert_eq!(text, expected);
}

#[tokio::test(start_paused = true)]
async fn a_volume_in_error_ends_the_creation() {
    let cloud = Cloud::new();
    let driver = cloud.driver();
    let spec = instance_spec("w-1", class_with_volume());
    driver.instances().ensure(&spec).await.expect_err("the volume is filled");
    cloud.fake.lock().volumes[0].state = Some("error");
    let error = driver.instances().ensure(&spec).await.expect_err("no backend");
    assert!(error.is_instance_failed() && error.kind == ErrorKind::Exhausted, "{error}");
    assert!(error.state.is_some());
    crate::cloud::delete(&*driver, &of_machine(&spec, None), &spec.key).await;
    assert_eq!(cloud.fake.parts(), (0, 0));
}

/// Another controller has created the server between the look and the creation.
#[tokio::test(start_paused = true)]
async fn a_port_that_was_taken_is_looked_at_again() {
    let cloud = Cloud::new();
    let driver = cloud.driver();
    let conflict = |text| crate::subject::refuse(409, "conflictingRequest", text);
    cloud.fake.inject("POST /servers", conflict("Port 1 is still in use."));
    let spec = instance_spec("w-1", class());
    let waits = driver.instances().ensure(&spec).await.expect_err("in use");
    assert!(waits.is_in_progress(), "{waits}");
    let volume = "Invalid volume: volume 1 status must be 'available'. Currently in 'reserved'";
    cloud.fake.inject("POST /servers", crate::subject::refuse(400, "badRequest", volume));
    let waits = driver.instances().ensure(&spec).await.expect_err("reserved");
    assert!(waits.is_in_progress(), "{waits}");
    cloud.fake.inject("POST /servers", conflict("No Unique match found for group nodes, use an ID."));
    let error = driver.instances().ensure(&spec).await.expect_err("two groups");
    assert_eq!(error.kind, ErrorKind::InvalidSpec);
}

/// A user attached the port of a Machine to another server.
#[tokio::test(start_paused = true)]
#[expect(clippy::disallowed_methods, reason = "the test checks the refusal")]
async fn a_part_of_another_server_is_neither_used_nor_deleted() {
    let cloud = Cloud::new();
    let driver = cloud.driver();
    let spec = instance_spec("w-1", class());
    cloud.fake.inject("POST /servers", crate::subject::refuse(400, "badRequest", "Invalid key_name"));
    driver.instances().ensure(&spec).await.expect_err("refused");
    let pet = cloud.server("pet", &[]);
    cloud.fake.lock().ports[0].device = native(&pet).to_owned();
    for refused in [
        driver.instances().ensure(&spec).await.map(drop),
        driver.instances().delete(&of_machine(&spec, None), &spec.key).await,
    ] {
        let error = refused.expect_err("in use");
        assert_eq!(error.kind, ErrorKind::Denied);
        assert!(error.message.contains("is used by another server"), "{error}");
    }
    let found = driver.instances().find(&of_machine(&spec, None)).await;
    assert!(matches!(found, Ok(Sighting::Parts(_))), "{found:?}");
    assert_eq!(cloud.fake.parts(), (1, 0));

    let spec = instance_spec("w-2", class_with_volume());
    driver.instances().ensure(&spec).await.expect_err("the volume is filled");
    cloud.fake.lock().volumes[0].server = native(&pet).to_owned();
    let refused = driver.instances().delete(&of_machine(&spec, None), &spec.key).await;
    assert!(refused.is_err_and(|error| error.message.contains("volume") && error.kind == ErrorKind::Denied));
    assert_eq!(cloud.fake.parts(), (1, 1));
}
