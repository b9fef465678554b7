//! Tests of creation timeouts: every value that Go MCM accepts works.

use std::collections::BTreeMap;
use std::sync::Mutex;

use machinist_kube::request::RequestReport;

use super::*;

/// The writes to each object. A POST counts for its collection.
type Writes = Arc<Mutex<BTreeMap<String, usize>>>;

/// Starts both processes with this creation timeout, and counts their writes.
fn start_counting(world: &World, timeout: Duration) -> ((Running, Running), Writes) {
    let writes = Writes::default();
    let client = |name: &'static str| {
        let (writes, mut options) = (writes.clone(), ClientOptions::new(name));
        options.clock = world.clock.clone();
        options.observer = Some(Arc::new(move |report: &RequestReport<'_>| {
            if report.method != "GET" && !report.path.contains("/events") {
                let object = report.path.trim_end_matches("/status").to_owned();
                *writes.lock().expect("no panic").entry(object).or_default() += 1;
            }
        }));
        layer_client(world.server.service_as(Identity::admin()), &options)
    };
    let clients = |name| Clients { control: client(name), target: client(name) };
    let mut options = MachineOptions::new(Arc::new(SimProvider::in_process(world.cloud.clone())), "test");
    let defaults = Arc::make_mut(&mut options.defaults);
    defaults.creation_timeout = timeout;
    let name = "machine-controller";
    let controller = MachineController::start(clients(name), world.options(name), options, None);
    let manager = Manager::start(clients("manager"), world.options("manager"), None);
    ((controller, manager), writes)
}

#[tokio::test(start_paused = true)]
async fn a_short_creation_timeout_creates_instances() {
    for seconds in [5, 30, 60, 61] {
        let world = World::new().await;
        let (_processes, writes) = start_counting(&world, Duration::from_secs(seconds));
        world.apply(3).await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(world.cloud.alive(), 3, "with a timeout of {seconds} s");
        world.join().await;
        world.until("3 machines run", async |w| running(w).await == 3).await;
        assert_eq!(world.cloud.ledger().ever().len(), 3, "with a timeout of {seconds} s");
        let writes = writes.lock().expect("no panic").clone();
        assert_eq!(writes.get("/api/v1/namespaces/kube-system/secrets"), Some(&3), "{writes:?}");
    }
}

/// A timeout that no instance can meet replaces Machines forever, but slowly enough for the API
/// server.
#[tokio::test(start_paused = true)]
async fn no_creation_timeout_causes_a_write_per_second() {
    for seconds in [0, 1] {
        let world = World::new().await;
        let (_processes, writes) = start_counting(&world, Duration::from_secs(seconds));
        world.apply(3).await;
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert_few_writes(&writes, &format!("a timeout of {seconds} s"));
    }
}

/// Requires that no object was written more than once per second in the last two minutes.
fn assert_few_writes(writes: &Writes, with: &str) {
    let writes = writes.lock().expect("no panic").clone();
    // Paths of single objects, not of collections.
    let of_one = writes.iter().filter(|(path, _)| path.split('/').count() == 8);
    let most = of_one.max_by_key(|(_, count)| **count).expect("objects are written");
    assert!(*most.1 <= 120, "{most:?} in two minutes, with {with}");
}

/// A user who may write a MachineDeployment sets the timeout of its Machines, 0 included.
#[tokio::test(start_paused = true)]
async fn a_timeout_of_zero_on_a_machine_causes_few_writes() {
    let annotation = "node.machine.sapcloud.io/effective-creation-timeout";
    for template in
        [json!({"metadata": {"annotations": {annotation: "0s"}}}), json!({"spec": {"creationTimeout": "0s"}})]
    {
        let world = World::new().await;
        let (_processes, writes) = start_counting(&world, Duration::from_secs(1200));
        world.apply(0).await;
        let change = Patch::Merge(json!({"spec": {"replicas": 3, "template": template}}));
        world.deployments().patch("w", &PatchParams::default(), &change).await.expect("patched");
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(world.cloud.alive(), 3, "with {template}");
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert!(3 < world.cloud.ledger().ever().len(), "the timeout of the Machine counts: {template}");
        assert_few_writes(&writes, &template.to_string());
        // Instances that join at once are kept.
        world
            .until("3 machines run", async |w| {
                w.join().await;
                running(w).await == 3
            })
            .await;
    }
}
