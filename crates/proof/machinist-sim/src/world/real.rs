//! The real world: the same processes, cloud and machines on two real Kubernetes clusters, over
//! HTTPS and in real time.
//!
//! `cargo xtask real` starts the clusters and describes them in [`CLUSTERS`]. The processes run in
//! this program with separate clients, and the cloud is in memory. Its machines join with bootstrap
//! tokens and certificates that a real kube-controller-manager signs. The observers of the
//! processes' clients record every answer.
//!
//! Deliberately absent: faults, crashes at exact calls, and invariants on each commit. The checks
//! use the states that a scenario awaits, the ledger, and the answers.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, Secret};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Resource};
use machinist_api::{Machine, MachineDeployment, MachineSet, crd};
use machinist_cloud_sim::{Clock as CloudClock, Cloud, Settings};
use machinist_controllers::mcm::{MachineController, MachineOptions, Manager, Running};
use machinist_controllers::{Clients, ProcessOptions};
use machinist_driver_sim::SimProvider;
use machinist_kube::request::{RequestObserver, RequestReport};
use machinist_kube::{ClientOptions, Clock as _, KubeconfigSource, SystemClock, connect};
use machinist_node_sim::{Fleet, FleetOptions, HttpsConnector, Metadata};
use machinist_plan::mcm::machine::Defaults;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Ability, MachineView, MachineWorld, NAMESPACE, Outcome, Pace, ScenarioError, ensure};
use crate::actor::{Side, TestedProcess};
use crate::ask::About;
use crate::lab::AnswerRecord;
use crate::sight::Item;

/// The variable that describes the clusters, with the output of `cargo xtask control-plane`.
pub const CLUSTERS: &str = "MACHINIST_REAL_CLUSTERS";

/// The namespace of bootstrap tokens.
const TOKENS: &str = "kube-system";
/// Interval between looks at the objects.
const LOOK_EVERY: Duration = Duration::from_millis(300);
/// A Node counts as dead this soon here, so that healing takes only minutes.
/// kube-controller-manager notices after 8 s.
const DEAD_NODE_AFTER: Duration = Duration::from_secs(15);

/// Two clusters.
#[derive(Debug, Clone, Deserialize)]
pub struct RealClusters {
    control: RealCluster,
    target: RealCluster,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RealCluster {
    server: String,
    version: String,
    kubeconfig: PathBuf,
    ca_file: PathBuf,
}

impl RealClusters {
    /// Reads the description of the clusters from the environment.
    ///
    /// # Errors
    /// When the variable is not set or cannot be parsed.
    pub fn from_env() -> Result<Self, ScenarioError> {
        let text = std::env::var(CLUSTERS).map_err(|_| {
            ScenarioError(format!(
                "{CLUSTERS} is not set. Run `cargo xtask real --lane scenarios`, which starts clusters and sets it"
            ))
        })?;
        serde_json::from_str(&text).map_err(|error| {
            ScenarioError(format!("{CLUSTERS}: expected the output of `cargo xtask control-plane`: {error}"))
        })
    }

    /// The version of the servers.
    pub fn version(&self) -> &str {
        &self.target.version
    }
}

/// A real world for one scenario.
pub struct Real {
    control: kube::Client,
    target: kube::Client,
    cloud: Cloud,
    clusters: RealClusters,
    answers: Answers,
    processes: Mutex<Vec<Running>>,
    _fleet: Fleet,
}

/// Interval of Lease renewals: several within the grace period of the clusters' node lifecycle
/// controller. That period is short there, so that healing can be tested.
const LEASE_RENEWAL: Duration = Duration::from_secs(2);

type Answers = Arc<Mutex<Vec<AnswerRecord>>>;

impl Real {
    /// Connects to the clusters, and starts the cloud and its machines.
    /// [`MachineWorld::start_processes`] starts the processes.
    ///
    /// # Errors
    /// When a cluster cannot be reached or refuses the CRDs.
    pub async fn new(
        clusters: &RealClusters,
        cloud: impl FnOnce(Settings) -> Settings,
    ) -> Result<Self, ScenarioError> {
        let control = client(&clusters.control, &ClientOptions::new("user")).await?;
        let target = client(&clusters.target, &ClientOptions::new("user")).await?;
        apply_crds(&control).await?;
        let settings = Settings {
            boot: Duration::from_secs(1),
            delete: Duration::from_secs(1),
            visible_within: Duration::from_secs(1),
            call_bound: Duration::from_secs(2),
            ..Settings::default()
        };
        let cloud = Cloud::in_memory(cloud(settings), CloudClock::wall());
        let ca_pem = std::fs::read_to_string(&clusters.target.ca_file)
            .map_err(|error| ScenarioError(format!("{}: {error}", clusters.target.ca_file.display())))?;
        let metadata = Metadata { server: clusters.target.server.clone(), ca_pem };
        let mut options = FleetOptions::new(metadata, Arc::new(HttpsConnector));
        options.machines.lease_renewal = LEASE_RENEWAL;
        let fleet = Fleet::start(&cloud, options);
        Ok(Self {
            control,
            target,
            cloud,
            clusters: clusters.clone(),
            answers: Answers::default(),
            processes: Mutex::default(),
            _fleet: fleet,
        })
    }

