//! DockerMachine: one container, from its creation to its deletion.
//!
//! ```text
//! claim -> ensure -> record the container -> started -> images -> provider id -> provisioned
//!                                                       -> bootstrap -> Node
//! deleted: out of the load balancer -> delete -> absent -> finalizer
//! ```
//!
//! A container is provisioned before it is bootstrapped, as a server of a real cloud is. A
//! container that is recorded is never created again: its absence is reported, and Cluster API
//! replaces the Machine. The bootstrap runs at most once; the driver reads its progress from the
//! container, so it does not depend on this process.
//!
//! Owner, Cluster and DockerCluster may be missing while the object is deleted.
//!
//! Most states on the way to a Node end within seconds. A state is written to the status only after
//! it has lasted for a while: every write is a cost for the API server and for all watches of the
//! object. `machinist why` shows the state meanwhile. A failure is written at once.

mod bootstrap;
mod delete;
mod status;

pub use super::calls::COMPLETE_NODE;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use machinist_api::capi::constants::conditions::ENGINE_CLOSED;
use machinist_api::capi::{DockerMachineStatus, constants};
use machinist_core::{Answered, Answers, Call, Known, Permit, Process, Step, Unseen, plus};
use machinist_instance::{
    AccountId, Boot, BootstrapStatus, Error, Instance, InstanceRef, InstanceSpec, NativeId, NodeName, Power,
    Progress, ProviderId, Readiness, RecordedId, Sighting, UserData,
};
use serde_json::{Value, json};

use self::bootstrap::after_provision;
use self::status::{
    Container, Depth, with_lasting_status, with_status, with_status_from, with_unknown_container,
};
use super::gates::{self, Claim};
use super::{conditions, retry};
use crate::capi::facts::{ClusterFacts, CoreMachineFacts, DockerClusterFacts, DockerMachineFacts};
use crate::capi::why::{CapiReason, Plan, Reason, Why};

pub use self::bootstrap::NodeCompletion;
pub use self::status::skipped_parts;

/// Observes whether the container has started.
pub const READINESS: Call = Call::look("observe the start of the container");
/// Loads images into the container.
pub const LOAD_IMAGES: Call = Call::change("load images into the container");
/// Starts the bootstrap.
pub const START_BOOTSTRAP: Call = Call::change("start the bootstrap");
/// Observes the bootstrap.
pub const PROGRESS: Call = Call::look("observe the bootstrap");

/// Time between two looks at a container that runs.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// Time between two looks at a container that runs and has no address.
const ADDRESS_AGAIN: Duration = Duration::from_secs(5);
/// Time between two looks at a container that does not run.
const STOPPED_AGAIN: Duration = Duration::from_secs(10);
/// Shortest and longest time between two observations of work in the container. Work that has just
/// changed is observed more often.
const OBSERVE_EVERY: (Duration, Duration) = (Duration::from_millis(300), Duration::from_secs(2));
/// The time between two observations is this fraction of the time since the last change.
const OBSERVE_FRACTION: u32 = 3;
/// A state that usually ends soon is written to the status after it has lasted this long.
const LASTING: Duration = Duration::from_secs(10);
/// The same for the creation of the container. With hundreds of machines, its call waits for the
/// calls of the others.
const LASTING_CREATION: Duration = Duration::from_secs(60);
/// An engine that has refused this many looks in a row is not only being restarted.
const RESTARTS_WITHIN: u32 = 2;
/// Longest host name.
const MAX_NAME_LEN: usize = 63;
/// Reason of ContainerProvisioned in the contract v1beta1 while the engine creates a container.
const CREATING: &str = "CreatingContainer";

/// All facts for one decision about one DockerMachine.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The moment of the decision.
    pub now: Timestamp,
    /// The deciding process.
    pub process: Process,
    /// The time that no process saw, which deadlines leave out.
    pub gaps: Unseen,
    /// The flags of the provider.
    pub options: Arc<Options>,
    /// The DockerMachine to decide about.
    pub machine: Arc<DockerMachineFacts>,
    /// The Machine that owns it; `Unasked` if there is no owner reference.
    pub owner: Known<Arc<CoreMachineFacts>>,
    /// The Cluster of the Machine.
    pub cluster: Option<Arc<ClusterFacts>>,
    /// The DockerCluster that the Cluster names.
    pub infrastructure: Option<Arc<DockerClusterFacts>>,
    /// The recorded provider id, parsed by the provider.
    pub recorded: RecordedId,
    /// `namespace/name` of another object with the same key; absent if this one is the original.
    pub key_holder: Option<String>,
    /// `namespace/name` of another object that recorded the same container.
    pub container_holder: Option<String>,
    /// Today's engine; absent while it cannot be opened.
    pub engine: Option<AccountId>,
    /// The driver's answers about the container.
    pub answers: Answers,
    /// The answers about the work in the container and about its Node.
    pub steps: StepAnswers,
}

