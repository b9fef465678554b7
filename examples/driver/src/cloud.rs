//! A cloud in the memory of the process: one instance per key. A real driver sends requests
//! instead, and passes the contract suite in `machinist_driver::contract`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use machinist_driver::{Driver, Instances, Provider};
use machinist_instance::{
    AccountId, CreateGuarantee, Credential, Error, ErrorKind, Foreign, Instance, InstanceKey, InstanceRef,
    InstanceSpec, KeyTag, Place, Power, Promises, ProviderId, Scope, Sighting,
};
use serde_json::Value;

/// A call has its effect within this time.
pub const CALL_BOUND: Duration = Duration::from_secs(1);

/// The provider of classes with `provider: example`.
#[derive(Default)]
pub struct Example(Arc<Cloud>);

/// The cloud, which is also its only account.
#[derive(Default)]
struct Cloud(Mutex<BTreeMap<InstanceKey, Instance>>);

impl Provider for Example {
    fn name(&self) -> &str {
        "example"
    }

    fn validate(&self, provider_spec: &Value) -> Result<(), Error> {
        let has_size = provider_spec["size"].is_string();
        let wrong = || Error::new(ErrorKind::InvalidSpec, "providerSpec.size: expected a text");
        has_size.then_some(()).ok_or_else(wrong)
    }

    fn account(&self, _: &Credential, _: &Place) -> AccountId {
        AccountId::of([b"example".as_slice()])
    }

    fn open(&self, _: &AccountId, _: &Credential, _: &Place) -> Result<Arc<dyn Driver>, Error> {
        Ok(self.0.clone())
    }
}

impl Driver for Cloud {
    fn instances(&self) -> &dyn Instances {
        self
    }

    fn promises(&self) -> Promises {
        Promises {
            visible_within: Duration::ZERO,
            call_bound: CALL_BOUND,
            calls_outlive_process: false,
            create: CreateGuarantee::NativeKey,
            rate: None,
            keys: KeyTag::Fixed,
        }
    }
}

impl Cloud {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<InstanceKey, Instance>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Instances for Cloud {
    async fn ensure(&self, spec: &InstanceSpec) -> Result<Instance, Error> {
        let id = ProviderId::parse(&format!("example:///{}", spec.name));
        let id = id.map_err(|error| Error::new(ErrorKind::InvalidSpec, error.to_string()))?;
        let made = Instance {
            id,
            native_id: None,
            key: Some(spec.key.clone()),
            cluster: Some(spec.cluster.clone()),
            name: spec.name.clone(),
            power: Power::Running,
            addresses: Vec::new(),
            instance_type: None,
            zone: None,
            region: None,
            tags: spec.tags.clone(),
            node_labels: BTreeMap::new(),
            created: Timestamp::now(),
        };
        Ok(self.lock().entry(spec.key.clone()).or_insert(made).clone())
    }

    async fn find(&self, which: &InstanceRef) -> Result<Sighting, Error> {
        let all = self.lock();
        let is_it = |instance: &&Instance| match &which.id {
            Some(id) => instance.id == *id,
            None => instance.key == which.key,
        };
        let Some(found) = all.values().find(is_it).cloned() else { return Ok(Sighting::Absent) };
        if which.key.is_none() || which.key == found.key {
            return Ok(Sighting::Present(found));
        }
        let Instance { id, key, cluster, created, .. } = found;
        Ok(Sighting::Foreign(Foreign { id, key, cluster, created }))
    }

    async fn list(&self, _: &Scope) -> Result<Vec<Instance>, Error> {
        Ok(self.lock().values().cloned().collect())
    }

    async fn delete(&self, which: &InstanceRef, owner: &InstanceKey) -> Result<(), Error> {
        let mut all = self.lock();
        let of_another = all.values().any(|instance| {
            which.id.as_ref() == Some(&instance.id) && instance.key.as_ref() != Some(owner)
        });
        if of_another {
            return Err(Error::new(ErrorKind::Denied, format!("expected an instance of the key {owner}")));
        }
        all.remove(owner);
        Ok(())
    }
}
