//! Lookups, pages, missing answers, and the number of requests.

use machinist_driver::Provider as _;
use machinist_driver_aws::{AwsOptions, PROMISES};
use machinist_instance::InstanceRef;
use machinist_instance::{ErrorKind, InstanceKey, NodeName, Place, ProviderId, Scope, Sighting};
use tokio::time::Instant;

use crate::cloud::{ACCESS_KEY, Cloud, by_id, by_key, class, credential, instance_spec, native};
use crate::fake::{FaultKind, Settings};
use crate::subject::refusal;

#[tokio::test(start_paused = true)]
async fn an_error_never_proves_absence() {
    let cloud = Cloud::new();
    let id = cloud.made_by_go("w-1");
    let driver = cloud.driver();
    let faults = [
        (refusal(404, "<html>"), ErrorKind::Unavailable),
        (refusal(401, "AuthFailure"), ErrorKind::Denied),
        (refusal(500, "InternalError"), ErrorKind::Unavailable),
        (refusal(400, "InvalidInstanceID.Malformed"), ErrorKind::InvalidSpec),
        (FaultKind::Garbage("<html>a page of a proxy</html>"), ErrorKind::Unavailable),
        (FaultKind::Garbage(""), ErrorKind::Unavailable),
        (FaultKind::EffectThenSilence, ErrorKind::Unavailable),
    ];
    for (fault, kind) in faults {
        cloud.fake.inject("DescribeInstances", fault.clone());
        let found = driver.instances().find(&by_id(&id)).await;
        assert_eq!(found.map_err(|error| error.kind), Err(kind), "{fault:?}");
    }
    let absent = ProviderId::parse("aws:///eu-west-1/i-0123").expect("not empty");
    assert_eq!(driver.instances().find(&by_id(&absent)).await, Ok(Sighting::Absent));
}

