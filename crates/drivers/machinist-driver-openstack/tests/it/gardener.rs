//! Instances that Go's provider created: its servers, ports and volumes, with its marks and without
//! a key.

use std::time::Duration;

use jiff::Timestamp;
use machinist_driver::Provider as _;
use machinist_instance::{
    ErrorKind, InstanceKey, InstanceRef, InstanceSpec, Marks, NodeName, ProviderId, Sighting,
};
use serde_json::{Value, json};

use crate::cloud::{
    Cloud, MARKS, NETWORK, by_id, class, class_with_volume, delete, ensure, found, instance_spec, native,
};

const MACHINE: &str = "shoot--foo--os-worker-z1-6c9d7";

fn owner() -> InstanceKey {
    InstanceKey::new("uid-of-the-machine")
}

/// The reference of a Machine that Go created: its id, its name, and the key of our controller.
fn of_go(id: &ProviderId) -> InstanceRef {
    let name = NodeName::new(MACHINE);
    InstanceRef { key: Some(owner()), name, may_lack_key: true, ..by_id(id) }
}

fn adopting(cloud: &Cloud, class: Value, since: Timestamp) -> InstanceSpec {
    assert!(since <= cloud.fake.now());
    InstanceSpec { key: owner(), adopt_made_since: Some(since), ..instance_spec(MACHINE, class) }
}

#[tokio::test(start_paused = true)]
#[expect(clippy::disallowed_methods, reason = "the test checks the refusal")]
async fn an_instance_of_go_is_known_by_its_marks() {
    let cloud = Cloud::new();
    let driver = cloud.driver();
    let id = cloud.made_by_go(MACHINE);
    let instance = found(&*driver, &by_id(&id)).await;
    assert_eq!((instance.key.as_ref(), &instance.id), (None, &id));
    assert_eq!(cloud.provider.marks_of(&instance, &class()), Marks::OfClass);
    let mut edited = class();
    edited["spec"]["tags"] = json!({"kubernetes.io-cluster-other": "1", "kubernetes.io-role-node": "1"});
    assert_eq!(cloud.provider.marks_of(&instance, &edited), Marks::OfAnotherClass);
    let pet = cloud.server(MACHINE, &[]);
    assert_eq!(cloud.provider.marks_of(&found(&*driver, &by_id(&pet)).await, &class()), Marks::Missing);
    let refused = driver.instances().delete(&by_id(&id), &owner()).await;
    assert_eq!(refused.map_err(|error| error.kind), Err(ErrorKind::Denied));
}

#[tokio::test(start_paused = true)]
async fn gap_5_servers_of_go_are_listed_by_their_marks() {
    let cloud = Cloud::new();
    let driver = cloud.driver();
    let id = cloud.made_by_go(MACHINE);
    cloud.server("a-pet", &[]);
    ensure(&*driver, &instance_spec("w-1", class())).await.expect("created");
    let mut other = class();
    other["spec"]["tags"] = json!({"kubernetes.io-cluster-other": "1", "kubernetes.io-role-node": "1"});
    let listed = async |class: Value| {
        let listed = driver.instances().list_marked(&[class]).await.expect("a list");
        listed.into_iter().map(|one| one.id).collect::<Vec<_>>()
    };
    assert_eq!(listed(class()).await, [id]);
    assert_eq!(listed(other).await, []);
}

/// The parts that Go made are found by the key after the server is gone.
#[tokio::test(start_paused = true)]
async fn gap_4_an_instance_of_go_is_deleted_with_its_parts() {
    for may_tag in [true, false] {
        let cloud = Cloud::new();
        cloud.fake.lock().settings.may_tag = may_tag;
        let id = cloud.made_by_go(MACHINE);
        cloud.port_of_go(MACHINE, native(&id));
        cloud.volume_of_go(MACHINE, native(&id));
        // A port of the name that Go did not make, and a volume of another Machine.
        cloud.fake.lock().new_port("shoot-project", "eu-nl-1", MACHINE, NETWORK);
        cloud.volume_of_go("another", "");
        delete(&*cloud.driver(), &of_go(&id), &owner()).await;
        // Without the permission, the description of the port has the key, and the volume stays.
        let left = if may_tag { (1, 1) } else { (1, 2) };
        assert_eq!(cloud.fake.parts(), left, "may write tags: {may_tag}");
    }
}

/// Go deleted the server, and was killed before it deleted the port and the volume. Another cluster
/// may use the same name and marks.
#[tokio::test(start_paused = true)]
async fn parts_that_go_left_without_a_server_stay() {
    let cloud = Cloud::new();
    let id = cloud.made_by_go(MACHINE);
    cloud.fake.lock().servers.clear();
    cloud.port_of_go(MACHINE, "");
    cloud.volume_of_go(MACHINE, "");
    let driver = cloud.driver();
    assert_eq!(driver.instances().find(&of_go(&id)).await, Ok(Sighting::Absent));
    delete(&*driver, &of_go(&id), &owner()).await;
    assert_eq!(cloud.fake.parts(), (1, 1));
}