impl Hash for Snapshot {
    /// The process and its gaps are excluded like the moment.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { now: _, process: _, gaps: _, options: _, machine, owner, cluster, infrastructure, .. } =
            self;
        (machine, owner, cluster, infrastructure).hash(state);
        let Self { recorded, key_holder, container_holder, engine, answers, steps, .. } = self;
        (recorded, key_holder, container_holder, engine, answers, steps).hash(state);
    }
}

/// The last answers about the work in a container. They may be lost at any moment.
#[derive(Debug, Clone, Default, Hash)]
pub struct StepAnswers {
    /// Whether the container has started.
    pub readiness: Option<Answered<Readiness>>,
    /// Whether the images are loaded.
    pub images: Option<Answered<Progress<()>>>,
    /// Whether the bootstrap was started.
    pub start: Option<Answered<()>>,
    /// The progress of the bootstrap.
    pub progress: Option<Answered<BootstrapStatus>>,
    /// Why the container does not run.
    pub boot: Option<Answered<Boot>>,
    /// The Node.
    pub node: Option<Answered<NodeCompletion>>,
    /// The last observed work in the container, and the first observation that showed it.
    pub doing: Option<(String, Timestamp)>,
    /// Consecutive failures.
    pub failures: u32,
}

impl StepAnswers {
    /// Stores whether the container has started.
    pub fn take_readiness(&mut self, answered: Answered<Readiness>) {
        if let Ok(Readiness::Booting(missing)) = &answered.answer {
            self.note(missing.clone(), answered.ended);
        }
        self.readiness = Some(answered);
    }

    /// Stores whether the images are loaded.
    pub fn take_images(&mut self, answered: Answered<Progress<()>>) {
        if let Ok(Progress::Working(image)) = &answered.answer {
            self.note(image.clone(), answered.ended);
        }
        self.images = Some(answered);
    }

    /// Stores the progress of the bootstrap.
    pub fn take_progress(&mut self, answered: Answered<BootstrapStatus>) {
        if let Ok(seen) = &answered.answer {
            self.note(seen.state.to_string(), answered.ended);
        }
        self.progress = Some(answered);
    }

    fn note(&mut self, doing: String, at: Timestamp) {
        if self.doing.as_ref().is_none_or(|(before, _)| *before != doing) {
            self.doing = Some((doing, at));
        }
    }

    /// Returns since when the container has been seen doing this work. An observation that is not
    /// known is new.
    fn doing_since(&self, doing: &str, now: Timestamp) -> Timestamp {
        self.doing.as_ref().filter(|(shown, _)| shown == doing).map_or(now, |(_, since)| *since)
    }
}

/// The flags of the provider.
#[derive(Debug, Clone)]
pub struct Options {
    /// The image of a version, with `{version}` for the version.
    pub image: String,
    /// How long a bootstrap may run if the DockerMachine does not say so.
    pub bootstrap_timeout: Duration,
    /// How long a deletion waits for the load balancer.
    pub balancer_patience: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            image: "kindest/node:{version}".to_owned(),
            bootstrap_timeout: Duration::from_secs(300),
            balancer_patience: Duration::from_secs(30),
        }
    }
}

/// One call for one DockerMachine.
#[derive(Debug)]
pub enum Action {
    /// Writes finalizer, key and engine: the intent.
    Claim(Claim),
    /// Replaces the changed fields of the status, guarded by the version of the object.
    SetStatus(Box<DockerMachineStatus>),
    /// Asks the driver for the container.
    Ensure(Box<InstanceSpec>),
    /// Looks the container up.
    Find(InstanceRef),
    /// Writes the id of the container.
    RecordContainer(NativeId),
    /// Writes the provider id.
    RecordProviderId(ProviderId),
    /// Observes whether the container has started.
    ObserveStart(InstanceRef),
    /// Loads images into the container.
    LoadImages(InstanceRef, Vec<String>),
    /// Starts the bootstrap with the data of a Secret.
    StartBootstrap {
        /// The container.
        which: InstanceRef,
        /// Name of the Secret.
        secret: String,
        /// How long the bootstrap may run.
        timeout: Duration,
    },
    /// Observes the bootstrap.
    ObserveBootstrap(InstanceRef),
    /// Asks the driver why a container does not run.
    ObserveBoot(InstanceRef),
    /// Writes that the bootstrap has ended.
    RecordBootstrapped,
    /// Completes the Node in the workload cluster.
    CompleteNode {
        /// Name of the Cluster.
        cluster: String,
        /// Name of the Node.
        node: String,
        /// The provider id of the Node.
        id: ProviderId,
        /// Addresses of the container.
        addresses: Vec<String>,
    },
    /// Asks the driver to delete the container.
    Delete(Permit),
    /// Records since when no process creates the container of this deleted object.
    RecordWait(Timestamp),
    /// Removes the finalizer.
    Release,
}

