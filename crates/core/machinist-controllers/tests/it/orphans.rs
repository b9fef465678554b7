//! Tests of instances that lose their Machine.

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use machinist_core::orphan::NAMESPACE_TAG;
use machinist_driver::Instances;
use machinist_instance::{Instance, InstanceKey, InstanceRef, InstanceSpec, Scope, Sighting};
use machinist_plan::mcm::orphan::OrphanOptions;

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

impl World {
    /// Removes a Machine despite its finalizer. A running controller would add it again.
    async fn erase_machine(&self, name: &str) {
        let machines: Api<Machine> = Api::namespaced(self.user.clone(), NAMESPACE);
        let unheld = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        machines.patch(name, &PatchParams::default(), &unheld).await.expect("the finalizer is removed");
        machines.delete(name, &DeleteParams::default()).await.expect("the Machine is deleted");
    }

    async fn delete_node(&self, name: &str) {
        let nodes: Api<Node> = Api::all(self.user.clone());
        nodes.delete(name, &DeleteParams::default()).await.expect("the Node is deleted");
    }

    fn has_instance(&self, name: &str) -> bool {
        self.cloud.ledger().alive().any(|entry| entry.name.as_str() == name)
    }

    /// Starts both processes. `settings` says how orphans are collected.
    fn collect(&self, settings: OrphanOptions) -> (Running, Running) {
        self.start_with(|options| options.orphans = Some(settings))
    }

    /// The names of two Machines that run.
    async fn two_workers(&self) -> [String; 2] {
        self.apply(2).await;
        self.until_running(2).await;
        let mut names = self.machines().await.into_iter().filter_map(|machine| machine.metadata.name);
        [names.next().expect("a Machine"), names.next().expect("another")]
    }
}

