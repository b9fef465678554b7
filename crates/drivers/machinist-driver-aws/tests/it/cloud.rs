//! A fake cloud with two accounts, and the driver over pipes.

use std::collections::BTreeMap;
use std::sync::Arc;

use machinist_driver::{Driver, Provider as _};
use machinist_driver_aws::{AwsOptions, AwsProvider, Endpoint};
use machinist_instance::{
    AccountId, Credential, Instance, InstanceKey, InstanceRef, InstanceSpec, NodeName, Place, ProviderId,
    Sighting, UserData,
};
use serde_json::{Value, json};

use crate::fake::{Fake, IMAGE, Settings};
use crate::pipe;

pub(crate) const REGION: &str = "eu-west-1";
pub(crate) const ACCOUNT: &str = "123456789012";
pub(crate) const ACCESS_KEY: &str = "AKIA0";
pub(crate) const OTHER_ACCESS_KEY: &str = "AKIA1";
pub(crate) const SECRET_KEY: &str = "canary of the secret key";

/// The tags of a class, and of the instances that Go's provider made for it.
pub(crate) const MARKS: [(&str, &str); 3] = [
    ("kubernetes.io/cluster/shoot--foo--bar", "1"),
    ("kubernetes.io/role/node", "1"),
    ("worker.gardener.cloud/pool", "worker"),
];

pub(crate) struct Cloud {
    pub(crate) fake: Fake,
    pub(crate) provider: AwsProvider,
    pub(crate) options: AwsOptions,
}

impl Cloud {
    pub(crate) fn new() -> Self {
        Self::with(Settings::default(), AwsOptions::default())
    }

    pub(crate) fn with(settings: Settings, options: AwsOptions) -> Self {
        let fake = Fake::new(settings);
        for (key, account) in [(ACCESS_KEY, ACCOUNT), (OTHER_ACCESS_KEY, "another")] {
            fake.lock().access_keys.insert(key.to_owned(), account.to_owned());
        }
        let endpoint = Endpoint::parse("http://cloud").ok();
        let options =
            AwsOptions { ec2: endpoint.clone(), sts: endpoint, region: Some(REGION.to_owned()), ..options };
        let clock = fake.clone();
        let provider =
            AwsProvider::over(pipe::http(fake.clone()), options.clone()).with_clock(move || clock.now());
        Self { fake, provider, options }
    }

    pub(crate) fn account(&self) -> (AccountId, Credential) {
        let credential = credential(ACCESS_KEY);
        (self.provider.account(&credential, &Place::WHOLE), credential)
    }

    /// A new driver of the account, without memory of earlier calls.
    pub(crate) fn driver(&self) -> Arc<dyn Driver> {
        self.driver_in(REGION)
    }

    pub(crate) fn driver_in(&self, region: &str) -> Arc<dyn Driver> {
        let (credential, place) = (credential(ACCESS_KEY), Place::new(region));
        let account = self.provider.account(&credential, &place);
        self.provider.open(&account, &credential, &place).expect("a credential")
    }

    /// Creates an instance as Go's provider does, and returns its provider id.
    pub(crate) fn made_by_go(&self, machine: &str) -> ProviderId {
        let tags = [&MARKS[..], &[("Name", machine)]].concat();
        let id = self.fake.create(ACCOUNT, REGION, &tags);
        ProviderId::parse(&format!("aws:///{REGION}/{id}")).expect("not empty")
    }
}

pub(crate) fn credential(access_key: &str) -> Credential {
    credential_with(access_key, SECRET_KEY)
}

pub(crate) fn credential_with(access_key: &str, secret_key: &str) -> Credential {
    let entries = [("accessKeyID", access_key), ("secretAccessKey", secret_key)];
    Credential::new(entries.map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec())).into())
}

/// The smallest class. Its instances need no initialization.
pub(crate) fn class() -> Value {
    json!({
        "ami": IMAGE, "region": REGION, "machineType": "m5.large",
        "blockDevices": [{"ebs": {"volumeSize": 50, "volumeType": "gp3"}}],
        "iam": {"name": "shoot--foo--bar-nodes"},
        "networkInterfaces": [{"securityGroupIDs": ["sg-1"], "subnetID": "subnet-1"}],
        "tags": MARKS.into_iter().collect::<BTreeMap<_, _>>(),
    })
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

pub(crate) fn by_key(key: &InstanceKey) -> InstanceRef {
    InstanceRef { key: Some(key.clone()), ..InstanceRef::default() }
}

pub(crate) async fn found(driver: &dyn Driver, which: &InstanceRef) -> Instance {
    match driver.instances().find(which).await {
        Ok(Sighting::Present(instance)) => instance,
        other => panic!("{which}: {other:?}"),
    }
}

/// The cloud's id of an instance.
pub(crate) fn native(id: &ProviderId) -> &str {
    id.as_str().rsplit('/').next().expect("an id")
}
