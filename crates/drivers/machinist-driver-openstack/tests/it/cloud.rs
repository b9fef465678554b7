//! A fake cloud with two projects, and the driver over pipes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use machinist_driver::{Driver, Provider as _};
use machinist_driver_openstack::{OpenStackOptions, OpenStackProvider};
use machinist_instance::{
    AccountId, Credential, Error, Instance, InstanceKey, InstanceRef, InstanceSpec, NodeName, Place,
    ProviderId, Sighting, UserData,
};
use serde_json::{Value, json};

use crate::fake::{Fake, Settings};
use crate::pipe;

pub(crate) const REGION: &str = "eu-nl-1";
pub(crate) const PROJECT: &str = "shoot-project";
pub(crate) const USER: &str = "user";
pub(crate) const OTHER_USER: &str = "another-user";
pub(crate) const NETWORK: &str = "378c4e98-dcf9-438a-bf7f-89d964d18793";

/// The tags of a class, and the metadata of the servers that Go's provider made for it.
pub(crate) const MARKS: [(&str, &str); 2] =
    [("kubernetes.io-cluster-shoot--foo--os", "1"), ("kubernetes.io-role-node", "1")];

pub(crate) struct Cloud {
    pub(crate) fake: Fake,
    pub(crate) provider: OpenStackProvider,
    pub(crate) class: Value,
}

impl Cloud {
    pub(crate) fn new() -> Self {
        Self::with(Settings::default())
    }

    pub(crate) fn with(settings: Settings) -> Self {
        let fake = Fake::new(settings);
        fake.lock().users = users();
        let clock = fake.clone();
        let options = OpenStackOptions { region: Some(REGION.to_owned()) };
        let provider =
            OpenStackProvider::new(options).over(pipe::http(fake.clone())).with_clock(move || clock.now());
        Self { fake, provider, class: class() }
    }

    pub(crate) fn account(&self) -> (AccountId, Credential) {
        let credential = credential(USER);
        (self.provider.account(&credential, &Place::WHOLE), credential)
    }

    /// A new driver of the account, without memory of earlier calls.
    pub(crate) fn driver(&self) -> Arc<dyn Driver> {
        self.driver_in(REGION)
    }

    pub(crate) fn driver_in(&self, region: &str) -> Arc<dyn Driver> {
        self.open(&credential(USER), region)
    }

    pub(crate) fn open(&self, credential: &Credential, region: &str) -> Arc<dyn Driver> {
        let place = Place::new(region);
        let account = self.provider.account(credential, &place);
        self.provider.open(&account, credential, &place).expect("a credential")
    }

    /// Creates a server as Go's provider does, and returns its provider id.
    pub(crate) fn made_by_go(&self, machine: &str) -> ProviderId {
        self.server(machine, &MARKS)
    }

    pub(crate) fn server(&self, name: &str, metadata: &[(&str, &str)]) -> ProviderId {
        let mut state = self.fake.lock();
        let id = state.id();
        state.new_server(&id, PROJECT, REGION, name, texts(metadata));
        ProviderId::parse(&format!("openstack:///{REGION}/{id}")).expect("not empty")
    }

    /// Creates a port as Go's provider does, and returns its id.
    pub(crate) fn port_of_go(&self, name: &str, server: &str) -> String {
        let mut state = self.fake.lock();
        let id = state.new_port(PROJECT, REGION, name, NETWORK);
        let port = state.ports.iter_mut().find(|port| port.id == id).expect("it exists");
        port.tags = MARKS.iter().map(|(mark, _)| (*mark).to_owned()).collect();
        server.clone_into(&mut port.device);
        id
    }

    /// Creates a root volume as Go's provider does, and returns its id.
    pub(crate) fn volume_of_go(&self, name: &str, server: &str) -> String {
        let mut state = self.fake.lock();
        let id = state.new_volume(PROJECT, REGION, name, texts(&MARKS));
        let volume = state.volumes.iter_mut().find(|volume| volume.id == id).expect("it exists");
        server.clone_into(&mut volume.server);
        id
    }
}

pub(crate) fn users() -> BTreeMap<String, String> {
    texts(&[(USER, PROJECT), (OTHER_USER, "another-project"), ("acid", PROJECT), ("acname", PROJECT)])
}

