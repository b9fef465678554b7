//! Connects DockerMachines with the work loop. The rules are in
//! `machinist_plan::capi::docker_machine`. With `mcm::machine::instance`, this is the only module
//! that turns a permit into a deletion.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ObjectReference, Secret};
use kube::Api;
use machinist_api::capi::constants::{
    CONTAINER_ID_ANNOTATION, DOCKER_MACHINE_FINALIZER, SECRET_FORMAT, SECRET_VALUE,
};
use machinist_core::{Answered, Answers, Call, Deleted, Found, Known};
use machinist_driver::{Check, Driver};
use machinist_instance::{
    BootstrapData, BootstrapFormat, Error, ErrorKind, InstanceRef, RecordedId, UserData,
};
use machinist_kube::{GuardedPatch, ObjectKey};
use machinist_plan::capi::Plan;
use machinist_plan::capi::conditions::new_problems;
use machinist_plan::capi::docker_machine::{
    Action, COMPLETE_NODE, LOAD_IMAGES, PROGRESS, READINESS, START_BOOTSTRAP, Snapshot, StepAnswers,
    skipped_parts,
};
use machinist_plan::capi::facts::DockerMachineFacts;
use machinist_runtime::{Fed, Kind, Observed, Stop};
use serde_json::Value;

use super::contract::{Capi, Runtime, World, Write};
use super::engine::{self, About, Creation, bootstrap, next_failures};
use super::events::{key_of, reference, report_problems};
use super::key::Key;
use super::options::Tools;
use super::patch;
use super::seen::{Memory, Seen, container_holder, key_holder};
use super::workload::{self, Completion};

/// Path of the provider id.
const PROVIDER_ID: [&str; 2] = ["spec", "providerID"];
/// Path of the mark that the bootstrap has ended.
const BOOTSTRAPPED: [&str; 2] = ["spec", "bootstrapped"];

/// DockerMachines in the work loop.
pub(crate) struct DockerMachines;

impl Kind<Capi> for DockerMachines {
    const EXPLAINS: Option<&'static str> = Some(<DockerMachineFacts as Fed<Capi>>::RESOURCE);

    type Id = ObjectKey;
    type Snapshot = Snapshot;
    type Action = Action;

    fn ids(seen: &Seen, _: &Tools) -> Vec<ObjectKey> {
        seen.docker_machines.keys().cloned().collect()
    }
    fn is_decided(tools: &Tools) -> bool {
        tools.docker().is_some()
    }
    fn check_cloud(tools: &Tools) -> Option<Check> {
        tools.docker()?.provider.check()
    }

    fn observe(runtime: &Runtime, world: &World, id: &ObjectKey) -> Observed<Snapshot> {
        let seen = &world.seen;
        let Some(machine) = seen.docker_machines.get(id).map(|entry| entry.facts.clone()) else {
            return Observed::Gone;
        };
        let Some(docker) = runtime.tools.docker() else { return Observed::NotYet };
        let object = &machine.object;
        let owner = match object.owner("Machine") {
            None => Known::Unasked,
            Some(name) => Known::from_store(seen.machine(&ObjectKey::new(&object.namespace, name))),
        };
        let cluster = seen.cluster_of(object, owner.present().map(Arc::as_ref));
        let reference = cluster.as_ref().and_then(|cluster| cluster.infrastructure.as_ref());
        let infrastructure = reference.and_then(|reference| reference.names("DockerCluster"));
        let infrastructure = infrastructure
            .and_then(|name| seen.docker_clusters.get(&ObjectKey::new(&object.namespace, name)));
        let opened = engine::open(runtime).ok();
        let mut answers = seen.memory.answers.get(&object.uid).cloned().unwrap_or_default();
        answers.in_flight = world.asks.of(&object.uid);
        Observed::Ready(Snapshot {
            now: runtime.now(),
            process: runtime.process_facts(opened.as_ref()),
            gaps: runtime.unseen(),
            options: docker.machines.clone(),
            infrastructure: infrastructure.map(|entry| entry.facts.clone()),
            recorded: machine
                .provider_id()
                .map_or(RecordedId::Unset, |recorded| docker.provider.parse_id(recorded)),
            key_holder: key_holder(&seen.docker_machines, object),
            container_holder: container_holder(&seen.docker_machines, object, |machine| &machine.object),
            engine: opened.map(|opened| opened.account().clone()),
            steps: seen.memory.steps.get(&object.uid).cloned().unwrap_or_default(),
            owner,
            cluster,
            answers,
            machine,
        })
    }

    fn plan(tools: &Tools, snapshot: &Snapshot) -> Plan<Action> {
        (tools.options.planners.docker_machine)(snapshot)
    }

