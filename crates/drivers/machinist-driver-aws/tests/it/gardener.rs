//! Instances that Go's provider left, in the situations in which it was recorded. They have tags of
//! their class, a random client token, and no key.

use jiff::Timestamp;
use machinist_driver::Provider as _;
use machinist_instance::{
    ErrorKind, Instance, InstanceKey, InstanceRef, InstanceSpec, Marks, NodeName, ProviderId, Sighting,
};
use serde_json::{Value, json};

use crate::cloud::{ACCOUNT, Cloud, MARKS, REGION, by_id, class, found, instance_spec, native};
use crate::fake::FaultKind;
use crate::subject::refusal;

const MACHINE: &str = "shoot--foo--bar-worker-z1-6cc9b-vgztv";

fn owner() -> InstanceKey {
    InstanceKey::new("79d1b99b-7c2e-4e7c-866d-6fc171785043")
}

/// An instance without a key is deleted by the id that its Machine records, if the caller has
/// compared the marks of the instance with its class.
#[tokio::test(start_paused = true)]
#[expect(clippy::disallowed_methods, reason = "the test checks the deletion")]
async fn gap_8_an_instance_of_go_is_deleted_by_its_recorded_id() {
    let cloud = Cloud::new();
    let driver = cloud.driver();
    let id = cloud.made_by_go(MACHINE);
    let instance = found(&*driver, &by_id(&id)).await;
    assert_eq!((instance.key.as_ref(), &instance.id), (None, &id));
    assert_eq!(instance.name.as_str(), "ip-10-250-0-4.eu-west-1.compute.internal");
    assert_eq!(cloud.provider.marks_of(&instance, &class()), Marks::OfClass);
    let mut edited = class();
    edited["tags"] = json!({"kubernetes.io/cluster/other": "1", "kubernetes.io/role/node": "1"});
    assert_eq!(cloud.provider.marks_of(&instance, &edited), Marks::OfAnotherClass);
    let pet = cloud.fake.create(ACCOUNT, REGION, &[("Name", MACHINE)]);
    let pet = ProviderId::parse(&pet).expect("not empty");
    assert_eq!(cloud.provider.marks_of(&found(&*driver, &by_id(&pet)).await, &class()), Marks::Missing);

    let refused = driver.instances().delete(&by_id(&id), &owner()).await;
    assert_eq!(refused.map_err(|error| error.kind), Err(ErrorKind::Denied));
    let which = InstanceRef { may_lack_key: true, ..by_id(&id) };
    driver.instances().delete(&which, &owner()).await.expect("deleted");
    assert!(cloud.fake.machine(native(&id)).terminated_at.is_some());
    assert!(cloud.fake.machine(pet.as_str()).terminated_at.is_none());
}

#[tokio::test(start_paused = true)]
async fn gap_5_instances_of_go_are_listed_by_their_marks() {
    let cloud = Cloud::new();
    let driver = cloud.driver();
    let id = cloud.made_by_go(MACHINE);
    cloud.fake.create(ACCOUNT, REGION, &[("Name", "a-pet")]);
    driver.instances().ensure(&instance_spec("w-1", class())).await.expect("created");
    let mut with_one_mark = class();
    with_one_mark["tags"] = json!({"kubernetes.io/role/node": "1"});
    let listed = async |class: Value| {
        let listed = driver.instances().list_marked(&[class.clone(), class]).await.expect("a list");
        listed.into_iter().map(|one| one.id).collect::<Vec<_>>()
    };
    let before = cloud.fake.count("DescribeInstances");
    assert_eq!(listed(class()).await, [id]);
    assert_eq!(cloud.fake.count("DescribeInstances"), before + 1, "classes with the same marks share a list");
    assert_eq!(listed(with_one_mark).await, [], "every cluster has the role alone");
}

