//! The flaws of Go's provider, by the ids of `docs/src/clouds/aws.md`, section "Differences". Each
//! test shows that this driver does not have the flaw. The tests of,
//! and further ones of, are beside the pure code that they check.

use std::time::Duration;

use machinist_driver::Provider as _;
use machinist_driver_aws::{AwsOptions, PROMISES};
use machinist_instance::{
    ErrorKind, InstanceKey, InstanceRef, InstanceSpec, NodeName, Place, Power, ProviderId, Scope, Sighting,
    UserData,
};

use crate::cloud::{ACCOUNT, Cloud, MARKS, REGION, by_id, by_key, class, found, instance_spec, native};
use crate::fake::{FaultKind, Settings};

/// Go's token is random, so a crash while reads do not show the instance makes a second one.
#[tokio::test(start_paused = true)]
async fn a_1_a_crash_makes_no_double_while_reads_lag() {
    let lag = PROMISES.visible_within;
    let cloud = Cloud::with(Settings { lag, ..Settings::default() }, AwsOptions::default());
    let spec = instance_spec("w-1", class());
    cloud.fake.inject("RunInstances", FaultKind::EffectThenSilence);
    let lost = cloud.driver().instances().ensure(&spec).await.expect_err("no answer");
    assert_eq!(lost.kind, ErrorKind::Ambiguous);
    // Another process does not know of the call.
    let made = cloud.driver().instances().ensure(&spec).await.expect("the same instance");
    assert_eq!(cloud.fake.alive("machinist.dev/key", "uid-of-w-1"), 1);

    // The bootstrap token was renewed, so EC2 refuses the repeated request.
    let renewed = InstanceSpec { user_data: UserData::new(*b"token: another"), ..spec };
    let waits = cloud.driver().instances().ensure(&renewed).await.expect_err("not shown yet");
    assert!(waits.is_in_progress(), "{waits}");
    tokio::time::sleep(lag).await;
    let same = cloud.driver().instances().ensure(&renewed).await.expect("shown");
    assert_eq!((same.id, cloud.fake.lock().instances.len()), (made.id, 1));
}

/// The tags were removed by hand, and the user data was renewed.
#[tokio::test(start_paused = true)]
async fn a_1_the_token_finds_an_instance_without_its_tags() {
    let cloud = Cloud::new();
    let spec = instance_spec("w-1", class());
    let made = cloud.driver().instances().ensure(&spec).await.expect("created");
    cloud.fake.change(native(&made.id), |machine| machine.tags.clear());
    let renewed = InstanceSpec { user_data: UserData::new(*b"token: another"), ..spec.clone() };
    let same = cloud.driver().instances().ensure(&renewed).await.expect("found by its token");
    assert_eq!((same.id, same.key), (made.id.clone(), Some(spec.key.clone())));
    let by_key = found(&*cloud.driver(), &by_key(&spec.key)).await;
    assert_eq!(by_key.id, made.id);
}

#[tokio::test(start_paused = true)]
#[expect(clippy::disallowed_methods, reason = "the test ends the instance")]
async fn a_1_a_key_never_gets_a_second_instance() {
    let cloud = Cloud::new();
    let spec = instance_spec("w-1", class());
    let driver = cloud.driver();
    let made = driver.instances().ensure(&spec).await.expect("created");
    driver.instances().delete(&by_id(&made.id), &spec.key).await.expect("deleted");
    tokio::time::sleep(Duration::from_secs(2)).await;
    let renewed = InstanceSpec { user_data: UserData::new(*b"token: another"), ..spec.clone() };
    for spec in [spec, renewed] {
        let error = driver.instances().ensure(&spec).await.expect_err("the key is used up");
        assert_eq!(error.kind, ErrorKind::Unavailable);
        assert!(error.message.contains("was terminated"), "{error}");
    }
    assert_eq!(cloud.fake.lock().instances.len(), 1);
}

/// Go's sweep terminates what has the two tag keys of the class: without a name, stopped, with
/// other values, and a second one of a living Machine.
#[tokio::test(start_paused = true)]
async fn a_2_only_instances_with_a_key_are_ours() {
    let cloud = Cloud::new();
    let driver = cloud.driver();
    let ours = driver.instances().ensure(&instance_spec("w-1", class())).await.expect("created");
    let no_machine = cloud.made_by_go("shoot--foo--bar-worker-z1-none");
    let nameless = cloud.fake.create(ACCOUNT, REGION, &MARKS);
    cloud.fake.change(&nameless, |machine| machine.is_stopped = true);
    let owned = MARKS.map(|(key, _)| (key, "owned"));
    let second_of_machine = cloud.fake.create(ACCOUNT, REGION, &[&owned[..], &[("Name", "w-1")]].concat());
    let listed = driver.instances().list(&Scope::Ours("default".to_owned())).await.expect("a list");
    assert_eq!(listed.iter().map(|instance| &instance.id).collect::<Vec<_>>(), [&ours.id]);
    let visible = driver.instances().list(&Scope::Visible).await.expect("a list");
    for id in [native(&no_machine), &nameless, &second_of_machine] {
        let instance = visible.iter().find(|instance| native(&instance.id) == id).expect("listed");
        assert_eq!(instance.key, None, "nothing proves that {id} is ours");
    }
}

