//! A provider that can answer no question, as on the first day of writing one. No HTTP is involved.

use async_trait::async_trait;
use machinist_driver::{Driver, Instances, Provider};
use machinist_instance::{
    AccountId, CreateGuarantee, Error, ErrorKind, Instance, InstanceKey, InstanceRef, InstanceSpec, KeyTag,
    Place, Promises, Scope, Sighting,
};

use super::*;

/// The provider, its only account, and the kind of every error.
#[derive(Clone)]
struct Stub(ErrorKind);

impl Stub {
    fn error(&self) -> Error {
        Error::new(self.0, "not written yet")
    }
}

impl Provider for Stub {
    fn name(&self) -> &str {
        "stub"
    }

    fn validate(&self, _: &Value) -> Result<(), Error> {
        Err(self.error())
    }

    fn account(&self, _: &Credential, _: &Place) -> AccountId {
        AccountId::of([&b"stub"[..]])
    }

    fn open(&self, _: &AccountId, _: &Credential, _: &Place) -> Result<Arc<dyn Driver>, Error> {
        Ok(Arc::new(self.clone()))
    }
}

impl Driver for Stub {
    fn instances(&self) -> &dyn Instances {
        self
    }

    fn promises(&self) -> Promises {
        Promises {
            visible_within: Duration::from_secs(10),
            call_bound: Duration::from_secs(30),
            calls_outlive_process: true,
            create: CreateGuarantee::UniqueName,
            rate: None,
            keys: KeyTag::Fixed,
        }
    }
}

#[async_trait]
impl Instances for Stub {
    async fn ensure(&self, _: &InstanceSpec) -> Result<Instance, Error> {
        Err(self.error())
    }

    async fn find(&self, _: &InstanceRef) -> Result<Sighting, Error> {
        Err(self.error())
    }

    async fn list(&self, _: &Scope) -> Result<Vec<Instance>, Error> {
        Err(self.error())
    }

    async fn delete(&self, _: &InstanceRef, _: &InstanceKey) -> Result<(), Error> {
        Err(self.error())
    }
}

/// The provider has neither load balancers nor routes. The other controllers work, and do nothing
/// without an answer.
#[tokio::test(start_paused = true)]
async fn a_provider_without_answers_changes_nothing() {
    for kind in [ErrorKind::Unsupported, ErrorKind::Unavailable] {
        let world = World::new();
        world.join("new").await;
        let initialized = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": "old"}, "spec": {"providerID": "stub://old"},
        });
        world.nodes().create(&PostParams::default(), &parse(initialized)).await.expect("accepted");
        for name in ["new", "old"] {
            world.set_ready(name, false).await;
        }
        let versions = async || -> Vec<Option<String>> {
            let all = world.nodes().list(&ListParams::default()).await.expect("a list").items;
            all.into_iter().map(|node| node.metadata.resource_version).collect()
        };
        let before = versions().await;
        let process = world.start_with(|options| options.provider = Arc::new(Stub(kind)));
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert_eq!(versions().await, before, "{kind:?}: no Node is written or deleted");
        let [new, old] = [world.node("new").await, world.node("old").await].map(|node| node.expect("kept"));
        assert!(has_taint(&new, UNINITIALIZED) && !has_taint(&old, SHUTDOWN), "{kind:?}");
        assert_eq!(world.requests(|_| true), 0, "no request to another cloud");
        let inspector = process.inspector();
        assert_eq!(inspector.not_ready(), None);
        let panicked: f64 = inspector
            .metrics()
            .into_iter()
            .filter(|(name, _)| name.starts_with("machinist_passes_panicked_total"))
            .map(|(_, count)| count)
            .sum();
        assert_eq!(panicked, 0.0, "{kind:?}");
    }
}