/// Checks with real requests the age, a second sighting, and that no Node exists.
#[tokio::test(start_paused = true)]
async fn t_57_an_instance_without_machine_and_node_is_collected() {
    let world = World::new().await;
    let processes = world.collect(OrphanOptions::default());
    let [lost, kept] = world.two_workers().await;
    let namespaces: Api<Namespace> = Api::all(world.user.clone());
    let uid = namespaces.get(NAMESPACE).await.expect("the namespace").metadata.uid;
    for entry in world.cloud.ledger().alive() {
        assert_eq!(entry.tags.get(NAMESPACE_TAG), uid.as_ref(), "each instance names its namespace");
    }
    drop(processes);
    for name in [&lost, &kept] {
        world.erase_machine(name).await;
    }
    world.delete_node(&lost).await;
    let _processes = world.collect(OrphanOptions::default());
    // The manager gives the names again, and an instance has the name until it is collected.
    tokio::time::sleep(MINUTE * 18).await;
    assert!(world.has_instance(&lost), "it is younger than the creation timeout");
    tokio::time::sleep(MINUTE * 40).await;
    assert!(!world.has_instance(&lost));
    assert!(world.has_instance(&kept), "its Node exists");
    let said = world.events("OrphanedInstance").await;
    let notes: Vec<_> = said.iter().filter_map(|event| event.message.clone()).collect();
    let says = |name: &str, text: &str| {
        notes.iter().filter(|note| note.contains(name) && note.contains(text)).count()
    };
    assert_eq!(says("Deleting instance", "no object and no Node had it"), 1, "{notes:#?}");
    assert_eq!(says(&format!("its Node {kept} exists"), "is not deleted"), 1, "{notes:#?}");
    world.delete_node(&kept).await;
    tokio::time::sleep(MINUTE * 40).await;
    assert!(!world.has_instance(&kept));
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_only_reports_deletes_nothing() {
    let world = World::new().await;
    let settings = OrphanOptions { deletes: false, ..OrphanOptions::default() };
    let processes = world.collect(settings);
    let [lost, _] = world.two_workers().await;
    drop(processes);
    world.erase_machine(&lost).await;
    world.delete_node(&lost).await;
    let _processes = world.collect(settings);
    tokio::time::sleep(MINUTE * 50).await;
    assert!(world.has_instance(&lost));
    let events = world.events("OrphanedInstance").await;
    let [event] = events.as_slice() else { panic!("one Event: {events:#?}") };
    assert_eq!(event.involved_object.name.as_ref(), Some(&lost));
    assert!(event.message.as_deref().is_some_and(|text| text.contains("only reports orphans")));
}

/// A cloud in which another program marks its instances.
struct Marked(Arc<dyn Driver>);

#[async_trait]
impl Instances for Marked {
    async fn ensure(&self, spec: &InstanceSpec) -> Result<Instance, Error> {
        self.0.instances().ensure(spec).await
    }
    async fn find(&self, which: &InstanceRef) -> Result<Sighting, Error> {
        self.0.instances().find(which).await
    }
    async fn list(&self, scope: &Scope) -> Result<Vec<Instance>, Error> {
        self.0.instances().list(scope).await
    }
    async fn list_marked(&self, provider_specs: &[Value]) -> Result<Vec<Instance>, Error> {
        assert_eq!(provider_specs.len(), 1, "the class of the account");
        let mut all = self.0.instances().list(&Scope::Visible).await?;
        all.retain(|instance| instance.key.is_none());
        Ok(all)
    }
    #[expect(clippy::disallowed_methods, reason = "passes a permitted call on")]
    async fn delete(&self, which: &InstanceRef, owner: &InstanceKey) -> Result<(), Error> {
        self.0.instances().delete(which, owner).await
    }
}

/// Go has left two instances. A Machine records one of them.
#[tokio::test(start_paused = true)]
async fn gap_5_an_instance_of_go_without_a_machine_is_reported() {
    let world = World::new().await;
    let recorded = world.leave_instance("recorded", None, -3600);
    let lost = world.leave_instance("lost", None, -3600);
    world.apply(0).await;
    world.leave_machine("recorded", recorded.id.as_str()).await;
    let provider = over_sim::provider(&world.cloud, Marked);
    let _processes = world.start_with(|options| {
        options.providers = provider.into();
        options.orphans = Some(OrphanOptions::default());
    });
    tokio::time::sleep(MINUTE * 5).await;
    assert!(world.events("OrphanedInstance").await.is_empty(), "one list is not enough");
    tokio::time::sleep(MINUTE * 60).await;
    let events = world.events("OrphanedInstance").await;
    let [event] = events.as_slice() else { panic!("one Event: {events:#?}") };
    let message = event.message.as_deref().unwrap_or_default();
    assert!(message.contains(lost.id.as_str()) && message.contains("another program"), "{message}");
    assert!(world.has_instance("lost") && world.has_instance("recorded"));
}

/// Each process of a namespace without orphans makes one list per account and 15 minutes.
#[tokio::test(start_paused = true)]
async fn an_account_without_orphans_costs_one_list_per_period() {
    let world = World::new().await;
    let _processes = world.collect(OrphanOptions::default());
    world.two_workers().await;
    tokio::time::sleep(MINUTE * 5).await;
    let before = world.cloud.call_counts();
    let mut requests = world.server.audit();
    tokio::time::sleep(MINUTE * 60).await;
    let total = |counts: &std::collections::BTreeMap<_, u64>| counts.values().sum::<u64>();
    let calls = total(&world.cloud.call_counts()) - total(&before);
    assert_eq!(calls, 4);
    let reads = requests.drain().into_iter().filter(|request| {
        let is_quorum_list = request.verb == machinist_apiserver::Verb::List;
        request.user_agent == "machine-controller" && is_quorum_list
    });
    assert_eq!(reads.count(), 0, "no list of Machines or Nodes");
}

/// Another class decides for the account of the second class, and the third has no account.
#[tokio::test(start_paused = true)]
async fn a_class_that_decides_nothing_is_no_lost_key() {
    let world = World::new().await;
    let (machine_controller, _manager) = world.collect(OrphanOptions::default());
    world.two_workers().await;
    let classes: Api<MachineClass> = Api::namespaced(world.user.clone(), NAMESPACE);
    let class = classes.get("c").await.expect("the class");
    for (name, secret) in [("d", "s"), ("e", "missing")] {
        let mut class = class.clone();
        class.metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        class.secret_ref.as_mut().expect("a Secret").name = Some(secret.to_owned());
        classes.create(&PostParams::default(), &class).await.expect("the class is accepted");
    }
    tokio::time::sleep(MINUTE * 20).await;
    let metrics = machine_controller.inspector().metrics();
    let lost = metrics.iter().find(|(name, _)| name == "machinist_queue_keys_found_total");
    assert_eq!(lost.map(|(_, count)| *count), Some(0.0), "the sweep finds no lost key");
}
