//! DockerCluster: the load balancer of the API servers, its endpoint, and the failure domains.
//!
//! ```text
//! claim -> ensure the load balancer -> endpoint -> provisioned, backends in the status
//! deleted: no machine remains -> delete the load balancer -> absent -> finalizer
//! ```
//!
//! This planner alone decides about the backends. It computes them from the DockerMachines and
//! Machines at each pass, so a lost event changes nothing. The status lists the machines that the
//! load balancer has; the bootstrap and the deletion of a machine wait for that list.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use machinist_api::ConditionStatus;
use machinist_api::capi::constants::conditions::{ENGINE_CLOSED, KEY_TAKEN, LOAD_BALANCER_AVAILABLE, PAUSED};
use machinist_api::capi::{
    Condition, DockerClusterStatus, Endpoint, FailureDomain, Initialization, LoadBalancerStatus, constants,
};
use machinist_core::{Answered, Call, Known, Process, READ_WITHIN, Step, plus};
use machinist_instance::{
    AccountId, BalancerDeletion, BalancerKey, BalancerRef, BalancerSpec, BalancerTarget, Ensured, Ingress,
    Listener, NativeId, Progress, ProviderId, TransportProtocol,
};

use super::conditions::{self, ConditionReport};
use super::gates::{self, Claim};
use super::retry;
use crate::capi::facts::{ClusterFacts, DockerClusterFacts};
use crate::capi::why::{CapiReason, Plan, Reason, Why};

/// Creates or updates the load balancer.
pub const ENSURE_BALANCER: Call = Call::change("ensure the load balancer of the API servers");
/// Deletes the load balancer.
pub const DELETE_BALANCER: Call = Call::change("delete the load balancer of the API servers");

/// Time between two comparisons of the load balancer with what is wanted.
const COMPARE_EVERY: Duration = Duration::from_secs(10);
/// Time between two questions whether the engine has carried out a change.
const WORKING_AGAIN: Duration = Duration::from_secs(1);
/// Reason of the driver's note that says why the load balancer lost its address.
const ADDRESS_MOVED: &str = "AddressMoved";
/// Option of the driver: the address of the load balancer.
const ADDRESS_OPTION: &str = "ip";
/// Reason of a load balancer without the address of the endpoint.
const ADDRESS_CHANGED: &str = "AddressChanged";
/// Reason of a load balancer that is not as wanted.
const NOT_AVAILABLE: &str = "NotAvailable";
/// A write that removes the finalizer although the load balancer stays.
const GIVEN_UP: &str = "a user has given up the load balancer";
/// Kind, for the condition Paused.
const KIND: &str = "DockerCluster";

/// All facts for one decision about one DockerCluster.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The moment of the decision.
    pub now: Timestamp,
    /// The deciding process.
    pub process: Process,
    /// The DockerCluster to decide about.
    pub docker: Arc<DockerClusterFacts>,
    /// The Cluster that owns it; `Unasked` if there is no owner reference.
    pub cluster: Known<Arc<ClusterFacts>>,
    /// The machines of the cluster, sorted by name.
    pub machines: Vec<Member>,
    /// Whether the core controllers read failure domains as a list, or only as a map.
    pub domains_are_listed: bool,
    /// `namespace/name` of another object with the same key; absent if this one is the original.
    pub key_holder: Option<String>,
    /// `namespace/name` of another object that recorded the same container.
    pub container_holder: Option<String>,
    /// Today's engine; absent while it cannot be opened.
    pub engine: Option<AccountId>,
    /// The driver's answers about the load balancer.
    pub answers: BalancerAnswers,
}

impl Hash for Snapshot {
    /// The process is excluded like the moment.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { now: _, process: _, docker, cluster, machines, .. } = self;
        (docker, cluster, machines).hash(state);
        let Self { domains_are_listed, key_holder, container_holder, engine, answers, .. } = self;
        (domains_are_listed, key_holder, container_holder, engine, answers).hash(state);
    }
}

/// A machine of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member {
    /// Name of the DockerMachine.
    pub name: String,
    /// Whether the machine belongs to the control plane.
    pub is_control_plane: bool,
    /// Whether the DockerMachine is being deleted.
    pub is_deleting: bool,
    /// Whether the Machine is being deleted, so that its Node is drained.
    pub is_draining: bool,
    /// The container, once it is recorded.
    pub container: Option<ProviderId>,
}

