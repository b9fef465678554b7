//! The flaws of Go's provider, by the ids of `docs/src/clouds/openstack.md`, section "Differences".
//! Each test shows that this driver does not have the flaw. Further tests of O-3, O-4 and O-5 are
//! beside the pure code that they check.

use std::time::Duration;

use machinist_driver::Driver;
use machinist_instance::{ErrorKind, InstanceKey, InstanceRef, Power, Scope, Sighting};
use serde_json::json;

use crate::cloud::{
    Cloud, NETWORK, by_id, class, class_with_volume, credential, delete, ensure, found, instance_spec,
    native, of_machine, secret, texts, with,
};
use crate::fake::{FaultKind, Settings};
use crate::subject::refuse;

/// Names are not unique, so Go's creation after a lost answer makes a second server.
#[tokio::test(start_paused = true)]
async fn o_1_a_lost_answer_makes_no_double() {
    let cloud = Cloud::new();
    let spec = instance_spec("w-1", class());
    cloud.fake.inject("POST /servers", FaultKind::LateEffect(Duration::from_secs(30)));
    let lost = cloud.driver().instances().ensure(&spec).await.expect_err("no answer");
    assert_eq!(lost.kind, ErrorKind::Ambiguous);
    assert!(lost.state.is_some_and(|state| state.starts_with("port ")), "the port exists");
    // Another process does not know of the call.
    ensure(&*cloud.driver(), &spec).await.expect("created");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((cloud.fake.alive("uid-of-w-1"), cloud.fake.parts()), (1, (1, 0)));
    assert_eq!(cloud.fake.count("POST /ports"), 1);
}

/// A root volume of our own is a lock as well, for classes without a port of our own.
#[tokio::test(start_paused = true)]
async fn o_1_a_volume_is_a_lock_as_well() {
    let cloud = Cloud::new();
    let mut class = class_with_volume();
    class["spec"]["networkID"] = json!(null);
    class["spec"]["networks"] = json!([{"id": NETWORK}]);
    let spec = instance_spec("w-1", class);
    let driver = cloud.driver();
    let waits = driver.instances().ensure(&spec).await.expect_err("the volume is filled");
    assert!(waits.is_in_progress() && waits.state.is_some(), "{waits}");
    tokio::time::sleep(Duration::from_secs(2)).await;
    cloud.fake.inject("POST /servers", FaultKind::LateEffect(Duration::from_secs(30)));
    driver.instances().ensure(&spec).await.expect_err("no answer");
    ensure(&*cloud.driver(), &spec).await.expect("created");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((cloud.fake.alive("uid-of-w-1"), cloud.fake.parts().1), (1, 1));
}

/// Two servers of one name were made on purpose. Go then refuses every call.
#[tokio::test(start_paused = true)]
async fn o_1_servers_of_one_name_are_told_apart() {
    let cloud = Cloud::new();
    let driver = cloud.driver();
    let pet = cloud.server("w-1", &[]);
    let of_another = cloud.server("w-1", &[("machinist.dev-key", "another")]);
    let spec = instance_spec("w-1", class());
    let made = ensure(&*driver, &spec).await.expect("created");
    assert!(![&pet, &of_another].contains(&&made.id));
    assert_eq!(found(&*driver, &of_machine(&spec, None)).await.id, made.id);
    delete(&*driver, &of_machine(&spec, Some(&made.id)), &spec.key).await;
    for other in [&pet, &of_another] {
        found(&*driver, &by_id(other)).await;
    }
}

/// A creation ended after the port, and another server has the name of the Machine.
#[tokio::test(start_paused = true)]
async fn o_1_parts_are_found_beside_a_server_of_the_name() {
    let cloud = Cloud::new();
    let driver = cloud.driver();
    let other = cloud.server("w-1", &[("machinist.dev-key", "another")]);
    let spec = instance_spec("w-1", class());
    cloud.fake.inject("POST /servers", refuse(400, "badRequest", "Invalid key_name provided."));
    driver.instances().ensure(&spec).await.expect_err("refused");
    let which = of_machine(&spec, None);
    assert!(matches!(driver.instances().find(&which).await, Ok(Sighting::Parts(_))));
    delete_parts(&*driver, &which, &spec.key).await;
    assert_eq!(cloud.fake.parts(), (0, 0));
    match driver.instances().find(&which).await {
        Ok(Sighting::Foreign(foreign)) => assert_eq!(foreign.id, other),
        found => panic!("{found:?}"),
    }
}

#[expect(clippy::disallowed_methods, reason = "a test deletes what it created")]
async fn delete_parts(driver: &dyn Driver, which: &InstanceRef, owner: &InstanceKey) {
    driver.instances().delete(which, owner).await.expect("accepted");
}

