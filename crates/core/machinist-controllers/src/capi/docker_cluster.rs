//! Connects DockerClusters with the work loop. The rules are in
//! `machinist_plan::capi::docker_cluster`.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, ObjectReference};
use kube::Api;
use machinist_api::capi::constants::{DOCKER_CLUSTER_FINALIZER, SECRET_VALUE};
use machinist_core::{Answered, Call, Known};
use machinist_driver::{Check, Driver};
use machinist_instance::{Error, ErrorKind, Progress};
use machinist_kube::{GuardedPatch, ObjectKey};
use machinist_plan::capi::Plan;
use machinist_plan::capi::conditions::new_problems;
use machinist_plan::capi::docker_cluster::{
    Action, BalancerAnswers, DELETE_BALANCER, ENSURE_BALANCER, Member, Snapshot,
};
use machinist_plan::capi::facts::{DockerClusterFacts, DockerMachineFacts};
use machinist_runtime::{Fed, Kind, Observed, Stop};
use serde_json::Value;

use super::contract::{Capi, Runtime, World, Write};
use super::engine::{self, About, Creation, balancers, next_failures};
use super::events::{key_of, reference, report_problems};
use super::key::Key;
use super::options::{CoreApi, Tools};
use super::patch;
use super::seen::{BY_CLUSTER, Memory, Seen, cluster_index, container_holder, key_holder};

/// Path of the address of the API servers.
const ENDPOINT: [&str; 2] = ["spec", "controlPlaneEndpoint"];
/// Option of the driver for a template of the configuration.
const TEMPLATE_OPTION: &str = "haproxy-template";

/// DockerClusters in the work loop.
pub(crate) struct DockerClusters;

impl Kind<Capi> for DockerClusters {
    const EXPLAINS: Option<&'static str> = Some(<DockerClusterFacts as Fed<Capi>>::RESOURCE);

    type Id = ObjectKey;
    type Snapshot = Snapshot;
    type Action = Action;

    fn ids(seen: &Seen, _: &Tools) -> Vec<ObjectKey> {
        seen.docker_clusters.keys().cloned().collect()
    }
    fn is_decided(tools: &Tools) -> bool {
        tools.docker().is_some()
    }
    fn check_cloud(tools: &Tools) -> Option<Check> {
        tools.docker()?.provider.check()
    }

    fn observe(runtime: &Runtime, world: &World, id: &ObjectKey) -> Observed<Snapshot> {
        let seen = &world.seen;
        let Some(docker) = seen.docker_clusters.get(id).map(|entry| entry.facts.clone()) else {
            return Observed::Gone;
        };
        let object = &docker.object;
        let cluster = match object.owner("Cluster") {
            None => Known::Unasked,
            Some(name) => Known::from_store(seen.cluster(&ObjectKey::new(&object.namespace, name))),
        };
        let name = object.owner("Cluster").or(object.cluster_label());
        let opened = engine::open(runtime).ok();
        let mut answers = seen.memory.balancers.get(&object.uid).cloned().unwrap_or_default();
        answers.in_flight = world.asks.of(&object.uid);
        Observed::Ready(Snapshot {
            now: runtime.now(),
            process: runtime.process_facts(opened.as_ref()),
            machines: name.map(|name| members(runtime, seen, &object.namespace, name)).unwrap_or_default(),
            domains_are_listed: runtime.tools.options.core == CoreApi::Beta2,
            key_holder: key_holder(&seen.docker_clusters, object),
            container_holder: container_holder(&seen.docker_clusters, object, |cluster| &cluster.object),
            engine: opened.map(|opened| opened.account().clone()),
            cluster,
            answers,
            docker,
        })
    }

    fn plan(tools: &Tools, snapshot: &Snapshot) -> Plan<Action> {
        (tools.options.planners.docker_cluster)(snapshot)
    }