/// The driver's answers about a load balancer. They may be lost at any moment.
#[derive(Debug, Clone, Default, Hash)]
pub struct BalancerAnswers {
    /// The call in flight, and its start.
    pub in_flight: Option<(Call, Timestamp)>,
    /// Whether this process has ever started an `ensure`.
    pub ever_ensured: bool,
    /// The last answer to `ensure`, with the fingerprint of its spec.
    pub ensure: Option<(u64, Answered<Progress<Ensured>>)>,
    /// End of the last `ensure` that failed. The engine may still carry it out, even if a later
    /// call has succeeded.
    pub unsure_at: Option<Timestamp>,
    /// The last answer to `delete`.
    pub delete: Option<Answered<Progress<BalancerDeletion>>>,
    /// Whether an answer to `delete` has shown the load balancer.
    pub was_deleted: bool,
    /// Consecutive failures.
    pub failures: u32,
}

impl BalancerAnswers {
    /// Stores an answer to `ensure`, with the fingerprint of its spec.
    pub fn take_ensure(&mut self, inputs: u64, answered: Answered<Progress<Ensured>>) {
        if answered.answer.is_err() {
            self.unsure_at = Some(answered.ended);
        }
        self.ensure = Some((inputs, answered));
    }

    /// Stores an answer to `delete`.
    pub fn take_delete(&mut self, answered: Answered<Progress<BalancerDeletion>>) {
        self.was_deleted |= match &answered.answer {
            Ok(
                Progress::Working(_) | Progress::Done(BalancerDeletion::Gone | BalancerDeletion::Retained),
            ) => true,
            Ok(Progress::Done(BalancerDeletion::Absent)) | Err(_) => false,
        };
        self.delete = Some(answered);
    }
}

/// One call for one DockerCluster.
#[derive(Debug)]
pub enum Action {
    /// Writes finalizer, key and engine: the intent.
    Claim(Claim),
    /// Asks the driver to create or update the load balancer.
    Ensure {
        /// The wanted load balancer.
        spec: Box<BalancerSpec>,
        /// Fingerprint of the spec, to store with the answer.
        inputs: u64,
    },
    /// Writes the address of the API servers.
    SetEndpoint(Endpoint),
    /// Replaces the changed fields of the status, guarded by the version of the object.
    SetStatus(Box<DockerClusterStatus>),
    /// Asks the driver to delete the load balancer.
    Delete(BalancerRef),
    /// Records since when no process creates the load balancer of this deleted object.
    RecordWait(Timestamp),
    /// Removes the finalizer.
    Release,
}

/// Decides the next actions for one DockerCluster.
pub fn plan(s: &Snapshot) -> Plan<Action> {
    let object = &s.docker.object;
    if s.docker.is_managed_externally() {
        return managed_externally(s);
    }
    if gates::is_paused(object, s.cluster.present().map(Arc::as_ref)) {
        let cluster_is_paused = s.cluster.present().is_some_and(|cluster| cluster.is_paused);
        let report = conditions::paused(KIND, cluster_is_paused, object.is_paused());
        let why = Why::new(
            CapiReason::Paused { causes: report.message.clone() },
            Step::Expect("the controller continues when the pause ends"),
        );
        return with_reports(s, Plan::idle(why), &[report], |_| {});
    }
    if let Some(since) = object.deleting_since {
        return delete(s, since);
    }
    let cluster = match &s.cluster {
        Known::Present(cluster) => cluster.clone(),
        Known::Unasked => return wait(CapiReason::OwnerUnset { kind: "Cluster" }, "the Cluster adopts it"),
        Known::Absent => {
            let owner = format!("Cluster {}", object.owner("Cluster").unwrap_or_default());
            return wait(
                CapiReason::OwnerMissing { owner },
                "the Cluster appears, or this object is deleted",
            );
        }
    };
    let Some(engine) = s.engine.clone() else { return no_engine() };
    if let Some(other) = original(s) {
        return taken(s, gates::key_taken(other));
    }
    if let Some(claim) = gates::claim(object, constants::DOCKER_CLUSTER_FINALIZER, &engine) {
        let why = Why::new(
            Reason::Writing("adding the finalizer, which records that a load balancer may exist"),
            Step::Expect("the load balancer is created"),
        );
        return Plan::act(Action::Claim(claim), why);
    }
    if gates::recorded_engine(object).is_some_and(|recorded| recorded != engine) {
        let fix = "start the provider with the engine that has the load balancer".to_owned();
        return Plan::idle(Why::new(CapiReason::OtherEngine, Step::Fix(fix)));
    }
    ensure(s, &cluster)
}