/// A second server of one key is a part of the instance, and is deleted with it.
#[tokio::test(start_paused = true)]
async fn o_1_a_double_of_the_key_is_deleted_too() {
    let cloud = Cloud::new();
    let driver = cloud.driver();
    let spec = instance_spec("w-1", class());
    let made = ensure(&*driver, &spec).await.expect("created");
    cloud.server("w-1", &[("machinist.dev-key", "uid-of-w-1")]);
    delete(&*driver, &of_machine(&spec, Some(&made.id)), &spec.key).await;
    assert_eq!((cloud.fake.alive("uid-of-w-1"), cloud.fake.parts()), (0, (0, 0)));
}

/// Any error after the creation makes Go delete the server, also a server that it only found.
#[tokio::test(start_paused = true)]
async fn o_2_a_failed_read_deletes_nothing() {
    let cloud = Cloud::new();
    let driver = cloud.driver();
    let spec = instance_spec("w-1", class());
    cloud.fake.inject("GET /servers/ID", refuse(503, "computeFault", "down"));
    let made = ensure(&*driver, &spec).await.expect("created, although the read failed");
    for action in ["GET /servers/detail", "GET /ports"] {
        cloud.fake.inject(action, refuse(503, "computeFault", "down"));
    }
    let failed = driver.instances().ensure(&spec).await.expect_err("down");
    assert_eq!(failed.kind, ErrorKind::Unavailable);
    let wanted = &spec.provider_spec;
    let initializer = driver.initialization().expect("a driver with initialization");
    initializer.initialize(&made.id, &spec.key, wanted).await.expect_err("the server is built");
    tokio::time::sleep(Duration::from_secs(2)).await;
    initializer.initialize(&made.id, &spec.key, wanted).await.expect_err("Neutron is down");
    assert_eq!(initializer.initialize(&made.id, &spec.key, wanted).await, Ok(()));
    assert!(cloud.fake.actions().iter().all(|action| !action.starts_with("DELETE")));
}

/// Nova finds no host after it has accepted the server. The controller decides what follows.
#[tokio::test(start_paused = true)]
async fn o_2_gap_9_a_server_in_error_is_reported_with_its_fault() {
    let fault = Some("No valid host was found. There are not enough hosts available.");
    let cloud = Cloud::with(Settings { fault, ..Settings::default() });
    let driver = cloud.driver();
    let spec = instance_spec("w-1", class());
    let made = ensure(&*driver, &spec).await.expect("accepted");
    assert_eq!(made.power, Power::Pending);
    let initializer = driver.initialization().expect("a driver with initialization");
    let waits = initializer.initialize(&made.id, &spec.key, &spec.provider_spec).await;
    assert!(waits.is_err_and(|error| error.is_in_progress()));
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(found(&*driver, &by_id(&made.id)).await.power, Power::Failed);
    let failed = initializer.initialize(&made.id, &spec.key, &spec.provider_spec).await;
    let failed = failed.expect_err("no host");
    assert!(failed.is_instance_failed() && failed.kind == ErrorKind::Exhausted, "{failed}");
    assert!(failed.message.contains("No valid host was found"), "{failed}");
    assert_eq!(cloud.fake.alive("uid-of-w-1"), 1);
}

/// Go writes each range alone, so the last one stays and other pairs are lost.
#[tokio::test(start_paused = true)]
async fn o_3_a_port_of_nova_gets_all_pairs_at_once() {
    let cloud = Cloud::new();
    let driver = cloud.driver();
    let spec = instance_spec("w-1", with("subnetIDs", json!([])));
    let made = ensure(&*driver, &spec).await.expect("created");
    tokio::time::sleep(Duration::from_secs(2)).await;
    let foreign = json!({"ip_address": "10.0.0.9", "mac_address": "fa:16:3e:00:00:02"});
    cloud.fake.lock().ports[0].pairs.push(foreign.clone());
    let initializer = driver.initialization().expect("a driver with initialization");
    for _ in 0..2 {
        initializer.initialize(&made.id, &spec.key, &spec.provider_spec).await.expect("done");
    }
    let pairs = cloud.fake.lock().ports[0].pairs.clone();
    let ranges = [json!({"ip_address": "100.96.0.0/11"}), json!({"ip_address": "fd00:10::/64"})];
    assert_eq!(pairs, [&[foreign][..], &ranges].concat());
    assert_eq!(cloud.fake.count("PUT /ports/ID"), 1);
    let requests = cloud.fake.lock().requests.clone();
    let put = requests.iter().find(|request| request.method == "PUT").expect("one");
    assert_eq!(put.if_match, "revision_number=1");
}

