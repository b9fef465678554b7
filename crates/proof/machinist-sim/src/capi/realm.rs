//! The simulated world of Cluster API: a management cluster, a workload cluster, the stand-ins, the
//! others, and the provider. Everything runs in one thread under tokio's paused time, and draws
//! from one seed.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::PostParams;
use machinist_api::crd;
use machinist_apiserver::Server;
use machinist_controllers::capi::{CoreApi, Planners};
use machinist_standin_docker::Engine;
use machinist_standin_mailgun::Standin;
use serde_json::json;
use tokio::task::JoinSet;

use super::core::{CORE, CoreActors, Objects};
use super::engine::record;
use super::mutants::Mutant;
use super::outside::{By, foreign};
use super::process::{KEY, ProviderKind, ProviderProcess, ProviderSurroundings};
use super::view::ProviderView;
pub use super::wishes::MachineRole;
use super::wishes::{Operator, Wish, Wishes};
use super::{invariants, weather};
use crate::actor::{Side, TestedProcess};
use crate::faults::{Crash, Fault, Gate, LongKind, Profile};
use crate::history::RunHistory;
use crate::lab::{Lab, RunClock};
use crate::lives::HostClock;
use crate::seed::{Seed, Stream};
use crate::stage::{ScenarioStage, client, server};
use crate::world::{Outcome, ScenarioError};

/// The setup of a world.
#[derive(Debug, Clone)]
pub struct ProviderSetup {
    /// The seed of all random draws.
    pub seed: Seed,
    /// The faults.
    pub profile: Profile,
    /// The planned crash.
    pub crash: Option<Crash>,
    /// The mutant of the program.
    pub mutant: Option<Mutant>,
    /// The kind of infrastructure that the provider serves.
    pub kind: ProviderKind,
}

/// Timeout for an awaited state. A mail of unknown outcome is looked up for 35 minutes.
const PATIENCE: Duration = Duration::from_secs(60 * 60);
/// Mailgun may show a mail so late.
const SHOWN_WITHIN: Duration = Duration::from_secs(30 * 60);

/// A simulated world. Dropping it ends all its parts.
pub struct ProviderWorld {
    seed: Seed,
    stage: Arc<ScenarioStage>,
    management: Server,
    workload: Server,
    engine: Engine,
    post: Standin,
    provider: Arc<ProviderProcess>,
    user: Objects,
    wishes: Wishes,
    _tasks: JoinSet<()>,
}

impl ProviderWorld {
    /// Builds the world and starts the provider. Must be called in a current-thread runtime with
    /// paused time.
    ///
    /// # Errors
    /// When the server refuses the CRDs.
    pub async fn new(setup: &ProviderSetup) -> Result<Self, ScenarioError> {
        let clock = RunClock::start();
        let host = Arc::new(HostClock::new(clock));
        let history = RunHistory::new(Arc::new(clock), invariants::all(host.clone()));
        let server = |name| server(clock, setup.seed, name, None);
        let (management, workload) = (server("control"), server("target"));
        let (lab, dead) = Lab::new(clock, history.clone(), setup.seed, &setup.profile, setup.crash, None);
        history.follow(Side::Control, management.commits());
        history.follow(Side::Target, workload.commits());
        install_kinds(&management, setup.kind).await?;
        let engine = Engine::new("engine").with_clock(move || clock.time());
        engine.state().ignores_keys = setup.mutant == Some(Mutant::WithoutKey);
        let post = Standin::new(KEY, shown_after(setup));

        let mut tasks = JoinSet::new();
        let happens = |kind: LongKind| setup.profile.long.iter().any(|fault| fault.kind == kind);
        let is_restored = happens(LongKind::ControlRestored);
        let patience = if is_restored { PATIENCE * 2 } else { PATIENCE };
        let stage = Arc::new(ScenarioStage::new(lab.clone(), patience));
        stage.follow(&management, &mut tasks);
        stage.follow(&workload, &mut tasks);
        let others = CoreActors {
            stage: stage.clone(),
            management: management.clone(),
            workload: workload.clone(),
            seed: setup.seed,
        };
        let others_gate = Gate::default();
        tasks.spawn(others_gate.around(others.run()));
        tasks.spawn(host.clone().step(TestedProcess::Provider, lab.clone()));
        let is_old = setup.seed.stream("core API").happens(300);
        let provider = ProviderProcess::new(ProviderSurroundings {
            lab: lab.clone(),
            management: management.clone(),
            workload: workload.clone(),
            engine: engine.clone(),
            post: post.clone(),
            clock: host,
            planners: setup.mutant.map_or_else(Planners::default, Mutant::planners),
            kind: setup.kind,
            core: if is_old { CoreApi::Beta1 } else { CoreApi::Beta2 },
            seed: setup.seed,
            has_election: happens(LongKind::SecondReplica),
        });
        tasks.spawn(provider.clone().tend(dead));
        provider.start();
        let wishes = Wishes::new(setup.kind, management.clone(), is_restored);
        if is_restored || happens(LongKind::FinalizersOff) {
            let operator = Operator {
                stage: stage.clone(),
                management: management.clone(),
                workload: workload.clone(),
                engine: engine.clone(),
            };
            tasks.spawn(operator.clean_up());
        }
        for fault in setup.profile.long.iter().copied() {
            let elements = weather::Elements {
                lab: lab.clone(),
                management: management.clone(),
                provider: provider.clone(),
                others: others_gate.clone(),
                wishes: wishes.clone(),
                kind: setup.kind,
                seed: setup.seed,
            };
            tasks.spawn(weather::happen(elements, fault));
        }
        Ok(Self {
            seed: setup.seed,
            stage,
            user: Objects::new(&management, "user"),
            management,
            workload,
            engine,
            post,
            provider,
            wishes,
            _tasks: tasks,
        })
    }