/// Another program manages the infrastructure. A load balancer from before the annotation stays,
/// and so does the finalizer, until a user decides.
fn managed_externally(s: &Snapshot) -> Plan<Action> {
    let object = &s.docker.object;
    let is_claimed = object.has_finalizer(constants::DOCKER_CLUSTER_FINALIZER);
    let Some(since) = object.deleting_since.filter(|_| is_claimed) else {
        return wait(CapiReason::ManagedExternally, "the other program fills in the endpoint and the status");
    };
    let is_paused = gates::is_paused(object, s.cluster.present().map(Arc::as_ref));
    if gates::is_abandoned(object) && !is_paused {
        return release(GIVEN_UP, since);
    }
    let fix = format!(
        "remove the annotation {} to have the load balancer deleted, or set annotation {}=true to keep it",
        constants::MANAGED_BY_ANNOTATION,
        constants::ABANDON_ANNOTATION
    );
    Plan::idle(Why::new(CapiReason::ManagedExternally, Step::Fix(fix)).since(since))
}

/// Returns the object of which this one is a copy: the other one has the same key, or recorded the
/// same load balancer while the key of this one is the UID of a third object.
fn original(s: &Snapshot) -> Option<&str> {
    let recorded = s.container_holder.as_deref().filter(|_| gates::has_another_birth(&s.docker.object));
    s.key_holder.as_deref().or(recorded)
}

/// Another object has the key or the load balancer. Its own controller goes on.
fn taken(s: &Snapshot, why: Why) -> Plan<Action> {
    let message = why.reason.to_string();
    failing(s, Plan::idle(why), KEY_TAKEN, message)
}

fn wait(reason: CapiReason, next: &'static str) -> Plan<Action> {
    Plan::idle(Why::new(reason, Step::Expect(next)))
}

fn no_engine() -> Plan<Action> {
    Plan::idle(Why::new(Reason::Looking("the engine"), Step::Expect("the engine answers")))
}

fn calling(call: Call) -> Why {
    Why::new(Reason::Calling(call), Step::Expect("the engine answers"))
}

fn ensure(s: &Snapshot, cluster: &ClusterFacts) -> Plan<Action> {
    if let Some((call, since)) = s.answers.in_flight {
        return Plan::idle(calling(call).since(since));
    }
    let spec = wanted(s, cluster);
    let inputs = fingerprint(&spec);
    let call = || {
        let spec = Box::new(spec.clone());
        Plan::act(Action::Ensure { spec, inputs }, calling(ENSURE_BALANCER))
    };
    let Some((last, answered)) = &s.answers.ensure else { return call() };
    match &answered.answer {
        Ok(Progress::Done(_)) if *last != inputs => call(),
        Ok(Progress::Done(ensured)) => {
            let due = plus(answered.ended, COMPARE_EVERY);
            if due <= s.now {
                return call();
            }
            available(s, ensured).no_later_than(due)
        }
        Ok(Progress::Working(change)) => {
            let due = plus(answered.ended, WORKING_AGAIN);
            if due <= s.now || *last != inputs {
                return call();
            }
            let reason = CapiReason::BalancerWorking { change: change.clone() };
            let plan = Plan::until(due, wait(reason, "the load balancer is ready").why);
            creating(s, plan, change.clone())
        }
        Err(_) if *last != inputs => call(),
        Err(error) => {
            let retry = retry::again_after(error, s.answers.failures);
            let retry_at = plus(answered.ended, retry);
            if retry_at <= s.now {
                return call();
            }
            let plan =
                Plan::until(retry_at, Why::call_failed(ENSURE_BALANCER, error, s.answers.failures, retry_at));
            let reason = if error.is_closed() { ENGINE_CLOSED } else { NOT_AVAILABLE };
            failing(s, plan, reason, error.message.clone())
        }
    }
}