pub(crate) fn texts(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

pub(crate) fn credential(user: &str) -> Credential {
    secret(&[
        ("authURL", "http://keystone/identity/v3"),
        ("username", user),
        ("password", "canary of the password"),
        ("domainName", "Default"),
        ("tenantName", if user == USER { PROJECT } else { "another-project" }),
    ])
}

pub(crate) fn secret(entries: &[(&str, &str)]) -> Credential {
    let entry = |(name, value): &(&str, &str)| ((*name).to_owned(), value.as_bytes().to_vec());
    Credential::new(entries.iter().map(entry).collect())
}

/// A class as Gardener's extension writes it.
pub(crate) fn class() -> Value {
    json!({
        "apiVersion": "openstack.machine.gardener.cloud/v1alpha1", "kind": "MachineProviderConfig",
        "spec": {
            "imageID": "a40dff99-e78a-4c83-af12-26b97e13fc9f", "region": REGION,
            "availabilityZone": "eu-nl-1b", "flavorName": "m1.xmedium", "keyName": "shoot--foo--os",
            "securityGroups": ["shoot--foo--os"], "networkID": NETWORK,
            "subnetIDs": ["5d8d6bd5-3c39-4bcb-a4c5-0a4c7a8f0001"],
            "podNetworkCIDRs": ["100.96.0.0/11", "fd00:10::/64"], "rootDiskSize": 0,
            "tags": MARKS.into_iter().collect::<BTreeMap<_, _>>(),
        },
    })
}

pub(crate) fn with(field: &str, value: Value) -> Value {
    let mut class = class();
    class["spec"][field] = value;
    class
}

/// A class with a root volume of our own.
pub(crate) fn class_with_volume() -> Value {
    let mut class = with("rootDiskSize", json!(50));
    class["spec"]["rootDiskType"] = json!("ssd");
    class
}

pub(crate) fn instance_spec(machine: &str, provider_spec: Value) -> InstanceSpec {
    InstanceSpec {
        key: InstanceKey::new(format!("uid-of-{machine}")),
        name: NodeName::new(machine).expect("not empty"),
        cluster: "default".to_owned(),
        provider_spec,
        user_data: UserData::new(*b"token: canary"),
        tags: BTreeMap::new(),
        annotations: BTreeMap::new(),
        adopt_made_since: None,
        last_known_state: None,
    }
}

pub(crate) fn by_id(id: &ProviderId) -> InstanceRef {
    InstanceRef { id: Some(id.clone()), ..InstanceRef::default() }
}

/// The reference of a Machine: everything that its object records.
pub(crate) fn of_machine(spec: &InstanceSpec, id: Option<&ProviderId>) -> InstanceRef {
    InstanceRef {
        id: id.cloned(),
        key: Some(spec.key.clone()),
        name: Some(spec.name.clone()),
        ..InstanceRef::default()
    }
}

pub(crate) async fn found(driver: &dyn Driver, which: &InstanceRef) -> Instance {
    match driver.instances().find(which).await {
        Ok(Sighting::Present(instance)) => instance,
        other => panic!("{which}: {other:?}"),
    }
}

/// Calls `ensure` as the controller does: again while the cloud works.
pub(crate) async fn ensure(driver: &dyn Driver, spec: &InstanceSpec) -> Result<Instance, Error> {
    for _ in 0..10 {
        match driver.instances().ensure(spec).await {
            Err(error) if error.is_in_progress() => tokio::time::sleep(Duration::from_secs(1)).await,
            other => return other,
        }
    }
    panic!("the creation does not end")
}

/// Deletes as the controller does: again until nothing is left.
#[expect(clippy::disallowed_methods, reason = "a test deletes what it created")]
pub(crate) async fn delete(driver: &dyn Driver, which: &InstanceRef, owner: &InstanceKey) {
    for _ in 0..20 {
        driver.instances().delete(which, owner).await.expect("accepted");
        tokio::time::sleep(Duration::from_secs(2)).await;
        match driver.instances().find(which).await.expect("a sighting") {
            Sighting::Absent | Sighting::Ended => return,
            Sighting::Present(_) | Sighting::Parts(_) => {}
            other @ Sighting::Foreign(_) => panic!("{other:?}"),
        }
    }
    panic!("the deletion does not end")
}

/// The cloud's id of a server.
pub(crate) fn native(id: &ProviderId) -> &str {
    id.as_str().rsplit('/').next().expect("an id")
}