    /// The place where the scenario waits.
    pub fn stage(&self) -> &ScenarioStage {
        &self.stage
    }

    /// The workload of the seed.
    pub fn workload(&self) -> Stream {
        self.seed.stream("workload")
    }

    /// The mail service.
    pub fn post(&self) -> &Standin {
        &self.post
    }

    /// The user's client, which meets no faults.
    pub fn user(&self) -> &Objects {
        &self.user
    }

    /// All existing objects.
    pub fn look(&self) -> ProviderView {
        ProviderView::of(&self.management, &self.workload, &self.engine, &self.post, &self.provider)
    }

    /// Waits for a state and returns it. `is_so` returns what is still missing.
    ///
    /// # Errors
    /// When the state is never reached, or an invariant is violated.
    pub async fn until(
        &self,
        what: &str,
        is_so: impl Fn(&ProviderView) -> Result<(), String>,
    ) -> Result<ProviderView, ScenarioError> {
        self.stage.until(what, || self.look(), is_so).await
    }

    /// Creates a Cluster with its infrastructure.
    ///
    /// # Errors
    /// When the server refuses an object.
    pub async fn create_cluster(&self, name: &str) -> Outcome {
        self.wishes.create(name, Wish::Cluster).await
    }

    /// Creates a Machine with its infrastructure.
    ///
    /// # Errors
    /// When the server refuses an object.
    pub async fn create_machine(&self, cluster: &str, name: &str, role: MachineRole) -> Outcome {
        self.wishes.create(name, Wish::Machine { cluster: cluster.to_owned(), role }).await
    }

    /// Begins the deletion of an object of a core kind.
    ///
    /// # Errors
    /// When the object does not exist.
    pub async fn delete(&self, kind: &str, name: &str) -> Outcome {
        self.wishes.delete(kind, name).await
    }

    /// Runs a container of another owner.
    pub fn run_foreign_container(&self, name: &str) {
        if let Some(container) = foreign(name, self.stage.lab().clock.time()) {
            self.engine.state().containers.insert(name.to_owned(), container);
            record(&self.stage.lab().history, By::Other, &self.engine, None);
        }
    }

    /// Removes a container behind the back of all programs.
    pub fn remove_container(&self, name: &str) {
        self.engine.state().containers.remove(name);
        record(&self.stage.lab().history, By::Other, &self.engine, None);
        self.stage.tell();
    }
}

/// D4: the time after which the mail service shows a mail, within its promise.
fn shown_after(setup: &ProviderSetup) -> Duration {
    if !setup.profile.rates.contains_key(&Fault::D4) {
        return Duration::ZERO;
    }
    setup.seed.stream("lag").within(Duration::ZERO..SHOWN_WITHIN)
}

async fn install_kinds(server: &Server, kind: ProviderKind) -> Outcome {
    let crds: Api<CustomResourceDefinition> = Api::all(client(server, "user"));
    let of_provider = match kind {
        ProviderKind::Docker => crd::docker_crds(),
        ProviderKind::Mail => crd::mailgun_crds(),
    };
    for kind in ["Cluster", "Machine"] {
        crds.create(&PostParams::default(), &core_kind(kind)?).await?;
    }
    for crd in of_provider {
        crds.create(&PostParams::default(), &crd).await?;
    }
    Ok(())
}

/// A core kind that keeps every field, in both versions.
fn core_kind(kind: &str) -> Result<CustomResourceDefinition, ScenarioError> {
    let free = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = |name: &str, storage: bool| {
        json!({
            "name": name, "served": true, "storage": storage, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": free, "status": free}}},
        })
    };
    let plural = format!("{}s", kind.to_lowercase());
    let crd = json!({
        "metadata": {"name": format!("{plural}.{CORE}")},
        "spec": {
            "group": CORE, "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
            "versions": [version("v1beta2", true), version("v1beta1", false)],
        },
    });
    serde_json::from_value(crd)
        .map_err(|error| ScenarioError(format!("cannot parse a built-in CRD: {error}")))
}