/// Returns the load balancer that the cluster needs.
fn wanted(s: &Snapshot, cluster: &ClusterFacts) -> BalancerSpec {
    let spec = &s.docker.spec;
    let port = spec.control_plane_endpoint.as_ref().and_then(Endpoint::port).unwrap_or(constants::API_PORT);
    let listeners =
        vec![Listener { protocol: TransportProtocol::Tcp, port, target_port: constants::API_PORT }];
    let mut options = s.docker.balancer_options(&cluster.object.name);
    // A user may have changed the endpoint. The load balancer runs on at its own address.
    let endpoint = spec.control_plane_endpoint.as_ref().map_or("", |endpoint| endpoint.host.as_str());
    if s.docker.status.as_ref().is_some_and(|status| !may_get_address(status, endpoint)) {
        options.remove(ADDRESS_OPTION);
    }
    BalancerSpec {
        key: key(s),
        claim: Default::default(),
        id: None,
        native_id: recorded_balancer(s),
        name: balancer_name(&cluster.object.name),
        listeners,
        targets: targets(&s.machines),
        options,
    }
}

/// Returns the backends: the containers of the control plane. A machine that is drained keeps its
/// connections and gets no new ones, unless it is the only one.
fn targets(machines: &[Member]) -> Vec<BalancerTarget> {
    let members = || machines.iter().filter(|member| member.is_control_plane && !member.is_deleting);
    let is_alone = members().count() < 2;
    let target = |member: &Member| {
        let is_drained = member.is_draining && !is_alone;
        Some(BalancerTarget {
            node: member.name.clone(),
            instance: member.container.clone()?,
            weight: if is_drained { BalancerTarget::DRAINING_WEIGHT } else { BalancerTarget::FULL_WEIGHT },
        })
    };
    members().filter_map(target).collect()
}

/// Returns the name of the container of the load balancer.
fn balancer_name(cluster: &str) -> String {
    format!("{cluster}-lb")
}

/// Returns the id of a load balancer that a user has recorded, because another Docker provider
/// created it. If two objects record it, only a key proves to which of them it belongs.
fn recorded_balancer(s: &Snapshot) -> Option<NativeId> {
    let recorded = s.docker.object.recorded_container().filter(|_| s.container_holder.is_none());
    NativeId::new(recorded?)
}

fn key(s: &Snapshot) -> BalancerKey {
    BalancerKey::new(s.docker.object.key().as_str())
}

fn fingerprint(spec: &BalancerSpec) -> u64 {
    let mut hash = fnv::FnvHasher::default();
    spec.hash(&mut hash);
    hash.finish()
}

/// The load balancer is as wanted: writes the endpoint, then the status. The order matters, because
/// the core controller copies the endpoint once the status says that it is complete.
fn available(s: &Snapshot, ensured: &Ensured) -> Plan<Action> {
    let addresses: Vec<String> = ensured.balancer.ingress.iter().map(address).collect();
    let Some(host) = addresses.first() else {
        let reason = CapiReason::BalancerWithoutAddress;
        let message = reason.to_string();
        let plan = wait(reason, "the engine gives it an address");
        return failing(s, plan, NOT_AVAILABLE, message);
    };
    let read = s.docker.spec.control_plane_endpoint.clone().unwrap_or_default();
    if !read.is_valid() {
        let host = if read.host.is_empty() { host.clone() } else { read.host.clone() };
        let port = Some(read.port().unwrap_or(constants::API_PORT));
        let why = Why::new(
            Reason::Writing("writing the address of the API servers"),
            Step::Expect("the cluster counts as provisioned"),
        );
        return Plan::act(Action::SetEndpoint(Endpoint { host, port }), why);
    }
    let has_moved = has_moved(s, &read.host, &addresses);
    let (report, plan) = if has_moved {
        let reason = CapiReason::BalancerAddressChanged {
            endpoint: read.host.clone(),
            addresses: addresses.join(", "),
        };
        let message = [reason.to_string(), notes(ensured)].join("\n");
        let report = ConditionReport::no(LOAD_BALANCER_AVAILABLE, ADDRESS_CHANGED, message.trim_end());
        let name = &ensured.balancer.name;
        let cause = ensured.notes.iter().find(|note| note.reason == ADDRESS_MOVED);
        let cause = cause.map(|note| format!("; {}", note.message)).unwrap_or_default();
        let fix = format!("give container {name} the address of the endpoint again{cause}");
        let report = report.in_v1(LOAD_BALANCER_AVAILABLE, ADDRESS_CHANGED, "Error");
        (report, Plan::idle(Why::new(reason, Step::Fix(fix))))
    } else {
        let mut report = ConditionReport::yes(LOAD_BALANCER_AVAILABLE, "Available");
        report.message = notes(ensured);
        (report.in_v1(LOAD_BALANCER_AVAILABLE, "Available", "Info"), Plan::idle(Why::up_to_date()))
    };
    let domains = &s.docker.failure_domains;
    let listed = s.domains_are_listed;
    // The driver leaves out a container that does not run. Its machine must not bootstrap yet.
    let is_there = |target: &BalancerTarget| ensured.balancer.targets.contains(&target.instance);
    let backends = targets(&s.machines).into_iter().filter(is_there).map(|target| target.node).collect();
    let balancer = LoadBalancerStatus {
        container_name: Some(ensured.balancer.name.clone()),
        // The lost address stays in the status: with it, a later call gives it back.
        ips: if has_moved { shown_addresses(s) } else { addresses },
        host_port: read.port().and_then(|port| ensured.balancer.host_ports.get(&port).copied()),
        backends,
    };
    with_summary(s, plan, report, |status| {
        status.ready = Some(true);
        status.initialization = Some(Initialization { provisioned: Some(true) });
        status.failure_domains =
            if listed { FailureDomain::to_list(domains) } else { FailureDomain::to_map(domains) };
        status.load_balancer = Some(balancer);
    })
}