    /// Checks the ledger after every scenario.
    ///
    /// # Errors
    /// When a key has two instances.
    pub fn judge(&self) -> Outcome {
        let ledger = self.cloud.ledger();
        let keys: Vec<_> = ledger.ever().iter().filter_map(|entry| entry.key.clone()).collect();
        let different: BTreeSet<_> = keys.iter().collect();
        ensure(different.len() == keys.len(), || format!("a key has two instances: {keys:?}"))
    }

    /// Deletes everything that a scenario created, with a user's requests.
    ///
    /// # Errors
    /// When an object is not deleted.
    pub async fn clean_up(&self) -> Outcome {
        let (delete, all) = (DeleteParams::background(), ListParams::default());
        let control = || self.control.clone();
        drop(
            Api::<MachineDeployment>::namespaced(control(), NAMESPACE)
                .delete_collection(&delete, &all)
                .await?,
        );
        drop(Api::<Machine>::namespaced(control(), NAMESPACE).delete_collection(&delete, &all).await?);
        drop(
            Api::<PodDisruptionBudget>::namespaced(self.target.clone(), NAMESPACE)
                .delete_collection(&delete, &all)
                .await?,
        );
        let at_once = DeleteParams::background().grace_period(0);
        drop(Api::<Pod>::namespaced(self.target.clone(), NAMESPACE).delete_collection(&at_once, &all).await?);
        let world: &dyn MachineWorld = self;
        world.until("the clusters to be empty again", MachineView::is_empty).await?;
        Ok(())
    }
}

async fn client(cluster: &RealCluster, options: &ClientOptions) -> Result<kube::Client, ScenarioError> {
    let source = KubeconfigSource::File(cluster.kubeconfig.clone());
    connect(&source, options).await.map_err(|error| ScenarioError(error.to_string()))
}

async fn clients(
    clusters: &RealClusters,
    process: TestedProcess,
    answers: &Answers,
) -> Result<Clients, ScenarioError> {
    let options = |side| ClientOptions {
        observer: Some(observer(process, side, answers.clone())),
        ..ClientOptions::new(process.user_agent())
    };
    Ok(Clients {
        control: client(&clusters.control, &options(Side::Control)).await?,
        target: client(&clusters.target, &options(Side::Target)).await?,
    })
}

fn observer(process: TestedProcess, side: Side, answers: Answers) -> RequestObserver {
    Arc::new(move |report: &RequestReport<'_>| {
        let verb = match report.method.as_str() {
            "POST" => "post",
            "PUT" => "put",
            "PATCH" => "patch",
            "DELETE" => "delete",
            _ if report.operation == "watch" => "watch",
            _ if report.operation == "list" => "list",
            _ => "get",
        };
        let about = About::parse(report.path);
        let answered = AnswerRecord {
            at: SystemClock.now(),
            process,
            side,
            verb,
            about,
            code: report.status.unwrap_or(0),
        };
        answers.lock().unwrap_or_else(PoisonError::into_inner).push(answered);
    })
}

fn options(process: TestedProcess) -> ProcessOptions {
    ProcessOptions {
        instance: "real-lane".to_owned(),
        ..ProcessOptions::new(NAMESPACE, process.user_agent())
    }
}