/// Go's sweep terminates an instance whose recorded id is not spelled as it spells ids.
#[tokio::test(start_paused = true)]
async fn gap_7_a_recorded_spelling_is_kept() {
    let cloud = Cloud::new();
    let driver = cloud.driver();
    let id = cloud.made_by_go(MACHINE);
    for text in [id.as_str(), &format!("aws:///eu-west-1a/{}", native(&id)), native(&id)] {
        let recorded = ProviderId::parse(text).expect("not empty");
        assert_eq!(found(&*driver, &by_id(&recorded)).await.id, recorded, "the object does not change");
        assert!(cloud.provider.same_instance(&id, &recorded));
    }
    let made = driver.instances().ensure(&instance_spec("w-1", class())).await.expect("created");
    assert_eq!(made.id.as_str(), format!("aws:///eu-west-1/{}", native(&made.id)));
}

fn adopting(cloud: &Cloud, since: Timestamp) -> InstanceSpec {
    assert!(since <= cloud.fake.now());
    InstanceSpec { key: owner(), adopt_made_since: Some(since), ..instance_spec(MACHINE, class()) }
}

async fn ensure(cloud: &Cloud, spec: &InstanceSpec) -> Instance {
    cloud.driver().instances().ensure(spec).await.expect("an instance")
}

/// Go was killed after the creation, and before it recorded the instance.
#[tokio::test(start_paused = true)]
async fn an_instance_of_a_killed_process_is_adopted() {
    let cloud = Cloud::new();
    let began = cloud.fake.now();
    let id = cloud.made_by_go(MACHINE);
    let adopted = ensure(&cloud, &adopting(&cloud, began)).await;
    assert_eq!((&adopted.id, adopted.key, adopted.cluster.as_deref()), (&id, Some(owner()), Some("default")));
    let tags = cloud.fake.machine(native(&id)).tags;
    assert!(MARKS.iter().all(|(key, value)| tags[*key] == *value), "it keeps its marks");
    assert_eq!(tags["machinist.dev/key"], owner().as_str());
    assert_eq!(ensure(&cloud, &adopting(&cloud, began)).await.id, id);
    assert_eq!(cloud.fake.count("RunInstances"), 0);
}

/// A user has cleared the recorded id. EC2 names the Node, and the Machine names the instance.
#[tokio::test(start_paused = true)]
async fn gap_2_an_instance_of_go_has_the_name_of_its_machine() {
    let cloud = Cloud::new();
    let id = cloud.made_by_go(MACHINE);
    let driver = cloud.driver();
    let which = |name: &str, node: Option<&str>| InstanceRef {
        name: NodeName::new(name),
        node_name: node.and_then(NodeName::new),
        ..InstanceRef::default()
    };
    let by_machine = found(&*driver, &which(MACHINE, None)).await;
    let node = by_machine.name.as_str();
    assert!(node.ends_with(".internal"), "{node}");
    assert_eq!(found(&*driver, &which("another-machine", Some(node))).await.id, by_machine.id);
    let spec = adopting(&cloud, by_machine.created);
    assert_eq!(ensure(&cloud, &spec).await.id, by_machine.id);
    assert_eq!(cloud.fake.lock().instances.len(), 1, "{id}");
}

#[tokio::test(start_paused = true)]
async fn only_a_young_instance_with_the_marks_is_adopted() {
    let cloud = Cloud::new();
    let began = cloud.fake.now();
    let old = cloud.made_by_go(MACHINE);
    let before = began.checked_sub(jiff::SignedDuration::from_secs(1)).expect("a time");
    cloud.fake.change(native(&old), |machine| machine.launched = before);
    let pet = cloud.fake.create(ACCOUNT, REGION, &[("Name", MACHINE)]);
    let spec = adopting(&cloud, began);
    let refused = cloud.driver().instances().ensure(&spec).await.expect_err("an older one has the name");
    assert_eq!(refused.kind, ErrorKind::Denied);
    assert!(refused.message.contains(native(&old)), "{refused}");
    cloud.fake.change(native(&old), |machine| machine.tags.clear());
    let made = ensure(&cloud, &spec).await;
    assert!(made.id != old && native(&made.id) != pet);
    assert_eq!(cloud.fake.count("CreateTags"), 0);
}