/// Decides the next actions for one DockerMachine.
pub fn plan(s: &Snapshot) -> Plan<Action> {
    let object = &s.machine.object;
    if gates::is_paused(object, s.cluster.as_deref()) {
        return paused(s);
    }
    if let Some(since) = object.deleting_since {
        return delete::plan(s, since);
    }
    let owner = match &s.owner {
        Known::Present(owner) => owner.clone(),
        Known::Unasked => return wait(CapiReason::OwnerUnset { kind: "Machine" }, "the Machine adopts it"),
        Known::Absent => {
            let owner = format!("Machine {}", object.owner("Machine").unwrap_or_default());
            return wait(
                CapiReason::OwnerMissing { owner },
                "the Machine appears, or this object is deleted",
            );
        }
    };
    let Some(cluster) = s.cluster.clone() else {
        let fix = "set the label cluster.x-k8s.io/cluster-name to the name of the Cluster".to_owned();
        return Plan::idle(Why::new(CapiReason::ClusterUnknown, Step::Fix(fix)));
    };
    let Some(infrastructure) = s.infrastructure.clone() else { return no_infrastructure(&cluster) };
    let Some(engine) = s.engine.clone() else {
        return Plan::idle(Why::new(Reason::Looking("the engine"), Step::Expect("the engine answers")));
    };
    if let Some(other) = &s.key_holder {
        return waiting_copy(s, other);
    }
    if let Some(claim) = gates::claim(object, constants::DOCKER_MACHINE_FINALIZER, &engine) {
        let why = Why::new(
            Reason::Writing("adding the finalizer, which records that a container may exist"),
            Step::Expect("the container is created"),
        );
        return Plan::act(Action::Claim(claim), why);
    }
    if gates::recorded_engine(object).is_some_and(|recorded| recorded != engine) {
        return Plan::idle(Why::new(CapiReason::OtherEngine, Step::Fix(USE_THE_ENGINE.to_owned())));
    }
    Work { s, owner: &owner, cluster: &cluster, infrastructure: &infrastructure }.plan()
}

/// Another object has the key or the container. Its own controller goes on.
fn waiting_copy(s: &Snapshot, other: &str) -> Plan<Action> {
    status::with_taken_key(s, Plan::idle(gates::key_taken(other)))
}

const USE_THE_ENGINE: &str = "start the provider with the engine that has the container";

/// An object whose gates are open, with its owner, Cluster and DockerCluster.
struct Work<'s> {
    s: &'s Snapshot,
    owner: &'s CoreMachineFacts,
    cluster: &'s ClusterFacts,
    infrastructure: &'s DockerClusterFacts,
}

fn paused(s: &Snapshot) -> Plan<Action> {
    let object = &s.machine.object;
    let report = conditions::paused(
        "DockerMachine",
        s.cluster.as_ref().is_some_and(|cluster| cluster.is_paused),
        object.is_paused(),
    );
    let why = Why::new(
        CapiReason::Paused { causes: report.message.clone() },
        Step::Expect("the controller continues when the pause ends"),
    );
    let mut plan = Plan::idle(why);
    plan.actions.extend(status::with_reports(s, &[report], |_| {}));
    plan
}

fn wait(reason: CapiReason, next: &'static str) -> Plan<Action> {
    Plan::idle(Why::new(reason, Step::Expect(next)))
}

fn no_infrastructure(cluster: &ClusterFacts) -> Plan<Action> {
    let name = cluster.object.name.clone();
    let reference = cluster.infrastructure.as_ref();
    match reference.and_then(|reference| reference.names("DockerCluster")) {
        Some(infrastructure) => {
            let infrastructure = format!("DockerCluster {infrastructure}");
            wait(CapiReason::InfrastructureMissing { infrastructure }, "the DockerCluster appears")
        }
        None => wait(CapiReason::InfrastructureUnset { cluster: name }, "the Cluster names a DockerCluster"),
    }
}