    async fn act(runtime: &Arc<Runtime>, s: &Snapshot, action: Action) -> Result<(), Stop> {
        let object = &s.docker.object;
        let own_key = [Key::DockerCluster(key_of(object))];
        let write = Write { runtime, charged: &own_key, key: key_of(object) };
        match action {
            Action::Claim(claim) => write.patch::<DockerClusterFacts>(patch::claim(object, &claim)).await,
            Action::SetStatus(status) => {
                let patch = patch::status(object, s.docker.status.as_ref(), &*status);
                write.patch_status::<DockerClusterFacts>(patch).await?;
                let old = s.docker.status.as_ref().and_then(|old| old.deprecated.as_ref());
                let new_problems = new_problems(old, status.deprecated.as_ref());
                report_problems(runtime, &reference("DockerCluster", object), &new_problems);
                Ok(())
            }
            Action::SetEndpoint(endpoint) => {
                let read = s.docker.spec.control_plane_endpoint.as_ref();
                let read = read.and_then(|read| serde_json::to_value(read).ok());
                let endpoint = serde_json::to_value(endpoint).unwrap_or(Value::Null);
                let patch = GuardedPatch::new(&object.uid).test(&ENDPOINT, read.as_ref());
                write.patch::<DockerClusterFacts>(patch.add(&ENDPOINT, endpoint)).await
            }
            Action::Ensure { spec, inputs } => {
                let is_wanted = |docker: &DockerClusterFacts| docker.object.deleting_since.is_none();
                let remember = move |answers: &mut BalancerAnswers, answered: Answered<Progress<_>>| {
                    answers.failures = next_failures(answers.failures, &answered.answer);
                    answers.take_ensure(inputs, answered);
                };
                let template = s.docker.balancer_template().map(str::to_owned);
                let config_maps: Api<ConfigMap> =
                    Api::namespaced(runtime.clients.control.clone(), &object.namespace);
                start(runtime, s, ENSURE_BALANCER, is_wanted, remember, |driver| async move {
                    let mut spec = spec;
                    if let Some(name) = template {
                        let text = balancer_template(&config_maps, &name).await?;
                        spec.options.insert(TEMPLATE_OPTION.to_owned(), text);
                    }
                    balancers(&*driver)?.ensure(&spec).await
                })
            }
            Action::Delete(which) => {
                let is_wanted = |docker: &DockerClusterFacts| docker.object.deleting_since.is_some();
                let remember = |answers: &mut BalancerAnswers, answered: Answered<Progress<_>>| {
                    answers.failures = next_failures(answers.failures, &answered.answer);
                    answers.take_delete(answered);
                };
                start(runtime, s, DELETE_BALANCER, is_wanted, remember, |driver| async move {
                    balancers(&*driver)?.delete(&which).await
                })
            }
            Action::RecordWait(since) => {
                write.patch::<DockerClusterFacts>(patch::wait_recorded(object, since)).await
            }
            Action::Release => {
                let finalizers = object.finalizers.as_deref();
                let patch =
                    GuardedPatch::new(&object.uid).remove_finalizer(finalizers, DOCKER_CLUSTER_FINALIZER);
                write.patch::<DockerClusterFacts>(patch).await
            }
        }
    }

    fn reference(s: &Snapshot) -> Option<ObjectReference> {
        Some(reference("DockerCluster", &s.docker.object))
    }
}

/// Reads the template of a user. A changed template takes effect at the next comparison of the load
/// balancer with what is wanted.
async fn balancer_template(config_maps: &Api<ConfigMap>, name: &str) -> Result<String, Error> {
    let unavailable = |text: String| Error::new(ErrorKind::Unavailable, text);
    let read = config_maps.get_opt(name).await;
    let read = read.map_err(|error| unavailable(format!("cannot read ConfigMap {name}: {error}")))?;
    let read = read.ok_or_else(|| unavailable(format!("ConfigMap {name} does not exist")))?;
    let text = read.data.unwrap_or_default().remove(SECRET_VALUE);
    text.ok_or_else(|| {
        let expected = format!("ConfigMap {name}: expected the key {SECRET_VALUE} with a template");
        Error::new(ErrorKind::InvalidSpec, expected)
    })
}

/// Returns the machines of a cluster, by their label.
fn members(runtime: &Runtime, seen: &Seen, namespace: &str, cluster: &str) -> Vec<Member> {
    let index = cluster_index(namespace, cluster);
    let entries = seen.docker_machines.by_index(BY_CLUSTER, &index);
    let mut members: Vec<Member> =
        entries.map(|(_, machine)| member(runtime, seen, &machine.facts)).collect();
    members.sort();
    members
}

fn member(runtime: &Runtime, seen: &Seen, docker: &DockerMachineFacts) -> Member {
    let object = &docker.object;
    let owner = object.owner("Machine").map(|name| ObjectKey::new(&object.namespace, name));
    let owner = owner.and_then(|key| seen.machine(&key));
    let labelled = object.labels.contains_key(machinist_api::capi::constants::CONTROL_PLANE_LABEL);
    let parse = |id: &str| runtime.tools.docker()?.provider.parse_id(id).ours().cloned();
    Member {
        name: object.name.clone(),
        is_control_plane: owner.as_ref().map_or(labelled, |owner| owner.is_control_plane),
        is_deleting: object.deleting_since.is_some(),
        is_draining: owner.is_some_and(|owner| owner.object.deleting_since.is_some()),
        container: docker.provider_id().and_then(parse),
    }
}

fn start<T: Send + 'static, F: Future<Output = Result<T, Error>> + Send + 'static>(
    runtime: &Arc<Runtime>,
    s: &Snapshot,
    call: Call,
    is_wanted: fn(&DockerClusterFacts) -> bool,
    remember: impl FnOnce(&mut BalancerAnswers, Answered<T>) + Send + 'static,
    made: impl FnOnce(Arc<dyn Driver>) -> F,
) -> Result<(), Stop> {
    let object = &s.docker.object;
    let note = |memory: &mut Memory, uid| memory.balancers.entry(uid).or_default().ever_ensured = true;
    let creation = Creation { silent: "the watch of DockerClusters is silent", note };
    let about = About::<DockerClusterFacts> {
        id: key_of(object),
        uid: object.uid.clone(),
        key: Key::DockerCluster(key_of(object)),
        call,
        creates: (call == ENSURE_BALANCER).then_some(creation),
        begins_by: None,
        is_wanted,
        is_paused: |seen, cluster| seen.cluster_is_paused(&cluster.object),
    };
    let take = |memory: &mut Memory, uid, answered| {
        remember(memory.balancers.entry(uid).or_default(), answered);
    };
    engine::start(runtime, about, made, take)
}