#[tokio::test(start_paused = true)]
#[expect(clippy::disallowed_methods, reason = "the test ends the instance")]
async fn a_4_a_terminated_instance_has_ended() {
    let cloud = Cloud::new();
    let driver = cloud.driver();
    let id = cloud.made_by_go("w-1");
    cloud.fake.change(native(&id), |machine| machine.terminated_at = Some(tokio::time::Instant::now()));
    assert_eq!(driver.instances().find(&by_id(&id)).await, Ok(Sighting::Ended));
    assert_eq!(driver.instances().find(&by_key(&InstanceKey::new("uid"))).await, Ok(Sighting::Absent));
    let which = InstanceRef { may_lack_key: true, ..by_id(&id) };
    assert_eq!(driver.instances().delete(&which, &InstanceKey::new("uid")).await, Ok(()));
    assert_eq!(cloud.fake.count("TerminateInstances"), 0);
}

/// Go reports the deletion as done when EC2 has accepted it.
#[tokio::test(start_paused = true)]
#[expect(clippy::disallowed_methods, reason = "the test ends the instance")]
async fn a_5_an_instance_exists_until_it_is_terminated() {
    let settings = Settings { deletion: Duration::from_secs(60), ..Settings::default() };
    let cloud = Cloud::with(settings, AwsOptions::default());
    let driver = cloud.driver();
    let spec = instance_spec("w-1", class());
    let made = driver.instances().ensure(&spec).await.expect("created");
    driver.instances().delete(&by_id(&made.id), &spec.key).await.expect("accepted");
    assert_eq!(found(&*driver, &by_id(&made.id)).await.power, Power::Deleting);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(driver.instances().find(&by_id(&made.id)).await, Ok(Sighting::Ended));
}

/// A user edits the region of a class. Go then looks for its instances in the new region.
#[tokio::test(start_paused = true)]
async fn a_6_gap_1_the_region_of_the_id_wins_over_the_class() {
    let cloud = Cloud::new();
    let id = cloud.made_by_go("w-1");
    let mut edited = class();
    edited["region"] = "eu-central-1".into();
    assert_eq!(cloud.provider.place(&edited), Ok(Place::new("eu-central-1")));
    let of_node = ProviderId::parse(&format!("aws:///{REGION}a/{}", native(&id))).expect("not empty");
    for id in [&id, &of_node] {
        let place = cloud.provider.place_of(id).expect("the id names its region");
        assert_eq!(found(&*cloud.driver_in(place.as_str()), &by_id(id)).await.id, *id);
    }
    assert_eq!(cloud.driver_in("eu-central-1").instances().find(&by_id(&id)).await, Ok(Sighting::Absent));
}

/// EC2 gives an address, and so a private DNS name, to the next instance.
#[tokio::test(start_paused = true)]
#[expect(clippy::disallowed_methods, reason = "the test checks the refusal")]
async fn a_11_a_reused_node_name_is_not_the_instance() {
    let cloud = Cloud::new();
    let driver = cloud.driver();
    let (old, new) = (instance_spec("w-1", class()), instance_spec("w-2", class()));
    let first = driver.instances().ensure(&old).await.expect("created");
    driver.instances().delete(&by_id(&first.id), &old.key).await.expect("deleted");
    tokio::time::sleep(Duration::from_secs(2)).await;
    let second = driver.instances().ensure(&new).await.expect("created");
    cloud.fake.change(native(&second.id), |machine| machine.private_dns_name = first.name.to_string());

    let second = found(&*driver, &by_key(&new.key)).await;
    assert_eq!(second.name, first.name);
    let of_old = InstanceRef { node_name: NodeName::new(first.name.as_str()), ..by_key(&old.key) };
    match driver.instances().find(&of_old).await {
        Ok(Sighting::Foreign(foreign)) => assert_eq!((foreign.id, foreign.key), (second.id, Some(new.key))),
        other => panic!("{other:?}"),
    }
    let refused = driver.instances().delete(&of_old, &old.key).await;
    assert_eq!(refused.map_err(|error| error.kind), Err(ErrorKind::Denied));
}

/// Two networks of one account have the same addresses. A user has cleared the id of a Machine.
#[tokio::test(start_paused = true)]
async fn a_11_a_node_name_in_another_network_is_no_evidence() {
    let cloud = Cloud::new();
    let driver = cloud.driver();
    let theirs = driver.instances().ensure(&instance_spec("w-1", class())).await.expect("created");
    cloud.fake.change(native(&theirs.id), |machine| {
        machine.tags.clear();
        "a-token-of-another-program".clone_into(&mut machine.token);
    });
    let ours = instance_spec("w-2", class());
    let asked = InstanceRef { node_name: NodeName::new(theirs.name.as_str()), ..by_key(&ours.key) };
    match driver.instances().find(&asked).await {
        Ok(Sighting::Foreign(foreign)) => assert_eq!((foreign.id, foreign.key), (theirs.id.clone(), None)),
        other => panic!("{other:?}"),
    }
    let made = driver.instances().ensure(&ours).await.expect("created");
    assert_ne!(made.id, theirs.id);
}
