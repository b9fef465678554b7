//! Tests of one process with the providers of two clouds.

use machinist_driver::Providers;

use super::*;

/// Another simulated cloud, whose classes say `other`.
struct Other(SimProvider);

impl OverSim for Other {
    fn sim(&self) -> &SimProvider {
        &self.0
    }
    fn name(&self) -> &'static str {
        "other"
    }
    fn account(&self, credential: &Credential, place: &Place) -> AccountId {
        AccountId::of([b"other", self.0.account(credential, place).as_str().as_bytes()])
    }
}

/// A world with two clouds that share one Secret, and a Machine in each.
struct TwoClouds {
    world: World,
    other: Cloud,
    providers: Providers,
    processes: Option<(Running, Running)>,
}

impl TwoClouds {
    async fn new() -> Self {
        let world = World::new().await;
        let epoch = jiff::Timestamp::from_second(EPOCH).expect("a moment");
        let settings = Settings { scheme: "other".to_owned(), ..Settings::default() };
        let other = Cloud::in_memory(settings, machinist_cloud_sim::Clock::starting_at(epoch));
        let providers = Providers::new([
            Arc::new(SimProvider::in_process(world.cloud.clone())) as Arc<dyn Provider>,
            Arc::new(Over(Other(SimProvider::in_process(other.clone())))),
        ]);
        world.apply(1).await;
        let mut two = Self { world, other, providers, processes: None };
        two.start();
        two.make_class("d", "other").await;
        two.world.make_machine_of("second", "d").await;
        two.until_alive(1, 1).await;
        two
    }

    /// Starts the processes, or replaces them by others with an empty memory.
    fn start(&mut self) {
        self.processes = None;
        let providers = self.providers.clone();
        self.processes = Some(self.world.start_with(|options| options.providers = providers));
    }

    fn classes(&self) -> Api<MachineClass> {
        Api::namespaced(self.world.user.clone(), NAMESPACE)
    }

    async fn make_class(&self, name: &str, provider: &str) {
        let class = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass", "metadata": {"name": name},
            "provider": provider, "providerSpec": {"size": "small"},
            "secretRef": {"name": "s", "namespace": NAMESPACE},
        });
        self.classes().create(&PostParams::default(), &parse(class)).await.expect("the class is accepted");
    }

    async fn until_alive(&self, first: usize, other: usize) {
        let alive = async |w: &World| (w.cloud.alive(), self.other.alive()) == (first, other);
        self.world.until(&format!("{first} and {other} instances"), alive).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_class_chooses_the_cloud_of_an_instance() {
    let two = TwoClouds::new().await;
    let machines: Api<Machine> = Api::namespaced(two.world.user.clone(), NAMESPACE);
    let recorded = async || machines.get("second").await.expect("the Machine").spec.provider_id;
    two.world.until("the id is recorded", async |_| recorded().await.is_some()).await;
    let id = recorded().await.unwrap_or_default();
    assert!(id.starts_with("other:"), "{id}");
    two.make_class("nowhere", "azure").await;
    two.world.make_machine_of("third", "nowhere").await;
    let text =
        "provider: this controller does not manage \\\"azure\\\"; expected one of \\\"sim\\\", \\\"other\\\"";
    let says = async |_: &World| {
        let third = machines.get("third").await.expect("the Machine");
        serde_json::to_string(&third.status).expect("a status").contains(text)
    };
    two.world.until("the status names the providers", says).await;
    assert_eq!((two.world.cloud.alive(), two.other.alive()), (1, 1));
}

/// A user replaces the provider of a class that has a Machine.
#[tokio::test(start_paused = true)]
async fn an_instance_is_deleted_in_the_cloud_of_its_id() {
    for (provider, restarts) in [("sim", false), ("sim", true), ("azure", true)] {
        let mut two = TwoClouds::new().await;
        let machines: Api<Machine> = Api::namespaced(two.world.user.clone(), NAMESPACE);
        let recorded =
            async |_: &World| machines.get("second").await.expect("the Machine").spec.provider_id.is_some();
        two.world.until("the id is recorded", recorded).await;
        let edit = Patch::Merge(json!({"provider": provider}));
        two.classes().patch("d", &PatchParams::default(), &edit).await.expect("edited");
        if restarts {
            two.start();
        }
        machines.delete("second", &DeleteParams::default()).await.expect("deleted");
        two.until_alive(1, 0).await;
        let is_gone = async |_: &World| machines.get_opt("second").await.expect("an answer").is_none();
        two.world.until("the Machine is gone", is_gone).await;
        assert_eq!(two.world.cloud.ledger().ever().len(), 1, "nothing was made in the cloud of the edit");
    }
}