/// Returns what the driver wants users to know about a load balancer, in one order.
fn notes(ensured: &Ensured) -> String {
    let mut notes: Vec<&str> = ensured.notes.iter().map(|note| note.message.as_str()).collect();
    notes.sort_unstable();
    notes.join("\n")
}

/// Whether the load balancer lost the address that certificates and kubeconfigs contain. A user may
/// have set the endpoint to an address outside of the engine, so only an address that the load
/// balancer had before counts.
fn has_moved(s: &Snapshot, endpoint: &str, addresses: &[String]) -> bool {
    let had = s.docker.status.as_ref().is_some_and(|status| had_address(status, endpoint));
    had && !addresses.iter().any(|address| address == endpoint)
}

/// Returns the addresses in the status: the addresses of the load balancer before it lost one.
fn shown_addresses(s: &Snapshot) -> Vec<String> {
    let shown = s.docker.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    shown.map(|shown| shown.ips.clone()).unwrap_or_default()
}

/// Whether the status shows that the load balancer has this address, or has lost it.
fn had_address(status: &DockerClusterStatus, endpoint: &str) -> bool {
    status.load_balancer.iter().flat_map(|shown| &shown.ips).any(|ip| ip == endpoint)
}

/// Whether a load balancer may get the address of the endpoint. If the status shows other addresses
/// for the load balancer, a user has changed the endpoint.
fn may_get_address(status: &DockerClusterStatus, endpoint: &str) -> bool {
    let has_addresses = status.load_balancer.as_ref().is_some_and(|shown| !shown.ips.is_empty());
    !has_addresses || had_address(status, endpoint)
}

fn address(ingress: &Ingress) -> String {
    match ingress {
        Ingress::Ip { address, .. } => address.to_string(),
        Ingress::Hostname(name) => name.clone(),
    }
}

/// The load balancer is not available because of an error.
fn failing(s: &Snapshot, plan: Plan<Action>, reason: &'static str, message: String) -> Plan<Action> {
    let report = ConditionReport::no(LOAD_BALANCER_AVAILABLE, reason, message).in_v1(
        LOAD_BALANCER_AVAILABLE,
        "LoadBalancerProvisioningFailed",
        "Warning",
    );
    with_summary(s, plan, report, |_| {})
}

/// The engine works on the load balancer. After an error, the status shows the error until the work
/// has ended.
fn creating(s: &Snapshot, plan: Plan<Action>, message: String) -> Plan<Action> {
    if shows_trouble(s) {
        return plan;
    }
    let report = ConditionReport::no(LOAD_BALANCER_AVAILABLE, NOT_AVAILABLE, message).in_v1(
        LOAD_BALANCER_AVAILABLE,
        "CreatingLoadBalancer",
        "Info",
    );
    with_summary(s, plan, report, |_| {})
}