/// The policy that Gardener documents allows tags only during a creation.
#[tokio::test(start_paused = true)]
async fn a_credential_without_tags_adopts_nevertheless() {
    let cloud = Cloud::new();
    let began = cloud.fake.now();
    let id = cloud.made_by_go(MACHINE);
    cloud.fake.lock().settings.may_tag = false;
    for _ in 0..2 {
        let adopted = ensure(&cloud, &adopting(&cloud, began)).await;
        assert_eq!((&adopted.id, adopted.key), (&id, None));
    }
    assert_eq!(cloud.fake.lock().instances.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn gap_3_an_instance_of_go_is_initialized() {
    let cloud = Cloud::new();
    let driver = cloud.driver();
    let initializer = driver.initialization().expect("a driver with initialization");
    let mut class = class();
    class["srcAndDstChecksEnabled"] = json!(false);
    assert!(cloud.provider.needs_initialization(&class));
    let id = cloud.made_by_go(MACHINE);
    for _ in 0..2 {
        initializer.initialize(&id, &owner(), &class).await.expect("initialized");
    }
    assert!(!cloud.fake.machine(native(&id)).interfaces[0].has_check);
    assert_eq!(cloud.fake.count("ModifyNetworkInterfaceAttribute"), 1);

    let pet = ProviderId::parse(&cloud.fake.create(ACCOUNT, REGION, &[])).expect("not empty");
    let refused = initializer.initialize(&pet, &owner(), &class).await;
    assert_eq!(refused.map_err(|error| error.kind), Err(ErrorKind::Denied));

    cloud.fake.lock().settings.shows_interfaces = false;
    let waits = initializer.initialize(&id, &owner(), &class).await.expect_err("no interface");
    assert!(waits.is_in_progress(), "{waits}");
}

#[tokio::test(start_paused = true)]
async fn refused_creations_are_classified() {
    let throttled = ErrorKind::Throttled { retry_after: None };
    let faults: [(u16, &'static str, ErrorKind); 4] = [
        (400, "Unsupported", ErrorKind::Exhausted),
        (500, "InsufficientInstanceCapacity", ErrorKind::Exhausted),
        (503, "RequestLimitExceeded", throttled),
        (403, "UnauthorizedOperation", ErrorKind::Denied),
    ];
    let cloud = Cloud::new();
    for (status, code, kind) in faults {
        cloud.fake.inject("RunInstances", refusal(status, code));
        let refused = cloud.driver().instances().ensure(&instance_spec("w-1", class())).await;
        assert_eq!(refused.map_err(|error| error.kind), Err(kind), "{code}");
    }
    let with = |pointer: &str, value: &str| {
        let mut class = class();
        *class.pointer_mut(pointer).expect("set") = value.into();
        class
    };
    let wrong: [(Value, &str); 3] = [
        (with("/networkInterfaces/0/subnetID", "none"), "RunInstances: InvalidSubnetID.NotFound: text"),
        (with("/ami", "ami-none"), "providerSpec.ami: expected an image with a root volume, but ami-none"),
        (with("/ami", "ami-hidden"), "providerSpec.ami: expected an image with a root volume"),
    ];
    for (class, expected) in wrong {
        let refused = cloud.driver().instances().ensure(&instance_spec("w-1", class)).await;
        let error = refused.expect_err(expected);
        assert_eq!(error.kind, ErrorKind::InvalidSpec);
        assert!(error.message.starts_with(expected), "{error}");
    }
    assert!(cloud.fake.lock().instances.is_empty());
}

#[tokio::test(start_paused = true)]
#[expect(clippy::disallowed_methods, reason = "the test checks the refusal")]
async fn a_deletion_without_permission_is_denied() {
    let cloud = Cloud::new();
    let id = cloud.made_by_go(MACHINE);
    let which = InstanceRef { may_lack_key: true, ..by_id(&id) };
    cloud.fake.inject("TerminateInstances", refusal(403, "UnauthorizedOperation"));
    let refused = cloud.driver().instances().delete(&which, &owner()).await;
    assert_eq!(refused.map_err(|error| error.kind), Err(ErrorKind::Denied));
    cloud.fake.inject("TerminateInstances", FaultKind::EffectThenStatus(500));
    let lost = cloud.driver().instances().delete(&which, &owner()).await;
    assert_eq!(lost.map_err(|error| error.kind), Err(ErrorKind::Ambiguous));
    let found = cloud.driver().instances().find(&by_id(&id)).await;
    assert!(matches!(found, Ok(Sighting::Present(_))), "it is shutting down");
}
