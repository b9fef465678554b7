//! Tests of a served namespace that is deleted while it has Machines. The controllers run in
//! another namespace, with the rights of `deploy/mcm/cluster-roles.yaml`.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use machinist_apiserver::{AuditRecord, Authorization, Verb};
use machinist_kube::lease::{Elector, Leadership, LeaseOptions};

use super::*;

/// The namespace of the machine objects.
const TEAM: &str = "team";
/// The namespace of the controllers.
const CONTROLLERS: &str = "controllers";
const ROLES: &str = include_str!("../../../../../deploy/mcm/cluster-roles.yaml");
const PAGE: &str = include_str!("../../../../../docs/src/reference/permissions.md");

/// Creates the ClusterRoles of the file, and the roles of the page for the target cluster.
async fn install_roles(world: &World) {
    let mut manifests = vec![ROLES.replace("CONTROLLERS", CONTROLLERS)];
    let blocks = PAGE.split("```yaml\n").skip(1).filter_map(|block| block.split("```").next());
    manifests.extend(blocks.map(|block| block.replace("NAMESPACE", CONTROLLERS)));
    for object in
        manifests.iter().flat_map(|text| machinist_api::manifest::parse_manifest(text).expect("YAML"))
    {
        let is_for_the_target = object.name == "machinist:machine-controller";
        let is_of_the_file = object.name.ends_with(":objects");
        if !is_for_the_target && !is_of_the_file {
            continue;
        }
        let (group, version) = object.api_version.split_once('/').expect("a group");
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &object.kind));
        let api: Api<DynamicObject> = match &object.namespace {
            Some(namespace) => Api::namespaced_with(world.user.clone(), namespace, &kind),
            None => Api::all_with(world.user.clone(), &kind),
        };
        api.create(&PostParams::default(), &parse(object.body)).await.expect("the role is accepted");
    }
}

/// Creates a client of a controller, with the rights of its ServiceAccount.
fn client(world: &World, account: &str) -> kube::Client {
    let groups = ["system:serviceaccounts", "system:serviceaccounts:controllers", "system:authenticated"];
    let identity = Identity::new(format!("system:serviceaccount:{CONTROLLERS}:{account}"), groups);
    layer_client(world.server.service_as(identity), &world.client_options(account))
}

/// Starts a candidate for the Lease of a controller.
fn candidate(world: &World, account: &str, identity: &str) -> Leadership {
    let lease = LeaseOptions::new(TEAM, account, identity);
    let (elector, leadership) = Elector::new(client(world, account), lease, world.clock.clone());
    tokio::spawn(elector.run(std::future::pending()));
    leadership
}

async fn start(world: &World) -> (Running, Running) {
    let clients = |account| Clients { control: client(world, account), target: client(world, account) };
    let options =
        |component| ProcessOptions { clock: world.clock.clone(), ..ProcessOptions::new(TEAM, component) };
    let lead = async |account| {
        let leadership = candidate(world, account, "first");
        leadership.acquired().await.expect("the Lease is free");
        Some(leadership)
    };
    let provider = Arc::new(SimProvider::in_process(world.cloud.clone()));
    let name = "machine-controller";
    let machine = MachineOptions::new(provider, "test");
    let controller = MachineController::start(clients(name), options(name), machine, lead(name).await);
    let name = "machine-controller-manager";
    (controller, Manager::start(clients(name), options(name), lead(name).await))
}

/// Acts as the namespace controller: deletes all objects, as often as there are any.
async fn empty(world: &World) {
    async fn all<K>(world: &World)
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned,
        K::DynamicType: Default,
    {
        let api: Api<K> = Api::namespaced(world.user.clone(), TEAM);
        let deleted = api.delete_collection(&DeleteParams::default(), &ListParams::default()).await;
        deleted.expect("all objects are deleted");
    }
    all::<Lease>(world).await;
    all::<Secret>(world).await;
    all::<MachineClass>(world).await;
    all::<MachineDeployment>(world).await;
    all::<MachineSet>(world).await;
    all::<Machine>(world).await;
}

#[tokio::test(start_paused = true)]
async fn the_last_leaders_finish_the_machines_of_a_namespace() {
    let world = World::of(Config { authorization: Authorization::Rbac, ..Config::default() }, TEAM).await;
    let namespaces: Api<Namespace> = Api::all(world.user.clone());
    for name in [TEAM, CONTROLLERS] {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        namespaces.create(&PostParams::default(), &parse(namespace)).await.expect("created");
    }
    install_roles(&world).await;
    world.cloud.configure(|settings| settings.call_bound = Duration::from_secs(60));
    let _processes = start(&world).await;
    let standbys = ["machine-controller", "machine-controller-manager"];
    let standbys = standbys.map(|account| candidate(&world, account, "second"));
    world.apply(2).await;
    world.until_running(2).await;
    // The instances are deleted after the Leases would have expired.
    world.cloud.configure(|settings| settings.latency = Duration::from_secs(40));

    let mut requests = world.server.audit();
    namespaces.delete(TEAM, &DeleteParams::default()).await.expect("the deletion begins");
    world
        .until("nothing is left", async |w| {
            empty(w).await;
            assert!(standbys.iter().all(|standby| !standby.is_held()), "no other process leads");
            w.machines().await.is_empty() && w.cloud.alive() == 0
        })
        .await;
    let nodes: Api<Node> = Api::all(world.user.clone());
    assert_eq!(nodes.list(&ListParams::default()).await.expect("a list").items, []);
    let secrets: Api<Secret> = Api::namespaced(world.user.clone(), TEAM);
    world
        .until("the finalizers are removed", async |w| {
            let all =
                [w.deployments().list_metadata(&ListParams::default()).await.expect("a list").items.len()];
            let secrets = secrets.list(&ListParams::default()).await.expect("a list").items;
            all == [0] && secrets.is_empty()
        })
        .await;
    // Kubernetes creates no Lease and no Event in a namespace that is being deleted. All else is
    // permitted.
    let is_missing_right = |request: &Arc<AuditRecord>| {
        request.code == 403
            && request.user_agent.starts_with("machine-controller")
            && request.verb != Verb::Create
    };
    let refused: Vec<_> = requests.drain().into_iter().filter(is_missing_right).collect();
    assert!(refused.is_empty(), "{refused:#?}");
}
