//! The machine API beside the cloud-controller-manager: both of its processes on the same cluster
//! and the same project of the stand-in.
//!
//! These processes meet no faults and no crashes here. Their own world has them.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::PostParams;
use machinist_api::{MachineClass, MachineDeployment};
use machinist_apiserver::{Identity, Server};
use machinist_controllers::mcm::{MachineController, MachineOptions, Manager, Options, Running};
use machinist_controllers::{Clients, ProcessOptions};
use machinist_driver_hcloud::{HcloudProvider, NoAnswer, Transport};
use machinist_kube::{ClientOptions, layer_client};
use machinist_standin_hcloud::Standin;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::cluster::ServiceWorld;
use super::process::{TOKEN, hcloud_options};
use super::wire::perform;
use crate::actor::TestedProcess;
use crate::lives::RESYNC;
use crate::world::{NAMESPACE, Outcome, ScenarioError};

/// Name of the deployment.
pub const WORKERS: &str = "w";

/// Both processes of the machine API. Dropping it ends them.
pub struct Machines {
    _manager: Running,
    _controller: Running,
}

impl Machines {
    /// Starts both processes.
    pub fn start(cluster: &ServiceWorld) -> Self {
        let clients = |process| {
            let client = client(cluster, process);
            Clients { control: client.clone(), target: client }
        };
        let options = |process| options(cluster, process);
        let (manager, controller) = (TestedProcess::Manager, TestedProcess::MachineController);
        let clock = cluster.lab().clone();
        let provider = HcloudProvider::over(Arc::new(Direct(cluster.standin().clone())), hcloud_options())
            .with_clock(move || clock.clock.time());
        let entropy = Mutex::new(cluster.seed().stream("entropy"));
        let machine_options = MachineOptions {
            entropy: Arc::new(move |bytes| {
                entropy.lock().unwrap_or_else(PoisonError::into_inner).fill(bytes);
            }),
            ..MachineOptions::new(Arc::new(provider), "sim")
        };
        Self {
            _manager: Manager::start(clients(manager), options(manager), None),
            _controller: MachineController::start(
                clients(controller),
                options(controller),
                machine_options,
                None,
            ),
        }
    }
}

/// Creates a deployment of Machines, with its class and its Secret.
///
/// # Errors
/// When the API server refuses an object.
pub async fn create_workers(cluster: &ServiceWorld, replicas: u32) -> Outcome {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"},
        "stringData": {"userData": "#cloud-config\n", "token": TOKEN},
    });
    let class = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass", "metadata": {"name": "c"},
        "provider": "hcloud",
        "providerSpec": {"serverType": "cx22", "image": "ubuntu-24.04", "location": "fsn1"},
        "secretRef": {"name": "s", "namespace": NAMESPACE},
    });
    let workers = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment",
        "metadata": {"name": WORKERS},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"name": WORKERS}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {
                "metadata": {"labels": {"name": WORKERS}},
                "spec": {"class": {"kind": "MachineClass", "name": "c"}, "healthTimeout": "60s"},
            },
        },
    });
    create::<Secret>(cluster, secret).await?;
    create::<MachineClass>(cluster, class).await?;
    create::<MachineDeployment>(cluster, workers).await
}

async fn create<K>(cluster: &ServiceWorld, object: Value) -> Outcome
where
    K: kube::Resource<Scope = kube::core::NamespaceResourceScope> + Clone + std::fmt::Debug,
    K: serde::Serialize + DeserializeOwned,
    K::DynamicType: Default,
{
    let object: K = serde_json::from_value(object)
        .map_err(|error| ScenarioError(format!("cannot parse a built-in manifest: {error}")))?;
    let api: Api<K> = Api::namespaced(cluster.user(), NAMESPACE);
    api.create(&PostParams::default(), &object).await?;
    Ok(())
}

fn client(cluster: &ServiceWorld, process: TestedProcess) -> kube::Client {
    let agent = process.user_agent();
    let server: &Server = cluster.server();
    let options = ClientOptions {
        clock: cluster.lab().shared_clock(),
        seed: cluster.seed().stream(&format!("client/{agent}")).bits(),
        ..ClientOptions::new(agent)
    };
    layer_client(server.service_as(Identity::admin()).with_user_agent(agent), &options)
}

fn options(cluster: &ServiceWorld, process: TestedProcess) -> Options {
    let agent = process.user_agent();
    Options::from(ProcessOptions {
        clock: cluster.lab().shared_clock(),
        resync: RESYNC,
        seed: cluster.seed().stream(&format!("options/{agent}")).bits(),
        instance: "sim".to_owned(),
        ..ProcessOptions::new(NAMESPACE, agent)
    })
}

/// A connection to the stand-in without faults.
struct Direct(Standin);

#[async_trait]
impl Transport for Direct {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, NoAnswer> {
        // A request takes time, so that no loop runs forever in one instant.
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        perform(&self.0, request).await
    }
}
