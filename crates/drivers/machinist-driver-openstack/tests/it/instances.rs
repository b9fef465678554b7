//! Lookups, tokens, missing answers, the fence, and the number of requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use machinist_driver::Fence;
use machinist_driver_openstack::PROMISES;
use machinist_instance::{ErrorKind, InstanceKey, InstanceRef, ProviderId, Scope, Sighting};
use tokio::time::Instant;

use crate::cloud::{
    Cloud, USER, by_id, class, class_with_volume, credential, delete, ensure, found, instance_spec, native,
    of_machine,
};
use crate::fake::{FaultKind, Settings};
use crate::subject::refuse;

const ABSENT: &str = "openstack:///eu-nl-1/5d8d6bd5-3c39-4bcb-a4c5-0a4c7a8f0001";

#[tokio::test(start_paused = true)]
async fn an_error_never_proves_absence() {
    let cloud = Cloud::new();
    let id = cloud.made_by_go("w-1");
    let driver = cloud.driver();
    let faults = [
        (FaultKind::Garbage(404, "<html>"), ErrorKind::Unavailable),
        (FaultKind::Garbage(200, "<html>"), ErrorKind::Unavailable),
        (FaultKind::Garbage(200, ""), ErrorKind::Unavailable),
        (refuse(403, "forbidden", "Policy doesn't allow it"), ErrorKind::Denied),
        (refuse(500, "computeFault", "an error"), ErrorKind::Unavailable),
        (FaultKind::EffectThenSilence, ErrorKind::Unavailable),
    ];
    for (fault, kind) in faults {
        cloud.fake.inject("GET /servers/ID", fault.clone());
        let found = driver.instances().find(&by_id(&id)).await;
        assert_eq!(found.map_err(|error| error.kind), Err(kind), "{fault:?}");
    }
    let absent = by_id(&ProviderId::parse(ABSENT).expect("not empty"));
    assert_eq!(driver.instances().find(&absent).await, Ok(Sighting::Absent));
    // The parts may exist while Neutron or Cinder is down.
    let which = InstanceRef { key: Some(InstanceKey::new("uid")), ..absent };
    for action in ["GET /ports", "GET /volumes/detail"] {
        cloud.fake.inject(action, refuse(503, "computeFault", "down"));
        let found = driver.instances().find(&which).await;
        assert_eq!(found.map_err(|error| error.kind), Err(ErrorKind::Unavailable), "{action}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_is_shared_and_renewed_before_it_expires() {
    let cloud = Cloud::with(Settings { token: Duration::from_secs(3600), ..Settings::default() });
    let driver = cloud.driver();
    let logins = || cloud.fake.lock().logins.len();
    let list = || async { driver.instances().list(&Scope::Visible).await.expect("a list") };
    let _ = tokio::join!(list(), list(), list());
    assert_eq!(logins(), 1, "concurrent calls wait for one login");
    tokio::time::sleep(Duration::from_secs(3299)).await;
    list().await;
    assert_eq!(logins(), 1);
    tokio::time::sleep(Duration::from_secs(2)).await;
    list().await;
    assert_eq!((logins(), cloud.fake.lock().tokens.len()), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_refused_is_renewed_once() {
    let cloud = Cloud::new();
    let driver = cloud.driver();
    driver.instances().list(&Scope::Visible).await.expect("a list");
    cloud.fake.lock().tokens.clear();
    // A creation is repeated as well: the refused request had no effect.
    ensure(&*driver, &instance_spec("w-1", class())).await.expect("created");
    assert_eq!(cloud.fake.lock().logins.len(), 2);
    assert_eq!(cloud.fake.alive("uid-of-w-1"), 1);
    cloud.fake.lock().tokens.clear();
    cloud.fake.lock().users.clear();
    let error = driver.instances().list(&Scope::Visible).await.expect_err("no user");
    assert_eq!(error.kind, ErrorKind::Denied);
    assert!(error.message.contains("Check authURL") && !error.message.contains("canary"), "{error}");
    assert_eq!(cloud.fake.lock().logins.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_region_names_those_that_exist() {
    let cloud = Cloud::new();
    let driver = cloud.open(&credential(USER), "eu-typo");
    let error = driver.instances().list(&Scope::Visible).await.expect_err("no such region");
    assert_eq!(error.kind, ErrorKind::InvalidSpec);
    assert!(error.message.contains("eu-typo") && error.message.contains("eu-de-2, eu-nl-1"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_was_not_sent_is_unavailable() {
    let cloud = Cloud::new();
    cloud.fake.set_unreachable(true);
    let spec = instance_spec("w-1", class());
    let error = cloud.driver().instances().ensure(&spec).await.expect_err("unreachable");
    assert_eq!(
        (error.kind, error.message.as_str()),
        (ErrorKind::Unavailable, "Keystone: POST /v3/auth/tokens: cannot connect to keystone")
    );
    cloud.fake.set_unreachable(false);
    // A garbled answer to a creation says nothing about its effect.
    cloud.fake.inject("POST /servers", FaultKind::Garbage(202, "<html/>"));
    let error = cloud.driver().instances().ensure(&spec).await.expect_err("garbled");
    assert_eq!(error.kind, ErrorKind::Ambiguous);
}

/// A creation has many requests. The last one does not begin late.
#[tokio::test(start_paused = true)]
async fn a_slow_cloud_does_not_stretch_the_call_bound() {
    let cloud = Cloud::new();
    let driver = cloud.driver();
    assert_eq!(PROMISES.call_bound, Duration::from_secs(80));
    for action in ["GET /servers/detail", "GET /ports", "GET /flavors/detail", "GET /security-groups"] {
        cloud.fake.inject(action, FaultKind::Slow(Duration::from_secs(19)));
    }
    let spec = instance_spec("w-1", class());
    let began = Instant::now();
    let error = driver.instances().ensure(&spec).await.expect_err("too slow");
    assert_eq!((began.elapsed().as_secs(), error.kind), (76, ErrorKind::Unavailable));
    assert!(error.message.ends_with("not sent, because earlier requests took too long"), "{error}");
    assert_eq!((cloud.fake.count("POST /ports"), cloud.fake.count("POST /servers")), (0, 0));
    cloud.fake.inject("GET /servers/detail", FaultKind::EffectThenSilence);
    let began = Instant::now();
    driver.instances().ensure(&spec).await.expect_err("no answer");
    assert_eq!(began.elapsed().as_secs(), 20);
}

/// The process stops to lead between two requests of one call.
#[tokio::test(start_paused = true)]
async fn no_request_changes_anything_behind_the_fence() {
    let cloud = Cloud::new();
    let driver = cloud.driver();
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = asked.clone();
    // The port is made, and the lease ends before its tags are written.
    let fence = Fence::new(move || match counter.fetch_add(1, Ordering::Relaxed) {
        0 => Ok(()),
        _ => Err("the lease has ended"),
    });
    let spec = instance_spec("w-1", class());
    let error = fence.around(driver.instances().ensure(&spec)).await.expect_err("too late");
    assert_eq!((error.kind, asked.load(Ordering::Relaxed)), (ErrorKind::Unavailable, 2));
    assert!(error.state.is_some(), "the port exists");
    assert_eq!((cloud.fake.count("PUT /ports/ID/tags"), cloud.fake.count("POST /servers")), (0, 0));
    // The description of the port has the key, so the next leader uses the port.
    ensure(&*cloud.driver(), &spec).await.expect("created");
    assert_eq!(cloud.fake.parts(), (1, 0));
    let tags = cloud.fake.lock().ports[0].tags.clone();
    assert_eq!(tags.len(), 3, "{tags:?}");
}

#[tokio::test(start_paused = true)]
async fn a_port_without_tags_is_deleted_by_its_description() {
    let cloud = Cloud::new();
    cloud.fake.inject("PUT /ports/ID/tags", refuse(500, "HTTPInternalServerError", "an error"));
    let spec = instance_spec("w-1", class());
    cloud.driver().instances().ensure(&spec).await.expect_err("no tags");
    assert_eq!(cloud.fake.parts(), (1, 0));
    delete(&*cloud.driver(), &of_machine(&spec, None), &spec.key).await;
    assert_eq!(cloud.fake.parts(), (0, 0));
}

/// A user renames the server before its id is recorded.
#[tokio::test(start_paused = true)]
async fn a_renamed_server_is_found_by_its_port() {
    let cloud = Cloud::new();
    let spec = instance_spec("w-1", class());
    let made = ensure(&*cloud.driver(), &spec).await.expect("created");
    cloud.fake.change_server(native(&made.id), |server| server.name = "renamed".to_owned());
    let driver = cloud.driver();
    assert_eq!(ensure(&*driver, &spec).await.expect("the same").id, made.id);
    assert_eq!(found(&*driver, &of_machine(&spec, None)).await.id, made.id);
    delete(&*driver, &of_machine(&spec, None), &spec.key).await;
    assert_eq!((cloud.fake.alive("uid-of-w-1"), cloud.fake.parts()), (0, (0, 0)));
}

/// A Machine was restored from a backup, so its instance and all parts get the new key.
#[tokio::test(start_paused = true)]
async fn a_new_key_is_on_every_part() {
    let cloud = Cloud::new();
    let driver = cloud.driver();
    let spec = instance_spec("w-1", class_with_volume());
    let made = ensure(&*driver, &spec).await.expect("created");
    let to = InstanceKey::new("new-uid");
    // The process is killed between the parts and the server.
    cloud.fake.inject("POST /servers/ID/metadata", refuse(503, "computeFault", "down"));
    driver.instances().rekey(&made.id, &spec.key, &to).await.expect_err("down");
    driver.instances().rekey(&made.id, &spec.key, &to).await.expect("changed");
    {
        let state = cloud.fake.lock();
        assert!(state.ports[0].tags.contains(&"machinist.dev-key=new-uid".to_owned()));
        assert_eq!(state.ports[0].tags.len(), 3);
        assert_eq!(state.ports[0].description, "machinist.dev-key=new-uid");
        assert_eq!(state.volumes[0].metadata["machinist.dev-key"], "new-uid");
    }
    let which = InstanceRef { key: Some(to.clone()), ..of_machine(&spec, Some(&made.id)) };
    delete(&*driver, &which, &to).await;
    assert_eq!(cloud.fake.parts(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn every_request_names_its_version_and_token() {
    let cloud = Cloud::new();
    let driver = cloud.driver();
    let spec = instance_spec("w-1", class_with_volume());
    ensure(&*driver, &spec).await.expect("created");
    let requests = cloud.fake.lock().requests.clone();
    let of_nova = ["/servers", "/flavors", "/images"];
    for request in requests.iter().filter(|request| !request.path.contains("/auth/")) {
        let is = |beginnings: &[&str]| beginnings.iter().any(|path| request.path.starts_with(path));
        let expected = match () {
            () if is(&of_nova) => "compute 2.1",
            () if is(&["/volumes"]) => "volume 3.0",
            () => "",
        };
        assert_eq!(request.microversion, expected, "{}", request.path);
        assert!(!request.token.is_empty());
    }
}

/// The numbers of the documentation.
#[tokio::test(start_paused = true)]
async fn an_instance_costs_few_requests() {
    let cloud = Cloud::new();
    let driver = cloud.driver();
    ensure(&*driver, &instance_spec("w-0", class())).await.expect("created");
    let count = || cloud.fake.lock().requests.len();
    let before = count();
    let spec = instance_spec("w-1", class());
    let made = ensure(&*driver, &spec).await.expect("created");
    let created = count() - before;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let initializer = driver.initialization().expect("a driver with initialization");
    initializer.initialize(&made.id, &spec.key, &spec.provider_spec).await.expect("initialized");
    assert_eq!((created, count() - before - created), (7, 2));
}

#[tokio::test(start_paused = true)]
async fn the_clock_of_the_cloud_is_measured() {
    let cloud = Cloud::new();
    let driver = cloud.driver();
    assert_eq!(driver.clock_skew(), None);
    driver.instances().list(&Scope::Visible).await.expect("a list");
    assert!(driver.clock_skew().is_some());
}