impl Work<'_> {
    fn plan(&self) -> Plan<Action> {
        let (s, cluster) = (self.s, &self.cluster.object.name);
        if !self.cluster.infrastructure_provisioned {
            let container = Container::Waiting(
                "WaitingForClusterInfrastructureReady",
                "WaitingForClusterInfrastructure",
                String::new(),
            );
            let why = CapiReason::InfrastructureNotReady { cluster: cluster.clone() };
            let plan = wait(why, "the DockerCluster is provisioned");
            return with_lasting_status(s, plan, s.machine.object.created, container, Depth::Nothing);
        }
        if let Some(problem) = unusable_id(s) {
            return Plan::idle(problem);
        }
        if !self.is_recorded() {
            if let Some(plan) = self.no_data() {
                return plan;
            }
            if MAX_NAME_LEN < self.name().len() {
                let reason = CapiReason::NameTooLong { name: self.name() };
                let fix = "use a shorter name for the Machine or the Cluster".to_owned();
                return self.broken(Why::new(reason, Step::Fix(fix)), "NotProvisioned");
            }
        }
        if let Some((call, since, until)) = s.answers.waiting(&s.process, s.now) {
            let why = Why::new(Reason::Calling(call), Step::Expect("the engine answers")).since(since);
            let plan = Plan::until(until, why);
            return if call == Call::ENSURE { self.creating(plan, since) } else { plan };
        }
        self.container()
    }

    /// Whether a container was recorded. Then no other is created.
    fn is_recorded(&self) -> bool {
        self.s.machine.provider_id().is_some() || self.s.native_id().is_some()
    }

    /// Waits for the bootstrap data, without which no container is created.
    fn no_data(&self) -> Option<Plan<Action>> {
        if self.owner.bootstrap_secret.is_some() {
            return None;
        }
        let is_early = !self.owner.is_control_plane
            && self.cluster.has_control_plane
            && !self.cluster.control_plane_initialized;
        let (container, plan) = if is_early {
            let cluster = self.cluster.object.name.clone();
            let why = CapiReason::ControlPlaneNotInitialized { cluster };
            let v1 = "WaitingForControlPlaneAvailable";
            (
                Container::Waiting("WaitingForControlPlaneInitialized", v1, String::new()),
                wait(why, "the first machine of the control plane starts"),
            )
        } else {
            let why = CapiReason::BootstrapDataMissing { machine: self.owner.object.name.clone() };
            (
                Container::Waiting("WaitingForBootstrapData", "WaitingForBootstrapData", String::new()),
                wait(why, "the bootstrap provider creates the data"),
            )
        };
        // The data of a worker follows soon after the control plane serves its API.
        let since = self.cluster.control_plane_initialized_at.unwrap_or(Timestamp::MIN);
        let since = since.max(self.s.machine.object.created);
        Some(with_lasting_status(self.s, plan, since, container, Depth::Nothing))
    }

    /// Creates the container, or looks it up.
    fn container(&self) -> Plan<Action> {
        if self.is_recorded() { self.recorded_container() } else { self.new_container() }
    }

    fn new_container(&self) -> Plan<Action> {
        let s = self.s;
        match s.answers.ensure.as_ref().map(|answered| (&answered.answer, answered.ended)) {
            Some((Ok(instance), _)) => match &instance.native_id {
                Some(native) => {
                    let why = Why::new(
                        Reason::Writing("recording the id of the container"),
                        Step::Expect("the container starts"),
                    );
                    Plan::act(Action::RecordContainer(native.clone()), why)
                }
                // An engine whose names are never given out again needs no second id.
                None => self.started(instance),
            },
            Some((Err(error), ended)) => {
                let retry_at = plus(ended, retry::again_after(error, s.answers.failures));
                if retry_at <= s.now {
                    return self.ensure();
                }
                let why = if error.is_in_progress() {
                    let missing = error.message.clone();
                    wait(CapiReason::ContainerStarting { missing }, "the engine creates the container").why
                } else {
                    Why::call_failed(Call::ENSURE, error, s.answers.failures, retry_at)
                };
                let reason = if error.is_closed() { ENGINE_CLOSED } else { "NotProvisioned" };
                let container = if error.is_in_progress() {
                    Container::Waiting(reason, CREATING, error.message.clone())
                } else {
                    Container::Failed(reason, error.message.clone())
                };
                with_status(s, Plan::until(retry_at, why), container, Depth::Nothing)
            }
            None => self.ensure(),
        }
    }

    fn ensure(&self) -> Plan<Action> {
        let Some(image) = self.image() else {
            let reason = CapiReason::VersionMissing { machine: self.owner.object.name.clone() };
            let fix = "set spec.version of the Machine".to_owned();
            return self.broken(Why::new(reason, Step::Fix(fix)), "NotProvisioned");
        };
        let Some(name) = NodeName::new(self.name()) else {
            return self.broken(Why::new(CapiReason::ClusterUnknown, Step::Nothing), "NotProvisioned");
        };
        let spec = InstanceSpec {
            key: self.s.machine.object.key(),
            name,
            cluster: self.cluster.object.name.clone(),
            provider_spec: self.provider_spec(&image),
            user_data: UserData::default(),
            tags: [("machinist.dev/namespace".to_owned(), self.s.machine.object.namespace.clone())].into(),
            annotations: [].into(),
            adopt_made_since: None,
            last_known_state: None,
        };
        let plan = Plan::act(
            Action::Ensure(Box::new(spec)),
            Why::new(Reason::Calling(Call::ENSURE), Step::Expect("the engine creates the container")),
        );
        self.creating(plan, self.s.now)
    }

    /// Adds the status of a container whose creation was requested at `since`.
    fn creating(&self, plan: Plan<Action>, since: Timestamp) -> Plan<Action> {
        let message = format!("Creating container {}", self.name());
        let state = Container::Waiting("NotProvisioned", CREATING, message);
        with_status_from(self.s, plan, plus(since, LASTING_CREATION), state, Depth::Nothing)
    }

    /// Returns the image of the container.
    fn image(&self) -> Option<String> {
        let custom = self.s.machine.spec.custom_image.clone().filter(|image| !image.is_empty());
        let version = self.owner.kubernetes.as_ref();
        // A tag of an image cannot contain a plus sign.
        custom.or_else(|| Some(self.s.options.image.replace("{version}", &version?.replace('+', "_"))))
    }

    fn provider_spec(&self, image: &str) -> Value {
        let spec = &self.s.machine.spec;
        let role = if self.owner.is_control_plane { "control-plane" } else { "worker" };
        let mut value = json!({"image": image, "role": role, "cluster": self.cluster.object.name});
        if let Some(domain) = &self.owner.failure_domain {
            value["failureDomain"] = json!(domain);
        }
        if !spec.extra_mounts.is_empty() {
            value["extraMounts"] = json!(spec.extra_mounts);
        }
        if !spec.pre_load_images.is_empty() {
            value["preLoadImages"] = json!(spec.pre_load_images);
        }
        value
    }

    /// Returns the name of the container, which is also its host name and the name of its Node.
    fn name(&self) -> String {
        container_name(&self.cluster.object.name, &self.owner.object.name)
    }

    fn recorded_container(&self) -> Plan<Action> {
        let s = self.s;
        let look = || {
            let why = Why::new(Reason::Calling(Call::FIND), Step::Expect("the engine shows the container"));
            Plan::act(Action::Find(s.which(Some(self.name()))), why)
        };
        let Some(seen) = s.last_look() else { return look() };
        let every = match seen.shown {
            Ok(Some(shown)) if shown.power == Power::Running && status::ips(shown).is_empty() => {
                ADDRESS_AGAIN
            }
            // The driver starts containers again that ended with their engine.
            Ok(Some(shown)) if shown.power == Power::Stopped => STOPPED_AGAIN,
            Ok(_) | Err(_) => LOOK_EVERY,
        };
        let is_due = plus(seen.ended, every) <= s.now;
        match seen.shown {
            Ok(Some(_)) if is_due => look(),
            Ok(Some(instance)) => {
                let plan = match s.other_claim_on(instance) {
                    Some(other) => waiting_copy(s, other),
                    None => self.started(instance),
                };
                plan.no_later_than(plus(seen.ended, every))
            }
            Ok(None) if is_due => look(),
            Ok(None) => {
                let reason = if s.is_foreign() {
                    CapiReason::ContainerNotOurs { container: self.name() }
                } else {
                    CapiReason::ContainerMissing { container: self.name() }
                };
                let fix = "delete the Machine; Cluster API then creates another one".to_owned();
                let plan = Plan::until(plus(seen.ended, LOOK_EVERY), Why::new(reason, Step::Fix(fix)));
                let message = format!("Container {} is not running anymore", self.name());
                with_status(s, plan, Container::Deleted(message), Depth::Nothing)
            }
            Err(error) => {
                let retry_at = plus(seen.ended, retry::again_after(error, s.answers.failures));
                let plan = if retry_at <= s.now {
                    look()
                } else {
                    Plan::until(retry_at, Why::call_failed(Call::FIND, error, s.answers.failures, retry_at))
                };
                // A restart of the engine takes a moment, and its containers may run on.
                if error.is_closed() && RESTARTS_WITHIN <= s.answers.failures {
                    with_unknown_container(s, plan, error.message.clone())
                } else {
                    plan
                }
            }
        }
    }

    /// The container exists: waits until it runs and can be bootstrapped.
    fn started(&self, instance: &Instance) -> Plan<Action> {
        let s = self.s;
        let container = self.name();
        match instance.power {
            Power::Running => {}
            Power::Pending => {
                let missing = "the engine starts it".to_owned();
                let why =
                    Why::new(CapiReason::ContainerStarting { missing }, Step::Expect("the container runs"));
                // Another process may have created the container at any time.
                let since = s.answers.ensure.as_ref().map_or(Timestamp::MIN, |made| made.ended);
                let message = "The container is starting".to_owned();
                let state = Container::Waiting("NotProvisioned", CREATING, message);
                return with_lasting_status(s, self.look_soon(why), since, state, Depth::Nothing);
            }
            Power::Changing => return self.changing(instance),
            Power::Stopped | Power::Failed | Power::Deleting => {
                let message = format!("Container {container} is not running anymore");
                let fix = format!("start container {container} again, or delete the Machine");
                let why = Why::new(CapiReason::ContainerStopped { container }, Step::Fix(fix));
                let until = s.last_look().map_or(s.now, |look| plus(look.ended, STOPPED_AGAIN));
                let plan = Plan::until(until, why);
                return with_status(s, plan, Container::Failed("ContainerStopped", message), Depth::Nothing);
            }
        }
        if s.machine.provider_id().is_none()
            && let Some(plan) = self.prepared(instance)
        {
            return plan;
        }
        after_provision(self, instance)
    }

    /// The container restarts or is paused. One restart is not a failure.
    fn changing(&self, instance: &Instance) -> Plan<Action> {
        let (s, container) = (self.s, self.name());
        let boot = s.steps.boot.as_ref();
        let is_due = boot.is_none_or(|last| plus(last.ended, STOPPED_AGAIN) <= s.now);
        let look = |why| {
            if is_due {
                Plan::act(Action::ObserveBoot(s.which_is(instance)), why)
            } else {
                self.look_soon(why)
            }
        };
        if let Some(Ok(Boot::Trouble(trouble))) = boot.map(|last| &last.answer) {
            let missing = status::recorded_container_problem(s, &trouble.cause);
            let missing = missing.unwrap_or_else(|| trouble.to_string());
            let fix =
                "correct the image of the machine, and delete the Machine; or let a MachineHealthCheck \
                       replace it"
                    .to_owned();
            let reason = CapiReason::ContainerStarting { missing: missing.clone() };
            let plan = look(Why::new(reason, Step::Fix(fix)));
            return with_status(s, plan, Container::Failed("NotProvisioned", missing), Depth::Nothing);
        }
        let missing = "it restarts again and again, or is paused".to_owned();
        let fix = format!(
            "read docker logs {container} if it restarts, or continue it with docker unpause {container}"
        );
        let plan = look(Why::new(CapiReason::ContainerStarting { missing }, Step::Fix(fix)));
        let message = format!("Container {container} restarts again and again, or is paused");
        let since = s.answers.changing_since.unwrap_or(s.now);
        let state = Container::Failed("NotProvisioned", message);
        with_lasting_status(s, plan, since, state, Depth::Nothing)
    }

    /// Looks at the container again after a moment.
    fn look_soon(&self, why: Why) -> Plan<Action> {
        let s = self.s;
        let look = Plan::act(Action::Find(s.which(Some(self.name()))), why.clone());
        let due = s.last_look().map_or(s.now, |look| plus(look.ended, OBSERVE_EVERY.1));
        if due <= s.now { look } else { Plan::until(due, why) }
    }

    /// Waits until the operating system and the images are there, and records the provider id.
    fn prepared(&self, instance: &Instance) -> Option<Plan<Action>> {
        let s = self.s;
        let which = || s.which_is(instance);
        let (readiness, depth) = (s.steps.readiness.as_ref(), |text: &str| Depth::Starting(text.to_owned()));
        match readiness.map(|answered| (&answered.answer, answered.ended)) {
            Some((Ok(Readiness::Ready), _)) => {}
            Some((Ok(Readiness::Booting(missing)), ended)) => {
                let why = wait(CapiReason::ContainerStarting { missing: missing.clone() }, "it starts").why;
                let since = s.steps.doing_since(missing, ended);
                let plan = observe(s, since, ended, why, || Action::ObserveStart(which()));
                return Some(with_lasting_status(s, plan, since, Container::Runs, depth(missing)));
            }
            Some((Err(error), ended)) => {
                let plan = self.step_failed(READINESS, error, ended, || Action::ObserveStart(which()));
                return Some(with_status(s, plan, Container::Runs, depth(&error.message)));
            }
            None => {
                let why = Why::new(Reason::Calling(READINESS), Step::Expect("the container starts"));
                return Some(Plan::act(Action::ObserveStart(which()), why));
            }
        }
        let images = &s.machine.spec.pre_load_images;
        let load = || Action::LoadImages(which(), images.clone());
        match s.steps.images.as_ref().map(|answered| (&answered.answer, answered.ended)) {
            _ if images.is_empty() => {}
            Some((Ok(Progress::Done(())), _)) => {}
            Some((Ok(Progress::Working(image)), ended)) => {
                let why =
                    wait(CapiReason::ImagesLoading { image: image.clone() }, "the images are loaded").why;
                let (since, depth) = (s.steps.doing_since(image, ended), Depth::Loading(image.clone()));
                let plan = observe(s, since, ended, why, load);
                return Some(with_lasting_status(s, plan, since, Container::Runs, depth));
            }
            Some((Err(error), ended)) => {
                let plan = self.step_failed(LOAD_IMAGES, error, ended, load);
                return Some(with_status(s, plan, Container::Runs, Depth::Loading(error.message.clone())));
            }
            None => {
                let why = Why::new(Reason::Calling(LOAD_IMAGES), Step::Expect("the images are loaded"));
                return Some(Plan::act(load(), why));
            }
        }
        let why = Why::new(
            Reason::Writing("writing the provider id"),
            Step::Expect("the Machine counts as provisioned"),
        );
        Some(Plan::act(Action::RecordProviderId(instance.id.clone()), why))
    }

    fn step_failed(
        &self,
        call: Call,
        error: &Error,
        ended: Timestamp,
        again: impl FnOnce() -> Action,
    ) -> Plan<Action> {
        let s = self.s;
        let retry_at = plus(ended, retry::again_after(error, s.steps.failures));
        if retry_at <= s.now {
            Plan::act(again(), Why::new(Reason::Calling(call), Step::Expect("the engine answers")))
        } else {
            Plan::until(retry_at, Why::call_failed(call, error, s.steps.failures, retry_at))
        }
    }

    /// An object that a user must correct.
    fn broken(&self, why: Why, reason: &'static str) -> Plan<Action> {
        let container = Container::Failed(reason, why.reason.to_string());
        with_status(self.s, Plan::idle(why), container, Depth::Nothing)
    }
}

