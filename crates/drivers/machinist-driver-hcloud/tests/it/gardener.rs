//! Classes, servers and ids of 23technologies' provider of machine-controller-manager.

use std::collections::BTreeMap;
use std::sync::Arc;

use machinist_driver::{Driver, Provider as _};
use machinist_driver_hcloud::{GARDENER_NAME, validate};
use machinist_instance::{
    Error, ErrorKind, Instance, InstanceKey, InstanceRef, InstanceSpec, Marks, Place, ProviderId, Sighting,
};
use machinist_standin_hcloud::{FloatingIp, HcloudServer, NewServer};
use serde_json::{Value, json};

use crate::cloud::{Cloud, PROJECT, SSH_KEY, instance_spec};

/// A class as the chart of the provider writes it.
fn class() -> Value {
    json!({
        "cluster": "shoot--foo--hc", "extraConfig": {}, "floatingPoolName": "",
        "imageName": "ubuntu-22.04", "networkName": "cluster", "placementGroupID": "",
        "serverType": "cx23", "zone": "hel1-dc2",
        "sshFingerprint": format!("00:00:00:00:00:00:00:00:{SSH_KEY:016x}"),
        "tags": {"mcm.gardener.cloud/cluster": "shoot--foo--hc", "mcm.gardener.cloud/role": "node"},
    })
}