/// Whether the status shows a problem of the load balancer, and no pause, which must not stay in
/// the status.
fn shows_trouble(s: &Snapshot) -> bool {
    let Some(status) = &s.docker.status else { return false };
    let is_pause =
        |condition: &Condition| condition.type_ == PAUSED && condition.status == ConditionStatus::True;
    // Each answer disproves that the engine is closed.
    let is_closed = |condition: &Condition| {
        condition.type_ == LOAD_BALANCER_AVAILABLE && condition.reason == ENGINE_CLOSED
    };
    !status.conditions.iter().any(|condition| is_pause(condition) || is_closed(condition))
        && conditions::shown_trouble(status.deprecated.as_ref(), LOAD_BALANCER_AVAILABLE).is_some()
}

fn delete(s: &Snapshot, since: Timestamp) -> Plan<Action> {
    let object = &s.docker.object;
    if !object.has_finalizer(constants::DOCKER_CLUSTER_FINALIZER) {
        // Without the finalizer no load balancer was ever requested.
        return Plan::idle(Why::new(
            Reason::Awaiting("waiting for other clients to remove their finalizers"),
            Step::Expect("the object is deleted"),
        ));
    }
    if gates::is_abandoned(object) {
        return release(GIVEN_UP, since);
    }
    if let Some(other) = original(s) {
        return taken(s, gates::deleted_with_key_taken(other).since(since));
    }
    let recorded = gates::recorded_engine(object);
    let Some(engine) = s.engine.clone() else { return no_engine() };
    if recorded.is_some_and(|recorded| recorded != engine) {
        let fix = format!(
            "start the provider with the engine that has the load balancer, or set annotation {}=true",
            constants::ABANDON_ANNOTATION
        );
        return Plan::idle(Why::new(CapiReason::OtherEngine, Step::Fix(fix)).since(since));
    }
    let machines = s.machines.iter().filter(|member| member.is_control_plane).count();
    if 0 < machines {
        let why = wait(CapiReason::MachinesRemain { machines }, "the machines are deleted").why.since(since);
        return deleting(s, Plan::idle(why));
    }
    deleting(s, remove_balancer(s, since))
}

fn remove_balancer(s: &Snapshot, since: Timestamp) -> Plan<Action> {
    if let Some((call, since)) = s.answers.in_flight {
        return Plan::idle(calling(call).since(since));
    }
    // A container of another Docker provider has no key. Its name and recorded id show whose it is.
    let object = &s.docker.object;
    let native_id = recorded_balancer(s);
    let cluster = object.owner("Cluster").or(object.cluster_label()).filter(|_| native_id.is_some());
    let which = BalancerRef { id: cluster.map(balancer_name), key: key(s), native_id, trace: None };
    let call = || Plan::act(Action::Delete(which.clone()), calling(DELETE_BALANCER).since(since));
    let Some(last) = &s.answers.delete else { return call() };
    if let (Some(other), Ok(Progress::Done(BalancerDeletion::Absent)), false) =
        (&s.container_holder, &last.answer, s.answers.was_deleted)
    {
        // The recorded load balancer may exist without a key.
        return Plan::idle(gates::deleted_with_key_taken(other).since(since));
    }
    match &last.answer {
        Ok(Progress::Done(
            BalancerDeletion::Gone | BalancerDeletion::Absent | BalancerDeletion::Retained,
        )) => {
            let counts_from = absence_counts_from(s);
            if counts_from <= last.started {
                release("removing the finalizer", since)
            } else if counts_from <= s.now {
                call()
            } else {
                let why = wait(CapiReason::AbsenceNotProven, "the finalizer is removed").why.since(since);
                let mut plan = Plan::until(counts_from, why);
                // Later processes count from this time, so that restarts do not begin the wait
                // again.
                if !knows_all_calls(s) && object.no_creation_since().is_none() {
                    plan.actions.push(Action::RecordWait(s.now));
                }
                plan
            }
        }
        Ok(Progress::Working(change)) => {
            let due = plus(last.ended, WORKING_AGAIN);
            let reason = CapiReason::BalancerWorking { change: change.clone() };
            if due <= s.now {
                call()
            } else {
                Plan::until(due, wait(reason, "it is deleted").why.since(since))
            }
        }
        Err(error) => {
            let retry = retry::again_after(error, s.answers.failures);
            let retry_at = plus(last.ended, retry);
            if retry_at <= s.now {
                call()
            } else {
                let why = Why::call_failed(DELETE_BALANCER, error, s.answers.failures, retry_at);
                Plan::until(retry_at, why.since(since))
            }
        }
    }
}

