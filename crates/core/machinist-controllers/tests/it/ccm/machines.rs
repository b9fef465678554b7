//! Servers of Machines: the manager, the machine controller and the cloud-controller-manager
//! together, each with its own view of the same servers.

use machinist_api::manifest::parse_manifest;
use machinist_api::{Machine, MachineClass, MachineDeployment, Phase, crd};
use machinist_controllers::mcm::{MachineController, MachineOptions, Manager};

use super::*;

const NAMESPACE: &str = "default";
const QUICK_START: &str = include_str!("../../../../../../examples/quickstart-hcloud.yaml");

/// The controllers of Machines. Dropping it ends them.
type Controllers = (machinist_controllers::mcm::Running, machinist_controllers::mcm::Running);

impl World {
    /// Starts the controllers of Machines and applies the quick start.
    async fn machines(&self) -> Controllers {
        let crds = Api::all(self.user.clone());
        for crd in crd::all_crds() {
            crds.create(&PostParams::default(), &crd).await.expect("accepted");
        }
        let clients = |name: &str| {
            let mut options = ClientOptions::new(name);
            options.clock = self.clock.clone();
            let client = layer_client(self.server.service_as(Identity::admin()), &options);
            Clients { control: client.clone(), target: client }
        };
        let options = |component| ProcessOptions {
            clock: self.clock.clone(),
            ..ProcessOptions::new(NAMESPACE, component)
        };
        let provider = MachineOptions::new(Arc::new(self.provider(None)), "cluster");
        let machines = MachineController::start(
            clients("machine-controller"),
            options("machine-controller"),
            provider,
            None,
        );
        let manager = Manager::start(clients("manager"), options("machine-controller-manager"), None);
        let text = QUICK_START.replace("token: stand-in", &format!("token: {TOKEN}"));
        for object in parse_manifest(&text).expect("a manifest") {
            let post = PostParams::default();
            let api = || self.user.clone();
            if let Some(class) = object.decode::<MachineClass>() {
                Api::namespaced(api(), NAMESPACE).create(&post, &class).await.map(drop).expect("accepted");
            } else if let Some(deployment) = object.decode::<MachineDeployment>() {
                Api::namespaced(api(), NAMESPACE)
                    .create(&post, &deployment)
                    .await
                    .map(drop)
                    .expect("accepted");
            } else {
                let secret: k8s_openapi::api::core::v1::Secret = parse(object.body);
                Api::namespaced(api(), NAMESPACE).create(&post, &secret).await.map(drop).expect("accepted");
            }
        }
        (machines, manager)
    }

    /// Acts as the kubelets, and as the controller that watches their Leases: a running server
    /// registers its Node, and the Node of a deleted server becomes unready.
    async fn kubelets(&self) {
        let servers = self.standin.servers_ever();
        for server in servers.iter().filter(|server| server.is_alive()) {
            let is_running = server.status == machinist_standin_hcloud::ServerStatus::Running;
            if is_running && self.node(&server.name).await.is_none() {
                self.join(&server.name).await;
            }
        }
        for server in servers.iter().filter(|server| !server.is_alive()) {
            let Some(node) = self.node(&server.name).await else { continue };
            let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
            if conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True") {
                self.set_ready(&server.name, false).await;
            }
        }
    }

    async fn all_machines(&self) -> Vec<Machine> {
        let api: Api<Machine> = Api::namespaced(self.user.clone(), NAMESPACE);
        api.list(&ListParams::default()).await.expect("a list").items
    }

    /// Whether three Machines run, each on its own living server, and each Node is that server.
    async fn all_agree(&self) -> bool {
        let machines = self.all_machines().await;
        let mut ids = std::collections::BTreeSet::new();
        for machine in &machines {
            let status = machine.status.as_ref().and_then(|status| status.current_status.as_ref());
            let phase = status.and_then(|status| status.phase.clone());
            let name = machine.metadata.labels.as_ref().and_then(|labels| labels.get("node")).cloned();
            let node = match name {
                Some(name) => self.node(&name).await,
                None => None,
            };
            let Some(node) = node.filter(|node| !has_taint(node, UNINITIALIZED)) else { return false };
            let of_node = node.spec.and_then(|spec| spec.provider_id);
            if phase != Some(Phase::Running) || of_node != machine.spec.provider_id {
                return false;
            }
            ids.extend(of_node);
        }
        let servers = self.standin.servers_ever();
        let alive =
            servers.iter().filter(|server| server.is_alive()).map(|server| format!("hcloud://{}", server.id));
        let nodes = self.nodes().list(&ListParams::default()).await.expect("a list").items;
        machines.len() == 3 && nodes.len() == 3 && ids == alive.collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_deleted_behind_their_back_is_replaced() {
    let world = World::new();
    let _ccm = world.start_with(|options| {
        options.machines = Some(NAMESPACE.to_owned());
    });
    let _controllers = world.machines().await;
    let agree = async |w: &World| {
        w.kubelets().await;
        w.all_agree().await
    };
    world.until("three Machines run", agree).await;
    assert_eq!(world.standin.servers_ever().len(), 3);
    tokio::time::sleep(Duration::from_secs(120)).await;

    let victim = world.standin.servers_ever().remove(0);
    world.standin.delete_server(victim.id).expect("the server exists");
    world
        .until("its Node is deleted", async |w| {
            w.kubelets().await;
            w.node(&victim.name).await.is_none()
        })
        .await;
    assert_eq!(world.events("DeletingNode").await.len(), 1, "the cloud-controller-manager deleted it");
    world.until("the Machine is replaced, and all agree", agree).await;
    let names: Vec<String> =
        world.all_machines().await.into_iter().filter_map(|machine| machine.metadata.name).collect();
    assert!(!names.contains(&victim.name), "{names:?}");
    assert_eq!(world.standin.servers_ever().len(), 4, "one server replaces one server");
    tokio::time::sleep(Duration::from_secs(1800)).await;
    assert!(world.all_agree().await, "nothing changes afterwards");
    assert_eq!(world.standin.servers_ever().len(), 4);
}