    async fn act(runtime: &Arc<Runtime>, s: &Snapshot, action: Action) -> Result<(), Stop> {
        let object = &s.machine.object;
        let own_key = [Key::DockerMachine(key_of(object))];
        let write = Write { runtime, charged: &own_key, key: key_of(object) };
        let asking = Asking { runtime, s };
        match action {
            Action::Claim(claim) => write.patch::<DockerMachineFacts>(patch::claim(object, &claim)).await,
            Action::SetStatus(status) => {
                let patch = patch::status(object, s.machine.status.as_ref(), &*status);
                write.patch_status::<DockerMachineFacts>(patch).await?;
                let old = s.machine.status.as_ref();
                let mut problems =
                    new_problems(old.and_then(|old| old.deprecated.as_ref()), status.deprecated.as_ref());
                problems.extend(skipped_parts(old, &status));
                report_problems(runtime, &reference("DockerMachine", object), &problems);
                Ok(())
            }
            Action::RecordContainer(id) => {
                let annotations = object.annotations.as_ref();
                let patch = GuardedPatch::new(&object.uid).set_annotation(
                    annotations,
                    CONTAINER_ID_ANNOTATION,
                    &object.bound(id.as_str()),
                );
                write.patch::<DockerMachineFacts>(patch).await
            }
            Action::RecordProviderId(id) => {
                let read = s.machine.spec.provider_id.as_deref().map(Value::from);
                let patch = GuardedPatch::new(&object.uid).test(&PROVIDER_ID, read.as_ref());
                let patch = patch.add(&PROVIDER_ID, Value::from(id.as_str()));
                write.patch::<DockerMachineFacts>(patch).await
            }
            Action::RecordBootstrapped => {
                let read = s.machine.spec.bootstrapped.map(Value::from);
                let patch = GuardedPatch::new(&object.uid).test(&BOOTSTRAPPED, read.as_ref());
                write.patch::<DockerMachineFacts>(patch.add(&BOOTSTRAPPED, Value::from(true))).await
            }
            Action::RecordWait(since) => {
                write.patch::<DockerMachineFacts>(patch::wait_recorded(object, since)).await
            }
            Action::Release => {
                let finalizers = object.finalizers.as_deref();
                let patch =
                    GuardedPatch::new(&object.uid).remove_finalizer(finalizers, DOCKER_MACHINE_FINALIZER);
                write.patch::<DockerMachineFacts>(patch).await
            }
            Action::Ensure(spec) => {
                let made = |driver: Arc<dyn Driver>| async move { driver.instances().ensure(&spec).await };
                asking.about_container(Call::ENSURE, None, is_live, made, |answers, answered| {
                    answers.take_ensure(answered);
                })
            }
            Action::Find(which) => asking.find(which),
            Action::Delete(permit) => {
                let (valid_until, id) = (permit.valid_until(), permit.which().id.clone());
                #[expect(clippy::disallowed_methods, reason = "a permit of the planner becomes a deletion")]
                let made = |driver: Arc<dyn Driver>| async move {
                    driver.instances().delete(permit.which(), permit.owner()).await
                };
                asking.about_container(
                    Call::DELETE,
                    Some(valid_until),
                    is_deleting,
                    made,
                    |answers, answered| {
                        let deleted = Deleted { id, may_lack_key: false, answered };
                        answers.delete = Some(Box::new(deleted));
                    },
                )
            }
            Action::ObserveStart(which) => {
                let made =
                    |driver: Arc<dyn Driver>| async move { bootstrap(&*driver)?.readiness(&which).await };
                asking.step(READINESS, made, StepAnswers::take_readiness)
            }
            Action::LoadImages(which, images) => {
                let made = |driver: Arc<dyn Driver>| async move {
                    bootstrap(&*driver)?.load_images(&which, &images).await
                };
                asking.step(LOAD_IMAGES, made, StepAnswers::take_images)
            }
            Action::StartBootstrap { which, secret, timeout } => {
                let secrets: Api<Secret> =
                    Api::namespaced(runtime.clients.control.clone(), &object.namespace);
                let made = |driver: Arc<dyn Driver>| async move {
                    let data = bootstrap_data(&secrets, &secret, timeout).await?;
                    bootstrap(&*driver)?.start(&which, &data).await
                };
                asking.step(START_BOOTSTRAP, made, |steps, answered| steps.start = Some(answered))
            }
            Action::ObserveBootstrap(which) => {
                let made =
                    |driver: Arc<dyn Driver>| async move { bootstrap(&*driver)?.progress(&which).await };
                asking.step(PROGRESS, made, StepAnswers::take_progress)
            }
            Action::ObserveBoot(which) => {
                let made = |driver: Arc<dyn Driver>| async move { bootstrap(&*driver)?.boot(&which).await };
                asking.step(Call::BOOT, made, |steps, answered| steps.boot = Some(answered))
            }
            Action::CompleteNode { cluster, node, id, addresses } => {
                let completion =
                    Completion { cluster: ObjectKey::new(&object.namespace, cluster), node, id, addresses };
                workload::complete(runtime, object, COMPLETE_NODE, completion)
            }
        }
    }