/// The labels of its servers.
fn labels() -> BTreeMap<String, String> {
    [
        ("mcm.gardener.cloud/cluster", "shoot--foo--hc"),
        ("mcm.gardener.cloud/role", "node"),
        ("topology.kubernetes.io/region", "hel1"),
        ("topology.kubernetes.io/zone", "hel1-dc2"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
}

/// The driver of a machine controller.
fn driver(cloud: &Cloud) -> Arc<dyn Driver> {
    let (account, credential) = cloud.account();
    let provider = cloud.provider.clone().with_machine_ids();
    provider.open(&account, &credential, &Place::WHOLE).expect("a token")
}

fn spec(name: &str, class: Value) -> InstanceSpec {
    InstanceSpec { provider_spec: class, ..instance_spec(name) }
}

/// A server that the other provider created.
fn made_by_go(cloud: &Cloud, name: &str) -> HcloudServer {
    let new = NewServer { labels: labels(), location: "hel1".to_owned(), ..NewServer::new(PROJECT, name) };
    cloud.standin.create_server(&new).expect("a server")
}

fn by_zoned_id(server: i64) -> InstanceRef {
    InstanceRef {
        id: ProviderId::parse(&format!("hcloud:///hel1-dc2/{server}")).ok(),
        ..InstanceRef::default()
    }
}

async fn found(driver: &dyn Driver, which: &InstanceRef) -> Instance {
    match driver.instances().find(which).await {
        Ok(Sighting::Present(instance)) => instance,
        other => panic!("{which}: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn gap_5_servers_of_the_other_provider_are_listed_by_its_labels() {
    let cloud = Cloud::instant();
    let driver = driver(&cloud);
    let theirs = made_by_go(&cloud, "w-1");
    driver.instances().ensure(&spec("w-2", class())).await.expect("a server of ours");
    let of_another = [("mcm.gardener.cloud/cluster", "shoot--foo--b"), ("mcm.gardener.cloud/role", "node")];
    let of_another = of_another.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let new = NewServer { labels: of_another.into(), ..NewServer::new(PROJECT, "w-3") };
    cloud.standin.create_server(&new).expect("a server");
    let listed = driver.instances().list_marked(&[class(), class()]).await.expect("a list");
    let ids: Vec<&str> = listed.iter().map(|one| one.id.as_str()).collect();
    assert_eq!(ids, [format!("hcloud:///hel1-dc2/{}", theirs.id)]);
}

#[tokio::test(start_paused = true)]
async fn a_class_of_the_extension_creates_its_server() {
    let cloud = Cloud::instant();
    assert!(cloud.provider.serves(GARDENER_NAME) && !cloud.provider.serves("hclouddriver"));
    assert_eq!(validate(&class()), Ok(()));
    let driver = driver(&cloud);
    let made = driver.instances().ensure(&spec("w-1", class())).await.expect("created");
    let [server] = cloud.standin.servers_ever().try_into().expect("one server");
    assert_eq!((server.server_type.as_str(), server.location.as_str()), ("cx23", "hel1"));
    assert_eq!(server.image, Some(67_794_396), "the image of the architecture x86");
    assert_eq!(made.id.as_str(), format!("hcloud:///hel1-dc2/{}", server.id));
    assert_eq!(found(&*driver, &by_zoned_id(server.id)).await.addresses.len(), 3, "it is in the network");
    let mut expected = labels();
    expected.insert("machinist.dev/key".to_owned(), "uid-of-w-1".to_owned());
    expected.insert("machinist.dev/cluster".to_owned(), "default".to_owned());
    assert_eq!(server.labels, expected);

    // The names are known now.
    let (reads, changes) = (cloud.reads(), cloud.changes());
    driver.instances().ensure(&spec("w-2", class())).await.expect("created");
    assert_eq!(
        (cloud.reads() - reads, cloud.changes() - changes),
        (1, 1),
        "a lookup by key, and the creation"
    );
    // Nodes have the short form.
    let listed =
        cloud.driver().instances().find(&InstanceRef { key: made.key, ..InstanceRef::default() }).await;
    assert!(
        matches!(&listed, Ok(Sighting::Present(it)) if it.id.as_str() == format!("hcloud://{}", server.id)),
        "{listed:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn deprecated_images_and_those_of_each_architecture_are_found() {
    let cloud = Cloud::instant();
    let driver = driver(&cloud);
    for (name, image, server_type, id) in
        [("w-1", "debian-11", "cx22", 45_557_056), ("w-2", "ubuntu-22.04", "cax11", 103_907_373)]
    {
        let mut class = class();
        (class["imageName"], class["serverType"]) = (image.into(), server_type.into());
        driver.instances().ensure(&spec(name, class)).await.expect("created");
        let made = cloud.standin.servers_ever().into_iter().find(|server| server.name == name);
        assert_eq!(made.and_then(|server| server.image), Some(id), "{image} for {server_type}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_without_an_object_is_an_error_of_its_field() {
    let cloud = Cloud::instant();
    let driver = driver(&cloud);
    for (field, value) in [("imageName", "debian-1"), ("sshFingerprint", "00"), ("networkName", "other")] {
        let mut class = class();
        class[field] = value.into();
        let error = driver.instances().ensure(&spec("w-1", class)).await.expect_err(field);
        assert_eq!(error.kind, ErrorKind::InvalidSpec, "{error}");
        assert!(error.message.starts_with(&format!("providerSpec.{field}: expected")), "{error}");
    }
    assert_eq!(cloud.changes(), 0, "nothing was sent");
}

/// A server without a key is deleted by the id that its Machine records, if the caller has compared
/// the marks of the server with its class.
#[tokio::test(start_paused = true)]
#[expect(clippy::disallowed_methods, reason = "the test checks the deletion")]
async fn a_server_of_the_other_provider_is_deleted_by_its_recorded_id() {
    let cloud = Cloud::instant();
    let driver = driver(&cloud);
    let server = made_by_go(&cloud, "w-1");
    let instance = found(&*driver, &by_zoned_id(server.id)).await;
    assert_eq!(
        (instance.key.as_ref(), instance.id.as_str()),
        (None, &*format!("hcloud:///hel1-dc2/{}", server.id))
    );
    assert_eq!(cloud.provider.marks_of(&instance, &class()), Marks::OfClass);
    let mut edited = class();
    edited["cluster"] = "another".into();
    assert_eq!(cloud.provider.marks_of(&instance, &edited), Marks::OfAnotherClass);
    let pet = cloud.server("pet");
    let pet = found(&*driver, &by_zoned_id(pet.id)).await;
    assert_eq!(cloud.provider.marks_of(&pet, &class()), Marks::Missing);

    let owner = InstanceKey::new("uid-of-w-1");
    let refused = driver.instances().delete(&by_zoned_id(server.id), &owner).await;
    assert_eq!(refused.map_err(|error| error.kind), Err(ErrorKind::Denied));
    let which = InstanceRef { may_lack_key: true, ..by_zoned_id(server.id) };
    driver.instances().delete(&which, &owner).await.expect("deleted");
    assert_eq!(driver.instances().find(&which).await, Ok(Sighting::Absent));
}

/// The other provider was killed between the creation and the start.
#[tokio::test(start_paused = true)]
async fn an_adopted_server_that_is_off_is_switched_on() {
    let cloud = Cloud::instant();
    let driver = driver(&cloud);
    let server = made_by_go(&cloud, "w-1");
    cloud.standin.power_off(server.id).expect("it runs");
    let since = Some(server.created);
    let adopting = InstanceSpec { adopt_made_since: since, ..spec("w-1", class()) };
    let adopted = driver.instances().ensure(&adopting).await.expect("adopted");
    assert_eq!(adopted.id.as_str(), format!("hcloud:///hel1-dc2/{}", server.id));
    let server = cloud.standin.server(server.id).expect("it exists");
    assert_eq!(server.status.as_str(), "running");
    assert_eq!(server.labels.get("machinist.dev/key").map(String::as_str), Some("uid-of-w-1"));
    assert!(
        labels().iter().all(|(name, value)| server.labels.get(name) == Some(value)),
        "it keeps its marks"
    );
}

/// A class whose servers have a floating address.
pub(crate) fn class_with_pool() -> Value {
    let mut class = class();
    class["floatingPoolName"] = "pool1".into();
    class
}

fn addresses(cloud: &Cloud) -> Vec<FloatingIp> {
    cloud.standin.dump().floating_ips.into_values().collect()
}

async fn initialize(driver: &dyn Driver, made: &Instance, owner: &str) -> Result<(), Error> {
    let calls = driver.initialization().expect("the driver initializes servers");
    calls.initialize(&made.id, &InstanceKey::new(owner), &class_with_pool()).await
}

#[tokio::test(start_paused = true)]
#[expect(clippy::disallowed_methods, reason = "the test checks the deletion")]
async fn a_floating_address_lives_as_long_as_its_server() {
    let cloud = Cloud::instant();
    let driver = driver(&cloud);
    assert!(cloud.provider.needs_initialization(&class_with_pool()));
    assert!(!cloud.provider.needs_initialization(&class()));
    let made = driver.instances().ensure(&spec("w-1", class_with_pool())).await.expect("created");
    let of_another = initialize(&*driver, &made, "uid-of-w-2").await;
    assert_eq!(of_another.map_err(|error| error.kind), Err(ErrorKind::Denied));
    initialize(&*driver, &made, "uid-of-w-1").await.expect("initialized");

    let [address] = addresses(&cloud).try_into().expect("one address");
    let server = cloud.standin.servers_ever()[0].id;
    assert_eq!((address.name.as_str(), address.server), ("pool1-w-1-ipv4", Some(server)));
    let labels = [
        ("machinist.dev/cluster", "default"),
        ("machinist.dev/key", "uid-of-w-1"),
        ("mcm.gardener.cloud/cluster", "shoot--foo--hc"),
        ("networking.hcloud.mcm.gardener.cloud/floating-pool", "pool1"),
    ];
    let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(address.labels, labels.into(), "the other provider finds it, and so do we");

    let changes = cloud.changes();
    initialize(&*driver, &made, "uid-of-w-1").await.expect("initialized");
    assert_eq!(cloud.changes(), changes, "a repetition changes nothing");

    let key = InstanceKey::new("uid-of-w-1");
    driver.instances().delete(&by_zoned_id(server), &key).await.expect("deleted");
    assert_eq!(addresses(&cloud), []);
    assert!(cloud.standin.servers_ever()[0].deleted.is_some());
}

/// The flaw of the other provider: the address stays if the server is already gone.
#[tokio::test(start_paused = true)]
#[expect(clippy::disallowed_methods, reason = "the test checks the deletion")]
async fn the_address_of_a_server_that_disappeared_is_deleted() {
    let cloud = Cloud::instant();
    let driver = driver(&cloud);
    for name in ["w-1", "w-2"] {
        let made = driver.instances().ensure(&spec(name, class_with_pool())).await.expect("created");
        initialize(&*driver, &made, &format!("uid-of-{name}")).await.expect("initialized");
    }
    for server in cloud.standin.servers_ever() {
        cloud.standin.delete_server(server.id).expect("a user deletes it");
    }
    assert!(addresses(&cloud).iter().all(|address| address.server.is_none()));
    let gone = by_zoned_id(cloud.standin.servers_ever()[0].id);
    driver.instances().delete(&gone, &InstanceKey::new("uid-of-w-1")).await.expect("deleted");
    let left: Vec<_> = addresses(&cloud).into_iter().map(|address| address.name).collect();
    assert_eq!(left, ["pool1-w-2-ipv4"], "the address of another Machine stays");
}

/// The other provider left a server and an address without a key.
#[tokio::test(start_paused = true)]
#[expect(clippy::disallowed_methods, reason = "the test checks the deletion")]
async fn an_address_of_the_other_provider_is_deleted_with_its_server() {
    let cloud = Cloud::instant();
    let driver = driver(&cloud);
    let server = made_by_go(&cloud, "w-1");
    let mut state = cloud.standin.dump();
    let address = |id, name: &str, pool: Option<&str>| FloatingIp {
        id,
        project: PROJECT.to_owned(),
        name: name.to_owned(),
        created: server.created,
        labels: pool
            .map(|pool| {
                let label = "networking.hcloud.mcm.gardener.cloud/floating-pool";
                (label.to_owned(), pool.to_owned())
            })
            .into_iter()
            .collect(),
        ip: format!("198.51.100.{id}"),
        location: "hel1".to_owned(),
        server: Some(server.id),
    };
    let all = [address(4, "pool1-w-1-ipv4", Some("pool1")), address(5, "of-a-user", None)];
    state.floating_ips.extend(all.map(|address| (address.id, address)));
    cloud.standin.load(state).expect("in memory");

    let which = InstanceRef { may_lack_key: true, ..by_zoned_id(server.id) };
    driver.instances().delete(&which, &InstanceKey::new("uid-of-w-1")).await.expect("deleted");
    let left: Vec<_> = addresses(&cloud).into_iter().map(|address| (address.name, address.server)).collect();
    assert_eq!(left, [("of-a-user".to_owned(), None)], "only its own address is deleted");
}

#[tokio::test(start_paused = true)]
async fn an_address_of_another_server_is_not_taken() {
    let cloud = Cloud::instant();
    let driver = driver(&cloud);
    let first = driver.instances().ensure(&spec("w-1", class_with_pool())).await.expect("created");
    initialize(&*driver, &first, "uid-of-w-1").await.expect("initialized");
    let second = driver.instances().ensure(&spec("w-2", class_with_pool())).await.expect("created");
    let mut state = cloud.standin.dump();
    let address = state.floating_ips.values_mut().next().expect("an address");
    address.name = "pool1-w-2-ipv4".to_owned();
    cloud.standin.load(state).expect("in memory");
    let error = initialize(&*driver, &second, "uid-of-w-2").await.expect_err("it is taken");
    assert_eq!(error.kind, ErrorKind::Denied, "{error}");
    assert!(error.message.contains("floating address pool1-w-2-ipv4 is assigned to server"), "{error}");
}

/// A deletion does not ask again for addresses in a project that has none. That must not hide those
/// that are created afterwards.
#[tokio::test(start_paused = true)]
#[expect(clippy::disallowed_methods, reason = "the test checks the deletion")]
async fn a_new_address_ends_the_absence_of_all_addresses() {
    let cloud = Cloud::instant();
    let driver = driver(&cloud);
    let key = InstanceKey::new("uid-of-w-1");
    for _ in 0..2 {
        driver.instances().delete(&by_zoned_id(1), &key).await.expect("nothing is there");
    }
    assert_eq!(cloud.reads(), 3, "the second deletion asks for the server only");
    let made = driver.instances().ensure(&spec("w-1", class_with_pool())).await.expect("created");
    initialize(&*driver, &made, "uid-of-w-1").await.expect("initialized");
    driver.instances().delete(&by_zoned_id(cloud.standin.servers_ever()[0].id), &key).await.expect("deleted");
    assert_eq!(addresses(&cloud), []);
}