/// Returns from when on an absence counts: a call of this or of an earlier process may still create
/// the load balancer.
fn absence_counts_from(s: &Snapshot) -> Timestamp {
    let takes = s.process.promises.absence_takes();
    let ended = s.answers.ensure.as_ref().map(|(_, answered)| answered.ended);
    let unsure_until = s.answers.unsure_at.map(|ended| plus(ended, takes));
    let own = ended.max(unsure_until);
    let object = &s.docker.object;
    let own = own.unwrap_or(Timestamp::MIN);
    // Before a move, a process of another management cluster acted.
    let acting_since = s.process.acting_since().max(object.created);
    // No process creates anything long after one of them has recorded that nothing is wanted.
    let recorded = object.no_creation_since().map(|since| plus(since, READ_WITHIN + s.process.skew));
    let others = recorded.map_or(acting_since, |recorded| recorded.min(acting_since));
    if knows_all_calls(s) { own } else { plus(others, takes).max(own) }
}

/// Whether this process made every call for the object, and remembers those calls.
fn knows_all_calls(s: &Snapshot) -> bool {
    let object = &s.docker.object;
    // A restored object is new, and its load balancer is not.
    let is_new = s.process.saw_creation_of(object.created) && !gates::has_another_birth(object);
    is_new && (s.answers.ensure.is_some() || s.answers.unsure_at.is_some() || !s.answers.ever_ensured)
}

fn release(what: &'static str, since: Timestamp) -> Plan<Action> {
    Plan::act(
        Action::Release,
        Why::new(Reason::Writing(what), Step::Expect("the object is deleted")).since(since),
    )
}

fn deleting(s: &Snapshot, plan: Plan<Action>) -> Plan<Action> {
    if plan.actions.iter().any(|action| matches!(action, Action::Release)) {
        return plan;
    }
    let error = s.answers.delete.as_ref().and_then(|answered| answered.answer.as_ref().err());
    let (v1, severity) = if error.is_some() { ("DeletionFailed", "Warning") } else { ("Deleting", "Info") };
    let message = error.map(|error| error.message.clone()).unwrap_or_default();
    let report = ConditionReport::no(LOAD_BALANCER_AVAILABLE, "Deleting", message);
    with_summary(s, plan, report.in_v1(LOAD_BALANCER_AVAILABLE, v1, severity), |_| {})
}

fn with_summary(
    s: &Snapshot,
    plan: Plan<Action>,
    report: ConditionReport,
    change: impl FnOnce(&mut DockerClusterStatus),
) -> Plan<Action> {
    let ready = conditions::ready(std::slice::from_ref(&report));
    with_reports(s, plan, &[report, ready, conditions::paused(KIND, false, false)], change)
}

/// Puts the write of the status before the actions of a plan, if the status differs.
fn with_reports(
    s: &Snapshot,
    mut plan: Plan<Action>,
    reports: &[ConditionReport],
    change: impl FnOnce(&mut DockerClusterStatus),
) -> Plan<Action> {
    let old = s.docker.status.clone().unwrap_or_default();
    let mut new = old.clone();
    change(&mut new);
    new.conditions = conditions::merge(&old.conditions, reports, s.docker.object.generation, s.now);
    new.deprecated = conditions::merge_v1(old.deprecated.as_ref(), reports, s.now);
    let write = (new != old).then(|| Action::SetStatus(Box::new(new)));
    plan.actions.splice(0..0, write);
    plan
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Everyone may read the planned actions, and a user who knows a key can copy it.
            Self::Claim(claim) => write!(f, "claim on engine {}", claim.engine),
            Self::Ensure { spec, .. } => {
                write!(f, "ensure load balancer {}:", spec.name)?;
                spec.targets.iter().try_for_each(|target| write!(f, " {}={}", target.node, target.weight))
            }
            Self::SetEndpoint(endpoint) => {
                write!(f, "endpoint: {}:{}", endpoint.host, endpoint.port().unwrap_or_default())
            }
            Self::SetStatus(status) => {
                let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
                write!(f, "status: {}", ready.map_or("", |condition| condition.reason.as_str()))
            }
            Self::Delete(_) => f.write_str("delete the load balancer"),
            Self::RecordWait(_) => f.write_str("record the wait for earlier calls"),
            Self::Release => f.write_str("remove the finalizer"),
        }
    }
}

#[cfg(test)]
mod tests;