/// Observes some work again after a moment. The work has been the same since that time.
fn observe(
    s: &Snapshot,
    since: Timestamp,
    ended: Timestamp,
    why: Why,
    action: impl FnOnce() -> Action,
) -> Plan<Action> {
    let unchanged = Duration::try_from(ended.duration_since(since)).unwrap_or_default();
    let (least, most) = OBSERVE_EVERY;
    let due = plus(ended, (unchanged / OBSERVE_FRACTION).clamp(least, most));
    if due <= s.now { Plan::act(action(), why) } else { Plan::until(due, why) }
}

/// Returns the name of the container of a Machine. Machines that core controllers create have the
/// name of their Cluster as a prefix already.
pub fn container_name(cluster: &str, machine: &str) -> String {
    if machine.starts_with(cluster) { machine.to_owned() } else { format!("{cluster}-{machine}") }
}

/// The recorded id is not one of this provider, so the object is left alone.
fn unusable_id(s: &Snapshot) -> Option<Why> {
    let expected = match &s.recorded {
        RecordedId::Unset | RecordedId::Ours(_) => return None,
        RecordedId::NotOurs { expected } | RecordedId::Malformed { expected } => expected.clone(),
    };
    let id = s.machine.provider_id().unwrap_or_default().to_owned();
    let reason = CapiReason::ProviderIdNotOurs { id, expected };
    Some(Why::new(reason, Step::Fix("delete the object and create another one".to_owned())))
}

