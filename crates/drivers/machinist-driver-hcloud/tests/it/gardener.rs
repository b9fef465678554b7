//! Classes, servers and ids of 23technologies' provider of machine-controller-manager.

use std::collections::BTreeMap;
use std::sync::Arc;

use machinist_driver::{Driver, Provider as _};
use machinist_driver_hcloud::{GARDENER_NAME, validate};
use machinist_instance::{
    ErrorKind, Instance, InstanceKey, InstanceRef, InstanceSpec, Marks, Place, ProviderId, Sighting,
};
use machinist_standin_hcloud::{HcloudServer, NewServer, SshKey};
use serde_json::{Value, json};

use crate::cloud::{Cloud, PROJECT, instance_spec};

/// The id of the SSH key of the project.
const SSH_KEY: i64 = 4712;

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

fn cloud() -> Cloud {
    let cloud = Cloud::instant();
    let mut state = cloud.standin.dump();
    let key = SshKey {
        id: SSH_KEY,
        project: PROJECT.to_owned(),
        name: "shoot--foo--hc".to_owned(),
        created: cloud.standin.now(),
        labels: BTreeMap::new(),
        public_key: "ssh-ed25519 AAAA".to_owned(),
    };
    state.ssh_keys.insert(SSH_KEY, key);
    cloud.standin.load(state).expect("in memory");
    cloud
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
async fn a_class_of_the_extension_creates_its_server() {
    let cloud = cloud();
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
    let cloud = cloud();
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
    let cloud = cloud();
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

/// T8 of the wire contracts.
#[tokio::test(start_paused = true)]
#[expect(clippy::disallowed_methods, reason = "the test checks the deletion")]
async fn a_server_of_the_other_provider_is_deleted_by_its_recorded_id() {
    let cloud = cloud();
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
    let cloud = cloud();
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
