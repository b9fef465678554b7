//! Tests of deadlines while the API server of the Nodes does not answer, while its watches are
//! silent, and after the controller was away.

use machinist_controllers::mcm::{Inspector, ServerLimits};

use super::gate::{Link, Switch};
use super::*;

const MINUTE: Duration = Duration::from_secs(60);

/// Machines whose Nodes are in a cluster behind a link.
struct Split {
    world: World,
    link: Switch,
    controller: Option<Running>,
    _manager: Running,
}

impl Split {
    async fn new(replicas: u32) -> Self {
        let world = World::new().await;
        let clients = Clients { control: world.client("manager"), target: world.client("manager") };
        let manager = Manager::start(clients, world.options("manager"), None);
        let mut split = Self { world, link: Switch::new(), controller: None, _manager: manager };
        split.start();
        tokio::time::sleep(MINUTE).await;
        split.world.apply(replicas).await;
        split
    }

    /// Starts a machine controller with an empty memory.
    fn start(&mut self) {
        let name = "machine-controller";
        let target = self.link.client(&self.world, name);
        let clients = Clients { control: self.world.client(name), target };
        let provider = Arc::new(SimProvider::in_process(self.world.cloud.clone()));
        let options = self.world.options(name);
        let mut machine = MachineOptions::new(provider, "test");
        machine.server_limits = Some(ServerLimits { timeout: MINUTE / 2, period: MINUTE });
        self.controller = Some(MachineController::start(clients, options, machine, None));
    }

    fn inspector(&self) -> Inspector {
        self.controller.as_ref().expect("the controller runs").inspector()
    }

    /// Whether the metric says that the controller is frozen.
    fn is_frozen(&self) -> bool {
        let metrics = self.inspector().metrics();
        let metric = metrics.iter().find(|(name, _)| name == "mcm_machine_controller_frozen");
        let (_, value) = metric.expect("the metric exists");
        0.0 < *value
    }

    /// Returns the reasons of all Machines.
    async fn whys(&self) -> Vec<String> {
        let inspector = self.inspector();
        let machines = self.world.machines().await;
        let names = machines.iter().filter_map(|machine| machine.metadata.name.clone());
        let why = |name| inspector.why(&Key::Machine(ObjectKey::new(NAMESPACE, name)));
        names.filter_map(why).map(|record| record.why.to_string()).collect()
    }

    async fn set_ready(&self, ready: &str) {
        let nodes: Api<Node> = Api::all(self.world.user.clone());
        let status = json!({"status": {"conditions": [{"type": "Ready", "status": ready}]}});
        for entry in self.world.cloud.ledger().alive() {
            let patch = Patch::Strategic(status.clone());
            nodes.patch_status(entry.name.as_str(), &PatchParams::default(), &patch).await.expect("accepted");
        }
    }

    async fn until_phase(&self, phase: Phase) {
        let is_so = async |w: &World| w.machines().await.iter().all(|machine| machine.phase() == phase);
        self.world.until(&format!("all Machines are {phase}"), is_so).await;
    }

    /// Requires that each Machine still has its first instance.
    fn assert_none_replaced(&self, count: usize) {
        let ever = self.world.cloud.ledger().ever().len();
        assert_eq!((ever, self.world.cloud.alive()), (count, count), "instances ever, and alive");
    }
}

#[tokio::test(start_paused = true)]
async fn no_join_fails_while_the_nodes_are_unseen() {
    for link in [Link::Refused, Link::Frozen] {
        let split = Split::new(3).await;
        split.world.until("the instances exist", async |w| w.cloud.alive() == 3).await;
        split.link.set(link);
        // The creation timeout is 20 minutes. The Nodes join, and the controller cannot see it.
        tokio::time::sleep(MINUTE).await;
        split.world.join().await;
        tokio::time::sleep(MINUTE * 60).await;
        split.until_phase(Phase::Pending).await;
        let whys = split.whys().await;
        let message = "the API server of the target cluster is silent; a deadline has passed";
        assert!(whys.iter().all(|why| why.contains(message)), "{link:?}: {whys:#?}");
        let silent = split.inspector().silent_servers();
        let [silent] = silent.as_slice() else { panic!("{link:?}: one silent server: {silent:?}") };
        assert!(silent.error.is_some(), "{link:?}: the watch was opened again in vain: {silent:?}");
        split.link.set(Link::Up);
        split.until_phase(Phase::Running).await;
        split.assert_none_replaced(3);
    }
}