/// Go was killed after the creation, and before it recorded the instance.
#[tokio::test(start_paused = true)]
async fn an_instance_of_a_killed_process_is_adopted() {
    let cloud = Cloud::new();
    let driver = cloud.driver();
    let began = cloud.fake.now();
    let id = cloud.made_by_go(MACHINE);
    let port = cloud.port_of_go(MACHINE, native(&id));
    let spec = adopting(&cloud, class(), began);
    let adopted = ensure(&*driver, &spec).await.expect("adopted");
    assert_eq!((&adopted.id, &adopted.key), (&id, &Some(owner())));
    assert_eq!(adopted.cluster.as_deref(), Some("default"));
    assert!(MARKS.iter().all(|(mark, value)| adopted.tags[*mark] == *value), "it keeps its marks");
    assert_eq!(ensure(&*driver, &spec).await.expect("the same").id, id);
    assert_eq!((cloud.fake.count("POST /servers"), cloud.fake.count("POST /ports")), (0, 0));
    // Go had not added the address pairs yet.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let initializer = driver.initialization().expect("a driver with initialization");
    initializer.initialize(&id, &owner(), &class()).await.expect("initialized");
    let shown = cloud.fake.lock().ports[0].clone();
    assert_eq!((shown.id, shown.pairs.len()), (port, 2));
    assert!(shown.tags.contains(&"machinist.dev-key=uid-of-the-machine".to_owned()), "{:?}", shown.tags);
    delete(&*driver, &InstanceRef { may_lack_key: false, ..of_go(&id) }, &owner()).await;
    assert_eq!(cloud.fake.parts(), (0, 0));
}

/// Go was killed between the parts and the server.
#[tokio::test(start_paused = true)]
async fn parts_of_a_killed_process_are_used() {
    let cloud = Cloud::new();
    let driver = cloud.driver();
    let began = cloud.fake.now();
    cloud.port_of_go(MACHINE, "");
    cloud.volume_of_go(MACHINE, "");
    let made = ensure(&*driver, &adopting(&cloud, class_with_volume(), began)).await.expect("created");
    assert_eq!((cloud.fake.count("POST /ports"), cloud.fake.count("POST /volumes")), (0, 0));
    assert_eq!(cloud.fake.parts(), (1, 1));
    delete(&*driver, &InstanceRef { may_lack_key: false, ..of_go(&made.id) }, &owner()).await;
    assert_eq!(cloud.fake.parts(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn only_young_objects_with_the_marks_are_adopted() {
    let cloud = Cloud::new();
    let old = cloud.made_by_go(MACHINE);
    cloud.port_of_go(MACHINE, "");
    tokio::time::sleep(Duration::from_secs(5)).await;
    let since = cloud.fake.now();
    let pet = cloud.server(MACHINE, &[]);
    let other = cloud.server(MACHINE, &[("kubernetes.io-cluster-other", "1"), MARKS[1]]);
    let made = ensure(&*cloud.driver(), &adopting(&cloud, class(), since)).await.expect("created");
    assert!(![&old, &pet, &other].contains(&&made.id));
    assert_eq!((cloud.fake.count("POST /ports"), cloud.fake.count("POST /servers/ID/metadata")), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_credential_without_metadata_adopts_nevertheless() {
    let cloud = Cloud::new();
    let began = cloud.fake.now();
    let id = cloud.made_by_go(MACHINE);
    cloud.port_of_go(MACHINE, native(&id));
    cloud.fake.lock().settings.may_tag = false;
    for _ in 0..2 {
        let adopted = ensure(&*cloud.driver(), &adopting(&cloud, class(), began)).await.expect("adopted");
        assert_eq!((&adopted.id, adopted.key), (&id, None));
    }
    assert_eq!(cloud.fake.lock().servers.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn only_an_instance_of_the_class_is_initialized() {
    let cloud = Cloud::new();
    let driver = cloud.driver();
    let initializer = driver.initialization().expect("a driver with initialization");
    let id = cloud.made_by_go(MACHINE);
    cloud.port_of_go(MACHINE, native(&id));
    let pet = cloud.server("pet", &[]);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(initializer.initialize(&id, &owner(), &class()).await, Ok(()));
    let refused = initializer.initialize(&pet, &owner(), &class()).await;
    assert_eq!(refused.map_err(|error| error.kind), Err(ErrorKind::Denied));
}

/// The object keeps the spelling that it records.
#[tokio::test(start_paused = true)]
async fn a_recorded_spelling_is_kept() {
    let cloud = Cloud::new();
    let driver = cloud.driver();
    let id = cloud.made_by_go(MACHINE);
    for text in [id.as_str().to_owned(), format!("openstack:///{}", native(&id))] {
        let recorded = ProviderId::parse(&text).expect("not empty");
        assert_eq!(found(&*driver, &by_id(&recorded)).await.id, recorded);
        assert!(cloud.provider.same_instance(&id, &recorded));
    }
}