async fn apply_crds(control: &kube::Client) -> Outcome {
    let api: Api<CustomResourceDefinition> = Api::all(control.clone());
    let params = PatchParams::apply("real-lane").force();
    for crd in crd::all_crds() {
        let name = crd.metadata.name.clone().unwrap_or_default();
        api.patch(&name, &params, &Patch::Apply(&crd)).await?;
    }
    // A new kind is served a moment after its definition was accepted.
    let machines: Api<Machine> = Api::namespaced(control.clone(), NAMESPACE);
    for _ in 0..100 {
        if machines.list(&ListParams::default()).await.is_ok() {
            return Ok(());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Err(ScenarioError::new("Machines are not served 30 s after their definition was accepted"))
}

async fn items<K>(api: Api<K>) -> Result<Vec<Item>, ScenarioError>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
{
    // Read as JSON, to see fields that the product's types omit.
    let request = kube::core::Request::new(api.resource_url()).list(&ListParams::default());
    let mut request = request.map_err(|error| ScenarioError(error.to_string()))?;
    request.extensions_mut().insert("list");
    let list: Value = api.into_client().request(request).await?;
    let found = list.get("items").and_then(Value::as_array).cloned().unwrap_or_default();
    Ok(found.into_iter().map(|value| Item::Read(Arc::new(value))).collect())
}

fn in_namespace<K>(client: &kube::Client, namespace: &str) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    Api::namespaced(client.clone(), namespace)
}

fn everywhere<K>(client: &kube::Client) -> Api<K>
where
    K: Resource<Scope = ClusterResourceScope, DynamicType = ()>,
{
    Api::all(client.clone())
}

#[async_trait]
impl MachineWorld for Real {
    fn name(&self) -> &'static str {
        "real"
    }

    fn control(&self) -> kube::Client {
        self.control.clone()
    }

    fn target(&self) -> kube::Client {
        self.target.clone()
    }

    fn cloud(&self) -> &Cloud {
        &self.cloud
    }

    fn pace(&self) -> Pace {
        Pace {
            patience: Duration::from_secs(180),
            watch_for: Duration::from_secs(10),
            health_timeout: Duration::from_secs(15),
            boot: Duration::from_secs(1),
            until_younger: Duration::from_secs(3),
        }
    }

    fn now(&self) -> Timestamp {
        SystemClock.now()
    }

    async fn look(&self) -> Result<MachineView, ScenarioError> {
        let (control, target) = (&self.control, &self.target);
        let mut tokens = items(in_namespace::<Secret>(target, TOKENS)).await?;
        tokens.retain(|secret| secret.seen().name().starts_with("bootstrap-token-"));
        Ok(MachineView {
            machines: items(in_namespace::<Machine>(control, NAMESPACE)).await?,
            sets: items(in_namespace::<MachineSet>(control, NAMESPACE)).await?,
            deployments: items(in_namespace::<MachineDeployment>(control, NAMESPACE)).await?,
            nodes: items(everywhere::<Node>(target)).await?,
            pods: items(in_namespace::<Pod>(target, NAMESPACE)).await?,
            tokens,
            ledger: self.cloud.ledger(),
        })
    }

    async fn changed(&self) {
        tokio::time::sleep(LOOK_EVERY).await;
    }

    fn begin(&self, _: &str) {}

    async fn start_processes(&self) -> Outcome {
        let clients = |process| clients(&self.clusters, process, &self.answers);
        let manager =
            Manager::start(clients(TestedProcess::Manager).await?, options(TestedProcess::Manager), None);
        let provider = Arc::new(SimProvider::in_process(self.cloud.clone()).also_serving("Fast"));
        let defaults = Defaults { dead_node_after: DEAD_NODE_AFTER, ..Defaults::default() };
        let controller = MachineController::start(
            clients(TestedProcess::MachineController).await?,
            options(TestedProcess::MachineController),
            MachineOptions { defaults: Arc::new(defaults), ..MachineOptions::new(provider, "real-lane") },
            None,
        );
        self.processes.lock().unwrap_or_else(PoisonError::into_inner).extend([manager, controller]);
        Ok(())
    }

    async fn stop_processes(&self) -> Outcome {
        Err(ScenarioError::new("the real world cannot restore objects, so it does not stop its processes"))
    }

    async fn store(&self, _: Side, _: &Value) -> Outcome {
        Err(ScenarioError::new("a real server cannot store objects with given uids and times"))
    }

    fn silence(&self, _: Side, _: Duration) -> Outcome {
        Err(ScenarioError::new("the real world cannot make a server silent"))
    }

    fn answers(&self) -> Vec<AnswerRecord> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn can(&self, ability: Ability) -> bool {
        match ability {
            Ability::SkipTime
            | Ability::JudgeCommits
            | Ability::CrashAtCalls
            | Ability::InjectFaults
            | Ability::StoreVerbatim => false,
        }
    }
}