#[tokio::test(start_paused = true)]
async fn a_recovery_during_an_outage_prevents_a_replacement() {
    for link in [Link::Refused, Link::Frozen] {
        let split = Split::new(2).await;
        split.world.until_running(2).await;
        split.set_ready("Unknown").await;
        split.until_phase(Phase::Unknown).await;
        split.link.set(link);
        split.set_ready("True").await;
        // The health timeout is ten minutes.
        tokio::time::sleep(MINUTE * 60).await;
        split.until_phase(Phase::Unknown).await;
        split.link.set(Link::Up);
        split.until_phase(Phase::Running).await;
        split.assert_none_replaced(2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_is_replaced_by_one_list() {
    let split = Split::new(2).await;
    split.world.until_running(2).await;
    split.set_ready("Unknown").await;
    split.until_phase(Phase::Unknown).await;
    split.link.set(Link::SilentWatches);
    split.set_ready("True").await;
    tokio::time::sleep(MINUTE * 9).await;
    split.until_phase(Phase::Unknown).await;
    // The deadline asks for one list, which is answered and shows the Nodes.
    split.until_phase(Phase::Running).await;
    split.assert_none_replaced(2);
}

#[tokio::test(start_paused = true)]
async fn an_unhealthy_node_is_replaced_after_an_outage() {
    let split = Split::new(1).await;
    split.world.until_running(1).await;
    split.set_ready("Unknown").await;
    split.until_phase(Phase::Unknown).await;
    tokio::time::sleep(MINUTE * 5).await;
    split.link.set(Link::Refused);
    tokio::time::sleep(MINUTE * 60).await;
    split.link.set(Link::Up);
    // Five of the ten minutes had passed before the outage.
    tokio::time::sleep(MINUTE * 3).await;
    assert_eq!(split.world.cloud.ledger().ever().len(), 1, "the time that is left still runs");
    tokio::time::sleep(MINUTE * 4).await;
    split.world.until("the Machine is replaced", async |w| w.cloud.ledger().ever().len() == 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_long_stop_of_the_controller_ends_no_deadline() {
    let mut split = Split::new(2).await;
    split.world.until_running(2).await;
    split.set_ready("Unknown").await;
    split.until_phase(Phase::Unknown).await;
    split.controller = None;
    tokio::time::sleep(MINUTE * 60).await;
    split.start();
    // A kubelet needs a moment to report after a restart of everything.
    tokio::time::sleep(MINUTE).await;
    split.until_phase(Phase::Unknown).await;
    split.set_ready("True").await;
    split.until_phase(Phase::Running).await;
    split.assert_none_replaced(2);
}

/// The controller is frozen while the Nodes are not fresh and their API server does not answer. The
/// first answer ends the freeze, and no Machine becomes Running for it: the time of an Unknown
/// Machine leaves the freeze out.
#[tokio::test(start_paused = true)]
async fn t_55_t_56_the_freeze_is_the_silence_of_an_api_server() {
    for link in [Link::Refused, Link::Hanging, Link::Frozen, Link::Denied(503)] {
        let split = Split::new(1).await;
        split.world.until_running(1).await;
        split.set_ready("Unknown").await;
        split.until_phase(Phase::Unknown).await;
        tokio::time::sleep(MINUTE * 3).await;
        assert!(!split.is_frozen(), "{link:?}");
        split.link.set(link);
        // The Nodes are fresh for two minutes after the last bookmark. Half a minute without an
        // answer follows.
        tokio::time::sleep(MINUTE).await;
        assert!(!split.is_frozen(), "{link:?}");
        tokio::time::sleep(MINUTE * 2).await;
        assert!(split.is_frozen(), "{link:?}");
        tokio::time::sleep(MINUTE * 57).await;
        split.link.set(Link::Up);
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(!split.is_frozen(), "{link:?}: the first answer ends the freeze");
        split.until_phase(Phase::Unknown).await;
        // Three of the ten minutes had passed before the freeze.
        tokio::time::sleep(MINUTE * 4).await;
        split.assert_none_replaced(1);
        split.world.until("the Machine is replaced", async |w| w.cloud.ledger().ever().len() == 2).await;
    }
}

/// A watch may be silent although the API server answers. Then nothing is frozen.
#[tokio::test(start_paused = true)]
async fn a_silent_watch_of_a_server_that_answers_is_no_freeze() {
    let split = Split::new(1).await;
    split.world.until_running(1).await;
    split.link.set(Link::SilentWatches);
    for _ in 0..10 {
        tokio::time::sleep(MINUTE).await;
        assert!(!split.is_frozen());
    }
}