    fn reference(s: &Snapshot) -> Option<ObjectReference> {
        Some(reference("DockerMachine", &s.machine.object))
    }
}

/// Whether a container may be created or bootstrapped for the object: it has the intent.
fn is_live(machine: &DockerMachineFacts) -> bool {
    machine.object.has_finalizer(DOCKER_MACHINE_FINALIZER) && machine.object.deleting_since.is_none()
}

fn is_deleting(machine: &DockerMachineFacts) -> bool {
    machine.object.deleting_since.is_some()
}

/// Reads the bootstrap data. The data is only in memory during the call.
async fn bootstrap_data(
    secrets: &Api<Secret>,
    name: &str,
    timeout: Duration,
) -> Result<BootstrapData, Error> {
    let unreadable = |error: kube::Error| {
        Error::new(ErrorKind::Unavailable, format!("cannot read Secret {name}: {error}"))
    };
    let Some(secret) = secrets.get_opt(name).await.map_err(unreadable)? else {
        return Err(Error::new(ErrorKind::Unavailable, format!("Secret {name} does not exist")));
    };
    let mut data = secret.data.unwrap_or_default();
    let Some(value) = data.remove(SECRET_VALUE) else {
        let text = format!("Secret {name}: expected the key {SECRET_VALUE} with bootstrap data");
        return Err(Error::new(ErrorKind::InvalidSpec, text));
    };
    let format = data.remove(SECRET_FORMAT).map(|format| format.0).unwrap_or_default();
    let Some(format) = std::str::from_utf8(&format).ok().and_then(BootstrapFormat::parse) else {
        let text = format!("Secret {name}: expected the format cloud-config or ignition");
        return Err(Error::new(ErrorKind::InvalidSpec, text));
    };
    Ok(BootstrapData { format, value: UserData::new(value.0), timeout })
}

/// The DockerMachine that a call is about.
struct Asking<'a> {
    runtime: &'a Arc<Runtime>,
    s: &'a Snapshot,
}

impl Asking<'_> {
    fn find(&self, which: InstanceRef) -> Result<(), Stop> {
        let by = which.clone();
        let made = |driver: Arc<dyn Driver>| async move { driver.instances().find(&which).await };
        self.about_container(
            Call::FIND,
            None,
            |_| true,
            made,
            move |answers, answered| {
                answers.take_found(Found { by, answered });
            },
        )
    }

    /// Starts a call about the container itself.
    fn about_container<T: Send + 'static, F: Future<Output = Result<T, Error>> + Send + 'static>(
        &self,
        call: Call,
        begins_by: Option<jiff::Timestamp>,
        is_wanted: fn(&DockerMachineFacts) -> bool,
        made: impl FnOnce(Arc<dyn Driver>) -> F,
        remember: impl FnOnce(&mut Answers, Answered<T>) + Send + 'static,
    ) -> Result<(), Stop> {
        let take = move |memory: &mut Memory, uid: String, answered: Answered<T>| {
            memory.answers.entry(uid).or_default().take(0, answered, remember);
        };
        self.start(call, begins_by, is_wanted, made, take)
    }

    /// Starts a call about the work in the container.
    fn step<T: Send + 'static, F: Future<Output = Result<T, Error>> + Send + 'static>(
        &self,
        call: Call,
        made: impl FnOnce(Arc<dyn Driver>) -> F,
        remember: impl FnOnce(&mut StepAnswers, Answered<T>) + Send + 'static,
    ) -> Result<(), Stop> {
        let take = move |memory: &mut Memory, uid: String, answered: Answered<T>| {
            let steps = memory.steps.entry(uid).or_default();
            steps.failures = next_failures(steps.failures, &answered.answer);
            remember(steps, answered);
        };
        self.start(call, None, is_live, made, take)
    }

    fn start<T: Send + 'static, F: Future<Output = Result<T, Error>> + Send + 'static>(
        &self,
        call: Call,
        begins_by: Option<jiff::Timestamp>,
        is_wanted: fn(&DockerMachineFacts) -> bool,
        made: impl FnOnce(Arc<dyn Driver>) -> F,
        take: impl FnOnce(&mut Memory, String, Answered<T>) + Send + 'static,
    ) -> Result<(), Stop> {
        let object = &self.s.machine.object;
        let note = |memory: &mut Memory, uid| memory.answers.entry(uid).or_default().ever_ensured = true;
        let creation = Creation { silent: "the watch of DockerMachines is silent", note };
        let about = About::<DockerMachineFacts> {
            id: key_of(object),
            uid: object.uid.clone(),
            key: Key::DockerMachine(key_of(object)),
            call,
            creates: (call == Call::ENSURE).then_some(creation),
            begins_by,
            is_wanted,
            is_paused: |seen, machine| seen.machine_is_paused(&machine.object),
        };
        engine::start(self.runtime, about, made, take)
    }
}
