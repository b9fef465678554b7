//! Tests of what a driver gets in addition to its class: the text that it returned with the last
//! error (`status.lastKnownState`), and the annotations of the Machine's node template.

use std::sync::Mutex;

use async_trait::async_trait;
use machinist_driver::Instances;
use machinist_instance::{Instance, InstanceKey, InstanceRef, InstanceSpec, Scope, Sighting};

use super::*;

/// The specs of the instances that the driver was asked to create.
type Specs = Arc<Mutex<Vec<InstanceSpec>>>;

/// A cloud whose first creation fails after it has made a part of the instance.
struct PartlyMade {
    driver: Arc<dyn Driver>,
    seen: Specs,
}

/// Starts the processes with a [`PartlyMade`] cloud.
fn start(world: &World) -> (Specs, (Running, Running)) {
    let seen = Specs::default();
    let given = seen.clone();
    let provider = over_sim::provider(&world.cloud, move |driver| PartlyMade { driver, seen: given.clone() });
    (seen, world.start_with(|options| options.providers = provider.into()))
}

#[async_trait]
impl Instances for PartlyMade {
    async fn ensure(&self, spec: &InstanceSpec) -> Result<Instance, Error> {
        let calls = {
            let mut seen = self.seen.lock().expect("no panic");
            seen.push(spec.clone());
            seen.len()
        };
        match calls {
            1 => Err(Error::new(ErrorKind::Unavailable, "no address").with_state("port 7")),
            2 => Err(Error::new(ErrorKind::Unavailable, "no address")),
            _ => self.driver.instances().ensure(spec).await,
        }
    }
    async fn find(&self, which: &InstanceRef) -> Result<Sighting, Error> {
        self.driver.instances().find(which).await
    }
    async fn list(&self, scope: &Scope) -> Result<Vec<Instance>, Error> {
        self.driver.instances().list(scope).await
    }
    #[expect(clippy::disallowed_methods, reason = "passes a permitted call on")]
    async fn delete(&self, which: &InstanceRef, owner: &InstanceKey) -> Result<(), Error> {
        self.driver.instances().delete(which, owner).await
    }
}

#[tokio::test(start_paused = true)]
async fn the_text_of_a_driver_is_stored_and_passed_back() {
    let world = World::new().await;
    let (seen, _processes) = start(&world);
    world.apply(1).await;
    world.until_running(1).await;
    let text = || Some("port 7".to_owned());
    let seen: Vec<_> = std::mem::take(&mut *seen.lock().expect("no panic"));
    let states: Vec<_> = seen.into_iter().map(|spec| spec.last_known_state).collect();
    assert_eq!(states, [None, text(), text()], "a failure that passes keeps it");
    let status = world.machines().await.remove(0).status.expect("a status");
    assert_eq!(status.last_known_state, text());
}

#[tokio::test(start_paused = true)]
async fn gap_6_a_driver_gets_the_annotations_of_the_node_template() {
    const ANNOTATION: (&str, &str) = ("machine.sapcloud.io/awsPlacement", "{}");
    let world = World::new().await;
    let (seen, _processes) = start(&world);
    world.apply(0).await;
    let machines: Api<Machine> = Api::namespaced(world.user.clone(), NAMESPACE);
    let machine = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine", "metadata": {"name": "placed"},
        "spec": {
            "class": {"kind": "MachineClass", "name": "c"},
            "nodeTemplate": {"metadata": {"annotations": {ANNOTATION.0: ANNOTATION.1}}},
        },
    });
    machines.create(&PostParams::default(), &parse(machine)).await.expect("the Machine is accepted");
    world.until_running(1).await;
    let seen = seen.lock().expect("no panic");
    let annotations = [(ANNOTATION.0.to_owned(), ANNOTATION.1.to_owned())].into();
    assert!(!seen.is_empty(), "the driver was asked");
    assert!(seen.iter().all(|spec| spec.name.as_str() == "placed" && spec.annotations == annotations));
}