#[tokio::test(start_paused = true)]
async fn an_attempt_ends_after_twenty_seconds() {
    let cloud = Cloud::new();
    cloud.fake.inject("RunInstances", FaultKind::EffectThenSilence);
    let began = Instant::now();
    let spec = instance_spec("w-1", class());
    let error = cloud.driver().instances().ensure(&spec).await.expect_err("no answer");
    assert_eq!((began.elapsed().as_secs(), error.kind), (20, ErrorKind::Ambiguous));
    assert!(error.message.contains("no answer within 20 s"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_was_not_sent_is_unavailable() {
    let cloud = Cloud::new();
    cloud.fake.set_unreachable(true);
    let driver = cloud.driver();
    let error = driver.instances().ensure(&instance_spec("w-1", class())).await.expect_err("unreachable");
    assert_eq!((error.kind, error.message.as_str()), (ErrorKind::Unavailable, "cannot connect to cloud"));
    // A garbled answer to a creation says nothing about its effect.
    cloud.fake.set_unreachable(false);
    cloud.fake.inject("RunInstances", FaultKind::Garbage("<html/>"));
    let error = driver.instances().ensure(&instance_spec("w-1", class())).await.expect_err("garbled");
    assert_eq!(error.kind, ErrorKind::Ambiguous);
}

#[tokio::test(start_paused = true)]
async fn a_list_reads_all_pages() {
    let cloud = Cloud::with(Settings { page: 7, ..Settings::default() }, AwsOptions::default());
    for number in 0..20 {
        cloud.made_by_go(&format!("w-{number}"));
    }
    let listed = cloud.driver().instances().list(&Scope::Visible).await.expect("a list");
    assert_eq!((listed.len(), cloud.fake.count("DescribeInstances")), (20, 3));
    cloud.fake.inject("DescribeInstances", refusal(503, "RequestLimitExceeded"));
    let error = cloud.driver().instances().list(&Scope::Visible).await.expect_err("not a partial list");
    assert!(matches!(error.kind, ErrorKind::Throttled { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
#[expect(clippy::disallowed_methods, reason = "the test counts the requests")]
async fn a_machine_costs_few_requests() {
    let cloud = Cloud::new();
    let driver = cloud.driver();
    let specs = ["w-1", "w-2"].map(|name| instance_spec(name, class()));
    let mut made = Vec::new();
    for spec in &specs {
        made.push(driver.instances().ensure(spec).await.expect("created"));
    }
    let first = ["DescribeInstances", "DescribeImages", "RunInstances"];
    let second = ["DescribeInstances", "RunInstances"];
    assert_eq!(cloud.fake.actions(), [&first[..], &second[..]].concat());
    driver.instances().delete(&by_id(&made[0].id), &specs[0].key).await.expect("deleted");
    assert_eq!(cloud.fake.actions()[5..], ["DescribeInstances", "TerminateInstances"]);
}

#[tokio::test(start_paused = true)]
async fn lookups_by_name_know_machine_and_node() {
    let cloud = Cloud::new();
    let id = cloud.made_by_go("w-1");
    let driver = cloud.driver();
    let by_name = |name: &str| InstanceRef { name: NodeName::new(name), ..InstanceRef::default() };
    for name in ["w-1", "ip-10-250-0-4.eu-west-1.compute.internal"] {
        match driver.instances().find(&by_name(name)).await {
            Ok(Sighting::Present(instance)) => assert_eq!(instance.id, id),
            other => panic!("{name}: {other:?}"),
        }
    }
    for which in [by_name("w-2"), by_key(&InstanceKey::new("none")), by_key(&InstanceKey::new("no token"))] {
        assert_eq!(driver.instances().find(&which).await, Ok(Sighting::Absent), "{which}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_of_no_class_needs_a_region() {
    let cloud = Cloud::new();
    let nowhere = machinist_driver_aws::AwsProvider::over(
        std::sync::Arc::new(machinist_driver_aws::Http::plain()),
        AwsOptions::default(),
    );
    let credential = credential(ACCESS_KEY);
    let account = nowhere.account(&credential, &Place::WHOLE);
    let error = nowhere.open(&account, &credential, &Place::WHOLE).err().expect("no region");
    assert!(error.message.starts_with("AWS_REGION: expected a region"), "{error}");
    // With a region in the options, both names open one account.
    let of = |place: &Place| cloud.provider.account(&credential, place);
    assert_eq!(of(&Place::WHOLE), of(&Place::new("eu-west-1")));
}

/// The clock of the cloud decides whether a signature is valid.
#[tokio::test(start_paused = true)]
async fn the_clock_of_the_cloud_is_measured() {
    let cloud = Cloud::new();
    let ahead = cloud.fake.clone();
    let provider =
        cloud.provider.clone().with_clock(move || ahead.now() + jiff::SignedDuration::from_mins(9));
    let credential = credential(ACCESS_KEY);
    let place = Place::new("eu-west-1");
    let driver = provider.open(&provider.account(&credential, &place), &credential, &place).expect("opened");
    assert_eq!(driver.clock_skew(), None);
    driver.instances().list(&Scope::Visible).await.expect("a list");
    let skew = driver.clock_skew().expect("answers have a date").as_secs();
    assert!((-541..=-539).contains(&skew), "{skew}");
    assert_eq!(driver.promises(), PROMISES);
}

/// EC2 adds the prefixes of each request to those that exist.
#[tokio::test(start_paused = true)]
async fn a_lost_assignment_of_prefixes_is_not_repeated() {
    let cloud = Cloud::new();
    let driver = cloud.driver();
    let mut class = class();
    class["networkInterfaces"][0]["ipv6PrefixCount"] = 2.into();
    let spec = instance_spec("w-1", class.clone());
    let made = driver.instances().ensure(&spec).await.expect("created");
    cloud.fake.inject("AssignIpv6Addresses", FaultKind::EffectThenSilence);
    let initializer = driver.initialization().expect("a driver with initialization");
    let lost = initializer.initialize(&made.id, &spec.key, &class).await.expect_err("no answer");
    assert_eq!(lost.kind, ErrorKind::Ambiguous, "{lost}");
    assert_eq!(initializer.initialize(&made.id, &spec.key, &class).await, Ok(()));
    let prefixes = cloud.fake.machine(native(&made.id)).interfaces[0].prefixes;
    assert_eq!((prefixes, cloud.fake.count("AssignIpv6Addresses")), (2, 1));
}