/// The last time that an answer showed the container, or its absence.
struct Look<'s> {
    /// The container, or its absence, or the failure of the lookup.
    shown: Result<Option<&'s Instance>, &'s Error>,
    ended: Timestamp,
}

impl Snapshot {
    fn last_look(&self) -> Option<Look<'_>> {
        let made = self.answers.ensure.as_ref().and_then(|answered| {
            let instance = answered.answer.as_ref().ok()?;
            Some(Look { shown: Ok(Some(instance)), ended: answered.ended })
        });
        let found = self.answers.find.as_deref().map(|found| {
            let shown = match &found.answered.answer {
                Ok(Sighting::Present(instance)) => Ok(Some(instance)),
                Ok(Sighting::Absent | Sighting::Ended | Sighting::Parts(_) | Sighting::Foreign(_)) => {
                    Ok(None)
                }
                Err(error) => Err(error),
            };
            Look { shown, ended: found.answered.ended }
        });
        match (made, found) {
            (Some(made), Some(found)) => Some(if made.ended < found.ended { found } else { made }),
            (made, found) => found.or(made),
        }
    }

    /// Whether the last lookup showed a container of another object.
    fn is_foreign(&self) -> bool {
        let answer = self.answers.find.as_deref().map(|found| &found.answered.answer);
        matches!(answer, Some(Ok(Sighting::Foreign(_))))
    }

    /// Returns the other object that recorded this container. A container with the key of this
    /// object is its own, even if other objects record it.
    fn other_claim_on(&self, instance: &Instance) -> Option<&str> {
        let is_own = instance.key.as_ref() == Some(&self.machine.object.key());
        self.container_holder.as_deref().filter(|_| !is_own)
    }

    /// Returns the recorded id of the container.
    fn native_id(&self) -> Option<NativeId> {
        NativeId::new(self.machine.object.recorded_container()?)
    }

    /// Returns all that is known about the identity of the container. A user can write the recorded
    /// ids, so they count only for a container of the same Cluster.
    fn which(&self, name: Option<String>) -> InstanceRef {
        InstanceRef {
            id: self.recorded.ours().cloned(),
            key: Some(self.machine.object.key()),
            name: name.and_then(NodeName::new),
            native_id: self.native_id(),
            cluster: Some(self.cluster_name().to_owned()),
            ..InstanceRef::default()
        }
    }

    /// Returns the name of the Cluster; empty if it is not known.
    fn cluster_name(&self) -> &str {
        let known = self.cluster.as_ref().map(|cluster| cluster.object.name.as_str());
        known.or(self.machine.object.cluster_label()).unwrap_or_default()
    }

    /// Returns the identity of a container that the engine has shown. The id in the answer does not
    /// prove ownership, unless the container has the key of this object.
    fn which_is(&self, instance: &Instance) -> InstanceRef {
        let key = self.machine.object.key();
        let of_answer = instance.native_id.as_ref().filter(|_| instance.key.as_ref() == Some(&key));
        InstanceRef {
            id: Some(instance.id.clone()),
            name: Some(instance.name.clone()),
            native_id: self.native_id().or_else(|| of_answer.cloned()),
            key: Some(key),
            cluster: Some(self.cluster_name().to_owned()),
            ..InstanceRef::default()
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Everyone may read the planned actions, and a user who knows a key can copy it.
            Self::Claim(claim) => write!(f, "claim on engine {}", claim.engine),
            Self::SetStatus(status) => {
                let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
                write!(f, "status: {}", ready.map_or("", |condition| condition.reason.as_str()))
            }
            Self::Ensure(spec) => write!(f, "ensure {}", spec.name),
            Self::Find(which) => write!(f, "find {which}"),
            Self::RecordContainer(id) => write!(f, "record container {id}"),
            Self::RecordProviderId(id) => write!(f, "record {id}"),
            Self::ObserveStart(which) => write!(f, "observe the start of {which}"),
            Self::LoadImages(which, images) => write!(f, "load {} images into {which}", images.len()),
            Self::StartBootstrap { which, secret, .. } => write!(f, "bootstrap {which} from Secret {secret}"),
            Self::ObserveBootstrap(which) => write!(f, "observe the bootstrap of {which}"),
            Self::ObserveBoot(which) => write!(f, "observe why {which} does not run"),
            Self::RecordBootstrapped => f.write_str("record: bootstrapped"),
            Self::CompleteNode { cluster, node, id, .. } => {
                write!(f, "complete Node {node} of Cluster {cluster}: {id}")
            }
            Self::Delete(permit) => write!(f, "delete {}: {permit}", permit.which()),
            Self::RecordWait(_) => f.write_str("record the wait for earlier calls"),
            Self::Release => f.write_str("remove the finalizer"),
        }
    }
}

#[cfg(test)]
mod tests;