/// Another program changes the port between the read and the write.
#[tokio::test(start_paused = true)]
async fn o_3_a_changed_port_is_read_again() {
    let cloud = Cloud::new();
    let driver = cloud.driver();
    let spec = instance_spec("w-1", with("subnetIDs", json!([])));
    let made = ensure(&*driver, &spec).await.expect("created");
    tokio::time::sleep(Duration::from_secs(2)).await;
    cloud.fake.inject("PUT /ports/ID", refuse(412, "RevisionNumberConstraintFailed", "changed"));
    let initializer = driver.initialization().expect("a driver with initialization");
    let waits = initializer.initialize(&made.id, &spec.key, &spec.provider_spec).await;
    assert!(waits.is_err_and(|error| error.is_in_progress()));
    assert_eq!(initializer.initialize(&made.id, &spec.key, &spec.provider_spec).await, Ok(()));
}

/// Go refuses both before it sends a request.
#[tokio::test(start_paused = true)]
async fn o_4_every_sort_of_credential_opens_an_account() {
    let cloud = Cloud::new();
    let url = ("authURL", "http://keystone/identity");
    let by_ids = [url, ("username", "user"), ("password", "p"), ("domainID", "default"), ("tenantID", "p1")];
    let by_id = [url, ("applicationCredentialID", "acid"), ("applicationCredentialSecret", "s")];
    let by_name = [
        url,
        ("applicationCredentialName", "acname"),
        ("username", "user"),
        ("domainName", "Default"),
        ("applicationCredentialSecret", "s"),
    ];
    for entries in [&by_ids[..], &by_id, &by_name] {
        let driver = cloud.open(&secret(entries), "eu-nl-1");
        assert_eq!(driver.instances().list(&Scope::Visible).await, Ok(Vec::new()));
    }
    assert_eq!(cloud.fake.lock().logins.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn o_5_a_used_up_quota_makes_the_caller_wait() {
    let cloud = Cloud::with(Settings { quota: Some(0), ..Settings::default() });
    let spec = instance_spec("w-1", class());
    let refused = ensure(&*cloud.driver(), &spec).await.expect_err("quota 0");
    assert_eq!(refused.kind, ErrorKind::Exhausted);
    assert!(refused.message.contains("Quota exceeded for instances"), "{refused}");
    cloud.fake.lock().settings.quota = None;
    cloud.fake.inject("POST /ports", refuse(409, "OverQuota", "Quota exceeded for resources: ['port']."));
    let refused = ensure(&*cloud.driver(), &instance_spec("w-2", class())).await.expect_err("no port");
    assert_eq!((refused.kind, refused.state), (ErrorKind::Exhausted, None));
    cloud.fake.inject("POST /volumes", refuse(413, "overLimit", "VolumeLimitExceeded: Maximum number"));
    let spec = instance_spec("w-3", class_with_volume());
    let refused = ensure(&*cloud.driver(), &spec).await.expect_err("no volume");
    assert_eq!(refused.kind, ErrorKind::Exhausted);
}

/// Go deletes every port and volume of the name.
#[tokio::test(start_paused = true)]
async fn o_6_a_name_alone_deletes_no_part() {
    let cloud = Cloud::new();
    let driver = cloud.driver();
    let spec = instance_spec("w-1", class_with_volume());
    let made = ensure(&*driver, &spec).await.expect("created");
    {
        let mut state = cloud.fake.lock();
        state.new_port("shoot-project", "eu-nl-1", "w-1", NETWORK);
        state.new_volume("shoot-project", "eu-nl-1", "w-1", texts(&[("purpose", "data")]));
        let one_mark = texts(&[("kubernetes.io-role-node", "1")]);
        state.new_volume("shoot-project", "eu-nl-1", "w-1", one_mark);
    }
    delete(&*driver, &of_machine(&spec, Some(&made.id)), &spec.key).await;
    assert_eq!(cloud.fake.parts(), (1, 2), "those without the key or both marks stay");
}

/// Go reads from the class at the deletion whether there are a port and a volume.
#[tokio::test(start_paused = true)]
async fn o_7_parts_are_deleted_without_the_class() {
    let cloud = Cloud::new();
    let driver = cloud.driver();
    let spec = instance_spec("w-1", class_with_volume());
    let made = ensure(&*driver, &spec).await.expect("created");
    assert_eq!(cloud.fake.parts(), (1, 1));
    // No call of a deletion gets the class.
    delete(&*driver, &of_machine(&spec, Some(&made.id)), &spec.key).await;
    assert_eq!(cloud.fake.parts(), (0, 0));
}

/// Go deletes the volume while it is detached, is refused, and tries again ten minutes later.
#[tokio::test(start_paused = true)]
#[expect(clippy::disallowed_methods, reason = "the test ends the instance")]
async fn o_8_a_volume_that_is_detached_is_looked_at_again() {
    let cloud = Cloud::with(Settings { volume: Duration::from_secs(5), ..Settings::default() });
    let driver = cloud.driver();
    let spec = instance_spec("w-1", class_with_volume());
    let made = ensure(&*driver, &spec).await.expect("created");
    let which = of_machine(&spec, Some(&made.id));
    driver.instances().delete(&which, &spec.key).await.expect("accepted");
    tokio::time::sleep(Duration::from_secs(2)).await;
    for expected in [2, 1] {
        match driver.instances().find(&which).await {
            Ok(Sighting::Parts(parts)) => assert_eq!(parts.len(), expected, "{parts:?}"),
            other => panic!("{other:?}"),
        }
        // The port is deleted, and the volume is still detached.
        driver.instances().delete(&which, &spec.key).await.expect("accepted");
    }
    assert_eq!(cloud.fake.count("DELETE /volumes/ID"), 0, "Cinder would refuse it");
    delete(&*driver, &which, &spec.key).await;
    assert_eq!((cloud.fake.parts(), cloud.fake.count("DELETE /volumes/ID")), ((0, 0), 1));
}

/// Go takes a server for absent whose metadata a user has removed.
#[tokio::test(start_paused = true)]
#[expect(clippy::disallowed_methods, reason = "the test checks the refusal")]
async fn o_9_a_server_without_its_metadata_is_present() {
    let cloud = Cloud::new();
    let driver = cloud.driver();
    let spec = instance_spec("w-1", class());
    let made = ensure(&*driver, &spec).await.expect("created");
    cloud.fake.change_server(native(&made.id), |server| server.metadata.clear());
    let which = of_machine(&spec, Some(&made.id));
    assert_eq!(found(&*driver, &which).await.key, None);
    let refused = driver.instances().delete(&which, &spec.key).await;
    assert_eq!(refused.map_err(|error| error.kind), Err(ErrorKind::Denied));
    let allowed = InstanceRef { may_lack_key: true, ..which };
    delete(&*driver, &allowed, &spec.key).await;
    assert_eq!(cloud.fake.parts(), (0, 0));
}

/// Go waits twenty minutes for a volume and twenty for a server, inside of one call.
#[tokio::test(start_paused = true)]
#[expect(clippy::disallowed_methods, reason = "the test ends the instance")]
async fn o_10_no_call_waits_for_a_state() {
    let slow = Duration::from_secs(900);
    let settings = Settings { build: slow, deletion: slow, volume: slow, ..Settings::default() };
    let cloud = Cloud::with(settings);
    let driver = cloud.driver();
    let spec = instance_spec("w-1", class_with_volume());
    let began = tokio::time::Instant::now();
    let waits = driver.instances().ensure(&spec).await.expect_err("the volume is filled");
    assert!(waits.is_in_progress() && began.elapsed() < Duration::from_secs(1), "{waits}");
    tokio::time::sleep(slow).await;
    let began = tokio::time::Instant::now();
    let made = driver.instances().ensure(&spec).await.expect("accepted");
    let which = of_machine(&spec, Some(&made.id));
    driver.instances().delete(&which, &spec.key).await.expect("accepted");
    assert_eq!(found(&*driver, &which).await.power, Power::Deleting);
    assert!(began.elapsed() < Duration::from_secs(1));
    assert_eq!(cloud.fake.count("POST /volumes"), 1);
}

/// Nova has no search by metadata, so a list reads the whole project. An account has one list for
/// all its Machines, and no other call reads the project if it knows a name or an id.
#[tokio::test(start_paused = true)]
async fn o_11_only_lists_read_the_whole_project() {
    let cloud = Cloud::with(Settings { page: 2, ..Settings::default() });
    let driver = cloud.driver();
    for number in 0..5 {
        cloud.made_by_go(&format!("go-{number}"));
    }
    let spec = instance_spec("w-1", class());
    let made = ensure(&*driver, &spec).await.expect("created");
    found(&*driver, &of_machine(&spec, None)).await;
    delete(&*driver, &of_machine(&spec, Some(&made.id)), &spec.key).await;
    let requests = cloud.fake.lock().requests.clone();
    let lists = requests.iter().filter(|request| request.path == "/servers/detail");
    assert!(lists.clone().count() > 0);
    assert!(lists.clone().all(|request| request.parameter("name").is_some()));
    assert_eq!(driver.instances().list(&Scope::Visible).await.expect("a list").len(), 5);
    let ours = driver.instances().list(&Scope::Ours("default".to_owned())).await;
    assert_eq!(ours, Ok(Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn a_list_of_another_project_shows_nothing_of_ours() {
    let cloud = Cloud::new();
    cloud.made_by_go("w-1");
    let other = cloud.open(&credential("another-user"), "eu-nl-1");
    assert_eq!(other.instances().list(&Scope::Visible).await, Ok(Vec::new()));
    let key = InstanceKey::new("uid");
    let which = InstanceRef { key: Some(key), ..InstanceRef::default() };
    assert_eq!(other.instances().find(&which).await, Ok(Sighting::Absent));
}
